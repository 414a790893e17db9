"""Launches: what they put into memory, and which are impossible."""

import struct

import numpy as np
import pytest
from described_kernels import ONE, kernel
from llvm_tools import compiled

from emu.code_object import load
from emu.errors import LaunchError, MemoryFault
from emu.geometry import Geometry
from emu.kernel_metadata import Argument
from emu.launch import place, prepare, residents
from emu.memory import Memory
from emu.wave_start import waves


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
