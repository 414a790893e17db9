"""The HIP binding against the stand-in library: every call, every way to fail, and that nothing is left behind."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import types

import numpy as np
import pytest
from hip_stand_in import INTERRUPTED, SOURCES, build, stand_in
from kernel_builds import compile_c
from llvm_tools import compiled, run_tool

from gfx950.hip import Hip, HipError, NoDevice, OutOfDeviceMemory, WrongDevice, find_library, library, system
from gfx950.hip.properties import PropertiesR0000, PropertiesR0600

KERNEL = "KERNEL k(GLOBAL u32 *out, GLOBAL const u32 *in, u32 n) { if (ITEM < n) out[ITEM] = in[ITEM] + n; }"
BEYOND = "KERNEL beyond(GLOBAL u32 *out) { out[1 << 20] = 1; }"

# ---- the structures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "name", "size", "places"),
    [
        (
            PropertiesR0600,
            "hipDeviceProp_tR0600",
            1472,
            {"gcnArchName": 1160, "totalGlobalMem": 288, "multiProcessorCount": 388},
        ),
        (PropertiesR0000, "hipDeviceProp_tR0000", 792, {"gcnArchName": 396, "totalGlobalMem": 256}),
    ],
)
def test_the_structures_are_laid_out_as_a_c_compiler_does(tmp_path, layout, name, size, places):
    names = [field[0] for field in layout._fields_]
    lines = [f'printf("%zu %zu\\n", offsetof({name}, {f}), sizeof((({name} *)0)->{f}));' for f in names]
    source = f'#include "hip_abi.h"\n#include <stdio.h>\nint main(void) {{ printf("%zu\\n", sizeof({name}));'
    (tmp_path / "layout.c").write_text(source + "\n".join(lines) + "return 0; }")
    run_tool("cc", f"-I{SOURCES}", str(tmp_path / "layout.c"), "-o", str(tmp_path / "layout"))
    said = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout.split("\n")
    assert int(said[0]) == ctypes.sizeof(layout) == size
    found = {f: tuple(map(int, line.split())) for f, line in zip(names, said[1:], strict=False)}
    assert found == {f: (getattr(layout, f).offset, getattr(layout, f).size) for f in names}
    assert {f: found[f][0] for f in places} == places, "what others measured of ROCm's headers"


# ---- finding the library ---------------------------------------------------------------------------------------------


def nowhere(monkeypatch, tmp_path):
    monkeypatch.delenv("GFX950_HIP", raising=False)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))


def test_every_place_is_named_with_what_was_wrong(monkeypatch, tmp_path):
    nowhere(monkeypatch, tmp_path)
    with pytest.raises(NoDevice) as error:
        find_library()
    said = str(error.value)
    places = [str(tmp_path / "rocm/lib/libamdhip64.so"), "/opt/rocm/lib/libamdhip64.so", "libamdhip64.so.7",
              "libamdhip64.so.6", "torch/lib/libamdhip64.so"]  # fmt: skip
    found = [said.index(f"{place} (") for place in places]
    assert found == sorted(found)
    assert said.count("cannot open shared object file") == 6
    assert said.endswith("or name the library in GFX950_HIP; without a device use the engines host or numpy")


def test_the_chosen_library_is_the_only_one_looked_for(monkeypatch):
    monkeypatch.setenv("GFX950_HIP", "/nowhere/libamdhip64.so")
    with pytest.raises(NoDevice, match=r"^no HIP library: tried /nowhere/libamdhip64\.so \(cannot open [^)]*\); on a"):
        find_library()


def test_a_name_of_a_file_in_this_folder_is_that_file(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "libhere.so").write_text("no library")
    monkeypatch.setenv("GFX950_HIP", "libhere.so")
    with pytest.raises(NoDevice, match=rf"tried {tmp_path}/libhere\.so \(file too short\)"):
        find_library()
    (tmp_path / "libhere.so").unlink()
    (tmp_path / "libhere.so").symlink_to(build())
    assert find_library()._name == str(tmp_path / "libhere.so")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_opened(monkeypatch, tmp_path, make):
    make(tmp_path / "libamdhip64.so")
    monkeypatch.setenv("GFX950_HIP", str(tmp_path / "libamdhip64.so"))
    with pytest.raises(NoDevice, match=r"libamdhip64\.so \(it is no file\)"):
        find_library()


def test_a_library_that_is_not_hip_is_no_device(monkeypatch):
    monkeypatch.setenv("GFX950_HIP", "libc.so.6")
    with pytest.raises(NoDevice, match=r"tried libc\.so\.6 \(it has no hipGetDeviceCount\); .* GFX950_HIP"):
        find_library()


def test_a_library_without_some_entry(monkeypatch):
    monkeypatch.setenv("GFX950_HIP", str(build("WITHOUT_EVENTS")))
    with pytest.raises(NoDevice, match=r"libhip-stand-in-\w+\.so \(it has no hipEventCreate\)"):
        find_library()


def test_rocm_path_comes_before_the_loader_s_path(monkeypatch, tmp_path):
    nowhere(monkeypatch, tmp_path)
    (tmp_path / "rocm/lib").mkdir(parents=True)
    (tmp_path / "rocm/lib/libamdhip64.so").symlink_to(build())
    assert find_library()._name == str(tmp_path / "rocm/lib/libamdhip64.so")


def places_in_a_process(tmp_path, before=""):
    """The library that a fresh process finds where tmp_path has Python packages, and all places that it looks at."""
    code = (
        f"import ctypes, sys; {before}\nfrom gfx950.hip.library import find_library, _places; places = list(_places())"
    )
    code += "\nprint(find_library()._name, *places); assert 'torch' not in sys.modules"
    environment = {k: v for k, v in os.environ.items() if k not in ("GFX950_HIP", "ROCM_PATH")}
    environment["PYTHONPATH"] = str(tmp_path)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.mark.parametrize(("package", "name"), [("torch", ""), ("_rocm_sdk_core", ".7")])
def test_the_copy_in_an_installed_package_which_is_not_imported(tmp_path, package, name):
    own = tmp_path / package / f"lib/libamdhip64.so{name}"
    own.parent.mkdir(parents=True)
    (tmp_path / package / "__init__.py").write_text("raise SystemExit('imported')")
    own.symlink_to(build())
    found, *places = places_in_a_process(tmp_path)
    assert found == str(own)
    assert places[:4] == ["/opt/rocm/lib/libamdhip64.so", *library.NAMES]
    assert str(own) in places[4:]


def test_the_library_that_the_process_has_loaded_comes_first(tmp_path):
    own = tmp_path / "libamdhip64.so.7.0.70002"
    own.write_bytes(build().read_bytes())
    found, *places = places_in_a_process(tmp_path, f"ctypes.CDLL({str(own)!r})")
    assert found == places[0] == str(own)
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 0000 08:01 12   /opt/x/libamdhip64.so.6.3 (deleted)\n7f01-7f02 rw-p 0 0 0 [heap]\n")
    assert list(library._loaded(maps)) == list(library._loaded(tmp_path / "none")) == []


def test_a_torch_that_says_nothing_of_itself(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    nowhere(monkeypatch, tmp_path)
    assert not any("/torch/lib/" in place for place in library._places())


# ---- opening a device ------------------------------------------------------------------------------------------------


def test_what_is_known_of_a_device():
    with stand_in():
        hip = Hip()
        assert (hip.index, hip.properties.chip, hip.properties.compute_units) == (0, "gfx950", 256)
        assert hip.properties.memory == 288 << 30
        assert hip.properties.revision == 7
        described = hip.describe()
        assert list(described) == ["name", "architecture", "rocm", "driver", "firmware"]
        assert described["name"] == "gfx950 stand-in (emulated)"
        assert described["architecture"] == "gfx950:sramecc+:xnack-"
        assert described["driver"] == "HIP runtime 70099999, driver 70099998"


def test_a_library_before_rocm_6_has_the_older_structure():
    with stand_in(without=["WITHOUT_R0600", "WITHOUT_MEMORY_INFO"]) as s:
        hip = Hip()
        assert (hip.properties.chip, hip.properties.memory, hip.properties.revision) == ("gfx950", 288 << 30, 7)
        assert hip.memory() is None
        s.fail("hipRuntimeGetVersion", 999)
        assert hip.describe()["driver"] == "HIP runtime 0, driver 70099998"


def test_no_device_behind_the_library():
    with stand_in(devices=0), pytest.raises(NoDevice, match=r"sees no device \(no device is detected \(stand-in\)\)"):
        Hip()


def test_another_chip_is_refused_by_name(monkeypatch):
    with stand_in(arch="gfx942:sramecc+:xnack-"):
        with pytest.raises(
            WrongDevice,
            match=r"device 0 is a gfx942 \(gfx942 stand-in \(emulated\)\), not gfx950: .* set GFX950_ANY_DEVICE=1",
        ):
            Hip()
        assert issubclass(WrongDevice, NoDevice), "the command line leaves with 4"
        assert Hip(any_device=True).properties.chip == "gfx942"
        monkeypatch.setenv("GFX950_ANY_DEVICE", "1")
        hip = Hip()
        with pytest.raises(HipError, match=r"209 \(hipErrorNoBinaryForGpu\)(.|\n)*for another chip than this device"):
            hip.load(compile_c(KERNEL))
        with pytest.raises(WrongDevice):
            Hip(any_device=False)


def test_a_library_with_neither_structure(monkeypatch):
    monkeypatch.setenv("GFX950_HIP", str(build("WITHOUT_R0600", "WITHOUT_R0000")))
    with pytest.raises(NoDevice, match=r"\(it has no hipGetDevicePropertiesR0600\)"):
        find_library()
    with stand_in(without=["WITHOUT_R0000"]):
        assert Hip().properties.chip == "gfx950"


def test_the_current_device_is_as_it_was_after_a_with():
    """torch in the same process makes its tensors on the current device."""
    with stand_in(devices=2):
        outer, current = Hip(0), ctypes.c_int(-1)
        with Hip(1) as hip:
            hip.call("hipGetDevice", ctypes.byref(current))
            assert current.value == 1
        outer.call("hipGetDevice", ctypes.byref(current))
        assert current.value == 0


@pytest.mark.parametrize("arch", ["gfx9500", "gfx95", "gfx950a"])
def test_a_name_that_only_begins_alike_is_another_chip(arch):
    with stand_in(arch=arch), pytest.raises(WrongDevice, match=f"is a {arch} "):
        Hip()


def test_properties_of_an_unknown_layout():
    with stand_in(arch="?"), pytest.raises(NoDevice, match=r"architecture is '\?', which is no gfx name"):
        Hip()


def test_which_of_two_devices(monkeypatch):
    with stand_in(devices=2):
        assert Hip().index == 0
        assert (Hip(1).index, Hip(1).properties.pci_bus) == (1, 17)
        with pytest.raises(NoDevice, match=r"device 2 was asked for, but .* sees 2 devices, numbers 0 to 1"):
            Hip(2)
        with pytest.raises(NoDevice, match="device -1 was asked for"):
            Hip(-1)
        monkeypatch.setenv("GFX950_DEVICE", "1")
        assert Hip().index == 1
        assert Hip(0).index == 0
    with stand_in():
        monkeypatch.setenv("GFX950_DEVICE", "1")
        with pytest.raises(NoDevice, match="GFX950_DEVICE is '1', but the HIP library sees one device, number 0"):
            Hip()
        for text in ("first", "-1", "9" * 5000, "\N{ARABIC-INDIC DIGIT ZERO}", " "):
            monkeypatch.setenv("GFX950_DEVICE", text)
            with pytest.raises(NoDevice, match=f"GFX950_DEVICE is '{text}'"):
                Hip()
        monkeypatch.setenv("GFX950_DEVICE", "")
        assert Hip().index == 0, "an empty variable is none, as of GFX950_HIP"


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def chip():
    """The stand-in and a device of it."""
    with stand_in() as s:
        yield s, Hip()


def test_bytes_go_there_and_come_back(chip):
    _, hip = chip
    data = np.arange(100, dtype=np.uint16)
    with hip.filled(data) as buffer, hip.filled(b"abc") as text:
        assert buffer.nbytes == 200
        buffer.write(np.full(3, 7, np.uint8), offset=10)
        back = np.empty(100, np.uint16)
        buffer.read_into(back)
        want = data.copy()
        want.view(np.uint8)[10:13] = 7
        np.testing.assert_array_equal(back, want)
        assert buffer.read(198).tobytes() == want[99:].tobytes()
        assert buffer.read(10, 3).tolist() == [7, 7, 7]
        assert text.read().tobytes() == b"abc"
        text.fill(0x5A)
        assert text.read().tobytes() == b"ZZZ"


def test_a_device_address_is_none_of_the_host(chip):
    s, hip = chip
    with hip.allocate(64) as buffer:
        [(address, (host, nbytes))] = s.allocations().items()
        assert (buffer.address, nbytes) == (address, 64)
        assert address != host
        with pytest.raises(HipError, match=r"hipMemcpy failed with 1 \(hipErrorInvalidValue\)"):
            hip.call("hipMemcpy", host, buffer.address, 64, 1)


def test_an_empty_buffer_is_one_all_the_same(chip):
    _, hip = chip
    with hip.allocate(0) as buffer:
        assert buffer.address
        buffer.write(np.zeros(0))
        buffer.fill(3)
        assert buffer.read().size == 0


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda b: b.write(np.zeros(65, np.uint8)), "65 bytes at offset 0 is not inside the device buffer of 64 bytes"),
        (lambda b: b.write(np.zeros(8, np.uint8), 57), "8 bytes at offset 57 is not inside"),
        (lambda b: b.write(np.zeros(8, np.uint8), -1), "8 bytes at offset -1 is not inside"),
        (lambda b: b.read(65), "0 bytes at offset 65 is not inside"),
        (lambda b: b.read(0, 65), "65 bytes at offset 0 is not inside"),
        (lambda b: b.write(np.zeros((8, 8), np.uint8)[:, ::2]), r"shape \(8, 4\) and strides \(8, 2\) is not C-cont"),
        (lambda b: b.read_into(np.frombuffer(bytes(8), np.uint8)), "the array to copy to is read-only"),
        (lambda b: b.fill(256), "256 is no byte"),
        (lambda b: (b.close(), b.read()), "the device buffer was given back already"),
    ],
)
def test_copies_are_checked_before_hip_sees_them(chip, use, message):
    _, hip = chip
    with hip.allocate(64) as buffer, pytest.raises(ValueError, match=message):
        use(buffer)


@pytest.mark.parametrize("nbytes", [-1, 1 << 63, 1 << 64])
def test_a_size_that_is_none(chip, nbytes):
    with pytest.raises(ValueError, match=f"a device buffer has no {nbytes} bytes"):
        chip[1].allocate(nbytes)


def test_out_of_memory_says_what_was_asked_and_what_is_left():
    with stand_in(memory=1000) as s:
        hip = Hip()
        with hip.allocate(600), pytest.raises(OutOfDeviceMemory) as error:
            hip.allocate(401)
        assert (error.value.asked, error.value.free, error.value.total) == (401, 400, 1000)
        assert str(error.value) == (
            "hipMalloc failed with 2 (hipErrorOutOfMemory): out of memory (stand-in)\n"
            "  asked for 401 bytes, 400 of 1000 bytes are free"
        )
        s.fail("hipMemGetInfo", 999)
        with pytest.raises(OutOfDeviceMemory, match="asked for 2000 bytes, HIP does not say what is free") as error:
            hip.allocate(2000)
        assert error.value.free is None
        s.fail("hipMalloc", 700)
        with pytest.raises(HipError, match="hipErrorIllegalAddress") as other:
            hip.allocate(1)
        assert not isinstance(other.value, OutOfDeviceMemory)


def test_an_error_is_taken_out_of_hip_s_own_memory(chip):
    _, hip = chip
    with pytest.raises(HipError) as error:
        hip.call("hipFree", 12345)
    found = error.value
    assert (found.call, found.number, found.name) == ("hipFree", 17, "hipErrorInvalidDevicePointer")
    assert (found.text, found.sticky, found.kernels) == ("invalid device pointer (stand-in)", False, ())
    assert hip.library.hipGetLastError() == 0


# ---- what is given back ----------------------------------------------------------------------------------------------

TAKEN = {"hipMalloc": lambda hip: hip.allocate(8), "hipModuleLoadData": lambda hip: hip.load(compile_c(KERNEL)),
         "hipStreamCreate": lambda hip: hip.stream(), "hipEventCreate": lambda hip: hip.event()}  # fmt: skip


@pytest.mark.parametrize("call", TAKEN)
def test_an_interrupt_while_hip_hands_something_out_leaves_nothing(chip, call):
    s, hip = chip
    s.fail(call, INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        TAKEN[call](hip)
    assert s.leaks() == {}


@pytest.mark.parametrize("call", TAKEN)
def test_each_is_given_back_once_whatever_happens(chip, call):
    s, hip = chip
    taken = TAKEN[call](hip)
    assert sum(s.leaks().values()) == 1
    with pytest.raises(KeyError), taken:
        raise KeyError
    taken.close()
    assert s.leaks() == {}
    with pytest.raises(ValueError, match="was given back already"):
        _ = taken.handle


@pytest.mark.parametrize("call", TAKEN)
def test_what_cannot_be_taken(chip, call):
    s, hip = chip
    s.fail(call, 999)
    with pytest.raises(HipError, match=rf"{call} failed with 999 \(hipErrorUnknown\)"):
        TAKEN[call](hip)
    assert s.leaks() == {}


def test_an_error_in_giving_back_does_not_hide_the_first():
    with stand_in(check_leaks=False) as s:
        hip = Hip()
        s.fail("hipFree", 999)
        with pytest.raises(KeyError) as error, hip.allocate(8):
            raise KeyError
        assert "giving back the device buffer failed as well: hipFree failed with 999" in error.value.__notes__[0]
        s.fail("hipFree", 999)
        with pytest.raises(HipError, match="hipFree failed with 999"), hip.allocate(8):
            pass


def test_a_buffer_whose_first_copy_fails_is_given_back(chip):
    s, hip = chip
    s.fail("hipMemcpy", 1)
    with pytest.raises(HipError, match="hipMemcpy failed with 1"):
        hip.filled(np.zeros(8))
    s.fail("hipMemcpy", INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        hip.filled(np.zeros(8))
    assert s.leaks() == {}


# ---- streams and events ----------------------------------------------------------------------------------------------


def test_copies_on_a_stream(chip):
    s, hip = chip
    data, back = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    with hip.stream() as stream, hip.allocate(256) as buffer:
        buffer.write(data, stream=stream)
        buffer.read_into(back, stream=stream)
        assert len(stream._kept) == 2, "host memory of copies under way stays alive"
        stream.synchronize()
        assert stream._kept == []
        np.testing.assert_array_equal(back, data)
        s.fail("hipMemcpyAsync", 1)
        with pytest.raises(HipError, match="hipMemcpyAsync failed with 1"):
            buffer.write(data, stream=stream)
    assert s.leaks() == {}


def test_a_stream_is_waited_for_before_it_goes(chip):
    s, hip = chip
    with hip.allocate(8) as buffer:
        stream = hip.stream()
        buffer.write(np.zeros(8, np.uint8), stream=stream)
        s.fail_later(719)
        with pytest.raises(HipError, match="hipStreamSynchronize failed with 719"):
            stream.close()
    assert s.leaks() == {}


def test_times(chip):
    _, hip = chip
    with hip.event() as start, hip.event() as end, hip.stream() as stream:
        with pytest.raises(HipError, match="hipEventElapsedTime failed with 400"):
            end.milliseconds_since(start)
        start.record()
        end.record(stream)
        end.synchronize()
        assert 0 <= end.milliseconds_since(start) < 10_000


# ---- launches --------------------------------------------------------------------------------------------------------


def arguments(out, given, n):
    return b"".join(v.to_bytes(8, "little") for v in (out.address, given.address)) + n.to_bytes(4, "little")


def test_a_launch_runs_the_code_object_that_was_loaded(chip):
    s, hip = chip
    given = np.arange(64, dtype=np.uint32)
    with hip.load(compile_c(KERNEL)) as module, hip.filled(given) as there, hip.allocate(256) as out:
        out.fill(0)
        module.function("k").launch((1, 1, 1), (64, 1, 1), arguments(out, there, 40))
        hip.synchronize()
        want = np.where(given < 40, given + 40, 0).astype(np.uint32)
        np.testing.assert_array_equal(out.read().view(np.uint32), want)
    assert [(one.kernel, one.grid, one.block, one.lds) for one in s.launches] == [("k", (1, 1, 1), (64, 1, 1), 0)]


def test_a_launch_on_a_stream(chip):
    _, hip = chip
    with hip.load(compile_c(KERNEL)) as module, hip.allocate(256) as out, hip.stream() as stream:
        out.fill(1)
        module.function("k").launch((1, 1, 1), (64, 1, 1), arguments(out, out, 64), stream=stream)
        stream.synchronize()
        assert set(out.read().view(np.uint32).tolist()) == {0x01010101 + 64}


def test_what_a_launch_cannot_have(chip):
    _, hip = chip
    with pytest.raises(HipError, match=r"200 \(hipErrorInvalidImage\)(.|\n)*HIP loads linked gfx950 code objects"):
        hip.load(compiled("__attribute__((amdgpu_kernel)) void k(int *a) { }"))
    with hip.load(compile_c(KERNEL)) as module:
        with pytest.raises(HipError, match=r"hipModuleGetFunction failed with 500 (.|\n)*no kernel of that name"):
            module.function("other")
        k = module.function("k")
        for grid, block in (((1, 1), (64, 1, 1)), ((1, 1, 1), (1 << 32, 1, 1)), ((-1, 1, 1), (64, 1, 1))):
            with pytest.raises(ValueError, match="HIP takes three, three and one whole number below"):
                k.launch(grid, block, b"")
        with pytest.raises(HipError, match=r"hipModuleLaunchKernel failed with 9 \(hipErrorInvalidConfiguration\)"):
            k.launch((1, 1, 1), (64, 32, 1), bytes(20))
        for grid, kernarg in (((1, 1, 1), bytes(19)), ((1, 1, 1), b""), ((1, 0, 1), bytes(20))):
            with pytest.raises(HipError, match=r"hipModuleLaunchKernel failed with 1 \(hipErrorInvalidValue\)"):
                k.launch(grid, (64, 1, 1), kernarg)
        assert hip.launched == [], "none of these is blamed later"
    with pytest.raises(ValueError, match="the module was given back already"):
        k.launch((1, 1, 1), (64, 1, 1), bytes(20))


def test_a_kernel_without_arguments(chip):
    s, hip = chip
    with hip.load(compile_c("KERNEL nothing(void) { }")) as module:
        module.function("nothing").launch((1, 1, 1), (64, 1, 1), b"")
        hip.synchronize()
        with pytest.raises(HipError, match=r"failed with 701 \(hipErrorLaunchOutOfResources\)"):
            module.function("nothing").launch((1, 1, 1), (64, 1, 1), bytes(8))
    assert [one.kernarg for one in s.launches] == [b"", bytes(8)]


def test_a_kernel_s_failure_shows_where_the_device_is_waited_for_with_its_name(chip):
    s, hip = chip
    with hip.load(compile_c(BEYOND)) as module, hip.allocate(8) as out:
        module.function("beyond").launch((1, 1, 1), (1, 1, 1), out.address.to_bytes(8, "little"))
        with pytest.raises(HipError) as error:
            hip.synchronize()
        assert (error.value.number, error.value.kernels, error.value.sticky) == (700, ("beyond",), True)
        assert str(error.value) == (
            "hipDeviceSynchronize failed with 700 (hipErrorIllegalAddress): illegal memory access (stand-in)\n"
            "  kernels launched since the device was last waited for: beyond\n"
            "  this process's context with the device is lost: start a new process for further launches"
        )
        assert "4194304 bytes" in str(s.errors[0]) or "past the end of buffer" in str(s.errors[0])
        with pytest.raises(HipError, match="hipMemcpy failed with 700"):
            out.read()
        with pytest.raises(
            HipError, match=r"^hipGetDeviceCount failed with 700 .*\n  this process's context .* is lost"
        ):
            Hip()
    assert s.leaks() == {}


def test_a_launch_that_was_waited_for_is_not_blamed(chip):
    s, hip = chip
    with hip.load(compile_c(KERNEL)) as module, hip.allocate(256) as out:
        module.function("k").launch((1, 1, 1), (64, 1, 1), arguments(out, out, 4))
        hip.synchronize()
        s.fail_later(719)
        with pytest.raises(HipError, match="hipDeviceSynchronize failed with 719") as error:
            hip.synchronize()
        assert error.value.kernels == ()


def test_ctrl_c_while_a_kernel_runs(chip):
    s, hip = chip
    s.interrupt = True
    with hip.load(compile_c(KERNEL)) as module, hip.allocate(256) as out:
        k = module.function("k")
        with pytest.raises(KeyboardInterrupt):
            k.launch((1, 1, 1), (64, 1, 1), arguments(out, out, 4))


# ---- the system ------------------------------------------------------------------------------------------------------


def test_what_the_system_says_of_a_device(tmp_path, monkeypatch):
    firmware = tmp_path / "cards" / "card0" / "device" / "fw_version"
    firmware.mkdir(parents=True)
    (firmware / "mec_fw_version").write_text("0x000000a8\n")
    (firmware / "sdma_fw_version").write_text("0x00000018\n")
    assert system.firmware(tmp_path / "cards") == "mec 0x000000a8, sdma 0x00000018"
    assert system.firmware(tmp_path / "nothing") == ""
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert system.rocm_version() == ""
    (tmp_path / ".info").mkdir()
    (tmp_path / ".info/version").write_text("7.0.2-56\n")
    assert system.rocm_version() == "7.0.2-56"
