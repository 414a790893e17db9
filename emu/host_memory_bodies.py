"""The bodies behind emu.host_memory, in numba: imported only when translated code runs."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import cfunc, njit, types
from numba.extending import intrinsic

from emu.host_memory import (
    FAULT_ADDRESS,
    FAULT_BYTES,
    FAULT_LANE,
    LDS,
    LDS_BYTES,
    STORED,
    TABLE,
    WATCH_HIGH,
    WATCH_LANE,
    WATCH_LOW,
    WATCH_PC,
    WATCH_SEEN,
    WATCH_WAVE,
    WAVE,
)

READABLE, WRITABLE = 1, 2


def _access(bits: int) -> tuple[Any, Any]:
    """Intrinsics that load and store `bits` at an integer host address, unaligned."""
    kind = getattr(types, f"uint{bits}")

    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            return builder.load(pointer, align=1)

        return kind(types.uint64), generate

    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = arguments[1]
            if value.type.width > bits:
                value = builder.trunc(value, ir.IntType(bits))
            builder.store(value, pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.uint64, value), generate

    return load, store


load8, store8 = _access(8)
load16, store16 = _access(16)
load32, store32 = _access(32)


@njit(error_model="numpy")
def _read(address: Any, nbytes: Any) -> Any:
    if nbytes == 1:
        return types.uint32(load8(address))
    if nbytes == 2:
        return types.uint32(load16(address))
    return load32(address)


@njit(error_model="numpy")
def _write(address: Any, value: Any, nbytes: Any) -> None:
    if nbytes == 1:
        store8(address, value)
    elif nbytes == 2:
        store16(address, value)
    else:
        store32(address, value)


@njit(error_model="numpy")
def _lds_load(context: Any, addresses: Any, active: Any, out: Any, nbytes: Any) -> Any:
    base, limit = context[LDS], context[LDS_BYTES]
    size = min(nbytes, 4)
    words = max(nbytes // 4, 1)
    for lane in range(64):
        on = (active >> types.uint64(lane)) & types.uint64(1)
        first = types.uint64(addresses[lane])
        if on and first + types.uint64(nbytes) <= limit:
            for word in range(words):
                out[word * 64 + lane] = _read(base + first + types.uint64(4 * word), size)
        else:
            for word in range(words):
                at = first + types.uint64(4 * word)
                good = on and at + types.uint64(size) <= limit
                out[word * 64 + lane] = _read(base + at, size) if good else types.uint32(0)
    return 0


@njit(error_model="numpy")
def _lds_store(context: Any, addresses: Any, active: Any, data: Any, nbytes: Any) -> Any:
    base, limit = context[LDS], context[LDS_BYTES]
    size = min(nbytes, 4)
    for lane in range(64):
        if (active >> types.uint64(lane)) & types.uint64(1):
            for word in range(max(nbytes // 4, 1)):
                at = types.uint64(addresses[lane]) + types.uint64(4 * word)
                if at + types.uint64(size) <= limit:
                    _write(base + at, data[word * 64 + lane], size)
    return 0


@njit(error_model="numpy")
def _host(context: Any, address: Any, nbytes: Any, need: Any) -> Any:
    """The host address of an access, 0 when it is not allowed."""
    if address >> types.uint64(48):
        return types.uint64(0)
    row = context[TABLE] + (address >> types.uint64(32)) * types.uint64(32)
    offset = address & types.uint64(0xFFFFFFFF)
    host, length, flags = _load64(row), _load64(row + types.uint64(8)), _load64(row + types.uint64(16))
    if flags & types.uint64(need) == types.uint64(0) or offset + types.uint64(nbytes) > length:
        return types.uint64(0)
    return host + offset


@njit(error_model="numpy")
def _load64(address: Any) -> Any:
    return types.uint64(load32(address)) | types.uint64(load32(address + types.uint64(4))) << types.uint64(32)


@njit(error_model="numpy")
def _fault(context: Any, lane: Any, address: Any, nbytes: Any) -> Any:
    context[FAULT_LANE] = types.uint64(lane)
    context[FAULT_ADDRESS] = address
    context[FAULT_BYTES] = types.uint64(nbytes)
    return 1


@njit(error_model="numpy")
def _global_load(context: Any, addresses: Any, active: Any, out: Any, nbytes: Any) -> Any:
    size = min(nbytes, 4)
    words = max(nbytes // 4, 1)
    for lane in range(64):
        if (active >> types.uint64(lane)) & types.uint64(1):
            host = _host(context, addresses[lane], nbytes, READABLE)
            if host == 0:
                return _fault(context, lane, addresses[lane], nbytes)
            for word in range(words):
                out[word * 64 + lane] = _read(host + types.uint64(4 * word), size)
        else:
            for word in range(words):
                out[word * 64 + lane] = types.uint32(0)
    return 0


@njit(error_model="numpy")
def _watch(context: Any, lane: Any, address: Any, nbytes: Any, pc: Any) -> None:
    if address < context[WATCH_HIGH] and address + types.uint64(nbytes) > context[WATCH_LOW]:
        context[WATCH_SEEN] += types.uint64(1)
        context[WATCH_PC] = types.uint64(pc)
        context[WATCH_LANE] = types.uint64(lane)
        context[WATCH_WAVE] = context[WAVE]


@njit(error_model="numpy")
def _global_store(context: Any, addresses: Any, active: Any, data: Any, nbytes: Any, pc: Any) -> Any:
    size = min(nbytes, 4)
    watched = context[WATCH_HIGH] != types.uint64(0)
    for lane in range(64):
        if (active >> types.uint64(lane)) & types.uint64(1) and _host(context, addresses[lane], nbytes, WRITABLE) == 0:
            return _fault(context, lane, addresses[lane], nbytes)
    for lane in range(64):
        if (active >> types.uint64(lane)) & types.uint64(1):
            host = _host(context, addresses[lane], nbytes, WRITABLE)
            for word in range(max(nbytes // 4, 1)):
                _write(host + types.uint64(4 * word), data[word * 64 + lane], size)
            if watched:
                _watch(context, lane, addresses[lane], nbytes, pc)
    context[STORED] += types.uint64(nbytes)
    return 0


@njit(error_model="numpy")
def _lds_places(context: Any, addresses: Any, active: Any, nbytes: Any) -> Any:
    """LDS addresses of atomics become host addresses, 0 for lanes that take no part."""
    base, limit = context[LDS], context[LDS_BYTES]
    for lane in range(64):
        on = (active >> types.uint64(lane)) & types.uint64(1)
        good = on and addresses[lane] + types.uint64(nbytes) <= limit
        addresses[lane] = base + addresses[lane] if good else types.uint64(0)
    return 0


@njit(error_model="numpy")
def _global_places(context: Any, addresses: Any, active: Any, nbytes: Any, pc: Any) -> Any:
    """Addresses of atomics on memory become host addresses, 0 for inactive lanes; all lanes are checked first."""
    watched = context[WATCH_HIGH] != types.uint64(0)
    for lane in range(64):
        if (active >> types.uint64(lane)) & types.uint64(1):
            unaligned = addresses[lane] & types.uint64(nbytes - 1)
            if unaligned or _host(context, addresses[lane], nbytes, WRITABLE) == 0:
                return _fault(context, lane, addresses[lane], nbytes)
    for lane in range(64):
        if (active >> types.uint64(lane)) & types.uint64(1):
            if watched:
                _watch(context, lane, addresses[lane], nbytes, pc)
            addresses[lane] = _host(context, addresses[lane], nbytes, WRITABLE)
        else:
            addresses[lane] = types.uint64(0)
    context[STORED] += types.uint64(nbytes)
    return 0


@njit(error_model="numpy")
def _scalar_load(context: Any, address: Any, out: Any, words: Any) -> Any:
    if words == 0:
        return 0
    host = _host(context, address, 4 * words, READABLE)
    if host == 0:
        return _fault(context, 0, address, 4 * words)
    for word in range(words):
        out[word] = load32(host + types.uint64(4 * word))
    return 0


_pointer: Any = types.CPointer
carray: Any = numba.carray  # type: ignore[attr-defined]
_U32, _U64 = _pointer(types.uint32), _pointer(types.uint64)
_LDS = types.int64(_U64, _U32, types.uint64, _U32, types.int64)
_LOAD = types.int64(_U64, _U64, types.uint64, _U32, types.int64)
_STORE = types.int64(_U64, _U64, types.uint64, _U32, types.int64, types.int64)
_SCALAR = types.int64(_U64, types.uint64, _U32, types.int64)
_PLACES = types.int64(_U64, _U64, types.uint64, types.int64)
_CHECKED_PLACES = types.int64(_U64, _U64, types.uint64, types.int64, types.int64)


@cfunc(_LDS, cache=True, error_model="numpy")
def lds_load(context: Any, addresses: Any, active: Any, out: Any, nbytes: Any) -> Any:
    return _lds_load(carray(context, 16), carray(addresses, 64), active, carray(out, 256), nbytes)


@cfunc(_LDS, cache=True, error_model="numpy")
def lds_store(context: Any, addresses: Any, active: Any, data: Any, nbytes: Any) -> Any:
    return _lds_store(carray(context, 16), carray(addresses, 64), active, carray(data, 256), nbytes)


@cfunc(_LOAD, cache=True, error_model="numpy")
def global_load(context: Any, addresses: Any, active: Any, out: Any, nbytes: Any) -> Any:
    return _global_load(carray(context, 16), carray(addresses, 64), active, carray(out, 256), nbytes)


@cfunc(_STORE, cache=True, error_model="numpy")
def global_store(context: Any, addresses: Any, active: Any, data: Any, nbytes: Any, pc: Any) -> Any:
    return _global_store(carray(context, 16), carray(addresses, 64), active, carray(data, 256), nbytes, pc)


@cfunc(_SCALAR, cache=True, error_model="numpy")
def scalar_load(context: Any, address: Any, out: Any, words: Any) -> Any:
    return _scalar_load(carray(context, 16), address, carray(out, 16), words)


@cfunc(_PLACES, cache=True, error_model="numpy")
def lds_places(context: Any, addresses: Any, active: Any, nbytes: Any) -> Any:
    return _lds_places(carray(context, 16), carray(addresses, 64), active, nbytes)


@cfunc(_CHECKED_PLACES, cache=True, error_model="numpy")
def global_places(context: Any, addresses: Any, active: Any, nbytes: Any, pc: Any) -> Any:
    return _global_places(carray(context, 16), carray(addresses, 64), active, nbytes, pc)


def compiled() -> dict[str, Any]:
    """The functions by name."""
    functions = (lds_load, lds_store, global_load, global_store, scalar_load, lds_places, global_places)
    return {f.__name__: f for f in functions}
