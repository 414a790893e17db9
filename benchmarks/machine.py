"""Speed of the emulated machine: `python benchmarks/machine.py` prints wave instructions a second and bytes moved.

Needs a C compiler for gfx950: `python -m ziglang`. Each kernel runs once to be translated; the best of five counts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from emu.dispatch import Device, Module, RunOptions, RunReport

SOURCE = """
typedef unsigned u32; typedef float f4 __attribute__((ext_vector_type(4)));
#define GLOBAL __attribute__((address_space(1)))
#define LDS __attribute__((address_space(3), loader_uninitialized))
#define KERNEL __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(1, 1024), visibility("protected"))) void
#define ITEM __builtin_amdgcn_workitem_id_x()
#define GROUP __builtin_amdgcn_workgroup_id_x()
#define SHARED(type, name) \\
  static __attribute__((address_space(3))) type name[1024] __attribute__((loader_uninitialized))
KERNEL valu(GLOBAL u32 *out, u32 n) {
  u32 x = ITEM; for (u32 k = 0; k < n; k++) { x = x * 1664525u + 1013904223u; x ^= x >> 13; x += x << 5; x ^= x >> 7; }
  out[GROUP * 1024 + ITEM] = x; }
KERNEL copy(GLOBAL const f4 *in, GLOBAL f4 *out, u32 n) {
  u32 i = ITEM + GROUP * 1024 * n; for (u32 k = 0; k < n; k++, i += 1024) out[i] = in[i]; }
SHARED(f4, wide); SHARED(u32, narrow);
KERNEL lds128(GLOBAL f4 *out, u32 n) {
  f4 s = 1.0f; for (u32 k = 0; k < n; k++) { ((volatile __attribute__((address_space(3))) f4 *)wide)[ITEM] = s;
    s += ((volatile __attribute__((address_space(3))) f4 *)wide)[ITEM ^ 3]; } out[ITEM] = s; }
KERNEL lds32(GLOBAL u32 *out, u32 n) {
  u32 s = 1; for (u32 k = 0; k < n; k++) { ((volatile __attribute__((address_space(3))) u32 *)narrow)[ITEM] = s;
    s += ((volatile __attribute__((address_space(3))) u32 *)narrow)[ITEM ^ 3]; } out[ITEM] = s; }
"""


def compiled() -> bytes:
    """The code object of SOURCE."""
    with tempfile.TemporaryDirectory() as folder:
        part, whole = Path(folder, "k.o"), Path(folder, "k.hsaco")
        tool = [sys.executable, "-m", "ziglang"]
        options = ["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx950", "-O2", "-nogpulib", "-x", "c", "-c", "-"]
        subprocess.run([*tool, "clang", *options, "-o", str(part)], input=SOURCE.encode(), check=True)
        subprocess.run([*tool, "ld.lld", "-shared", str(part), "-o", str(whole)], check=True)
        return whole.read_bytes()


def best(run: Callable[[], RunReport], times: int = 5) -> tuple[float, int]:
    """Seconds of the quickest run, and its wave instructions."""
    run()
    seconds, report = [], RunReport()
    for _ in range(times):
        start = time.perf_counter()
        report = run()
        seconds.append(time.perf_counter() - start)
    return min(seconds), report.instructions


def row(module: Module, name: str, arrays: list[np.ndarray], count: int, moved: int = 0) -> None:
    """One line: the host engine, the numpy engine on a short run, and their ratio."""
    rates = {}
    for engine, n in (("host", count), ("numpy", 4)):
        options = RunOptions(engine=engine)
        taken, instructions = best(
            lambda n=n, options=options: module[name][1, 1024](*arrays, np.uint32(n), options=options),
            5 if engine == "host" else 1,
        )
        rates[engine] = instructions / taken
        if engine == "host":
            bandwidth = f"{moved * count / taken / 1e9:7.2f} GB/s" if moved else ""
    ratio = rates["host"] / rates["numpy"]
    print(f"{name:8} {rates['host'] / 1e6:8.1f} M/s {1e9 / rates['host']:6.1f} ns  {ratio:7.0f} x numpy  {bandwidth}")


def main() -> None:
    """Prints the table."""
    module = Device().load(compiled())
    words = np.zeros(4096, np.uint32)
    row(module, "valu", [words], 20000)
    source = np.random.default_rng(1).random(1 << 22, dtype=np.float32)
    row(module, "copy", [source, np.zeros_like(source)], 1024, 2 * 16 * 1024)
    row(module, "lds128", [words.view(np.float32)], 20000, 2 * 16 * 1024)
    row(module, "lds32", [words], 20000, 2 * 4 * 1024)


if __name__ == "__main__":
    main()
