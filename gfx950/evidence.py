"""What the bits rest on: every rule that decides a bit is named here with its evidence level and its source.

A rule is declared once, beside the code that follows it, with `rule(...)`; the ledger is the table of them all.

Levels, weakest first: `chosen`, `vendor`, `carried`, `published`, `measured`, `spec`. `vendor` is AMD's own software:
what its compilers, drivers, libraries and emulators for gfx950 do or rely on. It stands above a choice, for its makers
know the chip and programs run by it, and below `carried`, for software says what its makers mean, and a measurement,
be it of the chip before, what silicon did. `spec` is strongest, for it is what a chip is held to: the ISA text, and for
code objects and launches the ABI in LLVM's AMDGPUUsage.

An instruction has the level of its weakest rule, `spec` where it has none.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


class Evidence(enum.IntEnum):
    """How sure a rule is, weakest first, so that levels compare with `<`."""

    chosen = 0  # nothing known: a documented choice
    vendor = 1  # AMD's own software for gfx950 does so or relies on it; nobody says that it was measured
    carried = 2  # measured on gfx942 and assumed to hold on gfx950
    published = 3  # somebody's measurement or test on gfx950 hardware, cited
    measured = 4  # a capture from an MI355X, named by digest
    spec = 5  # the ISA text or the ABI


LEVELS = tuple(level.name for level in Evidence)
# As a line of counts has them: what is below `spec` from the strongest to the weakest, then what rests on `spec` alone.
_COUNTED = (*LEVELS[-2::-1], LEVELS[-1])


@dataclass(frozen=True)
class Rule:
    """One rule a bit depends on.

    name: dotted, e.g. `mfma.group_sum`. evidence: its level. source: where it comes from, precise enough to look up.
    text: what the rule says, in one or two sentences.
    """

    name: str
    evidence: Evidence
    source: str
    text: str


LEDGER: dict[str, Rule] = {}


def rule(name: str, evidence: Evidence, source: str, text: str) -> Rule:
    """Declares a rule and enters it in the ledger.

    Raises ValueError when the name is taken by a different rule, TypeError when a part is missing or of another type.
    """
    if not isinstance(evidence, Evidence) or not all(isinstance(part, str) and part for part in (name, source, text)):
        raise TypeError(f"rule({name!r}, {evidence!r}, ...): takes a name, an Evidence level, a source and a text")
    new = Rule(name, evidence, source, text)
    if LEDGER.setdefault(name, new) != new:
        raise ValueError(f"rule {name!r} is declared twice with different contents; a rule has one home")
    return new


def weakest(rules: Collection[Rule]) -> Evidence:
    """The level a result that follows `rules` has: that of its weakest rule (`spec` when there are none)."""
    return min((r.evidence for r in rules), default=Evidence.spec)


def weakest_first(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Rules by level, then by name, each once."""
    return tuple(sorted(set(rules), key=lambda r: (r.evidence, r.name)))


def counts(instructions: Mapping[str, Collection[Rule]]) -> dict[str, int]:
    """How many instructions each level has. instructions: the rules of each, by mnemonic. All levels are there."""
    levels = [weakest(rules).name for rules in instructions.values()]
    return {name: levels.count(name) for name in _COUNTED}


def counted(numbers: Mapping[str, int]) -> str:
    """Such counts as a line: `37 instructions: 0 measured, 4 published, 9 carried, 0 vendor, 6 chosen, 18 spec`."""
    total = sum(numbers.values())
    return f"{total} instruction{'s' * (total != 1)}: " + ", ".join(f"{numbers[name]} {name}" for name in _COUNTED)
