"""How memory instructions are written: SMEM, DS, FLAT, GLOBAL, SCRATCH, MUBUF, MTBUF. [CDNA4 ISA 8-11, 13.2-13.6]"""

from __future__ import annotations

from dataclasses import dataclass

from gfx950.isa.encoding import Decoded
from gfx950.isa.registry import Instruction
from gfx950.isa.text.fields import Field, Joined, Slot, bit
from gfx950.isa.text.modifiers import BufferFormat, Flag, Modifier, Swizzle, Value
from gfx950.isa.text.operands import Number, Operand, Scalar, Source, Vector, Word
from gfx950.isa.text.problems import TextProblem
from gfx950.isa.text.syntax import Syntax, registers_of

ACC = bit("acc", 0)
OFF = 0x7F  # the SADDR that is none


def _data(instruction: Instruction, name: str) -> int:
    """Registers of a data parameter, 0 where the definition has none."""
    parameter = instruction.parameter(name)
    return 0 if parameter is None else registers_of(instruction, parameter)


def _returned(instruction: Instruction) -> int:
    return registers_of(instruction, instruction.results[0]) if instruction.results else 0


# ---- SMEM -----------------------------------------------------------------------------------------------------------

# Definitions without an operand that have some in text: what their SDATA is, and the registers of SBASE.
CACHE_OPERANDS = {
    "s_dcache_discard": ("", 2), "s_dcache_discard_x2": ("", 2), "s_atc_probe": ("number", 2),
    "s_atc_probe_buffer": ("number", 4),
}  # fmt: skip


def smem(instruction: Instruction) -> tuple[Syntax, ...]:
    """An immediate, a register, or a register and an immediate; clocks and cache instructions have no address."""
    cache = CACHE_OPERANDS.get(instruction.name)
    first: list[Operand] = []
    words = _data(instruction, "data0") or _returned(instruction)
    if words:
        first.append(Scalar(Field("sdata"), words))
    if cache is None and not instruction.parameter("address") and not instruction.parameter("sbase"):
        return (Syntax(instruction, instruction.name, "SMEM", tuple(first)),)
    if cache is not None and cache[0]:
        first.append(Number(Field("sdata"), 7, hexadecimal="large"))
    base = cache[1] if cache is not None else 4 if instruction.parameter("sbase") else 2
    first.append(Scalar(Field("sbase"), base, scale=2))
    return _scalar_offsets(instruction, tuple(first), signed=base == 2)


def _scalar_offsets(instruction: Instruction, first: tuple[Operand, ...], signed: bool) -> tuple[Syntax, ...]:
    """The three kinds of offset. [CDNA4 ISA 8.2.1.1]"""
    offset, imm, soe = Field("offset"), bit("imm", 0), bit("soe", 0)
    glc: tuple[Modifier, ...] = () if instruction.flow else (Flag("glc", bit("glc", 0)),)
    bits = 21 if signed else 20
    immediate = Number(offset, bits, signed=signed, hexadecimal="always")
    with_register = Value("offset", offset, bits, signed=signed, hexadecimal=0, default=None)
    register = Field("offset", count=7)
    ways: tuple[tuple[Operand, tuple[Modifier, ...], int, int], ...] = (
        (immediate, (), 1, 0),
        (Scalar(register, 1), (), 0, 0),
        (Scalar(Field("soffset"), 1), (with_register,), 1, 1),
    )
    return tuple(
        Syntax(
            instruction,
            instruction.name,
            "SMEM",
            (*first, operand),
            (*needed, *glc),
            fixed=((imm, has_imm), (soe, has_soe)),
            required=needed,
        )
        for operand, needed, has_imm, has_soe in ways
    )


# ---- DS -------------------------------------------------------------------------------------------------------------

ANY_START = {"ds_read_b96_tr_b6"}  # [11.4]


def ds(instruction: Instruction) -> tuple[Syntax, ...]:
    """vdst, addr, data0, data1 and the offsets, of these what the definition has."""
    returned, operands = _returned(instruction), []
    is_gws = "_gws_" in instruction.name
    if returned:
        operands.append(Vector(Field("vdst"), returned, "va", ACC, any_start=instruction.name in ANY_START))
    if instruction.parameter("addr"):
        operands.append(Vector(Field("addr"), 1, even=is_gws))
    for name in ("data0", "data1"):
        words = _data(instruction, name)
        if words:
            has_file = any(o.acc is not None for o in operands)
            operands.append(Vector(Field(name), words, "va", ACC, follows=has_file))
    modifiers, fixed = _ds_offsets(instruction), ((bit("gds", 0), int(is_gws)),)
    return (Syntax(instruction, instruction.name, "DS", tuple(operands), modifiers, fixed=fixed),)


def _ds_offsets(instruction: Instruction) -> tuple[Modifier, ...]:
    gds: tuple[Modifier, ...] = (Flag("gds", bit("gds", 0)),) if "_gws_" in instruction.name else ()
    both = Joined(Field("offset0"), Field("offset1"), 8)
    if instruction.parameter("offset0"):
        return Value("offset0", Field("offset0"), 8), Value("offset1", Field("offset1"), 8), *gds
    if instruction.name == "ds_swizzle_b32":
        return (Swizzle(both),)
    if instruction.parameter("offset") or gds:
        return Value("offset", both, 16), *gds
    return ()


