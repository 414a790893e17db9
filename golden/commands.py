"""`gfx950 check` and `gfx950 golden`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from codegen.kernel_package import KernelPackage, case_inputs, chosen_cases, kernel_names, kernel_package
from emu.commands import refuse_below
from emu.dispatch import RunOptions
from emu.engines import ENGINES
from gfx950.evidence import LEVELS, Evidence
from gfx950.terminal import NearestGroup, show_json, table
from golden.check import (
    CaseResult,
    check_case,
    check_cases,
    check_recorded,
    kernel_evidence,
    own_rules,
    recorded_evidence,
)
from golden.report import case_document, case_lines, change_lines, counted, evidence_lines, findings_lines
from golden.store import HOME, recorded, write

cases_option = click.option("--case", "cases", multiple=True, metavar="C", help="A case; repeatable. Default: all.")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
home_option = click.option(
    "--golden-dir", "home", type=click.Path(path_type=Path), default=HOME, help="Where goldens lie.", hidden=True
)


def _options(engine: str = "host", threads: int | None = None) -> RunOptions:
    return RunOptions(engine=engine, threads=threads or os.cpu_count() or 1)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _warn_of_unused(package: KernelPackage, home: Path) -> list[str]:
    unused = sorted(set(recorded(package.name, home)) - set(package.cases))
    for case in unused:
        click.echo(f"unused golden: {case} ({package.name} has no such case)", err=True)
    return unused


@click.command()
@click.argument("kernel")
@cases_option
@json_option
@click.option("--engine", type=click.Choice(ENGINES), default="host", show_default=True)
@click.option("--threads", type=click.IntRange(1, 256), default=None, help="Processes and threads. Default: all cores.")
@click.option("--require", type=click.Choice(LEVELS), help="Refuse what rests on weaker rules (levels: see above).")
@home_option
def check(
    kernel: str,
    cases: tuple[str, ...],
    as_json: bool,
    engine: str,
    threads: int | None,
    require: str | None,
    home: Path,
) -> None:
    """Check KERNEL: SOURCE bits = MACHINE CODE bits = recorded golden, and inside the float64 bound.

    Exits with 1 when anything differs, and shows the first differing element, its wave and lane, both bit patterns
    and the instruction that wrote it.

    Levels of evidence, weakest first: chosen, vendor, carried, published, measured, spec; an instruction has that of
    its weakest rule and counts once for its mnemonic. --require refuses before the run, by the kernel's own rules and
    those of the machine code that branches reach; our kernels have no calls through registers, which they would not.
    """
    package = kernel_package(kernel)
    if require is not None:
        found, question = kernel_evidence(kernel), f"`gfx950 evidence {kernel}`"
        refuse_below(Evidence[require], kernel, found, "so it was not run", question, own_rules(kernel))
    options = _options(engine, threads)
    chosen = chosen_cases(package, cases)
    start = time.perf_counter()
    results = []
    for result in check_cases(package, chosen, options, home, options.threads):
        results.append(result)
        if not as_json:
            _print(case_lines(result, "source = machine = golden, within bound"))
    unused, evidence = _warn_of_unused(package, home), recorded_evidence(kernel)
    seconds = time.perf_counter() - start
    if as_json:
        summary = {"seconds": round(seconds, 3), "evidence": asdict(evidence)}
        show_json("gfx950.check/1", _document(package, results, unused) | summary)
    else:
        instructions = sum(r.instructions for r in results)
        counted_there = "" if engine == "device" else f"{instructions} wave instructions, "
        click.echo(f"{_agree(results)}, {counted_there}{seconds:.1f} s")
        _print(evidence_lines(kernel, evidence))
        _print(change_lines(results))
    sys.exit(_exit_code(results))


def _agree(results: Sequence[CaseResult]) -> str:
    verb = "agrees" if len(results) == 1 else "agree"
    return f"{sum(r.good for r in results)} of {counted(len(results), 'case')} {verb}"


def _exit_code(results: Sequence[CaseResult]) -> int:
    return 0 if all(r.good for r in results) else 1


def _document(package: KernelPackage, results: Sequence[CaseResult], unused: Sequence[str]) -> dict[str, Any]:
    return {
        "kernel": package.name,
        "ok": all(r.good for r in results),
        "cases": [case_document(r) for r in results],
        "unused_goldens": list(unused),
    }


@click.group(cls=NearestGroup)
def golden() -> None:
    """The committed right bits."""


@golden.command("list")
@click.argument("kernel", required=False)
@json_option
@home_option
def list_goldens(kernel: str | None, as_json: bool, home: Path) -> None:
    """List cases and whether a golden is recorded for each."""
    rows = []
    for package in [kernel_package(name) for name in ([kernel] if kernel else kernel_names())]:
        have = recorded(package.name, home)
        about = dict(package.cases) | {case: "no such case any more" for case in have if case not in package.cases}
        rows += [(package.name, case, case in have, text) for case, text in about.items()]
    if as_json:
        names = ("kernel", "case", "recorded", "about")
        show_json("gfx950.golden-list/1", {"goldens": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        _print(table([(name, case, "recorded" if there else "MISSING", text) for name, case, there, text in rows]))


@golden.command("check")
@click.argument("kernel")
@cases_option
@json_option
@home_option
def check_goldens(kernel: str, cases: tuple[str, ...], as_json: bool, home: Path) -> None:
    """Compare SOURCE bits with the recorded goldens only (quicker than `gfx950 check`).

    Exits with 1 when anything differs or is missing; names goldens without a case.
    """
    package = kernel_package(kernel)
    results = []
    for case in chosen_cases(package, cases):
        results.append(_check_golden(package, case, home))
        if not as_json:
            _print(case_lines(results[-1], "source = golden"))
    unused = _warn_of_unused(package, home)
    if as_json:
        show_json("gfx950.golden-check/1", _document(package, results, unused))
    else:
        click.echo(_agree(results))
        _print(change_lines(results))
    sys.exit(_exit_code(results))


def _check_golden(package: KernelPackage, case: str, home: Path) -> CaseResult:
    result, inputs = CaseResult(package.name, case), case_inputs(package, case)
    start = time.perf_counter()
    check_recorded(result, package, inputs, package.run_source(inputs), home)
    result.seconds["golden"] = time.perf_counter() - start
    return result


@golden.command("record")
@click.argument("kernel")
@cases_option
@home_option
def record_goldens(kernel: str, cases: tuple[str, ...], home: Path) -> None:
    """Record goldens from SOURCE bits, after checking that the machine code and the float64 bound agree.

    Says of each case whether its golden is new, unchanged, CHANGED (and how: review it), or has the same bits with
    another code object or evidence, and how the evidence changed. Never runs where CI is set: there a missing golden
    is an error.
    """
    if os.environ.get("CI"):
        raise click.UsageError("goldens are recorded by hand and reviewed: CI never writes them")
    package = kernel_package(kernel)
    written = [_record(package, case, home) for case in chosen_cases(package, cases)]
    _print(change_lines([result for _, result in written]))
    _warn_of_unused(package, home)
    sys.exit(1 if "REFUSED" in [state for state, _ in written] else 0)


def _record(package: KernelPackage, case: str, home: Path) -> tuple[str, CaseResult]:
    result = check_case(package, case, _options(), home)
    shown = [f for f in result.findings if f.kind in ("source-machine", "bound")]
    state = "REFUSED"
    if not shown:
        inputs = case_inputs(package, case)
        state = write(package, case, inputs, package.run_source(inputs), recorded_evidence(package.name), home)
        shown = result.findings if state == "CHANGED" else []
    click.echo(f"{state:<9} {case}")
    _print(findings_lines(shown))
    return state, result
