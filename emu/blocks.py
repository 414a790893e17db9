"""The basic blocks of a kernel, found by following its direct branches.

A block is at most `QUANTUM` instructions, so that the scheduler can switch waves between blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emu.execute import STOPS, branch_target
from gfx950.isa.encoding import Decoded, DecodeError, decode

QUANTUM = 32


@dataclass
class Block:
    """Straight-line instructions from one address; error: why the last one cannot be run."""

    start: int
    instructions: list[Decoded] = field(default_factory=list)
    error: str | None = None

    def cut(self, count: int, error: str) -> None:
        """Keeps `count` instructions: the next cannot be run."""
        self.instructions, self.error = self.instructions[:count], error

    @property
    def end(self) -> int:
        """The address after the last instruction."""
        return self.instructions[-1].pc + self.instructions[-1].nbytes if self.instructions else self.start


def discover(code: bytes, base: int, entry: int, longest: int = QUANTUM) -> dict[int, Block]:
    """The basic blocks reachable from `entry` by direct branches, cut at `longest` instructions."""
    decoded: dict[int, Decoded | str] = {}
    leaders = {entry}
    work = [entry]
    while work:
        pc = work.pop()
        while pc not in decoded:
            try:
                one = decode(code, pc, base)
            except DecodeError as error:
                decoded[pc] = str(error)
                break
            decoded[pc] = one
            targets = _targets(one)
            leaders.update(targets)
            work.extend(targets)
            pc += one.nbytes
            if ends_block(one):
                if _falls_through(one):
                    leaders.add(pc)
                else:
                    break
    return {pc: _collect(decoded, leaders, pc, longest) for pc in _with_cuts(decoded, leaders, longest)}


def _targets(one: Decoded) -> list[int]:
    return [branch_target(one)] if one.instruction.flow == "branch" else []


def ends_block(one: Decoded) -> bool:
    """Whether control may leave after this instruction."""
    return one.instruction.flow in ("branch", "mode", *STOPS) or any(r.place == "pc" for r in one.instruction.results)


def _falls_through(one: Decoded) -> bool:
    flow = one.instruction.flow
    if flow == "branch":
        return bool(one.instruction.results)
    return flow not in ("end", "halt_always") and (flow != "" or one.instruction.name == "s_call_b64")


def _with_cuts(decoded: dict[int, Decoded | str], leaders: set[int], longest: int) -> list[int]:
    """The leaders and the places where long blocks are cut."""
    starts = []
    for leader in sorted(leaders):
        pc, count = leader, 0
        starts.append(leader)
        while isinstance(one := decoded.get(pc), Decoded) and not ends_block(one):
            pc += one.nbytes
            count += 1
            if pc in leaders:
                break
            if count == longest:
                starts.append(pc)
                count = 0
    return starts


def _collect(decoded: dict[int, Decoded | str], leaders: set[int], start: int, longest: int) -> Block:
    block = Block(start)
    pc = start
    while len(block.instructions) < longest:
        one = decoded.get(pc)
        if not isinstance(one, Decoded):
            block.error = one or f"pc 0x{pc:x}: no code there"
            return block
        block.instructions.append(one)
        pc += one.nbytes
        if ends_block(one) or pc in leaders:
            return block
    return block
