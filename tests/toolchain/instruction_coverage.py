"""How far each mnemonic is covered, measured: decoded, round-tripped, run on both engines, equal, and compared.

    python tests/toolchain/instruction_coverage.py              measures, and writes docs/coverage.md
    python tests/toolchain/instruction_coverage.py --oracles    runs the oracles' tests first, to see what they run

The mnemonics and an example of each of their forms are LLVM's (gfx950_mnemonics.txt), so nothing is left out unseen.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from find_mnemonics import bare, read_table
from instruction_runs import outcomes
from llvm_tools import accepted_lines, assembled_pieces

from gfx950.isa.encoding import Decoded, DecodeError, decode
from gfx950.isa.text import disassemble

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
PAGE = ROOT / "docs" / "coverage.md"
RUNS = FOLDER / "oracle_runs.json"
COLUMNS = ("decoded", "text", "runs", "equal")

# Test modules that compare instructions with something that shares no code with them, and what that is.
ORACLES = {
    "tests/gfx950/isa/test_atomics.py": "a loop over the lanes; ml_dtypes, numpy and struct for floats",
    "tests/gfx950/isa/test_buffer_formats.py": "exact arithmetic",
    "tests/gfx950/isa/test_buffer_memory.py": "a model of one lane at a time, from the ISA text",
    "tests/gfx950/isa/test_conversions.py": "ml_dtypes, numpy, exact arithmetic",
    "tests/gfx950/isa/test_conversions_exhaustive.py": "the formats' own values; ml_dtypes, torch",
    "tests/gfx950/isa/test_cross_lane.py": "lists",
    "tests/gfx950/isa/test_cube_map.py": "the geometry of a cube in plain Python floats",
    "tests/gfx950/isa/test_ds.py": "byte slices; lists of elements",
    "tests/gfx950/isa/test_global.py": "byte slices",
    "tests/gfx950/isa/test_matrix.py": "the arithmetic of the tests of matrix arithmetic, on chosen registers",
    "tests/gfx950/isa/test_matrix_layouts.py": "AMD's matrix calculator's formulas; published tables",
    "tests/gfx950/isa/test_million.py": "C compiled for this machine",
    "tests/gfx950/isa/test_range_reduction.py": "pi to 1500 bits, and rationals",
    "tests/gfx950/isa/test_related.py": "another instruction that must give the same; no change at all",
    "tests/gfx950/isa/test_salu.py": "plain integers, from the manual's chapter 12",
    "tests/gfx950/isa/test_scaled_conversions.py": "exact double arithmetic",
    "tests/gfx950/isa/test_smem.py": "byte slices",
    "tests/gfx950/isa/test_valu.py": "plain integers, fractions, the manual's case lists",
    "tests/gfx950/isa/test_vop1_special.py": "other functions and tables",
    "tests/gfx950/test_mfma_arithmetic.py": "a plain rule; ml_dtypes",
    "tests/gfx950/test_mfma_models.py": "rational numbers",
    "tests/gfx950/test_mfma_shapes.py": "a plain rule; MMA-Sim; numpy",
    "tests/gfx950/test_mmasim.py": "MMA-Sim",
    "tests/gfx950/test_transcendental.py": "MPFR",
    "tests/gfx950/test_trigonometric.py": "MPFR",
    "tests/emu/test_buffer.py": "numpy",
    "tests/emu/test_fork.py": "which paths a kernel takes",
    "tests/emu/test_mode_registers.py": "what kernels on known registers must leave",
    "tests/emu/test_modifiers.py": "lists",
    "tests/emu/test_operand_formats.py": "struct and ml_dtypes",
    "tests/emu/test_rounding_instructions.py": "rationals, rounded once by MPFR",
    "tests/emu/test_scratch.py": "numpy",
    "tests/emu/test_scratch_widths.py": "byte slices",
    "tests/c_programs/test_functions.py": "multiple precision and ml_dtypes, through compiled C",
    "tests/c_programs/test_groups.py": "numpy, through compiled C",
    "tests/c_programs/test_lanes.py": "numpy, through compiled C",
}

# Why something is missing: mnemonics, column, reason. Every gap needs one, and every one needs a gap.
NO_TRAP_HANDLER = "there is no trap handler: the launch stops and says so"
FORK = "it goes where its registers say, which random ones do not; `tests/emu/test_fork.py` runs it on both engines"
REASONS: tuple[tuple[str, str, str], ...] = (
    ("s_trap s_rfe_b64 s_rfe_restore_b64", "runs", NO_TRAP_HANDLER),
    ("s_sendmsghalt", "runs", "halts the wave, and nobody resumes it: the launch stops and says so"),
    ("s_cbranch_g_fork s_cbranch_join", "runs", FORK),
    ("s_endpgm_ordered_ps_done", "oracle", "ends the wave as s_endpgm does; the order is that of pixel shaders"),
    ("ds_gws_*", "runs", "semaphores that the driver lends to no program unasked: refused when run"),
)


@dataclass
class Row:
    """One mnemonic. forms: examples. decoded, text, runs, equal: how many of them. same_as: the name it is another
    spelling of. names: our definitions of its forms."""

    mnemonic: str
    forms: int
    decoded: int = 0
    text: int = 0
    runs: int = 0
    equal: int = 0
    same_as: str = ""
    names: set[str] = field(default_factory=set)

    def cells(self, oracles: str) -> str:
        """Its line of the page."""
        name = f"{self.mnemonic} (= {self.same_as})" if self.same_as else self.mnemonic
        counts = " | ".join(str(getattr(self, column)) for column in COLUMNS)
        return f"| {name} | {self.forms} | {counts} | {oracles} |"


@dataclass
class Form:
    """One example: its line, LLVM's bytes, and what we make of them."""

    line: str
    code: bytes
    decoded: Decoded | None = None
    text: str = ""
    round_trips: bool = False


