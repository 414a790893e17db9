"""The machine that is no emulator: a launch on the MI355X behind HIP, for DEVICE bits beside the emulated ones."""

from __future__ import annotations

from contextlib import ExitStack

from emu.code_object import CodeObject
from emu.dispatch import RunOptions, RunReport
from emu.elf_header import ET_DYN, elf_type
from emu.errors import LaunchError
from emu.kernel_metadata import Kernel
from emu.launch import Launch
from emu.memory import Buffer, Memory
from gfx950.hip import DeviceBuffer, Event, Function, Hip

POINTER = "global_buffer"


class DeviceMachine:
    """One kernel on the device. Buffers that pointer arguments name are copied there and, if writable, back; tensors on
    the device are used where they are. Pointers inside buffers and structs stay as they are, the emulator's."""

    def __init__(self, memory: Memory, code: CodeObject, kernel: Kernel) -> None:
        self.memory, self.code, self.kernel = memory, code, kernel

    def run(self, launch: Launch, options: RunOptions) -> RunReport:
        """Runs the launch; the report has the device's time. Nothing of the host's changes unless it went well.

        Raises LaunchError for what a device launch cannot have, HipError when HIP refuses or the kernel fails.
        """
        self._check(launch, options)
        with Hip() as hip, ExitStack() as owned:
            function = owned.enter_context(hip.load(self.code.source)).function(self.kernel.name)
            events = owned.enter_context(hip.event()), owned.enter_context(hip.event())
            there = _Placed(self.memory, hip, self.kernel.name, owned)
            kernarg = self._kernarg(launch, there)
            hip.synchronize()  # work of others on tensors that are there already
            milliseconds = _timed_launch(launch, hip, function, kernarg, events)
            there.bring_back()
        x, y, z = launch.geometry.workgroups
        return RunReport(workgroups=x * y * z, milliseconds=milliseconds)

    def _check(self, launch: Launch, options: RunOptions) -> None:
        if options.watch is not None:
            raise LaunchError("a device launch has no watchpoint", expected="engine host or numpy with watch")
        if any(launch.geometry.remainder):
            raise LaunchError(
                f"the grid {launch.geometry.grid} is no multiple of the block {launch.geometry.block}",
                expected="whole workgroups: HIP's module launch counts the grid in them",
                kernel=self.kernel.name,
            )
        if not self.kernel.has_metadata:
            raise LaunchError(
                "the code object does not say which arguments are pointers",
                expected="a kernel with metadata, so that its buffers can be copied to the device",
                kernel=self.kernel.name,
            )
        if elf_type(self.code.source) != ET_DYN:
            raise LaunchError(
                "a device loads linked code objects only",
                expected="a `.hsaco` (ELF shared object), not a relocatable `.o`",
                advice="link it: `ld.lld -shared k.o -o k.hsaco`, or take the `.hsaco` that `gfx950 emit` writes",
                kernel=self.kernel.name,
            )

    def _kernarg(self, launch: Launch, there: _Placed) -> bytes:
        """The explicit arguments with device pointers; HIP itself adds the hidden ones."""
        explicit = self.kernel.explicit
        block = bytearray(launch.kernarg[: max((a.offset + a.size for a in explicit), default=0)])
        for argument in explicit:
            if argument.value_kind == POINTER:
                field = slice(argument.offset, argument.offset + 8)
                block[field] = there.address(int.from_bytes(block[field], "little")).to_bytes(8, "little")
        return bytes(block)


class _Placed:
    """The buffers of one launch that are on the device. owned: takes up what is to be given back."""

    def __init__(self, memory: Memory, hip: Hip, kernel: str, owned: ExitStack) -> None:
        self.memory, self.hip, self.kernel, self.owned = memory, hip, kernel, owned
        self.copies: dict[int, tuple[Buffer, DeviceBuffer]] = {}  # by the buffer's emulated address

    def address(self, emulated: int) -> int:
        """The device address of an emulated one; its buffer is copied over when it is first met. Null stays null."""
        if emulated == 0:
            return 0
        buffer = next((b for b in self.memory.buffers if b.address <= emulated <= b.address + b.nbytes), None)
        if buffer is None:
            raise LaunchError(f"pointer {emulated:#x} is in no mapped buffer", kernel=self.kernel)
        if buffer.on_device is not None:
            return self._tensor(buffer.name, *buffer.on_device)
        if buffer.address not in self.copies:
            host = self.memory.view(buffer.address, buffer.nbytes)
            self.copies[buffer.address] = buffer, self.owned.enter_context(self.hip.filled(host))
        return self.copies[buffer.address][1].address + emulated - buffer.address

    def _tensor(self, name: str, index: int, address: int) -> int:
        if index != self.hip.index:
            raise LaunchError(
                f"{name} is a tensor on device {index}, and the launch is on device {self.hip.index}",
                expected="all tensors on the device of the launch",
                advice=f"set GFX950_DEVICE={index}, or move the tensor",
                kernel=self.kernel,
            )
        return address

    def bring_back(self) -> None:
        """Copies the writable buffers back, all of them or none."""
        writable = [(buffer, there) for buffer, there in self.copies.values() if buffer.writable and buffer.nbytes]
        results = [(buffer, there.read()) for buffer, there in writable]
        for buffer, data in results:
            self.memory.view(buffer.address, buffer.nbytes)[:] = data


def _timed_launch(launch: Launch, hip: Hip, function: Function, kernarg: bytes, events: tuple[Event, Event]) -> float:
    """Starts the kernel and waits for its end. Returns its time in milliseconds."""
    start, end = events
    start.record()
    function.launch(launch.geometry.workgroups, launch.geometry.block, kernarg, launch.dynamic_lds)
    end.record()
    hip.synchronize()
    return end.milliseconds_since(start)
