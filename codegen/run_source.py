"""Runs a traced program on the CPU: the source's own bits, without any compiler.

The waves of several workgroups run together: values are arrays (waves, 64), scalars (1, 1) or (waves, 1), the waves of
the first workgroup first. Control flow is a mask of active lanes; every memory access is checked. A program becomes a
list of Python closures once and runs for each batch of workgroups, in ascending order.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from codegen.ir import TYPE_NAMES, Argument, Block, Op, Program, Value, instruction_of
from codegen.run_exact import DEFAULT_MODE, MODE_BITS, ExactStep, prepare
from emu.argument_numbers import Refusal, number_bytes
from emu.engines.numpy_engine import FLOATS, OPERATIONS, SIGNED, UNSIGNED, NumpyEngine
from emu.errors import EmulatorError, LaunchError, MemoryFault
from emu.geometry import LARGEST_GRID
from emu.memory import Memory
from emu.register_checks import UnsupportedForm
from emu.wave import Wave
from gfx950.evidence import Evidence, rule
from gfx950.isa.registry import Instruction
from gfx950.lanes import F32, LANES, U32, U64, Lanes, Mask, Mode, Words
from gfx950.models import in_force

Array = NDArray[Any]
Step = Callable[["_Group"], None]
Workgroup = tuple[int, int, int]

SOURCE_STORES = rule(
    "source.store_order",
    Evidence.chosen,
    "a race free program cannot tell",
    "In a source run an operation is done by all waves of a batch of workgroups before the next one; where lanes of one"
    " store overlap, the bytes of the last workgroup's highest thread stay.",
)
BATCH_WAVES = 512  # waves that run together: more share numpy's cost of a call, until their arrays leave the cache

_KEPT_BYTES = 30 << 20


class SourceError(EmulatorError):
    """A kernel does in its source what no kernel may; the message has the source line and the operation."""


class Observer(Protocol):
    """Sees every operation of a source run; attached ones cost time, absent ones nothing."""

    def operation(
        self, op: Op, operands: Sequence[Array], results: Sequence[Array], active: Array, workgroup: Any
    ) -> None:
        """After `op`: its raw values (broadcastable to (waves, 64)) and the mask of active lanes, bool (waves, 64).

        With an observer attached, workgroups run one at a time; `workgroup` is the id.
        """
        ...


def run_source(
    program: Program,
    grid: Sequence[int],
    arguments: Sequence[Any],
    *,
    memory: Memory | None = None,
    observers: Sequence[Observer] = (),
) -> None:
    """Runs `grid` workgroups (1 to 3 numbers) of a program.

    arguments: for pointers a C-contiguous numpy array (mapped in place, stores change it) or a device address of
    `memory`; for scalars a Python or numpy number, converted as `emu.argument_numbers.number_bytes` says.
    Raises LaunchError for wrong arguments, MemoryFault and SourceError with kernel, workgroup, wave, lane and source
    line.
    """
    if not isinstance(program, Program):
        raise LaunchError(
            f"the program is {program!r:.60}",
            expected="a traced program: `trace(kernel)` makes one of a function under `@kernel`",
        )
    _keep_freed_memory()
    space = memory if memory is not None else Memory()
    shape = _grid(program, grid)
    mapped: list[int] = []
    try:
        values = _argument_values(program, arguments, space, mapped)
        machine = _Machine(program, values, space, observers)
        workgroups = ((x, y, z) for z in range(shape[2]) for y in range(shape[1]) for x in range(shape[0]))
        size = 1 if observers else max(1, BATCH_WAVES // program.waves)
        while batch := list(itertools.islice(workgroups, size)):
            machine.run(batch)
    finally:
        for address in mapped:
            space.unmap(address)


@functools.cache
def _keep_freed_memory() -> None:
    """Has the C library keep what a run's many arrays free, for the next ones, instead of giving the pages back to the
    system each time: glibc keeps up to twice the largest block that it has seen freed, of at most 32 MiB."""
    np.empty(_KEPT_BYTES, np.uint8)


def _grid(program: Program, grid: Sequence[int]) -> tuple[int, int, int]:
    sizes = list(grid) if isinstance(grid, Sequence) else []
    if not 1 <= len(sizes) <= 3 or not all(isinstance(n, int | np.integer) and 1 <= n <= LARGEST_GRID for n in sizes):
        raise LaunchError(
            f"the grid is {grid!r}", expected="1 to 3 positive numbers of workgroups", kernel=program.name
        )
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _argument_values(program: Program, arguments: Sequence[Any], memory: Memory, mapped: list[int]) -> list[Array]:
    if len(arguments) != len(program.arguments):
        names = ", ".join(a.name for a in program.arguments)
        raise LaunchError(
            f"{len(arguments)} arguments for {len(program.arguments)} parameters",
            expected=f"({names})",
            kernel=program.name,
        )
    values = []
    for declared, given in zip(program.arguments, arguments, strict=True):
        if isinstance(given, np.ndarray) and given.ndim > 0:
            if not declared.pointer:
                raise LaunchError(
                    f"argument `{declared.name}` is an array",
                    expected=f"a {declared.kind.__name__}",
                    kernel=program.name,
                )
            address = memory.map(given, writable=given.flags.writeable, name=declared.name)
            mapped.append(address)
            values.append(_scalar(address, 64))
        else:
            values.append(_scalar(_number_bits(program, declared, given), declared.kind.width))
    return values


def _number_bits(program: Program, declared: Argument, given: Any) -> int:
    kind = declared.kind
    encoded = number_bytes(TYPE_NAMES[kind], kind.width // 8, given)
    if isinstance(encoded, Refusal):
        raise LaunchError(
            f"argument `{declared.name}` is {given!r:.60}",
            expected=f"a {kind.__name__}: {encoded.expected}",
            advice=encoded.advice,
            kernel=program.name,
        )
    return int.from_bytes(encoded, "little")


def _scalar(bits: int, width: int) -> Array:
    return np.array([[bits]], dtype=UNSIGNED[width])


# ---- a batch of workgroups -------------------------------------------------------------------------


class _Machine:
    """A program made runnable for one launch."""

    def __init__(
        self, program: Program, arguments: Sequence[Array], memory: Memory, observers: Sequence[Observer]
    ) -> None:
        self.program, self.memory, self.observers = program, memory, observers
        self.engine = NumpyEngine(Mode())
        self.arguments = arguments
        self.steps = _Builder(self).block(program.body)
        self.global_bytes = _GlobalBytes(memory)
        self.wave = Wave(memory=memory)  # what exact instructions run on

    def run(self, workgroups: Sequence[Workgroup]) -> None:
        """Runs some workgroups together."""
        group = _Group(self, workgroups)
        with np.errstate(all="ignore"):
            for step in self.steps:
                step(group)


class _Group:
    """The state of a batch: values, LDS, active lanes.

    threads, live: thread number in its workgroup, and whether it exists, (waves, 64). lds_base: where in `lds` the
    workgroup of each thread has its bytes, flat. whole: whether every lane of every wave is active.
    """

    __slots__ = (
        "active", "engine", "env", "lds", "lds_base", "live", "machine", "modes", "steps", "threads", "whole",
        "workgroups",
    )  # fmt: skip

    def __init__(self, machine: _Machine, workgroups: Sequence[Workgroup]) -> None:
        program, count = machine.program, len(workgroups)
        self.machine, self.workgroups = machine, workgroups
        self.engine = machine.engine
        self.env: dict[Value, Array] = {}
        size = program.waves * LANES
        self.threads = np.tile(np.arange(size, dtype=np.uint32).reshape(program.waves, LANES), (count, 1))
        room = -(-program.lds // 16) * 16
        self.lds = _Bytes(np.zeros(room * count, np.uint8), room * count)
        self.lds_base = np.repeat(np.arange(count, dtype=np.int64) * room, size)
        self.live = self.threads < program.block
        self.modes = np.full(len(self.threads), DEFAULT_MODE, np.uint32)  # of each wave
        self.steps = 0  # clocks read
        self.mask(self.live)

    def mask(self, active: Array) -> None:
        """Sets the active lanes."""
        self.active = active
        self.whole = bool(active.all())

    def full(self, value: Array) -> Array:
        """A value in every lane: (waves, 64)."""
        shape = self.active.shape
        return value if value.shape == shape else np.broadcast_to(value, shape)

    def by_workgroup(self, mask: Array) -> Array:
        """A mask as (workgroups, threads)."""
        return mask.reshape(len(self.workgroups), -1)


class _Bytes:
    """Bytes with quick access to aligned units of 4, 8 and 16. nbytes: how many count."""

    __slots__ = ("data", "nbytes", "units", "words")

    def __init__(self, data: NDArray[np.uint8], nbytes: int) -> None:
        self.data, self.nbytes = data, nbytes
        self.units: dict[int, Array] = {n: data[: len(data) // n * n].view(f"V{n}") for n in (8, 16)}
        self.words = data[: len(data) // 4 * 4].view("<u4")

    def load(self, offsets: Array, nbytes: int) -> list[Array]:
        """Words at in-range byte offsets (n,): a list of uint32 (n,)."""
        unaligned = int(np.bitwise_or.reduce(offsets)) & (nbytes - 1 if nbytes in self.units else 3)
        if unaligned & 3 or nbytes < 4:
            return self._load_bytes(offsets, nbytes)
        if nbytes in self.units and not unaligned:
            units = self.units[nbytes].take(offsets >> nbytes.bit_length() - 1)
            loaded = units.view("<u4").reshape(-1, nbytes // 4)
            return list(np.ascontiguousarray(loaded.T))
        first = offsets >> 2
        return [self.words.take(first + w) for w in range(nbytes // 4)]

    def _load_bytes(self, offsets: Array, nbytes: int) -> list[Array]:
        raw = np.zeros((len(offsets), 4 * max(1, nbytes // 4)), np.uint8)
        raw[:, :nbytes] = self.data[offsets[:, None] + np.arange(nbytes)]
        return list(raw.view("<u4").T)

    def store(self, offsets: Array, words: Sequence[Array], nbytes: int) -> None:
        """Stores words (n,) at in-range byte offsets (n,); of equal bytes the last stays."""
        unaligned = int(np.bitwise_or.reduce(offsets)) & (nbytes - 1 if nbytes in self.units else 3)
        if nbytes == 4 and not unaligned:
            self.words[offsets >> 2] = words[0]
            return
        raw = np.empty((len(offsets), len(words)), "<u4")
        for index, word in enumerate(words):
            raw[:, index] = word
        if nbytes in self.units and not unaligned:
            self.units[nbytes][offsets >> nbytes.bit_length() - 1] = raw.view(f"V{nbytes}").reshape(-1)
        else:
            self._store_bytes(offsets, raw, nbytes)

    def _store_bytes(self, offsets: Array, raw: Array, nbytes: int) -> None:
        index = (offsets[:, None] + np.arange(nbytes)).ravel()
        self.data[index] = raw.view(np.uint8)[:, :nbytes].ravel()


class _GlobalBytes:
    """The mapped buffers by region, for accesses whose lanes all fall into one writable enough buffer."""

    def __init__(self, memory: Memory) -> None:
        self.regions: dict[int, tuple[_Bytes, bool]] = {}
        for buffer in memory.buffers:
            if buffer.nbytes and len(buffer.regions) == 1:
                view = memory.view(buffer.address, buffer.nbytes)
                self.regions[buffer.regions.start] = (_Bytes(view, buffer.nbytes), buffer.writable)

    def find(self, addresses: Array, nbytes: int, writes: bool) -> tuple[_Bytes, Array] | None:
        """The buffer and byte offsets of all addresses (n,), None where they are not all good in one buffer."""
        low, high = int(addresses.min()), int(addresses.max())
        entry = self.regions.get(low >> 32)
        if entry is None or high >> 32 != low >> 32 or (writes and not entry[1]):
            return None
        if (high & 0xFFFFFFFF) + nbytes > entry[0].nbytes:
            return None
        return entry[0], (addresses - np.uint64(low >> 32 << 32)).view(np.int64)


# ---- building steps ------------------------------------------------------------------------------


class _Builder:
    """Turns operations into closures."""

    def __init__(self, machine: _Machine) -> None:
        self.machine = machine

    def block(self, block: Block) -> list[Step]:
        """The steps of a region, its yield left out. Values go when nothing reads them any more: their memory, still in
        the cache, is the next one's."""
        unread = _unread_after(block)
        steps: list[Step] = []
        for number, op in enumerate(block.ops):
            if op.name != "yield":
                steps.append(self._observed(op, self._step(op)))
                steps += [_forget(unread[number])] if number in unread else []
        return steps

    def _step(self, op: Op) -> Step:
        if op.name in _FAST:
            return _FAST[op.name](op)
        if op.name in OPERATIONS:
            return _primitive(op)
        return _STEPS[op.name](self, op)

    def _observed(self, op: Op, step: Step) -> Step:
        observers = self.machine.observers
        if not observers:
            return step

        def run(group: _Group) -> None:
            step(group)
            values = ([group.env[v] for v in side] for side in (op.operands, op.results))
            operands, results = values
            for observer in observers:
                observer.operation(op, operands, results, group.active, group.workgroups[0])

        return run


