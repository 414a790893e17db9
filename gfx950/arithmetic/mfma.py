"""Matrix arithmetic: the rule that decides the bits of products of at most 16-bit floats, its open questions as named
switches, and the natives of all matrix instructions.

No public rule of CDNA4's matrix arithmetic exists. The default is the rule measured on CDNA3 (gfx942) with gfx950's
shapes and formats; whatever that leaves open is a switch (`mfma_switches`) and a field of `MfmaModel`, so that a
capture from a real device can decide it. `evaluate` runs any model; so do the natives in
`gfx950.arithmetic.native.NATIVES`, where the model in force is none that they have fast code for.

One output element is a chain over groups of k: each group's rounded f32 result is the C of the next. A group of L
products with C, the default's directions in parentheses:
 a. zero products are dropped; a product's exponent is the sum of its factors' exponents (a subnormal has the smallest
     normal exponent), e_dot the largest.
 b. every product is cut (toward zero) `product_bits` below e_dot and the cut products are summed exactly.
 c. with a split, a and b run on either part alone, and the part sums are cut (down) to `product_bits` below the larger
     e_dot.
 d. e_max = max(e_dot, e_C); the sum is cut (down) `dot_bits` below e_max, C (down) `c_bits` below it (and dropped more
     than `c_window` below).
 e. their sum is cut (down) `sum_bits` below its own exponent.
 f. that is rounded to f32 (nearest even) with gradual underflow; an exact zero is +0.
With the method `exact`, the exact sum of the products and C goes to f at once. A subnormal that is flushed becomes the
zero of its sign: elements before a, C before d, the result after f.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gfx950.arithmetic.mfma_models import (
    CDNA3,
    DEFAULT,
    ELEMENTS,
    EXACT,
    FIELD_BITS,
    FMA_CHAIN,
    XF32_RULE,
    Format,
    MfmaModel,
    format_class,
    mfma_class,
)
from gfx950.arithmetic.mfma_numbers import WIDE_WORDS, WORK_WORDS, ProductNumbers, native_numbers
from gfx950.arithmetic.mfma_shapes import SHAPES, kind_of
from gfx950.arithmetic.mfma_switches import (
    NO_CUT,
    NO_WINDOW,
    ChainInputs,
    Direction,
    GroupOrder,
    GroupRule,
    IntegerOverflow,
    Method,
    MixedFormats,
    NanRule,
    Order,
    ScaleEntry,
    SparseOrder,
    Split,
    Subnormals,
    ZeroSign,
)
from gfx950.arithmetic.native import NATIVES, Native, add_host_function, enter, function_address
from gfx950.models import Model

__all__ = [
    "CDNA3",
    "DEFAULT",
    "ELEMENTS",
    "EXACT",
    "F64_NAN",
    "FIELD_BITS",
    "FMA_CHAIN",
    "NATIVES",
    "NO_CUT",
    "NO_WINDOW",
    "ChainInputs",
    "Direction",
    "Format",
    "GroupOrder",
    "GroupRule",
    "IntegerOverflow",
    "Method",
    "MfmaModel",
    "MixedFormats",
    "NanRule",
    "Operand",
    "Order",
    "ScaleEntry",
    "SparseOrder",
    "Split",
    "Subnormals",
    "ZeroSign",
    "evaluate",
    "mfma_class",
    "multiply",
    "pack_parameters",
]

Words = npt.NDArray[np.uint32]
F64_NAN = 0x7FF8000000000000  # of f64 NaN results where nan_bits is 0x7FC00000


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
    """What the native `name` gives under any model, by the general rule: the reference of the fast natives.

    inputs: uint32 (..., n_in, 64). Returns uint32 (..., n_out, 64). Raises ValueError for an unknown name, shape or
    format pair.
    """
    if name not in SHAPES:
        raise ValueError(f"no MFMA native {name!r}; there are {', '.join(SHAPES)}")
    if inputs.shape[-2:] != (NATIVES[name].n_in, 64):
        raise ValueError(f"{name} takes inputs of shape ({NATIVES[name].n_in}, 64), got {inputs.shape}")
    _check_formats(name, Format(parameters & 7), Format(parameters >> 3 & 7))
    return _general_native(name, native_numbers(name, model))(inputs, parameters)


# ---- Natives ---------------------------------------------------------------------------------------------------------

_GENERAL = {"f32": "mfma_chain_rule:run_singles", "f64": "mfma_chain_rule:run_doubles"}
_GENERAL |= {"i8": "mfma_chain_rule:run_integers"}
_KINDS = ("words", "words", "number", "numbers", "integers", "numbers")
_MODEL_NATIVE = """
@numbers = private constant [{count} x i64] [{numbers}]
define void @{symbol}(ptr %inputs, ptr %outputs, i64 %parameters) {{
  %work = alloca [{work} x i32], align 64
  %wide = alloca [{wide} x i64], align 64
  %function = inttoptr i64 {address} to ptr
  call void %function(ptr %inputs, ptr %outputs, i64 %parameters, ptr @numbers, ptr %work, ptr %wide)
  ret void
}}
"""
_MODEL_LOOP = f"""
define void @run_mfma_items(ptr %function, ptr %numbers, ptr %inputs, ptr %outputs, i64 %count, i64 %in, i64 %out,
                            i64 %parameters) {{
entry:
  %work = alloca [{WORK_WORDS} x i32], align 64
  %wide = alloca [{WIDE_WORDS} x i64], align 64
  %none = icmp eq i64 %count, 0
  br i1 %none, label %done, label %item
item:
  %i = phi i64 [ 0, %entry ], [ %next, %item ]
  %from = phi ptr [ %inputs, %entry ], [ %from.next, %item ]
  %to = phi ptr [ %outputs, %entry ], [ %to.next, %item ]
  call void %function(ptr %from, ptr %to, i64 %parameters, ptr %numbers, ptr %work, ptr %wide)
  %from.next = getelementptr i8, ptr %from, i64 %in
  %to.next = getelementptr i8, ptr %to, i64 %out
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %item, label %done
done:
  ret void
}}
"""


@functools.cache
def _model_loop() -> Callable[..., None]:
    """The loop that runs a general native over many items, so that Python needs no code of a model's own."""
    kinds = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 4
    return ctypes.CFUNCTYPE(None, *kinds)(add_host_function(_MODEL_LOOP, "run_mfma_items", kept=True))


