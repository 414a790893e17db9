"""`gfx950 run`: arguments, files, messages, exit codes, and what it says its bits rest on."""

import functools
import json
import re
import shlex
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from llvm_tools import assembled, compiled

from codegen.compile import compile_kernels
from codegen.language import F32, I32, Pointer, kernel, store, trace
from emu.code_object import load
from emu.contained_rules import contained_rules, together
from emu.dispatch import Device, RunOptions
from emu.run_arguments import parse_argument, written_together
from gfx950.evidence import LEVELS, Evidence
from gfx950.models import DEFAULT, make_model, write_model

C_SOURCE = r"""
#define space(n) __attribute__((address_space(n)))
#define index (__builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x())
__attribute__((amdgpu_kernel)) void scale(space(1) int *x, int n) { x[index] *= n; }
__attribute__((amdgpu_kernel)) void add(space(1) float *out, const space(1) float *a, float b, short c, long d) {
  out[index] = a[index] + b * c + d;
}
__attribute__((amdgpu_kernel)) void empty(void) {}
__attribute__((amdgpu_kernel)) void narrow(space(1) __bf16 *out, const space(1) float *a, __bf16 b) {
  out[index] = a[index] * (float)b;
}
__attribute__((amdgpu_kernel)) void sizes(space(1) short *x) { x[index] = __builtin_amdgcn_workgroup_size_x(); }
"""
# A kernel whose only instruction, after a branch over it, is no gfx950 instruction.
UNKNOWN = """
.text
.globl k
.type k,@function
k:
  .long 0xbfa80000
  s_endpgm
.section .rodata,"a"
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 8
  .amdhsa_accum_offset 4
.end_amdhsa_kernel
"""


