"""`gfx950 disasm` and `gfx950 run`: the instructions of any gfx950 code object, and its kernels on this CPU."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from emu.engines import ENGINES, ORDERS
from emu.errors import CodeObjectError, EmulatorError
from gfx950 import terminal
from gfx950.evidence import LEVELS, Evidence, Rule

if TYPE_CHECKING:
    from emu.code_object import CodeObject
    from emu.contained_rules import KernelEvidence
    from emu.dispatch import Device, Module, RunReport
    from emu.elf_image import Code
    from emu.geometry import Geometry
    from emu.kernel_metadata import Kernel
    from emu.run_arguments import RunArgument

SHOWN_RULES = 6
LONGEST_SIZE = 20  # digits


def _sizes(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """The numbers of X[,Y[,Z]]; a usage error for anything but one to three whole numbers above 0."""
    if value is None:
        return None
    parts = value.split(",")
    if len(parts) > 3 or not all(p.isdecimal() and len(p) < LONGEST_SIZE and int(p) > 0 for p in parts):
        what = f"{value!r} is not one to three whole numbers above 0, as in 4 or 4,2,1"
        raise click.BadParameter(what, context, option)
    return tuple(int(p) for p in parts)


def _quantum(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """The value of --quantum."""
    if value == "barrier":
        from emu.dispatch import TO_BARRIER  # which a help page should not load

        return TO_BARRIER
    if not value.isdecimal() or int(value) < 1:
        raise click.BadParameter(f"{value!r} is neither a whole number from 1 on nor `barrier`")
    return int(value)


def _hidden(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """The hidden arguments of NAME=VALUE texts; a usage error for anything else."""
    found = {}
    for text in values:
        name, equals, number = text.partition("=")
        try:
            found[f"hidden_{name.removeprefix('hidden_')}"] = int(number, 0)
        except ValueError:
            equals = ""
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=NUMBER, as in grid_dims=1", context, option)
    return found


@click.command()
@click.argument("code_object", type=click.Path(exists=True, dir_okay=False))
@click.option("--kernel", "name", metavar="NAME", help="Only this kernel or function.")
@click.option("--source", "sources", is_flag=True, help="Show source lines, where the file has debug information.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def disasm(code_object: str, name: str | None, sources: bool, as_json: bool) -> None:
    """Print the kernels, symbols and instructions of CODE_OBJECT (linked or not), as text that assembles again.

    Bytes that are no gfx950 instruction are shown as `.long`.

    \b
    Examples:
      gfx950 disasm scale.o
      gfx950 disasm scale.o --kernel scale --source
    """
    from emu.disassembly import disassemble, document, text_lines

    found = disassemble(code_object, name, sources)
    if as_json:
        terminal.show_json("gfx950.disassembly/1", document(found))
        return
    click.echo("\n".join(text_lines(found, terminal.columns())))


@click.command()
@click.argument("code_object", type=click.Path(exists=True, dir_okay=False))
@click.option("--kernel", "kernel_name", metavar="NAME", help="The kernel. May be left out where there is one only.")
@click.option("--grid", callback=_sizes, metavar="X[,Y[,Z]]", help="Workgroups.")
@click.option("--items", callback=_sizes, metavar="X[,Y[,Z]]", help="Work-items, instead of --grid.")
@click.option("--block", callback=_sizes, metavar="X[,Y[,Z]]", required=True, help="Threads of a workgroup.")
@click.option("--arg", "texts", multiple=True, metavar="A", help="The next argument (forms above); give one for each.")
@click.option("--engine", type=click.Choice(ENGINES), default="host", show_default=True)
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="Workgroups at once (host).")
@click.option("--dynamic-lds", type=click.IntRange(0), default=0, metavar="BYTES", help="LDS beyond the kernel's own.")
@click.option("--hidden", multiple=True, callback=_hidden, metavar="NAME=N", help="A hidden argument: grid_dims=1.")
@click.option("--step-limit", type=click.IntRange(1), default=None, metavar="N", help="Wave instructions a workgroup.")
@click.option(
    "--quantum",
    default="32",
    show_default=True,
    callback=_quantum,
    metavar="N",
    help="Instructions of a wave's turn, or `barrier`: as far as it gets.",
)
@click.option("--seed", type=int, default=None, metavar="N", help="Turns of random length and in random order.")
@click.option("--order", type=click.Choice(ORDERS), default=ORDERS[0], show_default=True, help="Of waves, workgroups.")
@click.option("--model", metavar="NAME|FILE", help="Of arithmetic; `gfx950 models` lists them. Default: gfx950.")
@click.option("--require", type=click.Choice(LEVELS), help="Refuse what rests on weaker rules (levels: see above).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def run(
    code_object: str,
    kernel_name: str | None,
    grid: tuple[int, ...] | None,
    items: tuple[int, ...] | None,
    block: tuple[int, ...],
    texts: tuple[str, ...],
    engine: str,
    threads: int,
    dynamic_lds: int,
    hidden: dict[str, int],
    step_limit: int | None,
    quantum: int,
    seed: int | None,
    order: str,
    model: str | None,
    require: str | None,
    as_json: bool,
) -> None:
    """Run a kernel of CODE_OBJECT (linked or relocatable) on this CPU.

    Arguments in the order of the kernel's own:

    \b
      --arg in.npy                     an array, read-only
      --arg in.npy:out.npy             an array in place, its result to out.npy
      --arg zeros:f32:64x128:out.npy   a new zeroed array, its result to out.npy
      --arg 5   --arg 1.5              a number of the argument's type, where it is stated
      --arg 1.5f   --arg i32:5         a number of this type

    Where the code object states no type, as most do not, an int goes as an integer: write 2.0 for a float.

    --grid counts workgroups; --items counts work-items, and then the last workgroup may be a partial one.
    Types are u8 .. u64, i8 .. i64, f16, f32, f64 and those of ml_dtypes: bf16, fp8 (float8_e4m3fn), bf8 (float8_e5m2),
    e8m0, or their own names. A file that ends in .bin instead of .npy holds the bytes alone.

    No output file is written unless the whole run succeeds. Exits with 3 where an instruction is not known.

    Levels of evidence, weakest first: chosen, vendor, carried, published, measured, spec; an instruction has that of
    its weakest rule and counts once for its mnemonic. --require refuses before the run, by the code that branches reach
    whether it would run or not; what only jumps and calls through registers reach is known after it, and then nothing
    is written.

    \b
    Examples:
      gfx950 run scale.o --grid 2 --block 64 --arg x.npy:y.npy --arg 3
      gfx950 run scale.o --grid 2 --block 64 --arg x.npy:y.npy --arg 3 --require vendor
    """
    from emu.dispatch import DEFAULT_STEP_LIMIT, Device, RunOptions
    from emu.run_arguments import check_arguments, outputs, parse_argument, written_together

    limit = step_limit or DEFAULT_STEP_LIMIT
    if require is not None and engine == "device":
        raise click.UsageError("--require is about the rules of this emulator; the bits of a device are its own")
    options = RunOptions(engine, threads, model, quantum=quantum, seed=seed, order=order, step_limit=limit)
    geometry = launch_geometry(grid, items, block)
    module = Device(options).load(code_object)
    kernel = module.code.kernel(kernel_name)
    arguments = [parse_argument(text) for text in texts]
    check_arguments(kernel, arguments)
    if require is not None:
        found = module[kernel.name].evidence()
        refuse_below(Evidence[require], kernel.name, found, "so it was not run", _question(code_object, kernel.name))
    for sentence in kernel.disagreements:
        click.echo(f"note: {sentence}", err=True)
    written = outputs(arguments)
    with written_together(written):
        values = [_mapped(module.device, a) for a in arguments]
        report = _launched(module, kernel, geometry, values, dynamic_lds, hidden)
        found = module[kernel.name].evidence()
        if require is not None:
            outcome = "as its run showed; nothing was written"
            refuse_below(Evidence[require], kernel.name, found, outcome, _question(code_object, kernel.name))
    files = [str(path) for path in written]
    if as_json:
        terminal.show_json("gfx950.run/1", _document(kernel, engine, report, found, files))
        return
    for line in _lines(kernel, engine, report, found, code_object, files):
        terminal.show_text(line)


def launch_geometry(grid: tuple[int, ...] | None, items: tuple[int, ...] | None, block: tuple[int, ...]) -> Geometry:
    """The geometry of --grid or --items; a usage error for both and for neither."""
    from emu.geometry import Geometry

    if (grid is None) == (items is None):
        raise click.UsageError("give one of --grid (workgroups) and --items (work-items)")
    return Geometry.of_blocks(grid, block) if grid is not None else Geometry.of_items(items or (), block)


def _launched(
    module: Module, kernel: Kernel, geometry: Geometry, values: list[Any], dynamic_lds: int, hidden: dict[str, int]
) -> RunReport:
    """The run; an error at an instruction is told where that is in the file, as a disassembler counts."""
    try:
        return module[kernel.name][geometry](*values, dynamic_lds=dynamic_lds, hidden=hidden)
    except EmulatorError as error:
        code = next((c for c in module.code.code if 0 <= (error.pc or 0) - c.address < len(c.data)), None)
        if error.pc is not None and code is not None:
            click.echo(f"note: pc {error.pc:#x} is {_place(module.code, code, kernel, error.pc)}", err=True)
        raise


def _place(found: CodeObject, code: Code, kernel: Kernel, pc: int) -> str:
    """The function that an instruction is in, its byte of the section, and its source line where DWARF has one."""
    from emu.source_lines import source_lines

    functions = {s.address: s.name for s in found.symbols.values() if s.kind == "function"}
    before = [address for address in functions if code.address <= address <= pc]
    start = max(before, default=kernel.entry)
    place = f"{functions.get(start, kernel.name)}{pc - start:+#x}, byte {pc - code.address:#x} of {code.name}"
    try:
        marks = source_lines(found)
    except CodeObjectError:
        return place
    line = marks.get(max((address for address in marks if start <= address <= pc), default=-1))
    return place if line is None else f"{place}, {line.file}:{line.line}"


def _mapped(device: Device, argument: RunArgument) -> Any:
    """What the launch takes: an array's device address, mapped under a name that faults can speak of."""
    if not isinstance(argument.value, np.ndarray):
        return argument.value
    writable = argument.output is not None
    note = "" if writable else f" (read-only: write --arg {argument.text}:OUT.npy to let the kernel change it)"
    return device.map(argument.value, name=f"--arg {argument.text}{note}", writable=writable)


