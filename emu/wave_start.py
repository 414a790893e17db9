"""What a wave finds when it starts: the registers that the dispatcher sets."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emu.geometry import GRID_DIMENSIONS, Dimensions
from emu.kernel_descriptor import KernelDescriptor
from emu.launch import Launch, user_sgprs
from emu.memory import PRIVATE_APERTURE, SHARED_APERTURE
from emu.register_checks import SCALAR_REGISTERS
from emu.registers import HARDWARE_REGISTERS
from gfx950.evidence import Evidence, rule
from gfx950.isa.mode_registers import GPR_ALLOC, HW_ID, LDS_ALLOC, MODE, SH_MEM_BASES, STATUS
from gfx950.isa.operand_codes import EXEC
from gfx950.lanes import LANES

PRELOAD_PROLOGUE = 256
FLAT_SCRATCH = 102  # the scalar code of its low half

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
    Evidence.vendor,
    "CDNA4 ISA table 8, whose field widths add up to 34 bits; LLVM AMDGPUUsage",
    "The workgroup info word has the first-wave flag in bit 31 and the wave count in bits 5:0, 0 between them.",
)
rule(
    "launch.preload_entry",
    Evidence.spec,
    "LLVM AMDGPUUsage, 'Preloaded Kernel Arguments'",
    "A kernel with preloaded arguments starts 256 bytes after its entry, past the prologue that loads them.",
)
rule(
    "launch.trap_registers",
    Evidence.chosen,
    "CDNA4 ISA 3.13 says 'grid X/Y/Z'; read as the workgroup's place in the grid",
    "TTMP6:7 hold the packet address, TTMP8..10 the workgroup id, TTMP11 the wave's index in its workgroup.",
)


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
    sgprs = np.zeros(SCALAR_REGISTERS, np.uint32)
    sgprs[: len(registers)] = registers
    sgprs[FLAT_SCRATCH : FLAT_SCRATCH + 2] = _halves(scratch)
    sgprs[EXEC : EXEC + 2] = _halves(active)
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
    for (enabled, _), value in zip(user_sgprs(descriptor), values, strict=True):
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
