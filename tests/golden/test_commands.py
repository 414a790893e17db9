"""`gfx950 check` and `gfx950 golden`: what they print where, and their exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from gfx950.__main__ import main
from gfx950.evidence import LEDGER, LEVELS, Evidence, Rule
from gfx950.models import DEFAULT
from golden.check import CaseResult
from golden.report import change_lines
from golden.store import paths


@pytest.fixture
def gfx950(made_up, tmp_path, monkeypatch, capsys):
    """`gfx950(*words)`: exit code, stdout and stderr of the command line, with goldens in a folder of the test."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words, home=True):
        more = ["--golden-dir", str(tmp_path)] if home else []
        monkeypatch.setattr(sys, "argv", ["gfx950", *words, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert "--json" in words or all(len(line) <= 100 for line in captured.out.splitlines())
        assert "\x1b" not in captured.out + captured.err
        return ended.value.code or 0, captured.out, captured.err

    return run


def flip(outputs):
    outputs["codes"][2, 3] ^= 1
    return outputs


def files(folder):
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# ---- record ----------------------------------------------------------------------------------------------------------


def test_record_then_check(gfx950, tmp_path):
    code, out, err = gfx950("golden", "record", "made_up")
    assert (code, out.splitlines(), err) == (0, [f"new       {c}" for c in ("one", "two", "three", "four")], "")
    first = files(tmp_path)
    assert len(first) == 8
    code, out, _ = gfx950("golden", "record", "made_up", "--case", "two")
    assert (code, out) == (0, "unchanged two\n")
    assert files(tmp_path) == first
    code, out, err = gfx950("check", "made_up")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [["ok", c] for c in ("one", "two", "three", "four")]
    assert lines[4].startswith("4 of 4 cases agree, 28 wave instructions, ")
    assert lines[5:] == ["7 instructions: 0 measured, 0 published, 0 carried, 0 vendor, 0 chosen, 7 spec"]


@pytest.mark.parametrize("value", ["true", "1"])
def test_record_refuses_under_ci(gfx950, monkeypatch, tmp_path, value):
    monkeypatch.setenv("CI", value)
    code, out, err = gfx950("golden", "record", "made_up")
    assert (code, out) == (2, "")
    assert "CI never writes them" in err
    assert files(tmp_path) == {}


def test_record_never_overwrites_silently(gfx950, made_up):
    gfx950("golden", "record", "made_up", "--case", "one")
    made_up.source = made_up.machine = flip
    code, out, _ = gfx950("golden", "record", "made_up", "--case", "one")
    assert code == 0
    assert out.splitlines() == [
        "CHANGED   one",
        "  [golden] codes: the run differs from the recorded golden",
        "    first of 1 of 16: codes[2][3]: row 2 dim 3",
        "    golden  0x0b  0|0001|011  0.021484375",
        "    run     0x0a  0|0001|010  0.01953125",
        "    1 ulp apart",
    ]
    assert gfx950("check", "made_up", "--case", "one")[0] == 0


@pytest.mark.parametrize("fault", ["machine", "bound"])
def test_record_refuses_what_does_not_agree(gfx950, made_up, tmp_path, fault):
    setattr(made_up, fault, flip if fault == "machine" else lambda out: ["far off"])
    code, out, _ = gfx950("golden", "record", "made_up", "--case", "one", "--case", "two")
    assert code == 1
    assert [line for line in out.splitlines() if line[0] != " "] == ["REFUSED   one", "REFUSED   two"]
    assert ("far off" if fault == "bound" else "writer  global_store_dword") in out
    assert files(tmp_path) == {}


# ---- check -----------------------------------------------------------------------------------------------------------


def test_check_shows_the_difference_and_its_writer(gfx950, made_up):
    gfx950("golden", "record", "made_up", "--case", "one")
    made_up.machine = flip
    code, out, err = gfx950("check", "made_up", "--case", "one")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[:7] == [
        "WRONG one              1 finding",
        "  [source-machine] codes: source and machine code differ",
        "    first of 1 of 16: codes[2][3]: row 2 dim 3",
        "    source  0x0b  0|0001|011  0.021484375",
        "    machine 0x0a  0|0001|010  0.01953125",
        "    1 ulp apart",
        "    writer  global_store_dword at double_it+0x40, workgroup (2, 0, 0) wave 1 lane 37",
    ]
    assert lines[7].startswith("0 of 1 case agrees, 7 wave instructions, ")


def test_many_findings_are_counted_not_printed(gfx950, made_up):
    gfx950("golden", "record", "made_up", "--case", "one")
    made_up.bound = lambda out: [f"element {i} is far off" for i in range(11)]
    code, out, _ = gfx950("check", "made_up", "--case", "one")
    assert code == 1
    assert "11 findings" in out
    assert out.count("is far off") == 8
    assert "  and 3 more\n" in out


def test_a_missing_golden_fails(gfx950):
    code, out, _ = gfx950("check", "made_up", "--case", "three")
    assert code == 1
    assert "[missing] no golden is recorded" in out


def test_goldens_without_a_case_are_named(gfx950, made_up):
    gfx950("golden", "record", "made_up")
    del made_up.package.cases["four"]
    for command in (["check"], ["golden", "check"], ["golden", "record"]):
        code, out, err = gfx950(*command, "made_up")
        assert (code, err) == (0, "unused golden: four (made_up has no such case)\n")
        assert "four" not in out


def test_check_json_is_one_document(gfx950, made_up):
    gfx950("golden", "record", "made_up")
    code, out, err = gfx950("check", "made_up", "--json")
    document = json.loads(out)
    assert (code, err, out[-2:]) == (0, "", "}\n")
    assert list(document) == ["schema", "kernel", "ok", "cases", "unused_goldens", "seconds", "evidence"]
    assert (document["schema"], document["kernel"], document["ok"]) == ("gfx950.check/1", "made_up", True)
    assert [(c["case"], c["ok"], c["findings"]) for c in document["cases"]] == [
        (case, True, []) for case in made_up.package.cases
    ]
    del made_up.package.cases["four"]
    made_up.machine = flip
    code, out, err = gfx950("check", "made_up", "--json", "--case", "one")
    document = json.loads(out)
    assert code == 1
    assert err == "unused golden: four (made_up has no such case)\n"
    assert document["unused_goldens"] == ["four"]
    assert document["ok"] is False
    assert document["cases"][0]["findings"] == [
        {
            "kind": "source-machine",
            "text": "codes: source and machine code differ",
            "output": "codes",
            "index": [2, 3],
            "element": "row 2 dim 3",
            "differing": 1,
            "of": 16,
            "values": {
                "source": {"bits": "0xb", "shown": "0x0b  0|0001|011  0.021484375"},
                "machine": {"bits": "0xa", "shown": "0x0a  0|0001|010  0.01953125"},
            },
            "ulps": 1,
            "where": "",
            "pattern": "",
            "writer": {
                "workgroup": [2, 0, 0],
                "wave": 1,
                "lane": 37,
                "kernel": "double_it",
                "offset": 64,
                "pc": 0x100000040,
                "instruction": "global_store_dword",
            },
        }
    ]


def test_check_json_says_what_the_bits_rest_on(gfx950):
    evidence = json.loads(gfx950("check", "made_up", "--json", "--case", "one")[1])["evidence"]
    assert evidence == {
        "rules": {},
        "instructions": dict.fromkeys(LEVELS, 0) | {"spec": 7},
        "model": "gfx950",
        "model_digest": DEFAULT.digest,
    }


def test_evidence_that_changed_is_told_and_is_no_fault(gfx950, made_up, tmp_path):
    gfx950("golden", "record", "made_up")
    name = "made_up.sum"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEDGER, name, Rule(name, Evidence.vendor, "this test", "Sums wrap."))
        for command in (["check"], ["golden", "check"]):
            code, out, err = gfx950(*command, "made_up")
            assert (code, err) == (0, "")
            assert out.endswith(
                "note: what the bits of one, two, three and 1 more rest on is not what their goldens say:\n"
                "  made_up.sum (vendor) is new\n"
            )
        found = json.loads(gfx950("golden", "check", "made_up", "--json")[1])
        assert [c["evidence_changes"] for c in found["cases"]] == [["made_up.sum (vendor) is new"]] * 4
        out = gfx950("check", "made_up", "--case", "one")[1]
        assert "the bits rest on 1 vendor rule: made_up.sum\n`gfx950 evidence made_up` lists them all\n" in out
        code, out, _ = gfx950("golden", "record", "made_up", "--case", "one")
        assert code == 0
        assert out.startswith("same bits one\nnote: what the bits of one rest on is not what their goldens say:\n")
        assert gfx950("golden", "record", "made_up", "--case", "one")[1] == "unchanged one\n"


def test_many_changes_of_evidence_are_counted(made_up):
    results = [CaseResult("made_up", case, evidence_changes=[f"r{i} is gone" for i in range(11)]) for case in "ab"]
    lines = list(change_lines([*results, CaseResult("made_up", "c")]))
    assert lines[0].startswith("note: what the bits of a, b rest on is not")
    assert lines[-2:] == ["  r7 is gone", "  and 3 more"]


def test_require_refuses_before_anything_runs(gfx950, made_up):
    def stop(outputs):
        raise AssertionError("it ran")

    gfx950("golden", "record", "made_up", "--case", "one")
    assert gfx950("check", "made_up", "--case", "one", "--require", "spec")[0] == 0
    made_up.source = made_up.machine = stop
    name = "made_up.sum"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEDGER, name, Rule(name, Evidence.vendor, "this test", "Sums wrap."))
        code, out, err = gfx950("check", "made_up", "--require", "carried")
    assert (code, out) == (2, "")
    assert "made_up rests on less than `carried`, so it was not run:\n  vendor  made_up.sum: Sums wrap.\n" in err
    assert "`gfx950 evidence made_up` lists all that it rests on" in err


