"""The binding to the real chip: the few HIP calls that load a code object, move bytes and launch, through ctypes.

Nothing here needs ROCm until a device is asked for. No MI355X was at hand: the calls are tested against a stand-in
library.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIBRARY = "libamdhip64.so"
CALLS = (
    "hipGetDeviceCount", "hipGetErrorString", "hipSetDevice", "hipModuleLoadData", "hipModuleUnload", "hipMalloc",
    "hipFree", "hipMemcpy", "hipModuleGetFunction", "hipModuleLaunchKernel", "hipDeviceSynchronize",
)  # fmt: skip
TO_DEVICE, TO_HOST = 1, 2  # hipMemcpyKind
BUFFER_POINTER, BUFFER_SIZE, BUFFER_END = 1, 2, 3  # HIP_LAUNCH_PARAM_*: a finished kernarg block in place of pointers


class NoDevice(Exception):
    """There is no HIP library, or no device behind it. Message: what was tried and what to do."""


class HipError(Exception):
    """A HIP call failed. Message: the call and HIP's own words."""


def find_library() -> ctypes.CDLL:
    """The HIP library: GFX950_HIP, $ROCM_PATH/lib, /opt/rocm/lib, or the loader's path. Raises NoDevice."""
    chosen = os.environ.get("GFX950_HIP")
    root = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
    places = [chosen] if chosen else [str(root / "lib" / LIBRARY), LIBRARY]
    said = []
    for place in places:
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            said.append(f"{place} ({str(error).removeprefix(f'{place}: ')})")
            continue
        if all(hasattr(library, call) for call in CALLS):
            return library
        said.append(f"{place} (it has no {next(call for call in CALLS if not hasattr(library, call))})")
    raise NoDevice(
        f"no HIP library: tried {', '.join(said)}; on a machine with an MI355X install ROCm, or name the library in"
        " GFX950_HIP; without a device use the engines host or numpy"
    )


class Hip:
    """One device. Device memory is given as plain integer addresses. Raises NoDevice when there is none."""

    def __init__(self) -> None:
        self.library = find_library()
        count = ctypes.c_int(0)
        status = self.library.hipGetDeviceCount(ctypes.byref(count))
        if status or count.value < 1:
            raise NoDevice(
                f"the HIP library sees no device ({self._words(status)}); check the driver and HIP_VISIBLE_DEVICES,"
                " or use the engines host or numpy"
            )
        self._call("hipSetDevice", ctypes.c_int(0))

    def _words(self, status: int) -> str:
        describe = self.library.hipGetErrorString
        describe.restype = ctypes.c_char_p
        words: bytes = describe(ctypes.c_int(status))
        return words.decode()

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise HipError(f"{name} failed with {status}: {self._words(status)}")

    def load(self, code_object: bytes) -> ctypes.c_void_p:
        """A module of a linked code object."""
        module = ctypes.c_void_p()
        self._call("hipModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code_object))
        return module

    def unload(self, module: ctypes.c_void_p) -> None:
        """Gives a module back."""
        self._call("hipModuleUnload", module)

    def allocate(self, nbytes: int) -> int:
        """Device memory of at least one byte."""
        pointer = ctypes.c_void_p()
        self._call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(max(1, nbytes)))
        return int(pointer.value or 0)

    def free(self, address: int) -> None:
        """Gives device memory back."""
        self._call("hipFree", ctypes.c_void_p(address))

    def copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        """nbytes between a host and a device address; kind: TO_DEVICE or TO_HOST."""
        call = (ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(nbytes), ctypes.c_int(kind))
        self._call("hipMemcpy", *call)

    def launch(
        self, module: ctypes.c_void_p, name: str, grid: Sequence[int], block: Sequence[int], lds: int, kernarg: bytes
    ) -> None:
        """Launches `grid` workgroups with a finished block of explicit arguments, and waits for their end."""
        function = ctypes.c_void_p()
        self._call("hipModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        data, size = ctypes.create_string_buffer(kernarg, len(kernarg)), ctypes.c_size_t(len(kernarg))
        extra = (ctypes.c_void_p * 5)(
            BUFFER_POINTER, ctypes.addressof(data), BUFFER_SIZE, ctypes.addressof(size), BUFFER_END
        )
        sizes = [ctypes.c_uint(n) for n in (*grid, *block, lds)]
        self._call("hipModuleLaunchKernel", function, *sizes, None, None, extra)
        self._call("hipDeviceSynchronize")

    def describe(self) -> dict[str, str]:
        """What is known of device 0 and the software under it: name, architecture, rocm, driver, firmware; empty where
        the system does not say."""
        name = ctypes.create_string_buffer(256)
        self._ask("hipDeviceGetName", name, ctypes.c_int(len(name)), ctypes.c_int(0))
        runtime, driver = self._version("hipRuntimeGetVersion"), self._version("hipDriverGetVersion")
        return {
            "name": name.value.decode(errors="replace"),
            "architecture": _architecture(),
            "rocm": _first_line(Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / ".info" / "version"),
            "driver": f"HIP runtime {runtime}, driver {driver}",
            "firmware": _firmware(),
        }

    def _ask(self, name: str, *arguments: Any) -> None:
        """A call that tells something; a library without it tells nothing."""
        if hasattr(self.library, name):
            self._call(name, *arguments)

    def _version(self, name: str) -> int:
        number = ctypes.c_int(0)
        self._ask(name, ctypes.byref(number))
        return number.value


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    except OSError:
        return ""


def _architecture(nodes: Path = Path("/sys/class/kfd/kfd/topology/nodes")) -> str:
    """The first device's architecture, as the kernel driver numbers it: 90500 is gfx950."""
    for node in sorted(nodes.glob("*/properties")):
        for line in node.read_text(errors="replace").splitlines():
            key, _, value = line.partition(" ")
            if key == "gfx_target_version" and value.strip().isdecimal() and int(value):
                major, minor, step = int(value) // 10000, int(value) // 100 % 100, int(value) % 100
                return f"gfx{major}{minor:x}{step:x}"
    return ""


def _firmware(cards: Path = Path("/sys/class/drm")) -> str:
    """The versions of the first card's firmware parts."""
    for folder in sorted(cards.glob("card*/device/fw_version")):
        parts = ((part.name.removesuffix("_fw_version"), _first_line(part)) for part in sorted(folder.iterdir()))
        return ", ".join(f"{name} {number}" for name, number in parts if number)
    return ""
