"""Two engines compared: what differs, who wrote it, what is not the same each time, and which instruction is wrong."""

from __future__ import annotations

import functools
import types

import numpy as np
import pytest
from diff_kernels import (
    BLOCK,
    DEVICE,
    EMULATED,
    SHAPE,
    changed_results,
    instruction,
    subject,
)
from hip_stand_in import Fault, stand_in
from kernel_builds import compile_c

import golden.diff
from codegen.compile import compile_kernels
from codegen.kernel_package import KernelPackage, Output
from codegen.language import Pointer, kernel, load, store, thread_id, trace
from emu.dispatch import Device, RunReport, Watch
from emu.geometry import Geometry
from emu.run_arguments import RunArgument
from golden.diff import CaseSubject, FileSubject, Plan, diff
from golden.first_wrong import At, find_first_wrong, registers_at
from golden.writers import narrowed, writers_of

ADD, REGISTER = instruction("v_add_f32")
STORE, _ = instruction("global_store")


@functools.cache
def compiled():
    @kernel(block=64, lds=0)
    def add_one(data: Pointer):
        at = data + thread_id().to(type(data)) * 4
        store(at, load(at) + 1)

    return compile_kernels([trace(add_one)])


def one(found):
    (array,) = found.arrays
    return array


def with_faults(*faults, plan=DEVICE, **options):
    with stand_in(faults=faults):
        return diff(subject(**options), plan)


# ---- what differs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engines", [("host", "device"), ("host", "numpy"), ("numpy", "device"), ("device", "host")])
def test_right_engines_agree(engines):
    with stand_in():
        found = diff(subject(), Plan(engines, repeat=2))
    assert found.good
    assert (one(found).difference, one(found).writer, one(found).differing.size) == (None, None, 0)
    assert set(found.seconds) == set(engines)


@pytest.mark.parametrize(("workgroup", "wave", "lane"), [((0, 0, 0), 0, 0), ((3, 0, 0), 1, 17), ((7, 0, 0), 1, 63)])
def test_a_wrong_element_and_who_wrote_it(workgroup, wave, lane):
    found = with_faults(Fault("k", ADD, REGISTER, bit=12, lane=lane, wave=wave, workgroup=workgroup))
    array, flat = one(found), workgroup[0] * BLOCK + wave * 64 + lane
    d = array.difference
    assert not found.good
    assert (d.index, d.count, d.total) == (tuple(np.unravel_index(flat, SHAPE)), 1, 1024)
    assert (d.a ^ d.b, d.ulps, d.pattern) == (1 << 12, 1 << 12, "")
    assert (array.writer.workgroup, array.writer.wave, array.writer.lane) == (workgroup, wave, lane)
    assert (array.writer.offset, array.writer.instruction) == (STORE, "global_store_dword")
    assert array.store.register(array.byte) == REGISTER
    assert array.store.inputs(lane)[REGISTER] == d.a, "the inputs are the emulator's"
    assert array.differing.tolist() == [flat]


def test_the_byte_of_a_wide_store_names_its_register():
    code = compile_c(
        """typedef float f4 __attribute__((ext_vector_type(4)));
        KERNEL k(GLOBAL f4 *out, GLOBAL const float *in, u32 n) { u32 i = GROUP * ITEMS + ITEM;
        f4 x = {in[i], in[i] + 1, in[i] + 2, in[i] + 3}; out[i] = x; }"""
    )
    offset, _ = instruction("global_store_dwordx4", code=code)
    out = np.zeros((1024, 4), np.float32)
    fault = Fault("k", offset, "store", bit=31, lane=5, wave=0, workgroup=(1, 0, 0))
    wide = with_faults(fault, code=code, out=out)
    first = int(one(wide).store.register(0)[1:])
    assert one(wide).difference.index == (128 + 5, 0)
    for byte in range(16):
        assert one(wide).store.register(byte) == f"v{first + byte // 4}"


