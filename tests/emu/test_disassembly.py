"""`gfx950 disasm`: the text assembles to the same bytes in LLVM, labels and source lines are where they were put."""

from __future__ import annotations

import io
import json
import random
import re
import subprocess
import sys

import pytest
from elftools.elf.elffile import ELFFile
from llvm_tools import assembled, compiled, kernel_source, linked, object_of

from emu.code_object import load
from emu.disassembly import disassemble, document, text_lines
from emu.errors import CodeObjectError
from emu.source_lines import source_lines
from gfx950.isa.text import assemble

C_SOURCE = r"""
#define GLOBAL __attribute__((address_space(1)))
#define KERNEL __attribute__((amdgpu_kernel, visibility("protected"))) void
#define index (__builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x())
float extra(float);
__attribute__((noinline)) static int twice(int x, int n) { while (n--) x = x * 3 + n; return x; }
KERNEL loops(GLOBAL int *x, int n) { for (int i = 0; i < n; i++) if (x[i] > i) x[index] *= twice(x[i], n); }
KERNEL scale(GLOBAL float *x, float y) { x[index] = x[index] * y + 0.1f; }
"""
UNLINKED = C_SOURCE + "KERNEL calls(GLOBAL float *x) { x[index] = extra(x[index]); }"
ASSEMBLY = """
.file 1 "/nowhere" "first.s"
.file 2 "/nowhere/below" "second.s"
.text
.globl k
.p2align 8
.type k,@function
k:
.loc 1 7
  v_mov_b32 v1, 0
  v_mov_b32 v2, 0
again:
.loc 2 3
  v_add_u32 v1, v1, v2
.loc 1 9
  s_cbranch_scc1 again
  s_cbranch_scc0 ahead
  .long 0xbfff0000
  .long 0xffffffff
ahead:
  s_endpgm
.size k, .-k
.type after,@function
after:
  s_branch k
.size after, .-after
"""
DESCRIPTOR = kernel_source().split(".rodata")[1]


@pytest.fixture
def disasm(tmp_path, monkeypatch, gfx950):
    """`disasm(data, *options)` -> standard output of `gfx950 disasm` on a file with these bytes."""
    monkeypatch.chdir(tmp_path)

    def run(data, *options):
        (tmp_path / "k.o").write_bytes(data)
        code, out, err = gfx950("disasm", "k.o", *options)
        assert (code, err) == (0, "")
        return out

    return run


def build():
    return assembled(f"{ASSEMBLY}\n.rodata{DESCRIPTOR}")


def text_bytes(data):
    return ELFFile(io.BytesIO(data)).get_section_by_name(".text").data()


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_the_text_assembles_to_the_same_bytes(disasm, level):
    for data in (compiled(C_SOURCE, level), linked(compiled(C_SOURCE, level))):
        again = text_bytes(assembled(disasm(data)))
        assert again == b"".join(run.data for run in load(data).code)[: len(again)]
        assert len(again) == sum(len(run.data) for run in load(data).code)


@pytest.mark.parametrize(("count", "told"), [(16, 16), (17, 2), (300, 2)])
def test_padding_is_one_line_that_assembles_to_it(disasm, count, told):
    """But for its first word, which has a label here."""
    nops = "s_nop 0\n" * count  # in the place of the branch to a symbol that others may define
    padded = ASSEMBLY.replace("  s_branch k\n", f"{nops}padded:\n{nops}s_endpgm\n")
    data = assembled(f"{padded}\n.rodata{DESCRIPTOR}")
    out = disasm(data)
    assert text_bytes(assembled(out)) == text_bytes(data)
    assert assemble(out) == text_bytes(data)
    lines = [line for line in out.splitlines() if "s_nop 0" in line]
    assert len(lines) == 2 * told
    filled = [line.split(";")[0].split() for line in lines if ".fill" in line]
    assert filled == [[".fill", f"{count - 1},", "4,", "0xbf800000"]] * (2 if told == 2 else 0)


def test_objects_that_are_not_linked_yet(disasm):
    data = compiled(UNLINKED)
    with pytest.raises(CodeObjectError, match="needs the symbol 'extra'"):
        load(data)
    out = disasm(data)
    assert re.search(r"^;   undefined +extra$", out, re.MULTILINE)
    assert len(text_bytes(assembled(out))) == len(text_bytes(data))


def test_what_stands_above_the_instructions(disasm):
    out = disasm(compiled(C_SOURCE))
    head = [line for line in out.splitlines() if line.startswith("; ")]
    assert re.fullmatch(r"; gfx950, code object V6, unlinked, \d+ bytes of code", head[0])
    assert "; kernel scale at 0x" in out
    registers = r"^;   \d+ VGPRs \((those from \d+ on are|no) AGPRs\), \d+ SGPRs \(\d+ for user data\)$"
    assert re.search(registers, out, re.MULTILINE)
    assert ";   bytes: LDS 0, scratch 0 a lane, arguments 12" in out
    assert ";      0 +8   global_buffer" in out
    assert ";      8 +4   by_value" in out
    assert re.search(r"^;   [0-9a-f]{8} +\d+ function scale$", out, re.MULTILINE)
    assert re.search(r"^;   [0-9a-f]{8} +64 object   scale\.kd$", out, re.MULTILINE)


