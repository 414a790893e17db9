"""Exact instructions: LLVM emits just the one asked for, and the source's bits are the machine code's."""

import numpy as np
import pytest

from codegen.compile import compile_kernels
from codegen.machine_text import unusable
from codegen.run_source import run_source
from emu import code_object
from emu.dispatch import Device, RunOptions
from gfx950.isa.registry import load
from tests.codegen.exact_kernels import Form, code_lines, over_registers, plain, random_words

VECTORS = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P", "MAI", "MAI_SCALE")
# What cannot be an exact instruction of a kernel, by the reason.
LEFT_OUT = {
    "they move a-registers, which kernels do not use": {
        "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32",
    },
    "they have no result": {"v_nop", "v_clrexcp", "v_mfma_ld_scale_b32"},
    "they write EXEC": {name for name in load() if name.startswith("v_cmpx_")},
}  # fmt: skip
ALSO_OF_LLVM = {"v_lshlrev_b32", "v_and_b32", "v_cmp_eq_u32", "v_cndmask_b32", "v_mov_b32", "v_readfirstlane_b32"}
NAMES = [
    name
    for name, instruction in load().items()
    if instruction.encoding in VECTORS and not any(name in names for names in LEFT_OUT.values())
]


def exact_lines(lines, form):
    """What stands between the waits of exact instructions, registers replaced by their widths.

    LLVM's own code may use a mnemonic too (a shift, for an address).
    """
    before, after = form.plan.waits
    found = [
        n
        for n in range(len(before), len(lines) - len(after))
        if tuple(lines[n - len(before) : n]) == before and tuple(lines[n + 1 : n + 1 + len(after)]) == after
    ]
    of_this = [line for line in lines if plain(line.split()[0]) == form.name]
    assert len(of_this) == 1 or form.name in ALSO_OF_LLVM, of_this
    return [over_registers(lines[n]) for n in found]


def check(forms, engine="numpy"):
    """Compiles all forms in one module; each has one such instruction, and its bits are those of the source."""
    labelled = {f"k{number}": form for number, form in enumerate(forms)}
    programs = {label: form.program(label) for label, form in labelled.items()}
    compiled = compile_kernels(list(programs.values()))
    loaded = code_object.load(compiled.object)
    module = Device(RunOptions(engine=engine)).load(compiled.object)
    for label, form in labelled.items():
        assert exact_lines(code_lines(loaded, label), form) == [over_registers(form.plan.text)], form.name
        given = random_words(np.random.default_rng(len(form.name)), form.words_in)
        source, machine = (np.zeros((form.words_out, 64), np.uint32) for _ in range(2))
        run_source(programs[label], (1,), [given, source])
        module[label][1, 64](given, machine)
        np.testing.assert_array_equal(source, machine, err_msg=f"{form.name} {form.fields} {form.extra}")


def test_every_vector_instruction_is_emitted_or_left_out_for_a_reason():
    for name, instruction in load().items():
        if instruction.encoding in VECTORS:
            assert bool(unusable(instruction)) == any(name in names for names in LEFT_OUT.values()), name


@pytest.mark.parametrize("part", range(4))
def test_every_instruction(part):
    check([Form(name) for name in NAMES[part::4]])
