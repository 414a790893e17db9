"""`gfx950 emit`: a kernel's program text, LLVM IR, assembly, object and code object, and what it uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gfx950 import terminal
from gfx950.whole_files import write_whole

if TYPE_CHECKING:
    from codegen.compile import Compiled, Resources
    from codegen.kernel_package import KernelPackage

NO_LINKER_EXIT = 4


def _not_empty(context: click.Context, option: click.Parameter, value: str) -> Path:
    """A usage error for an empty path, most likely an unset variable: as a Path it would be the current folder."""
    if not value:
        raise click.BadParameter("the path is empty; write . for the current folder", context, option)
    return Path(value)


@click.command()
@click.argument("kernel")
@click.option(
    "-o",
    "folder",
    type=click.Path(file_okay=False),
    required=True,
    callback=_not_empty,
    metavar="DIR",
    help="Where the files go; made if missing.",
)
@click.option(
    "--code-object-version", "version", type=click.Choice(["5", "6"]), default="5", show_default=True, help="Of .hsaco."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_context
def emit(context: click.Context, kernel: str, folder: Path, version: str, as_json: bool) -> None:
    """Write KERNEL.ir (the traced program), .ll, .s, .o and .hsaco into a folder, and show what each kernel uses.

    The .hsaco needs an ld.lld; where there is none the other files are written all the same and the exit code is 4.
    The emulator runs the .o, only a real device needs the .hsaco.

    \b
    Example:
      gfx950 emit drafter_attention -o build
    """
    from codegen.compile import compile_kernels
    from codegen.emit_llvm import VERSIONS
    from codegen.kernel_package import kernel_package
    from codegen.link import NoLinker

    package = kernel_package(kernel)
    _make(folder)
    default = int(version) == VERSIONS[0]
    compiled = package.compiled() if default else compile_kernels(package.programs(), version=int(version))
    written = _write_compiled(package, compiled, folder)
    problem = None
    try:
        written.append(_write(folder / f"{kernel}.hsaco", compiled.code_object))
    except NoLinker as error:
        problem = str(error)
    if as_json:
        terminal.show_json("gfx950.emit/1", _document(kernel, compiled, written))
    else:
        _show(compiled, written)
    if problem is not None:
        click.echo(f"{kernel}.hsaco was not written: {problem}", err=True)
        context.exit(NO_LINKER_EXIT)


def _write_compiled(package: KernelPackage, compiled: Compiled, folder: Path) -> list[Path]:
    programs = "\n\n".join(str(program) for program in package.programs()) + "\n"
    contents: dict[str, str | bytes] = {
        "ir": programs,
        "ll": compiled.llvm_ir,
        "s": compiled.assembly,
        "o": compiled.object,
    }
    return [_write(folder / f"{package.name}.{suffix}", content) for suffix, content in contents.items()]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"cannot make the folder {folder} (-o): {error.strerror}; name one that can be written"
        ) from error


def _write(path: Path, content: str | bytes) -> Path:
    write_whole(path, content.encode() if isinstance(content, str) else content)
    return path


def _facts(resources: Resources) -> dict[str, int]:
    """The numbers of one kernel, in the order they are shown: registers a lane, lds and scratch in bytes."""
    return {
        "vgprs": resources.vgprs,
        "agprs": resources.agprs,
        "sgprs": resources.sgprs,
        "lds": resources.lds,
        "scratch": resources.scratch,
        "spills": resources.spills,
        "mfma": sum(n for name, n in resources.instructions.items() if name.startswith("v_mfma")),
        "instr": sum(resources.instructions.values()),
    }


def _document(kernel: str, compiled: Compiled, written: list[Path]) -> dict[str, Any]:
    return {
        "kernel": kernel,
        "files": [str(path) for path in written],
        "kernels": [
            {"name": name} | _facts(found) | {"mnemonics": found.instructions}
            for name, found in compiled.resources.items()
        ],
    }


def _show(compiled: Compiled, written: list[Path]) -> None:
    facts = {name: _facts(found) for name, found in compiled.resources.items()}
    heads = [("kernel", *numbers) for numbers in facts.values()][:1]
    for line in terminal.table([*heads, *((name, *map(str, n.values())) for name, n in facts.items())]):
        click.echo(line)
    for path in written:
        click.echo("\n".join(terminal.wrap(f"wrote {path}")))