def _unread_after(block: Block) -> dict[int, list[Value]]:
    """By the number of an operation: the block's own values that it, or what is inside it, reads last."""
    last = dict.fromkeys(block.arguments, 0) | {v: number for number, op in enumerate(block.ops) for v in op.results}
    for number, op in enumerate(block.ops):
        last.update((v, number) for v in _reads(op) if v in last)
    unread: dict[int, list[Value]] = {}
    for value, number in last.items():
        unread.setdefault(number, []).append(value)
    return unread


def _reads(op: Op) -> Iterator[Value]:
    yield from op.operands
    for region in op.regions:
        for inner in region.ops:
            yield from _reads(inner)


def _forget(values: Sequence[Value]) -> Step:
    def run(group: _Group) -> None:
        for value in values:
            del group.env[value]

    return run


def _primitive(op: Op) -> Step:
    """Any primitive through the engine. Widths as in `Engine.apply`: the operands' for comparisons."""
    function, result, operands = OPERATIONS[op.name], op.results[0], op.operands
    width = operands[0].width if result.width == 1 and op.name not in ("lanes_of", "select", "trunc") else result.width

    def run(group: _Group) -> None:
        env = group.env
        env[result] = function(group.engine, width, *(env[o] for o in operands))

    return run


def _plain(function: Callable[..., Array]) -> Callable[[Op], Step]:
    """Operations that are one numpy function of two raw values."""

    def build(op: Op) -> Step:
        result = op.results[0]
        a, b = op.operands

        def run(group: _Group) -> None:
            env = group.env
            env[result] = function(env[a], env[b])

        return run

    return build


