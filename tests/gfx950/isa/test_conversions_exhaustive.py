"""Conversions over all of their inputs, against codes that exact arithmetic on the formats' values gives.

The oracle knows a format only by the values that ml_dtypes and numpy give its codes: a number becomes the code whose
value is nearest, a tie the even one, judged in float64, which holds every number here exactly. Bodies run as the host
engine compiles them, a whole array in one call; a part of each case runs on the numpy engine too.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
import torch
from body_runners import input_count, on_host, on_numpy

from gfx950.lanes import Mode


def test_host_and_numpy_are_called_alike():
    """Both callers give the same, with random bits in every register."""
    random = np.random.default_rng(1)
    for name in ("v_cvt_pk_fp8_f32", "v_cvt_scalef32_2xpk16_fp6_f32", "v_cvt_pk_f32_bf8", "v_cvt_f16_f32"):
        registers = random.integers(0, 1 << 32, (input_count(name), 128), dtype=np.uint32)
        np.testing.assert_array_equal(on_host(name)(*registers), on_numpy(name)(*registers))


# ---- the oracle ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A format as values. codes: of all magnitudes, ascending; nan, over: what NaN and overflow become."""

    name: str
    bits: int
    kind: type
    finite: int  # codes of finite magnitudes
    over: int
    nan: int

    @functools.cached_property
    def values(self):
        dtype = np.uint8 if self.bits <= 8 else np.uint16
        return np.arange(self.finite, dtype=dtype).view(self.kind).astype(np.float64)

    @functools.cached_property
    def midpoints(self):
        """Between each value and the next, the last with the value that would follow the largest."""
        values = np.append(self.values, 2 * self.values[-1] - self.values[-2])
        return (values[:-1] + values[1:]) / 2

    def nearest(self, values):
        """Magnitude codes of finite or infinite numbers; `finite` means over the largest."""
        magnitude = np.abs(values)
        code = np.searchsorted(self.midpoints, magnitude, "left")
        tie = self.midpoints[np.minimum(code, self.finite - 1)] == magnitude
        return code + (tie & (code & 1 == 1))

    def codes(self, values, largest=False, infinity=None):
        """Codes of float64 numbers. largest: finite overflow gives the largest; infinity: what infinities become, if
        not what overflow does."""
        code = self.nearest(values)
        over = self.finite - 1 if largest else self.over
        code = np.where(code >= self.finite, over, code)
        if infinity is not None:
            code = np.where(np.isinf(values), infinity, code)
        code = np.where(np.isnan(values), self.nan, code)
        return (code | np.signbit(values).astype(np.int64) << self.bits - 1).astype(np.uint32)

    @functools.cached_property
    def first_bits(self):
        """By code, the smallest f32 magnitude bits that become it; at the end those that overflow."""
        firsts = [0]
        for code, middle in enumerate(self.midpoints, 1):
            with np.errstate(over="ignore"):
                bits = int(np.float32(middle).view(np.uint32))
            value = float(np.uint32(bits).view(np.float32))
            reached = value > middle or (value == middle and code % 2 == 0)
            firsts.append(bits if reached else bits + 1)
        return np.array(firsts, dtype=np.int64)

    def codes_of_range(self, start, count, largest=False, infinity=None):
        """Codes of the f32 bits start .. start + count - 1 of one sign."""
        sign, magnitude = start >> 31, start & 0x7FFFFFFF
        over = self.finite - 1 if largest else self.over
        firsts = [*self.first_bits, 0x7F800000, 0x7F800001, 0x80000000]
        ends = [*range(self.finite), over, over if infinity is None else infinity, self.nan]
        cuts = np.clip(np.array(firsts, dtype=np.int64) - magnitude, 0, count)
        codes = np.array(ends, dtype=np.uint32) | np.uint32(sign << self.bits - 1)
        return np.repeat(codes, np.diff(cuts))


