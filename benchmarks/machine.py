"""Speed of the emulated machine: `python benchmarks/machine.py` prints wave instructions a second and bytes moved, an
FP8 matrix product, what translation costs, and how long a process takes that finds everything translated.

Needs a C compiler for gfx950: `python -m ziglang`. Each kernel runs once to be translated; the best of five counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np

from emu.blocks import discover
from emu.dispatch import Device, Module, RunOptions, RunReport
from emu.translate import module_text
from gfx950.host_code import HostCode, Translation
from gfx950.lanes import Mode

SOURCE = """
typedef unsigned u32; typedef unsigned char u8; typedef int i8v __attribute__((ext_vector_type(8)));
typedef int i4v __attribute__((ext_vector_type(4))); typedef float f4 __attribute__((ext_vector_type(4)));
#define GLOBAL __attribute__((address_space(1)))
#define LDS __attribute__((address_space(3)))
#define BARE __attribute__((loader_uninitialized))
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

# C = A B^T, 1024 x 1024 x 1024 of E4M3: a workgroup of four waves makes 64 x 64 of C, 128 deep at a time through LDS.
GEMM = """
static LDS u8 a_tile[64 * 144] BARE; static LDS u8 b_tile[64 * 144] BARE;
static i8v operand(LDS u8 *tile, u32 row, u32 group) {
  i4v low = *(LDS i4v *)(tile + row * 144 + group * 16), high = *(LDS i4v *)(tile + row * 144 + 64 + group * 16);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7); }
KERNEL gemm(GLOBAL const u8 *a, GLOBAL const u8 *b, GLOBAL float *c) {
  u32 item = ITEM, lane = item & 63, wave = item >> 6, row0 = GROUP / 16 * 64, col0 = GROUP % 16 * 64;
  f4 sum[4] = {0, 0, 0, 0};
  for (u32 k = 0; k < 1024; k += 128) {
    for (u32 i = 0; i < 2; i++) {
      u32 row = item / 8 + 32 * i, at = item % 8 * 16;
      *(LDS i4v *)(a_tile + row * 144 + at) = *(GLOBAL const i4v *)(a + (row0 + row) * 1024 + k + at);
      *(LDS i4v *)(b_tile + row * 144 + at) = *(GLOBAL const i4v *)(b + (col0 + row) * 1024 + k + at); }
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    i8v left = operand(a_tile, wave * 16 + lane % 16, lane / 16);
    for (u32 n = 0; n < 4; n++)
      sum[n] = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
        left, operand(b_tile, n * 16 + lane % 16, lane / 16), sum[n], 0, 0, 0, 0, 0, 0);
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); }
  for (u32 n = 0; n < 4; n++) for (u32 r = 0; r < 4; r++)
    c[(row0 + wave * 16 + lane / 16 * 4 + r) * 1024 + col0 + n * 16 + lane % 16] = sum[n][r]; }
"""
WARM = """
import sys
import numpy as np
from emu.dispatch import Device
module = Device().load(sys.argv[1])
out = np.zeros(1024, np.uint32)
module["valu"][1, 1024](out, np.uint32(4))
"""


def compiled() -> bytes:
    """The code object of SOURCE."""
    with tempfile.TemporaryDirectory() as folder:
        part, whole = Path(folder, "k.o"), Path(folder, "k.hsaco")
        tool = [sys.executable, "-m", "ziglang"]
        options = ["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx950", "-O2", "-nogpulib", "-x", "c", "-c", "-"]
        subprocess.run([*tool, "clang", *options, "-o", str(part)], input=(SOURCE + GEMM).encode(), check=True)
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


def matrix_product(module: Module) -> None:
    """The FP8 product on one and two threads, checked against float64, beside numpy's float32 product of that size."""
    random = np.random.default_rng(2)
    a, b = (random.standard_normal((1024, 1024), np.float32).astype(ml_dtypes.float8_e4m3fn) for _ in "ab")
    left, right, out = a.astype(np.float64), b.astype(np.float64), np.zeros((1024, 1024), np.float32)
    taken = {}
    for threads in (1, 2):
        options = RunOptions(threads=threads)
        arrays = a.view(np.uint8), b.view(np.uint8), out
        taken[threads], _ = best(
            lambda arrays=arrays, options=options: module["gemm"][256, 256](*arrays, options=options)
        )
    bound = (np.abs(left) @ np.abs(right).T) * 1024 * 2.0**-24
    assert (np.abs(out - left @ right.T) <= bound).all()
    start = time.perf_counter()
    _ = left.astype(np.float32) @ right.T.astype(np.float32)
    plain = time.perf_counter() - start
    print(f"FP8 1024 x 1024 x 1024 through LDS: {taken[1]:.3f} s on one thread, {taken[2]:.3f} s on two", end="")
    print(f" (aim 0.5 s); {taken[2] / plain:.0f} x numpy's float32 product ({plain * 1e3:.0f} ms)")


def translation(code: bytes) -> None:
    """What translating costs an instruction with an empty cache, and a process that finds all translated."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "k.hsaco")
        path.write_bytes(code)
        environment = {**os.environ, "GFX950_CACHE": str(Path(folder, "cache"))}
        seconds = []
        for _ in range(6):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", WARM, str(path)], env=environment, check=True)
            seconds.append(time.perf_counter() - start)
        print(f"a process that runs one kernel: {seconds[0]:.2f} s with an empty cache, {min(seconds[1:]):.2f} s after")
    machine = Device().load(code)
    run = machine.code.code_of(machine.code.kernel("gemm"))
    found = discover(run.data, run.address, machine.code.kernel("gemm").entry)
    count = sum(len(block.instructions) for block in found.values())
    start = time.perf_counter()
    text, *_ = module_text(list(found.values()), Mode(), False)
    HostCode().add(lambda: Translation(text), None)
    per = (time.perf_counter() - start) / count
    print(f"translation: {per * 1e3:.2f} ms an instruction ({count} instructions, aim 1 ms)")


def main() -> None:
    """Prints the table."""
    code = compiled()
    module = Device().load(code)
    words = np.zeros(4096, np.uint32)
    row(module, "valu", [words], 20000)
    source = np.random.default_rng(1).random(1 << 22, dtype=np.float32)
    row(module, "copy", [source, np.zeros_like(source)], 1024, 2 * 16 * 1024)
    row(module, "lds128", [words.view(np.float32)], 20000, 2 * 16 * 1024)
    row(module, "lds32", [words], 20000, 2 * 4 * 1024)
    matrix_product(module)
    translation(code)


if __name__ == "__main__":
    main()
