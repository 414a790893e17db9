"""SOP1: scalar instructions with one source. [CDNA4 ISA 5, 12.3]"""

from __future__ import annotations

from collections.abc import Callable

from gfx950.evidence import Evidence, rule
from gfx950.isa.registry import Exec, Instruction, Pc, Scc, sop1
from gfx950.lanes import I32, I64, U32, U64

LITERAL_64 = rule(
    "salu.literal_b64",
    Evidence.chosen,
    "CDNA4 ISA 6.2.1.1 widens literals of u64, i64 and f64 operands; of untyped 64-bit operands it says nothing",
    "A 32-bit literal of an untyped 64-bit scalar operand is zero-extended.",
)

RETURN_FROM_TRAP = rule(
    "salu.return_from_trap",
    Evidence.chosen,
    "CDNA4 ISA 12.3: S_RFE_B64 may be used in a trap handler only; 4.5 names S_RFE_RESTORE_B64 beside it",
    "S_RFE_B64 and S_RFE_RESTORE_B64 are refused when they run: no wave is ever in a trap handler here.",
)


@sop1("s_mov_b32", 0)
def s_mov_b32(ssrc0: U32) -> U32:
    """D = S0. [12.3]"""
    return ssrc0


@sop1("s_mov_b64", 1, rules=(LITERAL_64,))
def s_mov_b64(ssrc0: U64) -> U64:
    """D = S0. [12.3]"""
    return ssrc0


@sop1("s_cmov_b32", 2)
def s_cmov_b32(ssrc0: U32, sdst: U32, scc: Scc) -> U32:
    """D = S0 where SCC is set, else unchanged. [12.3]"""
    return scc.select(ssrc0, sdst)


@sop1("s_cmov_b64", 3)
def s_cmov_b64(ssrc0: U64, sdst: U64, scc: Scc) -> U64:
    """D = S0 where SCC is set, else unchanged. [12.3]"""
    return scc.select(ssrc0, sdst)


@sop1("s_not_b32", 4)
def s_not_b32(ssrc0: U32) -> tuple[U32, Scc]:
    """D = ~S0; SCC = D is not 0. [12.3]"""
    return ~ssrc0, ~ssrc0 != 0


@sop1("s_not_b64", 5)
def s_not_b64(ssrc0: U64) -> tuple[U64, Scc]:
    """D = ~S0; SCC = D is not 0. [12.3]"""
    return ~ssrc0, ~ssrc0 != 0


def _any_of_quad(value: U64) -> U64:
    """Bit 4i: whether any of bits 4i .. 4i + 3 is set; zeros between."""
    pairs = value | (value >> 1)
    return (pairs | (pairs >> 2)) & 0x1111111111111111


@sop1("s_wqm_b32", 6)
def s_wqm_b32(ssrc0: U32) -> tuple[U32, Scc]:
    """D = all four bits of every quad that has a bit set; SCC = D is not 0. [12.3]"""
    result = (_any_of_quad(ssrc0.to(U64)) * 15).to(U32)
    return result, result != 0


@sop1("s_wqm_b64", 7)
def s_wqm_b64(ssrc0: U64) -> tuple[U64, Scc]:
    """D = all four bits of every quad that has a bit set; SCC = D is not 0. [12.3]"""
    result = _any_of_quad(ssrc0) * 15
    return result, result != 0


@sop1("s_brev_b32", 8)
def s_brev_b32(ssrc0: U32) -> U32:
    """D = the bits of S0 in reverse order. [12.3]"""
    return ssrc0.bitreverse()


@sop1("s_brev_b64", 9)
def s_brev_b64(ssrc0: U64) -> U64:
    """D = the bits of S0 in reverse order. [12.3]"""
    return ssrc0.bitreverse()


@sop1("s_bcnt0_i32_b32", 10)
def s_bcnt0_i32_b32(ssrc0: U32) -> tuple[U32, Scc]:
    """D = number of zeros; SCC = D is not 0. [12.3]"""
    count = (~ssrc0).popcount()
    return count, count != 0


@sop1("s_bcnt0_i32_b64", 11)
def s_bcnt0_i32_b64(ssrc0: U64) -> tuple[U32, Scc]:
    """D = number of zeros; SCC = D is not 0. [12.3]"""
    count = (~ssrc0).popcount().to(U32)
    return count, count != 0


@sop1("s_bcnt1_i32_b32", 12)
def s_bcnt1_i32_b32(ssrc0: U32) -> tuple[U32, Scc]:
    """D = number of ones; SCC = D is not 0. [12.3]"""
    count = ssrc0.popcount()
    return count, count != 0


