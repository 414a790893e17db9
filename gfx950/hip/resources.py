"""What HIP hands out and wants back, given back once on every path: device memory, modules, streams, events."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from gfx950.hip.errors import HipError

if TYPE_CHECKING:
    from gfx950.hip.device import Hip

TO_DEVICE, TO_HOST = 1, 2  # hipMemcpyKind
BUFFER_POINTER, BUFFER_SIZE, BUFFER_END = 1, 2, 3  # HIP_LAUNCH_PARAM_*: a finished kernarg block in place of pointers
UNSIGNED = 1 << 32


class _Owned:
    """A handle that HIP gave, as a context manager. handle: its value."""

    what = "the resource"

    def __init__(self, hip: Hip, take: str, give_back: str, *arguments: Any) -> None:
        self._hip, self._give_back, self._handle = hip, give_back, ctypes.c_void_p()
        try:
            hip.call(take, ctypes.byref(self._handle), *arguments)
        except BaseException as error:  # an interrupt may come when HIP has handed it out already
            self._close_after(error)
            raise

    @property
    def handle(self) -> int:
        """HIP's own value of it. Raises ValueError once it is given back."""
        if self._handle.value is None:
            raise ValueError(f"{self.what} was given back already")
        return self._handle.value

    def close(self) -> None:
        """Gives it back; a second time does nothing."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle.value is not None:
            self._hip.call(self._give_back, handle)

    def _close_after(self, error: BaseException) -> None:
        """Gives it back after an error, which stays the one that is told."""
        try:
            self.close()
        except HipError as second:
            error.add_note(f"giving back {self.what} failed as well: {second}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._close_after(error)


class DeviceBuffer(_Owned):
    """nbytes bytes of device memory."""

    what = "the device buffer"

    def __init__(self, hip: Hip, nbytes: int) -> None:
        if not 0 <= nbytes < 1 << 63:
            raise ValueError(f"a device buffer has no {nbytes} bytes")
        self.nbytes = nbytes
        super().__init__(hip, "hipMalloc", "hipFree", max(1, nbytes))

    @property
    def address(self) -> int:
        """Its first byte, for the device."""
        return self.handle

    def write(self, data: NDArray[Any], offset: int = 0, stream: Stream | None = None) -> None:
        """Copies a C-contiguous array there, to `offset` bytes from the start; on a stream it only starts to."""
        self._copy(_memory_of(data, writable=False), data, offset, TO_DEVICE, stream)

    def read_into(self, target: NDArray[Any], offset: int = 0, stream: Stream | None = None) -> None:
        """Fills a C-contiguous array from here; on a stream it only starts to."""
        self._copy(_memory_of(target, writable=True), target, offset, TO_HOST, stream)

    def read(self, offset: int = 0, nbytes: int | None = None) -> NDArray[np.uint8]:
        """A copy of its bytes from `offset` on, to the end when nbytes is None."""
        found = np.empty(max(0, self.nbytes - offset) if nbytes is None else nbytes, np.uint8)
        self.read_into(found, offset)
        return found

    def fill(self, byte: int) -> None:
        """Sets every byte to one value."""
        if not 0 <= byte <= 255:
            raise ValueError(f"{byte} is no byte")
        if self.nbytes:
            self._hip.call("hipMemset", self.address, byte, self.nbytes)

    def _copy(self, host: int, array: NDArray[Any], offset: int, kind: int, stream: Stream | None) -> None:
        address, nbytes = self.address, array.nbytes
        if offset < 0 or offset + nbytes > self.nbytes:
            raise ValueError(
                f"a copy of {nbytes} bytes at offset {offset} is not inside the device buffer of {self.nbytes} bytes"
            )
        if not nbytes:
            return
        target, source = (address + offset, host) if kind == TO_DEVICE else (host, address + offset)
        if stream is None:
            self._hip.call("hipMemcpy", target, source, nbytes, kind)
        else:
            stream.keep(array)
            self._hip.call("hipMemcpyAsync", target, source, nbytes, kind, stream.handle)


def _memory_of(array: NDArray[Any], writable: bool) -> int:
    if not array.flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} and strides {array.strides} is not C-contiguous")
    if writable and not array.flags.writeable:
        raise ValueError("the array to copy to is read-only")
    return array.ctypes.data


class Module(_Owned):
    """A loaded code object."""

    what = "the module"

    def __init__(self, hip: Hip, code_object: bytes) -> None:
        self._image = code_object  # HIP says nowhere that it copies it
        super().__init__(hip, "hipModuleLoadData", "hipModuleUnload", code_object)

    def function(self, name: str) -> Function:
        """A kernel of it. Raises HipError when it has none of that name."""
        found = ctypes.c_void_p()
        self._hip.call("hipModuleGetFunction", ctypes.byref(found), self.handle, name.encode())
        return Function(self._hip, self, name, found)


class Function:
    """A kernel of a module, as long as the module is loaded."""

    def __init__(self, hip: Hip, module: Module, name: str, handle: ctypes.c_void_p) -> None:
        self._hip, self._module, self.name, self._handle = hip, module, name, handle

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        kernarg: bytes,
        dynamic_lds: int = 0,
        stream: Stream | None = None,
    ) -> None:
        """Starts `grid` workgroups of `block` work-items with a finished block of explicit arguments.

        HIP adds the hidden ones. What goes wrong while the kernel runs shows when the device is waited for.
        Raises ValueError for sizes that are no three numbers of 32 bits, HipError for what HIP refuses at once.
        """
        sizes = (*grid, *block, dynamic_lds)
        if len(sizes) != 7 or not all(0 <= size < UNSIGNED for size in sizes):
            raise ValueError(
                f"grid {tuple(grid)}, block {tuple(block)}, dynamic LDS {dynamic_lds}: HIP takes three, three and one"
                " whole number below 2**32"
            )
        self._module.handle  # noqa: B018  raises when it was unloaded
        data, size = ctypes.create_string_buffer(kernarg, len(kernarg)), ctypes.c_size_t(len(kernarg))
        extra = (ctypes.c_void_p * 5)(
            BUFFER_POINTER, ctypes.addressof(data), BUFFER_SIZE, ctypes.addressof(size), BUFFER_END
        )
        on = stream.handle if stream is not None else None
        self._hip.call("hipModuleLaunchKernel", self._handle, *sizes, on, None, extra)
        self._hip.launched.append(self.name)


class Stream(_Owned):
    """A queue of the device."""

    what = "the stream"

    def __init__(self, hip: Hip) -> None:
        self._kept: list[NDArray[Any]] = []  # host memory of copies under way
        super().__init__(hip, "hipStreamCreate", "hipStreamDestroy")

    def keep(self, array: NDArray[Any]) -> None:
        """Keeps an array alive until the stream is waited for."""
        self._kept.append(array)

    def synchronize(self) -> None:
        """Waits for all that was put on it. Raises HipError for what went wrong there."""
        self._hip.call("hipStreamSynchronize", self.handle)
        self._kept.clear()

    def close(self) -> None:
        """Waits for copies under way, which use the host's memory, then gives it back."""
        try:
            if self._kept and self._handle.value is not None:
                self.synchronize()
        finally:
            super().close()


class Event(_Owned):
    """A point in a stream whose time is taken."""

    what = "the event"

    def __init__(self, hip: Hip) -> None:
        super().__init__(hip, "hipEventCreate", "hipEventDestroy")

    def record(self, stream: Stream | None = None) -> None:
        """Puts it behind what is on a stream, or on the default one."""
        self._hip.call("hipEventRecord", self.handle, stream.handle if stream is not None else None)

    def synchronize(self) -> None:
        """Waits until the device has come to it."""
        self._hip.call("hipEventSynchronize", self.handle)

    def milliseconds_since(self, earlier: Event) -> float:
        """The device's time from an earlier event to this one."""
        found = ctypes.c_float()
        self._hip.call("hipEventElapsedTime", ctypes.byref(found), earlier.handle, self.handle)
        return found.value
