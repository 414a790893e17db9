"""The pytest plugin: runs of pytest inside this one, on the emulator, on the stand-in of a device, and on neither."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from hip_stand_in import Fault, offset_of, stand_in
from kernel_builds import compile_c

pytest_plugins = ["pytester"]

# A run inside this one forgets what it imported, and these do not bear a second import.
for heavy in (
    "torch", "llvmlite.binding", "numba", "codegen.compile", "emu.device_machine", "emu.host_machine",
    "emu.numpy_machine", "gfx950.isa.text.unprinted", "golden.launch_twice",
):  # fmt: skip
    import_module(heavy)

KERNEL = """
KERNEL add(GLOBAL float *x, GLOBAL float *y, u32 n) {
  u32 i = GROUP * ITEMS + ITEM;
  if (i < n) y[i] = x[i] + 1.0f;
}
KERNEL race(GLOBAL u32 *out) {
  SHARED(u32, last, 1);
  __asm__ volatile("s_nop 0\\n s_nop 0\\n s_nop 0\\n s_nop 0\\n s_nop 0\\n s_nop 0\\n s_nop 0\\n s_nop 0");
  last[0] = ITEM / 64;
  BARRIER();
  if (ITEM == 0) out[0] = last[0];
}
KERNEL exchange(GLOBAL u32 *x, GLOBAL u32 *s, GLOBAL u32 *y) {
  s[ITEM] = x[ITEM];
  y[ITEM] = s[(ITEM + 64) % ITEMS];
}
KERNEL last_wave(GLOBAL u32 *out) { out[0] = ITEM / 64; }
KERNEL last_group(GLOBAL u32 *out) { out[0] = GROUP; }
KERNEL behind(GLOBAL u32 *at, GLOBAL u32 *out) {
  u32 wave = ITEM / 64;
  if (wave == 0) at[0] = 0;
  out[at[0]] = 7;
}
"""

IMPORTS = "import numpy as np\nimport pytest\n"
ADD = f"""{IMPORTS}
def test_add(gfx950_device, assert_bits_equal):
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    gfx950_device.load("k.hsaco")["add"][2, 64](x, y, 100)
    assert_bits_equal(y, np.where(x < 100, x + 1, 0).astype(np.float32), name="y")
    print("KIND", gfx950_device.kind, gfx950_device.describe())
"""
COMPARE = f"""{IMPORTS}
def test_add(gfx950_compare):
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    a, b, n = gfx950_compare("k.hsaco", "add", 2, 64, x, y, 128)
    assert not y.any()
    assert (b == x + 1).all() and a is not x and n == 128
"""


@pytest.fixture
def user(pytester, monkeypatch, tmp_path_factory):
    """A user's folder with a code object; `user(test, *arguments)` runs pytest in it."""
    for name in ("GFX950_TEST", "GFX950_DEVICE", "GFX950_ANY_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("GFX950_HIP", "/no/such/libamdhip64.so")
    (pytester.path / "k.hsaco").write_bytes(compile_c(KERNEL))

    def run(test, *arguments):
        pytester.makepyfile(test)
        return pytester.runpytest("-p", "no:cacheprovider", "-rsE", *arguments)

    return run


# ---- where tests run -------------------------------------------------------------------------------------------------


def test_the_plugin_is_installed():
    (found,) = entry_points(group="pytest11", name="gfx950")
    assert found.value == "golden.pytest_plugin"


def test_without_a_chip_a_test_is_skipped_with_the_reason(user):
    done = user(ADD)
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(
        [
            "SKIPPED [[]1] test_without_a_chip_a_test_is_skipped_with_the_reason.py:4: needs an MI355X: no HIP library:"
            " tried /no/such/libamdhip64.so (*GFX950_HIP; or run these tests with --gfx950=emulator"
        ]
    )
    done.stdout.no_fnmatch_line("*engines host*")


def test_without_a_chip_where_one_must_be_it_is_an_error_that_is_no_traceback(user):
    done = user(ADD, "--gfx950=device")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["--gfx950 is device, and there is none: no HIP library: tried /no/such/*"])
    done.stdout.fnmatch_lines(["*; give --gfx950=emulator, or unset --gfx950 (GFX950_TEST, the ini option) to *"])
    done.stdout.no_fnmatch_line("*pytest_plugin.py:*: *")
    done.stdout.no_fnmatch_line("*engines host*")


