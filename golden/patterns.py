"""How arrays differ: likely causes, each of which must account for every bit that differs and every bit that does not.

A cause is named only when noise would hardly look like it: random elements must be unlikely, by `ENOUGH` bits, to
agree with it by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfx950.formats import FORMATS, Format

Array = NDArray[Any]
Change = Callable[[NDArray[Any], NDArray[Any], Format], NDArray[np.bool_]]
Numbers = NDArray[np.intp]
Place = Callable[[Numbers, Numbers], tuple[Numbers, Numbers]]

NOT_WRITTEN = ": not written"
"""How a pattern ends where an array looks as if nobody had written it; not to be said where a writer is known."""

BLOCK = 1 << 16  # elements looked at at once: most explanations fail in the first block
ENOUGH = 20  # bits that must speak for a cause
PROBE = 1 << 12  # differing elements that a move is tried on before the whole array
TILES = (4, 16, 32)  # of which matrix instructions are made
WINDOW = 24  # bytes by which a shift in memory is found
FARTHEST = 1 << 16  # bytes of a shift in memory
CANDIDATES = 8  # shifts that are tried


@dataclass(frozen=True)
class Differing:
    """What is looked at: unsigned codes of one shape with at least one axis, which of them differ, and their format
    (None for plain numbers). before: what `b` held before it was written, if that is known. sides: what `a` and `b` are
    called."""

    a: Array
    b: Array
    differs: NDArray[np.bool_]
    count: int
    form: Format | None
    before: Array | None = None
    sides: tuple[str, str] = ("the first", "the second")

    @property
    def bits(self) -> int:
        """Of one element."""
        return self.form.bits if self.form is not None else 8 * self.a.dtype.itemsize

    def speaks(self, free: int = 0, loose: int = 0) -> bool:
        """Whether so many elements are evidence enough. free: bits of the cause that were taken from the data. loose:
        bits of each element that the cause leaves open."""
        return self.count * (self.bits - loose) - free >= ENOUGH

    @cached_property
    def head(self) -> tuple[Array, Array]:
        """The first pairs that differ; most causes fail here."""
        start = int(self.differs.argmax())
        return self._of(slice(start, start + BLOCK))

    @cached_property
    def pairs(self) -> tuple[Array, Array]:
        """All pairs of codes that differ; of 8-bit codes each pair once."""
        starts = range(0, self.differs.size, BLOCK)
        if self.a.dtype.itemsize == 1 and self.count * 8 > self.differs.size:
            return _distinct(self.a.reshape(-1), self.b.reshape(-1))
        parts = [self._of(slice(start, start + BLOCK)) for start in starts]
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])

    def _of(self, part: slice) -> tuple[Array, Array]:
        here = np.flatnonzero(self.differs.reshape(-1)[part])
        return self.a.reshape(-1)[part][here], self.b.reshape(-1)[part][here]

    def all(self, holds: Callable[[Array, Array], Any]) -> bool:
        """Whether it holds for all pairs that differ."""
        if not np.all(holds(*self.head)):
            return False
        x, y = self.pairs
        parts = (slice(start, start + BLOCK) for start in range(0, x.size, BLOCK))
        return all(bool(np.all(holds(x[part], y[part]))) for part in parts)


def _distinct(a: Array, b: Array) -> tuple[Array, Array]:
    """The pairs of unlike bytes that occur."""
    seen = np.zeros(1 << 16, bool)
    for start in range(0, a.size, BLOCK):
        part = slice(start, start + BLOCK)
        seen[a[part].astype(np.uint16) << 8 | b[part]] = True
    pairs = np.flatnonzero(seen)
    x, y = (pairs >> 8).astype(np.uint8), (pairs & 0xFF).astype(np.uint8)
    return x[x != y], y[x != y]


def pattern(found: Differing) -> str:
    """A likely cause that accounts for every bit of `b`: `a` moved as a whole, or its elements changed one by one;
    empty when there is none. It ends in `NOT_WRITTEN` where `b` looks as if nobody had written it."""
    for look in (_moved, _inside, _shifted, _as_numbers, _as_bits):
        name = look(found)
        if name:
            return name
    return ""


# ---- elements in other places ----------------------------------------------------------------------------------------


def _moved(found: Differing) -> str:
    if not found.speaks(free=5):
        return ""
    flat = found.differs.reshape(-1)
    first = int(flat.argmax())
    probe = np.unravel_index((first + np.flatnonzero(flat[first : first + BLOCK]))[:PROBE], found.a.shape)
    shape = found.a.shape
    for name, tile in _tile_moves(shape):
        i, j = probe[-2], probe[-1]
        source = (*probe[:-2], i // tile * tile + j % tile, j // tile * tile + i % tile)
        if np.array_equal(found.a[source], found.b[probe]) and np.array_equal(_transposed(found.a, tile), found.b):
            return name
    for name, place in _reshaped(shape):
        if np.array_equal(found.a[(*probe[:-2], *place(*probe[-2:]))], found.b[probe]):
            i, j = place(*np.ogrid[: shape[-2], : shape[-1]])
            if np.array_equal(found.a[..., i, j], found.b):
                return name
    for name, axis, places in _axis_moves(shape):
        index = list(probe)
        index[axis] = places[probe[axis]]
        if np.array_equal(found.a[tuple(index)], found.b[probe]) and np.array_equal(
            np.take(found.a, places, axis), found.b
        ):
            return name
    return ""


def _axis_moves(shape: tuple[int, ...]) -> Iterator[tuple[str, int, NDArray[np.intp]]]:
    """Moves along one axis: a name, the axis, and the index that each index took its element from."""
    last, n = len(shape) - 1, shape[-1]
    index = np.arange(n)
    if n % 2 == 0 and n:
        half = n // 2
        yield "neighbours swapped", last, index ^ 1
        yield "halves swapped", last, (index + half) % n
        yield from ((f"groups of {m} swapped", last, index ^ m) for m in (2, 4, 8, 16, 32, 64) if n % (2 * m) == 0)
        yield "upper half repeats the lower", last, index % half
        yield "lower half repeats the upper", last, index % half + half
        yield "halves interleaved", last, index % 2 * half + index // 2
        yield "even and odd elements apart", last, index % half * 2 + index // half
    for axis, size in enumerate(shape):
        place = np.arange(size)
        for shift in (1, -1):
            rows = len(shape) == 2 and axis == 0
            name = f"rows moved by {shift}" if rows else f"moved by {shift} along axis {axis}"
            yield name, axis, (place - shift) % size
        yield f"reversed along axis {axis}", axis, place[::-1]
        if len(shape) > 1:
            yield f"all as the first along axis {axis}", axis, place * 0


def _tile_moves(shape: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """Transpositions of square tiles of the last two axes, and the rows of a tile; the first is of the whole."""
    if len(shape) < 2:
        return
    rows, columns = shape[-2:]
    if rows == columns:
        yield "transposed", rows
    for tile in TILES:
        if rows % tile == 0 and columns % tile == 0 and (rows, columns) != (tile, tile):
            yield f"each {tile}x{tile} tile transposed", tile


def _reshaped(shape: tuple[int, ...]) -> Iterator[tuple[str, Place]]:
    """Transpositions of the last two axes, not square, whose result has the shape it was made from: a name, and the row
    and column that each row and column took its element from."""
    if len(shape) < 2 or shape[-2] == shape[-1]:
        return
    rows, columns = shape[-2:]

    def written(i: Numbers, j: Numbers) -> tuple[Numbers, Numbers]:
        at = i * columns + j
        return at % rows, at // rows

    def read(i: Numbers, j: Numbers) -> tuple[Numbers, Numbers]:
        at = j * rows + i
        return at // columns, at % columns

    yield f"transposed: {columns}x{rows} in memory", written
    yield f"transposed: read as {columns}x{rows}", read


def _transposed(a: Array, tile: int) -> Array:
    rows, columns = a.shape[-2:]
    tiles = a.reshape(*a.shape[:-2], rows // tile, tile, columns // tile, tile)
    return np.swapaxes(tiles, -1, -3).reshape(a.shape)


def _inside(found: Differing) -> str:
    """Parts of each element in other places."""
    size = found.a.dtype.itemsize
    if not found.speaks(free=2):
        return ""
    names: dict[str, Callable[[Array], Array]]
    if size == 1:
        names = {"4-bit halves of each byte swapped": lambda x: x >> 4 | x << 4}
    else:
        half = 4 * size
        names = {
            "bytes of each element reversed": lambda x: x.byteswap(),
            f"{half}-bit halves of each element swapped": lambda x: x >> half | x << half,
            "bytes of each 16-bit half swapped": lambda x: x.byteswap() >> half | x.byteswap() << half,
        }
    for name, change in names.items():
        if found.all(partial(_is_changed, change)) and np.array_equal(change(found.a), found.b):
            return name
    return ""


def _is_changed(change: Callable[[Array], Array], x: Array, y: Array) -> NDArray[np.bool_]:
    return np.asarray(change(x) == y)


def _shifted(found: Differing) -> str:
    """The whole array at another place in memory; what came in at the end may be anything."""
    a, b = found.a.reshape(-1).view(np.uint8), found.b.reshape(-1).view(np.uint8)
    size = found.a.dtype.itemsize
    flat = found.differs.reshape(-1)
    first, last = int(flat.argmax()), flat.size - 1 - int(flat[::-1].argmax())
    middle = (first + last) // 2
    at = (middle + int(flat[middle:].argmax())) * size
    at = min(at, max(0, b.size - WINDOW))
    for shift in _candidates(a, b, at):
        if abs(shift) * 2 > a.size or (found.count - abs(shift) // size) * found.bits < ENOUGH + 17:
            continue
        same = np.array_equal(b[shift:], a[:-shift]) if shift > 0 else np.array_equal(b[:shift], a[-shift:])
        if same:
            return _shift_name(shift, size, found.a.shape)
    return ""


def _candidates(a: NDArray[np.uint8], b: NDArray[np.uint8], at: int) -> Iterator[int]:
    """By how many bytes the window of `b` may have moved, if `a` holds it."""
    window, low = b[at : at + WINDOW].tobytes(), max(0, at - FARTHEST)
    around = a[low : at + FARTHEST].tobytes()
    place = around.find(window)
    for _ in range(CANDIDATES):
        if place < 0:
            return
        if low + place != at:
            yield at - low - place
        place = around.find(window, place + 1)


def _shift_name(shift: int, size: int, shape: tuple[int, ...]) -> str:
    row = size * shape[-1]
    if len(shape) > 1 and shift % row == 0:
        return f"rows moved by {shift // row} in memory"
    if shift % size == 0:
        return f"moved by {shift // size} element{'s' * (abs(shift) != size)} in memory"
    return f"moved by {shift} byte{'s' * (abs(shift) != 1)} in memory"


# ---- elements with other values --------------------------------------------------------------------------------------


def _as_numbers(found: Differing) -> str:
    """Causes that speak of the format."""
    form = found.form
    if form is None:
        return ""
    for name, (explains, loose) in CHANGES.items():
        if name in (ONE_ULP, OTHER_FP8) and found.count >= 8 and _same_bits(found):
            continue  # the same bit in so many elements is no rounding, and no other bias of exponents
        if found.speaks(loose=loose(form)) and found.all(partial(_explained, explains, form)):
            return _of_sides(name, found, form)
    return _scaled(found, form)


def _explained(explains: Change, form: Format, x: Array, y: Array) -> NDArray[np.bool_]:
    return explains(x, y, form)


def _signs(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    return np.asarray((a ^ b) == form.sign_mask)


def _both_nan(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    return form.is_nan(a) & form.is_nan(b)


def _magnitudes(a: Array, b: Array, form: Format) -> tuple[Array, Array]:
    """Of each pair the smaller and the larger magnitude."""
    magnitudes = a & form.magnitude_mask, b & form.magnitude_mask
    return np.minimum(*magnitudes), np.maximum(*magnitudes)


def _flushed(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    """Whether one is subnormal where the other is a zero."""
    low, high = _magnitudes(a, b, form)
    return np.asarray((low == 0) & (high < 1 << form.mantissa_bits) & form.signed)


def _one_ulp(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    return np.asarray(form.ulp_distance(a, b) <= 1) & ~_both_nan(a, b, form)


def _other_fp8(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    """Whether `a` and `b` are the same values, one as OCP FP8 codes and one as the FNUZ codes of gfx942."""
    other = FORMATS.get(form.name.removesuffix("fn") + "fnuz")
    if other is None:
        return np.zeros(a.shape, bool)
    return np.asarray((form.decode(a) == other.decode(b)) | (other.decode(a) == form.decode(b)))


def _saturated(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    """Whether one is the largest number where the other is an infinity or a NaN, of one sign."""
    if not form.signed or form.max_code == form.magnitude_mask:
        return np.zeros(a.shape, bool)
    low, high = _magnitudes(a, b, form)
    return np.asarray((low == form.max_code) & (high > form.max_code) & ((a ^ b) & form.sign_mask == 0))


def _short(a: Array, b: Array, form: Format) -> NDArray[np.bool_]:
    """Whether `b` is what the upper half of `a` holds, rounded in some way."""
    if form.bits != 32:
        return np.zeros(a.shape, bool)
    return np.asarray((b & 0xFFFF == 0) & (form.ulp_distance(a, b) < 1 << 16) & ~form.is_nan(b))


ONE_ULP = "never more than one unit in the last place apart: another rounding"
FLUSHED = "zero where the other is subnormal: flushed"
OTHER_FP8 = "the codes of OCP FP8 against FNUZ"
SATURATED = "the largest number where the other overflows: saturated"
BF16 = "only the precision of bf16"

CHANGES: dict[str, tuple[Change, Callable[[Format], int]]] = {
    "only signs differ": (_signs, lambda form: 0),
    "both are NaN: only signs and payloads differ": (_both_nan, lambda form: form.mantissa_bits - form.exponent_bits),
    FLUSHED: (_flushed, lambda form: 2),
    OTHER_FP8: (_other_fp8, lambda form: 1),
    SATURATED: (_saturated, lambda form: 2),
    ONE_ULP: (_one_ulp, lambda form: 1),
    BF16: (_short, lambda form: 17),
}
"""Element-wise causes: which pairs of differing codes each accounts for, and how many bits it leaves open."""


def _of_sides(name: str, found: Differing, form: Format) -> str:
    """The cause with the side it is of, where it is of one: the one whose magnitudes are all the smaller ones. A
    rounding is by truncation where those are `b`'s."""
    if name == BF16:
        return f"{found.sides[1]} has {BF16}"
    smaller = _smaller(found, form, name == FLUSHED) if name in (FLUSHED, SATURATED, ONE_ULP) else None
    if smaller is None:
        return name
    this, other = found.sides[smaller], found.sides[1 - smaller]
    if name == FLUSHED:
        return f"zero in {this} where {other} is subnormal: flushed"
    if name == SATURATED:
        return f"the largest number in {this} where {other} overflows: saturated"
    if smaller and found.count >= ENOUGH:
        return f"{this} one unit in the last place nearer to zero in each: truncated"
    return name


