"""docs/coverage.md says what is so: its columns are measured again, its gaps have reasons, its lists come out again."""

from __future__ import annotations

import random
from collections.abc import Sequence

import find_mnemonics
import instruction_coverage as coverage
import pytest
from instruction_runs import outcomes
from llvm_tools import assembled_pieces

from gfx950.isa.encoding import decode
from gfx950.isa.registry import load

TO_REGENERATE = "run `python tests/toolchain/instruction_coverage.py`"
SAMPLE = 40  # mnemonics that run in every test run
TEXT, RUNS = 2, 3  # places of the page's counts, behind forms and decoded; equal is behind runs


@pytest.fixture(scope="module")
def page():
    return coverage.read_page()


@pytest.fixture(scope="module")
def rows():
    return coverage.measured(run=False)


def decoded(lines: Sequence[str]):
    return [form.decoded for form in coverage.forms_of(lines)]


def test_every_mnemonic_has_a_row_and_decodes_and_prints_as_the_page_says(page, rows):
    assert set(page) == set(rows), TO_REGENERATE
    assert len(rows) > 1200
    for mnemonic, row in rows.items():
        assert page[mnemonic][: TEXT + 1] == (row.forms, row.decoded, row.text), f"{mnemonic}: {TO_REGENERATE}"


def test_a_sample_runs_as_the_page_says(page):
    chosen = random.Random("coverage").sample(sorted(page), SAMPLE)
    for mnemonic, row in coverage.measured(chosen).items():
        assert page[mnemonic][RUNS:] == (row.runs, row.equal), f"{mnemonic}: {TO_REGENERATE}"


def test_every_gap_has_a_reason_and_every_reason_a_gap(page, rows):
    for mnemonic, row in rows.items():
        row.runs, row.equal = page[mnemonic][RUNS:]
    found = coverage.gaps(rows.values(), coverage.oracle_runs())
    assert [gap for gap in found if coverage.reason_of(*gap) is None] == []
    for names, column, why in coverage.REASONS:
        for name in names.split():
            needed = [m for m, c in found if coverage.fits(m, name) and c == column]
            assert needed, f"no gap needs the reason of {name}, {column}: {why}"


def test_oracles_are_there_and_run_what_is_defined():
    runs, known = coverage.oracle_runs(), set(load())
    assert set(runs) == set(coverage.ORACLES)
    for module, names in runs.items():
        assert (coverage.ROOT / module).is_file()
        assert set(names) <= known, f"{module}: run `python tests/toolchain/instruction_coverage.py --oracles`"


def test_the_page_is_written_from_its_numbers(page, rows):
    """But for what `runs` and `equal` count, which the slow test measures, the page is generated again."""
    for mnemonic, row in rows.items():
        row.runs, row.equal = page[mnemonic][RUNS:]
    assert coverage.page(rows, coverage.oracle_runs()) == coverage.PAGE.read_text(), TO_REGENERATE


def test_instructions_that_run_change_something():
    """What is stored after an instruction shows that it ran: without its changes it would be that of s_nop."""
    lines = [
        "s_nop 0",
        "v_mov_b32 v32, v64",
        "s_add_u32 s16, s32, s48",
        "ds_write_b32 v64, v32",
        "v_cmp_lt_u32 vcc, v32, v64",
    ]
    lines += ["global_store_dword v32, v64, s[48:49]", "v_accvgpr_write_b32 a32, v64", "s_cmp_eq_u32 s16, s32"]
    lines += [
        "s_mov_b64 exec, s[16:17]",
        "s_mov_b32 m0, s32",
        "s_branch 1",
        "buffer_store_dword v32, off, s[48:51], s64",
    ]
    lines += ["s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 5", "s_store_dword s16, s[32:33], s48"]
    instructions = decoded(lines)
    found = outcomes(instructions)
    assert all(outcome.equal and not outcome.refused for outcome in found)
    states = [outcome.state for outcome in found]
    assert len(set(states)) == len(lines)


def test_differing_engines_would_be_seen(monkeypatch):
    """A definition that another engine runs differently is not equal."""
    one = decode(assembled_pieces(["v_xor_b32 v32, v64, v96"])[0], 0)
    body, calls = one.instruction.body, []

    def differs(*sources):
        calls.append(None)
        return body(*sources) ^ (0 if len(calls) == 1 else 1)

    object.__setattr__(one.instruction, "body", differs)
    try:
        (outcome,) = outcomes([one])
    finally:
        object.__setattr__(one.instruction, "body", body)
    assert not outcome.refused
    assert not outcome.equal


@pytest.mark.slow
def test_the_mnemonics_are_those_of_the_assembler():
    assert find_mnemonics.table_text() == find_mnemonics.TABLE.read_text()


@pytest.mark.slow
def test_every_form_runs_as_the_page_says():
    assert coverage.page(coverage.measured(), coverage.oracle_runs()) == coverage.PAGE.read_text(), TO_REGENERATE


@pytest.mark.slow
def test_the_oracles_run_what_was_recorded():
    found = coverage.record_oracles()
    for module, names in coverage.oracle_runs().items():
        assert set(names) <= set(found[module]), module
