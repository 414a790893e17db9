"""The compiler of modules with inline assembly: where it is looked for, and what is said where it is not."""

import pytest

from codegen.clang import NoClang, compile_with_clang, find_clang
from codegen.compile import compile_kernels
from codegen.llvm_text import EmitError
from tests.codegen.exact_kernels import Form


def test_without_a_clang(monkeypatch):
    monkeypatch.setattr("codegen.clang._candidates", lambda: iter([("/opt/rocm/llvm/bin/clang", None)]))
    program = Form("v_add_f32").program("k")
    with pytest.raises(NoClang, match=r"(?s)no clang to compile it with; tried:.*/opt/rocm/llvm.*pip install ziglang"):
        compile_kernels([program])


def test_clang_is_found_in_rocm_first(monkeypatch, tmp_path):
    program = tmp_path / "llvm" / "bin" / "clang"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho no such target >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert find_clang() == [str(program)]
    with pytest.raises(EmitError, match=r"(?s)clang -target` failed with status 3:\nno such target"):
        compile_with_clang("")
