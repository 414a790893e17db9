"""DS: loads, stores and transposing loads of LDS. [CDNA4 ISA 11, 12.12]

Two-address forms scale each offset by the datum's size, the ST64 forms by 64 times that.
"""

from __future__ import annotations

from collections.abc import Sequence

from gfx950.evidence import Evidence, rule
from gfx950.isa.registry import Instruction, Lds, ds
from gfx950.isa.subword import D16, set_high, set_low, sign_extend
from gfx950.lanes import B96, B128, LANES, U32, U64, Mask, join, split, static_lanes, static_mask

ADDRESS = rule(
    "lds.address",
    Evidence.chosen,
    "CDNA4 ISA 12.12 adds ADDR and the offset; the width of the sum is not stated",
    "An LDS address is the 32-bit sum of the address register and the offset; it wraps at 2^32.",
)
EQUAL_OFFSETS = rule(
    "lds.equal_offsets",
    Evidence.spec,
    "CDNA4 ISA 11.3.1; the pseudo-code of 12.12 disagrees",
    "WRITE2 and WRXCHG2 with equal offsets store DATA0 alone; READ2 and WRXCHG2 then return the one datum twice (the"
    " second is chosen).",
)
ADD_TID = rule(
    "lds.addtid",
    Evidence.spec,
    "CDNA4 ISA 12.12",
    "The add-tid forms address offset + M0[15:0] + 4 * lane; the ADDR register is unused.",
)
ADD_TID_WIDTH = rule(
    "lds.addtid_width",
    Evidence.chosen,
    "CDNA4 ISA 12.12 does not state the width of the sum",
    "The sum that add-tid forms address keeps what carries out of 16 bits.",
)
TRANSPOSE = rule(
    "lds.transpose",
    Evidence.published,
    "rocRoller TransposeLoads (b16, b8, b4, b6), ROCm/rocm-systems PR 10175; the manual's 11.4 gives no lane map",
    "In each block of 16 lanes the elements loaded are one array; element j of lane q is number 16 j + q of it.",
)
TRANSPOSE_EXEC = rule(
    "lds.transpose_exec",
    Evidence.chosen,
    "CDNA4 ISA 11.4 asks for EXEC all ones",
    "A transposing load with inactive lanes takes zeros from them and does not write them.",
)

GLOBAL_WAVE_SYNC = rule(
    "lds.global_wave_sync",
    Evidence.chosen,
    "the CDNA4 ISA has no global wave sync; LLVM's assembler takes DS_GWS_* for gfx950",
    "DS_GWS_* are refused when they run: their semaphores belong to no memory, and the driver lends them to no program"
    " unasked. Atomics in global memory synchronise workgroups.",
)


@ds("ds_write_b32", 13, rules=(ADDRESS,))
def ds_write_b32(lds: Lds, addr: U32, data0: U32, offset: int) -> None:
    """4 bytes. [12.12]"""
    lds.store(addr + offset, [data0], 4)


@ds("ds_write2_b32", 14, rules=(ADDRESS, EQUAL_OFFSETS))
def ds_write2_b32(lds: Lds, addr: U32, data0: U32, data1: U32, offset0: int, offset1: int) -> None:
    """Two dwords. [12.12]"""
    lds.store(addr + offset0 * 4, [data0], 4)
    if offset1 != offset0:
        lds.store(addr + offset1 * 4, [data1], 4)


@ds("ds_write2st64_b32", 15, rules=(ADDRESS, EQUAL_OFFSETS))
def ds_write2st64_b32(lds: Lds, addr: U32, data0: U32, data1: U32, offset0: int, offset1: int) -> None:
    """Two dwords, offsets in 64 dwords. [12.12]"""
    lds.store(addr + offset0 * 256, [data0], 4)
    if offset1 != offset0:
        lds.store(addr + offset1 * 256, [data1], 4)


@ds("ds_nop", 20, flow="nothing")
def ds_nop() -> None:
    """Does nothing. [12.12]"""


@ds("ds_write_addtid_b32", 29, rules=(ADD_TID, ADD_TID_WIDTH))
def ds_write_addtid_b32(lds: Lds, data0: U32, m0: U32, offset: int) -> None:
    """4 bytes at offset + M0[15:0] + 4 * lane. [12.12]"""
    lds.store(_lane_address(m0, offset), [data0], 4)


