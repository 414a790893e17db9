"""Launches through HIP, against the stand-in library: buffers, tensors, arguments, and everything that can fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from hip_stand_in import INTERRUPTED, stand_in
from kernel_builds import compile_c
from llvm_tools import assembled, compiled, kernel_source, linked

from emu.dispatch import Device, RunOptions, RunReport
from emu.errors import LaunchError, MemoryFault
from emu.geometry import Geometry
from gfx950.hip import HipError, NoDevice, OutOfDeviceMemory, WrongDevice

KERNEL = "KERNEL k(GLOBAL u32 *out, GLOBAL const u32 *in, u32 n) { if (ITEM < n) out[ITEM] = in[ITEM] + n; }"
ON_DEVICE = RunOptions(engine="device")


@pytest.fixture
def s():
    with stand_in() as started:
        yield started


def kernel(source=KERNEL, name="k", options=ON_DEVICE):
    return Device(options).load(compile_c(source))[name]


def launch(n=40, source=KERNEL):
    given, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    report = kernel(source)[1, 64](out, given, np.uint32(n))
    return out, report


def expected(n=40):
    given = np.arange(64, dtype=np.uint32)
    return np.where(given < n, given + n, 0).astype(np.uint32)


# ---- what goes there and comes back ----------------------------------------------------------------------------------


def test_buffers_go_there_and_come_back_with_the_explicit_arguments_between(s):
    out, report = launch()
    np.testing.assert_array_equal(out, expected())
    assert report.workgroups == 1
    assert report.milliseconds > 0
    assert len(s.launches[0].kernarg) == 20


def test_the_device_s_time_adds_up_over_launches():
    total = RunReport()
    for milliseconds in (None, 1.5, None, 2.0):
        total.add(RunReport(milliseconds=milliseconds))
    assert total.milliseconds == 3.5
    assert RunReport().milliseconds is None


def test_a_read_only_array_goes_there_and_is_not_brought_back(s):
    given = np.arange(64, dtype=np.uint32)
    given.flags.writeable = False
    out = np.zeros(64, np.uint32)
    kernel("KERNEL k(GLOBAL u32 *out, GLOBAL u32 *in) { out[ITEM] = in[ITEM]; in[ITEM] = 7; }")[1, 64](out, given)
    np.testing.assert_array_equal(out, np.arange(64))
    np.testing.assert_array_equal(given, np.arange(64))


def test_one_array_given_twice_is_one_buffer(s):
    both = np.arange(64, dtype=np.uint32)
    kernel()[1, 64](both, both, 64)
    np.testing.assert_array_equal(both, np.arange(64) + 64)
    first, second = np.frombuffer(s.launches[0].kernarg, np.uint64, 2)
    assert first == second


def test_pointers_into_a_buffer_and_null_stay_what_they_are(s):
    device = Device(ON_DEVICE)
    out = np.zeros(64, np.uint32)
    address = device.map(out)
    source = "KERNEL k(GLOBAL u32 *out, GLOBAL u32 *none) { out[ITEM] = ITEM + (none ? 100 : 0); }"
    device.load(compile_c(source))["k"][1, 32](address + 64, None)
    np.testing.assert_array_equal(out, [0] * 16 + list(range(32)) + [0] * 16)
    assert s.launches[0].kernarg[8:] == bytes(8)
    with pytest.raises(LaunchError, match="pointer 0x123456789 is in no mapped buffer"):
        device.load(compile_c(source))["k"][1, 32](0x123456789, None)


def test_tensors_of_the_cpu_go_there_and_back(s):
    out = torch.zeros(64, dtype=torch.int32)
    kernel()[1, 64](out, torch.arange(64, dtype=torch.int32), 40)
    np.testing.assert_array_equal(out.numpy(), expected())


ECHO = """
struct __attribute__((packed)) odd { u8 a; u32 b; u16 c; };
struct nested { GLOBAL u32 *inside; struct { u64 x; u8 y; } pair[2]; };
KERNEL k(GLOBAL u8 *out, u8 a, u16 b, u32 c, u64 d, float e, double f, struct odd g, i8 h, struct nested i,
         GLOBAL u32 *null, i64 j, GLOBAL u8 *end) {
  if (ITEM) return;
  #define PUT(at, value) __builtin_memcpy(out + at, &value, sizeof value)
  PUT(0, a); PUT(8, b); PUT(16, c); PUT(24, d); PUT(32, e); PUT(40, f); PUT(48, g); PUT(56, h); PUT(64, i.pair);
  PUT(96, j); u64 zero = (u64)null; PUT(104, zero); u64 length = end - out; PUT(112, length);
}
"""


def test_every_kind_of_argument_arrives(s):
    """Packed here by numpy, taken apart by compiled C."""
    pair = np.array([(1 << 63, 0xAB), (5, 6)], np.dtype({"names": "xy", "formats": ["<u8", "u1"], "itemsize": 16}))
    nested = np.frombuffer(bytes(8) + pair.tobytes(), np.uint8)
    odd = np.array((0x12, 0x3456789A, 0xBCDE), np.dtype("<u1,<u4,<u2"))
    values = [0xFE, 0xFEDC, 0xFEDCBA98, (1 << 64) - 3, np.float32(-0.0), np.float64("nan"), odd.tobytes(), -5,
              nested.tobytes(), None, -(1 << 62)]  # fmt: skip
    device, out = Device(ON_DEVICE), np.zeros(120, np.uint8)
    address = device.map(out)
    device.load(compile_c(ECHO))["k"][1, 64](address, *values, address + 120)
    pieces = {
        0: b"\xfe",
        8: b"\xdc\xfe",
        16: b"\x98\xba\xdc\xfe",
        24: b"\xfd" + b"\xff" * 7,
        32: b"\0\0\0\x80",
        40: np.float64("nan").tobytes(),
        48: odd.tobytes(),
        56: b"\xfb",
        64: pair.tobytes()[:25],
        96: (-(1 << 62)).to_bytes(8, "little", signed=True),
        104: bytes(8),
        112: (120).to_bytes(8, "little"),
    }
    for at, want in pieces.items():
        assert out[at : at + len(want)].tobytes() == want, at


def test_hidden_arguments_are_hip_s_and_dynamic_lds_arrives(s):
    source = """
    extern LDS u32 room[];
    KERNEL k(GLOBAL u32 *out) {
      u32 sizes[3] = {ITEMS, __builtin_amdgcn_grid_size_x(), GROUP};
      room[ITEM] = ITEM; BARRIER();
      if (!ITEM) { out[GROUP * 4] = sizes[0]; out[GROUP * 4 + 1] = sizes[1]; out[GROUP * 4 + 2] = sizes[2];
                   out[GROUP * 4 + 3] = room[ITEMS - 1]; }
    }"""
    out = np.zeros((3, 4), np.uint32)
    kernel(source)[3, 128](out, dynamic_lds=512)
    np.testing.assert_array_equal(out, [[128, 384, group, 127] for group in range(3)])
    assert s.launches[0].lds == 512


def test_the_bits_are_the_emulator_s(s):
    given = np.random.default_rng(1).integers(0, 1 << 32, 64, np.uint32)
    results = []
    for engine in ("device", "numpy", "host"):
        out = np.zeros(64, np.uint32)
        kernel(options=RunOptions(engine=engine))[1, 64](out, given, 50)
        results.append(out.tobytes())
    assert results[0] == results[1] == results[2]


def test_the_kernel_of_the_drafter_gives_the_recorded_bits(s, gfx950):
    code, out, err = gfx950("check", "drafter_attention", "--case", "small", "--engine", "device")
    assert code == 0, err
    assert "source = machine = golden" in out
    assert [one.kernel for one in s.launches] == ["drafter_attention", "drafter_merge"]


# ---- tensors that are there ------------------------------------------------------------------------------------------


class Tensor(torch.Tensor):
    """A tensor as a ROCm build of torch has it: on "cuda", at an address of the device."""

    def __new__(cls, address, shape, dtype=torch.int32, index=0, strides=None):
        made = torch.Tensor._make_wrapper_subclass(cls, shape, strides=strides, dtype=dtype)
        made.address, made.there = address, torch.device("cuda", index) if index is not None else torch.device("cuda")
        return made

    @property
    def device(self):
        return self.there

    def data_ptr(self):
        return self.address

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} would need the device's memory")


@pytest.fixture
def there(s):
    """Two buffers on the device: 64 zeros and the numbers to 63."""
    from gfx950.hip import Hip

    hip = Hip()
    with hip.filled(np.zeros(64, np.uint32)) as out, hip.filled(np.arange(64, dtype=np.uint32)) as given:
        yield out, given


@pytest.mark.parametrize("index", [0, None])
def test_a_tensor_on_the_device_is_used_where_it_is(s, there, index):
    out, given = there
    tensors = Tensor(out.address, (8, 8), index=index), Tensor(given.address, (64,), index=index)
    kernel()[1, 64](*tensors, 40)
    np.testing.assert_array_equal(out.read().view(np.uint32), expected())
    first, second = np.frombuffer(s.launches[0].kernarg, np.uint64, 2).tolist()
    assert (first, second) == (out.address, given.address), "no copy was made"


def test_tensors_there_and_arrays_here_in_one_launch(s, there):
    _, given = there
    out = np.zeros(64, np.uint32)
    kernel()[1, 64](out, Tensor(given.address, (64,)), 40)
    np.testing.assert_array_equal(out, expected())


def test_a_view_of_a_tensor_and_one_without_elements(s, there):
    out, given = there
    kernel()[1, 16](Tensor(out.address + 64, (16,)), Tensor(given.address, (64,)), 40)
    np.testing.assert_array_equal(out.read().view(np.uint32), [0] * 16 + list(range(40, 56)) + [0] * 32)
    source = "KERNEL k(GLOBAL u32 *out, GLOBAL u32 *none) { out[ITEM] = none != 0; }"
    kernel(source)[1, 64](Tensor(out.address, (64,)), Tensor(given.address, (0,)))
    assert not out.read().any()


def test_what_a_tensor_there_cannot_be(s, there):
    out, given = there
    good = Tensor(given.address, (64,))
    with pytest.raises(LaunchError, match=r"argument 0 .*shape \(8, 4\) and strides \(8, 2\), which is not contiguous"):
        kernel()[1, 64](Tensor(out.address, (8, 4), strides=(8, 2)), good, 40)
    with pytest.raises(LaunchError, match=r"is a tensor on device 1, and the launch is on device 0(.|\n)*=1, or move"):
        kernel()[1, 64](Tensor(out.address, (64,), index=1), good, 40)
    for engine in ("host", "numpy"):
        with pytest.raises(LaunchError, match=r"argument 0.* is a tensor on cuda:0\n(.|\n)*pass tensor\.cpu\(\)"):
            kernel(options=RunOptions(engine=engine))[1, 64](Tensor(out.address, (64,)), good, 40)
    assert not s.launches
    assert not out.read().any()


def test_nothing_here_imports_torch(tmp_path):
    code = "import sys, emu.device_machine, gfx950.hip, emu.arguments; assert not {'torch', 'numba'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- what can fail ---------------------------------------------------------------------------------------------------


def test_no_library_is_said_with_what_to_do(monkeypatch):
    monkeypatch.setenv("GFX950_HIP", "/nowhere/libamdhip64.so")
    with pytest.raises(
        NoDevice,
        match=r"no HIP library: tried /nowhere/libamdhip64\.so \(cannot open .*\); .* use the engines host or numpy",
    ):
        launch()


def test_no_device_and_the_wrong_device():
    with stand_in(devices=0), pytest.raises(NoDevice, match=r"sees no device \(no device is detected"):
        launch()
    with stand_in(arch="gfx942"), pytest.raises(WrongDevice, match="device 0 is a gfx942"):
        launch()


def test_the_device_that_was_chosen(monkeypatch):
    with stand_in(devices=2) as s:
        monkeypatch.setenv("GFX950_DEVICE", "1")
        launch()
        assert [one.device for one in s.launches] == [1]


def test_what_a_device_launch_cannot_have(s):
    out = np.zeros(64, np.uint32)
    bare = Device(ON_DEVICE).load(compiled("__attribute__((amdgpu_kernel)) void k(int *a, int *b, int n) { }"))["k"]
    with pytest.raises(LaunchError, match=r"linked code objects only(.|\n)*ld\.lld -shared"):
        bare[1, 64](out, out.copy(), 1)
    with pytest.raises(LaunchError, match=r"grid \(100, 1, 1\) is no multiple of the block \(64, 1, 1\)"):
        kernel().launch(Geometry.of_items(100, 64), (out, out.copy(), 1))
    unknown = Device(ON_DEVICE).load(linked(assembled(kernel_source())))["k"]
    with pytest.raises(LaunchError, match="does not say which arguments are pointers"):
        unknown[1, 64]()
    with pytest.raises(LaunchError, match="no watchpoint"):
        kernel()[1, 64](out, np.zeros(64, np.uint32), np.uint32(1), watch=(out, 0))
    with pytest.raises(LaunchError, match="on a device HIP fills in the hidden arguments"):
        kernel()[1, 64](out, out.copy(), 1, hidden={"hidden_grid_dims": 1})
    assert not s.launches


CALLS = ("hipSetDevice", "hipGetDevicePropertiesR0600", "hipModuleLoadData", "hipModuleGetFunction", "hipEventCreate",
         "hipMalloc", "hipMemcpy", "hipEventRecord", "hipModuleLaunchKernel", "hipDeviceSynchronize",
         "hipEventElapsedTime")  # fmt: skip


@pytest.mark.parametrize("status", [1, 719, INTERRUPTED])
@pytest.mark.parametrize("call", CALLS)
def test_a_launch_that_fails_leaves_the_host_as_it_was_and_nothing_on_the_device(s, call, status):
    """Each call in each place where it comes."""
    out, given = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    before, failed = (out.copy(), given.copy()), []
    while len(failed) < 8 and (error := error_of_launch(s, (out, given), call, status, len(failed))):
        failed.append(error)
        np.testing.assert_array_equal((out, given), before)
        assert s.leaks() == {}
    wanted = "^$" if status == INTERRUPTED else rf"^{call} failed with {status} \(hipError"
    assert 1 <= len(failed) < 8, "each place of the call failed once, and then none was left"
    assert all(re.search(wanted, str(error)) for error in failed)
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 7, 7, before[0]))


def error_of_launch(s, arrays, call, status, skip):
    s.fail(call, status, skip)
    try:
        kernel()[1, 64](*arrays, 7)
    except (HipError, KeyboardInterrupt) as error:
        return error
    return None


def test_a_kernel_that_fails_there_is_named_and_changes_nothing_here(s):
    out = np.arange(8, dtype=np.uint32)
    with pytest.raises(HipError, match=r"hipDeviceSynchronize failed with 700(.|\n)*last waited for: k\n") as error:
        kernel("KERNEL k(GLOBAL u32 *out) { out[ITEM] = 9; out[1 << 24] = 1; }")[1, 8](out)
    assert error.value.kernels == ("k",)
    np.testing.assert_array_equal(out, np.arange(8))
    assert isinstance(s.errors[0], MemoryFault)


def test_an_interrupt_in_the_kernel(s):
    s.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        launch()
    assert s.leaks() == {}
    np.testing.assert_array_equal(launch()[0], expected())


def test_more_than_the_device_has():
    with stand_in(memory=300) as s:
        with pytest.raises(OutOfDeviceMemory, match="asked for 256 bytes, 44 of 300 bytes are free"):
            launch()
        assert not s.launches


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


def test_the_command_line_on_the_device(gfx950, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.hsaco").write_bytes(compile_c(KERNEL))
    np.save(tmp_path / "i.npy", np.arange(64, dtype=np.uint32))
    arguments = ["--arg", "zeros:u32:64:o.npy", "--arg", "i.npy", "--arg", "u32:40"]
    with stand_in():
        code, _, err = gfx950("run", "k.hsaco", "--grid", 1, "--block", 64, "--engine", "device", *arguments)
    assert code == 0, err
    np.testing.assert_array_equal(np.load(tmp_path / "o.npy"), expected())
    with stand_in(arch="gfx942"):
        code, _, err = gfx950("run", "k.hsaco", "--grid", 1, "--block", 64, "--engine", "device", *arguments)
    assert code == 4
    assert "set GFX950_ANY_DEVICE=1 to use it all the same" in err
