"""Prints lane values: 64 lanes in rows no wider than the terminal, the raw hex beside what it means."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from emu.interactive import FORMATS, to_words
from gfx950 import terminal
from gfx950.formats import Format
from gfx950.lanes import LANES, Float, Lanes, Mask, Signed, Words

GAP = "   "
LABEL = 3  # columns of a lane's number


@dataclass(frozen=True)
class Meaning:
    """How bits are read. bits: of one value, 0 for the raw hex alone. text: of one code."""

    name: str
    bits: int
    text: Callable[[int], str]


def show(value: Lanes | Words, as_: str | None = None, count: int = LANES, width: int | None = None) -> None:
    """Prints the first `count` lanes of a value: the raw hex of its registers, then what it means, low bits first.

    as_: hex, u8 .. u64, i8 .. i64, f64, or a format: f32, f16, bf16, fp8, bf8, fp6, bf6, fp4, e8m0. Without it the
    value's own type. width: columns; the terminal's (80 when it is none) if not given. Raises ValueError for an unknown
    name, and where values end inside a register (fp6 wants 96 bits or a multiple).

    >>> from emu import lanes, show
    >>> show(lanes([1.0, 2.0, -0.5, 448.0], "fp8"), "fp8", count=4)
    U32 as fp8, low bits first
     0 7eb04038    1.0   2.0  -0.5 448.0    1 7eb04038    1.0   2.0  -0.5 448.0
     2 7eb04038    1.0   2.0  -0.5 448.0    3 7eb04038    1.0   2.0  -0.5 448.0
    """
    print("\n".join(shown(value, as_, count, width)))


def shown(value: Lanes | Words, as_: str | None = None, count: int = LANES, width: int | None = None) -> Iterator[str]:
    """The lines that `show` prints."""
    room = width or terminal.columns()
    if isinstance(value, Mask):
        yield from _mask_lines(value, room)
        return
    if not isinstance(value, Lanes | Words):
        raise TypeError(f"show takes one lane value, got {type(value).__name__}: wrap numbers with u32(..) or f32(..)")
    chosen = meaning(as_ or own_meaning(value))
    total = 32 * value.count if isinstance(value, Words) else value.width
    if chosen.bits and total % chosen.bits:
        raise ValueError(
            f"{total} bits are no whole number of {chosen.name} values ({chosen.bits} bits); show a longer run"
        )
    rows = [_row([int(word) for word in column], total, chosen) for column in to_words(value).T[:count]]
    order = ", low bits first" if total > chosen.bits > 0 else ""
    yield f"{type(value).__name__} as {chosen.name}{order}"
    yield from _lines(rows, room)


def own_meaning(value: Lanes | Words) -> str:
    """How a value is read when nothing is said: floats and signed integers as such, everything else as hex."""
    if isinstance(value, Float):
        return f"f{value.width}"
    return f"i{value.width}" if isinstance(value, Signed) else "hex"


def meaning(name: str) -> Meaning:
    """The reading of that name. Raises ValueError that lists the names."""
    if name == "hex":
        return Meaning(name, 0, str)
    if name in FORMATS:
        form = FORMATS[name]
        return Meaning(name, form.bits, lambda code: _float_text(form, code))
    if name == "f64":
        return Meaning(name, 64, lambda code: str(np.uint64(code).view(np.float64)))
    if name[:1] in ("u", "i") and name[1:] in ("8", "16", "32", "64"):
        bits = int(name[1:])
        signed = name[0] == "i"
        return Meaning(name, bits, lambda code: str(code - (1 << bits) if signed and code >> bits - 1 else code))
    known = ["hex", *(f"{sign}{bits}" for sign in "ui" for bits in (8, 16, 32, 64)), "f64", *FORMATS]
    raise ValueError(f"values cannot be shown as {name!r}; there are: {', '.join(known)}")


def _float_text(form: Format, code: int) -> str:
    """The shortest decimal that means this code in f32 (f16: in f16); the formats' values all fit f32."""
    kind = np.float16 if form.name == "f16" else np.float32
    with np.errstate(over="ignore"):
        return str(kind(float(form.decode(code))))


@dataclass(frozen=True)
class _Row:
    """One lane: its registers in hex, and its values."""

    raw: list[str]
    values: list[str]


def _row(words: list[int], total: int, chosen: Meaning) -> _Row:
    whole = sum(word << 32 * i for i, word in enumerate(words))
    if total <= 32:
        raw = [f"{whole:0{total // 4}x}"]
    else:
        raw = [f"{word:08x}" for word in words] if total != 64 else [f"{whole:016x}"]
    count = total // chosen.bits if chosen.bits else 0
    return _Row(raw, [chosen.text(whole >> chosen.bits * i & (1 << chosen.bits) - 1) for i in range(count)])


def _lines(rows: list[_Row], room: int) -> Iterator[str]:
    size = max((len(text) for row in rows for text in row.values), default=0)
    cells = [" ".join(row.raw) + "  " * bool(size) + " ".join(t.rjust(size) for t in row.values) for row in rows]
    if LABEL + len(cells[0]) > room:
        yield from _tall_lines(rows, size, room)
        return
    across = 1
    while across < 16 and 2 * across * (LABEL + len(cells[0]) + len(GAP)) - len(GAP) <= room:
        across *= 2
    for first in range(0, len(cells), across):
        yield GAP.join(f"{lane:2} {cells[lane]}" for lane in range(first, min(first + across, len(cells))))


def _tall_lines(rows: list[_Row], size: int, room: int) -> Iterator[str]:
    """Several lines a lane: the registers, then the values."""
    for lane, row in enumerate(rows):
        for number, line in enumerate(textwrap.wrap(" ".join(row.raw), room - LABEL)):
            yield f"{lane if number == 0 else '':>2} {line}"
        across = max(1, (room - LABEL - 2) // (size + 1)) if size else 1
        for first in range(0, len(row.values), across):
            yield "     " + " ".join(t.rjust(size) for t in row.values[first : first + across])


def _mask_lines(value: Mask, room: int) -> Iterator[str]:
    bits = np.broadcast_to(value.raw, (LANES,))
    whole = sum(1 << lane for lane in range(LANES) if bits[lane])
    lanes = [str(lane) for lane in range(LANES) if bits[lane]]
    yield f"Mask {whole:016x}, {len(lanes)} lanes"
    yield from textwrap.wrap(" ".join(lanes) or "none", room, initial_indent="   ", subsequent_indent="   ")
