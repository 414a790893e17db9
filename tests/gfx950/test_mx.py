"""MXFP8 quantisation against float32 arithmetic, torch, and rational arithmetic."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfx950.evidence import LEDGER, Evidence
from gfx950.formats import E2M1, E4M3FN, E5M2, E8M0FNU
from gfx950.mx import ScaleRule, dequantize, quantize, scale_bytes

RULES = [rule.value for rule in ScaleRule]
ELEMENTS = [E4M3FN, E5M2]
ML = {E4M3FN: ml_dtypes.float8_e4m3fn, E5M2: ml_dtypes.float8_e5m2}
TORCH = {E4M3FN: torch.float8_e4m3fn, E5M2: torch.float8_e5m2}
LARGEST_POWER = {E4M3FN: 8, E5M2: 15}
MANTISSA_BITS = {E4M3FN: 3, E5M2: 2}


def by_name(form):
    return form.name


def finite_blocks():
    """float32 blocks (4000, 32): normal values at every scale, any bits, sparse blocks, edges of the rules."""
    rng = np.random.default_rng(7)
    with np.errstate(over="ignore", under="ignore"):
        normal = np.ldexp(rng.normal(size=(2000, 32)), rng.integers(-150, 126, (2000, 1))).astype(np.float32)
    any_bits = rng.integers(0, 1 << 32, (1000, 32), np.uint32).view(np.float32)
    sparse = np.where(rng.random((500, 32)) < 0.1, normal[:500], np.float32(-0.0))
    edges = np.zeros((500, 32), np.float32)
    edges[:, 0] = np.array([448, 256, 496, 57344, 61440, 65536, 1, 1.5, 1.75, 1.9375])[np.arange(500) % 10]
    edges = np.ldexp(edges, np.arange(500)[:, None] // 10 * 4 - 140).astype(np.float32)
    edges[::3] = np.nextafter(edges[::3], np.float32(np.inf))
    edges[1::3, 0] = np.nextafter(edges[1::3, 0], np.float32(0))
    x = np.concatenate([normal, any_bits, sparse, edges])
    return np.where(np.isfinite(x), x, np.float32(0)).astype(np.float32)


X = finite_blocks()


def exponent_and_mantissa(value):
    bits = value.view(np.uint32).astype(np.int64)
    return bits >> 23, bits & 0x7FFFFF


# against other arithmetic -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ELEMENTS, ids=by_name)
def test_round_up_step_by_step_in_float32(form):
    """The rule as the kernels state it, one float32 operation after the other, clamp before the conversion."""
    largest = np.float32(form.max)
    amax = np.abs(X).max(axis=1)
    exponent, mantissa = exponent_and_mantissa(amax * (np.float32(1) / largest))
    byte = np.clip(exponent + (mantissa != 0), 1, 254)
    inverse = np.ldexp(np.float32(1), (127 - byte).astype(np.int32)).astype(np.float32)
    codes = np.clip(X * inverse[:, None], -largest, largest).astype(ML[form]).view(np.uint8)
    got_codes, got_scales = quantize(X, element=form)
    assert (got_scales[:, 0] == byte).all()
    assert (got_codes == codes).all()


def torch_scale(amax, rule, form):
    """torchao's four scale calculations on float32 tensors, own words, before the clamp."""
    if rule == "RoundUp":
        amax = amax * torch.tensor(1.0 / form.max, dtype=torch.float32)
    bits = amax.view(torch.int32)
    if rule == "Even":
        bits = bits + (1 << (22 - MANTISSA_BITS[form]))
    exponent = bits >> 23
    if rule in ("RoundUp", "Ceil"):
        exponent = exponent + ((bits & 0x7FFFFF) != 0).to(torch.int32)
    return exponent if rule == "RoundUp" else exponent - LARGEST_POWER[form]


@pytest.mark.parametrize("form", ELEMENTS, ids=by_name)
@pytest.mark.parametrize("rule", RULES)
def test_all_rules_agree_with_torch(rule, form):
    x = torch.from_numpy(X)
    byte = torch_scale(x.abs().amax(dim=1), rule, form).clamp(1 if rule == "RoundUp" else 0, 254)
    inverse = (254 - byte).to(torch.uint8).view(torch.float8_e8m0fnu).to(torch.float32)
    values = (x * inverse[:, None]).clamp(-form.max, form.max).to(TORCH[form])
    codes, scales = quantize(X, rule, form)
    assert (scales[:, 0] == byte.numpy()).all()
    assert (codes == values.view(torch.uint8).numpy()).all()
    scale = byte.to(torch.uint8).view(torch.float8_e8m0fnu).to(torch.float64)
    product = values.to(torch.float64) * scale[:, None]
    assert (dequantize(codes, scales, form).view(np.uint64) == product.numpy().view(np.uint64)).all()