def test_on_the_emulator(user):
    done = user(ADD, "--gfx950=emulator", "-s")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["gfx950: emulator", "*KIND emulator the emulator, engine host, * thread*, model *"])


@pytest.mark.parametrize(
    ("environment", "ini", "option", "outcome"),
    [
        ("emulator", "", "", "passed"),
        ("", "emulator", "", "passed"),
        ("emulator", "device", "", "passed"),
        ("emulator", "emulator", "auto", "skipped"),
        ("device", "emulator", "emulator", "passed"),
        ("auto", "emulator", "", "skipped"),
    ],
)
def test_the_option_comes_before_the_environment_and_that_before_the_ini(
    user, pytester, monkeypatch, environment, ini, option, outcome
):
    if environment:
        monkeypatch.setenv("GFX950_TEST", environment)
    pytester.makeini(f"[pytest]\ngfx950 = {ini}\n")
    done = user(ADD, *([f"--gfx950={option}"] if option else []))
    done.assert_outcomes(**{outcome: 1})


@pytest.mark.parametrize("place", ["GFX950_TEST", "the ini option gfx950"])
def test_a_place_that_is_none(user, pytester, monkeypatch, place):
    if place == "GFX950_TEST":
        monkeypatch.setenv(place, "gpu")
    else:
        pytester.makeini("[pytest]\ngfx950 = gpu\n")
    done = user(ADD)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: {place} is 'gpu'; it is one of auto, device, emulator"])


@pytest.mark.parametrize("mode", ["auto", "device"])
def test_on_a_device(user, mode):
    with stand_in() as s:
        done = user(ADD, f"--gfx950={mode}", "-s")
        assert [one.kernel for one in s.launches] == ["add"]
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["*KIND device device 0: *, gfx950:sramecc+:xnack-, * compute units, * GiB"])


def test_another_chip_is_none(user):
    with stand_in(arch="gfx942"):
        done = user(ADD)
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(["SKIPPED*needs an MI355X: device 0 is a gfx942 *"])


def test_the_chip_is_looked_for_once(user):
    test = ADD + "\ndef test_again(gfx950_device): pass\n"
    with stand_in() as s:
        s.fail("hipGetDeviceCount", 100, skip=1, times=-1)  # hipErrorNoDevice, from the second call on
        done = user(test, "-k", "again", "--gfx950=device")
    done.assert_outcomes(passed=1, deselected=1)


ONLY = f"""{IMPORTS}
@pytest.mark.gfx950_device_only
def test_times(gfx950_device): assert gfx950_device.kind == "device"

@pytest.mark.gfx950_device_only
def test_alone(): pass
"""


def test_what_makes_sense_on_a_chip_alone(user):
    with stand_in():
        user(ONLY, "--strict-markers").assert_outcomes(passed=2)
    done = user(ONLY)
    done.assert_outcomes(skipped=2)
    place = "test_what_makes_sense_on_a_chip_alone.py"
    why = "this test is gfx950_device_only, and the emulator does not stand in for it"
    done.stdout.fnmatch_lines([f"SKIPPED*{place}:{line}: needs an MI355X: *GFX950_HIP; {why}" for line in (4, 7)])
    user(ONLY, "--gfx950=device").assert_outcomes(errors=2)
    done = user(ONLY, "--gfx950=emulator")
    done.assert_outcomes(skipped=2)
    told = "gfx950_device_only: makes sense on a chip alone, and --gfx950 is emulator"
    done.stdout.fnmatch_lines([f"SKIPPED*{place}:{line}: {told}" for line in (4, 7)])


