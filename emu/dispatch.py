"""Launching kernels: a Device holds memory and loaded code; a launch runs every workgroup on the chosen engine.

    device = Device()
    module = device.load("kernel.hsaco")
    module["vector_add"][4, 256](a, b, out, np.int32(n))      # [workgroups, threads]; arrays are used in place
    module["vector_add"][Geometry.of_items(n, 256)](a, b, out, n, hidden={"hidden_grid_dims": 1})

Engines: "host" (translated code, quick) and "numpy" (one instruction at a time, observable), the same bits on both; and
"device": a real MI355X through HIP, for its bits beside theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

import numpy as np

from emu import code_object
from emu.arguments import Arguments, device_values
from emu.code_object import CodeObject
from emu.engines import ENGINES, ORDERS
from emu.errors import LaunchError
from emu.geometry import Geometry
from emu.kernel_metadata import Kernel
from emu.launch import Launch, place, prepare
from emu.memory import Memory
from emu.observers import Observer
from gfx950.models import DEFAULT, Model, ModelError, find_model, in_force, using

if TYPE_CHECKING:
    from emu.contained_rules import KernelEvidence

DEFAULT_QUANTUM = 32  # instructions a wave runs before the next one's turn [facts: field kernels break above 32]
RANDOM_BLOCK = 4  # instructions of a block under a random schedule: a turn ends between blocks
TO_BARRIER = 1 << 62  # a quantum that no program uses up
DEFAULT_STEP_LIMIT = 1 << 40
LARGEST_THREADS = 1024


@dataclass
class RunReport:
    """What a launch did. instructions: wave instructions run. workgroups: how many. watch: the last store into the
    watched bytes, if one was asked for. milliseconds: of a device, by its own events, else None."""

    instructions: int = 0
    workgroups: int = 0
    watch: Watch | None = None
    mnemonics: dict[str, int] = field(default_factory=dict)
    milliseconds: float | None = None

    def add(self, other: RunReport) -> None:
        """Takes up what a later launch did."""
        self.instructions += other.instructions
        self.workgroups += other.workgroups
        self.watch = other.watch or self.watch
        for name, count in other.mnemonics.items():
            self.mnemonics[name] = self.mnemonics.get(name, 0) + count
        if other.milliseconds is not None:
            self.milliseconds = (self.milliseconds or 0.0) + other.milliseconds


@dataclass(frozen=True)
class Watch:
    """A store seen by a watchpoint. pc: its address; offset: bytes from the kernel's first instruction, as a
    disassembler of the file shows it."""

    workgroup: tuple[int, int, int]
    wave: int
    lane: int
    pc: int
    instruction: str
    kernel: str
    offset: int

    @property
    def store(self) -> str:
        """The instruction in words."""
        return f"{self.instruction} at {self.kernel}+0x{self.offset:x}"

    @property
    def place(self) -> str:
        """Who ran it, in words."""
        return f"workgroup {self.workgroup} wave {self.wave} lane {self.lane}"


@dataclass(frozen=True)
class RunOptions:
    """How to run. engine: host, numpy or device. threads: workgroups at once on the host engine. step_limit: wave
    instructions a workgroup may take.

    model: of arithmetic, as `gfx950.models.find_model` takes it, looked up once, here: a file that changes afterwards
    changes nothing. None for the one in force where the launch is made.
    quantum: instructions before a wave's turn ends; TO_BARRIER, or the word "barrier", for as far as it gets. Each wave
    has one turn in a round. order: of the turns in a round and of the starts of workgroups: "ascending" or "reversed",
    the last one first. seed: turns of random length, 1 to quantum, instead, and the order drawn, anew in each round;
    what a seed gives may change from version to version. Of workgroups, as many at a time change places as run at once.
    watch: a range of device addresses whose last writer is reported. observers: of emu.observers, for the numpy engine.
    """

    engine: str = "host"
    threads: int = 1
    model: Model | str | PathLike[str] | None = None
    quantum: int | Literal["barrier"] = DEFAULT_QUANTUM
    seed: int | None = None
    order: str = "ascending"
    watch: tuple[int, int] | None = None
    step_limit: int = DEFAULT_STEP_LIMIT
    observers: tuple[Observer, ...] = ()

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise LaunchError(f"there is no engine {self.engine!r}", expected=" or ".join(ENGINES))
        if self.quantum == "barrier":
            object.__setattr__(self, "quantum", TO_BARRIER)
        for name in ("threads", "quantum", "step_limit"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                more = ", or 'barrier' for as far as a wave gets" if name == "quantum" else ""
                raise LaunchError(f"{name} is {value!r}", expected=f"a whole number from 1 on{more}")
        if self.model is not None:
            object.__setattr__(self, "model", self._found_model(self.model))
        if self.threads > LARGEST_THREADS:
            raise LaunchError(f"threads is {self.threads}", expected=f"at most {LARGEST_THREADS}, one for each core")
        _check_watch(self.watch)
        _check_observers(self.observers)
        _check_order(self.order, self.seed)
        if self.observers and self.engine != "numpy":
            raise LaunchError(
                f"observers see single instructions, which the {self.engine} engine does not offer",
                expected="engine='numpy' with observers",
            )

    @property
    def longest_turn(self) -> int:
        """The quantum as a number of instructions."""
        return cast(int, self.quantum)

    def _found_model(self, model: Model | str | PathLike[str]) -> Model:
        try:
            found = find_model(model)
        except ModelError as error:
            raise LaunchError(f"the model is {model!r}", expected=str(error)) from None
        if self.engine == "device" and found.digest != DEFAULT.digest:
            raise LaunchError(f"model {found.name!r} on a device", expected="no model: a device has its own arithmetic")
        return found


def _check_order(order: object, seed: object) -> None:
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise LaunchError(f"seed is {seed!r}", expected="a whole number, or None for turns of equal length")
    if order not in ORDERS:
        raise LaunchError(f"order is {order!r}", expected=" or ".join(map(repr, ORDERS)))
    if seed is not None and order != "ascending":
        raise LaunchError(f"order is {order!r} and seed is {seed}", expected="one of the two: a seed draws the order")


def _check_observers(observers: object) -> None:
    known = isinstance(observers, tuple | list) and all(hasattr(o, "before") and hasattr(o, "after") for o in observers)
    if not known:
        raise LaunchError(
            f"observers is {observers!r}",
            expected="a tuple of observers, which have the methods before and after",
            advice="see emu.observers; a single one is written (observer,)",
        )


def _check_watch(watch: object) -> None:
    pair = isinstance(watch, tuple) and len(watch) == 2 and all(isinstance(n, int | np.integer) for n in watch)
    pair = pair and all(0 <= n < 1 << 64 for n in watch)  # type: ignore[attr-defined]
    if watch is not None and not pair:
        raise LaunchError(
            f"watch is {watch!r}",
            expected="two device addresses: the first watched byte and the one after the last",
            advice="a launch's own watch=(array, offset) finds the addresses itself",
        )


class Machine(Protocol):
    """Runs the workgroups of a prepared launch."""

    def run(self, launch: Launch, options: RunOptions) -> RunReport:
        """Runs them all, in the order of the options."""
        ...


class CompiledKernels(Protocol):
    """What codegen's compiler returns: a relocatable object and the code object linked from it."""

    @property
    def object(self) -> bytes: ...
    @property
    def code_object(self) -> bytes: ...


