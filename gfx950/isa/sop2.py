"""SOP2: scalar instructions with two sources. [CDNA4 ISA 5, 12.1]"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gfx950.evidence import Evidence, rule
from gfx950.isa.registry import Instruction, Pc, Scc, sop2
from gfx950.isa.sop1 import LITERAL_64, RETURN_FROM_TRAP
from gfx950.lanes import I32, I64, U32, U64, Bits, Mask

B = TypeVar("B", bound=Bits)

BIT_FIELD = rule(
    "salu.bit_field_width",
    Evidence.chosen,
    "CDNA4 ISA 12.1 shifts by a 7-bit width without saying what a width beyond the data means",
    "S_BFE with a width of at least the data's width extracts everything above the offset; a width of 0 gives 0.",
)


@sop2("s_add_u32", 0)
def s_add_u32(ssrc0: U32, ssrc1: U32) -> tuple[U32, Scc]:
    """D = S0 + S1; SCC = carry out. [12.1]"""
    total = ssrc0 + ssrc1
    return total, total < ssrc0


@sop2("s_sub_u32", 1)
def s_sub_u32(ssrc0: U32, ssrc1: U32) -> tuple[U32, Scc]:
    """D = S0 - S1; SCC = borrow. [12.1]"""
    return ssrc0 - ssrc1, ssrc1 > ssrc0


@sop2("s_add_i32", 2)
def s_add_i32(ssrc0: I32, ssrc1: I32) -> tuple[I32, Scc]:
    """D = S0 + S1; SCC = signed overflow. [12.1]"""
    total = ssrc0 + ssrc1
    return total, ((ssrc0 ^ total) & (ssrc1 ^ total)) < 0


@sop2("s_sub_i32", 3)
def s_sub_i32(ssrc0: I32, ssrc1: I32) -> tuple[I32, Scc]:
    """D = S0 - S1; SCC = signed overflow. [12.1]"""
    difference = ssrc0 - ssrc1
    return difference, ((ssrc0 ^ ssrc1) & (ssrc0 ^ difference)) < 0


@sop2("s_addc_u32", 4)
def s_addc_u32(ssrc0: U32, ssrc1: U32, scc: Scc) -> tuple[U32, Scc]:
    """D = S0 + S1 + SCC; SCC = carry out. [12.1]"""
    total = ssrc0.to(U64) + ssrc1.to(U64) + scc.to(U64)
    return total.to(U32), total >= 1 << 32


@sop2("s_subb_u32", 5)
def s_subb_u32(ssrc0: U32, ssrc1: U32, scc: Scc) -> tuple[U32, Scc]:
    """D = S0 - S1 - SCC; SCC = borrow. [12.1]"""
    taken = ssrc1.to(U64) + scc.to(U64)
    return (ssrc0.to(U64) - taken).to(U32), taken > ssrc0.to(U64)


@sop2("s_min_i32", 6)
def s_min_i32(ssrc0: I32, ssrc1: I32) -> tuple[I32, Scc]:
    """D = signed minimum; SCC = S0 < S1. [12.1]"""
    return ssrc0.minimum(ssrc1), ssrc0 < ssrc1


@sop2("s_min_u32", 7)
def s_min_u32(ssrc0: U32, ssrc1: U32) -> tuple[U32, Scc]:
    """D = unsigned minimum; SCC = S0 < S1. [12.1]"""
    return ssrc0.minimum(ssrc1), ssrc0 < ssrc1


@sop2("s_max_i32", 8)
def s_max_i32(ssrc0: I32, ssrc1: I32) -> tuple[I32, Scc]:
    """D = signed maximum; SCC = S0 >= S1. [12.1]"""
    return ssrc0.maximum(ssrc1), ssrc0 >= ssrc1


@sop2("s_max_u32", 9)
def s_max_u32(ssrc0: U32, ssrc1: U32) -> tuple[U32, Scc]:
    """D = unsigned maximum; SCC = S0 >= S1. [12.1]"""
    return ssrc0.maximum(ssrc1), ssrc0 >= ssrc1


@sop2("s_cselect_b32", 10)
def s_cselect_b32(ssrc0: U32, ssrc1: U32, scc: Scc) -> U32:
    """D = SCC ? S0 : S1. [12.1]"""
    return scc.select(ssrc0, ssrc1)


@sop2("s_cselect_b64", 11)
def s_cselect_b64(ssrc0: U64, ssrc1: U64, scc: Scc) -> U64:
    """D = SCC ? S0 : S1. [12.1]"""
    return scc.select(ssrc0, ssrc1)


def _logic(name: str, opcode: int, operation: Callable[[Any, Any], Any], text: str) -> tuple[Instruction, Instruction]:
    """The 32-bit form at `opcode` and the 64-bit form after it; SCC = result is not 0."""

    def on_32_bits(ssrc0: U32, ssrc1: U32) -> tuple[U32, Scc]:
        result = operation(ssrc0, ssrc1)
        return result, result != 0

    def on_64_bits(ssrc0: U64, ssrc1: U64) -> tuple[U64, Scc]:
        result = operation(ssrc0, ssrc1)
        return result, result != 0

    on_32_bits.__doc__ = on_64_bits.__doc__ = f"D = {text}; SCC = D is not 0. [12.1]"
    return sop2(f"{name}_b32", opcode)(on_32_bits), sop2(f"{name}_b64", opcode + 1, rules=(LITERAL_64,))(on_64_bits)


s_and_b32, s_and_b64 = _logic("s_and", 12, lambda a, b: a & b, "S0 & S1")
s_or_b32, s_or_b64 = _logic("s_or", 14, lambda a, b: a | b, "S0 | S1")
s_xor_b32, s_xor_b64 = _logic("s_xor", 16, lambda a, b: a ^ b, "S0 ^ S1")
s_andn2_b32, s_andn2_b64 = _logic("s_andn2", 18, lambda a, b: a & ~b, "S0 & ~S1")
s_orn2_b32, s_orn2_b64 = _logic("s_orn2", 20, lambda a, b: a | ~b, "S0 | ~S1")
s_nand_b32, s_nand_b64 = _logic("s_nand", 22, lambda a, b: ~(a & b), "~(S0 & S1)")
s_nor_b32, s_nor_b64 = _logic("s_nor", 24, lambda a, b: ~(a | b), "~(S0 | S1)")
s_xnor_b32, s_xnor_b64 = _logic("s_xnor", 26, lambda a, b: ~(a ^ b), "~(S0 ^ S1)")


@sop2("s_lshl_b32", 28)
def s_lshl_b32(ssrc0: U32, ssrc1: U32) -> tuple[U32, Scc]:
    """D = S0 << S1[4:0]; SCC = D is not 0. [12.1]"""
    result = ssrc0 << ssrc1
    return result, result != 0


@sop2("s_lshl_b64", 29)
def s_lshl_b64(ssrc0: U64, ssrc1: U32) -> tuple[U64, Scc]:
    """D = S0 << S1[5:0]; SCC = D is not 0. [12.1]"""
    result = ssrc0 << ssrc1.to(U64)
    return result, result != 0


@sop2("s_lshr_b32", 30)
def s_lshr_b32(ssrc0: U32, ssrc1: U32) -> tuple[U32, Scc]:
    """D = S0 >> S1[4:0], zeros enter; SCC = D is not 0. [12.1]"""
    result = ssrc0 >> ssrc1
    return result, result != 0


@sop2("s_lshr_b64", 31)
def s_lshr_b64(ssrc0: U64, ssrc1: U32) -> tuple[U64, Scc]:
    """D = S0 >> S1[5:0], zeros enter; SCC = D is not 0. [12.1]"""
    result = ssrc0 >> ssrc1.to(U64)
    return result, result != 0


@sop2("s_ashr_i32", 32)
def s_ashr_i32(ssrc0: I32, ssrc1: U32) -> tuple[I32, Scc]:
    """D = S0 >> S1[4:0], the sign enters; SCC = D is not 0. [12.1]"""
    result = ssrc0 >> ssrc1.bits(I32)
    return result, result != 0


@sop2("s_ashr_i64", 33)
def s_ashr_i64(ssrc0: I64, ssrc1: U32) -> tuple[I64, Scc]:
    """D = S0 >> S1[5:0], the sign enters; SCC = D is not 0. [12.1]"""
    result = ssrc0 >> ssrc1.to(I64)
    return result, result != 0


def _mask(count: B, position: B) -> B:
    one = type(count).constant(count.engine, 1)
    return ((one << count) - 1) << position


@sop2("s_bfm_b32", 34)
def s_bfm_b32(ssrc0: U32, ssrc1: U32) -> U32:
    """D = S0[4:0] ones at bit S1[4:0]. [12.1]"""
    return _mask(ssrc0, ssrc1)


@sop2("s_bfm_b64", 35)
def s_bfm_b64(ssrc0: U32, ssrc1: U32) -> U64:
    """D = S0[5:0] ones at bit S1[5:0]. [12.1]"""
    return _mask(ssrc0.to(U64), ssrc1.to(U64))


@sop2("s_mul_i32", 36)
def s_mul_i32(ssrc0: I32, ssrc1: I32) -> I32:
    """D = low half of S0 * S1. [12.1]"""
    return ssrc0 * ssrc1


def _extract(value: Any, control: U32) -> tuple[Any, Mask]:
    """The field of S1[22:16] bits at S1[5:0] (mod the width), extended as the type says. [rule salu.bit_field_width]"""
    kind, width = type(value), value.width
    count = control.field(16, 7).minimum(width)
    spare = (width - count).to(kind)
    moved = value >> control.to(kind)
    field = (count == 0).select(0, (moved << spare) >> spare)
    return field, field != 0


@sop2("s_bfe_u32", 37, rules=(BIT_FIELD,))
def s_bfe_u32(ssrc0: U32, ssrc1: U32) -> tuple[U32, Scc]:
    """D = S1[22:16] bits of S0 from bit S1[4:0] on; SCC = D is not 0. [12.1]"""
    return _extract(ssrc0, ssrc1)


@sop2("s_bfe_i32", 38, rules=(BIT_FIELD,))
def s_bfe_i32(ssrc0: I32, ssrc1: U32) -> tuple[I32, Scc]:
    """As s_bfe_u32, the field's top bit extended. [12.1]"""
    return _extract(ssrc0, ssrc1)


