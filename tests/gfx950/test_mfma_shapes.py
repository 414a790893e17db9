"""Matrix natives of several blocks, of f32, f64 and i8, and sparse ones: the plain rule, a published model, numpy's
integers, and the register layouts that others read off the silicon."""

import functools
import itertools

import numpy as np
import pytest
from matrix_oracle import F32, F64, multiply_add

from gfx950.arithmetic.mfma import Format, MfmaModel, Operand, SparseOrder, evaluate, multiply, pack_parameters
from gfx950.arithmetic.mfma_shapes import SHAPES, kind_of
from gfx950.arithmetic.native import NATIVES
from gfx950.layouts import layout

NAMES = [n for n, s in SHAPES.items() if s.sparse or s.copies > 1 or kind_of(n) in ("f32", "f64", "i8")]
SPARSE = [name for name in NAMES if SHAPES[name].sparse]
ELEMENT_BITS = {"f16": 16, "f8": 8, "i8": 8, "f32": 32, "f64": 64}
FORMATS = {
    "f16": [(Format.f16, Format.f16), (Format.bf16, Format.bf16)],
    "f8": list(itertools.product((Format.fp8, Format.bf8), repeat=2)),
}
NAN, NAN_64, INF = 0x7FC00000, 0x7FF8000000000000, 0x7F800000


def formats_of(name):
    return FORMATS.get(kind_of(name), [(Format.fp8, Format.fp8)])


def mnemonic_of(name):
    family, _, rest = name.partition("_")
    shape, _, kind = rest.rpartition("_")
    result = {"i8": "i32", "f64": "f64"}.get(kind, "f32")
    return f"v_{family}_{result}_{shape}_{'fp8_fp8' if kind == 'f8' else kind}"


@functools.cache
def places(name, operand):
    """Register, lane and lowest bit of every element, (blocks, rows, columns), and the layout."""
    where = layout(mnemonic_of(name), operand)
    found = np.zeros((3, where.blocks, where.rows, where.cols), np.int64)
    for e in where.elements():
        place = where.locate(*e)
        found[:, e.block, e.row, e.col] = place.register, place.lane, place.low_bit
    return *found, where


def pack(name, operand, codes):
    """The registers of an operand from its codes (blocks, rows, columns)."""
    register, lane, low, where = places(name, operand)
    registers = np.zeros((where.registers, 64), np.uint32)
    codes = codes.astype(np.uint64)
    np.bitwise_or.at(registers, (register, lane), (codes << low.astype(np.uint64)).astype(np.uint32))
    if where.element_bits == 64:
        np.bitwise_or.at(registers, (register + 1, lane), (codes >> np.uint64(32)).astype(np.uint32))
    return registers


def unpack(name, operand, registers):
    register, lane, _, where = places(name, operand)
    codes = registers[register, lane].astype(np.uint64)
    if where.element_bits == 64:
        codes |= registers[register + 1, lane].astype(np.uint64) << np.uint64(32)
    return codes


def random_bits(random, size, bits):
    return np.frombuffer(random.bytes(8 * int(np.prod(size))), np.uint64).reshape(size) & np.uint64((1 << bits) - 1)


def random_matrices(random, name):
    bits = {"A": ELEMENT_BITS[kind_of(name)], "B": ELEMENT_BITS[kind_of(name)], "index": 2}
    operands = ["A", "B", "C", *["index"] * SHAPES[name].sparse]
    codes = {}
    for operand in operands:
        where = places(name, operand)[3]
        size = (where.blocks, where.rows, where.cols)
        codes[operand] = random_bits(random, size, bits.get(operand, where.element_bits))
    return codes


def registers_of(name, codes):
    return np.concatenate([pack(name, operand, codes[operand]) for operand in codes])


def shifts_of(name):
    bits = 2 * SHAPES[name].lane_items
    return range(0, 32, bits) if SHAPES[name].sparse else (0,)


# ---- The fast natives and the plain rule ----


