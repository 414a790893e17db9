"""A run of probes on a device: the whole way to a capture, against a stand-in HIP library that computes nothing."""

import subprocess
import sys

import numpy as np
import pytest

from codegen.kernels.probes import capture
from codegen.kernels.probes.apply import apply_step
from codegen.kernels.probes.probe import Probe, Step
from codegen.kernels.probes.run import run_probes
from emu.dispatch import RunOptions
from gfx950 import hip

STAND_IN = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
int hipGetDeviceCount(int *n) { *n = 1; return 0; }
int hipSetDevice(int d) { return d; }
const char *hipGetErrorString(int e) { return "error"; }
int hipDeviceGetName(char *name, int n, int d) { strncpy(name, "a stand-in", n); return d; }
int hipRuntimeGetVersion(int *v) { *v = 70051; return 0; }
int hipDriverGetVersion(int *v) { *v = 70052; return 0; }
int hipModuleLoadData(void **m, const char *image) { *m = (void *)image; return memcmp(image, "\177ELF", 4); }
int hipModuleUnload(void *m) { return 0; }
int hipMalloc(void **p, size_t n) { *p = malloc(n); return 0; }
int hipFree(void *p) { free(p); return 0; }
int hipMemcpy(void *to, const void *from, size_t n, int kind) { memcpy(to, from, n); return 0; }
int hipModuleGetFunction(void **f, void *m, const char *name) { *f = m; return strncmp(name, "apply_", 6); }
int hipDeviceSynchronize(void) { return 0; }
int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned lds, void *stream, void **params, void **extra) {
  uint32_t *out; memcpy(&out, (char *)extra[1] + 8, 8); /* the second pointer */
  for (unsigned i = 0; i < 256 * gx; i++) out[i] = i;
  return bx != 64; }
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    source, target = tmp_path / "hip.c", tmp_path / "libstandin.so"
    source.write_text(STAND_IN)
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("GFX950_HIP", str(target))


def test_a_device_s_capture_has_its_words_and_says_where_they_come_from(stand_in, tmp_path):
    registers = np.zeros((2, 8, 64), np.uint32)
    step = apply_step(Step, "PX/v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x16_f16", registers, {}, None, {})
    found = run_probes([Probe("PX", "what", lambda size: [step])], tmp_path / "x", RunOptions(engine="device"))
    assert found.origin.kind == "device"
    assert found.origin.name == "a stand-in"
    assert found.origin.driver == "HIP runtime 70051, driver 70052"
    assert np.array_equal(found.read(step.name).ravel(), np.arange(512))
    assert capture.read(tmp_path / "x").digest == found.digest


def test_what_the_system_says_of_a_device(tmp_path):
    for node, version in (("0", "0"), ("1", "90500")):
        (tmp_path / "nodes" / node).mkdir(parents=True)
        (tmp_path / "nodes" / node / "properties").write_text(f"cpu_cores_count 8\ngfx_target_version {version}\n")
    assert hip._architecture(tmp_path / "nodes") == "gfx950"
    assert hip._architecture(tmp_path / "nothing") == ""
    firmware = tmp_path / "cards" / "card0" / "device" / "fw_version"
    firmware.mkdir(parents=True)
    (firmware / "mec_fw_version").write_text("0x000000a8\n")
    (firmware / "sdma_fw_version").write_text("0x00000018\n")
    assert hip._firmware(tmp_path / "cards") == "mec 0x000000a8, sdma 0x00000018"
    assert hip._firmware(tmp_path / "nothing") == ""
