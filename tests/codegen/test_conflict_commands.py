"""`gfx950 conflicts`."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import codegen.kernel_package
from codegen.compile import compile_kernels
from codegen.conflict_commands import conflicts
from codegen.language import Pointer, kernel, lds_read, lds_write, load, store, thread_id, trace
from emu.dispatch import Device


@kernel(block=64, lds=64 * 256)
def columns(data: Pointer) -> None:
    """Every lane a row of 64 words: all of them on one bank."""
    lane = thread_id()
    place = data + lane.to(type(data)) * 4
    lds_write(lane * 256, load(place))
    store(place, lds_read((lane ^ 1) * 256))


@pytest.fixture
def made_up(monkeypatch):
    """A package whose only kernel has conflicts that can be counted by hand."""
    module = Device().load(compile_kernels([trace(columns)]).object)

    def run_machine(inputs, options, watch):
        return {}, module["columns"][1, 64](inputs.copy(), options=options)

    package = SimpleNamespace(
        name="made_up",
        cases={"one": "", "two": ""},
        build=lambda case: np.arange(64, dtype=np.uint32),
        run_machine=run_machine,
    )
    monkeypatch.setattr(codegen.kernel_package, "kernel_package", lambda name: package)


def lines(*arguments):
    result = CliRunner().invoke(conflicts, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_conflicts_of_one_bank(made_up):
    output = lines("made_up")
    write, read = (line.split() for line in output[1:3])
    # A write of words is two phases of 32 lanes, a read one of 64; each lane asks the same bank for a word of its own.
    assert write[1:] == ["ds_write_b32", "1", "64", "62"]
    assert read[1:] == ["ds_read_b32", "1", "64", "63"]
    assert write[0].startswith("columns+0x")
    assert output[-1] == "made_up, case one: 125 extra cycles of 128"
    assert any("bank 0 is asked for 64 different dwords" in line for line in output)


def test_json(made_up):
    document = json.loads("\n".join(lines("made_up", "--case", "two", "--json")))
    assert document["schema"] == "gfx950.conflicts/1"
    assert document["case"] == "two"
    assert [row["extra_cycles"] for row in document["instructions"]] == [62, 63]
    assert document["instructions"][0]["kernel"] == "columns"


def test_the_attention_has_none():
    output = lines("sparse_attention", "--case", "first_token")
    assert output[-1].startswith("sparse_attention, case first_token: 0 extra cycles of ")
    assert {line.split()[1] for line in output[1:-1]} == {
        "ds_write_b32",
        "ds_read2_b32",
        "ds_write_b128",
        "ds_read_b128",
    }


def test_unknown_cases_are_named():
    with pytest.raises(ValueError, match=r"has no case 'frist_token'.*did you mean first_token"):
        CliRunner().invoke(conflicts, ["sparse_attention", "--case", "frist_token"], catch_exceptions=False)
