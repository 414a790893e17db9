"""Where each matrix element sits: the register, lane and bits of every matrix operand, and the way back.

Indices follow the mathematics: A[m][k], B[k][n], C and D[m][n]. The scale operands of the scaled f8f6f4 instructions
are scaleA[m][kb] and scaleB[n][kb], kb counting blocks of 32 along k. A sparse A (v_smfmac_*) is A[m][c]: the elements
that are stored, two of every four k; element c stands at k = 4 * (c / 2) + index[m][c]. Registers count from the
operand's first one. Everything is a closed form over Python integers, so this module imports nothing heavy.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from gfx950.evidence import Evidence, Rule, rule
from gfx950.lanes import LANES

REGISTER_BITS = 32
SCALE_BLOCK = 32
INDEX_BITS = 2
FORMAT_BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}

INPUT_RULE = rule(
    "layout.input",
    Evidence.spec,
    "CDNA4 ISA 7.1.4",
    "A[i,k] of block b is item k % KL of lane i + M*(b + B*(k/KL)), KL = K*M*B/64; B the same with j for i.",
)
OUTPUT_RULE = rule(
    "layout.output",
    Evidence.spec,
    "CDNA4 ISA 7.1.4",
    "C and D interleave groups of four rows (one for f64) over the lanes, the columns running fastest.",
)
F64_4X4_RULE = rule(
    "layout.output.f64_4x4x4_4b",
    Evidence.published,
    "fpsan amdgcn wrappers, probed on MI350; a separate probe on gfx90a agrees; the formula of CDNA4 ISA 7.1.4 differs",
    "D[i][j] of block b of v_mfma_f64_4x4x4_4b_f64 is in lane 16*i + 4*b + j (the ISA formula gives 16*b + 4*i + j).",
)
F8_RULE = rule(
    "layout.f8f6f4.8bit",
    Evidence.published,
    "CDNA4 ISA 7.1.5; fpsan wrappers on gfx950; aiter and FlyDSL fp8 x fp4 kernels",
    "An fp8 or bf8 operand of an f8f6f4 instruction holds two runs of 16 consecutive k per lane, K/2 apart.",
)
F6F4_RULE = rule(
    "layout.f8f6f4.6bit_4bit",
    Evidence.published,
    "CDNA4 ISA 7.1.5; AMD's block-scale blog; fpsan mixed-format wrapper; aiter mxfp4 kernels",
    "An fp6, bf6 or fp4 operand of an f8f6f4 instruction holds 32 consecutive k per lane, packed without gaps.",
)
SCALE_RULE = rule(
    "layout.scale",
    Evidence.published,
    "CDNA4 ISA 7.2.1; fpsan full-block-random test on gfx950, all op_sel",
    "The scale of row or column i and k block kb is byte op_sel of lane i + M*kb, whatever the operand's format.",
)


SPARSE_RULE = rule(
    "layout.sparse",
    Evidence.published,
    "fpsan SMFMAC wrappers, probed on MI350 (f16, fp8; i8 is taken to be as fp8); B in CDNA4 ISA 7.5.1",
    "A sparse A holds consecutive stored elements per lane, and its index two bits each in the same order; B holds one"
    " run of consecutive k per lane, or, where A takes four registers, two runs that lie K/2 apart.",
)
INDEX_SET_RULE = rule(
    "layout.sparse.index_set",
    Evidence.spec,
    "CDNA4 ISA 7.5, 7.5.1 (7.5 calls the two sets of gfx950's own f16 and bf16 shapes 8 bits long; 7.5.1.3 shows 16)",
    "Where the index register holds several sets, CBSZ = 0 lets ABID pick one, and any other CBSZ takes the first.",
)


class Element(NamedTuple):
    """A matrix element's indices: row and column as the operand is written, and its block (0 for one-block shapes)."""

    row: int
    col: int
    block: int


@dataclass(frozen=True)
class Piece:
    """A run of bits, both ends included, of one register (counted from the operand's first)."""

    register: int
    low_bit: int
    high_bit: int


@dataclass(frozen=True)
class Place:
    """Where an element is: a lane and its bits there, low bits first.

    There is one piece, but for 64-bit elements (two whole registers) and 6-bit elements that straddle two registers.
    `register`, `low_bit` and `high_bit` are those of the first piece.
    """

    lane: int
    pieces: tuple[Piece, ...]

    @property
    def register(self) -> int:
        return self.pieces[0].register

    @property
    def low_bit(self) -> int:
        return self.pieces[0].low_bit

    @property
    def high_bit(self) -> int:
        return self.pieces[0].high_bit


