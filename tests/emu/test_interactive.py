"""Lanes, instructions, LDS and matrices without a kernel; every example of their docstrings runs."""

import doctest
import importlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import emu
from emu import Lds, f16, f32, f64, i32, lane_id, lanes, mask, show, to_numpy, u32, u64
from emu.display import shown
from emu.interactive import FORMATS, from_words, to_words
from gfx950.isa.registry import load
from gfx950.lanes import B96, B128, F16, F32, U32, Mask, Mode

TRANSPOSE = """
>>> from emu import lanes, show, v_perm_b32
>>> r0, r1, r2, r3 = (lanes([16 * row + column for column in range(4)], "u8") for row in range(4))
>>> low, high = v_perm_b32(r1, r0, 0x05010400), v_perm_b32(r1, r0, 0x07030602)
>>> low2, high2 = v_perm_b32(r3, r2, 0x05010400), v_perm_b32(r3, r2, 0x07030602)
>>> c0, c1 = v_perm_b32(low2, low, 0x05040100), v_perm_b32(low2, low, 0x07060302)
>>> c2, c3 = v_perm_b32(high2, high, 0x05040100), v_perm_b32(high2, high, 0x07060302)
>>> for column in (r0, c0, c1, c2, c3):
...     show(column, "u8", count=2)
U32 as u8, low bits first
 0 03020100  0 1 2 3    1 03020100  0 1 2 3
U32 as u8, low bits first
 0 30201000   0 16 32 48    1 30201000   0 16 32 48
U32 as u8, low bits first
 0 31211101   1 17 33 49    1 31211101   1 17 33 49
U32 as u8, low bits first
 0 32221202   2 18 34 50    1 32221202   2 18 34 50
U32 as u8, low bits first
 0 33231303   3 19 35 51    1 33231303   3 19 35 51
"""


def run_examples(text, name):
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    failures = []
    doctest.DocTestRunner(verbose=False).run(test, out=failures.append)
    assert not failures, "".join(failures)
    return len(test.examples)


def test_the_byte_transpose_of_the_v_tile_takes_ten_lines():
    assert run_examples(TRANSPOSE, "transpose") <= 10


@pytest.mark.parametrize("name", ["", ".interactive", ".interactive_lds", ".interactive_matrix", ".display"])
def test_the_examples_of_docstrings_run(name, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    result = doctest.testmod(importlib.import_module(f"emu{name}"), raise_on_error=False)
    assert (result.failed, result.attempted > 0) == (0, True)


# ---- names -----------------------------------------------------------------------------------------------------------


def test_every_vector_and_scalar_mnemonic_is_a_function():
    for name in load():
        assert getattr(emu, name).instruction is load()[name]


def test_unknown_names_say_what_is_near():
    for name, message in (
        ("v_prem_b32", "no instruction 'v_prem_b32' is defined; nearest: v_perm_b32"),
        ("nothing", "module 'emu' has no attribute 'nothing'"),
    ):
        with pytest.raises(AttributeError, match=message):
            getattr(emu, name)


def test_importing_emu_stays_light():
    code = "import emu, sys; print([m for m in ('numpy', 'numba', 'gfx950.isa.registry') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_star_import_gives_the_names_of_all():
    names = {}
    exec("from emu import *", names)
    assert set(emu.__all__) <= set(names)
    assert names["show"] is show


def test_functions_know_their_operands():
    assert repr(emu.v_perm_b32).startswith("<v_perm_b32(src0, src1, src2): Each byte of D")
    assert str(emu.ds_bpermute_b32.__signature__) == "(addr, data0, offset=0, *, exec=-1)"
    assert "Each byte" in emu.v_perm_b32.__doc__


# ---- values ----------------------------------------------------------------------------------------------------------


def test_constructors_give_64_lanes_of_their_bits():
    np.testing.assert_array_equal(to_numpy(u32(-1)), np.full(64, 0xFFFFFFFF, np.uint32))
    np.testing.assert_array_equal(to_numpy(i32(np.arange(64) - 32)), np.arange(-32, 32, dtype=np.int32))
    np.testing.assert_array_equal(to_numpy(u64(1 << 63)), np.full(64, 1 << 63, np.uint64))
    np.testing.assert_array_equal(to_numpy(lane_id()), np.arange(64, dtype=np.uint32))
    np.testing.assert_array_equal(to_numpy(mask(0b101))[:4], [True, False, True, False])
    assert to_numpy(f64(0.1)).dtype == np.float64
    assert hex(int(f16(-0.0).raw[0])) == "0x8000"


def test_floats_are_rounded_once_to_nearest_even():
    wide = np.array([1 + 2.0**-24, 1 + 3 * 2.0**-24, 2.0**-150, 1e39] * 16)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(f32(wide).raw, wide.astype(np.float32).view(np.uint32))
        np.testing.assert_array_equal(f16(wide).raw, wide.astype(np.float16).view(np.uint16))


def test_nan_payloads_of_the_same_width_are_kept():
    bits = np.full(64, 0x7FA12345, np.uint32)
    np.testing.assert_array_equal(f32(bits.view(np.float32)).raw, bits)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("fp8", ml_dtypes.float8_e4m3fn),
        ("bf8", ml_dtypes.float8_e5m2),
        ("bf16", ml_dtypes.bfloat16),
        ("f16", np.float16),
        ("f32", np.float32),
    ],
)
def test_packed_lanes_are_little_endian_bytes(name, dtype):
    values = np.random.default_rng(5).normal(size=(64, 8)).astype(np.float32)
    expected = values.astype(dtype).view(np.uint8).reshape(64, -1).view(np.uint32)
    np.testing.assert_array_equal(to_words(lanes(values, name)).T, expected)


