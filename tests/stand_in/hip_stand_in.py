"""A HIP library for tests, backed by the emulator: `with stand_in() as s:` puts it where gfx950.hip looks.

    with stand_in(arch="gfx950", devices=1, faults=[Fault("k", offset=0x40, register="v3", bit=7)]) as s:
        ...                                  # anything with engine="device", or gfx950.hip itself
        s.launches, s.errors                 # what ran, and what the emulator said of launches that failed
        s.fail("hipMemcpy", 1)               # the next call of it fails so
        s.fail_later(700)                    # as if a kernel had failed: shows where the device is waited for
        assert s.leaks() == {}               # by itself at the end of a body that ends well

It lives in the process that uses it: a child process has no emulator behind it.
"""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from llvm_tools import run_tool
from stand_in_faults import Fault, Faults, offset_of

from emu.dispatch import Device, Module, RunOptions
from emu.geometry import Geometry
from emu.kernarg import POINTER_KINDS
from emu.kernel_metadata import Kernel
from emu.launch import prepare
from emu.memory import Memory

__all__ = ["INTERRUPTED", "SOURCES", "Fault", "StandIn", "build", "offset_of", "stand_in"]

SOURCES = Path(__file__).parent
RUNNING: list[StandIn] = []
FOLDER = Path(tempfile.gettempdir()) / "gfx950-test-kernels"
MACHINES = {"gfx950": 0x4F, "gfx942": 0x4C, "gfx90a": 0x3F}  # EF_AMDGPU_MACH [LLVM AMDGPUUsage]
KINDS = ("memory", "module", "stream", "event")
INVALID_VALUE, ILLEGAL_ADDRESS, OUT_OF_RESOURCES, LAUNCH_FAILURE, INTERRUPTED = 1, 700, 701, 719, -2
FIRST_OWN_REGION, LAST_OWN_REGION = 0x8000, 0xF000  # of the emulator's own buffers; the device's lie below

Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_void_p,
    ctypes.c_size_t, ctypes.c_int,
)  # fmt: skip


def build(*defines: str) -> Path:
    """The library, compiled once for a state of its sources. defines: WITHOUT_R0600, WITHOUT_EVENTS,
    WITHOUT_MEMORY_INFO for one that lacks those calls."""
    sources = [(SOURCES / name).read_bytes() for name in ("hip_stand_in.c", "hip_abi.h")]
    digest = hashlib.sha256(b"|".join([*sources, *(d.encode() for d in defines)])).hexdigest()[:24]
    target = FOLDER / f"libhip-stand-in-{digest}.so"
    if not target.exists():
        FOLDER.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            whole = Path(folder, "hip.so")
            flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *(f"-D{d}" for d in defines))
            run_tool("cc", *flags, str(SOURCES / "hip_stand_in.c"), "-o", str(whole))
            whole.replace(target)
    return target


