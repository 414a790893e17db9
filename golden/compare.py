"""Comparing bits: the first difference, both patterns in the array's own format, and how they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfx950.formats import FORMATS, Format

Array = NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """Where two arrays of one shape differ first. count: how many elements differ. a, b: their codes. byte: the offset
    of the element in the array. pattern: how the difference looks over the whole array, when it has a simple cause."""

    output: str
    index: tuple[int, ...]
    count: int
    total: int
    a: int
    b: int
    byte: int
    shown_a: str
    shown_b: str
    ulps: int | None
    pattern: str


def compare(output: str, a: Array, b: Array, format_name: str) -> Difference | None:
    """None where all bits agree (-0 is not +0, NaN payloads count). Raises ValueError for unlike shapes or dtypes."""
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(
            f"{output}: {a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)}: only equal shapes and dtypes compare"
        )
    left, right = _codes(a), _codes(b)
    differs = left != right
    count = int(differs.sum())
    if count == 0:
        return None
    flat = int(np.flatnonzero(differs.reshape(-1))[0])
    index = tuple(int(i) for i in np.unravel_index(flat, a.shape))
    x, y = int(left.reshape(-1)[flat]), int(right.reshape(-1)[flat])
    form = FORMATS.get(format_name)
    return Difference(
        output=output,
        index=index,
        count=count,
        total=a.size,
        a=x,
        b=y,
        byte=flat * a.dtype.itemsize,
        shown_a=_show(x, form, a.dtype.itemsize),
        shown_b=_show(y, form, a.dtype.itemsize),
        ulps=_ulps(x, y, form),
        pattern=describe_pattern(left, right, form),
    )


def _codes(array: Array) -> Array:
    return np.ascontiguousarray(array).view(
        {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize]
    )


def _show(code: int, form: Format | None, nbytes: int) -> str:
    return form.show(code) if form is not None else f"0x{code:0{2 * nbytes}x}"


def _ulps(a: int, b: int, form: Format | None) -> int | None:
    if (
        form is None
        or bool(form.is_nan(np.array([a], form.code_dtype))[0])
        or bool(form.is_nan(np.array([b], form.code_dtype))[0])
    ):
        return None
    return int(form.ulp_distance(np.array([a], form.code_dtype), np.array([b], form.code_dtype))[0])


def describe_pattern(a: Array, b: Array, form: Format | None) -> str:
    """A likely cause, from simple transformations of the whole array; empty when none fits."""
    if a.ndim >= 2 and a.shape[-1] == a.shape[-2] and np.array_equal(np.swapaxes(a, -1, -2), b):
        return "transposed"
    for shift in (1, -1):
        if a.ndim >= 2 and a.shape[0] > 1 and np.array_equal(np.roll(a, shift, axis=0), b):
            return f"rows moved by {shift}"
    if form is not None and np.array_equal(
        a & a.dtype.type(form.magnitude_mask), b & b.dtype.type(form.magnitude_mask)
    ):
        return "only signs differ"
    if form is not None and _all_one_ulp(a, b, form):
        return "never more than one unit in the last place apart: another rounding"
    if a.shape[-1] % 2 == 0 and np.array_equal(a.reshape(-1, 2)[:, ::-1].reshape(a.shape), b):
        return "neighbours swapped"
    return ""


def _all_one_ulp(a: Array, b: Array, form: Format) -> bool:
    differs = a != b
    if form.is_nan(a[differs]).any() or form.is_nan(b[differs]).any():
        return False
    return bool((form.ulp_distance(a[differs], b[differs]) <= 1).all())
