"""Running the kernel on the CPU: its source, or its gfx950 code on the emulated machine, with checked inputs."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from codegen.compile import Compiled, compile_kernels
from codegen.ir import Program
from codegen.kernel_package import Watchpoint
from codegen.kernels.drafter_attention.cases import (
    BLOCK,
    HEAD_DIM,
    KEY_BYTES,
    MAX_PARTITIONS,
    MAXB,
    PARTIAL_BYTES,
    Q_HEADS,
    QKV_WIDTH,
    QPR,
    ROT,
    SCALE_GROUP,
    THREADS,
    WINDOW,
    Inputs,
)
from codegen.kernels.drafter_attention.kernel import drafter_attention, drafter_merge
from codegen.language import trace
from codegen.run_source import run_source
from emu.dispatch import Device, Module, RunOptions, RunReport

MERGE_TASKS = 4  # workgroups a token: four heads each
MAX_OFFSET = 1 << 32  # bytes an index inside one array may reach


@dataclass(frozen=True)
class Outputs:
    """What the kernel leaves. a8: E4M3 codes uint8 [T][2048]. as8: E8M0 scales uint8 [T][64]. cache: uint8
    [nblk][128][256] with the new rows. partials: uint8 [requests * na][58368]; bytes that no wave writes (m and l of
    rows 112 .. 127) are 0."""

    a8: NDArray[np.uint8]
    as8: NDArray[np.uint8]
    cache: NDArray[np.uint8]
    partials: NDArray[np.uint8]


@functools.cache
def programs() -> tuple[Program, Program]:
    """The traced programs: drafter_attention, drafter_merge."""
    return trace(drafter_attention), trace(drafter_merge)


@functools.cache
def compiled() -> Compiled:
    """Both kernels in one gfx950 object."""
    return compile_kernels(programs())


def run_source_case(inputs: Inputs) -> Outputs:
    """The source's own bits: the IR on the CPU. Raises as `check_inputs`."""
    check_inputs(inputs)
    outputs = _outputs(inputs)
    attention, merge = programs()
    run_source(attention, _attention_grid(inputs), _attention_arguments(inputs, outputs))
    run_source(merge, _merge_grid(inputs), _merge_arguments(inputs, outputs))
    return outputs


def run_machine_case(
    inputs: Inputs,
    code_object: bytes | None = None,
    options: RunOptions | None = None,
    watch: Watchpoint | None = None,
) -> tuple[Outputs, RunReport]:
    """The bits of gfx950 code on the emulated machine (or a device), and what the two launches did.

    code_object: an ELF with both kernels; our own object when not given. watch: a byte of an output whose last writer
    the report names. Raises as `check_inputs`, and emu's errors.
    """
    check_inputs(inputs)
    outputs = _outputs(inputs)
    if code_object is None:
        linked = options is not None and options.engine == "device"
        code_object = compiled().code_object if linked else compiled().object
    module = _loaded(code_object)
    total = RunReport()
    launches = (
        ("drafter_attention", _attention_grid(inputs), _attention_arguments(inputs, outputs)),
        ("drafter_merge", _merge_grid(inputs), _merge_arguments(inputs, outputs)),
    )
    if watch is not None and watch.output not in [f.name for f in fields(Outputs)]:
        names = ", ".join(f.name for f in fields(Outputs))
        raise ValueError(f"there is no output {watch.output!r} to watch; there are: {names}")
    watched = None if watch is None else (getattr(outputs, watch.output), watch.byte)
    for name, grid, arguments in launches:
        here = watched if watched is not None and any(a is watched[0] for a in arguments) else None
        total.add(module[name][grid, THREADS](*arguments, options=options, watch=here))
    return outputs, total


@functools.lru_cache(maxsize=4)
def _loaded(code_object: bytes) -> Module:
    """The object on a device of its own: translated once for all runs."""
    return Device().load(code_object)


