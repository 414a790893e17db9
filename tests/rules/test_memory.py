"""Rules of scalar memory, buffers, and flat, global and scratch addresses."""

import numpy as np
import pytest
from programs import LANES, Setting, expect, f16, f32, f64, run, words

from emu.errors import EmulatorError
from emu.memory import PRIVATE_APERTURE, SHARED_APERTURE
from gfx950.isa.encoding import DecodeError, decode
from gfx950.lanes import Mode
from gfx950.models import make_model, using

DATA = np.arange(256, dtype=np.uint32) + 1000
SMEM = expect("""
s_load_dword s20, s[4:5], 0x10
s_load_dword s21, s[4:5], s8
s_load_dword s22, s[4:5], m0
s_load_dword s23, s[4:5], s8 offset:0x8
s_load_dword s24, s[4:5], m0 offset:0x8
s_add_u32 s10, s4, 0x43
s_addc_u32 s11, s5, 0
s_load_dword s25, s[10:11], -0x20
s_load_dword s26, s[10:11], s9 offset:0x7
s_waitcnt lgkmcnt(0)
""")
BUFFER_TAIL = expect("""
s_mov_b32 s6, 20
s_mov_b32 s7, 0x27000
s_buffer_load_dwordx8 s[16:23], s[4:7], 0x8
s_waitcnt lgkmcnt(0)
""")
SCALAR_ATOMICS = expect("""
s_atomic_add s20, s[4:5], 0x4
s_atomic_add s21, s[4:5], 0x8 glc
s_atomic_cmpswap s[22:23], s[4:5], 0xc
s_atomic_cmpswap s[24:25], s[4:5], 0x10 glc
s_waitcnt lgkmcnt(0)
""")
RESOURCE = "s_mov_b32 s6, {size}\ns_mov_b32 s7, 0x27000\n"
RAW = expect(
    RESOURCE.format(size=64)
    + """
buffer_load_dwordx4 v[4:7], v1, s[4:7], 0 offen
buffer_load_dword v8, v1, s[4:7], s8 offen
buffer_load_format_xyzw v[12:15], v1, s[4:7], 0 offen
buffer_store_dwordx2 v[2:3], v1, s[4:7], 0 offen offset:4
buffer_load_dword v16, v20, s[4:7], 0 offen offset:2
buffer_load_ushort v17, v20, s[4:7], 0 offen offset:2
buffer_load_dword v18, v20, s[4:7], m0 offen
buffer_load_dword v19, v20, s[4:7], 64 offen
buffer_load_dword v21, v20, s[4:7], 8 offen
s_waitcnt vmcnt(0)
"""
)
UNBOUND = expect("""
buffer_load_dwordx4 v[4:7], v1, s[20:23], 0 offen
buffer_store_dword v1, v1, s[20:23], 0 offen
buffer_atomic_add v1, v1, s[20:23], 0 offen
s_waitcnt vmcnt(0)
""")
BUFFER_ATOMICS = expect(
    RESOURCE.format(size=1024)
    + """
buffer_atomic_add v4, v1, s[4:7], 0 offen
buffer_atomic_add v5, v1, s[4:7], 0 offen offset:4 sc0
buffer_atomic_cmpswap v[6:7], v1, s[4:7], 0 offen offset:8 sc0
buffer_atomic_cmpswap v[8:9], v1, s[4:7], 0 offen offset:12
buffer_atomic_add_f32 v10, v1, s[4:7], 0 offen offset:16
buffer_atomic_pk_add_f16 v11, v1, s[4:7], 0 offen offset:20
buffer_atomic_add_f64 v[12:13], v1, s[4:7], 0 offen offset:24
buffer_atomic_pk_add_bf16 v14, v1, s[4:7], 0 offen offset:32
s_waitcnt vmcnt(0)
"""
)
NARROW = ("ubyte", "sbyte", "ushort", "sshort", "ubyte_d16", "ubyte_d16_hi", "sbyte_d16", "sbyte_d16_hi", "short_d16",
          "short_d16_hi", "dword")  # fmt: skip
