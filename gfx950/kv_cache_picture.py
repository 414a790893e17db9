"""Pictures of the page-16 cache, as text and as SVG: the pages of a block, and which run of a page lies at which byte.

Both are drawn from the formulas of `gfx950.kv_cache`, so that they cannot say anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gfx950 import terminal
from gfx950.kv_cache import (
    ASM_PAGE_SIZE,
    HEAD_DIM,
    PAGES_PER_SPARSE_BLOCK,
    SIDES,
    SPARSE_BLOCK_SIZE,
    VECTOR_BYTES,
    Element,
    KvCacheLayout,
)

RUNS_IN_ROW = 16
ROW_BYTES = RUNS_IN_ROW * VECTOR_BYTES


@dataclass(frozen=True)
class Run:
    """16 bytes of a page and kv head: the first of them, and the tokens (of the page) and dims they hold."""

    byte: int
    tokens: range
    dims: range

    def __str__(self) -> str:
        """`t3  d16..31` where the dims run on, `d3   t0..15` where the tokens do."""
        if len(self.tokens) == 1:
            return f"t{self.tokens[0]:<2} d{_from_to(self.dims)}"
        return f"d{self.dims[0]:<3} t{_from_to(self.tokens)}"


def runs(layout: KvCacheLayout, side: str) -> list[Run]:
    """The runs of a page and kv head of a side, in the order of their bytes."""
    found = []
    for byte in range(0, layout.head_bytes, VECTOR_BYTES):
        (token, dim), (last_token, last_dim) = (layout.token_and_dim(side, b) for b in (byte, byte + VECTOR_BYTES - 1))
        found.append(Run(byte, range(token, last_token + 1), range(dim, last_dim + 1)))
    return found


def title(layout: KvCacheLayout) -> str:
    """`page-16 KV cache: fp8, 4 kv heads, packed`."""
    heads = f"{layout.kv_heads} kv head{'s' * (layout.kv_heads > 1)}"
    blocks = "" if layout.blocks is None else f", {layout.blocks} block{'s' * (layout.blocks > 1)}"
    return f"page-16 KV cache: {layout.format}, {heads}, {'packed' if layout.packed else 'dense'}{blocks}"


def block_title(layout: KvCacheLayout) -> str:
    """Where a block is."""
    tokens = f"block b: tokens 0..{SPARSE_BLOCK_SIZE - 1}"
    if layout.packed:
        return f"{tokens} of K and V, 0x{layout.block_bytes:x} bytes from byte b * 0x{layout.block_bytes:x} on"
    plane = layout.block_bytes // len(SIDES)
    return f"{tokens}, 0x{plane:x} bytes of each side's plane from byte b * 0x{plane:x} on"


def page_titles(layout: KvCacheLayout, side: str) -> tuple[str, str]:
    """The shape of a page, and the byte of token t and dim d in it."""
    x = layout.x
    if side == "K":
        shape, run, item = f"[{HEAD_DIM // x}][{ASM_PAGE_SIZE} tokens][{x} dims]", "t", "d"
    else:
        shape, run, item = f"[{ASM_PAGE_SIZE // x}][{HEAD_DIM} dims][{x} tokens]", "d", "t"
    line = VECTOR_BYTES * (ASM_PAGE_SIZE if side == "K" else HEAD_DIM)
    size = "" if layout.item_bytes == 1 else f"{layout.item_bytes} * "
    formula = f"{line} * ({item} // {x}) + {VECTOR_BYTES} * {run} + {size}({item} % {x})"
    if side == "V" and x == ASM_PAGE_SIZE:  # one run holds all tokens of the page
        formula = f"{VECTOR_BYTES} * d + t"
    return (
        f"{side} page of a kv head: 0x{layout.head_bytes:x} bytes, {shape}",
        f"token t (0..{ASM_PAGE_SIZE - 1}) and dim d at byte {formula}",
    )


def heads_title(layout: KvCacheLayout) -> str | None:
    """How the kv heads of a page follow each other, where there are several."""
    if layout.kv_heads == 1:
        return None
    return (
        f"a page: kv heads 0..{layout.kv_heads - 1}, 0x{layout.head_bytes:x} bytes each;"
        f" flattened page = {layout.kv_heads} * page + head"
    )


# ---- text ------------------------------------------------------------------------------------------------------------


def text_picture(layout: KvCacheLayout, width: int | None = None) -> list[str]:
    """Lines no wider than `width` (the terminal)."""
    room = width or terminal.columns()
    lines = [title(layout), "", block_title(layout), *_block_lines(layout, room)]
    if heads := heads_title(layout):
        lines += ["", heads]
    for side in SIDES:
        lines += ["", *page_titles(layout, side), *_page_lines(runs(layout, side), room)]
    return [part for line in lines for part in ([line] if len(line) <= room else terminal.wrap(line, width=room))]


def _block_lines(layout: KvCacheLayout, room: int) -> Iterator[str]:
    """K's and V's pages side by side where there is room, else one under the other."""
    columns = [_side_lines(layout, side) for side in SIDES]
    if max(map(len, columns[0])) + max(map(len, columns[1])) + len(terminal.GAP) <= room:
        yield from (terminal.GAP.join(pair) for pair in zip(*columns, strict=True))
    else:
        yield from (line for column in columns for line in column)


def _side_lines(layout: KvCacheLayout, side: str) -> list[str]:
    cells = [f"{side} page {text}" for text in _page_cells(layout)]
    size, width = max(map(len, cells)), len(_page_byte(layout, side, PAGES_PER_SPARSE_BLOCK - 1))
    border = f"{' ' * width} +{'-' * (size + 2)}+"
    rows = [f"{_page_byte(layout, side, j):>{width}} | {cell:<{size}} |" for j, cell in enumerate(cells)]
    return [border, *rows, border]


def _page_cells(layout: KvCacheLayout) -> list[str]:
    tokens = [range(j * ASM_PAGE_SIZE, (j + 1) * ASM_PAGE_SIZE) for j in range(PAGES_PER_SPARSE_BLOCK)]
    return [f"{layout.page_stride}b+{j} t{_from_to(part)}" for j, part in enumerate(tokens)]


def _page_byte(layout: KvCacheLayout, side: str, j: int) -> str:
    """Counted from where the block begins, in the allocation or in its side's plane."""
    start = layout.view_start(side) if layout.packed else 0
    return f"+0x{start + layout.view_byte(Element(side, 0, j * ASM_PAGE_SIZE, 0, 0)):04x}"