@ds("ds_write_b8", 30, rules=(ADDRESS,))
def ds_write_b8(lds: Lds, addr: U32, data0: U32, offset: int) -> None:
    """Bits 7:0. [12.12]"""
    lds.store(addr + offset, [data0], 1)


@ds("ds_write_b16", 31, rules=(ADDRESS,))
def ds_write_b16(lds: Lds, addr: U32, data0: U32, offset: int) -> None:
    """Bits 15:0. [12.12]"""
    lds.store(addr + offset, [data0], 2)


@ds("ds_read_b32", 54, rules=(ADDRESS,))
def ds_read_b32(lds: Lds, addr: U32, offset: int) -> U32:
    """4 bytes. [12.12]"""
    return lds.load(addr + offset, 4)[0]


@ds("ds_read2_b32", 55, rules=(ADDRESS, EQUAL_OFFSETS))
def ds_read2_b32(lds: Lds, addr: U32, offset0: int, offset1: int) -> U64:
    """Two dwords. [12.12]"""
    return join(*lds.load(addr + offset0 * 4, 4), *lds.load(addr + offset1 * 4, 4))


@ds("ds_read2st64_b32", 56, rules=(ADDRESS, EQUAL_OFFSETS))
def ds_read2st64_b32(lds: Lds, addr: U32, offset0: int, offset1: int) -> U64:
    """Two dwords, offsets in 64 dwords. [12.12]"""
    return join(*lds.load(addr + offset0 * 256, 4), *lds.load(addr + offset1 * 256, 4))


@ds("ds_read_i8", 57, rules=(ADDRESS,))
def ds_read_i8(lds: Lds, addr: U32, offset: int) -> U32:
    """1 byte, sign-extended. [12.12]"""
    return sign_extend(lds.load(addr + offset, 1)[0], 8)


@ds("ds_read_u8", 58, rules=(ADDRESS,))
def ds_read_u8(lds: Lds, addr: U32, offset: int) -> U32:
    """1 byte, zero-extended. [12.12]"""
    return lds.load(addr + offset, 1)[0]


@ds("ds_read_i16", 59, rules=(ADDRESS,))
def ds_read_i16(lds: Lds, addr: U32, offset: int) -> U32:
    """2 bytes, sign-extended. [12.12]"""
    return sign_extend(lds.load(addr + offset, 2)[0], 16)


@ds("ds_read_u16", 60, rules=(ADDRESS,))
def ds_read_u16(lds: Lds, addr: U32, offset: int) -> U32:
    """2 bytes, zero-extended. [12.12]"""
    return lds.load(addr + offset, 2)[0]


@ds("ds_write_b64", 77, rules=(ADDRESS,))
def ds_write_b64(lds: Lds, addr: U32, data0: U64, offset: int) -> None:
    """8 bytes. [12.12]"""
    lds.store(addr + offset, split(data0), 8)


@ds("ds_write2_b64", 78, rules=(ADDRESS, EQUAL_OFFSETS))
def ds_write2_b64(lds: Lds, addr: U32, data0: U64, data1: U64, offset0: int, offset1: int) -> None:
    """Two times 8 bytes. [12.12]"""
    lds.store(addr + offset0 * 8, split(data0), 8)
    if offset1 != offset0:
        lds.store(addr + offset1 * 8, split(data1), 8)


@ds("ds_write2st64_b64", 79, rules=(ADDRESS, EQUAL_OFFSETS))
def ds_write2st64_b64(lds: Lds, addr: U32, data0: U64, data1: U64, offset0: int, offset1: int) -> None:
    """Two times 8 bytes, offsets in 64 times 8 bytes. [12.12]"""
    lds.store(addr + offset0 * 512, split(data0), 8)
    if offset1 != offset0:
        lds.store(addr + offset1 * 512, split(data1), 8)


@ds("ds_write_b8_d16_hi", 84, rules=(ADDRESS,))
def ds_write_b8_d16_hi(lds: Lds, addr: U32, data0: U32, offset: int) -> None:
    """Bits 23:16. [12.12]"""
    lds.store(addr + offset, [data0 >> 16], 1)


@ds("ds_write_b16_d16_hi", 85, rules=(ADDRESS,))
def ds_write_b16_d16_hi(lds: Lds, addr: U32, data0: U32, offset: int) -> None:
    """Bits 31:16. [12.12]"""
    lds.store(addr + offset, [data0 >> 16], 2)


