"""The executor: where operands come from, what EXEC lets through, where results and control go."""

import random

import numpy as np
import pytest

from emu.memory import Memory
from emu.wave import Wave
from gfx950.isa.encoding import DecodeError, decode
from gfx950.isa.operand_codes import EXEC, M0, VCC

LANES = range(64)
ALL = (1 << 64) - 1
PARTIAL = 0xF00F_8001_7FFF_0F30
M64 = ALL


def make_wave(mask=ALL):
    wave = Wave(lds=np.arange(4096, dtype=np.uint32).view(np.uint8).copy(), memory=Memory())
    for index in [*range(1, 9), *range(257, 265)]:
        wave.vgprs[index] = np.frombuffer(random.Random(index).randbytes(256), dtype=np.uint32)
    for index in range(30):
        wave.sgprs[index] = random.Random(-index).getrandbits(32)
    wave.set_exec(mask)
    return wave


def run(wave, assemble, text):
    code = assemble(text)
    pc = 0x1000
    while pc - 0x1000 < len(code):
        decoded = decode(code, pc, 0x1000)
        wave.step(decoded)
        pc += decoded.nbytes
    return wave


def pair(wave, index):
    return int(wave.sgprs[index]) | int(wave.sgprs[index + 1]) << 32


def bits_of(mask):
    return [bool(mask >> n & 1) for n in LANES]


VECTOR_SOURCES = [  # text of src0, the 32 bits v_mov_b32 must give
    ("s3", None),
    ("vcc_lo", 0x11111111),
    ("vcc_hi", 0x22222222),
    ("m0", 0x33333333),
    ("exec_hi", 0xFFFFFFFF),
    ("0", 0),
    ("64", 64),
    ("-1", 0xFFFFFFFF),
    ("-16", 0xFFFFFFF0),
    ("0.5", 0x3F000000),
    ("-0.5", 0xBF000000),
    ("1.0", 0x3F800000),
    ("-1.0", 0xBF800000),
    ("2.0", 0x40000000),
    ("-2.0", 0xC0000000),
    ("4.0", 0x40800000),
    ("-4.0", 0xC0800000),
    ("0.15915494", 0x3E22F983),
    ("0x12345678", 0x12345678),
    ("src_scc", 1),
    ("src_vccz", 0),
    ("src_execz", 0),
]


def test_vector_sources(assemble_lines):
    codes = assemble_lines([f"v_mov_b32 v9, {text}" for text, _ in VECTOR_SOURCES])
    for (text, expected), code in zip(VECTOR_SOURCES, codes, strict=True):
        wave = make_wave()
        wave.scc_bit = True
        wave.sgprs[VCC], wave.sgprs[VCC + 1], wave.sgprs[M0] = 0x11111111, 0x22222222, 0x33333333
        wave.step(decode(code, 0))
        assert (wave.vgprs[9] == (wave.sgprs[3] if expected is None else expected)).all(), text


