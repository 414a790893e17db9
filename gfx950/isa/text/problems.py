"""What the assembler says of a line it cannot read."""

from __future__ import annotations


class TextProblem(Exception):
    """One operand or modifier cannot be read; the assembler adds line, column and what the line is."""


class AssemblyError(ValueError):
    """A line is no gfx950 instruction. Message: the line, the column, what is wrong there, what was expected.

    line, column: where, counted from 1.
    """

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