@pytest.mark.parametrize(
    ("faults", "text"),
    [
        ([Fault("k", ADD, REGISTER, bit=3, lane=5)], "only lane 5"),
        ([Fault("k", ADD, REGISTER, bit=3, lane=n) for n in range(32, 64)], "only the upper lanes, 32..63"),
        ([Fault("k", ADD, REGISTER, bit=3, lane=n) for n in range(16, 32)], "only lanes 16..31"),
        ([Fault("k", ADD, REGISTER, bit=3, lane=n) for n in range(1, 64, 2)], "only odd lanes"),
        ([Fault("k", ADD, REGISTER, bit=3, lane=n, wave=1) for n in range(64)], "only wave 1"),
        (
            [Fault("k", ADD, REGISTER, bit=3, lane=n, workgroup=(3, 0, 0)) for n in range(64)],
            "only workgroup (3, 0, 0)",
        ),
        (
            [Fault("k", ADD, REGISTER, bit=3, lane=n, wave=1, workgroup=(3, 0, 0)) for n in range(64)],
            "only wave 1, only workgroup (3, 0, 0)",
        ),
        ([Fault("k", ADD, REGISTER, bit=3, lane=n) for n in range(64)], ""),
    ],
)
@pytest.mark.parametrize("stepped", [True, False])
def test_which_lanes_waves_and_workgroups_are_wrong(monkeypatch, faults, text, stepped):
    if not stepped:
        monkeypatch.setattr(golden.diff, "STEPPED", 0)
    array = one(with_faults(*faults))
    assert array.writers.complete is stepped
    assert array.narrowed == text
    assert array.difference.pattern == "bit 3 (mantissa) is flipped in each"
    assert (array.store is None) is not stepped


