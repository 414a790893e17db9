"""Matrix arithmetic: the rule that decides the bits of products of at most 16-bit floats, its open questions as named
switches, and the natives of all matrix instructions.

No public rule of CDNA4's matrix arithmetic exists. The default is the rule measured on CDNA3 (gfx942) with gfx950's
shapes and formats; whatever that leaves open is a field of `MfmaModel`, so that a capture from a real device can
decide it. `evaluate` runs any model; the natives in `gfx950.arithmetic.native.NATIVES` run `DEFAULT`, fast.

One output element is a chain over groups of k: each group's rounded f32 result is the C of the next. A group of L
products with C:
 a. zero products are dropped; a product's exponent is the sum of its factors' exponents (a subnormal has the smallest
     normal exponent), e_dot the largest.
 b. every product is cut toward zero `product_bits` below e_dot and the cut products are summed exactly.
 c. with a split, a and b run on either part alone, and the part sums are floored to `product_bits` below the larger
     e_dot.
 d. e_max = max(e_dot, e_C); the sum is floored `dot_bits` below e_max, C `c_bits` below it (and dropped more than
     `c_window` below).
 e. their sum is floored `sum_bits` below its own exponent.
 f. that is rounded to f32, nearest even, with gradual underflow; an exact zero is +0.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gfx950.arithmetic.mfma_shapes import SHAPES, kind_of
from gfx950.arithmetic.native import NATIVES, declare
from gfx950.formats import BF16, E2M1, E2M3, E3M2, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, F16

Words = npt.NDArray[np.uint32]


class Format(enum.IntEnum):
    """Element formats; 0 to 4 are the ISA's CBSZ and BLGP codes of F8F6F4. FNUZ is gfx942's and has no native here."""

    fp8 = 0
    bf8 = 1
    fp6 = 2
    bf6 = 3
    fp4 = 4
    f16 = 5
    bf16 = 6
    fp8_fnuz = 7
    bf8_fnuz = 8


ELEMENTS = (E4M3FN, E5M2, E2M3, E3M2, E2M1, F16, BF16, E4M3FNUZ, E5M2FNUZ)  # by Format
FIELD_BITS = tuple(element.bits for element in ELEMENTS)


class Split(enum.IntEnum):
    """How a group is cut in two parts that are aligned apart (step c)."""

    none = 0
    even_odd = 1
    halves = 2


class GroupOrder(enum.IntEnum):
    """Order in which k is cut into groups: `logical` ascending, or `physical`, lane group by lane group as registers
    hold it."""

    logical = 0
    physical = 1


class ScaleEntry(enum.IntEnum):
    """Where a block scale enters: at every product's exponent before alignment, or at the f32 sum of its whole block
    of 32, which then meets C in one more step d to f."""

    product_exponent = 0
    block_sum = 1


class SparseOrder(enum.IntEnum):
    """What a sparse A's groups are cut from: `stored`, the elements that are stored, as a dense A of half the depth
    would be; or `expanded`, all k, zeros where nothing is stored."""

    stored = 0
    expanded = 1


NO_WINDOW = 1 << 20


class GroupRule(NamedTuple):
    """The numbers of one group step, named as in the module's text; all counts of bits or of products."""

    length: int
    split: int = Split.none
    product_bits: int = 24
    dot_bits: int = 32
    c_bits: int = 24
    c_window: int = NO_WINDOW
    sum_bits: int = 31
    product_overflow: int = 1  # 1: a product of magnitude 2^128 or more is Inf before anything is summed


_HALF = GroupRule(8)
_BYTE = GroupRule(16, Split.even_odd, c_window=25, product_overflow=0)