@ds("ds_read_u8_d16", 86, rules=(ADDRESS, D16))
def ds_read_u8_d16(lds: Lds, addr: U32, offset: int, vdst: U32) -> U32:
    """1 byte, zero-extended, into the low half. [12.12]"""
    return set_low(vdst, lds.load(addr + offset, 1)[0])


@ds("ds_read_u8_d16_hi", 87, rules=(ADDRESS, D16))
def ds_read_u8_d16_hi(lds: Lds, addr: U32, offset: int, vdst: U32) -> U32:
    """1 byte, zero-extended, into the high half. [12.12]"""
    return set_high(vdst, lds.load(addr + offset, 1)[0])


@ds("ds_read_i8_d16", 88, rules=(ADDRESS, D16))
def ds_read_i8_d16(lds: Lds, addr: U32, offset: int, vdst: U32) -> U32:
    """1 byte, sign-extended, into the low half. [12.12]"""
    return set_low(vdst, sign_extend(lds.load(addr + offset, 1)[0], 8))


@ds("ds_read_i8_d16_hi", 89, rules=(ADDRESS, D16))
def ds_read_i8_d16_hi(lds: Lds, addr: U32, offset: int, vdst: U32) -> U32:
    """1 byte, sign-extended, into the high half. [12.12]"""
    return set_high(vdst, sign_extend(lds.load(addr + offset, 1)[0], 8))


@ds("ds_read_u16_d16", 90, rules=(ADDRESS, D16))
def ds_read_u16_d16(lds: Lds, addr: U32, offset: int, vdst: U32) -> U32:
    """2 bytes into the low half. [12.12]"""
    return set_low(vdst, lds.load(addr + offset, 2)[0])


@ds("ds_read_u16_d16_hi", 91, rules=(ADDRESS, D16))
def ds_read_u16_d16_hi(lds: Lds, addr: U32, offset: int, vdst: U32) -> U32:
    """2 bytes into the high half. [12.12]"""
    return set_high(vdst, lds.load(addr + offset, 2)[0])


@ds("ds_read_b64", 118, rules=(ADDRESS,))
def ds_read_b64(lds: Lds, addr: U32, offset: int) -> U64:
    """8 bytes. [12.12]"""
    return join(*lds.load(addr + offset, 8))


@ds("ds_read2_b64", 119, rules=(ADDRESS, EQUAL_OFFSETS))
def ds_read2_b64(lds: Lds, addr: U32, offset0: int, offset1: int) -> B128:
    """Two times 8 bytes. [12.12]"""
    return B128((*lds.load(addr + offset0 * 8, 8), *lds.load(addr + offset1 * 8, 8)))


@ds("ds_read2st64_b64", 120, rules=(ADDRESS, EQUAL_OFFSETS))
def ds_read2st64_b64(lds: Lds, addr: U32, offset0: int, offset1: int) -> B128:
    """Two times 8 bytes, offsets in 64 times 8 bytes. [12.12]"""
    return B128((*lds.load(addr + offset0 * 512, 8), *lds.load(addr + offset1 * 512, 8)))


@ds("ds_read_addtid_b32", 182, rules=(ADD_TID, ADD_TID_WIDTH))
def ds_read_addtid_b32(lds: Lds, m0: U32, offset: int) -> U32:
    """4 bytes at offset + M0[15:0] + 4 * lane. [12.12]"""
    return lds.load(_lane_address(m0, offset), 4)[0]


@ds("ds_write_b96", 222, rules=(ADDRESS,))
def ds_write_b96(lds: Lds, addr: U32, data0: B96, offset: int) -> None:
    """12 bytes. [12.12]"""
    lds.store(addr + offset, data0.words, 12)


@ds("ds_write_b128", 223, rules=(ADDRESS,))
def ds_write_b128(lds: Lds, addr: U32, data0: B128, offset: int) -> None:
    """16 bytes. [12.12]"""
    lds.store(addr + offset, data0.words, 16)


@ds("ds_read_b96", 254, rules=(ADDRESS,))
def ds_read_b96(lds: Lds, addr: U32, offset: int) -> B96:
    """12 bytes. [12.12]"""
    return B96(lds.load(addr + offset, 12))


@ds("ds_read_b128", 255, rules=(ADDRESS,))
def ds_read_b128(lds: Lds, addr: U32, offset: int) -> B128:
    """16 bytes. [12.12]"""
    return B128(lds.load(addr + offset, 16))


def _lane_address(m0: U32, offset: int) -> U32:
    return (m0 & 0xFFFF) + offset + static_lanes(m0.engine, [4 * lane for lane in range(LANES)])


