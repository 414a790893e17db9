"""The rules of rules.txt, what proves each, and the table of them in docs/rules.md.

python tests/rules/table.py              writes docs/rules.md
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RULES = HERE / "rules.txt"
DOCUMENT = ROOT / "docs" / "rules.md"
HEAD = """# Rules of gfx950 that emulators get wrong

Each row is a rule of the CDNA4 ISA manual that is easy to miss, or a fault seen in another emulator, and what shows
that this one keeps it: the tests that fail where it is broken, or why there is nothing to test. `RJ` numbers are those
of AMD's public comparison of an emulator with the manual; `S` rules are further notes beside them, `P` rules faults of
emulators. Marks in the text: [A] the manual is unsettled, [C] it contradicts itself, [X] AMD's machine-readable ISA
omits or contradicts the rule, [L] compilers and their tests do what it forbids; what a mark forbids is not refused.
Section signs and T numbers are sections and tables of the manual.

Written by `python tests/rules/table.py`; a test compares.

| rule | text | kept |
|---|---|---|
"""


@dataclass(frozen=True)
class Rule:
    """One rule: its id and what it says."""

    name: str
    text: str


def rules() -> list[Rule]:
    """All of them, in the order of the table."""
    lines = [line for line in RULES.read_text().splitlines() if not line.startswith("#")]
    return [Rule(*line.split("\t", 1)) for line in lines]


def marked_tests() -> dict[str, list[str]]:
    """The tests of this folder by the rule they carry as a mark."""
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            for mark in getattr(node, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.rule":
                    for argument in mark.args:
                        found.setdefault(ast.literal_eval(argument), []).append(f"tests/rules/{path.name}::{node.name}")
    return found


def document() -> str:
    """The text of docs/rules.md."""
    from listed import NOTES, PROVED, REASONS

    marked = marked_tests()
    rows = []
    for rule in rules():
        tests = [*marked.get(rule.name, ()), *PROVED.get(rule.name, ())]
        kept = "<br>".join(f"`{t.removeprefix('tests/')}`" for t in tests) or f"not tested: {REASONS[rule.name]}"
        kept += f"<br>{NOTES[rule.name]}" if rule.name in NOTES else ""
        rows.append(f"| {rule.name} | {rule.text.replace('|', chr(92) + '|')} | {kept.replace('|', chr(92) + '|')} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    DOCUMENT.write_text(document())
