"""`gfx950 conflicts`: LDS bank conflicts of a kernel's instructions, on the addresses that a case really uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from gfx950 import terminal

if TYPE_CHECKING:
    from emu.observers import ConflictCount

HEADINGS = ("kernel+offset", "instruction", "runs", "cycles", "extra")


@click.command()
@click.argument("kernel")
@click.option("--case", metavar="C", help="The case that is run. Default: the first.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def conflicts(kernel: str, case: str | None, as_json: bool) -> None:
    """Count the LDS bank conflicts of KERNEL, instruction by instruction.

    Runs a case's machine code instruction by instruction (a few thousand a second, so take a small one) and counts, for
    every LDS instruction, how often a wave issued it, the cycles the banks took for it, and how many of them are extra:
    cycles that accesses to different words of one bank cost. The phases are those of gfx950.lds.

    \b
    Example:
      gfx950 conflicts sparse_attention --case first_token
    """
    from codegen.kernel_package import case_inputs, kernel_package
    from emu.dispatch import RunOptions
    from emu.observers import BankConflicts

    package, seen = kernel_package(kernel), BankConflicts()
    case = case or next(iter(package.cases))
    package.run_machine(case_inputs(package, case), RunOptions(engine="numpy", observers=(seen,)), None)
    counts = [seen.counts[pc] for pc in sorted(seen.counts)]
    if as_json:
        rows = [asdict(count) for count in counts]
        terminal.show_json("gfx950.conflicts/1", {"kernel": kernel, "case": case, "instructions": rows})
        return
    for line in _lines(counts):
        click.echo(line)
    click.echo(f"{kernel}, case {case}: {seen.extra_cycles} extra cycles of {sum(c.cycles for c in counts)}")


def _lines(counts: Sequence[ConflictCount]) -> Iterator[str]:
    """The table, and what makes the worst instructions so."""
    rows = [(f"{c.kernel}+0x{c.offset:x}", c.mnemonic, str(c.runs), str(c.cycles), str(c.extra_cycles)) for c in counts]
    yield from terminal.table([HEADINGS, *rows]) if rows else ["no instruction of it uses LDS"]
    for count in counts:
        if count.worst:
            yield f"{count.kernel}+0x{count.offset:x}:"
            yield from (line for part in count.worst.splitlines() for line in terminal.wrap(part, "  "))