@pytest.fixture
def run(tmp_path, monkeypatch, gfx950):
    """`run(*arguments)` -> (exit code, stdout, stderr) of `gfx950 run` in a folder with kernels.o and x.npy."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.o").write_bytes(compiled(C_SOURCE))
    np.save("x.npy", np.arange(128, dtype=np.int32))

    return functools.partial(gfx950, "run")


SCALE = ("kernels.o", "--kernel", "scale", "--grid", "2", "--block", "64")
ADD = ("kernels.o", "--kernel", "add", "--grid", "1", "--block", "64")


def files(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_an_array_in_place_is_written_to_its_file(run, engine):
    code, out, err = run(*SCALE, "--arg", "x.npy:y.npy", "--arg", "3", "--engine", engine)
    assert (code, err) == (0, "")
    np.testing.assert_array_equal(np.load("y.npy"), np.arange(128, dtype=np.int32) * 3)
    np.testing.assert_array_equal(np.load("x.npy"), np.arange(128, dtype=np.int32))
    assert re.search(rf"ran scale on the {engine} engine: 2 workgroups, \d+ wave instructions", out)
    assert re.search(r"^(\d+) instructions: 0 measured, .*, 0 vendor, 0 chosen, \1 spec$", out, re.M)
    assert "below spec" not in out
    assert out.endswith("wrote y.npy\n")


def test_threads_give_the_same_bits(run):
    assert run(*SCALE, "--arg", "x.npy:one.npy", "--arg", "7")[0] == 0
    assert run(*SCALE, "--arg", "x.npy:two.npy", "--arg", "7", "--threads", "2")[0] == 0
    assert Path("one.npy").read_bytes() == Path("two.npy").read_bytes()


def test_new_buffers_and_every_kind_of_number(run):
    np.save("a.npy", np.linspace(-1, 1, 64, dtype=np.float32))
    arguments = ["zeros:f32:64:out.npy", "a.npy", "0.1f", "i16:-3", "0x10"]
    code, out, _ = run(*ADD, *[part for a in arguments for part in ("--arg", a)])
    assert code == 0
    a, b = np.load("a.npy"), np.float32(0.1)
    expected = (a + b * np.float32(-3)) + np.float32(16)
    np.testing.assert_array_equal(np.load("out.npy").view(np.uint32), expected.view(np.uint32))
    below = ("float.ends", "float.flush_after_rounding", "float.nan_operand")
    told = " ".join(out.split())
    assert f"below spec: {', '.join(f'{name} (chosen)' for name in below)}" in told
    assert "`gfx950 evidence kernels.o --kernel add`" in told


def test_a_grid_of_work_items_and_hidden_arguments(run):
    arguments = ("kernels.o", "--kernel", "sizes", "--items", "100", "--block", "64", "--arg", "zeros:u16:128:y.npy")
    assert run(*arguments)[0] == 0
    np.testing.assert_array_equal(np.load("y.npy"), [64] * 100 + [0] * 28)
    assert run(*arguments, "--hidden", "group_size_x=7")[0] == 0
    np.testing.assert_array_equal(np.load("y.npy"), [7] * 100 + [0] * 28)


def test_raw_files_hold_the_bytes_alone(run, tmp_path):
    (tmp_path / "x.bin").write_bytes(np.arange(128, dtype=np.int32).tobytes())
    assert run(*SCALE, "--arg", "x.bin:y.bin", "--arg", "3")[0] == 0
    assert (tmp_path / "y.bin").read_bytes() == (np.arange(128, dtype=np.int32) * 3).tobytes()
    assert (tmp_path / "x.bin").read_bytes() == np.arange(128, dtype=np.int32).tobytes()
    assert run(*SCALE, "--arg", "x.bin:y.npy", "--arg", "3")[0] == 0
    assert np.load("y.npy").dtype == np.uint8


@pytest.mark.parametrize("name", ["bf16", "bfloat16"])
def test_types_of_ml_dtypes(run, tmp_path, name):
    np.save("a.npy", np.linspace(-3, 3, 64, dtype=np.float32))
    code, _, err = run(
        "kernels.o", "--kernel", "narrow", "--grid", "1", "--block", "64", "--arg", f"zeros:{name}:64:out.bin",
        "--arg", "a.npy", "--arg", f"{name}:1.5",
    )  # fmt: skip
    assert (code, err) == (0, "")
    found = np.fromfile("out.bin", ml_dtypes.bfloat16)
    expected = (np.linspace(-3, 3, 64, dtype=np.float32) * np.float32(1.5)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


def test_an_npy_file_of_ml_dtypes_keeps_its_bytes(run):
    values = np.linspace(-3, 3, 64).astype(ml_dtypes.bfloat16)
    np.save("n.npy", values)
    assert run("kernels.o", "--kernel", "empty", "--grid", "1", "--block", "64")[0] == 0
    arguments = ["--arg", "n.npy:m.npy", "--arg", "zeros:f32:64:unused.npy", "--arg", "bf16:0"]
    assert run("kernels.o", "--kernel", "narrow", "--grid", "1", "--block", "64", *arguments)[0] == 0
    assert (np.load("m.npy").view(ml_dtypes.bfloat16) == 0).all()


def test_json_says_what_ran(run):
    code, out, err = run(*SCALE, "--arg", "x.npy:y.npy", "--arg", "3", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert next(iter(found)) == "schema"
    assert found["schema"] == "gfx950.run/1"
    assert (found["kernel"], found["workgroups"], found["outputs"]) == ("scale", 2, ["y.npy"])
    assert found["weakest_evidence"] == "spec"
    assert "v_mul_lo_u32" in found["mnemonics"]
    assert found["wave_instructions"] > 0


def test_the_examples_of_the_help_text_run(run, tmp_path):
    examples = re.findall(r"^ +gfx950 run (.*)$", run("--help")[1], re.MULTILINE)
    assert len(examples) == 2
    source = C_SOURCE.replace("__attribute__((amdgpu_kernel)) void add", "static void add")
    for name in ("empty", "narrow", "sizes"):
        source = source.replace(f"__attribute__((amdgpu_kernel)) void {name}", f"static void {name}")
    (tmp_path / "scale.o").write_bytes(compiled(source))
    for example in examples:
        code, _, err = run(*shlex.split(example))
        assert (code, err) == (0, "")
        np.testing.assert_array_equal(np.load("y.npy"), np.arange(128, dtype=np.int32) * 3)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.o", "--grid", "1", "--block", "64"), "'nothing.o' does not exist"),
        (("x.npy", "--grid", "1", "--block", "64"), "ELF"),
        (("kernels.o", "--grid", "1", "--block", "64"), "has 5 kernels, so name one: add, empty, narrow, scale, sizes"),
        (("kernels.o", "--kernel", "scal", "--grid", "1", "--block", "64"), "did you mean 'scale'"),
        (("kernels.o", "--kernel", "empty", "--grid", "0", "--block", "64"), "'0' is not one to three whole numbers"),
        (("kernels.o", "--kernel", "empty", "--grid", "1,1,1,1", "--block", "64"), "one to three whole numbers"),
        (("kernels.o", "--kernel", "empty", "--grid", "1", "--block", "2048"), "2048"),
        (("kernels.o", "--kernel", "empty", "--grid", "1"), "Missing option '--block'"),
        (("kernels.o", "--kernel", "empty", "--grid", "1", "--block", "64", "--dynamic-lds", "999999"), "999999"),
        ((*SCALE, "--arg", "x.npy:y.npy"), "scale takes 2 arguments and got 1; in order: 0"),
        ((*SCALE, "--arg", "no.npy:y.npy", "--arg", "3"), "No such file or directory: 'no.npy'"),
        ((*SCALE, "--arg", "x.npy:y.npy", "--arg", "x.npy"), "is an array, whose address takes 8 bytes"),
        ((*SCALE, "--arg", "x.npy:y.npy", "--arg", "i64:3"), "is a number of 8 bytes"),
        ((*SCALE, "--arg", "1.5f", "--arg", "3"), "--arg '1.5f' is a number of 4 bytes"),
        ((*SCALE, "--arg", "f64:1.5", "--arg", "3"), "is a buffer, --arg 'f64:1.5' is no buffer"),
        ((*SCALE, "--arg", "x.npy:y.npy", "--arg", "5000000000"), "an integer of 32 bits"),
        ((*SCALE, "--arg", "x.npy:y.npy", "--arg", "three"), "cannot read --arg 'three'; forms are in.npy"),
        ((*SCALE, "--arg", "x.npy:no/y.npy", "--arg", "3"), "cannot write no/y.npy: No such file or directory"),
        ((*SCALE, "--arg", "x.npy:y.txt", "--arg", "3"), "the output 'y.txt' does not end in .npy or .bin"),
        (
            (*SCALE, "--items", "64", "--arg", "x.npy:y.npy", "--arg", "3"),
            "give one of --grid .* and --items",
        ),
        (("kernels.o", "--kernel", "empty", "--block", "64"), "give one of --grid"),
        ((*SCALE, "--hidden", "size", "--arg", "x.npy:y.npy", "--arg", "3"), "'size' is not NAME=NUMBER"),
        ((*SCALE, "--hidden", "a=x", "--arg", "x.npy:y.npy", "--arg", "3"), "'a=x' is not NAME=NUMBER"),
        ((*SCALE, "--hidden", "a=1", "--arg", "x.npy:y.npy", "--arg", "3"), "no hidden argument hidden_a"),
        ((*SCALE, "--arg", "zeros:f32:0:y.npy", "--arg", "3"), "'0' is no shape"),
        ((*SCALE, "--arg", "zeros:f99:64:y.npy", "--arg", "3"), "write zeros:DTYPE:SHAPE:out.npy"),
        ((*SCALE, "--arg", "x.npy", "--arg", "3"), r"read-only: write --arg x.npy:OUT.npy"),
        ((*SCALE, "--arg", "zeros:i32:32:y.npy", "--arg", "3"), 'buffer "--arg zeros:i32:32:y.npy" \\(128 bytes\\)'),
        ((*SCALE, "--arg", "x.npy:y.npy", "--arg", "3", "--step-limit", "2", "--engine", "numpy"), "step limit of 2"),
        (
            (*SCALE, "--arg", "x.npy:y.npy", "--arg", "3", "--quantum", "0"),
            "'0' is neither a whole number from 1 on nor",
        ),
    ],
)
def test_bad_calls_exit_with_2_and_write_nothing(run, tmp_path, arguments, message):
    before = files(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err), err
    assert "Traceback" not in err
    assert files(tmp_path) == before


@pytest.fixture
def typed(run, tmp_path):
    """`typed(*arguments)` runs a kernel of our own, whose arguments' types are stated, with results in y.npy."""

    @kernel(block=64)
    def put(out: Pointer, n: I32, factor: F32) -> None:
        store(out, n, factor.bits(I32))

    (tmp_path / "typed.o").write_bytes(compile_kernels([trace(put)]).object)

    def call(*arguments):
        texts = ("zeros:u32:2:y.npy", *arguments)
        return run("typed.o", "--grid", "1", "--block", "64", *[p for a in texts for p in ("--arg", a)])

    return call