def test_each_test_has_a_device_of_its_own(user):
    test = f"""{IMPORTS}
@pytest.fixture
def seen(request): return request.config.__dict__.setdefault("seen", [])

@pytest.mark.parametrize("n", range(2))
def test_it(gfx950_device, seen, n):
    assert gfx950_device not in seen
    seen.append(gfx950_device)
"""
    user(test, "--gfx950=emulator").assert_outcomes(passed=2)


def test_kernels_of_the_generator(user):
    test = f"""{IMPORTS}
from codegen.compile import compile_kernels
from codegen.language import Pointer, kernel, load, store, thread_id, trace

@kernel(block=64)
def increment(data: Pointer):
    at = data + thread_id().to(type(data)) * 4
    store(at, load(at) + 1)

def test_increment(gfx950_device, gfx950_compare, assert_bits_equal):
    compiled, data = compile_kernels([trace(increment)]), np.arange(64, dtype=np.int32)
    gfx950_device.load(compiled)["increment"][1, 64](data)
    assert_bits_equal(data, np.arange(1, 65, dtype=np.int32))
    (after,) = gfx950_compare(compiled, "increment", 1, 64, data)
    assert_bits_equal(after, data + np.int32(1))
"""
    user(test, "--gfx950=emulator").assert_outcomes(passed=1)


def test_the_example_of_the_documentation(user):
    text = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
    example = text.partition("```python\n")[2].partition("```")[0]
    user(example, "--gfx950=emulator").assert_outcomes(passed=2, skipped=1)


# ---- what a failure looks like ---------------------------------------------------------------------------------------


def test_a_failure_is_the_report_under_the_line_of_the_test(user):
    test = f"""{IMPORTS}
from golden.pytest_plugin import assert_bits_equal

def test_signs():
    a = np.float32([[1, 2, 3], [0, 5, 6]])
    b = a.copy()
    b[1] = -a[1]
    assert_bits_equal(a, b, name="o", where=lambda i: f"row {{i[0]}} dim {{i[1]}}")
"""
    done = user(test)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            ">       assert_bits_equal(a, b, name=*",
            "E       AssertionError: o: 3 of 6 elements differ in bits (float32[[]2, 3[]])",
            "E         first     o[[]1[]][[]0[]]: row 1 dim 0",
            "E         actual    0x00000000  0|00000000|00000000000000000000000  0.0",
            "E         expected  0x80000000  1|00000000|00000000000000000000000  -0.0",
            "E         distance  0 ulp",
            "E         all in    o[[]1[]][[][*][]]",
            "E         pattern   only signs differ",
            "",
            "test_a_failure_is_the_report_under_the_line_of_the_test.py:10: AssertionError",
        ],
        consecutive=True,
    )
    done.stdout.no_fnmatch_line("*bits.py*")


FAULT = f"""{IMPORTS}
def test_beyond(gfx950_device):
    x = np.zeros(64, np.float32)
    gfx950_device.load("k.hsaco")["add"][2, 64](x, x, 128)

def test_no_array(gfx950_device):
    gfx950_device.load("k.hsaco")["add"][2, 64]([1.0], [2.0], 128)

def test_bug_inside(gfx950_device, monkeypatch):
    import emu.dispatch
    monkeypatch.setattr(emu.dispatch, "RunOptions", None)
    emu.dispatch.Device().load(3)
"""


def test_what_is_wrong_with_a_launch_is_told_under_the_line_of_the_test(user):
    done = user(FAULT, "--gfx950=emulator", "-k", "beyond or no_array")
    done.assert_outcomes(failed=2, deselected=1)
    done.stdout.fnmatch_lines([">       gfx950_device.load(*", "E       emu.errors.MemoryFault: *"])
    done.stdout.no_re_match_line(r".*(emu|golden|codegen)/\w+\.py:\d+.*")
    done.stdout.fnmatch_lines([">       gfx950_device.load(*[[]1.0]*", "*argument*list*"])
    shown = user(FAULT, "--gfx950=emulator", "-k", "beyond or no_array", "--full-trace")
    shown.stdout.re_match_lines([r".*emu/\w+\.py:\d+.*"])