@sop2("s_bfe_u64", 39, rules=(BIT_FIELD,))
def s_bfe_u64(ssrc0: U64, ssrc1: U32) -> tuple[U64, Scc]:
    """D = S1[22:16] bits of S0 from bit S1[5:0] on; SCC = D is not 0. [12.1]"""
    return _extract(ssrc0, ssrc1)


@sop2("s_bfe_i64", 40, rules=(BIT_FIELD,))
def s_bfe_i64(ssrc0: I64, ssrc1: U32) -> tuple[I64, Scc]:
    """As s_bfe_u64, the field's top bit extended. [12.1]"""
    return _extract(ssrc0, ssrc1)


@sop2("s_absdiff_i32", 42)
def s_absdiff_i32(ssrc0: I32, ssrc1: I32) -> tuple[I32, Scc]:
    """D = |S0 - S1| of the 32-bit difference; SCC = D is not 0. [12.1]"""
    difference = ssrc0 - ssrc1
    result = (difference < 0).select(-difference, difference)
    return result, result != 0


@sop2("s_mul_hi_u32", 44)
def s_mul_hi_u32(ssrc0: U32, ssrc1: U32) -> U32:
    """D = high half of the unsigned product. [12.1]"""
    return ((ssrc0.to(U64) * ssrc1.to(U64)) >> 32).to(U32)


