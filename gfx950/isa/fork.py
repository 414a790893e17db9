"""Divergence in scalar code: S_CBRANCH_G_FORK, S_CBRANCH_I_FORK, S_CBRANCH_JOIN. [CDNA4 ISA 4.6, 12.1 to 12.3]"""

from __future__ import annotations

from gfx950.evidence import Evidence, rule
from gfx950.isa.mode_registers import MODE
from gfx950.isa.registry import Exec, Hardware, Pc, Scalars, sop1, sop2, sopk
from gfx950.lanes import U32, U64, HardwareRegisters, Mask, ScalarFile, join, split

FORK = rule(
    "salu.fork",
    Evidence.spec,
    "CDNA4 ISA 4.6, 12.1 S_CBRANCH_G_FORK, 12.2 S_CBRANCH_I_FORK, 12.3 S_CBRANCH_JOIN",
    "A fork whose mask splits EXEC runs the side with fewer lanes first (the jump's of two equal ones) and keeps the"
    " other one's EXEC and address in the SGPRs from 4 * MODE.CSP on, which goes up by one; a join whose operand is not"
    " CSP takes them back.",
)
CSP = 29  # the lowest bit of MODE.CSP, which fills the register


def _stack_pointer(hardware: HardwareRegisters) -> U32:
    return hardware.read(MODE) >> CSP


def _moved(hardware: HardwareRegisters, moves: Mask, step: int) -> None:
    """CSP goes up or down by one where it moves."""
    hardware.write(MODE, hardware.read(MODE) + moves.select(U32.constant(moves.engine, step << CSP), 0))


def _fork(
    mask: U64, target: U64, exec: U64, pc: U64, hardware: HardwareRegisters, scalars: ScalarFile
) -> tuple[U64, U64]:
    """EXEC and the address that go on."""
    jumping, staying = mask & exec, ~mask & exec
    splits = (jumping != exec) & (staying != exec)
    stays_first = staying.popcount() < jumping.popcount()
    first = _stack_pointer(hardware) << 2
    kept = (stays_first.select(jumping, staying), stays_first.select(target, pc))
    for place, word in enumerate((*split(kept[0]), *split(kept[1]))):
        scalars.write(splits.select(first + place, -1), word)  # there is no SGPR of that number
    _moved(hardware, splits, 1)
    going = stays_first.select(pc, target)
    together = (jumping == exec).select(target, pc)
    return splits.select(stays_first.select(staying, jumping), exec), splits.select(going, together)


@sop2("s_cbranch_g_fork", 41, flow="mode", rules=(FORK,))
def s_cbranch_g_fork(
    ssrc0: U64, ssrc1: U64, exec: Exec, pc: U64, hardware: Hardware, scalars: Scalars
) -> tuple[Exec, Pc]:
    """The lanes of S0 jump to the address S1, the others go on. [12.1, rule salu.fork]"""
    return _fork(ssrc0, ssrc1, exec, pc, hardware, scalars)


@sopk("s_cbranch_i_fork", 16, flow="mode", rules=(FORK,))
def s_cbranch_i_fork(
    sdst: U64, simm16: int, exec: Exec, pc: U64, hardware: Hardware, scalars: Scalars
) -> tuple[Exec, Pc]:
    """The lanes of SDST jump to the next instruction + 4 * immediate, the others go on. [12.2, rule salu.fork]"""
    return _fork(sdst, pc + 4 * simm16, exec, pc, hardware, scalars)


@sop1("s_cbranch_join", 46, flow="mode", rules=(FORK,))
def s_cbranch_join(ssrc0: U32, exec: Exec, pc: U64, hardware: Hardware, scalars: Scalars) -> tuple[Exec, Pc]:
    """Where CSP is S0, goes on; else the side that the last fork kept runs. [12.3, rule salu.fork]"""
    pointer = _stack_pointer(hardware)
    pops = pointer != ssrc0
    first = (pointer - 1) << 2
    lanes = join(scalars.read(first), scalars.read(first + 1))
    address = join(scalars.read(first + 2), scalars.read(first + 3))
    _moved(hardware, pops, -1)
    return pops.select(lanes, exec), pops.select(address, pc)