# ---- measuring -------------------------------------------------------------------------------------------------------


def forms_of(lines: Sequence[str]) -> list[Form]:
    """The examples, decoded and printed, and whether LLVM makes the same bytes of what was printed."""
    forms = [Form(line, code) for line, code in zip(lines, assembled_pieces(lines), strict=True)]
    for form in forms:
        try:
            decoded = decode(form.code, 0)
        except DecodeError:
            continue
        if decoded.nbytes == len(form.code):
            form.decoded, form.text = decoded, disassemble(decoded)
    printed = [form for form in forms if form.text and not form.text.startswith(".")]
    again = accepted_lines(form.text for form in printed)
    for form in printed:
        form.round_trips = again.get(form.text) == form.code
    return forms


def named_right(form: Form, mnemonics: Iterable[str]) -> tuple[bool, str]:
    """Whether an example is decoded to its own name, and the other spelling of that name where it is decoded to one.

    Another spelling counts only where LLVM itself makes the same bytes of it.
    """
    mnemonic = bare(form.line.split(" ")[0])
    if form.decoded is None:
        return False, ""
    spelled = bare(form.text.split(" ")[0])
    if mnemonic in (form.decoded.instruction.name, spelled):
        return True, ""
    return (True, spelled) if form.round_trips and spelled in mnemonics else (False, "")


def measured(mnemonics: Sequence[str] | None = None, run: bool = True) -> dict[str, Row]:
    """The rows of these mnemonics (all). run: also on both engines."""
    table = read_table()
    chosen = list(table) if mnemonics is None else list(mnemonics)
    forms = forms_of([line for mnemonic in chosen for line in table[mnemonic]])
    rows = {mnemonic: Row(mnemonic, len(table[mnemonic])) for mnemonic in chosen}
    known = [form for form in forms if form.decoded is not None]
    for form in forms:
        row = rows[bare(form.line.split(" ")[0])]
        right, other = named_right(form, table)
        row.decoded += right
        row.same_as = other or row.same_as
        row.text += form.round_trips
        if form.decoded is not None:
            row.names.add(form.decoded.instruction.name)
    if run:
        for form, outcome in zip(known, outcomes([f.decoded for f in known if f.decoded]), strict=True):
            row = rows[bare(form.line.split(" ")[0])]
            row.runs += not outcome.refused
            row.equal += outcome.equal
    return rows


def oracle_runs() -> dict[str, list[str]]:
    """The mnemonics that each oracle's passing tests run, as recorded."""
    found: dict[str, str] = json.loads(RUNS.read_text())
    return {module: names.split() for module, names in found.items()}


def write_oracle_runs(found: dict[str, list[str]]) -> None:
    """Keeps what was recorded, a line a module."""
    RUNS.write_text(json.dumps({module: " ".join(found[module]) for module in sorted(found)}, indent=1) + "\n")


def record_oracles() -> dict[str, list[str]]:
    """Runs the oracles' tests and gives the mnemonics they ran."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "found.json")
        kept_nowhere = {"GFX950_CACHE": folder, "TMPDIR": folder}  # a body runs only where nothing is translated yet
        environment = os.environ | kept_nowhere | {"PYTHONPATH": str(FOLDER)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "record_instructions", "-p", "no:cacheprovider"]
        modules = [module for module in ORACLES if (ROOT / module).exists()]
        command += ["--instructions-to", str(target), *modules]
        run = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        if run.returncode:
            print("some tests of the oracles fail; what they ran does not count", file=sys.stderr)
        found: dict[str, list[str]] = json.loads(target.read_text())
        return found


# ---- the page --------------------------------------------------------------------------------------------------------


def letters() -> dict[str, str]:
    """A short name for each oracle."""
    return {module: f"{chr(65 + i // 26 - 1) if i >= 26 else ''}{chr(65 + i % 26)}" for i, module in enumerate(ORACLES)}


def oracles_of(row: Row, runs: dict[str, list[str]]) -> str:
    """The letters of the oracles that compare some form of it."""
    short = letters()
    return " ".join(short[module] for module in ORACLES if row.names & set(runs.get(module, ())))


def gaps(rows: Iterable[Row], runs: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Mnemonic and column of everything that is missing; of a mnemonic the first column only."""
    found = []
    for row in rows:
        short = [column for column in COLUMNS if getattr(row, column) < row.forms]
        if short:
            found.append((row.mnemonic, short[0]))
        elif not oracles_of(row, runs):
            found.append((row.mnemonic, "oracle"))
    return found