EXPECTED = """
k:
  v_mov_b32_e32 v1, 0                    ; 00000000: 7e020280
  v_mov_b32_e32 v2, 0                    ; 00000004: 7e040280

again:
  v_add_u32_e32 v1, v1, v2               ; 00000008: 68020501
  s_cbranch_scc1 again                   ; 0000000c: bf85fffe
  s_cbranch_scc0 ahead                   ; 00000010: bf840002
  .long 0xbfff0000                       ; 00000014: bfff0000
  .long 0xffffffff                       ; 00000018: ffffffff

ahead:
  s_endpgm                               ; 0000001c: bf810000

after:
  s_branch k                             ; 00000020: bf82fff7
"""


def test_names_of_the_file_and_unknown_bytes(disasm):
    assert disasm(build()).endswith(EXPECTED)


def test_labels_of_branches_have_numbers_where_there_is_no_name(disasm):
    """Local labels leave the object: what the branches reach is found again."""
    source = ASSEMBLY.replace("again", ".Lagain").replace("ahead", ".Lahead")
    out = disasm(assembled(f"{source}\n.rodata{DESCRIPTOR}"))
    expected = EXPECTED.replace("again   ", "L0      ").replace("ahead   ", "L1      ")
    assert out.endswith(expected.replace("again:", "L0:").replace("ahead:", "L1:"))


def test_a_branch_out_of_the_code_keeps_its_distance(disasm):
    source = ASSEMBLY.replace("s_branch k", "s_branch 1000\n  s_branch -3")
    out = disasm(assembled(f"{source}\n.rodata{DESCRIPTOR}"))
    assert "  s_branch 1000 " in out
    assert "  s_branch ahead " in out


def test_one_kernel_or_function(disasm):
    data = build()
    only = disasm(data, "--kernel", "after")
    assert only.endswith("\nafter:\n  s_branch k                             ; 00000020: bf82fff7\n")
    assert "s_endpgm" not in only
    assert "function k" not in only
    assert disasm(data, "--kernel", "k").endswith(EXPECTED[: EXPECTED.index("\nafter:")])


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("link", [False, True])
def test_source_lines_are_those_of_the_directives(disasm, tmp_path, version, link):
    options = ("-mcpu=gfx950", f"-gdwarf-{version}")
    data = object_of(with_unit(version), *options, language="assembler")
    data = linked(data) if link else data
    code = load(data)
    entry = code.kernel("k").entry
    found = {address - entry: (place.file, place.line) for address, place in source_lines(code).items()}
    assert found == {
        0: ("/nowhere/first.s", 7),
        8: ("/nowhere/below/second.s", 3),
        12: ("/nowhere/first.s", 9),
    }
    out = disasm(data, "--source")
    shown = re.findall(r"^; (/nowhere\S+)$", out, re.MULTILINE)
    assert shown == ["/nowhere/first.s:7", "/nowhere/below/second.s:3", "/nowhere/first.s:9"]
    assert "/nowhere" not in disasm(data)


def with_unit(version):
    """The assembly with a compilation unit that refers to its line table."""
    header = {
        4: ".long 0x0\n.byte 8",  # abbreviations' offset, address size
        5: ".byte 1\n.byte 8\n.long 0x0",  # unit type, address size, abbreviations' offset
    }[version]
    return f"""{ASSEMBLY}
.section .debug_abbrev,"",@progbits
.byte 1, 0x11, 0, 0x10, 0x17, 0x1b, 0x08, 0, 0, 0
.section .debug_info,"",@progbits
.long unit_end - unit_start
unit_start:
.short {version}
{header}
.byte 1
.long line_table
.asciz "/nowhere"
unit_end:
.section .debug_line,"",@progbits
line_table:
.rodata{DESCRIPTOR}"""