def exact_byte(amax, rule, form):
    """The scale byte by the definition of each rule, in rational arithmetic."""
    if amax == 0:
        return 1 if rule == "RoundUp" else 0
    if rule == "RoundUp":
        return next(e for e in range(1, 255) if Fraction(amax) <= Fraction(form.max) * Fraction(2) ** (e - 127))
    power = math.frexp(amax)[1] - 1
    if rule == "Even":
        step = Fraction(2) ** (power - MANTISSA_BITS[form])
        rounded = (Fraction(amax) / step + Fraction(1, 2)).__floor__() * step
        power += rounded >= Fraction(2) ** (power + 1)
    if rule == "Ceil":
        power += Fraction(amax) > Fraction(2) ** power
    return max(power - LARGEST_POWER[form] + 127, 0)


positive = st.one_of(
    st.floats(0, float(np.finfo(np.float32).max), width=32),
    st.builds(lambda m, e: float(np.float32(m) * np.float32(2.0**e)), st.integers(1, 512), st.integers(-126, 118)),
)


@given(positive, st.sampled_from(RULES), st.sampled_from(ELEMENTS))
def test_scale_bytes_by_definition(amax, rule, form):
    bits = np.array([amax], np.float32).view(np.uint32)
    assert scale_bytes(bits, rule, form).tolist() == [exact_byte(amax, rule, form)]


@given(st.lists(st.floats(-1000, 1000, width=32), min_size=32, max_size=32), st.sampled_from(RULES))
def test_codes_are_nearest(values, rule):
    codes, scales = quantize(np.array(values, np.float32), rule)
    numbers = [Fraction(v) for v in E4M3FN.decode(np.arange(0x7F, dtype=np.uint8))]
    scale = Fraction(float(E8M0FNU.decode(scales)[0]))
    for value, code in zip(values, codes, strict=True):
        exact = abs(Fraction(value)) / scale
        assert abs(numbers[code & 0x7F] - exact) == min(abs(n - exact) for n in numbers)
        assert bool(code & 0x80) == (math.copysign(1.0, value) < 0)


# properties ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ELEMENTS, ids=by_name)
def test_round_up_is_the_smallest_scale_that_never_clips_for_every_mantissa(form):
    amax = np.arange(1 << 23, dtype=np.uint32) + np.uint32(0x3F800000)
    value = amax.view(np.float32).astype(np.float64)
    scale = E8M0FNU.decode(scale_bytes(amax, "RoundUp", form))
    assert (value <= form.max * scale).all()
    assert (value > form.max * scale / 2).all()


def clips(rule, form):
    amax = np.abs(X).max(axis=1)
    scales = scale_bytes(amax.view(np.uint32), rule, form)
    return amax.astype(np.float64) > form.max * E8M0FNU.decode(scales)


@pytest.mark.parametrize("form", ELEMENTS, ids=by_name)
def test_round_up_and_ceil_never_clip_and_the_others_do(form):
    assert [clips(rule, form).any() for rule in RULES] == [True, False, True, False]


def test_order_of_the_rules():
    """floor <= even <= ceil and floor <= round up <= ceil; round up differs only in its lower end, byte 1."""
    amax = np.abs(X).max(axis=1).view(np.uint32)
    down, up, even, ceil = (scale_bytes(amax, rule).astype(int) for rule in RULES)
    assert (down <= even).all()
    assert (even <= ceil).all()
    assert (down <= up).all()
    assert (up <= np.maximum(ceil, 1)).all()
    assert [len(np.unique(other - down)) > 1 for other in (up, even, ceil)] == [True] * 3


@pytest.mark.parametrize("form", ELEMENTS, ids=by_name)
def test_quantising_twice_changes_nothing(form):
    once = dequantize(*quantize(X, element=form), form)
    with np.errstate(over="ignore"):
        narrow = once.astype(np.float32)
    exact = (narrow.astype(np.float64) == once).all(axis=1)
    assert exact.mean() > 0.9
    again = dequantize(*quantize(narrow[exact], element=form), form)
    assert (again.view(np.uint64) == once[exact].view(np.uint64)).all()