def _signed_compare(function: Callable[..., Array]) -> Callable[[Op], Step]:
    def build(op: Op) -> Step:
        result = op.results[0]
        a, b = op.operands
        kind = SIGNED[a.width]

        def run(group: _Group) -> None:
            env = group.env
            env[result] = function(env[a].view(kind), env[b].view(kind))

        return run

    return build


def _float_fast(name: str, function: Callable[..., Array]) -> Callable[[Op], Step]:
    """Float arithmetic; only results with a NaN take the engine's way, which applies the NaN rule."""

    def build(op: Op) -> Step:
        result = op.results[0]
        a, b = op.operands
        kind, raw, width = FLOATS[result.width], UNSIGNED[result.width], result.width

        def run(group: _Group) -> None:
            env = group.env
            x, y = env[a], env[b]
            value = function(x.view(kind), y.view(kind))
            least = value.min()
            env[result] = value.view(raw) if least == least else OPERATIONS[name](group.engine, width, x, y)

        return run

    return build


def _shift_fast(name: str, function: Callable[..., Array]) -> Callable[[Op], Step]:
    def build(op: Op) -> Step:
        result = op.results[0]
        a, b = op.operands
        limit = UNSIGNED[result.width](result.width - 1)

        def run(group: _Group) -> None:
            env = group.env
            env[result] = function(env[a], env[b] & limit)

        return run

    return build


