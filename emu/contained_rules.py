"""What the bits of a kernel rest on: the rules of the instructions in its machine code, before and after a run.

The rules of the machine itself (how a launch fills registers, what overlapping stores leave) are in the ledger only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from emu.blocks import discover
from emu.code_object import CodeObject
from emu.kernel_metadata import Kernel
from gfx950.evidence import Evidence, Rule
from gfx950.instruction_rules import rules_of
from gfx950.isa.encoding import Decoded
from gfx950.isa.registry import load
from gfx950.isa.vop1 import MOVE_MODIFIERS


@dataclass(frozen=True)
class ContainedRules:
    """What the reachable instructions of a kernel rest on. mnemonics: sorted. rules: weakest first. unknown: why some
    reachable code is no known instruction. indirect: whether jumps through registers may reach more. modified: whether
    a move or select with CLAMP or OMOD is among them; a plain one rests on nothing."""

    mnemonics: tuple[str, ...]
    rules: tuple[Rule, ...]
    unknown: tuple[str, ...]
    indirect: bool
    modified: bool = False

    @property
    def weakest(self) -> Evidence:
        """The level of the weakest rule; `spec` when there is none."""
        return min((r.evidence for r in self.rules), default=Evidence.spec)

    def with_executed(self, mnemonics: Iterable[str]) -> ContainedRules:
        """With the instructions of a finished run, which then include all that jumps reached."""
        names = {*self.mnemonics, *mnemonics}
        return replace(self, mnemonics=tuple(sorted(names)), rules=_rules(names, self.modified), indirect=False)

    def below(self, level: Evidence) -> list[Rule]:
        """The rules weaker than `level`."""
        return [r for r in self.rules if r.evidence < level]


def contained_rules(code: CodeObject, kernel: Kernel) -> ContainedRules:
    """The rules of every instruction that direct branches reach from the kernel's entry."""
    run = code.code_of(kernel)
    blocks = discover(run.data, run.address, kernel.entry).values()
    instructions = {d.instruction.name: d.instruction for block in blocks for d in block.instructions}
    modified = any(MOVE_MODIFIERS in d.instruction.rules and _modified(d) for b in blocks for d in b.instructions)
    return ContainedRules(
        tuple(sorted(instructions)),
        _rules(instructions, modified),
        tuple(dict.fromkeys(block.error for block in blocks if block.error)),
        any(result.place == "pc" for i in instructions.values() for result in i.results),
        modified,
    )


def _modified(decoded: Decoded) -> bool:
    fields = decoded.fields | (decoded.sdwa or {})
    return bool(fields.get("clamp") or fields.get("omod"))


def _rules(mnemonics: Iterable[str], modified: bool) -> tuple[Rule, ...]:
    known = load()
    rules = {rule.name: rule for name in mnemonics for rule in rules_of(known[name])}
    if not modified:
        rules.pop(MOVE_MODIFIERS.name, None)
    return tuple(sorted(rules.values(), key=lambda r: (r.evidence, r.name)))
