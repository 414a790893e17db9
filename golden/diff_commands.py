"""`gfx950 diff`: the same code on the chip and in the emulator, bit against bit."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from codegen.kernel_package import chosen_cases, kernel_names, kernel_package
from emu.commands import run as run_command
from emu.engines import ENGINES
from gfx950 import terminal
from gfx950.whole_files import check_target, write_whole

if TYPE_CHECKING:
    from golden.diff import Comparison, Plan, Subject
    from golden.provenance import Provenance

LAUNCH = ("kernel_name", "grid", "items", "block", "texts", "dynamic_lds", "hidden")
SCHEDULE = ("threads", "step_limit", "quantum", "seed", "order", "model")
"""Parameters of `gfx950 run` that this command takes as they are: of the launch of a file, and of the emulator."""


def options_of_run(names: Sequence[str]) -> Callable[[click.Command], click.Command]:
    """Adds the options of `gfx950 run`; none of them is required here."""

    def add(command: click.Command) -> click.Command:
        own = {parameter.name: parameter for parameter in run_command.params}
        for name in names:
            option = copy.copy(own[name])
            option.required = False
            command.params.append(option)
        return command

    return add


def _engines(context: click.Context, option: click.Parameter, value: str) -> tuple[str, str]:
    names = value.split(",")
    if len(names) != 2 or any(name not in ENGINES for name in names):
        raise click.BadParameter(f"{value!r} is not two of {', '.join(ENGINES)}, as in host,device", context, option)
    return names[0], names[1]


def _place(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Offset and occurrence of OFFSET[:OCCURRENCE]."""
    if value is None:
        return None
    offset, _, occurrence = value.partition(":")
    try:
        found = int(offset, 0), int(occurrence or "1", 0)
    except ValueError:
        found = -1, -1
    if found[0] < 0 or found[1] < 1:
        raise click.BadParameter(f"{value!r} is not OFFSET[:OCCURRENCE], as in 0x1a4 or 0x1a4:3", context, option)
    return found


def _formats(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in values]
    if not all(name and form for name, _, form in pairs):
        raise click.BadParameter("write ARGUMENT=FORMAT, as in out=bf16 or 1=e4m3fn", context, option)
    return {name: form for name, _, form in pairs}


@options_of_run((*LAUNCH, *SCHEDULE))
@click.command()
@click.argument("subject", metavar="KERNEL|FILE")
@click.option("--case", "cases", multiple=True, metavar="C", help="Of a KERNEL: a case; repeatable. Default: all.")
@click.option("--device", is_flag=True, help="Against the MI355X: short for --engines host,device, the default.")
@click.option(
    "--engines", callback=_engines, default="host,device", show_default=True, metavar="A,B", help="Which two."
)
@click.option("--repeat", type=click.IntRange(1), default=1, metavar="N", help="Runs of B: what changes between them?")
@click.option("--bisect", is_flag=True, help="Find the first wrong instruction of the wave that wrote what differs.")
@click.option("--registers", "at", callback=_place, metavar="AT", help="Compare that wave's registers there (above).")
@click.option("--format", "formats", multiple=True, callback=_formats, metavar="ARG=F", help="Of an array of a FILE.")
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE", help="A report as one offline page.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def diff(
    subject: str,
    cases: tuple[str, ...],
    device: bool,
    engines: tuple[str, str],
    repeat: int,
    bisect: bool,
    at: tuple[int, int] | None,
    formats: dict[str, str],
    page: Path | None,
    as_json: bool,
    **more: Any,
) -> None:
    """Run a kernel on the chip and in the emulator, and compare every bit of what they leave.

    KERNEL is a kernel of `gfx950 check`: its cases, each output. FILE is a code object with the options of
    `gfx950 run`: every array argument that names an output file is compared; the file itself is not written. A
    relocatable FILE is linked first where a device runs it.

    Shows the first differing element, both bit patterns, the instruction, wave, lane and register that wrote it with
    its inputs in the emulator, and how the rest differs where that has a simple cause. With --repeat, elements that B
    does not give alike each time are listed apart and not held against A.

    --bisect and --registers run variants of the kernel that dump the registers of the wave that wrote the first wrong
    element, on both engines. AT is an instruction's offset from the kernel's first, as `writer` shows it, and which
    of its runs: 0x1a4 or 0x1a4:3.

    Exits with 0 where all bits agree, 1 where they differ, 2 for bad usage, 3 for an unknown instruction, 4 without a
    device.

    \b
    Examples:
      gfx950 diff drafter_attention --case small --engines host,numpy
      gfx950 diff drafter_attention --device --repeat 5 --html report.html
      gfx950 diff drafter_attention --device --case small --bisect
      gfx950 diff scale.o --grid 2 --block 64 --arg x.npy:y.npy --arg 3 --engines host,numpy
    """
    from gfx950.models import using
    from golden.diff import Plan
    from golden.provenance import describe_device

    engines = _with_device(engines) if device else engines
    if page is not None:
        check_target(page)
        _check_page(page, subject, more)
    subjects = _subjects(subject, cases, formats, "device" in engines or bisect or at is not None, more)
    described = describe_device(engines)  # without a device nothing needs to run
    with using(more["model"]):
        found = _provenance(subject, subjects[0](), engines, described)
        comparisons = _compared(subjects, Plan(engines, _options(more), repeat), bisect, at, quiet=as_json)
    if page is not None:
        from golden.html_report import html_report

        write_whole(page, html_report(comparisons, found).encode())
        click.echo(f"wrote {page}", err=True)
    _show(comparisons, found, engines, as_json)
    sys.exit(0 if all(c.good for c in comparisons) else 1)


