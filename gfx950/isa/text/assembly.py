"""Lines of assembly text as bytes: LLVM's spelling, read by the tables that print it."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gfx950.isa.encoding import Decoded, blank, encode
from gfx950.isa.text.catalog import SUFFIXES, mnemonics
from gfx950.isa.text.modifiers import BufferFormat, Flag, Modifier
from gfx950.isa.text.operands import Operand, Word, parse_integer
from gfx950.isa.text.problems import AssemblyError, TextProblem
from gfx950.isa.text.scalar import Branch
from gfx950.isa.text.syntax import Syntax

Symbols = Mapping[str, int]
_LABEL = re.compile(r"\s*([A-Za-z_.$][\w.$@]*)\s*:(?!\w)")
_DATA = {".long": 4, ".short": 2, ".byte": 1, ".quad": 8}


@dataclass(frozen=True)
class _Word:
    """A piece of a line: its text, its column (from 0), and whether a comma stands before it."""

    text: str
    column: int
    after_comma: bool


@dataclass
class _Statement:
    """One instruction or directive with its place. pc: None while the addresses are not known; relative: its bytes
    depend on its address."""

    text: str
    line: int
    column: int
    pc: int | None = None
    relative: bool = False


def assemble(text: str, pc: int = 0, symbols: Symbols | None = None) -> bytes:
    """The bytes of assembly text: instructions, labels, `.long` and its like, comments (`//`, `;`, `/* */`).

    pc: the address of the first byte; symbols: addresses of names that the text does not define. Raises AssemblyError,
    which is a ValueError, naming line, column and what was expected.
    """
    statements, labels = _statements(text)
    unplaced = dict.fromkeys(labels, pc) | dict(symbols or {})
    pieces = [_assemble(statement, unplaced) for statement in statements]
    addresses = [*itertools.accumulate(map(len, pieces), initial=pc)]
    for statement, address in zip(statements, addresses, strict=False):
        statement.pc = address
    known = dict(symbols or {}) | {name: addresses[index] for name, index in labels.items()}
    for index, statement in enumerate(statements):
        if statement.relative:
            pieces[index] = _assemble(statement, known)
    return b"".join(pieces)


def _statements(text: str) -> tuple[list[_Statement], dict[str, int]]:
    """The statements, and for each label the number of the statement it stands before."""
    statements: list[_Statement] = []
    labels: dict[str, int] = {}
    blanked = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL)
    for number, line in enumerate(blanked.split("\n"), 1):
        rest = re.split(r"//|;", line)[0].rstrip()
        start = 0
        while (match := _LABEL.match(rest, start)) is not None:
            if match[1] in labels:
                raise AssemblyError(f"line {number}: label {match[1]!r} is defined twice", number, match.start(1) + 1)
            labels[match[1]] = len(statements)
            start = match.end()
        body = rest[start:]
        if body.strip():
            column = start + len(body) - len(body.lstrip())
            statements.append(_Statement(body.strip(), number, column))
    return statements, labels


def _error(statement: _Statement, column: int, message: str) -> AssemblyError:
    at = statement.column + column + 1
    return AssemblyError(f"line {statement.line}, column {at}: {message}; in `{statement.text}`", statement.line, at)


def _assemble(statement: _Statement, symbols: Symbols) -> bytes:
    mnemonic, _, rest = statement.text.partition(" ")
    mnemonic = mnemonic.strip().lower()
    if mnemonic in _DATA:
        return _data(statement, mnemonic, rest)
    ways = mnemonics().get(mnemonic)
    if ways is None:
        raise _error(statement, 0, _unknown(mnemonic))
    problems: list[_Misread] = []
    for syntax in ways:
        try:
            return encode(_read(syntax, statement, rest, symbols))
        except _Misread as problem:
            problems.append(problem)
    best = max(problems, key=lambda p: (p.understood, p.column))
    raise _error(statement, best.column, best.message)


def _unknown(mnemonic: str) -> str:
    near = difflib.get_close_matches(mnemonic, mnemonics(), n=3)
    base = next((mnemonic.removesuffix(s) for s in SUFFIXES if mnemonic.endswith(s)), "")
    if base in mnemonics():
        forms = ", ".join(dict.fromkeys(s.mnemonic for s in mnemonics()[base]))
        return f"{base} has no form {mnemonic}; it has {forms}"
    return f"no gfx950 instruction is called {mnemonic!r}; nearest: {', '.join(near) or 'none'}"


def _data(statement: _Statement, directive: str, rest: str) -> bytes:
    size = _DATA[directive]
    try:
        numbers = [parse_integer(part.strip()) for part in rest.split(",")]
        return b"".join((n & (1 << 8 * size) - 1).to_bytes(size, "little") for n in numbers)
    except TextProblem as problem:
        raise _error(statement, len(directive) + 1, str(problem)) from None


class _Misread(Exception):
    """A way of writing that a statement is not: the column, and why. understood: how likely this way was meant, 1 where
    operands or a modifier that makes it are missing, 2 where they are all there."""

    def __init__(self, column: int, message: str, understood: int = 2) -> None:
        super().__init__(column, message)
        self.column = column
        self.message = message
        self.understood = understood


def _read(syntax: Syntax, statement: _Statement, rest: str, symbols: Symbols) -> Decoded:
    """The instruction's bits, read in one way: modifiers first, for some say how wide an operand is."""
    decoded = blank(syntax.instruction, syntax.form, syntax.extra)
    decoded.pc = statement.pc or 0
    for slot, value in (*syntax.defaults, *syntax.fixed):
        slot.put(decoded, value)
    start = len(statement.text) - len(rest)
    words = [_Word(rest.strip(), start, False)] if syntax.any_operands else _words(rest, start)
    texts, seen = _read_modifiers(syntax, decoded, words)
    operands = _operands(syntax, texts, len(statement.text))
    _check_required(syntax, seen, len(statement.text))
    for operand, word in zip(operands, texts, strict=True):
        with _at(word):
            _read_operand(operand, decoded, word.text, symbols, statement)
    for slot, value in syntax.fixed:
        if slot.get(decoded) != value:
            flag = next((m.word for m in syntax.modifiers if isinstance(m, Flag) and m.slot == slot), "a modifier")
            raise _Misread(len(statement.text), f"{syntax.mnemonic} with these operands must not have {flag}")
    return decoded


