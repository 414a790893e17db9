"""Where every element of every matrix instruction sits, shown by running the instruction on zeros and ones.

The oracles are formulas written here, from lane and item on one side to row, column and block on the other:
AMD's matrix instruction calculator (ROCm/amd_matrix_instruction_calculator, `InstCalcGfx9`) for the shapes that CDNA3
has too, and for gfx950's own the published tables (CDNA4 ISA 7.1.5 and 7.5.1, fpsan's wrappers, AMD's block-scale
article, aiter's fp8 x fp4 kernels). `gfx950.layouts` is held against them, and plays no part in the runs.

Why few runs prove it. Take one k. A is 1 in the elements that the oracle calls A[i][k] and 0 elsewhere, B is all ones:
if D is 1 everywhere, exactly one product of a 1 of A reaches every element of D. Then that A is 1 only where bit p of
its row's number is set: D shows bit p of the row of the one A[i][k] that reaches it, and all p the whole number. The
same with the bits of the numbers of all elements of B. So for every element of D and every k the one pair that meets
there is known, and over all k every element of A has been on. Sums of zeros and ones are exact in every format.

What nobody can see is not claimed: an order of k that A and B share shows only where something else counts k: the other
format of a mixed f8f6f4 pair, block scales, the index of a sparse A. (Which k form a group of additions is arithmetic,
and tested as such.) That BLGP bit 0 of f64 is A's and bit 1 B's is likewise the name of one and the same product.
"""

import functools
import itertools
import math
import re

import numpy as np
import pytest

from emu.interactive import from_words, instruction
from gfx950.isa.matrix import MATRIX
from gfx950.lanes import Words
from gfx950.layouts import MATRIX_INSTRUCTIONS, layout

F8F6F4 = ("fp8", "bf8", "fp6", "bf6", "fp4")
PAIRS = list(itertools.product(F8F6F4, repeat=2))
BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}
# Codes of 0, 1, 2, 3 and of 0.5 in each kind.
CODES = {
    "f64": (0, 0x3FF << 52, 0x400 << 52, 0x4008 << 48),
    "f32": (0, 0x3F800000, 0x40000000, 0x40400000),
    "f16": (0, 0x3C00, 0x4000, 0x4200),
    "bf16": (0, 0x3F80, 0x4000, 0x4040),
    "i8": (0, 1, 2, 3),
    "fp8": (0, 0x38, 0x40, 0x44),
    "bf8": (0, 0x3C, 0x40, 0x42),
    "fp6": (0, 0x08, 0x10, 0x14),
    "bf6": (0, 0x0C, 0x10, 0x12),
    "fp4": (0, 0x2, 0x4, 0x5),
}
LANES = 64


# ---- Oracles ----


def calculator_input(lines, depth, blocks, line, k, block):
    """Lane and item of A[line][k] or B[k][line]: the calculator's rule for inputs of gfx9."""
    together = depth // (LANES // (lines * blocks))
    return block * lines + k // together * lines * blocks + line, k % together


