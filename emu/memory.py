"""The emulated address space: buffers of the caller, mapped in place, every access bounds-checked.

A device address is 48 bits: bits 47:32 number a region, bits 31:0 are the offset in it. Each buffer takes a region of
its own (several consecutive ones above 4 GiB), so no stray access ends in a neighbour unnoticed, and one table look-up
checks an access. Region 0 belongs to nobody: null pointers and 32-bit values fault.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from emu.errors import LaunchError, MemoryFault
from gfx950.evidence import Evidence, rule
from gfx950.lanes import ACCESS_BYTES, LANES

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
Addresses = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

REGIONS = 1 << 16
REGION_BYTES = 1 << 32

TABLE_COLUMNS = 4
HOST_BASE, LENGTH, FLAGS = 0, 1, 2  # columns of `Memory.table`; column 3 is spare
READABLE, WRITABLE = 1, 2


# The bases that turn LDS and scratch into flat addresses; both lie above bit 47, so no region has them.
SHARED_APERTURE = 1 << 48
PRIVATE_APERTURE = 2 << 48

rule(
    "memory.apertures",
    Evidence.vendor,
    "amdkfd, kfd_flat_memory.c, GFX9 apertures; LLVM's SIISelLowering: a 32-bit read of an aperture gives its low half",
    "The flat aperture of LDS starts at 1 << 48 and that of scratch at 2 << 48, as the Linux driver sets them.",
)
rule(
    "memory.scratch",
    Evidence.chosen,
    "CDNA4 ISA 10.3 leaves the swizzle undefined; only a global access at FLAT_SCRATCH could tell",
    "Each lane's scratch lies in one piece. An access that begins past a lane's scratch is a fault.",
)
rule(
    "memory.store_order",
    Evidence.chosen,
    "the ISA text gives no order among the lanes of one store",
    "When lanes of one store overlap, the highest lane's bytes stay.",
)


@dataclass(frozen=True)
class Buffer:
    """One mapped buffer. address: its first byte, device side. nbytes: length. writable: whether kernels may store.
    on_device: index and address on the chip of memory that is there; no byte of it is mapped here, and nbytes is 0."""

    name: str
    address: int
    nbytes: int
    writable: bool
    on_device: tuple[int, int] | None = None

    @property
    def regions(self) -> range:
        """The region numbers it occupies: one, or one for each 4 GiB begun."""
        first = self.address // REGION_BYTES
        return range(first, first + max(1, -(-self.nbytes // REGION_BYTES)))


def _as_bytes(array: npt.NDArray[np.generic], name: str, writable: bool) -> Bytes:
    """The array's own memory as bytes; ValueError or TypeError where that memory cannot be handed to a kernel."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"buffer {name!r} is a {type(array).__name__}; map takes a numpy array (tensors: `.numpy()`)")
    if array.dtype.hasobject:
        raise TypeError(f"buffer {name!r} has dtype {array.dtype}, which holds Python objects, not bytes")
    if "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray):  # whose import takes its time
        raise TypeError(
            f"buffer {name!r} is a masked array, whose mask a kernel does not see; pass its .filled() values"
        )
    if array.dtype.newbyteorder("<") != array.dtype:
        raise ValueError(f"buffer {name!r} is big-endian ({array.dtype}); the chip is little-endian, so convert it")
    if not array.flags.c_contiguous:
        raise ValueError(
            f"buffer {name!r} (shape {array.shape}, strides {array.strides}) is not C-contiguous; "
            "buffers are mapped in place, so pass numpy.ascontiguousarray(array)"
        )
    if writable and not array.flags.writeable:
        raise ValueError(f"buffer {name!r} is a read-only numpy array; map it with writable=False, or copy it")
    return array.reshape(-1).view(np.uint8)


def _check_address(what: str, address: int) -> None:
    if not isinstance(address, int | np.integer):
        raise TypeError(f"{what}: {address!r} is a {type(address).__name__}; addresses and lengths are whole numbers")