def _page_lines(page: list[Run], room: int) -> Iterator[str]:
    """Rows of 16 runs: the first that there is room for, and the last."""
    size, label = max(len(str(run)) for run in page) + 2, len("0x000 ")
    columns = _shown_columns(room - label - 1, size + 1)
    heads = [" ... " if c is None else f"+0x{c * VECTOR_BYTES:02x}".ljust(size) for c in columns]
    yield f"{' ' * label} {' '.join(heads)}".rstrip()
    for row in range(0, len(page), RUNS_IN_ROW):
        cells = [" ... " if c is None else f" {page[row + c]}".ljust(size) for c in columns]
        yield f"0x{page[row].byte:03x} |{'|'.join(cells)}|"


def _shown_columns(room: int, cell: int) -> list[int | None]:
    """All 16 columns, or the first that there is room for, None for those left out, and the last."""
    if room >= RUNS_IN_ROW * cell:
        return [*range(RUNS_IN_ROW)]
    shown = (room - len(" ... |")) // cell
    return [*range(shown - 1), None, RUNS_IN_ROW - 1] if shown > 1 else [0, None]


def _from_to(numbers: range) -> str:
    return f"{numbers[0]}..{numbers[-1]}"


# ---- SVG -------------------------------------------------------------------------------------------------------------

# In pixels; a character of the 10-pixel type is 6 wide.
CELL_WIDTH, CELL_HEIGHT, MARGIN, LABEL_WIDTH, LINE, BASELINE = 88, 20, 16, 48, 20, 14
FILLS = {"K": "#dbe9f6", "V": "#fde5cd"}
MARK = "#ffd84d"


def svg_picture(layout: KvCacheLayout, marked: Element | None = None) -> str:
    """The block and a page of each side in one SVG file of its own; the page and the run of `marked` stand out."""
    parts: list[str] = []
    y = _text(parts, MARGIN, title(layout), bold=True)
    y = _text(parts, y, block_title(layout))
    for side in SIDES:
        y = _svg_pages(parts, layout, side, y, marked)
    if heads := heads_title(layout):
        y = _text(parts, y + LINE, heads)
    for side in SIDES:
        y += LINE
        for line in page_titles(layout, side):
            y = _text(parts, y, line)
        y = _svg_runs(parts, layout, side, y, marked)
    width, height = 2 * MARGIN + LABEL_WIDTH + RUNS_IN_ROW * CELL_WIDTH, y + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="monospace" font-size="10">'
    )
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join((head, f"<title>{title(layout)}</title>", ground, *parts, "</svg>", ""))


def _svg_pages(parts: list[str], layout: KvCacheLayout, side: str, y: int, marked: Element | None) -> int:
    """The 8 pages of a side in a row."""
    width = RUNS_IN_ROW * CELL_WIDTH // PAGES_PER_SPARSE_BLOCK
    _label(parts, y, side)
    for j, cell in enumerate(_page_cells(layout)):
        here = marked is not None and (marked.side, marked.token // ASM_PAGE_SIZE) == (side, j)
        lines = (_page_byte(layout, side, j), f"page {cell}")
        _cell(parts, MARGIN + LABEL_WIDTH + j * width, y, width, lines, MARK if here else FILLS[side])
    return y + 2 * CELL_HEIGHT


def _svg_runs(parts: list[str], layout: KvCacheLayout, side: str, y: int, marked: Element | None) -> int:
    """A page of a side, 256 bytes a row."""
    byte = layout.place(marked).byte if marked is not None and marked.side == side else -1
    for i, run in enumerate(runs(layout, side)):
        row, column = divmod(i, RUNS_IN_ROW)
        top = y + row * CELL_HEIGHT
        if column == 0:
            _label(parts, top, f"0x{run.byte:03x}")
        fill = MARK if run.byte == byte - byte % VECTOR_BYTES else FILLS[side]
        _cell(parts, MARGIN + LABEL_WIDTH + column * CELL_WIDTH, top, CELL_WIDTH, (str(run),), fill)
    return y + layout.head_bytes // ROW_BYTES * CELL_HEIGHT


def _text(parts: list[str], y: int, text: str, bold: bool = False) -> int:
    weight = ' font-weight="bold"' if bold else ""
    parts.append(f'<text x="{MARGIN}" y="{y + BASELINE}" font-size="12"{weight}>{text}</text>')
    return y + LINE


def _label(parts: list[str], y: int, text: str) -> None:
    parts.append(f'<text x="{MARGIN}" y="{y + BASELINE}">{text}</text>')


def _cell(parts: list[str], x: int, y: int, width: int, lines: tuple[str, ...], fill: str) -> None:
    height = len(lines) * CELL_HEIGHT
    parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="#808080"/>')
    for i, line in enumerate(lines):
        parts.append(f'<text x="{x + 4}" y="{y + i * CELL_HEIGHT + BASELINE}">{line}</text>')
