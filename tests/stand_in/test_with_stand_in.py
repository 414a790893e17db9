"""The stand-in in a process of its own, for tests that need one: kills, exit codes, what is printed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hip_stand_in import SOURCES, offset_of
from kernel_builds import compile_c

KERNEL = "KERNEL k(GLOBAL u32 *out, u32 n) { out[ITEM] = ITEM + n; }"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "k.hsaco").write_bytes(compile_c(KERNEL))

    def command(*options):
        line = [sys.executable, str(SOURCES / "with_stand_in.py"), *options, "gfx950", "run", "k.hsaco", "--grid", "1",
                "--block", "64", "--engine", "device", "--arg", "zeros:u32:64:o.npy", "--arg", "3"]  # fmt: skip
        return subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)

    return command


def test_a_module_runs_with_it(run, tmp_path):
    done = run()
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "o.npy"), np.arange(64) + 3)


def test_its_options(run, tmp_path):
    done = run("--arch", "gfx942")
    assert done.returncode == 4
    assert "device 0 is a gfx942" in done.stderr
    done = run("--memory", "100")
    assert done.returncode == 4
    assert "asked for 256 bytes, 100 of 100 bytes are free" in done.stderr
    assert not (tmp_path / "o.npy").exists()
    offset = offset_of(compile_c(KERNEL), "global_store")
    assert run("--fault", f"k:{offset:#x}:store:4:5").returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "o.npy"), np.arange(64) + 3 + 16 * (np.arange(64) == 5))
