"""The compiler of modules with inline assembly: where it is looked for, and what is said where it is not."""

import pytest

from codegen.clang import NoClang, _readable, compile_with_clang, find_clang
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


def test_an_older_clang_is_spared_attributes_that_it_does_not_know():
    """Of intrinsics alone: LLVM gives them to every intrinsic it reads, so that the object stays the same."""
    text = """define amdgpu_kernel void @k() #0 {
  call void @llvm.amdgcn.s.barrier() #2
  call void @own()
  ret void
}
declare void @llvm.amdgcn.s.barrier() #1
declare void @own() #3
attributes #0 = { nounwind "target-cpu"="gfx950" }
attributes #1 = { convergent nocallback nocreateundeforpoison }
attributes #2 = { convergent }
attributes #3 = { cold }
"""
    left = _readable(text)
    assert "nocreateundeforpoison" not in left
    assert left == text.replace("barrier() #1\n", "barrier()\n").replace(
        "attributes #1 = { convergent nocallback nocreateundeforpoison }\n", ""
    )


def test_the_object_is_the_same_without_them(monkeypatch):
    program = Form("v_exp_f32").program("k")
    spared = compile_kernels([program])
    monkeypatch.setattr("codegen.clang._readable", lambda text: text)
    assert compile_kernels([program]).object == spared.object


def test_a_clang_that_refuses_the_text_comes_with_advice():
    with pytest.raises(EmitError, match="`pip install ziglang` brings one that is not"):
        compile_with_clang("define nonsense")