def _smaller(found: Differing, form: Format, zeros: bool) -> int | None:
    """Which side, 0 or 1, has the smaller magnitude in every pair; None where neither has. zeros: but for two zeros."""
    mask = form.magnitude_mask

    def holds(smaller: Array, larger: Array) -> Any:
        low, high = smaller & mask, larger & mask
        return (low < high) | (low == high) & (low == 0) & zeros

    if found.all(lambda x, y: holds(y, x)):
        return 1
    return 0 if found.all(holds) else None


def _scaled(found: Differing, form: Format) -> str:
    """All exponents off by one number, as by a wrong scale."""
    if not form.signed or not found.speaks(free=form.exponent_bits, loose=1):
        return ""
    x, y = found.head
    step = int(y[0]) - int(x[0])
    by, rest = divmod(step, 1 << form.mantissa_bits)
    if rest or not by:
        return ""

    def holds(x: Array, y: Array) -> Any:
        exponents = [(v & form.magnitude_mask) >> form.mantissa_bits for v in (x, y)]
        normal = (exponents[0] > 0) & (exponents[1] > 0) & ~form.is_nan(x) & ~form.is_nan(y)
        return normal & ((x ^ y) & form.sign_mask == 0) & (y.astype(np.int64) - x == step)

    return f"{_times(by, found.sides)}: another scale" if found.all(holds) else ""


