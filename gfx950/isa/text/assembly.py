"""Lines of assembly text as bytes: LLVM's spelling, read by the tables that print it."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gfx950.isa.encoding import Decoded, blank, encode
from gfx950.isa.other_chips import why_unknown
from gfx950.isa.text.catalog import SUFFIXES, mnemonics
from gfx950.isa.text.modifiers import BufferFormat, Flag, Modifier
from gfx950.isa.text.operands import Operand, Word, parse_integer
from gfx950.isa.text.problems import TextProblem
from gfx950.isa.text.scalar import Branch
from gfx950.isa.text.statements import Statement, TextWord, statements_of
from gfx950.isa.text.syntax import Syntax

Symbols = Mapping[str, int]
_DATA = {".long": 4, ".short": 2, ".byte": 1, ".quad": 8}
_FILLED = 1 << 24  # bytes of a `.fill`: more is a mistake


def assemble(text: str, pc: int = 0, symbols: Symbols | None = None) -> bytes:
    """The bytes of assembly text: instructions, labels, `.long` and its like, `.fill`, comments (`//`, `;`, `/* */`).

    pc: the address of the first byte; symbols: addresses of names that the text does not define. Raises AssemblyError,
    which is a ValueError, naming line, column and what was expected.
    """
    statements, labels = statements_of(text)
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


def _assemble(statement: Statement, symbols: Symbols) -> bytes:
    if statement.mnemonic in _DATA:
        return _data(statement)
    if statement.mnemonic == ".fill":
        return _fill(statement)
    ways = mnemonics().get(statement.mnemonic)
    if ways is None:
        raise statement.error(0, _unknown(statement.mnemonic))
    problems: list[_Misread] = []
    for syntax in ways:
        try:
            return encode(_read(syntax, statement, symbols))
        except _Misread as problem:
            problems.append(problem)
    best = max(problems, key=lambda p: (p.understood, p.column))
    raise statement.error(best.column, best.message)


def _unknown(mnemonic: str) -> str:
    base = next((mnemonic.removesuffix(s) for s in SUFFIXES if mnemonic.endswith(s)), "")
    if base in mnemonics():
        forms = ", ".join(dict.fromkeys(s.mnemonic for s in mnemonics()[base]))
        return f"{base} has no form {mnemonic}; it has {forms}"
    if elsewhere := why_unknown(base or mnemonic):
        return elsewhere
    near = difflib.get_close_matches(mnemonic, mnemonics(), n=3)
    return f"no gfx950 instruction is called {mnemonic!r}; nearest: {', '.join(near) or 'none'}"


def _data(statement: Statement) -> bytes:
    size = _DATA[statement.mnemonic]
    try:
        numbers = [parse_integer(part.strip()) for part in statement.rest.split(",")]
        return b"".join((n & (1 << 8 * size) - 1).to_bytes(size, "little") for n in numbers)
    except TextProblem as problem:
        raise statement.error(statement.start + 1, str(problem)) from None


def _fill(statement: Statement) -> bytes:
    """`.fill COUNT, BYTES, VALUE`; LLVM's other sizes and defaults are not read."""
    try:
        numbers = [parse_integer(part.strip()) for part in statement.rest.split(",")]
    except TextProblem as problem:
        raise statement.error(statement.start + 1, str(problem)) from None
    if len(numbers) != 3 or numbers[1] not in (1, 2, 4) or not 0 <= numbers[0] * numbers[1] <= _FILLED:
        raise statement.error(
            statement.start + 1, f".fill takes COUNT, BYTES, VALUE: 1, 2 or 4 bytes, {_FILLED} in all"
        )
    count, size, value = numbers
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little") * count


class _Misread(Exception):
    """A way of writing that a statement is not: the column, and why. understood: how likely this way was meant, 1 where
    operands or a modifier that makes it are missing, 2 where they are all there."""

    def __init__(self, column: int, message: str, understood: int = 2) -> None:
        super().__init__(column, message)
        self.column = column
        self.message = message
        self.understood = understood


def _read(syntax: Syntax, statement: Statement, symbols: Symbols) -> Decoded:
    """The instruction's bits, read in one way: modifiers first, for some say how wide an operand is."""
    decoded = blank(syntax.instruction, syntax.form, syntax.extra)
    decoded.pc = statement.pc or 0
    for slot, value in (*syntax.defaults, *syntax.fixed):
        slot.put(decoded, value)
    end = len(statement.text)
    words = [TextWord(statement.rest.strip(), statement.start + 1, False)] if syntax.any_operands else statement.words
    texts, seen = _read_modifiers(syntax, decoded, words)
    operands = _operands(syntax, texts, end)
    _check_required(syntax, seen, end)
    for operand, word in zip(operands, texts, strict=True):
        with _at(word):
            _read_operand(operand, decoded, word.text, symbols, statement)
    for slot, value in syntax.fixed:
        if slot.get(decoded) != value:
            flag = next((m.word for m in syntax.modifiers if isinstance(m, Flag) and m.slot == slot), "a modifier")
            raise _Misread(end, f"{syntax.mnemonic} with these operands must not have {flag}")
    return decoded


def _operands(syntax: Syntax, words: list[TextWord], end: int) -> list[Operand]:
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


def _stray(syntax: Syntax, word: TextWord) -> str:
    has = f"it has {', '.join(syntax.modifier_words)}" if syntax.modifiers else "it has none"
    return f"{word.text!r} is no modifier of {syntax.mnemonic} ({has}), and an operand needs a comma before it"


@contextmanager
def _at(word: TextWord) -> Iterator[None]:
    """Gives what cannot be read the column of its word."""
    try:
        yield
    except TextProblem as problem:
        raise _Misread(word.column, str(problem)) from None


def _read_operand(operand: Operand, decoded: Decoded, text: str, symbols: Symbols, statement: Statement) -> None:
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


def _read_modifiers(syntax: Syntax, decoded: Decoded, words: list[TextWord]) -> tuple[list[TextWord], list[Modifier]]:
    """Reads what are modifiers of this way; gives back the rest, the operands, and the modifiers seen."""
    operands: list[TextWord] = []
    seen: list[Modifier] = []
    for word in words:
        head, colon, argument = word.text.partition(":")
        modifier = syntax.modifier_words.get(head + colon) if not head.endswith("]") else None
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
