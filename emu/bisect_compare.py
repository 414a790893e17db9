"""Compares the registers of one moment in two runs: bits, but for registers nobody has written and for addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emu.bisect_trace import Written
from emu.instrument_registers import Registers
from gfx950.isa.operand_codes import M0, VCC

Words = npt.NDArray[np.uint32]
SLACK = 4096  # bytes past an array that an address may be computed for
ACCUMULATORS = 256


@dataclass(frozen=True)
class Difference:
    """One register that differs. register: `v3`, `a0`, `s7`, `vcc`, `exec`, `m0`, `scc`, `mode`; `reached` when one run
    never got there. lanes: which, of a vector register; reference and suspect: the values, one for each lane."""

    register: str
    lanes: tuple[int, ...]
    reference: tuple[int, ...]
    suspect: tuple[int, ...]

    def __str__(self) -> str:
        pairs = [f"{a:#x} and {b:#x}" for a, b in zip(self.reference, self.suspect, strict=True)]
        if not self.lanes:
            return f"{self.register}: {pairs[0]}"
        shown = ", ".join(f"lane {lane}: {pair}" for lane, pair in list(zip(self.lanes, pairs, strict=True))[:4])
        more = f" and {len(self.lanes) - 4} more lanes" if len(self.lanes) > 4 else ""
        return f"{self.register} {shown}{more}"


@dataclass(frozen=True)
class Base:
    """The same memory in both runs: its address in each and its length in bytes."""

    reference: int
    suspect: int
    nbytes: int


def differences(mine: Registers, theirs: Registers, written: Written, bases: Sequence[Base]) -> list[Difference]:
    """What differs among the registers that the reference run has written. mine: the reference's.

    bases: memory at other addresses in the other run; words of its addresses count as equal when they name the same
    byte.
    """
    if mine.reached != theirs.reached:
        return [Difference("reached", (), (mine.reached,), (theirs.reached,))]
    agprs = written.vgprs[ACCUMULATORS:]
    return [
        *_vectors("v", mine.vgprs, theirs.vgprs, written.vgprs, bases),
        *_vectors("a", mine.agprs, theirs.agprs, agprs, bases),
        *_scalars(mine, theirs, written, bases),
    ]


def _vectors(
    letter: str, mine: Words, theirs: Words, written: npt.NDArray[np.bool_], bases: Sequence[Base]
) -> Iterator[Difference]:
    differs = _differ(mine, theirs, bases) & written[: len(mine)]
    for number in np.flatnonzero(differs.any(axis=1)):
        lanes = np.flatnonzero(differs[number])
        values = [tuple(int(x) for x in words[number, lanes]) for words in (mine, theirs)]
        yield Difference(f"{letter}{number}", tuple(int(n) for n in lanes), *values)


def _scalars(mine: Registers, theirs: Registers, written: Written, bases: Sequence[Base]) -> Iterator[Difference]:
    differs = _differ(mine.sgprs, theirs.sgprs, bases) & written.sgprs[: len(mine.sgprs)]
    for number in np.flatnonzero(differs):
        yield Difference(f"s{number}", (), (int(mine.sgprs[number]),), (int(theirs.sgprs[number]),))
    low, high = (0xFFFFFFFF * int(written.sgprs[VCC + half]) << 32 * half for half in (0, 1))
    masks = {"vcc": low | high, "m0": -int(written.sgprs[M0]), "scc": -int(written.scc), "exec": -1, "mode": -1}
    for name, mask in masks.items():
        a, b = getattr(mine, name), getattr(theirs, name)
        if (a ^ b) & mask:
            yield Difference(name, (), (a,), (b,))


def _differ(mine: Words, theirs: Words, bases: Sequence[Base]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = mine != theirs
    if not found.any():
        return found
    for base in bases:
        low = mine - np.uint32(base.reference & 0xFFFFFFFF)
        same_low = (low == theirs - np.uint32(base.suspect & 0xFFFFFFFF)) & (low < base.nbytes + SLACK)
        up = theirs - np.uint32(base.suspect >> 32)
        same_high = (mine == base.reference >> 32) & (up <= 1)  # one more where the lower half carries
        found = found & ~same_low & ~same_high
    return found


def pointer_base(mine: Registers, theirs: Registers, pointer: int, nbytes: int) -> Base | None:
    """Where the memory at an address of the reference run is in the other, by a pair of SGPRs that points into it."""
    for low in range(0, len(mine.sgprs) - 1, 2):
        here, there = (int(r.sgprs[low]) | int(r.sgprs[low + 1]) << 32 for r in (mine, theirs))
        base = there - (here - pointer)
        if pointer <= here < pointer + nbytes and base % 64 == 0 and base != pointer:
            return Base(pointer, base, nbytes)
    return None