FAULTS = {
    "transposed tiles": (
        lambda a: a.reshape(1, 16, 4, 16).swapaxes(1, 3).reshape(SHAPE),
        "each 16x16 tile transposed",
    ),
    "halves": (lambda a: np.roll(a, 32, 1), "halves swapped"),
    "words": (lambda a: a[:, np.arange(64) ^ 1], "neighbours swapped"),
    "bytes": (lambda a: a.byteswap(), "bytes of each element reversed"),
    "16-bit halves": (lambda a: a >> 16 | a << 16, "16-bit halves of each element swapped"),
    "upper lanes": (lambda a: np.concatenate([a[:, :32]] * 2, 1), "upper half repeats the lower"),
    "a row": (lambda a: np.roll(a, 1, 0), "rows moved by 1"),
    "an element": (lambda a: np.roll(a, 1), "moved by 1 element in memory"),
    "rounding": (
        lambda a: a + np.random.default_rng(0).integers(-1, 2, a.shape).astype(np.uint32),
        "never more than one unit in the last place apart: another rounding",
    ),
    "truncation": (lambda a: a - np.uint32(1), "device one unit in the last place nearer to zero in each: truncated"),
    "signs": (lambda a: a ^ np.uint32(1 << 31), "only signs differ"),
    "a bit": (lambda a: a ^ np.uint32(1 << 20), "bit 20 (mantissa) is flipped in each"),
    "stuck": (lambda a: a | np.uint32(1 << 20), "bit 20 (mantissa) is 1 in each: stuck"),
    "bf16": (lambda a: a & np.uint32(0xFFFF0000), "device has only the precision of bf16"),
    "scale": (lambda a: a + np.uint32(1 << 23), "device is 2 times host: another scale"),
    "not written": (lambda a: np.full_like(a, 0x41000000), "device is what it was before: not written"),
    "noise": (lambda a: np.random.default_rng(0).integers(0, 1 << 32, a.shape, np.uint32), ""),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_kinds_of_faults_on_the_device_are_named(monkeypatch, kind):
    change, name = FAULTS[kind]

    def fault(data, number):
        codes = data.view(np.uint32).reshape(SHAPE)
        codes[:] = change(codes.copy())

    with changed_results(fault, monkeypatch=monkeypatch):
        found = diff(subject(out=np.full(SHAPE, 8, np.float32)), Plan(writers=False))
    assert one(found).difference.pattern == name


def test_flushed_subnormals_on_the_device(monkeypatch):
    x = np.where(np.arange(1024).reshape(SHAPE) % 3 == 0, -1 / 3, 1).astype(np.float32)
    own_run = FileSubject.run

    def run(self, options, watch):
        """Every third result is subnormal in the emulator and zero on the device."""
        arrays, report = own_run(self, options, watch)
        arrays["arg0"].reshape(-1).view(np.uint32)[::3] = 1 + np.arange(342) if options.engine == "host" else 0
        return arrays, report

    monkeypatch.setattr(FileSubject, "run", run)
    with stand_in():
        found = diff(subject(x=x), Plan(writers=False))
    assert one(found).difference.pattern == "zero in device where host is subnormal: flushed"


@pytest.mark.parametrize("stepped", [True, False])
def test_it_is_not_said_that_nobody_wrote_what_somebody_wrote(monkeypatch, stepped):
    if not stepped:
        monkeypatch.setattr(golden.diff, "STEPPED", 0)

    def fault(data, number):
        data.view(np.uint32)[:] = 0

    with changed_results(fault, monkeypatch=monkeypatch):
        array = one(diff(subject(out=np.full(SHAPE, 8, np.float32)), Plan()))
        untold = one(diff(subject(out=np.full(SHAPE, 8, np.float32)), Plan(writers=False)))
    assert array.writer is not None
    assert array.difference.pattern == "zero in device"
    assert untold.difference.pattern == "zero in device: not written"


# ---- what is not the same each time ----------------------------------------------------------------------------------


def test_what_changes_between_runs_is_apart_from_what_differs(monkeypatch):
    def fault(data, number):
        codes = data.view(np.uint32)
        codes[100:104] ^= np.uint32(number)  # right in the first run only
        codes[500] ^= np.uint32(1 << 9)

    with changed_results(fault, monkeypatch=monkeypatch):
        found = diff(subject(), Plan(repeat=4))
    array = one(found)
    assert (array.difference.index, array.difference.count) == ((7, 52), 1)
    assert array.differing.tolist() == [500]
    u = array.unstable
    assert (u.count, u.index, u.where) == (4, (1, 36), "[1][36..39]")
    assert sorted(u.shown.values()) == [1, 1, 1, 1]
    assert np.flatnonzero(u.mask).tolist() == [100, 101, 102, 103]


def test_the_lanes_of_what_changes_between_runs(monkeypatch):
    def fault(data, number):
        data.view(np.uint32).reshape(8, 2, 64)[:, 1, 20] ^= np.uint32(number)

    with changed_results(fault, monkeypatch=monkeypatch):
        found = diff(subject(), Plan(repeat=2))
    assert one(found).unstable.count == 8
    assert one(found).unstable.narrowed == "only lane 20"
    assert one(found).writer is None


def test_runs_that_change_without_a_stable_difference_are_not_good(monkeypatch):
    def fault(data, number):
        data[0] ^= number == 2

    with changed_results(fault, monkeypatch=monkeypatch):
        found = diff(subject(), Plan(repeat=3))
    assert not found.good
    assert one(found).difference is None
    assert one(found).unstable.shown[next(iter(one(found).unstable.shown))] == 2


def test_codes_that_change_and_are_none_of_the_format(monkeypatch):
    with changed_results(lambda data, number: data.__setitem__(0, 0x10 + number), monkeypatch=monkeypatch):
        found = diff(subject(formats={"0": "e2m1"}), Plan(repeat=3))
    assert one(found).unstable.shown == {"0x10": 1, "0x11": 1, "0x12": 1}


def test_a_single_run_says_nothing_of_others(monkeypatch):
    with changed_results(lambda data, number: data.__setitem__(0, number), monkeypatch=monkeypatch):
        found = diff(subject(), Plan(repeat=1))
    assert one(found).unstable is None


# ---- arrays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formats", "form", "shape"),
    [
        (None, "f32", SHAPE),
        ({"arg0": "u32"}, "u32", SHAPE),
        ({"0": "bf16"}, "bf16", (2048,)),
        ({"0": "e4m3fn"}, "e4m3fn", (4096,)),
    ],
)
def test_formats_of_arguments(formats, form, shape):
    own = subject(formats=formats)
    (output,) = own.outputs
    assert (output.name, output.format, own.before("arg0").shape) == ("arg0", form, shape)
    assert diff(own, EMULATED).good


@pytest.mark.parametrize(
    ("formats", "message"),
    [
        ({"arg1": "f32"}, "no argument that is written is called so: arg0"),
        ({"arg0": "fp7"}, "formats are f32, .*u64"),
    ],
)
def test_formats_that_there_are_not(formats, message):
    with pytest.raises(ValueError, match=message):
        subject(formats=formats)


def test_the_caller_s_arrays_stay_as_they_are():
    out = np.full(SHAPE, 3, np.float32)
    diff(subject(out=out), EMULATED)
    assert (out == 3).all()


