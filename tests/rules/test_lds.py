"""Rules of LDS instructions."""

import numpy as np
import pytest
from programs import LANES, Setting, expect, f16, f32, run

from gfx950.lanes import Mode
from gfx950.lds import allocation

WORDS = np.arange(1024, dtype=np.uint32) + 1
ENDS = expect("""
ds_read_b32 v2, v1
ds_write_b32 v1, v1
ds_read_b128 v[4:7], v3
s_waitcnt lgkmcnt(0)
""")
M0_FREE = expect("ds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)")
ADDTID = expect("ds_read_addtid_b32 v2 offset:4\nds_write_addtid_b32 v3 offset:0x200\ns_waitcnt lgkmcnt(0)")
EQUAL_OFFSETS = expect("ds_write2_b32 v1, v2, v3 offset0:5 offset1:5\nds_write2_b32 v1, v2, v3 offset0:6 offset1:7")
PACKED = expect("""
ds_pk_add_f16 v1, v2
ds_pk_add_rtn_f16 v4, v1, v2 offset:4
ds_pk_add_bf16 v1, v3 offset:8
s_waitcnt lgkmcnt(0)
""")
MIN_MAX = expect("""
ds_min_f32 v1, v2
ds_max_f32 v1, v2 offset:4
ds_cmpst_b32 v1, v3, v4 offset:8
ds_cmpst_rtn_f32 v8, v1, v5, v6 offset:12
ds_cmpst_rtn_f32 v9, v1, v7, v6 offset:16
s_waitcnt lgkmcnt(0)
""")
TRANSPOSES = expect("""
ds_read_b64_tr_b16 v[2:3], v1
ds_read_b64_tr_b8 v[4:5], v1
ds_read_b64_tr_b4 v[6:7], v1
ds_read_b64_tr_b16 a[2:3], v1
ds_read_b96_tr_b6 v[9:11], v8
s_waitcnt lgkmcnt(0)
""")


@pytest.mark.rule("RJ-045", "P7.6")
def test_an_access_past_the_allocation_reads_zero_and_is_dropped():
    size = 1280
    got = run(ENDS, v={1: size - 8 + 4 * LANES, 3: size - 8}, lds=WORDS[: size // 4], setting=Setting(lds=size))
    assert [got.v(2, n) for n in range(4)] == [319, 320, 0, 0]
    assert got.lds[-8:].view(np.uint32).tolist() == [size - 8, size - 4]
    assert len(got.lds) == size
    assert allocation(1) == 1280, "the granule"


@pytest.mark.rule("RJ-045.2", "P7.5")
@pytest.mark.parametrize("m0", [0, 16, 0xFFFFFFFF])
def test_m0_limits_nothing(m0):
    assert (run(M0_FREE, v={1: 4 * LANES}, lds=WORDS, m0=m0).v(2) == LANES + 1).all()


@pytest.mark.rule("RJ-046")
def test_addresses_from_the_lane_number():
    got = run(ADDTID, v={0: 0xDEADBEEF, 1: 0xDEADBEEF, 3: 500 + LANES}, lds=WORDS, m0=0x00010040)
    assert (got.v(2) == (0x44 // 4) + LANES + 1).all()
    assert np.array_equal(got.lds.view(np.uint32)[0x240 // 4 :][:64], 500 + LANES)


@pytest.mark.rule("RJ-047")
def test_equal_offsets_are_one_access():
    got = run(EQUAL_OFFSETS, v={1: 0, 2: 20, 3: 30}, exec=1, lds=WORDS)
    assert got.lds.view(np.uint32)[5:8].tolist() == [20, 20, 30]


@pytest.mark.rule("RJ-049")
@pytest.mark.parametrize("denorm", [0, 3])
def test_packed_adds_are_two_adds(denorm):
    top, bf = f16(65504, 1), lambda a, b: f32(a) >> 16 | f32(b) >> 16 << 16
    lds = [top, 0x00010001, bf(3e38, 1)]
    v = {1: [0, 12], 2: [f16(65504, 2), 0x00020003], 3: bf(3e38, 2)}
    got = run(PACKED, v=v, exec=3, lds=[*lds, 0x80000000, 0x00010001], mode=Mode(denorm16_64=denorm))
    words = got.lds.view(np.uint32)[:5].tolist()
    assert words[0] == 0x42007C00, "each half overflows alone"
    assert words[2] == 0x40407F80
    assert got.v(4, 1) == 0x00010001, "what was there"
    assert words[4] == (0x00030004 if denorm else 0), "denormals by MODE"


@pytest.mark.rule("RJ-090.2", "S14.3")
@pytest.mark.parametrize("denorm", [0, 3])
def test_minimum_returns_an_unmodified_input(denorm):
    lds = [5, 5, 0x80000000, 0, 0x7FC00000]
    v = {1: 0, 2: 3, 3: 0, 4: 77, 5: 0x80000000, 6: f32(88), 7: 0x7FC00000}
    got = run(MIN_MAX, v=v, exec=1, lds=lds, mode=Mode(denorm32=denorm))
    words = got.lds.view(np.uint32)[:5].tolist()
    assert set(words[:2]) <= {3, 5}, "flushed for the comparison only"
    assert not denorm or words[:2] == [3, 5]
    assert words[2] == 0x80000000, "integers compare their bits"
    assert words[3] == f32(88), "+0 = -0"
    assert words[4] == 0x7FC00000, "a NaN never swaps"
    assert (got.v(8, 0), got.v(9, 0)) == (0, 0x7FC00000)


@pytest.mark.rule("RJ-050")
def test_transposing_reads():
    lds = np.random.default_rng(3).integers(0, 256, 4096, dtype=np.uint8)
    got = run(TRANSPOSES, v={1: 8 * LANES, 8: 12 * LANES}, lds=lds)
    assert (got.vgprs[256 + 2 : 256 + 4] == got.vgprs[2:4]).all()

    for register, stride, width in ((2, 8, 16), (4, 8, 8), (6, 8, 4), (9, 12, 6)):
        for lane in range(64):
            block = lds[stride * (lane & ~15) :][: 16 * stride]  # of 16 lanes, as one run of elements
            whole = int.from_bytes(block.tobytes(), "little")
            elements = [whole >> width * n & (1 << width) - 1 for n in range(lane % 16, 128 * stride // width, 16)]
            wanted = sum(element << width * n for n, element in enumerate(elements))
            assert got.v(register, lane, stride // 4) == wanted, (width, lane)
