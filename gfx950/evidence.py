"""What the bits rest on: every rule that decides a bit is named here with its evidence level and its source.

A rule is declared once, beside the code that follows it, with `rule(...)`; the ledger is the table of them all.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Evidence(enum.IntEnum):
    """How sure a rule is, weakest first, so that levels compare with `<`."""

    chosen = 0  # nothing known: a documented choice
    carried = 1  # measured on gfx942 and assumed to hold on gfx950
    published = 2  # somebody's measurement on gfx950, cited
    measured = 3  # a capture from an MI355X, named by digest
    spec = 4  # the ISA text


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


def weakest(rules: list[Rule]) -> Evidence:
    """The level a result that follows `rules` has: that of its weakest rule (`spec` when there are none)."""
    return min((r.evidence for r in rules), default=Evidence.spec)
