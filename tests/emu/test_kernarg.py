"""Kernel arguments against hand-written blocks, numpy and the code that LLVM makes."""

import math
import struct

import ml_dtypes
import numpy as np
import pytest
from described_kernels import ONE, kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_tools import compiled

from emu.code_object import load
from emu.errors import LaunchError
from emu.geometry import Geometry
from emu.kernarg import build_kernarg
from emu.kernel_metadata import Argument
from emu.launch import prepare
from emu.memory import Memory


def value(size: int, given_value: object, type_name: str = "") -> bytes:
    return build_kernarg(kernel(Argument(0, size, "by_value", "x", "", type_name), size=size), [given_value], ONE)


@pytest.mark.parametrize(
    ("size", "given_value", "expected"),
    [
        (4, 5, "05000000"),
        (4, -1, "ffffffff"),
        (4, 0xFFFFFFFF, "ffffffff"),
        (8, -2, "feffffffffffffff"),
        (1, True, "01"),
        (2, np.int64(-3), "fdff"),
        (4, 1.5, "0000c03f"),
        (2, 1.5, "003e"),
        (8, 1.5, "000000000000f83f"),
        (4, -0.0, "00000080"),
        (4, math.inf, "0000807f"),
        (2, -math.inf, "00fc"),
        (4, np.float32(-0.0), "00000080"),
        (2, ml_dtypes.bfloat16(1.5), "c03f"),
        (4, np.array([1, 2, 3, 4], np.uint8), "01020304"),
        (3, b"abc", "616263"),
        (4, struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000))[0], "0000c07f"),
        (4, struct.unpack("<d", struct.pack("<Q", 0xFFFC000020000000))[0], "0100e0ff"),
        (2, struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0], "00fe"),
        (8, struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0], "230100000000f8ff"),
        (4, 0.1, "cdcccc3d"),
    ],
)
def test_values_become_little_endian_bytes(size, given_value, expected):
    assert value(size, given_value).hex() == expected


@settings(max_examples=300, deadline=None)
@given(number=st.floats(width=64))
def test_floats_round_as_numpy_rounds_them(number):
    for size, dtype in ((4, np.float32), (2, np.float16)):
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = np.float64(number).astype(dtype)
        if math.isfinite(number) and not np.isfinite(rounded):
            with pytest.raises(LaunchError, match=r"pass math\.inf to mean infinity"):
                value(size, number)
        elif not math.isnan(number):
            assert value(size, number) == rounded.tobytes()


def test_type_names_decide_where_the_metadata_has_them():
    assert value(4, 3, "float") == struct.pack("<f", 3.0)
    assert value(8, 3, "double") == struct.pack("<d", 3.0)
    assert value(4, 3, "int") == struct.pack("<i", 3)
    with pytest.raises(LaunchError, match=r'argument 0 "x" \(int, 4 bytes at offset 0\) got float 3.0'):
        value(4, 3.0, "int")
    with pytest.raises(LaunchError, match="a float that 32 bits can hold"):
        value(4, 10**100, "float")
    with pytest.raises(LaunchError, match=r"a float that 64 bits can hold; pass math\.inf"):
        value(8, 10**1000, "double")


@pytest.mark.parametrize(
    ("size", "given_value", "message"),
    [
        (4, 1 << 32, "got int 4294967296(.|\n)*an integer of 32 bits, signed or unsigned"),
        (4, -(1 << 31) - 1, "an integer of 32 bits"),
        (1, 0.5, "1 bytes; floats have 2, 4 or 8"),
        (4, "7", "got str '7'(.|\n)*an int, a float, a numpy scalar, or exactly 4 bytes"),
        (4, None, "got NoneType None"),
        (4, b"12345", "exactly 4 bytes, not 5"),
        (8, np.float32(1), "exactly 8 bytes, not 4"),
        (4, 1e39, "a float that 32 bits can hold"),
        (0, 1, "an integer of 0 bits"),
    ],
)
def test_values_of_the_wrong_type_or_size_are_named(size, given_value, message):
    with pytest.raises(LaunchError, match=message):
        value(size, given_value)


def test_pointers_are_device_addresses():
    found = kernel(Argument(0, 8, "global_buffer", "out"), size=8)
    assert build_kernarg(found, [0x1_0000_0010], ONE) == struct.pack("<Q", 0x1_0000_0010)
    assert build_kernarg(found, {"out": np.uint64(0xFFFFFFFFFFFFFFFF)}, ONE) == b"\xff" * 8
    message = r'argument 0 "out" \(global_buffer, 8 bytes at offset 0\) got ndarray of float32 \(3,\)(.|\n)*Memory.map'
    with pytest.raises(LaunchError, match=message):
        build_kernarg(found, [np.zeros(3, np.float32)], ONE)
    for bad in (-1, 1.0, True, 1 << 64):
        with pytest.raises(LaunchError, match="a device address from 0 to 2"):
            build_kernarg(found, [bad], ONE)