@sop1("s_bcnt1_i32_b64", 13)
def s_bcnt1_i32_b64(ssrc0: U64) -> tuple[U32, Scc]:
    """D = number of ones; SCC = D is not 0. [12.3]"""
    count = ssrc0.popcount().to(U32)
    return count, count != 0


def _first_one(value: U32 | U64) -> U32:
    """The lowest set bit's number, -1 where there is none."""
    return (value == 0).select(U32.constant(value.engine, -1), value.ctz().to(U32))


def _leading(value: U32 | U64) -> U32:
    """The zeros above the highest set bit, -1 where there is none."""
    return (value == 0).select(U32.constant(value.engine, -1), value.clz().to(U32))


@sop1("s_ff0_i32_b32", 14)
def s_ff0_i32_b32(ssrc0: U32) -> U32:
    """D = number of the lowest zero, -1 for none. [12.3]"""
    return _first_one(~ssrc0)


@sop1("s_ff0_i32_b64", 15)
def s_ff0_i32_b64(ssrc0: U64) -> U32:
    """D = number of the lowest zero, -1 for none. [12.3]"""
    return _first_one(~ssrc0)


@sop1("s_ff1_i32_b32", 16)
def s_ff1_i32_b32(ssrc0: U32) -> U32:
    """D = number of the lowest one, -1 for none. [12.3]"""
    return _first_one(ssrc0)


@sop1("s_ff1_i32_b64", 17)
def s_ff1_i32_b64(ssrc0: U64) -> U32:
    """D = number of the lowest one, -1 for none. [12.3]"""
    return _first_one(ssrc0)


@sop1("s_flbit_i32_b32", 18)
def s_flbit_i32_b32(ssrc0: U32) -> U32:
    """D = zeros before the highest one, -1 for none. [12.3]"""
    return _leading(ssrc0)


@sop1("s_flbit_i32_b64", 19)
def s_flbit_i32_b64(ssrc0: U64) -> U32:
    """D = zeros before the highest one, -1 for none. [12.3]"""
    return _leading(ssrc0)


@sop1("s_flbit_i32", 20)
def s_flbit_i32(ssrc0: I32) -> U32:
    """D = leading bits equal to the sign, -1 when all are. [12.3]"""
    return _leading((ssrc0 ^ (ssrc0 >> 31)).bits(U32))


@sop1("s_flbit_i32_i64", 21)
def s_flbit_i32_i64(ssrc0: I64) -> U32:
    """D = leading bits equal to the sign, -1 when all are. [12.3]"""
    return _leading((ssrc0 ^ (ssrc0 >> 63)).bits(U64))


@sop1("s_sext_i32_i8", 22)
def s_sext_i32_i8(ssrc0: I32) -> I32:
    """D = S0[7:0] sign-extended. [12.3]"""
    return (ssrc0 << 24) >> 24


@sop1("s_sext_i32_i16", 23)
def s_sext_i32_i16(ssrc0: I32) -> I32:
    """D = S0[15:0] sign-extended. [12.3]"""
    return (ssrc0 << 16) >> 16


@sop1("s_bitset0_b32", 24)
def s_bitset0_b32(ssrc0: U32, sdst: U32) -> U32:
    """D[S0[4:0]] = 0, other bits kept. [12.3]"""
    return sdst & ~(U32.constant(ssrc0.engine, 1) << ssrc0)


@sop1("s_bitset0_b64", 25)
def s_bitset0_b64(ssrc0: U32, sdst: U64) -> U64:
    """D[S0[5:0]] = 0, other bits kept. [12.3]"""
    return sdst & ~(U64.constant(ssrc0.engine, 1) << ssrc0.to(U64))


@sop1("s_bitset1_b32", 26)
def s_bitset1_b32(ssrc0: U32, sdst: U32) -> U32:
    """D[S0[4:0]] = 1, other bits kept. [12.3]"""
    return sdst | (U32.constant(ssrc0.engine, 1) << ssrc0)


@sop1("s_bitset1_b64", 27)
def s_bitset1_b64(ssrc0: U32, sdst: U64) -> U64:
    """D[S0[5:0]] = 1, other bits kept. [12.3]"""
    return sdst | (U64.constant(ssrc0.engine, 1) << ssrc0.to(U64))


@sop1("s_getpc_b64", 28)
def s_getpc_b64(pc: U64) -> U64:
    """D = address of the next instruction. [12.3]"""
    return pc


@sop1("s_setpc_b64", 29)
def s_setpc_b64(ssrc0: U64) -> Pc:
    """Jumps to the byte address S0. [12.3]"""
    return ssrc0