def _pick(words: Sequence[U32], here: Sequence[Mask]) -> U32:
    """In each lane the word whose mask is set there."""
    picked = words[0]
    for word, mask in zip(words[1:], here[1:], strict=True):
        picked = mask.select(word, picked)
    return picked


def _transposed(words: Sequence[U32], width: int) -> tuple[U32, ...]:
    """Element j of lane q is element q mod E of lane 16 j / E + q / E, in each 16 lanes. [rule lds.transpose]"""
    engine, elements = words[0].engine, 32 * len(words) // width
    position = [lane % 16 % elements * width for lane in range(LANES)]
    here = [static_mask(engine, [p // 32 == n for p in position]) for n in range(len(words))]
    shift = static_lanes(engine, [p % 32 for p in position]).to(U64)
    result = [U32.constant(engine, 0) for _ in words]
    for j in range(elements):
        source = [lane // 16 * 16 + 16 // elements * j + lane % 16 // elements for lane in range(LANES)]
        moved = [word.permute(source) for word in words]
        pair = join(_pick(moved, here), _pick((*moved[1:], moved[-1]), here))
        _insert(result, (pair >> shift).to(U32) & (1 << width) - 1, j * width, width)
    return tuple(result)


def _insert(words: list[U32], element: U32, position: int, width: int) -> None:
    """Puts an element at a static bit position of a run of registers."""
    word, at = divmod(position, 32)
    words[word] = words[word] | (element << at)
    if at + width > 32:
        words[word + 1] = words[word + 1] | (element >> 32 - at)


@ds("ds_read_b64_tr_b4", 224, rules=(ADDRESS, TRANSPOSE, TRANSPOSE_EXEC), intrinsic="llvm.amdgcn.ds.read.tr4.b64")
def ds_read_b64_tr_b4(lds: Lds, addr: U32, offset: int) -> U64:
    """8 bytes a lane, 4-bit elements transposed. [11.4]"""
    return join(*_transposed(lds.load(addr + offset, 8), 4))


@ds("ds_read_b96_tr_b6", 225, rules=(ADDRESS, TRANSPOSE, TRANSPOSE_EXEC), intrinsic="llvm.amdgcn.ds.read.tr6.b96")
def ds_read_b96_tr_b6(lds: Lds, addr: U32, offset: int) -> B96:
    """12 bytes a lane, 6-bit elements transposed. [11.4]"""
    return B96(_transposed(lds.load(addr + offset, 12), 6))


@ds("ds_read_b64_tr_b8", 226, rules=(ADDRESS, TRANSPOSE, TRANSPOSE_EXEC), intrinsic="llvm.amdgcn.ds.read.tr8.b64")
def ds_read_b64_tr_b8(lds: Lds, addr: U32, offset: int) -> U64:
    """8 bytes a lane, bytes transposed. [11.4]"""
    return join(*_transposed(lds.load(addr + offset, 8), 8))


@ds("ds_read_b64_tr_b16", 227, rules=(ADDRESS, TRANSPOSE, TRANSPOSE_EXEC), intrinsic="llvm.amdgcn.ds.read.tr16.b64")
def ds_read_b64_tr_b16(lds: Lds, addr: U32, offset: int) -> U64:
    """8 bytes a lane, halves transposed. [11.4]"""
    return join(*_transposed(lds.load(addr + offset, 8), 16))


def _global_wave_sync(name: str, opcode: int, text: str, reads: bool = True) -> Instruction:
    def counting(addr: U32, offset: int) -> None: ...

    def plain(offset: int) -> None: ...

    body = counting if reads else plain
    body.__doc__ = f"{text} [rule lds.global_wave_sync]"
    return ds(f"ds_gws_{name}", opcode, flow="refused", rules=(GLOBAL_WAVE_SYNC,))(body)


ds_gws_sema_release_all = _global_wave_sync("sema_release_all", 152, "Lets every waiting wave go on.", False)
ds_gws_init = _global_wave_sync("init", 153, "Sets how many waves a barrier waits for.")
ds_gws_sema_v = _global_wave_sync("sema_v", 154, "Lets one waiting wave go on.", False)
ds_gws_sema_br = _global_wave_sync("sema_br", 155, "Lets several waiting waves go on.")
ds_gws_sema_p = _global_wave_sync("sema_p", 156, "Waits for a semaphore.", False)
ds_gws_barrier = _global_wave_sync("barrier", 157, "Waits for as many waves as the barrier was set to.")