def test_require_names_rules_with_their_instructions(gfx950):
    code, out, err = gfx950("check", "drafter_attention", "--require", "measured", "--case", "small")
    assert (code, out) == (2, "")
    assert "drafter_attention rests on less than `measured`, so it was not run:" in err
    assert re.search(r"chosen  float\.nan_operand: .*\(v_\w+,\s.* and\s+\d+\s+more\)", err, re.DOTALL)
    assert re.search(r"and \d+ more rules", err)


def test_json_of_nan_is_strict_json(gfx950, made_up):
    def nan(outputs):
        outputs["codes"][0, 0] = 0x7F
        return outputs

    made_up.machine = nan
    code, out, _ = gfx950("check", "made_up", "--case", "one", "--json")

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    found = json.loads(out, parse_constant=refuse)["cases"][0]["findings"][0]
    assert code == 1
    assert found["ulps"] is None
    assert found["values"]["machine"]["shown"] == "0x7f  0|1111|111  nan"


@pytest.mark.parametrize("command", [["check"], ["golden", "check"], ["golden", "record"]])
def test_unknown_cases_and_kernels_name_the_nearest(gfx950, command):
    code, out, err = gfx950(*command, "made_up", "--case", "tree")
    assert (code, out) == (2, "")
    assert "made_up has no case 'tree'; there are: one, two, three, four; did you mean three?" in err
    code, out, err = gfx950(*command, "maid_up")
    assert (code, out) == (2, "")
    assert "there is no kernel 'maid_up'; there are: drafter_attention, made_up; did you mean made_up?" in err


