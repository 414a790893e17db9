"""The state a wave starts in, against hand-written layouts and small Python models of the dispatcher."""

import dataclasses
import itertools
import math
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_tools import assembled, compiled, kernel_source

from emu.code_object import Argument, Kernel, decode_descriptor, load
from emu.errors import LaunchError, MemoryFault
from emu.launch_state import Geometry, build_kernarg, mode_register, place, prepare, residents, waves
from emu.memory import Memory


def assembled_kernel(directives: str) -> Kernel:
    return load(assembled(kernel_source(directives)), 0x10000).kernel()


BARE = decode_descriptor(bytes(64))


def kernel(*arguments: Argument, size: int = 0, **changes) -> Kernel:
    descriptor = dataclasses.replace(BARE, **{k: v for k, v in changes.items() if hasattr(BARE, k)})
    rest = {k: v for k, v in changes.items() if not hasattr(BARE, k)}
    return Kernel("k", 0x1000, 0x40, descriptor, 5, size, tuple(arguments), **rest)


ONE = Geometry.of_blocks(1, 64)


# --- geometry ----


def test_grids_are_counted_in_blocks_or_in_items():
    assert Geometry.of_blocks((3, 2), 64) == Geometry((192, 2, 1), (64, 1, 1))
    assert Geometry.of_items([100, 7, 2], (64, 2)) == Geometry((100, 7, 2), (64, 2, 1))
    partial = Geometry.of_items((100, 7, 2), (64, 2))
    assert partial.workgroups == (2, 4, 2)
    assert partial.full_workgroups == (1, 3, 2)
    assert partial.remainder == (36, 1, 0)
    assert partial.size_of((1, 3, 1)) == (36, 1, 1)
    assert list(partial.workgroup_ids())[:4] == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
    assert len(list(partial.workgroup_ids())) == 16


@pytest.mark.parametrize("bad", [0, -1, (), (1, 2, 3, 4), 1.5, (2, 0), 1 << 32, "12"])
def test_impossible_dimensions_are_named(bad):
    with pytest.raises(
        LaunchError, match=r"the block is .*\n  expected: one to three whole numbers from 1 to 4294967295"
    ):
        Geometry.of_blocks(1, bad)


def test_workgroups_outside_the_grid_are_refused():
    with pytest.raises(LaunchError, match=r"there is no workgroup \(1, 0, 0\)"):
        ONE.size_of((1, 0, 0))


@settings(max_examples=60, deadline=None)
@given(
    block=st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(1, 5)),
    extra=st.tuples(st.integers(0, 25), st.integers(0, 12), st.integers(0, 6)),
    mode=st.integers(0, 2),
)
def test_every_work_item_of_the_grid_is_exactly_one_lane(block, extra, mode):
    """The dispatcher as a loop over work-items: which global ids run, and in which order within a workgroup."""
    geometry = Geometry.of_items([1 + e for e in extra], block)
    launch = prepare(kernel(workitem_id=mode), geometry, [], Memory())
    seen = []
    for workgroup in geometry.workgroup_ids():
        lanes = []
        for state in waves(launch, workgroup):
            assert state.exec & (state.exec + 1) == 0  # active lanes are the low ones
            lanes += [int(v) for v in state.vgpr0[: state.exec.bit_length()]]
            assert not state.vgpr0[state.exec.bit_length() :].any()
        ranges = [range(min(b, g - w * b)) for w, b, g in zip(workgroup, block, geometry.grid, strict=True)]
        expected = [(x, y, z) for z, y, x in itertools.product(*reversed(ranges))]
        assert lanes == [x | (y << 10 if mode > 0 else 0) | (z << 20 if mode > 1 else 0) for x, y, z in expected]
        seen += [tuple(w * b + i for w, b, i in zip(workgroup, block, item, strict=True)) for item in expected]
    assert sorted(seen) == sorted(itertools.product(*map(range, geometry.grid)))


def test_only_the_last_wave_is_partial():
    launch = prepare(kernel(), Geometry.of_items(300, 256), [], Memory())
    assert [w.exec for w in waves(launch, (0, 0, 0))] == [(1 << 64) - 1] * 4
    (last,) = waves(launch, (1, 0, 0))
    assert last.exec == (1 << 44) - 1
    assert last.sgprs[126:128].tolist() == [0xFFFFFFFF, 0xFFF]


# --- registers ----

