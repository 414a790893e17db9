"""The bodies behind emu.host_memory, in numba: imported only when translated code runs.

The usual case is quick: the lowest and the highest address of the active lanes lie in one buffer, so no lane needs a
check of its own. Anything else is done lane by lane, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from emu import host_memory
from emu.host_memory import (
    FAULT_ADDRESS,
    FAULT_BYTES,
    FAULT_KIND,
    FAULT_LANE,
    FAULT_LANES,
    LDS,
    LDS_BYTES,
    READABLE,
    TABLE,
    UNALIGNED,
    WATCH_HIGH,
    WATCH_LANE,
    WATCH_LOW,
    WATCH_PC,
    WATCH_SEEN,
    WATCH_WAVE,
    WAVE,
    WRITABLE,
)
from gfx950.arithmetic.native import watch_sources

CONSTANTS_FROM = host_memory  # named here so that watch_sources sees a change of the context's layout
EVERY_LANE = 0xFFFFFFFFFFFFFFFF


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
load64, _ = _access(64)

_WORD, _VECTOR = ir.IntType(32), ir.VectorType(ir.IntType(32), 4)


def _shuffle(builder: Any, a: Any, b: Any, *lanes: int) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes)))


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Four vectors of four words, rows and columns exchanged."""
    a, b, c, d = rows
    low, high = (0, 4, 1, 5), (2, 6, 3, 7)
    ab, cd = (_shuffle(builder, x, y, *low) for x, y in ((a, b), (c, d)))
    top = [_shuffle(builder, ab, cd, *half) for half in ((0, 1, 4, 5), (2, 3, 6, 7))]
    ab, cd = (_shuffle(builder, x, y, *high) for x, y in ((a, b), (c, d)))
    return top + [_shuffle(builder, ab, cd, *half) for half in ((0, 1, 4, 5), (2, 3, 6, 7))]


def _vector_at(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _VECTOR.as_pointer())


def _column_at(builder: Any, base: Any, lane: Any, word: int) -> Any:
    """Where word `word` of four lanes from `lane` on stands in registers at `base`."""
    index = builder.add(lane, ir.Constant(lane.type, 64 * word))
    return builder.bitcast(builder.gep(base, [index]), _VECTOR.as_pointer())


def _load_four(typing_context: Any, a: Any, b: Any, c: Any, d: Any, out: Any, lane: Any) -> Any:
    """Lanes `lane` to `lane` + 3 of a 16-byte load from four host addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = [builder.load(_vector_at(builder, x), align=1) for x in arguments[:4]]
        for word, column in enumerate(_transposed(builder, rows)):
            builder.store(column, _column_at(builder, arguments[4], arguments[5], word), align=4)
        return context.get_dummy_value()

    return types.void(a, b, c, d, out, lane), generate


def _store_four(typing_context: Any, a: Any, b: Any, c: Any, d: Any, data: Any, lane: Any) -> Any:
    """Lanes `lane` to `lane` + 3 of a 16-byte store to four host addresses, ascending."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = [_column_at(builder, arguments[4], arguments[5], word) for word in range(4)]
        rows = _transposed(builder, [builder.load(place, align=4) for place in places])
        for address, row in zip(arguments[:4], rows, strict=True):
            builder.store(row, _vector_at(builder, address), align=1)
        return context.get_dummy_value()

    return types.void(a, b, c, d, data, lane), generate


load_four: Any = intrinsic(_load_four)
store_four: Any = intrinsic(_store_four)


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
def _is_on(active: Any, lane: Any) -> Any:
    return (active >> types.uint64(lane)) & types.uint64(1) != types.uint64(0)


@njit(error_model="numpy")
def _settle(addresses: Any, active: Any) -> None:
    """Gives inactive lanes the address of the first active one. `active` is not 0."""
    if active == types.uint64(EVERY_LANE):
        return
    first = types.uint64(0)
    for lane in range(64):
        if _is_on(active, lane):
            first = addresses[lane]
            break
    for lane in range(64):
        addresses[lane] = addresses[lane] if _is_on(active, lane) else first


@njit(error_model="numpy")
def _extent(addresses: Any) -> Any:
    """The lowest and the highest address."""
    low = high = addresses[0]
    for lane in range(64):
        address = addresses[lane]
        low = address if address < low else low
        high = address if address > high else high
    return low, high


@njit(error_model="numpy")
def _in_row(addresses: Any) -> Any:
    """Whether the lanes' dwords follow each other."""
    first, off = addresses[0], types.uint64(0)
    for lane in range(64):
        off |= addresses[lane] ^ (first + types.uint64(4 * lane))
    return off == types.uint64(0)


