"""Bytes and halves of a register in narrow loads and stores. [CDNA4 ISA 12.12, 12.15]"""

from __future__ import annotations

from gfx950.evidence import Evidence, rule
from gfx950.lanes import I32, U32

D16 = rule(
    "memory.d16_keeps_other_half",
    Evidence.chosen,
    "CDNA4 ISA 12.12, 12.15; 9.1.6 says that loads zero it where ECC is on; LLVM relies on it in objects for sramecc-"
    " only",
    "A D16 load writes one half of its destination and keeps the other.",
)


def sign_extend(word: U32, count: int) -> U32:
    """The low `count` bits, sign-extended to 32."""
    return ((word.bits(I32) << 32 - count) >> 32 - count).bits(U32)


def set_low(old: U32, word: U32) -> U32:
    """`old` with its low half replaced by that of `word`. [rule memory.d16_keeps_other_half]"""
    return (old & 0xFFFF0000) | (word & 0xFFFF)


def set_high(old: U32, word: U32) -> U32:
    """`old` with its high half replaced by the low one of `word`. [rule memory.d16_keeps_other_half]"""
    return (old & 0xFFFF) | (word << 16)