NARROW_LOADS = expect(RESOURCE.format(size=1024) + "\n".join(
    f"buffer_load_{name} v{10 + i}, v1, s[4:7], 0 offen" for i, name in enumerate(NARROW)
) + """
buffer_load_dwordx3 v[24:26], v2, s[4:7], 0 offen
buffer_store_byte v3, v1, s[4:7], 0 offen offset:512
buffer_store_byte_d16_hi v3, v1, s[4:7], 0 offen offset:513
buffer_store_short v3, v4, s[4:7], 0 offen offset:516
buffer_store_short_d16_hi v3, v4, s[4:7], 0 offen offset:518
buffer_store_dwordx3 v[24:26], v4, s[4:7], 0 offen offset:520
s_waitcnt vmcnt(0)
""")  # fmt: skip
TO_LDS = expect(
    RESOURCE.format(size=1024)
    + """
buffer_load_dword v1, s[4:7], 0 offen lds
s_add_u32 m0, m0, 0x400
buffer_load_dwordx3 v1, s[4:7], 0 offen lds
s_waitcnt vmcnt(0)
"""
)
OUTSIDE_LDS = expect(RESOURCE.format(size=0xFFFFFFF0) + "buffer_load_dword v1, s[4:7], 0 offen lds\ns_waitcnt vmcnt(0)")
APERTURES = """
flat_load_dword v2, v[4:5]
s_waitcnt vmcnt(0) lgkmcnt(0)
flat_store_dword v[4:5], v6
s_waitcnt vmcnt(0)
flat_load_dword v3, v[4:5]
s_waitcnt vmcnt(0)
scratch_load_dword v8, v10, off
s_waitcnt vmcnt(0)
"""
GLOBAL_SHARED = expect("global_load_dword v2, v[4:5], off\ns_waitcnt vmcnt(0)")
SCRATCH = expect("""
scratch_store_dword off, v1, off offset:4
scratch_store_dword off, v2, s8 offset:4
scratch_store_dword v10, v3, off offset:4
scratch_load_dword v20, off, off offset:4
scratch_load_dword v21, off, s9 offset:-12
scratch_load_dword v22, v11, off offset:-4
s_waitcnt vmcnt(0)
""")
GLOBAL_TO_LDS = expect("\n".join(
    f"s_mov_b32 m0, {0x300 * i:#x}\nglobal_load_lds_{name} v1, s[4:5] offset:16"
    for i, name in enumerate(("ubyte", "sshort", "dword", "dwordx4"))
) + "\ns_waitcnt vmcnt(0)")  # fmt: skip
FLAT_ATOMICS = expect("""
v_mov_b32 v4, s4
v_mov_b32 v5, s5
global_atomic_add_f32 v20, v2, v10, s[4:5] sc0
global_atomic_pk_add_f16 v22, v2, v11, s[4:5] offset:8 sc0
global_atomic_pk_add_bf16 v24, v2, v12, s[4:5] offset:16 sc0
global_atomic_add_f64 v[26:27], v2, v[14:15], s[4:5] offset:24 sc0
flat_atomic_add_f32 v28, v[4:5], v10 offset:40 sc0
global_atomic_add v2, v10, s[4:5] offset:48
s_waitcnt vmcnt(0) lgkmcnt(0)
""")
D16 = expect("""
global_load_short_d16 v2, v1, s[4:5]
global_load_ubyte_d16_hi v3, v1, s[4:5]
ds_read_u16_d16_hi v4, v1
s_waitcnt vmcnt(0) lgkmcnt(0)
""")
D16_FORMAT = expect(
    "s_or_b32 s5, s5, 0x100000\ns_mov_b32 s6, 4\ns_mov_b32 s7, 0x77fac\n"
    "buffer_load_format_d16_xyz v[4:5], v1, s[4:7], 0 idxen\nbuffer_load_format_d16_xyzw v[6:7], v1, s[4:7], 0 idxen\n"
    "s_waitcnt vmcnt(0)"
)


