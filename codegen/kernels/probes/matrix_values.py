"""P5, P6, P7, P9 and P1b: subnormals, specials, signed zeros, block scales, integers and chains of multiply-adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from codegen.kernels.probes.matrix_step import MatrixStep, Tiles, matrix_step
from codegen.kernels.probes.matrix_sums import probed
from codegen.kernels.probes.matrix_variants import FORMATS, Codes, Variant, encode, variants
from codegen.kernels.probes.probe import Probe, Size

# MODE[3:0] rounding, [7:4] denormals of f32 and of f16 and f64, [23] FP16_OVFL.
MODES = {"round": 0x55, "flush": 0x00, "toward zero": 0xFF, "fp16_ovfl": 0x8000F0}
F32_PATTERNS = (
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00400000, 0x00800000, 0x80800000,
    0x00812345, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
)  # fmt: skip
NANS = (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFA00123, 0x7FFFFFFF, 0x7FC00ABC)
SCALES = (0, 1, 126, 127, 128, 254, 255)


def _tile(variant: Variant, c: int) -> tuple[Codes, Codes, Codes]:
    """A tile of zeros with one C."""
    a = np.zeros((variant.rows, variant.depth), np.uint64)
    return a, a.T.copy(), np.full((variant.rows, variant.rows), c, np.uint64)


def _tiles(found: list[tuple[Codes, Codes, Codes]]) -> Tiles:
    return Tiles(*(np.stack([tile[i] for tile in found]) for i in range(3)))


def _cycled(codes: list[int], count: int, first: int = 0) -> Codes:
    return np.array([codes[(first + i) % len(codes)] for i in range(count)], np.uint64)


def small_codes(format_: str) -> list[int]:
    """Zeros, subnormals, the smallest normal numbers and 1, of either sign."""
    form = FORMATS[format_]
    normal, sign = 1 << form.mantissa_bits, 1 << form.bits - 1
    found = [0, 1, 2, normal // 2, normal - 1, normal, normal + 1, 2 * normal, int(encode(1.0, format_))]
    positive = list(dict.fromkeys(code for code in found if code <= form.max_code))
    return [*positive, *(code | sign for code in positive)]


def special_codes(format_: str) -> list[int]:
    """Zeros, one, the largest number and all that stands above it: Inf and NaN with several payloads."""
    form = FORMATS[format_]
    sign, above = 1 << form.bits - 1, (1 << form.bits - 1) - 1 - form.max_code
    offsets = sorted({1, 2, above // 2 + 1, above // 2 + 3, above} & set(range(1, above + 1)))
    found = [0, int(encode(1.0, format_)), form.max_code, *(form.max_code + n for n in offsets)]
    return [code | s for code in found for s in (0, sign)]


def subnormals(variant: Variant) -> Tiles:
    """P5. Every small number of A with every one of B, and C's subnormals; results at f32's lower end."""
    found = []
    a_codes, b_codes = small_codes(variant.a_format), small_codes(variant.b_format)
    for first, c in product(range(0, len(b_codes), variant.rows), (0, 1, 0x80000001, 0x007FFFFF, 0x00800001)):
        for k in (0, variant.depth - 1):
            a, b, addend = _tile(variant, c)
            a[:, k] = _cycled(a_codes, variant.rows)
            b[k] = _cycled(b_codes, variant.rows, first)
            found.append((a, b, addend))
    for first in range(0, len(a_codes), variant.rows):
        a, b, addend = _tile(variant, 0)
        a[:, 0], b[0] = _cycled(a_codes, variant.rows, first), _cycled(b_codes, variant.rows)
        addend[:] = _cycled([*F32_PATTERNS], variant.rows * variant.rows).reshape(addend.shape)
        found.append((a, b, addend))
    return _tiles(found)


def specials(variant: Variant) -> Tiles:
    """P6. Infinities, NaNs and largest numbers in A, B and C, one beside another in one group and in several; signed
    zeros of all."""
    found = []
    a_codes, b_codes = special_codes(variant.a_format), special_codes(variant.b_format)
    one = int(encode(1.0, variant.a_format)), int(encode(1.0, variant.b_format))
    for c in (0, 0x80000000, 0x3F800000, 0x7F800000, 0xFF800000, *NANS):
        a, b, addend = _tile(variant, c)
        a[:, 1] = _cycled(a_codes, variant.rows)
        b[1] = _cycled(b_codes, variant.rows)
        found.append((a, b, addend))
    for other in (2, 3, variant.depth // 2, variant.depth - 1):
        a, b, addend = _tile(variant, 0)
        a[:, 1], b[1] = _cycled(a_codes, variant.rows), one[1]
        a[:, other], b[other] = one[0], _cycled(b_codes, variant.rows)
        found.append((a, b, addend))
    return _tiles([*found, *_zeros(variant)])


def _zeros(variant: Variant) -> Iterator[tuple[Codes, Codes, Codes]]:
    """All products zero, of the signs that rows and columns give; or one that is not, and its negative."""
    signs = 1 << FORMATS[variant.a_format].bits - 1, 1 << FORMATS[variant.b_format].bits - 1
    for c, filled in product((0, 0x80000000), (variant.depth, 1)):
        a, b, addend = _tile(variant, c)
        a[1::2, :filled] = signs[0]
        b[:filled, 2::4] = b[:filled, 3::4] = signs[1]
        found = a, b, addend
        yield found
        a, b = a.copy(), b.copy()
        a[:, :2], b[0], b[1] = (
            int(encode(1.0, variant.a_format)),
            int(encode(1, variant.b_format)),
            int(encode(-1.0, variant.b_format)),
        )
        yield a, b, addend


def scales(variant: Variant) -> Tiles:
    """P7. Scale bytes of A by row and of B by column: beside zero data and ones, beside C of like magnitude, and two
    blocks of K that cancel but for their scales."""
    blocks, rows = variant.depth // 32, variant.rows
    found: list[tuple[Codes, Codes, Codes]] = []
    bytes_a: list[Codes] = []
    bytes_b: list[Codes] = []
    one = int(encode(1.0, variant.a_format)), int(encode(1.0, variant.b_format))
    minus = int(encode(-1.0, variant.b_format))
    for c, data, block in product((0, 0x3F800000, 0x00000001, 0xFF7FFFFF), (0, 1), (0, blocks - 1)):
        a, b, addend = _tile(variant, c)
        if data:
            place = 5 if block == 0 else variant.depth - 1  # in the first group, or in the last one
            a[:, place], b[place] = one
        found.append((a, b, addend))
        for into in (bytes_a, bytes_b):
            scale = np.full((rows, blocks), 127, np.uint64)
            scale[:, block] = _cycled([*SCALES], rows)
            into.append(scale)
    for first, second, c in product(range(0, 48, 8), (0, 1, 24), (0, 0x3F800000)):
        a, b, addend = _tile(variant, c)
        a[:, [0, 1, 32]], b[0], b[1], b[32] = one[0], one[1], minus, one[1]
        found.append((a, b, addend))
        scale = np.full((rows, blocks), 127, np.uint64)
        scale[:, 0] = 127 + np.minimum(first + np.arange(rows) % 8, 100)
        bytes_a.append(scale)
        scale = np.full((rows, blocks), 127, np.uint64)
        scale[:, 1] = 127 - second - np.arange(rows) % 4
        bytes_b.append(scale)
    return replace(_tiles(found), scale_a=np.stack(bytes_a), scale_b=np.stack(bytes_b))


def k_map(variant: Variant) -> Tiles:
    """P1b. One nonzero field at a time and four scales of A: the scale that applies says which k the field is."""
    rows, depth = variant.rows, variant.depth
    one = int(encode(1.0, variant.a_format)), int(encode(1.0, variant.b_format))
    found = []
    for first in range(0, depth, rows):
        a, b, addend = _tile(variant, 0)
        a[np.arange(rows), (first + np.arange(rows)) % depth] = one[0]
        b[:] = one[1]
        found.append((a, b, addend))
    scale_a = np.broadcast_to(127 + np.arange(depth // 32), (len(found), rows, depth // 32)).astype(np.uint64)
    return replace(_tiles(found), scale_a=scale_a, scale_b=np.full_like(scale_a, 127))


def chains(variant: Variant) -> Tiles:
    """P9. f32 and f64: terms of mixed signs and magnitudes whose sum shows order and fusing, subnormals, specials."""
    random = np.random.default_rng([9, variant.depth, variant.rows])
    wide = variant.a_format == "f64"
    found = []
    for number in range(24):
        spread = (1, 8, 30, 60)[number % 4]
        parts = [random.standard_normal(s) * 2.0 ** random.integers(-spread, spread + 1, s) for s in _shapes(variant)]
        codes = [p.view(np.uint64) if wide else encode(p, "f32") for p in parts]
        if number >= 16:
            _spoil(codes, random, wide, nan=number >= 20)
        found.append((codes[0], codes[1], codes[2]))
    return _tiles(found)


def _shapes(variant: Variant) -> tuple[tuple[int, int], ...]:
    rows, depth = variant.rows, variant.depth
    return (rows, depth), (depth, rows), (rows, rows)


def _spoil(codes: list[Codes], random: np.random.Generator, wide: bool, nan: bool) -> None:
    """Puts subnormals, infinities and (nan) NaNs of several payloads here and there."""
    narrow = [*F32_PATTERNS[:8], 0x7F800000, 0xFF800000, *(NANS if nan else ())]
    patterns = np.array([_widened(n) if wide else n for n in narrow], np.uint64)
    for matrix in codes:
        where = random.random(matrix.shape) < 0.08
        matrix[where] = random.choice(patterns, int(where.sum()))


def _widened(pattern: int) -> int:
    """An f64 of the same kind as an f32: its sign, exponent zero or all ones where it is so, mantissa at the top."""
    exponent = pattern >> 23 & 0xFF
    return pattern >> 31 << 63 | (0x7FF if exponent == 0xFF else exponent) << 52 | (pattern & 0x7FFFFF) << 29


def integers(variant: Variant) -> Tiles:
    """P9. i8: sums that leave i32 at either end, and random bytes."""
    random = np.random.default_rng([9, variant.depth, variant.rows])
    found = []
    for c in (0, 0x7FFFFFFF, 0x80000000, 0x7FFF0000, 0x80000100):
        a, b, addend = (random.integers(0, 256, s).astype(np.uint64) for s in _shapes(variant))
        found.append((a, b, addend * np.uint64(0) + np.uint64(c)))
    return _tiles(found)


def _steps(
    name: str, draw: Callable[[Variant], Tiles], chosen: Callable[[], list[Variant]], modes: bool = False
) -> Callable[[Size], Iterator[MatrixStep]]:
    def steps(size: Size) -> Iterator[MatrixStep]:
        seen = set()
        for variant in chosen():
            tiles = draw(variant)
            yield matrix_step(name, variant, tiles)
            family = variant.mnemonic.split("_")[1], variant.a_format
            if modes and family not in seen:
                for mode, value in MODES.items():
                    yield matrix_step(f"{name}/{mode.replace(' ', '-')}", variant, tiles, value)
                seen.add(family)

    return steps


def scaled() -> list[Variant]:
    """The variants with block scales, and one of them with each byte of the scale registers."""
    found = [v for v in probed() if v.has_scales]
    return [*found, *(replace(v, op_sel=byte) for v in found[:1] for byte in (1, 2, 3))]


def _of_kinds(*kinds: str) -> Callable[[], list[Variant]]:
    return lambda: [v for v in variants() if v.a_format in kinds]


def _p9(size: Size) -> Iterator[MatrixStep]:
    yield from _steps("P9", chains, _of_kinds("f32", "f64"), modes=True)(size)
    yield from _steps("P9", integers, _of_kinds("i8"), modes=True)(size)


PROBES = (
    Probe("P1b", "which k a field of an F8F6F4 operand is", _steps("P1b", k_map, scaled)),
    Probe(
        "P5", "whether subnormals of A, B, C and D are kept, whatever MODE says", _steps("P5", subnormals, probed, True)
    ),
    Probe("P6", "what infinities, NaNs, overflow and signed zeros become", _steps("P6", specials, probed, True)),
    Probe("P7", "where block scales enter, and what their ends do", _steps("P7", scales, scaled)),
    Probe("P9", "how f32 and f64 chains and i8 sums are computed", _p9),
)
