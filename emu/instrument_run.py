"""Runs a launch with a kernel that shows its registers, on any engine."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emu.arguments import Arguments, is_tensor, tensor_bytes
from emu.dispatch import Device, Module, RunOptions, RunReport
from emu.errors import LaunchError
from emu.geometry import Geometry
from emu.instrument import Point, check_point, instrumented
from emu.instrument_registers import Registers, layout_of, read_registers
from emu.kernarg import POINTER_KINDS
from emu.kernel_metadata import Argument, Kernel

Bytes = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Job:
    """A launch that can be run any number of times: its arrays are copied for each run.

    code: the bytes of a linked code object. kernel: its name. arguments: in order or by name, arrays and CPU tensors
    for pointers. dynamic_lds, hidden: as `emu.dispatch.LaunchableKernel.launch` takes them.
    """

    code: bytes
    kernel: str
    geometry: Geometry
    arguments: Arguments
    dynamic_lds: int = 0
    hidden: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Place:
    """Where an argument's array was in a run. address: for the kernel; nbytes: its length."""

    argument: int | str
    address: int
    nbytes: int


@dataclass(eq=False)
class Run:
    """What a run left. registers: None without a point. places: of the arrays. arrays: their bytes afterwards, by
    argument."""

    registers: Registers | None
    places: list[Place] = field(default_factory=list)
    arrays: dict[int | str, np.ndarray[Any, Any]] = field(default_factory=dict)
    report: RunReport = field(default_factory=RunReport)


def run_to(job: Job, point: Point, options: RunOptions | None = None, *, lds: int = 0) -> Registers:
    """The registers of a wave at a point of a launch: `reached` is False when the wave never got there.

    options: the engine; RunOptions(engine="device") runs it on the chip. lds: bytes of LDS to show as well. The job's
    arrays stay as they are. Raises what `instrumented` and a launch raise.
    """
    registers = run(job, point, options, lds=lds).registers
    assert registers is not None
    return registers


def run(
    job: Job,
    point: Point | None,
    options: RunOptions | None = None,
    *,
    lds: int = 0,
    lows: Sequence[int] = (),
) -> Run:
    """As `run_to`, with all that is known afterwards; without a point the job's own code runs.

    Memory is laid out in the same way with and without a point, so that addresses in registers agree. lows: the low 32
    bits that the addresses of the arrays shall have in the emulator, as a device's had them: then sums of addresses
    carry where they do there.
    """
    chosen = options or RunOptions()
    layout = layout_of(job.code, job.kernel, lds)
    with ExitStack() as owned:
        device = Device(chosen)
        memory = _OnDevice(device, owned) if chosen.engine == "device" else _Emulated(device)
        address, dumped = memory.place(np.zeros(layout.nbytes, np.uint8), "register dump")
        code = job.code
        if point is not None:
            check_point(point)
            block = job.geometry.size_of(point.workgroup)
            code = instrumented(code, job.kernel, point, memory.seen(address), block=block, lds=lds)
        done = _launch(job, device.load(code), memory, lows)
        if point is not None:
            done.registers = read_registers(dumped(), layout)
        return done


class _Emulated:
    """The memory of the emulator: arrays are used where they are."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def place(self, array: np.ndarray[Any, Any], name: str, low: int = 0) -> tuple[int, Callable[[], Bytes]]:
        """The emulated address of an array, with these low 32 bits, and what gives its bytes after the launch."""
        writable = bool(array.flags.writeable)
        if low:  # what stands before it is never touched, and so takes no memory
            padded = np.zeros(low + array.nbytes, np.uint8)
            padded[low:] = np.frombuffer(array.tobytes(), np.uint8)
            return self.device.map(padded, name, writable) + low, lambda: padded[low:]
        return self.device.map(array, name, writable), lambda: array

    def seen(self, address: int) -> int:
        """What a kernel sees for an emulated address."""
        return address


class _OnDevice:
    """The chip's memory: arrays are copied there. Emulated addresses stand for it, as for tensors that are there."""

    def __init__(self, device: Device, owned: ExitStack) -> None:
        from gfx950.hip import Hip

        self.device, self.owned, self.hip = device, owned, owned.enter_context(Hip())
        self.addresses: dict[int, int] = {}

    def place(self, array: np.ndarray[Any, Any], name: str, low: int = 0) -> tuple[int, Callable[[], Bytes]]:
        """See `_Emulated.place`; the device has its own low bits."""
        there = self.owned.enter_context(self.hip.filled(array))
        address = self.device.memory.map_on_device(self.hip.index, there.address, name)
        self.addresses[address] = there.address
        return address, there.read

    def seen(self, address: int) -> int:
        """See `_Emulated.seen`."""
        return self.addresses[address]


def _launch(job: Job, module: Module, memory: _Emulated | _OnDevice, lows: Sequence[int]) -> Run:
    """Launches with copies of the job's arrays, all of them placed before."""
    kernel = module.code.kernel(job.kernel)
    done, after = Run(None), {}
    placed: dict[int, tuple[int, Callable[[], Bytes]]] = {}
    values: dict[int | str, object] = {}
    for name, argument, value in _named(kernel, job.arguments):
        if argument is None or argument.value_kind not in POINTER_KINDS or not (is_array(value)):
            values[name] = value
            continue
        if id(value) not in placed:
            array = _copied(kernel, name, value)
            low = lows[len(placed)] if len(placed) < len(lows) else 0
            placed[id(value)] = memory.place(array, f"argument {name}", low)
            done.places.append(Place(name, memory.seen(placed[id(value)][0]), array.nbytes))
        values[name], after[name] = placed[id(value)]
    given = values if isinstance(job.arguments, Mapping) else list(values.values())
    done.report = module[job.kernel].launch(job.geometry, given, None, job.dynamic_lds, None, job.hidden)  # type: ignore[arg-type]
    done.arrays = {name: np.asarray(read()).reshape(-1).view(np.uint8) for name, read in after.items()}
    return done


def _named(kernel: Kernel, arguments: Arguments) -> list[tuple[int | str, Argument | None, Any]]:
    explicit = kernel.explicit
    if isinstance(arguments, bytes) or not kernel.has_metadata:
        raise LaunchError(
            "the arguments are a finished block, in which pointers cannot be told from numbers",
            expected="the arguments one by one, for a kernel with metadata",
            kernel=kernel.name,
        )
    if isinstance(arguments, Mapping):
        known = {a.name: a for a in explicit}
        return [(name, known.get(name), value) for name, value in arguments.items()]
    return [(n, explicit[n] if n < len(explicit) else None, value) for n, value in enumerate(arguments)]


def is_array(value: object) -> bool:
    """Whether it is an array or tensor, whose memory a pointer may name."""
    return isinstance(value, np.ndarray) or is_tensor(value)


def _copied(kernel: Kernel, name: int | str, value: Any) -> np.ndarray[Any, Any]:
    """A copy of an array's or a tensor's memory; a read-only array's stays read-only."""
    if is_tensor(value):
        return tensor_bytes(kernel, str(name), value).copy()
    copied = copy.copy(value) if value.flags.c_contiguous else value
    copied.flags.writeable = value.flags.writeable
    return copied  # type: ignore[no-any-return]