class Memory:
    """All memory a launch can see, except LDS and scratch apertures.

    table: uint64 of shape (65536, 4), C-contiguous, one row a region: host address, length in bytes, flags (1 readable,
    2 writable), spare. It never moves, so compiled code may keep its address for the life of this object. The length of
    a row is what is left of the buffer from there on, so a large buffer is one piece across its rows.
    An access is good when its region exists and offset + nbytes <= length. Unaligned accesses are allowed.
    """

    def __init__(self) -> None:
        self.table: Addresses = np.zeros((REGIONS, TABLE_COLUMNS), np.uint64)
        self._next = 1
        self._bytes: dict[int, Bytes] = {}  # by first region; also keeps the caller's arrays alive
        self._buffers: dict[int, Buffer] = {}  # by region
        self._gone: dict[int, Buffer] = {}  # unmapped ones, for messages
        self._lock = threading.RLock()  # of what `map` and `unmap` change: launches may run on several threads

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The mapped buffers in order of address."""
        with self._lock:
            return tuple(self._buffers[number] for number in sorted(self._bytes))

    def map(self, array: npt.NDArray[np.generic], writable: bool = True, name: str | None = None) -> int:
        """Maps a C-contiguous numpy array in place and returns its device address; the array is kept alive.

        Kernels see later changes of the array and the array sees their stores. Raises TypeError or ValueError for
        arrays that have no plain memory, and LaunchError when the address space is used up.
        """
        label = name if name is not None else f"buffer{self._next}"
        data = _as_bytes(array, label, writable)
        with self._lock:
            return self._enter(Buffer(label, 0, data.size, writable), data)

    def map_on_device(self, index: int, address: int, name: str) -> int:
        """An emulated address that stands for memory of a real device, for launches there; here nothing reaches it."""
        with self._lock:
            return self._enter(Buffer(name, 0, 0, True, (index, address)), np.zeros(0, np.uint8))

    def _enter(self, wanted: Buffer, data: Bytes) -> int:
        buffer, host = self._place(wanted), data.ctypes.data
        for index, number in enumerate(buffer.regions):
            skipped = index * REGION_BYTES
            flags = READABLE | (WRITABLE if wanted.writable else 0)
            self.table[number, :3] = host + skipped, data.size - skipped, flags
            self._buffers[number] = buffer
        self._bytes[buffer.regions.start] = data
        return buffer.address

    def allocate(self, nbytes: int, name: str | None = None) -> int:
        """Maps `nbytes` zero bytes of the emulator's own and returns their device address."""
        if not isinstance(nbytes, int | np.integer) or nbytes < 0:
            raise ValueError(f"allocate({nbytes!r}): a buffer has a whole number of bytes, and no negative length")
        try:
            fresh = np.zeros(nbytes, np.uint8)
        except (ValueError, MemoryError) as error:
            raise LaunchError(f"allocate({nbytes}): this machine has not so much memory: {error}") from error
        return self.map(fresh, name=name)

    def unmap(self, address: int) -> None:
        """Takes away the buffer that starts at `address`; its addresses come up again only when all others are used."""
        _check_address("unmap", address)
        with self._lock:
            buffer = self._owner(address)
            if buffer is None or buffer.address != address:
                raise ValueError(f"unmap({address:#x}): no buffer starts there: {self.describe(address)}")
            for number in buffer.regions:
                self.table[number] = 0
                del self._buffers[number]
                self._gone[number] = buffer
            del self._bytes[buffer.regions.start]

    def view(self, address: int, nbytes: int) -> Bytes:
        """`nbytes` bytes at a device address as a numpy view of the buffer itself, for the host's use.

        Raises MemoryFault when they are not inside one buffer. The view is read-only where the buffer is.
        """
        _check_address("view", address)
        _check_address("view: the length", nbytes)
        buffer = self._owner(address)
        if nbytes < 0 or buffer is None or address + nbytes > buffer.address + buffer.nbytes:
            raise self.fault(address, nbytes, "the host looked at")
        offset = address - buffer.address
        window = self._bytes[buffer.regions.start][offset : offset + nbytes]
        if not buffer.writable:
            window = window.view()
            window.flags.writeable = False
        return window

    def load(self, addresses: Addresses, mask: Mask, nbytes: int) -> Words:
        """One load of a wave: uint32 of shape (words, 64), a column per lane; 1 and 2 bytes are zero-extended.

        addresses: uint64 (64,), mask: bool (64,), nbytes: 1, 2, 4, 8, 12 or 16. Lanes off the mask give 0.
        Raises MemoryFault for the lowest lane whose access is not inside one buffer.
        """
        self.check(addresses, mask, nbytes, READABLE)
        lanes = np.zeros((LANES, -(-nbytes // 4) * 4), np.uint8)
        for first, chosen in self._by_buffer(addresses, mask):
            lanes[chosen, :nbytes] = self._bytes[first][self._indices(first, addresses[chosen], nbytes)]
        return np.ascontiguousarray(lanes.view("<u4").T.astype(np.uint32, copy=False))

    def store(self, addresses: Addresses, mask: Mask, words: Words, nbytes: int) -> None:
        """One store of a wave: words is uint32 of shape (ceil(nbytes / 4), 64), of which the low `nbytes` bytes count.

        Nothing at all is written when any lane faults. Where lanes overlap the highest lane stays.
        """
        self.check(addresses, mask, nbytes, WRITABLE)
        needed = (-(-nbytes // 4), LANES)
        if words.shape != needed or words.dtype != np.uint32:
            got = f"{words.dtype} {words.shape}"
            raise ValueError(f"a store of {nbytes} bytes needs uint32 words of shape {needed}, got {got}")
        lanes = np.ascontiguousarray(words.T.astype("<u4", copy=False)).view(np.uint8)[:, :nbytes]
        for first, chosen in self._by_buffer(addresses, mask):
            indices = self._indices(first, addresses[chosen], nbytes)
            # One-dimensional on purpose: numpy promises that the last of repeated indices stays.
            self._bytes[first][indices.ravel()] = lanes[chosen].ravel()

    def describe(self, address: int) -> str:
        """What a device address is, in words, e.g. '12 bytes past the end of buffer "cache" (32768 bytes)'."""
        buffer = self._owner(address)
        if buffer is not None and address < buffer.address + buffer.nbytes:
            return f'byte {address - buffer.address} of buffer "{buffer.name}" ({buffer.nbytes} bytes)'
        if 0 <= address < REGION_BYTES:
            return "the null pointer" if address == 0 else f"{address} bytes past the null pointer"
        for base, what in ((SHARED_APERTURE, "LDS"), (PRIVATE_APERTURE, "scratch")):
            if base <= address < base + REGION_BYTES:
                return f"byte {address - base} of the {what} aperture, which only flat instructions reach"
        if not 0 <= address < REGIONS * REGION_BYTES:
            return "not an address: more than 48 bits"
        return self._describe_near(address, buffer)

    def _describe_near(self, address: int, buffer: Buffer | None) -> str:
        number = address // REGION_BYTES
        gone = self._gone.get(number)
        if gone is not None and address < gone.address + gone.nbytes:
            return f'byte {address - gone.address} of buffer "{gone.name}" ({gone.nbytes} bytes), which was unmapped'
        buffer = buffer or self._buffers.get(number - 1)
        after = self._buffers.get(number + 1)
        past = address - buffer.address - buffer.nbytes if buffer else REGION_BYTES
        before = after.address - address if after and after is not buffer else REGION_BYTES
        if after is not None and before < REGION_BYTES and before <= past:
            return f'{before} bytes before the start of buffer "{after.name}" ({after.nbytes} bytes)'
        if buffer is not None and past < REGION_BYTES:
            return f'{past} bytes past the end of buffer "{buffer.name}" ({buffer.nbytes} bytes)'
        return "nowhere near any buffer"

    def _owner(self, address: int) -> Buffer | None:
        return self._buffers.get(address // REGION_BYTES) if address >= 0 else None

    def _place(self, wanted: Buffer) -> Buffer:
        """The buffer at its place: fresh numbers first, then the lowest free run once those are used up."""
        count = len(wanted.regions)
        first = self._next
        if first + count > REGIONS:
            first = self._free_run(count)
        else:
            self._next = first + count
        for number in range(first, first + count):
            self._gone.pop(number, None)
        return replace(wanted, address=first * REGION_BYTES)

    def _free_run(self, count: int) -> int:
        free = 0
        for number in range(1, REGIONS):
            free = 0 if number in self._buffers else free + 1
            if free == count:
                return number - count + 1
        raise LaunchError(
            f"the emulated address space is full: {len(self._bytes)} buffers hold all {REGIONS - 1} regions",
            advice="unmap buffers that are no longer used, or pack small ones into one array",
        )

    def check(self, addresses: Addresses, mask: Mask, nbytes: int, need: int) -> None:
        """Raises MemoryFault for the lowest lane in `mask` whose access is not allowed. need: READABLE or WRITABLE."""
        if nbytes not in ACCESS_BYTES:
            raise ValueError(f"an access has {', '.join(map(str, ACCESS_BYTES))} bytes a lane, not {nbytes}")
        for what, array, dtype in (("addresses", addresses, np.uint64), ("mask", mask, np.bool_)):
            if array.shape != (LANES,) or array.dtype != dtype:
                raise ValueError(f"{what} must be {np.dtype(dtype)} of shape (64,), got {array.dtype} {array.shape}")
        region = addresses >> np.uint64(32)
        known = region < REGIONS
        rows = self.table[np.where(known, region, np.uint64(0))]
        end = (addresses & np.uint64(REGION_BYTES - 1)) + np.uint64(nbytes)
        good = known & (end <= rows[:, LENGTH]) & ((rows[:, FLAGS] & np.uint64(need)) != 0)
        bad = np.flatnonzero(mask & ~good)
        if bad.size:
            verb = "stores" if need == WRITABLE else "loads"
            raise self.fault(int(addresses[bad[0]]), nbytes, f"a lane {verb}", int(bad[0]), len(bad))

    def fault(self, address: int, nbytes: int, who: str, lane: int | None = None, lanes: int = 1) -> MemoryFault:
        """The error of an access that is not allowed. who: the start of its sentence. lanes: how many lanes fault."""
        buffer = self._owner(address)
        count = f" ({lanes} lanes of the wave fault, this is the lowest)" if lanes > 1 else ""
        what = f"{who} {nbytes} bytes at {self.describe(address)}{count}"
        if buffer is not None and not buffer.writable and address + nbytes <= buffer.address + buffer.nbytes:
            return MemoryFault(
                f"{what}, which is read-only",
                expected="a buffer mapped with writable=True",
                advice="map the buffer writable, or look for a wrong pointer in the kernel's arguments",
                lane=lane,
                address=address,
            )
        return MemoryFault(
            what,
            expected="all bytes of an access inside one mapped buffer",
            advice="check the index arithmetic and the lane mask; if the kernel may read past the end, map some slack",
            lane=lane,
            address=address,
        )

    def _by_buffer(self, addresses: Addresses, mask: Mask) -> list[tuple[int, npt.NDArray[np.intp]]]:
        """The active lanes, ascending, grouped by the first region of the buffer they access."""
        lanes = np.flatnonzero(mask)
        numbers = (addresses[lanes] >> np.uint64(32)).astype(np.int64)
        owners = {number: self._buffers[number].regions.start for number in set(numbers.tolist())}
        if len(owners) == 1:
            return [(owners.popitem()[1], lanes)]
        firsts = np.array([owners[number] for number in numbers.tolist()], np.int64)
        return [(first, lanes[firsts == first]) for first in sorted(set(owners.values()))]

    @staticmethod
    def _indices(first: int, addresses: Addresses, nbytes: int) -> npt.NDArray[np.int64]:
        offsets = (addresses - np.uint64(first * REGION_BYTES)).astype(np.int64)
        indices: npt.NDArray[np.int64] = offsets[:, None] + np.arange(nbytes, dtype=np.int64)
        return indices
