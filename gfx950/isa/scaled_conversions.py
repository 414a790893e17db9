"""V_CVT_SCALEF32_*: conversions between 4-, 6- and 8-bit floats and wide ones with a power-of-two scale. [7.3, 12.11]

One table row an instruction. The scale operand is a float of which only the exponent byte counts: going narrow divides
by 2^(byte - 127), coming back multiplies. Going narrow, an 8-bit result replaces one byte or word of the destination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gfx950 import formats
from gfx950.evidence import Evidence, Rule, rule
from gfx950.formats import BF16 as BF16_FORMAT
from gfx950.formats import E2M1, E2M3, E3M2, E4M3FN, E5M2, Format
from gfx950.isa.conversions import (
    NAN_WIDE_CODE,
    STOCHASTIC,
    half,
    into_byte,
    into_word,
    narrow_rules,
    narrowed,
    narrowed_stochastic,
    widened,
)
from gfx950.isa.lane_arithmetic import EXACT, as_input, as_output, with_mode
from gfx950.isa.registry import Bf16, Bf16Pair, F16Pair, F32Pair, vop3
from gfx950.isa.vop1 import v_prng_b32
from gfx950.lanes import (
    B192,
    B512,
    B1024,
    F16,
    F32,
    FLOAT_DENORM,
    FLOAT_ROUND,
    I32,
    U16,
    U32,
    U64,
    join,
    split,
)
from gfx950.models import body_switch

SCALE = rule(
    "convert.scale",
    Evidence.vendor,
    "CDNA4 ISA 7.2, 7.3: exponent byte, bias 127; 12.11: scale = exponent(S.f32); AMD's HIP host conversions"
    " (amd_hip_ocp_host.hpp) divide and multiply so, as ROCm's hip-fpsan and hip-tests (Unit_amd_ocp_*) demand"
    " of gfx950 for small scales",
    "A narrow result is value / 2^(byte - 127) rounded once; a wide result is value * 2^(byte - 127) rounded once.",
)
SCALE_BYTE_255 = rule(
    "convert.scale_nan",
    Evidence.vendor,
    "CDNA4 ISA 7.2: byte 0xff is NaN, of what sign is not said; AMD's HIP host conversions (amd_hip_ocp_host.hpp) keep"
    " the sign of the value",
    "Byte 255 makes a NaN with the sign of the value, which is the largest number of that sign in formats without NaN.",
)
SCALE_BYTE_0 = rule(
    "convert.scale_zero",
    Evidence.chosen,
    "CDNA4 ISA 7.2 does not set byte 0 apart, nor do AMD's HIP host conversions (amd_hip_ocp_host.hpp): they take -127"
    " as any other exponent",
    "Byte 0 is 2^-127.",
)
SCALE_MODE = rule(
    "convert.scale_mode",
    Evidence.chosen,
    "CDNA4 ISA 7.3: F32 follows MODE's denormal field, formats of 8 bits and fewer never; 12.11: narrow results to"
    " nearest even; nothing is said of bf16 operands and of how wide results round",
    "Denormal f32, f16 and bf16 operands are flushed by MODE (bf16: the f32 field). f32 and f16 results round and flush"
    " by MODE, bf16 results round to nearest even and flush by the f32 field.",
)
RANDOM_SEQUENCE = rule(
    "convert.random_sequence",
    Evidence.spec,
    "CDNA4 ISA 7.3, 12.11 V_CVT_SCALEF32_SR_PK32_*",
    "Every further element of a stochastic conversion takes the next state of V_PRNG_B32; the register stays as it is.",
)


SCALE_NAN = body_switch(
    "convert.scale_nan",
    ("signed", "positive", "power"),
    "What scale byte 255 is. signed: it makes a NaN with the sign of the value. positive: it makes a positive NaN."
    " power: it is 2^128.",
    SCALE_BYTE_255,
)
SCALE_ZERO = body_switch(
    "convert.scale_zero",
    ("power", "normal", "one"),
    "What scale byte 0 is: 2^-127, the smallest normal power 2^-126, or no scale at all.",
    SCALE_BYTE_0,
)
SCALED_HALVES = body_switch(
    "convert.scaled_halves",
    ("mode", "kept"),
    "Whether denormal f16 and bf16 operands of V_CVT_SCALEF32_* are flushed by MODE (bf16 by the f32 field) or kept.",
    SCALE_MODE,
)
SCALED_WIDE = body_switch(
    "convert.scaled_wide",
    ("mode", "nearest"),
    "How f32, f16 and bf16 results of V_CVT_SCALEF32_* follow MODE. mode: f32 and f16 round by it, denormal results are"
    " flushed by it. nearest: to nearest even, denormals kept.",
    SCALE_MODE,
)
TO_WIDE = (SCALE, SCALE_BYTE_255, SCALE_BYTE_0, SCALE_MODE, FLOAT_ROUND, FLOAT_DENORM)


def _to_narrow(form: Format, stochastic: bool = False, several: bool = False) -> tuple[Rule, ...]:
    """The rules of a conversion to a format. several: elements with random parts of their own."""
    edge = (formats.OVERFLOW_EDGE,) if form.bits == 8 else ()
    rounding = (STOCHASTIC,) if stochastic else (formats.ROUNDING, *edge)
    sequence = (RANDOM_SEQUENCE,) if several else ()
    return SCALE, SCALE_BYTE_255, SCALE_BYTE_0, SCALE_MODE, *rounding, *sequence, *narrow_rules(form)


Scaler = Callable[[F32], F32]


def _scale_byte(scale: U32) -> I32:
    """The exponent byte of a scale, with what byte 0 stands for."""
    byte = scale.field(23, 8).bits(I32)
    if SCALE_ZERO.answer == "power":
        return byte
    return byte.maximum(1) if SCALE_ZERO.answer == "normal" else (byte == 0).select(127, byte)


def _scaler(byte: I32, exponent: I32) -> Scaler:
    """Multiplies by 2^exponent, in two steps since that may lie outside the normal floats; NaN for byte 255."""
    first = exponent >> 1
    powers = [((e + 127) << 23).bits(F32) for e in (first, exponent - first)]

    def apply(value: F32) -> F32:
        product = value * powers[0] * powers[1]
        if SCALE_NAN.answer == "power":
            return product
        nan = U32.constant(byte.engine, 0x7FC00000)
        if SCALE_NAN.answer == "signed":
            nan = value.bits(U32) & 0x80000000 | nan
        return (byte == 255).select(nan.bits(F32), product)

    return apply


def divider(scale: U32, source: str) -> Scaler:
    """Divides numbers of a type by the scale, to nearest even, denormal quotients kept [rule convert.scale_mode]."""
    byte = _scale_byte(scale)
    apply = _scaler(byte, 127 - byte)
    flushes = source == "f32" or SCALED_HALVES.answer == "mode"

    def divide(value: F32) -> F32:
        seen = as_input(value) if flushes else value
        with with_mode(scale.engine, **EXACT):
            return apply(seen)

    return divide


def multiplier(scale: U32, target: str) -> Scaler:
    """Multiplies by the scale; a code of 8 bits or fewer times a power of two is exact in f32 unless it overflows."""
    byte = _scale_byte(scale)
    exponent, by_mode = byte - 127, SCALED_WIDE.answer == "mode"
    if target == "f16":  # already beyond all of f16, and in f32 still finite
        exponent = exponent.minimum(60)
    fields = {"denorm32": 3} if by_mode and target != "bf16" else EXACT
    apply = _scaler(byte, exponent)

    def multiply(value: F32) -> F32:
        with with_mode(scale.engine, **fields):
            product = apply(value)
        return as_output(product) if by_mode and target != "f16" else product

    return multiply


def _wide(value: F32 | F16 | U16) -> F32:
    """f32 of an f32, f16 or (as bits) bf16."""
    if isinstance(value, F32):
        return value
    if isinstance(value, U16):
        return (value.to(U32) << 16).bits(F32)
    with with_mode(value.engine, **({} if SCALED_HALVES.answer == "mode" else EXACT)):
        return value.to(F32)


def _halves(word: U32, source: str) -> tuple[F32, F32]:
    """The two packed f16 or bf16 numbers of a register."""
    low, high = word.to(U16), (word >> 16).to(U16)
    return (_wide(low.bits(F16)), _wide(high.bits(F16))) if source == "f16" else (_wide(low), _wide(high))


def _into(old: U32, code: U32, bits: int, op_sel: int) -> U32:
    """8 bits into the byte OP_SEL[3:2] picks, or 16 bits into the word OP_SEL[3] picks."""
    return into_byte(old, code, op_sel) if bits == 8 else into_word(old, code, op_sel)


def _nearest_pair(values: Sequence[F32], scale: U32, form: Format, source: str) -> U32:
    apply = divider(scale, source)
    low, high = (narrowed(apply(v), form) for v in values)
    return low | (high << form.bits)


def _stochastic(values: Sequence[F32], random: U32, scale: U32, form: Format, source: str) -> list[U32]:
    apply, codes = divider(scale, source), []
    for value in values:
        codes.append(narrowed_stochastic(apply(value), random, form))
        random = v_prng_b32(random)
    return codes


def _packed6(codes: Sequence[U32]) -> B192:
    """32 codes of 6 bits, the first lowest."""
    words = []
    for word in range(6):
        total = codes[0].coerce(0)
        for i, code in enumerate(codes):
            low = 6 * i - 32 * word
            if -6 < low < 32:
                total = total | (code << low if low >= 0 else code >> -low)
        words.append(total)
    return B192(words)


def _code6(words: B192, index: int) -> U32:
    """Code `index` of 32 packed ones."""
    word, low = divmod(6 * index, 32)
    bits = words[word] >> low
    return (bits | (words[word + 1] << 32 - low) if low > 26 else bits) & 0x3F


def _elements(words: B512 | B1024, source: str) -> list[F32]:
    """All numbers of a block of registers: one f32 or two halves a register."""
    if source == "f32":
        return [word.bits(F32) for word in words.words]
    return [value for word in words.words for value in _halves(word, source)]


def _define(name: str, opcode: int, body: Callable[..., Any], types: dict[str, Any], text: str, rules: Any) -> None:
    body.__annotations__ = types
    body.__doc__ = f"{text}. [12.11]"
    vop3(f"v_cvt_scalef32_{name}", opcode, rules=rules)(body)


_MERGED = {"vdst": U32, "op_sel": int, "return": U32}
_DESTINATION = {8: "one word of D", 4: "one byte of D"}
_ONE: dict[str, Any] = {"f32": F32, "f16": F16, "bf16": Bf16}
_PAIR: dict[str, Any] = {"f32": F32Pair, "f16": F16Pair, "bf16": Bf16Pair}


def _define_pair(opcode: int, name: str, form: Format, source: str) -> None:
    """Two numbers, to nearest even."""

    def from_f32(src0: Any, src1: Any, src2: Any, vdst: Any, op_sel: int = 0) -> Any:
        return _into(vdst, _nearest_pair((src0, src1), src2, form, source), 2 * form.bits, op_sel)

    def from_halves(src0: Any, src1: Any, vdst: Any, op_sel: int = 0) -> Any:
        return _into(vdst, _nearest_pair(_halves(src0, source), src1, form, source), 2 * form.bits, op_sel)

    text = f"Two {source} numbers over the scale as {form.name} into {_DESTINATION[form.bits]}"
    if source == "f32":
        types = {"src0": F32, "src1": F32, "src2": U32, **_MERGED}
        _define(f"pk_{name}_f32", opcode, from_f32, types, text, _to_narrow(form))
    else:
        types = {"src0": _PAIR[source], "src1": U32, **_MERGED}
        _define(f"pk_{name}_{source}", opcode, from_halves, types, text, _to_narrow(form))


def _define_stochastic(opcode: int, name: str, form: Format, source: str) -> None:
    """One number to 8 bits with a random part."""

    def body(src0: Any, src1: Any, src2: Any, vdst: Any, op_sel: int = 0) -> Any:
        return _into(vdst, _stochastic([_wide(src0)], src1, src2, form, source)[0], 8, op_sel)

    types = {"src0": _ONE[source], "src1": U32, "src2": U32, **_MERGED}
    text = f"One {source} number over the scale as {form.name} with random part S1 into one byte of D"
    _define(f"sr_{name}_{source}", opcode, body, types, text, _to_narrow(form, stochastic=True))


def _define_stochastic_fp4(opcode: int, source: str) -> None:
    """Two numbers to 4 bits with random parts."""

    def body(src0: Any, src1: Any, src2: Any, vdst: Any, op_sel: int = 0) -> Any:
        values = [w.bits(F32) for w in split(src0)] if source == "f32" else _halves(src0, source)
        low, high = _stochastic(values, src1, src2, E2M1, source)
        return into_byte(vdst, low | (high << 4), op_sel)

    types = {"src0": _PAIR[source], "src1": U32, "src2": U32, **_MERGED}
    text = f"Two {source} numbers over the scale as e2m1 with random parts into one byte of D"
    _define(f"sr_pk_fp4_{source}", opcode, body, types, text, _to_narrow(E2M1, stochastic=True, several=True))


def _define_block(opcode: int, name: str, form: Format, source: str, stochastic: bool) -> None:
    """32 numbers to 6 bits."""

    def nearest(src0: Any, src1: Any) -> Any:
        apply = divider(src1, source)
        return _packed6([narrowed(apply(v), form) for v in _elements(src0, source)])

    def random(src0: Any, src1: Any, src2: Any) -> Any:
        return _packed6(_stochastic(_elements(src0, source), src1, src2, form, source))

    block = B1024 if source == "f32" else B512
    text = f"32 {source} numbers over the scale as {form.name}"
    if stochastic:
        types = {"src0": block, "src1": U32, "src2": U32, "return": B192}
        rules = _to_narrow(form, stochastic=True, several=True)
        _define(f"sr_pk32_{name}_{source}", opcode, random, types, f"{text} with random parts", rules)
    else:
        types = {"src0": block, "src1": U32, "return": B192}
        _define(f"pk32_{name}_{source}", opcode, nearest, types, text, _to_narrow(form))


def _define_two_blocks(opcode: int, name: str, form: Format) -> None:
    """2 x 16 numbers to 6 bits, alternating."""

    def body(src0: Any, src1: Any, src2: Any) -> Any:
        apply = divider(src2, "f32")
        pairs = zip(src0.words, src1.words, strict=True)
        return _packed6([narrowed(apply(word.bits(F32)), form) for pair in pairs for word in pair])

    types = {"src0": B512, "src1": B512, "src2": U32, "return": B192}
    text = f"16 f32 numbers of S0 and 16 of S1, alternating, over the scale as {form.name}"
    _define(f"2xpk16_{name}_f32", opcode, body, types, text, _to_narrow(form))


def _wide_code(value: F32, target: str) -> U32:
    """An f32 as bits of the target type."""
    if target == "f32":
        return value.bits(U32)
    if target == "f16":
        return _as_half(value).bits(U16).to(U32)
    return narrowed(value, BF16_FORMAT, "payload")  # the payload that it has by then


def _as_half(value: F32) -> F16:
    """An exact f32 as f16: MODE's field for f32 denormals is not for what is no operand."""
    with with_mode(value.engine, **({"denorm32": 3} if SCALED_WIDE.answer == "mode" else EXACT)):
        return half(value)


