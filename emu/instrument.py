"""A kernel that shows its registers: a variant of a code object that runs the same and dumps one wave at one point.

    point = Point(offset=0x1a4, occurrence=3, workgroup=(2, 0, 0), wave=1)
    variant = instrumented(code, "k", point, buffer_address)        # load and launch it instead of `code`
    registers = read_dump(buffer, code, "k")                        # numpy arrays by register

The same variant runs on the chip and in the emulator, so that their registers can be compared bit by bit; `run_to` does
all of it for a launch on any engine. How it works: the original instructions stay at their addresses, but for four
bytes at the point, which branch to new code in a segment of its own. That counts the wave's visits, dumps at the wanted
one, runs the displaced instruction and goes on behind it. The kernel's descriptor starts a wave in new code as well,
which finds out whether it is the wanted one. What new code needs to remember it keeps in SGPRs that the kernel's code
never names; the descriptor asks for them.

The dump waits for everything that is on its way, so it shows what the emulator shows: loads have landed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsIndex

from emu.errors import CodeObjectError
from emu.geometry import Dimensions
from emu.instrument_code import Dump, Piece, Reserved, Wanted, add_point, add_start, pair, reserve
from emu.instrument_elf import GrowingObject
from emu.instrument_registers import (
    ARCHITECTED_VGPRS,
    Registers,
    Usage,
    layout_of,
    linked_code,
    read_registers,
    usage,
)
from emu.kernel_descriptor import KernelDescriptor
from emu.kernel_metadata import ENTRY_ALIGNMENT, Kernel
from emu.launch import SIMD_VGPRS, SIMDS
from emu.wave_start import PRELOAD_PROLOGUE
from gfx950.isa.encoding import decode
from gfx950.isa.text import assemble
from gfx950.lanes import LANES

BRANCH_REACH = 0x7FFF * 4
ROOM = 1 << 14  # more than the new code ever takes
SPECIAL_SGPRS = 6  # VCC, FLAT_SCRATCH and XNACK_MASK count among the SGPRs of a descriptor
FETCHED_AHEAD = 256  # bytes of S_NOP behind the last instruction, which the instruction fetch may read
LARGEST_COUNT = (1 << 32) - 1


@dataclass(frozen=True)
class Point:
    """A moment of one wave: before it runs the instruction at `offset` bytes from the kernel's first instruction (as
    `emu.dispatch.Watch` counts them) for the `occurrence`-th time, from 1. workgroup: its id; wave: index in it."""

    offset: int
    occurrence: int = 1
    workgroup: Dimensions = (0, 0, 0)
    wave: int = 0


def dump_bytes(code: bytes, kernel: str | None = None, lds: int = 0) -> int:
    """Bytes of the buffer that a variant of this kernel dumps into. lds: bytes of LDS to dump as well."""
    return layout_of(code, kernel, lds).nbytes


def read_dump(data: bytes, code: bytes, kernel: str | None = None, lds: int = 0) -> Registers:
    """The registers in the buffer after the launch. The buffer must have been zeros before it."""
    return read_registers(data, layout_of(code, kernel, lds))


def instrumented(
    code: bytes,
    kernel: str | None,
    point: Point,
    buffer_address: int,
    *,
    block: Dimensions | None = None,
    lds: int = 0,
) -> bytes:
    """The variant of a linked code object whose kernel dumps at a point; launch no other kernel of it.

    buffer_address: `dump_bytes` zero bytes where the variant runs, a multiple of 4. block: the work-items of the
    workgroup, for more than one dimension (default: what the kernel requires, else one dimension). lds: bytes of LDS
    to dump as well, no more than the launch has.
    Raises CodeObjectError for an object that is relocatable, a kernel without enough free SGPRs and a point that is no
    instruction or one that cannot be displaced; ValueError for numbers out of their range.
    """
    loaded, chosen = linked_code(bytes(code), kernel)
    used, layout = usage(bytes(code), chosen.name), layout_of(code, chosen.name, lds)
    check_point(point)
    if buffer_address % 4 or not 0 < buffer_address < 1 << 48:
        raise ValueError(f"the dump's address is {buffer_address:#x}; it must be a multiple of 4 below 1 << 48")
    address = _address(chosen, used, point)
    shape = block or chosen.reqd_workgroup_size or (LANES * (point.wave + 1), 1, 1)
    grown = GrowingObject(bytes(code))
    far = grown.address + ROOM - min(run.address for run in loaded.code) > BRANCH_REACH
    launched = chosen.descriptor.user_sgpr_count + 4  # the variant asks for all workgroup ids, and may for the info
    own = reserve(max(used.sgprs, launched), far, chosen.name)
    vgprs = _vgprs(chosen, used)
    free = used.vgprs if vgprs else None
    dump = Dump(layout, own, free, buffer_address, chosen.entry, used.indexed, used.skips)
    run = loaded.code_of(chosen)
    displaced = decode(run.data, address, run.address)
    mode = max(chosen.descriptor.workitem_id, 2 if shape[2] > 1 else 1 if shape[1] > 1 else 0)
    wanted = Wanted(point.workgroup, _first_item(shape, point), point.occurrence)
    new = Piece(grown.address)
    add_point(new, dump, displaced)
    entry = _add_starts(new, chosen, mode, wanted, own)
    new.pad(FETCHED_AHEAD)
    grown.write(address, _way_there(own, address, grown.address))
    grown.write(chosen.descriptor_address, _descriptor(chosen, own, vgprs, mode, entry))
    return grown.append(bytes(new.data))


def check_point(point: Point) -> None:
    """Raises ValueError for numbers out of their range, TypeError for what is no whole number."""
    for name in ("offset", "occurrence", "wave"):
        if not isinstance(getattr(point, name), SupportsIndex):
            raise TypeError(f"{point}: the {name} must be a whole number")
    if not 1 <= point.occurrence <= LARGEST_COUNT or point.wave < 0:
        raise ValueError(f"{point}: occurrences count from 1 to {LARGEST_COUNT}, waves from 0")
    group = point.workgroup
    if not isinstance(group, Sequence) or not all(isinstance(n, SupportsIndex) for n in group):
        raise TypeError(f"{point}: a workgroup is given by three whole numbers")
    if len(group) != 3 or min(group) < 0:
        raise ValueError(f"{point}: a workgroup is given by three numbers from 0 on")


def _address(kernel: Kernel, used: Usage, point: Point) -> int:
    address = kernel.entry + point.offset
    if address in used.starts:
        return address
    before = max((start for start in used.starts if start < address), default=None)
    near = "" if before is None else f"; the one before begins at offset {before - kernel.entry:#x}"
    raise CodeObjectError(
        f"no instruction of kernel {kernel.name} begins at offset {point.offset:#x}{near}",
        expected="the offset of an instruction from the kernel's first one, of the kernel itself or a function",
        advice="`gfx950 disasm` lists them",
        kernel=kernel.name,
    )


def _first_item(shape: Dimensions, point: Point) -> int:
    """The first work-item of the wave as VGPR0 packs it."""
    x, y, _ = shape
    first = LANES * point.wave
    if first >= math.prod(shape):
        raise ValueError(f"{point}: a workgroup of {shape} work-items has {-(-math.prod(shape) // LANES)} waves")
    return first % x | (first // x % y) << 10 | (first // (x * y)) << 20


def _vgprs(kernel: Kernel, used: Usage) -> tuple[int, int] | None:
    """(accum_offset, VGPRs) that give the code one VGPR behind the kernel's own; None where there is no room for it.

    AGPRs are numbered from accum_offset on, so a larger one moves them together with all their uses.
    """
    descriptor = kernel.descriptor
    if used.vgprs >= ARCHITECTED_VGPRS:
        return None
    offset = max(descriptor.accum_offset, -(-(used.vgprs + 1) // 4) * 4)
    total = max(descriptor.vgprs, -(-(offset + used.agprs) // 8) * 8)
    waves = -(-kernel.max_flat_workgroup_size // LANES)
    fits = waves <= SIMDS * (SIMD_VGPRS // total) or total == descriptor.vgprs
    return (offset, total) if total <= SIMD_VGPRS and fits else None


def _add_starts(new: Piece, kernel: Kernel, mode: int, wanted: Wanted, own: Reserved) -> int:
    """Adds what runs before the kernel's first instruction and returns its address, the variant's entry.

    With preloaded arguments there are two of these, 256 bytes apart: the second is for firmware that preloads.
    """
    point = new.address
    descriptor = kernel.descriptor
    new.pad(-len(new.data) % ENTRY_ALIGNMENT)
    entry = new.end
    add_start(new, descriptor, mode, wanted, own, kernel.entry, point)
    if descriptor.kernarg_preload_length:
        new.pad(entry + PRELOAD_PROLOGUE - new.end)
        add_start(new, descriptor, mode, wanted, own, kernel.entry + PRELOAD_PROLOGUE, point)
    return entry


def _way_there(own: Reserved, address: int, target: int) -> bytes:
    """The four bytes at the point."""
    if own.stub is not None:
        return assemble(f"s_setpc_b64 {pair(own.stub)}")
    return assemble("s_branch target", address, {"target": target})


def _descriptor(kernel: Kernel, own: Reserved, vgprs: tuple[int, int] | None, mode: int, entry: int) -> bytes:
    """The variant's kernel descriptor. [LLVM AMDGPUUsage, 'Kernel Descriptor']"""
    old: KernelDescriptor = kernel.descriptor
    accum_offset, total = vgprs or (old.accum_offset, old.vgprs)
    sgprs = max(old.sgprs, -(-(own.end + SPECIAL_SGPRS) // 16) * 16)
    rsrc1 = old.rsrc1 & ~0x3FF | (total // 8 - 1) | 2 * (sgprs // 16 - 1) << 6
    rsrc2 = old.rsrc2 & ~(3 << 11) | 7 << 7 | mode << 11
    rsrc3 = old.rsrc3 & ~0x3F | (accum_offset // 4 - 1)
    preload = old.kernarg_preload_length | old.kernarg_preload_offset << 7
    head = struct.pack(
        "<III4xq20x", old.group_segment, old.private_segment, old.kernarg_size, entry - kernel.descriptor_address
    )
    return head + struct.pack("<IIIHH4x", rsrc3, rsrc1, rsrc2, old.properties, preload)
