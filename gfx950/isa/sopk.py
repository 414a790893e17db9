"""SOPK: scalar instructions with a 16-bit immediate; SDST is also the first source. [CDNA4 ISA 5.6, 12.2]

`simm16` arrives sign-extended. A body without operands takes `pc` for its engine alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gfx950.isa.registry import Instruction, Pc, Scc, sopk
from gfx950.isa.sopc import COMPARISONS
from gfx950.lanes import I32, U32, U64


@sopk("s_movk_i32", 0)
def s_movk_i32(pc: U64, simm16: int) -> I32:
    """D = the sign-extended immediate. [12.2]"""
    return I32.constant(pc.engine, simm16)


@sopk("s_cmovk_i32", 1)
def s_cmovk_i32(sdst: I32, scc: Scc, simm16: int) -> I32:
    """D = the sign-extended immediate where SCC is set, else unchanged. [12.2]"""
    return scc.select(simm16, sdst)


def _compare(name: str, opcode: int, compare: Callable[[Any, Any], Any], text: str) -> tuple[Instruction, Instruction]:
    def signed(sdst: I32, simm16: int) -> Scc:
        return compare(sdst, simm16)  # type: ignore[no-any-return]

    def unsigned(sdst: U32, simm16: int) -> Scc:
        return compare(sdst, simm16 & 0xFFFF)  # type: ignore[no-any-return]

    signed.__doc__ = f"SCC = D {text} the sign-extended immediate. [12.2]"
    unsigned.__doc__ = f"SCC = D {text} the zero-extended immediate. [12.2]"
    return sopk(f"s_cmpk_{name}_i32", opcode + 2)(signed), sopk(f"s_cmpk_{name}_u32", opcode + 8)(unsigned)


s_cmpk_eq_i32, s_cmpk_eq_u32 = _compare(*COMPARISONS[0])
s_cmpk_lg_i32, s_cmpk_lg_u32 = _compare(*COMPARISONS[1])
s_cmpk_gt_i32, s_cmpk_gt_u32 = _compare(*COMPARISONS[2])
s_cmpk_ge_i32, s_cmpk_ge_u32 = _compare(*COMPARISONS[3])
s_cmpk_lt_i32, s_cmpk_lt_u32 = _compare(*COMPARISONS[4])
s_cmpk_le_i32, s_cmpk_le_u32 = _compare(*COMPARISONS[5])


@sopk("s_addk_i32", 14)
def s_addk_i32(sdst: I32, simm16: int) -> tuple[I32, Scc]:
    """D += the sign-extended immediate; SCC = signed overflow. [12.2]"""
    total = sdst + simm16
    return total, ((sdst ^ total) & (total ^ simm16)) < 0


@sopk("s_mulk_i32", 15)
def s_mulk_i32(sdst: I32, simm16: int) -> I32:
    """D *= the sign-extended immediate, low half. [12.2]"""
    return sdst * simm16


@sopk("s_call_b64", 21)
def s_call_b64(pc: U64, simm16: int) -> tuple[U64, Pc]:
    """D = address of the next instruction; jumps to it + 4 * immediate. [12.2]"""
    return pc, pc + 4 * simm16