@sop1("s_swappc_b64", 30)
def s_swappc_b64(ssrc0: U64, pc: U64) -> tuple[U64, Pc]:
    """D = address of the next instruction; jumps to the byte address S0. [12.3]"""
    return pc, ssrc0


@sop1("s_rfe_b64", 31, flow="refused", rules=(RETURN_FROM_TRAP,))
def s_rfe_b64(ssrc0: U64) -> Pc:
    """Leaves the trap handler for the byte address S0. [12.3, rule salu.return_from_trap]"""
    return ssrc0


def _save_exec(name: str, opcode: int, operation: Callable[[U64, U64], U64], text: str) -> Instruction:
    def body(ssrc0: U64, exec: Exec) -> tuple[U64, Exec, Scc]:
        new = operation(ssrc0, exec)
        return exec, new, new != 0

    body.__doc__ = f"D = EXEC; EXEC = {text}; SCC = the new EXEC is not 0. [12.3]"
    return sop1(f"s_{name}_saveexec_b64", opcode)(body)


s_and_saveexec_b64 = _save_exec("and", 32, lambda s, e: s & e, "S0 & EXEC")
s_or_saveexec_b64 = _save_exec("or", 33, lambda s, e: s | e, "S0 | EXEC")
s_xor_saveexec_b64 = _save_exec("xor", 34, lambda s, e: s ^ e, "S0 ^ EXEC")
s_andn2_saveexec_b64 = _save_exec("andn2", 35, lambda s, e: s & ~e, "S0 & ~EXEC")
s_orn2_saveexec_b64 = _save_exec("orn2", 36, lambda s, e: s | ~e, "S0 | ~EXEC")
s_nand_saveexec_b64 = _save_exec("nand", 37, lambda s, e: ~(s & e), "~(S0 & EXEC)")
s_nor_saveexec_b64 = _save_exec("nor", 38, lambda s, e: ~(s | e), "~(S0 | EXEC)")
s_xnor_saveexec_b64 = _save_exec("xnor", 39, lambda s, e: ~(s ^ e), "~(S0 ^ EXEC)")
s_andn1_saveexec_b64 = _save_exec("andn1", 51, lambda s, e: ~s & e, "~S0 & EXEC")
s_orn1_saveexec_b64 = _save_exec("orn1", 52, lambda s, e: ~s | e, "~S0 | EXEC")


def _pack_quads(value: U64) -> U64:
    """Bit i: whether any bit of quad i is set."""
    packed = _any_of_quad(value)
    for shift, kept in ((3, 0x0303030303030303), (6, 0x000F000F000F000F), (12, 0x000000FF000000FF), (24, 0xFFFF)):
        packed = (packed | (packed >> shift)) & kept
    return packed


@sop1("s_quadmask_b32", 40)
def s_quadmask_b32(ssrc0: U32) -> tuple[U32, Scc]:
    """D[i] = any bit of S0's quad i is set; SCC = D is not 0. [12.3]"""
    result = _pack_quads(ssrc0.to(U64)).to(U32)
    return result, result != 0


@sop1("s_quadmask_b64", 41)
def s_quadmask_b64(ssrc0: U64) -> tuple[U64, Scc]:
    """D[i] = any bit of S0's quad i is set; SCC = D is not 0. [12.3]"""
    result = _pack_quads(ssrc0)
    return result, result != 0


@sop1("s_abs_i32", 48)
def s_abs_i32(ssrc0: I32) -> tuple[I32, Scc]:
    """D = |S0|, the most negative number stays; SCC = D is not 0. [12.3]"""
    result = (ssrc0 < 0).select(-ssrc0, ssrc0)
    return result, result != 0


@sop1("s_andn1_wrexec_b64", 53)
def s_andn1_wrexec_b64(ssrc0: U64, exec: Exec) -> tuple[U64, Exec, Scc]:
    """D = EXEC = ~S0 & EXEC; SCC = it is not 0. [12.3]"""
    new = ~ssrc0 & exec
    return new, new, new != 0


@sop1("s_andn2_wrexec_b64", 54)
def s_andn2_wrexec_b64(ssrc0: U64, exec: Exec) -> tuple[U64, Exec, Scc]:
    """D = EXEC = S0 & ~EXEC; SCC = it is not 0. [12.3]"""
    new = ssrc0 & ~exec
    return new, new, new != 0


@sop1("s_bitreplicate_b64_b32", 55)
def s_bitreplicate_b64_b32(ssrc0: U32) -> U64:
    """D = every bit of S0 twice. [12.3]"""
    spread = ssrc0.to(U64)
    for shift, kept in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        spread = (spread | (spread << shift)) & kept
    return spread | (spread << 1)
