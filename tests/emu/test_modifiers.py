"""DPP lane maps, SDWA selects, neg, abs, omod and clamp, run through real instructions and checked on lists."""

import random
import struct

import numpy as np
import pytest

from emu.errors import EmulatorError
from emu.modifiers import dpp_lanes
from emu.wave import Wave
from gfx950.isa.encoding import decode
from gfx950.lanes import Mode

LANES = range(64)
ALL = (1 << 64) - 1
PARTIAL = 0xF00F_8001_7FFF_0F30
OLD = 0xDEADBEEF


def make_wave(mask=ALL, mode=None):
    wave = Wave(mode=mode)
    for index in range(1, 5):
        wave.vgprs[index] = np.frombuffer(random.Random(index).randbytes(256), dtype=np.uint32)
    wave.vgprs[9] = OLD
    wave.set_exec(mask)
    return wave


def run(wave, assemble, text):
    wave.step(decode(assemble(text), 0))
    return wave


def f32(bits):
    return struct.unpack("<f", struct.pack("<I", int(bits)))[0]


def bits32(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def rows(function):
    """The source lanes of a map that works on each row of 16 alike: `function` permutes a list (None: no source)."""
    return [lane for first in range(0, 64, 16) for lane in function([*range(first, first + 16)])]


NONE = None
# The lane maps of the manual's 13.3.9, built by cutting and joining lists. None: no source lane.
DPP = {
    "quad_perm:[3,0,2,2]": [4 * (n // 4) + (3, 0, 2, 2)[n % 4] for n in LANES],
    "quad_perm:[0,0,0,0]": [4 * (n // 4) for n in LANES],
    "row_shl:1": rows(lambda r: [*r[1:], NONE]),
    "row_shl:15": rows(lambda r: [r[15], *[NONE] * 15]),
    "row_shr:1": rows(lambda r: [NONE, *r[:15]]),
    "row_shr:4": rows(lambda r: [*[NONE] * 4, *r[:12]]),
    "row_ror:1": rows(lambda r: [r[15], *r[:15]]),
    "row_ror:5": rows(lambda r: r[11:] + r[:11]),
    "wave_shl:1": [*range(1, 64), NONE],
    "wave_rol:1": [*range(1, 64), 0],
    "wave_shr:1": [NONE, *range(63)],
    "wave_ror:1": [63, *range(63)],
    "row_mirror": rows(lambda r: r[::-1]),
    "row_half_mirror": rows(lambda r: r[7::-1] + r[:7:-1]),
    "row_bcast:15": [NONE] * 16 + [15] * 16 + [31] * 16 + [47] * 16,
    "row_bcast:31": [NONE] * 32 + [31] * 32,
    "row_newbcast:0": rows(lambda r: [r[0]] * 16),
    "row_newbcast:13": rows(lambda r: [r[13]] * 16),
}


def dpp_expected(wave, mapped, mask, bound, row_mask, bank_mask):
    result = []
    for n, source in enumerate(mapped):
        good = source is not None and mask >> source & 1
        allowed = mask >> n & 1 and row_mask >> n // 16 & 1 and bank_mask >> n % 16 // 4 & 1
        written = allowed and (good or bound)
        result.append((int(wave.vgprs[1][source]) if good else 0) if written else OLD)
    return result


@pytest.mark.parametrize("mask", [ALL, PARTIAL])
@pytest.mark.parametrize("control", sorted(DPP))
def test_dpp_moves(assemble_lines, control, mask):
    variants = [(False, 15, 15), (True, 15, 15), (False, 0b0110, 15), (True, 15, 0b1010), (True, 0b1001, 0b0011)]
    texts = [
        f"v_mov_b32_dpp v9, v1 {control} row_mask:{r:#x} bank_mask:{b:#x}{' bound_ctrl:0' if bound else ''}"
        for bound, r, b in variants
    ]
    for code, (bound, row_mask, bank_mask) in zip(assemble_lines(texts), variants, strict=True):
        wave = make_wave(mask)
        wave.step(decode(code, 0))
        assert wave.vgprs[9].tolist() == dpp_expected(wave, DPP[control], mask, bound, row_mask, bank_mask)


def test_dpp_moves_the_first_source_only_and_negates_after(assemble):
    wave = make_wave()
    wave.vgprs[1] = [bits32(float(n)) for n in LANES]
    wave.vgprs[2] = [bits32(100.0 * n) for n in LANES]
    run(wave, assemble, "v_add_f32_dpp v9, -v1, |v2| row_ror:1 row_mask:0xf bank_mask:0xf")
    assert [f32(b) for b in wave.vgprs[9]] == [100.0 * n - DPP["row_ror:1"][n] for n in LANES]


def test_dpp_compare_free_carry_goes_through_the_moved_lane(assemble):
    wave = make_wave()
    run(wave, assemble, "v_add_co_u32_dpp v9, vcc, v1, v2 wave_rol:1 row_mask:0xf bank_mask:0xf")
    moved = [int(wave.vgprs[1][n]) for n in DPP["wave_rol:1"]]
    sums = [a + int(b) for a, b in zip(moved, wave.vgprs[2], strict=True)]
    assert wave.vgprs[9].tolist() == [s & 0xFFFFFFFF for s in sums]
    assert int(wave.sgprs[106]) | int(wave.sgprs[107]) << 32 == sum(int(s >> 32) << n for n, s in enumerate(sums))


@pytest.mark.parametrize("control", [0x100, 0x110, 0x120, 0x131, 0x135, 0x139, 0x13D, 0x144, 0x160, 0x1FF])
def test_reserved_dpp_controls(control):
    with pytest.raises(EmulatorError, match=f"pc 0x40: DPP control 0x{control:x} is reserved"):
        dpp_lanes(control, 0x40)


# ---- SDWA ----

SELECTS = {"DWORD": (0, 32), "WORD_0": (0, 16), "WORD_1": (16, 16), **{f"BYTE_{i}": (8 * i, 8) for i in range(4)}}


def selected(word, select, sext=False):
    low, count = SELECTS[select]
    part = int(word) >> low & (1 << count) - 1
    return part - (1 << count) if sext and part >> count - 1 else part


@pytest.mark.parametrize("sext", [False, True])
def test_sdwa_source_selects(assemble_lines, sext):
    first = "sext(v1)" if sext else "v1"
    cases = [(a, b) for a in SELECTS for b in SELECTS]
    end = "dst_sel:DWORD dst_unused:UNUSED_PAD"
    texts = [f"v_add_u32_sdwa v9, {first}, v2 {end} src0_sel:{a} src1_sel:{b}" for a, b in cases]
    for code, (a, b) in zip(assemble_lines(texts), cases, strict=True):
        wave = make_wave(PARTIAL)
        wave.step(decode(code, 0))
        for n in LANES:
            want = selected(wave.vgprs[1][n], a, sext) + selected(wave.vgprs[2][n], b) & 0xFFFFFFFF
            assert wave.vgprs[9][n] == (want if PARTIAL >> n & 1 else OLD)


def placed(value, select, unused):
    low, count = SELECTS[select]
    part = (value & (1 << count) - 1) << low
    if unused == "UNUSED_PRESERVE":
        return part | OLD & ~((1 << count) - 1 << low)
    if unused == "UNUSED_SEXT" and value >> count - 1 & 1:
        return (part | -1 << low + count) & 0xFFFFFFFF
    return part


@pytest.mark.parametrize("unused", ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"])
@pytest.mark.parametrize("select", sorted(SELECTS))
def test_sdwa_destination(assemble, select, unused):
    wave = make_wave(PARTIAL)
    run(
        wave, assemble, f"v_add_u32_sdwa v9, v1, v2 dst_sel:{select} dst_unused:{unused} src0_sel:DWORD src1_sel:BYTE_3"
    )
    for n in LANES:
        total = int(wave.vgprs[1][n]) + (int(wave.vgprs[2][n]) >> 24) & 0xFFFFFFFF
        assert wave.vgprs[9][n] == (placed(total, select, unused) if PARTIAL >> n & 1 else OLD)


def test_sdwa_floats_take_neg_and_abs_after_the_select(assemble):
    wave = make_wave()
    wave.vgprs[1] = np.array([[n, -n] for n in LANES], dtype=np.float16).view(np.uint32).ravel()
    wave.vgprs[2] = np.array([[3 * n, -5 * n] for n in LANES], dtype=np.float16).view(np.uint32).ravel()
    end = "dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_1"
    run(wave, assemble, f"v_add_f16_sdwa v9, -v1, |v2| {end}")
    got = wave.vgprs[9].view(np.float16).reshape(64, 2)[:, 1]
    assert got.tolist() == [6.0 * n for n in LANES]
    assert (wave.vgprs[9] & 0xFFFF == OLD & 0xFFFF).all()


def test_sdwa_compare_writes_a_scalar_pair(assemble):
    wave = make_wave(PARTIAL)
    run(wave, assemble, "v_cmp_lt_u32_sdwa s[10:11], v1, v2 src0_sel:BYTE_0 src1_sel:BYTE_1")
    hits = sum(int(wave.vgprs[1][n] & 255 < wave.vgprs[2][n] >> 8 & 255) << n for n in LANES) & PARTIAL
    assert int(wave.sgprs[10]) | int(wave.sgprs[11]) << 32 == hits


def test_sdwa_reads_scalars(assemble):
    wave = make_wave()
    wave.sgprs[5] = 0x11223344
    run(wave, assemble, "v_mov_b32_sdwa v9, s5 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2")
    assert (wave.vgprs[9] == 0x22).all()


# ---- VOP3: neg, abs, omod, clamp ----

SPECIAL = [0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00123, 0x00000001, 0x80000001]


def lanes_of(values):
    return np.array([values[n % len(values)] for n in LANES], dtype=np.uint32)


@pytest.mark.parametrize(
    ("operand", "change"),
    [
        ("v1", lambda b: b),
        ("-v1", lambda b: b ^ 1 << 31),
        ("|v1|", lambda b: b & ~(1 << 31)),
        ("-|v1|", lambda b: b | 1 << 31),
    ],
)
def test_neg_and_abs_touch_the_sign_bit_only(assemble, operand, change):
    wave = make_wave()
    wave.vgprs[1], wave.vgprs[2] = lanes_of(SPECIAL), bits32(1.0)
    run(wave, assemble, f"v_mul_f32_e64 v9, {operand}, v2")
    assert wave.vgprs[9].tolist() == [change(b) for b in lanes_of(SPECIAL).tolist()]


def test_neg_means_nothing_to_integers(assemble):
    wave = make_wave()
    code = bytearray(assemble("v_add_u32_e64 v9, v1, v2"))
    code[7] |= 0x20  # NEG of source 0
    wave.step(decode(bytes(code), 0))
    assert (wave.vgprs[9] == wave.vgprs[1] + wave.vgprs[2]).all()


@pytest.mark.parametrize(("text", "factor"), [("mul:2", 2.0), ("mul:4", 4.0), ("div:2", 0.5)])
def test_omod_scales_when_ieee_and_output_denormals_are_off(assemble, text, factor):
    values = [0.0, 1.5, -3.25, 1e30, 7.0]
    for ieee, denorm in [(False, 0), (True, 0), (False, 3), (True, 3)]:
        wave = make_wave(mode=Mode(ieee=ieee, denorm32=denorm))
        wave.vgprs[1] = lanes_of([bits32(v) for v in values])
        wave.vgprs[2] = 0x80000000
        run(wave, assemble, f"v_add_f32_e64 v9, v1, v2 {text}")
        active = not ieee and not denorm & 2
        want = [bits32(v * factor) if active else bits32(v) for v in values]
        assert wave.vgprs[9].tolist() == lanes_of(want).tolist()


def test_active_omod_turns_minus_zero_into_zero_and_flushes(assemble):
    wave = make_wave(mode=Mode(ieee=False, denorm32=1))
    wave.vgprs[1] = lanes_of([0x80000000, 0x00800000, 0x80800000])
    wave.vgprs[2] = 0x80000000
    run(wave, assemble, "v_add_f32_e64 v9, v1, v2 div:2")
    assert wave.vgprs[9][0] == 0
    assert wave.vgprs[9][1] in (0, 0x80000000)
    assert not (wave.vgprs[9] & 0x7FFFFFFF).any()


@pytest.mark.parametrize("dx10", [True, False])
def test_clamp(assemble, dx10):
    wave = make_wave(mode=Mode(dx10_clamp=dx10))
    values = [-1.0, -0.0, 0.25, 1.0, 2.0, float("inf"), float("-inf")]
    wave.vgprs[1] = lanes_of([*[bits32(v) for v in values], 0x7FC00123])
    wave.vgprs[2] = 0x80000000
    run(wave, assemble, "v_add_f32_e64 v9, v1, v2 clamp")
    want = [0.0, 0.0, 0.25, 1.0, 1.0, 1.0, 0.0]
    assert wave.vgprs[9][:8].tolist() == [*[bits32(v) for v in want], 0 if dx10 else 0x7FC00123]


def test_omod_comes_before_clamp(assemble):
    wave = make_wave(mode=Mode(ieee=False, denorm32=0))
    wave.vgprs[1], wave.vgprs[2] = bits32(0.4), bits32(0.0)
    run(wave, assemble, "v_add_f32_e64 v9, v1, v2 clamp mul:4")
    assert (wave.vgprs[9] == bits32(1.0)).all()
