"""The model `cdna3` against MMA-Sim, a published model of CDNA3's matrix arithmetic that its authors hold equal to an
MI300X: every instruction MMA-Sim has, bit for bit, but for the payload of NaN, which it does not claim to know.

Instructions of gfx950 run as the instruction itself does; what gfx950 lost (FNUZ bytes, xf32) runs by the rule alone.
"""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
import pytest

from emu.interactive import from_words, instruction, to_words
from gfx950.arithmetic import mfma
from gfx950.arithmetic.mfma import Format, MfmaModel, Operand, multiply
from gfx950.isa.matrix import MATRIX
from gfx950.lanes import Mode, Words
from gfx950.layouts import layout
from gfx950.models import find_model, using

torch = pytest.importorskip("torch")
mmasim = pytest.importorskip("mmasim.amd")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """MMA-Sim on one thread: the test processes fill the cores themselves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


CDNA3 = find_model("cdna3")


@dataclass(frozen=True)
class Field:
    """A float format by its parts. specials: codes worth meeting; not_finite: by magnitude code, none where FNUZ."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    fnuz: bool = False

    @property
    def bits(self):
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def word(self):
        return {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[self.bits]

    @property
    def infinity(self):
        return (1 << self.bits - 1) - (1 << self.mantissa_bits)

    @property
    def specials(self):
        sign, top = 1 << self.bits - 1, (1 << self.bits - 1) - 1
        least = [0, 1, 1 << self.mantissa_bits, self.bias << self.mantissa_bits]
        most = [top] if self.fnuz else [self.infinity, self.infinity - 1, self.infinity + 1, top]
        return np.array([code ^ s for code in least + most for s in (0, sign)], np.uint64)

    def finite(self, codes):
        if self.fnuz:
            return np.where(codes == 1 << self.bits - 1, np.uint64(1), codes)
        infinite = codes & np.uint64(self.infinity) == self.infinity
        return np.where(infinite, codes ^ np.uint64(1 << self.bits - 2), codes)

    def make(self, random, size, exponent):
        """Codes of a random sign and mantissa and these unbiased exponents, as far as the format has them."""
        last = (1 << self.exponent_bits) - 2 + self.fnuz
        field = np.clip(exponent + self.bias, 0, last).astype(np.uint64) << np.uint64(self.mantissa_bits)
        raw = random_words(random, size) & np.uint64(1 << self.bits - 1 | (1 << self.mantissa_bits) - 1)
        return self.finite(raw | field)


FIELDS = {
    "f64": Field(11, 52, 1023),
    "f32": Field(8, 23, 127),
    "xf32": Field(8, 23, 127),
    "f16": Field(5, 10, 15),
    "bf16": Field(8, 7, 127),
    "fp8": Field(4, 3, 8, fnuz=True),
    "bf8": Field(5, 2, 16, fnuz=True),
}
LOST = {"fp8": "fp8_fnuz", "bf8": "bf8_fnuz", "xf32": "xf32"}  # formats that gfx950 has not, by the rule's names

SUFFIXES = list(mmasim.isa_mfma.cdna3_mfma_suffix)


def random_words(random, size):
    return np.frombuffer(random.bytes(8 * int(np.prod(size))), np.uint64).reshape(size)


@dataclass(frozen=True)
class Peer:
    """An instruction of MMA-Sim: its kinds of A, B and of C, and its blocks."""

    suffix: str
    simulated: object
    a: str
    b: str
    c: str
    blocks: int

    @property
    def on_gfx950(self):
        return f"v_mfma_{self.suffix}" in MATRIX and self.a not in LOST

    def __call__(self, a, b, c):
        """D of tiles, uint64 codes a (..., m, k), b (..., n, k), c (..., m, n), all NaN made one."""
        types = self.simulated.a_type, self.simulated.b_type, self.simulated.c_type
        given = zip((a, b, c), (self.a, self.b, self.c), types, strict=True)
        a, b, c = (torch.from_numpy(x.astype(FIELDS[kind].word)).view(type_) for x, kind, type_ in given)
        d = self.simulated.dpa(a[..., :, None, :].expand(*c.shape, -1), b[..., None, :, :].expand(*c.shape, -1), c)
        return one_nan(d.numpy().view(FIELDS[self.c].word).astype(np.uint64), self.c)


@functools.cache
def peer_of(suffix):
    parts = suffix.split("_")
    blocks = next((int(part[:-1]) for part in parts if part.endswith("b") and part[:-1].isdigit()), 1)
    kinds = [part for part in parts[2:] if part in FIELDS]
    return Peer(suffix, mmasim.MFMA("CDNA3", suffix), kinds[0], kinds[-1], parts[0], blocks)


def one_nan(codes, kind):
    magnitude = codes & np.uint64((1 << FIELDS[kind].bits - 1) - 1)
    return np.where(magnitude > FIELDS[kind].infinity, np.uint64(FIELDS[kind].infinity + 1), codes)


# ---- tiles ----


def centre(random, size, field):
    """An exponent a tile that leaves products room above and below in f32 and f64."""
    reach = min(1 << field.exponent_bits - 1, 120) // 2
    return random.integers(-reach, reach + 1, (size[0],) + (1,) * (len(size) - 1))


def around(random, peer, sizes, spread, c_spread):
    """A, B and C around exponents of the tile's own: C where products are, each `spread` wide."""
    a, b, c = (FIELDS[kind] for kind in (peer.a, peer.b, peer.c))
    ea, eb = centre(random, sizes[0], a), centre(random, sizes[1], b)
    return [
        a.make(random, sizes[0], ea + random.integers(-spread, spread + 1, sizes[0])),
        b.make(random, sizes[1], eb + random.integers(-spread, spread + 1, sizes[1])),
        c.make(random, sizes[2], ea + eb + random.integers(-c_spread, c_spread + 1, sizes[2])),
    ]


def raw(random, peer, sizes):
    """Every bit at random."""
    kinds = (peer.a, peer.b, peer.c)
    return [random_words(random, s) & np.uint64(2 ** FIELDS[k].bits - 1) for s, k in zip(sizes, kinds, strict=True)]


def finite(random, peer, sizes):
    """Every bit at random among what is no Inf and no NaN."""
    tiles = zip(raw(random, peer, sizes), (peer.a, peer.b, peer.c), strict=True)
    return [FIELDS[kind].finite(tile) for tile, kind in tiles]


def near(random, peer, sizes):
    """Few exponents: sums round and carry."""
    return around(random, peer, sizes, 1, 3)


def cancelling(random, peer, sizes):
    """Products in pairs of opposite sign, at any two places, that differ in the last bit or not at all; any C."""
    a, b, c = around(random, peer, sizes, 2, 30)
    depth = a.shape[-1]
    order, half = random.permutation(depth), depth // 2
    left, right = order[:half], order[half : 2 * half]
    flips = random.integers(0, 2, a[..., left].shape).astype(np.uint64)
    a[..., right] = a[..., left] ^ np.uint64(1 << FIELDS[peer.a].bits - 1) ^ flips
    b[..., right] = b[..., left]
    return [FIELDS[peer.a].finite(a), b, c]


def smallest(random, peer, sizes):
    """Subnormals and the smallest normal numbers, with C as small as products or as C can be."""
    a, b, c = (FIELDS[kind] for kind in (peer.a, peer.b, peer.c))
    low = -a.bias - b.bias + random.integers(-12, 12, sizes[2])
    return [
        a.make(random, sizes[0], -a.bias + random.integers(0, 3, sizes[0])),
        b.make(random, sizes[1], centre(random, sizes[1], b) * random.integers(0, 2, sizes[1]) - b.bias // 2),
        c.make(random, sizes[2], np.where(random.random(sizes[2]) < 0.5, low, -c.bias)),
    ]


def special(random, peer, sizes):
    """Zeros, Inf, NaN, ones and the ends of the range among other numbers."""
    tiles = around(random, peer, sizes, 2, 3)
    for tile, kind in zip(tiles, (peer.a, peer.b, peer.c), strict=True):
        here = random.random(tile.shape) < 1.5 / sizes[0][-1] ** 0.5 / 8
        tile[here] = random.choice(FIELDS[kind].specials, int(here.sum()))
    return tiles


def mostly_zero(random, peer, sizes):
    """Zeros of both signs, a few numbers; C among them a zero too."""
    tiles = around(random, peer, sizes, 4, 30)
    for tile, kind in zip(tiles, (peer.a, peer.b, peer.c), strict=True):
        here = random.random(tile.shape) < 0.7
        tile[here] = 0 if FIELDS[kind].fnuz else tile[here] & np.uint64(1 << FIELDS[kind].bits - 1)
    return tiles


def apart(random, peer, sizes):
    """C up to 45 binades from the products."""
    return around(random, peer, sizes, 1, 45)


def spread(random, peer, sizes):
    """Products up to 40 binades from each other."""
    return around(random, peer, sizes, 10, 12)


def residue(random, peer, sizes):
    """Large products that cancel to nothing, and what alignment leaves of those up to 40 binades below; C like them."""
    a, b, c = (FIELDS[kind] for kind in (peer.a, peer.b, peer.c))
    depth = sizes[0][-1]
    order, top = random.permutation(depth), min(a.bias, 40) - 4
    down = random.integers(0, min(a.bias, 20) + 1, (*sizes[0][:-2], 1, depth))
    left, right = order[: depth // 4], order[depth // 4 : depth // 4 * 2]
    down[..., left] = down[..., right] = 0
    codes = a.make(random, sizes[0], top - down)
    others = b.make(random, sizes[1], min(b.bias, 40) - 4 - down[..., :1, :])
    codes[..., right] = codes[..., left] ^ np.uint64(1 << a.bits - 1)
    others[..., right] = others[..., left]
    low = top + min(b.bias, 40) - 4 - random.integers(0, 50, sizes[2])
    added = c.make(random, sizes[2], low)
    return [codes, others, np.where(random.random(sizes[2]) < 0.3, np.uint64(0), added)]


def below(random, peer, sizes):
    """C above all products, its mantissa often at an end, so that what is cut from them decides the rounding."""
    a, b, c = (FIELDS[kind] for kind in (peer.a, peer.b, peer.c))
    reach = min(a.bias, b.bias, 12) // 2
    ea, eb = (centre(random, size, field) // 2 for size, field in ((sizes[0], a), (sizes[1], b)))
    added = c.make(random, sizes[2], ea + eb + 2 * reach + random.integers(0, 28, sizes[2]))
    mantissa = np.uint64((1 << c.mantissa_bits) - 1)
    ends = random.integers(0, 4, sizes[2])
    added = np.where(ends == 0, added & ~mantissa, np.where(ends == 1, added | mantissa, added))
    return [
        a.make(random, sizes[0], ea + random.integers(-reach, reach + 1, sizes[0])),
        b.make(random, sizes[1], eb + random.integers(-reach, reach + 1, sizes[1])),
        added,
    ]


KINDS = (raw, finite, near, cancelling, smallest, special, mostly_zero, apart, spread, residue, below)


def tiles_of(kind, random, peer, count):
    blocks = (count, peer.blocks)
    m, n, k = peer.simulated.m, peer.simulated.n, peer.simulated.k
    return kind(random, peer, [(*blocks, m, k), (*blocks, n, k), (*blocks, m, n)])


# ---- ours: the instruction ----


@functools.cache
def slots(mnemonic, operand):
    """The number of the element (in the order block, line, k or block, row, column) in every lane and item."""
    where = layout(mnemonic, operand)
    found = np.zeros((64, where.items), np.int64)
    lines, depth = (where.cols, where.rows) if operand == "B" else (where.rows, where.cols)
    for lane in range(64):
        for item in range(where.items):
            bit = item * where.element_bits
            row, col, block = where.element(bit // 32, lane, bit % 32)
            line, k = (col, row) if operand == "B" else (row, col)
            found[lane, item] = (block * lines + line) * depth + k
    return found, where.element_bits


def pack(mnemonic, operand, codes):
    """Registers (count, tiles, 64) of codes (tiles, blocks, lines, depth)."""
    place, bits = slots(mnemonic, operand)
    items = np.ascontiguousarray(codes.reshape(len(codes), -1)[:, place].astype(f"<u{bits // 8}"))
    return np.ascontiguousarray(items.view("<u4").transpose(2, 0, 1), np.uint32)


def words_of(value):
    """Registers (count, tiles, 64) of what an instruction gave."""
    if isinstance(value, Words):
        return np.stack([word.raw for word in value.words])
    pieces = [value.raw, value.raw >> np.uint64(32)] if value.width == 64 else [value.raw]
    return np.stack(pieces).astype(np.uint32)


def unpack(mnemonic, registers, like):
    place, bits = slots(mnemonic, "D")
    items = np.ascontiguousarray(registers.transpose(1, 2, 0), "<u4").view(f"<u{bits // 8}").reshape(len(like), -1)
    codes = np.empty((len(like), items.shape[1]), np.uint64)
    codes[:, place.reshape(-1)] = items
    return codes.reshape(like.shape)


def by_instruction(peer, a, b, c):
    """D by the instruction of gfx950, subnormal f32 kept as CDNA3 is said to, all tiles side by side."""
    name = f"v_mfma_{peer.suffix}"
    operands = [from_words(pack(name, operand, codes)) for operand, codes in zip("ABC", (a, b, c), strict=True)]
    with using(CDNA3):
        d = instruction(name)(*operands, mode=Mode(denorm32=3))
    return one_nan(unpack(name, words_of(d), c), peer.c)


# ---- ours: the rule ----


def by_rule(peer, a, b, c, **changes):
    """D by `multiply`, tile by tile. changes: of the model's rules."""
    model = MfmaModel.of(CDNA3)
    if changes:
        model = dataclasses.replace(model, **{w: getattr(model, w)._replace(**changes) for w in ("half", "byte")})
    word = np.uint32 if peer.a == "xf32" else np.uint16
    d = np.empty(c.shape, np.uint64)
    for at in np.ndindex(c.shape[:2]):
        left, right = (Operand(x[at].astype(word), Format[LOST.get(k, k)]) for x, k in ((a, peer.a), (b, peer.b)))
        d[at] = multiply(left, right, c[at].astype(np.uint32), model)
    return one_nan(d, peer.c)


def greatest_product(a, b, field):
    """e_dot of MMA-Sim's groups: the largest sum of exponents of products that are not zero, (tiles, blocks, m, n)."""
    floor = np.int64(-1000)
    raw_a, raw_b = (
        np.where(
            x & np.uint64(0x7F),
            np.maximum((x & np.uint64(0x7F)) >> np.uint64(field.mantissa_bits), 1).astype(np.int64) - field.bias,
            floor,
        )
        for x in (a, b)
    )
    return (raw_a[..., :, None, :] + raw_b[..., None, :, :]).max(axis=-1)


def by_rule_with_the_loss(peer, a, b, c):
    """As `by_rule` with MMA-Sim's own slip: C that is Inf or NaN counts as 0 where e_dot > 24; and how often it did."""
    infinity, lost = np.uint64(FIELDS["f32"].infinity), 0
    for first in range(0, a.shape[-1], 16):
        group = slice(first, first + 16)
        forgotten = (c & infinity == infinity) & (greatest_product(a[..., group], b[..., group], FIELDS["bf8"]) > 24)
        lost += int(forgotten.sum())
        c = by_rule(peer, a[..., group], b[..., group], np.where(forgotten, np.uint64(0), c))
    return c, lost


def ours(peer, a, b, c):
    if peer.on_gfx950:
        return by_instruction(peer, a, b, c)
    return by_rule_with_the_loss(peer, a, b, c)[0] if (peer.a, peer.b) == ("bf8", "bf8") else by_rule(peer, a, b, c)


# ---- the comparison ----


def seed_of(suffix, kind, seed):
    return [seed, KINDS.index(kind), SUFFIXES.index(suffix)]


def compare(suffix, kind, count, seed):
    """Equal on `count` tiles of a kind. Returns how many elements of D were finite and not zero."""
    peer, random = peer_of(suffix), np.random.default_rng(seed_of(suffix, kind, seed))
    a, b, c = tiles_of(kind, random, peer, count)
    theirs = peer(a, b, c)
    np.testing.assert_array_equal(ours(peer, a, b, c), theirs, err_msg=f"{suffix}, {kind.__name__}, seed {seed}")
    infinity = np.uint64(FIELDS[peer.c].infinity)
    return int(((theirs & infinity != infinity) & (theirs << np.uint64(64 - FIELDS[peer.c].bits + 1) != 0)).sum())


def test_nothing_that_mmasim_has_is_left_out():
    peers = [peer_of(suffix) for suffix in SUFFIXES]
    assert len(peers) == 27
    here = {f"v_mfma_{peer.suffix}" for peer in peers if peer.on_gfx950}
    assert here == {  # those of CDNA3 that gfx950 has too, in the same formats
        name
        for name in MATRIX
        if name.startswith("v_mfma_f")
        and name.rpartition("_")[2] in ("f64", "f32", "f16", "bf16")
        and not any(new in name for new in ("16x16x32_", "32x32x16_"))
    }
    assert {peer.a for peer in peers if not peer.on_gfx950} == {"fp8", "bf8", "xf32"}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_instruction_is_the_published_one(suffix):
    """36 tiles of each of the eleven kinds: 396 an instruction."""
    told = [compare(suffix, kind, 36, seed=1) for kind in KINDS]
    assert min(told[1:]) > 36 * peer_of(suffix).simulated.m  # each kind has results that say something


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_instruction_is_the_published_one_at_length(suffix):
    """10,000 tiles of random bits and 10,000 of the other kinds."""
    for seed in range(100, 200):
        compare(suffix, raw, 100, seed)
        for kind in KINDS[1:]:
            compare(suffix, kind, 10, seed)


def test_a_whole_tile_is_what_one_call_of_the_instruction_gives():
    """The comparison runs many tiles at once; one by one they are the same."""
    for suffix in ("f32_16x16x16_f16", "f64_4x4x4_4b_f64"):
        peer, name = peer_of(suffix), f"v_mfma_{suffix}"
        a, b, c = tiles_of(near, np.random.default_rng(5), peer, 3)
        together = by_instruction(peer, a, b, c)
        for at in range(3):
            given = zip("ABC", (a, b, c), strict=True)
            operands = [from_words(pack(name, operand, x[at : at + 1])[:, 0]) for operand, x in given]
            alone = to_words(instruction(name)(*operands))[:, None]
            np.testing.assert_array_equal(one_nan(unpack(name, alone, c[:1]), peer.c)[0], together[at])


# ---- what MMA-Sim gets wrong ----


def bf8_tile(exponent, c):
    """One product of 2^exponent, the rest zero, and C."""
    a, b = (np.zeros((1, 1, 16, 16), np.uint64) for _ in range(2))
    field = FIELDS["bf8"]
    a[..., 0] = (15 + field.bias) << field.mantissa_bits
    b[..., 0] = (exponent - 15 + field.bias) << field.mantissa_bits
    return a, b, np.full((1, 1, 16, 16), c, np.uint64)


@pytest.mark.parametrize("c", [0x7F800000, 0xFF800000, 0x7FC00000])
def test_mmasim_loses_inf_and_nan_of_c_beside_a_large_bf8_product(c):
    """Its rule drops a C whose exponent is below e_dot - 25, and it takes -1 for the exponent of Inf and NaN: from
    e_dot = 25 on they are lost. Silicon was not seen to do this; the model here keeps them."""
    peer = peer_of("f32_32x32x16_bf8_bf8")
    for exponent, theirs in ((24, one_nan(np.uint64([c]), "f32")[0]), (25, np.uint64((25 + 127) << 23))):
        tile = bf8_tile(exponent, c)
        assert (peer(*tile) == theirs).all()
        assert (by_rule(peer, *tile) == one_nan(tile[2], "f32")).all()
        assert (by_rule_with_the_loss(peer, *tile)[0] == theirs).all()


@pytest.mark.parametrize("suffix", ["f32_16x16x32_bf8_bf8", "f32_32x32x16_bf8_bf8"])
def test_nothing_but_that_loss_sets_the_models_apart(suffix):
    peer = peer_of(suffix)
    a, b, c = tiles_of(raw, np.random.default_rng(7), peer, 40)
    theirs, (told, lost) = peer(a, b, c), by_rule_with_the_loss(peer, a, b, c)
    np.testing.assert_array_equal(told, theirs)
    assert 0 < int((by_rule(peer, a, b, c) != theirs).sum()) <= lost


# ---- the comparison can fail ----


# Neighbours of each rule, one number changed. Missing are those that no input can show: 33 dot_bits (step e cuts what
# they would keep), product_overflow where no product is that large, a length beyond K.
_BOTH = [("product_bits", (23, 25)), ("dot_bits", (31,)), ("c_bits", (23, 25)), ("sum_bits", (30, 32))]
_SPLITS = tuple(mfma.Split)
NEIGHBOURS = {
    "f32_16x16x16_f16": [("length", (4, 16)), ("split", _SPLITS[1:]), ("c_window", (24, 25, 26)), *_BOTH],
    "f32_32x32x8_bf16": [
        ("length", (4,)),
        ("split", _SPLITS[1:]),
        ("c_window", (24, 25, 26)),
        ("product_overflow", (0,)),
        *_BOTH,
    ],
    "f32_16x16x32_fp8_bf8": [("length", (4, 8, 32)), ("split", _SPLITS[::2]), ("c_window", (24, 26)), *_BOTH],
}


@pytest.mark.parametrize(
    ("suffix", "name", "value"),
    [(suffix, name, value) for suffix, changes in NEIGHBOURS.items() for name, values in changes for value in values],
)
def test_a_rule_that_differs_in_one_number_is_told_apart(suffix, name, value):
    """By the very tiles of the test above."""
    peer = peer_of(suffix)
    for kind in reversed(KINDS):
        tile = tiles_of(kind, np.random.default_rng(seed_of(suffix, kind, 1)), peer, 36)
        if (by_rule(peer, *tile, **{name: value}) != by_rule(peer, *tile)).any():
            return
    pytest.fail(f"no tile tells {name} = {value} from {getattr(MfmaModel.of(CDNA3).byte, name)}")
