"""The binding to the real chip: HIP's calls through ctypes, as objects that give back what they took.

    hip = Hip()                                     # device GFX950_DEVICE, or 0; refused unless it is a gfx950
    with hip.load(code_object) as module, hip.filled(array) as buffer:
        module.function("k").launch((4, 1, 1), (256, 1, 1), buffer.address.to_bytes(8, "little"))
        hip.synchronize()
        buffer.read_into(array)

Nothing here needs ROCm until a device is asked for. No MI355X was at hand: the calls are tested against a stand-in
library.
"""

from gfx950.hip.device import Hip
from gfx950.hip.errors import HipError, NoDevice, OutOfDeviceMemory, WrongDevice
from gfx950.hip.library import find_library
from gfx950.hip.resources import DeviceBuffer, Event, Function, Module, Stream

__all__ = [
    "DeviceBuffer", "Event", "Function", "Hip", "HipError", "Module", "NoDevice", "OutOfDeviceMemory", "Stream",
    "WrongDevice", "find_library",
]  # fmt: skip
