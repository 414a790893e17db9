"""Random legal instructions of every definition: our text, LLVM's assembler and printer, and our assembler agree."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass

import pytest
from llvm_printer import Printed, printed_lines
from random_instructions import Generator

from gfx950.isa.encoding import Decoded, decode, encode
from gfx950.isa.registry import load
from gfx950.isa.text import assemble, disassemble
from gfx950.isa.text.catalog import syntax_of, syntaxes

# What LLVM 22 gets wrong, by text: it drops or changes bits that it has read, or cannot read what the chip has.
DROPPED = {
    r"(flat|global)_atomic_(add|min|max)_f64 a.* sc1": "SC1 of an atomic that returns into accumulation registers",
}
SPELT = {
    r"v_(nop|clrexcp)_(e64|dpp|sdwa).*": "no suffix, which loses the form",
    r"v_pk_fmac_f16_sdwa .*": "no signs, though they are in the bits",
    r"ds_swizzle_b32 .* offset:\d+": "swizzle() where that gives other bits",
}
REFUSED = {
    r"v_cmpx?_.*_dpp .*": "DPP compares are in the manual, not in LLVM",
    r"s_set_valu_coexec_mode .*": "not in LLVM",
    r"v_mfma_scale_.*": "the manual allows constants as scales; C must not overlap D by half",
    r"v_s?mfma.*": "C must not overlap D by half, which is no matter of the encoding",
    r"(flat|global)_atomic_(add_f32|pk_add_b?f16) a.*": "atomics of floats that return into accumulation registers",
    r"v_ldexp_f16_sdwa .* sext\(-?\d\.\d+\) .*": "a float constant that is sign-extended",
    r"v_\w+_[iub]16_sdwa .*0\.15915494.*": "1 / (2 pi) as a 16-bit integer",
    r"s_cbranch_join src_.*": "sources without a register",
}
NOT_IN_LLVM = ("s_set_valu_coexec_mode",)


@dataclass
class Trial:
    """Random instructions by their text, and what LLVM makes of the texts."""

    tried: Counter[str]
    instructions: dict[str, Decoded]
    accepted: dict[str, Printed]
    refused: dict[str, str]

    def __repr__(self) -> str:
        return f"<{len(self.instructions)} instructions>"


def trial(each: int, seed: int) -> Trial:
    """At least `each` instructions of a definition, as many of each way to write it."""
    rng = random.Random(seed)
    tried: Counter[str] = Counter()
    instructions = {}
    for definition in load().values():
        ways = syntaxes(definition)
        for way in ways:
            for _ in range(-(-each // len(ways))):
                decoded = Generator(way, rng).instruction()
                assert decoded.instruction is definition
                assert syntax_of(decoded) is way
                tried[definition.name] += 1
                instructions[disassemble(decoded)] = decoded
    return Trial(tried, instructions, *printed_lines(instructions))


@pytest.fixture(scope="module", params=[30, pytest.param(150, marks=pytest.mark.slow)])
def tried(request):
    return trial(request.param, seed=request.param)


def known(text: str, table: dict[str, str]) -> bool:
    return any(re.fullmatch(pattern, text) for pattern in table)


def test_every_definition_was_tried(tried):
    assert set(tried.tried) == set(load())
    assert min(tried.tried.values()) >= 30
    accepted = Counter(tried.instructions[text].instruction.name for text in tried.accepted)
    assert set(accepted) == set(load()) - set(NOT_IN_LLVM)


def test_llvm_assembles_our_text_to_the_same_bytes(tried):
    wrong = [
        f"{text}: LLVM {printed.code.hex()} ({printed.text}), we have {tried.instructions[text].raw.hex()}"
        for text, printed in tried.accepted.items()
        if printed.code != tried.instructions[text].raw and not known(text, DROPPED)
    ]
    assert not wrong, "\n".join(wrong[:20])


def test_llvm_prints_our_text(tried):
    wrong = [
        f"{text}: LLVM prints {printed.text}"
        for text, printed in tried.accepted.items()
        if printed.text != text and not known(text, SPELT | DROPPED)
    ]
    assert not wrong, "\n".join(wrong[:20])


def test_llvm_refuses_only_what_is_known(tried):
    wrong = [f"{text}: {reason}" for text, reason in tried.refused.items() if not known(text, REFUSED)]
    assert not wrong, "\n".join(wrong[:20])


def test_our_assembler_gives_the_same_bytes(tried):
    wrong = []
    for text, decoded in tried.instructions.items():
        code = assemble(text, decoded.pc)
        if code != decoded.raw:
            wrong.append(f"{text}: {code.hex()}, not {decoded.raw.hex()}")
    assert not wrong, "\n".join(wrong[:20])


def test_llvm_s_lines_decode_and_assemble(tried):
    """The other way round: LLVM's own lines, where they differ from ours, through our assembler."""
    wrong = []
    for text, printed in tried.accepted.items():
        assert encode(decode(printed.code, 0x1000, 0x1000)) == printed.code
        if printed.text != text and not known(text, SPELT | DROPPED):
            wrong += [printed.text] if assemble(printed.text, 0x1000) != printed.code else []
    assert not wrong, "\n".join(wrong[:20])


def test_the_known_exceptions_are_exceptions(tried):
    """An entry that LLVM no longer deserves is taken out."""
    differ = [t for t, p in tried.accepted.items() if p.code != tried.instructions[t].raw]
    respelt = [t for t, p in tried.accepted.items() if p.text != t]
    for table, texts in ((DROPPED, differ), (SPELT, respelt), (REFUSED, list(tried.refused))):
        idle = [pattern for pattern in table if not any(re.fullmatch(pattern, text) for text in texts)]
        assert not [p for p in idle if "ldexp" not in p and "_join" not in p]  # those two are rare in few tries
