"""MUBUF and MTBUF loads and stores, those to LDS too, and the cache instructions. [CDNA4 ISA 9.1, 12.13, 12.14]

Addresses, range checks and conversions are those of `gfx950.isa.buffer_addressing` and `gfx950.isa.buffer_formats`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from gfx950.evidence import Evidence, rule
from gfx950.isa import buffer_addressing, buffer_formats
from gfx950.isa.buffer_addressing import Buffer as BufferAccess
from gfx950.isa.buffer_formats import ElementFormat, load_format, pack_halves, store_format, unpack_halves
from gfx950.isa.registry import Lds, Place, mtbuf, mubuf, mubuf_lds
from gfx950.isa.subword import D16, set_high, set_low, sign_extend
from gfx950.lanes import B96, B128, LANES, REGISTERS, U32, U64, in_registers, join, registers_of, split, static_lanes

Buffer = Annotated[BufferAccess, Place("buffer")]

TO_LDS = rule(
    "buffer.load_to_lds",
    Evidence.spec,
    "CDNA4 ISA 9.1.9, 12.13; the sum is confirmed by ROCm/rocm-systems pull request 10192, zeros from lanes out of"
    " range by 10928",
    "A buffer load to LDS writes dwords at M0[17:0] + immediate offset + lane * 4, or lane * 16 for x3 and x4; the"
    " immediate moves both sides; bytes and shorts are extended to a dword; a lane out of range writes 0,"
    " one whose place is not in the allocation takes no part.",
)
RULES = buffer_addressing.RULES
FORMAT_RULES = (*RULES, *buffer_formats.RULES)

# ---- loads and stores of an implied format ---------------------------------------------------------------------------


@mubuf("buffer_load_ubyte", 16, rules=RULES)
def buffer_load_ubyte(buffer: Buffer) -> U32:
    """1 byte, zero-extended. [12.13]"""
    return buffer.load(1)[0]


@mubuf("buffer_load_sbyte", 17, rules=RULES)
def buffer_load_sbyte(buffer: Buffer) -> U32:
    """1 byte, sign-extended. [12.13]"""
    return sign_extend(buffer.load(1)[0], 8)


@mubuf("buffer_load_ushort", 18, rules=RULES)
def buffer_load_ushort(buffer: Buffer) -> U32:
    """2 bytes, zero-extended. [12.13]"""
    return buffer.load(2)[0]


@mubuf("buffer_load_sshort", 19, rules=RULES)
def buffer_load_sshort(buffer: Buffer) -> U32:
    """2 bytes, sign-extended. [12.13]"""
    return sign_extend(buffer.load(2)[0], 16)


@mubuf("buffer_load_dword", 20, rules=RULES)
def buffer_load_dword(buffer: Buffer) -> U32:
    """4 bytes. [12.13]"""
    return buffer.load(4)[0]


@mubuf("buffer_load_dwordx2", 21, rules=RULES)
def buffer_load_dwordx2(buffer: Buffer) -> U64:
    """8 bytes. [12.13]"""
    return join(*buffer.load(8))


@mubuf("buffer_load_dwordx3", 22, rules=RULES)
def buffer_load_dwordx3(buffer: Buffer) -> B96:
    """12 bytes. [12.13]"""
    return B96(buffer.load(12))


@mubuf("buffer_load_dwordx4", 23, rules=RULES)
def buffer_load_dwordx4(buffer: Buffer) -> B128:
    """16 bytes. [12.13]"""
    return B128(buffer.load(16))


@mubuf("buffer_store_byte", 24, rules=RULES)
def buffer_store_byte(buffer: Buffer, data0: U32) -> None:
    """Bits 7:0. [12.13]"""
    buffer.store([data0], 1)


@mubuf("buffer_store_byte_d16_hi", 25, rules=RULES)
def buffer_store_byte_d16_hi(buffer: Buffer, data0: U32) -> None:
    """Bits 23:16. [12.13]"""
    buffer.store([data0 >> 16], 1)


@mubuf("buffer_store_short", 26, rules=RULES)
def buffer_store_short(buffer: Buffer, data0: U32) -> None:
    """Bits 15:0. [12.13]"""
    buffer.store([data0], 2)


@mubuf("buffer_store_short_d16_hi", 27, rules=RULES)
def buffer_store_short_d16_hi(buffer: Buffer, data0: U32) -> None:
    """Bits 31:16. [12.13]"""
    buffer.store([data0 >> 16], 2)


@mubuf("buffer_store_dword", 28, rules=RULES)
def buffer_store_dword(buffer: Buffer, data0: U32) -> None:
    """4 bytes. [12.13]"""
    buffer.store([data0], 4)


@mubuf("buffer_store_dwordx2", 29, rules=RULES)
def buffer_store_dwordx2(buffer: Buffer, data0: U64) -> None:
    """8 bytes. [12.13]"""
    buffer.store(split(data0), 8)


@mubuf("buffer_store_dwordx3", 30, rules=RULES)
def buffer_store_dwordx3(buffer: Buffer, data0: B96) -> None:
    """12 bytes. [12.13]"""
    buffer.store(data0.words, 12)


@mubuf("buffer_store_dwordx4", 31, rules=RULES)
def buffer_store_dwordx4(buffer: Buffer, data0: B128) -> None:
    """16 bytes. [12.13]"""
    buffer.store(data0.words, 16)


@mubuf("buffer_load_ubyte_d16", 32, rules=(*RULES, D16))
def buffer_load_ubyte_d16(buffer: Buffer, vdst: U32) -> U32:
    """1 byte, zero-extended, into the low half. [12.13]"""
    return set_low(vdst, buffer.load(1)[0])


@mubuf("buffer_load_ubyte_d16_hi", 33, rules=(*RULES, D16))
def buffer_load_ubyte_d16_hi(buffer: Buffer, vdst: U32) -> U32:
    """1 byte, zero-extended, into the high half. [12.13]"""
    return set_high(vdst, buffer.load(1)[0])


@mubuf("buffer_load_sbyte_d16", 34, rules=(*RULES, D16))
def buffer_load_sbyte_d16(buffer: Buffer, vdst: U32) -> U32:
    """1 byte, sign-extended, into the low half. [12.13]"""
    return set_low(vdst, sign_extend(buffer.load(1)[0], 8))


@mubuf("buffer_load_sbyte_d16_hi", 35, rules=(*RULES, D16))
def buffer_load_sbyte_d16_hi(buffer: Buffer, vdst: U32) -> U32:
    """1 byte, sign-extended, into the high half. [12.13]"""
    return set_high(vdst, sign_extend(buffer.load(1)[0], 8))


@mubuf("buffer_load_short_d16", 36, rules=(*RULES, D16))
def buffer_load_short_d16(buffer: Buffer, vdst: U32) -> U32:
    """2 bytes into the low half. [12.13]"""
    return set_low(vdst, buffer.load(2)[0])


@mubuf("buffer_load_short_d16_hi", 37, rules=(*RULES, D16))
def buffer_load_short_d16_hi(buffer: Buffer, vdst: U32) -> U32:
    """2 bytes into the high half. [12.13]"""
    return set_high(vdst, buffer.load(2)[0])


# ---- loads to LDS ----------------------------------------------------------------------------------------------------


def _to_lds(name: str, opcode: int, words: int, read: Callable[[BufferAccess], Sequence[U32]], *rules: Any) -> None:
    """A load whose dwords go to LDS at M0 + offset + lane * 4, or lane * 16 for three and four dwords."""

    def body(buffer: Buffer, lds: Lds, m0: U32, offset: int) -> None:
        stride = 4 if words == 1 else 16
        place = (m0 & 0x3FFFF) + offset + static_lanes(m0.engine, [stride * lane for lane in range(LANES)])
        inside = place + 4 <= lds.size()
        lds.store_late(place, read(buffer.only(inside)), 4 * words, inside)

    body.__doc__ = f"To {4 * words} bytes of LDS a lane at M0 + offset, not to registers. [9.1.9, 12.13]"
    mubuf_lds(f"buffer_load_{name}_lds", opcode, rules=(*RULES, *rules, TO_LDS))(body)


def _read_format(buffer: BufferAccess) -> list[U32]:
    return load_format(buffer, ElementFormat.of(buffer), 1)


_to_lds("format_x", 0, 1, _read_format, *buffer_formats.RULES)
_to_lds("ubyte", 16, 1, lambda buffer: buffer.load(1))
_to_lds("sbyte", 17, 1, lambda buffer: [sign_extend(buffer.load(1)[0], 8)])
_to_lds("ushort", 18, 1, lambda buffer: buffer.load(2))
_to_lds("sshort", 19, 1, lambda buffer: [sign_extend(buffer.load(2)[0], 16)])
_to_lds("dword", 20, 1, lambda buffer: buffer.load(4))
_to_lds("dwordx3", 22, 3, lambda buffer: buffer.load(12))
_to_lds("dwordx4", 23, 4, lambda buffer: buffer.load(16))


# ---- FORMAT, MUBUF and MTBUF -----------------------------------------------------------------------------------------


def _load_halves(halves: Sequence[U32], old: Any) -> Any:
    """D16 components two a register; the high half that an odd count leaves is kept."""
    kept = [unpack_halves(word)[1] for word in registers_of(old)]
    padded = [*halves, *kept[-1:]] if len(halves) % 2 else halves
    return in_registers([pack_halves(*padded[i : i + 2]) for i in range(0, len(padded), 2)])


def _load_body(components: int, d16: bool) -> Callable[..., Any]:
    """The body of a FORMAT load, MUBUF or MTBUF."""
    kind = REGISTERS[(components + 1) // 2 if d16 else components]

    def whole(buffer: BufferAccess) -> Any:
        return in_registers(load_format(buffer, ElementFormat.of(buffer), components))

    def halves(buffer: BufferAccess, vdst: Any) -> Any:
        return _load_halves(load_format(buffer, ElementFormat.of(buffer), components, d16=True), vdst)

    body = halves if d16 else whole
    body.__annotations__ = {"buffer": Buffer, "return": kind}
    if d16:
        body.__annotations__["vdst"] = kind
    body.__doc__ = f"{_counted(components, d16)} of the element, converted. [9.1.4, 12.13]"
    return body


def _store_body(components: int, d16: bool) -> Callable[..., Any]:
    """The body of a FORMAT store, MUBUF or MTBUF."""
    kind = REGISTERS[(components + 1) // 2 if d16 else components]

    def body(buffer: BufferAccess, data0: Any) -> None:
        words: Sequence[U32] = registers_of(data0)
        if d16:
            words = [half for word in words for half in unpack_halves(word)][:components]
        store_format(buffer, ElementFormat.of(buffer), words, d16)

    body.__annotations__ = {"buffer": Buffer, "data0": kind, "return": None}
    body.__doc__ = f"{_counted(components, d16)} to the element, converted. [9.1.4, 12.13]"
    return body


def _counted(components: int, d16: bool) -> str:
    return "XYZW"[:components] + (", 16 bits each, two a register," if d16 else "")


for _d16 in (False, True):
    for _components in range(1, 5):
        _suffix = ("d16_" if _d16 else "") + "xyzw"[:_components]
        _opcode = 8 * _d16 + _components - 1
        _kept = (D16,) if _d16 and _components % 2 else ()
        for _define, _prefix in ((mubuf, "buffer"), (mtbuf, "tbuffer")):
            _define(f"{_prefix}_load_format_{_suffix}", _opcode, rules=(*FORMAT_RULES, *_kept))(
                _load_body(_components, _d16)
            )
            _define(f"{_prefix}_store_format_{_suffix}", _opcode + 4, rules=FORMAT_RULES)(
                _store_body(_components, _d16)
            )


@mubuf("buffer_load_format_d16_hi_x", 38, rules=(*FORMAT_RULES, D16))
def buffer_load_format_d16_hi_x(buffer: Buffer, vdst: U32) -> U32:
    """X of the element, converted to 16 bits, into the high half. [12.13]"""
    return set_high(vdst, load_format(buffer, ElementFormat.of(buffer), 1, d16=True)[0])


@mubuf("buffer_store_format_d16_hi_x", 39, rules=FORMAT_RULES)
def buffer_store_format_d16_hi_x(buffer: Buffer, data0: U32) -> None:
    """Bits 31:16 as X of the element, converted. [12.13]"""
    store_format(buffer, ElementFormat.of(buffer), [data0 >> 16], d16=True)


# ---- caches ----------------------------------------------------------------------------------------------------------


@mubuf("buffer_wbl2", 40)  # no flow: like the stores that it completes it is waited for by vmcnt
def buffer_wbl2() -> None:
    """Writes caches back: memory is coherent here. [9.1.10, 12.13]"""


@mubuf("buffer_inv", 41, flow="nothing")
def buffer_inv() -> None:
    """Invalidates caches: memory is coherent here. [9.1.10, 12.13]"""