def test_source_lines_of_the_compiler_show_the_text_of_the_file(disasm, tmp_path):
    (tmp_path / "k.c").write_text(C_SOURCE)
    command = [sys.executable, "-m", "ziglang", "clang", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx950", "-O1", "-g"]
    subprocess.run([*command, "-nogpulib", "-c", "k.c", "-o", "c.o"], check=True, cwd=tmp_path)
    data = (tmp_path / "c.o").read_bytes()
    out = disasm(data, "--source", "--kernel", "scale")
    assert f"; {tmp_path}/k.c:8: KERNEL scale(GLOBAL float *x, float y) {{ x[index] = x[index] * y + 0.1f; }}" in out
    assert "k.c:7" not in out
    document = json.loads(disasm(data, "--source", "--json"))
    places = {(line["source"]["file"], line["source"]["line"]) for line in document["lines"] if "source" in line}
    assert {(f"{tmp_path}/k.c", 7), (f"{tmp_path}/k.c", 8)} <= places


def test_a_file_without_debug_information_has_no_source_lines(disasm):
    data = build().replace(b".debug_line", b".other_line")
    assert "first.s" not in disasm(data, "--source")
    assert source_lines(load(compiled(C_SOURCE))) == {}


@pytest.mark.parametrize("fill", [b"\xff", b"\x63", b"\0"])
def test_damaged_debug_information_is_said(tmp_path, gfx950, fill):
    data = bytearray(compiled(C_SOURCE, "-g"))
    section = ELFFile(io.BytesIO(data)).get_section_by_name(".debug_line")
    start = section["sh_offset"] + 4
    data[start : start + 36] = fill * 36
    (tmp_path / "k.o").write_bytes(data)
    code, out, err = gfx950("disasm", tmp_path / "k.o", "--source")
    assert (code, out) == (2, "")
    assert "the debug information cannot be read" in err
    assert "leave --source out" in err
    assert gfx950("disasm", tmp_path / "k.o")[0] == 0


def test_json_holds_the_same(disasm):
    data = build()
    found = json.loads(disasm(data, "--json"))
    assert next(iter(found)) == "schema"
    assert found["schema"] == "gfx950.disassembly/1"
    assert bytes.fromhex("".join(line["bytes"] for line in found["lines"])) == load(data).code[0].data
    assert [line.get("labels") for line in found["lines"][:3]] == [["k"], None, ["again"]]
    assert found["lines"][0] == {"address": 0, "bytes": "8002027e", "text": "v_mov_b32_e32 v1, 0", "labels": ["k"]}
    assert found["kernels"][0]["descriptor"]["vgprs"] == 8
    assert {s["name"] for s in found["symbols"]} >= {"k", "k.kd", "again", "after"}


def test_only_an_instruction_s_own_text_is_wider_than_80_columns_when_piped(disasm):
    data = compiled("""
    typedef int i32x4 __attribute__((ext_vector_type(4))); typedef float f32x4 __attribute__((ext_vector_type(4)));
    typedef int i32x8 __attribute__((ext_vector_type(8)));
    __attribute__((amdgpu_kernel)) void k(__attribute__((address_space(1))) f32x4 *c, i32x8 a, i32x8 b, int s, int t) {
      *c = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a, b, *c, 0, 0, 1, s, 2, t);
    }""")
    out = disasm(data)
    assert "v_mfma_scale_f32_16x16x128_f8f6f4" in out
    assert max(len(line) for line in out.splitlines() if not line.startswith("  v_mfma")) <= 80
    again = text_bytes(assembled(out))
    assert again == load(data).code[0].data[: len(again)]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"\x7fELF", (), "the code object is damaged"),
        (b"hello", (), "not an ELF file: it starts with 68 65 6c 6c"),
        (None, ("--kernel", "aftre"), "no kernel or function 'aftre'.*did you mean after"),
        (None, ("--kernel", "x"), "expected: one of: after, k"),
        (None, ("--kernle", "x"), "No such option.*--kernel"),
    ],
)
def test_what_cannot_be_shown(tmp_path, gfx950, data, options, message):
    (tmp_path / "k.o").write_bytes(build() if data is None else data)
    code, out, err = gfx950("disasm", tmp_path / "k.o", *options)
    assert (code, out) == (2, "")
    assert re.search(message, err, re.DOTALL), err


def test_a_damaged_object_stays_damaged(tmp_path):
    data = compiled(UNLINKED)
    for length in range(64, len(data), 997):
        (tmp_path / "k.o").write_bytes(data[:length])
        with pytest.raises(CodeObjectError):
            disassemble(str(tmp_path / "k.o"))


@pytest.mark.parametrize("count", [1, 4])
def test_damaged_bytes_are_shown_or_refused(tmp_path, count):
    random_bytes, data = random.Random(count), compiled(UNLINKED, "-g")
    shown = 0
    for _ in range(30):
        damaged = bytearray(data)
        for _ in range(count):
            damaged[random_bytes.randrange(len(damaged))] = random_bytes.randrange(256)
        (tmp_path / "k.o").write_bytes(damaged)
        try:
            found = disassemble(str(tmp_path / "k.o"), sources=True)
        except CodeObjectError:
            continue
        shown += bool(list(text_lines(found, 80)) and json.dumps(document(found)))
    assert shown


def test_the_examples_of_the_help_text_run(tmp_path, monkeypatch, gfx950):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scale.o").write_bytes(compiled(C_SOURCE, "-g"))
    examples = re.findall(r"^ +gfx950 (.*)$", gfx950("disasm", "--help")[1], re.MULTILINE)
    assert len(examples) == 2
    for example in examples:
        code, out, err = gfx950(*example.split())
        assert (code, err) == (0, "")
        assert "\nscale:\n" in out


def test_no_numerics_are_loaded():
    program = (
        "import sys, gfx950.commands, emu.disassembly;"
        "print([m for m in ('numba', 'llvmlite', 'torch', 'ml_dtypes') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
