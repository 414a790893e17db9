"""What the check of a case finds, on a made-up kernel and on a changed instruction of a real one."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from click.testing import CliRunner

from codegen.kernel_package import Output, Watchpoint, kernel_package
from codegen.kernels.drafter_attention import launch
from emu import code_object
from emu.blocks import discover
from emu.dispatch import Device, RunOptions
from gfx950.isa.encoding import decode
from gfx950.isa.registry import lookup
from golden.check import check_case, check_cases, kernel_rules, recorded_evidence
from golden.commands import check
from golden.report import case_lines
from golden.store import paths, write

OPTIONS = RunOptions(threads=2)


@pytest.fixture
def home(made_up, tmp_path):
    """A folder with a golden of case one."""
    inputs = made_up.package.build("one")
    write(made_up.package, "one", inputs, made_up.right(inputs), recorded_evidence("made_up"), tmp_path)
    return tmp_path


def findings(made_up, home, case="one", package=None):
    return check_case(package or made_up.package, case, OPTIONS, home).findings


def flip(row, column):
    def change(outputs):
        outputs["codes"][row, column] ^= 1
        return outputs

    return change


def negate_a_sum(outputs):
    outputs["sums"][2] = -outputs["sums"][2]
    return outputs


def test_nothing_is_found_when_all_agree(made_up, home):
    result = check_case(made_up.package, "one", OPTIONS, home)
    assert result.good
    assert result.findings == []
    assert result.instructions == 7
    assert set(result.seconds) == {"source", "machine", "golden", "bound"}
    assert made_up.watched == [], "the machine code runs a second time only to find a writer"


def test_machine_code_that_differs_shows_its_writer(made_up, home):
    made_up.machine = flip(2, 3)
    (found,) = findings(made_up, home)
    assert (found.kind, found.text) == ("source-machine", "codes: source and machine code differ")
    assert (found.difference.index, found.difference.a, found.difference.b) == ((2, 3), 11, 10)
    assert found.element == "row 2 dim 3"
    assert found.writer == made_up.writer
    assert made_up.watched == [Watchpoint("codes", 11)]


def test_the_writer_is_asked_for_the_byte_that_differs(made_up, home):
    made_up.machine = negate_a_sum
    (found,) = findings(made_up, home)
    assert made_up.watched == [Watchpoint("sums", 2 * 4 + 3)]
    assert found.difference.a ^ found.difference.b == 1 << 31


def test_an_element_that_nothing_writes(made_up, home):
    made_up.machine, made_up.writer = flip(0, 0), None
    result = check_case(made_up.package, "one", OPTIONS, home)
    assert result.findings[0].writer is None
    assert "    writer  none: the machine code never writes it" in list(case_lines(result, ""))


@pytest.mark.parametrize(
    "change", [lambda out: out | {"sums": out["sums"][:3]}, lambda out: out | {"sums": out["sums"].astype(np.float64)}]
)
def test_outputs_of_other_shapes_are_findings(made_up, home, change):
    made_up.machine = change
    (found,) = findings(made_up, home)
    assert found.kind == "source-machine"
    assert re.fullmatch(
        r"sums: source and machine code differ: float32\[4\] against float(32\[3\]|64\[4\])", found.text
    )
    assert made_up.watched == []


def test_both_sides_wrong_alike_differ_from_the_golden(made_up, home):
    made_up.source = made_up.machine = flip(1, 0)
    (found,) = findings(made_up, home)
    assert (found.kind, found.text) == ("golden", "codes: the run differs from the recorded golden")
    assert (found.difference.a, found.difference.b, found.element) == (4, 5, "row 1 dim 0")


def test_an_output_of_which_only_the_digest_is_kept(made_up, home):
    made_up.source = made_up.machine = negate_a_sum
    (found,) = findings(made_up, home)
    assert found.kind == "golden"
    assert re.match(r"sums: its bits do not have the recorded sha256 [0-9a-f]{16}\.\. \(", found.text)


def test_nan_payloads_are_bits_for_the_golden_too(made_up, home):
    def payload(code):
        return lambda out: out | {"sums": np.full(4, code, np.uint32).view(np.float32)}

    package = made_up.with_outputs(Output("sums", "f32", True, str))
    made_up.source = made_up.machine = payload(0x7FC00000)
    inputs = package.build("one")
    write(package, "one", inputs, package.run_source(inputs), recorded_evidence("made_up"), home)
    assert findings(made_up, home, package=package) == []
    made_up.source = made_up.machine = payload(0x7FC00001)
    (found,) = findings(made_up, home, package=package)
    assert found.difference.shown_b.startswith("0x7fc00001 ")


def test_changed_inputs(made_up, home):
    made_up.generator = 3
    kinds = [found.kind for found in findings(made_up, home)]
    assert kinds == ["inputs", "golden", "golden"]
    assert findings(made_up, home)[0].text.startswith("the inputs x are not those of the golden: ")


def test_an_input_that_is_gone(made_up, home):
    package = dataclasses.replace(made_up.package, digests=lambda inputs: {})
    assert [f.kind for f in findings(made_up, home, package=package)] == ["inputs"]


def test_a_golden_of_other_outputs(made_up, home):
    package = made_up.with_outputs(made_up.package.outputs[0], Output("new", "u8", True, str))
    made_up.source = made_up.machine = lambda out: out | {"new": np.zeros(1, np.uint8)}
    assert [(f.kind, f.text) for f in findings(made_up, home, package=package)] == [
        ("golden", "new: the golden has no such output; record it anew"),
        ("golden", "sums: the golden has it, the kernel does not; record it anew"),
    ]


def test_a_missing_golden(made_up, home):
    (found,) = findings(made_up, home, "two")
    assert found.kind == "missing"
    assert "`gfx950 golden record made_up --case two`" in found.text


def test_a_damaged_golden_is_found_and_the_rest_still_checked(made_up, home):
    paths("made_up", "one", home)[1].write_bytes(b"")
    made_up.bound = lambda out: ["codes[0, 0] is 3 ulp outside"]
    found = findings(made_up, home)
    assert [f.kind for f in found] == ["golden", "bound"]
    assert "the file is damaged" in found[0].text
    assert found[1].text == "codes[0, 0] is 3 ulp outside"


@pytest.mark.parametrize("jobs", [1, 2])
def test_cases_come_in_order_from_any_number_of_processes(made_up, home, jobs):
    results = list(check_cases(made_up.package, ["one", "three", "two", "four"], OPTIONS, home, jobs))
    assert [(r.case, [f.kind for f in r.findings]) for r in results] == [
        ("one", []),
        ("three", ["missing"]),
        ("two", ["missing"]),
        ("four", ["missing"]),
    ]


@pytest.mark.parametrize(("engine", "seen"), [("device", 4), ("host", 1)])
def test_a_device_stays_with_the_process_that_opened_it(made_up, home, engine, seen):
    runs = []  # what another process appends is not seen here

    def note(outputs):
        runs.append(outputs)
        return outputs

    made_up.machine = note
    options = RunOptions(engine=engine)
    assert len(list(check_cases(made_up.package, ["one", "three", "two", "four"], options, home, jobs=2))) == 4
    assert len(runs) == seen


def test_no_cases_no_results(made_up, home):
    assert list(check_cases(made_up.package, [], OPTIONS, home)) == []


def test_an_error_in_another_process_keeps_its_message(made_up, home):
    def stop(outputs):
        if outputs["codes"][0, 0]:
            raise ValueError("lane 5 reads past the end")
        return outputs

    made_up.machine = stop
    with pytest.raises(ValueError, match="lane 5 reads past the end"):
        list(check_cases(made_up.package, list(made_up.package.cases), OPTIONS, home, jobs=2))


def test_the_evidence_is_below_spec_and_weakest_first():
    levels = [rule.evidence for rule in kernel_rules("drafter_attention")]
    assert levels == sorted(levels)
    evidence = recorded_evidence("drafter_attention").rules
    assert evidence
    assert "spec" not in evidence.values()
    assert "drafter_attention.merge" in evidence


# ---- a changed instruction of the drafter attention ------------------------------------------------------------------


def with_one_multiplication_less(compiled, kernel_name, which):
    """The object with one v_mul_f32 of a kernel turned into v_add_f32."""
    loaded = code_object.load(compiled.object)
    kernel = loaded.kernels[kernel_name]
    code = loaded.code_of(kernel)
    blocks = discover(code.data, code.address, kernel.entry).values()
    found = (d for block in blocks for d in block.instructions if (d.instruction.name, d.form) == ("v_mul_f32", "VOP2"))
    pc = sorted(d.pc for d in found)[which]
    at = compiled.object.index(bytes(code.data)) + pc - code.address
    changed = bytearray(compiled.object)
    word = int.from_bytes(changed[at : at + 4], "little")
    opcodes = lookup("v_mul_f32").opcode ^ lookup("v_add_f32").opcode
    changed[at : at + 4] = (word ^ opcodes << 25).to_bytes(4, "little")
    before, after = decode(bytes(code.data), pc, code.address), decode(bytes(changed[at : at + 8]), pc, pc)
    assert after.instruction.name == "v_add_f32"
    assert {**after.fields, "op": 0} == {**before.fields, "op": 0}
    return dataclasses.replace(compiled, object=bytes(changed))


@pytest.mark.parametrize(
    ("kernel_name", "which", "output", "element", "store"),
    [
        ("drafter_merge", -1, "a8", r"request 0 row \d, head \d+ dim \d+", r"global_store_(?:byte|short|dword)\w*"),
        ("drafter_attention", 20, "partials", r"partial 0, .*", r"global_store_dword\w*"),
    ],
)
def test_a_changed_instruction_is_traced_to_element_lane_and_writer(
    monkeypatch, kernel_name, which, output, element, store
):
    changed = with_one_multiplication_less(launch.compiled(), kernel_name, which)
    monkeypatch.setattr(launch, "compiled", lambda: changed)
    run = CliRunner().invoke(check, ["drafter_attention", "--case", "small"])
    assert run.exit_code == 1, run.exception
    assert "WRONG small " in run.stdout
    assert "0 of 1 case agrees" in run.stdout
    binary = r"0x[0-9a-f]+  [01]\|[01]+\|[01]+  \S+"
    text = re.search(
        rf"  \[source-machine\] {output}: source and machine code differ\n"
        rf"    first of \d+ of \d+: {output}\[\d+\]\[\d+\]: {element}\n"
        rf"    source  {binary}\n    machine {binary}\n(?:    .*\n)*?"
        rf"    writer  {store} at {kernel_name}\+0x([0-9a-f]+),"
        r" workgroup\s\(\d+,\s\d+,\s\d+\)\s+wave\s+\d+\s+lane\s+\d+\n",
        run.stdout,
    )
    assert text, run.stdout
    loaded = Device().load(changed.object).code
    code = loaded.code[0]
    pc = loaded.kernel(kernel_name).entry + int(text[1], 16)
    written_by = decode(bytes(code.data), pc, code.address).instruction.name
    assert re.fullmatch(store, written_by)
    assert all(len(line) <= 100 for line in run.stdout.splitlines())


def test_the_unchanged_object_agrees_with_its_source():
    assert check_case(kernel_package("drafter_attention"), "small", OPTIONS).good