PIECES = [
    ("user_sgpr_dispatch_ptr", 2),
    ("user_sgpr_queue_ptr", 2),
    ("user_sgpr_kernarg_segment_ptr", 2),
    ("user_sgpr_dispatch_id", 2),
    ("user_sgpr_private_segment_size", 1),
    ("system_sgpr_workgroup_id_x", 1),
    ("system_sgpr_workgroup_id_y", 1),
    ("system_sgpr_workgroup_id_z", 1),
    ("system_sgpr_workgroup_info", 1),
]


@pytest.mark.parametrize("chosen", [0, 1, 2, 4, 8, 16, 31, 32, 64, 128, 256, 480, 511, 0b101010101, 0b010101010])
def test_enabled_registers_are_packed_in_the_abis_order(chosen):
    enabled = [bool(chosen >> i & 1) for i in range(len(PIECES))]
    lines = [f".amdhsa_{name} {int(on)}" for (name, _), on in zip(PIECES, enabled, strict=True)]
    found = assembled_kernel("\n".join([*lines, ".amdhsa_private_segment_fixed_size 84", ".amdhsa_kernarg_size 8"]))
    memory = Memory()
    geometry = Geometry.of_blocks((5, 6, 7), 192)
    launch = prepare(found, geometry, [bytes(8)], memory, dispatch_id=0x1122334455667788)
    pointers = [launch.packet_address, launch.queue_address, launch.kernarg_address, launch.dispatch_id]
    for state in waves(launch, (3, 4, 5), flat_scratch=[0x5_0000_0040, 0x5_0000_0080]):
        values = [[p & 0xFFFFFFFF, p >> 32] for p in pointers]
        values += [[84], [3], [4], [5], [(state.wave == 0) << 31 | 3]]
        expected = list(itertools.chain.from_iterable(v for v, on in zip(values, enabled, strict=True) if on))
        assert state.sgprs[: len(expected)].tolist() == expected
        assert state.initialised == len(expected)
        assert not state.sgprs[len(expected) : 102].any()
        assert state.sgprs[102:104].tolist() == [[0x40, 5], [0x80, 5], [0, 0]][state.wave]
        assert state.ttmps.tolist() == [0] * 6 + [0, launch.packet_address >> 32, 3, 4, 5, state.wave] + [0] * 4
        assert state.pc == found.entry


def test_a_user_sgpr_count_beyond_the_enabled_ones_moves_the_system_registers():
    enabled = ".amdhsa_user_sgpr_count 7\n.amdhsa_user_sgpr_kernarg_segment_ptr 1\n.amdhsa_kernarg_size 8"
    found = assembled_kernel(enabled)
    (state,) = waves(prepare(found, Geometry.of_blocks(9, 64), [bytes(8)], Memory()), (8, 0, 0))
    assert state.sgprs[7] == 8
    assert state.initialised == 8


def test_kernel_arguments_are_preloaded_and_the_prologue_is_skipped():
    source = "__attribute__((amdgpu_kernel)) void k(__attribute__((address_space(1))) float *a, int n) { a[0] = n; }"
    found = load(compiled(source, "-mllvm", "-amdgpu-kernarg-preload-count=2")).kernel()
    assert found.descriptor.kernarg_preload_length == 3
    launch = prepare(found, ONE, [0x1234_5678_9ABC, -2], Memory())
    (state,) = waves(launch, (0, 0, 0))
    assert state.sgprs[:6].tolist() == [0, launch.kernarg_address >> 32, 0x56789ABC, 0x1234, 0xFFFFFFFE, 0]
    assert state.pc == found.entry + 256
    again = prepare(found, ONE, [0, 0], Memory(), preload_prologue=True)
    assert waves(again, (0, 0, 0))[0].pc == found.entry
    preload = "user_sgpr_kernarg_preload"
    shifted = assembled_kernel(f".amdhsa_{preload}_offset 1\n.amdhsa_{preload}_length 3\n.amdhsa_kernarg_size 16")
    block = struct.pack("<IIII", 11, 22, 33, 44)
    (state,) = waves(prepare(shifted, ONE, [block], Memory()), (0, 0, 0))
    assert state.sgprs[:5].tolist() == [22, 33, 44, 0, 0]
    beyond = kernel(user_sgpr_count=3, kernarg_preload_length=3, size=8)
    (state,) = waves(prepare(beyond, ONE, block[:8], Memory()), (0, 0, 0))
    assert state.sgprs[:3].tolist() == [11, 22, 0]


