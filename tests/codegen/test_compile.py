"""Compiled kernels: mnemonics, resources, determinism, and no contraction."""

import re
import subprocess
import sys

import pytest
from llvm_tools import assembled, text_section

from codegen.compile import compile_kernels
from codegen.kernel_package import kernel_package
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Pointer,
    barrier,
    constant,
    kernel,
    lds_read,
    lds_write,
    load,
    loop,
    maximum,
    permute,
    store,
    thread_id,
    trace,
    when,
)
from codegen.link import find_linker
from codegen.llvm_text import EmitError
from gfx950.isa.matrix import v_mfma_scale_f32_16x16x128_f8f6f4
from gfx950.isa.vop1 import v_exp_f32
from gfx950.isa.vop3 import v_perm_b32
from gfx950.lanes import B128, B256


@kernel(block=512, lds=4096)
def everything(a: Pointer, out: Pointer, n: I32) -> None:
    t = thread_id()
    at = t.to(U64) * 32
    words = [*load(a + at, 4), *load(a + at + 16, 4)]
    lds_write((t & 255) * 16, *words[:4])
    barrier()
    zero = B128([constant(U32, 0)] * 4)

    @loop(0, n, carry=(zero,))
    def result(i, total):
        left = B256([*lds_read((t & 255) * 16, 4), *words[4:]])
        return v_mfma_scale_f32_16x16x128_f8f6f4(left, left, total, 127, 127, 0, 0, 0, 0)

    x = result[0][0].bits(F32)
    x = x + permute(x, [i ^ 4 for i in range(16)])
    x = maximum(v_exp_f32(x), 0.5)
    with when(t < n):
        store(out + at, v_perm_b32(x.bits(U32), words[0], 0x05010400))


@kernel(block=64)
def product_and_sum(p: Pointer) -> None:
    a, b, c = (load(p + 4 * i).bits(F32) for i in range(3))
    store(p + 12, (a * b + c).bits(U32), (a * b - c).bits(U32))


@pytest.fixture(scope="module")
def compiled():
    return compile_kernels([trace(everything), trace(product_and_sum)])


def test_mnemonics(compiled):
    counts = compiled.resources["everything"].instructions
    for mnemonic in (
        "v_mfma_scale_f32_16x16x128_f8f6f4",
        "v_perm_b32",
        "v_maximum3_f32",
        "v_exp_f32_e32",
        "ds_write_b128",
        "ds_read_b128",
        "global_load_dwordx4",
        "s_barrier",
        "v_mov_b32_dpp",
    ):
        assert counts.get(mnemonic), mnemonic
    assert "ds_bpermute_b32" not in counts


def test_products_and_sums_are_not_contracted(compiled):
    counts = compiled.resources["product_and_sum"].instructions
    assert not [m for m in counts if "fma" in m or "mad" in m or "mac" in m]
    assert sum(n for m, n in counts.items() if m.startswith("v_mul_f32")) == 1
    assert sum(n for m, n in counts.items() if re.match("v_(add|sub|subrev)_f32", m)) == 2


def test_resources(compiled):
    used = compiled.resources["everything"]
    assert used.lds == 4096
    assert 16 < used.vgprs <= 128
    assert used.sgprs > 4
    assert (used.agprs, used.spills, used.scratch) == (0, 0, 0)
    assert compiled.resources["product_and_sum"].lds == 0


def test_mode_registers(compiled):
    assert ".amdhsa_float_denorm_mode_32 3" in compiled.assembly
    assert ".amdhsa_float_denorm_mode_16_64 3" in compiled.assembly
    assert ".amdhsa_float_round_mode_32 0" in compiled.assembly
    assert ".amdhsa_ieee_mode 1" in compiled.assembly
    assert ".amdhsa_user_sgpr_count 2" in compiled.assembly


def test_object_is_relocatable_gfx950(compiled):
    assert compiled.object[:4] == b"\x7fELF"
    assert int.from_bytes(compiled.object[16:18], "little") == 1
    assert int.from_bytes(compiled.object[18:20], "little") == 224


@pytest.mark.skipif(find_linker() is None, reason="no ld.lld on this machine")
def test_code_object_is_linked(compiled):
    assert compiled.code_object[:4] == b"\x7fELF"
    assert int.from_bytes(compiled.code_object[16:18], "little") == 3


def test_same_programs_same_bytes(compiled):
    again = compile_kernels([trace(everything), trace(product_and_sum)])
    assert again.llvm_ir == compiled.llvm_ir
    assert again.assembly == compiled.assembly
    assert again.object == compiled.object


def test_same_bytes_in_another_process():
    script = (
        "import hashlib;from codegen.compile import compile_kernels as c;from codegen.language import *\n"
        "def k(p: Pointer, n: I32) -> None:\n"
        "    store(p + n.to(U64) * 4, thread_id() ^ n)\n"
        "print(hashlib.sha256(c([trace(kernel(block=64)(k))]).object).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout != ""


def test_passes_may_be_left_out():
    plain = compile_kernels([trace(everything)], optimize=False)
    assert plain.resources["everything"].instructions["v_perm_b32"] == 1


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ([5], r"program 0 is 5; expected a traced program: `trace\(kernel\)`"),
        ([lambda: 1], "program 0 is <function"),
        (5, "the programs are 5; expected a list of traced programs"),
    ],
)
def test_what_is_no_program(programs, message):
    with pytest.raises(EmitError, match=message):
        compile_kernels(programs)


def test_the_assembly_is_that_of_the_object(compiled):
    """A clone of a module has other use lists, and LLVM made other code of it."""
    for one in (compiled, kernel_package("sparse_attention").compiled()):
        assert text_section(assembled(one.assembly)) == text_section(one.object)


def test_compiled_kernels_are_short_in_print():
    compiled = compile_kernels([trace(everything)])
    assert repr(compiled) == f"Compiled(everything: {len(compiled.object)} bytes)"