_FAST: dict[str, Callable[[Op], Step]] = {
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "and": _plain(np.bitwise_and),
    "or": _plain(np.bitwise_or),
    "xor": _plain(np.bitwise_xor),
    "eq": _plain(np.equal),
    "ne": _plain(np.not_equal),
    "ult": _plain(np.less),
    "ule": _plain(np.less_equal),
    "slt": _signed_compare(np.less),
    "sle": _signed_compare(np.less_equal),
    "shl": _shift_fast("shl", np.left_shift),
    "lshr": _shift_fast("lshr", np.right_shift),
    "fadd": _float_fast("fadd", np.add),
    "fsub": _float_fast("fsub", np.subtract),
    "fmul": _float_fast("fmul", np.multiply),
    "fdiv": _float_fast("fdiv", np.divide),
}


def _step_constant(builder: _Builder, op: Op) -> Step:
    return _known(op, _scalar(op.attributes["bits"], op.results[0].width))


def _step_argument(builder: _Builder, op: Op) -> Step:
    return _known(op, builder.machine.arguments[op.attributes["index"]])


def _step_thread_id(builder: _Builder, op: Op) -> Step:
    result = op.results[0]

    def run(group: _Group) -> None:
        group.env[result] = group.threads

    return run


def _known(op: Op, value: Array) -> Step:
    result = op.results[0]

    def run(group: _Group) -> None:
        group.env[result] = value

    return run