# ---- FLAT, GLOBAL, SCRATCH ------------------------------------------------------------------------------------------

SEGMENTS = {"FLAT": 0, "SCRATCH": 1, "GLOBAL": 2}


def flat(instruction: Instruction) -> tuple[Syntax, ...]:
    """Every address of the segment, atomics with and without the old datum."""
    ways = []
    is_atomic = instruction.parameter("sc0") is not None
    for returns in (True, False) if is_atomic else (bool(instruction.results),):
        for address, fixed, defaults in _flat_addresses(instruction):
            sc0: tuple[tuple[Slot, int], ...] = ((bit("sc0", 0), int(returns)),) if is_atomic else ()
            ways.append(_flat(instruction, address, returns, (*fixed, *sc0), defaults))
    return tuple(ways)


def _flat(
    instruction: Instruction,
    address: tuple[Operand, ...],
    returns: bool,
    fixed: tuple[tuple[Slot, int], ...],
    defaults: tuple[tuple[Slot, int], ...],
) -> Syntax:
    result: tuple[Operand, ...] = ()
    if returns:
        result = (Vector(Field("vdst"), _returned(instruction), "va", ACC),)
    words = _data(instruction, "data0")
    data: tuple[Operand, ...] = (Vector(Field("data"), words, "va", ACC, follows=returns),) if words else ()
    vaddr, saddr = address[:1], address[1:]
    segment = SEGMENTS[instruction.encoding]
    bits = 12 if segment == 0 else 13
    offset = Value("offset", Field("offset", count=bits), bits, signed=segment != 0)
    cache = tuple(Flag(name, bit(name, 0)) for name in ("sc0", "nt", "sc1"))
    return Syntax(
        instruction,
        instruction.name,
        "FLAT",
        (*result, *vaddr, *data, *saddr),
        (offset, *cache),
        fixed=fixed,
        defaults=((Field("seg"), segment), *defaults),
    )


Address = tuple[tuple[Operand, ...], tuple[tuple[Slot, int], ...], tuple[tuple[Slot, int], ...]]


def _flat_addresses(instruction: Instruction) -> list[Address]:
    """Operands of the address, and what they fix."""
    addr, saddr, sve = Field("addr"), Field("saddr"), bit("sve", 0)
    if instruction.encoding == "FLAT":
        return [((Vector(addr, 2),), (), ())]
    if instruction.encoding == "GLOBAL":
        scalar = Scalar(saddr, 2, highest=123)
        return [((Vector(addr, 2), Word("off")), ((saddr, OFF),), ()), ((Vector(addr, 1), scalar), (), ())]
    register = Scalar(saddr, 1, off=OFF)
    return [((Vector(addr, 1), register), ((sve, 1),), ()), ((Word("off"), register), ((sve, 0),), ())]


# ---- MUBUF, MTBUF ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BufferAddress:
    """VADDR: off, an index or an offset, or a pair of both, as OFFEN and IDXEN say."""

    def show(self, decoded: Decoded) -> str:
        """off, v1 or v[2:3]."""
        words = self._words(decoded)
        return Vector(Field("vaddr"), words).show(decoded) if words else "off"

    def _words(self, decoded: Decoded) -> int:
        return decoded.fields["offen"] + decoded.fields["idxen"]

    def read(self, decoded: Decoded, text: str) -> None:
        """What the modifiers, which are read first, ask for."""
        words = self._words(decoded)
        if words:
            Vector(Field("vaddr"), words).read(decoded, text)
        elif text != "off":
            raise TextProblem(f"expected off, as neither offen nor idxen is there, found {text!r}")


def buffer(instruction: Instruction) -> tuple[Syntax, ...]:
    """vdata, vaddr, srsrc, soffset; a load to LDS has no vdata; the cache instructions have nothing."""
    form = "MTBUF" if instruction.encoding == "MTBUF" else "MUBUF"
    cache = tuple(Flag(name, bit(name, 0)) for name in ("sc0", "nt", "sc1"))
    if instruction.parameter("buffer") is None:  # LLVM takes nt there too, and drops it
        return (Syntax(instruction, instruction.name, form, (), cache[::2]),)
    words = _data(instruction, "data0") or _returned(instruction)
    data: tuple[Operand, ...] = (Vector(Field("vdata"), words, "va", ACC),) if words else ()
    operands = (
        *data,
        BufferAddress(),
        Scalar(Field("srsrc"), 4, scale=4),
        Source(Field("soffset"), 1, "i32", files=""),
    )
    indexing = tuple(Flag(name, bit(name, 0)) for name in ("idxen", "offen"))
    offset = Value("offset", Field("offset"), 12)
    if form == "MTBUF":
        formats = BufferFormat(Field("dfmt"), Field("nfmt"))
        modifiers: tuple[Modifier, ...] = (formats, *indexing, offset, *cache)
        return (Syntax(instruction, instruction.name, form, operands, modifiers, defaults=((Field("dfmt"), 1),)),)
    if instruction.encoding == "MUBUF_LDS":
        lds = Flag("lds", bit("lds", 0))
        name = instruction.name.removesuffix("_lds")
        return (Syntax(instruction, name, form, operands, (*indexing, offset, *cache, lds), fixed=((lds.slot, 1),)),)
    return (Syntax(instruction, instruction.name, form, operands, (*indexing, offset, *cache)),)
