"""Samples of the way definitions are written (replaced by the families)."""

from gfx950.isa.registry import Global, Lds, Scalar, Scc, ds, global_, smem, sop2, sopp, vop2, vopc
from gfx950.lanes import B128, B32, F32, I32, U32, U64, Mask


@sop2("s_add_u32", 0)
def s_add_u32(ssrc0: U32, ssrc1: U32) -> tuple[U32, Scc]:
    """D = S0 + S1; SCC = carry out. [12.1]"""
    total = ssrc0 + ssrc1
    return total, total < ssrc0


@sopp("s_cbranch_scc1", 5, flow="branch")
def s_cbranch_scc1(scc: Scc) -> Mask:
    """Jumps when SCC is set. [12.5]"""
    return scc


@vop2("v_add_f32", 1)
def v_add_f32(src0: F32, src1: F32) -> F32:
    """D = S0 + S1. [12.7]"""
    return src0 + src1


@vop2("v_addc_co_u32", 28)
def v_addc_co_u32(src0: U32, src1: U32, carry_in: Mask) -> tuple[U32, Mask]:
    """D = S0 + S1 + carry in; carry out beside it. [12.7]"""
    total = src0.to(U64) + src1.to(U64) + carry_in.select(1, U32.constant(src0.engine, 0)).to(U64)
    return total.to(U32), (total >> 32) != 0


@vopc("v_cmp_lt_i32", 0xC1)
def v_cmp_lt_i32(src0: I32, src1: I32) -> Mask:
    """S0 < S1. [12.9]"""
    return src0 < src1


@ds("ds_read_b128", 255)
def ds_read_b128(lds: Lds, addr: U32, offset: int) -> B128:
    """16 bytes a lane. [12.12]"""
    return B128(lds.load(addr + offset, 16))


@global_("global_store_dword", 28)
def global_store_dword(memory: Global, address: U64, data0: B32) -> None:
    """4 bytes a lane. [12.15]"""
    memory.store(address, [data0], 4)


@smem("s_load_dwordx4", 2)
def s_load_dwordx4(memory: Scalar, address: U64) -> B128:
    """4 dwords. [12.6]"""
    return B128(memory.load(address, 4))
