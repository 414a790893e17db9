"""`gfx950 check` and `gfx950 golden`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from codegen.kernel_package import KernelPackage, case_inputs, kernel_names, kernel_package
from emu.dispatch import RunOptions
from golden.check import CaseResult, Finding, check_case, check_cases, check_recorded, evidence_of
from golden.store import HOME, recorded, write

SHOWN_FINDINGS = 8


def _options(engine: str, threads: int | None) -> RunOptions:
    return RunOptions(engine=engine, threads=threads or os.cpu_count() or 1)


def _chosen(package: KernelPackage, cases: tuple[str, ...]) -> list[str]:
    for case in cases:
        if case not in package.cases:
            case_inputs(package, case)  # raises with the nearest names
    return list(cases) or list(package.cases)


@click.command()
@click.argument("kernel")
@click.option("--case", "cases", multiple=True, metavar="C", help="A case; may be given again. Default: all.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--engine", type=click.Choice(["host", "numpy"]), default="host", show_default=True)
@click.option("--threads", type=click.IntRange(1, 256), default=None, help="Processes and threads. Default: all cores.")
@click.option("--golden-dir", type=click.Path(path_type=Path), default=HOME, help="Where goldens lie.", hidden=True)
def check(
    kernel: str, cases: tuple[str, ...], as_json: bool, engine: str, threads: int | None, golden_dir: Path
) -> None:
    """Check KERNEL: SOURCE bits = MACHINE CODE bits = recorded golden, and inside the float64 bound.

    Exits with 1 when anything differs, and shows the first differing element, its wave and lane, both bit patterns
    and the instruction that wrote it.
    """
    package = kernel_package(kernel)
    options = _options(engine, threads)
    start = time.perf_counter()
    results = []
    for result in check_cases(package, _chosen(package, cases), options, golden_dir, options.threads):
        results.append(result)
        if not as_json:
            _print_case(result)
    evidence = evidence_of(kernel)
    seconds = time.perf_counter() - start
    if as_json:
        click.echo(json.dumps(_document(package, results, evidence, seconds), indent=1))
    else:
        _print_summary(results, evidence, seconds)
    sys.exit(0 if all(r.good for r in results) else 1)


def _print_case(result: CaseResult) -> None:
    seconds = sum(result.seconds.values())
    if result.good:
        work = f"{result.instructions:>9} wave instructions  {seconds:5.2f} s"
        click.echo(f"ok    {result.case:<18} source = machine = golden, within bound  {work}")
        return
    click.echo(f"WRONG {result.case:<18} {len(result.findings)} findings")
    for finding in result.findings[:SHOWN_FINDINGS]:
        click.echo("\n".join(f"      {line}" for line in _finding_lines(finding)))
    if len(result.findings) > SHOWN_FINDINGS:
        click.echo(f"      and {len(result.findings) - SHOWN_FINDINGS} more")


def _finding_lines(finding: Finding) -> list[str]:
    lines = [f"[{finding.kind}] {finding.text}"]
    difference = finding.difference
    if difference is None:
        return lines
    names = ("source ", "machine") if finding.kind == "source-machine" else ("golden ", "run    ")
    at = "".join(f"[{i}]" for i in difference.index)
    lines.append(f"  first of {difference.count} of {difference.total}: {difference.output}{at}  ({finding.element})")
    lines.append(f"  {names[0]} {difference.shown_a}")
    ulps = f"   {difference.ulps} ulp apart" if difference.ulps is not None else ""
    lines.append(f"  {names[1]} {difference.shown_b}{ulps}")
    if difference.pattern:
        lines.append(f"  pattern: {difference.pattern}")
    if finding.writer is not None:
        w = finding.writer
        lines.append(f"  written by workgroup {w.workgroup} wave {w.wave} lane {w.lane} pc 0x{w.pc:x} {w.instruction}")
    elif finding.kind == "source-machine":
        lines.append("  the machine code never writes it")
    return lines


def _print_summary(results: list[CaseResult], evidence: dict[str, str], seconds: float) -> None:
    good = sum(r.good for r in results)
    click.echo(f"{good} of {len(results)} cases agree, {seconds:.1f} s")
    by_level: dict[str, list[str]] = {}
    for name, level in evidence.items():
        by_level.setdefault(level, []).append(name)
    for level, names in by_level.items():
        click.echo(
            f"the bits rest on {len(names)} {level} rules: {', '.join(names[:4])}{' ..' if len(names) > 4 else ''}"
        )
    click.echo("gfx950 evidence lists them all")


def _document(
    package: KernelPackage, results: list[CaseResult], evidence: dict[str, str], seconds: float
) -> dict[str, Any]:
    return {
        "schema": "gfx950.check/1",
        "kernel": package.name,
        "ok": all(r.good for r in results),
        "seconds": round(seconds, 3),
        "evidence": evidence,
        "cases": [_case_document(r) for r in results],
    }


def _case_document(result: CaseResult) -> dict[str, Any]:
    findings = []
    for f in result.findings:
        entry: dict[str, Any] = {"kind": f.kind, "text": f.text}
        if f.difference is not None:
            d = f.difference
            entry |= {
                "output": d.output,
                "index": list(d.index),
                "element": f.element,
                "differing": d.count,
                "of": d.total,
                "a": hex(d.a),
                "b": hex(d.b),
                "a_shown": d.shown_a,
                "b_shown": d.shown_b,
                "ulps": d.ulps,
                "pattern": d.pattern,
            }
        if f.writer is not None:
            w = f.writer
            entry["writer"] = {
                "workgroup": list(w.workgroup),
                "wave": w.wave,
                "lane": w.lane,
                "pc": w.pc,
                "instruction": w.instruction,
            }
        findings.append(entry)
    return {
        "case": result.case,
        "ok": result.good,
        "wave_instructions": result.instructions,
        "seconds": {k: round(v, 3) for k, v in result.seconds.items()},
        "findings": findings,
    }


@click.group()
def golden() -> None:
    """The committed right bits."""


@golden.command("list")
@click.argument("kernel", required=False)
@click.option("--json", "as_json", is_flag=True)
def list_goldens(kernel: str | None, as_json: bool) -> None:
    """List cases and whether a golden is recorded for each."""
    rows = []
    for name in [kernel_package(kernel).name] if kernel else kernel_names():
        have = set(recorded(name))
        package = kernel_package(name)
        rows += [{"kernel": name, "case": c, "recorded": c in have, "about": text} for c, text in package.cases.items()]
        rows += [
            {"kernel": name, "case": c, "recorded": True, "about": "no such case any more"}
            for c in sorted(have - set(package.cases))
        ]
    if as_json:
        click.echo(json.dumps({"schema": "gfx950.golden-list/1", "goldens": rows}, indent=1))
        return
    for row in rows:
        click.echo(f"{row['kernel']} {row['case']:<18} {'recorded' if row['recorded'] else 'MISSING '}  {row['about']}")


@golden.command("check")
@click.argument("kernel")
@click.option("--case", "cases", multiple=True, metavar="C")
@click.option("--golden-dir", type=click.Path(path_type=Path), default=HOME, hidden=True)
def check_goldens(kernel: str, cases: tuple[str, ...], golden_dir: Path) -> None:
    """Compare SOURCE bits with the recorded goldens only (quicker than `gfx950 check`); unused goldens are named."""
    package = kernel_package(kernel)
    wrong = 0
    for case in _chosen(package, cases):
        inputs = case_inputs(package, case)
        result = CaseResult(kernel, case)
        check_recorded(result, package, inputs, package.run_source(inputs), golden_dir)
        wrong += not result.good
        click.echo(f"{'ok   ' if result.good else 'WRONG'} {case}")
        for finding in result.findings:
            click.echo("\n".join(f"      {line}" for line in _finding_lines(finding)))
    for unused in sorted(set(recorded(kernel, golden_dir)) - set(package.cases)):
        click.echo(f"unused golden: {unused} (no such case)", err=True)
    sys.exit(1 if wrong else 0)


@golden.command("record")
@click.argument("kernel")
@click.option("--case", "cases", multiple=True, metavar="C", help="Default: all cases.")
@click.option("--golden-dir", type=click.Path(path_type=Path), default=HOME, hidden=True)
def record_goldens(kernel: str, cases: tuple[str, ...], golden_dir: Path) -> None:
    """Record goldens from SOURCE bits, after checking that the machine code and the float64 bound agree.

    Never runs where CI is set: there a missing golden is an error.
    """
    if os.environ.get("CI"):
        raise click.UsageError("goldens are recorded by hand and reviewed: CI never writes them")
    package = kernel_package(kernel)
    for case in _chosen(package, cases):
        result = check_case(package, case, _options("host", None), golden_dir)
        wrong = [f for f in result.findings if f.kind in ("source-machine", "bound")]
        if wrong:
            click.echo(f"{case}: not recorded:")
            for finding in wrong[:SHOWN_FINDINGS]:
                click.echo("\n".join(f"      {line}" for line in _finding_lines(finding)))
            sys.exit(1)
        inputs = case_inputs(package, case)
        path = write(package, case, inputs, package.run_source(inputs), evidence_of(kernel), golden_dir)
        state = "unchanged" if result.good else "new" if result.golden == "missing" else "CHANGED: review it"
        click.echo(f"{case}: {state} ({path.name})")