def _times(by: int, sides: tuple[str, str]) -> str:
    """That the second side is 2^by times the first, said of the larger one."""
    smaller, larger = sides if by > 0 else sides[::-1]
    factor = f"{1 << abs(by)}" if abs(by) <= 10 else f"2^{abs(by)}"
    return f"{larger} is {factor} times {smaller}"


def _as_bits(found: Differing) -> str:
    """Causes that speak of bits alone."""
    first, second = found.sides
    if found.before is not None and found.speaks() and _is_before(found):
        return f"{second} is what it was before{NOT_WRITTEN}"
    if found.speaks(free=1) and found.all(lambda x, y: y == 0):
        return f"zero in {second}{NOT_WRITTEN}"
    if found.speaks(free=1) and found.all(lambda x, y: x == 0):
        return f"zero in {first}{NOT_WRITTEN}"
    if found.speaks(free=found.bits):
        return _same_bits(found) or _same_value(found)
    return ""


def _is_before(found: Differing) -> bool:
    assert found.before is not None
    before = found.before.reshape(found.b.shape)
    return bool((before == found.b)[found.differs].all())


def _same_value(found: Differing) -> str:
    """`b` holds one value wherever it differs."""
    value = found.head[1][0]
    if not found.all(lambda x, y: y == value):
        return ""
    shown = found.form.show(int(value)) if found.form is not None else f"0x{int(value):x}"
    return f"{found.sides[1]} is {shown} in all of them"


def _same_bits(found: Differing) -> str:
    """The same bits are flipped wherever they differ."""
    x, y = found.head
    mask = int(x[0] ^ y[0])
    if not found.all(lambda x, y: x ^ y == mask):
        return ""
    if mask & (mask - 1):
        return f"the same bits are flipped in each: 0x{mask:x}"
    place = mask.bit_length() - 1
    for value in (0, 1):
        stuck = ((found.b >> place) & 1 == value).all()
        if stuck and found.count < found.b.size:
            return f"bit {place}{_part(place, found.form)} is {value} in each: stuck"
    return f"bit {place}{_part(place, found.form)} is flipped in each"


def _part(place: int, form: Format | None) -> str:
    """Which field of the format a bit is in."""
    if form is None:
        return ""
    if place < form.mantissa_bits:
        return " (mantissa)"
    return " (exponent)" if place < form.mantissa_bits + form.exponent_bits else " (sign)"