def test_the_mode_register_takes_each_field_to_its_place():
    fields = [
        ("float_round_mode_32 3", 0b11),
        ("float_round_mode_16_64 3", 0b11 << 2),
        ("float_denorm_mode_32 3", 0b11 << 4),
        ("float_denorm_mode_16_64 3", 0b11 << 6),
        ("dx10_clamp 1", 1 << 8),
        ("ieee_mode 1", 1 << 9),
        ("fp16_overflow 1", 1 << 23),
        ("exception_fp_ieee_invalid_op 1", 1 << 12),
        ("exception_int_div_zero 1", 1 << 18),
    ]
    off = "\n".join(f".amdhsa_{name[:-1]}0" for name, _ in fields)
    assert mode_register(assembled_kernel(off).descriptor) == 0
    for name, bits in fields:
        rest = "\n".join(f".amdhsa_{other[:-1]}0" for other, _ in fields if other != name)
        assert mode_register(assembled_kernel(f"{rest}\n.amdhsa_{name}").descriptor) == bits
    assert mode_register(assembled_kernel("").descriptor) == 0x3C0


# --- what the pointers point at ----


def test_packet_queue_and_kernarg_are_in_memory_and_read_only():
    memory = Memory()
    found = kernel(Argument(0, 4, "by_value"), size=4, group_segment=100, private_segment=24)
    launch = prepare(found, Geometry.of_items((100, 20, 3), (64, 2)), [7], memory, dynamic_lds=28)
    fields = struct.unpack("<HHHHHHIIIIIQQQQ", memory.view(launch.packet_address, 64).tobytes())
    assert fields[0] & 0xFF == 2
    assert fields[1:11] == (3, 64, 2, 1, 0, 100, 20, 3, 24, 128)
    assert fields[11:] == (0x40, launch.kernarg_address, 0, 0)
    assert memory.view(launch.queue_address + 0x40, 8).tobytes() == struct.pack("<II", 0x10000, 0x20000)
    assert memory.view(launch.kernarg_address, 64).tobytes() == struct.pack("<I", 7).ljust(64, b"\0")
    assert launch.lds_bytes == 128
    lanes = np.full(64, launch.kernarg_address, np.uint64)
    with pytest.raises(MemoryFault, match=r'"kernarg of k".*read-only'):
        memory.store(lanes, np.ones(64, bool), np.zeros((1, 64), np.uint32), 4)
    launch.release(memory)
    assert memory.buffers == ()


def test_a_code_object_is_placed_where_its_addresses_say():
    source = """
    __attribute__((address_space(1))) int counter = 7;
    __attribute__((address_space(1))) int *__attribute__((address_space(1))) pointer = &counter;
    __attribute__((amdgpu_kernel)) void k(__attribute__((address_space(1))) int *a) { a[0] = *pointer; }
    """
    memory = Memory()
    memory.allocate(100)
    placed = place(load(compiled(source)), memory)
    assert placed.base == 2 << 32
    assert memory.view(placed.base, len(placed.image)).tobytes() == placed.image.tobytes()
    (pointer,) = struct.unpack("<Q", memory.view(placed.symbols["pointer"].address, 8).tobytes())
    assert memory.view(pointer, 4).tolist() == [7, 0, 0, 0]
    assert memory.view(placed.kernel().entry, 4).tobytes() == placed.code[0].data[:4]


def test_a_failed_launch_leaves_nothing_in_memory():
    memory = Memory()
    with pytest.raises(LaunchError):
        prepare(kernel(Argument(0, 4, "by_value"), size=4), ONE, [], memory)
    assert memory.buffers == ()


def test_kernels_without_arguments_and_finished_blocks_launch():
    assert prepare(kernel(), ONE, [], Memory()).kernarg == b""
    assert prepare(kernel(size=8), ONE, b"12345678", Memory()).kernarg == b"12345678"
    with pytest.raises(LaunchError, match=r"the kernarg block has 7 bytes\n.*\n  expected: at least 8 bytes"):
        prepare(kernel(size=8), ONE, b"1234567", Memory())
    assert prepare(kernel(uses_dynamic_stack=True, private_segment=32), ONE, [], Memory()).private_segment == 16416