def _check_page(page: Path, subject: str, more: dict[str, Any]) -> None:
    """Raises UsageError for a page that would replace what is read."""
    texts: tuple[str, ...] = more["texts"]
    for path in (subject, more["model"], *(text.partition(":")[0] for text in texts)):
        if path and os.path.isfile(path) and page.exists() and page.samefile(path):
            raise click.UsageError(f"--html {page} would replace {path}, which this command reads; give another name")


def _compared(
    subjects: Sequence[Callable[[], Subject]], plan: Plan, bisect: bool, at: tuple[int, int] | None, quiet: bool
) -> list[Comparison]:
    from golden.diff import diff as compare_runs
    from golden.diff_report import comparison_lines

    found = []
    for make in subjects:
        subject = make()
        found.append(compare_runs(subject, plan))
        if (bisect or at is not None) and not found[-1].good:
            _look_inside(subject, plan, found[-1], bisect, at)
        if not quiet:
            _print(comparison_lines(found[-1]))
    return found


def _look_inside(subject: Subject, plan: Plan, found: Comparison, bisect: bool, at: tuple[int, int] | None) -> None:
    from emu.errors import EmulatorError
    from gfx950.hip import HipError
    from golden.first_wrong import At, find_first_wrong, registers_at

    try:
        if bisect:
            found.first_wrong = find_first_wrong(subject, plan, found)
        if at is not None:
            found.registers = registers_at(subject, plan, found, At(*at))
    except (EmulatorError, HipError, ValueError) as error:  # what was compared stands all the same
        found.not_inside = str(error)
        return
    if found.first_wrong is None and found.registers is None:
        why = "in the emulator nothing stores what differs"
        if all(array.difference is None for array in found.arrays):
            why = f"nothing differs in the same way in all runs of {found.engines[1]}"
        click.echo(f"note: {found.name}: {why}: no wave to look into", err=True)


def _show(comparisons: list[Comparison], found: Provenance, engines: tuple[str, str], as_json: bool) -> None:
    from golden.diff_report import document, provenance_lines

    if as_json:
        terminal.show_json("gfx950.diff/1", document(comparisons, found))
        return
    good = sum(c.good for c in comparisons)
    click.echo(f"{good} of {len(comparisons)} the same on {' and '.join(engines)}")
    _print(provenance_lines(found))


def _print(lines: Any) -> None:
    for line in lines:
        click.echo(line)


def _with_device(engines: tuple[str, str]) -> tuple[str, str]:
    return engines if "device" in engines else (engines[0], "device")


def _options(more: dict[str, Any]) -> Any:
    from emu.dispatch import DEFAULT_STEP_LIMIT, RunOptions

    chosen = {name: more[name] for name in ("quantum", "seed", "order", "model", "threads")}
    return RunOptions(step_limit=more["step_limit"] or DEFAULT_STEP_LIMIT, **chosen)


def _provenance(name: str, subject: Subject, engines: tuple[str, str], device: dict[str, str]) -> Provenance:
    from golden.diff import FileSubject, evidence_of
    from golden.provenance import provenance

    kernel = subject.name if isinstance(subject, FileSubject) else None
    code = {engine: subject.code(engine) for engine in engines}
    return provenance(name, code, evidence_of(code[engines[0]], kernel), device)


# ---- what is run -----------------------------------------------------------------------------------------------------


def _subjects(
    name: str, cases: tuple[str, ...], formats: dict[str, str], linked: bool, more: dict[str, Any]
) -> list[Callable[[], Subject]]:
    """What makes each subject: inputs of a case may be large, and are made when their turn comes."""
    given = [option for option in LAUNCH if more[option]]
    if name in kernel_names():
        if given or formats:
            raise click.UsageError(f"{name} is a kernel with cases of its own: launch options are for a FILE")
        return _cases(name, cases)
    if not os.path.isfile(name):
        raise click.UsageError(f"there is no file {name!r} and no kernel of that name: {', '.join(kernel_names())}")
    if cases:
        raise click.UsageError(f"--case is for a KERNEL; {name} is a file, whose arguments are given by --arg")
    found = _file(name, formats, linked, more)
    return [lambda: found]


def _cases(name: str, cases: tuple[str, ...]) -> list[Callable[[], Subject]]:
    from golden.diff import CaseSubject

    package = kernel_package(name)
    return [lambda case=case: CaseSubject(package, case) for case in chosen_cases(package, cases)]  # type: ignore[misc]


def _file(path: str, formats: dict[str, str], linked: bool, more: dict[str, Any]) -> Subject:
    from emu.commands import launch_geometry
    from emu.run_arguments import check_arguments, parse_argument
    from golden.diff import FileSubject

    if more["block"] is None:
        raise click.UsageError("a FILE needs --block, the threads of a workgroup")
    geometry = launch_geometry(more["grid"], more["items"], more["block"])
    arguments = [parse_argument(text) for text in more["texts"]]
    subject = FileSubject(
        Path(path).read_bytes(),
        more["kernel_name"],
        geometry,
        arguments,
        more["dynamic_lds"],
        more["hidden"],
        formats,
        linked,
    )
    check_arguments(subject.kernel, arguments)
    if not subject.outputs:
        raise click.UsageError("nothing to compare: no --arg names an output file, as in x.npy:y.npy")
    return subject
