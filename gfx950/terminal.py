"""What commands print: plain text no wider than the terminal, or one JSON document. No colours, no ANSI codes."""

from __future__ import annotations

import difflib
import json
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import click

DEFAULT_COLUMNS = 80
GAP = "  "
NARROWEST_COLUMN = 24  # below this the last column moves to lines of its own


class NearestGroup(click.Group):
    """A group of commands that answers an unknown name with the nearest one there is."""

    def find(self, name: str) -> click.Command | None:
        """The command of that name, if there is one."""
        return self.commands.get(name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """The command of that name. Raises UsageError with the nearest names for an unknown one."""
        found = self.find(cmd_name)
        if found is not None:
            return found
        names = self.list_commands(ctx)
        near = difflib.get_close_matches(cmd_name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
        raise click.UsageError(f"there is no command {cmd_name!r}; {hint}", ctx)


def columns() -> int:
    """Columns of the terminal: COLUMNS if set, else the terminal's own; 80 when standard output is none."""
    return shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns


def wrap(text: str, indent: str = "", width: int | None = None) -> list[str]:
    """The text in lines no wider than `width` (the terminal); a word longer than a line is broken, never cut."""
    room = max(len(indent) + 8, width or columns())
    wrapped = textwrap.wrap(text, room, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return wrapped or [indent.rstrip()]


def show_text(text: str, indent: str = "") -> None:
    """Prints the text in lines no wider than the terminal."""
    click.echo("\n".join(wrap(text, indent)))


def wrap_code(line: str, width: int | None = None) -> list[str]:
    """A line of source broken at spaces to the width; what continues is indented by eight more."""
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line,
        width or columns(),
        subsequent_indent=f"{indent}        ",
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [""]


def table(rows: Sequence[Sequence[str]], width: int | None = None) -> Iterator[str]:
    """Rows of equally many cells in aligned columns; the last column is wrapped to the width, nothing is cut."""
    room = width or columns()
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    indent = sum(sizes) + len(GAP) * len(sizes)
    for row in rows:
        head = GAP.join(cell.ljust(size) for cell, size in zip(row[:-1], sizes, strict=True)) + GAP * bool(sizes)
        if len(head) + min(len(row[-1]), NARROWEST_COLUMN) > room:
            yield from wrap(head.rstrip(), width=room)
            yield from wrap(row[-1], "    ", room)
            continue
        first, *rest = textwrap.wrap(row[-1], room - indent, break_on_hyphens=False) or [""]
        yield f"{head}{first}".rstrip()
        yield from (f"{' ' * indent}{line}" for line in rest)


def show_json(schema: str, document: dict[str, Any]) -> None:
    """One JSON document on standard output, its `schema` first."""
    click.echo(json.dumps({"schema": schema} | document, indent=1))
