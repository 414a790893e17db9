"""P10 and P11: conversions between float formats, to integers, and the float dot products beside them.

Of each instruction a table of telling inputs is kept whole, in the MODEs that may matter: every exponent with mantissas
at the edges and at the ties of the result's format, thresholds, infinities and NaN patterns. What lies between is
digested: all 2^32 inputs of what takes one f32, all f16 and bf16 inputs with all scales. Of what comes from 8 bits and
fewer all codes are kept.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.apply import registers_read
from codegen.kernels.probes.digests import SPREAD, digest_step, every
from codegen.kernels.probes.probe import Probe, Size, Step
from codegen.kernels.probes.value_step import MODES, ValueStep, value_step
from gfx950.isa.registry import INSTRUCTIONS

Words = NDArray[np.uint32]
FORMATS = {"fp8": 20, "bf8": 21, "fp4": 22, "fp6": 20, "bf6": 21, "bf16": 16, "f16": 13}  # f32 bits that each drops
OLD = 0xA5C31E87  # in a destination of which a part stays
NANS = (0x7F800001, 0x7FA00000, 0x7FC00000, 0x7FC00001, 0x7FD55555, 0x7FE00000, 0x7FEAAAAA, 0x7FFFFFFF)
# The largest numbers of formats and integers, and what rounds to them or beyond.
LIMITS = (
    6.0, 7.0, 7.5, 7.75, 28.0, 30.0, 448.0, 464.0, 480.0, 57344.0, 61440.0, 65504.0, 65520.0, 65536.0, 0.5, 1.0, 1.5,
    2.5, 254.5, 255.0, 255.5, 256.0, 32767.0, 32768.0, 65535.0, 2.0**31, 2.0**32, 2.0**15 - 0.5, 0.49999997,
)  # fmt: skip


def _bits(values: Sequence[float]) -> Words:
    return np.array(values, np.float32).view(np.uint32)


def signed(magnitudes: Words) -> Words:
    """Numbers and their negatives."""
    return np.concatenate([magnitudes, magnitudes | np.uint32(1 << 31)])


def mantissas(drop: int) -> Words:
    """f32 mantissas at the edges, and where a format that drops so many bits has ties."""
    half, top = 1 << drop - 1, 0x7FFFFF ^ ((1 << drop) - 1)
    ties = [tie + step for tie in (half, half | 1 << drop & 0x7FFFFF, top | half) for step in (-1, 0, 1)]
    found = {0, 1, 0x3FFFFF, 0x400000, 0x400001, 0x600000, 0x7FFFFF, *ties}
    return np.array(sorted(m for m in found if m < 1 << 23), np.uint32)


@cache
def f32_values(drop: int) -> Words:
    """All exponents with telling mantissas, limits with their neighbours, and NaNs; of both signs."""
    table = (np.arange(256, dtype=np.uint32)[:, None] << np.uint32(23)) | mantissas(drop)
    limits = (_bits(LIMITS)[:, None].astype(np.int64) + np.arange(-1, 2)).astype(np.uint32)
    return signed(np.concatenate([table.reshape(-1), limits.reshape(-1), np.array(NANS, np.uint32)]))


@cache
def f16_values() -> Words:
    """All f16 exponents with telling mantissas, of both signs."""
    found = [0, 1, 2, 3, 0x7F, 0x80, 0x81, 0x100, 0x155, 0x1FF, 0x200, 0x201, 0x2AA, 0x300, 0x3FE, 0x3FF]
    table = (np.arange(32, dtype=np.uint32)[:, None] << np.uint32(10)) | np.array(found, np.uint32)
    return np.concatenate([table.reshape(-1), table.reshape(-1) | np.uint32(1 << 15)])


@cache
def bf16_values() -> Words:
    """All bf16 exponents with telling mantissas, of both signs."""
    found = [0, 1, 3, 4, 8, 12, 0x20, 0x3F, 0x40, 0x41, 0x55, 0x7F]
    table = (np.arange(256, dtype=np.uint32)[:, None] << np.uint32(7)) | np.array(found, np.uint32)
    return np.concatenate([table.reshape(-1), table.reshape(-1) | np.uint32(1 << 15)])


def _rolled(values: Words, by: int = 1) -> Words:
    """The values in another order, for a second source."""
    return np.roll(values[::-1], 31 * by)


def _constant(value: int) -> Words:
    return np.array([value], np.uint32)


# ---- From f32, and to it, without scale ------------------------------------------------------------------------------

_DENORMS = ("default", "flush", "denorm-in", "denorm-out", "up", "ovfl", "ovfl-flush")
_ROUNDS = ("default", "flush", "up", "down", "zero", "ovfl")
# Mnemonic, mantissa bits that the result drops, sources, whether a part of the destination stays, MODEs of tables and
# of digests.
NARROW: tuple[tuple[str, int, int, bool, tuple[str, ...], tuple[str, ...]], ...] = (
    ("v_cvt_pk_fp8_f32", 20, 2, True, _DENORMS, ("default", "flush", "ovfl")),
    ("v_cvt_pk_bf8_f32", 21, 2, True, _DENORMS, ("default", "flush", "ovfl")),
    ("v_cvt_pk_bf16_f32", 16, 2, False, _DENORMS, ("default", "flush", "ovfl")),
    ("v_cvt_pk_f16_f32", 13, 2, False, _DENORMS, ("default", "flush", "ovfl")),
    ("v_cvt_pkrtz_f16_f32", 13, 2, False, _DENORMS, ("default", "flush", "ovfl")),
    ("v_cvt_f16_f32", 13, 1, False, (*_DENORMS, "down", "zero"), ("default", "flush", "up", "ovfl")),
    ("v_cvt_pknorm_i16_f32", 8, 2, False, ("default", "flush", "up"), ("default",)),
    ("v_cvt_pknorm_u16_f32", 8, 2, False, ("default", "flush", "up"), ("default",)),
    ("v_cvt_rpi_i32_f32", 1, 1, False, ("default", "flush", "up"), ("default",)),
    ("v_cvt_flr_i32_f32", 1, 1, False, ("default", "flush", "up"), ("default",)),
    ("v_cvt_i32_f32", 1, 1, False, ("default", "up"), ("default",)),
    ("v_cvt_u32_f32", 1, 1, False, ("default", "up"), ("default",)),
)
BYTES = ("v_cvt_pk_u8_f32", "v_cvt_pkaccum_u8_f32")
HALVES = (
    "v_cvt_f32_f16", "v_cvt_i16_f16", "v_cvt_u16_f16", "v_cvt_norm_i16_f16", "v_cvt_norm_u16_f16",
    "v_cvt_pknorm_i16_f16", "v_cvt_pknorm_u16_f16",
)  # fmt: skip
DOUBLES = ("v_cvt_f32_f64", "v_cvt_i32_f64", "v_cvt_u32_f64")


def _from_f32() -> Iterator[ValueStep]:
    for mnemonic, drop, sources, keeps, modes, _ in NARROW:
        values = f32_values(drop)
        columns = [values, _rolled(values)][:sources] + [_constant(OLD)] * keeps
        for mode in modes:
            yield value_step("P10", mnemonic, columns, mode=mode)
        if keeps:
            yield value_step("P10", mnemonic, columns, {"op_sel": 8})
    for mnemonic in BYTES:
        values = f32_values(16)
        columns = [values, np.arange(len(values), dtype=np.uint32), _constant(OLD)]
        for mode in _ROUNDS[:5]:
            yield value_step("P10", mnemonic, columns, mode=mode)


def _from_halves() -> Iterator[ValueStep]:
    for mnemonic in HALVES:
        values = f16_values()
        columns = [values, _rolled(values)][: len(registers_read(mnemonic))]
        for mode in ("default", "flush", "up"):
            yield value_step("P10", mnemonic, columns, mode=mode)
    for mode in ("default", "flush"):
        yield value_step("P10", "v_cvt_f32_bf16", [bf16_values()], mode=mode)


@cache
def f64_values() -> tuple[Words, Words]:
    """f64 numbers about the ends of f32, f32's denormals and 32-bit integers, with mantissas at f32's ties; their low
    and high words."""
    exponents = [0, 1, 1023 - 151, 1023 - 150, 1023 - 149, 1023 - 127, 1023 - 126, 1022, 1023, 1053, 1054, 1055, 1149]
    tie = 1 << 28
    mantissas_ = [0, 1, tie - 1, tie, tie + 1, 3 * tie, 1 << 51, (1 << 52) - tie - 1, (1 << 52) - tie, (1 << 52) - 1]
    table = [e << 52 | m for e in (*exponents, 1150, 1151, 2046, 2047) for m in mantissas_]
    values = np.array([*table, *(value | 1 << 63 for value in table)], np.uint64)
    return (values & np.uint64(0xFFFFFFFF)).astype(np.uint32), (values >> np.uint64(32)).astype(np.uint32)


def _doubles() -> Iterator[ValueStep]:
    for mode in ("default", "flush"):
        yield value_step("P10", "v_cvt_f64_f32", [f32_values(13)], mode=mode)
    for mnemonic in DOUBLES:
        for mode in _ROUNDS[:5]:
            yield value_step("P10", mnemonic, f64_values(), mode=mode)


def _integers() -> Iterator[ValueStep]:
    powers = [sign * (1 << n) + step for n in range(32) for step in (-1, 0, 1) for sign in (1, -1)]
    values = np.array([p & 0xFFFFFFFF for p in powers], np.uint32)
    for mnemonic in ("v_cvt_pk_u16_u32", "v_cvt_pk_i16_i32"):
        yield value_step("P10", mnemonic, [values, _rolled(values)])


def _from_codes() -> Iterator[ValueStep]:
    codes = np.arange(256, dtype=np.uint32)
    word = codes | (255 - codes) << np.uint32(8) | np.uint32(0x3C810000)
    for mnemonic in ("v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8"):
        for mode in ("default", "flush", "ovfl"):
            yield value_step("P10", mnemonic, [word], mode=mode)


# ---- With a scale ----------------------------------------------------------------------------------------------------

SCALES = (0, 1, 2, 64, 100, 126, 127, 128, 160, 190, 252, 253, 254, 255)
F16_SCALES = (0, 1, 2, 100, 112, 121, 126, 127, 128, 133, 140, 150, 254, 255)  # f16 over others is nothing or too much
WIDE_SCALES = (0, 1, 2, 64, 100, 105, 112, 120, 127, 135, 142, 160, 190, 252, 254, 255)
# Exponents of the smallest and the largest number of each narrow format.
REACH = {"fp8": (-9, 8), "bf8": (-16, 15), "fp4": (-1, 2), "fp6": (-3, 2), "bf6": (-4, 4)}
SEED = 0x9D2C5681
_FORM = re.compile(r"v_cvt_scalef32_(sr_)?(pk_|pk32_|2xpk16_)?([a-z]+\d+)_([a-z]+\d+)")


@dataclass(frozen=True)
class Form:
    """One of V_CVT_SCALEF32_*. values: registers of the numbers that it converts."""

    mnemonic: str
    stochastic: bool
    packing: str
    target: str
    source: str

    @property
    def narrows(self) -> bool:
        """Whether the result has 8 bits or fewer."""
        return self.target in REACH

    @property
    def block(self) -> bool:
        """Whether it converts 32 numbers."""
        return self.packing in ("pk32_", "2xpk16_")

    @property
    def values(self) -> int:
        """Registers of the numbers that it converts."""
        return sum(self._counts) - 1 - self.stochastic - (self.narrows and not self.block)

    @property
    def _counts(self) -> list[int]:
        return registers_read(self.mnemonic)

    def columns(self, values: Sequence[Words], scale: Words, random: Words) -> list[Words]:
        """Registers: the values, the random part where it takes one, the scale, and the old destination if any."""
        kept = [_constant(OLD)] * (self.narrows and not self.block)
        return [*values, *[random] * self.stochastic, scale, *kept]


@cache
def forms() -> tuple[Form, ...]:
    """All of them, by mnemonic."""
    importlib.import_module("gfx950.isa.scaled_conversions")
    found = []
    for name in sorted(INSTRUCTIONS):
        if match := _FORM.fullmatch(name):
            found.append(Form(name, bool(match[1]), match[2] or "", match[3], match[4]))
    return tuple(found)


def forms_of(size: Size) -> list[Form]:
    """The forms that a run asks: without all inputs, of blocks fp6 with f32 and bf16 and bf6 with f16, since each costs
    an emulator a second to translate."""
    return [f for f in forms() if size.inputs == 32 or not f.block or ("fp6" in f.mnemonic) != ("_f16" in f.mnemonic)]


def junk(scales: Words) -> Words:
    """Scale bytes as f32, with sign and mantissa bits that must not count: none, one, or many."""
    extra = np.array([0, 0x80000000, 0x00000001, 0x807FFFFF, 0x00555555], np.uint32)
    return scales << np.uint32(23) | extra[np.arange(len(scales)) % len(extra)]


@cache
def _near(target: str, unit: int) -> tuple[Words, Words]:
    """f32 numbers about the ends of a format times a scale, zeros, denormals, infinities and NaNs; and the scale bytes.
    unit: what the lowest bit of a mantissa is worth."""
    drop, (low, high) = FORMATS[target], REACH[target]
    half, top = 1 << drop - 1, 0x7FFFFF ^ ((1 << drop) - 1)
    fractions = np.array(
        [0, unit, half - unit, half, half + unit, half * 3 & 0x7FFFFF, 0x800000 - unit, top | half], np.int64
    )
    specials = [0, unit, 0x400000, 0x800000 - unit, 0x7F800000, 0x7F800000 + unit, 0x7FC00000 + unit, 0x7FEA0000]
    steps = np.array([low - 2, low - 1, low, low + 1, low + 3, 0, high - 1, high, high + 1])
    values, scales = [], []
    for scale in SCALES:
        exponents = np.clip(scale + steps, 0, 254)[:, None] << 23
        some = signed(np.concatenate([(exponents | fractions).reshape(-1), specials]).astype(np.uint32))
        values.append(some)
        scales.append(np.full(len(some), scale, np.uint32))
    return np.concatenate(values), np.concatenate(scales)


def _sources(form: Form) -> tuple[Words, Words]:
    """Words with numbers of a form's source, and scale bytes."""
    if form.source == "f32":
        return _near(form.target, 1)
    if form.source == "bf16":
        values, scales = _near(form.target, 1 << 16)
        values = values >> np.uint32(16)
        return values | np.roll(values, 1) << np.uint32(16), scales
    values = f16_values()[::2]
    words = values[::2] | values[1::2] << np.uint32(16)
    scales = np.repeat(np.array(F16_SCALES, np.uint32), len(words))
    return np.tile(words, len(F16_SCALES)), scales


