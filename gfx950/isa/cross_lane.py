"""Data across lanes: row swaps (VOP1) and the LDS crossbar (DS). [CDNA4 ISA 12.8, 12.12]"""

from __future__ import annotations

from gfx950.evidence import Evidence, rule
from gfx950.isa.registry import Exec, ToSrc0, ds, vop1
from gfx950.lanes import LANES, U32, lanes_of, static_mask

SWAP_EXEC = rule(
    "permlane_swap.exec",
    Evidence.chosen,
    "CDNA4 ISA 12.8: the pseudo-code has no EXEC test",
    "The row swaps read every lane and write both registers under EXEC.",
)
INACTIVE_SOURCE = rule(
    "cross_lane.inactive_source",
    Evidence.spec,
    "CDNA4 ISA 12.12 DS_SWIZZLE, DS_PERMUTE, DS_BPERMUTE",
    "An inactive source lane gives 0; when several lanes push to one, the highest wins.",
)


def _swapped_rows(vdst: U32, src0: U32, rows: int) -> tuple[U32, U32]:
    """Exchanges the upper half of every 2 * `rows` lanes of vdst with the lower half of src0."""
    upper = static_mask(vdst.engine, [bool(lane & rows) for lane in range(LANES)])
    other = [lane ^ rows for lane in range(LANES)]
    return upper.select(src0.permute(other), vdst), upper.select(src0, vdst.permute(other))


@vop1("v_permlane16_swap_b32", 89, intrinsic="llvm.amdgcn.permlane16.swap", rules=(SWAP_EXEC,))
def v_permlane16_swap_b32(vdst: U32, src0: U32) -> tuple[U32, ToSrc0]:
    """Swaps rows 1 and 3 of D with rows 0 and 2 of S0, a row being 16 lanes. [12.8]"""
    return _swapped_rows(vdst, src0, 16)


@vop1("v_permlane32_swap_b32", 90, intrinsic="llvm.amdgcn.permlane32.swap", rules=(SWAP_EXEC,))
def v_permlane32_swap_b32(vdst: U32, src0: U32) -> tuple[U32, ToSrc0]:
    """Swaps lanes 32..63 of D with lanes 0..31 of S0. [12.8]"""
    return _swapped_rows(vdst, src0, 32)


def swizzle_source(offset: int, lane: int) -> int:
    """The lane DS_SWIZZLE reads for `lane`, by its 16-bit offset. [12.12; rotates wrap as its examples do]"""
    low, half = lane & 31, lane & 32
    if offset >= 0xE000:  # FFT
        mask = offset & 31
        return int(f"{low:05b}"[::-1], 2) >> mask.bit_count() | low & mask | half
    if offset >= 0xC000:  # rotate
        mask, count = offset & 31, offset >> 5 & 31
        return low & mask | low + (-count if offset >> 10 & 1 else count) & ~mask & 31 | half
    if offset >= 0x8000:  # quads
        return lane & ~3 | offset >> 2 * (lane & 3) & 3
    return (low & offset | offset >> 5 & 31) ^ offset >> 10 & 31 | half


@ds("ds_swizzle_b32", 61, intrinsic="llvm.amdgcn.ds.swizzle", rules=(INACTIVE_SOURCE,))
def ds_swizzle_b32(addr: U32, exec: Exec, offset: int) -> U32:
    """D = the lane the offset's pattern names, of the register in the ADDR field. [12.12]"""
    return lanes_of(exec).select(addr, 0).permute([swizzle_source(offset, lane) for lane in range(LANES)])


@ds("ds_permute_b32", 62, intrinsic="llvm.amdgcn.ds.permute", rules=(INACTIVE_SOURCE,))
def ds_permute_b32(addr: U32, data0: U32, exec: Exec, offset: int) -> U32:
    """Each lane pushes its datum to lane (ADDR + offset) / 4 mod 64; 0 where nobody does. [12.12]"""
    target = (addr + offset) >> 2
    senders = exec.splat()  # in lane n: the lanes that push to n
    for bit in range(6):
        ones = (((target >> bit) & 1) != 0).ballot()
        wanted = static_mask(addr.engine, [bool(lane >> bit & 1) for lane in range(LANES)])
        senders = senders & wanted.select(ones.splat(), (~ones).splat())
    highest = (63 - senders.clz()).to(U32)
    return (senders == 0).select(0, data0.gather(highest))


@ds("ds_bpermute_b32", 63, intrinsic="llvm.amdgcn.ds.bpermute", rules=(INACTIVE_SOURCE,))
def ds_bpermute_b32(addr: U32, data0: U32, exec: Exec, offset: int) -> U32:
    """Each lane pulls the datum of lane (ADDR + offset) / 4 mod 64. [12.12]"""
    return lanes_of(exec).select(data0, 0).gather((addr + offset) >> 2)