FP8 = Target("fp8", 8, ml_dtypes.float8_e4m3fn, 0x7F, 0x7F, 0x7F)
BF8 = Target("bf8", 8, ml_dtypes.float8_e5m2, 0x7C, 0x7C, 0x7E)
FP6 = Target("fp6", 6, ml_dtypes.float6_e2m3fn, 0x20, 0x1F, 0x1F)
BF6 = Target("bf6", 6, ml_dtypes.float6_e3m2fn, 0x20, 0x1F, 0x1F)
FP4 = Target("fp4", 4, ml_dtypes.float4_e2m1fn, 0x08, 0x07, 0x07)
F16_TARGET = Target("f16", 16, np.float16, 0x7C00, 0x7C00, 0x7E00)
BF16_TARGET = Target("bf16", 16, ml_dtypes.bfloat16, 0x7F80, 0x7F80, 0x7FC0)
TARGETS = {t.name: t for t in (FP8, BF8, FP6, BF6, FP4, F16_TARGET, BF16_TARGET)}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_two_forms_of_the_oracle_are_one(target):
    bits = np.sort(sample(target))
    starts = bits[bits < 0x7F800000][::64].tolist()
    for start in [*starts[:: max(1, len(starts) // 60)], 0x7F7FFF00, 0x7F800000, 0xFF7FFFF0, 0x80000000]:
        with np.errstate(invalid="ignore"):
            values = np.arange(start, start + 128, dtype=np.uint32).view(np.float32).astype(np.float64)
        np.testing.assert_array_equal(target.codes_of_range(start, 128), target.codes(values))


def test_the_oracle_is_what_torch_and_ml_dtypes_define():
    """Where no NaN and no overflow decide, so that the oracle is not the only witness."""
    bits = np.concatenate([sample(t) for t in TARGETS.values()])
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        exact = values.astype(np.float64)
        for target in TARGETS.values():
            inside = np.abs(exact) < target.midpoints[-1]
            theirs = values[inside].astype(target.kind).view(np.uint8 if target.bits <= 8 else np.uint16)
            np.testing.assert_array_equal(target.codes(exact[inside]), theirs)
    for target, kind in ((FP8, torch.float8_e4m3fn), (BF8, torch.float8_e5m2), (BF16_TARGET, torch.bfloat16)):
        inside = np.abs(exact) < target.midpoints[-1]
        theirs = torch.from_numpy(values[inside]).to(kind)
        theirs = theirs.view(torch.uint8 if target.bits == 8 else torch.int16).numpy()
        assert (target.codes(exact[inside]) == (theirs.astype(np.int64) & (1 << target.bits) - 1)).all()


@functools.cache
def sample(target, scale=127):
    """f32 bits with every exponent, sign and class, each boundary of the format times 2^(scale - 127) and its
    neighbours, and random ones; 64 n of them."""
    random = np.random.default_rng(target.bits + target.finite)
    mantissas = np.array([0, 1, 2, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFE, 0x7FFFFF], dtype=np.uint32)
    exponents = np.arange(256, dtype=np.uint32) << 23
    grid = (exponents[:, None] | mantissas).ravel()
    with np.errstate(over="ignore", under="ignore"):
        edges = np.ldexp(np.concatenate([target.values, target.midpoints]), scale - 127).astype(np.float32)
    near = (edges.view(np.uint32).astype(np.int64)[:, None] + np.arange(-2, 3)).ravel()
    near = np.clip(near, 0, 0x7FFFFFFF).astype(np.uint32)
    some = random.integers(0, 1 << 31, 1 << 15, dtype=np.uint32)
    bits = np.concatenate([grid, near, some])
    bits = np.concatenate([bits, bits | np.uint32(1 << 31)])
    return np.append(bits, np.zeros(-bits.size % 64, np.uint32))


def exact_f32(bits):
    with np.errstate(invalid="ignore"):
        return bits.view(np.float32).astype(np.float64)


def flushed(bits, infinity):
    """Denormals as zeros; `infinity` has all exponent bits."""
    sign = infinity + (infinity & -infinity)
    return np.where(bits & infinity == 0, bits & np.uint32(sign), bits)


def both_engines(name, mode, registers, expected, **static):
    """The expected registers from the host engine for all, from the numpy engine for a part."""
    np.testing.assert_array_equal(on_host(name, mode, **static)(*registers), expected)
    part = slice(0, min(registers[0].size, 1 << 13))
    got = on_numpy(name, mode, **static)(*(r[part] for r in registers))
    np.testing.assert_array_equal(got, np.asarray(expected)[..., part])


# ---- f32 to narrower -------------------------------------------------------------------------------------------------


def packed(target, low, high):
    return low | high << target.bits


PACKS = {"v_cvt_pk_fp8_f32": FP8, "v_cvt_pk_bf8_f32": BF8, "v_cvt_pk_bf16_f32": BF16_TARGET}


@pytest.mark.parametrize("ovfl", [False, True])
@pytest.mark.parametrize(("name", "target"), PACKS.items(), ids=PACKS)
def test_packs_of_f32(name, target, ovfl):
    bits = sample(target)
    largest = ovfl and target.bits == 8
    code = target.codes(exact_f32(bits), largest, target.finite - 1 if largest else None)
    old = [np.full(bits.size, 0xA5A5A5A5, np.uint32)] if target.bits == 8 else []
    expected = packed(target, code, code[::-1]) | (0xA5A50000 if old else 0)
    both_engines(name, Mode(fp16_ovfl=ovfl, round32=1, round16_64=2), [bits, bits[::-1], *old], [expected])


@pytest.mark.parametrize("denorm32", [0, 1, 2])
def test_bf16_packs_flush_denormals_unless_both_sides_keep_them(denorm32):
    bits = sample(BF16_TARGET)
    code = BF16_TARGET.codes(exact_f32(flushed(bits, 0x7F800000)))
    both_engines("v_cvt_pk_bf16_f32", Mode(denorm32=denorm32), [bits, bits], [packed(BF16_TARGET, code, code)])


def f16_codes(bits, ovfl):
    """As f16, a NaN with the top of its payload, quieted."""
    code = F16_TARGET.codes(exact_f32(bits), ovfl, 0x7C00)
    nan = bits & 0x7FFFFFFF > 0x7F800000
    return np.where(nan, code | bits >> 13 & 0x3FF, code)


@pytest.mark.parametrize("ovfl", [False, True])
@pytest.mark.parametrize("denorm16", [0, 3])
def test_f32_to_f16(ovfl, denorm16):
    bits = sample(F16_TARGET)
    code = f16_codes(bits, ovfl)
    code = code if denorm16 else flushed(code, 0x7C00)
    mode = Mode(fp16_ovfl=ovfl, denorm16_64=denorm16)
    both_engines("v_cvt_f16_f32", mode, [bits], [code])
    rounding = Mode(fp16_ovfl=ovfl, denorm16_64=denorm16, round16_64=3, round32=2)
    both_engines("v_cvt_pk_f16_f32", rounding, [bits, bits[::-1]], [packed(F16_TARGET, code, code[::-1])])


STEP = 1 << 18  # arrays of this many f32 stay in the cache


def every_f32():
    """All f32 bits in order, in arrays."""
    for start in range(0, 1 << 32, STEP):
        yield start, np.arange(start, start + STEP, dtype=np.uint32)


@pytest.mark.slow
@pytest.mark.parametrize("ovfl", [False, True])
@pytest.mark.parametrize(("name", "target"), PACKS.items(), ids=PACKS)
def test_packs_of_every_f32(name, target, ovfl):
    run, largest = on_host(name, Mode(fp16_ovfl=ovfl)), ovfl and target.bits == 8
    for start, bits in every_f32():
        code = target.codes_of_range(start, bits.size, largest, target.finite - 1 if largest else None)
        got = run(bits, bits[::-1], *([bits] if target.bits == 8 else []))[0]
        if target.bits == 8:
            got = (got ^ bits & 0xFFFF0000) & 0xFFFFFFFF
        assert np.array_equal(got, packed(target, code, code[::-1])), hex(start)


@pytest.mark.slow
@pytest.mark.parametrize("ovfl", [False, True])
def test_every_f32_to_f16(ovfl):
    single, pair = (on_host(n, Mode(fp16_ovfl=ovfl)) for n in ("v_cvt_f16_f32", "v_cvt_pk_f16_f32"))
    for start, bits in every_f32():
        code = F16_TARGET.codes_of_range(start, bits.size, ovfl, 0x7C00)
        nan = bits & 0x7FFFFFFF > 0x7F800000
        code = np.where(nan, code | bits >> 13 & 0x3FF, code)
        assert np.array_equal(single(bits)[0], code), hex(start)
        assert np.array_equal(pair(bits, bits[::-1])[0], packed(F16_TARGET, code, code[::-1])), hex(start)


SCALED_PAIRS = {"fp8": FP8, "bf8": BF8, "fp4": FP4}


def scale_of(byte, count, seed=3):
    """Scale operands with one exponent byte, random sign and mantissa, which do not count."""
    junk = np.random.default_rng(seed + byte).integers(0, 1 << 32, count, dtype=np.uint32)
    return junk & 0x807FFFFF | np.uint32(byte << 23)


def over_scale(values, byte):
    with np.errstate(invalid="ignore"):
        return np.copysign(np.nan, values) if byte == 255 else np.ldexp(values, 127 - byte)


@pytest.mark.parametrize("ovfl", [False, True])
@pytest.mark.parametrize(("form", "target"), SCALED_PAIRS.items(), ids=SCALED_PAIRS)
def test_scaled_packs_of_f32(form, target, ovfl):
    """Every scale byte with the boundaries that it moves, and their neighbours."""
    name, mode = f"v_cvt_scalef32_pk_{form}_f32", Mode(fp16_ovfl=ovfl, round32=3)
    largest = ovfl and target.bits == 8
    for byte in range(256):
        bits = sample(target, byte)[-(1 << 12) :] if byte % 16 else sample(target, byte)
        code = target.codes(over_scale(exact_f32(bits), byte), largest, target.finite - 1 if largest else None)
        expected = packed(target, code, code[::-1])
        old = np.full(bits.size, 0x5A5A5A5A, np.uint32)
        expected |= 0x5A5A5A5A & ~((1 << 2 * target.bits) - 1)
        got = on_host(name, mode)(bits, bits[::-1], scale_of(byte, bits.size), old)
        np.testing.assert_array_equal(got, [expected], err_msg=f"scale byte {byte}")


@pytest.mark.slow
@pytest.mark.parametrize(("form", "target"), SCALED_PAIRS.items(), ids=SCALED_PAIRS)
def test_scaled_packs_of_every_f32(form, target):
    run = on_host(f"v_cvt_scalef32_pk_{form}_f32")
    one = scale_of(127, STEP)
    for start, bits in every_f32():
        code = target.codes_of_range(start, bits.size)
        got = run(bits, bits[::-1], one, bits)[0] & (1 << 2 * target.bits) - 1
        assert np.array_equal(got, packed(target, code, code[::-1])), hex(start)


def unpacked6(words):
    """(6, lanes) registers to (32, lanes) codes."""
    wide = words.astype(np.uint64)
    codes = []
    for i in range(32):
        at, low = divmod(6 * i, 32)
        code = wide[at] >> np.uint64(low)
        if low > 26:
            code |= wide[at + 1] << np.uint64(32 - low)
        codes.append(code & np.uint64(63))
    return np.stack(codes).astype(np.uint32)


@pytest.mark.parametrize(("form", "target"), {"fp6": FP6, "bf6": BF6}.items(), ids=["fp6", "bf6"])
def test_interleaved_blocks_of_f32(form, target):
    name = f"v_cvt_scalef32_2xpk16_{form}_f32"
    for byte in (0, 1, 100, 127, 130, 200, 254, 255):
        bits = sample(target, byte)[-(1 << 15) :].reshape(32, -1)
        code = target.codes(over_scale(exact_f32(bits), byte))
        got = on_host(name)(*bits, scale_of(byte, bits.shape[1]))
        codes = unpacked6(got)
        np.testing.assert_array_equal(np.concatenate([codes[::2], codes[1::2]]), code)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "target"), {"fp6": FP6, "bf6": BF6}.items(), ids=["fp6", "bf6"])
def test_interleaved_blocks_of_every_f32(form, target):
    run = on_host(f"v_cvt_scalef32_2xpk16_{form}_f32")
    for start, bits in every_f32():
        bits = bits.reshape(32, -1)
        code = target.codes_of_range(start, STEP).reshape(bits.shape)
        codes = unpacked6(run(*bits, scale_of(127, bits.shape[1])))
        assert np.array_equal(np.concatenate([codes[::2], codes[1::2]]), code), hex(start)


# ---- f16 and bf16 to narrower: every number times every scale --------------------------------------------------------


def halves(source, mode):
    """All 2^16 numbers as bits, and as MODE shows their values."""
    bits = np.arange(1 << 16, dtype=np.uint32)
    if source == "f16":
        seen = bits if mode.denorm16_64 & 1 else flushed(bits, 0x7C00)
        with np.errstate(invalid="ignore"):
            return bits, seen.astype(np.uint16).view(np.float16).astype(np.float64)
    seen = bits if mode.denorm32 & 1 else flushed(bits, 0x7F80)
    return bits, exact_f32(seen << 16)


HALF_PACKS = [(form, source) for form in SCALED_PAIRS for source in ("f16", "bf16")]


@pytest.mark.parametrize("mode", [Mode(), Mode(fp16_ovfl=True, denorm16_64=2, denorm32=2, round16_64=1)], ids=str)
@pytest.mark.parametrize(("form", "source"), HALF_PACKS)
def test_every_half_over_every_scale(form, source, mode):
    target, run = SCALED_PAIRS[form], on_host(f"v_cvt_scalef32_pk_{form}_{source}", mode)
    bits, values = halves(source, mode)
    largest = mode.fp16_ovfl and target.bits == 8
    both, old = bits | bits[::-1] << 16, np.zeros(bits.size, np.uint32)
    for byte in range(256):
        code = target.codes(over_scale(values, byte), largest, target.finite - 1 if largest else None)
        got = run(both, scale_of(byte, bits.size), old)
        np.testing.assert_array_equal(got, [packed(target, code, code[::-1])], err_msg=f"scale byte {byte}")


@pytest.mark.parametrize("source", ["f16", "bf16"])
@pytest.mark.parametrize("form", ["fp6", "bf6"])
def test_every_half_over_every_scale_in_blocks(form, source):
    target, run = TARGETS[form], on_host(f"v_cvt_scalef32_pk32_{form}_{source}")
    bits, values = halves(source, Mode())
    bits, values = bits.reshape(32, -1), values.reshape(32, -1)
    words = bits[::2] | bits[1::2] << 16
    for byte in range(256):
        codes = unpacked6(run(*words, scale_of(byte, words.shape[1])))
        np.testing.assert_array_equal(codes, target.codes(over_scale(values, byte)), err_msg=f"scale byte {byte}")


def test_published_counts_of_overflowing_sums():
    """RCCL issue 9556, on gfx950: of the f16 sums of all pairs of finite codes, 436 overflow in fp8 and 120 in bf8."""
    for form, target, expected in (("fp8", FP8, 436), ("bf8", BF8, 120)):
        codes = np.arange(256, dtype=np.uint32)
        codes = codes[codes & 0x7F < target.finite]
        one = np.full(codes.size**2 + -(codes.size**2) % 64, 0x3F800000, np.uint32)
        low, high = (np.resize(c, one.size) for c in (np.repeat(codes, codes.size), np.tile(codes, codes.size)))
        wide = [
            on_host(f"v_cvt_scalef32_f16_{form}")(c, one)[0].astype(np.uint16).view(np.float16) for c in (low, high)
        ]
        with np.errstate(over="ignore"):
            sums = (wide[0] + wide[1]).view(np.uint16).astype(np.uint32)
        for ovfl, count in ((False, expected), (True, 0)):
            run = on_host(f"v_cvt_scalef32_pk_{form}_f16", Mode(fp16_ovfl=ovfl))
            narrow = run(sums, one, one)[0][: codes.size**2] & 0x7F
            assert (narrow >= target.finite).sum() == count


def test_published_sums_at_the_overflow_edge():
    """RCCL issue 9556: 448 + 18 is NaN in fp8 and 57344 + 4096 is infinite in bf8; 448 + 16 is a tie that goes down."""
    for form, numbers, codes in (("fp8", (466, 464), (0x7F, 0x7E)), ("bf8", (61440, 61408), (0x7C, 0x7B))):
        bits = np.resize(np.array(numbers, np.float16), 64).view(np.uint16).astype(np.uint32)
        one = np.full(64, 0x3F800000, np.uint32)
        for run in (on_host, on_numpy):
            got = run(f"v_cvt_scalef32_pk_{form}_f16")(bits, one, one)[0] & 0xFF
            assert got[:2].tolist() == list(codes)


# ---- wider again -----------------------------------------------------------------------------------------------------


def wide_values(form):
    """float64 of every code, and which are NaN."""
    target = TARGETS[form]
    with np.errstate(invalid="ignore"):
        return np.arange(1 << target.bits, dtype=np.uint8).view(target.kind).astype(np.float64)


def wide_bits(values, nan_signs, target, direction=0):
    """Bits of float64 numbers in a wide type, rounded as MODE's code says; NaN is quiet, without payload."""
    if target == "f32":
        with np.errstate(all="ignore"):
            rounded = values.astype(np.float32)
            code = toward(rounded, values, direction).view(np.uint32)
        return np.where(np.isnan(values), 0x7FC00000 | nan_signs << 31, code).astype(np.uint32)
    if target == "f16":
        with np.errstate(all="ignore"):
            code = toward(values.astype(np.float16), values, direction).view(np.uint16).astype(np.uint32)
    else:
        code = BF16_TARGET.codes(values)
    quiet = {"f16": 0x7E00, "bf16": 0x7FC0}[target]
    return np.where(np.isnan(values), quiet | nan_signs << 15, code).astype(np.uint32)


def toward(rounded, values, direction):
    """Numbers rounded to nearest, moved to the other neighbour where the direction asks for it."""
    wide = rounded.astype(np.float64)
    up, down = np.nextafter(rounded, rounded.dtype.type(np.inf)), np.nextafter(rounded, rounded.dtype.type(-np.inf))
    finite = np.isfinite(values)
    above, below = finite & (wide > values), finite & (wide < values)
    if direction == 1:
        result = np.where(below, up, rounded)
    elif direction == 2:
        result = np.where(above, down, rounded)
    elif direction == 3:
        result = np.where(above & (values > 0), down, np.where(below & (values < 0), up, rounded))
    else:
        result = rounded
    return np.copysign(result, values).astype(rounded.dtype)


WIDE = [(form, target) for form in ("fp8", "bf8", "fp4") for target in ("f32", "f16", "bf16")]
WIDE_MODES = [Mode(), *(Mode(round32=n, round16_64=n) for n in (1, 2, 3)), Mode(denorm32=1, denorm16_64=1)]


def flushed_by(mode, bits, target):
    """Denormal results as MODE has them; bf16 those of f32."""
    if target == "f16":
        return bits if mode.denorm16_64 & 2 else flushed(bits, 0x7C00)
    return bits if mode.denorm32 & 2 else flushed(bits, 0x7F800000 if target == "f32" else 0x7F80)


@pytest.mark.parametrize("mode", WIDE_MODES, ids=str)
@pytest.mark.parametrize(("form", "target"), WIDE)
def test_every_code_times_every_scale(form, target, mode):
    values, bits = wide_values(form), TARGETS[form].bits
    code = np.repeat(np.arange(1 << bits, dtype=np.uint32), 256)
    byte = np.tile(np.arange(256, dtype=np.int64), 1 << bits)
    with np.errstate(invalid="ignore"):
        product = np.where(byte == 255, np.nan, np.ldexp(values[code], byte - 127))
    signs = code >> bits - 1
    direction = 0 if target == "bf16" else mode.round32 if target == "f32" else mode.round16_64
    expected = flushed_by(mode, wide_bits(product, signs, target, direction), target)
    scale = np.random.default_rng(5).integers(0, 1 << 32, code.size, dtype=np.uint32) & 0x807FFFFF
    scale |= (byte << 23).astype(np.uint32)
    other = expected.reshape(-1, 256)[::-1].ravel()
    pair = code | (code ^ np.uint32((1 << bits) - 1)) << bits  # the code that stands as far from the other end
    run = on_host(f"v_cvt_scalef32_pk_{target}_{form}", mode)
    got = run(pair, scale)
    np.testing.assert_array_equal(got, [expected, other] if target == "f32" else [expected | other << 16])
    if form != "fp4" and target != "bf16":
        np.testing.assert_array_equal(on_host(f"v_cvt_scalef32_{target}_{form}", mode)(pair, scale), [expected])


@pytest.mark.parametrize("target", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("form", ["fp6", "bf6"])
def test_every_six_bit_code_times_every_scale(form, target):
    """32 of the codes in a lane, from either half of them, all scale bytes in the lanes."""
    values, name = wide_values(form), f"v_cvt_scalef32_pk32_{target}_{form}"
    byte = np.arange(256, dtype=np.int64)
    scale = (byte << 23).astype(np.uint32) | 0x80000001
    for first in (0, 32):
        number = sum(code << 6 * i for i, code in enumerate(range(first, first + 32)))
        words = [np.full(256, number >> 32 * i & 0xFFFFFFFF, np.uint32) for i in range(6)]
        with np.errstate(invalid="ignore"):
            product = np.where(byte == 255, np.nan, np.ldexp(values[first : first + 32, None], byte - 127))
        expected = wide_bits(product, np.full((32, 1), first >> 5, np.uint32), target)
        expected = expected if target == "f32" else expected[::2] | expected[1::2] << 16
        both_engines(name, Mode(), [*words, scale], expected)


def test_every_code_of_eight_bits_to_f32():
    for form in ("fp8", "bf8"):
        values, code = wide_values(form), np.arange(256, dtype=np.uint32)
        expected = wide_bits(values, code >> 7, "f32")
        both_engines(f"v_cvt_f32_{form}", Mode(denorm32=0, round32=1), [code | 0xABCDEF00], [expected])
        pairs = np.arange(1 << 16, dtype=np.uint32)
        wide = [expected[pairs & 0xFF], expected[pairs >> 8]]
        both_engines(f"v_cvt_pk_f32_{form}", Mode(denorm32=0), [pairs | 0x12340000], wide)


def test_every_half_to_f32():
    bits, values = halves("f16", Mode())
    nan = bits & 0x7FFF > 0x7C00
    payload = 0x7FC00000 | (bits & 0x8000) << 16 | (bits & 0x3FF) << 13
    both_engines("v_cvt_f32_f16", Mode(), [bits], [np.where(nan, payload, wide_bits(values, bits >> 15, "f32"))])
    both_engines("v_cvt_f32_bf16", Mode(denorm32=0), [bits], [bits << 16])


# ---- stochastic ------------------------------------------------------------------------------------------------------


def stochastic(target, values, random, mantissa_bits):
    """Codes of CDNA4 ISA 7.3 in exact arithmetic: the top bits of the random number, as many as a normal result drops,
    are a fraction of one step of the result; the sum is truncated. Overflow as for other conversions."""
    drop = 23 - mantissa_bits
    magnitude = np.abs(values)
    lowest = math.frexp(float(target.values[1 << mantissa_bits]))[1] - 1  # exponent of the smallest normal
    with np.errstate(all="ignore"):
        exponent = np.where(magnitude == 0, lowest, np.maximum(np.frexp(magnitude)[1] - 1, lowest))
        parts = np.floor(np.ldexp(magnitude, drop + mantissa_bits - exponent))
        parts = np.where(np.isfinite(parts), parts, 0).astype(np.int64)
    steps = parts + (random.astype(np.int64) >> 32 - drop) >> drop
    code = steps + (exponent.astype(np.int64) - lowest << mantissa_bits)
    code = np.where(np.isinf(values), target.finite, code)
    code = np.where(code >= target.finite, target.over, code)
    code = np.where(np.isnan(values), target.nan, code)
    return (code | np.signbit(values).astype(np.int64) << target.bits - 1).astype(np.uint32)


STOCHASTIC = {"fp8": (FP8, 3), "bf8": (BF8, 2), "f16": (F16_TARGET, 10), "bf16": (BF16_TARGET, 7)}


def random_words(count, seed):
    """Random numbers, every 16th at an end or with one bit."""
    random = np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)
    random[::16] = np.resize(np.array([0, 0xFFFFFFFF, *(1 << n for n in range(32))], np.uint32), random[::16].size)
    return random


@pytest.mark.parametrize("form", STOCHASTIC)
def test_stochastic_packs_of_f32(form):
    target, mantissa_bits = STOCHASTIC[form]
    bits = sample(target)
    random, old = random_words(bits.size, 7), np.full(bits.size, 0x11223344, np.uint32)
    code = stochastic(target, exact_f32(bits), random, mantissa_bits)
    kept = 0x11220000 if target.bits == 16 else 0x11223300
    both_engines(f"v_cvt_sr_{form}_f32", Mode(round32=2), [bits, random, old], [code | kept])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["fp8", "bf8"])
