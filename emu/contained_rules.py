"""What the bits of a kernel rest on: the rules of the instructions in its machine code.

An instruction is counted once for each mnemonic, however often it stands in the code or runs. Before a launch these are
the mnemonics of all code that direct branches reach from the kernel's entry, whether it will run or not; a launch adds
what its waves reached through registers. The rules of the machine itself (how a launch fills registers, what
overlapping stores leave) are in the ledger only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emu.blocks import discover
from emu.code_object import CodeObject
from emu.kernel_metadata import Kernel
from gfx950.evidence import Evidence, Rule, counted, counts, weakest, weakest_first
from gfx950.instruction_rules import rules_of
from gfx950.isa.encoding import Decoded, decode
from gfx950.isa.vop1 import MOVE_MODIFIERS
from gfx950.models import Model, in_force

if TYPE_CHECKING:
    from emu.dispatch import Machine
    from emu.host_machine import HostMachine

SHOWN = 8  # rules of a refusal
SHOWN_INSTRUCTIONS = 6  # of a rule


@dataclass(frozen=True)
class KernelEvidence:
    """What the instructions of a kernel (or several) rest on under a model.

    instructions: the rules of each by mnemonic, sorted; a move or select without CLAMP and OMOD rests on nothing.
    unknown: why some reachable code is no known instruction. indirect: whether there are jumps through registers, which
    may reach more than is listed.
    """

    instructions: Mapping[str, tuple[Rule, ...]]
    model: Model
    unknown: tuple[str, ...] = ()
    indirect: bool = False

    @property
    def mnemonics(self) -> tuple[str, ...]:
        """The instructions."""
        return tuple(self.instructions)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of all of them, weakest first."""
        return weakest_first(rule for rules in self.instructions.values() for rule in rules)

    @property
    def counts(self) -> dict[str, int]:
        """How many instructions have each level, that of their weakest rule."""
        return counts(self.instructions)

    @property
    def weakest(self) -> Evidence:
        """The level of the weakest rule; `spec` when there is none."""
        return weakest(self.rules)

    def below(self, level: Evidence) -> list[Rule]:
        """The rules weaker than `level`."""
        return [r for r in self.rules if r.evidence < level]

    def following(self, rule: Rule) -> list[str]:
        """The instructions that rest on a rule."""
        return [name for name, rules in self.instructions.items() if rule in rules]

    def __str__(self) -> str:
        return counted(self.counts)


def contained_rules(code: CodeObject, kernel: Kernel, reached: Iterable[Decoded] = ()) -> KernelEvidence:
    """The rules of every instruction that direct branches reach from the kernel's entry, under the model in force.

    reached: instructions that a launch reached otherwise, as `reached_by` gives them.
    """
    run = code.code_of(kernel)
    blocks = discover(run.data, run.address, kernel.entry).values()
    listed = [d for block in blocks for d in block.instructions]
    return KernelEvidence(
        _instructions([*listed, *reached]),
        in_force(),
        tuple(dict.fromkeys(block.error for block in blocks if block.error)),
        any(result.place == "pc" for d in listed for result in d.instruction.results),
    )


def _instructions(found: Iterable[Decoded]) -> dict[str, tuple[Rule, ...]]:
    known, modified = {}, set()
    for one in found:
        known[one.instruction.name] = one.instruction
        if _modified(one):
            modified.add(one.instruction.name)
    rules = {name: weakest_first(rules_of(known[name])) for name in sorted(known)}
    return {n: tuple(r for r in its if r.name != MOVE_MODIFIERS.name or n in modified) for n, its in rules.items()}


def _modified(decoded: Decoded) -> bool:
    fields = decoded.fields | (decoded.sdwa or {})
    return bool(fields.get("clamp") or fields.get("omod"))


def reached_by(machine: Machine) -> list[Decoded]:
    """The instructions that the launches of a machine have reached: those translated, or fetched one at a time."""
    from emu.host_machine import HostMachine
    from emu.numpy_machine import NumpyMachine

    if isinstance(machine, NumpyMachine):
        return list(machine.decoded.values())
    return _translated(machine) if isinstance(machine, HostMachine) else []


def _translated(machine: HostMachine) -> list[Decoded]:
    found: dict[int, Decoded] = {}
    for tables in machine.tables.values():
        for place in np.flatnonzero(tables.slots.any(axis=0)):
            pc = machine.base + 4 * int(place)
            for _ in range(tables.lengths[place]):
                found[pc] = found[pc] if pc in found else decode(machine.bytes, pc, machine.base)
                pc += found[pc].nbytes
    return list(found.values())


def together(kernels: Collection[KernelEvidence]) -> KernelEvidence:
    """What several kernels rest on under one model."""
    instructions: dict[str, tuple[Rule, ...]] = {}
    for name, rules in (item for one in kernels for item in one.instructions.items()):
        instructions[name] = weakest_first((*instructions.get(name, ()), *rules))
    unknown = tuple(dict.fromkeys(text for one in kernels for text in one.unknown))
    model = next((one.model for one in kernels), in_force())
    return KernelEvidence(dict(sorted(instructions.items())), model, unknown, any(one.indirect for one in kernels))


def refusal(found: KernelEvidence, level: Evidence, own: Iterable[Rule] = ()) -> list[str]:
    """What is weaker than `level`, weakest and most used first, a line for each of the first few with the instructions
    that rest on it; none when all is as sure. Code that nobody can vouch for is too weak as well. own: rules of no
    instruction."""
    weak = [r for r in weakest_first((*found.rules, *own)) if r.evidence < level]
    weak.sort(key=lambda r: (r.evidence, -len(found.following(r))))
    lines = [f"unknown instruction: {text}" for text in found.unknown[:SHOWN]]
    for rule in weak[:SHOWN]:
        names = found.following(rule)
        more = f" and {len(names) - SHOWN_INSTRUCTIONS} more" if len(names) > SHOWN_INSTRUCTIONS else ""
        who = f" ({', '.join(names[:SHOWN_INSTRUCTIONS])}{more})" if names else ""
        lines.append(f"{rule.evidence.name}  {rule.name}: {rule.text}{who}")
    left = len(weak) - SHOWN
    return lines + [f"and {left} more rule{'s' * (left != 1)}"] * (left > 0)
