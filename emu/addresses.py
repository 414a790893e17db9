"""Where a memory instruction reads and writes: FLAT, GLOBAL, SCRATCH, SMEM, buffers. [CDNA4 ISA 8.2.1, 9.1.5, 10.3]"""

from __future__ import annotations

from emu.memory import PRIVATE_APERTURE, SHARED_APERTURE
from emu.register_checks import UnsupportedForm, check_even, check_run
from emu.scalar_sources import scalar_pair, scalar_raw, scalar_value
from emu.state import State
from gfx950.isa.buffer_addressing import Buffer
from gfx950.isa.encoding import Decoded
from gfx950.isa.operand_codes import LITERAL
from gfx950.lanes import B128, U32, U64, join

NO_SADDR = 0x7F


def address(decoded: Decoded, state: State) -> U64:
    """The byte address of a FLAT, GLOBAL, SCRATCH or SMEM instruction, by its addressing mode. [8.2.1, 10.3]"""
    fields = decoded.fields
    if decoded.form == "SMEM":
        return _scalar_address(decoded, state)
    offset = fields["offset"]
    if decoded.instruction.encoding == "FLAT":
        return _flat_address(state, _vector_address(decoded, state) + (offset & 0xFFF))
    if offset & 0x1000:
        offset -= 0x2000
    if decoded.instruction.encoding == "SCRATCH":
        return _scratch_address(state, _scratch_offset(decoded, state, offset))
    if fields["saddr"] != NO_SADDR:
        base = scalar_pair(state, fields["saddr"])
        return base + U32(state.engine, state.vgpr(fields["addr"])).to(U64) + offset
    return _vector_address(decoded, state) + offset


def _vector_address(decoded: Decoded, state: State) -> U64:
    first = decoded.fields["addr"]
    check_even(first, 2)
    return join(*(U32(state.engine, state.vgpr(first + i)) for i in (0, 1)))


def _window(state: State, name: str) -> U64:
    return U64(state.engine, state.window(name))


def _flat_address(state: State, byte: U64) -> U64:
    """Addresses in an aperture become those of LDS and of the lane's scratch. [10.3, rule memory.apertures]"""
    part = (byte >> 32).to(U32)
    low = byte.to(U32)
    in_lds = part == SHARED_APERTURE >> 32
    in_scratch = part == PRIVATE_APERTURE >> 32
    byte = in_lds.select(_window(state, "lds") + low.to(U64), byte)
    return in_scratch.select(_scratch_address(state, low), byte)


def _scratch_offset(decoded: Decoded, state: State, offset: int) -> U32:
    """SADDR, the VGPR where SVE is set, and the offset. [10.3 table 56]"""
    fields, engine = decoded.fields, state.engine
    total = U32.constant(engine, offset)
    if fields["saddr"] != NO_SADDR:
        total = total + U32(engine, state.sgpr(fields["saddr"]))
    if fields["sve"]:
        total = total + U32(engine, state.vgpr(fields["addr"]))
    return total


def _scratch_address(state: State, offset: U32) -> U64:
    """Where byte `offset` of each lane's scratch lies; outside of it an address that nothing has."""
    wide = offset.to(U64)
    inside = _window(state, "scratch") + wide
    return (wide < _window(state, "scratch_bytes")).select(inside, wide + PRIVATE_APERTURE)


def buffer(decoded: Decoded, state: State) -> Buffer:
    """What a MUBUF or MTBUF instruction names: descriptor, index, offsets. [9.1.5, table 42]"""
    fields, engine = decoded.fields, state.engine
    descriptor = scalar_value(decoded, state, fields["srsrc"] * 4, B128)
    if fields["soffset"] == LITERAL:
        raise UnsupportedForm("SOFFSET is a literal: it is an SGPR, M0 or an inline constant")
    count = fields["idxen"] + fields["offen"]
    check_run(fields["vaddr"], count)
    check_even(fields["vaddr"], count)
    vgprs = [U32(engine, state.vgpr(fields["vaddr"] + i)) for i in range(count)]
    immediate = U32.constant(engine, fields["offset"])
    return Buffer(
        state.memory("global"),
        descriptor,
        vgprs[0] if fields["idxen"] else None,
        vgprs[-1] + immediate if fields["offen"] else immediate.splat(),
        U32(engine, scalar_raw(decoded, state, fields["soffset"], 32)),
        (fields["dfmt"], fields["nfmt"]) if decoded.form == "MTBUF" else None,
    )


def _scalar_address(decoded: Decoded, state: State) -> U64:
    """Base, immediate and register, each without its low two bits. [8.2.1.1]"""
    return (scalar_pair(state, decoded.fields["sbase"] * 2) & ~3) + smem_offset(decoded, state, ~3)


def smem_offset(decoded: Decoded, state: State, kept: int = -1) -> U64:
    """The immediate and register offsets of an SMEM instruction, in bytes; the bits of `kept` of either.

    S_BUFFER_LOAD aligns the sum instead. [8.2.1.1]
    """
    fields, engine = decoded.fields, state.engine
    immediate = fields["offset"] if fields["imm"] else 0
    offset = U64.constant(engine, (immediate - (1 << 21) if immediate >> 20 else immediate) & kept)
    if fields["soe"] or not fields["imm"]:
        register = U32(engine, state.sgpr(fields["soffset"] if fields["soe"] else fields["offset"] & 0x7F))
        scratch = decoded.instruction.name.startswith("s_scratch_")  # counts 64 bytes [rule smem.scratch]
        offset = offset + (register.to(U64) << 6 if scratch else (register & kept).to(U64))
    return offset