def test_stochastic_packs_of_every_f32(form):
    (target, mantissa_bits), run = STOCHASTIC[form], on_host(f"v_cvt_sr_{form}_f32")
    old = np.zeros(STEP, np.uint32)
    for start, bits in every_f32():
        random = np.random.default_rng(start).integers(0, 1 << 32, bits.size, dtype=np.uint32)
        code = stochastic(target, exact_f32(bits), random, mantissa_bits)
        assert np.array_equal(run(bits, random, old)[0], code), hex(start)


HALF_STOCHASTIC = [(form, source) for form in ("fp8", "bf8") for source in ("f16", "bf16")]


def check_stochastic_halves(form, source, scale_bytes):
    (target, mantissa_bits), run = STOCHASTIC[form], on_host(f"v_cvt_scalef32_sr_{form}_{source}")
    bits, values = halves(source, Mode())
    old = np.full(bits.size, 0xCAFE0000, np.uint32)
    for byte in scale_bytes:
        random = random_words(bits.size, byte)
        code = stochastic(target, over_scale(values, byte), random, mantissa_bits)
        got = run(bits, random, scale_of(byte, bits.size), old)
        np.testing.assert_array_equal(got, [code | 0xCAFE0000], err_msg=f"scale byte {byte}")


@pytest.mark.parametrize(("form", "source"), HALF_STOCHASTIC)
def test_every_half_stochastically(form, source):
    check_stochastic_halves(form, source, (0, 1, 113, 120, 125, 126, 127, 128, 129, 134, 142, 160, 254, 255))