def reason_of(mnemonic: str, column: str) -> str | None:
    """Why this is missing, if that is known."""
    return next((why for names, where, why in REASONS if where == column and fits(mnemonic, names)), None)


def fits(mnemonic: str, names: str) -> bool:
    """Whether a mnemonic is among names and patterns with spaces between them."""
    return any(fnmatch.fnmatchcase(mnemonic, name) for name in names.split())


def family(mnemonic: str) -> str:
    """The group of the page that a mnemonic stands in."""
    for prefix, name in FAMILIES:
        if mnemonic.startswith(prefix):
            return name
    raise ValueError(f"{mnemonic} belongs to no family")


FAMILIES = (
    ("v_mfma", "matrix"), ("v_smfmac", "matrix"), ("v_accvgpr", "matrix"),
    ("v_cmp", "vector compare"), ("v_cvt", "vector conversion"), ("v_pk_", "packed vector"), ("v_", "vector"),
    ("s_buffer", "scalar memory"), ("s_load", "scalar memory"), ("s_store", "scalar memory"),
    ("s_scratch", "scalar memory"), ("s_atomic", "scalar memory"), ("s_dcache", "scalar memory"),
    ("s_atc", "scalar memory"), ("s_mem", "scalar memory"), ("s_", "scalar"), ("ds_", "LDS"), ("global_", "global"),
    ("flat_", "flat"), ("scratch_", "scratch"), ("buffer_", "buffer"), ("tbuffer_", "typed buffer"),
)  # fmt: skip

HEADING = """\
# How far each instruction is covered

Generated by `python tests/toolchain/instruction_coverage.py`; do not edit. `tests/test_coverage.py` measures again.

The rows are all mnemonics that LLVM 22's assembler takes for gfx950; the forms are an example of each encoding
(`_e32`, `_e64`, `_dpp`, `_sdwa`) that it takes. Each number counts forms.

- **decoded**: LLVM's bytes are decoded to that name.
- **text**: our disassembly of them, assembled by LLVM, gives the same bytes.
- **runs**: both engines run it on random registers, LDS and memory.
- **equal**: both leave the same bits everywhere.
- **oracle**: passing tests that compare with something independent run it; the letters stand for them.
"""


def page(rows: dict[str, Row], runs: dict[str, list[str]]) -> str:
    """The whole page."""
    parts = [HEADING, *_summary(rows.values(), runs)]
    parts += ["", "## Oracles", "", "| | tests | compared with |", "| --- | --- | --- |"]
    short = letters()
    parts += [f"| {short[module]} | `{module}` | {what} |" for module, what in ORACLES.items()]
    parts += ["", "## What is missing, and why", "", "| mnemonics | column | reason |", "| --- | --- | --- |"]
    parts += [f"| {names} | {column} | {why} |" for names, column, why in REASONS]
    for name in dict.fromkeys(name for _, name in FAMILIES):
        chosen = [row for row in rows.values() if family(row.mnemonic) == name]
        parts += ["", f"## {name}", "", "| mnemonic | forms | decoded | text | runs | equal | oracle |"]
        parts.append(f"|{' --- |' * 7}")
        parts += [row.cells(oracles_of(row, runs)) for row in chosen]
    return "\n".join(parts) + "\n"


def _summary(rows: Iterable[Row], runs: dict[str, list[str]]) -> list[str]:
    lines = ["| family | mnemonics | decoded | text | runs | equal | oracle |", f"|{' --- |' * 7}"]
    groups: dict[str, list[Row]] = {name: [] for _, name in FAMILIES} | {"**all**": []}
    for row in rows:
        groups[family(row.mnemonic)].append(row)
        groups["**all**"].append(row)
    for name, group in groups.items():
        full = [sum(getattr(row, column) == row.forms for row in group) for column in COLUMNS]
        compared = sum(bool(oracles_of(row, runs)) for row in group)
        lines.append(f"| {name} | {len(group)} | {' | '.join(map(str, full))} | {compared} |")
    return lines


def read_page() -> dict[str, tuple[int, ...]]:
    """The counts of the page by mnemonic: forms, then those of `COLUMNS`."""
    known = set(read_table())
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 7 and cells[0].split(" ")[0] in known:
            found[cells[0].split(" ")[0]] = tuple(int(cell) for cell in cells[1:6])
    return found


def main() -> None:
    """Writes what is generated here."""
    if "--oracles" in sys.argv:
        write_oracle_runs(record_oracles())
    PAGE.parent.mkdir(exist_ok=True)
    rows, runs = measured(), oracle_runs()
    PAGE.write_text(page(rows, runs))
    for mnemonic, column in gaps(rows.values(), runs):
        if reason_of(mnemonic, column) is None:
            print(f"missing without a reason: {mnemonic}, {column}", file=sys.stderr)


if __name__ == "__main__":
    main()