def test_a_mistake_inside_shows_where_it_is(user):
    done = user(FAULT, "--gfx950=emulator", "-k", "bug_inside")
    done.assert_outcomes(failed=1, deselected=2)
    done.stdout.re_match_lines([r".*emu/dispatch\.py:\d+: TypeError"])


# ---- the same launch twice -------------------------------------------------------------------------------------------


def test_compare_leaves_the_arguments_alone_and_returns_copies(user):
    user(COMPARE, "--gfx950=emulator").assert_outcomes(passed=1)
    with stand_in() as s:
        user(COMPARE).assert_outcomes(passed=1)
        assert len(s.launches) == 1


def test_compare_names_the_element_and_its_writer(user):
    offset = offset_of(compile_c(KERNEL), "v_add_f32", "add")
    with stand_in(faults=[Fault("add", offset, "v2", bit=22, lane=5, wave=0, workgroup=(1, 0, 0))]) as s:
        done = user(COMPARE)
        assert sum(s.faults.done.values()) == 1
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "E       AssertionError: argument 1: 1 of 128 elements differ in bits (float32[[]128[]])",
            "E         first     argument 1[[]69[]]",
            "E         device    0x42cc0000  *",
            "E         emulator  0x428c0000  0|10000101|00011000000000000000000  70.0",
            "E         distance  4194304 ulp",
            "E         writer    global_store_dword at add+0x*,",
            "E                   workgroup (1, 0, 0) wave 0 lane 5",
            "",
            "*: AssertionError",
        ],
        consecutive=True,
    )
    done.stdout.no_fnmatch_line("*launch_twice.py*")


def test_compare_on_the_emulator_finds_what_the_order_of_waves_decides(user):
    test = f"""{IMPORTS}
def test_race(gfx950_compare):
    gfx950_compare("k.hsaco", "race", 1, 1024, np.zeros(1, np.uint32))
"""
    done = user(test, "--gfx950=emulator")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["E       AssertionError: argument 0: 1 of 1 elements differ*", "*waves in another order*"]
    )


def test_compare_on_the_emulator_lets_the_last_wave_go_first(user):
    test = f"""{IMPORTS}
def test_exchange(gfx950_compare):
    x, s, y = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32), np.zeros(128, np.uint32)
    gfx950_compare("k.hsaco", "exchange", 1, 128, x, s, y)

def test_last_wave(gfx950_compare):
    gfx950_compare("k.hsaco", "last_wave", 1, 128, np.zeros(1, np.uint32))

def test_last_group(gfx950_compare):
    gfx950_compare("k.hsaco", "last_group", 9, 64, np.zeros(1, np.uint32))

def test_behind(gfx950_compare):
    gfx950_compare("k.hsaco", "behind", 1, 128, np.full(1, 1 << 20, np.uint32), np.zeros(1, np.uint32))
"""
    done = user(test, "--gfx950=emulator")
    done.assert_outcomes(failed=4)
    race = "E         pattern   a race: what waves or workgroups leave depends on their order*"
    done.stdout.fnmatch_lines(["E       AssertionError: argument 2: 127 of 128 elements differ*", race])
    done.stdout.fnmatch_lines(
        [
            "E       AssertionError: argument 0: 1 of 1 elements differ*",
            "E         waves in another order 0x00000000  0",
            "E         emulator  0x00000001  1",
            race,
            "E         writer    global_store_dword at last_wave+0x*",
            "E                   workgroup (0, 0, 0) wave 1 lane 63",
            "E         in other  global_store_dword at last_wave+0x*",
            "E                   workgroup (0, 0, 0) wave 0 lane 63",
        ]
    )
    done.stdout.fnmatch_lines(
        ["E         in other*at last_group+0x*", "E                   workgroup (*) wave 0 lane 63"]
    )
    done.stdout.fnmatch_lines(
        ["*MemoryFault*", "*in another order of waves and workgroups (the last first, each to its barrier)*"]
    )
    done.stdout.no_fnmatch_line("*not written*")


