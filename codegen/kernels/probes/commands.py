"""`gfx950 probe`: ask an MI355X what nobody has published, and fit the models to its answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gfx950 import terminal

if TYPE_CHECKING:
    from codegen.kernels.probes.capture import Capture
    from codegen.kernels.probes.fit import FamilyFit, Fit
    from codegen.kernels.probes.probe import Probe
    from gfx950.models import Answer

SHOWN = 8  # unexplained steps that are listed
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
capture_argument = click.argument("file", type=click.Path(path_type=Path), metavar="CAPTURE")


@click.group(cls=terminal.NearestGroup)
def probe() -> None:
    """Probes: small kernels that ask an MI355X how it computes.

    `run` makes one capture file, on a device or on the emulator; `fit` finds the answers that explain it and writes a
    model, under which `gfx950 evidence --model` shows what it decided as measured.
    """


def _chosen(names: Sequence[str]) -> list[Probe]:
    from codegen.kernels.probes.probe import probes

    known = probes()
    for name in names:
        if name not in known:
            raise click.UsageError(f"there is no probe {name!r}; there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)] or list(known.values())


@probe.command("list")
@as_json
def list_probes(as_json: bool) -> None:
    """List the probes and what each asks."""
    rows = [{"name": one.name, "asks": one.title} for one in _chosen(())]
    if as_json:
        terminal.show_json("gfx950.probes/1", {"probes": rows})
        return
    for line in terminal.table([("name", "asks"), *((row["name"], row["asks"]) for row in rows)]):
        click.echo(line)


@probe.command()
@click.argument("names", nargs=-1, metavar="[PROBE]...")
@click.option("--device", "device", is_flag=True, help="On the MI355X behind HIP.")
@click.option("--on", "on", type=click.Choice(["emulator"]), help="On the emulator, on this CPU.")
@click.option("-o", "path", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="CAPTURE")
@click.option(
    "--size", type=click.Choice(["full", "quick"]), default=None, help="Default: full on a device, else quick."
)
@click.option("--model", default=None, metavar="NAME|FILE", help="Arithmetic of the emulator.")
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="Of the emulator.")
def run(
    names: tuple[str, ...],
    device: bool,
    on: str | None,
    path: Path,
    size: str | None,
    model: str | None,
    threads: int,
) -> None:
    """Run all probes, or those named, into one CAPTURE file.

    A run that is broken off goes on behind the last whole probe when it is started again with the same arguments; until
    then its parts lie in CAPTURE.part. A CAPTURE that exists is not overwritten. On a device it needs ROCm's HIP, on
    either a clang (ROCm's, or `pip install ziglang`).

    \b
    Examples:
      gfx950 probe run --device -o mi355x.capture
      gfx950 probe run P1 P2 --on emulator --model exact -o exact.capture
    """
    from codegen.kernels.probes.run import run_probes
    from emu.dispatch import RunOptions

    if device == (on is not None):
        raise click.UsageError("say where: --device, or --on emulator")
    if device and model is not None:
        raise click.UsageError("--model is for the emulator: a device has its own arithmetic")
    if path.exists():
        raise click.UsageError(f"{path} exists: name another file, or remove it first; captures are not overwritten")
    options = RunOptions(engine="device" if device else "host", threads=threads, model=model)
    before = time.perf_counter()

    def done(one: Probe, steps: int, taken_up: bool) -> None:
        nonlocal before
        seconds, before = time.perf_counter() - before, time.perf_counter()
        what = "taken from the earlier run" if taken_up else f"{seconds:.1f} s"
        click.echo(f"{one.name:<4} {steps} launches, {what}: {one.title}", err=True)

    found = run_probes(_chosen(names), path, options, size or ("full" if device else "quick"), done)
    click.echo(f"wrote {path}: {path.stat().st_size:,} bytes, {len(found.entries)} steps, {found.origin.text}")
    click.echo(f"capture {found.digest}")


@probe.command()
@capture_argument
@click.argument("step", required=False)
@as_json
def show(file: Path, step: str | None, as_json: bool) -> None:
    """Say what a CAPTURE is, or print the output of one STEP of it."""
    from codegen.kernels.probes.capture import read

    found = read(file)
    if step is not None:
        _show_step(found, step)
        return
    entries = list(found.entries.values())
    if as_json:
        about = {"origin": vars(found.origin), "size": found.size, "digest": found.digest}
        steps = [{"step": e.name, "bytes": e.nbytes, "sha256": e.output} for e in entries]
        terminal.show_json("gfx950.capture-contents/1", about | {"steps": steps})
        return
    click.echo(f"{found.origin.text}; size {found.size}; capture {found.digest}")
    rows = [(e.name, f"{e.nbytes:,}", e.output[:16]) for e in entries]
    for line in terminal.table([("step", "bytes", "sha256"), *rows]):
        click.echo(line)


def _show_step(found: Capture, step: str) -> None:
    """The words of an output, a line for each 64 lanes."""
    output = found.read(step)
    digits = 2 * output.dtype.itemsize
    for index, row in enumerate(output.reshape(-1, output.shape[-1])):
        click.echo(f"{index:5}  " + " ".join(f"{int(word):0{digits}x}" for word in row))


@probe.command()
@capture_argument
@click.option(
    "-o", "path", type=click.Path(path_type=Path, dir_okay=False), metavar="MODEL.json", help="Write the model."
)
@as_json
@click.pass_context
def fit(context: click.Context, file: Path, path: Path | None, as_json: bool) -> None:
    """Find the answers to all switches that explain a CAPTURE bit for bit.

    Of each switch: its answer, or the answers that the capture cannot tell apart and what would tell. Of each step that
    no answers explain: where it first differs. Exits with 1 when there is one.
    """
    from codegen.kernels.probes.capture import read
    from codegen.kernels.probes.families import FAMILIES
    from codegen.kernels.probes.fit import fit as fit_capture
    from gfx950.models import write_model
    from gfx950.whole_files import check_target

    if path is not None:
        if path.suffix != ".json":
            raise click.UsageError(f"{path}: the file of a model ends in .json")
        check_target(path)  # before the work, whose results would have no place
    found = fit_capture(read(file), FAMILIES, _nothing if as_json else _show_family)
    if path is not None:
        write_model(found.model(path.stem, path.parent), path)
    if as_json:
        terminal.show_json("gfx950.fit/1", _document(found))
    else:
        _show_end(found, path)
    context.exit(0 if found.explained else 1)


def _nothing(family: FamilyFit) -> None: ...


def _show_family(found: FamilyFit) -> None:
    from gfx950.models import SWITCHES

    state = f"{_counted(len(found.unexplained), 'step')} unexplained" if found.unexplained else "explained"
    click.echo(f"{found.family}: {_counted(found.steps, 'step')}, {state}")
    for name, answer in found.answers.items():
        others = found.undecided.get(name, [])
        if others:
            line = f"{name}: {answer}, or {_listed(others)}; {found.telling[name]}"
        else:
            line = f"{name}: {answer}" + ("" if answer == SWITCHES[name].default else " (not the default)")
        click.echo("\n".join(terminal.wrap(line, "  ")))
    for note in found.notes:
        click.echo("\n".join(terminal.wrap(note, "  ")))
    for one in found.unexplained[:SHOWN]:
        click.echo("\n".join(terminal.wrap(one.text, "  ")))
    if len(found.unexplained) > SHOWN:
        click.echo(f"  and {len(found.unexplained) - SHOWN} more")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _listed(answers: Sequence[Answer]) -> str:
    """Answers in one line, runs of numbers by their ends."""
    parts: list[str] = []
    numbers = sorted(a for a in answers if isinstance(a, int))
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        ends = [number for _, number in run]
        parts.append(f"{ends[0]}..{ends[-1]}" if len(ends) > 2 else ", ".join(map(str, ends)))
    return ", ".join([*parts, *(a for a in answers if isinstance(a, str))])


def _show_end(found: Fit, path: Path | None) -> None:
    for name in found.stale:
        click.echo(f"not used: {name} was asked otherwise than this version asks it", err=True)
    decided = sum(len(set(f.answers) - set(f.undecided)) for f in found.families if not f.unexplained)
    asked = sum(len(f.answers) for f in found.families)
    click.echo(f"{decided} of {asked} switches decided by the capture of {found.capture.origin.text}")
    if not found.explained:
        click.echo(
            "answers of a family with an unexplained step are the nearest there are, and never count as measured"
        )
    if found.capture.origin.kind != "device":
        click.echo("no evidence for the chip: an emulator made this capture")
    if path is not None:
        click.echo(f"wrote {path}: see `gfx950 evidence --model {path}`")


def _document(found: Fit) -> dict[str, Any]:
    families = [
        {
            "family": f.family,
            "steps": f.steps,
            "answers": f.answers,
            "undecided": f.undecided,
            "telling": f.telling,
            "tables": sorted(f.tables),
            "notes": f.notes,
            "unexplained": [vars(d) for d in f.unexplained],
        }
        for f in found.families
    ]
    about = {"origin": vars(found.capture.origin), "digest": found.capture.digest, "explained": found.explained}
    return about | {"families": families, "stale": found.stale}


@probe.command()
@click.argument("names", nargs=-1, metavar="[PROBE]...")
@click.option("-o", "folder", type=click.Path(path_type=Path, file_okay=False), required=True, metavar="DIR")
def emit(names: tuple[str, ...], folder: Path) -> None:
    """Write the kernels of all probes, or of those named, as code objects that a device loads."""
    from codegen.kernels.probes.probe import SIZES
    from codegen.kernels.probes.run import code_objects
    from gfx950.whole_files import write_whole

    wanted = _chosen(names)
    folder.mkdir(parents=True, exist_ok=True)
    for one in wanted:
        for number, part in enumerate(code_objects(list(one.steps(SIZES["full"])))):
            path = folder / f"{one.name}-{number}.hsaco"
            write_whole(path, part.code_object)
            click.echo(f"wrote {path}: {len(part.resources)} kernels")