@pytest.mark.parametrize("arguments", [("3", "2"), ("0x3", "2.0"), ("i32:3", "2f"), ("u32:3", "f32:2")])
def test_numbers_take_the_stated_type(typed, arguments):
    assert typed(*arguments)[0] == 0
    assert np.load("y.npy").view(np.float32)[1] == 2
    assert np.load("y.npy")[0] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("3", "i32:2"),
            "(factor) of put is float of 4 bytes, --arg 'i32:2' is a whole number; write the number",
        ),
        (("3f", "2"), "(n) of put is int of 4 bytes, --arg '3f' is a float32; write the number without a type"),
        (
            ("3.0", "2"),
            "is int of 4 bytes, --arg '3.0' is 3.0; expected a whole number, for the argument is of",
        ),
        (("4294967296", "2"), "is 4294967296; expected an integer of 32 bits, signed or unsigned: -2147483648 to"),
        (("3", "1e39"), "is 1e+39; expected a float that 32 bits can hold; pass math.inf"),
    ],
)
def test_numbers_of_another_type_are_named(typed, arguments, message):
    code, _, err = typed(*arguments)
    assert code == 2
    assert message in " ".join(err.split())


def test_two_outputs_need_two_files(run, tmp_path):
    arguments = ["zeros:f32:64:y.npy", "x.npy:y.npy", "1.0", "1", "1"]
    code, _, err = run(*ADD, *[part for a in arguments for part in ("--arg", a)])
    assert code == 2
    assert "two arguments write y.npy" in err


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_an_unknown_instruction_exits_with_3_pc_bytes_fields_and_nearest(run, tmp_path, engine):
    (tmp_path / "bad.o").write_bytes(assembled(UNKNOWN))
    code, out, err = run("bad.o", "--grid", "1", "--block", "64", "--engine", engine)
    assert (code, out) == (3, "")
    assert re.search(r"pc 0x[0-9a-f]+: unknown SOPP opcode 40 in 0xbfa80000 \(simm16=0 op=40\); nearest known: s_", err)
    assert "kernel k" in err
    assert re.search(r"note: pc 0x[0-9a-f]+ is k\+0x0, byte 0x0 of \.text", err)


