"""How quickly goldens of the sparse attention are made, printed: decode at 8 Ki by step, as source and as gfx950 code.

Run by hand: `python benchmarks/sparse.py`. Lines of one thread count its processor time, the others wall time (of a
machine without other work, then); the ratio to torch is that of lines of as many threads.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch

from codegen import run_source
from codegen.ir import Op
from codegen.kernels.sparse_attention import job, kernels, launch
from codegen.kernels.sparse_attention.cases import Case, Inputs, Request, build
from codegen.kernels.sparse_attention.launch import Runner
from codegen.kernels.sparse_attention.shapes import ASM_PAGE_SIZE, GROUP, HEAD_DIM, SPARSE_BLOCK_SIZE, TOPK
from emu.dispatch import RunOptions
from gfx950.arithmetic.native import NATIVES, Native

KERNEL, CONTEXT, BATCHES = "sparse_attention", 8192, (1, 16, 64)
CORES = os.cpu_count() or 1
REPEATS = 4
STEPS = {"insert": "insert", "index": "scores", "select": "selection", "attend": "attend", "reduce": "reduce"}
COLUMNS = (*STEPS.values(), "around")
SCORES, ATTEND = "mfma_f8f6f4_16x16x128", "mfma_16x16x32_f8"
STAND_IN = "v_rcp_f32"

Clock = Callable[[], float]
Seconds = Counter[str]


@dataclass
class TimedRunner(Runner):
    """Adds up the time of each step's launches."""

    clock: Clock = time.perf_counter
    seconds: Seconds = field(default_factory=Counter)

    def launch(self, kernel: Any, grid: Sequence[int], arguments: Sequence[Any]) -> None:
        start = self.clock()
        super().launch(kernel, grid, arguments)
        self.seconds[STEPS[kernel.name.partition("_")[0]]] += self.clock() - start


@dataclass(frozen=True)
class Way:
    """A way to make a golden."""

    name: str
    code_object: bytes | None
    threads: int

    @property
    def clock(self) -> Clock:
        return time.thread_time if self.threads == 1 else time.perf_counter

    def seconds(self, inputs: Inputs) -> Seconds:
        """The quickest of some runs by step, "around" being numpy's part between them."""
        return min((self._once(inputs) for _ in range(REPEATS)), key=Counter.total)

    def _once(self, inputs: Inputs) -> Seconds:
        runner = TimedRunner(self.code_object, RunOptions(threads=self.threads), clock=self.clock)
        start = self.clock()
        job.run(runner, inputs)
        runner.seconds["around"] = self.clock() - start - runner.seconds.total()
        return runner.seconds


