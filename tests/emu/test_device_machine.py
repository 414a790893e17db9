"""Launches through HIP, against a stand-in library in C: no device is here, and that must be said clearly."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
from kernel_builds import compile_c
from llvm_tools import assembled, compiled, kernel_source, linked

from emu.dispatch import Device, RunOptions
from emu.errors import LaunchError
from emu.geometry import Geometry
from gfx950.hip import HipError, NoDevice, find_library

KERNEL = "KERNEL k(GLOBAL u32 *out, GLOBAL const u32 *in, u32 n) { if (ITEM < n) out[ITEM] = in[ITEM] + n; }"

# Copies for real, and plays the kernel above on the host: what reaches it went through the kernarg block.
STAND_IN = r"""
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
int devices = 1, live = 0;
int hipGetDeviceCount(int *n) { *n = devices; return devices ? 0 : 100; }
int hipSetDevice(int d) { return d; }
const char *hipGetErrorString(int e) { return e == 100 ? "no ROCm-capable device is detected" : "error"; }
int hipModuleLoadData(void **m, const char *image) {
  *m = (void *)image; live++; return memcmp(image, "\177ELF", 4) ? 209 : 0; }
int hipModuleUnload(void *m) { live--; return 0; }
int hipMalloc(void **p, size_t n) { *p = malloc(n); live++; return 0; }
int hipFree(void *p) { free(p); live--; return 0; }
int hipMemcpy(void *to, const void *from, size_t n, int kind) {
  if (kind != 1 && kind != 2) return 1; memcpy(to, from, n); return 0; }
int hipModuleGetFunction(void **f, void *m, const char *name) { *f = m; return strcmp(name, "k") ? 500 : 0; }
int hipDeviceSynchronize(void) { return 0; }
int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned lds, void *stream, void **params, void **extra) {
  if (params || stream || (intptr_t)extra[0] != 1 || (intptr_t)extra[2] != 2 || (intptr_t)extra[4] != 3) return 1;
  if (*(size_t *)extra[3] != 20) return 1;
  struct { uint32_t *out; const uint32_t *in; uint32_t n; } a; memcpy(&a, extra[1], 20);
  for (unsigned i = 0; i < bx && gx == 1; i++) if (i < a.n) a.out[i] = a.in[i] + a.n;
  return 0; }
int stand_in_live(void) { return live; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hip")
    source, target = folder / "hip.c", folder / "libstandin.so"
    source.write_text(STAND_IN)
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True)
    return target


@pytest.fixture
def hip(library, monkeypatch):
    monkeypatch.setenv("GFX950_HIP", str(library))


def launch(data, n=40, source=None):
    given = np.arange(64, dtype=np.uint32) if source is None else source
    out = np.zeros(64, np.uint32)
    report = Device(RunOptions(engine="device")).load(data)["k"][1, 64](out, given, np.uint32(n))
    return out, report


def test_buffers_go_there_and_come_back_with_the_explicit_arguments_between(hip, library):
    out, report = launch(compile_c(KERNEL))
    want = np.zeros(64, np.uint32)
    want[:40] = np.arange(40) + 40
    np.testing.assert_array_equal(out, want)
    assert report.workgroups == 1
    assert ctypes.CDLL(str(library)).stand_in_live() == 0, "memory or a module was not given back"


def test_no_library_is_said_with_what_to_do(monkeypatch):
    monkeypatch.setenv("GFX950_HIP", "/nowhere/libamdhip64.so")
    with pytest.raises(
        NoDevice,
        match=r"no HIP library: tried /nowhere/libamdhip64\.so \(cannot open .*\); .* use the engines host or numpy",
    ):
        launch(compile_c(KERNEL))


def test_no_device_behind_the_library(tmp_path, monkeypatch):
    (tmp_path / "none.c").write_text(STAND_IN.replace("devices = 1", "devices = 0"))
    target = tmp_path / "libnone.so"
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", str(tmp_path / "none.c"), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("GFX950_HIP", str(target))
    with pytest.raises(NoDevice, match=r"sees no device \(no ROCm-capable device is detected\)"):
        launch(compile_c(KERNEL))


def test_what_a_device_launch_cannot_have(hip):
    out = np.zeros(64, np.uint32)
    with pytest.raises(LaunchError, match=r"linked code objects only(.|\n)*ld\.lld -shared"):
        launch(compiled("__attribute__((amdgpu_kernel)) void k(int *a, int *b, int n) { }"))
    other = compile_c(KERNEL.replace("KERNEL k(", "KERNEL other("))
    with pytest.raises(HipError, match=r"hipModuleGetFunction failed with 500: error"):
        Device(RunOptions(engine="device")).load(other)["other"][1, 64](
            np.zeros(64, np.uint32), np.zeros(64, np.uint32), 1
        )
    out = np.zeros(64, np.uint32)
    kernel = Device(RunOptions(engine="device")).load(compile_c(KERNEL))["k"][1, 64]
    with pytest.raises(LaunchError, match=r"grid \(100, 1, 1\) is no multiple of the block \(64, 1, 1\)"):
        kernel.kernel.launch(Geometry.of_items(100, 64), (out, out.copy(), 1), RunOptions(engine="device"))
    bare = Device(RunOptions(engine="device")).load(linked(assembled(kernel_source())))["k"]
    with pytest.raises(LaunchError, match="does not say which arguments are pointers"):
        bare[1, 64](options=RunOptions(engine="device"))
    with pytest.raises(LaunchError, match="no watchpoint"):
        kernel(out, np.zeros(64, np.uint32), np.uint32(1), watch=(out, 0))


def test_the_command_line_leaves_with_4(tmp_path):
    (tmp_path / "k.hsaco").write_bytes(compile_c(KERNEL))
    command = [sys.executable, "-m", "gfx950", "run", "k.hsaco", "--kernel", "k", "--grid", "1", "--block", "64"]
    arguments = ["--engine", "device", "--arg", "zeros:u32:64:o.npy", "--arg", "zeros:u32:64:i.npy", "--arg", "u32:3"]
    environment = os.environ | {"GFX950_HIP": "/nowhere/libamdhip64.so"}
    run = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False, env=environment
    )
    assert run.returncode == 4, run.stderr
    assert "no HIP library" in run.stderr


def test_a_library_that_is_not_hip_is_no_device(monkeypatch):
    monkeypatch.setenv("GFX950_HIP", "libc.so.6")
    with pytest.raises(NoDevice, match=r"tried libc\.so\.6 \(it has no hipGetDeviceCount\); .* GFX950_HIP"):
        find_library()
