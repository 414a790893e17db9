"""The registers a wave starts with, against hand-written layouts and small Python models of the dispatcher."""

import itertools
import struct

import pytest
from described_kernels import ONE, assembled_kernel, kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_tools import compiled

from emu.code_object import load
from emu.geometry import Geometry
from emu.launch import prepare
from emu.memory import Memory
from emu.wave_start import mode_register, waves

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