def tame(random, name, formats, inputs, mode):
    """mode 0 and 4: a few Inf in A or in B; 1 to 3: no specials in A and B; 2: also mostly zeros, of 2 and 3 C near the
    products."""
    shape, kind = SHAPES[name], kind_of(name)
    ab = slice(0, shape.operand_registers + shape.b_shape.operand_registers)
    c = slice(ab.stop, ab.stop + shape.c_registers)
    keep = {"f16": 0xBFFFBFFF, "f8": 0xBFBFBFBF}.get(kind, 0xFFFFFFFF)
    inputs[ab] &= np.uint32(keep)
    if mode in (0, 4) and kind in ("f16", "f8"):
        rows = slice(0, shape.operand_registers) if mode == 0 else slice(shape.operand_registers, ab.stop)
        infinity = {Format.f16: 0x7C00, Format.bf16: 0x7F80}.get(formats[mode == 4], 0x7C)
        here = random.random(inputs[rows].shape) < 0.02
        inputs[rows][here] = inputs[rows][here] & ~np.uint32(0x7FFF if kind == "f16" else 0x7F) | np.uint32(infinity)
    if mode == 2:
        inputs[ab][random.random(inputs[ab].shape) < 0.8] = 0
    if mode >= 2 and kind in ("f16", "f8"):
        inputs[c] = inputs[c] & 0x807FFFFF | random.integers(90, 160, inputs[c].shape, dtype=np.uint32) << 23
    if mode == 3 and kind == "f32":  # subnormal inputs, and products near subnormal C
        inputs[ab] = inputs[ab] & 0x80FFFFFF | random.choice(np.array([0, 0x3F000000], np.uint32), inputs[ab].shape)
        inputs[c] &= 0x80FFFFFF
    return inputs