def test_shapes_and_layout():
    x = X[:24].reshape(2, 3, 4, 32)
    codes, scales = quantize(x.reshape(2, 3, 128))
    assert (codes.shape, codes.dtype) == ((2, 3, 128), np.uint8)
    assert (scales.shape, scales.dtype) == ((2, 3, 4), np.uint8)
    flat_codes, flat_scales = quantize(X[:24])
    assert (codes.reshape(24, 32) == flat_codes).all()
    assert (scales.reshape(24) == flat_scales[:, 0]).all()
    strided, _ = quantize(np.repeat(X[:24], 2, axis=1)[:, ::2])
    assert (strided == flat_codes).all()
    assert [a.shape for a in quantize(np.zeros((3, 0), np.float32))] == [(3, 0), (3, 0)]
    assert dequantize(*quantize(np.zeros((3, 0), np.float32))).shape == (3, 0)


# special blocks -----------------------------------------------------------------------------------------------------


def block(*values):
    x = np.zeros(32, np.float32)
    x[: len(values)] = values
    return x


@pytest.mark.parametrize(("rule", "byte"), [("RoundDown", 0), ("RoundUp", 1), ("Even", 0), ("Ceil", 0)])
def test_a_block_of_zeros_keeps_its_signs(rule, byte):
    codes, scales = quantize(block(0.0, -0.0), rule)
    assert scales.tolist() == [byte]
    assert codes[:3].tolist() == [0x00, 0x80, 0x00]


@pytest.mark.parametrize("rule", RULES)
def test_infinity_in_a_block(rule):
    codes, scales = quantize(block(np.inf, -np.inf, 1.0, np.finfo(np.float32).max), rule)
    assert scales.tolist() == [254]
    assert codes[:4].tolist() == [0x7E, 0xFE, 0x00, 0x40]
    codes, _ = quantize(block(-np.inf), rule, E5M2)
    assert codes[0] == 0xFB


@pytest.mark.parametrize("rule", RULES)
def test_nan_in_a_block_stays_one_element(rule):
    x = block(1.0, np.nan, -3.0)
    without, scales_without = quantize(np.where(np.isnan(x), np.float32(0), x), rule)
    x.view(np.uint32)[3] = 0xFF800001
    codes, scales = quantize(x, rule)
    assert (scales == scales_without).all()
    assert codes[[1, 3]].tolist() == [0x7F, 0xFF]
    assert (np.delete(codes, [1, 3]) == np.delete(without, [1, 3])).all()
    assert np.isnan(dequantize(codes, scales)).sum() == 2


def test_a_block_of_nan_is_like_zeros():
    codes, scales = quantize(np.full(32, np.nan, np.float32))
    assert scales.tolist() == [1]
    assert (codes == 0x7F).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("special", [np.nan, -np.nan, np.inf, -np.inf])
def test_nonfinite_block_poisons_that_block_only(rule, special):
    x = np.stack([block(1.0, 2.0), block(1.0, special), block(-5.0)]).reshape(-1)
    codes, scales = quantize(x, rule, nonfinite="block")
    assert scales[1] == 0xFF
    assert (codes[32:64] == 0x7F).all()
    assert np.isnan(dequantize(codes, scales)[32:64]).all()
    clean = np.delete(x.reshape(3, 32), 1, axis=0)
    clean_codes, clean_scales = quantize(clean.reshape(-1), rule)
    assert (np.delete(codes.reshape(3, 32), 1, axis=0).reshape(-1) == clean_codes).all()
    assert (scales[[0, 2]] == clean_scales).all()


@pytest.mark.parametrize(
    ("amax", "down", "up", "even", "ceil"),
    [
        (448.0, 127, 127, 127, 128),
        (256.0, 127, 127, 127, 127),
        (256.00003, 127, 127, 127, 128),
        (448.00003, 127, 128, 127, 128),
        (495.99997, 127, 128, 127, 128),
        (496.0, 127, 128, 128, 128),
        (1.0, 119, 119, 119, 119),
        (3.4028235e38, 246, 247, 247, 247),
        (2.0**-118, 1, 1, 1, 1),
        (2.0**-119, 0, 1, 0, 0),
        (2.0**-149, 0, 1, 0, 0),
    ],
)
def test_scales_of_e4m3fn_at_the_edges(amax, down, up, even, ceil):
    bits = np.array(amax, np.float32).view(np.uint32)
    expected = {"RoundDown": down, "RoundUp": up, "Even": even, "Ceil": ceil}
    assert {rule: int(scale_bytes(bits, rule)) for rule in RULES} == expected


def test_subnormal_values_are_kept():
    x = block(2.0**-126, 2.0**-127, 2.0**-135, 2.0**-136, 2.0**-149)
    codes, scales = quantize(x)
    assert scales.tolist() == [1]
    assert codes[:5].tolist() == [0x38, 0x30, 0x01, 0x00, 0x00]


