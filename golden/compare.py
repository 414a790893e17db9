"""Comparing bits: the first difference, both patterns in the array's own format, and how they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfx950.formats import FORMATS, Format

Array = NDArray[Any]

PLAIN = ("u8", "u16", "u32", "u64")
"""Formats of arrays that hold no floating-point codes."""

BLOCK = 1 << 16  # elements looked at at once: most explanations fail in the first block


@dataclass(frozen=True)
class Difference:
    """Where two arrays of one shape differ first.

    index: the first differing element in C order. count, total: how many elements differ, of how many. a, b: the two
    codes; shown_a, shown_b: the same for people. byte: offset in the array of the first differing byte of the element.
    ulps: how many representable values apart, None for NaNs and for plain numbers. where: the part of the array that
    holds all differences, empty when it is the whole array or one element. pattern: a likely cause of all differences,
    empty when none is known and for one element, whose bits say it all.
    """

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
    where: str
    pattern: str


def compare(output: str, a: Array, b: Array, format_name: str) -> Difference | None:
    """None where all bits agree (-0 is not +0, NaN payloads count).

    format_name: of gfx950.formats, or one of PLAIN. Raises ValueError for an unknown format and for unlike shapes or
    dtypes.
    """
    if format_name not in FORMATS and format_name not in PLAIN:
        raise ValueError(f"{output}: there is no format {format_name!r}; there are {', '.join((*FORMATS, *PLAIN))}")
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(
            f"{output}: {a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)}: only equal shapes and dtypes compare"
        )
    left, right = _codes(output, a), _codes(output, b)
    differs = left != right
    count = int(np.count_nonzero(differs))
    if count == 0:
        return None
    flat = int(differs.argmax())
    x, y = int(left.flat[flat]), int(right.flat[flat])
    form = _format(format_name, left, right)
    return Difference(
        output=output,
        index=tuple(int(i) for i in np.unravel_index(flat, a.shape)),
        count=count,
        total=a.size,
        a=x,
        b=y,
        byte=flat * a.dtype.itemsize + _first_byte(x ^ y),
        shown_a=_show(x, form, a.dtype.itemsize),
        shown_b=_show(y, form, a.dtype.itemsize),
        ulps=_ulps(x, y, form),
        where=_where(differs) if count > 1 else "",
        pattern=_pattern(left, right, differs, form) if count > 1 else "",
    )


def _codes(output: str, array: Array) -> Array:
    """The bits of each element, as an unsigned array of the same shape (one element where that is ())."""
    size = array.dtype.itemsize
    if size not in (1, 2, 4, 8):
        raise ValueError(f"{output}: {array.dtype} has {size} bytes an element; only 1, 2, 4 and 8 compare")
    return np.ascontiguousarray(array).view(f"u{size}")


def _format(name: str, a: Array, b: Array) -> Format | None:
    """The format, when all elements are codes of it: bits beyond a narrow code differ too, but mean nothing in it."""
    form = FORMATS.get(name)
    if form is None or form.code_dtype != a.dtype or max(int(a.max()), int(b.max())) >> form.bits:
        return None
    return form


def _first_byte(difference: int) -> int:
    """The lowest byte that differs, given the exclusive or of two codes; elements lie in memory lowest byte first."""
    return ((difference & -difference).bit_length() - 1) // 8


def _show(code: int, form: Format | None, nbytes: int) -> str:
    return form.show(code) if form is not None else f"0x{code:0{2 * nbytes}x}  {code}"


def _ulps(a: int, b: int, form: Format | None) -> int | None:
    if form is None or form.is_nan([a, b]).any():
        return None
    return int(form.ulp_distance(a, b))


def _where(differs: NDArray[np.bool_]) -> str:
    """The indices that hold differences, an axis in brackets each, `*` for all of it; empty for the whole array."""
    used = []
    for axis in range(differs.ndim):
        others = tuple(i for i in range(differs.ndim) if i != axis)
        used.append(np.flatnonzero(differs.any(axis=others)))
    if [len(indices) for indices in used] == list(differs.shape):
        return ""
    return "".join(f"[{_indices(*pair)}]" for pair in zip(used, differs.shape, strict=True))


def _indices(used: NDArray[np.intp], size: int) -> str:
    first, last = int(used[0]), int(used[-1])
    if first == last:
        return f"{first}"
    if len(used) == size:
        return "*"
    steps = np.unique(np.diff(used))
    step = int(steps[0]) if len(steps) == 1 else 1
    return f"{first}..{last}" + (f" by {step}" if step > 1 else "")


def _pattern(a: Array, b: Array, differs: NDArray[np.bool_], form: Format | None) -> str:
    """A likely cause that accounts for every bit of `b`, the array moved as a whole or its elements changed one by one;
    empty when there is none."""
    flat = differs.reshape(-1)
    first = int(flat.argmax())
    probe = np.unravel_index(first + np.flatnonzero(flat[first : first + BLOCK]), a.shape)
    for name, move in _moves(a):
        view = move()
        if np.array_equal(view[probe], b[probe]) and np.array_equal(view, b):
            return name
    if form is None:
        return ""
    for name, explains in CHANGES.items():
        if all(bool(explains(x, y, form).all()) for x, y in _differing(a, b, flat)):
            return name
    return ""


def _differing(a: Array, b: Array, differs: NDArray[np.bool_]) -> Iterator[tuple[Array, Array]]:
    """The codes that differ, block by block."""
    for start in range(0, differs.size, BLOCK):
        part = slice(start, start + BLOCK)
        here = differs[part]
        yield a.reshape(-1)[part][here], b.reshape(-1)[part][here]


def _moves(a: Array) -> Iterator[tuple[str, Callable[[], Array]]]:
    """Names of places the elements may have gone to, with the array as it then looks."""
    if a.ndim >= 2 and a.shape[-1] == a.shape[-2]:
        yield "transposed", lambda: np.swapaxes(a, -1, -2)
    if a.shape[-1] % 2 == 0:
        yield "neighbours swapped", lambda: a.reshape(*a.shape[:-1], -1, 2)[..., ::-1].reshape(a.shape)
        yield "halves swapped", partial(np.roll, a, a.shape[-1] // 2, -1)
    for axis in range(a.ndim):
        for shift in (1, -1):
            name = f"rows moved by {shift}" if a.ndim == 2 and axis == 0 else f"moved by {shift} along axis {axis}"
            yield name, partial(np.roll, a, shift, axis)
    if a.dtype.itemsize > 1:
        yield "bytes of each element reversed", lambda: a.byteswap()


def _signs(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    return np.asarray((a ^ b) == form.sign_mask)


def _both_nan(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    return form.is_nan(a) & form.is_nan(b)


def _flushed(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    """Whether one is subnormal where the other is a zero."""
    low, high = (f(a & form.magnitude_mask, b & form.magnitude_mask) for f in (np.minimum, np.maximum))
    return np.asarray((low == 0) & (high < 1 << form.mantissa_bits) & form.signed)


def _one_ulp(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    return np.asarray(form.ulp_distance(a, b) <= 1) & ~_both_nan(a, b, form)


def _other_fp8(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    """Whether `a` and `b` are the same values, one as OCP FP8 codes and one as the FNUZ codes of gfx942."""
    other = FORMATS.get(form.name.removesuffix("fn") + "fnuz")
    if other is None:
        return np.zeros(a.shape, bool)
    return np.asarray((form.decode(a) == other.decode(b)) | (other.decode(a) == form.decode(b)))


CHANGES: dict[str, Callable[[Array, Array, Format], NDArray[np.bool_]]] = {
    "only signs differ": _signs,
    "both are NaN: only signs and payloads differ": _both_nan,
    "zero where the other is subnormal: flushed": _flushed,
    "the codes of OCP FP8 against FNUZ": _other_fp8,
    "never more than one unit in the last place apart: another rounding": _one_ulp,
}
"""Element-wise causes: which pairs of differing codes each accounts for."""