@pytest.mark.parametrize(("option", "place"), [("-O1", r"\.text$"), ("-g", r"\.text, .*:4$")])
def test_an_error_is_placed_in_the_called_function_and_the_source_where_that_is_known(run, tmp_path, option, place):
    source = r"""
#define global __attribute__((address_space(1)))
__attribute__((noinline)) static int fetch(const global int *x, int i) {
  return x[i + 1];
}
__attribute__((amdgpu_kernel)) void reads(const global int *x, global int *y) {
  int i = __builtin_amdgcn_workitem_id_x();
  y[i] = fetch(x, i);
}
"""
    (tmp_path / "reads.o").write_bytes(compiled(source, option))
    code, _, err = run("reads.o", "--grid", "1", "--block", "128", "--arg", "x.npy", "--arg", "zeros:i32:128:y.npy")
    assert code == 2
    assert re.search(rf"^note: pc 0x[0-9a-f]+ is fetch\+0x[0-9a-f]+, byte 0x[0-9a-f]+ of {place}", err, re.MULTILINE)


def test_a_file_that_is_no_npy(run, tmp_path):
    (tmp_path / "bad.npy").write_bytes(b"hello")
    code, _, err = run(*SCALE, "--arg", "bad.npy:y.npy", "--arg", "3")
    assert code == 2
    assert "bad.npy is no .npy file of plain numbers" in err


