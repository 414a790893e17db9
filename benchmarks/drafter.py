"""The main job's speed, printed: translated instructions, matrix instructions, and `gfx950 check` cold and warm.

Run by hand: `python benchmarks/drafter.py`. One core unless a line says otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from codegen.kernel_package import KernelPackage, kernel_package
from codegen.kernels.drafter_attention.cases import CASES
from emu.dispatch import RunOptions
from emu.host_machine import HostWorkgroup
from gfx950.arithmetic.mfma import Format, pack_parameters
from gfx950.arithmetic.native import NATIVES

KERNEL, CASE = "drafter_attention", "blocks_34"
NATIVE = "mfma_f8f6f4_16x16x128"


def best(run: Callable[[], object], repeats: int) -> float:
    """The least processor time of some runs on this thread, in seconds: other work disturbs it little."""
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return min(times)


def matrix_seconds(count: int = 20000) -> float:
    """Seconds of one FP8 16x16x128 on random finite codes of middle exponents."""
    native = NATIVES[NATIVE]
    codes = np.random.default_rng(1).integers(0x28, 0x48, (256, native.n_in, 256), dtype=np.uint8)
    codes |= np.random.default_rng(2).integers(0, 2, codes.shape, dtype=np.uint8) << 7
    inputs = codes.view(np.uint32).reshape(256, native.n_in, 64).copy()
    inputs[:, 16:20] = 0
    batch = np.ascontiguousarray(np.tile(inputs, (count // 256, 1, 1)))
    parameters = pack_parameters(Format.fp8, Format.fp8)
    native(batch[:1], parameters)
    return best(lambda: native(batch, parameters), 5) / len(batch)


def translated(package: KernelPackage) -> tuple[int, int, float]:
    """Wave instructions, MFMAs among them, and seconds inside translated code of one machine run of a case.

    The MFMAs are left out of the time: a native of a few nanoseconds stands in for theirs.
    """
    inputs, options = package.build(CASE), RunOptions(threads=1)
    package.run_machine(inputs, options, None)  # translates, with the real native in place
    spent: list[float] = []
    call, native = HostWorkgroup._call, NATIVES[NATIVE]

    def timed(self: HostWorkgroup, *arguments: Any) -> Any:
        start = time.thread_time()
        result = call(self, *arguments)
        spent[-1] += time.thread_time() - start
        return result

    HostWorkgroup._call, NATIVES[NATIVE] = timed, NATIVES["v_rcp_f32"]  # type: ignore[method-assign]
    for _ in range(25):
        spent.append(0.0)
        _, report = package.run_machine(inputs, options, None)
    HostWorkgroup._call, NATIVES[NATIVE] = call, native  # type: ignore[method-assign]
    matrices = sum(16 * 7 * len(request.blocks) for request in CASES[CASE].requests)  # a block and wave: 16
    return report.instructions, matrices, min(spent)


def check_seconds(*cases: str) -> tuple[float, float]:
    """Wall seconds of `gfx950 check` with empty caches, then with what the first run left."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"GFX950_CACHE": folder, "NUMBA_CACHE_DIR": str(Path(folder, "numba"))}
        command = [sys.executable, "-m", "gfx950", "check", KERNEL, *(part for c in cases for part in ("--case", c))]
        times = []
        for _ in range(2):
            start = time.perf_counter()
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - start)
    return times[0], times[1]


def main() -> None:
    """Prints the table."""
    print(f"FP8 16x16x128 MFMA, exact, one core: {1e-3 / matrix_seconds():.0f} k/s (aim 100 k/s)")
    instructions, matrices, seconds = translated(kernel_package(KERNEL))
    rate = (instructions - matrices) / seconds / 1e6
    print(f"case {CASE}: {instructions} wave instructions, {matrices} of them MFMAs, the rest {1e3 * seconds:.2f} ms")
    print(f"translated kernel, MFMAs not counted, one core: {rate:.0f} M wave instructions/s (aim 50)")
    for cases in [("default",), ()]:
        cold, warm = check_seconds(*cases)
        print(f"gfx950 check {KERNEL} {' '.join(cases) or '(all cases)'}: {cold:.1f} s cold, {warm:.1f} s warm")


if __name__ == "__main__":
    main()
