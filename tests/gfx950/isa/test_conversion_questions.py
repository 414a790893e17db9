"""The open questions of conversions and float dot products: every answer does what its text says, on both engines.

What an answer says is written here again in exact arithmetic or as a table of bits; the default answers have their own
tests.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from body_runners import input_count, on_host, on_numpy
from kernel_builds import assemble_kernel

from emu.dispatch import Device, RunOptions
from emu.geometry import Geometry
from gfx950.evidence import LEDGER
from gfx950.isa.registry import load, lookup
from gfx950.lanes import Mode
from gfx950.models import load_switches, make_model, using

FAMILIES = ("convert.", "valu.dot", "valu.rpi", "valu.flr")
SWITCHES = {name: switch for name, switch in load_switches().items() if name.startswith(FAMILIES)}
ANSWERS = [(name, answer) for name, switch in SWITCHES.items() for answer in switch.answers if answer != switch.default]
DOTS = ("v_dot2_f32_f16", "v_dot2_f32_bf16", "v_dot2c_f32_f16", "v_dot2c_f32_bf16")
BLOCKS = ("pk32", "2xpk16")  # large bodies: one of a kind is enough
KEPT_BLOCKS = tuple(f"v_cvt_scalef32_{n}" for n in ("sr_pk32_fp6_bf16", "pk32_bf6_f16", "pk32_bf16_fp6"))
NAMES = (
    *(n for n in load() if n.startswith("v_cvt_") and (n in KEPT_BLOCKS or not any(b in n for b in BLOCKS))),
    *DOTS,
)
MODES = (Mode(fp16_ovfl=True, denorm32=2), Mode(denorm32=1, denorm16_64=0, round32=1, round16_64=3))
LANES = 256
HOSTED = 4  # instructions an answer that are compiled
LEFT_ALONE = 4  # of that many instructions that an answer should not change, one is run


def answers(**values):
    """The model of some answers; `_` stands for the first dot of a name."""
    return using(make_model("test", {name.replace("_", ".", 1): answer for name, answer in values.items()}))


def some_registers(count):
    """Registers of random bits, numbers that lie in the narrow formats, and special ones; the same scale bytes."""
    random = np.random.default_rng(count)
    words = random.integers(0, 1 << 32, (count, LANES), dtype=np.uint32)
    middle = random.integers(100, 145, (count, LANES), dtype=np.uint32) << 23
    words = np.where(random.random(words.shape) < 0.5, words & 0x807FFFFF | middle, words)
    special = np.array(
        [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F812345, 0xFFC12345, 1, 0x807FFFFF, 0x807FFFFF, 0x43E60000, 0x47600001,
         0xFE7D7F81, 0x7C017D7F, 0x000103FF, 0x00800001, 0xFFFFFFFF, 0x7F80FFFF, 0xBF000000, 0xB800B800,
         0x3EF243E5, 0x3F1BDB1C, 0x3EFFFFFF],
        dtype=np.uint32,
    )  # fmt: skip
    chosen = random.random(words.shape) < 0.3
    words[chosen] = random.choice(special, int(chosen.sum()))
    return words


def statics(name):
    return {"neg": 4} if name.startswith("v_dot2_") else {}


def results(runner, name, mode):
    return runner(name, mode, **statics(name))(*some_registers(input_count(name)))


@pytest.fixture(scope="module")
def defaults():
    return {(name, mode): results(on_numpy, name, mode) for name in NAMES for mode in MODES}


def decided(name, instruction):
    """Whether an instruction lists a rule that the switch decides."""
    rules = {rule.name for rule in SWITCHES[name].rules}
    return bool(rules & {rule.name for rule in lookup(instruction).rules})


def check_answer(defaults, name, answer, cases):
    """It changes some results, of instructions alone whose rules it decides; engines agree on what it changes."""
    with using(make_model("test", {name: answer})):
        got = {case: results(on_numpy, *case) for case in cases}
        changed = [case for case, result in got.items() if not np.array_equal(result, defaults[case])]
        assert changed
        for instruction, _ in changed:
            assert decided(name, instruction), f"{instruction} lists no rule of {name}"
        small = [case for case in changed if case[0] not in KEPT_BLOCKS]
        for case in small[:: -(-len(small) // HOSTED)]:
            np.testing.assert_array_equal(results(on_host, *case), got[case], err_msg=case[0])


@pytest.mark.parametrize(("name", "answer"), ANSWERS)
def test_every_answer_is_reached_and_both_engines_give_it(defaults, name, answer):
    """Of the instructions that it should leave alone, other ones in turn for each answer."""
    others = [case for case in defaults if not decided(name, case[0])]
    kept = {*others[ANSWERS.index((name, answer)) % LEFT_ALONE :: LEFT_ALONE]}
    check_answer(defaults, name, answer, [case for case in defaults if case in kept or decided(name, case[0])])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "answer"), ANSWERS)
def test_every_answer_leaves_all_others_alone(defaults, name, answer):
    check_answer(defaults, name, answer, defaults)


def test_switches_decide_rules():
    """Switches are read in bodies and decide rules of the ledger."""
    for switch in SWITCHES.values():
        assert switch.in_bodies
        assert switch.rules
        assert all(LEDGER[rule.name] is rule for rule in switch.rules)


def once(name, *registers, mode=None, **static):
    """The first register of the result for few lanes, alike on both engines."""
    count = len(registers[0])
    lanes = [np.resize(np.array(r, dtype=np.uint32), 64) for r in registers]
    got = [run(name, mode or Mode(), **static)(*lanes) for run in (on_numpy, on_host)]
    np.testing.assert_array_equal(got[0], got[1])
    return [int(x) for x in got[0][0][:count]]


def f32(*values):
    return np.array(values, np.float32).view(np.uint32)


# ---- stochastic rounding ---------------------------------------------------------------------------------------------

FORMATS = {"fp8": (3, 7, 8), "bf8": (2, 15, 8), "f16": (10, 15, 16), "bf16": (7, 127, 16), "fp4": (1, 1, 4)}


def value_of(exponent, mantissa):
    """The magnitude of f32 fields."""
    return Fraction(mantissa | (1 << 23 if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - 150)


def rounded(quotient, total):
    """Steps of a sum: cut, or to nearest even for the code of chapter 12."""
    if total != "nearest":
        return math.floor(quotient)
    whole = math.floor(quotient)
    rest = quotient - whole
    return whole + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1))


def code_of(value, mantissa_bits, bias, total):
    """The code of an exact magnitude, as if the exponent had no upper end."""
    lowest = 1 - bias
    exponent = lowest
    while value >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = rounded(value / Fraction(2) ** (exponent - mantissa_bits), total)
    return steps + (exponent - lowest << mantissa_bits)


def stochastic_code(bits, random, form, total="truncate", small="step", which="high"):
    """By the texts of the switches, in exact arithmetic."""
    mantissa_bits, bias, width = FORMATS[form]
    drop = 23 - mantissa_bits
    part = random & (1 << drop) - 1 if which == "low" and width != 8 else random >> 32 - drop
    exponent, mantissa = bits >> 23 & 0xFF, bits & 0x7FFFFF
    value = value_of(exponent, mantissa)
    if value < Fraction(2) ** (1 - bias) and small == "step":
        significand = math.floor(value / Fraction(2) ** (1 - bias - 23)) + part
        significand = significand if total == "truncate" else significand % (1 << 23)
        return rounded(Fraction(significand, 1 << drop), total)
    mantissa += part
    if total == "truncate":
        exponent += mantissa >> 23
    return code_of(value_of(exponent, mantissa & 0x7FFFFF), mantissa_bits, bias, total)


def stochastic_inputs(form):
    """f32 bits up to the largest number of the format, many below its smallest normal, and seeds."""
    mantissa_bits, bias, width = FORMATS[form]
    generator = np.random.default_rng(width + bias)
    top = {"fp8": 448.0, "bf8": 57344.0, "f16": 65504.0, "bf16": 3.3895313892515355e38, "fp4": 6.0}[form]
    normal = 128 - bias << 23
    bits = generator.integers(0, int(f32(top)[0]), 1 << 11, dtype=np.uint32)
    bits[::2] = generator.integers(max(normal - (mantissa_bits + 3 << 23), 0), normal + (1 << 24), bits[::2].size)
    bits[::32] &= 0xFFFFFFFF << 23 - mantissa_bits & 0xFFFFFFFF
    random = generator.integers(0, 1 << 32, bits.size, dtype=np.uint32)
    random[1::16], random[2::16] = 0, 0xFFFFFFFF
    return bits, random


STOCHASTIC = [
    (total, small, which)
    for total in ("truncate", "wrap", "nearest")
    for small in ("step", "mantissa")
    for which in ("high", "low")
]


@pytest.mark.parametrize(("total", "small", "which"), STOCHASTIC)
@pytest.mark.parametrize("form", FORMATS)
def test_stochastic_rounding(form, total, small, which):
    bits, random = stochastic_inputs(form)
    zeros, one = np.zeros_like(bits), np.full_like(bits, 0x3F800000)
    with answers(convert_stochastic=total, convert_stochastic_small=small, convert_stochastic_bits=which):
        if form == "fp4":
            codes = on_numpy("v_cvt_scalef32_sr_pk_fp4_f32")(bits, bits, random, one, zeros)[0] & 15
        else:
            codes = on_numpy(f"v_cvt_sr_{form}_f32")(bits, random, zeros)[0]
    largest = {"fp8": 0x7E, "bf8": 0x7B, "f16": 0x7BFF, "bf16": 0x7F7F, "fp4": 7}[form]
    wanted = [
        stochastic_code(b, r, form, total, small, which) for b, r in zip(bits.tolist(), random.tolist(), strict=True)
    ]
    wanted = [min(w, largest if form == "fp4" else largest + 1) for w in wanted]
    assert codes.tolist() == wanted


def test_the_code_of_chapter_12_depends_on_the_seed_of_exact_numbers():
    """1.0 with all random bits set rounds up, so the answer is not what hip-fpsan saw on gfx950; the others keep it."""
    one, seeds = f32(1.0), [0xFFFFFFFF]
    for total, code in (("truncate", 0x38), ("wrap", 0x38), ("nearest", 0x39)):
        with answers(convert_stochastic=total):
            assert once("v_cvt_sr_fp8_f32", one, seeds, [0]) == [code]


def test_a_wrapped_mantissa_loses_its_carry():
    values, seeds = f32(1.9921875), [0xFFFFFFFF]
    for total, code in (("truncate", 0x40), ("wrap", 0x38), ("nearest", 0x38)):
        with answers(convert_stochastic=total):
            got = once("v_cvt_sr_fp8_f32", values, seeds, [0])
        assert got == [code + (total == "nearest")]


def test_overflow_before_a_stochastic_conversion():
    """460 may end as 448 or as NaN by the seed; judged before it is NaN with any; 448 never is."""
    values, seeds = f32(460.0, 460.0, 448.0, 1e30), [0, 0xFFFFFFFF, 0xFFFFFFFF, 0]
    assert once("v_cvt_sr_fp8_f32", values, seeds, [0] * 4) == [0x7E, 0x7F, 0x7E, 0x7F]
    with answers(convert_stochastic_overflow="before"):
        assert once("v_cvt_sr_fp8_f32", values, seeds, [0] * 4) == [0x7F, 0x7F, 0x7E, 0x7F]
        got = once("v_cvt_sr_fp8_f32", values, seeds, [0] * 4, mode=Mode(fp16_ovfl=True))
        assert got == [0x7E] * 4


# ---- NaN and infinities ----------------------------------------------------------------------------------------------

NANS = [0x7F800001, 0x7FA00000, 0x7FC00000, 0x7FE12345, 0xFFFFFFFF, 0xFFBFFFFF]
NARROW_NANS = {
    "canonical": ([0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0xFE], [0x7FC0, 0x7FC0, 0x7FC0, 0x7FC0, 0xFFC0, 0xFFC0], 0xFF),
    "payload": ([0x7E, 0x7F, 0x7E, 0x7F, 0xFF, 0xFF], [0x7FC0, 0x7FE0, 0x7FC0, 0x7FE1, 0xFFFF, 0xFFFF], 0xFF),
    "ones": ([0x7F, 0x7F, 0x7F, 0x7F, 0xFF, 0xFF], [0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF, 0xFFFF, 0xFFFF], 0xFF),
    "positive": ([0x7E] * 6, [0x7FC0] * 6, 0x7F),
}


@pytest.mark.parametrize("answer", NARROW_NANS)
@pytest.mark.parametrize("ovfl", [False, True])
def test_narrow_nan(answer, ovfl):
    bf8, bf16, negative_fp8 = NARROW_NANS[answer]
    with answers(convert_nan_narrow=answer):
        mode, zeros = Mode(fp16_ovfl=ovfl), [0] * 6
        assert [x & 0xFF for x in once("v_cvt_pk_bf8_f32", NANS, NANS, zeros, mode=mode)] == bf8
        assert once("v_cvt_sr_bf8_f32", NANS, zeros, zeros, mode=mode) == bf8
        assert [x & 0xFFFF for x in once("v_cvt_pk_bf16_f32", NANS, NANS, mode=mode)] == bf16
        fp8 = [x & 0xFF for x in once("v_cvt_pk_fp8_f32", NANS, NANS, zeros, mode=mode)]
        assert fp8 == [0x7F] * 4 + [negative_fp8] * 2
        infinities = once("v_cvt_pk_bf16_f32", [0x7F800000, 0xFF800000], [0, 0], mode=mode)
        assert infinities == [0x7F80, 0xFF80]


WIDE_NANS = {
    "canonical": ([0x7FC00000, 0x7FC00000, 0xFFC00000], [0x7FC00000, 0xFFC00000]),
    "payload": ([0x7FE00000, 0x7FC00000, 0xFFE00000], [0x7FF00000, 0xFFF00000]),
    "ones": ([0x7FFFFFFF, 0x7FFFFFFF, 0xFFFFFFFF], [0x7FFFFFFF, 0xFFFFFFFF]),
    "positive": ([0x7FC00000] * 3, [0x7FC00000] * 2),
}


@pytest.mark.parametrize("answer", WIDE_NANS)
def test_wide_nan(answer):
    bf8, fp8 = WIDE_NANS[answer]
    one = [0x3F800000]
    with answers(convert_nan_wide=answer):
        assert once("v_cvt_f32_bf8", [0x7D, 0x7E, 0xFF]) == bf8
        assert once("v_cvt_f32_fp8", [0x7F, 0xFF]) == fp8
        assert once("v_cvt_scalef32_f32_bf8", [0x7D, 0x7E, 0xFF], one * 3) == bf8
        # f16 and bf16 hold the top of what f32 has
        assert once("v_cvt_scalef32_f16_fp8", [0x7F, 0xFF], one * 2) == [
            x >> 16 & 0x8000 | 0x7C00 | x >> 13 & 0x3FF for x in fp8
        ]
        assert [x & 0xFFFF for x in once("v_cvt_scalef32_pk_bf16_fp8", [0x7F, 0xFF], one * 2)] == [x >> 16 for x in fp8]
        assert once("v_cvt_f32_bf8", [0x7C, 0xFC]) == [0x7F800000, 0xFF800000]


def test_narrow_nan_leaves_wide_results_alone():
    with answers(convert_nan_narrow="positive"):
        assert once("v_cvt_scalef32_pk_bf16_fp8", [0xFFFF], [0x3F800000]) == [0xFFC0FFC0]


def test_infinities_under_fp16_ovfl():
    values, zeros, mode = [0x7F800000, 0xFF800000, 0x7F7FFFFF], [0] * 3, Mode(fp16_ovfl=True)
    for answer, codes in (("maximum", [0x7B, 0xFB, 0x7B]), ("infinity", [0x7C, 0xFC, 0x7B])):
        with answers(convert_saturate_infinity=answer):
            assert [x & 0xFF for x in once("v_cvt_pk_bf8_f32", values, values, zeros, mode=mode)] == codes
            assert once("v_cvt_sr_bf8_f32", values, zeros, zeros, mode=mode) == codes
            fp8 = [x & 0xFF for x in once("v_cvt_pk_fp8_f32", values, values, zeros, mode=mode)]
            assert fp8 == [0x7E, 0xFE, 0x7E]  # the manual's table


def test_nan_in_formats_without_it():
    values, one = [0x7FC00000, 0xFFC00000, 0x7F800000, 0xFF800000], [0x3F800000] * 4
    tables = {"maximum": [7, 15, 7, 15], "positive": [7, 7, 7, 15], "zero": [0, 8, 7, 15]}
    for answer, codes in tables.items():
        with answers(convert_small_format_nan=answer):
            got = once("v_cvt_scalef32_pk_fp4_f32", values, values, one, [0] * 4)
            assert got == [c | c << 4 for c in codes]
            nan_scale = once("v_cvt_scalef32_pk_fp4_f32", f32(1.0, -1.0), f32(0, 0), [0x7F800000] * 2, [0, 0])
            assert [x & 15 for x in nan_scale] == {"maximum": [7, 15], "positive": [7, 7], "zero": [0, 8]}[answer]


# ---- scales ----------------------------------------------------------------------------------------------------------


def test_scale_byte_255():
    """2^128 under `power`: 2^127 over it is a half, and 2 times it overflows in f32 but 2^-9 times it does not."""
    scale = [0xFFFFFFFF] * 2
    tables = {
        "positive": ([0x7F, 0x7F], [0x7FC00000, 0x7FC00000]),
        "signed": ([0x7F, 0xFF], [0x7FC00000, 0xFFC00000]),
        "power": ([0x30, 0xB0], [0x7B000000, 0xFB000000]),
    }
    for answer, (narrow, wide) in tables.items():
        with answers(convert_scale_nan=answer):
            got = once("v_cvt_scalef32_pk_fp8_f32", f32(2.0**127, -(2.0**127)), f32(0, 0), scale, [0, 0])
            assert [x & 0xFF for x in got] == narrow
            assert once("v_cvt_scalef32_f32_fp8", [0x01, 0x81], scale) == wide
    with answers(convert_scale_nan="power"):
        assert once("v_cvt_scalef32_f32_fp8", [0x38, 0xB8], scale) == [0x7F800000, 0xFF800000]
        assert once("v_cvt_scalef32_f16_fp8", [0x01, 0x81], scale) == [0x7C00, 0xFC00]


def test_scale_byte_0():
    for answer, exponent in (("power", -127), ("normal", -126), ("one", 0)):
        with answers(convert_scale_zero=answer):
            number = f32(3.0 * 2.0**exponent)
            assert once("v_cvt_scalef32_pk_fp8_f32", number, number, [0x80000001], [0]) == [0x4444]
            assert once("v_cvt_scalef32_f32_fp8", [0x44], [0x007FFFFF]) == number.tolist()
            one = f32(1.0 * 2.0**-20)  # byte 107 is what it was
            assert once("v_cvt_scalef32_f32_fp8", [0x38], one) == one.tolist()


# ---- MODE ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("denorm32", [0, 1, 2, 3])
def test_bf16_denormals(denorm32):
    """A denormal operand, one that rounds up to the smallest normal, and a normal one."""
    values, mode = [0x00012345, 0x807FFFFF, 0x00800000, 0x80000001], Mode(denorm32=denorm32)
    kept = [0x0001, 0x8080, 0x0080, 0x8000]
    gone = [0x0000, 0x8000, 0x0080, 0x8000]
    each = {0: gone, 1: [0x0000, 0x8080, 0x0080, 0x8000], 2: gone, 3: kept}[denorm32]
    for answer, wanted in {"both": kept if denorm32 == 3 else gone, "each": each, "kept": kept}.items():
        with answers(convert_bf16_denorm=answer):
            assert [x & 0xFFFF for x in once("v_cvt_pk_bf16_f32", values, values, mode=mode)] == wanted
            assert [x >> 16 for x in once("v_cvt_pk_bf16_f32", values, values, mode=mode)] == wanted
            stochastic = once("v_cvt_sr_bf16_f32", values, [0] * 4, [0] * 4, mode=mode)
            cut = [x - (x == 0x8080) for x in wanted]  # without a random part 0x807f
            if answer == "each" and denorm32 == 1:
                cut = gone
            assert stochastic == cut


def test_denormal_halves_of_scaled_conversions():
    mode, scale = Mode(denorm32=2, denorm16_64=2), [(127 - 24) << 23]
    for answer, f16_code, bf16_code in (("mode", 0, 0), ("kept", 0x38, 0x38)):
        with answers(convert_scaled_halves=answer):
            assert once("v_cvt_scalef32_pk_fp8_f16", [0x00010001], scale, [0], mode=mode) == [f16_code * 0x101]
            assert once("v_cvt_scalef32_sr_fp8_f16", [1], [0], scale, [0], mode=mode) == [f16_code]
            # 2^-127 over 2^-127
            assert once("v_cvt_scalef32_pk_fp8_bf16", [0x00400040], [0], [0], mode=mode) == [bf16_code * 0x101]
            # an f32 operand follows MODE whatever the answer
            assert once("v_cvt_scalef32_pk_fp8_f32", [0x00400000], [0], [0], [0], mode=mode) == [0]


def test_modes_of_wide_results():
    """3.25 * 2^-25 in f16 lies between 1 and 2 steps; the largest f32 overflows."""
    mode = Mode(round16_64=1, round32=3, denorm16_64=1, denorm32=1)
    small, large = [(127 - 25) << 23], [254 << 23]
    for answer, half, denormal, top in (("mode", 0, 0, 0x7F7FFFFF), ("nearest", 2, 0x00400000, 0x7F800000)):
        with answers(convert_scaled_wide=answer):
            assert once("v_cvt_scalef32_f16_fp8", [0x45], small, mode=mode) == [half]
            assert once("v_cvt_scalef32_f32_fp8", [0x38], [0], mode=mode) == [denormal]
            assert once("v_cvt_scalef32_f32_fp8", [0x40], large, mode=mode) == [top]
            bf16 = once("v_cvt_scalef32_pk_bf16_fp8", [0x38], [0], mode=mode)
            assert bf16 == [denormal >> 16]
    kept = Mode(round16_64=1)
    for answer, half in (("mode", 0x0002), ("nearest", 0x0002)):
        with answers(convert_scaled_wide=answer):
            assert once("v_cvt_scalef32_f16_fp8", [0x45], small, mode=kept) == [half]
    for answer, half in (("mode", 0x0002), ("nearest", 0x0001)):  # 2.25 * 2^-25
        with answers(convert_scaled_wide=answer):
            assert once("v_cvt_scalef32_f16_fp8", [0x41], small, mode=kept) == [half]


# ---- integers --------------------------------------------------------------------------------------------------------


def test_packs_of_integers():
    numbers = [0x00012345, 0xFFFF7FFF, 5, 0x8000]
    with answers(convert_pack_integer="low_bits"):
        for name in ("v_cvt_pk_u16_u32", "v_cvt_pk_i16_i32"):
            assert once(name, numbers, numbers[::-1]) == [0x80002345, 0x00057FFF, 0x7FFF0005, 0x23458000]


NORMALISED = {
    "nearest": lambda value, largest: round(value * largest),
    "f32": lambda value, largest: round(Fraction(float(np.float32(float(value)) * np.float32(largest)))),
    "half_up": lambda value, largest: math.floor(value * largest + Fraction(1, 2)),
}


@pytest.mark.parametrize("answer", NORMALISED)
def test_normalised_integers(answer):
    """Random numbers, those whose product is next to a half, and the few whose product is one."""
    generator = np.random.default_rng(8)
    near = (generator.integers(-32768, 32768, 1 << 13) + 0.5) / np.resize([32767, 65535], 1 << 13)
    values = np.concatenate([generator.uniform(-1.1, 1.1, 1 << 13), near, [0.5, -0.5, 1, -1, 0, 2.0**-140] * 16])
    values = values.astype(np.float32)
    values = values[: values.size // 64 * 64]
    bits = values.view(np.uint32)
    for name, low, largest in (("v_cvt_pknorm_i16_f32", -1, 32767), ("v_cvt_pknorm_u16_f32", 0, 65535)):
        with answers(convert_normalized=answer):
            got = on_numpy(name)(bits, bits)[0] & 0xFFFF
        wanted = []
        for value in values.tolist():
            whole = NORMALISED[answer](Fraction(value), largest)
            wanted.append(min(max(whole, low * largest), largest) & 0xFFFF)
        assert got.tolist() == wanted


@pytest.mark.parametrize(
    ("answer", "direction"), [("truncate", 1), ("nearest", 1), ("mode", 0), ("mode", 1), ("mode", 2), ("mode", 3)]
)
def test_bytes_of_floats(answer, direction):
    values = [0.5, 1.5, 2.49, 254.5, 255.5, -0.5, -3.0, 0.999, 300.0]
    ways = {"truncate": math.trunc, "nearest": round}
    way = ways.get(answer) or (round, math.ceil, math.floor, math.trunc)[direction]
    wanted = [min(max(way(float(np.float32(v))), 0), 255) for v in values]
    with answers(convert_pack_byte=answer):
        mode, zeros = Mode(round32=direction), [0] * len(values)
        assert once("v_cvt_pk_u8_f32", f32(*values), zeros, zeros, mode=mode) == wanted
        assert once("v_cvt_pkaccum_u8_f32", f32(*values), zeros, zeros, mode=mode) == wanted
        assert once("v_cvt_pk_u8_f32", [0x7FC00000], [0], [0], mode=mode) == [0]


def test_floors_and_rounded_integers():
    values = [*f32(0.49999997, 0.5, -0.5, -1.5).tolist(), 0x80000001]
    for answer, first in (("exact", 0), ("f32", 1)):
        with answers(valu_rpi_sum=answer):
            assert once("v_cvt_rpi_i32_f32", values) == [first, 1, 0, 0xFFFFFFFF, 0]
    for answer, denorm32, last in (("kept", 0, -1), ("mode", 0, 0), ("mode", 1, -1)):
        with answers(valu_flr_denorm=answer):
            got = once("v_cvt_flr_i32_f32", values, mode=Mode(denorm32=denorm32))
            assert got == [0, 0, 0xFFFFFFFF, 0xFFFFFFFE, last & 0xFFFFFFFF]


# ---- dot products ----------------------------------------------------------------------------------------------------


def dot_inputs(form, count=1 << 12):
    """Two registers of halves and an accumulator of like size, so that sums cancel and lose bits."""
    generator = np.random.default_rng(9)
    halves = generator.integers(0, 1 << 16, (4, count), dtype=np.uint32)
    if form == "bf16":
        middle = generator.integers(110, 145, halves.shape, dtype=np.uint32) << 7
        halves = np.where(generator.random(halves.shape) < 0.7, halves & 0x807F | middle, halves)
    with np.errstate(invalid="ignore"):
        values = halves.astype(np.uint16).view(np.float16) if form == "f16" else (halves << 16).view(np.float32)
        values = values.astype(np.float64)
        products = values[0] * values[2]
        accumulator = np.where(
            generator.random(count) < 0.7, -products * generator.choice([1, 0.5, 1 + 2**-20], count), 1
        )
        with np.errstate(over="ignore", under="ignore"):
            start = np.where(np.isnan(accumulator), 0, accumulator).astype(np.float32)
    return (halves[0] | halves[1] << 16, halves[2] | halves[3] << 16, start.view(np.uint32)), values


def flush32(value):
    return np.where(np.abs(value) < np.float32(2.0**-126), np.copysign(np.float32(0), value), value)


def numpy_dot(values, start, order):
    """Sums of f32 in an order, denormals flushed."""
    with np.errstate(all="ignore"):
        low, high = (p.astype(np.float32) for p in (values[0] * values[2], values[1] * values[3]))
        parts = {"start": flush32(start), "low": low, "high": high}
        total = parts[order[0]]
        for part in order[1:]:
            total = flush32(total + parts[part])
    return total


ORDERS = {
    "accumulator_first": ("start", "low", "high"),
    "high_first": ("start", "high", "low"),
    "products_first": ("low", "high", "start"),
}


def same_but_nan(got, wanted):
    with np.errstate(invalid="ignore"):
        nan = np.isnan(wanted)
        np.testing.assert_array_equal(np.isnan(got.view(np.float32)), nan)
    np.testing.assert_array_equal(got[~nan], wanted.view(np.uint32)[~nan])


@pytest.mark.parametrize("form", ["f16", "bf16"])
@pytest.mark.parametrize("answer", [*ORDERS, "manual"])
def test_dot_orders(form, answer):
    registers, values = dot_inputs(form)
    start = registers[2].view(np.float32)
    for name in (f"v_dot2_f32_{form}", f"v_dot2c_f32_{form}"):
        manual = "products_first" if name == "v_dot2_f32_bf16" else "accumulator_first"
        with answers(valu_dot_float_order=answer):
            got = on_host(name, Mode(round32=3, denorm32=3))(*registers)[0]
        same_but_nan(got, numpy_dot(values, start, ORDERS[manual if answer == "manual" else answer]))


def exact_f32(total):
    """The f32 nearest to a fraction that is not zero, denormals kept."""
    exponent = math.floor(math.log2(abs(total))) if abs(total) >= Fraction(2) ** -1000 else -1000
    exponent += Fraction(2) ** (exponent + 1) <= abs(total)
    exponent -= Fraction(2) ** exponent > abs(total)
    step = Fraction(2) ** (max(exponent, -126) - 23)
    steps = round(total / step)
    value = steps * step
    if abs(value) >= Fraction(2) ** 128:
        return np.float32(math.copysign(math.inf, value))
    return np.float32(math.copysign(float(value), total))


@pytest.mark.parametrize("form", ["f16", "bf16"])
def test_exact_dot_is_rounded_once(form):
    registers, values = dot_inputs(form)
    start = registers[2].view(np.float32).astype(np.float64)
    with answers(valu_dot_float_order="exact", valu_dot_float_denorm="kept"):
        got = on_numpy(f"v_dot2_f32_{form}")(*registers)[0]
        np.testing.assert_array_equal(on_host(f"v_dot2_f32_{form}")(*registers)[0], got)
    checked = 0
    for i in range(start.size):
        parts = [values[0, i], values[1, i], values[2, i], values[3, i], start[i]]
        if not all(map(math.isfinite, parts)):
            continue
        a, b, c, d, e = map(Fraction, parts)
        total = a * c + b * d + e
        checked += 1
        if total:
            assert got[i] == exact_f32(total).view(np.uint32), i
        else:
            assert got[i] & 0x7FFFFFFF == 0
    assert checked > 3000


def test_exact_dot_of_zeros_infinities_and_sums_that_only_one_rounding_gets_right():
    with answers(valu_dot_float_order="exact"):
        # -0 * 1 + -0 * 1 + -0; 1 - 1 + 0; inf + 1; 1 + 2^-24 + 2^-48
        low = [0x80008000, 0x3C00BC00, 0x7C003C00, 0x0C013C00]
        high = [0x3C003C00, 0x3C003C00, 0x3C003C00, 0x0C003C00]
        start = [0x80000000, 0, 0, 0]
        got = once("v_dot2_f32_f16", low, high, start)
        assert got[:3] == [0x80000000, 0, 0x7F800000]
    # 1 + 2^-24 is a tie, that 2^-38 more decides: only one rounding sees both
    factors = [half(2.0**-19) | half(2.0**-12) << 16]
    for answer, wanted in (("manual", 0x3F800000), ("exact", 0x3F800001)):
        with answers(valu_dot_float_order=answer):
            assert once("v_dot2_f32_f16", factors, factors, f32(1.0)) == [wanted]


def half(value):
    return int(np.float16(value).view(np.uint16))


def test_subnormal_factors_of_dot_products():
    """The published result on gfx950: 0x8001 * 2^-14 is 0xac800000 in f16 dot products in every mode."""
    factor = half(2.0**-14)
    for mode in (Mode(), Mode(denorm32=0, denorm16_64=0), Mode(ieee=False), Mode(denorm32=0, denorm16_64=3)):
        for name in ("v_dot2_f32_f16", "v_dot2c_f32_f16"):
            assert once(name, [0x8001], [factor], [0], mode=mode) == [0xAC800000]
    for answer, wanted in (("kept", 0x80800000), ("flushed", 0)):
        with answers(valu_dot_bf16_inputs=answer):
            got = once("v_dot2c_f32_bf16", [0x8040], [0x4000], [0])  # -2^-127 * 2
            assert got == [wanted]


def test_subnormal_sums_of_dot_products():
    for answer, wanted in (("flushed", [0, 0]), ("kept", [0x00400000, 0x00000001])):
        with answers(valu_dot_float_denorm=answer):
            got = once("v_dot2c_f32_bf16", [0x0080, 0], [0x3F00, 0], [0, 1], mode=Mode(denorm32=0))
            assert got == wanted


def test_nan_factors_of_dot_products():
    for answer, wanted in (("canonical", [0xFFC00000, 0x7FC00000]), ("payload", [0xFFC24000, 0x7FFFE000])):
        with answers(valu_dot_float_nan=answer):
            assert once("v_dot2_f32_f16", [0xFC12, 0x7FFF], [0x3C00, 0x3C00], [0, 0]) == wanted


def test_negated_accumulators():
    tables = {"f16": (0x80000000, 0), "both": (0x80000000, 0x80000000), "neither": (0, 0)}
    for answer, signs in tables.items():
        with answers(valu_dot2_neg=answer):
            for name, sign in zip(("v_dot2_f32_f16", "v_dot2_f32_bf16"), signs, strict=True):
                assert once(name, [0], [0], f32(3.0), neg=4) == [0x40400000 | sign]
                assert once(name, [0], [0], f32(3.0), neg=0, neg_hi=4) == [0x40400000]


def test_fma_mix_flushes_by_mode():
    """The published result on gfx950 (LLVM pull request 205101): 0x8001 * 2^-14 + 0 is 0xac800000 where f16 denormals
    are kept and +0 where they are flushed."""
    factor = half(2.0**-14)
    for mode, wanted in ((Mode(), 0xAC800000), (Mode(denorm32=0, denorm16_64=0), 0)):
        assert once("v_fma_mix_f32", [0x8001], [factor], [0], mode=mode, op_sel_hi=3) == [wanted]


# ---- kernels ---------------------------------------------------------------------------------------------------------

KERNEL = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v3, 0
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
v_cvt_pk_bf8_f32 v3, v2, v2
v_cvt_sr_fp8_f32 v3, v2, v2 op_sel:[0,0,1,0]
v_cvt_f32_bf8 v4, v2
v_dot2c_f32_f16 v4, v2, v2
v_xor_b32 v3, v3, v4
global_store_dword v1, v3, s[6:7]
s_endpgm
"""