@pytest.mark.slow
@pytest.mark.parametrize(("form", "source"), HALF_STOCHASTIC)
def test_every_half_stochastically_over_every_scale(form, source):
    check_stochastic_halves(form, source, range(256))


EXACT_CODES = [(name, form) for form in STOCHASTIC for name in (f"v_cvt_sr_{form}_f32",)]


@pytest.mark.parametrize(("name", "form"), EXACT_CODES)
def test_exact_numbers_do_not_depend_on_the_seed(name, form):
    """As hip-fpsan saw on gfx950; other bytes are kept."""
    target, _ = STOCHASTIC[form]
    code = np.resize(np.arange(target.finite, dtype=np.uint32), target.finite + -target.finite % 64)
    bits = target.values[code].astype(np.float32).view(np.uint32)
    for seed in (0, 1, 0x80000000, 0xFFFFFFFF, 0xDEADBEEF):
        for op_sel, shift in ((0, 0), (12, 32 - target.bits)):
            old = np.full(bits.size, 0x87654321, np.uint32)
            kept = 0x87654321 & ~((1 << target.bits) - 1 << shift)
            got = on_host(name, op_sel=op_sel)(bits, np.full(bits.size, seed, np.uint32), old)
            np.testing.assert_array_equal(got, [code << shift | kept])