def _step_workgroup_id(builder: _Builder, op: Op) -> Step:
    result, axis = op.results[0], op.attributes["axis"]

    def run(group: _Group) -> None:
        ids = np.array([w[axis] for w in group.workgroups], np.uint32)
        group.env[result] = np.repeat(ids, len(group.active) // len(ids))[:, None]

    return run


# ---- errors --------------------------------------------------------------------------------------


def _place(group: _Group, op: Op, flat: int | None = None) -> dict[str, Any]:
    """Location fields: kernel, operation with its source line; of a flat thread index the workgroup, wave and lane."""
    where: dict[str, Any] = {
        "kernel": group.machine.program.name,
        "instruction": f"{op.attributes.get('mnemonic', op.name)} ({op.where})",
    }
    if flat is not None:
        number, thread = divmod(flat, group.machine.program.waves * LANES)
        where |= {"workgroup": group.workgroups[number], "wave": thread // LANES, "lane": thread % LANES}
    return where


def _check_aligned(group: _Group, op: Op, addresses: Array, lanes: Array | None) -> None:
    align = op.attributes["align"]
    if int(np.bitwise_or.reduce(addresses)) & align - 1:
        at = int(np.flatnonzero(addresses & addresses.dtype.type(align - 1))[0])
        what = f"{op.name} of {op.attributes['nbytes']} bytes at address {int(addresses[at]):#x}"
        raise SourceError(
            f"{what}, which is not a multiple of {align}",
            expected=f"addresses aligned to the {align} bytes the source states (align=)",
            advice="fix the address arithmetic, or state a smaller align",
            **_place(group, op, _thread(lanes, at)),
        )


def _thread(lanes: Array | None, at: int) -> int:
    return at if lanes is None else int(lanes[at])


# ---- memory --------------------------------------------------------------------------------------


def _active_flat(group: _Group, value: Array) -> tuple[Array, Array | None]:
    """A value in the active lanes, flat, and their thread numbers (None: all)."""
    flat = group.full(value).reshape(-1)
    if group.whole:
        return flat, None
    lanes = np.flatnonzero(group.active)
    return flat[lanes], lanes


def _spread(group: _Group, op: Op, words: Sequence[Array], lanes: Array | None) -> None:
    """Loaded words into the result values; inactive lanes get 0."""
    for result, word in zip(op.results, words, strict=True):
        if lanes is None:
            full = np.ascontiguousarray(word)
        else:
            full = np.zeros(group.active.size, np.uint32)
            full[lanes] = word
        group.env[result] = full.reshape(group.active.shape)


def _step_load(builder: _Builder, op: Op) -> Step:
    address, nbytes = op.operands[0], op.attributes["nbytes"]

    def run(group: _Group) -> None:
        addresses, lanes = _active_flat(group, group.env[address])
        if not len(addresses):
            return _spread(group, op, [addresses.astype(np.uint32)] * len(op.results), lanes)
        _check_aligned(group, op, addresses, lanes)
        found = group.machine.global_bytes.find(addresses, nbytes, writes=False)
        words = found[0].load(found[1], nbytes) if found else _load_by_wave(group, op, addresses, lanes)
        _spread(group, op, words, lanes)

    return run


def _step_store(builder: _Builder, op: Op) -> Step:
    address, *data = op.operands
    nbytes = op.attributes["nbytes"]

    def run(group: _Group) -> None:
        addresses, lanes = _active_flat(group, group.env[address])
        if not len(addresses):
            return
        _check_aligned(group, op, addresses, lanes)
        words = [_active_flat(group, group.env[d])[0] for d in data]
        found = group.machine.global_bytes.find(addresses, nbytes, writes=True)
        if found:
            found[0].store(found[1], words, nbytes)
        else:
            _store_by_wave(group, op, addresses, lanes, words)

    return run


def _waves_of(group: _Group, lanes: Array | None) -> Iterator[tuple[int, Array, Array]]:
    """For every wave: its number, the active lanes, and their positions in the flat arrays of active lanes."""
    threads = np.arange(group.active.size) if lanes is None else lanes
    for wave in range(len(group.active)):
        at = np.flatnonzero(threads // LANES == wave)
        if len(at):
            yield wave, threads[at] % LANES, at


def _wave_access(addresses: Array, here: Array, at: Array) -> tuple[Array, Array]:
    wide, mask = np.zeros(LANES, np.uint64), np.zeros(LANES, bool)
    wide[here], mask[here] = addresses[at], True
    return wide, mask


def _load_by_wave(group: _Group, op: Op, addresses: Array, lanes: Array | None) -> list[Array]:
    """The general way: lanes in different buffers, or an error to report."""
    nbytes = op.attributes["nbytes"]
    words = np.zeros((len(op.results), len(addresses)), np.uint32)
    for wave, here, at in _waves_of(group, lanes):
        try:
            words[:, at] = group.machine.memory.load(*_wave_access(addresses, here, at), nbytes)[:, here]
        except MemoryFault as fault:
            raise fault.located(**_place(group, op, wave * LANES)) from None
    return list(words)


def _store_by_wave(group: _Group, op: Op, addresses: Array, lanes: Array | None, words: Sequence[Array]) -> None:
    nbytes = op.attributes["nbytes"]
    for wave, here, at in _waves_of(group, lanes):
        wide = np.zeros((len(words), LANES), np.uint32)
        wide[:, here] = [w[at] for w in words]
        try:
            group.machine.memory.store(*_wave_access(addresses, here, at), wide, nbytes)
        except MemoryFault as fault:
            raise fault.located(**_place(group, op, wave * LANES)) from None


def _lds_offsets(group: _Group, op: Op, address: Value) -> tuple[Array, Array | None]:
    addresses, lanes = _active_flat(group, group.env[address])
    nbytes, size = op.attributes["nbytes"], group.machine.program.lds
    offsets = addresses.astype(np.int64)
    if len(offsets) and int(offsets.max()) + nbytes > size:
        at = int(np.flatnonzero(offsets + nbytes > size)[0])
        raise SourceError(
            f"{op.name} of {nbytes} bytes at LDS address {int(offsets[at]):#x} of {size} bytes",
            expected="every access inside the LDS the kernel declares",
            advice="fix the address arithmetic, or declare more with @kernel(lds=bytes)",
            **_place(group, op, _thread(lanes, at)),
        )
    _check_aligned(group, op, offsets, lanes)
    return offsets + (group.lds_base if lanes is None else group.lds_base[lanes]), lanes


def _step_lds_read(builder: _Builder, op: Op) -> Step:
    address, nbytes = op.operands[0], op.attributes["nbytes"]

    def run(group: _Group) -> None:
        offsets, lanes = _lds_offsets(group, op, address)
        _spread(group, op, group.lds.load(offsets, nbytes), lanes)

    return run


def _step_lds_write(builder: _Builder, op: Op) -> Step:
    address, *data = op.operands
    nbytes = op.attributes["nbytes"]

    def run(group: _Group) -> None:
        offsets, _ = _lds_offsets(group, op, address)
        if len(offsets):
            group.lds.store(offsets, [_active_flat(group, group.env[d])[0] for d in data], nbytes)

    return run


def _step_barrier(builder: _Builder, op: Op) -> Step:
    def run(group: _Group) -> None:
        arrived, live = group.by_workgroup(group.active), group.by_workgroup(group.live)
        missing = live & ~arrived & arrived.any(axis=-1, keepdims=True)
        if missing.any():
            at = int(np.flatnonzero(missing)[0])
            there = at // live.shape[1]
            raise SourceError(
                f"a barrier is reached by {int(arrived[there].sum())} of {int(live[there].sum())} threads",
                expected="every thread of the workgroup at every barrier",
                advice="take it out of `when`, `branch` or a loop whose trips differ; the lane named is missing",
                **_place(group, op, at),
            )

    return run


# ---- across lanes, and instructions --------------------------------------------------------------


def _check_sources(group: _Group, op: Op, wanted: Array) -> None:
    """wanted: bool (waves, 64), the lanes that are read. An inactive one has no defined value on the machine."""
    bad = wanted & ~group.active
    if bad.any():
        raise SourceError(
            f"{op.attributes.get('mnemonic', op.name)} reads a lane that is not active",
            expected="all lanes that exchange values to run together",
            advice="move it out of `when`, `branch` or the loop whose trips differ; the lane named is inactive",
            **_place(group, op, int(np.flatnonzero(bad)[0])),
        )


def _check_whole_waves(group: _Group, op: Op) -> None:
    if not group.whole:
        _check_sources(group, op, group.full(np.asarray(group.active.any(axis=-1, keepdims=True))))


def _step_permute(builder: _Builder, op: Op) -> Step:
    value, result = op.operands[0], op.results[0]
    lanes = np.array(op.attributes["lanes"])
    span = _closed_span(op.attributes["lanes"])

    def run(group: _Group) -> None:
        if not group.whole:
            spans = group.active.reshape(len(group.active), -1, span).any(axis=-1, keepdims=True)
            _check_sources(group, op, np.repeat(spans, span, axis=-1).reshape(group.active.shape))
        group.env[result] = group.full(group.env[value])[:, lanes]

    return run


def _closed_span(lanes: Sequence[int]) -> int:
    """The smallest aligned run of lanes that a permutation stays in.

    Such a run must be active as a whole: a permutation may become two moves, with other lanes of the run between them.
    """
    spans = (2, 4, 8, 16, 32)
    return next((s for s in spans if all(n // s == i // s for i, n in enumerate(lanes))), LANES)


def _step_readfirstlane(builder: _Builder, op: Op) -> Step:
    value, result = op.operands[0], op.results[0]

    def run(group: _Group) -> None:
        first = group.active.argmax(axis=-1)[:, None]
        group.env[result] = np.take_along_axis(group.full(group.env[value]), first, axis=-1)

    return run


def _step_ballot(op: Op) -> Step:
    value, result = op.operands[0], op.results[0]

    def run(group: _Group) -> None:
        group.env[result] = OPERATIONS["ballot"](group.engine, 64, group.env[value] & group.active)

    return run


def _step_gather(op: Op) -> Step:
    value, lanes = op.operands
    result, width = op.results[0], op.results[0].width

    def run(group: _Group) -> None:
        index = group.full(group.env[lanes]) & np.uint32(63)
        if not group.whole:
            read = np.zeros(group.active.shape, bool)
            waves, here = np.nonzero(group.active)
            read[waves, index[waves, here]] = True
            _check_sources(group, op, read)
        group.env[result] = OPERATIONS["gather"](group.engine, width, group.full(group.env[value]), index)

    return run


def _step_readlane(op: Op) -> Step:
    value, lane = op.operands
    result, width = op.results[0], op.results[0].width

    def run(group: _Group) -> None:
        if not group.whole:
            read = group.full(group.env[lane] & np.uint32(63)) == np.arange(LANES)
            _check_sources(group, op, read & group.active.any(axis=-1, keepdims=True))
        group.env[result] = OPERATIONS["readlane"](group.engine, width, group.env[value], group.env[lane])

    return run


_FAST |= {"ballot": _step_ballot, "gather": _step_gather, "readlane": _step_readlane}


def _extreme(mnemonic: str, function: Callable[..., Array], signs: Callable[..., Array]) -> Callable[[Op], Step]:
    """A maximum or minimum: numpy's function, but for two zeros, of which it may take either and `signs` the right one;
    where a result is NaN, the body of that instruction."""

    def build(op: Op) -> Step:
        a, b = op.operands
        result, instruction = op.results[0], instruction_of(mnemonic)

        def run(group: _Group) -> None:
            x, y = group.env[a], group.env[b]
            value = function(x.view(np.float32), y.view(np.float32))
            least = value.min()
            if least != least:
                sources = [F32(group.engine, o) for o in (x, y, y)]
                group.env[result] = instruction.body(*sources[: len(instruction.parameters)]).raw
                return
            bits = value.view(np.uint32)
            group.env[result] = bits if value.all() else np.where(value == 0, signs(x, y) & _SIGN, bits)

        return run

    return build


_SIGN = np.uint32(0x80000000)
_FAST |= {
    "fmaximum": _extreme("v_maximum3_f32", np.maximum, np.bitwise_and),
    "fminimum": _extreme("v_minimum3_f32", np.minimum, np.bitwise_or),
}


def _step_inst(builder: _Builder, op: Op) -> Step:
    instruction = instruction_of(op.attributes["mnemonic"])
    if instruction.name in _QUICK:
        return _QUICK[instruction.name](op)
    if any(p.place == "lds" for p in instruction.parameters):
        return _step_exact(builder, op)
    read = _reader(instruction, op)
    exchanges = instruction.ignores_exec or "permlane" in instruction.name or "mfma" in instruction.name

    def run(group: _Group) -> None:
        if exchanges:
            _check_whole_waves(group, op)
        values = instruction.body(*read(group))
        flat = _flatten(values if isinstance(values, tuple) else (values,))
        group.env.update(zip(op.results, flat, strict=True))

    return _active_waves_only(op, run) if instruction.ignores_exec else run


# ---- instructions with a quicker way to the same bits ----------------------------------------------


def _step_pack_e4m3(op: Op) -> Step:
    """v_cvt_pk_fp8_f32 by a table: the code of a number follows from its upper half and whether the lower one is 0."""
    a, b, old = op.operands
    result, upper = op.results[0], op.attributes["immediates"]["op_sel"] >> 3 & 1
    shift, kept = np.uint32(16 * upper), np.uint32(0xFFFF if upper else 0xFFFF0000)

    def run(group: _Group) -> None:
        env, codes = group.env, _e4m3_codes(in_force().digest)
        low, high = (codes.take(_upper_half(env[x])) for x in (a, b))
        env[result] = ((low | high << np.uint32(8)) << shift) | (env[old] & kept)

    return run


def _upper_half(bits: Array) -> Array:
    """Its last place is set where the lower half is not 0: that rounds to 6 places or less as all of it does."""
    rest: Array = bits & np.uint32(0xFFFF)
    return bits >> np.uint32(16) | np.minimum(rest, np.uint32(1))


@functools.lru_cache(maxsize=4)
def _e4m3_codes(_model: str) -> Array:
    """uint32 [65536]: what the instruction makes of each upper half under the model in force, of this digest."""
    engine = NumpyEngine(Mode())
    halves = np.arange(1 << 16, dtype=np.uint32).reshape(-1, LANES)
    values, zero = F32(engine, halves << np.uint32(16)), U32(engine, _scalar(0, 32))
    packed: Array = instruction_of("v_cvt_pk_fp8_f32").body(values, values, zero, 0).raw
    return packed.ravel() & np.uint32(0xFF)


def _step_perm(op: Op) -> Step:
    """v_perm_b32 of one selector that picks bytes alone."""
    high, low, selector = op.operands
    result, body = op.results[0], instruction_of("v_perm_b32").body

    def run(group: _Group) -> None:
        env, chosen = group.env, group.env[selector]
        picks = chosen.astype("<u4").reshape(-1).view(np.uint8)
        if chosen.size > 1 or picks.max() > 7:
            env[result] = body(*(U32(group.engine, env[o]) for o in op.operands)).raw
            return
        sources = [np.ascontiguousarray(group.full(env[o])).view(np.uint8) for o in (low, high)]
        made = np.empty(sources[0].shape, np.uint8)
        for place, pick in enumerate(picks.tolist()):
            made[:, place::4] = sources[pick // 4][:, pick % 4 :: 4]
        env[result] = made.view(np.uint32)

    return run


def _step_swap(rows: int) -> Callable[[Op], Step]:
    """v_permlane*_swap_b32: the upper half of every 2 * `rows` lanes of the one for the lower half of the other."""

    def build(op: Op) -> Step:
        operands, results = op.operands, op.results

        def run(group: _Group) -> None:
            _check_whole_waves(group, op)
            pairs = [group.full(group.env[o]).reshape(-1, 2, rows) for o in operands]  # [row pairs][half][lanes]
            for half, result in enumerate(results):
                swapped = np.stack([pair[:, half] for pair in pairs], axis=1)
                group.env[result] = swapped.reshape(group.active.shape)

        return run

    return build


_QUICK: dict[str, Callable[[Op], Step]] = {
    "v_max_f32": _extreme("v_max_f32", np.maximum, np.bitwise_and),
    "v_cvt_pk_fp8_f32": _step_pack_e4m3,
    "v_perm_b32": _step_perm,
    "v_permlane16_swap_b32": _step_swap(16),
    "v_permlane32_swap_b32": _step_swap(32),
}


# ---- exact instructions, MODE, the clock -----------------------------------------------------------


def _step_exact(builder: _Builder, op: Op) -> Step:
    """Wave after wave through the machine's own execution: modifiers, EXEC and MODE are those of the decoded form."""
    step = ExactStep(op)

    def run(group: _Group) -> None:
        active = group.active if step.mask is None else group.active & group.env[step.mask]
        given = [group.full(group.env[place.value]) for place in step.given]
        made: list[Array] = [np.zeros(group.active.shape, UNSIGNED[place.value.width]) for place in step.made]
        for wave in np.flatnonzero(group.active.any(axis=-1)):
            state = _wave(group, int(wave), active[wave])
            try:
                results = step.run(state, [values[wave] for values in given], group.active[wave])
            except (UnsupportedForm, EmulatorError) as problem:
                raise SourceError(
                    f"{step.form.text}: {problem}",
                    expected="a form that the machine runs",
                    advice="change the operands or the modifiers",
                    **_place(group, op, int(wave) * LANES),
                ) from problem
            for array, result in zip(made, results, strict=True):
                array[wave] = result
        group.env.update(zip(op.results, made, strict=True))

    return run


def _wave(group: _Group, number: int, active: Array) -> Wave:
    """The machine's wave, made ready to run one wave's instruction."""
    state, first = group.machine.wave, int(group.lds_base[number * LANES])
    prepare(state, int(group.modes[number]), active, group.lds.data[first : first + group.machine.program.lds])
    return state


def _step_set_mode(builder: _Builder, op: Op) -> Step:
    value = op.operands[0]

    def run(group: _Group) -> None:
        words = group.full(group.env[value])
        for wave in np.flatnonzero(group.active.any(axis=-1)):
            word = words[wave, group.active[wave].argmax()] & np.uint32(MODE_BITS)
            group.modes[wave] = group.modes[wave] & np.uint32(~MODE_BITS & 0xFFFFFFFF) | word

    return run


def _step_clock(builder: _Builder, op: Op) -> Step:
    result = op.results[0]

    def run(group: _Group) -> None:
        group.steps += 1
        group.env[result] = _scalar(group.steps, 64)

    return run


def _active_waves_only(op: Op, run: Step) -> Step:
    """An instruction of whole waves costs by the wave: the waves that are inactive are left out."""

    def some(group: _Group) -> None:
        active = group.active.any(axis=-1)
        if active.all():
            return run(group)
        env, shape = group.env, group.active.shape
        taken = {v: env[v] for v in op.operands}
        env.update({v: x[active] if len(x) == shape[0] else x for v, x in taken.items()})
        run(group)
        env.update(taken)
        for result in op.results:
            whole = np.zeros(shape, env[result].dtype)
            whole[active] = env[result]
            env[result] = whole

    return some


def _flatten(values: Sequence[Any]) -> list[Array]:
    raw: list[Array] = []
    for value in values:
        raw += [w.raw for w in value.words] if isinstance(value, Words) else [value.raw]
    return raw


def _reader(instruction: Instruction, op: Op) -> Callable[[_Group], list[Any]]:
    """What gives the body's arguments in a workgroup."""
    rest = list(op.operands)
    readers: list[Callable[[_Group], Any]] = []
    for parameter in instruction.parameters:
        kind = parameter.kind
        if kind is Mode:
            readers.append(lambda group: group.engine.mode)
        elif parameter.place == "exec":
            readers.append(_exec_bits)
        elif kind is int:
            readers.append(_static(op.attributes["immediates"][parameter.name]))
        elif issubclass(kind, Words):
            readers.append(_words_reader(kind, rest[: kind.count]))
            rest = rest[kind.count :]
        else:
            readers.append(_lane_reader(kind, rest.pop(0)))
    return lambda group: [reader(group) for reader in readers]


def _exec_bits(group: _Group) -> U64:
    return Mask(group.engine, group.active).ballot()


def _static(value: int) -> Callable[[_Group], int]:
    return lambda group: value


def _lane_reader(kind: type[Lanes], value: Value) -> Callable[[_Group], Lanes]:
    return lambda group: kind(group.engine, group.env[value])


def _words_reader(kind: type[Words], values: Sequence[Value]) -> Callable[[_Group], Words]:
    return lambda group: kind([U32(group.engine, group.env[v]) for v in values])


# ---- control -------------------------------------------------------------------------------------


def _run(group: _Group, steps: Sequence[Step]) -> None:
    for step in steps:
        step(group)


def _step_when(builder: _Builder, op: Op) -> Step:
    mask, steps = op.operands[0], builder.block(op.regions[0])

    def run(group: _Group) -> None:
        outer = group.active, group.whole
        taken = outer[0] & group.env[mask]
        if taken.any():
            group.mask(taken)
            _run(group, steps)
            group.active, group.whole = outer

    return run


def _step_branch(builder: _Builder, op: Op) -> Step:
    mask = op.operands[0]
    sides = [(builder.block(region), region.yielded) for region in op.regions]

    def run(group: _Group) -> None:
        outer = group.active, group.whole
        condition = group.env[mask]
        taken = [(outer[0] & c, *side) for c, side in zip((condition, ~condition), sides, strict=True)]
        outcomes: list[list[Array]] = []
        for active, steps, yielded in taken:
            if active.any() or (not outcomes and not taken[1][0].any()):
                group.mask(active)
                _run(group, steps)
                outcomes.append([group.env[v] for v in yielded])
        group.active, group.whole = outer
        _merge(group, op, condition, outcomes)

    return run


def _merge(group: _Group, op: Op, condition: Array, outcomes: Sequence[Sequence[Array]]) -> None:
    if len(outcomes) == 1:
        group.env.update(zip(op.results, outcomes[0], strict=True))
        return
    for result, first, second in zip(op.results, *outcomes, strict=True):
        group.env[result] = first if first is second else np.where(condition, first, second)


def _step_loop(builder: _Builder, op: Op) -> Step:
    start, stop, step, *initial = op.operands
    region = op.regions[0]
    index, *carried = region.arguments
    steps, yielded = builder.block(region), region.yielded

    def run(group: _Group) -> None:
        env, outer = group.env, (group.active, group.whole)
        last, stride = env[stop].view(np.int32), env[step]
        _check_stride(group, op, stride)
        now, current = env[start], [env[v] for v in initial]
        live = outer[0] & (now.view(np.int32) < last)
        while live.any():
            if not np.array_equal(live, group.active):
                group.mask(live)
            env[index] = now
            env.update(zip(carried, current, strict=True))
            _run(group, steps)
            later = [env[v] for v in yielded]
            finished = outer[0] & ~live
            current = _advance(live, current, later) if finished.any() else later
            now = now + stride
            live = live & (now.view(np.int32) < last)
        group.active, group.whole = outer
        env.update(zip(op.results, current, strict=True))

    return run


def _advance(live: Array, before: Sequence[Array], after: Sequence[Array]) -> list[Array]:
    """Carried values after a trip that only `live` lanes made."""
    return [b if b is a else np.where(live, a, b) for b, a in zip(before, after, strict=True)]


def _check_stride(group: _Group, op: Op, stride: Array) -> None:
    bad = group.active & (stride.view(np.int32) <= 0)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise SourceError(
            f"a loop's step is {int(group.full(stride).view(np.int32).reshape(-1)[at])}",
            expected="a positive step",
            advice="count upwards and compute the falling value from the index",
            **_place(group, op, at),
        )


_STEPS: dict[str, Callable[[_Builder, Op], Step]] = {
    "constant": _step_constant,
    "argument": _step_argument,
    "thread_id": _step_thread_id,
    "workgroup_id": _step_workgroup_id,
    "load": _step_load,
    "store": _step_store,
    "lds_read": _step_lds_read,
    "lds_write": _step_lds_write,
    "barrier": _step_barrier,
    "permute": _step_permute,
    "readfirstlane": _step_readfirstlane,
    "inst": _step_inst,
    "exact": _step_exact,
    "set_mode": _step_set_mode,
    "clock": _step_clock,
    "when": _step_when,
    "branch": _step_branch,
    "loop": _step_loop,
}