@pytest.mark.parametrize("engine", ["numpy", "host"])
def test_a_kernel_runs_under_one_model_after_another(engine):
    """One loaded kernel, launched under models that change each of its conversions, as its bodies give them alone."""
    device = Device(RunOptions(engine=engine))
    kernel = device.load(assemble_kernel(KERNEL))["k"]
    words, out, seen = some_registers(1)[0][:64].copy(), np.zeros(64, np.uint32), []
    arguments = struct.pack("<QQ", device.map(words), device.map(out))
    for model in (
        {},
        {"convert.nan_narrow": "ones"},
        {"convert.stochastic": "nearest"},
        {"convert.nan_wide": "payload"},
        {"valu.dot_float_nan": "payload"},
        {},
    ):
        with using(make_model("test", model)):
            kernel.launch(Geometry.of_blocks(1, 64), arguments)
            low = on_numpy("v_cvt_pk_bf8_f32")(words, words, np.zeros(64))[0]
            byte = on_numpy("v_cvt_sr_fp8_f32", op_sel=4)(words, words, low)[0]
            total = on_numpy("v_dot2c_f32_f16")(words, words, on_numpy("v_cvt_f32_bf8")(words & 0xFF)[0])[0]
        np.testing.assert_array_equal(out, byte ^ total)
        seen.append(out.tobytes())
    assert seen[0] == seen[-1]
    assert len(set(seen)) == 5
