"""Bits of arrays and tensors that must be equal, and the report of how they are not.

    assert_bits_equal(out, expected)                                    # -0 is not +0, NaN payloads count
    assert_bits_equal(codes, expected, format="e4m3fn", name="V", where=lambda i: f"page {i[0]} dim {i[1]}")

There is no tolerance. Arrays of numpy and ml_dtypes and tensors of torch compare with each other by the name of their
dtype; torch is known only where the caller has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gfx950.formats import FORMATS, Format, NanKind
from gfx950.terminal import columns, wrap
from golden.compare import PLAIN, Difference, compare, index_text, written

Codes = NDArray[np.unsignedinteger[Any]]
Where: TypeAlias = Callable[[tuple[int, ...]], str]

FORMAT_OF = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3fn", "float8_e5m2": "e5m2",
    "float8_e8m0fnu": "e8m0fnu", "float8_e4m3fnuz": "e4m3fnuz", "float8_e5m2fnuz": "e5m2fnuz",
    "float6_e2m3fn": "e2m3", "float6_e3m2fn": "e3m2", "float4_e2m1fn": "e2m1",
}  # fmt: skip
"""Formats of gfx950.formats by the names of dtypes; all other elements are plain bits."""

NANS = ("bits", "any")
PYTEST_MARGIN = 4  # columns that pytest writes before a line of a failure's message
_F64_INFINITY, _F64_SIGN = 0x7FF << 52, 1 << 63
_PARTS = ("real part", "imaginary part")


@dataclass(frozen=True, eq=False)
class Bits:
    """An array or tensor as bits. dtype: the name of an element's, without byte order. shape: of the array. codes: its
    elements, of complex ones real and imaginary part along an axis of their own. kind: the dtype of those."""

    dtype: str
    shape: tuple[int, ...]
    codes: Codes
    kind: str

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Unequal:
    """How two arrays differ. report: in lines. difference: the first one, None for unlike dtypes or shapes.
    report_if_written: the report where somebody is known to have written what differs first."""

    report: str
    difference: Difference | None = None
    report_if_written: str = ""


def assert_bits_equal(
    actual: object,
    expected: object,
    *,
    format: str | None = None,
    name: str = "result",
    where: Where | None = None,
    nan: Literal["bits", "any"] = "bits",
) -> None:
    """Raises AssertionError with a report unless dtype, shape and every bit of every element are equal.

    actual, expected: arrays of numpy (any strides; byte order is not compared), numpy scalars, tensors. format: what
    the elements are where the dtype does not say: a name of gfx950.formats for integers that hold its codes, one an
    element, or u8, u16, u32, u64 for plain bits of whatever has that width. name: of what is compared. where: tells in
    words where the element of an index is. nan: "any" lets a NaN stand for every other NaN.
    Raises TypeError for what has no bits to compare, ValueError for an unknown format or nan.
    """
    __tracebackhide__ = True
    found = unequal(actual, expected, format=format, name=name, where=where, nan=nan)
    if found is not None:
        raise AssertionError(found.report)


def unequal(
    actual: object,
    expected: object,
    *,
    format: str | None = None,
    name: str = "result",
    where: Where | None = None,
    nan: Literal["bits", "any"] = "bits",
    sides: tuple[str, str] = ("actual", "expected"),
    before: object = None,
    cause: str = "",
) -> Unequal | None:
    """How the two differ, None when they do not; parameters and errors of `assert_bits_equal`.

    sides: what the two are called. before: what `actual` held before it was written, for the likely cause. cause: why
    they differ, where that is known: said instead of a likely one.
    """
    if nan not in NANS:
        raise ValueError(f"nan is {nan!r}; it is 'bits', or 'any' to let a NaN stand for every other NaN")
    left, right = bits_of(sides[0], actual), bits_of(sides[1], expected)
    form = _format(format, left, right, sides)
    unlike = _unlike(left, right, format, sides)
    if unlike:
        return Unequal("\n".join(wrap(f"{name}: {unlike}", width=_width())))
    found = left.codes
    if nan == "any":
        found = np.where(_nans(found, left.kind, form) & _nans(right.codes, right.kind, form), right.codes, found)
    earlier = bits_of("before", before).codes if before is not None else None
    difference = compare(name, right.codes, found, form, earlier, sides[::-1])
    if difference is None:
        return None
    if cause:
        difference = replace(difference, pattern=cause)
    if form in PLAIN and format is None:
        difference = _as_numbers(difference, right.kind)
    said = [str(left), f"as {form}" if format is not None else "", "any NaN for any other" if nan == "any" else ""]
    what, element = ", ".join(filter(None, said)), _element(difference, left, where)
    reports = [_report(d, what, sides, element) for d in (difference, written(difference))]
    return Unequal(reports[0], difference, reports[1])


def _report(difference: Difference, what: str, sides: tuple[str, str], element: str) -> str:
    """The report of a difference. what: has been compared, and how."""
    lines = [
        f"{difference.output}: {difference.count} of {difference.total} elements differ in bits ({what})",
        *(f"  {line}" for line in difference_lines(difference, sides, element)),
    ]
    return "\n".join(part for line in lines for part in _wrapped(line))


def difference_lines(difference: Difference, sides: tuple[str, str], element: str = "") -> Iterator[str]:
    """A difference in lines. sides: what b and a are called, in this order. element: in words, what differs first."""
    yield f"first     {difference.output}{index_text(difference.index)}" + (f": {element}" if element else "")
    for side, shown in zip(sides, (difference.shown_b, difference.shown_a), strict=True):
        yield f"{side:<9} {shown}"
    if difference.ulps is not None:
        yield f"distance  {difference.ulps} ulp"
    if difference.where:
        yield f"all in    {difference.output}{difference.where}"
    if difference.pattern:
        yield f"pattern   {difference.pattern}"


def _width() -> int:
    return columns() - PYTEST_MARGIN


def _wrapped(line: str) -> list[str]:
    """A line no wider than what pytest leaves of the terminal; one that fits stays as it is."""
    if len(line) <= _width():
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    first, *rest = wrap(line.lstrip(), indent, _width() - len(indent))
    return [first, *(f"{indent}{part}" for part in rest)]


def _element(difference: Difference, bits: Bits, where: Where | None) -> str:
    """What the first differing element is."""
    dimensions = len(bits.shape)
    words = [_words(where, difference.index[:dimensions])] if where is not None else []
    words += [_PARTS[i] for i in difference.index[dimensions:]]
    return ", ".join(word for word in words if word)


def _words(where: Where, index: tuple[int, ...]) -> str:
    """What `where` says of an element; an error of it does not hide the difference."""
    try:
        said = where(index)
    except Exception as error:
        return f"(where raised {type(error).__name__}: {error})"
    return "" if said is None else str(said)


# ---- what is compared ------------------------------------------------------------------------------------------------


def bits_of(name: str, value: object) -> Bits:
    """The bits of an array or tensor. name: of the value, for errors. Raises TypeError for what has none."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor_bits(torch, name, value)
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, which has two arrays of bits: compare its data and its mask")
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(
            f"{name} is a {type(value).__name__}, whose bits nobody stated; expected an array of numpy or a tensor:"
            f" give it a dtype, as in np.asarray({name}, np.float32)"
        )
    array = np.asarray(value)
    dtype = array.dtype
    known = dtype.kind in "biufcmM" or dtype.type.__module__ == "ml_dtypes"
    if not known or dtype.itemsize // (1 + (dtype.kind == "c")) not in (1, 2, 4, 8):
        raise TypeError(
            f"{name} has dtype {dtype}; expected numbers of 1, 2, 4 or 8 bytes: view it as such, or compare its fields"
            " one by one"
        )
    native = array if dtype.isnative else array.byteswap().view(dtype.newbyteorder("="))
    return _bits(dtype.name, array.shape, np.ascontiguousarray(native).reshape(-1).view(np.uint8), dtype.itemsize)


