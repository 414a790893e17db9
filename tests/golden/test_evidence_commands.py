"""`gfx950 evidence`: the ledger, and what an instruction, a code object, a kernel or a pattern rests on."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from llvm_tools import assembled, compiled

from gfx950.evidence import LEDGER, Evidence, rule
from gfx950.instruction_rules import rules_of
from gfx950.isa.registry import load
from gfx950.models import make_model, write_model
from golden import evidence_commands

C_SOURCE = """
__attribute__((amdgpu_kernel)) void add(__attribute__((address_space(1))) float *x) {
  x[__builtin_amdgcn_workitem_id_x()] += 1.5f;
}
__attribute__((amdgpu_kernel)) void root(__attribute__((address_space(1))) float *x) { *x = __builtin_sqrtf(*x); }
"""
JUMP = """
.text
.globl k
.type k,@function
k:
  s_setpc_b64 s[2:3]
.section .rodata,"a"
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 8
  .amdhsa_accum_offset 4
.end_amdhsa_kernel
"""


@pytest.fixture
def objects(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.o").write_bytes(compiled(C_SOURCE))
    return tmp_path


def names(out):
    """The rules that are listed."""
    return re.findall(r"^  (\S+)$", out, re.MULTILINE)


# ---- the ledger ------------------------------------------------------------------------------------------------------


def test_the_ledger_is_listed_weakest_first(gfx950):
    code, out, err = gfx950("evidence")
    heads = [line.split(":")[0] for line in out.splitlines() if not line.startswith(" ")]
    assert (code, err) == (0, "")
    assert heads == [level.name for level in Evidence if level.name in heads]
    assert heads[0] == "chosen"
    assert "vendor" in heads
    assert {"float.nan_operand", "layout.f8f6f4.8bit", "lds.range", "code_object.descriptor"} <= set(names(out))
    assert max(map(len, out.splitlines())) <= 80


def test_one_level_as_json(gfx950):
    rule("test.commands.carried", Evidence.carried, "this test", "Nothing.")
    found = json.loads(gfx950("evidence", "--level", "carried", "--json")[1])
    assert found["schema"] == "gfx950.evidence/1"
    assert {r["evidence"] for r in found["rules"]} == {"carried"}
    assert "test.commands.carried" in {r["name"] for r in found["rules"]}
    assert found["counts"]["carried"] == len(found["rules"])
    assert found["counts"]["chosen"] > 0


def test_a_level_without_rules_is_said(gfx950, monkeypatch):
    monkeypatch.setattr(evidence_commands, "LEDGER", {})
    assert gfx950("evidence", "--level", "measured")[:2] == (0, "measured: 0 rules\n")


# ---- what may be asked about -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["buffer_load_dword", "v_exp_f32", "v_exp_f32_e64", "V_EXP_F32"])
def test_an_instruction(gfx950, name):
    plain = name.lower().removesuffix("_e64")
    rules = rules_of(load()[plain])
    code, out, _ = gfx950("evidence", name)
    assert code == 0
    assert out.startswith(f"{plain} rests on {len(rules)} rules, the weakest chosen\n")
    assert sorted(names(out)) == sorted(r.name for r in rules)


def test_an_instruction_without_rules(gfx950):
    code, out, _ = gfx950("evidence", "s_endpgm")
    assert (code, out) == (0, "s_endpgm rests on the ISA text alone\n")


def test_the_switches_of_a_rule_are_shown(gfx950):
    out = gfx950("evidence", "buffer.range_bytes")[1]
    assert names(out) == ["buffer.range_bytes"]
    assert "      switch buffer.soffset_in_range = 1 (or 0)\n" in out
    (found,) = json.loads(gfx950("evidence", "buffer.range_bytes", "--json")[1])["rules"]
    assert [s["name"] for s in found["switches"]] == ["buffer.soffset_in_range", "buffer.range_by_end"]
    assert found["switches"][0]["answers"] == [1, 0]


def test_a_pattern_of_rules(gfx950):
    code, out, _ = gfx950("evidence", "lds.phases.*")
    assert code == 0
    assert set(names(out)) == {name for name in LEDGER if name.startswith("lds.phases.")}


def test_a_pattern_of_instructions(gfx950):
    found = json.loads(gfx950("evidence", "v_s[iq][nr]*_f32", "--json")[1])
    rules = {r.name for name in ("v_sin_f32", "v_sqrt_f32") for r in rules_of(load()[name])}
    assert {r["name"] for r in found["rules"]} == rules


def test_a_code_object(gfx950, objects):
    code, out, _ = gfx950("evidence", "kernels.o")
    assert code == 0
    counts = "0 measured, 0 published, 0 carried, 0 vendor, "
    assert re.match(rf"add: 7 instructions: {counts}1 chosen, 6 spec root: \d+ instructions: ", " ".join(out.split()))
    assert "float.nan_operand" in names(out)
    found = json.loads(gfx950("evidence", "kernels.o", "--json", "--kernel", "add")[1])
    (kernel,) = found["kernels"]
    assert kernel["name"] == "add"
    assert sum(kernel["instructions"].values()) == len(kernel["mnemonics"])
    assert "v_add_f32" in kernel["mnemonics"]
    (nan,) = (r for r in found["rules"] if r["name"] == "float.nan_operand")
    assert nan["instructions"] == ["v_add_f32"]
    assert "transcendental.value" not in {r["name"] for r in found["rules"]}
    assert gfx950("evidence", "kernels.o", "--kernel", "sub")[0] == 2


def test_jumps_through_registers_are_told(gfx950, objects):
    (objects / "jump.o").write_bytes(assembled(JUMP))
    out = gfx950("evidence", "jump.o")[1]
    assert "what its jumps through registers reach, which is known after a run" in out


def test_a_kernel_with_its_own_rules(gfx950):
    code, out, _ = gfx950("evidence", "drafter_attention", "--level", "chosen")
    assert code == 0
    assert re.match(r"drafter_attention: \d+ instructions: 0 measured", out)
    assert {"drafter_attention.merge", "float.nan_operand"} <= set(names(out))
    assert re.search(r"      in v_\w+", out)


@pytest.mark.parametrize("what", ["drafter_atention", "v_exp_f23", "lds.adress", "kernel.o", "q*7", "x/y.o"])
def test_what_fits_nothing_is_answered_with_the_nearest_of_all_kinds(gfx950, objects, what):
    code, out, err = gfx950("evidence", what)
    assert (code, out) == (2, "")
    assert f"{what!r} is no instruction, rule, kernel or file, and no pattern that fits any; nearest:" in err
    nearest = dict(re.findall(r"^  (instructions|rules|kernels|files) +(.*)$", err, re.MULTILINE))
    wanted = {
        "drafter_atention": ("kernels", "drafter_attention"),
        "v_exp_f23": ("instructions", "v_exp_f32"),
        "lds.adress": ("rules", "lds.address"),
        "kernel.o": ("files", "kernels.o"),
    }
    assert len(nearest) == 4
    if what in wanted:
        kind, name = wanted[what]
        assert name in nearest[kind].split(", ")
    else:
        assert nearest["files"] == "none"


def test_a_kernel_is_asked_of_a_file_only(gfx950):
    code, _, err = gfx950("evidence", "v_exp_f32", "--kernel", "add")
    assert code == 2
    assert "--kernel is about a code object: give its file" in err


def test_a_file_that_is_no_code_object(gfx950, objects):
    (objects / "text.o").write_text("text")
    code, out, err = gfx950("evidence", "text.o")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")


# ---- under a model ---------------------------------------------------------------------------------------------------


def test_rules_as_a_model_has_them(gfx950, tmp_path):
    measured = {"buffer.soffset_in_range": "capture 1234", "buffer.range_by_end": "capture 1234"}
    values = {"buffer.soffset_in_range": 0, "buffer.unaligned": 0}
    write_model(make_model("fitted", values, measured=measured), tmp_path / "fitted.json")
    found = json.loads(gfx950("evidence", "buffer.*", "--model", tmp_path / "fitted.json", "--json")[1])
    rules = {r["name"]: r for r in found["rules"]}
    assert found["model"]["name"] == "fitted"
    assert (rules["buffer.range_bytes"]["evidence"], rules["buffer.range_bytes"]["source"]) == (
        "measured",
        "capture 1234",
    )
    assert rules["buffer.range_bytes"]["text"].endswith("Switched here: buffer.soffset_in_range = 0.")
    assert (rules["buffer.alignment"]["evidence"], rules["buffer.alignment"]["source"]) == ("chosen", "model fitted")
    out = gfx950("evidence", "buffer.*", "--model", tmp_path / "fitted.json", "--level", "measured")[1]
    assert names(out) == ["buffer.range_bytes"]
    assert "switch buffer.soffset_in_range = 0*+ (or 1)" in out
    assert "switch buffer.range_by_end = 1+ (or 0)" in out


def test_the_model_of_a_code_object(gfx950, objects):
    write_model(make_model("m", {"buffer.unaligned": 0}), "m.json")
    found = json.loads(gfx950("evidence", "kernels.o", "--model", "m.json", "--json")[1])
    assert found["model"] == {"name": "m", "digest": make_model("m", {"buffer.unaligned": 0}).digest}
    assert gfx950("evidence", "--model", "none.json")[0] == 2


def test_the_examples_of_the_help_text_run(gfx950):
    examples = re.findall(r"^ +gfx950 (.*)$", gfx950("evidence", "--help")[1], re.MULTILINE)
    assert len(examples) == 4
    for example in examples:
        code, shown, err = gfx950(*shlex.split(example))
        assert (code, err) == (0, ""), example
        assert shown


def test_a_file_with_brackets_is_a_file_and_a_huge_name_is_none(gfx950, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "[a].o").write_bytes(b"text")
    code, _, error = gfx950("evidence", "[a].o")
    assert code == 2
    assert "not an ELF file" in error
    code, _, error = gfx950("evidence", "a" * 5000)
    assert code == 2
    assert "is no instruction, rule, kernel or file" in error
    assert len(error) < 2000


def test_a_switch_is_answered_with_the_rules_it_decides(gfx950):
    code, out, _ = gfx950("evidence", "mfma.byte.c_window")
    assert code == 0
    assert out.startswith("the switch mfma.byte.c_window decides")
    assert "  mfma.byte.c\n" in out
