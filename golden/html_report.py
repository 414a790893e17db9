"""A comparison as one HTML file: readable offline, with scripts off, on paper. No resource outside the file."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gfx950.evidence import counted as counted_instructions
from gfx950.lanes import LANES
from golden.compare import index_text
from golden.diff import ArrayDiff, Comparison
from golden.diff_report import (
    described,
    first_rows,
    inputs_text,
    inside_lines,
    sampled,
)
from golden.provenance import Provenance
from golden.report import writer_text

ROWS = 40  # of the table of differences
COMPARISONS = 64  # shown in full
SIDE = 64  # cells of a heat map, at most, either way
CELL = 8  # pixels

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
table{border-collapse:collapse;margin:.5rem 0 1rem}th,td{border:1px solid #d0d7de;padding:.2rem .6rem;text-align:left;
vertical-align:top}th{background:#f6f8fa}code,td.bits{font-family:ui-monospace,monospace;font-size:13px}
.wide{overflow-x:auto}.same{color:#116329}.wrong{color:#a40e26}figure{margin:1rem 0}figcaption{color:#57606a}
svg{max-width:100%;height:auto;background:#f6f8fa;border:1px solid #d0d7de}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}th{background:#161b22}th,td{border-color:#30363d}
.same{color:#56d364}.wrong{color:#ff7b72}figcaption{color:#8b949e}}
"""


def html_report(comparisons: Sequence[Comparison], found: Provenance) -> str:
    """The whole document."""
    wrong = [c for c in comparisons if not c.good]
    verdict = f"{len(wrong)} of {len(comparisons)} differ" if wrong else f"all {len(comparisons)} the same"
    title = f"gfx950 diff: {found.subject}: {verdict}"
    parts = [f"<h1>{_text(title)}</h1>", _summary(comparisons)]
    for one in wrong[:COMPARISONS]:
        parts += _comparison(one)
    if len(wrong) > COMPARISONS:
        parts.append(f"<p>and {len(wrong) - COMPARISONS} more</p>")
    parts += _rests_on(found) + _provenance(found)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_text(title)}</title>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head><body>\n' + "\n".join(
        [*parts, "</body></html>\n"]
    )


def _text(text: object) -> str:
    return html.escape(str(text))


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], bits: Sequence[int] = ()) -> str:
    """A table; the columns in `bits` in a fixed width."""
    head = "".join(f"<th>{_text(name)}</th>" for name in heads)
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=bits' if n in bits else ''}>{_text(cell)}</td>" for n, cell in enumerate(row))
        + "</tr>\n"
        for row in rows
    )
    head = f"<thead><tr>{head}</tr></thead>" if heads else ""
    return f'<div class="wide"><table>{head}<tbody>\n{body}</tbody></table></div>'


def _summary(comparisons: Sequence[Comparison]) -> str:
    rows = []
    for one in comparisons:
        for array in one.arrays:
            d, u = array.difference, array.unstable
            state = array.problem or ("same" if array.good else f"{d.count if d else 0} differ")
            unstable = f"{u.count} elements" if u is not None else ("no" if one.repeat > 1 else "one run")
            pattern = ", ".join(filter(None, [d.pattern if d else "", array.narrowed]))
            size = f"{array.output.format} {list(array.a.shape)}"
            rows.append((one.name, array.output.name, size, " : ".join(one.engines), state, unstable, pattern))
    return _table(("case", "output", "elements", "engines", "bits", "changes between runs", "pattern"), rows)


def _comparison(one: Comparison) -> list[str]:
    parts = [f'<h2 class="wrong">{_text(one.name)}</h2>']
    inside = list(inside_lines(one))
    parts += [f"<pre>{_text(chr(10).join(inside))}</pre>"] if inside else []
    for array in one.arrays:
        if array.good:
            continue
        parts.append(f"<h3>{_text(array.output.name)}</h3>")
        if array.problem:
            parts.append(f"<p>cannot be compared: {_text(array.problem)}</p>")
            continue
        if array.difference is not None:
            parts += _difference(array, one.engines)
        if array.unstable is not None:
            parts += _unstable(array, one)
    return parts


def _difference(array: ArrayDiff, engines: Sequence[str]) -> list[str]:
    d = array.difference
    assert d is not None
    rows: list[tuple[str, str]] = [
        ("differing", f"{d.count} of {d.total} elements"),
        ("first", f"{array.output.name}{index_text(d.index)}{described(array, d.index)}"),
        (engines[0], d.shown_a),
        (engines[1], d.shown_b),
    ]
    rows += [("distance", f"{d.ulps} ulp of {array.output.format}")] if d.ulps is not None else []
    rows += [("all in", d.where)] if d.where else []
    rows += [("pattern", d.pattern)] if d.pattern else []
    rows += [("lanes", array.narrowed + sampled(array))] if array.narrowed else []
    rows += [("writer", writer_text(array.writer))] if array.writer is not None else []
    if array.store is not None:
        rows += [("register", array.store.register(array.byte)), ("text", array.store.text)]
        rows += [("inputs", inputs_text(array))]
    shown = first_rows(array, ROWS)
    cells = [(index_text(i), array.output.describe(i), a, b, "" if n is None else n) for i, a, b, n in shown]
    more = array.differing.size - len(shown)
    parts = [_table((), rows, bits=(1,)), f"<h4>The first {len(shown)}</h4>"]
    parts.append(_table(("index", "element", *engines, "ulps"), cells, bits=(0, 2, 3)))
    parts += [f"<p>and {more} more</p>"] if more else []
    return [*parts, index_map(array), lane_map(array)]


