"""Nothing that LLVM's assembler takes for gfx950 is unknown: every form of every mnemonic decodes to its definition."""

from __future__ import annotations

import re

import pytest
from find_mnemonics import read_table

from emu.register_checks import UnsupportedForm
from emu.wave import Wave
from gfx950.isa.encoding import decode
from gfx950.isa.registry import load

# Older spellings: no underscore before the type, no block count, BF16_1K for what is BF16 now.
MATRIX_ALIAS = re.compile(r"(v_mfma_[if]\d+_\d+x\d+x\d+)(?:_\d+b)?_?([a-z]+\d+)(?:_1k)?")
ALIASES = {"v_mul_lo_i32": "v_mul_lo_u32"}


def same(written: str, decoded: str) -> bool:
    """Whether a mnemonic as written is the definition's, or an older spelling of it."""
    if written in (decoded, decoded.removesuffix("_lds")) or ALIASES.get(written) == decoded:
        return True
    theirs, ours = (MATRIX_ALIAS.fullmatch(name) for name in (written, decoded))
    return theirs is not None and ours is not None and theirs.groups() == ours.groups()


def test_every_form_of_every_mnemonic_decodes(assemble_lines):
    table = [(name, line) for name, lines in read_table().items() for line in lines]
    codes = assemble_lines([line for _, line in table])
    assert len(codes) > 2500
    wrong = []
    for (name, line), code in zip(table, codes, strict=True):
        decoded = decode(code, 0)
        if not same(name, decoded.instruction.name) or decoded.nbytes != len(code):
            wrong.append(f"{line}: {decoded.instruction.name}, {decoded.nbytes} bytes of {len(code)}")
    assert wrong == []


def test_every_definition_is_one_of_llvms():
    spelled = {name for name in read_table()}
    ours = {name.removesuffix("_lds") for name in load()} - {"s_set_valu_coexec_mode"}
    assert ours - spelled == set()


@pytest.mark.parametrize("text", ["s_rfe_b64 s[2:3]", "s_rfe_restore_b64 s[2:3], s4"])
def test_returns_from_a_trap_are_refused(assemble, text):
    with pytest.raises(UnsupportedForm, match=rf"{text.split()[0]}: .*never|no wave is ever in a trap handler"):
        Wave().step(decode(assemble(text), 0))