def _wide_rules(form: Format) -> tuple[Rule, ...]:
    return TO_WIDE if form.canonical_nan is None else (*TO_WIDE, NAN_WIDE_CODE)


def _define_widened_pair(opcode: int, name: str, form: Format, target: str) -> None:
    """Two numbers back to a wide type."""

    def body(src0: Any, src1: Any, op_sel: int = 0) -> Any:
        apply = multiplier(src1, target)
        part = src0 >> 16 * (op_sel & 1) if form.bits == 8 else src0 >> 8 * (op_sel & 3)
        low, high = (_wide_code(apply(widened(part >> shift, form)), target) for shift in (0, form.bits))
        return join(low, high) if target == "f32" else low | (high << 16)

    types = {"src0": U32, "src1": U32, "op_sel": int, "return": U64 if target == "f32" else U32}
    text = f"Two {form.name} numbers times the scale as {target}"
    _define(f"pk_{target}_{name}", opcode, body, types, text, _wide_rules(form))


def _define_widened(opcode: int, name: str, form: Format, target: str) -> None:
    """One number back to f32 or f16."""

    def body(src0: Any, src1: Any, op_sel: int = 0) -> Any:
        value = multiplier(src1, target)(widened(src0 >> 8 * (op_sel & 3), form))
        return value if target == "f32" else _as_half(value)

    types = {"src0": U32, "src1": U32, "op_sel": int, "return": _ONE[target]}
    _define(
        f"{target}_{name}",
        opcode,
        body,
        types,
        f"One {form.name} number times the scale as {target}",
        _wide_rules(form),
    )