def _tensor_bits(torch: Any, name: str, tensor: Any) -> Bits:
    """Of a tensor anywhere: what is on a device is copied from it."""
    plain = tensor.layout is torch.strided and not tensor.is_nested
    if not plain or tensor.is_quantized or tensor.device.type == "meta":
        what = "on the meta device" if tensor.device.type == "meta" else f"{tensor.dtype}, {tensor.layout}"
        raise TypeError(
            f"{name} is a tensor without plain bits ({what}); expected a dense one, which .to_dense() or"
            " .dequantize() gives"
        )
    here = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    dtype = str(tensor.dtype).removeprefix("torch.")
    return _bits(dtype, tuple(tensor.shape), here.view(torch.uint8).numpy(), tensor.element_size())


def _bits(dtype: str, shape: tuple[int, ...], data: NDArray[np.uint8], size: int) -> Bits:
    """Of contiguous bytes. size: of an element."""
    if not dtype.startswith("complex"):
        return Bits(dtype, shape, data.view(f"u{size}").reshape(shape), dtype)
    part = size // 2
    return Bits(dtype, shape, data.view(f"u{part}").reshape(*shape, 2), f"float{8 * part}")


def _format(stated: str | None, left: Bits, right: Bits, sides: tuple[str, str]) -> str:
    """The format to compare in. Raises ValueError for one that is not there, or that the elements cannot have."""
    size = 8 * right.codes.itemsize
    if stated is None:
        return FORMAT_OF.get(right.kind, f"u{size}")
    if not isinstance(stated, str) or stated not in (*FORMATS, *PLAIN):
        raise ValueError(f"there is no format {stated!r}; there are {', '.join((*FORMATS, *PLAIN))}")
    wanted = int(stated[1:]) if stated in PLAIN else 8 * FORMATS[stated].code_dtype.itemsize
    for side, bits in zip(sides, (left, right), strict=True):
        holds = stated in PLAIN or FORMAT_OF.get(bits.kind) == stated or bits.kind in (f"uint{wanted}", f"int{wanted}")
        if not holds or 8 * bits.codes.itemsize != wanted:
            raise ValueError(
                f"{side} has dtype {bits.dtype}, which cannot be {stated}: expected elements of {wanted} bits"
                + ("" if stated in PLAIN else f", integers with its codes or {_dtype_of(stated)}")
            )
    return stated


