"""The machine that is no emulator: a launch on the MI355X behind HIP, for DEVICE bits beside the emulated ones."""

from __future__ import annotations

from emu.code_object import CodeObject
from emu.dispatch import RunOptions, RunReport
from emu.errors import LaunchError
from emu.kernel_metadata import Kernel
from emu.launch import Launch
from emu.memory import Buffer, Memory
from gfx950.hip import TO_DEVICE, TO_HOST, Hip

ELF_SHARED = b"\x03\x00"  # e_type of what a linker made
POINTER = "global_buffer"


class DeviceMachine:
    """One kernel on device 0. Buffers that pointer arguments name are copied there and, if writable, back."""

    def __init__(self, memory: Memory, code: CodeObject, kernel: Kernel) -> None:
        self.memory, self.code, self.kernel = memory, code, kernel
        self.hip = Hip()

    def run(self, launch: Launch, options: RunOptions) -> RunReport:
        """Runs the launch. Raises LaunchError for what a device launch cannot have, HipError when HIP refuses."""
        self._check(launch, options)
        module = self.hip.load(self.code.source)
        placed: dict[int, int] = {}  # device address by the buffer's emulated one
        try:
            kernarg = self._kernarg(launch, placed)
            self.hip.launch(
                module, self.kernel.name, launch.geometry.workgroups, launch.geometry.block, launch.dynamic_lds, kernarg
            )
            for buffer in self._buffers(placed):
                if buffer.writable:
                    self._copy(buffer, placed[buffer.address], TO_HOST)
        finally:
            for address in placed.values():
                self.hip.free(address)
            self.hip.unload(module)
        x, y, z = launch.geometry.workgroups
        return RunReport(workgroups=x * y * z)

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
        if self.code.source[16:18] != ELF_SHARED:
            raise LaunchError(
                "a device loads linked code objects only",
                expected="a `.hsaco` (ELF shared object), not a relocatable `.o`",
                advice="link it: `ld.lld -shared k.o -o k.hsaco`, or take the `.hsaco` that `gfx950 emit` writes",
                kernel=self.kernel.name,
            )

    def _kernarg(self, launch: Launch, placed: dict[int, int]) -> bytes:
        """The explicit arguments with device pointers; HIP itself adds the hidden ones."""
        explicit = [a for a in self.kernel.arguments if not a.hidden]
        block = bytearray(launch.kernarg[: max((a.offset + a.size for a in explicit), default=0)])
        for argument in explicit:
            if argument.value_kind == POINTER:
                field = slice(argument.offset, argument.offset + 8)
                block[field] = self._translate(int.from_bytes(block[field], "little"), placed).to_bytes(8, "little")
        return bytes(block)

    def _translate(self, address: int, placed: dict[int, int]) -> int:
        """The device address of an emulated one; its buffer is copied over when it is first met. Null stays null."""
        if address == 0:
            return 0
        buffer = next((b for b in self.memory.buffers if b.address <= address <= b.address + b.nbytes), None)
        if buffer is None:
            raise LaunchError(f"pointer {address:#x} is in no mapped buffer", kernel=self.kernel.name)
        if buffer.address not in placed:
            placed[buffer.address] = self.hip.allocate(buffer.nbytes)
            self._copy(buffer, placed[buffer.address], TO_DEVICE)
        return placed[buffer.address] + address - buffer.address

    def _buffers(self, placed: dict[int, int]) -> list[Buffer]:
        return [b for b in self.memory.buffers if b.address in placed]

    def _copy(self, buffer: Buffer, device: int, kind: int) -> None:
        if not buffer.nbytes:
            return
        host = self.memory.view(buffer.address, buffer.nbytes).ctypes.data
        target, source = (device, host) if kind == TO_DEVICE else (host, device)
        self.hip.copy(target, source, buffer.nbytes, kind)
