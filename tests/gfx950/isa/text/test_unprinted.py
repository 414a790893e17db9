"""Random bits in every field: what text leaves out is in one table, and the rest survives text."""

from __future__ import annotations

import random
import re
from collections import defaultdict

import pytest
from llvm_printer import printed_lines

from gfx950.isa.encoding import DPP, SDWA, SDWAB, Decoded, DecodeError, blank, decode, encode, encoding_of
from gfx950.isa.registry import load
from gfx950.isa.text import AssemblyError, assemble, disassemble, listing
from gfx950.isa.text.catalog import syntaxes
from gfx950.isa.text.unprinted import UNPRINTED, is_exact

SEGMENTS = {"FLAT": 0, "SCRATCH": 1, "GLOBAL": 2}
DROPPED = re.compile(r"(flat|global)_atomic_(add|min|max)_f64 a.* sc1")  # by LLVM, see test_round_trip.py


def random_bits(definition, form, extra, rng) -> bytes:
    """All fields but those that say which instruction it is."""
    decoded = blank(definition, form, extra)
    kept = {"op", *({"src0"} if extra else ())}
    for name, (_, count) in encoding_of(definition, form).fields.items():
        if name not in kept:
            decoded.fields[name] = rng.getrandbits(count)
    if form == "FLAT":
        decoded.fields["seg"] = SEGMENTS[definition.encoding]
    if form == "MUBUF":
        decoded.fields["lds"] = int(definition.encoding == "MUBUF_LDS")
    if decoded.scale is not None:
        decoded.fields["abid"] |= 1
        decoded.scale |= {"src0": rng.getrandbits(9), "src1": rng.getrandbits(9)}
    dword = {"dpp": DPP, "sdwa": SDWAB if form == "VOPC" else SDWA}.get(extra)
    if dword is not None:
        for name, (_, count) in dword.fields.items():
            getattr(decoded, extra)[name] = rng.getrandbits(count)
    return encode(decoded) + rng.getrandbits(32).to_bytes(4, "little")


def random_instructions(each, seed):
    rng = random.Random(seed)
    for definition in load().values():
        for form, extra in dict.fromkeys((s.form, s.extra) for s in syntaxes(definition)):
            for _ in range(each):
                try:
                    decoded = decode(random_bits(definition, form, extra, rng), 0)
                except DecodeError:
                    continue
                if decoded.instruction is definition:
                    yield decoded


def read_again(decoded: Decoded) -> tuple[str, Decoded] | None:
    """The text and what it assembles to; None where it is no legal text."""
    text = disassemble(decoded)
    if text.startswith(".long") or "/*" in text:
        return None
    try:
        return text, decode(assemble(text), 0)
    except AssemblyError:
        return None


def differences(decoded: Decoded, again: Decoded):
    for part in ("fields", "dpp", "sdwa", "scale"):
        before, after = getattr(decoded, part) or {}, getattr(again, part) or {}
        for name, value in before.items():
            if value != after[name]:
                yield (decoded.form if part == "fields" else part), name
    if decoded.literal != again.literal:
        yield "literal", "literal"


@pytest.fixture(scope="module", params=[5, pytest.param(50, marks=pytest.mark.slow)])
def survived(request):
    found = []
    for decoded in random_instructions(request.param, seed=request.param):
        again = read_again(decoded)
        if again is not None:
            found.append((decoded, *again))
    return found


def test_bits_that_text_does_not_carry_are_listed(survived):
    listed = {(entry.part, name) for entry in UNPRINTED for name in entry.fields}
    lost = defaultdict(list)
    for decoded, text, again in survived:
        for place in differences(decoded, again):
            lost[place].append(text)
    assert {place: texts[:3] for place, texts in lost.items() if place not in listed} == {}
    if len(survived) > 50000:
        assert listed - set(lost) - {("literal", "literal")} == set()


def test_most_random_bits_have_a_text(survived):
    assert len({decoded.instruction.name for decoded, _, _ in survived}) > 0.85 * len(load())


def test_llvm_reads_the_text_of_random_bits_as_we_do(survived):
    codes = {text: again.raw for _, text, again in survived}
    accepted, _ = printed_lines(codes)
    assert len(accepted) > 0.4 * len(codes)
    wrong = [f"{t}: {p.code.hex()} {codes[t].hex()}" for t, p in accepted.items() if p.code != codes[t]]
    assert not [w for w in wrong if not DROPPED.match(w)], wrong[:10]


def test_every_reason_is_a_sentence_about_fields_that_exist():
    for entry in UNPRINTED:
        assert len(entry.reason) > 15
        assert entry.fields


@pytest.mark.parametrize(
    ("code", "exact", "text"),
    [
        ("0002 0a7e", True, "v_mov_b32_e32 v5, s0"),
        ("0500 41d1 0101 0020", False, "v_mov_b32_e64 v5, v1"),  # NEG, which text has no word for
        ("0100 8abf", False, "s_barrier"),  # an immediate that it does not have
        ("0002 0000 0000 0000", True, "v_cndmask_b32_e32 v0, s0, v1, vcc"),
    ],
)
def test_is_exact(code, exact, text):
    raw = bytes.fromhex(code)
    decoded = decode(raw, 0)
    assert disassemble(decoded) == text
    assert is_exact(decoded) == exact
    line = listing(decoded.raw, 0, exact=True)[0][2]
    assert assemble(line) == decoded.raw
    assert line == text if exact else line.endswith(f"// {text}")