@dataclass(frozen=True)
class Launched:
    """One launch that reached the stand-in. grid in workgroups, block in work-items, lds: dynamic bytes, kernarg: the
    block of explicit arguments as it came, device: index."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds: int
    kernarg: bytes
    device: int


@dataclass
class StandIn:
    """The library at work. launches: in order. errors: what went wrong in the emulator. interrupt: press Ctrl-C in the
    next launch."""

    library: ctypes.CDLL
    path: Path
    options: RunOptions
    faults: Faults
    launches: list[Launched] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    interrupt: bool = False
    _device: Device = field(default_factory=Device)
    _modules: dict[bytes, Module] = field(default_factory=dict)

    def leaks(self) -> dict[str, int]:
        """What is alive now, by kind: memory, module, stream, event, and "damage" for stores beyond an allocation."""
        counts = {kind: self.library.stand_in_live(number) for number, kind in enumerate(KINDS)}
        counts["damage"] = self.library.stand_in_damage()
        return {kind: count for kind, count in counts.items() if count}

    def fail(self, call: str, status: int, skip: int = 0, times: int = 1) -> None:
        """The call fails with this status, after `skip` good ones, `times` times (-1 for ever). INTERRUPTED: it does
        its work, and Ctrl-C is pressed meanwhile."""
        self.library.stand_in_fail(call.encode(), status, skip, times)

    def fail_later(self, status: int) -> None:
        """An error that shows at the next call that waits for the device, as a kernel's does."""
        self.library.stand_in_pending(status)

    def allocations(self) -> dict[int, tuple[int, int]]:
        """(host address, bytes) by device address, of all device memory there is."""
        found, place = {}, [ctypes.c_uint64() for _ in range(3)]
        while self.library.stand_in_allocation(len(found), *map(ctypes.byref, place)):
            address, host, nbytes = (p.value for p in place)
            found[address] = host, nbytes
        return dict(sorted(found.items()))

    def launched(self, image: int, size: int, name: bytes, sizes, kernarg: int, nbytes: int, device: int) -> int:
        """What the library calls for a launch: HIP's status of it."""
        try:
            if self.interrupt:
                self.interrupt = False
                return INTERRUPTED
            grid, block, lds = tuple(sizes[0:3]), tuple(sizes[3:6]), sizes[6]
            one = Launched(name.decode(), grid, block, lds, ctypes.string_at(kernarg, nbytes), device)
            self.launches.append(one)
            return self._run(ctypes.string_at(image, size), one)
        except KeyboardInterrupt as error:
            self.errors.append(error)
            return INTERRUPTED
        except BaseException as error:  # a callback has nowhere to raise to
            self.errors.append(error)
            return ILLEGAL_ADDRESS if type(error).__name__ == "MemoryFault" else LAUNCH_FAILURE

    def _run(self, image: bytes, one: Launched) -> int:
        module = self._loaded(image)
        kernel = module.code.kernel(one.kernel)
        if len(one.kernarg) < max((a.offset + a.size for a in kernel.explicit), default=0):
            return INVALID_VALUE
        if one.kernarg and not kernel.explicit and kernel.has_metadata:
            return OUT_OF_RESOURCES  # as HIP has it
        memory = self._device.memory
        mapped = self._mapped(memory)
        try:
            launch = prepare(
                kernel, Geometry.of_blocks(one.grid, one.block), _arguments(kernel, one.kernarg), memory,
                dynamic_lds=one.lds,
            )  # fmt: skip
            self.faults.begin(module.code, kernel)
            try:
                module.machine(kernel, self.options).run(launch, self.options)
            finally:
                launch.release(memory)
        finally:
            for address in mapped:
                memory.unmap(address)
        return 0

    def _loaded(self, image: bytes) -> Module:
        if self._device.memory._next > LAST_OWN_REGION:
            self._device, self._modules = Device(), {}
        if image not in self._modules:
            self._device.memory._next = max(self._device.memory._next, FIRST_OWN_REGION)
            self._modules[image] = self._device.load(image)
        return self._modules[image]

    def _mapped(self, memory: Memory) -> list[int]:
        """Maps all device memory where it is: at the emulated addresses that are the stand-in's own."""
        own = memory._next
        for address, (host, nbytes) in self.allocations().items():
            array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(host))
            memory._next = address >> 32
            assert memory.map(array, name=f"device memory {address:#x}") == address
        memory._next = own
        return list(self.allocations())


def _arguments(kernel: Kernel, kernarg: bytes) -> Sequence[object] | bytes:
    """The explicit arguments in a block, for the emulator to lay out once more with the hidden ones beside them."""
    if not kernel.has_metadata:
        return kernarg.ljust(kernel.kernarg_size, b"\0")
    parts = [(a, kernarg[a.offset : a.offset + a.size]) for a in kernel.explicit]
    return [int.from_bytes(part, "little") if a.value_kind in POINTER_KINDS else part for a, part in parts]


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    library.stand_in_callback.argtypes = [Callback]
    library.stand_in_allocation.argtypes = [ctypes.c_int, *[ctypes.POINTER(ctypes.c_uint64)] * 3]
    library.stand_in_capacity.argtypes = [ctypes.c_uint64]
    library.stand_in_region.argtypes = [ctypes.c_uint64]
    library.stand_in_architecture.argtypes = [ctypes.c_char_p, ctypes.c_uint]
    library.stand_in_fail.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    return library


@contextmanager
def stand_in(
    arch: str = "gfx950:sramecc+:xnack-",
    devices: int = 1,
    memory: int | None = None,
    faults: Sequence[Fault] = (),
    engine: str = "host",
    without: Sequence[str] = (),
    check_leaks: bool = True,
) -> Iterator[StandIn]:
    """The stand-in where gfx950.hip looks for the library, fresh, until the body ends.

    arch: of all its devices, as gcnArchName has it. memory: bytes of device memory, beyond which there is none. faults:
    see stand_in_faults; they need the numpy engine, which is taken then. without: see `build`. check_leaks: whether a
    body that ends well must have given everything back (AssertionError).
    """
    if RUNNING:
        raise RuntimeError("a stand-in is at work already, and one has one state")
    path = build(*without)
    library = _declared(ctypes.CDLL(str(path)))
    library.stand_in_reset()
    library.stand_in_architecture(arch.encode(), MACHINES.get(arch.partition(":")[0], 0))
    library.stand_in_devices(devices)
    if memory is not None:
        library.stand_in_capacity(memory)
    injected = Faults(tuple(faults))
    options = RunOptions(engine="numpy", observers=(injected,)) if faults else RunOptions(engine=engine)
    one = StandIn(library, path, options, injected)
    callback = Callback(one.launched)
    library.stand_in_callback(callback)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GFX950_HIP", str(path))
        for name in ("GFX950_DEVICE", "GFX950_ANY_DEVICE"):
            patch.delenv(name, raising=False)
        RUNNING.append(one)
        try:
            yield one
            if check_leaks:
                assert one.leaks() == {}, "the body did not give everything back"
        finally:
            RUNNING.clear()
            library.stand_in_reset()
