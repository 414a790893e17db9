"""A launch: checked, with its kernel arguments, dispatch packet and queue in the emulated memory.

The order: `place` the code object, make a `Geometry`, `prepare` the launch, then ask emu.wave_start for the waves of
each workgroup.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from emu.code_object import CodeObject
from emu.errors import LaunchError
from emu.geometry import GRID_DIMENSIONS, Geometry
from emu.kernarg import build_kernarg
from emu.kernel_descriptor import KernelDescriptor
from emu.kernel_metadata import Kernel
from emu.memory import PRIVATE_APERTURE, SHARED_APERTURE, Memory
from gfx950.evidence import Evidence, rule
from gfx950.lanes import LANES
from gfx950.lds import LDS_BYTES, allocation

LARGEST_WORKGROUP = 1024
USER_SGPRS = 16
SIMDS = 4  # a compute unit's, over which the waves of one workgroup are spread
SIMD_VGPRS, SIMD_WAVES = 512, 8
COMPUTE_UNITS = 256
DYNAMIC_STACK_BYTES = 16 * 1024  # of scratch a lane, on top of what the descriptor asks for
LARGEST_SCRATCH = 1024 * ((1 << 13) - 1) // LANES  # bytes of a lane
KERNARG_SLOT = 64

rule(
    "launch.kernarg_slack",
    Evidence.chosen,
    "LLVM widens scalar loads of kernel arguments past the last one; runtimes allocate the block in larger slots",
    "The kernarg block is padded with zeros to a multiple of 64 bytes.",
)
rule(
    "launch.residency",
    Evidence.chosen,
    "AMD's MI355X data sheet: 256 compute units; CDNA4 ISA 2.2.1, 3.6: 160 KiB LDS a compute unit, 512 VGPRs a SIMD;"
    " LLVM: 8 waves a SIMD; the order has no source",
    "As many workgroups run at once as the registers, wave slots (8 a SIMD) and LDS of 256 compute units hold; the"
    " others start in ascending order as residents end.",
)
rule(
    "launch.scratch_limit",
    Evidence.vendor,
    "LLVM, GCNSubtarget::getMaxWaveScratchSize: COMPUTE_TMPRING_SIZE.WAVESIZE has 13 bits of 1 KiB",
    "A lane has at most 131056 bytes of scratch; a kernel that asks for more is refused.",
)


@dataclass(frozen=True)
class Launch:
    """One checked launch with everything the registers point at in place.

    kernarg: the block at kernarg_address. packet_address: the 64-byte AQL packet. queue_address: the queue object.
    dynamic_lds: bytes of LDS beyond the kernel's own. private_segment: bytes of scratch for each lane.
    preload_prologue: start at the kernel's entry and let its prologue load the preloaded arguments once more.
    """

    kernel: Kernel
    geometry: Geometry
    kernarg: bytes
    kernarg_address: int
    packet_address: int
    queue_address: int
    dispatch_id: int = 0
    dynamic_lds: int = 0
    private_segment: int = 0
    preload_prologue: bool = False

    @property
    def lds_bytes(self) -> int:
        """Bytes of LDS that each workgroup asks for."""
        return self.kernel.descriptor.group_segment + self.dynamic_lds

    @property
    def lds_granted(self) -> int:
        """Bytes of LDS that each workgroup gets. [rule lds.geometry]"""
        return allocation(self.lds_bytes)

    def release(self, memory: Memory) -> None:
        """Unmaps the kernarg block, the packet and the queue that `prepare` placed."""
        for address in (self.kernarg_address, self.packet_address, self.queue_address):
            memory.unmap(address)


def place(code_object: CodeObject, memory: Memory, name: str = "code object") -> CodeObject:
    """The code object laid out at an address of its own in `memory`, where its image is mapped."""
    base = memory.allocate(len(code_object.image), name)
    placed = code_object.at(base)
    memory.view(base, len(placed.image))[:] = placed.image
    return placed


def prepare(
    kernel: Kernel,
    geometry: Geometry,
    arguments: Sequence[object] | Mapping[str, object] | bytes,
    memory: Memory,
    *,
    dynamic_lds: int = 0,
    dispatch_id: int = 0,
    hidden: Mapping[str, int] | None = None,
    preload_prologue: bool = False,
) -> Launch:
    """Checks a launch and places its kernarg block, AQL packet and queue in `memory` (read-only to the kernel).

    arguments: as `build_kernarg` takes them, or the finished kernarg block as bytes.
    Raises LaunchError for a geometry, LDS size, register need or argument that the chip or the kernel cannot have.
    """
    _check_launch(kernel, geometry, dynamic_lds)
    private = _private_segment(kernel)
    with _mapped_together(memory) as mapped:
        queue_address = mapped(_queue(), f"queue of {kernel.name}")
        if isinstance(arguments, bytes):
            kernarg = _finished_block(kernel, arguments)
        else:
            kernarg = build_kernarg(
                kernel, arguments, geometry, dynamic_lds=dynamic_lds, queue_address=queue_address, hidden=hidden
            )
        padded = kernarg.ljust(-(-len(kernarg) // KERNARG_SLOT) * KERNARG_SLOT, b"\0")
        kernarg_address = mapped(padded, f"kernarg of {kernel.name}")
        packet = _packet(kernel, geometry, kernarg_address, private, kernel.descriptor.group_segment + dynamic_lds)
        packet_address = mapped(packet, f"dispatch packet of {kernel.name}")
    return Launch(
        kernel, geometry, kernarg, kernarg_address, packet_address, queue_address, dispatch_id, dynamic_lds, private,
        preload_prologue,
    )  # fmt: skip


@contextmanager
def _mapped_together(memory: Memory) -> Iterator[Callable[[bytes, str], int]]:
    """Gives what maps bytes read-only and returns their address; after an error none of them stays mapped."""
    addresses: list[int] = []

    def mapped(data: bytes, name: str) -> int:
        addresses.append(memory.map(np.array(bytearray(data), np.uint8), writable=False, name=name))
        return addresses[-1]

    try:
        yield mapped
    except BaseException:
        for address in addresses:
            memory.unmap(address)
        raise


def _finished_block(kernel: Kernel, block: bytes) -> bytes:
    if len(block) < kernel.kernarg_size:
        raise LaunchError(
            f"the kernarg block has {len(block)} bytes",
            expected=f"at least {kernel.kernarg_size} bytes",
            kernel=kernel.name,
        )
    return block


def _queue() -> bytes:
    """An amd_queue_t of which only the aperture bases mean something: LDS at byte 0x40, scratch at 0x44."""
    queue = bytearray(256)
    struct.pack_into("<II", queue, 0x40, SHARED_APERTURE >> 32, PRIVATE_APERTURE >> 32)
    return bytes(queue)


def _packet(kernel: Kernel, geometry: Geometry, kernarg_address: int, private: int, group: int) -> bytes:
    """An HSA kernel dispatch packet: type 2, system-scope acquire and release."""
    header = 2 | 2 << 9 | 2 << 11
    sizes = struct.pack("<HHHHHH", header, GRID_DIMENSIONS, *geometry.block, 0)
    segments = struct.pack("<IIIII", *geometry.grid, private, group)
    return sizes + segments + struct.pack("<QQQQ", kernel.descriptor_address, kernarg_address, 0, 0)


def _private_segment(kernel: Kernel) -> int:
    """Bytes of scratch a lane. [rule launch.scratch_limit]"""
    private = kernel.descriptor.private_segment + DYNAMIC_STACK_BYTES * kernel.descriptor.uses_dynamic_stack
    if private > LARGEST_SCRATCH:
        raise LaunchError(
            f"the kernel asks for {private} bytes of scratch a lane",
            expected=f"at most {LARGEST_SCRATCH}",
            advice="put large arrays of a work-item into global memory",
            kernel=kernel.name,
        )
    return private


def _check_launch(kernel: Kernel, geometry: Geometry, dynamic_lds: int) -> None:
    items, limit = math.prod(geometry.block), min(kernel.max_flat_workgroup_size, LARGEST_WORKGROUP)
    if items > limit:
        raise LaunchError(
            f"a workgroup of {geometry.block} has {items} work-items",
            expected=f"at most {limit}: the kernel's max_flat_workgroup_size is {kernel.max_flat_workgroup_size}",
            advice="launch smaller workgroups, or compile with a larger amdgpu_flat_work_group_size",
            kernel=kernel.name,
        )
    if kernel.reqd_workgroup_size not in (None, geometry.block):
        raise LaunchError(
            f"the workgroup is {geometry.block}",
            expected=f"{kernel.reqd_workgroup_size}: the kernel is compiled for that size only",
            kernel=kernel.name,
        )
    if kernel.uniform_workgroup_size and any(geometry.remainder):
        raise LaunchError(
            f"the grid {geometry.grid} is no multiple of the workgroup {geometry.block}",
            expected="full workgroups only: the kernel is compiled with uniform_work_group_size",
            kernel=kernel.name,
        )
    group = kernel.descriptor.group_segment
    if not isinstance(dynamic_lds, int | np.integer) or dynamic_lds < 0 or group + dynamic_lds > LDS_BYTES:
        raise LaunchError(
            f"the workgroup asks for {group} + {dynamic_lds!r} bytes of LDS",
            expected=f"a whole number, 0 to {LDS_BYTES} bytes in all",
            kernel=kernel.name,
        )
    _check_registers(kernel, items)


def _check_registers(kernel: Kernel, items: int) -> None:
    descriptor = kernel.descriptor
    waves = -(-items // LANES)
    room = SIMDS * (SIMD_VGPRS // descriptor.vgprs)
    if waves > room:
        raise LaunchError(
            f"a workgroup of {waves} waves with {descriptor.vgprs} VGPRs each does not fit a compute unit",
            expected=f"at most {room} waves: each of {SIMDS} SIMDs has {SIMD_VGPRS} VGPRs",
            advice="launch smaller workgroups or compile for fewer registers",
            kernel=kernel.name,
        )
    if descriptor.private_segment_buffer or descriptor.flat_scratch_init:
        raise LaunchError(
            "the kernel asks for a private segment buffer or a flat scratch base in user SGPRs",
            expected="gfx950 has the scratch base in FLAT_SCRATCH itself and offers neither",
            kernel=kernel.name,
        )
    needed = sum(size for enabled, size in user_sgprs(descriptor) if enabled) + descriptor.kernarg_preload_length
    if needed > descriptor.user_sgpr_count or descriptor.user_sgpr_count > USER_SGPRS:
        raise LaunchError(
            f"the kernel enables {needed} user SGPRs and its user_sgpr_count is {descriptor.user_sgpr_count}",
            expected=f"enabled <= user_sgpr_count <= {USER_SGPRS}",
            kernel=kernel.name,
        )


def user_sgprs(descriptor: KernelDescriptor) -> list[tuple[bool, int]]:
    """(enabled, SGPRs) of the user SGPRs before the preloaded arguments, in register order."""
    return [
        (descriptor.private_segment_buffer, 4),
        (descriptor.dispatch_ptr, 2),
        (descriptor.queue_ptr, 2),
        (descriptor.kernarg_segment_ptr, 2),
        (descriptor.dispatch_id, 2),
        (descriptor.flat_scratch_init, 2),
        (descriptor.private_segment_size, 1),
    ]


def residents(launch: Launch) -> int:
    """How many of the launch's workgroups run at once. [rule launch.residency]"""
    waves_each = launch.geometry.waves_of((0, 0, 0))
    wave_slots = SIMDS * min(SIMD_WAVES, SIMD_VGPRS // launch.kernel.descriptor.vgprs)
    by_lds = LDS_BYTES // launch.lds_granted if launch.lds_granted else wave_slots
    return COMPUTE_UNITS * max(1, min(wave_slots // waves_each, by_lds))
