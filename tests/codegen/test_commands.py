"""`gfx950 emit`: its files, its numbers, and what happens without a linker."""

import functools
import json
import os
import re
import shlex
from dataclasses import dataclass

import pytest

from codegen import kernel_package as packages
from codegen import link
from codegen.compile import Compiled, compile_kernels
from codegen.language import U64, Pointer, kernel, load, store, thread_id, trace
from emu.code_object import load as load_code_object
from gfx950 import __main__ as command_line


@kernel(block=64)
def doubler(x: Pointer) -> None:
    at = x + thread_id().to(U64) * 4
    value = load(at)
    store(at, value + value)


@dataclass
class Package:
    """As much of a kernel package as emit looks at."""

    name: str

    def programs(self):
        return [trace(doubler)]

    def compiled(self) -> Compiled:
        return compile_kernels(self.programs())


@pytest.fixture
def emit(tmp_path, monkeypatch, gfx950):
    """`emit(*arguments)` -> (exit code, stdout, stderr), with a package named `doubler` and the real ones."""
    real = packages.kernel_package
    monkeypatch.setattr(packages, "kernel_package", lambda n: Package(n) if n == "doubler" else real(n))
    monkeypatch.chdir(tmp_path)

    return functools.partial(gfx950, "emit")


def test_emit_writes_every_stage(emit, tmp_path):
    code, out, err = emit("doubler", "-o", "deep/build")
    folder = tmp_path / "deep" / "build"
    assert (code, err) == (0, "")
    assert sorted(p.name for p in folder.iterdir()) == [f"doubler.{s}" for s in ("hsaco", "ir", "ll", "o", "s")]
    assert (folder / "doubler.ir").read_text().startswith("kernel doubler(x: Pointer) block=64")
    assert "define amdgpu_kernel void @doubler" in (folder / "doubler.ll").read_text()
    assert "s_endpgm" in (folder / "doubler.s").read_text()
    for suffix in ("o", "hsaco"):
        assert load_code_object(folder / f"doubler.{suffix}").kernel().name == "doubler"
    assert out.count("wrote ") == 5


def test_emit_shows_what_each_kernel_uses(emit, tmp_path):
    out = emit("doubler", "-o", tmp_path)[1].splitlines()
    shown = dict(zip(out[0].split(), out[1].split(), strict=True))
    assembly = (tmp_path / "doubler.s").read_text()
    assert shown["kernel"] == "doubler"
    assert int(shown["vgprs"]) == int(re.search(r"\.set doubler\.num_vgpr, (\d+)", assembly)[1])
    assert (shown["lds"], shown["scratch"], shown["spills"], shown["mfma"]) == ("0", "0", "0", "0")
    body = assembly.partition("doubler:")[2].partition(".section")[0]
    assert int(shown["instr"]) == len(re.findall(r"^\t[a-z]\w+", body, re.MULTILINE))
    assert max(map(len, out[:2])) <= 80


def test_emit_json(emit, tmp_path):
    code, out, err = emit("doubler", "-o", "build", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (next(iter(found)), found["schema"]) == ("schema", "gfx950.emit/1")
    assert [k["name"] for k in found["kernels"]] == ["doubler"]
    assert found["kernels"][0]["mnemonics"]["s_endpgm"] == 1
    assert sum(found["kernels"][0]["mnemonics"].values()) == found["kernels"][0]["instr"]
    assert all((tmp_path / name).exists() for name in found["files"])


def test_emit_without_a_linker_writes_the_rest_and_exits_with_4(emit, tmp_path, monkeypatch):
    monkeypatch.setattr(link, "find_linker", lambda: None)
    code, out, err = emit("doubler", "-o", tmp_path)
    assert code == 4
    assert "doubler.hsaco was not written: no ld.lld to link the code object with; tried:" in err
    assert "pip install ziglang" in err
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".ir", ".ll", ".o", ".s"]
    assert out.count("wrote ") == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no_such_kernel", "-o", "build"), r"there is no kernel 'no_such_kernel'; there are: "),
        (("doubler",), "Missing option '-o'"),
    ],
)
def test_bad_calls_exit_with_2(emit, tmp_path, arguments, message):
    code, out, err = emit(*arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err)
    assert not list(tmp_path.iterdir())


def test_mistakes_in_a_kernel_can_be_seen_where_they_are(emit, tmp_path, monkeypatch):
    monkeypatch.setattr(Package, "programs", lambda _: [trace(kernel(block=64)(mistake))])
    code, _, err = emit("doubler", "-o", tmp_path)
    assert code == 2
    assert "U64 and I32 do not mix" in err
    assert "`gfx950 --traceback ...` shows where" in err
    monkeypatch.setattr(command_line, "SHOWN", {"traceback": True})
    code, _, err = emit("doubler", "-o", tmp_path)
    assert code == 2
    assert "in mistake" in err


def mistake(x: Pointer) -> None:
    store(x + thread_id(), 1)


def test_a_folder_that_cannot_be_made(emit, tmp_path):
    (tmp_path / "build").write_text("a file")
    code, _, err = emit("doubler", "-o", "build")
    assert code == 2
    assert "build" in err


def test_the_example_of_the_help_text_is_a_kernel_there_is(emit):
    example = re.findall(r"^ +gfx950 emit (.*)$", emit("--help")[1], re.MULTILINE)
    assert len(example) == 1
    code, out, _ = emit(*shlex.split(example[0]))
    assert code == 0
    assert "wrote build/" in out


def test_folders_that_cannot_be_made(emit, tmp_path):
    code, out, err = emit("doubler", "-o", "")
    assert (code, out) == (2, "")
    assert "the path is empty; write . for the current folder" in err
    (tmp_path / "file").write_text("mine")
    for folder in ("file/sub", "/dev/null", "n" * 300):
        code, out, err = emit("doubler", "-o", folder)
        assert (code, out) == (2, "")
        assert f"cannot make the folder {folder}" in err or f"Directory '{folder}' is a file" in err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(emit, tmp_path, monkeypatch):
    (tmp_path / "doubler.o").write_bytes(b"mine")
    replace = os.replace

    def full(source, target):
        if str(target).endswith(".o"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    code, _, err = emit("doubler", "-o", ".")
    assert code == 2
    assert "cannot write doubler.o: No space left on device" in err
    assert (tmp_path / "doubler.o").read_bytes() == b"mine"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_the_version_of_the_code_object_may_be_chosen(emit, tmp_path):
    for option, abi in ((), 3), (("--code-object-version", 5), 3), (("--code-object-version", 6), 4):
        assert emit("doubler", "-o", tmp_path, *option)[0] == 0
        assert (tmp_path / "doubler.hsaco").read_bytes()[8] == (tmp_path / "doubler.o").read_bytes()[8] == abi
    code, _, err = emit("doubler", "-o", tmp_path, "--code-object-version", 4)
    assert code == 2
    assert "'4' is not one of '5', '6'" in err