def _spread_out(words: Words, registers: int) -> list[Words]:
    """A column for each register, the words one after another in the registers of a lane."""
    if registers <= 2:
        return [words, np.roll(words, 1)][:registers]
    lanes = -(-len(words) // registers)
    return list(np.resize(words, (lanes, registers)).T)


def _narrowing(form: Form) -> Iterator[ValueStep]:
    words, scales = _sources(form)
    values = _spread_out(words, form.values)
    if form.block:  # a lane's numbers have the scale of the first of them
        scales = np.resize(scales, (len(values[0]), form.values))[:, 0]
    seeds = np.arange(len(scales), dtype=np.uint32) % np.uint32(2) * np.uint32(SEED)
    columns = form.columns(values, junk(scales), seeds)
    for mode in ("default", "flush", "ovfl"):
        yield value_step("P10", form.mnemonic, columns, mode=mode)


def _all_codes(form: Form) -> list[Words]:
    """Words with all codes of a narrow source, a column for each register."""
    if form.block:
        codes = np.arange(64, dtype=object).reshape(2, 32)
        whole = [sum(int(c) << 6 * i for i, c in enumerate(row)) for row in codes]
        return [np.array([w >> 32 * i & 0xFFFFFFFF for w in whole], np.uint32) for i in range(6)]
    codes8 = np.arange(256 if form.packing == "" or form.source == "fp4" else 128, dtype=np.uint32)
    return [codes8 | (255 - codes8) << np.uint32(8) | np.uint32(0x3C810000)]


def _widening(form: Form) -> Iterator[ValueStep]:
    codes = _all_codes(form)
    for mode in ("default", "flush", "up", "ovfl"):
        chosen = range(256) if mode == "default" else WIDE_SCALES
        scales = np.repeat(np.array(chosen, np.uint32), len(codes[0]))
        columns = [np.tile(column, len(chosen)) for column in codes]
        yield value_step("P10", form.mnemonic, [*columns, junk(scales)], mode=mode)


# ---- Sums of products, and mixed ones --------------------------------------------------------------------------------

DOTS = ("v_dot2_f32_f16", "v_dot2_f32_bf16", "v_dot2c_f32_f16", "v_dot2c_f32_bf16")
MIXES = ("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")


def _dot_columns(mnemonic: str) -> list[Words]:
    """Pairs of 16-bit factors and an accumulator: any bits; near 1, so that sums round; subnormals; NaNs."""
    random = np.random.default_rng([10, *mnemonic.encode()])
    count, bf16 = 512, mnemonic.endswith("bf16")
    one, mantissa = (0x3F80, 0x7F) if bf16 else (0x3C00, 0x3FF)
    infinity = 0x7F80 if bf16 else 0x7C00
    factors = random.integers(0, 1 << 16, (4, 4, count))  # of each kind: a low, a high, b low, b high
    signs, fractions = factors & 0x8000, factors & mantissa
    factors[1] = signs[1] | one + (random.integers(-3, 4, (4, count)) * (mantissa + 1)) | fractions[1]
    factors[2, :2] = signs[2, :2] | fractions[2, :2]
    factors[3, 0] = signs[3, 0] | infinity | fractions[3, 0]
    added = random.integers(0, 1 << 32, (4, count))
    added[1] = (added[1] & 0x807FFFFF) + (random.integers(122, 133, count) << 23)
    added[2] = added[2] & 0x807FFFFF | random.integers(0, 2, count) << 23
    added[3] = added[3] & 0x83FFFFFF | 0x3C000000
    a, b = (factors[:, i] | factors[:, i + 1] << 16 for i in (0, 2))
    return [part.reshape(-1).astype(np.uint32) for part in (a, b, added)]


def _products() -> Iterator[ValueStep]:
    for mnemonic in DOTS:
        for mode in ("default", "flush", "up"):
            yield value_step("P10", mnemonic, _dot_columns(mnemonic), mode=mode)
        if "dot2_" in mnemonic:
            yield value_step("P10", mnemonic, _dot_columns(mnemonic), {"neg": 4})
    for mnemonic in MIXES:
        random = np.random.default_rng([11, *mnemonic.encode()])
        a = random.integers(0, 1 << 16, 512).astype(np.uint32)
        b, c = (random.integers(0, 1 << 32, (2, 512)) & 0x8FFFFFFF | 0x38000000).astype(np.uint32)
        columns = [a, b, c, *[_constant(OLD)] * (len(registers_read(mnemonic)) - 3)]
        for mode in ("default", "flush", "up", "ovfl"):
            yield value_step("P10", mnemonic, columns, {"op_sel_hi": 1}, mode)


# ---- Digests of what lies between ------------------------------------------------------------------------------------


def pair_of_every(number: Any, shift: Any) -> Sequence[Any]:
    """A word, and the same with sign and low bits turned over."""
    value = every(number, shift)
    return [value, value ^ 0x80000FFF]


def one_of_every(number: Any, shift: Any) -> Sequence[Any]:
    """A word."""
    return [every(number, shift)]


def pair_into_old(number: Any, shift: Any) -> Sequence[Any]:
    """A pair, and a destination that stays in part."""
    return [*pair_of_every(number, shift), number]


def scaled_pair(number: Any, shift: Any) -> Sequence[Any]:
    """Two f32 numbers, a scale whose exponent is at most 15 above or 16 below theirs, and a destination."""
    first, second = pair_of_every(number, shift)
    mixed = number * SPREAD
    byte = ((first >> 23) + (mixed >> 27) + 240) & 0xFF
    return [first, second, byte << 23 | mixed & 0x807FFFFF, number]


def scaled_halves(number: Any, shift: Any) -> Sequence[Any]:
    """Two 16-bit numbers, a scale, and a destination: of 24 bits the high 8 are the scale, the low 16 a number. shift:
    how many of the 24 bits numbers lack."""
    spread = every(number, shift + 8) >> 8
    half = spread & 0xFFFF
    return [half | (half ^ 0xFFFF) << 16, spread >> 16 << 23 | number & 0x7FFFFF, number]


def _digests(size: Size) -> Iterator[Step]:
    for mnemonic, _, sources, keeps, _, modes in NARROW:
        operands: Callable[[Any, Any], Sequence[Any]] = pair_into_old if keeps else pair_of_every
        operands = one_of_every if sources == 1 else operands
        for mode in modes:
            yield digest_step(f"P10/digests/{mnemonic}/{mode}", mnemonic, operands, size.inputs, MODES[mode])
    for form in forms():
        if form.narrows and form.packing == "pk_" and not form.stochastic:
            name, bits = f"P10/digests/{form.mnemonic}", size.inputs - 4
            for mode in ("default", "ovfl"):
                if form.source == "f32":
                    yield digest_step(f"{name}/{mode}", form.mnemonic, scaled_pair, bits, MODES[mode], blocks=256)
                else:
                    yield _digest_of_halves(f"{name}/{mode}", form, min(24, bits), MODES[mode])


def _digest_of_halves(name: str, form: Form, bits: int, mode: int) -> Step:
    return digest_step(name, form.mnemonic, scaled_halves, bits, mode, blocks=256, shift=24 - bits)


def _p10(size: Size) -> Iterator[Step]:
    yield from _from_f32()
    yield from _from_halves()
    yield from _doubles()
    yield from _integers()
    yield from _from_codes()
    for form in forms_of(size):
        yield from _narrowing(form) if form.narrows else _widening(form)
    yield from _products()
    yield from _unscaled_stochastic()
    yield from _digests(size)


# ---- P11 -------------------------------------------------------------------------------------------------------------

STOCHASTIC = {
    "v_cvt_sr_fp8_f32": "fp8",
    "v_cvt_sr_bf8_f32": "bf8",
    "v_cvt_sr_f16_f32": "f16",
    "v_cvt_sr_bf16_f32": "bf16",
}
SEEDS = np.array([*(1 << n for n in range(32)), 0, 0xFFFFFFFF, 0x7FFFFFFF, 0x12345678, 0xC5A50F3C], np.uint32)
_NORMAL = {"f16": (-14, 15), "bf16": (-126, 127), "fp8": (-6, 8), "bf8": (-14, 15), "fp4": (0, 2), "fp6": (0, 2),
           "bf6": (-2, 4)}  # fmt: skip


def _unscaled_stochastic() -> Iterator[ValueStep]:
    """What becomes of special and small numbers, whatever the random part."""
    for mnemonic, target in STOCHASTIC.items():
        values = f32_values(FORMATS[target])
        seeds = np.arange(len(values), dtype=np.uint32) % np.uint32(3) * np.uint32(SEED)
        for mode in ("default", "flush", "denorm-in", "denorm-out", "ovfl"):
            yield value_step("P10", mnemonic, [values, seeds, _constant(OLD)], mode=mode)


@cache
def stochastic_values(target: str) -> Words:
    """f32 numbers between those of a format: normal ones, the smallest normal, below it, and the largest binade; with
    dropped bits none, one, all and half of them, after kept bits that are none, all ones so that carries go on, or one
    less, as those of the largest e4m3fn number."""
    drop, (low, high) = FORMATS[target], _NORMAL[target]
    top = 0x7FFFFF ^ (1 << drop) - 1
    kept = sorted({0, top - (1 << drop), top})
    dropped = [0, 1, 1 << drop // 2, 1 << drop - 1, 0x155555 & (1 << drop) - 1, (1 << drop) - 1]
    exponents = [low - 3, low - 2, low - 1, low, low + 1, 1 if target != "bf16" else 3, high]
    found = [max(0, e + 127) << 23 | k | d for e in exponents for k in kept for d in dropped]
    values = np.array(found, np.uint32)
    return values | (np.arange(len(values), dtype=np.uint32) & np.uint32(1)) << np.uint32(31)


def _with_seeds(values: Words) -> tuple[Words, Words]:
    return np.tile(values, len(SEEDS)), np.repeat(SEEDS, len(values))


def _of_source(values: Words, source: str) -> Words:
    """f32 numbers in a source's type, two of 16 bits in a word."""
    if source == "f32":
        return values
    if source == "bf16":
        narrow = values >> np.uint32(16)
    else:
        with np.errstate(over="ignore"):
            narrow = values.view(np.float32).astype(np.float16).view(np.uint16).astype(np.uint32)
    return narrow | np.roll(narrow, 1) << np.uint32(16)


def _p11(size: Size) -> Iterator[Step]:
    for mnemonic, target in STOCHASTIC.items():
        values, seeds = _with_seeds(stochastic_values(target))
        for mode in ("default", "ovfl"):
            yield value_step("P11", mnemonic, [values, seeds, _constant(OLD)], mode=mode)
    for form in forms_of(size):
        if form.stochastic:
            yield _scaled_stochastic(form)


def _scaled_stochastic(form: Form) -> ValueStep:
    """Every number with every seed; a block has the numbers one after another, those of a format's ends in each."""
    words = _of_source(stochastic_values(form.target), form.source)
    if form.block:
        rows = _spread_out(np.concatenate([words, words[::-1]]), form.values)
        values, seeds = [np.tile(row, len(SEEDS)) for row in rows], np.repeat(SEEDS, len(rows[0]))
    else:
        first, seeds = _with_seeds(words)
        values = [first, np.roll(first, 7)][: form.values]
    scale = np.full(len(seeds), 127, np.uint32)
    return value_step("P11", form.mnemonic, form.columns(values, junk(scale), seeds))


PROBES = (
    Probe("P10", "how conversions round, and what they make of special numbers", _p10),
    Probe("P11", "where the random part of stochastic conversions goes", _p11),
)