def fast_against_plain(name, formats, seed):
    random = np.random.default_rng(seed)
    inputs = random.integers(0, 2**32, (NATIVES[name].n_in, 64), dtype=np.uint32)
    inputs = tame(random, name, formats, inputs, seed % 5)
    options = {"clamp": bool(random.integers(2)), "flush": bool(random.integers(2)), "negate": int(random.integers(8))}
    parameters = pack_parameters(*formats, index_shift=int(random.choice(list(shifts_of(name)))), **options)
    np.testing.assert_array_equal(
        NATIVES[name](inputs, parameters), evaluate(name, inputs, parameters), err_msg=f"{formats} seed {seed}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_fast_natives_follow_the_plain_rule(name):
    for seed in range(5):
        formats = formats_of(name)
        fast_against_plain(name, formats[seed % len(formats)], seed)


@pytest.mark.parametrize("operand", ["A", "B"])
@pytest.mark.parametrize("name", [n for n in NAMES if kind_of(n) in ("f16", "f8")])
def test_one_inf_is_seen_wherever_it_is(name, operand):
    """In every row of A or column of B, among ones; the rest of D is finite."""
    shape, format_ = SHAPES[name], Format.f16 if kind_of(name) == "f16" else Format.bf8
    one, infinity = (0x3C00, 0x7C00) if kind_of(name) == "f16" else (0x3C, 0x7C)
    codes = {o: np.full_like(x, one) for o, x in random_matrices(np.random.default_rng(0), name).items()}
    codes["C"][:] = 0
    if shape.sparse:
        codes["index"][:] = np.arange(shape.depth) % 2  # k 0 and 1 of each four
    for line in range(shape.rows):
        given = codes[operand].copy()
        block, k = line % shape.copies, 4 * (line * 5 % shape.depth // 4)
        given[(block, line, k) if operand == "A" else (block, k, line)] = infinity
        inputs = registers_of(name, codes | {operand: given})
        d = unpack(name, "D", NATIVES[name](inputs, pack_parameters(format_, format_)))
        want = np.full_like(d, np.float32(shape.depth).view(np.uint32))
        want[(block, line) if operand == "A" else (block, slice(None), line)] = INF
        np.testing.assert_array_equal(d, want)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_fast_natives_follow_the_plain_rule_at_length(name):
    for formats in formats_of(name):
        for seed in range(1000, 1040):
            fast_against_plain(name, formats, seed)


# ---- Sparse rows and the published model of gfx942, which has no sparse shapes ----


@functools.cache
def peer_of(suffix):
    pytest.importorskip("torch")
    return pytest.importorskip("mmasim.amd").MFMA("CDNA3", suffix)


def their_rows(peer, a, b, c):
    """The peer's bits for a (m, k), b transposed (n, k) and c (m, n), NaN made one."""
    import torch

    words = {torch.float64: np.uint64, torch.float32: np.uint32, torch.float16: np.uint16, torch.bfloat16: np.uint16}
    a, b, c = (
        torch.from_numpy(np.ascontiguousarray(x.astype(words[t]))).view(t)
        for x, t in ((a, peer.a_type), (b, peer.b_type), (c, peer.c_type))
    )
    d = peer.arithmetic_op(a, b.T, c).numpy()
    bits = d.view(np.uint64 if d.itemsize == 8 else np.uint32).astype(np.uint64)
    return np.where(np.isnan(d), np.uint64(NAN_64 if d.itemsize == 8 else NAN), bits)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", [n for n in SPARSE if kind_of(n) == "f16"])
def test_a_sparse_row_is_the_measured_rule_on_what_it_meets(name, kind):
    """The published model has no sparse shapes: it gets the stored elements and the elements of B that they meet."""
    random, peer = np.random.default_rng(15), peer_of(f"f32_16x16x16_{kind}")
    codes = random_matrices(random, name)
    codes["A"], codes["B"] = (codes[o] & np.uint64(0xBFFF) for o in "AB")
    d = unpack(name, "D", NATIVES[name](registers_of(name, codes), pack_parameters(Format[kind], Format[kind])))
    for row in (0, 7, SHAPES[name].rows - 1):
        k = 4 * (np.arange(SHAPES[name].depth) // 2) + codes["index"][0, row].astype(np.int64)
        theirs = their_rows(peer, codes["A"][0, row][None], codes["B"][0][k].T, codes["C"][0, row][None])
        np.testing.assert_array_equal(d[0, row], theirs[0])


# ---- i8 ----


def signed(codes, bits):
    values = codes.astype(np.int64)
    return np.where(values >> bits - 1, values - (1 << bits), values)


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize("name", [n for n in NAMES if kind_of(n) == "i8"])
def test_i8_is_what_numpy_says(name, clamp):
    random, held = np.random.default_rng(16), 0
    for tile in range(20):
        codes = random_matrices(random, name)
        if tile % 2:  # C at an end
            codes["C"] = np.uint64(0x7FFFFF00) + codes["C"] % np.uint64(0x200)
        d = unpack(name, "D", NATIVES[name](registers_of(name, codes), pack_parameters(0, 0, clamp=clamp)))
        a, b, c = (signed(codes[o], bits) for o, bits in (("A", 8), ("B", 8), ("C", 32)))
        if SHAPES[name].sparse:
            whole = np.zeros((1, a.shape[1], b.shape[1]), np.int64)
            k = 4 * (np.arange(a.shape[2]) // 2) + codes["index"].astype(np.int64)
            np.add.at(whole, (0, np.arange(a.shape[1])[:, None], k[0]), a[0])
            a = whole
        exact = a @ b + c
        want = np.clip(exact, -(2**31), 2**31 - 1) if clamp else exact
        held += int((want != exact).sum())
        np.testing.assert_array_equal(d, (want & 0xFFFFFFFF).astype(np.uint64))
    assert held > 0 or not clamp


# ---- Sparse layouts as fpsan's authors read them off an MI350 ----


def bits_of(number, *positions):
    return sum((number >> position & 1) << i for i, position in enumerate(positions))


# By name: stored element c of row i -> lane, item; B[k][j] -> lane, item; index of group q of row i -> lane, nibble.
# The numbers k and c are theirs; where they count bytes otherwise than the manual does, the same elements meet.
SILICON = {
    "16x16x32_f16": (
        lambda i, c: (c // 4 * 16 + i, c % 4),
        lambda k, j: (k // 8 * 16 + j, k % 8),
        lambda i, q: (q // 2 * 16 + i, q % 2),
    ),
    "32x32x16_f16": (
        lambda i, c: (c // 4 * 32 + i, c % 4),
        lambda k, j: (k // 8 * 32 + j, k % 8),
        lambda i, q: (q // 2 * 32 + i, q % 2),
    ),
    "16x16x64_f16": (
        lambda i, c: (c // 8 * 16 + i, c % 8),
        lambda k, j: (k % 32 // 8 * 16 + j, k // 32 * 8 + k % 8),
        lambda i, q: (q // 4 * 16 + i, q % 4),
    ),
    "32x32x32_f16": (
        lambda i, c: (c // 8 * 32 + i, c % 8),
        lambda k, j: (k % 16 // 8 * 32 + j, k // 16 * 8 + k % 8),
        lambda i, q: (q // 4 * 32 + i, q % 4),
    ),
    "16x16x64_f8": (
        lambda i, c: (c % 16 // 4 * 16 + i, c // 16 * 4 + c % 4),
        lambda k, j: (k % 32 // 8 * 16 + j, k // 32 * 8 + k % 8),
        lambda i, q: (q % 8 // 2 * 16 + i, q // 8 * 2 + q % 2),
    ),
    "32x32x32_f8": (
        lambda i, c: (c % 8 // 4 * 32 + i, c // 8 * 4 + c % 4),
        lambda k, j: (k % 16 // 8 * 32 + j, k // 16 * 8 + k % 8),
        lambda i, q: (q % 4 // 2 * 32 + i, q // 4 * 2 + q % 2),
    ),
    "16x16x128_f8": (
        lambda i, c: (bits_of(c, 3, 5) * 16 + i, bits_of(c, 0, 1, 4, 2)),
        lambda k, j: (k % 32 // 8 * 16 + j, k // 32 * 8 + k % 8),
        lambda i, q: ((q // 16 * 2 + q // 4 % 2) * 16 + i, q // 8 % 2 * 2 + q % 4 // 2 * 4 + q % 2),
    ),
    "32x32x64_f8": (
        lambda i, c: (c // 16 * 32 + i, bits_of(c, 0, 1, 3, 2)),
        lambda k, j: (k % 16 // 8 * 32 + j, k // 16 * 8 + k % 8),
        lambda i, q: (q // 8 * 32 + i, q % 2 + q // 4 % 2 * 2 + q // 2 % 2 * 4),
    ),
}


def put(registers, lane, bit, code):
    registers[bit // 32, lane] |= np.uint32(code << bit % 32)


# Codes of -1, 0, 1, 2.
SMALL = {"f16": [0xBC00, 0, 0x3C00, 0x4000], "f8": [0xB8, 0, 0x38, 0x40], "i8": [0xFF, 0, 1, 2]}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_elements_meet_as_on_the_silicon(name):
    random, shape, kind = np.random.default_rng(17), SHAPES[name], kind_of(name)
    a_place, b_place, index_place = SILICON[name.removeprefix("smfmac_").replace("i8", "f8")]
    rows, bits = shape.rows, ELEMENT_BITS[kind]
    a, index = random.integers(-1, 3, (rows, shape.depth)), random.integers(0, 4, (rows, shape.depth))
    b, c = random.integers(-1, 3, (2 * shape.depth, rows)), random.integers(-9, 9, (1, rows, rows))
    shift = shifts_of(name)[-1]
    n = shape.operand_registers
    registers = np.zeros((NATIVES[name].n_in, 64), np.uint32)
    for row in range(rows):
        for element in range(shape.depth):
            lane, item = a_place(row, element)
            put(registers, lane, bits * item, SMALL[kind][a[row, element] + 1])
            lane, nibble = index_place(row, element // 2)
            put(registers[-1:], lane, shift + 4 * nibble + 2 * (element % 2), int(index[row, element]))
        for k in range(2 * shape.depth):
            lane, item = b_place(k, row)
            put(registers[n:], lane, bits * item, SMALL[kind][b[k, row] + 1])
    integers = kind == "i8"
    c_codes = c.astype(np.int32).view(np.uint32) if integers else c.astype(np.float32).view(np.uint32)
    registers[3 * n : 3 * n + shape.c_registers] = pack(name, "C", c_codes)
    format_ = Format.f16 if kind == "f16" else Format.fp8
    d = unpack(name, "D", NATIVES[name](registers, pack_parameters(format_, format_, index_shift=shift)))[0]
    want = c[0].copy()
    for element in range(shape.depth):
        want += a[:, element, None] * b[4 * (element // 2) + index[:, element]]
    got = d.astype(np.uint32).view(np.int32) if integers else d.astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("name", "special"), [("smfmac_16x16x32_f16", 0x7C00), ("smfmac_16x16x128_f8", 0x7C)])
@pytest.mark.parametrize("beside_it", [0, 1])
def test_what_is_not_met_does_no_harm(name, special, beside_it):
    """An Inf of B (bf8) is seen where it is met, whatever NaN stands beside it, and else not at all."""
    kind = kind_of(name)
    format_ = Format.f16 if kind == "f16" else Format.bf8
    one = 0x3C00 if kind == "f16" else 0x3C
    codes = {o: np.zeros_like(x) for o, x in random_matrices(np.random.default_rng(0), name).items()}
    codes["A"][0, 3, 0] = one
    codes["B"][0, 2, 5], codes["B"][0, 1, 5] = special, (special + 1) * beside_it
    for index, want in ((0, 0), (1, NAN * beside_it), (2, 0x7F800000)):
        codes["index"][0, 3, 0] = index
        d = unpack(name, "D", NATIVES[name](registers_of(name, codes), pack_parameters(format_, format_)))
        # The second stored element of the pair is 0 and meets k = 0 as the rest of A does.
        assert int(d[0, 3, 5]) == want
        assert not d[0, :3].any()


def test_the_order_of_sparse_groups_is_a_switch():
    """Expanded, k 0 to 7 are a group of their own, and what cancels there is gone before the small one comes."""
    name = "smfmac_16x16x32_f16"
    codes = {o: np.zeros_like(x) for o, x in random_matrices(np.random.default_rng(0), name).items()}
    big, small = 0x7800, 0x0001  # 2^15, 2^-24
    codes["A"][0, 0, [0, 2, 4]] = big, big, small
    codes["B"][0, [0, 4, 8], 0] = big, big | 0x8000, small
    codes["index"][..., 1::2] = 1
    inputs, parameters = registers_of(name, codes), pack_parameters(Format.f16, Format.f16)
    assert NATIVES[name](inputs, parameters)[0, 0] == evaluate(name, inputs, parameters)[0, 0] == 0
    expanded = evaluate(name, inputs, parameters, MfmaModel(sparse_order=SparseOrder.expanded))
    assert expanded[0, 0] == np.float32(2.0**-48).view(np.uint32)


# ---- f32 and f64: MODE, FP16_OVFL, signs, specials ----

BIG, TINY = 0x7F7FFFFF, 0x00000001
ONE, TWO = 0x3F800000, 0x40000000


def one_f32(a, b, c, **options):
    codes = {o: np.zeros_like(x) for o, x in random_matrices(np.random.default_rng(0), "mfma_16x16x4_f32").items()}
    codes["C"][:] = c
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        codes["A"][0, :, k], codes["B"][0, k, :] = x, y
    inputs, parameters = registers_of("mfma_16x16x4_f32", codes), pack_parameters(0, 0, **options)
    result = NATIVES["mfma_16x16x4_f32"](inputs, parameters)
    np.testing.assert_array_equal(result, evaluate("mfma_16x16x4_f32", inputs, parameters))
    assert (result == result[0, 0]).all()
    return int(result[0, 0])


@pytest.mark.parametrize(
    ("a", "b", "c", "options", "want"),
    [
        ([BIG], [TWO], 0, {}, INF),
        ([BIG], [TWO], 0, {"clamp": True}, BIG),
        ([BIG | 1 << 31], [TWO], 0, {"clamp": True}, BIG | 1 << 31),
        ([INF], [TWO], 0, {"clamp": True}, INF),
        ([0], [0], INF, {"clamp": True}, INF),
        ([BIG, BIG | 1 << 31], [TWO, TWO], 0, {}, INF),  # the second product is no Inf of its own
        ([BIG, BIG | 1 << 31], [TWO, ONE], 0, {"clamp": True}, 0),  # each step is held
        ([TINY], [ONE], 0, {}, TINY),
        ([TINY], [ONE], 0, {"flush": True}, 0),
        ([TINY | 1 << 31], [ONE], 1 << 31, {"flush": True}, 1 << 31),  # to a zero of its sign
        ([0], [ONE], TINY, {"flush": True}, TINY),  # C is kept
        ([ONE], [0x00800000], 0x80000001, {"flush": True}, 0x007FFFFF),  # and so is D
        ([0], [ONE], 1 << 31, {}, 0),
        ([1 << 31], [ONE], 1 << 31, {}, 0),  # the products of k = 1 to 3 are +0
        ([0x7FA00001], [0], 0, {}, NAN),
        ([INF], [0], ONE, {}, NAN),
        ([0], [0], 0xFFC12345, {}, NAN),
        ([0x3F800001], [0x3F800001], 0xBF800002, {}, 0x28800000),  # one rounding: 2^-46 is left
    ],
)
def test_f32_chains(a, b, c, options, want):
    pad = [1 << 31] * 4 if options.get("flush") and c == 1 << 31 else [0] * 4
    padded = [(x + pad)[:4] for x in (a, b)]
    if pad[0]:
        padded[1][1:] = [ONE] * 3
    assert one_f32(*padded, c, **options) == want


@pytest.mark.parametrize("name", ["mfma_16x16x4_f64", "mfma_4x4x4_4b_f64"])
@pytest.mark.parametrize("negate", range(8))
def test_blgp_negates_zeros_infinities_and_nan_of_f64(name, negate):
    """Of which MODE, here FP16_OVFL, changes nothing."""
    random = np.random.default_rng(19)
    specials = np.array([0, 1, NAN_64 + 5, 0x7FF0 << 48, 0x3FF0 << 48], np.uint64)
    signs = np.array([0, 1 << 63], np.uint64)
    weights = [0.6, 0.05, 0.02, 0.08, 0.25]
    codes = {
        operand: random.choice(specials, some.shape, p=weights) ^ random.choice(signs, some.shape)
        for operand, some in random_matrices(random, name).items()
    }
    plain = NATIVES[name](registers_of(name, codes), pack_parameters(0, 0, negate=negate))
    for bit, operand in enumerate("ABC"):
        codes[operand] ^= np.uint64((negate >> bit & 1) << 63)
    np.testing.assert_array_equal(plain, NATIVES[name](registers_of(name, codes), pack_parameters(0, 0, clamp=True)))


def test_multiply_add_rounds_once():
    """Where rounding the product first would give another result, and at the ends of the exponents."""
    assert multiply_add(0x3F800001, 0x3F800001, 0xBF800002, F32, False) == 0x28800000
    assert multiply_add(0x1, 0x3F000000, 0, F32, False) == 0  # half the smallest, to even
    assert multiply_add(0x1, 0x3F000001, 0, F32, False) == 1
    assert multiply_add(0x7F7FFFFF, 0x3F800000, 0x73000000, F32, False) == INF  # a tie at the top
    assert multiply_add(0x7F7FFFFF, 0x3F800000, 0x72FFFFFF, F32, False) == BIG
    assert multiply_add(0x3FF0000000000001, 0x3FF0000000000001, 0xBFF0000000000002, F64, False) == 0x3970 << 48


# ---- Errors ----


def test_errors_say_what_was_wrong():
    with pytest.raises(ValueError, match="index_shift 32 is not within"):
        pack_parameters(0, 0, index_shift=32)
    with pytest.raises(ValueError, match="negate 8"):
        pack_parameters(0, 0, negate=8)
    with pytest.raises(ValueError, match="smfmac_16x16x64_f8 does not multiply"):
        evaluate("smfmac_16x16x64_f8", np.zeros((11, 64), np.uint32), pack_parameters(5, 5))
    narrow = Operand(np.zeros((1, 4), np.uint16), Format.f16)
    assert multiply(narrow, narrow, np.full((1, 1), 7, np.uint32))[0, 0] == 7
