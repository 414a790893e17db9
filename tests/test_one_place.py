"""Adding an instruction touches one function; adding a kernel touches one folder."""

from __future__ import annotations

import numpy as np
import pytest

import codegen.kernels
from codegen.kernel_package import kernel_names, kernel_package
from emu.blocks import Block
from emu.translate import module_text
from emu.wave import Wave
from gfx950.isa.encoding import ENCODINGS, decode
from gfx950.isa.registry import INSTRUCTIONS, OPCODES, DuplicateInstruction, load, vop3
from gfx950.lanes import U32, Mode

OPCODE = 0x2FE  # no gfx950 instruction has it


@pytest.fixture
def made_up():
    load()

    @vop3("v_made_up_b32", OPCODE)
    def v_made_up_b32(src0: U32, src1: U32) -> U32:
        """D = (S0 ^ S1) + 1."""
        return (src0 ^ src1) + 1

    yield v_made_up_b32
    del INSTRUCTIONS["v_made_up_b32"], OPCODES["VOP3", OPCODE]


def word(**fields):
    return ENCODINGS["VOP3"].pack({"op": OPCODE, **fields}).to_bytes(8, "little")


def test_a_new_instruction_is_decoded_run_and_translated_from_its_one_definition(made_up):
    decoded = decode(word(vdst=3, src0=256 + 1, src1=256 + 2), 0)
    assert decoded.instruction is made_up
    wave = Wave()
    wave.vgprs[1], wave.vgprs[2] = np.arange(64), 7
    wave.step(decoded)
    assert np.array_equal(wave.vgprs[3], (np.arange(64) ^ 7) + 1)
    text, *_ = module_text([Block(0, [decoded])], Mode(), True)
    assert "xor <64 x i32>" in text


def test_a_second_definition_of_an_opcode_names_both_places(made_up):
    with pytest.raises(
        DuplicateInstruction,
        match=r"v_other_b32 .* at test_one_place.py:\d+ is already defined as v_made_up_b32 .* at test_one_place.py",
    ):

        @vop3("v_other_b32", OPCODE)
        def v_other_b32(src0: U32) -> U32:
            return src0

    assert "v_other_b32" not in INSTRUCTIONS


KERNEL = """
import numpy as np
from codegen.compile import compile_kernels
from codegen.kernel_package import KernelPackage, Output
from codegen.language import I32, Pointer, kernel, load, store, thread_id
from codegen.run_source import run_source
from codegen.trace import trace
from emu.dispatch import Device

@kernel(block=64, lds=0)
def double_it(data: Pointer):
    at = data + thread_id().to(type(data)) * 4
    store(at, load(at) * 2)

def source(inputs):
    out = inputs.copy()
    run_source(trace(double_it), (1,), [out])
    return {"out": out}

def machine(inputs, options, watch):
    out = inputs.copy()
    report = Device(options).load(compiled().object)["double_it"][1, 64](out)
    return {"out": out}, report

def compiled():
    return compile_kernels([trace(double_it)])

PACKAGE = KernelPackage(
    name="double_it", cases={"one": "0..63"}, build=lambda case: np.arange(64, dtype=np.uint32),
    digests=lambda inputs: {},
    outputs=[Output("out", "u32", True, str)], run_source=source, run_machine=machine,
    bound=lambda inputs, outputs: [] if (outputs["out"] == 2 * inputs).all() else ["not doubled"],
    programs=lambda: [trace(double_it)], compiled=compiled,
)
"""


def test_a_new_kernel_is_a_new_folder(tmp_path, monkeypatch):
    from emu.dispatch import RunOptions
    from golden.check import check_case, recorded_evidence
    from golden.store import write

    folder = tmp_path / "double_it"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "package.py").write_text(KERNEL)
    monkeypatch.setattr(codegen.kernels, "__path__", [*codegen.kernels.__path__, str(tmp_path)])
    assert "double_it" in kernel_names()
    package = kernel_package("double_it")
    missing = check_case(package, "one", RunOptions(), tmp_path / "goldens")
    assert [f.kind for f in missing.findings] == ["missing"]
    inputs = package.build("one")
    write(package, "one", inputs, package.run_source(inputs), recorded_evidence("double_it"), tmp_path / "goldens")
    assert check_case(package, "one", RunOptions(), tmp_path / "goldens").good
