"""What a wave finds when it starts: geometry, kernel arguments, and the initial registers that the dispatcher sets.

The order: `place` the code object, make a `Geometry`, `prepare` the launch (which checks it and puts kernarg block,
dispatch packet and queue into the emulated memory), then ask for the `waves` of each workgroup.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emu.code_object import Argument, CodeObject, Kernel, KernelDescriptor
from emu.errors import LaunchError
from emu.memory import PRIVATE_APERTURE, SHARED_APERTURE, Memory
from emu.registers import HARDWARE_REGISTERS
from gfx950.evidence import Evidence, rule
from gfx950.isa.mode_registers import GPR_ALLOC, HW_ID, LDS_ALLOC, MODE, SH_MEM_BASES, STATUS
from gfx950.lanes import LANES
from gfx950.lds import LDS_BYTES, allocation

Dimensions = tuple[int, int, int]

LARGEST_WORKGROUP = 1024
LARGEST_GRID = (1 << 32) - 1
USER_SGPRS = 16
SIMDS = 4  # a compute unit's, over which the waves of one workgroup are spread
SIMD_VGPRS, SIMD_WAVES = 512, 8
COMPUTE_UNITS = 256
PRELOAD_PROLOGUE = 256
DYNAMIC_STACK_BYTES = 16 * 1024  # of scratch a lane, on top of what the descriptor asks for
LARGEST_SCRATCH = 1024 * ((1 << 13) - 1) // LANES  # bytes of a lane
LARGEST_KERNARG = 1 << 20  # bytes; compilers allow some kilobytes, so more than this is a damaged file
KERNARG_SLOT = 64
GRID_DIMENSIONS = 3

# Scalar operand codes that a launch initialises besides the numbered SGPRs.
FLAT_SCRATCH_LO, FLAT_SCRATCH_HI, EXEC_LO, EXEC_HI, SCALAR_CODES = 102, 103, 126, 127, 128

rule(
    "launch.registers",
    Evidence.spec,
    "CDNA4 ISA 3.13; order of the user SGPRs: LLVM AMDGPUUsage, 'Initial Kernel Execution State'",
    "User SGPRs, workgroup ids x, y, z and the workgroup info follow each other from s0, each only when enabled; "
    "VGPR0 packs the work-item ids x, y, z in ten bits each.",
)
rule(
    "launch.unrequested_ids",
    Evidence.chosen,
    "the manual is silent",
    "Work-item ids that rsrc2 does not ask for are 0 in VGPR0, and so is every register that nothing initialises.",
)
rule(
    "launch.workgroup_info",
    Evidence.chosen,
    "CDNA4 ISA table 8, whose field widths add up to 34 bits; LLVM AMDGPUUsage",
    "The workgroup info word has the first-wave flag in bit 31 and the wave count in bits 5:0, 0 between them.",
)
rule(
    "launch.partial_workgroup",
    Evidence.chosen,
    "HSA allows grids that are no multiple of the workgroup; the manual has no lane order for the rest",
    "A partial workgroup numbers its work-items within its own smaller size; only the last wave has lanes off.",
)
rule(
    "launch.preload_entry",
    Evidence.spec,
    "LLVM AMDGPUUsage, 'Preloaded Kernel Arguments'",
    "A kernel with preloaded arguments starts 256 bytes after its entry, past the prologue that loads them.",
)
rule(
    "launch.hidden_arguments",
    Evidence.spec,
    "LLVM AMDGPUUsage, code object V5 metadata, kernel argument value kinds",
    "hidden_block_count counts full workgroups only, hidden_remainder is the size of the partial one (0 if none).",
)
rule(
    "launch.hip_values",
    Evidence.chosen,
    "what HIP passes: always three grid dimensions, no global offset, no host services",
    "hidden_grid_dims is 3, global offsets are 0, and printf, hostcall, heap and grid-sync pointers are null.",
)
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
    Evidence.published,
    "LLVM, GCNSubtarget::getMaxWaveScratchSize: COMPUTE_TMPRING_SIZE.WAVESIZE has 13 bits of 1 KiB",
    "A lane has at most 131056 bytes of scratch; a kernel that asks for more is refused.",
)
rule(
    "launch.trap_registers",
    Evidence.chosen,
    "CDNA4 ISA 3.13 says 'grid X/Y/Z'; read as the workgroup's place in the grid",
    "TTMP6:7 hold the packet address, TTMP8..10 the workgroup id, TTMP11 the wave's index in its workgroup.",
)


# --- geometry -------------------------------------------------------------------------------------------------------


def _dimensions(value: int | Sequence[int], what: str) -> Dimensions:
    numbers = list(value) if isinstance(value, Sequence) else [value]
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool | np.timedelta64) for n in numbers)
    good = 1 <= len(numbers) <= 3 and whole and not isinstance(value, bytes)
    if not good or any(not 1 <= n <= LARGEST_GRID for n in numbers):
        raise LaunchError(
            f"the {what} is {value!r}",
            expected=f"one to three whole numbers from 1 to {LARGEST_GRID}",
            advice="an empty grid is no launch: leave it out",
        )
    x, y, z = [*(int(n) for n in numbers), 1, 1][:3]
    return x, y, z


@dataclass(frozen=True)
class Geometry:
    """The shape of a launch. grid: work-items in x, y, z. block: work-items of a full workgroup in x, y, z.

    Where the grid is no multiple of the block the last workgroup of that dimension is smaller.
    """

    grid: Dimensions
    block: Dimensions

    def __post_init__(self) -> None:
        for what, value in (("grid (work-items)", self.grid), ("block", self.block)):
            if not isinstance(value, tuple) or len(value) != GRID_DIMENSIONS or _dimensions(value, what) != value:
                raise LaunchError(f"the {what} is {value!r}", expected="a tuple of three whole numbers")

    @staticmethod
    def of_items(items: int | Sequence[int], block: int | Sequence[int]) -> Geometry:
        """A grid counted in work-items, as an HSA dispatch packet counts it. One to three numbers each."""
        return Geometry(_dimensions(items, "grid (work-items)"), _dimensions(block, "block"))

    @staticmethod
    def of_blocks(blocks: int | Sequence[int], block: int | Sequence[int]) -> Geometry:
        """A grid counted in workgroups, as `hipLaunchKernel` counts it. One to three numbers each."""
        count, size = _dimensions(blocks, "grid (workgroups)"), _dimensions(block, "block")
        items = tuple(c * s for c, s in zip(count, size, strict=True))
        return Geometry(_dimensions(items, "grid (work-items)"), size)

    @property
    def workgroups(self) -> Dimensions:
        """Workgroups in x, y, z, partial ones included."""
        x, y, z = (-(-g // b) for g, b in zip(self.grid, self.block, strict=True))
        return x, y, z

    @property
    def full_workgroups(self) -> Dimensions:
        """Workgroups of full size in x, y, z."""
        x, y, z = (g // b for g, b in zip(self.grid, self.block, strict=True))
        return x, y, z

    @property
    def remainder(self) -> Dimensions:
        """Size of the partial workgroup in x, y, z; 0 where there is none."""
        x, y, z = (g % b for g, b in zip(self.grid, self.block, strict=True))
        return x, y, z

    def workgroup_ids(self) -> Iterator[Dimensions]:
        """All workgroup ids in the order workgroups start: x fastest, then y, then z."""
        nx, ny, nz = self.workgroups
        return ((x, y, z) for z in range(nz) for y in range(ny) for x in range(nx))

    def size_of(self, workgroup: Dimensions) -> Dimensions:
        """Work-items of one workgroup in x, y, z. Raises LaunchError for an id outside the grid."""
        if any(not 0 <= w < n for w, n in zip(workgroup, self.workgroups, strict=True)):
            raise LaunchError(f"there is no workgroup {workgroup}", expected=f"ids below {self.workgroups}")
        sizes = zip(workgroup, self.grid, self.block, strict=True)
        x, y, z = (min(block, grid - w * block) for w, grid, block in sizes)
        return x, y, z

    def waves_of(self, workgroup: Dimensions) -> int:
        """Waves of one workgroup."""
        return -(-math.prod(self.size_of(workgroup)) // LANES)


# --- kernel arguments -----------------------------------------------------------------------------------------------

POINTER_KINDS = ("global_buffer", "pipe", "queue", "image", "sampler")
FLOAT_TYPES = {"half": 2, "_Float16": 2, "__half": 2, "float": 4, "double": 8}
FLOAT_FORMATS = {2: ("<e", 5, 10), 4: ("<f", 8, 23), 8: ("<d", 11, 52)}  # struct code, exponent and mantissa bits


def build_kernarg(
    kernel: Kernel,
    arguments: Sequence[object] | Mapping[str, object],
    geometry: Geometry,
    *,
    dynamic_lds: int = 0,
    queue_address: int = 0,
    hidden: Mapping[str, int] | None = None,
) -> bytes:
    """The kernarg block: the caller's arguments and the hidden ones, where the metadata puts them.

    arguments: in order, or by name where the metadata has names. Buffers are device addresses (int). By-value arguments
    are ints (range-checked), floats (rounded to the argument's size), numpy scalars, or bytes and arrays of exactly the
    argument's size. hidden: values for hidden arguments by `value_kind`, instead of the usual ones.
    A kernel without metadata takes one argument: the whole block as bytes.
    Raises LaunchError for a wrong number, name, type, size or range.
    """
    if not kernel.has_metadata:
        return _whole_block(kernel, arguments)
    explicit = [a for a in kernel.arguments if not a.hidden]
    values = _in_order(kernel, explicit, arguments)
    size = max([kernel.kernarg_size, *(a.offset + a.size for a in kernel.arguments)])
    if size > LARGEST_KERNARG:
        raise LaunchError(
            f"the metadata gives the kernel {size} bytes of arguments",
            expected=f"at most {LARGEST_KERNARG}",
            advice="the code object is damaged: compile or copy it again",
            kernel=kernel.name,
        )
    block = bytearray(size)
    for index, (argument, value) in enumerate(zip(explicit, values, strict=True)):
        block[argument.offset : argument.offset + argument.size] = _encode(kernel, index, argument, value)
    numbers = _hidden_values(geometry, dynamic_lds, queue_address) | _overrides(kernel, hidden or {})
    for argument in kernel.arguments:
        if argument.hidden:
            number = numbers.get(argument.value_kind, 0)
            packed = _pack_integer(number, argument.size)
            if packed is None:
                what = f"{argument.value_kind} = {number} does not fit its {argument.size} bytes"
                raise LaunchError(what, kernel=kernel.name)
            block[argument.offset : argument.offset + argument.size] = packed
    return bytes(block)


def _overrides(kernel: Kernel, hidden: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(hidden, Mapping) or not all(isinstance(n, int | np.integer) for n in hidden.values()):
        raise LaunchError(
            f"the hidden arguments are {_shown(hidden)}",
            expected='whole numbers by name, such as {"hidden_grid_dims": 1}',
            kernel=kernel.name,
        )
    kinds = sorted({a.value_kind for a in kernel.arguments if a.hidden})
    unknown = sorted(str(name) for name in set(hidden) - set(kinds))
    if unknown:
        raise LaunchError(
            f"the kernel has no hidden argument {', '.join(unknown)}",
            expected=f"some of: {', '.join(kinds) or 'none, it takes no hidden arguments'}",
            kernel=kernel.name,
        )
    return {name: int(number) for name, number in hidden.items()}


def _hidden_values(geometry: Geometry, dynamic_lds: int, queue_address: int) -> dict[str, int]:
    values = {
        "hidden_grid_dims": GRID_DIMENSIONS,
        "hidden_dynamic_lds_size": dynamic_lds,
        "hidden_queue_ptr": queue_address,
        "hidden_private_base": PRIVATE_APERTURE >> 32,
        "hidden_shared_base": SHARED_APERTURE >> 32,
    }
    for axis, index in (("x", 0), ("y", 1), ("z", 2)):
        values[f"hidden_block_count_{axis}"] = geometry.full_workgroups[index]
        values[f"hidden_group_size_{axis}"] = geometry.block[index]
        values[f"hidden_remainder_{axis}"] = geometry.remainder[index]
        values[f"hidden_global_offset_{axis}"] = 0
    return values


def _whole_block(kernel: Kernel, arguments: Sequence[object] | Mapping[str, object]) -> bytes:
    values = list(arguments.values()) if isinstance(arguments, Mapping) else list(arguments)
    if not values and kernel.kernarg_size == 0:
        return b""
    blob = _raw_bytes(values[0]) if len(values) == 1 else None
    if blob is None or len(blob) < kernel.kernarg_size:
        raise LaunchError(
            "the code object has no metadata for this kernel, so its arguments are unknown",
            expected=f"one argument: the whole kernarg block as bytes, {kernel.kernarg_size} of them",
            kernel=kernel.name,
        )
    return blob


def _in_order(
    kernel: Kernel, explicit: list[Argument], arguments: Sequence[object] | Mapping[str, object]
) -> list[object]:
    wanted = ", ".join(a.name or f"{a.value_kind}:{a.size}" for a in explicit) or "none"
    if not isinstance(arguments, Mapping):
        if len(arguments) == len(explicit):
            return list(arguments)
        raise LaunchError(
            f"the kernel takes {len(explicit)} arguments and got {len(arguments)}",
            expected=f"({wanted})",
            kernel=kernel.name,
        )
    names = [a.name for a in explicit]
    if not all(names):
        raise LaunchError(
            "the arguments are given by name, but the code object does not name them",
            expected=f"a sequence in order: ({wanted})",
            kernel=kernel.name,
        )
    if set(names) != set(arguments):
        missing, unknown = sorted(set(names) - set(arguments)), sorted(set(arguments) - set(names))
        raise LaunchError(
            f"the arguments lack {', '.join(missing) or 'nothing'} and have unknown {', '.join(unknown) or 'nothing'}",
            expected=f"({wanted})",
            kernel=kernel.name,
        )
    return [arguments[name] for name in names]


def _encode(kernel: Kernel, index: int, argument: Argument, value: object) -> bytes:
    pointer = argument.value_kind in POINTER_KINDS
    encoded = _encode_pointer(argument, value) if pointer else _encode_value(argument, value)
    if isinstance(encoded, bytes):
        return encoded
    name = f' "{argument.name}"' if argument.name else ""
    kind = f"{argument.type or argument.value_kind}, {argument.size} bytes at offset {argument.offset}"
    advice = "map it with Memory.map and pass the address" if isinstance(value, np.ndarray) else None
    raise LaunchError(
        f"argument {index}{name} ({kind}) got {type(value).__name__} {_shown(value)}",
        expected=encoded,
        advice=advice,
        kernel=kernel.name,
    )


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"of {value.dtype} {value.shape}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _encode_pointer(argument: Argument, value: object) -> bytes | str:
    """The bytes of a device address, or what was expected."""
    expected = f"a device address from 0 to 2**{8 * argument.size} - 1"
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        return expected
    return _pack_integer(int(value), argument.size) or expected


def _encode_value(argument: Argument, value: object) -> bytes | str:
    """The bytes of a by-value argument, or what was expected."""
    size, float_size = argument.size, FLOAT_TYPES.get(argument.type)
    if isinstance(value, bool | np.bool_ | int | np.integer):
        if float_size == size and abs(int(value)) < 1 << 1023:
            return _pack_float(float(int(value)), size)
        return _pack_integer(int(value), size) or f"an integer of {8 * size} bits, signed or unsigned"
    if isinstance(value, float):
        if argument.type and float_size is None:
            return f"a value of type {argument.type}; a Python float would change its meaning"
        return _pack_float(value, size)
    blob = _raw_bytes(value)
    if blob is None:
        return f"an int, a float, a numpy scalar, or exactly {size} bytes"
    return blob if len(blob) == size else f"exactly {size} bytes, not {len(blob)}"


def _raw_bytes(value: object) -> bytes | None:
    if isinstance(value, np.ndarray | np.generic):
        return value.tobytes()
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _pack_integer(value: int, size: int) -> bytes | None:
    """Little-endian bytes of a signed or unsigned integer; None when it does not fit."""
    if size == 0 or not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
        return None
    return (value % (1 << (8 * size))).to_bytes(size, "little")


def _pack_float(value: float, size: int) -> bytes | str:
    """A float rounded to nearest even in `size` bytes, a NaN quieted and its payload cut; or what was expected."""
    if size not in FLOAT_FORMATS:
        return f"{size} bytes; floats have 2, 4 or 8"
    code, exponent, mantissa = FLOAT_FORMATS[size]
    if math.isnan(value):
        bits = int.from_bytes(struct.pack("<d", value), "little")
        payload = (bits & ((1 << 52) - 1)) >> (52 - mantissa) | 1 << (mantissa - 1)
        sign = (bits >> 63) << (exponent + mantissa)
        return (sign | ((1 << exponent) - 1) << mantissa | payload).to_bytes(size, "little")
    try:
        return struct.pack(code, value)
    except OverflowError:
        return f"a float that {8 * size} bits can hold; pass math.inf to mean infinity"


# --- the launch -----------------------------------------------------------------------------------------------------


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
    needed = sum(size for enabled, size in _user_sgprs(descriptor) if enabled) + descriptor.kernarg_preload_length
    if needed > descriptor.user_sgpr_count or descriptor.user_sgpr_count > USER_SGPRS:
        raise LaunchError(
            f"the kernel enables {needed} user SGPRs and its user_sgpr_count is {descriptor.user_sgpr_count}",
            expected=f"enabled <= user_sgpr_count <= {USER_SGPRS}",
            kernel=kernel.name,
        )


def residents(launch: Launch) -> int:
    """How many of the launch's workgroups run at once. [rule launch.residency]"""
    waves_each = launch.geometry.waves_of((0, 0, 0))
    wave_slots = SIMDS * min(SIMD_WAVES, SIMD_VGPRS // launch.kernel.descriptor.vgprs)
    by_lds = LDS_BYTES // launch.lds_granted if launch.lds_granted else wave_slots
    return COMPUTE_UNITS * max(1, min(wave_slots // waves_each, by_lds))


# --- registers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WaveState:
    """A wave at its first instruction.

    wave: index in the workgroup. pc: virtual address. sgprs: uint32 (128,) by scalar operand code, with FLAT_SCRATCH at
    102:103 and EXEC at 126:127. initialised: how many SGPRs from s0 on the dispatcher sets; all others are undefined
    on the chip and 0 here. vgpr0: uint32 (64,). exec: one bit a lane. hardware: uint32 (32,), the registers of S_GETREG
    by number, MODE among them. ttmps: uint32 (16,).
    """

    workgroup: Dimensions
    wave: int
    pc: int
    sgprs: npt.NDArray[np.uint32]
    initialised: int
    vgpr0: npt.NDArray[np.uint32]
    exec: int
    hardware: npt.NDArray[np.uint32]
    ttmps: npt.NDArray[np.uint32]


def mode_register(descriptor: KernelDescriptor) -> int:
    """The MODE register a kernel starts with."""
    return (
        descriptor.float_round_32
        | descriptor.float_round_16_64 << 2
        | descriptor.float_denorm_32 << 4
        | descriptor.float_denorm_16_64 << 6
        | descriptor.dx10_clamp << 8
        | descriptor.ieee << 9
        | descriptor.exceptions << 12
        | descriptor.fp16_ovfl << 23
    )


def _hardware_registers(launch: Launch, wave: int, count: int) -> npt.NDArray[np.uint32]:
    """What S_GETREG finds [rule salu.hardware_registers]."""
    descriptor = launch.kernel.descriptor
    registers = np.zeros(HARDWARE_REGISTERS, np.uint32)
    registers[MODE] = mode_register(descriptor)
    registers[STATUS] = (count > 1) << 11 | 1 << 16 | (launch.private_segment > 0) << 28
    registers[HW_ID] = wave & 15 | (wave >> 4 & 3) << 4
    vector_size, scalar_size = descriptor.vgprs // 8 - 1, descriptor.sgprs // 16 - 1
    registers[GPR_ALLOC] = vector_size << 6 | min(63, descriptor.accum_offset // 4) << 12 | scalar_size << 24
    registers[LDS_ALLOC] = launch.lds_granted // 256 << 12
    registers[SH_MEM_BASES] = PRIVATE_APERTURE >> 48 | (SHARED_APERTURE >> 48) << 16
    return registers


def waves(launch: Launch, workgroup: Dimensions, flat_scratch: Sequence[int] = ()) -> tuple[WaveState, ...]:
    """The waves of one workgroup as the dispatcher starts them.

    flat_scratch: the address of each wave's scratch, 0 where not given. Raises LaunchError for an id outside the grid.
    """
    descriptor = launch.kernel.descriptor
    sizes = launch.geometry.size_of(workgroup)
    items, count = math.prod(sizes), launch.geometry.waves_of(workgroup)
    ids = _packed_ids(sizes, descriptor.workitem_id, count)
    scratch = [*flat_scratch, *[0] * count]
    return tuple(
        WaveState(
            workgroup=workgroup,
            wave=wave,
            pc=_first_instruction(launch),
            sgprs=_scalar_file(launch, workgroup, wave, count, scratch[wave], active),
            initialised=len(_scalar_registers(launch, workgroup, wave, count)),
            vgpr0=ids[wave].copy(),
            exec=active,
            hardware=_hardware_registers(launch, wave, count),
            ttmps=_trap_registers(launch, workgroup, wave),
        )
        for wave in range(count)
        for active in [(1 << min(LANES, items - wave * LANES)) - 1]
    )


def _first_instruction(launch: Launch) -> int:
    preloads = launch.kernel.descriptor.kernarg_preload_length > 0
    return launch.kernel.entry + (PRELOAD_PROLOGUE if preloads and not launch.preload_prologue else 0)


def _scalar_file(
    launch: Launch, workgroup: Dimensions, wave: int, count: int, scratch: int, active: int
) -> npt.NDArray[np.uint32]:
    registers = _scalar_registers(launch, workgroup, wave, count)
    sgprs = np.zeros(SCALAR_CODES, np.uint32)
    sgprs[: len(registers)] = registers
    sgprs[[FLAT_SCRATCH_LO, FLAT_SCRATCH_HI]] = _halves(scratch)
    sgprs[[EXEC_LO, EXEC_HI]] = _halves(active)
    return sgprs


def _trap_registers(launch: Launch, workgroup: Dimensions, wave: int) -> npt.NDArray[np.uint32]:
    ttmps = np.zeros(16, np.uint32)
    ttmps[6:12] = *_halves(launch.packet_address), *workgroup, wave
    return ttmps


def _packed_ids(sizes: Dimensions, workitem_id: int, count: int) -> npt.NDArray[np.uint32]:
    """VGPR0 of all waves, uint32 (waves, 64): local x, y, z in ten bits each as far as the kernel asks for them."""
    item = np.arange(count * LANES, dtype=np.uint32)
    exists = item < math.prod(sizes)
    packed = item % np.uint32(sizes[0])
    if workitem_id >= 1:
        packed |= (item // np.uint32(sizes[0]) % np.uint32(sizes[1])) << np.uint32(10)
    if workitem_id >= 2:
        packed |= (item // np.uint32(sizes[0] * sizes[1])) << np.uint32(20)
    return np.where(exists, packed, np.uint32(0)).astype(np.uint32).reshape(count, LANES)


def _halves(value: int) -> tuple[int, int]:
    return value & 0xFFFFFFFF, value >> 32


def _user_sgprs(descriptor: KernelDescriptor) -> list[tuple[bool, int]]:
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


def _scalar_registers(launch: Launch, workgroup: Dimensions, wave: int, count: int) -> list[int]:
    """The values of s0, s1, ... that the dispatcher sets."""
    descriptor = launch.kernel.descriptor
    values: list[Sequence[int]] = [
        (0, 0, 0, 0),
        _halves(launch.packet_address),
        _halves(launch.queue_address),
        _halves(launch.kernarg_address),
        _halves(launch.dispatch_id),
        (0, 0),
        (launch.private_segment,),
    ]
    registers: list[int] = []
    for (enabled, _), value in zip(_user_sgprs(descriptor), values, strict=True):
        registers += value if enabled else ()
    registers += _preloaded(launch)
    registers += [0] * (descriptor.user_sgpr_count - len(registers))
    registers += [workgroup[axis] for _, axis in workgroup_id_sgprs(descriptor)]
    if descriptor.enable_workgroup_info:
        registers.append((wave == 0) << 31 | count)
    return registers


def workgroup_id_sgprs(descriptor: KernelDescriptor) -> list[tuple[int, int]]:
    """(SGPR, axis) of the workgroup ids that the kernel asks for; nothing else in a wave's start depends on them."""
    enables = (descriptor.enable_workgroup_id_x, descriptor.enable_workgroup_id_y, descriptor.enable_workgroup_id_z)
    return list(enumerate((axis for axis in range(GRID_DIMENSIONS) if enables[axis]), descriptor.user_sgpr_count))


def _preloaded(launch: Launch) -> list[int]:
    """The kernarg dwords that the descriptor has preloaded into user SGPRs; 0 past the end of the block."""
    descriptor = launch.kernel.descriptor
    start, size = 4 * descriptor.kernarg_preload_offset, 4 * descriptor.kernarg_preload_length
    block = launch.kernarg[start : start + size].ljust(size, b"\0")
    return list(struct.unpack(f"<{descriptor.kernarg_preload_length}I", block))