class Slot(NamedTuple):
    """A lane and the number of the item in it, items counted from the low bits of the first register."""

    lane: int
    item: int


@dataclass(frozen=True)
class Layout:
    """The two closed forms between elements and slots, and the rule they follow."""

    slot: Callable[[Element], Slot]
    element: Callable[[Slot], Element]
    rule: Rule


@dataclass(frozen=True)
class MatrixInstruction:
    """Shape of one matrix instruction: D (m x n) = C + A (m x k) * B (k x n), `blocks` times.

    input_bits: bits of an A or B element, 0 where the instruction's formats decide (f8f6f4). output_bits: of C and D.
    """

    mnemonic: str
    m: int
    n: int
    k: int
    blocks: int
    input_bits: int
    output_bits: int

    @property
    def has_formats(self) -> bool:
        return self.input_bits == 0

    @property
    def has_scales(self) -> bool:
        return self.mnemonic.startswith("v_mfma_scale_")

    @property
    def sparse(self) -> bool:
        return self.mnemonic.startswith("v_smfmac_")

    @property
    def stored_items(self) -> int:
        """Elements of A that a lane holds."""
        return self.m * self.k * self.blocks // (LANES << self.sparse)

    @property
    def index_sets(self) -> int:
        """How many sets of indices the index register of a sparse instruction holds."""
        return REGISTER_BITS // (INDEX_BITS * self.stored_items)