@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
def test_exact_small_numbers_do_not_depend_on_the_seed(source):
    """In 4 and 6 bits: every element of a block has another seed, and none shows."""
    for form in ("fp6", "bf6", "fp4"):
        values = TARGETS[form].values
        count = 2 if form == "fp4" else 32
        elements = np.resize(values, (count, 64)) * np.resize([1, -1], (count, 1))
        codes = np.resize(np.arange(values.size), (count, 64)) | np.resize([0, 1], (count, 1)) << TARGETS[form].bits - 1
        bits = elements.astype(np.float32).view(np.uint32)
        if source == "f16":
            bits = elements.astype(np.float16).view(np.uint16).astype(np.uint32)
        elif source == "bf16":
            bits = bits >> 16
        words = bits if source == "f32" else bits[::2] | bits[1::2] << 16
        random, one = random_words(64, 9), np.full(64, 0x3F800000, np.uint32)
        if form == "fp4":
            old = np.full(64, 0x99999999, np.uint32)
            got = on_numpy(f"v_cvt_scalef32_sr_pk_fp4_{source}")(*words, random, one, old)
            np.testing.assert_array_equal(got, [codes[0] | codes[1] << 4 | 0x99999900])
        else:
            got = on_numpy(f"v_cvt_scalef32_sr_pk32_{form}_{source}")(*words, random, one)
            np.testing.assert_array_equal(unpacked6(got), codes)