def test_an_output_that_is_a_folder(run, tmp_path):
    (tmp_path / "y.npy").mkdir()
    code, _, err = run(*SCALE, "--arg", "x.npy:y.npy", "--arg", "3")
    assert code == 2
    assert "the output y.npy is a folder" in err


def test_an_old_output_survives_a_run_that_fails(run, tmp_path):
    (tmp_path / "y.npy").write_bytes(b"old")
    assert run(*SCALE, "--arg", "zeros:i32:64:y.npy", "--arg", "3")[0] == 2
    assert (tmp_path / "y.npy").read_bytes() == b"old"


def test_an_old_output_survives_a_disk_that_is_full(tmp_path, monkeypatch):
    paths = {tmp_path / name: np.zeros(4) for name in ("a.npy", "b.npy")}
    for path in paths:
        path.write_bytes(b"old")

    def full(file, array, allow_pickle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space"), written_together(paths):
        pass
    assert files(tmp_path) == ["a.npy", "b.npy"]
    assert {p.read_bytes() for p in paths} == {b"old"}


# ---- evidence --------------------------------------------------------------------------------------------------------

# Calls through a register, which no scan of branches follows: v_rcp_f32 of 1.0 when the argument is not 0.
CALLS = """
.text
.globl k
.type k,@function
k:
  s_load_dword s4, s[0:1], 0x8
  s_load_dwordx2 s[6:7], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v1, 0
  s_cmp_eq_u32 s4, 0
  s_cbranch_scc1 store
  s_getpc_b64 s[8:9]
  s_add_u32 s8, s8, 36
  s_addc_u32 s9, s9, 0
  s_swappc_b64 s[10:11], s[8:9]
store:
  v_mov_b32 v2, 0
  global_store_dword v2, v1, s[6:7]
  s_endpgm
  s_nop 0
  s_nop 0
function:
  v_rcp_f32 v1, 1.0
  s_setpc_b64 s[10:11]
.section .rodata,"a"
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 16
  .amdhsa_accum_offset 4
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_kernarg_size 12
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 12
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 8
    .max_flat_workgroup_size: 64
    .args:
      - {.size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}
      - {.size: 4, .offset: 8, .value_kind: by_value}
.end_amdgpu_metadata
"""
CALL = ("calls.o", "--grid", "1", "--block", "64", "--arg", "zeros:f32:1:y.npy", "--arg")


def test_a_level_that_is_reached_runs(run):
    assert run(*SCALE, "--arg", "x.npy:y.npy", "--arg", "3", "--require", "spec")[0] == 0


def test_a_level_that_is_not_reached_lists_what_is_weaker(run, tmp_path):
    np.save("a.npy", np.zeros(64, np.float32))
    arguments = [part for a in ("zeros:f32:64:out.npy", "a.npy", "1.0", "1", "1") for part in ("--arg", a)]
    code, out, err = run(*ADD, *arguments, "--require", "published")
    assert (code, out) == (2, "")
    assert "add rests on less than `published`, so it was not run:\n" in err
    assert "  chosen  float.nan_operand: An arithmetic result" in err
    assert re.search(r"\(v_\w+(, v_\w+)*\)", " ".join(err.split()))
    assert "float.round:" not in err
    assert "`gfx950 evidence kernels.o --kernel add` lists all that it rests on" in err
    assert not (tmp_path / "out.npy").exists()


def test_unknown_code_is_below_every_level(run, tmp_path):
    (tmp_path / "bad.o").write_bytes(assembled(UNKNOWN))
    code, _, err = run("bad.o", "--grid", "1", "--block", "64", "--require", "chosen")
    assert code == 2
    assert "unknown instruction: pc" in err


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_what_calls_reach_is_checked_after_the_run(run, tmp_path, engine):
    (tmp_path / "calls.o").write_bytes(assembled(CALLS))
    code, out, _ = run(*CALL, "0", "--require", "spec", "--engine", engine)
    assert code == 0
    assert "12 instructions: 0 measured, 0 published, 0 carried, 0 vendor, 0 chosen, 12 spec" in out
    (tmp_path / "y.npy").unlink()
    code, out, err = run(*CALL, "1", "--require", "spec", "--engine", engine)
    assert (code, out) == (2, "")
    assert "k rests on less than `spec`, as its run showed; nothing was written:" in err
    assert "transcendental.value" in err
    assert not (tmp_path / "y.npy").exists()
    code, out, _ = run(*CALL, "1", "--engine", engine)
    assert code == 0
    assert "14 instructions: 0 measured, 0 published, 0 carried, 0 vendor, 1 chosen, 13 spec" in out
    assert np.load("y.npy").tolist() == [1.0]


def test_help_says_what_is_known_after_the_run_only(run):
    text = " ".join(run("--help")[1].split())
    assert "what only jumps and calls through registers reach is known after it, and then nothing is written" in text


def test_json_says_what_the_bits_rest_on_and_the_model(run, tmp_path):
    model = make_model("m", {"buffer.unaligned": 0})
    write_model(model, tmp_path / "m.json")
    arguments = (*SCALE, "--arg", "x.npy:y.npy", "--arg", "3")
    found = json.loads(run(*arguments, "--json", "--model", "m.json")[1])
    assert found["model"] == {"name": "m", "digest": model.digest}
    assert set(found["instructions"]) == set(LEVELS)
    assert sum(found["instructions"].values()) == len(found["mnemonics"]) == found["instructions"]["spec"]
    assert json.loads(run(*arguments, "--json")[1])["model"] == {"name": "gfx950", "digest": DEFAULT.digest}
    assert "ran scale on the host engine under model m: 2 workgroups" in run(*arguments, "--model", "m.json")[1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--model", "gfx942"), "there is no model 'gfx942'; named ones: gfx950"),
        (("--model", "none.json"), "none.json is no model"),
        (("--require", "spec", "--engine", "device"), "--require is about the rules of this emulator"),
        (("--require", "sure"), "'sure' is not one of 'chosen', 'vendor', 'carried'"),
    ],
)
def test_models_and_levels_that_there_are_not(run, more, message):
    code, out, err = run(*SCALE, "--arg", "x.npy:y.npy", "--arg", "3", *more)
    assert (code, out) == (2, "")
    assert message in err


