"""The command line: `gfx950 COMMAND`, also `python -m gfx950`. Commands load their code when they are used.

Results go to standard output, everything else to standard error; nothing is coloured. Exit codes: 0 fine, 1 the bits
differ, 2 bad usage or bad input, 3 an instruction that is not known, 4 no device, clang or linker, or the device
failed, 70 a mistake in gfx950 itself (with its traceback), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from typing import NoReturn

import click

from gfx950.terminal import NearestGroup

# name: (module:attribute, one line of help); the modules belong to the folders that do the work
COMMANDS = {
    "check": (
        "golden.commands:check",
        "Run a kernel's cases: source, machine code, recorded golden and error bound agree.",
    ),
    "golden": ("golden.commands:golden", "List, check or record the committed right bits."),
    "emit": ("codegen.commands:emit", "Write a kernel's IR, LLVM IR, assembly, object and code object."),
    "conflicts": (
        "codegen.conflict_commands:conflicts",
        "Count the LDS bank conflicts of a kernel, instruction by instruction.",
    ),
    "probe": (
        "codegen.kernels.probes.commands:probe",
        "Ask an MI355X how it computes, and fit the models to its answers.",
    ),
    "disasm": ("emu.commands:disasm", "Print the kernels and instructions of any gfx950 code object."),
    "run": ("emu.commands:run", "Run a kernel of any gfx950 code object on this CPU."),
    "diff": ("golden.diff_commands:diff", "Run a kernel on the chip and in the emulator, and compare the bits."),
    "layout": ("gfx950.commands:layout", "Say where a matrix element or one of a KV cache is, or what is there."),
    "isa": ("gfx950.commands:isa", "List the instructions, those of a pattern, or describe one."),
    "evidence": (
        "golden.evidence_commands:evidence",
        "List the rules that the bits of an instruction, a code object, a kernel or all rest on.",
    ),
    "models": ("gfx950.commands:models", "List the models of arithmetic, and the open questions they answer."),
}


SHOWN = {"traceback": False}
OWN_MISTAKE = 70  # sysexits.h EX_SOFTWARE; Python's own 1 would read as "the bits differ"


class LazyGroup(NearestGroup):
    """A group whose commands are imported on use, so that `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order above."""
        return list(COMMANDS)

    def find(self, name: str) -> click.Command | None:
        """Imports one command."""
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="gfx950")
@click.option("--traceback", is_flag=True, help="Show where in Python an error was raised.")
def cli(traceback: bool) -> None:
    """Bit-exact CPU emulator and kernel generator for AMD's gfx950 (MI355X, CDNA4)."""
    SHOWN["traceback"] = SHOWN["traceback"] or traceback


def exit_code_of(error: Exception) -> int:
    """3 for what the emulator does not know, 4 for a missing tool or device or one that failed, 2 for bad input."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"UnknownInstruction", "DecodeError", "UnsupportedForm"}:
        return 3
    return 4 if names & {"HipError", "NoClang", "NoDevice", "NoLinker"} else 2


def main() -> None:
    """Runs the command line; an expected error is one clear message on stderr and an exit code, never a traceback."""
    if hasattr(signal, "SIGPIPE"):  # `gfx950 isa | head` ends as any Unix program does
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # Before numpy loads: threads of its BLAS that wait for each other cost more than the small products they share.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        with contextlib.suppress(OSError):  # standard error may be full or closed; the code tells all the same
            error.show()
        sys.exit(2)
    except click.Abort:
        say("stopped")
        sys.exit(130)
    except (ValueError, TypeError, KeyError, OSError, MemoryError) as error:
        fail(error)
    except Exception as error:
        if not type(error).__module__.startswith(("gfx950.", "emu.", "codegen.", "golden.")):
            fail_by_mistake(error)
        fail(error)
    # `--help` and `ctx.exit(n)` give their code as a value here.
    sys.exit(code if isinstance(code, int) else 0)


def say(text: str) -> None:
    """A line on standard error, where that can still be written."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def fail(error: Exception) -> NoReturn:
    """Prints an error and leaves with its code."""
    if SHOWN["traceback"]:
        say(traceback_of(error))
        sys.exit(exit_code_of(error))
    say(f"error: {words_of(error)}")
    if isinstance(error, TypeError | KeyError):  # most likely a mistake in a kernel
        say("`gfx950 --traceback ...` shows where")
    sys.exit(exit_code_of(error))


def words_of(error: Exception) -> str:
    """What an error says, without Python's wrapping."""
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    if isinstance(error, MemoryError):
        return f"this machine has not enough memory for what was asked: {str(error) or 'no more can be had'}"
    if isinstance(error, OSError) and error.strerror:
        where = "standard output or a file" if error.filename is None else repr(error.filename)
        return f"{error.strerror}: {where}"
    return str(error) or type(error).__name__


def traceback_of(error: Exception) -> str:
    """The Python traceback of an error."""
    import traceback

    return "".join(traceback.format_exception(error))


def fail_by_mistake(error: Exception) -> NoReturn:
    """Shows where an error was raised that no input should be able to cause."""
    say(traceback_of(error))
    say(f"error: {type(error).__name__} is a mistake in gfx950 itself; please report the command with the text above")
    sys.exit(OWN_MISTAKE)


if __name__ == "__main__":
    main()