def test_random_sequence():
    """V_PRNG_B32: s' = (s << 1) ^ (197 if the top bit of s was set), from every one-bit state and random ones."""
    state = random_words(1 << 16, 11)
    run, expected = on_host("v_prng_b32"), state.tolist()
    for _ in range(64):
        state = run(state)[0]
        expected = [(s << 1 & 0xFFFFFFFF) ^ (0xC5 if s >> 31 else 0) for s in expected[: 1 << 10]]
        assert state[: len(expected)].tolist() == expected
    both_engines("v_prng_b32", Mode(), [np.arange(1 << 14, dtype=np.uint32) << 18], [
        np.array([(s << 1 & 0xFFFFFFFF) ^ (0xC5 if s >> 31 else 0) for s in range(0, 1 << 32, 1 << 18)], np.uint32)
    ])  # fmt: skip


# ---- integers --------------------------------------------------------------------------------------------------------


def integer_of(bits, low, high):
    """Truncated and saturated, NaN 0."""
    values = exact_f32(bits)
    return np.clip(np.trunc(np.nan_to_num(values, nan=0.0, posinf=2.0**40, neginf=-(2.0**40))), low, high).astype(
        np.int64
    )


RANGES = {"v_cvt_u32_f32": (0, 2**32 - 1), "v_cvt_i32_f32": (-(2**31), 2**31 - 1)}


