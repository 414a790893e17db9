"""Assembly text taken apart: statements, labels and comments, and the words of a statement."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gfx950.isa.text.problems import AssemblyError

_LABEL = re.compile(r"\s*([A-Za-z_.$][\w.$@]*)\s*:(?!\w)")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_LINE_COMMENT = re.compile(r"//|;")
# What no blank and no comma parts: letters, and whatever stands in brackets, parentheses or bars.
_INNER = r"\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\]|\|[^|]*\|"
_WORD = re.compile(rf"(?:{_INNER}|[^\s,\[\]()|])+")
_OPENED = re.compile(r"[\[\]()|]")


@dataclass(frozen=True)
class TextWord:
    """A piece of a statement: its text, its column (from 0), and whether a comma stands before it."""

    text: str
    column: int
    after_comma: bool


@dataclass
class Statement:
    """One instruction or directive with its place. rest: what follows the mnemonic, from column `start` on.

    pc: None while the addresses are not known; relative: its bytes depend on its address.
    """

    text: str
    line: int
    column: int
    mnemonic: str = ""
    rest: str = ""
    start: int = 0
    words: list[TextWord] = field(default_factory=list)
    pc: int | None = None
    relative: bool = False

    def __post_init__(self) -> None:
        found = re.match(r"\S+", self.text)
        self.mnemonic = found[0].lower() if found is not None else ""
        self.start = len(self.mnemonic)
        self.rest = self.text[self.start :]
        self.words = self._words()

    def error(self, column: int, message: str) -> AssemblyError:
        """What to raise for a column of the statement, counted from 0."""
        at = self.column + column + 1
        return AssemblyError(f"line {self.line}, column {at}: {message}; in `{self.text}`", self.line, at)

    def _words(self) -> list[TextWord]:
        words: list[TextWord] = []
        end = 0
        for match in _WORD.finditer(self.rest):
            between = self.rest[end : match.start()]
            self._check_closed(between, end)
            end = match.end()
            before = words[-1] if words and "," not in between else None
            if before is not None and (before.text.endswith(":") or before.text == "-"):  # `offset: 4`, `- v1`
                words[-1] = TextWord(before.text + match[0], before.column, before.after_comma)
            else:
                words.append(TextWord(match[0], self.start + match.start(), "," in between))
        self._check_closed(self.rest[end:], end)
        return words

    def _check_closed(self, between: str, at: int) -> None:
        opened = _OPENED.search(between)
        if opened is not None:
            column = at + opened.start()
            message = f"a bracket or bar of {self.rest[column:].strip()!r} is not closed"
            raise self.error(self.start + column, message)


def statements_of(text: str) -> tuple[list[Statement], dict[str, int]]:
    """The statements, and for each label the number of the statement it stands before.

    Raises AssemblyError for a label that is defined twice and a bracket that is not closed.
    """
    statements: list[Statement] = []
    labels: dict[str, int] = {}
    if "/*" in text:
        text = _COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), text)
    for number, line in enumerate(text.split("\n"), 1):
        rest = _LINE_COMMENT.split(line, maxsplit=1)[0].rstrip()
        start = 0
        while ":" in rest and (match := _LABEL.match(rest, start)) is not None:
            if match[1] in labels:
                raise AssemblyError(f"line {number}: label {match[1]!r} is defined twice", number, match.start(1) + 1)
            labels[match[1]] = len(statements)
            start = match.end()
        body = rest[start:].lstrip()
        if body:
            statements.append(Statement(body, number, len(rest) - len(body)))
    return statements, labels