def test_wrong_counts_and_names_are_listed():
    named = kernel(Argument(0, 8, "global_buffer", "a"), Argument(8, 4, "by_value", "n"), size=12)
    with pytest.raises(LaunchError, match=r"takes 2 arguments and got 3\n  where: kernel k\n  expected: \(a, n\)"):
        build_kernarg(named, [1, 2, 3], ONE)
    with pytest.raises(LaunchError, match=r"lack n and have unknown m"):
        build_kernarg(named, {"a": 1, "m": 2}, ONE)
    unnamed = kernel(Argument(0, 8, "global_buffer"), size=8)
    with pytest.raises(LaunchError, match=r"by name, but the code object does not name them(.|\n)*\(global_buffer:8\)"):
        build_kernarg(unnamed, {"a": 1}, ONE)
    bare = kernel(size=8, has_metadata=False)
    assert build_kernarg(bare, [b"12345678"], ONE) == b"12345678"
    for bad in ([], [1], [b"1"], [b"12345678", 1]):
        with pytest.raises(LaunchError, match=r"no metadata for this kernel(.|\n)*the whole kernarg block as bytes, 8"):
            build_kernarg(bare, bad, ONE)


def test_arguments_past_the_declared_size_grow_the_block():
    found = kernel(Argument(0, 8, "global_buffer"), Argument(12, 4, "by_value"), size=8)
    assert build_kernarg(found, [1, 2], ONE) == struct.pack("<QIi", 1, 0, 2)


ALL_HIDDEN = "".join(
    f"a[{i}] = *(const space4 {kind}*)(p + {offset});\n"
    for i, (kind, offset) in enumerate([("unsigned", 0), ("unsigned", 4), ("unsigned short", 12)])
)
HIDDEN_SOURCE = f"""
#define space4 __attribute__((address_space(4)))
__attribute__((amdgpu_kernel)) void k(__attribute__((address_space(1))) unsigned *a) {{
const space4 char *p = __builtin_amdgcn_implicitarg_ptr();
{ALL_HIDDEN}}}
"""


@pytest.mark.parametrize("version", [5, 6])
def test_hidden_arguments_of_v5_and_v6_lie_where_llvm_puts_them(version):
    found = load(compiled(HIDDEN_SOURCE, f"-mcode-object-version={version}")).kernel()
    kinds = {a.value_kind: a for a in found.arguments}
    geometry = Geometry.of_items((1000, 33, 5), (128, 4, 2))
    block = build_kernarg(found, [0xABC], geometry, dynamic_lds=4096, queue_address=0x7_0000_0000)
    assert len(block) == found.kernarg_size == 264
    assert struct.unpack_from("<QIIIHHHHHH", block) == (0xABC, 7, 8, 2, 128, 4, 2, 1000 - 7 * 128, 1, 1)
    assert struct.unpack_from("<QQQH", block, 8 + 40) == (0, 0, 0, 3)
    expected = dict.fromkeys(kinds, 0) | {"global_buffer": 0xABC, "hidden_grid_dims": 3}
    expected |= dict(zip(["hidden_block_count_" + a for a in "xyz"], (7, 8, 2), strict=True))
    expected |= dict(zip(["hidden_group_size_" + a for a in "xyz"], (128, 4, 2), strict=True))
    expected |= dict(zip(["hidden_remainder_" + a for a in "xyz"], (104, 1, 1), strict=True))
    found_values = {k: int.from_bytes(block[a.offset : a.offset + a.size], "little") for k, a in kinds.items()}
    assert found_values == expected


def test_hidden_arguments_of_v4_are_the_global_offsets():
    found = load(compiled(HIDDEN_SOURCE, "-mcode-object-version=4")).kernel()
    kinds = {a.value_kind for a in found.arguments if a.hidden}
    assert {"hidden_global_offset_x", "hidden_global_offset_y", "hidden_global_offset_z"} <= kinds
    block = build_kernarg(found, [0xABC], ONE)
    assert block == struct.pack("<Q", 0xABC).ljust(found.kernarg_size, b"\0")
    shifted = build_kernarg(found, [0xABC], ONE, hidden={"hidden_global_offset_y": 9})
    assert struct.unpack_from("<QQQ", shifted, 8) == (0, 9, 0)


def test_rarer_hidden_arguments_and_their_overrides():
    arguments = [
        Argument(0, 4, "hidden_dynamic_lds_size"),
        Argument(4, 4, "hidden_private_base"),
        Argument(8, 4, "hidden_shared_base"),
        Argument(16, 8, "hidden_queue_ptr"),
        Argument(24, 8, "hidden_hostcall_buffer"),
        Argument(32, 2, "hidden_grid_dims"),
    ]
    found = kernel(*arguments, size=34)
    memory = Memory()
    launch = prepare(found, ONE, [], memory, dynamic_lds=512, hidden={"hidden_grid_dims": 1})
    assert launch.kernarg == struct.pack("<IIIxxxxQQH", 512, 0x20000, 0x10000, launch.queue_address, 0, 1)
    with pytest.raises(LaunchError, match="hidden_grid_dims = 70000 does not fit its 2 bytes"):
        build_kernarg(found, [], ONE, hidden={"hidden_grid_dims": 70000})
    with pytest.raises(LaunchError, match=r"no hidden argument hidden_grid(.|\n)*some of: hidden_dynamic_lds_size, "):
        build_kernarg(found, [], ONE, hidden={"hidden_grid": 1})
