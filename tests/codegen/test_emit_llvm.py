"""LLVM text: what is said, and that nothing is said that may change bits."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.compile import compile_kernels
from codegen.emit_llvm import emit
from codegen.lane_moves import dpp_controls
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Pointer,
    barrier,
    kernel,
    lds_write,
    load,
    loop,
    permute,
    store,
    thread_id,
    trace,
    workgroup_id,
)
from codegen.llvm_text import EmitError
from emu.code_object import load as load_code_object
from emu.modifiers import dpp_lanes
from gfx950.isa.vop3p import v_dot2_f32_f16

HERE = Path(__file__).parent


def text_of(body, block=64, lds=0, **attributes):
    return emit([trace(kernel(block=block, lds=lds, **attributes)(body))])


def moved(controls):
    """Where each lane's value comes from after the DPP moves, by the executor's own table."""
    source = list(range(64))
    for control in controls:
        lanes, valid = dpp_lanes(control, 0)
        assert all(valid)
        source = [source[lane] for lane in lanes]
    return source


@pytest.mark.parametrize("mask", range(16))
def test_row_xors_are_dpp(mask):
    lanes = tuple(i ^ mask for i in range(64))
    controls = dpp_controls(lanes)
    assert controls is not None
    assert len(controls) <= 2
    assert moved(controls) == list(lanes)


@pytest.mark.parametrize("count", range(1, 16))
def test_rotations_and_broadcasts_are_one_dpp(count):
    for row in ([(i - count) % 16 for i in range(16)], [count] * 16, [15 - i for i in range(16)]):
        lanes = tuple(i // 16 * 16 + row[i % 16] for i in range(64))
        controls = dpp_controls(lanes)
        assert controls is not None
        assert len(controls) == 1
        assert moved(controls) == list(lanes)


def test_what_dpp_cannot_do():
    assert dpp_controls(tuple(i ^ 16 for i in range(64))) is None
    assert dpp_controls((1, 0, 3, 4, *range(4, 64))) is None


def test_a_general_permutation_is_refused_with_advice():
    def k(p: Pointer) -> None:
        store(p, permute(thread_id(), [(i * 3) % 64 for i in range(64)]))

    with pytest.raises(EmitError, match=r"neither DPP-expressible .* use \.gather"):
        text_of(k)


def test_no_licence_to_change_bits():
    def k(p: Pointer, x: F32) -> None:
        y = load(p).bits(F32)
        store(p, (y * x + y / x).bits(U32))

    text = text_of(k)
    for word in ("fast", "contract", "nnan", "ninf", "nsz", "reassoc", "afn", "arcp", "fmuladd", "fpmath"):
        assert not re.search(rf"\b{word}\b", text), word


def test_attributes():
    def k(p: Pointer) -> None:
        store(p, workgroup_id(2))

    text = text_of(k, block=512, waves_per_eu=(2, 2))
    for said in (
        '"amdgpu-flat-work-group-size"="512,512"',
        '"amdgpu-waves-per-eu"="2,2"',
        '"amdgpu-agpr-alloc"="0"',
        '"target-cpu"="gfx950"',
        '"uniform-work-group-size"="true"',
        '"denormal-fp-math"="ieee,ieee"',
        '"amdgpu-no-dispatch-ptr"',
        '"amdgpu-no-workgroup-id-y"',
        '!"amdhsa_code_object_version", i32 500',
    ):
        assert said in text
    assert "amdgpu-no-workgroup-id-z" not in text


def test_pointers_stay_pointers():
    def k(p: Pointer, n: I32) -> None:
        store(p + n.to(U64) * 4 + 16, n)

    text = text_of(k)
    assert "inttoptr" not in text
    assert text.count("getelementptr i8, ptr addrspace(1)") == 3


def test_an_address_from_memory_becomes_a_pointer():
    def k(p: Pointer) -> None:
        low, high = load(p, 2)
        store(low.to(U64) | (high.to(U64) << 32), low)

    assert "inttoptr i64" in text_of(k)


def test_carried_addresses_become_pointers_again():
    def k(p: Pointer) -> None:
        @loop(0, 4, carry=(p,))
        def last(i, at):
            store(at, i)
            return (at + 4,)

        store(last[0], thread_id())

    assert text_of(k).count("inttoptr") == 2


def test_barrier_fences():
    def k() -> None:
        lds_write(0, thread_id())
        barrier()

    lines = [line.strip() for line in text_of(k, lds=4).splitlines()]
    at = lines.index("call void @llvm.amdgcn.s.barrier()")
    assert lines[at - 1] == 'fence syncscope("workgroup") release'
    assert lines[at + 1] == 'fence syncscope("workgroup") acquire'


def test_two_kernels_of_one_name():
    @kernel(block=64)
    def same(p: Pointer) -> None: ...

    with pytest.raises(EmitError, match="same appears twice"):
        emit([trace(same), trace(same)])


def test_every_instruction_of_the_registry_is_selected():
    """LLVM may abort its process for what it cannot select; the last name printed is then the culprit."""
    command = [sys.executable, str(HERE / "every_instruction.py")]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parent.parent)
    lines = [line.split() for line in run.stdout.splitlines()]
    assert run.returncode == 0, f"after {lines[-1:]}: {run.stderr[-2000:]}"
    assert len(lines) > 60
    other = {name: made for name, *made in lines if not any(_is_form_of(name, m) for m in made)}
    assert other == {}


def _is_form_of(name, mnemonic):
    """Whether a mnemonic is that instruction in any encoding; FMA and dot products may overwrite their addend."""
    forms = (name, name.replace("fma", "fmac"), re.sub(r"(dot\d)", r"\1c", name))
    return any(re.fullmatch(form + r"(_e32|_e64|_dpp|_sdwa)?", mnemonic) for form in forms)


def test_modifiers_that_an_intrinsic_lacks():
    def k(p: Pointer) -> None:
        store(p, v_dot2_f32_f16(load(p), load(p), 0.0, neg=1).bits(U32))

    with pytest.raises(EmitError, match=r"v_dot2_f32_f16 with \{'neg': 1\}: its intrinsic has no such modifiers"):
        text_of(k)


def test_compile_reports_what_llvm_refuses():
    from codegen.compile import compile_text

    with pytest.raises(EmitError, match="LLVM refuses the module"):
        compile_text("define void @k() { ret i32 0 }", ["k"])
    assert compile_kernels([]).resources == {}


def test_the_types_of_arguments_are_in_the_metadata():
    def some(x: Pointer, i: I32, u: U32, f: F32, long: U64) -> None:
        store(x, i)

    def none() -> None:
        pass

    programs = [trace(kernel(block=64)(body)) for body in (none, some)]
    text = emit(programs)
    (number,) = re.findall(r"@some\(.* !kernel_arg_type !(\d+) {", text)
    assert f'!{number} = !{{!"void*", !"int", !"uint", !"float", !"ulong"}}\n' in text
    found = load_code_object(compile_kernels(programs).object)
    names = [(a.name, a.type, a.size) for a in found.kernel("some").arguments]
    assert names == [("x", "void*", 8), ("i", "int", 4), ("u", "uint", 4), ("f", "float", 4), ("long", "ulong", 8)]
    assert found.kernel("none").arguments == ()
