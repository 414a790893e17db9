"""A random program on either engine from its registers, and all that it leaves: memory, registers, LDS, scratch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np
from kernel_builds import assemble_kernel, with_code
from random_programs import BUFFER_BYTES, LDS_BYTES, SCRATCH_BYTES, Program
from wave_registers import Workgroup, registers_of

from emu import code_object
from emu.code_object import CodeObject
from emu.dispatch import Device, Module, RunOptions
from emu.errors import EmulatorError, NoProgress
from emu.host_machine import HostWorkgroup
from emu.memory import REGION_BYTES
from emu.numpy_machine import NumpyWorkgroup

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
    left: dict[str, bytes | str] = field(default_factory=dict)

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

    def beginning(begin):
        def begun_with(group, number, workgroup) -> None:
            begin(group, number, workgroup)
            for one in registers_of(group):
                one.vectors[1:], one.scalars[scalars] = program.vectors[1:], program.scalars[scalars]
            begun.append(group)

        return begun_with

    with contextlib.ExitStack() as patches:
        for kind in (HostWorkgroup, NumpyWorkgroup):
            patches.enter_context(mock.patch.object(kind, "begin", beginning(kind.begin)))
        yield


def left_by(group: Workgroup) -> dict[str, bytes | str]:
    """Registers, LDS and scratch of a workgroup that has ended, by name."""
    left = {"lds": group.windows.lds.tobytes(), "scratch": group.windows.scratch.tobytes()}
    for wave, one in enumerate(registers_of(group)):
        named = {f"{'av'[k < 256]}{k % 256}": row.tobytes() for k, row in enumerate(one.vectors)}
        named |= {f"s{k}": row.tobytes() for k, row in enumerate(one.scalars)}
        named |= {f"hardware {k}": row.tobytes() for k, row in enumerate(one.hardware)}
        named |= {name: str(int(getattr(one, name))) for name in ("scc", "pc", "count")}
        left |= {f"wave {wave} {name}": value for name, value in named.items()}
    return left


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
    return Outcome("done", buffer.tobytes(), left_by(begun[0]))


def fresh_buffer() -> np.ndarray:
    """Bytes for a program to work on."""
    return (np.arange(BUFFER_BYTES) % 251).astype(np.uint8)