def refuse_below(
    level: Evidence, kernel: str, found: KernelEvidence, outcome: str, question: str, own: Iterable[Rule] = ()
) -> None:
    """A usage error that lists what is too weak, with the instructions that rest on it. outcome: what follows for the
    kernel. question: the command that lists all. own: rules of no instruction."""
    from emu.contained_rules import refusal

    if reasons := refusal(found, level, own):
        listed = "\n".join("\n".join(terminal.wrap(reason, "  ")) for reason in reasons)
        more = f"{question} lists all that it rests on"
        raise click.UsageError(f"{kernel} rests on less than `{level.name}`, {outcome}:\n{listed}\n{more}")


def _question(path: str, kernel: str) -> str:
    return f"`gfx950 evidence {shlex.quote(path)} --kernel {shlex.quote(kernel)}`"


def _lines(
    kernel: Kernel, engine: str, report: RunReport, found: KernelEvidence, path: str, files: list[str]
) -> list[str]:
    model = "" if found.model.name == "gfx950" else f" under model {found.model.name}"
    what = f"{report.instructions} wave instructions"
    if report.milliseconds is not None:
        what = f"{report.milliseconds:.3f} ms by its own clock"
    lines = [
        f"ran {kernel.name} on the {engine} engine{model}: {report.workgroups} workgroup"
        f"{'s' * (report.workgroups != 1)}, {what}"
    ]
    lines += ["its bits are the device's own"] if engine == "device" else _evidence_lines(found, path, kernel.name)
    return lines + [f"wrote {name}" for name in files]


def _evidence_lines(found: KernelEvidence, path: str, kernel: str) -> list[str]:
    weak = found.below(Evidence.spec)
    if not weak:
        return [str(found)]
    names = ", ".join(f"{r.name} ({r.evidence.name})" for r in weak[:SHOWN_RULES])
    more = f" and {len(weak) - SHOWN_RULES} more" if len(weak) > SHOWN_RULES else ""
    return [str(found), f"below spec: {names}{more}; {_question(path, kernel)}"]


def _document(
    kernel: Kernel, engine: str, report: RunReport, found: KernelEvidence, files: list[str]
) -> dict[str, Any]:
    return {
        "kernel": kernel.name,
        "engine": engine,
        "model": {"name": found.model.name, "digest": found.model.digest},
        "workgroups": report.workgroups,
        "wave_instructions": report.instructions,
        "milliseconds": report.milliseconds,
        "instructions": found.counts,
        "weakest_evidence": found.weakest.name,
        "rules": [{"name": r.name, "evidence": r.evidence.name} for r in found.rules],
        "mnemonics": list(found.mnemonics),
        "indirect_jumps": found.indirect,
        "outputs": files,
    }