@sop2("s_mul_hi_i32", 45)
def s_mul_hi_i32(ssrc0: I32, ssrc1: I32) -> I32:
    """D = high half of the signed product. [12.1]"""
    return ((ssrc0.to(I64) * ssrc1.to(I64)) >> 32).to(I32)


def _shift_add(shift: int) -> Instruction:
    def body(ssrc0: U32, ssrc1: U32) -> tuple[U32, Scc]:
        total = (ssrc0.to(U64) << shift) + ssrc1.to(U64)
        return total.to(U32), total >= 1 << 32

    body.__doc__ = f"D = (S0 << {shift}) + S1; SCC = the exact sum needs more than 32 bits. [12.1]"
    return sop2(f"s_lshl{shift}_add_u32", 45 + shift)(body)


s_lshl1_add_u32, s_lshl2_add_u32, s_lshl3_add_u32, s_lshl4_add_u32 = (_shift_add(shift) for shift in (1, 2, 3, 4))


@sop2("s_pack_ll_b32_b16", 50)
def s_pack_ll_b32_b16(ssrc0: U32, ssrc1: U32) -> U32:
    """D = {S1[15:0], S0[15:0]}. [12.1]"""
    return (ssrc0 & 0xFFFF) | (ssrc1 << 16)


@sop2("s_pack_lh_b32_b16", 51)
def s_pack_lh_b32_b16(ssrc0: U32, ssrc1: U32) -> U32:
    """D = {S1[31:16], S0[15:0]}. [12.1]"""
    return (ssrc0 & 0xFFFF) | (ssrc1 & 0xFFFF0000)


@sop2("s_pack_hh_b32_b16", 52)
def s_pack_hh_b32_b16(ssrc0: U32, ssrc1: U32) -> U32:
    """D = {S1[31:16], S0[31:16]}. [12.1]"""
    return (ssrc0 >> 16) | (ssrc1 & 0xFFFF0000)


@sop2("s_rfe_restore_b64", 43, flow="refused", rules=(RETURN_FROM_TRAP,))
def s_rfe_restore_b64(ssrc0: U64, ssrc1: U32) -> Pc:
    """Leaves the trap handler for the byte address S0 and restores state from S1. [4.5, rule salu.return_from_trap]"""
    return ssrc0