def _operands(syntax: Syntax, words: list[_Word], end: int) -> list[Operand]:
    """The operands that the words stand for; vcc may be left out where nothing else can stand."""
    for index, word in enumerate(words):
        if index and not word.after_comma:
            raise _Misread(word.column, _stray(syntax, word), 1)
    explicit = [operand for operand in syntax.operands if operand != Word("vcc")]
    for operands in (list(syntax.operands), explicit):
        if len(operands) == len(words):
            return operands
    wanted = len(syntax.operands)
    column = words[wanted].column if len(words) > wanted else end
    message = f"{syntax.mnemonic} takes {wanted} operand{'s' if wanted != 1 else ''}, found {len(words)}"
    raise _Misread(column, message, 1)


def _stray(syntax: Syntax, word: _Word) -> str:
    known = [name for modifier in syntax.modifiers for name in modifier.words]
    has = f"it has {', '.join(known)}" if known else "it has none"
    return f"{word.text!r} is no modifier of {syntax.mnemonic} ({has}), and an operand needs a comma before it"


@contextmanager
def _at(word: _Word) -> Iterator[None]:
    """Gives what cannot be read the column of its word."""
    try:
        yield
    except TextProblem as problem:
        raise _Misread(word.column, str(problem)) from None


def _read_operand(operand: Operand, decoded: Decoded, text: str, symbols: Symbols, statement: _Statement) -> None:
    if not isinstance(operand, Branch) or re.fullmatch(r"[-+]?\d\w*", text):
        operand.read(decoded, text)
        return
    if text not in symbols:
        raise TextProblem(f"expected a distance in words or a known label, found {text!r}")
    statement.relative = True
    if statement.pc is None:
        return
    distance, left = divmod(symbols[text] - decoded.pc - 4, 4)
    if left or not -0x8000 <= distance <= 0x7FFF:
        raise TextProblem(f"{text} is {4 * distance + left} bytes away: a branch reaches words within -32768..32767")
    operand.read(decoded, str(distance))


def _read_modifiers(syntax: Syntax, decoded: Decoded, words: list[_Word]) -> tuple[list[_Word], list[Modifier]]:
    """Reads what are modifiers of this way; gives back the rest, the operands, and the modifiers seen."""
    table = {name: modifier for modifier in syntax.modifiers for name in modifier.words}
    operands: list[_Word] = []
    seen: list[Modifier] = []
    for word in words:
        head, colon, argument = word.text.partition(":")
        modifier = table.get(head + colon) if not head.endswith("]") else None
        if modifier is None:
            operands.append(word)
            continue
        if modifier in seen and not isinstance(modifier, BufferFormat):
            raise _Misread(word.column, f"{head} is given twice")
        seen.append(modifier)
        with _at(word):
            modifier.read(decoded, head + colon, argument.strip())
    return operands, seen


def _check_required(syntax: Syntax, seen: list[Modifier], end: int) -> None:
    """The modifiers that the text must have: those so marked, and the flags that are fixed to 1."""
    flags = [m for m in syntax.modifiers if isinstance(m, Flag) and (m.slot, 1) in syntax.fixed]
    for modifier in (*syntax.required, *flags):
        if modifier not in seen:
            names = modifier.words
            needed = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
            raise _Misread(end, f"{syntax.mnemonic} with these operands needs {needed}", 1)


def _words(rest: str, start: int) -> list[_Word]:
    """The pieces between blanks and commas that no bracket, bar or quote holds together."""
    words: list[_Word] = []
    depth, bars, begin, comma = 0, 0, -1, False
    for i, letter in enumerate(rest + ","):
        outside = depth == 0 and bars % 2 == 0
        if outside and letter in ", \t":
            if begin >= 0:
                words.append(_Word(rest[begin:i].strip(), start + begin, comma))
                comma = False
            begin = -1
            comma = comma or letter == ","
            continue
        depth += (letter in "[(") - (letter in "])")
        bars += letter == "|"
        begin = i if begin < 0 else begin
    if begin >= 0:
        raise _Misread(start + begin, f"a bracket or bar of {rest[begin:].strip()!r} is not closed")
    return _joined(words)


def _joined(words: list[_Word]) -> list[_Word]:
    """`offset: 4` and `- v1` as one word."""
    joined: list[_Word] = []
    for word in words:
        before = joined[-1] if joined else None
        if before is not None and not word.after_comma and (before.text.endswith(":") or before.text == "-"):
            joined[-1] = _Word(before.text + word.text, before.column, before.after_comma)
        else:
            joined.append(word)
    return joined