def test_bits_do_not_depend_on_the_flush_mode_of_the_host():
    expected = quantize(X)
    assert torch.set_flush_denormal(True)
    try:
        got = quantize(X)
    finally:
        torch.set_flush_denormal(False)
    assert all((a == b).all() for a, b in zip(got, expected, strict=True))


def test_dequantize_is_exact():
    codes = np.concatenate([np.arange(256, dtype=np.uint8)] * 3)
    scales = np.repeat(np.array([0, 127, 254], np.uint8), 8)
    expected = E4M3FN.decode(codes) * np.repeat([2.0**-127, 1.0, 2.0**127], 256)
    got = dequantize(codes, scales)
    assert (np.isnan(got) == np.isnan(expected)).all()
    number = ~np.isnan(expected)
    assert (got.view(np.uint64) == expected.view(np.uint64))[number].all()
    assert np.isnan(dequantize(np.zeros(32, np.uint8), np.array([0xFF], np.uint8))).all()


# errors and evidence ------------------------------------------------------------------------------------------------


def test_wrong_input_is_refused():
    with pytest.raises(TypeError, match="quantize takes a float32 array, got float64"):
        quantize(np.zeros(32))
    with pytest.raises(TypeError, match="quantize takes a float32 array, got list"):
        quantize([0.0] * 32)
    with pytest.raises(ValueError, match=r"whole blocks of 32 values, got shape \(4, 31\); pad it with zeros"):
        quantize(np.zeros((4, 31), np.float32))
    with pytest.raises(ValueError, match=r"whole blocks of 32 values, got shape \(\)"):
        quantize(np.array(1, np.float32))


def test_wrong_options_are_refused():
    x = np.zeros(32, np.float32)
    with pytest.raises(ValueError, match="scale rules are RoundDown, RoundUp, Even, Ceil; got 'RCEIL'"):
        quantize(x, "RCEIL")
    with pytest.raises(ValueError, match="elements of MXFP8 are e4m3fn or e5m2, got e2m1"):
        quantize(x, element=E2M1)
    with pytest.raises(ValueError, match="nonfinite is 'element' or 'block', got 'ignore'"):
        quantize(x, nonfinite="ignore")


def test_wrong_codes_and_scales_are_refused():
    codes, scales = np.zeros((2, 64), np.uint8), np.zeros((2, 2), np.uint8)
    with pytest.raises(TypeError, match="codes are a uint8 array, got int8"):
        dequantize(codes.view(np.int8), scales)
    with pytest.raises(TypeError, match="scales are a uint8 array, got list"):
        dequantize(codes, scales.tolist())
    with pytest.raises(ValueError, match=r"got shapes \(2, 64\) and \(2, 1\)"):
        dequantize(codes, scales[:, :1])
    with pytest.raises(ValueError, match=r"got shapes \(2, 63\) and \(2, 2\)"):
        dequantize(codes[:, :63], scales)
    with pytest.raises(ValueError, match="e4m3fn or e5m2, got e8m0fnu"):
        dequantize(codes, scales, E8M0FNU)


def test_wrong_amax_is_refused():
    with pytest.raises(TypeError, match="amax is given by its float32 bits as uint32, got float32"):
        scale_bytes(np.ones(1, np.float32), "RoundUp")
    for bits in (0x7F800001, 0x80000000):
        with pytest.raises(ValueError, match="amax holds a NaN or a negative number"):
            scale_bytes(np.array([bits], np.uint32), "RoundUp")


def test_rules_are_in_the_ledger():
    names = {name for name in LEDGER if name.startswith("mx.")}
    assert names == {
        f"mx.{name}" for name in ["block", "round_up", "round_down", "even", "ceil", "elements", "nonfinite"]
    }
    assert LEDGER["mx.nonfinite"].evidence == Evidence.chosen


def test_arguments_of_other_types():
    with pytest.raises(TypeError, match=r"element is a Format .* got 'e4m3fn'"):
        quantize(np.zeros(32, np.float32), element="e4m3fn")
    with pytest.raises(TypeError, match="amax is given by its float32 bits as uint32, got list"):
        scale_bytes([1], "RoundUp")
    with pytest.raises(TypeError, match="quantize takes a float32 array, got a single float32"):
        quantize(np.float32(1))
    with pytest.raises(ValueError, match="scale rules are RoundDown"):
        quantize(np.zeros(32, np.float32), np.zeros(3))