def _unstable(array: ArrayDiff, one: Comparison) -> list[str]:
    u = array.unstable
    assert u is not None
    text = f"{u.count} elements are not the same in all {one.repeat} runs of {one.engines[1]}; first "
    rows = [(f"{runs} of {one.repeat} runs", shown) for shown, runs in u.shown.items()]
    rows = [*rows[:ROWS], *([("lanes", u.narrowed)] if u.narrowed else [])]
    return [
        f"<p>{_text(text + array.output.name + index_text(u.index) + described(array, u.index))}</p>",
        _table((), rows, bits=(1,)),
        _map(_folded(u.mask.reshape(-1), *_shape_of(u.mask.shape)), f"{array.output.name}: where runs differ"),
    ]


# ---- maps ------------------------------------------------------------------------------------------------------------


def index_map(array: ArrayDiff) -> str:
    """A picture of where in the array elements differ: its last axis to the right, all others downwards."""
    differs = np.zeros(array.a.size, bool)
    differs[array.differing] = True
    rows, columns = _shape_of(array.a.shape)
    folded = _folded(differs, rows, columns)
    scale = f"{-(-rows // folded.shape[0])} x {-(-columns // folded.shape[1])} elements a cell"
    text = f"{array.output.name}: share of differing elements, {rows} rows of {columns}, {scale}"
    return _map(folded, text)


def lane_map(array: ArrayDiff) -> str:
    """A picture of which lanes of which workgroups wrote what differs; empty where nobody knows."""
    w = array.writers
    if w is None or not w.wrong:
        return ""
    groups = -(-len(w.workgroups) // SIDE)
    rows = -(-len(w.workgroups) // groups)
    cell = w.workgroup // groups * LANES + w.lane
    counts, wrong = (np.bincount(one, minlength=rows * LANES) for one in (cell, cell[w.differs]))
    share = (wrong / np.maximum(counts, 1)).reshape(rows, LANES)
    known = "all elements that were written" if w.complete else f"a sample of {w.element.size} elements"
    scale = f"{groups} workgroup{'s' * (groups != 1)} a row, from {w.workgroups[0]} to {w.workgroups[-1]}"
    return _map(share, f"lane (to the right, 0 to {LANES - 1}) by workgroup (downwards; {scale}), of {known}")


def _shape_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of the picture of an array; a long vector is broken into rows."""
    size = int(np.prod(shape, dtype=np.int64))
    if len(shape) > 1:
        return size // shape[-1], shape[-1]
    columns = min(size, SIDE * max(1, round((size / SIDE / SIDE) ** 0.5))) or 1
    return -(-size // columns), columns


def _folded(differs: NDArray[np.bool_], rows: int, columns: int) -> NDArray[np.float64]:
    """The share of marked elements in each cell of at most SIDE by SIDE."""
    high, wide = -(-rows // SIDE), -(-columns // SIDE)
    down, right = -(-rows // high), -(-columns // wide)
    at = np.flatnonzero(differs)
    marked = np.bincount(at // columns // high * right + at % columns // wide, minlength=down * right)
    return marked.reshape(down, right) / (high * wide)


def _map(share: NDArray[np.float64], caption: str) -> str:
    """Cells shaded by their share, those without any left out."""
    height, width = (CELL * n for n in share.shape)
    cells = []
    for row, column in zip(*np.nonzero(share), strict=True):
        part = float(share[row, column])
        name = f"row {row}, column {column}: {part:.1%}" if part < 1 else f"row {row}, column {column}: all"
        place = f'x="{column * CELL}" y="{row * CELL}" width="{CELL}" height="{CELL}"'
        cells.append(f'<rect {place} fill="#d1242f" fill-opacity="{max(0.25, part):.2f}"><title>{name}</title></rect>')
    svg = f'<svg role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}">{"".join(cells)}</svg>'
    return f"<figure>{svg}<figcaption>{_text(caption)}</figcaption></figure>"


# ---- what it rests on ------------------------------------------------------------------------------------------------


def _rests_on(found: Provenance) -> list[str]:
    text = f"Under the model {found.model}: {counted_instructions(found.instructions)}. Rules below spec:"
    rows = [(name, level) for name, level in found.rules.items()]
    return ["<h2>What the emulator's bits rest on</h2>", f"<p>{_text(text)}</p>", _table(("rule", "evidence"), rows)]


def _provenance(found: Provenance) -> list[str]:
    rows = [("subject", found.subject)]
    rows += [(f"code object, {engine}: sha256", digest) for engine, digest in found.code.items()]
    rows += [("model", f"{found.model} ({found.model_digest})")]
    rows += [(f"device: {key}", value or "the system does not say") for key, value in found.device.items()]
    rows += [(f"version of {name}", text) for name, text in found.versions.items()]
    return ["<h2>Provenance</h2>", _table((), rows, bits=(1,))]