def test_packed_fp4_and_fp6_have_no_gaps():
    assert hex(int(lanes([1, 2, 3, 4, 6, -6, 0.5, 0], "fp4").raw[0])) == "0x1f76542"
    codes = np.arange(64 * 16).reshape(64, 16) % 64
    packed = lanes(FORMATS["fp6"].decode(codes.astype(np.uint8)), "fp6")
    assert isinstance(packed, B96)
    whole = [sum(int(w) << 32 * i for i, w in enumerate(row)) for row in to_words(packed).T]
    assert [[value >> 6 * i & 63 for i in range(16)] for value in whole] == codes.tolist()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: u32(1 << 33), ValueError, "8589934592 does not fit the 32 bits of U32"),
        (lambda: u32(1.5), TypeError, r"U32 takes integers, got float64: write f32\(..\)"),
        (lambda: f32([1, 2]), ValueError, r"F32 takes one value or 64, got an array of shape \(2,\)"),
        (lambda: f32("x"), TypeError, "F32 takes numbers"),
        (lambda: mask([1] * 64), TypeError, "a mask takes booleans"),
        (lambda: lanes([1, 2, 3], "fp8"), ValueError, "3 codes of 8 bits fill 0.75 registers"),
        (lambda: lanes([1, 2], "fp7"), ValueError, "'fp7' cannot be packed; there are: u8"),
        (lambda: lanes(1, "fp8"), ValueError, "one fp8 a lane is no register"),
        (lambda: lanes([256, 0, 0, 0], "u8"), ValueError, "u8 takes integers of 8 bits"),
        (lambda: from_words(np.zeros((5, 64), np.uint32)), ValueError, "no operand has 5 registers"),
    ],
)
def test_values_that_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


# ---- instructions ----------------------------------------------------------------------------------------------------


def test_numbers_arrays_and_lane_values_are_operands():
    expected = np.arange(64, dtype=np.uint32) + 100
    for operand in (100, np.full(64, 100), u32(100), i32(100)):
        np.testing.assert_array_equal(to_numpy(emu.v_add_u32(lane_id(), operand)), expected)


def test_a_value_of_another_type_keeps_its_bits():
    np.testing.assert_array_equal(emu.v_xor_b32(f32(1.0), 0).raw, np.full(64, 0x3F800000, np.uint32))
    np.testing.assert_array_equal(to_numpy(emu.v_add_f32(u32(0x3F800000), 0.5)), np.full(64, 1.5, np.float32))


def test_16_bit_operands_take_the_low_half():
    assert to_numpy(emu.v_add_f16(u32(0xFFFF3C00), 1.0))[0] == np.float16(2.0)


def test_pairs_of_registers_are_64_bit_operands():
    shifted = emu.v_lshlrev_b64(4, (u32(0x80000000), 1))
    assert hex(int(shifted.raw[0])) == "0x1800000000"