# ---- without checks: `shift` is what makes an address a host address ---------------------------------------------


@njit(error_model="numpy")
def _load_all(addresses: Any, shift: Any, out: Any, nbytes: Any) -> None:
    if nbytes == 16:
        for step in range(16):
            lane = 4 * step
            a, b, c, d = addresses[lane], addresses[lane + 1], addresses[lane + 2], addresses[lane + 3]
            load_four(a + shift, b + shift, c + shift, d + shift, out, lane)
    elif nbytes == 8:
        for lane in range(64):
            both = load64(addresses[lane] + shift)
            out[lane] = types.uint32(both)
            out[64 + lane] = types.uint32(both >> types.uint64(32))
    elif nbytes == 4:
        for lane in range(64):
            out[lane] = load32(addresses[lane] + shift)
    elif nbytes == 2:
        for lane in range(64):
            out[lane] = types.uint32(load16(addresses[lane] + shift))
    elif nbytes == 1:
        for lane in range(64):
            out[lane] = types.uint32(load8(addresses[lane] + shift))
    else:
        for word in range(nbytes // 4):
            for lane in range(64):
                out[word * 64 + lane] = load32(addresses[lane] + shift + types.uint64(4 * word))


@njit(error_model="numpy")
def _keep_active(out: Any, active: Any, nbytes: Any) -> None:
    """Zeros in inactive lanes."""
    if active != types.uint64(EVERY_LANE):
        for word in range(max(nbytes // 4, 1)):
            for lane in range(64):
                at = word * 64 + lane
                out[at] = out[at] if _is_on(active, lane) else types.uint32(0)


@njit(error_model="numpy")
def _store_all(addresses: Any, shift: Any, data: Any, nbytes: Any) -> None:
    """Every lane, ascending."""
    if nbytes == 16:
        for step in range(16):
            lane = 4 * step
            a, b, c, d = addresses[lane], addresses[lane + 1], addresses[lane + 2], addresses[lane + 3]
            store_four(a + shift, b + shift, c + shift, d + shift, data, lane)
    elif nbytes == 4 and _in_row(addresses):
        first = addresses[0] + shift
        for lane in range(64):
            store32(first + types.uint64(4 * lane), data[lane])
    else:
        _store_some(addresses, types.uint64(EVERY_LANE), shift, data, nbytes)


@njit(error_model="numpy")
def _store_some(addresses: Any, active: Any, shift: Any, data: Any, nbytes: Any) -> None:
    """Active lanes, ascending."""
    size = min(nbytes, 4)
    for lane in range(64):
        if _is_on(active, lane):
            host = addresses[lane] + shift
            for word in range(max(nbytes // 4, 1)):
                _write(host + types.uint64(4 * word), data[word * 64 + lane], size)


@njit(error_model="numpy")
def _zero(out: Any, nbytes: Any) -> None:
    for at in range(64 * max(nbytes // 4, 1)):
        out[at] = types.uint32(0)


# ---- LDS ---------------------------------------------------------------------------------------------------------


@njit(error_model="numpy")
def _lds_load(context: Any, addresses: Any, active: Any, out: Any, nbytes: Any) -> Any:
    if active == types.uint64(0):
        _zero(out, nbytes)
        return 0
    _settle(addresses, active)
    _, high = _extent(addresses)
    if high + types.uint64(nbytes) <= context[LDS_BYTES]:
        _load_all(addresses, context[LDS], out, nbytes)
    else:
        _lds_load_apart(context, addresses, out, nbytes)
    _keep_active(out, active, nbytes)
    return 0


@njit(error_model="numpy")
def _lds_load_apart(context: Any, addresses: Any, out: Any, nbytes: Any) -> None:
    """Dword by dword: 0 where it is out of range."""
    base, limit, size = context[LDS], context[LDS_BYTES], min(nbytes, 4)
    for lane in range(64):
        for word in range(max(nbytes // 4, 1)):
            at = addresses[lane] + types.uint64(4 * word)
            good = at + types.uint64(size) <= limit
            out[word * 64 + lane] = _read(base + at, size) if good else types.uint32(0)


@njit(error_model="numpy")
def _lds_store(context: Any, addresses: Any, active: Any, data: Any, nbytes: Any) -> Any:
    if active == types.uint64(0):
        return 0
    _settle(addresses, active)
    _, high = _extent(addresses)
    base, limit, size = context[LDS], context[LDS_BYTES], min(nbytes, 4)
    if high + types.uint64(nbytes) <= limit:
        if active == types.uint64(EVERY_LANE):
            _store_all(addresses, base, data, nbytes)
        else:
            _store_some(addresses, active, base, data, nbytes)
        return 0
    for lane in range(64):
        if _is_on(active, lane):
            for word in range(max(nbytes // 4, 1)):
                at = addresses[lane] + types.uint64(4 * word)
                if at + types.uint64(size) <= limit:
                    _write(base + at, data[word * 64 + lane], size)
    return 0


# ---- memory ------------------------------------------------------------------------------------------------------


@njit(error_model="numpy")
def _room(context: Any, address: Any, last: Any, nbytes: Any, need: Any) -> Any:
    """What makes addresses from `address` to `last` (its `nbytes` too) host addresses; 0 when not all are allowed."""
    if address >> types.uint64(48) or last < address or last >> types.uint64(48):
        return types.uint64(0)
    row = context[TABLE] + (address >> types.uint64(32)) * types.uint64(32)
    start = address & types.uint64(0xFFFFFFFF00000000)
    host, length, flags = load64(row), load64(row + types.uint64(8)), load64(row + types.uint64(16))
    if flags & types.uint64(need) == types.uint64(0) or last - start + types.uint64(nbytes) > length:
        return types.uint64(0)
    return host - start


@njit(error_model="numpy")
def _first_fault(context: Any, addresses: Any, active: Any, nbytes: Any, need: Any) -> Any:
    """Checks lane by lane. Returns 1 after noting the lowest lane that may not do this, else 0."""
    bad = 0
    for lane in range(64):
        if _is_on(active, lane) and _room(context, addresses[lane], addresses[lane], nbytes, need) == 0:
            if bad == 0:
                _fault(context, lane, addresses[lane], nbytes, need)
            bad += 1
    context[FAULT_LANES] = types.uint64(bad)
    return 1 if bad else 0


@njit(error_model="numpy")
def _fault(context: Any, lane: Any, address: Any, nbytes: Any, kind: Any) -> Any:
    context[FAULT_LANE] = types.uint64(lane)
    context[FAULT_ADDRESS] = address
    context[FAULT_BYTES] = types.uint64(nbytes)
    context[FAULT_KIND] = types.uint64(kind)
    context[FAULT_LANES] = types.uint64(1)
    return 1


@njit(error_model="numpy")
def _global_load(context: Any, addresses: Any, active: Any, out: Any, nbytes: Any) -> Any:
    if active == types.uint64(0):
        _zero(out, nbytes)
        return 0
    _settle(addresses, active)
    low, high = _extent(addresses)
    shift = _room(context, low, high, nbytes, READABLE)
    if shift != types.uint64(0):
        _load_all(addresses, shift, out, nbytes)
    elif _first_fault(context, addresses, active, nbytes, READABLE):
        return 1
    else:
        _global_load_apart(context, addresses, out, nbytes)
    _keep_active(out, active, nbytes)
    return 0


@njit(error_model="numpy")
def _global_load_apart(context: Any, addresses: Any, out: Any, nbytes: Any) -> None:
    """Lanes in several buffers, all of them checked."""
    for lane in range(64):
        host = addresses[lane] + _room(context, addresses[lane], addresses[lane], nbytes, READABLE)
        for word in range(max(nbytes // 4, 1)):
            out[word * 64 + lane] = _read(host + types.uint64(4 * word), min(nbytes, 4))


@njit(error_model="numpy")
def _watch(context: Any, addresses: Any, active: Any, nbytes: Any, pc: Any) -> None:
    if context[WATCH_HIGH] == types.uint64(0):
        return
    for lane in range(64):
        address = addresses[lane]
        if (
            _is_on(active, lane)
            and address < context[WATCH_HIGH]
            and address + types.uint64(nbytes) > context[WATCH_LOW]
        ):
            context[WATCH_SEEN] += types.uint64(1)
            context[WATCH_PC] = types.uint64(pc)
            context[WATCH_LANE] = types.uint64(lane)
            context[WATCH_WAVE] = context[WAVE]


@njit(error_model="numpy")
def _global_store(context: Any, addresses: Any, active: Any, data: Any, nbytes: Any, pc: Any) -> Any:
    if active == types.uint64(0):
        return 0
    _settle(addresses, active)
    low, high = _extent(addresses)
    shift = _room(context, low, high, nbytes, WRITABLE)
    if shift != types.uint64(0):
        if active == types.uint64(EVERY_LANE):
            _store_all(addresses, shift, data, nbytes)
        else:
            _store_some(addresses, active, shift, data, nbytes)
    elif _first_fault(context, addresses, active, nbytes, WRITABLE):
        return 1
    else:
        for lane in range(64):
            if _is_on(active, lane):
                host = addresses[lane] + _room(context, addresses[lane], addresses[lane], nbytes, WRITABLE)
                for word in range(max(nbytes // 4, 1)):
                    _write(host + types.uint64(4 * word), data[word * 64 + lane], min(nbytes, 4))
    _watch(context, addresses, active, nbytes, pc)
    return 0


@njit(error_model="numpy")
def _scalar_load(context: Any, address: Any, out: Any, words: Any) -> Any:
    if words == 0:
        return 0
    shift = _room(context, address, address, 4 * words, READABLE)
    if shift == types.uint64(0):
        _fault(context, 0, address, 4 * words, READABLE)
        context[FAULT_LANES] = types.uint64(0)  # no lane's
        return 1
    for word in range(words):
        out[word] = load32(address + shift + types.uint64(4 * word))
    return 0


# ---- atomics: the places of the lanes ----------------------------------------------------------------------------


@njit(error_model="numpy")
def _lds_places(context: Any, addresses: Any, active: Any, nbytes: Any) -> Any:
    """LDS addresses of atomics become host addresses, 0 for lanes that take no part."""
    base, limit = context[LDS], context[LDS_BYTES]
    for lane in range(64):
        good = _is_on(active, lane) and addresses[lane] + types.uint64(nbytes) <= limit
        addresses[lane] = base + addresses[lane] if good else types.uint64(0)
    return 0


@njit(error_model="numpy")
def _global_places(context: Any, addresses: Any, active: Any, nbytes: Any, pc: Any) -> Any:
    """Addresses of atomics on memory become host addresses, 0 for inactive lanes; all lanes are checked first."""
    for lane in range(64):
        if _is_on(active, lane) and addresses[lane] & types.uint64(nbytes - 1):
            return _fault(context, lane, addresses[lane], nbytes, UNALIGNED)
    if _first_fault(context, addresses, active, nbytes, WRITABLE):
        return 1
    _watch(context, addresses, active, nbytes, pc)
    for lane in range(64):
        address = addresses[lane]
        if _is_on(active, lane):
            addresses[lane] = address + _room(context, address, address, nbytes, WRITABLE)
        else:
            addresses[lane] = types.uint64(0)
    return 0


_pointer: Any = types.CPointer
_U32, _U64 = _pointer(types.uint32), _pointer(types.uint64)
_LOAD = types.int64(_U64, _U64, types.uint64, _U32, types.int64)
_STORE = types.int64(_U64, _U64, types.uint64, _U32, types.int64, types.int64)
_SCALAR = types.int64(_U64, types.uint64, _U32, types.int64)
_PLACES = types.int64(_U64, _U64, types.uint64, types.int64)
_CHECKED_PLACES = types.int64(_U64, _U64, types.uint64, types.int64, types.int64)


def _host_function(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: a function with an address, kept in numba's disk cache until a file it depends on changes."""

    def make(body: Callable[..., Any]) -> Any:
        maker: Any = CFunc
        types_of = (signature.args, signature.return_type)
        function = maker(body, types_of, locals={}, options={"error_model": "numpy"})
        function.enable_caching()
        watch_sources(function._cache, body)
        function.compile()
        return function

    return make


@_host_function(_LOAD)
def lds_load(context: Any, addresses: Any, active: Any, out: Any, nbytes: Any) -> Any:
    return _lds_load(context, addresses, active, out, nbytes)


@_host_function(_LOAD)
def lds_store(context: Any, addresses: Any, active: Any, data: Any, nbytes: Any) -> Any:
    return _lds_store(context, addresses, active, data, nbytes)


@_host_function(_LOAD)
def global_load(context: Any, addresses: Any, active: Any, out: Any, nbytes: Any) -> Any:
    return _global_load(context, addresses, active, out, nbytes)


@_host_function(_STORE)
def global_store(context: Any, addresses: Any, active: Any, data: Any, nbytes: Any, pc: Any) -> Any:
    return _global_store(context, addresses, active, data, nbytes, pc)


@_host_function(_SCALAR)
def scalar_load(context: Any, address: Any, out: Any, words: Any) -> Any:
    return _scalar_load(context, address, out, words)


@_host_function(_PLACES)
def lds_places(context: Any, addresses: Any, active: Any, nbytes: Any) -> Any:
    return _lds_places(context, addresses, active, nbytes)


@_host_function(_CHECKED_PLACES)
def global_places(context: Any, addresses: Any, active: Any, nbytes: Any, pc: Any) -> Any:
    return _global_places(context, addresses, active, nbytes, pc)


def compiled() -> dict[str, Any]:
    """The functions by name."""
    functions = (lds_load, lds_store, global_load, global_store, scalar_load, lds_places, global_places)
    return {f.__name__: f for f in functions}