def test_a_model_changes_what_a_kernel_does(run, tmp_path):
    """SOFFSET takes one lane more out of range by default."""
    (tmp_path / "buffer.o").write_bytes(compiled(BUFFER_SOURCE))
    write_model(make_model("m", {"buffer.soffset_in_range": 0}), tmp_path / "m.json")
    np.save("words.npy", np.arange(1, 65, dtype=np.int32))
    arguments = ("buffer.o", "--grid", "1", "--block", "64", "--arg", "words.npy", "--arg", "zeros:i32:64:y.npy")
    last = []
    for model in ("gfx950", "m.json"):
        assert run(*arguments, "--model", model)[0] == 0
        last.append(np.load("y.npy")[61:63].tolist())
    assert last == [[63, 0], [63, 64]]


BUFFER_SOURCE = r"""
#define space(n) __attribute__((address_space(n)))
__attribute__((amdgpu_kernel)) void k(space(1) int *words, space(1) int *out) {
  int lane = __builtin_amdgcn_workitem_id_x();
  __amdgpu_buffer_rsrc_t buffer = __builtin_amdgcn_make_buffer_rsrc((int *)words, 0, 252, 0x27000);
  out[lane] = __builtin_amdgcn_raw_buffer_load_b32(buffer, 4 * lane, 4, 0);
}
"""


def test_evidence_from_python(tmp_path):
    (tmp_path / "calls.o").write_bytes(assembled(CALLS))
    kernel = Device().load(tmp_path / "calls.o")["k"]
    before = kernel.evidence()
    assert before.indirect
    assert (before.weakest, before.rules) == (Evidence.spec, ())
    assert "s_swappc_b64" in before.mnemonics
    assert "v_rcp_f32" not in before.mnemonics
    out = np.zeros(1, np.float32)
    kernel[1, 64](out, np.int32(1))
    after = kernel.evidence()
    assert set(after.mnemonics) - set(before.mnemonics) == {"v_rcp_f32", "s_setpc_b64"}
    assert after.counts["chosen"] == 1
    assert after.weakest == Evidence.chosen
    assert after.following(after.rules[0]) == ["v_rcp_f32"]
    assert str(after).startswith("14 instructions: 0 measured")