def test_inline_floats_take_the_operands_format(assemble):
    wave = make_wave()
    run(wave, assemble, "v_add_f16_e32 v9, 1.0, v1")
    halves = wave.vgprs[1].astype(np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        want = (np.float16(1.0) + halves).view(np.uint16)
    known = ~np.isnan(halves)
    assert (wave.vgprs[9][known] == want[known]).all()


def test_f64_constants_fill_the_high_word(assemble):
    wave = make_wave()
    wave.vgprs[2:4] = 0
    run(wave, assemble, "v_add_f64 v[6:7], v[2:3], 2.0")
    assert (wave.vgprs[7] == 0x40000000).all()
    assert not wave.vgprs[6].any()


def test_results_reach_active_lanes_only(assemble):
    wave = make_wave(PARTIAL)
    before = wave.vgprs.copy()
    run(wave, assemble, "v_add_u32 v5, v1, v2")
    assert wave.vgprs[5].tolist() == np.where(bits_of(PARTIAL), before[1] + before[2], before[5]).tolist()
    before[5] = wave.vgprs[5]
    assert (wave.vgprs == before).all()


def test_empty_exec_writes_nothing(assemble):
    wave = make_wave(0)
    before = wave.vgprs.copy()
    run(wave, assemble, "v_add_u32 v5, v1, v2\nds_read_b32 v6, v1\nds_bpermute_b32 v7, v1, v2")
    assert (wave.vgprs == before).all()


def test_destination_may_be_a_source(assemble):
    wave = make_wave()
    before = wave.vgprs.copy()
    run(wave, assemble, "v_lshl_add_u64 v[2:3], v[2:3], 1, v[4:5]")
    wide = before[2:6].astype(object)
    want = [((int(a) | int(b) << 32) * 2 + (int(c) | int(d) << 32)) & M64 for a, b, c, d in wide.T]
    assert [int(a) | int(b) << 32 for a, b in wave.vgprs[2:4].T] == want


def test_compares_replace_all_64_bits(assemble):
    wave = make_wave(PARTIAL)
    wave.sgprs[10:12] = 0xFFFFFFFF
    run(wave, assemble, "v_cmp_lt_u32_e64 s[10:11], v1, v2\nv_cmp_ge_u32 vcc, v1, v2")
    less = sum(int(a < b) << n for n, (a, b) in enumerate(zip(wave.vgprs[1], wave.vgprs[2], strict=True)))
    assert pair(wave, 10) == less & PARTIAL
    assert pair(wave, VCC) == ~less & PARTIAL


def test_cmpx_writes_exec_and_its_destination(assemble):
    wave = make_wave(PARTIAL)
    run(wave, assemble, "v_cmpx_lt_u32_e64 s[10:11], v1, v2")
    less = sum(int(a < b) << n for n, (a, b) in enumerate(zip(wave.vgprs[1], wave.vgprs[2], strict=True)))
    assert pair(wave, 10) == pair(wave, EXEC) == less & PARTIAL


@pytest.mark.parametrize("carry", [0, ALL, 0x0123456789ABCDEF])
def test_carry_in_is_vcc_or_the_pair_named(assemble, carry):
    forms = (("v_addc_co_u32 v9, vcc, v1, v2, vcc", VCC), ("v_addc_co_u32_e64 v9, vcc, v1, v2, s[20:21]", 20))
    for text, source in forms:
        wave = make_wave(PARTIAL)
        wave.sgprs[source], wave.sgprs[source + 1] = carry & 0xFFFFFFFF, carry >> 32
        run(wave, assemble, text)
        sums = [int(wave.vgprs[1][n]) + int(wave.vgprs[2][n]) + (carry >> n & 1) for n in LANES]
        assert pair(wave, VCC) == sum((s >> 32) << n for n, s in enumerate(sums)) & PARTIAL
        want = [s & 0xFFFFFFFF if PARTIAL >> n & 1 else 0 for n, s in enumerate(sums)]
        assert wave.vgprs[9].tolist() == want


def test_scalar_results_ignore_exec(assemble):
    wave = make_wave(0)
    run(wave, assemble, "s_add_u32 s40, s1, s2\nv_readlane_b32 s41, v1, 37")
    assert wave.sgprs[40] == int(wave.sgprs[1]) + int(wave.sgprs[2]) & 0xFFFFFFFF
    assert wave.sgprs[41] == wave.vgprs[1][37]


def test_special_scalar_destinations(assemble):
    wave = make_wave()
    run(wave, assemble, "s_mov_b32 m0, 7\ns_mov_b64 vcc, 5\ns_mov_b64 exec, 9")
    assert (wave.sgprs[M0], pair(wave, VCC), pair(wave, EXEC)) == (7, 5, 9)
    run(wave, assemble, "v_mov_b32 v9, 1")
    assert np.flatnonzero(wave.vgprs[9]).tolist() == [0, 3]


def test_memory_data_may_live_in_accumulation_registers(assemble):
    wave = make_wave()
    wave.vgprs[1] = 16 * np.arange(64)
    run(wave, assemble, "ds_read_b128 a[4:7], v1")
    for word in range(4):
        assert (wave.vgprs[256 + 4 + word] == 4 * np.arange(64) + word).all()
    run(wave, assemble, "ds_write_b32 v1, a7 offset:4")
    assert (wave.lds.view(np.uint32)[1:256:4] == wave.vgprs[263]).all()


def test_branch_targets_count_dwords_from_the_next_instruction():
    for immediate, target in [(0, 0x1004), (1, 0x1008), (0xFFFF, 0x1000), (0x8000, 0x1004 - 0x20000)]:
        transfer = make_wave().step(decode((0xBF820000 | immediate).to_bytes(4, "little"), 0x1000, 0x1000))
        assert (transfer.kind, transfer.target) == ("branch", target)


def test_flow_instructions_change_no_register(assemble):
    wave = make_wave()
    vgprs, sgprs = wave.vgprs.copy(), wave.sgprs.copy()
    run(wave, assemble, "s_nop 3\ns_waitcnt vmcnt(0)\ns_barrier\ns_sleep 1\ns_branch 4\ns_dcache_inv\nds_nop\ns_endpgm")
    assert (wave.vgprs == vgprs).all()
    assert (wave.sgprs == sgprs).all()


def test_a_loop_runs(assemble):
    """Sums 1..10 with a backward branch: the numpy wave moved by hand."""
    start = "s_mov_b32 s0, 0\ns_mov_b32 s1, 10\n"
    body = "s_add_u32 s0, s0, s1\ns_sub_u32 s1, s1, 1\ns_cmp_lg_u32 s1, 0\ns_cbranch_scc1 65532\n"
    code = assemble(f"{start}{body}s_endpgm")
    wave, pc = make_wave(), 0
    while True:
        decoded = decode(code, pc)
        transfer = wave.step(decoded)
        if transfer is not None and transfer.kind == "end":
            break
        taken = transfer is not None and bool(transfer.condition[0])
        pc = transfer.target if taken else pc + decoded.nbytes
    assert wave.sgprs[0] == 55


BAD = [  # bytes, words of the message
    (b"\x00\x00\x00", "the code ends in the middle of an instruction"),
    (bytes.fromhex("0000ffbf"), "unknown SOPP opcode 127 in 0xbfff0000 "),
    (bytes.fromhex("000074d900000000"), r"unknown DS opcode 186 .*nearest known: ds_"),
    (bytes.fromhex("000000f800000000"), "belongs to no gfx950 instruction format"),
]


@pytest.mark.parametrize(("code", "message"), BAD)
def test_what_is_no_instruction_says_so(code, message):
    with pytest.raises(DecodeError, match=f"pc 0x20: .*{message}"):
        decode(code, 0x20, 0x20)