def test_a_relocatable_file_is_linked_once_for_both():
    code = compiled().object
    arguments = [RunArgument("z", np.zeros(64, np.uint32), output="o.npy")]
    own = FileSubject(code, None, Geometry.of_blocks((1,), (64,)), arguments, linked=True)
    assert own.code("host") == own.code("device") != code
    with stand_in():
        assert diff(own, DEVICE).good


def test_outputs_of_other_shapes_cannot_be_compared(made_up):
    shapes = iter([4, 3])
    made_up.machine = lambda out: out | {"sums": out["sums"][: next(shapes)]}
    found = diff(CaseSubject(made_up.package, "one"), Plan(("host", "numpy"), writers=False))
    codes, sums = found.arrays
    assert codes.good
    assert sums.problem == "float32[4] against float32[3]"
    assert not found.good


def test_a_writer_that_only_a_watchpoint_knows(made_up):
    """The made-up kernel has no machine code to step through."""
    runs = iter([0, 1])

    def wrong(outputs):
        outputs["codes"][2, 3] ^= next(runs, 0)
        return outputs

    made_up.machine = wrong
    found = diff(CaseSubject(made_up.package, "one"), Plan(("host", "numpy")))
    array = found.arrays[0]
    assert array.difference.index == (2, 3)
    assert (array.writer, array.store) == (made_up.writer, None)


def test_names_of_an_output_s_elements(made_up):
    package = made_up.with_outputs(Output("codes", "e4m3fn", True, lambda i: f"row {i[0]}"))
    assert CaseSubject(package, "one").outputs[0].describe((2, 3)) == "row 2"


# ---- lanes -----------------------------------------------------------------------------------------------------------


def watch(lane, wave=0, workgroup=(0, 0, 0)):
    return Watch(workgroup, wave, lane, 0, "global_store_dword", "k", 0)


def everything(places):
    """All elements of an array, each with its writer and whether it is wrong."""
    found = [(n, w, bool(d)) for n, (w, d) in enumerate(places)]
    return writers_of(found, sum(d for _, _, d in found), len(found))