def _dtype_of(format: str) -> str:
    return next(dtype for dtype, name in FORMAT_OF.items() if name == format)


def _unlike(left: Bits, right: Bits, stated: str | None, sides: tuple[str, str]) -> str:
    """How dtypes and shapes differ; empty when they do not."""
    said = []
    if left.dtype != right.dtype and stated is None:
        said.append("other dtypes (nothing is converted; format= states what integers hold)")
    if left.shape != right.shape:
        said.append("other shapes (nothing is broadcast)")
    if not said:
        return ""
    return f"{' and '.join(said)}: {sides[0]} is {left}, {sides[1]} is {right}"


# ---- numbers that are no codes of a format ---------------------------------------------------------------------------


def _nans(codes: Codes, kind: str, form: str) -> NDArray[np.bool_]:
    known: Format | None = FORMATS.get(form)
    if known is not None and known.nan is not NanKind.none:
        return known.is_nan(codes)
    if kind == "float64":
        return np.asarray(codes & np.uint64(_F64_SIGN - 1) > np.uint64(_F64_INFINITY))
    return np.zeros(codes.shape, bool)


def _as_numbers(difference: Difference, kind: str) -> Difference:
    """The difference with its codes shown as the numbers they are."""
    shown_a, shown_b = (_shown(code, kind) for code in (difference.a, difference.b))
    if kind != "float64":
        return replace(difference, shown_a=shown_a or difference.shown_a, shown_b=shown_b or difference.shown_b)
    magnitudes = [code & (_F64_SIGN - 1) for code in (difference.a, difference.b)]
    a, b = (-m if code & _F64_SIGN else m for m, code in zip(magnitudes, (difference.a, difference.b), strict=True))
    ulps = abs(a - b) if max(magnitudes) <= _F64_INFINITY else None
    return replace(difference, shown_a=shown_a, shown_b=shown_b, ulps=ulps)


def _shown(code: int, kind: str) -> str:
    """One element for people; empty where numpy does not know its kind."""
    try:
        dtype = np.dtype(kind)
    except TypeError:  # a dtype of torch's or ml_dtypes' own
        return ""
    number = np.array(code, f"u{dtype.itemsize}").view(dtype)[()]
    digits = f"0x{code:0{2 * dtype.itemsize}x}"
    if kind != "float64":
        return f"{digits}  {number}"
    fields = f"{code >> 63}|{code >> 52 & 0x7FF:011b}|{code & (1 << 52) - 1:052b}"
    return f"{digits}  {fields}  {float(number)!r}"
