"""Comparing bits: the first difference, both patterns in the array's own format, and how they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfx950.formats import FORMATS, Format
from golden.patterns import NOT_WRITTEN, Differing, pattern

Array = NDArray[Any]

PLAIN = ("u8", "u16", "u32", "u64")
"""Formats of arrays that hold no floating-point codes."""

CHUNK = 1 << 20  # bytes compared at once: they stay in the cache


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


def compare(
    output: str,
    a: Array,
    b: Array,
    format_name: str,
    before: Array | None = None,
    sides: tuple[str, str] = ("the first", "the second"),
) -> Difference | None:
    """None where all bits agree (-0 is not +0, NaN payloads count).

    format_name: of gfx950.formats, or one of PLAIN. before: what `b` held before it was written, and sides: what `a`
    and `b` are called, for the pattern. Raises ValueError for an unknown format and for unlike shapes or dtypes.
    """
    if format_name not in FORMATS and format_name not in PLAIN:
        raise ValueError(f"{output}: there is no format {format_name!r}; there are {', '.join((*FORMATS, *PLAIN))}")
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(
            f"{output}: {a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)}: only equal shapes and dtypes compare"
        )
    left, right = _codes(output, a), _codes(output, b)
    if _same_bytes(left, right):
        return None
    differs = left != right
    count = int(np.count_nonzero(differs))
    flat = int(differs.argmax())
    x, y = int(left.flat[flat]), int(right.flat[flat])
    form = format_of(format_name, left, right)
    return Difference(
        output=output,
        index=tuple(int(i) for i in np.unravel_index(flat, a.shape)),
        count=count,
        total=a.size,
        a=x,
        b=y,
        byte=flat * a.dtype.itemsize + _first_byte(x ^ y),
        shown_a=code_text(x, form, a.dtype.itemsize),
        shown_b=code_text(y, form, a.dtype.itemsize),
        ulps=ulps_between(x, y, form),
        where=_where(differs) if count > 1 else "",
        pattern=pattern(Differing(left, right, differs, count, form, _before(output, before, left), sides))
        if count > 1
        else "",
    )


def index_text(index: Sequence[int]) -> str:
    """`[2][3]`."""
    return "".join(f"[{i}]" for i in index)


def written(difference: Difference) -> Difference:
    """The difference where somebody is known to have written its element: its pattern does not say that nobody did."""
    return replace(difference, pattern=difference.pattern.removesuffix(NOT_WRITTEN))


def _same_bytes(a: Array, b: Array) -> bool:
    """Whether all bytes agree: chunk by chunk, so that nothing of the arrays' size is made."""
    wide = "u8" if a.nbytes % 8 == 0 else "u1"
    left, right = a.reshape(-1).view(wide), b.reshape(-1).view(wide)
    step = CHUNK // left.dtype.itemsize
    return all(np.array_equal(left[i : i + step], right[i : i + step]) for i in range(0, left.size, step))


def _before(output: str, before: Array | None, codes: Array) -> Array | None:
    """What was there before as codes, where it has the bytes of the others."""
    if before is None or before.nbytes != codes.nbytes or before.dtype.itemsize not in (1, 2, 4, 8):
        return None
    return _codes(output, before).reshape(-1).view(codes.dtype).reshape(codes.shape)


def _codes(output: str, array: Array) -> Array:
    """The bits of each element, as an unsigned array of the same shape (one element where that is ())."""
    size = array.dtype.itemsize
    if size not in (1, 2, 4, 8):
        raise ValueError(f"{output}: {array.dtype} has {size} bytes an element; only 1, 2, 4 and 8 compare")
    return np.ascontiguousarray(array).view(f"u{size}")


def format_of(name: str, a: Array, b: Array) -> Format | None:
    """The format, when all elements are codes of it: bits beyond a narrow code differ too, but mean nothing in it."""
    form = FORMATS.get(name)
    if form is None or form.code_dtype != a.dtype:
        return None
    fits = form.bits == 8 * a.dtype.itemsize or not max(int(a.max()), int(b.max())) >> form.bits
    return form if fits else None


def _first_byte(difference: int) -> int:
    """The lowest byte that differs, given the exclusive or of two codes; elements lie in memory lowest byte first."""
    return ((difference & -difference).bit_length() - 1) // 8


def code_text(code: int, form: Format | None, nbytes: int) -> str:
    """A code for people. nbytes: of an element."""
    return form.show(code) if form is not None else f"0x{code:0{2 * nbytes}x}  {code}"


def ulps_between(a: int, b: int, form: Format | None) -> int | None:
    """How many representable values two codes are apart; None for NaNs and for plain numbers."""
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
