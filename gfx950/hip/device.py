"""One device behind HIP: opened, checked to be a gfx950, and what it gives: memory, modules, streams, events."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gfx950.hip import system
from gfx950.hip.errors import FATAL, OUT_OF_MEMORY, HipError, NoDevice, OutOfDeviceMemory, WrongDevice
from gfx950.hip.library import PROPERTIES, find_library
from gfx950.hip.properties import SLACK_BYTES, Properties, PropertiesR0000, PropertiesR0600, read_properties
from gfx950.hip.resources import DeviceBuffer, Event, Module, Stream

CHIP = "gfx950"
DEVICE_VARIABLE, ANY_VARIABLE = "GFX950_DEVICE", "GFX950_ANY_DEVICE"
LONGEST_NUMBER = 9  # digits of a device's


class Hip:
    """One device. device: its index, that of GFX950_DEVICE or 0 when None. any_device: whether another chip than gfx950
    will do, GFX950_ANY_DEVICE=1 when None. It is this thread's current device from here on; `with` makes the one before
    it current again at the end, as torch in the same process expects.

    Raises NoDevice when there is none of that index, and WrongDevice for another chip.
    """

    def __init__(self, device: int | None = None, any_device: bool | None = None) -> None:
        self.library = find_library()
        self.launched: list[str] = []  # kernels since the device was last waited for
        self.index = self._chosen(device, self._count())
        self.properties = self._properties()
        self._check_chip(os.environ.get(ANY_VARIABLE) == "1" if any_device is None else any_device)
        current = ctypes.c_int(self.index)
        self._ask("hipGetDevice", ctypes.byref(current))
        self._before = current.value
        self.call("hipSetDevice", self.index)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._before != self.index:
            self._ask("hipSetDevice", self._before)

    def _count(self) -> int:
        count = ctypes.c_int(0)
        status = self.library.hipGetDeviceCount(ctypes.byref(count))
        if status:
            self.library.hipGetLastError()  # as in `call`
        if status in FATAL:  # an earlier kernel of this process: the device is there
            raise HipError("hipGetDeviceCount", status, *self._words(status))
        if status or count.value < 1:
            raise NoDevice(
                f"the HIP library sees no device ({self._words(status)[1]}); check the driver and HIP_VISIBLE_DEVICES",
                ", or use the engines host or numpy",
            )
        return count.value

    @staticmethod
    def _chosen(device: int | None, count: int) -> int:
        text = (os.environ.get(DEVICE_VARIABLE) or "0") if device is None else str(device)
        if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER) or int(text) >= count:
            where = f"{DEVICE_VARIABLE} is {text!r}" if device is None else f"device {device} was asked for"
            seen = "one device, number 0" if count == 1 else f"{count} devices, numbers 0 to {count - 1}"
            raise NoDevice(f"{where}, but the HIP library sees {seen}")
        return int(text)

    def _properties(self) -> Properties:
        current = hasattr(self.library, PROPERTIES[0])
        data = ctypes.create_string_buffer(SLACK_BYTES)
        self.call(PROPERTIES[0] if current else PROPERTIES[1], data, self.index)
        return read_properties(PropertiesR0600 if current else PropertiesR0000, data.raw)

    def _check_chip(self, any_device: bool) -> None:
        found = self.properties
        if not found.architecture.startswith("gfx"):
            raise NoDevice(
                f"device {self.index} says that its architecture is {found.architecture!r}, which is no gfx name: the"
                " HIP library fills its properties in a layout that is not known here"
            )
        if found.chip != CHIP and not any_device:
            raise WrongDevice(
                f"device {self.index} is a {found.chip} ({found.name}), not {CHIP}: bits of another chip say nothing"
                f" about an MI355X; choose another device by {DEVICE_VARIABLE}, or set {ANY_VARIABLE}=1 to use it all"
                " the same"
            )

    def _words(self, status: int) -> tuple[str, str]:
        """HIP's name and text of an error."""
        name, text = self.library.hipGetErrorName(status), self.library.hipGetErrorString(status)
        return (name or b"").decode(errors="replace"), (text or b"").decode(errors="replace")

    def call(self, name: str, *arguments: Any) -> None:
        """One HIP call. Raises HipError, after taking the error out of HIP's own memory: torch in the same process
        would take it for its own."""
        status = getattr(self.library, name)(*arguments)
        if not status:
            return
        error = HipError(name, status, *self._words(status), tuple(dict.fromkeys(self.launched)))
        self.library.hipGetLastError()
        if status in FATAL:
            self.launched.clear()
        raise error

    def load(self, code_object: bytes) -> Module:
        """A module of a linked code object. Raises HipError when HIP refuses it."""
        return Module(self, code_object)

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Device memory, at least one byte of it. Raises OutOfDeviceMemory."""
        try:
            return DeviceBuffer(self, nbytes)
        except HipError as error:
            if error.number != OUT_OF_MEMORY:
                raise
            raise OutOfDeviceMemory(error.name, error.text, nbytes, self.memory()) from None

    def filled(self, data: bytes | NDArray[Any]) -> DeviceBuffer:
        """Device memory with these bytes in it."""
        host = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
        buffer = self.allocate(host.nbytes)
        try:
            buffer.write(host)
        except BaseException:
            buffer.close()
            raise
        return buffer

    def stream(self) -> Stream:
        """A stream of its own."""
        return Stream(self)

    def event(self) -> Event:
        """An event, for times."""
        return Event(self)

    def synchronize(self) -> None:
        """Waits for everything on the device. Raises HipError with the kernels launched since the last wait."""
        self.call("hipDeviceSynchronize")
        self.launched.clear()

    def memory(self) -> tuple[int, int] | None:
        """Free and total bytes of the device's memory; None where HIP does not tell."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        known = self._ask("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return (free.value, total.value) if known else None

    def describe(self) -> dict[str, str]:
        """What is known of the device and the software under it: name, architecture, rocm, driver, firmware; empty
        where the system does not say."""
        runtime, driver = self._version("hipRuntimeGetVersion"), self._version("hipDriverGetVersion")
        return {
            "name": self.properties.name,
            "architecture": self.properties.architecture,
            "rocm": system.rocm_version(),
            "driver": f"HIP runtime {runtime}, driver {driver}",
            "firmware": system.firmware(),
        }

    def _ask(self, name: str, *arguments: Any) -> bool:
        """A call that tells something; a library without it, or one that fails, tells nothing."""
        if not hasattr(self.library, name):
            return False
        try:
            self.call(name, *arguments)
        except HipError:
            return False
        return True

    def _version(self, name: str) -> int:
        number = ctypes.c_int(0)
        self._ask(name, ctypes.byref(number))
        return number.value