@pytest.mark.parametrize("words", [["check"], ["check", "made_up", "--engine", "fast"], ["golden", "check"]])
def test_wrong_usage_is_exit_code_2(gfx950, words):
    code, out, err = gfx950(*words)
    assert (code, out) == (2, "")
    assert "Error: " in err


def test_an_error_of_the_run_leaves_stdout_empty_with_json(gfx950, made_up):
    def stop(outputs):
        raise ValueError("lane 5 reads past the end")

    made_up.machine = stop
    assert gfx950("check", "made_up", "--json") == (2, "", "error: lane 5 reads past the end\n")


# ---- golden check and list -------------------------------------------------------------------------------------------


def test_golden_check_runs_the_source_only(gfx950, made_up):
    gfx950("golden", "record", "made_up", "--case", "one")

    def stop(outputs):
        raise AssertionError("the machine code ran")

    made_up.machine = stop
    code, out, _ = gfx950("golden", "check", "made_up", "--case", "one")
    assert code == 0
    assert out.splitlines()[0].startswith("ok    one              source = golden ")
    assert out.splitlines()[1:] == ["1 of 1 case agrees"]
    made_up.source = flip
    code, out, _ = gfx950("golden", "check", "made_up", "--case", "one", "--case", "two")
    assert code == 1
    assert "[golden] codes: the run differs" in out
    assert "[missing]" in out
    assert "0 of 2 cases agree" in out


def test_golden_check_json(gfx950):
    gfx950("golden", "record", "made_up", "--case", "one")
    code, out, err = gfx950("golden", "check", "made_up", "--json")
    document = json.loads(out)
    assert (code, err) == (1, "")
    assert (document["schema"], document["ok"]) == ("gfx950.golden-check/1", False)
    assert [[f["kind"] for f in c["findings"]] for c in document["cases"]] == [[], *[["missing"]] * 3]


def test_golden_list(gfx950, made_up):
    gfx950("golden", "record", "made_up", "--case", "one", "--case", "four")
    del made_up.package.cases["four"]
    _, out, _ = gfx950("golden", "list", "made_up")
    assert [line.split() for line in out.splitlines()] == [
        ["made_up", "one", "recorded", "the", "first"],
        ["made_up", "two", "MISSING", "the", "second"],
        ["made_up", "three", "MISSING", "the", "third"],
        ["made_up", "four", "recorded", "no", "such", "case", "any", "more"],
    ]
    code, out, err = gfx950("golden", "list", "made_up", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["schema"] == "gfx950.golden-list/1"
    assert json.loads(out)["goldens"][1] == {
        "kernel": "made_up",
        "case": "two",
        "recorded": False,
        "about": "the second",
    }
    _, out, _ = gfx950("golden", "list")
    assert {line.split()[0] for line in out.splitlines() if line[0] != " "} == {"drafter_attention", "made_up"}


def test_damaged_goldens_are_wrong_and_recorded_anew_as_changed(gfx950, tmp_path):
    gfx950("golden", "record", "made_up", "--case", "one")
    good = files(tmp_path)
    paths("made_up", "one", tmp_path)[0].write_text("{}")
    code, out, _ = gfx950("check", "made_up", "--case", "one")
    assert code == 1
    assert "[golden] one.json is no golden record: its schema is None" in out
    _, out, _ = gfx950("golden", "record", "made_up", "--case", "one")
    assert out.startswith("CHANGED   one\n  [golden] one.json is no golden record")
    assert files(tmp_path) == good


# ---- the real command ------------------------------------------------------------------------------------------------


def test_the_installed_command():
    command = [sys.executable, "-m", "gfx950", "golden", "check", "drafter_attention", "--case", "small", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["ok"] is True