# --- kernel arguments ----


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
    with pytest.raises(LaunchError, match="an integer of 64 bits"):
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


# --- impossible launches ----


@pytest.mark.parametrize(
    ("changes", "geometry", "lds", "message"),
    [
        ({}, Geometry.of_blocks(1, 1025), 0, r"\(1025, 1, 1\) has 1025 work-items(.|\n)*at most 1024"),
        ({"max_flat_workgroup_size": 256}, Geometry.of_blocks(1, (16, 17)), 0, r"272 work-items(.|\n)*at most 256"),
        ({"reqd_workgroup_size": (64, 2, 1)}, ONE, 0, r"the workgroup is \(64, 1, 1\)(.|\n)*expected: \(64, 2, 1\)"),
        ({"uniform_workgroup_size": True}, Geometry.of_items(65, 64), 0, r"no multiple of the workgroup"),
        ({"group_segment": 100000}, ONE, 63841, r"100000 \+ 63841 bytes of LDS(.|\n)*0 to 163840 bytes"),
        ({}, ONE, -1, r"0 \+ -1 bytes of LDS"),
        ({"vgprs": 256}, Geometry.of_blocks(1, 576), 0, r"9 waves with 256 VGPRs(.|\n)*at most 8 waves"),
        ({"vgprs": 136}, Geometry.of_blocks(1, 832), 0, r"13 waves with 136 VGPRs(.|\n)*at most 12 waves"),
        ({"vgprs": 512}, Geometry.of_blocks(1, 320), 0, r"5 waves with 512 VGPRs(.|\n)*at most 4 waves"),
        ({"private_segment_buffer": True}, ONE, 0, "asks for a private segment buffer"),
        ({"flat_scratch_init": True}, ONE, 0, "flat scratch base"),
        ({"kernarg_segment_ptr": True}, ONE, 0, "enables 2 user SGPRs and its user_sgpr_count is 0"),
        ({"user_sgpr_count": 17}, ONE, 0, "enables 0 user SGPRs and its user_sgpr_count is 17"),
        ({"private_segment": 131057}, ONE, 0, r"asks for 131057 bytes of scratch a lane(.|\n)*at most 131056"),
        ({"private_segment": (1 << 32) - 1}, ONE, 0, "asks for 4294967295 bytes of scratch"),
        ({"private_segment": 131056, "uses_dynamic_stack": True}, ONE, 0, "asks for 147440 bytes of scratch"),
    ],
)
def test_impossible_launches_say_why(changes, geometry, lds, message):
    with pytest.raises(LaunchError, match=message) as caught:
        prepare(kernel(**changes), geometry, [], Memory(), dynamic_lds=lds)
    assert caught.value.kernel == "k"


@pytest.mark.parametrize(
    ("arguments", "size"),
    [((), (1 << 20) + 1), ((), 1 << 63), ((Argument(1 << 62, 8, "hidden_heap_v1"),), 8)],
)
def test_a_block_of_arguments_that_is_too_large(arguments, size):
    with pytest.raises(LaunchError, match=r"gives the kernel \d+ bytes of arguments(.|\n)*at most 1048576") as caught:
        prepare(kernel(*arguments, size=size), ONE, [], Memory())
    assert caught.value.kernel == "k"


def test_launches_at_the_limits_are_fine():
    assert prepare(kernel(private_segment=131056), ONE, [], Memory()).private_segment == 131056
    assert len(prepare(kernel(size=1 << 20), ONE, [], Memory()).kernarg) == 1 << 20
    assert prepare(kernel(group_segment=100000), ONE, [], Memory(), dynamic_lds=63840).lds_bytes == 163840
    assert len(waves(prepare(kernel(vgprs=128), Geometry.of_blocks(1, 1024), [], Memory()), (0, 0, 0))) == 16
    assert len(waves(prepare(kernel(vgprs=512), Geometry.of_blocks(1, 256), [], Memory()), (0, 0, 0))) == 4


@pytest.mark.parametrize(("asked", "count"), [(0, 32), (1, 32), (8200, 18), (8960, 18), (8961, 16), (163840, 1)])
def test_residents_share_lds_in_blocks_of_1280(asked, count):
    """CDNA4 ISA 3.6.5: 8200 bytes take 7 of the 128 blocks of a compute unit."""
    launch = prepare(kernel(group_segment=asked, vgprs=8), ONE, [], Memory())
    assert residents(launch) == 256 * count
