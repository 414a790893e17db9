"""Commands that want a device: where there is none, where there is the stand-in, and where it fails."""

import json

import numpy as np
import pytest
from hip_stand_in import stand_in
from kernel_builds import compile_c

from gfx950 import __main__ as command_line
from gfx950.hip import HipError, OutOfDeviceMemory

KERNEL = "KERNEL k(GLOBAL u32 *out, u32 n) { out[ITEM] = ITEM + n; }"
RUN = ("run", "k.hsaco", "--grid", 1, "--block", 64, "--engine", "device", "--arg", "zeros:u32:64:o.npy", "--arg", 3)


@pytest.fixture
def command(gfx950, tmp_path, monkeypatch):
    """The command line in a folder with k.hsaco."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.hsaco").write_bytes(compile_c(KERNEL))
    return gfx950


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine without any HIP library."""
    monkeypatch.delenv("GFX950_HIP", raising=False)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))
    monkeypatch.setattr("gfx950.hip.library._places", lambda: iter([f"{tmp_path}/rocm/lib/libamdhip64.so", "lib.so.0"]))


WANTING = [
    RUN,
    ("check", "drafter_attention", "--case", "small", "--engine", "device"),
    ("probe", "run", "P11", "--device", "-o", "x.capture"),
]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("words", WANTING, ids=lambda w: w[0])
def test_without_a_device_the_code_is_4_and_the_message_says_what_was_looked_for_and_where(command, tmp_path, words):
    code, out, err = command(*words)
    assert (code, out) == (4, "")
    assert err.startswith(f"error: no HIP library: tried {tmp_path}/rocm/lib/libamdhip64.so (")
    assert ", lib.so.0 (" in err
    assert "on a machine with an MI355X install ROCm, or name the library in GFX950_HIP" in err
    assert [p.name for p in tmp_path.iterdir()] == ["k.hsaco"], "nothing is left behind"


@pytest.mark.parametrize("words", WANTING, ids=lambda w: w[0])
def test_the_library_that_a_variable_names_is_the_only_one_tried(command, monkeypatch, words):
    monkeypatch.setenv("GFX950_HIP", "/nowhere/libamdhip64.so")
    code, _, err = command(*words)
    assert code == 4
    assert err.count("tried /nowhere/libamdhip64.so (") == 1
    assert "/opt/rocm" not in err


@pytest.mark.parametrize("words", WANTING, ids=lambda w: w[0])
def test_a_library_without_devices(command, words):
    with stand_in(devices=0):
        code, _, err = command(*words)
    assert code == 4
    assert "the HIP library sees no device" in err
    assert "check the driver and HIP_VISIBLE_DEVICES" in err


def test_a_run_tells_the_device_s_time(command):
    with stand_in():
        code, out, err = command(*RUN)
        assert (code, err) == (0, "")
        assert out.startswith("ran k on the device engine: 1 workgroup, ")
        assert out.splitlines()[0].endswith(" ms by its own clock")
        assert float(out.split()[8]) > 0
        document = json.loads(command(*RUN, "--json")[1])
    assert document["milliseconds"] > 0
    assert json.loads(command(*[w if w != "device" else "host" for w in RUN], "--json")[1])["milliseconds"] is None
    np.testing.assert_array_equal(np.load("o.npy"), np.arange(64) + 3)


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        ("hipMalloc", 2, "asked for 256 bytes"),
        ("hipModuleLoadData", 209, "the code object is for another chip than this device"),
        ("hipMemcpy", 1, "hipMemcpy failed with 1"),
        ("hipDeviceSynchronize", 700, "this process's context with the device is lost"),
    ],
)
def test_a_device_that_fails_is_4_too_and_nothing_is_written(command, tmp_path, call, status, words):
    with stand_in(check_leaks=False) as s:
        s.fail(call, status)
        code, out, err = command(*RUN)
    assert (code, out) == (4, "")
    assert words in err
    assert not (tmp_path / "o.npy").exists()


def test_a_kernel_that_the_device_gives_up_on(command):
    with stand_in(check_leaks=False) as s:
        s.fail_later(700)
        code, _, err = command(*RUN)
    assert code == 4
    assert "start a new process for further launches" in err


def test_codes_of_hip_s_errors():
    errors = [HipError("hipFree", 1, "x", "y"), OutOfDeviceMemory("x", "y", 3, None)]
    assert [command_line.exit_code_of(e) for e in errors] == [4, 4]