def calculator_output(m, n, bits, i, j, block):
    """Lane and item of C[i][j] and D[i][j]: the calculator's rule for outputs of gfx9."""
    height, side_by_side = 1 if bits == 64 else 4, LANES // n
    blocks_in_register = math.ceil(LANES / (n * m // height))
    item = block * (m * n // LANES) + i // (height * side_by_side) * height + i % height
    lane = block % blocks_in_register * n + i // height % side_by_side * blocks_in_register * n + j
    return lane, item


def calculator_index(lines, depth, kind, i, stored, abid):
    """Lane and first bit of the index of the stored element of row i: the calculator's rule for K[]."""
    lane, item = calculator_input(lines, depth // 2, 1, i, stored, 0)
    return lane, 2 * item + {16: 8, 8: 16}[BITS[kind]] * abid


def runs_of_k(length, apart=0):
    """k of item s in lane group g: consecutive, or in two runs of `length` that lie `apart`."""
    return lambda g, s: length * g + s if not apart else apart * (s // length) + length * g + s % length


# gfx950's own shapes: k of item s of lane group g = lane / rows, for A and for B; of a sparse A the stored element.
NEW = {
    "mfma_16x16x32_16": (runs_of_k(8), runs_of_k(8)),
    "mfma_32x32x16_16": (runs_of_k(8), runs_of_k(8)),
    "mfma_16x16x64_8": (runs_of_k(16), runs_of_k(16)),
    "mfma_32x32x32_8": (runs_of_k(16), runs_of_k(16)),
    "smfmac_16x16x64_16": (runs_of_k(8), runs_of_k(8, apart=32)),
    "smfmac_32x32x32_16": (runs_of_k(8), runs_of_k(8, apart=16)),
    "smfmac_16x16x128_8": (runs_of_k(16), runs_of_k(16, apart=64)),
    "smfmac_32x32x64_8": (runs_of_k(16), runs_of_k(16, apart=32)),
}
NEW_BYTES = {"16x16x128": runs_of_k(16, apart=64), "32x32x64": runs_of_k(16, apart=32)}  # fp8 and bf8 of f8f6f4
NEW_SMALL = {"16x16x128": runs_of_k(32), "32x32x64": runs_of_k(32)}  # fp6, bf6 and fp4 of f8f6f4


class Case:
    """An instruction with its formats: shape, kinds of elements, and the oracle's place of each."""

    def __init__(self, name, a_kind=None, b_kind=None):
        family, rest = re.fullmatch(r"v_(mfma|smfmac)_(?:scale_)?\w\d+_(\d.*)", name).groups()
        m, k, blocks, kinds = re.fullmatch(r"(\d+)x\d+x(\d+)_(?:(\d+)b_)?(\w+)", rest).groups()
        self.name, self.m, self.k, self.blocks = name, int(m), int(k), int(blocks or 1)
        self.sparse, self.scaled = family == "smfmac", "scale" in name
        self.free = kinds == "f8f6f4"
        self.a_kind, self.b_kind = (a_kind, b_kind) if self.free else (kinds.split("_")[0], kinds.split("_")[-1])
        self.d_kind = {"f64": "f64", "i8": "i32"}.get(kinds, "f32")
        self.new = f"{family}_{m}x{m}x{k}_{BITS[self.a_kind]}" if not blocks else ""
        self.shape = f"{m}x{m}x{k}"
        self.stored = self.k // (1 + self.sparse)

    def __repr__(self):
        return f"{self.name}-{self.a_kind}-{self.b_kind}" if self.free else self.name

    def depth(self, operand):
        return self.stored if operand == "A" else self.k

    def input_place(self, operand, line, k, block):
        kind = self.a_kind if operand == "A" else self.b_kind
        if not self.free and self.new not in NEW:
            return calculator_input(self.m, self.depth(operand), self.blocks, line, k, block)
        small = NEW_BYTES if BITS[kind] == 8 else NEW_SMALL
        of = small[self.shape] if self.free else NEW[self.new][operand == "B"]
        group, item = turned(of, self.m, self.depth(operand))[k]
        return group * self.m + line, item

    @functools.cached_property
    def places(self):
        """Per operand the element numbers in every lane and item, counted by block, line and k, or row and column."""
        found = {}
        for operand in "AB":
            items = self.m * self.depth(operand) * self.blocks // LANES
            found[operand] = table(
                items,
                (self.blocks, self.m, self.depth(operand)),
                lambda block, line, k, operand=operand: self.input_place(operand, line, k, block),
            )
        bits = 64 if self.d_kind == "f64" else 32
        found["D"] = table(
            self.m * self.m * self.blocks // LANES,
            (self.blocks, self.m, self.m),
            lambda block, i, j: calculator_output(self.m, self.m, bits, i, j, block),
        )
        return found


@functools.cache
def turned(of, rows, depth):
    """From k to lane group and item."""
    groups = LANES // rows
    found = {of(g, s): (g, s) for g in range(groups) for s in range(depth // groups)}
    assert sorted(found) == list(range(depth))
    return found


def table(items, size, place):
    """The numbers of the elements in (lane, item); every one is taken once."""
    found = np.full((LANES, items), -1)
    for number, element in enumerate(itertools.product(*map(range, size))):
        lane, item = place(*element)
        assert found[lane, item] == -1
        found[lane, item] = number
    assert (found >= 0).all()
    return found


@functools.cache
def case(name, a_kind=None, b_kind=None):
    return Case(name, a_kind, b_kind)


F8F6F4_NAMES = [f"v_mfma_{scale}f32_{shape}_f8f6f4" for scale in ("", "scale_") for shape in NEW_BYTES]
CASES = [(name,) for name in MATRIX] + [(name, *pair) for name in F8F6F4_NAMES for pair in PAIRS]
SPARSE = [name for name in MATRIX if "smfmac" in name]
every_case = pytest.mark.parametrize("which", CASES, ids="-".join)


# ---- Running the instruction on many sets of registers at once ----


def pack(codes, place, bits):
    """Registers (count, runs, 64) of codes (runs, elements)."""
    if bits < 8:
        codes, place, bits = joined(codes[:, place].astype(np.uint8), bits), None, 8
    items = codes.astype(f"<u{bits // 8}")
    items = items if place is None else items[:, place]
    words = np.ascontiguousarray(items).reshape(len(items), LANES, -1).view("<u4")
    return np.ascontiguousarray(words.transpose(2, 0, 1), np.uint32)


def joined(items, bits):
    """Bytes (runs, 64, count) of small codes (runs, 64, items) without gaps, low bits first."""
    if bits == 4:
        return items[..., ::2] | items[..., 1::2] << 4
    first, second, third, fourth = (items[..., at::4] for at in range(4))
    bytes_ = (first | second << 6, second >> 2 | third << 4, third >> 4 | fourth << 2)
    return np.stack(bytes_, axis=-1).reshape(*items.shape[:2], -1)


def numbers(codes, kind):
    """Element codes of C and D as numbers."""
    if kind == "i32":
        return codes.astype(np.uint32).view(np.int32).astype(np.float64)
    words = codes.astype(np.uint64 if kind == "f64" else np.uint32)
    return words.view(np.float64 if kind == "f64" else np.float32).astype(np.float64)


def codes_of(values, kind):
    if kind == "i32":
        return np.asarray(values).astype(np.int64).astype(np.uint32).astype(np.uint64)
    typed = np.asarray(values).astype(np.float64 if kind == "f64" else np.float32)
    return typed.view(np.uint64 if kind == "f64" else np.uint32).astype(np.uint64)


def unpack(case, value):
    """The elements of D (runs, blocks, rows, columns) as numbers."""
    raws = [word.raw for word in value.words] if isinstance(value, Words) else [value.raw]
    words = np.stack(raws).astype(np.uint64)
    if case.d_kind == "f64" and isinstance(value, Words):
        words = words[::2] | words[1::2] << np.uint64(32)
    elements = np.empty((words.shape[1], case.places["D"].size), np.uint64)
    elements[:, case.places["D"]] = words.transpose(1, 2, 0)
    return numbers(elements, case.d_kind).reshape(-1, case.blocks, case.m, case.m)


def garbage(seed, *size):
    return np.random.default_rng(seed).integers(0, 2**32, size, dtype=np.uint32)


def input_registers(case, operand, codes):
    """Of f8f6f4 always eight, those beyond what the format needs full of garbage."""
    kind = case.a_kind if operand == "A" else case.b_kind
    words = pack(codes, case.places[operand], BITS[kind])
    return np.concatenate([words, garbage(1, 8 - len(words), *words.shape[1:])]) if case.free else words


def run(case, a, b, c=None, index=None, scales=None, **fields):
    """D (runs, blocks, rows, columns) as numbers. a and b: codes (runs, elements); c: numbers, else zeros; index:
    registers (runs, 64); scales: two of them, else ones in every byte. What one run gives goes to all."""
    count = max(len(x) for x in (a, b, *([] if index is None else [index]), *(scales or ())))
    a, b = (np.broadcast_to(x, (count, x.shape[1])) for x in (a, b))
    elements = case.places["D"].size
    c = np.zeros((1, elements)) if c is None else np.asarray(c).reshape(-1, elements)
    c_words = pack(np.broadcast_to(codes_of(c, case.d_kind), (count, elements)), case.places["D"], c_bits(case))
    registers = [input_registers(case, "A", a), input_registers(case, "B", b)]
    registers += [np.asarray(index)[None], c_words] if case.sparse else [c_words]
    if case.free:
        fields |= {"cbsz": F8F6F4.index(case.a_kind), "blgp": F8F6F4.index(case.b_kind)}
    if case.scaled:
        registers += [scale[None] for scale in scales or [np.full((1, LANES), 0x7F7F7F7F, np.uint32)] * 2]
    operands = [from_words(np.ascontiguousarray(np.broadcast_to(x, (len(x), count, LANES)))) for x in registers]
    return unpack(case, instruction(case.name)(*operands, **fields))


def c_bits(case):
    return 64 if case.d_kind == "f64" else 32


def bit_planes(count):
    """(bits, count): bit p of every number below count."""
    return np.arange(count) >> np.arange(max(count - 1, 1).bit_length())[:, None] & 1


def chunks(total, size):
    return [range(first, min(first + size, total)) for first in range(0, total, size)]


def uniform_index(case, value):
    """An index register that says `value` for every stored element, in all sets."""
    return np.full((1, LANES), value * 0x55555555, np.uint32) if case.sparse else None


# ---- Elements of A, B, C and D ----


@every_case
def test_c_and_d_are_where_the_oracle_says(which):
    """Every element of C a number of its own, without products and with as many as there are."""
    this = case(*which)
    one = [CODES[kind][1] for kind in (this.a_kind, this.b_kind)]
    shape = (this.blocks, this.m, this.m)
    c = np.arange(1, math.prod(shape) + 1)
    for a in (0, one[0]):
        codes = [np.full((1, this.places[o].size), x, np.uint64) for o, x in zip("AB", (a, one[1]), strict=True)]
        d = run(this, *codes, c, uniform_index(this, 1))
        np.testing.assert_array_equal(d[0], c.reshape(shape) + (this.stored if a else 0))


def meeting(this, columns, value=0, **fields):
    """For these k of A, and for all D: how many products reach it, the row of A and the element of B in the one."""
    a_size, b_size = this.places["A"].size, this.places["B"].size
    row, k_of = np.divmod(np.arange(a_size), this.stored)
    a_planes, b_planes = bit_planes(this.blocks * this.m)[:, row], bit_planes(b_size)
    a, b = [], []
    for k in columns:
        on = k_of == k
        a += [on, *(on & plane for plane in a_planes), *[on] * len(b_planes)]
        b += [np.ones(b_size)] * (1 + len(a_planes)) + list(b_planes)
    one = [np.uint64(CODES[kind][1]) for kind in (this.a_kind, this.b_kind)]
    codes = [np.array(x, np.uint64) * code for x, code in zip((a, b), one, strict=True)]
    d = run(this, *codes, None, uniform_index(this, value), **fields)
    d = d.reshape(len(columns), -1, *d.shape[1:])
    cut = 1 + len(a_planes)
    return d[:, 0], whole(d[:, 1:cut]), whole(d[:, cut:])


def whole(planes):
    """Numbers from their bits (.., bits, ...)."""
    assert np.isin(planes, (0, 1)).all()
    weights = 2 ** np.arange(planes.shape[1])
    return np.einsum("kp...,p->k...", planes, weights).astype(np.int64)


def assert_products(this, columns, found, a_block, b_number, value=0):
    """`found` by `meeting`: one product, of row i of block `a_block(block)` of A and of `b_number(block, j, k)`."""
    block, i, j = np.ogrid[: this.blocks, : this.m, : this.m]
    count, of_a, of_b = found
    assert (count == 1).all()
    for at, c in enumerate(columns):
        k = 4 * (c // 2) + value if this.sparse else c
        np.testing.assert_array_equal(of_a[at], a_block(block) * this.m + i + 0 * j)
        np.testing.assert_array_equal(of_b[at], b_number(block, j, k) + 0 * i)


@every_case
def test_every_product_is_of_the_elements_that_the_oracle_names(which):
    this = case(*which)
    for value in range(4 if this.sparse else 1):
        for columns in chunks(this.stored, 16):
            found = meeting(this, columns, value)
            assert_products(
                this, columns, found, lambda block: block, lambda block, j, k: (block * this.m + j) * this.k + k, value
            )


def finite_codes(random, size, kind):
    """Any codes but of what is not finite, and of f32, bf16 and f64 what is subnormal."""
    codes = np.frombuffer(random.bytes(8 * int(np.prod(size))), np.uint64).reshape(size) >> np.uint64(64 - BITS[kind])
    if kind == "fp8":
        return codes ^ (codes & np.uint64(0x7F) == 0x7F)
    if kind in ("fp6", "bf6", "fp4", "i8"):
        return codes
    exponent, mantissa = {"f64": (11, 52), "f32": (8, 23), "f16": (5, 10), "bf16": (8, 7), "bf8": (5, 2)}[kind]
    field = codes >> np.uint64(mantissa) & np.uint64((1 << exponent) - 1)
    beyond = (field == (1 << exponent) - 1) | ((field == 0) & (exponent > 5))
    return codes ^ beyond * np.uint64(1 << mantissa)


def values_of(codes, kind):
    """By the formats' own definition: sign, exponent, mantissa."""
    if kind == "i8":
        return codes.astype(np.uint8).view(np.int8).astype(np.float64)
    exponent, mantissa, bias = {
        "f64": (11, 52, 1023),
        "f32": (8, 23, 127),
        "f16": (5, 10, 15),
        "bf16": (8, 7, 127),
        "fp8": (4, 3, 7),
        "bf8": (5, 2, 15),
        "fp6": (2, 3, 1),
        "bf6": (3, 2, 3),
        "fp4": (2, 1, 1),
    }[kind]
    field = (codes >> np.uint64(mantissa) & np.uint64((1 << exponent) - 1)).astype(np.int64)
    fraction = (codes & np.uint64((1 << mantissa) - 1)).astype(np.float64) * 2.0**-mantissa
    size = np.ldexp(fraction + (field > 0), np.maximum(field, 1) - bias)
    return np.where(codes >> np.uint64(exponent + mantissa) & np.uint64(1), -size, size)


@every_case
@pytest.mark.parametrize("operand", "AB")
def test_every_bit_of_an_element_is_its_own(which, operand):
    """One k of the other operand is 1, else all is random: D is the value of the one element that meets the 1."""
    this = case(*which)
    kind, other_kind = (this.a_kind, this.b_kind) if operand == "A" else (this.b_kind, this.a_kind)
    other = "B" if operand == "A" else "A"
    random = np.random.default_rng(3)
    depth, size = this.depth(operand), this.places[operand].size
    columns = range(0, depth, max(1, depth // 16)) if depth > 16 else range(depth)
    columns = [min(depth - 1, k + int(random.integers(max(1, depth // 16)))) for k in columns] * 2
    codes = finite_codes(random, (len(columns), size), kind)
    met = [k // 4 * 2 + k % 4 // 2 if operand == "B" and this.sparse else k for k in columns]
    others = np.arange(this.places[other].size) % this.depth(other)
    wanted = [4 * (k // 2) + 2 * (k % 2) for k in met] if operand == "A" and this.sparse else met
    ones = np.array([others == k for k in wanted], np.uint64) * np.uint64(CODES[other_kind][1])
    index = None
    if this.sparse:  # the first of a pair at k % 4 = 0, the second at 2; for B the one of the pair that meets k
        values = [(0, 2) if operand == "A" else (k % 4, k % 4) for k in columns]
        index = np.repeat(np.array([[(low | high << 2) * 0x11111111] for low, high in values], np.uint32), LANES, 1)
    pair = (codes, ones) if operand == "A" else (ones, codes)
    d = run(this, *pair, None, index)
    value = values_of(codes, kind).reshape(len(columns), this.blocks, this.m, depth)
    expected = np.stack([value[at][..., k] for at, k in enumerate(columns)])
    expected = expected[..., :, None] if operand == "A" else expected[..., None, :]
    np.testing.assert_array_equal(d, np.broadcast_to(expected, d.shape))


# ---- gfx950.layouts says the same ----


def placed(found):
    """Element number by lane and item, of an operand's layout; B's by column, then k."""
    by_column = found.operand == "B"
    lines, depth = (found.cols, found.rows) if by_column else (found.rows, found.cols)
    numbers_ = np.full((LANES, found.items), -1)
    for element in found.elements():
        place = found.locate(*element)
        item = (32 * place.register + place.low_bit - found.first_bit) // found.element_bits
        line, k = (element.col, element.row) if by_column else (element.row, element.col)
        numbers_[place.lane, item] = (element.block * lines + line) * depth + k
    return numbers_


@every_case
def test_gfx950_layouts_says_the_same(which):
    this = case(*which)
    for operand in "ABCD":
        found = layout(this.name, operand, *which[1:])
        np.testing.assert_array_equal(placed(found), this.places["D" if operand == "C" else operand])


def test_every_matrix_instruction_is_among_the_cases():
    assert {which[0] for which in CASES} == set(MATRIX_INSTRUCTIONS)
    assert len(CASES) == 64 + 4 * 25


# ---- The index of a sparse A ----


def index_register(this, column, abid, of_column, of_others):
    """(64,) an index register: of this stored column `of_column` by row, of all others and other sets `of_others`."""
    register = (of_others[np.arange(LANES) % this.m] * 0x55555555).astype(np.uint32)
    lanes, lows = np.array([index_place(this, row, column, abid) for row in range(this.m)]).T
    lows = lows.astype(np.uint32)
    register[lanes] = register[lanes] & ~(np.uint32(3) << lows) | of_column.astype(np.uint32) << lows
    return register


def index_place(this, row, column, abid):
    """Lane and first bit of an index; gfx950's own shapes keep two bits for each stored element in A's own order."""
    if this.new not in NEW:
        return calculator_index(this.m, this.k, this.a_kind, row, column, abid)
    lane, item = this.input_place("A", row, column, 0)
    return lane, 2 * item + 2 * this.places["A"].shape[1] * abid


@pytest.mark.parametrize("name", SPARSE)
def test_every_index_is_two_bits_of_its_own(name):
    """B is k % 4 in the four k that one stored column may meet and 0 elsewhere, so D is the index that was read. First
    that column's is 0 in all rows and everything else in the register 3, then 3 among 0: no bit is read from
    elsewhere but the same column. Then, by pairs of bits, the row's own number: nor from another row."""
    this = case(name)
    k_of = np.arange(this.places["B"].size) % this.k
    rows = np.arange(this.m)
    digits = [0 * rows, 0 * rows + 3, *(rows >> shift & 3 for shift in (0, 2, 4))]
    sets = 32 // (2 * this.places["A"].shape[1])
    for abid in range(sets):
        a, b, index = [], [], []
        for column in range(this.stored):
            in_four = np.array(CODES[this.b_kind], np.uint64)[k_of % 4] * (k_of // 4 == column // 2)
            a += [(np.arange(this.places["A"].size) % this.stored == column) * np.uint64(CODES[this.a_kind][1])] * 5
            b += [in_four] * 5
            index += [index_register(this, column, abid, digit, 3 - digit) for digit in digits]
        index = np.array(index)
        d = run(this, np.array(a), np.array(b), None, index, abid=abid)[:, 0]
        want = np.tile(np.array(digits), (this.stored, 1))[..., None]
        np.testing.assert_array_equal(d, np.broadcast_to(want, d.shape))
        if abid == 0:  # any CBSZ but 0 takes the first set whatever ABID is
            d = run(this, np.array(a), np.array(b), None, index, cbsz=1 + this.m % 3, abid=sets - 1)[:, 0]
            np.testing.assert_array_equal(d, np.broadcast_to(want, d.shape))


@pytest.mark.parametrize("name", SPARSE)
def test_layouts_has_the_same_index(name):
    this = case(name)
    for abid in range(MATRIX_INSTRUCTIONS[name].index_sets):
        found = layout(name, "index", op_sel=abid)
        for row, column in itertools.product(range(this.m), range(this.stored)):
            place = found.locate(row, column)
            assert (place.lane, place.low_bit) == index_place(this, row, column, abid)
            assert (place.register, place.high_bit) == (0, place.low_bit + 1)


# ---- Scales ----

SCALED = [name for name in F8F6F4_NAMES if "scale" in name]


def scale_lane(this, line, k):
    """The lane of the scale of a row of A or column of B for the block of 32 that k is in."""
    return k // 32 * this.m + line


def with_byte(register, byte, value):
    return register & ~np.uint32(255 << 8 * byte) | np.asarray(value).astype(np.uint32) << np.uint32(8 * byte)


def weighted(this, offset):
    """A is 1 at one k of each block of 32; B there 0.5, 1, 2, 4 by block: any subset of blocks has a sum of its own."""
    k_of = np.arange(this.places["A"].size) % this.k
    half = {"fp8": 0x30, "bf8": 0x38, "fp6": 0x04, "bf6": 0x08, "fp4": 0x1}[this.b_kind]
    four = {"fp8": 0x48, "bf8": 0x44, "fp6": 0x18, "bf6": 0x14, "fp4": 0x6}[this.b_kind]
    weights = np.array([half, CODES[this.b_kind][1], CODES[this.b_kind][2], four], np.uint64)
    chosen = k_of % 32 == (offset + k_of // 32) % 32
    a, b = chosen * np.uint64(CODES[this.a_kind][1]), chosen * weights[k_of // 32]
    return a[None], b[None]


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_one_scale_byte_changes_the_products_of_its_line_and_block_and_no_other(name, pair):
    """Each of the 64 bytes of either register in turn from 1 to 2, the other bytes garbage that is new in every run."""
    this, blocks = case(name, *pair), np.arange(case(name, *pair).k // 32)
    # All 16 pairs of bytes for one pair of formats, for the others every byte of each once.
    bytes_ = itertools.product(range(4), repeat=2) if pair == ("fp8", "fp4") else ((x, x * 3 % 4 ^ 1) for x in range(4))
    for (byte_a, byte_b), offset in zip(bytes_, itertools.cycle((0, 9, 15, 16, 22, 31)), strict=False):
        a, b = weighted(this, offset)
        base = 2.0 ** (blocks - 1)
        noise = [garbage(40 + byte_a + 4 * byte_b + x, 1 + 2 * LANES, LANES) for x in range(2)]
        scales = [with_byte(x, byte, 127) for x, byte in zip(noise, (byte_a, byte_b), strict=True)]
        for which, byte in ((0, byte_a), (1, byte_b)):
            for lane in range(LANES):
                changed = scales[which][1 + LANES * which + lane]
                changed[lane] = with_byte(changed[lane], byte, 128)
        fields = {
            "scale_op_sel": byte_a & 1 | (byte_b & 1) << 1,
            "scale_op_sel_hi": byte_a >> 1 | (byte_b >> 1) << 1,
        }
        d = run(this, a, b, None, None, scales, **fields)[:, 0]
        want = np.full(d.shape, base.sum())
        for line, block in itertools.product(range(this.m), blocks):
            lane = scale_lane(this, line, 32 * block)
            want[1 + lane, line, :] += base[block]
            want[1 + LANES + lane, :, line] += base[block]
        np.testing.assert_array_equal(d, want)


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_product_has_the_scales_of_its_own_line_and_block(name, pair):
    """A is 1 at one k, and the scale in lane l is 2 to bit p of l: D shows the lane that scales the product."""
    this, planes = case(name, *pair), bit_planes(LANES)
    columns = range(0, this.k, 5 if pair[0] != pair[1] else 1)
    k_of = np.arange(this.places["A"].size) % this.k
    one = [np.uint64(CODES[kind][1]) for kind in pair]
    a = np.repeat(np.array([(k_of == k) * one[0] for k in columns]), 2 * len(planes), axis=0)
    b = np.full((1, k_of.size), one[1], np.uint64)
    scales = [np.tile(np.repeat(x, [len(planes)] * 2, axis=0), (1, 1)) for x in np.full((2, 2, LANES), 127)]
    scales[0][: len(planes)] += planes
    scales[1][len(planes) :] += planes
    scales = [np.tile(x, (len(columns), 1)).astype(np.uint32) for x in scales]
    d = run(this, a, b, None, None, scales)[:, 0].reshape(len(columns), 2, len(planes), this.m, this.m)
    assert np.isin(d, (1, 2)).all()
    lanes = np.einsum("kwpij,p->kwij", d - 1, 2 ** np.arange(len(planes)))
    line = np.arange(this.m)
    for at, k in enumerate(columns):
        np.testing.assert_array_equal(lanes[at, 0], np.repeat(scale_lane(this, line, k)[:, None], this.m, 1))
        np.testing.assert_array_equal(lanes[at, 1], np.repeat(scale_lane(this, line, k)[None], this.m, 0))


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("byte", range(4))
def test_layouts_has_the_same_scales(name, byte):
    this = case(name, "fp8", "fp4")
    for operand in ("scaleA", "scaleB"):
        found = layout(name, operand, "fp8", "fp4", byte)
        assert (found.rows, found.cols) == (this.m, this.k // 32)
        for line, block in itertools.product(range(found.rows), range(found.cols)):
            place = found.locate(line, block)
            assert (place.lane, place.low_bit) == (scale_lane(this, line, 32 * block), 8 * byte)


# ---- CBSZ, ABID, BLGP ----

BROADCASTING = [name for name in MATRIX if name.startswith("v_mfma") and "f64" not in name]


def broadcast_block(block, cbsz, abid):
    """The block of A that is read in place of this one, by the calculator."""
    return block // 2**cbsz * 2**cbsz + abid


def broadcast_lane(lane, blgp):
    """The lane of B that is read in place of this one, by the calculator's table."""
    first = {4: 0, 5: 16, 6: 32, 7: 48}
    if blgp in first:
        return lane % 16 + first[blgp]
    return {0: lane, 1: lane % 32, 2: lane % 32 + 32, 3: (lane + 16) % 64}[blgp]


def broadcasts(this):
    """All legal (CBSZ, ABID) with BLGP taking turns, and all BLGP without."""
    legal = [(cbsz, abid) for cbsz in range(this.blocks.bit_length()) for abid in range(2**cbsz)]
    turns = [(cbsz, abid, (3 * at + cbsz) % 8) for at, (cbsz, abid) in enumerate(legal)]
    return [*((cbsz, abid, 0) for cbsz, abid in legal), *turns, *((0, 0, blgp) for blgp in range(1, 8))]


@pytest.mark.parametrize("name", BROADCASTING)
def test_broadcasts_of_blocks_and_lanes(name):
    """As `meeting` shows it: which block of A and which element of B each product is of."""
    this = case(name)
    b_places = np.empty((this.places["B"].size, 2), np.int64)
    b_places[this.places["B"]] = np.stack(np.indices(this.places["B"].shape), axis=-1)
    columns = range(this.k) if this.blocks > 1 else range(0, this.k, max(1, this.k // 4))
    for cbsz, abid, blgp in broadcasts(this):

        def b_number(block, j, k, blgp=blgp):
            lane, item = b_places[(block * this.m + j) * this.k + k].transpose(3, 0, 1, 2)
            read = np.vectorize(lambda lane: broadcast_lane(lane, blgp))(lane)
            return this.places["B"][read, item]

        found = meeting(this, columns, cbsz=cbsz, abid=abid, blgp=blgp)
        a_block = functools.partial(broadcast_block, cbsz=cbsz, abid=abid)
        assert_products(this, columns, found, a_block, b_number)


# ---- f64: BLGP negates ----


@pytest.mark.parametrize("name", [name for name in MATRIX if "f64" in name])
@pytest.mark.parametrize("blgp", range(8))
def test_blgp_negates_f64(name, blgp):
    """By the calculator bit 0 negates A, bit 1 B, bit 2 C."""
    this, random = case(name), np.random.default_rng(blgp)
    a, b = (random.integers(-99, 100, (8, this.blocks, this.m, this.k)).astype(np.float64) for _ in range(2))
    c = random.integers(-9999, 10000, (8, this.blocks, this.m, this.m)).astype(np.float64)
    codes = [x.reshape(8, -1).view(np.uint64) for x in (a, b)]
    signs = [-1.0 if blgp >> bit & 1 else 1.0 for bit in range(3)]
    d = run(this, *codes, c, blgp=blgp)
    np.testing.assert_array_equal(d, signs[0] * signs[1] * (a @ b.swapaxes(-1, -2)) + signs[2] * c)


# ---- What the calculator prints ----

# Lines of its README: get-register, register-layout and the formulas of detail-instruction, read by the spelling of
# gfx950 for the same instruction.
PRINTED = [
    ("v_mfma_f32_4x4x4_16b_f16", "A[1][2].B4 = v1{17}.[15:0]"),
    ("v_mfma_f32_4x4x4_16b_f16", "A[1][3].B4 = v1{17}.[31:16]"),
    ("v_mfma_f32_4x4x4_16b_f16", "D[3][2].B1 = v3{6}"),
    ("v_mfma_f32_4x4x4_16b_f16", "A[3][0].B1 = v0{7}.[15:0]"),
    ("v_mfma_f32_4x4x4_16b_f16", "B[1][2].B1 = v0{6}.[31:16]"),
    ("v_mfma_f32_4x4x4_16b_f16", "B[3][2].B1 = v1{6}.[31:16]"),
    ("v_mfma_f32_4x4x4_16b_f16", "D[2][1].B8 = v2{33}"),
    ("v_mfma_f64_4x4x4_4b_f64", "D[1][0].B0 = v[1:0]{16}"),
    ("v_mfma_f64_4x4x4_4b_f64", "D[2][3].B1 = v[1:0]{39}"),
    ("v_mfma_f64_4x4x4_4b_f64", "D[3][0].B3 = v[1:0]{60}"),
    ("v_mfma_f64_16x16x4_f64", "B[1][0] = v[1:0]{16}"),
    ("v_mfma_f64_16x16x4_f64", "B[3][15] = v[1:0]{63}"),
    ("v_smfmac_f32_16x16x32_f16", "K[2][31] = v0{50}.[7:4]"),
]


def read_printed(line):
    """Operand, row, column, block, first register, lane, bits."""
    pattern = r"([ABDK])\[(\d+)\]\[(\d+)\](?:\.B(\d+))? = v(?:(\d+)|\[\d+:(\d+)\])\{(\d+)\}(?:\.\[(\d+):(\d+)\])?"
    operand, *found = re.fullmatch(pattern, line).groups()
    row, col, block, single, pair, lane, high, low = (None if x is None else int(x) for x in found)
    return operand, row, col, block or 0, pair if single is None else single, lane, high, low


@pytest.mark.parametrize(("name", "line"), PRINTED)
def test_the_oracle_is_what_the_calculator_prints(name, line):
    this = case(name)
    operand, row, col, block, register, lane, high, low = read_printed(line)
    if operand == "K":  # of the pair of indices of column 31's four
        assert index_place(this, row, col // 2 // 2 * 2, 0) == (lane, low)
        assert index_place(this, row, col // 2 // 2 * 2, 3) == (lane, 28)  # K[2][31] = v0{50}.[31:28] with ABID 3
        return
    if operand == "D":
        found, item = calculator_output(this.m, this.m, c_bits(this), row, col, block)
        bits = c_bits(this)
    else:
        line_k = (col, row) if operand == "B" else (row, col)
        found, item = this.input_place(operand, *line_k, block)
        bits = BITS[this.a_kind]
    assert (found, item * bits // 32) == (lane, register)
    assert low is None or (item * bits % 32, item * bits % 32 + bits - 1) == (low, high)
