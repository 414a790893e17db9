"""A program on both engines from given registers, and all that it leaves: memory, registers, LDS, scratch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np
from kernel_builds import assemble_kernel, with_code
from random_programs import BUFFER_BYTES, LDS_BYTES, SCRATCH_BYTES, Program

from emu import code_object
from emu import host_layout as layout
from emu.code_object import CodeObject
from emu.dispatch import Device, Module, RunOptions
from emu.errors import EmulatorError, NoProgress
from emu.host_machine import HostWorkgroup
from emu.memory import REGION_BYTES
from emu.numpy_machine import NumpyWorkgroup
from emu.registers import HARDWARE_REGISTERS

BUFFER = 1 << 32  # the first buffer of a device lies here
ROOM = 384  # dwords
END = bytes.fromhex("000081bf")
NOTHING = bytes.fromhex("070080bf")
KEPT = {*range(102, 104), 126, 127}  # scalars that the launch sets: FLAT_SCRATCH, EXEC


@functools.cache
def template() -> bytes:
    """A kernel with room for a program."""
    sizes = f".amdhsa_group_segment_fixed_size {LDS_BYTES}\n.amdhsa_private_segment_fixed_size {SCRATCH_BYTES}"
    return assemble_kernel("s_nop 7\n" * ROOM + "s_endpgm", sizes)


@functools.cache
def loaded_template() -> CodeObject:
    """The template where a device with one buffer puts it."""
    return code_object.load(template(), BUFFER + REGION_BYTES)


def object_of(program: Program) -> CodeObject:
    """The code object of a program, as if it had been loaded."""
    loaded = loaded_template()
    room, code = NOTHING * ROOM, program.code + END
    runs = tuple(replace(run, data=with_code(run.data, room, code)) for run in loaded.code)
    image = np.frombuffer(with_code(loaded.image.tobytes(), room, code), np.uint8)
    return replace(loaded, code=runs, image=image)


@dataclass
class Outcome:
    """How a launch ended, the buffer behind it, and what else it left by name (nothing where it failed)."""

    ending: str
    buffer: bytes
    left: dict[str, bytes] = field(default_factory=dict)

    def difference(self, other: Outcome) -> str:
        """What differs, "" for nothing."""
        if self.ending != other.ending:
            return f"{self.ending!r} and {other.ending!r}"
        mine, theirs = {"buffer": self.buffer, **self.left}, {"buffer": other.buffer, **other.left}
        return ", ".join(name for name in mine if mine[name] != theirs[name])


@contextlib.contextmanager
def beginning_with(program: Program, begun: list) -> Iterator[None]:
    """Every wave starts with the registers of the program; workgroups that start are kept in `begun`."""
    scalars = [k for k in range(2, 128) if k not in KEPT]

    def on_host(self, number, workgroup) -> None:
        begin_host(self, number, workgroup)
        for row in self.waves[: self.count]:
            row[: layout.SGPRS].view(np.uint32).reshape(512, 64)[1:] = program.vectors[1:]
            row[layout.SGPRS : layout.SGPRS + 512].view(np.uint32)[scalars] = program.scalars[scalars]
        begun.append(self)

    def on_numpy(self, number, workgroup) -> None:
        begin_numpy(self, number, workgroup)
        for running in self.running:
            running.wave.vgprs[1:] = program.vectors[1:]
            running.wave.sgprs[scalars] = program.scalars[scalars]
        begun.append(self)

    begin_host, begin_numpy = HostWorkgroup.begin, NumpyWorkgroup.begin
    with mock.patch.object(HostWorkgroup, "begin", on_host), mock.patch.object(NumpyWorkgroup, "begin", on_numpy):
        yield


def left_on_host(one: HostWorkgroup) -> dict[str, bytes]:
    """Registers, LDS and scratch of a workgroup that has ended."""
    left = {"lds": one.windows.lds.tobytes(), "scratch": one.windows.scratch.tobytes()}
    for wave, row in enumerate(one.waves[: one.count]):
        scalars = row[layout.SGPRS : layout.SGPRS + 512].view(np.uint32)
        hardware = row[layout.HARDWARE : layout.HARDWARE + 4 * HARDWARE_REGISTERS]
        words = [int(row[at : at + 8].view(np.uint64)[0]) for at in (layout.SCC, layout.PC, layout.COUNT)]
        left |= _named(wave, row[: layout.SGPRS].view(np.uint32).reshape(512, 64), scalars, hardware, words)
    return left


def left_on_numpy(one: NumpyWorkgroup) -> dict[str, bytes]:
    """As `left_on_host`."""
    left = {"lds": one.windows.lds.tobytes(), "scratch": one.windows.scratch.tobytes()}
    for wave, running in enumerate(one.running):
        it = running.wave
        left |= _named(wave, it.vgprs, it.sgprs, it.hardware, [int(it.scc_bit), it.pc, it.count])
    return left


def _named(wave: int, vectors, scalars, hardware, words: list[int]) -> dict[str, bytes]:
    each = {f"{'av'[k < 256]}{k % 256}": row.tobytes() for k, row in enumerate(vectors)}
    each |= {f"s{k}": row.tobytes() for k, row in enumerate(scalars)}
    each |= {f"hardware {k}": row.tobytes() for k, row in enumerate(hardware.view(np.uint32))}
    each |= dict(zip(("scc", "pc", "count"), map(str, words), strict=True))
    return {f"wave {wave} {name}": value for name, value in each.items()}


def outcome(code: CodeObject, program: Program, buffer: np.ndarray, options: RunOptions, block: int) -> Outcome:
    """Runs one workgroup."""
    device, begun = Device(), []
    assert device.map(buffer, "buffer") == BUFFER
    try:
        with beginning_with(program, begun):
            Module(device, code)["k"][1, block](bytes(256), options=options)
    except NoProgress as error:  # which wave it names, and how far it got, depends on the schedule
        return Outcome(f"NoProgress: {error.what}", b"")
    except EmulatorError as error:
        ending = f"{type(error).__name__}: {error}"
        assert [b.name for b in device.memory.buffers] == ["buffer", "code object"]
        return Outcome(ending, buffer.tobytes() if block <= 64 else b"")
    left = (left_on_host if options.engine == "host" else left_on_numpy)(begun[0])
    return Outcome("done", buffer.tobytes(), left)


def fresh_buffer() -> np.ndarray:
    """Bytes for a program to work on."""
    return (np.arange(BUFFER_BYTES) % 251).astype(np.uint8)