def together_seconds(inputs: Inputs) -> float:
    """Wall seconds of a process for each core, in which each runs the source of the whole job, as `gfx950 check` does
    with several cases."""
    context, times = multiprocessing.get_context("fork"), []
    for _ in range(REPEATS):
        workers = [context.Process(target=job.run, args=(Runner(), inputs)) for _ in range(CORES)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        times.append(time.perf_counter() - start)
    return min(times)


def decode(rows: int) -> Inputs:
    """A row each of `rows` requests of 8 Ki tokens, one kv head, packed E4M3 cache."""
    return build(Case(f"decode_8k_{rows}", (Request(CONTEXT),) * rows, "decode at 8 Ki"))


# ---- torch -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """The same problem as float32 tensors: queries [rows][1][128] and [rows][16][128], index keys, keys and values
    [rows][blocks][128][128], all tokens in place."""

    index_q: torch.Tensor
    index_k: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor

    def blocks(self) -> torch.Tensor:
        """[rows][16]: the blocks of the largest scores, a row's own among them."""
        scores = (self.index_k.flatten(1, 2) @ self.index_q.mT).view(*self.index_k.shape[:3]).amax(-1)
        scores[:, -1] = torch.inf
        return scores.topk(TOPK).indices

    def attention(self) -> torch.Tensor:
        """[rows][16][128]: over the selected blocks."""
        rows = torch.arange(len(self.q))[:, None], self.blocks()
        k, v = (side[rows].flatten(1, 2) for side in (self.k, self.v))
        return (self.q @ k.mT * job.SOFTMAX_SCALE).softmax(-1) @ v


def plain(inputs: Inputs, outputs: job.Outputs) -> Plain:
    """What torch is given: the caches with the new tokens, gathered and widened beforehand."""
    table = inputs.block_table[:, : CONTEXT // SPARSE_BLOCK_SIZE]
    pages = outputs.kv_cache[table, :, :, 0]  # [rows][blocks][2][8][2048]
    k = pages[:, :, 0].reshape(*table.shape, -1, HEAD_DIM // 16, ASM_PAGE_SIZE, 16).swapaxes(3, 4)
    v = pages[:, :, 1].reshape(*table.shape, -1, HEAD_DIM, ASM_PAGE_SIZE).swapaxes(3, 4)
    index_k = outputs.index_cache[inputs.index_block_table[:, : table.shape[1]]]
    shape = (*table.shape, SPARSE_BLOCK_SIZE, HEAD_DIM)
    return Plain(
        *(_float32(codes, ml_dtypes.float8_e4m3fn) for codes in (inputs.index_q, index_k.reshape(shape))),
        _float32(inputs.q, ml_dtypes.bfloat16).view(-1, GROUP, HEAD_DIM),
        *(_float32(codes.reshape(shape), ml_dtypes.float8_e4m3fn) for codes in (k, v)),
    )


def _float32(codes: np.ndarray[Any, Any], kind: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(codes).view(kind).astype(np.float32))


def check_plain(problem: Plain, outputs: job.Outputs) -> None:
    """Torch must do the same job. Raises ValueError where it does not."""
    blocks = np.sort(outputs.topk[0], axis=-1)
    if not np.array_equal(np.sort(problem.blocks().numpy(), axis=-1), blocks):
        raise ValueError("torch selects other blocks than the kernels")
    far = (problem.attention() - _float32(outputs.out, ml_dtypes.bfloat16)).abs().max()
    if far > 0.05:  # E4M3 queries and P on values of 1 or so
        raise ValueError(f"torch's output is {far:.3g} away from the kernels'")


def torch_seconds(problem: Plain, threads: int) -> float:
    torch.set_num_threads(threads)
    clock, times = (time.thread_time if threads == 1 else time.perf_counter), []
    for _ in range(REPEATS + 1):
        start = clock()
        problem.attention()
        times.append(clock() - start)
    return min(times)


# ---- by what ---------------------------------------------------------------------------------------------------------


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute, or an entry of a dictionary, for a while."""
    get, put = (dict.__getitem__, dict.__setitem__) if isinstance(owner, dict) else (getattr, setattr)
    old = get(owner, name)
    put(owner, name, value)
    try:
        yield
    finally:
        put(owner, name, old)


def kind_of(op: Op) -> str:
    """What an operation of a source run is counted as."""
    name = op.attributes.get("mnemonic", op.name)
    if "mfma" in name:
        return "matrix operands"
    if name.startswith(("load", "lds_")):
        return "loads and LDS"
    return {"v_exp_f32": "exp2", "v_cvt_pk_fp8_f32": "P to E4M3"}.get(name, "the rest")


def source_parts(inputs: Inputs) -> dict[str, Seconds]:
    """Thread seconds of a source run by step, then by what; of matrix instructions the native's apart."""
    spent: Seconds = Counter()
    inner = [0.0]  # seconds inside each open region's operations
    observed, run_items = run_source._Builder._observed, Native._run_items

    def timed(self: Any, op: Op, step: Any) -> Any:
        step, kind = observed(self, op, step), kind_of(op)

        def run(group: Any) -> None:
            inner.append(0.0)
            start = time.thread_time()
            step(group)
            whole = time.thread_time() - start
            spent[kind] += whole - inner.pop()
            inner[-1] += whole

        return run

    def native(self: Native, *arguments: Any) -> None:
        start = time.thread_time()
        run_items(self, *arguments)
        if "mfma" in self.name:
            spent["matrix natives"] += time.thread_time() - start
            inner[-1] += time.thread_time() - start

    class ByStep(Runner):
        def launch(self, kernel: Any, grid: Sequence[int], arguments: Sequence[Any]) -> None:
            spent.clear()
            super().launch(kernel, grid, arguments)
            found[STEPS[kernel.name.partition("_")[0]]] = Counter(spent)

    found: dict[str, Seconds] = {}
    with replaced(run_source._Builder, "_observed", timed), replaced(Native, "_run_items", native):
        job.run(ByStep(), inputs)
    return found


def machine_parts(way: Way, inputs: Inputs) -> dict[str, Seconds]:
    """Of the machine: what goes when a native of nanoseconds stands in for a step's matrix instructions, and the rest,
    in which loads and exp2 cannot be told apart."""
    found: dict[str, Seconds] = {}
    whole = way.seconds(inputs)
    for step, name in (("scores", SCORES), ("attend", ATTEND)):
        with replaced(NATIVES, name, NATIVES[STAND_IN]):
            launch._loaded.cache_clear()  # a loaded object knows its natives' addresses
            rest = way.seconds(inputs)[step]
        launch._loaded.cache_clear()
        found[step] = Counter({"matrix natives": whole[step] - rest, "the rest": rest})
    return found


# ---- the check -------------------------------------------------------------------------------------------------------


def check_seconds() -> tuple[float, float]:
    """Wall seconds of `gfx950 check` of all cases with empty caches, then with what the first run left."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"GFX950_CACHE": folder, "NUMBA_CACHE_DIR": str(Path(folder, "numba"))}
        times = []
        for _ in range(2):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "gfx950", "check", KERNEL], env=environment, stdout=subprocess.DEVNULL
            )
            times.append(time.perf_counter() - start)
    return times[0], times[1]


# ---- the table -------------------------------------------------------------------------------------------------------


def print_rows(ways: Sequence[Way], rows: int) -> None:
    """The lines of one batch."""
    inputs = decode(rows)
    outputs = job.run(Runner(), inputs)
    problem = plain(inputs, outputs)
    check_plain(problem, outputs)
    torches = {threads: torch_seconds(problem, threads) for threads in {1, CORES}}
    for way in ways:
        seconds = way.seconds(inputs)
        total = seconds.total()
        steps = "".join(f"{1e3 * seconds[step] / rows:>10.2f}" for step in COLUMNS)
        print(f"{rows:>4}  {way.name:<22}{rows / total:>9.0f}{steps}{total / torches[way.threads]:>9.1f}")
    print(f"{rows:>4}  {f'source, {CORES} processes':<22}{CORES * rows / together_seconds(inputs):>9.0f}")
    for threads, seconds_of in sorted(torches.items()):
        print(f"{rows:>4}  {f'torch, {threads} thread(s)':<22}{rows / seconds_of:>9.0f}")


def print_parts(name: str, parts: dict[str, Seconds], rows: int) -> None:
    for step in ("scores", "attend"):
        listed = ", ".join(f"{what} {1e3 * s / rows:.2f}" for what, s in parts[step].most_common())
        print(f"{name}, {step}, {rows} rows, ms a token: {listed}")


def main() -> None:
    """Prints the table."""
    code_object = kernels.compiled().object
    ways = [
        Way("source, 1 thread(s)", None, 1),
        *(Way(f"gfx950, {n} thread(s)", code_object, n) for n in sorted({1, CORES})),
    ]
    for way in ways:
        way.seconds(decode(1))  # compiles and translates
    print("decode at 8 Ki, one kv head, E4M3 cache; ms a token by step; last: times torch's float32")
    print(f"rows  {'':<22}{'tokens/s':>9}{''.join(f'{step:>10}' for step in COLUMNS)}{'x torch':>9}")
    for rows in BATCHES:
        print_rows(ways, rows)
    inputs = decode(BATCHES[-1])
    print_parts("source", source_parts(inputs), BATCHES[-1])
    print_parts("gfx950", machine_parts(ways[1], inputs), BATCHES[-1])
    cold, warm = check_seconds()
    print(f"gfx950 check {KERNEL}, all cases: {cold:.1f} s cold, {warm:.1f} s warm")


if __name__ == "__main__":
    main()
