"""Rules of matrix instructions, with the layouts of AMD's documents written out."""

import numpy as np
import pytest
from programs import expect, f16, f32, f64, run, words

from gfx950.lanes import Mode

HALVES = expect("v_mfma_f32_32x32x8_f16 v[16:31], v[2:3], v[4:5], 0")
ACCUMULATORS = expect("v_mfma_f32_32x32x8_f16 a[16:31], a[2:3], a[4:5], a[16:31]")
BLOCKS = expect("v_mfma_f32_4x4x4_16b_f16 v[16:19], v[2:3], v[4:5], 0")
SPARSE = expect("v_smfmac_f32_16x16x32_f16 v[16:19], v[2:3], v[4:7], v8")
DOUBLES = expect("v_mfma_f64_16x16x4_f64 v[16:23], v[2:3], v[4:5], v[16:23] neg:[1,0,1]")
ODD_BLGP = expect(words("MAI", op=0x6E, vdst=16, src0=258, src1=260, src2=256 + 16, blgp=5, cbsz=2, abid=1))
SPECIALS = expect(
    "v_mfma_f32_16x16x16_f16 v[16:19], v[2:3], v[4:5], 0\nv_mfma_f32_16x16x16_f16 v[20:23], v[6:7], v[4:5], 0"
)
SCALED = expect(
    """
v_mfma_scale_f32_16x16x128_f8f6f4 v[16:19], v[2:9], v[10:17], 0, v40, v41 op_sel:[0,0,0] op_sel_hi:[0,0,0]
v_mfma_scale_f32_16x16x128_f8f6f4 v[20:23], v[2:9], v[10:17], 0, v40, v41 op_sel:[1,0,0] op_sel_hi:[0,1,0]
v_mfma_scale_f32_16x16x128_f8f6f4 v[24:27], v[2:9], v[10:17], 0, v40, v41 op_sel:[1,1,0] op_sel_hi:[1,1,0]
""".replace("v[10:17]", "v[44:51]")
)


def halves(a):
    """A (32, 8) or its like as registers: lane i + 32 * (k / 4) holds k % 4."""
    lanes = a.reshape(32, 2, 4).transpose(1, 0, 2).reshape(64, 4).astype(np.float16)
    return np.ascontiguousarray(lanes).view(np.uint32)


def d_32x32(registers):
    """Row 8 * (r / 4) + 4 * (lane / 32) + r % 4, column lane % 32."""
    d = np.zeros((32, 32), np.float32)
    for r in range(16):
        for half in (0, 1):
            d[8 * (r // 4) + 4 * half + r % 4] = registers[r, 32 * half : 32 * half + 32].view(np.float32)
    return d


def tile(seed):
    random = np.random.default_rng(seed)
    return random.integers(-8, 9, (32, 8)), random.integers(-8, 9, (32, 8))


@pytest.mark.rule("S13.1", "P2.1", "P3.5")
def test_rows_lie_where_they_should_and_exec_does_not_matter():
    a, b = tile(1)
    packed_a, packed_b = halves(a), halves(b)
    got = run(HALVES, v={2: packed_a[:, 0], 3: packed_a[:, 1], 4: packed_b[:, 0], 5: packed_b[:, 1]}, exec=0)
    assert np.array_equal(d_32x32(got.vgprs[16:32]), a @ b.T)


@pytest.mark.rule("S13.2", "P3.2")
def test_accumulation_registers_are_read():
    a, b = tile(2)
    packed_a, packed_b = halves(a), halves(b)
    v = {258: packed_a[:, 0], 259: packed_a[:, 1], 260: packed_b[:, 0], 261: packed_b[:, 1]}
    got = run(ACCUMULATORS, v=v | {272 + n: f32(1) for n in range(16)})
    assert np.array_equal(d_32x32(got.vgprs[272:288]), a @ b.T + 1)
    assert not got.vgprs[:256].any()


@pytest.mark.rule("P3.3")
def test_all_blocks_are_multiplied():
    random = np.random.default_rng(3)
    a, b = random.integers(-8, 9, (2, 16, 4, 4))  # lane 4 * block + i holds k = 0..3
    packed = [np.ascontiguousarray(m.reshape(64, 4).astype(np.float16)).view(np.uint32) for m in (a, b)]
    got = run(BLOCKS, v={2: packed[0][:, 0], 3: packed[0][:, 1], 4: packed[1][:, 0], 5: packed[1][:, 1]})
    d = got.vgprs[16:20].view(np.float32).reshape(4, 16, 4).transpose(1, 0, 2)
    assert np.array_equal(d, a @ b.transpose(0, 2, 1))


@pytest.mark.rule("P3.4", "RJ-024")
def test_a_sparse_a_meets_what_its_indices_name():
    random = np.random.default_rng(4)
    a, b = random.integers(-8, 9, (16, 16)), random.integers(-8, 9, (16, 32))
    first = random.integers(0, 3, (16, 8))
    second = random.integers(first + 1, 4)
    whole = np.zeros((16, 32), int)
    for group in range(8):
        whole[np.arange(16), 4 * group + first[:, group]] = a[:, 2 * group]
        whole[np.arange(16), 4 * group + second[:, group]] = a[:, 2 * group + 1]
    lanes = lambda m, n: np.ascontiguousarray(m.reshape(16, 4, n).transpose(1, 0, 2).reshape(64, n).astype(np.float16))  # noqa: E731
    packed_a, packed_b = lanes(a, 4).view(np.uint32), lanes(b, 8).view(np.uint32)
    pairs = first | second << 2  # of the lane's two groups, in the index's low byte
    index = (pairs.reshape(16, 4, 2) << np.array([0, 4])).sum(2).transpose().reshape(64)
    v = {2: packed_a[:, 0], 3: packed_a[:, 1], 8: index} | {4 + n: packed_b[:, n] for n in range(4)}
    got = run(SPARSE, v=v, mode=Mode(1, 1, 0, 0))
    d = got.vgprs[16:20].view(np.float32).reshape(4, 4, 16).transpose(1, 0, 2).reshape(16, 16)
    assert np.array_equal(d, whole @ b.T)


@pytest.mark.rule("S13.1")
@pytest.mark.parametrize("text", [DOUBLES, ODD_BLGP])
def test_f64_takes_blgp_as_signs_and_no_broadcast(text):
    got = run(text, v={2: f64(2), 4: f64(3)} | {16 + 2 * n: f64(10) for n in range(4)})
    assert all(got.v(16 + 2 * n, 0, 2) == f64(-24 - 10 + 0) for n in range(4)), "-A * B and -C"


@pytest.mark.rule("P3.1")
def test_specials_of_halves_stay_what_they_are():
    got = run(SPECIALS, v={2: 0x7C00, 4: f16(1, 0), 5: f16(0, 0), 6: [1] * 16 + [0] * 48}, exec=1)
    assert got.v(16, 0) == 0x7F800000
    assert got.v(20, 0) == f32(2.0**-24)
    nan = run(SPECIALS, v={2: 0x7E00, 4: f16(1, 0)})
    assert nan.v(16, 0) & 0x7FC00000 == 0x7FC00000


@pytest.mark.rule("RJ-015", "P2.4", "P2.3")
def test_both_select_bits_choose_the_scale_s_byte():
    ones = dict.fromkeys((*range(2, 10), *range(44, 52)), 0x38383838)
    got = run(SCALED, v=ones | {40: 0x82818079, 41: 0x8A888684})
    for register, a, b in ((16, 0x79, 0x84), (20, 0x80, 0x88), (24, 0x82, 0x8A)):
        assert got.v(register) == f32(128 * 2.0 ** (a + b - 254))