Source: TypeAlias = bytes | str | PathLike[str] | CompiledKernels


class Device:
    """One emulated MI355X: an address space, loaded code, and how launches run."""

    def __init__(self, options: RunOptions | None = None) -> None:
        self.options = _options(options) or RunOptions()
        self.memory = Memory()

    def load(self, source: Source) -> Module:
        """Loads a code object (path or bytes), or what `codegen.compile.compile_kernels` made. Raises CodeObjectError
        for other bytes, TypeError for what is none of these."""
        return Module(self, code_object.load(self.code(source)))

    def code(self, source: Source) -> bytes | str | PathLike[str]:
        """The code object to load. Of compiled kernels engine "device" needs the linked one (codegen.link.NoLinker
        where there is no ld.lld)."""
        if isinstance(source, bytes | str | PathLike) or not isinstance(getattr(source, "object", None), bytes):
            return cast("bytes | str | PathLike[str]", source)
        return source.code_object if self.options.engine == "device" else source.object

    def map(self, array: np.ndarray[Any, Any], name: str | None = None, writable: bool = True) -> int:
        """The device address of an array, used in place."""
        return self.memory.map(array, writable=writable, name=name)


class Module:
    """A code object loaded on a device; `module[name]` is a kernel."""

    def __init__(self, device: Device, loaded: CodeObject) -> None:
        self.device = device
        self.code = place(loaded, device.memory)
        self._machines: dict[tuple[str, str, int, str], Machine] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> LaunchableKernel:
        return LaunchableKernel(self, self.code.kernel(name))

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels."""
        return tuple(self.code.kernels)

    def machine(self, kernel: Kernel, options: RunOptions) -> Machine:
        """The machine that runs one kernel with these options under the model in force, made once."""
        longest = min(options.longest_turn, DEFAULT_QUANTUM if options.seed is None else RANDOM_BLOCK)
        longest = longest if options.engine == "host" else 0
        key = (kernel.name, options.engine, longest, in_force().body_digest)
        with self._lock:
            if key not in self._machines:
                self._machines[key] = _machine(options.engine, self.device.memory, self.code, kernel, longest)
            return self._machines[key]

    def machines_of(self, kernel: Kernel) -> list[Machine]:
        """The machines that run a kernel under the model in force."""
        with self._lock:
            return [m for key, m in self._machines.items() if (key[0], key[3]) == (kernel.name, in_force().body_digest)]


def _options(options: RunOptions | None) -> RunOptions | None:
    if options is not None and not isinstance(options, RunOptions):
        raise LaunchError(
            f"the options are {options!r}", expected="a RunOptions, for example RunOptions(engine='numpy')"
        )
    return options


def _machine(engine: str, memory: Memory, code: CodeObject, kernel: Kernel, longest: int) -> Machine:
    """longest: of the host engine's blocks, in instructions."""
    if engine == "device":
        from emu.device_machine import DeviceMachine

        return DeviceMachine(memory, code, kernel)
    if engine == "host":
        from emu.host_machine import HostMachine

        return HostMachine(memory, code, kernel, longest)
    from emu.numpy_machine import NumpyMachine

    return NumpyMachine(memory, code, kernel)


