"""SOPC: scalar compares, into SCC. [CDNA4 ISA 5, 12.4]"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gfx950.isa.registry import Instruction, Scc, sopc
from gfx950.lanes import I32, U32, U64

# name, opcode of the signed form, comparison, sign in the text
COMPARISONS: tuple[tuple[str, int, Callable[[Any, Any], Any], str], ...] = (
    ("eq", 0, lambda a, b: a == b, "=="),
    ("lg", 1, lambda a, b: a != b, "!="),
    ("gt", 2, lambda a, b: a > b, ">"),
    ("ge", 3, lambda a, b: a >= b, ">="),
    ("lt", 4, lambda a, b: a < b, "<"),
    ("le", 5, lambda a, b: a <= b, "<="),
)


def _compare(name: str, opcode: int, compare: Callable[[Any, Any], Any], text: str) -> tuple[Instruction, Instruction]:
    def signed(ssrc0: I32, ssrc1: I32) -> Scc:
        return compare(ssrc0, ssrc1)  # type: ignore[no-any-return]

    def unsigned(ssrc0: U32, ssrc1: U32) -> Scc:
        return compare(ssrc0, ssrc1)  # type: ignore[no-any-return]

    signed.__doc__ = f"SCC = S0 {text} S1, signed. [12.4]"
    unsigned.__doc__ = f"SCC = S0 {text} S1, unsigned. [12.4]"
    return sopc(f"s_cmp_{name}_i32", opcode)(signed), sopc(f"s_cmp_{name}_u32", opcode + 6)(unsigned)


s_cmp_eq_i32, s_cmp_eq_u32 = _compare(*COMPARISONS[0])
s_cmp_lg_i32, s_cmp_lg_u32 = _compare(*COMPARISONS[1])
s_cmp_gt_i32, s_cmp_gt_u32 = _compare(*COMPARISONS[2])
s_cmp_ge_i32, s_cmp_ge_u32 = _compare(*COMPARISONS[3])
s_cmp_lt_i32, s_cmp_lt_u32 = _compare(*COMPARISONS[4])
s_cmp_le_i32, s_cmp_le_u32 = _compare(*COMPARISONS[5])


@sopc("s_bitcmp0_b32", 12)
def s_bitcmp0_b32(ssrc0: U32, ssrc1: U32) -> Scc:
    """SCC = bit S1[4:0] of S0 is 0. [12.4]"""
    return ((ssrc0 >> ssrc1) & 1) == 0


@sopc("s_bitcmp1_b32", 13)
def s_bitcmp1_b32(ssrc0: U32, ssrc1: U32) -> Scc:
    """SCC = bit S1[4:0] of S0 is 1. [12.4]"""
    return ((ssrc0 >> ssrc1) & 1) != 0


@sopc("s_bitcmp0_b64", 14)
def s_bitcmp0_b64(ssrc0: U64, ssrc1: U32) -> Scc:
    """SCC = bit S1[5:0] of S0 is 0. [12.4]"""
    return ((ssrc0 >> ssrc1.to(U64)) & 1) == 0


@sopc("s_bitcmp1_b64", 15)
def s_bitcmp1_b64(ssrc0: U64, ssrc1: U32) -> Scc:
    """SCC = bit S1[5:0] of S0 is 1. [12.4]"""
    return ((ssrc0 >> ssrc1.to(U64)) & 1) != 0


@sopc("s_cmp_eq_u64", 18)
def s_cmp_eq_u64(ssrc0: U64, ssrc1: U64) -> Scc:
    """SCC = S0 == S1. [12.4]"""
    return ssrc0 == ssrc1


@sopc("s_cmp_lg_u64", 19)
def s_cmp_lg_u64(ssrc0: U64, ssrc1: U64) -> Scc:
    """SCC = S0 != S1. [12.4]"""
    return ssrc0 != ssrc1
