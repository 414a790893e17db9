"""V_TRIG_PREOP_F64: the bits of 2/pi that bring the argument of a sine into range. [CDNA4 ISA 12.11]"""

from __future__ import annotations

from gfx950.evidence import Evidence, rule
from gfx950.isa.lane_arithmetic import flush
from gfx950.isa.registry import vop3
from gfx950.lanes import F64, FLOAT_DENORM, I64, U32, U64

SEGMENTS = rule(
    "valu.trig_preop",
    Evidence.spec,
    "CDNA4 ISA 12.11 V_TRIG_PREOP_F64",
    "53 bits of the 1201 that 2/pi has behind its point, from bit 53 * S1[4:0] + max(0, exponent - 1077) on, with their"
    " weight (2^128 times it from exponent 1968 on), rounded toward zero; bits past the last are 0.",
)
# The first 1201 bits of 2/pi behind the point, the first at the top of the first word; zeros fill the last one.
# fmt: off
TWO_OVER_PI = (
    0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0,
    0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4,
    0x9C845F8BBDF9283B, 0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B0000,
)
# fmt: on


def _word(index: U64) -> U64:
    """A word of 2/pi, 0 past the last."""
    word = U64.constant(index.engine, 0)
    for number, bits in enumerate(TWO_OVER_PI):
        word = (index == number).select(bits, word)
    return word


@vop3("v_trig_preop_f64", 0x292, intrinsic="llvm.amdgcn.trig.preop.f64", rules=(SEGMENTS, FLOAT_DENORM))
def v_trig_preop_f64(src0: F64, src1: U32) -> F64:
    """Segment S1[4:0] of 2/pi for the exponent of S0. [12.11]"""
    exponent = src0.bits(I64).bits(U64).field(52, 11).bits(I64)
    first = (src1 & 31).to(U64) * 53 + (exponent - 1077).maximum(0).bits(U64)
    index, offset = first >> 6, first & 63
    segment = ((_word(index) << offset) | ((_word(index + 1) >> 1) >> (63 - offset))) >> 11
    scale = (exponent >= 1968).select(I64.constant(src0.engine, 128), 0) - 53 - first.bits(I64)
    value = _scaled(segment, scale)
    return value if src0.engine.mode.denorm(64) & 2 else flush(value)


def _scaled(segment: U64, scale: I64) -> F64:
    """segment * 2^scale, cut toward zero where it is subnormal."""
    normal = segment.to(F64).bits(I64) + (scale << 52)
    steps = scale + 1074
    left = segment << steps.maximum(0).minimum(63).bits(U64)
    small = (steps < 0).select(segment >> (-steps).maximum(0).minimum(63).bits(U64), left).bits(I64)
    highest = 63 - segment.clz().bits(I64)  # -1 for 0
    return (highest + scale >= -1022).select((segment == 0).select(0, normal), small).bits(F64)