def _general_address(name: str) -> int:
    """The function that runs a native from numbers; compiled once for all shapes of its kind."""
    body = _GENERAL.get(kind_of(name), "mfma_rule:run_sparse" if SHAPES[name].sparse else "mfma_rule:run_groups")
    return function_address(f"gfx950.arithmetic.{body}", _KINDS)


class GeneralNative(Native):
    """A matrix native under a model of which it knows the numbers (`mfma_numbers`)."""

    kept = False

    def __init__(self, name: str, numbers: tuple[int, ...]) -> None:
        shape = SHAPES[name]
        super().__init__(name, shape.input_registers, shape.c_registers, "")
        self.numbers = np.array(numbers, np.int64)

    @functools.cached_property
    def address(self) -> int:
        """The address of the host function, valid for the life of the process."""
        symbol = f"mfma_general_{next(_COUNT)}"
        listed = ", ".join(f"i64 {number}" for number in self.numbers)
        sizes = {"count": len(self.numbers), "work": WORK_WORDS, "wide": WIDE_WORDS}
        text = _MODEL_NATIVE.format(symbol=symbol, numbers=listed, address=_general_address(self.name), **sizes)
        return add_host_function(text, symbol)

    def under(self, model: Model) -> Native:
        """The native of this name under another model."""
        return NATIVES[self.name].under(model)

    def _run_items(self, inputs: Words, outputs: Words, count: int, parameters: int) -> None:
        addresses = _general_address(self.name), *(x.ctypes.data for x in (self.numbers, inputs, outputs))
        _model_loop()(*addresses, count, self.n_in * 256, self.n_out * 256, parameters)


_COUNT = itertools.count()
_general_native = functools.cache(GeneralNative)