def test_packed_instructions_work_on_both_halves():
    total = emu.v_pk_add_f16(lanes([1.0, 2.0], "f16"), lanes([0.5, -2.0], "f16"))
    np.testing.assert_array_equal(to_words(total)[0, :1].view(np.float16), np.float16([1.5, 0.0]))
    pair = emu.v_pk_mul_f32(lanes([3.0, -1.0], "f32"), lanes([2.0, 0.5], "f32"))
    np.testing.assert_array_equal(to_words(pair)[:, 0].view(np.float32), np.float32([6.0, -0.5]))


def test_results_may_be_several():
    total, carry = emu.s_add_u32(0xFFFFFFFF, 2)
    assert (int(total.raw[0]), bool(carry.raw[0])) == (1, True)


def test_mode_may_be_given():
    tiny = u32(1)
    flushed = emu.v_add_f32(tiny, 0.0, mode=Mode(denorm32=0))
    assert int(flushed.raw[0]) == 0
    assert int(emu.v_add_f32(tiny, 0.0).raw[0]) == 1


def test_masks_go_in_and_out():
    below = emu.v_cmp_lt_f32(f32(np.arange(64)), 3.0)
    assert isinstance(below, Mask)
    np.testing.assert_array_equal(emu.v_cndmask_b32(0.0, 1.0, below).bits(F32).raw[:4].view(np.float32), [1, 1, 1, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: emu.v_perm_b32(1, 2), r"v_perm_b32\(src0, src1, src2\): missing a required argument: 'src2'"),
        (lambda: emu.v_perm_b32(1.5, 2, 3), "v_perm_b32, operand src0: U32 takes integers"),
        (lambda: emu.v_perm_b32(1, u64(2), 3), r"operand src1: a U64 has 64 bits, the operand \(U32\) 32"),
        (lambda: emu.v_perm_b32(1, lanes([1.0] * 16, "fp8"), 3), "a B128 has 4 registers, the operand is a U32"),
        (lambda: emu.ds_write_b128(1, 2, 3), "operand lds: takes an emu.Lds, got int"),
        (lambda: emu.ds_write_b128(Lds(64), 0, [1, 2]), "operand data0: B128 takes 4 registers, got 2"),
    ],
)
def test_operands_that_are_refused(call, message):
    with pytest.raises(TypeError, match=message):
        call()