def _outputs(inputs: Inputs) -> Outputs:
    width = Q_HEADS * HEAD_DIM
    return Outputs(
        a8=np.zeros((inputs.tokens, width), np.uint8),
        as8=np.zeros((inputs.tokens, width // SCALE_GROUP), np.uint8),
        cache=inputs.cache.copy(),
        partials=np.zeros((inputs.requests * inputs.na, PARTIAL_BYTES), np.uint8),
    )


def _attention_grid(inputs: Inputs) -> tuple[int, int]:
    return inputs.na, inputs.requests


def _merge_grid(inputs: Inputs) -> tuple[int, int, int]:
    return MERGE_TASKS, QPR, inputs.requests


def _attention_arguments(inputs: Inputs, outputs: Outputs) -> list[object]:
    return [
        inputs.qkv,
        inputs.positions,
        inputs.slots,
        inputs.seq_lens,
        inputs.block_table,
        outputs.cache,
        inputs.qn,
        inputs.kn,
        inputs.cos_sin,
        outputs.partials,
        np.int32(inputs.block_table.shape[1]),
        np.int32(len(inputs.cache)),
        np.int32(inputs.na),
        np.float32(inputs.eps),
    ]


def _merge_arguments(inputs: Inputs, outputs: Outputs) -> list[object]:
    return [outputs.partials, outputs.a8, outputs.as8, np.int32(inputs.na)]


# ---- input checks ----------------------------------------------------------------------------------------------------

_DTYPES = {
    "qkv": np.uint16,
    "positions": np.int64,
    "slots": np.int64,
    "seq_lens": np.int32,
    "block_table": np.int32,
    "cache": np.uint8,
    "qn": np.uint16,
    "kn": np.uint16,
    "cos_sin": np.uint16,
}


def check_inputs(inputs: Inputs) -> None:
    """Refuses what the kernel would read past an array with, or silently clamp in a live request, one with a key in its
    window. Raises TypeError for anything but a C-contiguous numpy array of the expected dtype, ValueError for shapes
    and values; both name the array, the index and what was expected."""
    if not isinstance(inputs, Inputs):
        raise TypeError(f"the inputs are a {type(inputs).__name__}; expected an Inputs (build(case) makes one)")
    for name, dtype in _DTYPES.items():
        _check_array(name, getattr(inputs, name), np.dtype(dtype))
    _check_shapes(inputs)
    _check_scalars(inputs)
    _check_numbers("positions", inputs.positions, 0, len(inputs.cos_sin), "the rows of cos_sin")
    _check_numbers("slots", inputs.slots, -(1 << 31), len(inputs.cache) * BLOCK, "the cache's slots; negative for none")
    _check_numbers("seq_lens", inputs.seq_lens, 0, 1 << 31, "numbers of keys")
    _check_distinct_slots(inputs.slots)
    for request in range(inputs.requests):
        _check_request(inputs, request)


def _check_scalars(inputs: Inputs) -> None:
    na, eps = inputs.na, inputs.eps
    if isinstance(na, bool) or not isinstance(na, int | np.integer):
        raise TypeError(f"na is {na!r}, a {type(na).__name__}; expected a whole number of partitions")
    if not 1 <= na <= MAX_PARTITIONS:
        raise ValueError(f"na is {na}; a request has 1 to {MAX_PARTITIONS} partitions (the merge stages that many)")
    if isinstance(eps, bool) or not isinstance(eps, int | float | np.integer | np.floating):
        raise TypeError(f"eps is {eps!r}, a {type(eps).__name__}; expected a number")
    with np.errstate(over="ignore"):
        rounded = np.float32(eps)  # what the kernel is given
    if not 0 < rounded < np.inf:
        raise ValueError(
            f"eps is {eps}; expected a positive number that float32 holds, for a head of zeros has no other divisor"
        )


def _check_array(name: str, array: object, dtype: np.dtype[np.generic]) -> None:
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is a {type(array).__name__}; expected a numpy array of {dtype}")
    if array.dtype != dtype:
        raise TypeError(f"{name} has dtype {array.dtype}; expected {dtype}")
    if not array.flags.c_contiguous:
        raise TypeError(f"{name} is not C-contiguous; pass numpy.ascontiguousarray({name})")
    if array.nbytes > MAX_OFFSET and name != "cache":
        raise ValueError(f"{name} has {array.nbytes} bytes; the kernel addresses at most {MAX_OFFSET} of it")


def _check_shapes(inputs: Inputs) -> None:
    requests = inputs.seq_lens.size
    tokens = requests * QPR
    expected: dict[str, tuple[int | None, ...]] = {
        "seq_lens": (None,),
        "qkv": (tokens, QKV_WIDTH),
        "positions": (tokens,),
        "slots": (tokens,),
        "block_table": (requests, None),
        "cache": (None, BLOCK, KEY_BYTES),
        "qn": (HEAD_DIM,),
        "kn": (HEAD_DIM,),
        "cos_sin": (None, ROT),
    }
    for name, shape in expected.items():
        got = getattr(inputs, name).shape
        fits = len(got) == len(shape) and all(
            n == wanted if wanted is not None else n > 0 for n, wanted in zip(got, shape, strict=True)
        )
        if not fits:
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            raise ValueError(f"{name} has shape {got}; expected ({wanted}) for {requests} requests of {QPR} rows")


def _check_numbers(name: str, values: NDArray[np.signedinteger], low: int, stop: int, what: str) -> None:
    bad = np.flatnonzero((values < low) | (values >= stop))
    if bad.size:
        index = int(bad[0])
        raise ValueError(f"{name}[{index}] is {int(values[index])}; expected {low} .. {stop - 1} ({what})")


def _check_distinct_slots(slots: NDArray[np.int64]) -> None:
    """Two rows of one slot would race."""
    used = np.flatnonzero(slots >= 0)
    order = used[np.argsort(slots[used], kind="stable")]
    same = np.flatnonzero(np.diff(slots[order]) == 0)
    if same.size:
        first, second = (int(i) for i in order[same[0] : same[0] + 2])
        raise ValueError(f"slots[{first}] and slots[{second}] are both {int(slots[first])}; expected a slot a token")


def _check_request(inputs: Inputs, request: int) -> None:
    """Positions of one run, and for the blocks of its window a block table entry inside the cache."""
    positions = inputs.positions[request * QPR : (request + 1) * QPR]
    p0 = int(positions[0])
    lo = max(p0 - (WINDOW - 1), 0)
    hi = min(int(inputs.seq_lens[request]) - 1, (lo // BLOCK + MAXB) * BLOCK - 1)
    if hi < lo:
        return
    wrong = np.flatnonzero(positions != p0 + np.arange(QPR))
    if wrong.size:
        index = request * QPR + int(wrong[0])
        raise ValueError(
            f"positions[{index}] is {int(inputs.positions[index])}; expected {p0 + int(wrong[0])}: the {QPR} rows of"
            f" request {request} stand one after the other"
        )
    _check_table_row(inputs, request, range(lo // BLOCK, hi // BLOCK + 1))
    _check_slots(inputs, request, hi)


def _check_table_row(inputs: Inputs, request: int, blocks: range) -> None:
    width, nblk = inputs.block_table.shape[1], len(inputs.cache)
    if blocks.stop > width:
        raise ValueError(
            f"block_table has {width} columns; request {request} (seq_lens[{request}] = {int(inputs.seq_lens[request])}"
            f") needs blocks {blocks.start} .. {blocks.stop - 1}"
        )
    row = inputs.block_table[request, blocks.start : blocks.stop]
    bad = np.flatnonzero((row < 0) | (row >= nblk))
    if bad.size:
        column = blocks.start + int(bad[0])
        raise ValueError(
            f"block_table[{request}, {column}] is {int(row[bad[0]])}; expected 0 .. {nblk - 1}: request {request} reads"
            " that block"
        )


def _check_slots(inputs: Inputs, request: int, hi: int) -> None:
    """A new key is staged by its position and cached by its slot: both must name one place."""
    for index in range(request * QPR, (request + 1) * QPR):
        slot, position = int(inputs.slots[index]), int(inputs.positions[index])
        if slot < 0 or position > hi:
            continue
        expected = int(inputs.block_table[request, position // BLOCK]) * BLOCK + position % BLOCK
        if slot != expected:
            raise ValueError(
                f"slots[{index}] is {slot}; block_table puts position {position} of request {request} at slot"
                f" {expected}"
            )