def check_f32_and_integers(bits, engines=(on_host,)):
    for run in engines:
        for name, ends in RANGES.items():
            assert np.array_equal(run(name)(bits)[0], integer_of(bits, *ends).astype(np.uint32)), name
        assert np.array_equal(run("v_cvt_f32_u32")(bits)[0], bits.astype(np.float32).view(np.uint32))
        assert np.array_equal(run("v_cvt_f32_i32")(bits)[0], bits.view(np.int32).astype(np.float32).view(np.uint32))


def test_f32_and_integers():
    edges = np.arange(-64, 64) + np.array([0x4F000000, 0x4F800000, 0xCF000000, 0x3F800000, 0, 1 << 31])[:, None]
    powers = (1 << np.arange(32))[:, None] + np.arange(-4, 5)
    bits = np.concatenate([sample(F16_TARGET), edges.ravel().astype(np.uint32), powers.ravel().astype(np.uint32)])
    check_f32_and_integers(bits[: bits.size // 64 * 64], (on_host, on_numpy))


@pytest.mark.slow
def test_every_f32_and_integer():
    for _, bits in every_f32():
        check_f32_and_integers(bits)


def test_every_half_to_integers():
    bits, values = halves("f16", Mode())
    clean = np.nan_to_num(values, nan=0.0, posinf=1e9, neginf=-1e9)
    for name, low, high in (("v_cvt_u16_f16", 0, 65535), ("v_cvt_i16_f16", -32768, 32767)):
        whole = np.clip(np.trunc(clean), low, high).astype(np.int64).astype(np.uint32) & 0xFFFF
        both_engines(name, Mode(), [bits], [whole])
    for name, low, largest in (("v_cvt_norm_u16_f16", 0, 65535), ("v_cvt_norm_i16_f16", -1, 32767)):
        whole = np.rint(np.clip(clean, low, 1) * largest).astype(np.int64).astype(np.uint32) & 0xFFFF
        both_engines(name, Mode(), [bits], [whole])
        both_engines(name.replace("cvt_norm", "cvt_pknorm"), Mode(), [bits, bits[::-1]], [whole | whole[::-1] << 16])


def test_every_integer_of_16_bits_to_f16():
    bits = np.arange(1 << 16, dtype=np.uint32)
    with np.errstate(over="ignore"):
        unsigned = F16_TARGET.codes(bits.astype(np.float64))
        signed = F16_TARGET.codes(bits.astype(np.uint16).view(np.int16).astype(np.float64))
    both_engines("v_cvt_f16_u16", Mode(), [bits], [unsigned])
    both_engines("v_cvt_f16_i16", Mode(), [bits], [signed])