def _define_widened_block(opcode: int, name: str, form: Format, target: str) -> None:
    """32 numbers back to a wide type."""

    def body(src0: Any, src1: Any) -> Any:
        apply = multiplier(src1, target)
        codes = [_wide_code(apply(widened(_code6(src0, i), form)), target) for i in range(32)]
        if target == "f32":
            return B1024(codes)
        return B512([low | (high << 16) for low, high in zip(codes[::2], codes[1::2], strict=True)])

    types = {"src0": B192, "src1": U32, "return": B1024 if target == "f32" else B512}
    _define(
        f"pk32_{target}_{name}", opcode, body, types, f"32 {form.name} numbers times the scale as {target}", TO_WIDE
    )


_FP8, _BF8, _FP4, _FP6, _BF6 = ("fp8", E4M3FN), ("bf8", E5M2), ("fp4", E2M1), ("fp6", E2M3), ("bf6", E3M2)
_PAIRS = (
    (565, *_FP8, "f32"), (566, *_BF8, "f32"), (573, *_FP4, "f32"), (576, *_FP8, "f16"), (577, *_BF8, "f16"),
    (580, *_FP8, "bf16"), (581, *_BF8, "bf16"), (588, *_FP4, "f16"), (589, *_FP4, "bf16"),
)  # fmt: skip
_STOCHASTIC = (
    (567, *_FP8, "f32"), (568, *_BF8, "f32"), (578, *_FP8, "f16"), (579, *_BF8, "f16"), (582, *_FP8, "bf16"),
    (583, *_BF8, "bf16"),
)  # fmt: skip
_BLOCKS = (
    (596, *_FP6, "f32", True), (597, *_BF6, "f32", True), (604, *_FP6, "f16", True), (606, *_BF6, "f16", True),
    (605, *_FP6, "bf16", True), (607, *_BF6, "bf16", True), (600, *_FP6, "f16", False), (602, *_BF6, "f16", False),
    (601, *_FP6, "bf16", False), (603, *_BF6, "bf16", False),
)  # fmt: skip
_WIDENED_PAIRS = (
    (569, *_FP8, "f32"), (570, *_BF8, "f32"), (575, *_FP4, "f32"), (584, *_FP8, "f16"), (585, *_BF8, "f16"),
    (592, *_FP4, "f16"), (593, *_FP4, "bf16"), (617, *_FP8, "bf16"), (618, *_BF8, "bf16"),
)  # fmt: skip
_WIDENED = ((571, *_FP8, "f32"), (572, *_BF8, "f32"), (586, *_FP8, "f16"), (587, *_BF8, "f16"))
_WIDENED_BLOCKS = (
    (598, *_FP6, "f32"), (599, *_BF6, "f32"), (608, *_FP6, "f16"), (610, *_BF6, "f16"), (609, *_FP6, "bf16"),
    (611, *_BF6, "bf16"),
)  # fmt: skip


def _define_all() -> None:
    for row in _PAIRS:
        _define_pair(*row)
    for row in _STOCHASTIC:
        _define_stochastic(*row)
    for opcode, source in ((574, "f32"), (590, "f16"), (591, "bf16")):
        _define_stochastic_fp4(opcode, source)
    for block in _BLOCKS:
        _define_block(*block)
    for two in ((594, *_FP6), (595, *_BF6)):
        _define_two_blocks(*two)
    for row in _WIDENED_PAIRS:
        _define_widened_pair(*row)
    for row in _WIDENED:
        _define_widened(*row)
    for row in _WIDENED_BLOCKS:
        _define_widened_block(*row)


_define_all()
