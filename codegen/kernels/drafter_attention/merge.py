"""Partials: how a partition leaves its result, and how a token's partitions become MXFP8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from codegen.kernels.drafter_attention.block import NEG_INF, State
from codegen.kernels.drafter_attention.cases import HEAD_DIM, MAX_PARTITIONS, PARTIAL_BYTES, Q_HEADS, SCALE_GROUP
from codegen.kernels.lanes import at, bf16_round, butterfly, fp8_pack4, hw_exp2
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    barrier,
    constant,
    lds_read,
    lds_write,
    load,
    loop,
    maximum,
    minimum,
    store,
    store_byte,
    when,
)
from gfx950.evidence import Evidence, rule

L_OFFSET, O_OFFSET = 512, 1024
HEADS = 4  # of a merge task
IN_FLIGHT = 8  # partials
ML_BYTES = HEADS * MAX_PARTITIONS * 8
LOG2_E = float.fromhex("0x1.715476p+0")
OVER_448 = float.fromhex("0x1.24924ap-9")
E4M3_MAX = 448.0

MERGE = rule(
    "drafter_attention.merge",
    Evidence.chosen,
    "the body is not public; partials merged in order, as the public page says",
    "w = exp2((m_i - M) * log2(e)), 0 where M is -inf; l_i * w and o_i * w added from +0 in order, multiply and add"
    " apart; O / L by IEEE division, +0 where L is 0.",
)
MXFP8 = rule(
    "drafter_attention.mxfp8",
    Evidence.chosen,
    "the body is not public; AITER's default rule, RoundUp",
    "Scale byte: exponent of amax * float32(1/448), plus 1 if its mantissa is not 0, in 1 .. 254. Code: E4M3 of"
    " v * 2^(127 - byte), clamped to 448.",
)


def store_partial(ap: U64, wave: I32, l16: I32, g4: I32, state: State) -> None:
    """A wave's state (query row `wave` < 7, m as a scaled score) into the partial at ap."""
    row = wave * Q_HEADS + l16
    with when(g4 == 0):
        store(at(ap, row * 4), state.m)
        store(at(ap, row * 4 + L_OFFSET), state.l)
    first = row * (HEAD_DIM * 4) + g4 * 16 + O_OFFSET
    for n in range(8):
        store(at(ap, first + 64 * n), *state.o[4 * n : 4 * n + 4])


def merge_task(ap0: U64, na: I32, j: I32, hq: I32, outputs: tuple[U64, U64], tid: I32) -> None:
    """Row j of a request, heads 4 hq .. + 3, a thread a head and dim: partials 0 .. na - 1 from ap0 on, to MXFP8.

    outputs: where the token's 2048 codes and 64 scales begin. na is at most 64.
    """
    _stage(ap0, na, j, hq, tid)
    barrier()
    head, dim = tid // HEAD_DIM, tid % HEAD_DIM
    out = _merged(ap0, na, j * Q_HEADS + hq * HEADS + head, dim, head * (MAX_PARTITIONS * 8))
    code, scale = quantised(bf16_round(out, out)[0])
    element = (hq * HEADS + head) * HEAD_DIM + dim
    store_byte(at(outputs[0], element), code)
    with when(dim % SCALE_GROUP == 0):
        store_byte(at(outputs[1], element // SCALE_GROUP), scale)


def _stage(ap0: U64, na: I32, j: I32, hq: I32, tid: I32) -> None:
    """m and l of all partials into LDS, a thread a number: head by head, (m, l) of partition 0, 1, ..."""
    part, head, which = tid // (2 * HEADS), tid // 2 % HEADS, tid % 2
    row = j * Q_HEADS + hq * HEADS + head
    with when(part < na):
        value = load(at(ap0, part * PARTIAL_BYTES + which * L_OFFSET + row * 4))
        lds_write(head * (MAX_PARTITIONS * 8) + part * 8 + which * 4, value)


def _merged(ap0: U64, na: I32, row: I32, dim: I32, ml: I32) -> F32:
    """The row's output in one dim. ml: where its (m, l) pairs begin in LDS. [rule drafter_attention.merge]"""

    def top_of(part: list[I32], m: F32) -> tuple[F32]:
        for value in [lds_read(ml + i * 8).bits(F32) for i in part]:
            m = maximum(m, value)
        return (m,)

    top: F32 = _over_partials(na, (constant(F32, NEG_INF),), top_of)[0]
    first = at(ap0, row * (HEAD_DIM * 4) + dim * 4 + O_OFFSET)

    def sums_of(part: list[I32], bottom: F32, o: F32) -> tuple[F32, F32]:
        values = [load(at(first, i * PARTIAL_BYTES)).bits(F32) for i in part]
        for i, value in zip(part, values, strict=True):
            m_i, l_i = (word.bits(F32) for word in lds_read(ml + i * 8, 2))
            weight = (top == NEG_INF).select(0.0, hw_exp2((m_i - top) * LOG2_E))
            bottom, o = bottom + l_i * weight, o + value * weight
        return bottom, o

    bottom, o = _over_partials(na, (constant(F32, 0.0), constant(F32, 0.0)), sums_of)
    out: F32 = (bottom == 0.0).select(0.0, o / bottom)
    return out


def _over_partials(na: I32, carry: tuple[F32, ...], fold: Callable[..., tuple[F32, ...]]) -> tuple[Any, ...]:
    """fold(partitions, *carry) over 0 .. na - 1 in order: eight at a time, whose loads fly together, then each."""
    whole = na // IN_FLIGHT * IN_FLIGHT
    eights = loop(0, whole, IN_FLIGHT, carry)(lambda i, *c: fold([i + e for e in range(IN_FLIGHT)], *c))
    return loop(whole, na, 1, eights)(lambda i, *c: fold([i], *c))


def quantised(value: F32) -> tuple[U32, U32]:
    """The E4M3 code and the scale byte of an element, 32 neighbouring lanes a scale. [rule drafter_attention.mxfp8]"""
    amax = butterfly(abs(value), (16, 8, 4, 2, 1), maximum)
    scale = (((amax * OVER_448).bits(U32) + 0x7FFFFF) >> 23).maximum(1).minimum(254)
    power = (scale == 254).select(1 << 22, (254 - scale) << 23)  # 2^(127 - byte); 2^-127 is subnormal
    scaled = maximum(minimum(value * power.bits(F32), E4M3_MAX), -E4M3_MAX)
    return fp8_pack4(scaled, scaled, scaled, scaled), scale
