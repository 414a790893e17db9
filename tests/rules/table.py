"""The rules of facts/pitfalls.md and facts/peers.md, what proves each, and the table of them in docs/rules.md.

    python tests/rules/table.py              writes docs/rules.md
    python tests/rules/table.py FACTS        first records the rules anew from the folder of the facts

A bullet of pitfalls.md is the rule RJ-nnn that it begins with (.2, .3 for further bullets of one number), or
S<section>.n where it begins with none. A bullet of peers.md has a rule P<bullet>.n in each part between semicolons.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RECORDED = HERE / "recorded.txt"
DOCUMENT = ROOT / "docs" / "rules.md"
FACTS = ROOT.parent / "shared" / "facts"
MARK = "# Written by table.py from facts/pitfalls.md and facts/peers.md: rule, tab, text.\n"
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


def _bullets(path: Path) -> Iterator[tuple[str, str]]:
    """(section, text) of each bullet; lines that go on are joined."""
    section, text = "", ""
    for line in [*path.read_text().splitlines(), "# end"]:
        if text and (not line.startswith("  ") or not line.strip()):
            yield section, text
            text = ""
        if line.startswith("## "):
            section = line[3:].split(".")[0]
        elif line.startswith("- "):
            text = line[2:]
        elif text:
            text += " " + line.strip()


def _without_tests(text: str) -> str:
    """A rule's own words: what to test is left out."""
    return re.sub(r"\s*\bTest[^:\[]{0,30}: .*?(?=\s\[[ACXL]\]|$)", "", text).strip()


def facts_rules(facts: Path) -> list[Rule]:
    """The rules of the two files."""
    rules, seen = [], {}
    for section, text in _bullets(facts / "pitfalls.md"):
        number = re.match(r"(RJ-\d+)(?:[,/ ]*(?:RJ-)?\d+)*(?: related)?:? ?", text)
        base = number[1] if number else f"S{section}"
        seen[base] = seen.get(base, 0) + 1
        name = f"{base}.{seen[base]}" if not number or seen[base] > 1 else base
        rules.append(Rule(name, _without_tests(text[number.end() :] if number else text)))
    for bullet, (_, text) in enumerate(_bullets(facts / "peers.md"), 1):
        parts = text.strip(" ;.").removeprefix("decoder: ").split(";")
        rules += [Rule(f"P{bullet}.{n}", part.strip()) for n, part in enumerate(parts, 1)]
    return rules


def recorded_rules() -> list[Rule]:
    """The rules as they were last recorded."""
    lines = RECORDED.read_text().removeprefix(MARK).splitlines()
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
    for rule in recorded_rules():
        tests = [*marked.get(rule.name, ()), *PROVED.get(rule.name, ())]
        kept = "<br>".join(f"`{t.removeprefix('tests/')}`" for t in tests) or f"not tested: {REASONS[rule.name]}"
        kept += f"<br>{NOTES[rule.name]}" if rule.name in NOTES else ""
        rows.append(f"| {rule.name} | {rule.text.replace('|', chr(92) + '|')} | {kept.replace('|', chr(92) + '|')} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        RECORDED.write_text(MARK + "".join(f"{r.name}\t{r.text}\n" for r in facts_rules(Path(sys.argv[1]))))
    DOCUMENT.write_text(document())