def test_evidence_from_python_is_that_of_the_devices_model(tmp_path):
    model = make_model("m", {"buffer.unaligned": 0})
    data = compiled(BUFFER_SOURCE)
    (plain,) = (r for r in Device().load(data)["k"].evidence().rules if r.name == "buffer.alignment")
    found = Device(RunOptions(model=model)).load(data)["k"].evidence()
    (switched,) = (r for r in found.rules if r.name == "buffer.alignment")
    assert found.model is model
    assert "Switched here" not in plain.text
    assert (switched.evidence, switched.source) == (Evidence.chosen, "model m")


@pytest.mark.parametrize(("move", "level"), [("v_mov_b32 v1, v2", "spec"), ("v_mov_b32_e64 v1, v2 clamp", "chosen")])
def test_moves_rest_on_a_choice_only_where_they_are_modified(move, level):
    words = {"v_mov_b32 v1, v2": "0x7e020302", "v_mov_b32_e64 v1, v2 clamp": "0xd1418001, 0x00000102"}[move]
    code = load(assembled(re.sub(r"\.long \w+", f".long {words}", UNKNOWN)))
    found = contained_rules(code, code.kernel())
    assert found.mnemonics == ("s_endpgm", "v_mov_b32")
    assert found.weakest.name == level


def test_contained_rules_are_weakest_first():
    code = load(compiled(C_SOURCE))
    found = contained_rules(code, code.kernel("add"))
    assert found.weakest == Evidence.chosen
    assert [r.evidence for r in found.rules] == sorted(r.evidence for r in found.rules)
    assert {"v_add_f32", "v_mul_f32"} <= set(found.mnemonics) or "v_pk_mul_f32" in found.mnemonics


def test_several_kernels_are_counted_together():
    code = load(compiled(C_SOURCE))
    each = [contained_rules(code, kernel) for kernel in code.kernels.values()]
    both = together(each)
    assert set(both.mnemonics) == {name for one in each for name in one.mnemonics}
    assert set(both.rules) == {rule for one in each for rule in one.rules}
    assert sum(both.counts.values()) == len(both.mnemonics)


# ---- argument texts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-3", -3),
        ("0x10", 16),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("1.5f", np.float32(1.5).tobytes()),
        ("3f", np.float32(3).tobytes()),
        ("inff", np.float32(np.inf).tobytes()),
        ("i32:-5", np.int32(-5).tobytes()),
        ("u64:0xffffffffffffffff", b"\xff" * 8),
        ("f16:0.1", np.float16(0.1).tobytes()),
        ("f64:1", np.float64(1).tobytes()),
        ("bf16:1.5", ml_dtypes.bfloat16(1.5).tobytes()),
        ("fp8:448", b"\x7e"),
        ("bf8:-2", b"\xc0"),
        ("e8m0:8", b"\x82"),
        ("float8_e4m3fnuz:1", b"\x40"),
    ],
)
def test_numbers(text, value):
    assert parse_argument(text).value == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("u8:256", "256 does not fit; the type holds 0 .. 255"),
        ("i32:1.5", "'1.5' is not a whole number"),
        ("f32:x", "'x' is not a number"),
        ("f16:70000", "70000 overflows the type; write inf"),
        ("fp8:1000", "1000 overflows the type"),
        ("float9:1", "cannot read --arg 'float9:1'"),
        ("zeros:float9:4:y.npy", "types u8, .*, f64, bf16, fp8, bf8, e8m0"),
        ("a:b", "cannot read --arg 'a:b'"),
        ("x.npy:y.npy:z.npy", "cannot read --arg"),
    ],
)
def test_numbers_that_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_argument(text)


def test_archives_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="several arrays"):
        parse_argument(str(tmp_path / "a.npy"))
