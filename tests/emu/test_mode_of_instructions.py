"""Which of MODE's fields each vector instruction follows: a table of all of them, against what the bodies do.

Every body runs on random operands under modes that differ in one field. Whatever then changes must be in the table, and
every field of a row must show itself in one of the row's instructions.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

from emu.engines.numpy_engine import NumpyEngine
from gfx950.isa.registry import load
from gfx950.lanes import MANTISSA_BITS, U32, Float, Mask, Mode, Words, infinity_bits

LANES = 64
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
# A field's short name, what it changes. in, out: denormals of inputs and outputs; 32: of f32, 16: of f16 and f64.
FIELDS = {  # settings that differ in nothing else, in groups
    "round32": [[{"round32": n} for n in range(4)]],
    "round16": [[{"round16_64": n} for n in range(4)]],
    "in32": [[{"denorm32": n} for n in codes] for codes in ((0, 1), (2, 3))],
    "out32": [[{"denorm32": n} for n in codes] for codes in ((0, 2), (1, 3))],
    "in16": [[{"denorm16_64": n} for n in codes] for codes in ((0, 1), (2, 3))],
    "out16": [[{"denorm16_64": n} for n in codes] for codes in ((0, 2), (1, 3))],
    "dx10": [[{"dx10_clamp": b} for b in (False, True)]],
    "ieee": [[{"ieee": b} for b in (False, True)]],
    "ovfl": [[{"fp16_ovfl": b} for b in (False, True)]],
}
NARROW = "(fp8|bf8|fp6|bf6|fp4)"
F16_ARITHMETIC = "v_(add|sub|subrev|mul|fma|fma_legacy|ldexp|pk_add|pk_mul|pk_fma)_f16"
TABLE = {  # the first row that matches counts
    # conversions
    "v_cvt_(f32|f64)_.*(u32|i32|u16|i16|ubyte.|i4)|v_cvt_f64_f32": "in32 round32",
    "v_cvt_f16_[ui]16": "round16 ovfl",
    "v_cvt_f32_f64": "round16 out32 in16",
    "v_cvt_f16_f32": "round16 in32 out16 ovfl",
    "v_cvt_f32_f16": "in16",
    "v_cvt_pk_f16_f32": "in32 out16 ovfl dx10",
    "v_cvt_pkrtz_f16_f32": "out16 dx10",
    "v_cvt_pk_bf16_f32": "in32 out32 dx10",
    "v_cvt_sr_bf16_f32": "in32 out32",
    "v_cvt_sr_f16_f32": "out16 ovfl",
    f"v_cvt_(pk|sr)_{NARROW}_f32": "ovfl",
    f"v_cvt_pk_f32_{NARROW}": "dx10",
    "v_cvt_(pk)?norm_[iu]16_f16|v_cvt_pknorm_.*_f16": "in16",
    # to narrow formats with a scale: 8 bits saturate by FP16_OVFL, fewer always
    "v_cvt_scalef32_.*(fp8|bf8)_(f32|bf16)": "in32 ovfl",
    "v_cvt_scalef32_.*(fp8|bf8)_f16": "in16 ovfl",
    "v_cvt_scalef32_.*(fp6|bf6|fp4)_(f32|bf16)": "in32",
    "v_cvt_scalef32_.*(fp6|bf6|fp4)_f16": "in16",
    # and back
    f"v_cvt_scalef32_.*f32_{NARROW}": "round32 out32",
    f"v_cvt_scalef32_.*_bf16_{NARROW}": "out32",
    f"v_cvt_scalef32_.*f16_{NARROW}": "round16 out16 ovfl",
    # arithmetic
    "v_(add|sub|subrev|mul|mul_legacy|fma|fmac|fmamk|fmaak|ldexp|pk_.*)_f32|v_cubema_f32": "round32 in32 out32",
    "v_(add|mul|fma|fmac|ldexp)_f64": "round16 in16 out16",
    F16_ARITHMETIC: "round16 in16 out16 ovfl",
    "v_pk_fmac_f16": "round16 in16 out16 ovfl dx10",
    "v_(mac|mad|madmk|madak|mad_legacy)_f16": "round16 ovfl",  # always flush
    "v_fma_mix_f32": "round32 in32 out32 in16",
    "v_fma_mix(lo|hi)_f16": "round32 round16 in32 out32 in16 out16 ovfl dx10",
    "v_fract_f32": "round32 in32 out32",
    "v_fract_f(16|64)": "round16 in16 out16",
    "v_div_fmas_f32": "round32 out32",
    "v_div_fmas_f64": "round16 out16",
    "v_div_scale_f32": "round32 in32 out32",
    "v_div_scale_f64": "round16 in16 out16",
    "v_div_fixup_f32": "in32 out32",
    "v_div_fixup_.*": "in16 out16",
    "v_dot2.*": "",  # neither rounding nor denormals
    # values of functions
    "v_(rcp|sqrt|rsq|sin|cos|exp|log)_f(16|64)": "in16 out16 ovfl",
    "v_(sin|cos)_f32": "in32 out32",
    "v_trig_preop_f64": "out16 in16",
    # integral values and parts
    "v_(floor|ceil|trunc|rndne)_f32": "in32 out32",
    "v_(floor|ceil|trunc|rndne)_f(16|64)": "in16 out16",
    "v_frexp_.*f32": "in32",
    "v_frexp_.*f(16|64)": "in16",
    "v_cube(id|sc|tc)_f32": "in32 out32",
    # selection
    "v_(min|max|min3|max3|med3)_f32": "in32 out32 ieee",
    "v_(pk_)?(min|max|min3|max3|med3)_f(16|64)": "in16 out16 ieee",
    "v_(minimum3|maximum3)_f32": "in32 out32",
    "v_pk_(minimum3|maximum3)_f16": "in16 out16",
    "v_cmpx?_(lt|eq|le|gt|lg|ge|nge|nlg|ngt|nle|neq|nlt)_f32": "in32",
    "v_cmpx?_(lt|eq|le|gt|lg|ge|nge|nlg|ngt|nle|neq|nlt)_f(16|64)": "in16",
    "v_pack_b32_f16": "dx10",
    ".*": "",
}
# Fields that a row has for the sake of the rule only: no operand makes a difference, or next to none.
UNSEEN = {
    "v_cvt_f32_f64": {"in16"},
    "v_cvt_pk_f16_f32": {"in32"},
    "v_(floor|ceil|trunc|rndne)_f32": {"out32"},
    "v_(floor|ceil|trunc|rndne)_f(16|64)": {"out16"},
    "v_trig_preop_f64": {"in16"},
    "v_(sin|cos)_f32": {"out32"},
    "v_fma_mix(lo|hi)_f16": {"out32"},
}


def row(name):
    return next(pattern for pattern in TABLE if re.fullmatch(pattern, name))


def instructions():
    outside = ("lds", "global", "scalar_memory", "exec", "scc", "m0", "pc", "scalar", "hardware", "sgprs")
    for name, instruction in load().items():
        plain = all(p.place not in outside and isinstance(p.kind, type) for p in instruction.parameters)
        if instruction.encoding.startswith("VOP") and not instruction.flow and plain:
            yield name, instruction


def random_floats(rng, width):
    """Denormals, the largest numbers, zeros, infinities and NaNs, numbers around 1, and any bits."""
    kind = UNSIGNED[width]
    bits = rng.integers(0, 1 << width, LANES, dtype=kind)
    infinity, sign = infinity_bits(width), kind(1 << width - 1)
    one = (infinity >> 1) & ~((1 << MANTISSA_BITS[width]) - 1)
    near = (bits & sign) | (bits % kind(infinity // 6) + kind(one - infinity // 12))
    choices = [
        bits,
        bits & kind(infinity ^ (1 << width) - 1),
        (bits & sign) | (kind(infinity - 1) - (bits & kind(7))),
        bits & sign,
        (bits & sign) | kind(infinity),
        (bits & sign) | kind(infinity) | (bits & kind((1 << MANTISSA_BITS[width]) - 1)),
        near,
    ]
    dice = rng.choice(len(choices), LANES, p=[0.12, 0.25, 0.1, 0.04, 0.04, 0.05, 0.4])
    return np.choose(dice, choices).astype(kind)


def pair(low, high, width):
    kind = UNSIGNED[2 * width]
    return low.astype(kind) | high.astype(kind) << kind(width)


def random_operand(rng, parameter):
    kind, place = parameter.kind, parameter.place
    if issubclass(kind, Mask):
        return rng.integers(0, 2, LANES).astype(bool)
    if place in ("f16_pair", "f32_pair"):
        width = 16 if place == "f16_pair" else 32
        return pair(random_floats(rng, width), random_floats(rng, width), width)
    bf16 = [(random_floats(rng, 32) >> np.uint32(16)).astype(np.uint16) for _ in range(2)]
    if place == "bf16":
        return bf16[0]
    if place == "bf16_pair":
        return pair(*bf16, 16)
    if place == "mixed":
        halves = pair(random_floats(rng, 16), random_floats(rng, 16), 16)
        return np.where(rng.random(LANES) < 0.5, random_floats(rng, 32), halves)
    if issubclass(kind, Float):
        return random_floats(rng, kind.width)
    wide = rng.integers(0, 1 << kind.width, LANES, dtype=UNSIGNED[kind.width])
    wide[:2] = (1 << kind.width) - 1, 1 << kind.width - 1
    small = rng.integers(-60, 60, LANES).astype(UNSIGNED[kind.width], casting="unsafe")
    return np.where(rng.random(LANES) < 0.5, wide, small) if kind.__name__[0] == "I" else wide


def random_operands(rng, instruction):
    """One value a parameter: lanes, words of lanes (f32), or a number for a static field."""
    values, last = [], [p.name for p in instruction.parameters if p.name.startswith("src")][-1:]
    for parameter in instruction.parameters:
        if parameter.kind is int:
            values.append(int(rng.integers(0, 8)) & (1 if parameter.name in ("clamp", "op_sel_hi2") else 7))
        elif issubclass(parameter.kind, Words):
            values.append([random_floats(rng, 32) for _ in range(parameter.kind.count)])
        elif "scalef32" in instruction.name and [parameter.name] == last:
            values.append(scales(rng))
        else:
            values.append(random_operand(rng, parameter))
    return values


def scales(rng):
    return rng.choice(np.array([0, 1, 110, 120, 127, 130, 140, 253, 254], np.uint32), LANES) << np.uint32(23)


def argument(engine, parameter, value):
    if isinstance(value, int):
        return value
    if isinstance(value, list):
        return parameter.kind([U32(engine, word) for word in value])
    return parameter.kind(engine, value)


def results(instruction, values, mode):
    engine = NumpyEngine(mode)
    out = instruction.body(*(argument(engine, p, v) for p, v in zip(instruction.parameters, values, strict=True)))
    values = out if isinstance(out, tuple) else (out,)
    lanes = [word for value in values for word in (value.words if isinstance(value, Words) else (value,))]
    return [np.broadcast_to(lane.raw, (LANES,)) for lane in lanes]


def differ(instruction, values, modes):
    """Whether the modes give different results."""
    first, *others = [results(instruction, values, mode) for mode in modes]
    return any(not np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def random_mode(rng, rounded):
    low = 4 if rounded else 1
    bits = [bool(b) for b in rng.integers(0, 2, 3)]
    return Mode(*(int(n) for n in rng.integers(0, low, 2)), *(int(n) for n in rng.integers(0, 4, 2)), *bits)


def find_fields(instruction, rng, fields, rounded):
    """Those of the fields that change a result for random operands."""
    values = random_operands(rng, instruction)
    mode = random_mode(rng, rounded)

    def shows(field):
        groups = ([replace(mode, **change) for change in group] for group in FIELDS[field])
        return any(differ(instruction, values, modes) for modes in groups)

    return {field for field in fields if shows(field)}


FAR_MODES = [Mode(), Mode(1, 2, 0, 0, False, False, True), Mode(2, 3, 1, 2, True, False, True), Mode(3, 1, 2, 1)]


@pytest.fixture(scope="module")
def seen():
    """The fields that change a result, by instruction; those of the row ".*" answer for all fields together."""
    found, rng = {}, np.random.default_rng(3)
    for name, instruction in instructions():
        if row(name) == ".*":
            found[name] = {"any"} if differ(instruction, random_operands(rng, instruction), FAR_MODES) else set()
            continue
        found[name] = set()
        blocks = "pk32" in name or "pk16" in name  # slow, and made of the parts of the others
        for trial in range(1, 2) if blocks else range(2):
            found[name] |= find_fields(instruction, rng, FIELDS.keys() - found[name], trial == 1)
    by_row = {}
    for name in found:
        by_row.setdefault(row(name), []).append(name)
    for pattern, names in by_row.items():  # what is hard to hit gets more trials
        for trial in range(60):
            missing = set(TABLE[pattern].split()) - set().union(*(found[n] for n in names)) - UNSEEN.get(pattern, set())
            name = names[trial % len(names)]
            found[name] |= find_fields(load()[name], rng, missing, trial % 2) if missing else set()
    return found


def test_an_instruction_follows_no_field_but_its_own(seen):
    wrong = {name: fields - set(TABLE[row(name)].split()) for name, fields in seen.items()}
    assert {name: fields for name, fields in wrong.items() if fields} == {}


def test_every_field_of_a_row_shows(seen):
    by_row = {pattern: set() for pattern in TABLE}
    for name, fields in seen.items():
        by_row[row(name)] |= fields
    for pattern, fields in by_row.items():
        assert set(TABLE[pattern].split()) - fields - UNSEEN.get(pattern, set()) == set(), pattern


def test_the_table_has_all_instructions_and_no_more(seen):
    assert len(seen) > 450
    assert {row(name) for name in seen} == set(TABLE)
