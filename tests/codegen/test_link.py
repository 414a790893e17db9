"""Finding ld.lld and linking code objects with it."""

import shutil
import sys

import numpy as np
import pytest
from llvm_tools import compiled

import codegen.link as module
from codegen.link import LinkError, NoLinker, find_linker, link
from emu.code_object import load

SOURCE = """
__attribute__((address_space(1))) int counter = 7;
__attribute__((address_space(1))) int *__attribute__((address_space(1))) pointer = &counter;
__attribute__((amdgpu_kernel)) void k(__attribute__((address_space(1))) int *a) { a[0] = *pointer; }
"""


@pytest.fixture
def nowhere(monkeypatch):
    """A machine without any linker."""
    monkeypatch.delenv("ROCM_PATH", raising=False)
    monkeypatch.setattr(module, "_rocm_linker", lambda root: None)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)


def program(path, text: str):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_linked_object_is_a_shared_object_with_the_same_kernel():
    relocatable = compiled(SOURCE)
    shared = link(relocatable)
    assert (relocatable[16], shared[16]) == (1, 3)
    before, after = load(relocatable), load(shared, 0x4_0000_0000)
    assert before.kernel().arguments == after.kernel().arguments
    changed = {"entry_offset"}
    for name, value in vars(before.kernel().descriptor).items():
        assert name in changed or value == getattr(after.kernel().descriptor, name)
    at = after.symbols["pointer"].address - after.base
    assert after.image[at : at + 8].view(np.uint64)[0] == after.symbols["counter"].address


def test_a_linked_object_is_not_linked_again():
    with pytest.raises(LinkError, match=r"already linked; pass the relocatable object"):
        link(link(compiled(SOURCE)))


def test_linking_is_deterministic():
    data = compiled(SOURCE)
    assert link(data) == link(data)


def test_bad_input_gives_the_linkers_own_words():
    with pytest.raises(LinkError, match=r"failed with status 1:\n(.|\n)*kernel\.o(.|\n)*one relocatable AMDGPU object"):
        link(b"not an object")
    source = "extern __attribute__((address_space(1))) int missing;\n"
    source += "__attribute__((amdgpu_kernel)) void k(__attribute__((address_space(1))) int *a) { a[0] = missing; }"
    with pytest.raises(LinkError, match=r"undefined (hidden )?symbol: missing"):
        link(compiled(source))


@pytest.mark.usefixtures("nowhere")
def test_without_a_linker_the_message_lists_the_places_and_what_to_install():
    assert find_linker() is None
    with pytest.raises(NoLinker) as caught:
        link(b"")
    for words in ("ROCM_PATH is not set", "/opt/rocm/llvm/bin/ld.lld", "ld.lld on PATH", "pip install ziglang"):
        assert words in str(caught.value)


def test_rocm_path_comes_first_then_opt_rocm_then_path_then_ziglang(monkeypatch, tmp_path):
    linker = program(tmp_path / "llvm/bin/ld.lld", "")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert find_linker() == [str(linker)]
    linker.chmod(0o644)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/ld.lld")
    assert find_linker() in (["/opt/rocm/llvm/bin/ld.lld"], ["/usr/bin/ld.lld"])
    monkeypatch.setattr(module, "_rocm_linker", lambda root: None)
    assert find_linker() == ["/usr/bin/ld.lld"]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert find_linker() == [sys.executable, "-m", "ziglang", "ld.lld"]


def test_linkers_that_hang_or_do_not_start_are_named(monkeypatch, tmp_path):
    slow = program(tmp_path / "slow/llvm/bin/ld.lld", "import time; time.sleep(30)")
    monkeypatch.setenv("ROCM_PATH", str(slow.parents[2]))
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.2)
    with pytest.raises(LinkError, match=r"did not finish in 0\.2 seconds"):
        link(b"")
    broken = tmp_path / "broken/llvm/bin/ld.lld"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"\0\1\2\3")
    broken.chmod(0o755)
    monkeypatch.setenv("ROCM_PATH", str(broken.parents[2]))
    with pytest.raises(LinkError, match="could not be started"):
        link(b"")


def test_a_silent_failure_is_still_a_message(monkeypatch, tmp_path):
    program(tmp_path / "llvm/bin/ld.lld", "raise SystemExit(3)")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    with pytest.raises(LinkError, match=r"failed with status 3:\n\(it said nothing\)"):
        link(b"")