class MatrixNative(Native):
    """The fast native of the default model, which a general one stands for under others."""

    def __init__(self, name: str) -> None:
        shape = SHAPES[name]
        module = f"gfx950.arithmetic.{_MODULES.get(kind_of(name), 'mfma_natives')}"
        super().__init__(name, shape.input_registers, shape.c_registers, f"{module}:{name}")
        self._default = native_numbers(name, DEFAULT)
        self._found: dict[str, Native] = {}

    def under(self, model: Model) -> Native:
        """Itself where the model's answers are the default's in all that this native reads."""
        if model.digest not in self._found:
            numbers = native_numbers(self.name, MfmaModel.of(model))
            self._found[model.digest] = self if numbers == self._default else _general_native(self.name, numbers)
        return self._found[model.digest]


_MODULES = {"f32": "mfma_chain", "f64": "mfma_chain", "i8": "mfma_integers"}

for _name in SHAPES:
    enter(MatrixNative(_name))


# ---- Matrices of codes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operand:
    """A matrix of element codes: (rows, K), one code an element; B is given transposed. scales: E8M0 bytes
    (rows, K / 32) or none. Codes of xf32 are f32 bits, of which the upper 19 count."""

    codes: npt.NDArray[np.unsignedinteger[Any]]
    format: Format
    scales: npt.NDArray[np.uint8] | None = None


def multiply(
    a: Operand, b: Operand, c: Words, model: MfmaModel = DEFAULT, *, clamp: bool = False, class_: str | None = None
) -> Words:
    """D = A B + C on element codes, free of register layouts and of shapes, groups in ascending k.

    c, D: f32 bits (M, N). Both operands have scales or neither. K must be a multiple of the group length or less than
    it. class_: whose group step is taken; else that of the formats: half, byte or small (xf32 has its own). Raises
    ValueError where the sizes do not fit together.
    """
    rows, depth = a.codes.shape
    columns = len(b.codes)
    if (a.scales is None) != (b.scales is None):
        raise ValueError("one operand has scales and the other none; give scales of 127 for 1.0")
    if b.codes.shape[1] != depth or c.shape != (rows, columns):
        raise ValueError(f"A {a.codes.shape}, B transposed {b.codes.shape} and C {c.shape} do not fit together")
    group = XF32_RULE
    if Format.xf32 not in (a.format, b.format):
        group = getattr(model, class_ or format_class(a.format, b.format, model))
    if depth > group.length and depth % group.length:
        raise ValueError(f"K = {depth} is no multiple of the group length {group.length}")
    scaled = a.scales is not None
    if scaled and any(x.scales is None or x.scales.shape != (len(x.codes), depth // 32) for x in (a, b)):
        raise ValueError(f"scales must be (rows, K / 32), {depth // 32} a row: one for every 32 of K")
    block_sum = scaled and model.scale_entry is ScaleEntry.block_sum
    numbers = (a.format, b.format, scaled, clamp, block_sum, model.nan, model.nan_bits)
    product = ProductNumbers(rows, columns, depth, *map(int, numbers))
    return _multiply_codes(a, b, np.ascontiguousarray(c, np.uint32), np.array((*product, *group), np.int64))


def _multiply_codes(a: Operand, b: Operand, c: Words, numbers: npt.NDArray[np.int64]) -> Words:
    depth, d = a.codes.shape[1], np.empty(c.shape, np.uint32)
    scales = [x.scales.astype(np.int32).ravel() - 127 for x in (a, b) if x.scales is not None]
    work = np.concatenate([*scales, np.empty(5 * sum(c.shape) * depth + 256, np.int32)], dtype=np.int32)
    wide = np.empty(WIDE_WORDS, np.int64)
    codes = [np.ascontiguousarray(x.codes >> (13 if x.format is Format.xf32 else 0), np.int32) for x in (a, b)]
    arrays: list[npt.NDArray[Any]] = [*codes, c, d, numbers, work, wide]
    _codes_function()(*(array.ctypes.data for array in arrays))
    return d


@functools.cache
def _codes_function() -> Callable[..., None]:
    kinds = ("integers", "integers", "words", "words", "numbers", "integers", "numbers")
    address = function_address("gfx950.arithmetic.mfma_rule:multiply_codes", kinds)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(kinds))(address)