@dataclass(frozen=True)
class OperandLayout:
    """One operand of one instruction: its size and the map between elements and places.

    first_bit is the bit where item 0 starts (op_sel decides it for a scale or an index), element_bits the bits of an
    element.
    """

    mnemonic: str
    operand: str
    rows: int
    cols: int
    blocks: int
    element_bits: int
    items: int
    first_bit: int
    layout: Layout

    @property
    def registers(self) -> int:
        """32-bit registers the operand occupies in every lane."""
        return -(-(self.first_bit + self.items * self.element_bits) // REGISTER_BITS)

    @property
    def rule(self) -> Rule:
        return self.layout.rule

    def locate(self, row: int, col: int, block: int = 0) -> Place:
        """The place of element [row][col] of a block. Raises IndexError when an index is outside the operand,
        TypeError when it is no whole number.
        """
        self._check("row", row, self.rows)
        self._check("column", col, self.cols)
        self._check("block", block, self.blocks)
        slot = self.layout.slot(Element(row, col, block))
        low = self.first_bit + slot.item * self.element_bits
        return Place(slot.lane, tuple(_pieces(low, self.element_bits)))

    def element(self, register: int, lane: int, bit: int) -> Element:
        """The element that owns a bit of a register of a lane. Raises IndexError when the operand has nothing there."""
        self._check("register", register, self.registers)
        self._check("lane", lane, LANES)
        self._check("bit", bit, REGISTER_BITS)
        item = (REGISTER_BITS * register + bit - self.first_bit) // self.element_bits
        if not 0 <= item < self.items:
            used = f"{self.first_bit + self.element_bits * self.items - 1}:{self.first_bit}"
            raise IndexError(f"bit {bit} is not used: {self.operand} of {self.mnemonic} reads bits {used} here")
        return self.layout.element(Slot(lane, item))

    def elements(self) -> Iterator[Element]:
        """Every element of the operand: by block, then row, then column."""
        for block in range(self.blocks):
            for row in range(self.rows):
                for col in range(self.cols):
                    yield Element(row, col, block)

    def _check(self, what: str, value: int, size: int) -> None:
        if not hasattr(value, "__index__"):
            raise TypeError(
                f"{what} {value!r} is a {type(value).__name__}; {self.operand} of {self.mnemonic} counts its {what}s in"
                f" whole numbers, 0..{size - 1}"
            )
        if not 0 <= value < size:
            raise IndexError(
                f"{what} {value} is outside {self.operand} of {self.mnemonic}: it has {what}s 0..{size - 1}"
                f" ({self.rows} x {self.cols}, {self.blocks} block{'s' * (self.blocks > 1)},"
                f" {self.element_bits}-bit elements, {self.registers} registers)"
            )


def layout(
    mnemonic: str, operand: str, a_format: str | None = None, b_format: str | None = None, op_sel: int = 0
) -> OperandLayout:
    """The layout of an operand ('A', 'B', 'C', 'D', 'scaleA', 'scaleB', 'index') of a matrix instruction.

    a_format and b_format (fp8, bf8, fp6, bf6, fp4; fp8 when not given) belong to f8f6f4 instructions only; op_sel
    (0..3) picks the byte of a scale, or the set of an index (the instruction's ABID). Raises ValueError for a name,
    operand or format that does not exist.
    """
    instruction = matrix_instruction(mnemonic)
    formats = {"A": a_format, "B": b_format}
    _check_formats(instruction, formats)
    if not 0 <= op_sel <= 3:
        raise ValueError(f"op_sel {op_sel} picks no byte of a 32-bit scale register; give 0, 1, 2 or 3")
    if op_sel and not (instruction.has_scales or instruction.sparse):
        raise ValueError(f"{mnemonic} takes no scales, so it has no scale byte to pick: drop op_sel {op_sel}")
    if instruction.sparse and op_sel >= instruction.index_sets:
        raise ValueError(
            f"op_sel {op_sel}: the index of {mnemonic} has {instruction.index_sets} set(s), counted from 0"
        )
    if operand in ("A", "B"):
        return _input_operand(instruction, operand, formats[operand] or "fp8")
    if operand in ("C", "D"):
        return _output_operand(instruction, operand)
    if operand in ("scaleA", "scaleB"):
        return _scale_operand(instruction, operand, op_sel)
    if operand == "index" and instruction.sparse:
        return _index_operand(instruction, op_sel)
    raise ValueError(
        f"{mnemonic} has no operand {operand!r}; operands are A, B, C, D, and scaleA, scaleB where scaled, index where"
        " sparse"
    )


def matrix_instruction(mnemonic: str) -> MatrixInstruction:
    """The shape of a matrix instruction by its LLVM name. Raises ValueError with the nearest known names."""
    found = MATRIX_INSTRUCTIONS.get(mnemonic)
    if found is None:
        near = difflib.get_close_matches(mnemonic, MATRIX_INSTRUCTIONS, n=3, cutoff=0.5)
        hint = f"nearest: {', '.join(near)}" if near else f"for example {next(iter(MATRIX_INSTRUCTIONS))}"
        raise ValueError(f"{mnemonic!r} is not a matrix instruction of gfx950; {hint}")
    return found


def _check_formats(instruction: MatrixInstruction, formats: dict[str, str | None]) -> None:
    for operand, name in formats.items():
        if name is None:
            continue
        if not instruction.has_formats:
            raise ValueError(f"{instruction.mnemonic} fixes its formats: drop the format {name!r} given for {operand}")
        if name not in FORMAT_BITS:
            raise ValueError(f"{name!r} is no format of {operand}; formats are {', '.join(FORMAT_BITS)}")


def _input_operand(instruction: MatrixInstruction, operand: str, format_name: str) -> OperandLayout:
    """A or B: the same closed forms, with A[m][k] and B[k][n] as the two ways to write (line, k)."""
    bits = instruction.input_bits or FORMAT_BITS[format_name]
    lines = instruction.m if operand == "A" else instruction.n
    depth = instruction.k // 2 if instruction.sparse and operand == "A" else instruction.k
    items = lines * depth * instruction.blocks // LANES
    by_line = _input_layout(instruction, operand, bits, lines, depth)
    rows, cols = (lines, depth) if operand == "A" else (depth, lines)
    placed = by_line if operand == "A" else _transposed(by_line)
    return OperandLayout(instruction.mnemonic, operand, rows, cols, instruction.blocks, bits, items, 0, placed)


def _input_layout(instruction: MatrixInstruction, operand: str, bits: int, lines: int, depth: int) -> Layout:
    """(line, k) of A or B."""
    if instruction.has_formats and bits == 8:
        return _two_run_input(lines, depth, 16, F8_RULE)
    if instruction.sparse:
        four_registers = instruction.stored_items * bits == 4 * REGISTER_BITS
        if operand == "B" and four_registers:
            return _two_run_input(lines, depth, instruction.stored_items, SPARSE_RULE)
        return _generic_input(lines, depth, 1, SPARSE_RULE)
    return _generic_input(lines, depth, instruction.blocks, F6F4_RULE if instruction.has_formats else INPUT_RULE)


def _index_operand(instruction: MatrixInstruction, index_set: int) -> OperandLayout:
    """Two bits for each stored element, in the order of the elements themselves."""
    lines, depth, items = instruction.m, instruction.k // 2, instruction.stored_items
    placed = _generic_input(lines, depth, 1, SPARSE_RULE)
    first = INDEX_BITS * items * index_set
    return OperandLayout(instruction.mnemonic, "index", lines, depth, 1, INDEX_BITS, items, first, placed)


def _output_operand(instruction: MatrixInstruction, operand: str) -> OperandLayout:
    m, n, blocks = instruction.m, instruction.n, instruction.blocks
    if instruction.output_bits == 64 and m == 4:
        placed = _f64_4x4_output()
    else:
        placed = _generic_output(m, n, 1 if instruction.output_bits == 64 else 4)
    items = m * n * blocks // LANES
    return OperandLayout(instruction.mnemonic, operand, m, n, blocks, instruction.output_bits, items, 0, placed)


def _scale_operand(instruction: MatrixInstruction, operand: str, op_sel: int) -> OperandLayout:
    if not instruction.has_scales:
        scaled = ", ".join(name for name, row in MATRIX_INSTRUCTIONS.items() if row.has_scales)
        raise ValueError(f"{instruction.mnemonic} takes no scales, so it has no {operand}; scaled are {scaled}")
    lines = instruction.m if operand == "scaleA" else instruction.n
    k_blocks = instruction.k // SCALE_BLOCK
    placed = Layout(
        lambda e: Slot(e.row + lines * e.col, 0),
        lambda s: Element(s.lane % lines, s.lane // lines, 0),
        SCALE_RULE,
    )
    return OperandLayout(instruction.mnemonic, operand, lines, k_blocks, 1, 8, 1, 8 * op_sel, placed)


def _generic_input(lines: int, depth: int, blocks: int, source: Rule) -> Layout:
    """(line, k): each lane holds `run` consecutive k of one line of one block."""
    run = depth * lines * blocks // LANES

    def slot(e: Element) -> Slot:
        return Slot(e.row + lines * (e.block + blocks * (e.col // run)), e.col % run)

    def element(s: Slot) -> Element:
        group = s.lane // lines
        return Element(s.lane % lines, run * (group // blocks) + s.item, group % blocks)

    return Layout(slot, element, source)


def _two_run_input(lines: int, depth: int, run: int, source: Rule) -> Layout:
    """(line, k): two runs of k in each lane, depth/2 apart."""
    half = depth // 2

    def slot(e: Element) -> Slot:
        return Slot(e.row + lines * (e.col % half // run), e.col % run + run * (e.col // half))

    def element(s: Slot) -> Element:
        return Element(s.lane % lines, run * (s.lane // lines) + s.item % run + half * (s.item // run), 0)

    return Layout(slot, element, source)


def _transposed(by_line: Layout) -> Layout:
    def slot(e: Element) -> Slot:
        return by_line.slot(Element(e.col, e.row, e.block))

    def element(s: Slot) -> Element:
        line, k, block = by_line.element(s)
        return Element(k, line, block)

    return Layout(slot, element, by_line.rule)


def _generic_output(m: int, n: int, height: int) -> Layout:
    """C and D: `height` consecutive rows stay in a lane, then rows and blocks go over the lanes, then over items."""
    wide = -(-LANES * height // (n * m))  # blocks side by side in the lanes
    bands = LANES // (wide * n)  # row groups side by side in the lanes
    stacked = m // (height * bands)  # row groups one after the other in a lane

    def slot(e: Element) -> Slot:
        group = e.row // height
        lane = e.col + n * (group % bands + bands * (e.block % wide))
        return Slot(lane, e.row % height + height * (group // bands + stacked * (e.block // wide)))

    def element(s: Slot) -> Element:
        side, deep = s.lane // n, s.item // height
        group = side % bands + bands * (deep % stacked)
        return Element(height * group + s.item % height, s.lane % n, side // bands + wide * (deep // stacked))

    return Layout(slot, element, OUTPUT_RULE)


def _f64_4x4_output() -> Layout:
    return Layout(
        lambda e: Slot(16 * e.row + 4 * e.block + e.col, 0),
        lambda s: Element(s.lane // 16, s.lane % 4, s.lane % 16 // 4),
        F64_4X4_RULE,
    )


def _pieces(low: int, bits: int) -> Iterator[Piece]:
    """The runs of bits low..low+bits-1 of a register sequence, cut at register borders."""
    end = low + bits
    while low < end:
        register = low // REGISTER_BITS
        stop = min(end, REGISTER_BITS * (register + 1))
        yield Piece(register, low % REGISTER_BITS, (stop - 1) % REGISTER_BITS)
        low = stop


def _instructions() -> Iterator[MatrixInstruction]:
    for kind, bits, shapes in _SHAPES:
        result = {"f64": "f64", "i8": "i32"}.get(kind, "f32")
        for m, n, k, blocks in shapes:
            shape = f"{m}x{n}x{k}" + f"_{blocks}b" * (blocks > 1)
            yield MatrixInstruction(
                f"v_mfma_{result}_{shape}_{kind}", m, n, k, blocks, bits, 64 if kind == "f64" else 32
            )
            if kind == "f8f6f4":
                yield MatrixInstruction(f"v_mfma_scale_{result}_{shape}_{kind}", m, n, k, blocks, bits, 32)
    for kind, bits, sparse_shapes in _SPARSE_SHAPES:
        result = "i32" if kind == "i8" else "f32"
        for m, k in sparse_shapes:
            yield MatrixInstruction(f"v_smfmac_{result}_{m}x{m}x{k}_{kind}", m, m, k, 1, bits, 32)


_HALF_SHAPES = (
    (32, 32, 4, 2),
    (16, 16, 4, 4),
    (4, 4, 4, 16),
    (32, 32, 8, 1),
    (16, 16, 16, 1),
    (16, 16, 32, 1),
    (32, 32, 16, 1),
)
_I8_SHAPES = (
    (32, 32, 4, 2),
    (16, 16, 4, 4),
    (4, 4, 4, 16),
    (32, 32, 16, 1),
    (16, 16, 32, 1),
    (16, 16, 64, 1),
    (32, 32, 32, 1),
)
_F8_SHAPES = ((16, 16, 32, 1), (32, 32, 16, 1))
# Kind of the inputs as the mnemonic spells it, bits of an input element, shapes (m, n, k, blocks). CDNA4 ISA 12.10.
_SHAPES: tuple[tuple[str, int, tuple[tuple[int, int, int, int], ...]], ...] = (
    ("f32", 32, ((32, 32, 1, 2), (16, 16, 1, 4), (4, 4, 1, 16), (32, 32, 2, 1), (16, 16, 4, 1))),
    ("f16", 16, _HALF_SHAPES),
    ("bf16", 16, _HALF_SHAPES),
    ("i8", 8, _I8_SHAPES),
    ("bf8_bf8", 8, _F8_SHAPES),
    ("bf8_fp8", 8, _F8_SHAPES),
    ("fp8_bf8", 8, _F8_SHAPES),
    ("fp8_fp8", 8, _F8_SHAPES),
    ("f64", 64, ((16, 16, 4, 1), (4, 4, 4, 4))),
    ("f8f6f4", 0, ((16, 16, 128, 1), (32, 32, 64, 1))),
)
_SPARSE_HALVES, _SPARSE_BYTES = ((16, 32), (32, 16), (16, 64), (32, 32)), ((16, 64), (32, 32), (16, 128), (32, 64))
# Kind, bits of an input element, shapes (m = n, k). CDNA4 ISA 7.5.
_SPARSE_SHAPES: tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...] = (
    ("f16", 16, _SPARSE_HALVES),
    ("bf16", 16, _SPARSE_HALVES),
    *((kind, 8, _SPARSE_BYTES) for kind in ("i8", "bf8_bf8", "bf8_fp8", "fp8_bf8", "fp8_fp8")),
)
MATRIX_INSTRUCTIONS: dict[str, MatrixInstruction] = {row.mnemonic: row for row in _instructions()}

_ELEMENT_TEXT = re.compile(
    r"(scaleA|scaleB|index|[ABCD])\s*\[(\d{1,9})\]\s*\[(\d{1,9})\](?:\s*(?:\.b|block\s+)(\d{1,9}))?"
)
_PLACE_TEXT = re.compile(
    r"(scaleA|scaleB|index|[ABCD])\s+[va](\d{1,9})\s+lane\s+(\d{1,9})(?:\s*\[(\d{1,9})(?::(\d{1,9}))?\])?"
)


def shown(text: str) -> str:
    """A text in quotes as messages show it: the beginning of a long one."""
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}..."


def describe_element(
    mnemonic: str, text: str, a_format: str | None = None, b_format: str | None = None, op_sel: int = 0
) -> dict[str, Any]:
    """Answers 'B[100][3]' (or 'A[3][0] block 2', 'scaleA[5][1]') with the element's place, as plain data.

    Keys: mnemonic, operand, element_bits, row, col, block, lane, pieces (register, high_bit, low_bit), evidence,
    source, text (one line for people). Raises ValueError for text that does not parse, IndexError when out of range.
    """
    match = _ELEMENT_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"cannot read {shown(text)} as an element; write for example 'B[100][3]' (A[m][k], B[k][n], C[m][n],"
            " D[m][n]), 'A[3][0] block 2', 'scaleA[5][1]' (row, k block) or 'index[5][7]' (row, stored element), or a"
            " place such as 'B v3 lane 17 [7:4]'"
        )
    found = layout(mnemonic, match[1], a_format, b_format, op_sel)
    element = Element(int(match[2]), int(match[3]), int(match[4] or 0))
    place = found.locate(*element)
    bits = " and ".join(f"v{p.register} bits {p.high_bit}:{p.low_bit}" for p in place.pieces)
    return (
        _head(found)
        | _indices(element)
        | {
            "lane": place.lane,
            "pieces": [{"register": p.register, "high_bit": p.high_bit, "low_bit": p.low_bit} for p in place.pieces],
            "text": f"{_written(found, element)}: lane {place.lane}, {bits}",
        }
    )


def describe_place(
    mnemonic: str, text: str, a_format: str | None = None, b_format: str | None = None, op_sel: int = 0
) -> dict[str, Any]:
    """Answers 'B v3 lane 17 [7:4]' (bits may be left out: the whole register) with the elements that own those bits.

    Keys: mnemonic, operand, element_bits, register, lane, high_bit, low_bit, elements (row, col, block and the bits of
    the register that are theirs), evidence, source, text. Raises as `describe_element` does.
    """
    match = _PLACE_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"cannot read {shown(text)} as a place; write for example 'B v3 lane 17 [7:4]' or 'D v0 lane 5'"
        )
    found = layout(mnemonic, match[1], a_format, b_format, op_sel)
    register, lane = int(match[2]), int(match[3])
    high, low = _bit_range(found, match[4], match[5])
    owners = list(dict.fromkeys(found.element(register, lane, bit) for bit in range(low, high + 1)))
    names = ", ".join(_written(found, element) for element in owners)
    return _head(found) | {
        "register": register,
        "lane": lane,
        "high_bit": high,
        "low_bit": low,
        "elements": [_indices(element) | _bits_within(found, element, register) for element in owners],
        "text": f"{found.operand} v{register} lane {lane} bits {high}:{low}: {names}",
    }


def _bit_range(found: OperandLayout, first: str | None, second: str | None) -> tuple[int, int]:
    """(high, low) of '[high:low]', '[bit]' or nothing, which means every bit of the register that the operand uses."""
    if first is None:
        last = found.first_bit + found.items * found.element_bits - 1
        return min(last, REGISTER_BITS - 1), found.first_bit
    high, low = int(first), int(second if second is not None else first)
    if not 0 <= low <= high < REGISTER_BITS:
        raise ValueError(
            f"[{high}:{low}] is no bit range of a 32-bit register; write [high:low], 31 >= high >= low >= 0"
        )
    return high, low


def _head(found: OperandLayout) -> dict[str, Any]:
    return {
        "mnemonic": found.mnemonic,
        "operand": found.operand,
        "element_bits": found.element_bits,
        "evidence": found.rule.evidence.name,
        "source": found.rule.source,
    }


def _indices(element: Element) -> dict[str, int]:
    return {"row": element.row, "col": element.col, "block": element.block}


def _bits_within(found: OperandLayout, element: Element, register: int) -> dict[str, int]:
    piece = next(p for p in found.locate(*element).pieces if p.register == register)
    return {"high_bit": piece.high_bit, "low_bit": piece.low_bit}


def _written(found: OperandLayout, element: Element) -> str:
    return f"{found.operand}[{element.row}][{element.col}]" + f" block {element.block}" * (found.blocks > 1)