@pytest.mark.rule("RJ-027")
def test_scalar_addresses():
    got = run(SMEM, s={8: 0x21, 9: 0x1E}, m0=0x33, memory={4: DATA})
    first = int(DATA[0])
    assert [got.s(n) for n in range(20, 25)] == [first + n // 4 for n in (0x10, 0x20, 0x30, 0x28, 0x38)]
    assert [got.s(n) for n in (25, 26)] == [first + n // 4 for n in (0x20, 0x40 + 0x1C + 4)], "every part aligned"


@pytest.mark.rule("RJ-027")
def test_a_store_names_no_register_in_its_offset():
    store = decode(bytes.fromhex("0205 42c0 0700 0000".replace(" ", "")), 0)
    assert store.instruction.name == "s_store_dword"


@pytest.mark.rule("RJ-028")
def test_scalar_buffer_loads_skip_what_is_outside():
    got = run(BUFFER_TAIL, memory={4: DATA}, s={n: 7 for n in range(16, 24)})
    assert [got.s(n) for n in range(16, 24)] == [1002, 1003, 1004] + [0] * 5


BAD_SCALARS = {
    "two at an odd one": {"op": 1, "sdata": 21, "sbase": 2, "imm": 1},
    "four at no multiple of 4": {"op": 2, "sdata": 22, "sbase": 2, "imm": 1},
    "a buffer at no multiple of 4": {"op": 8, "sdata": 20, "sbase": 3, "imm": 1},
}


@pytest.mark.rule("RJ-029")
@pytest.mark.parametrize("case", BAD_SCALARS)
@pytest.mark.parametrize("engine", ["numpy", "host"])
def test_scalar_data_are_aligned(case, engine):
    with pytest.raises(EmulatorError, match=r"odd|no multiple of 4"):
        run(words("SMEM", **BAD_SCALARS[case]), memory={4: DATA}, engines=(engine,))


@pytest.mark.rule("RJ-029")
def test_scalar_data_may_be_vcc():
    assert run("s_load_dwordx2 vcc, s[4:5], 0x8\ns_waitcnt lgkmcnt(0)", memory={4: DATA}).vcc == 1002 | 1003 << 32


@pytest.mark.rule("RJ-030")
def test_scalar_atomics_return_with_glc_only():
    given = {20: 5, 21: 6, 22: 77, 23: 1003, 24: 88, 25: 1004}
    got = run(SCALAR_ATOMICS, s=given, memory={4: DATA})
    assert got.memory[4][1:5].tolist() == [1006, 1008, 77, 88]
    assert [got.s(n) for n in range(20, 26)] == [5, 1002, 77, 1003, 1004, 1004]


@pytest.fixture(params=["manual", "default"])
def manual(request):
    """Whether the manual's reading of a raw buffer is in force; the default rests on what gfx950 does."""
    chosen = request.param == "manual"
    with using(make_model("test", {"buffer.soffset_in_range": 0, "buffer.unaligned": 0} if chosen else None)):
        yield chosen


@pytest.mark.rule("RJ-032.2", "RJ-032.3", "RJ-034")
def test_raw_buffers(manual):
    v = {1: [52, 60, 64, 200], 2: 1, 3: 2, 20: 4}
    got = run(RAW, v=v, s={8: 400}, m0=12, memory={4: DATA}, exec=15)
    assert [got.v(4 + n, 0) for n in range(4)] == [1013, 1014, 1015, 0], "the leading dwords"
    by_offset = [1113, 1115, 0, 0]
    assert [got.v(8, lane) for lane in range(4)] == (by_offset if manual else [0] * 4), "whether SOFFSET counts"
    assert [got.v(12 + n, 0) for n in range(4)] == [0] * 4, "a format is all or nothing"
    assert got.memory[4][13:18].tolist() == [1013, 1, 2, 1016, 1017], "one dword of a store is dropped"
    whole = int.from_bytes(DATA.tobytes()[6:10], "little")
    assert got.v(16, 0) == (1001 if manual else whole), "whether dword accesses ignore the low bits"
    assert got.v(17, 0) == 0, "halves never do"
    constant = 1017 if manual else 0
    assert [got.v(n, 0) for n in (18, 19, 21)] == [1004, constant, 1003], "SOFFSET is an SGPR, M0 or a constant"


@pytest.mark.rule("RJ-032.4")
def test_an_unbound_descriptor_reads_zero():
    got = run(UNBOUND, v={1: 4 * LANES} | dict.fromkeys(range(4, 8), 9))
    assert all(got.v(n) == 0 for n in range(4, 8))


@pytest.mark.rule("RJ-037", "RJ-090", "P7.2", "P7.3")
def test_buffer_atomics():
    memory = DATA[:16].copy()
    memory[4], memory[5], memory[8] = 5, f16(1, 65504), (f32(1) >> 16) | (f32(2) >> 16) << 16
    memory[6:8] = 3, 0
    v = {1: 0, 4: 5, 5: 6, 6: 77, 7: 1002, 8: 88, 9: 1, 10: 3, 11: f16(2, 65504), 12: 4, 13: 0}
    got = run(
        BUFFER_ATOMICS,
        v=v | {14: (f32(1) >> 16) * 0x10001},
        exec=1,
        memory={4: memory},
        mode=Mode(denorm32=0, denorm16_64=0),
    )
    after = got.memory[4].tolist()
    assert after[:4] == [1005, 1007, 77, 1003]
    assert [got.v(n, 0) for n in (4, 5, 6, 7, 8)] == [5, 1001, 1002, 1002, 88], "only SC0 returns"
    assert after[5] == f16(3, np.inf), "no carry between the halves"
    assert after[6:8] == [7, 0], "f64 denormals are kept"
    assert after[8] == f32(2) >> 16 | (f32(3) >> 16) << 16


@pytest.mark.rule("P7.1")
def test_narrow_buffer_accesses():
    data = np.arange(1024, dtype=np.uint8)
    data[:2] = 0x85, 0x96
    v = {1: 0, 2: 4, 3: 0xAABBCCDD, 4: 0} | dict.fromkeys(range(10, 21), 0x12345678)
    got = run(NARROW_LOADS, v=v, exec=1, memory={4: data})
    wanted = [0x85, 0xFFFFFF85, 0x9685, 0xFFFF9685, 0x12340085, 0x00855678, 0x1234FF85, 0xFF855678, 0x12349685,
              0x96855678, 0x03029685]  # fmt: skip
    assert [got.v(10 + n, 0) for n in range(11)] == wanted
    assert got.v(24, 0, 3) == int.from_bytes(bytes(range(4, 16)), "little")
    assert got.memory[4][512:532].tobytes() == bytes([0xDD, 0xBB, 2, 3, 0xDD, 0xCC, 0xBB, 0xAA, *range(4, 16)])


@pytest.mark.rule("RJ-035", "P7.4")
def test_buffer_loads_to_lds():
    got = run(
        TO_LDS, v={1: 4 * LANES}, m0=0xFFFC0100, memory={4: np.resize(DATA, 512)}, lds=np.full(4096, 0xEE, np.uint8)
    )
    lds = got.lds.view(np.uint32)
    assert np.array_equal(lds[0x40 : 0x40 + 64], DATA[:64])
    rows = lds[0x140 : 0x140 + 256].reshape(64, 4)
    assert np.array_equal(rows[:, :3], DATA[LANES[:, None] + np.arange(3)])
    assert (rows[:, 3] == 0xEEEEEEEE).all(), "each fourth dword stays"


@pytest.mark.rule("RJ-035")
@pytest.mark.parametrize("op", [21, 32, 36])
def test_forms_to_lds_that_do_not_exist(op):
    code = bytes.fromhex(f"{0xE0001000 | 1 << 16 | op << 18:08x}")[::-1] + bytes(4)
    with pytest.raises(DecodeError):
        decode(code, 0)


@pytest.mark.rule("RJ-035.2", "P7.6")
def test_lanes_that_miss_the_allocation_read_nothing():
    addresses = [4 * n if n < 8 else 0xF0000000 for n in range(64)]
    got = run(OUTSIDE_LDS, v={1: addresses}, m0=5120 - 32, memory={4: DATA}, setting=Setting(lds=5120))
    assert np.array_equal(got.lds[-32:].view(np.uint32), DATA[:8])
    assert not got.lds[:-32].any()


@pytest.mark.rule("RJ-039", "RJ-042")
def test_one_flat_access_reaches_three_apertures():
    low = [16, 20, 8, 12]
    high = [SHARED_APERTURE >> 32, SHARED_APERTURE >> 32, PRIVATE_APERTURE >> 32, PRIVATE_APERTURE >> 32]
    got = run(
        APERTURES,
        v={4: low, 5: high, 6: 700 + LANES, 10: low}, exec=15, lds=DATA, setting=Setting(scratch=64),
    )  # fmt: skip
    assert [got.v(2, n) for n in range(4)] == [1004, 1005, 0, 0]
    assert [got.v(3, n) for n in range(4)] == [700, 701, 702, 703]
    assert [got.v(8, n) for n in (2, 3)] == [702, 703]
    assert got.lds[16:24].view(np.uint32).tolist() == [700, 701]


@pytest.mark.rule("RJ-039")
@pytest.mark.parametrize("high", [SHARED_APERTURE >> 32, 0x7FFF0000])
@pytest.mark.parametrize("engine", ["numpy", "host"])
def test_global_reaches_no_aperture_and_holes_are_faults(high, engine):
    with pytest.raises(EmulatorError) as caught:
        run(GLOBAL_SHARED, v={4: 16, 5: high}, engines=(engine,))
    assert caught.value.address is not None
    assert caught.value.lane == 0


@pytest.mark.rule("RJ-039.2")
def test_scratch_addressing():
    v = {1: 100 + LANES, 2: 200 + LANES, 3: 300 + LANES, 10: 32, 11: 24}
    got = run(SCRATCH, v=v, s={8: 16, 9: 32}, setting=Setting(scratch=64))
    assert np.array_equal(got.v(20), 100 + LANES), "ST"
    assert np.array_equal(got.v(21), 200 + LANES), "SS, and a negative offset"
    assert np.array_equal(got.v(22), 200 + LANES), "SV"


@pytest.mark.rule("RJ-040")
def test_global_loads_to_lds():
    got = run(
        GLOBAL_TO_LDS,
        v={1: 16 * LANES},
        memory={4: np.resize(DATA, 512)},
        lds=np.zeros(8960, np.uint8),
        setting=Setting(lds=8960),
    )
    data, lds = np.resize(DATA, 512), got.lds.view(np.uint32)
    rows = data[4:][: 64 * 4].reshape(64, 4)  # the offset moves both sides
    assert np.array_equal(lds[4:68], rows[:, 0] & 0xFF)
    assert np.array_equal(lds[0xC4 : 0xC4 + 64], rows[:, 0].astype(np.int16).astype(np.int32).view(np.uint32))
    assert np.array_equal(lds[0x184 : 0x184 + 64], rows[:, 0])
    assert np.array_equal(lds[0x244 : 0x244 + 256].reshape(64, 4), rows)


@pytest.mark.rule("RJ-042", "P7.3")
def test_float_atomics_return():
    memory = np.zeros(16, np.uint32)
    memory[:8] = f32(1), 0, f16(1, 2), 0, f32(3), 0, f64(1) & 0xFFFFFFFF, f64(1) >> 32
    memory[10] = f32(2)
    memory[12] = 40
    v = {2: 0, 10: f32(0.5), 11: f16(1, 1), 12: f32(1), 14: f64(0.25)}
    got = run(FLAT_ATOMICS, v=v, exec=1, memory={4: memory})
    after = got.memory[4].tolist()
    assert after[0] == f32(1.5)
    assert after[2] == f16(2, 3)
    assert after[4] == f32(4)
    assert after[6] | after[7] << 32 == f64(1.25)
    assert after[10] == f32(2.5)
    assert after[12] == 40 + f32(0.5)
    assert [got.v(n, 0) for n in (20, 22, 24, 28)] == [f32(1), f16(1, 2), f32(3), f32(2)]
    assert got.v(26, 0, 2) == f64(1)


@pytest.mark.rule("S13.10")
def test_d16_loads_keep_the_other_half():
    got = run(D16, v={1: 0, 2: 0xAAAABBBB, 3: 0xAAAABBBB, 4: 0xAAAABBBB}, memory={4: DATA}, lds=[0x12345678])
    assert [got.v(n) for n in (2, 3, 4)] == [0xAAAA03E8, 0x00E8BBBB, 0x5678BBBB]


@pytest.mark.rule("RJ-033.2")
def test_d16_formats_pack_two_to_a_register():
    data = np.array([1, 0.5, 2, 4], np.float32)
    data = np.array([f32(n) for n in (1, 0.5, 2, 4)], np.uint32)
    got = run(D16_FORMAT, v={1: 0, 5: 0xAAAABBBB}, exec=1, memory={4: data})
    assert got.v(6, 0, 2) == f16(1, 0.5) | f16(2, 4) << 32
    assert got.v(4, 0) == f16(1, 0.5)
    assert got.v(5, 0) & 0xFFFF == f16(2)