def test_noise_over_lanes_and_workgroups_is_not_narrowed():
    places = [watch(n % 64, n // 64 % 4, (n // 256, 0, 0)) for n in range(2048)]
    for seed in range(150):
        rng = np.random.default_rng(seed)
        wrong = np.zeros(2048, bool)
        wrong[rng.choice(2048, int(2 ** rng.uniform(0, 10)), replace=False)] = True
        found = everything(zip(places, wrong, strict=True))
        assert narrowed(found) == "", seed


def test_few_wrong_elements_are_not_narrowed_to_half_the_lanes():
    found = everything((watch(n), n in (40, 50, 60)) for n in range(64))
    assert narrowed(found) == ""


def test_all_elements_of_the_only_workgroup_are_nothing_special():
    assert narrowed(everything((watch(n), n % 3 == 0) for n in range(64))) == ""


# ---- the first wrong instruction -------------------------------------------------------------------------------------


def test_the_first_wrong_instruction():
    own, multiply = subject(), instruction("v_mul_f32")
    fault = Fault("k", multiply[0], multiply[1], bit=22, lane=9, wave=1, workgroup=(2, 0, 0))
    with stand_in(faults=[fault]):
        found = diff(own, DEVICE)
        first = find_first_wrong(own, DEVICE, found)
    assert (first.launch.output, first.launch.number, first.launch.writer.wave) == ("arg0", 0, 1)
    assert (first.finding.kind, first.finding.point.offset) == ("instruction", multiply[0])
    assert [(d.register, d.lanes) for d in first.finding.differences] == [(multiply[1], (9,))]


def test_registers_at_a_point_before_and_after_the_fault():
    own = subject()
    with stand_in(faults=[Fault("k", ADD, REGISTER, bit=22, lane=9, wave=1, workgroup=(2, 0, 0))]):
        found = diff(own, DEVICE)
        before, after = (registers_at(own, DEVICE, found, At(offset)) for offset in (ADD, STORE))
    assert before.differences == []
    assert [(d.register, d.lanes) for d in after.differences] == [(REGISTER, (9,))]
    assert (after.point.workgroup, after.point.wave) == ((2, 0, 0), 1)


def test_a_point_that_the_wave_does_not_run():
    own = subject()
    with stand_in(faults=[Fault("k", ADD, REGISTER, bit=22)]):
        found = diff(own, DEVICE)
        with pytest.raises(Exception, match=r"does not run an instruction at offset 0x58 2 times"):
            registers_at(own, DEVICE, found, At(STORE, 2))


def test_where_all_is_the_same_there_is_nothing_to_look_for():
    own = subject()
    with stand_in():
        found = diff(own, DEVICE)
        assert find_first_wrong(own, DEVICE, found) is None
        assert registers_at(own, DEVICE, found, At(0)) is None


TWO = """
KERNEL first(GLOBAL float *out, GLOBAL const float *in) { out[ITEM] = in[ITEM] * 3.0f + 1.0f; }
KERNEL second(GLOBAL float *out, GLOBAL const float *in) { out[ITEM] = in[ITEM] + 2.0f; }"""


def two_launches():
    """A package whose second launch reads what the first wrote, and whose outputs come in the other order."""
    code = compile_c(TWO)

    def run(inputs, options, watch):
        arrays = {name: np.zeros(64, np.float32) for name in ("result", "partial")}
        module, report = Device().load(code), RunReport()
        for name, output, source in (("first", "partial", inputs), ("second", "result", arrays["partial"])):
            here = (arrays[output], watch.byte) if watch is not None and watch.output == output else None
            report.add(module[name][1, 64](arrays[output], source, options=options, watch=here))
        return arrays, report

    outputs = tuple(Output(name, "f32", True, str) for name in ("result", "partial"))
    return KernelPackage(
        "two", {"only": "it"}, lambda case: np.arange(64, dtype=np.float32), lambda inputs: {}, outputs, None, run,
        None, None, lambda: types.SimpleNamespace(object=code, code_object=code),
    )  # fmt: skip


@pytest.mark.parametrize(("kernel_name", "wrong"), [("first", ["result", "partial"]), ("second", ["result"])])
def test_the_launch_that_is_wrong_is_the_one_that_is_bisected(kernel_name, wrong):
    offset, register = instruction("v_add_f32", 0, compile_c(TWO), kernel_name)
    own = CaseSubject(two_launches(), "only")
    with stand_in(faults=[Fault(kernel_name, offset, register, bit=22, lane=7)]):
        found = diff(own, DEVICE)
        first = find_first_wrong(own, DEVICE, found)
        inside = registers_at(own, DEVICE, found, At(offset))
    assert [a.output.name for a in found.arrays if not a.good] == wrong
    assert (first.launch.writer.kernel, first.launch.number) == (kernel_name, ["first", "second"].index(kernel_name))
    assert (first.finding.kind, first.finding.point.offset) == ("instruction", offset)
    assert inside.launch.writer.kernel == kernel_name
    assert inside.differences == []


def test_a_launch_that_is_wrong_only_sometimes(monkeypatch):
    """Nothing is found where the launch is right when it is looked into."""
    own = subject()

    def fault(data, number):
        if number == 0:
            data[0] ^= 1

    with changed_results(fault, monkeypatch=monkeypatch):
        found = diff(own, DEVICE)
        assert not found.good
        assert find_first_wrong(own, DEVICE, found).finding.kind == "none"


@pytest.mark.slow
def test_a_kernel_package_is_bisected_in_the_launch_that_is_wrong():
    """The merge writes what differs first; it is right by itself, and the attention before it is not."""
    from codegen.kernel_package import kernel_package
    from codegen.kernels.drafter_attention import launch

    offset, register = instruction("v_mul_f32", 4, launch.compiled().code_object, "drafter_attention")
    own = CaseSubject(kernel_package("drafter_attention"), "small")
    fault = Fault("drafter_attention", offset, register, bit=20, lane=7, wave=0, workgroup=(0, 0, 0))
    with stand_in(faults=[fault]):
        found = diff(own, Plan(writers=False))
        first = find_first_wrong(own, DEVICE, found)
    assert [a.output.name for a in found.arrays if not a.good] == ["a8", "partials"]
    assert (first.launch.writer.kernel, first.launch.number) == ("drafter_attention", 0)
    assert first.finding.point.offset == offset


def test_the_report_of_a_run_says_how_many_instructions(made_up):
    found = diff(CaseSubject(made_up.package, "one"), EMULATED)
    assert (found.instructions, found.milliseconds) == (7, None)
    assert isinstance(RunReport().instructions, int)