class LaunchableKernel:
    """A kernel of a loaded module; `kernel[grid, block]` fixes the geometry, grid counting workgroups.

    `kernel[Geometry.of_items(items, block)]` counts work-items instead, whose last workgroup may be a partial one.
    """

    def __init__(self, module: Module, kernel: Kernel) -> None:
        self.module = module
        self.kernel = kernel

    def __getitem__(self, geometry: tuple[Any, Any] | Geometry) -> BoundKernel:
        if isinstance(geometry, Geometry):
            return BoundKernel(self, geometry)
        if not isinstance(geometry, tuple) or len(geometry) != 2:
            raise LaunchError(
                f"the geometry is {geometry!r}",
                expected="kernel[workgroups, threads], each one number or a tuple of up to three, or kernel[Geometry]",
                kernel=self.kernel.name,
            )
        grid, block = geometry
        return BoundKernel(self, Geometry.of_blocks(grid, block))

    def evidence(self) -> KernelEvidence:
        """What the kernel's bits rest on, under the model that its launches use: rules, and counts of instructions.

        Before a launch these are the instructions that direct branches reach; those that launches reached through
        registers on this module join them.
        """
        from emu.contained_rules import contained_rules, reached_by

        with using(self.module.device.options.model):
            reached = [one for machine in self.module.machines_of(self.kernel) for one in reached_by(machine)]
            return contained_rules(self.module.code, self.kernel, reached)

    def launch(
        self,
        geometry: Geometry,
        arguments: Arguments,
        options: RunOptions | None = None,
        dynamic_lds: int = 0,
        watch: tuple[Any, int] | None = None,
        hidden: Mapping[str, int] | None = None,
    ) -> RunReport:
        """Runs the kernel. arguments: arrays and CPU tensors (used in place), numbers, device addresses; see
        `emu.arguments.device_values`. On engine "device" tensors that are there are used where they are.

        dynamic_lds: bytes beyond the kernel's own. watch: an argument array and a byte offset in it whose last writer
        the report names. hidden: hidden arguments by their `value_kind`, instead of what the geometry makes them.
        """
        device, chosen = self.module.device, _options(options) or self.module.device.options
        if not isinstance(geometry, Geometry):
            raise LaunchError(
                f"the geometry is {geometry!r}",
                expected="a Geometry, or kernel[workgroups, threads](...)",
                kernel=self.kernel.name,
            )
        self._check_hidden(hidden, arguments, chosen)
        mapped: dict[int, int] = {}
        try:
            values = device_values(self.kernel, arguments, device.memory, mapped, chosen.engine == "device")
            if watch is not None:
                chosen = replace(chosen, watch=self._watched(watch, mapped))
            launch = prepare(self.kernel, geometry, values, device.memory, dynamic_lds=dynamic_lds, hidden=hidden)
            try:
                with using(chosen.model):
                    return self.module.machine(self.kernel, chosen).run(launch, chosen)
            finally:
                launch.release(device.memory)
        finally:
            for address in mapped.values():
                device.memory.unmap(address)

    def _check_hidden(self, hidden: Mapping[str, int] | None, arguments: Arguments, options: RunOptions) -> None:
        """Refuses hidden arguments where they would not reach the kernel."""
        if not hidden:
            return
        if isinstance(arguments, bytes) or not self.kernel.has_metadata:
            what = "the kernarg block is given as bytes, which hold the hidden arguments as well"
        elif options.engine == "device":
            what = "on a device HIP fills in the hidden arguments"
        else:
            return
        raise LaunchError(what, expected="no `hidden` here", kernel=self.kernel.name)

    def _watched(self, watch: tuple[Any, int], mapped: Mapping[int, int]) -> tuple[int, int]:
        """The device addresses of the watched byte."""
        array, offset = watch if isinstance(watch, tuple) and len(watch) == 2 else (None, None)
        known = isinstance(offset, int | np.integer) and array is not None and id(array) in mapped
        if not known or not 0 <= offset < array.nbytes:
            what = (
                f"byte {offset!r} of the watched array" if isinstance(watch, tuple) and len(watch) == 2 else repr(watch)
            )
            raise LaunchError(
                f"{what} cannot be watched",
                expected="watch=(array, offset): an array among the arguments, and a byte offset inside it",
                kernel=self.kernel.name,
            )
        first = mapped[id(array)] + offset
        return first, first + 1


class BoundKernel:
    """A kernel with its geometry: calling it launches."""

    def __init__(self, kernel: LaunchableKernel, geometry: Geometry) -> None:
        self.kernel = kernel
        self.geometry = geometry

    def __call__(
        self,
        *arguments: object,
        options: RunOptions | None = None,
        dynamic_lds: int = 0,
        watch: tuple[Any, int] | None = None,
        hidden: Mapping[str, int] | None = None,
    ) -> RunReport:
        """Launches with these arguments and returns the report; see `LaunchableKernel.launch`."""
        return self.kernel.launch(self.geometry, arguments, options, dynamic_lds, watch, hidden)