@dataclass(frozen=True)
class MfmaModel:
    """One candidate for the arithmetic. half: f16 and bf16; byte: fp8 and bf8, also mixed with smaller ones; small:
    fp6, bf6, fp4 only.

    nan_bits: the NaN every NaN result gets. Raises ValueError for widths that 64-bit integers cannot hold.
    """

    half: GroupRule = _HALF
    byte: GroupRule = _BYTE
    small: GroupRule = _BYTE
    group_order: GroupOrder = GroupOrder.logical
    scale_entry: ScaleEntry = ScaleEntry.product_exponent
    sparse_order: SparseOrder = SparseOrder.stored
    nan_bits: int = 0x7FC00000

    def __post_init__(self) -> None:
        for name in ("half", "byte", "small"):
            _check_group(name, getattr(self, name))
        if not 0x7F800000 < self.nan_bits & 0x7FFFFFFF <= 0x7FFFFFFF:
            raise ValueError(f"nan_bits {self.nan_bits:#x} is no f32 NaN")

    def group_rule(self, format_a: Format, format_b: Format) -> GroupRule:
        """The group step for this pair of formats."""
        bits = max(FIELD_BITS[format_a], FIELD_BITS[format_b])
        return self.half if bits == 16 else self.byte if bits == 8 else self.small


def _check_group(name: str, group: GroupRule) -> None:
    if group.length not in (1, 2, 4, 8, 16, 32, 64, 128):
        raise ValueError(f"{name}.length {group.length} is not a power of two up to 128")
    if not 22 <= group.product_bits <= group.dot_bits <= 40 or not 0 <= group.c_bits <= group.dot_bits:
        raise ValueError(f"{name}: want 22 <= product_bits <= dot_bits <= 40 and 0 <= c_bits <= dot_bits, got {group}")
    if not 24 <= group.sum_bits <= 60:
        raise ValueError(f"{name}.sum_bits {group.sum_bits} is not within 24..60")


DEFAULT = MfmaModel()
F64_NAN = 0x7FF8000000000000  # of every f64 NaN result [rule mfma.nan_bits]


def pack_parameters(
    format_a: Format,
    format_b: Format,
    *,
    scaled: bool = False,
    scale_byte_a: int = 0,
    scale_byte_b: int = 0,
    clamp: bool = False,
    index_shift: int = 0,
    flush: bool = False,
    negate: int = 0,
) -> int:
    """The `parameters` word of every matrix native.

    [2:0] format of A (CBSZ for F8F6F4), [5:3] of B (BLGP), [6] scaled (ABID[0]), [8:7] and [10:9] the byte of the
    scale registers of A and B, [11] FP16_OVFL, [16:12] the first bit of a sparse A's index, [17] subnormal f32 inputs
    are flushed, [20:18] f64 A, B, C are negated. A native reads what means something to it. Raises ValueError for a
    format without native or a value out of range.
    """
    if max(format_a, format_b) > Format.bf16:
        raise ValueError(f"formats {format_a!r}, {format_b!r}: FNUZ is not a gfx950 format")
    if not (0 <= scale_byte_a <= 3 and 0 <= scale_byte_b <= 3):
        raise ValueError(f"scale bytes {scale_byte_a}, {scale_byte_b} are not within 0..3")
    if not (0 <= index_shift <= 31 and 0 <= negate <= 7):
        raise ValueError(f"index_shift {index_shift} is not within 0..31, or negate {negate} not within 0..7")
    formats_and_scales = format_a | format_b << 3 | scaled << 6 | scale_byte_a << 7 | scale_byte_b << 9
    return formats_and_scales | clamp << 11 | index_shift << 12 | flush << 17 | negate << 18


def _check_formats(name: str, format_a: Format, format_b: Format) -> None:
    kind = kind_of(name)
    if kind in ("f32", "f64", "i8"):  # the formats are in the name
        return
    legal = range(5) if kind == "f8f6f4" else range(2) if kind == "f8" else (Format.f16, Format.bf16)
    if format_a not in legal or format_b not in legal or (name.endswith("_f16") and format_a != format_b):
        raise ValueError(f"{name} does not multiply {format_a!r} by {format_b!r}")


