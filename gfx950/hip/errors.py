"""What HIP's calls can go wrong with."""

from __future__ import annotations

OUT_OF_MEMORY, INVALID_IMAGE, NO_BINARY, NOT_FOUND = 2, 200, 209, 500  # of hipError_t
# An error of a kernel that ran: it shows at a later call, and the process's context with the device is lost.
# hipErrorIllegalAddress, LaunchTimeOut, ContextIsDestroyed, Assert, LaunchFailure
FATAL = frozenset({700, 702, 709, 710, 719})
ADVICE = {
    NO_BINARY: "the code object is for another chip than this device",
    INVALID_IMAGE: "HIP loads linked gfx950 code objects (`.hsaco`) only",
    NOT_FOUND: "the code object has no kernel of that name",
}


class NoDevice(Exception):
    """There is no HIP library, or no device behind it. Message: what was tried and what to do.

    what: the message without what a caller may choose in the device's place.
    """

    def __init__(self, what: str, instead: str = "") -> None:
        super().__init__(what + instead)
        self.what = what


class WrongDevice(NoDevice):
    """The device is another chip than gfx950. Message: which, and how to use it all the same."""


class HipError(Exception):
    """A HIP call failed.

    call: its name. number: of the error. name and text: HIP's own of it. kernels: those launched since the device was
    last waited for, when the error is of the kind that a kernel leaves behind; sticky: then no later call works.
    """

    def __init__(self, call: str, number: int, name: str, text: str, kernels: tuple[str, ...] = ()) -> None:
        self.call, self.number, self.name, self.text = call, number, name, text
        self.sticky = number in FATAL
        self.kernels = kernels if self.sticky else ()
        super().__init__("\n".join([f"{call} failed with {number} ({name}): {text}", *self._more()]))

    def _more(self) -> list[str]:
        lines = []
        if self.kernels:
            lines.append(f"  kernels launched since the device was last waited for: {', '.join(self.kernels)}")
        if self.sticky:
            lines.append("  this process's context with the device is lost: start a new process for further launches")
        if self.number in ADVICE:
            lines.append(f"  {ADVICE[self.number]}")
        return lines


class OutOfDeviceMemory(HipError):
    """hipMalloc had no memory. asked: bytes. free and total: bytes of the device, None where HIP does not tell."""

    def __init__(self, name: str, text: str, asked: int, left: tuple[int, int] | None) -> None:
        super().__init__("hipMalloc", OUT_OF_MEMORY, name, text)
        self.asked = asked
        self.free: int | None = left[0] if left is not None else None
        self.total: int | None = left[1] if left is not None else None
        known = f"{self.free} of {self.total} bytes are free" if left is not None else "HIP does not say what is free"
        self.args = (f"{self.args[0]}\n  asked for {asked} bytes, {known}",)
