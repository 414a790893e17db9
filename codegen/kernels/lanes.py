"""Small steps over lanes that kernels share: exchanges, packing, raw transcendentals, addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from codegen.language import F32, I32, U32, U64, constant, load, maximum, permute
from gfx950.isa.conversions import v_cvt_pk_bf16_f32, v_cvt_pk_fp8_f32
from gfx950.isa.cross_lane import v_permlane16_swap_b32, v_permlane32_swap_b32
from gfx950.isa.vop1 import v_exp_f32, v_rsq_f32
from gfx950.isa.vop3 import v_perm_b32

Combine = Callable[[F32, F32], F32]

_SWAPS = {32: v_permlane32_swap_b32, 16: v_permlane16_swap_b32}


def at(base: U64, offset: I32) -> U64:
    """The address `offset` bytes after `base`; the offset is 0 .. 2^32 - 1."""
    return base + offset.bits(U32).to(U64)


def ld(base: U64, word: I32, count: int = 1) -> list[U32]:
    """`count` consecutive words of global memory from word number `word` (0 .. 2^30 - 1)."""
    words = load(at(base, word * 4), count)
    return [words] if count == 1 else list(words)


def perm(a: U32, b: U32, sel: int) -> U32:
    """v_perm_b32: byte k of the result is byte number (byte k of sel) of the 64-bit a << 32 | b."""
    return cast(U32, v_perm_b32(a, b, constant(U32, sel)))


def add(a: F32, b: F32) -> F32:
    """a + b, the usual operation of a butterfly."""
    return a + b


def butterfly(value: F32, offsets: Sequence[int], combine: Combine = add) -> F32:
    """Combines every lane with its partners at the xor offsets, in the order given, which is part of the result's bits.

    32 and 16 evaluate combine(lower half's, upper half's) in both lanes; the smaller ones combine(own, partner's).
    """
    for offset in offsets:
        value = combine(*_partners(value, offset))
    return value


def _partners(value: F32, offset: int) -> tuple[F32, F32]:
    if offset in _SWAPS:
        low, high = _SWAPS[offset](value, value)
        return low.bits(F32), high.bits(F32)
    return value, permute(value, [lane ^ offset for lane in range(16)])


def largest(values: Sequence[F32]) -> F32:
    """The maximum, taken from the first to the last."""
    result = values[0]
    for value in values[1:]:
        result = maximum(result, value)
    return result


def total(values: Sequence[F32]) -> F32:
    """The sum, added from the first to the last."""
    result = values[0]
    for value in values[1:]:
        result = result + value
    return result


def hw_exp2(value: F32) -> F32:
    """v_exp_f32 as it is, without a range fix-up."""
    return cast(F32, v_exp_f32(value))


def hw_rsq(value: F32) -> F32:
    """v_rsq_f32 as it is."""
    return cast(F32, v_rsq_f32(value))


def fp8_pack4(a: F32, b: F32, c: F32, d: F32) -> U32:
    """Four E4M3 bytes, a lowest, nearest even; nothing is clamped: beyond 464 they are NaN."""
    low = v_cvt_pk_fp8_f32(a, b, a.bits(U32), 0)  # the upper half is overwritten below: any register will do
    return cast(U32, v_cvt_pk_fp8_f32(c, d, low, 8))


def bf16_values(word: U32) -> list[F32]:
    """The two bf16 numbers of a word, low half first."""
    return [(word << 16).bits(F32), (word & 0xFFFF0000).bits(F32)]


def bf16_round(a: F32, b: F32) -> list[F32]:
    """Two numbers rounded to bf16, nearest even."""
    return bf16_values(v_cvt_pk_bf16_f32(a, b).bits(U32))
