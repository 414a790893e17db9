"""Numbers for arguments of a stated type, against numpy, ml_dtypes and exact fractions."""

import math
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.argument_numbers import FLOAT_TYPES, INTEGER_TYPES, Refusal, is_number, number_bytes, same_kind

SCALARS = [np.int8, np.uint16, np.int32, np.uint64, np.bool_, np.float16, np.float32, np.float64, np.longdouble]
SCALARS += [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn]
SCALARS += [ml_dtypes.int4, ml_dtypes.uint2]


@pytest.mark.parametrize("kind", SCALARS, ids=lambda k: np.dtype(k).name)
@pytest.mark.parametrize("name", ["half", "float", "double"])
def test_any_number_becomes_the_float_of_its_value(kind, name):
    expected = np.dtype(f"f{FLOAT_TYPES[name]}").type(1).tobytes()
    assert number_bytes(name, FLOAT_TYPES[name], kind(1)) == expected
    assert number_bytes(name, FLOAT_TYPES[name], np.array(1, kind)) == expected


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.bool_, ml_dtypes.int4], ids=lambda k: np.dtype(k).name)
def test_whole_numbers_of_any_size_are_integers(kind):
    assert number_bytes("int", 4, kind(1)) == number_bytes("long", 8, np.array(1, kind))[:4] == b"\1\0\0\0"


@settings(max_examples=200, deadline=None)
@given(number=st.integers(-(1 << 53), 1 << 53))
def test_integers_round_to_the_nearest_float(number):
    (found,) = struct.unpack("<f", number_bytes("float", 4, number))
    single = np.float32(found)
    beside = [Fraction(float(np.nextafter(single, np.float32(way)))) for way in (-np.inf, np.inf)]
    distance = abs(Fraction(found) - number)
    assert all(distance <= abs(other - number) for other in beside)
    if distance and distance in [abs(other - number) for other in beside]:
        assert single.view(np.uint32) % 2 == 0


@pytest.mark.parametrize("bits", [0x7F800001, 0xFFC12345, 0x80000000, 1])
def test_a_float_of_the_very_type_keeps_its_bits(bits):
    value = np.uint32(bits).view(np.float32)
    assert number_bytes("float", 4, value) == number_bytes("float", 4, np.array(value)) == struct.pack("<I", bits)
    signalling = np.uint64(0x7FF0000000000001).view(np.float64)
    assert number_bytes("double", 8, signalling) == struct.pack("<Q", 0x7FF0000000000001)
    assert number_bytes("float", 4, signalling) == struct.pack("<I", 0x7FC00000)


@pytest.mark.parametrize("value", [1.5, math.nan, math.inf, np.float16(2), np.float64(2), ml_dtypes.bfloat16(2)])
def test_no_float_is_an_integer(value):
    refused = number_bytes("uint", 4, value)
    assert refused.expected == "a whole number, for the argument is of type uint"
    assert refused.advice == ("write 2" if value == 2 else "write int(...) or round(...), whichever is meant")


@pytest.mark.parametrize("value", ["1", None, 1j, np.complex64(1), np.str_("a"), b"1234", np.datetime64(1, "s"), [1]])
@pytest.mark.parametrize("name", ["float", "int"])
def test_what_is_no_number_is_refused(name, value):
    assert number_bytes(name, 4, value) == Refusal(f"a number of type {name}")


def test_the_limits():
    for size, name in ((1, "uchar"), (2, "short"), (4, "int"), (8, "ulong")):
        low, high = -(1 << 8 * size - 1), (1 << 8 * size) - 1
        assert number_bytes(name, size, high) == b"\xff" * size
        assert number_bytes(name, size, low) == bytes(size - 1) + b"\x80"
        for beyond in (low - 1, high + 1):
            refused = number_bytes(name, size, beyond)
            assert f"an integer of {8 * size} bits, signed or unsigned: {low} to {high}" in refused.expected
    for name, size in (("half", 2), ("float", 4), ("double", 8)):
        largest = int(np.finfo(f"f{size}").max)
        assert number_bytes(name, size, largest) == np.array(largest, f"f{size}").tobytes()
        assert "pass math.inf" in number_bytes(name, size, 2 * largest).expected
        assert number_bytes(name, size, -math.inf) == np.array(-np.inf, f"f{size}").tobytes()


def test_which_types_are_numbers():
    assert is_number("float", 4)
    assert not is_number("float", 8)  # somebody else's float
    assert is_number("ulong", 8)
    assert not any(is_number(name, 4) for name in ("", "my_t", "float4", "void*"))
    assert same_kind("half", np.dtype(np.float16))
    assert not same_kind("half", np.dtype(ml_dtypes.bfloat16))
    for name in INTEGER_TYPES:
        assert same_kind(name, np.dtype(np.uint8))
        assert not same_kind(name, np.dtype(np.float32))
    assert same_kind("", np.dtype(np.float32))
    assert same_kind("my_t", np.dtype(np.int32))