# ---- show ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_", ["hex", "u8", "i16", "u32", "f32", "f16", "bf16", "fp8", "bf8", "fp4", "e8m0"])
@pytest.mark.parametrize("registers", [1, 2, 4, 8, 16])
def test_shown_lines_fit_80_columns_and_show_every_lane(as_, registers, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    words = np.random.default_rng(registers).integers(0, 1 << 32, (registers, 64), dtype=np.uint32)
    lines = list(shown(from_words(words), as_))
    assert max(map(len, lines)) <= 80
    text = " ".join(lines)
    for lane in range(64):
        assert f"{words[0, lane]:08x}" in text


def test_shown_values_are_those_of_ml_dtypes():
    codes = np.arange(256, dtype=np.uint8).reshape(64, 4)
    lines = list(shown(lanes(codes, "u8"), "fp8", width=80))[1:]
    values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    read = np.array([line.split()[2:6] for line in lines], dtype=np.float32)
    assert len(lines) == 64
    np.testing.assert_array_equal(read, values)
    np.testing.assert_array_equal(np.signbit(read) & (read == 0), np.signbit(values) & (values == 0))


def test_shown_signed_values_and_own_types():
    assert list(shown(i32(-5), count=1))[1].split() == ["0", "fffffffb", "-5"]
    assert list(shown(f32(0.1), count=1)) == ["F32 as f32", " 0 3dcccccd  0.1"]
    assert list(shown(f16(0.1), count=1)) == ["F16 as f16", " 0 2e66  0.1"]
    assert list(shown(u32(7), count=1)) == ["U32 as hex", " 0 00000007"]


def test_shown_masks():
    assert list(shown(mask(0b1010))) == ["Mask 000000000000000a, 2 lanes", "   1 3"]
    assert list(shown(mask(0))) == ["Mask 0000000000000000, 0 lanes", "   none"]


def test_only_lane_values_are_shown():
    with pytest.raises(TypeError, match=r"show takes one lane value, got tuple: wrap numbers with u32"):
        show(emu.s_add_u32(1, 2))


def test_the_width_may_be_given():
    assert max(map(len, shown(u32(5), width=30))) <= 30
    assert len(list(shown(u32(5), width=300))) == 1 + 64 // 16


@pytest.mark.parametrize(
    ("value", "as_", "message"),
    [
        (u32(1), "fp7", "cannot be shown as 'fp7'; there are: hex, u8"),
        (u32(1), "fp6", "32 bits are no whole number of fp6 values"),
        (f16(1), "f32", "16 bits are no whole number of f32 values"),
    ],
)
def test_meanings_that_are_refused(value, as_, message):
    with pytest.raises(ValueError, match=message):
        show(value, as_)


# ---- LDS -------------------------------------------------------------------------------------------------------------


def swizzle(address):
    return address ^ ((address >> 7 & 7) << 4)


def test_lds_reads_what_was_written_through_the_swizzle():
    lds = Lds(4096)
    values = [lane_id() * 4 + i for i in range(4)]
    lds.write(lane_id() * 16, *values, swizzle=swizzle)
    back = lds.read(lane_id() * 16, 4, swizzle=swizzle)
    assert isinstance(back, B128)
    np.testing.assert_array_equal(to_words(back), np.arange(256, dtype=np.uint32).reshape(64, 4).T)
    plain = np.array([swizzle(16 * lane) for lane in range(64)])
    np.testing.assert_array_equal(lds.contents.view(np.uint32)[plain // 4], np.arange(64) * 4)


def test_lds_knows_what_was_written():
    lds = Lds(256)
    lds.write(lane_id() * 4, 0xAABBCCDD, active=0b1011)
    assert repr(lds) == "Lds(256 bytes, 12 written)"
    assert lds.shown(1, 5) == ["0000 aabbccdd aabbccdd -------- aabbccdd --------"]
    emu.ds_write_b8(lds, 17, 0x5A)
    assert lds.shown(1, 1, start=16) == ["0010 ----5a--"]
    assert lds.shown(1, 2, as_="u8", start=12) == ["000c 221 204 187 170               -"]


def test_lds_rows_fit_the_terminal(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    lds = Lds(4096)
    assert max(map(len, lds.shown(4, 64))) <= 80
    lds.write(lane_id() * 4, f32(-0.1234567))
    assert max(map(len, lds.shown(1, 16, as_="f32"))) <= 80


def test_instructions_use_the_lds():
    lds = Lds(1024)
    emu.ds_write_b128(lds, lane_id() * 16, [lane_id(), 0, 0, 7])
    read = emu.ds_read_b64(lds, lane_id() * 16, offset=8)
    assert hex(int(read.raw[9])) == "0x700000000"
    old = emu.ds_add_rtn_u32(lds, 4, 1)
    np.testing.assert_array_equal(to_numpy(old), np.arange(64, dtype=np.uint32))
    assert int(emu.ds_read_b32(lds, 2000).raw[0]) == 0


def test_accesses_outside_name_the_lane():
    lds = Lds(256)
    with pytest.raises(IndexError, match=r"lane 61 reaches bytes 244..259, the LDS has 256 bytes; the chip would"):
        lds.write(lane_id() * 4, 1, 2, 3, 4)
    with pytest.raises(IndexError, match="rows reach byte 319, the LDS has 256 bytes"):
        lds.show(5, 16)
    assert not lds.written.any()
    with pytest.raises(ValueError, match="a CU of gfx950 has 163840"):
        Lds(200000)


def test_conflicts_see_the_swizzle():
    lds = Lds(65536)
    rows = (lane_id() & 15) * 128 + (lane_id() >> 4) * 16
    plain = lds.conflicts("ds_read_b128", rows)
    swizzled = lds.conflicts("ds_read_b128", rows, swizzle=swizzle)
    assert plain.extra_cycles > swizzled.extra_cycles
    assert lds.conflicts("ds_read_b32", 0, active=1).extra_cycles == 0


def test_types_are_those_of_the_kernel_language():
    assert (type(u32(0)), type(f32(0)), type(f16(0))) == (U32, F32, F16)
