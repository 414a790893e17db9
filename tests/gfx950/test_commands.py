"""The command line: layout, isa, models, exit codes, streams, widths, speed."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from gfx950 import __main__ as command_line
from gfx950 import terminal
from gfx950.commands import describe_instruction
from gfx950.evidence import Evidence
from gfx950.instruction_rules import rules_of
from gfx950.isa.registry import load
from gfx950.models import load_switches, make_model, named_models, write_model

SCALED = "v_mfma_scale_f32_16x16x128_f8f6f4"


def process(*arguments, **environment):
    command = [sys.executable, "-m", "gfx950", *arguments]
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | environment
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


# ---- layout ----------------------------------------------------------------------------------------------------------


def test_layout_answers_the_element(gfx950):
    code, out, err = gfx950("layout", SCALED, "B[100][3]")
    assert (code, err) == (0, "")
    assert "B[100][3]: v5, lane 35, bits 7:0" in out
    assert "its scale scaleB[3][3]: v0, lane 51, bits 7:0" in out
    assert "rests on: published (CDNA4 ISA 7.1.5" in out


def test_layout_json_has_a_schema_and_the_place(gfx950):
    code, out, _ = gfx950("layout", SCALED, "B[100][3]", "--json")
    found = json.loads(out)
    assert code == 0
    assert next(iter(found)) == "schema"
    assert found["schema"] == "gfx950.layout/1"
    assert (found["lane"], found["pieces"]) == (35, [{"register": 5, "high_bit": 7, "low_bit": 0}])
    assert found["evidence"] == "published"


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ((SCALED, "B v3 lane 17 [7:4]", "--b", "fp4"), "bits 7:4  B[57][1]"),
        ((SCALED, "B v3 lane 17 [7:4]"), "bits 7:0  B[28][1]"),
        ((SCALED, "A[5][5]", "--a", "fp6"), "A[5][5]: v0, lane 5, bits 31:30 and v1 bits 3:0"),
        ((SCALED, "scaleB[3][3]", "--op-sel", "2"), "scaleB[3][3]: v0, lane 51, bits 23:16"),
        (("v_mfma_f32_4x4x4_16b_f16", "A[1][2] block 4"), "A[1][2] block 4: v1, lane 17, bits 15:0"),
        (("v_mfma_f32_16x16x32_bf16", "D[5][9]"), "D[5][9]: v1, lane 25, bits 31:0"),
        (("v_smfmac_f32_16x16x64_f16", "index[3][21]", "--op-sel", "1"), "index[3][21]: v0, lane 35, bits 27:26"),
        (("v_smfmac_i32_16x16x128_i8",), "index    16    64    1       2             1          published"),
    ],
)
def test_layout_of_formats_scales_blocks_and_places(gfx950, arguments, answer):
    code, out, _ = gfx950("layout", *arguments)
    assert code == 0
    assert answer in out


def test_layout_without_an_element_lists_the_operands(gfx950):
    code, out, _ = gfx950("layout", SCALED, "--b", "fp4")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert rows[1] == ["operand", "rows", "cols", "blocks", "element_bits", "registers", "evidence"]
    assert rows[2] == ["A", "16", "128", "1", "8", "8", "published"]
    assert rows[3] == ["B", "128", "16", "1", "4", "4", "published"]
    assert rows[5] == ["D", "16", "16", "1", "32", "4", "spec"]
    assert [row[0] for row in rows[6:]] == ["scaleA", "scaleB"]
    found = json.loads(gfx950("layout", SCALED, "--json")[1])
    assert found["schema"] == "gfx950.layout-operands/1"
    assert found["operands"][1]["registers"] == 8


def test_an_element_and_its_place_are_inverse(gfx950):
    place = json.loads(gfx950("layout", SCALED, "A[7][77]", "--a", "fp4", "--json")[1])
    piece = place["pieces"][0]
    text = f"A v{piece['register']} lane {place['lane']} [{piece['high_bit']}:{piece['low_bit']}]"
    back = json.loads(gfx950("layout", SCALED, text, "--a", "fp4", "--json")[1])
    assert [(e["row"], e["col"]) for e in back["elements"]] == [(7, 77)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SCALED, "B[200][3]"), "row 200 is outside B"),
        ((SCALED, "B[1,2]"), "cannot read 'B\\[1,2\\]' as an element"),
        ((SCALED, "B v99 lane 3"), "register 99 is outside B"),
        (("v_mfma_f32_16x16x31_bf16", "A[0][0]"), "nearest: v_mfma_f32_16x16x32_bf16"),
        (("v_mfma_f32_16x16x32_bf16", "A[0][0]", "--a", "fp4"), "fixes its formats"),
        ((SCALED, "A[0][0]", "--a", "fp5"), "'fp5' is not one of"),
        ((), "Missing argument 'INSTRUCTION'"),
        (("v_mfma_nothing",), "is not a matrix instruction of gfx950"),
    ],
)
def test_bad_layout_questions_exit_with_2(gfx950, arguments, message):
    code, out, err = gfx950("layout", *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err)


# ---- isa -------------------------------------------------------------------------------------------------------------


def test_isa_lists_every_instruction_by_encoding(gfx950):
    code, out, _ = gfx950("isa")
    rows = [line.split() for line in out.splitlines()[1:-1]]
    known = load()
    assert code == 0
    assert {row[2]: (row[0], int(row[1])) for row in rows} == {n: (i.encoding, i.opcode) for n, i in known.items()}
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert max(map(len, out.splitlines())) <= 80


def test_isa_json_lists_the_same(gfx950):
    found = json.loads(gfx950("isa", "--json")[1])
    assert found["schema"] == "gfx950.isa/1"
    assert {i["name"] for i in found["instructions"]} == set(load())


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("v_mul_legacy_f??", ["v_mul_legacy_f32"]),
        ("s_[lm]ul_i32", ["s_mul_i32"]),
        ("ds_read_b*_tr_b*", ["ds_read_b64_tr_b4", "ds_read_b96_tr_b6", "ds_read_b64_tr_b8", "ds_read_b64_tr_b16"]),
    ],
)
def test_isa_lists_those_of_a_pattern(gfx950, pattern, names):
    found = json.loads(gfx950("isa", pattern, "--json")[1])["instructions"]
    assert [row["name"] for row in found] == names
    out = gfx950("isa", pattern)[1]
    assert out.endswith(f"{len(names)} instruction{'s' * (len(names) > 1)}; `gfx950 isa NAME` describes one\n")


def test_a_pattern_that_fits_nothing(gfx950):
    code, out, err = gfx950("isa", "v_*_q7")
    assert (code, out) == (2, "")
    assert "no instruction fits 'v_*_q7'; `gfx950 isa` lists all" in err


def test_isa_describes_an_instruction(gfx950):
    code, out, _ = gfx950("isa", "v_exp_f32")
    assert code == 0
    assert "VOP1 opcode 32 (0x20); 64-bit form VOP3 opcode 352" in out
    assert "src0: F32, 1 register" in out
    assert "def v_exp_f32(src0: F32) -> F32:" in out
    assert re.search(r"chosen\s+transcendental.value", out)


def test_isa_json_of_a_matrix_instruction(gfx950):
    found = json.loads(gfx950("isa", SCALED, "--json")[1])
    assert found["schema"] == "gfx950.instruction/1"
    sizes = {p["name"]: p["registers"] for p in found["operands"]}
    assert (sizes["src0"], sizes["src2"], sizes["scale_a"], sizes["cbsz"]) == (8, 4, 1, 0)
    assert found["vop3_opcode"] is None
    assert {r["name"] for r in found["rules"]} >= {"mfma.group_order"}
    levels = [Evidence[r["evidence"]] for r in found["rules"]]
    assert levels == sorted(levels)


def test_every_instruction_can_be_described():
    for instruction in load().values():
        facts = describe_instruction(instruction)
        assert facts["source"].strip(), instruction.name
        assert facts["text"], instruction.name


@pytest.mark.parametrize("name", ["V_PERM_B32", "v_perm_b32_e64", "v_perm_b32"])
def test_an_instruction_is_found_as_it_is_written_elsewhere(gfx950, name):
    code, out, _ = gfx950("isa", name)
    assert (code, out.splitlines()[0]) == (0, "v_perm_b32")


def test_an_unknown_instruction_exits_with_2_and_the_nearest_names(gfx950):
    code, out, err = gfx950("isa", "v_prem_b32")
    assert (code, out) == (2, "")
    assert "no instruction 'v_prem_b32' is defined; nearest: v_perm_b32" in err
    assert "`gfx950 isa` lists them all" in err


def test_an_instruction_of_another_chip_is_named(gfx950):
    code, out, err = gfx950("isa", "v_mfma_f32_32x32x4_xf32")
    assert (code, out) == (2, "")
    assert "v_mfma_f32_32x32x4_xf32 is an instruction of gfx942, which gfx950 does not have" in err


@pytest.mark.parametrize(
    "name", ["v_perm_b32", "v_exp_f32", SCALED, "ds_read_b64_tr_b8", "s_setpc_b64", "v_div_scale_f32"]
)
def test_descriptions_fit_80_columns(gfx950, name):
    assert max(map(len, gfx950("isa", name)[1].splitlines())) <= 80


# ---- what an instruction rests on ------------------------------------------------------------------------------------

ARITHMETIC = {f"float.{name}" for name in ("nan_operand", "round", "ends", "denorm", "flush_after_rounding")}


@pytest.mark.parametrize(
    ("name", "floats"),
    [
        ("v_mov_b32", set()),
        ("v_perm_b32", set()),
        ("v_add_f32", ARITHMETIC),
        ("v_dot2_f32_f16", {"float.nan_operand"}),  # neither rounds nor flushes by MODE
        ("v_cvt_pk_f16_f32", ARITHMETIC - {"float.round", "float.ends"}),
        ("v_cvt_f16_f32", ARITHMETIC | {"float.round_field"}),
        ("v_cmp_lt_f32", {"float.denorm"}),
        ("v_cvt_f32_i32", {"float.round"}),
        ("global_load_dword", set()),
        ("s_load_dwordx4", set()),
    ],
)
def test_float_rules_belong_to_what_computes_with_floats(name, floats):
    assert {r.name for r in rules_of(load()[name]) if r.name.startswith("float.")} == floats


def test_every_body_runs_without_values():
    for instruction in load().values():
        rules_of(instruction)


# ---- models ----------------------------------------------------------------------------------------------------------


def test_models_lists_models_and_switches(gfx950):
    code, out, err = gfx950("models")
    assert (code, err) == (0, "")
    assert out.startswith("model")
    assert re.search(r"^gfx950 +The defaults of all switches\.$", out, re.MULTILINE)
    known = load_switches()
    assert f"{len(known)} switches" in out
    for name, switch in known.items():
        assert f"\n  {name} = {switch.default} (or " in out
    assert "Decides buffer.range_bytes." in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_models_json(gfx950):
    found = json.loads(gfx950("models", "--json")[1])
    assert (found["schema"], found["model"], found["tables"]) == ("gfx950.models/1", "gfx950", [])
    assert {m["name"]: m["text"] for m in found["models"]} == named_models()
    assert [s["name"] for s in found["switches"]] == sorted(load_switches())
    (unaligned,) = (s for s in found["switches"] if s["name"] == "buffer.unaligned")
    text = load_switches()["buffer.unaligned"].text
    assert unaligned == {
        "name": "buffer.unaligned",
        "answer": 1,
        "default": 1,
        "answers": [1, 0],
        "text": text,
        "measured": None,
        "rules": ["buffer.alignment"],
    }


def test_a_model_of_a_file_is_shown_with_its_marks(gfx950, tmp_path):
    measured = {"buffer.unaligned": "capture 1234", "buffer.range_by_end": "capture 1234"}
    write_model(make_model("fitted", {"buffer.unaligned": 0}, measured=measured), tmp_path / "fitted.json")
    code, out, _ = gfx950("models", tmp_path / "fitted.json")
    assert code == 0
    assert re.match(r"model fitted, digest [0-9a-f]{16}\n", out)
    assert "  buffer.unaligned = 0*+ (or 1)\n" in out
    assert "  buffer.range_by_end = 1+ (or 0)\n" in out
    assert "  buffer.store_selects = 1 (or 0)\n" in out


def test_an_unknown_model_names_those_there_are(gfx950):
    code, out, err = gfx950("models", "gfx942")
    assert (code, out) == (2, "")
    assert "there is no model 'gfx942'; named ones: gfx950" in err


# ---- the frame -------------------------------------------------------------------------------------------------------


def test_help_names_every_command(gfx950):
    code, out, _ = gfx950("--help")
    assert code == 0
    for name in command_line.COMMANDS:
        assert re.search(rf"^  {name}\s", out, re.MULTILINE)


@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_every_command_has_help(gfx950, name):
    code, out, _ = gfx950(name, "--help")
    assert code == 0
    assert out.startswith("Usage: ")
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("name", ["layout", "isa", "models"])
def test_the_examples_of_help_texts_run(gfx950, name):
    out = gfx950(name, "--help")[1]
    examples = re.findall(r"^ +gfx950 (.*)$", out, re.MULTILINE)
    assert examples
    for example in examples:
        code, shown, err = gfx950(*shlex.split(example))
        assert (code, err) == (0, ""), example
        assert shown


def test_an_unknown_command_exits_with_2_and_the_nearest_name(gfx950):
    code, out, err = gfx950("layot")
    assert (code, out) == (2, "")
    assert "there is no command 'layot'; did you mean layout?" in err
    code, out, err = gfx950("golden", "chekc")
    assert (code, out) == (2, "")
    assert "there is no command 'chekc'; did you mean check?" in err
    assert "there are: check, list, record" in gfx950("golden", "xyzzy")[2]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("a bad value"), 2, "error: a bad value"),
        (KeyError("no such name"), 2, "error: no such name\n`gfx950 --traceback ...` shows where"),
        (OSError("a bad disk"), 2, "error: a bad disk"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_errors_of_a_command_become_one_message_and_a_code(gfx950, monkeypatch, error, code, text):
    def fails(**_):
        raise error

    monkeypatch.setattr(command_line.cli, "main", fails if code == 2 else interrupted)
    assert gfx950("isa")[0] == code
    assert gfx950("isa")[2].strip() == text


def interrupted(**_):
    raise command_line.click.Abort


def test_codes_of_the_projects_own_errors():
    from codegen.link import NoLinker
    from emu.errors import MemoryFault, UnknownInstruction
    from gfx950.isa.encoding import DecodeError

    codes = [command_line.exit_code_of(e) for e in (UnknownInstruction("x"), DecodeError("x", 0, 0), NoLinker("x"))]
    assert codes == [3, 3, 4]
    assert command_line.exit_code_of(MemoryFault("x")) == 2


def test_a_code_of_a_command_is_the_code_of_the_process(gfx950, monkeypatch):
    monkeypatch.setattr(command_line.cli, "main", lambda **_: 4)
    assert gfx950("isa")[0] == 4


# ---- as a process ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"FORCE_COLOR": "1", "TERM": "xterm-256color"}])
def test_no_ansi_codes_when_piped(environment):
    for arguments in (("--help",), ("layout", SCALED, "B[100][3]"), ("layout", SCALED, "B[200][3]")):
        done = process(*arguments, **environment)
        assert "\x1b" not in done.stdout + done.stderr


def test_exit_codes_of_the_process():
    assert process("--help").returncode == 0
    assert process("layout", SCALED, "B[100][3]").returncode == 0
    assert process("layout", SCALED, "B[100]").returncode == 2
    assert process("nothing").returncode == 2
    assert process().returncode == 2


def test_a_closed_pipe_is_no_error():
    command = f"{shlex.quote(sys.executable)} -m gfx950 isa | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("encoding")


def test_json_is_the_only_thing_on_stdout():
    done = process("isa", "v_perm_b32", "--json")
    assert json.loads(done.stdout)["name"] == "v_perm_b32"
    assert done.stderr == ""


def cpu_seconds(*command):
    """The least processor time of a few runs: what a quiet machine would take."""
    used = []
    for _ in range(3):
        before = os.times()
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
        after = os.times()
        used.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(used)


def test_help_and_layout_are_quick():
    """In terms of what this machine takes to import click, 0.06 s where the goal is 0.15 and 0.3 s."""
    unit = cpu_seconds("-c", "import click")
    assert cpu_seconds("-m", "gfx950", "--help") < 2.5 * unit
    assert cpu_seconds("-m", "gfx950", "layout", SCALED, "B[100][3]") < 5 * unit


def test_layout_loads_no_numerics():
    code = (
        "import sys; sys.argv = ['gfx950', 'layout', '" + SCALED + "', 'B[100][3]']\n"
        "from gfx950.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: print([m for m in ('numpy', 'numba', 'llvmlite', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# ---- the terminal ----------------------------------------------------------------------------------------------------


def test_tables_wrap_the_last_column_and_lose_nothing():
    rows = [("name", "text"), ("a", "one two three four five six seven eight nine ten eleven twelve")]
    lines = list(terminal.table(rows, 40))
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(row) for row in rows)


def test_tables_give_a_long_first_column_lines_of_its_own():
    lines = list(terminal.table([("x" * 30, "some words that follow after it")], 36))
    assert lines == ["x" * 30, "    some words that follow after it"]


def test_words_longer_than_a_line_are_broken_not_cut():
    assert "".join(terminal.wrap("y" * 100, width=30)) == "y" * 100


def test_the_width_is_that_of_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "123")
    assert terminal.columns() == 123