def evaluate(name: str, inputs: Words, parameters: int, model: MfmaModel = DEFAULT) -> Words:
    """What the native `name` gives for one item under any model, by the plain rule; slow, the reference of the fast
    natives.

    inputs: uint32 (n_in, 64). Returns uint32 (n_out, 64). Raises ValueError for an unknown name, shape or format
    pair.
    """
    from gfx950.arithmetic import mfma_plain, mfma_rule

    if name not in SHAPES:
        raise ValueError(f"no MFMA native {name!r}; there are {', '.join(SHAPES)}")
    if inputs.shape != (NATIVES[name].n_in, 64):
        raise ValueError(f"{name} takes inputs of shape ({NATIVES[name].n_in}, 64), got {inputs.shape}")
    formats = Format(parameters & 7), Format(parameters >> 3 & 7)
    _check_formats(name, *formats)
    outputs = np.empty((NATIVES[name].n_out, 64), np.uint32)
    shape = SHAPES[name]
    if shape.sparse or shape.copies > 1 or kind_of(name) in ("f32", "f64", "i8"):
        mfma_plain.run_registers(name, inputs, outputs, parameters, model)
        return outputs
    settings = mfma_rule.Settings(model.group_order, model.scale_entry, model.nan_bits)
    mfma_rule.run_registers(
        np.ascontiguousarray(inputs), outputs, parameters, shape, model.group_rule(*formats), settings
    )
    return outputs


@dataclass(frozen=True)
class Operand:
    """A matrix of element codes: (rows, K) uint16, one code an element; B is given transposed. scales: E8M0 bytes
    (rows, K / 32) or none."""

    codes: npt.NDArray[np.uint16]
    format: Format
    scales: npt.NDArray[np.uint8] | None = None


def multiply(a: Operand, b: Operand, c: Words, model: MfmaModel = DEFAULT, *, clamp: bool = False) -> Words:
    """D = A B + C on element codes, free of register layouts and of shapes, groups in ascending k.

    c, D: f32 bits (M, N). Both operands have scales or neither. K must be a multiple of the group length or less than
    it. Raises ValueError where the sizes do not fit together.
    """
    from gfx950.arithmetic import mfma_rule

    depth = a.codes.shape[1]
    if (a.scales is None) != (b.scales is None):
        raise ValueError("one operand has scales and the other none; give scales of 127 for 1.0")
    if b.codes.shape[1] != depth or c.shape != (len(a.codes), len(b.codes)):
        raise ValueError(f"A {a.codes.shape}, B transposed {b.codes.shape} and C {c.shape} do not fit together")
    group = model.group_rule(a.format, b.format)
    if depth > group.length and depth % group.length:
        raise ValueError(f"K = {depth} is no multiple of the group length {group.length}")
    settings = mfma_rule.Settings(model.group_order, model.scale_entry, model.nan_bits)
    d = np.empty(c.shape, np.uint32)
    mfma_rule.multiply_codes(
        np.ascontiguousarray(a.codes, np.uint16),
        np.ascontiguousarray(b.codes, np.uint16),
        _scales(a),
        _scales(b),
        np.ascontiguousarray(c),
        d,
        np.arange(depth),
        (int(a.format), int(b.format)),
        group,
        settings,
        clamp,
    )
    return d


def _scales(operand: Operand) -> npt.NDArray[np.uint8]:
    return np.empty((0, 0), np.uint8) if operand.scales is None else np.ascontiguousarray(operand.scales, np.uint8)


_MODULES = {"f32": "mfma_chain", "f64": "mfma_chain", "i8": "mfma_integers"}

for _name, _shape in SHAPES.items():
    _module = f"gfx950.arithmetic.{_MODULES.get(kind_of(_name), 'mfma_natives')}"
    declare(_name, _shape.input_registers, _shape.c_registers, f"{_module}:{_name}")