def test_compare_with_the_same_array_twice_and_what_it_refuses(user):
    test = f"""{IMPORTS}
def test_same(gfx950_compare):
    x = np.arange(64, dtype=np.float32)
    a, b, _ = gfx950_compare("k.hsaco", "add", 1, 64, x, x, 64)
    assert a is b and (a == x + 1).all()

def test_shared(gfx950_compare):
    x = np.arange(65, dtype=np.float32)
    with pytest.raises(ValueError, match="arguments 0 and 1 share memory"):
        gfx950_compare("k.hsaco", "add", 1, 64, x[:64], x[1:], 64)

def test_formats(gfx950_compare):
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    gfx950_compare("k.hsaco", "add", 1, 64, x, y, 64, formats={{"argument 0": "f32", 1: "f32"}})
    with pytest.raises(ValueError, match="formats has 'z'; the arguments are argument 0, argument 1, argument 2"):
        gfx950_compare("k.hsaco", "add", 1, 64, x, y, 64, formats={{"z": "f32"}})

def test_tensors(gfx950_compare):
    import torch
    x, y = torch.arange(64.0, requires_grad=True), torch.zeros(64)
    _, after, _ = gfx950_compare("k.hsaco", "add", 1, 64, x, y, 64)
    assert torch.equal(after, x + 1) and not y.any()

def test_read_only(gfx950_compare):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    y.flags.writeable = False
    with pytest.raises(Exception, match="read-only"):
        gfx950_compare("k.hsaco", "add", 1, 64, x, y, 64)
"""
    user(test, "--gfx950=emulator").assert_outcomes(passed=5)


# ---- beside other plugins --------------------------------------------------------------------------------------------


def test_under_xdist(user):
    test = ADD + "\n@pytest.mark.parametrize('n', range(3))\ndef test_more(gfx950_device, n): pass\n"
    user(test, "--gfx950=emulator", "-n", "2").assert_outcomes(passed=4)
    done = user(test, "-n", "2")
    done.assert_outcomes(skipped=4)


def test_without_the_plugin(user):
    test = "def test_it(pytestconfig): assert not pytestconfig.pluginmanager.hasplugin('gfx950')"
    user(test, "-p", "no:gfx950").assert_outcomes(passed=1)
    assert user(ADD, "-p", "no:gfx950", "--gfx950=emulator").ret == pytest.ExitCode.USAGE_ERROR


def test_help_and_markers_show_it(user):
    done = user("", "--help")
    done.stdout.fnmatch_lines(["*--gfx950={auto,device,emulator}*", "*gfx950 (string):*"])
    user("", "--markers").stdout.fnmatch_lines(["@pytest.mark.gfx950_device_only: makes sense on a chip alone*"])


def test_nothing_is_loaded_before_a_test_asks(tmp_path):
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n"
        "def test_it(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.hasplugin('gfx950')\n"
        "    names = ('numpy', 'numba', 'llvmlite', 'torch', 'ml_dtypes', 'click', 'gfx950', 'emu', 'codegen')\n"
        "    assert not [n for n in names if n in sys.modules]\n"
    )
    line = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    done = subprocess.run([*line, "--rootdir=."], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
    names = {"numba", "llvmlite", "torch", "ml_dtypes", "pytest", "codegen", "emu"}
    code = f"import sys, golden.bits; assert not {names} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_unknown_names_of_the_module():
    import golden.bits
    import golden.pytest_plugin

    assert golden.pytest_plugin.assert_bits_equal is golden.bits.assert_bits_equal
    with pytest.raises(AttributeError, match="has no attribute 'assert_close'"):
        _ = golden.pytest_plugin.assert_close
