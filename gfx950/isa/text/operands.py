"""The operands between the commas: each writes the text of its bits and reads the bits of its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol

from gfx950.isa.encoding import Decoded
from gfx950.isa.operand_codes import LITERAL, TWO_PI, VGPR_FIRST
from gfx950.isa.text import registers
from gfx950.isa.text.fields import Field, Slot
from gfx950.isa.text.problems import TextProblem
from gfx950.isa.text.registers import UNKNOWN, Register, parse_register

LONGEST_NUMBER = 80  # characters: 64 bits in binary, and a little more
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)")
_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")


class Operand(Protocol):
    """One operand of an instruction."""

    def show(self, decoded: Decoded) -> str:
        """The text of the operand's bits."""
        ...

    def read(self, decoded: Decoded, text: str) -> None:
        """Puts the text's bits in. Raises TextProblem saying what was expected."""
        ...


def parse_integer(text: str, what: str = "a number") -> int:
    """A decimal, 0x or 0b number. Raises TextProblem."""
    if not _INTEGER.fullmatch(text):
        raise TextProblem(f"expected {what}, found {text!r}")
    if len(text) > LONGEST_NUMBER:
        raise TextProblem(f"{text[:20]}... is too large: a number has at most 64 bits")
    return int(text.replace("+", ""), 0) if not re.fullmatch(r"[-+]?0\d+", text) else int(text, 8)


def parse_bounded(text: str, low: int, high: int, what: str) -> int:
    """A number within bounds. Raises TextProblem."""
    value = parse_integer(text, what)
    if not low <= value <= high:
        raise TextProblem(f"{what} must be {low}..{high}, found {text}")
    return value


def check_words(register: Register, words: int, text: str) -> None:
    """Raises TextProblem where a register has another width than the operand."""
    if register.words is not None and register.words != words:
        plural = "s" if words > 1 else ""
        raise TextProblem(f"expected {words} register{plural}, found {text}, which is {register.words}")


def check_even(register: Register, text: str) -> None:
    """Raises TextProblem where vector registers start at an odd number. [CDNA4 ISA 3.6.4]"""
    if register.index % 2:
        raise TextProblem(f"vector registers must start at an even number here, found {text}")


@dataclass(frozen=True)
class Vector:
    """Vector registers. files: v, a or va; acc: the bit that says a, where both are possible. offset: what the field
    holds for v0. any_start: an odd first register is fine too, even: of a single one it is not; follows: another
    operand has set `acc`."""

    slot: Slot
    words: int
    files: str = "v"
    acc: Slot | None = None
    offset: int = 0
    any_start: bool = False
    follows: bool = False
    even: bool = False

    def show(self, decoded: Decoded) -> str:
        """v1, v[2:3] or a[4:7]."""
        index = self.slot.get(decoded) - self.offset
        if not 0 <= index <= registers.VGPRS - self.words:
            return UNKNOWN
        is_a = self.files == "a" or (self.acc is not None and self.acc.get(decoded) != 0)
        return registers.vector_text("a" if is_a else "v", index, self.words)

    def read(self, decoded: Decoded, text: str) -> None:
        """Takes a register of the right file and width."""
        register = parse_register(text)
        if register is None or register.file not in self.files:
            names = " or ".join(registers.vector_text(letter, 0, self.words) for letter in self.files)
            raise TextProblem(f"expected a vector register such as {names}, found {text!r}")
        check_words(register, self.words, text)
        if (self.words > 1 and not self.any_start) or self.even:
            check_even(register, text)
        self.slot.put(decoded, register.index + self.offset)
        if self.acc is not None:
            self._set_file(decoded, int(register.file == "a"), text)

    def _set_file(self, decoded: Decoded, is_a: int, text: str) -> None:
        assert self.acc is not None
        if self.follows and self.acc.get(decoded) != is_a:
            raise TextProblem(f"{text} must be in the same register file (v or a) as the operands before it")
        self.acc.put(decoded, is_a)


@dataclass(frozen=True)
class Scalar:
    """Scalar registers, as a destination or a base. scale: the field holds the code divided by it. off: the code that
    the word `off` stands for. highest: the last code that is allowed."""

    slot: Slot
    words: int
    scale: int = 1
    off: int | None = None
    highest: int = 127

    def show(self, decoded: Decoded) -> str:
        """s1, s[2:3], vcc, m0, exec, ttmp0 or off."""
        code = self.slot.get(decoded)
        return "off" if code == self.off else registers.scalar_text(code * self.scale, self.words)

    def read(self, decoded: Decoded, text: str) -> None:
        """Takes a scalar register of the right width."""
        if self.off is not None and text == "off":
            self.slot.put(decoded, self.off)
            return
        register = parse_register(text)
        if register is None or register.file != "s" or register.index > self.highest:
            name = registers.vector_text("s", 0, self.words)
            raise TextProblem(f"expected a scalar register such as {name}, found {text!r}")
        check_words(register, self.words, text)
        alignment = registers.scalar_alignment(self.words)
        if self.words > 1 and register.index % alignment:
            raise TextProblem(f"{self.words} scalar registers must start at a multiple of {alignment}, found {text}")
        self.slot.put(decoded, register.index // self.scale)


@dataclass(frozen=True)
class Word:
    """A fixed word: `off`, or vcc where nothing else can stand."""

    word: str

    def show(self, decoded: Decoded) -> str:
        """The word."""
        return self.word

    def read(self, decoded: Decoded, text: str) -> None:
        """Accepts the word alone."""
        if text != self.word:
            raise TextProblem(f"expected {self.word}, found {text!r}")


@dataclass(frozen=True)
class Source:
    """A source code: scalar register, constant, literal, and from 256 on a vector register.

    kind: f16 bf16 f16x2 bf16x2 f32 f64 i16 i32 i64, what constants of the operand are. files: the vector files it may
    name ("" for none); acc: the bit that says a. scalars: whether scalar registers may stand there, constants: whether
    constants; literal: whether a literal may follow. offset: the field's code for v0. follows: as in `Vector`.
    """

    slot: Slot
    words: int
    kind: str
    files: str = "v"
    acc: Slot | None = None
    scalars: bool = True
    constants: bool = True
    literal: bool = False
    offset: int = VGPR_FIRST
    follows: bool = False

    def show(self, decoded: Decoded) -> str:
        """A register, a constant or the literal."""
        code = self.slot.get(decoded)
        if code >= self.offset and self.files:
            return self._vector().show(decoded)
        if code == LITERAL and self.literal:
            return literal_text(decoded.literal or 0, self.kind)
        return source_text(code, self.words, self.kind)

    def _vector(self) -> Vector:
        return Vector(self.slot, self.words, self.files, self.acc, self.offset, follows=self.follows)

    def read(self, decoded: Decoded, text: str) -> None:
        """Takes what `show` writes; numbers become inline constants where they are some, else the literal."""
        register = parse_register(text)
        if register is None:
            self._read_constant(decoded, text)
        elif register.file == "s":
            self._read_scalar(decoded, register, text)
        elif not self.files:
            raise TextProblem(f"a vector register cannot stand here, found {text}")
        else:
            self._vector().read(decoded, text)

    def _read_scalar(self, decoded: Decoded, register: Register, text: str) -> None:
        if not self.scalars:
            raise TextProblem(f"only a vector register can stand here, found {text}")
        check_words(register, self.words, text)
        if register.words is not None and register.index % registers.scalar_alignment(self.words):
            raise TextProblem(f"{self.words} scalar registers must start at an even number, found {text}")
        self.slot.put(decoded, register.index)

    def _read_constant(self, decoded: Decoded, text: str) -> None:
        if not self.constants:
            raise TextProblem(f"expected a register, found {text!r}")
        code, literal = constant(text, self.kind)
        if code is None:
            if not self.literal:
                raise TextProblem(f"{text} is no inline constant, and a literal cannot stand here")
            put_literal(decoded, literal, text)
            code = LITERAL
        self.slot.put(decoded, code)


def source_text(code: int, words: int, kind: str) -> str:
    """A scalar register, a named source or an inline constant."""
    text = registers.constant_text(code, kind)
    if text is not None:
        return text
    if code in registers.SOURCES:
        return registers.SOURCES[code]
    return registers.scalar_text(code, words)


def literal_text(literal: int, kind: str) -> str:
    """A literal in hexadecimal; in lit() where the bare number would be an inline constant."""
    code, _ = _integer_constant(literal, kind)
    return f"0x{literal:x}" if code is None else f"lit(0x{literal:x})"


def constant(text: str, kind: str) -> tuple[int | None, int]:
    """The inline code of a number (None: it needs the literal), and its 32 literal bits."""
    forced = re.fullmatch(r"lit\((.*)\)", text)
    if forced is not None:
        return None, _literal_bits(parse_integer(forced[1].strip()), kind, text)
    if _INTEGER.fullmatch(text):
        code, value = _integer_constant(parse_integer(text), kind)
        return code, 0 if code is not None else _literal_bits(value, kind, text)
    if not _FLOAT.fullmatch(text):
        raise TextProblem(f"expected a register or a number, found {text!r}")
    return _float_constant(float(text), kind)


# Formats whose integers may be written without their sign: 0xffffffff is -1.
_SIGNED = {"f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "i32": 32, "f32": 32}


def _integer_constant(value: int, kind: str) -> tuple[int | None, int]:
    """An integer as LLVM takes it: a small one is itself, others are the bits of the operand's format (for f64 the
    high 32 bits of it)."""
    width = _SIGNED.get(kind)
    negative = width is not None and value >> width - 1 == 1
    code = registers.integer_code(value - (1 << (width or 0)) if negative else value)
    if code is None:
        code = registers.inline_code(value << 32 if kind == "f64" and 0 <= value < 1 << 32 else value, kind)
    return code, value


def _float_constant(value: float, kind: str) -> tuple[int | None, int]:
    bits = registers.float_bits(value, kind)
    code = registers.inline_code(bits, kind)
    if kind.startswith("bf16") and registers.inline_code(registers.float_bits(value, "f32"), "f32") == TWO_PI:
        code = TWO_PI  # the hardware's constant is cut to bf16, not rounded
    if code is None and kind in ("f64", "i64"):
        if bits & 0xFFFFFFFF:
            raise TextProblem(f"{value} has 64 bits: a literal holds the high 32, and its low ones are not 0")
        bits >>= 32
    return code, bits


def _literal_bits(value: int, kind: str, text: str) -> int:
    width = 16 if kind in ("f16", "bf16", "i16") else 32
    if kind in ("f64", "i64") and value >> 32 and value & 0xFFFFFFFF == 0:
        value >>= 32
    if not -(1 << width - 1) <= value < 1 << width:
        raise TextProblem(f"{text} does not fit the {width} bits of a literal here")
    return value & (1 << width) - 1


def put_literal(decoded: Decoded, literal: int, text: str) -> None:
    """Sets the literal; two operands may share one. Raises TextProblem where they differ."""
    if decoded.literal is not None and decoded.literal != literal:
        raise TextProblem(f"an instruction has one literal: {text} differs from 0x{decoded.literal:x}")
    decoded.literal = literal


@dataclass(frozen=True)
class TrailingLiteral:
    """The literal of V_FMAMK, V_FMAAK and their f16 kin, always there."""

    kind: str

    def show(self, decoded: Decoded) -> str:
        """The literal in hexadecimal."""
        return f"0x{decoded.literal or 0:x}"

    def read(self, decoded: Decoded, text: str) -> None:
        """Any number, as 32 or 16 bits."""
        if _INTEGER.fullmatch(text):
            bits = _literal_bits(parse_integer(text), self.kind, text)
        elif _FLOAT.fullmatch(text):
            bits = registers.float_bits(float(text), self.kind)
        else:
            raise TextProblem(f"expected a number, found {text!r}")
        put_literal(decoded, bits, text)


@dataclass(frozen=True)
class Signed:
    """A source with NEG and ABS, or SEXT: -v1, |v1|, -|v1|, neg(1), sext(v1)."""

    source: Source
    neg: Slot
    absolute: Slot | None = None
    sext: Slot | None = None

    def show(self, decoded: Decoded) -> str:
        """The source within its signs."""
        text = self.source.show(decoded)
        if self.sext is not None and self.sext.get(decoded):
            return f"sext({text})"
        negated, is_absolute = self.neg.get(decoded), self.absolute is not None and self.absolute.get(decoded)
        if is_absolute:
            return f"-|{text}|" if negated else f"|{text}|"
        if negated:
            return f"neg({text})" if text[0].isdigit() or text[0] == "-" else f"-{text}"
        return text

    def read(self, decoded: Decoded, text: str) -> None:
        """Takes the signs off, then the source."""
        neg, inner = _unsigned(text)
        magnitude = re.fullmatch(r"\|(.*)\||abs\((.*)\)", inner)
        if magnitude is not None:
            if self.absolute is None:
                raise TextProblem(f"this operand has no absolute value, found {text!r}")
            self.absolute.put(decoded, 1)
            inner = (magnitude[1] or magnitude[2] or "").strip()
        extended = re.fullmatch(r"sext\((.*)\)", inner)
        if extended is not None:
            if self.sext is None:
                raise TextProblem(f"this operand is not sign-extended, found {text!r}")
            self.sext.put(decoded, 1)
            inner = extended[1].strip()
        self.neg.put(decoded, int(neg))
        self.source.read(decoded, inner)


def _unsigned(text: str) -> tuple[bool, str]:
    """Whether a text negates, and what; the sign of a number is the number's."""
    called = re.fullmatch(r"neg\((.*)\)", text)
    if called is not None:
        return True, called[1].strip()
    if text.startswith("-") and not re.match(r"-\s*[\d.]", text):
        return True, text[1:].strip()
    return False, text


@dataclass(frozen=True)
class Extended:
    """An SDWA source of an integer: v1 or sext(v1)."""

    source: Source
    sext: Slot

    def show(self, decoded: Decoded) -> str:
        """The source, in sext() where it is sign-extended."""
        text = self.source.show(decoded)
        return f"sext({text})" if self.sext.get(decoded) else text

    def read(self, decoded: Decoded, text: str) -> None:
        """Takes sext() off."""
        match = re.fullmatch(r"sext\((.*)\)", text)
        self.sext.put(decoded, int(match is not None))
        self.source.read(decoded, match[1].strip() if match else text)


@dataclass(frozen=True)
class SdwaCode:
    """An SDWA source as a 9-bit code: its S bit clear means a vector register."""

    index: int

    def get(self, decoded: Decoded) -> int:
        """The code, 256 and more for vector registers."""
        scalar = Field(f"s{self.index}", "sdwa").get(decoded)
        return self._register().get(decoded) + (0 if scalar else VGPR_FIRST)

    def put(self, decoded: Decoded, value: int) -> None:
        """Writes register and S bit."""
        self._register().put(decoded, value & 0xFF)
        Field(f"s{self.index}", "sdwa").put(decoded, int(value < VGPR_FIRST))

    def _register(self) -> Field:
        return Field("src0", "sdwa") if self.index == 0 else Field("src1")


@dataclass(frozen=True)
class SdwaMask:
    """The mask an SDWA compare writes: vcc, or the pair in SDST."""

    def show(self, decoded: Decoded) -> str:
        """vcc or the pair."""
        return Scalar(Field("sdst", "sdwa"), 2).show(decoded) if Field("sd", "sdwa").get(decoded) else "vcc"

    def read(self, decoded: Decoded, text: str) -> None:
        """vcc is the short form."""
        Field("sd", "sdwa").put(decoded, int(text != "vcc"))
        if text != "vcc":
            Scalar(Field("sdst", "sdwa"), 2).read(decoded, text)


@dataclass(frozen=True)
class Number:
    """An immediate. count: its bits; signed: they are two's complement. hexadecimal: how it is printed, always so,
    never, or where it is `large`, which is no inline constant."""

    slot: Slot
    count: int
    signed: bool = False
    hexadecimal: Literal["always", "never", "large"] = "never"

    def show(self, decoded: Decoded) -> str:
        """The number."""
        value = self.slot.get(decoded)
        if self.signed and value >> self.count - 1:
            value -= 1 << self.count
        large = self.hexadecimal == "large" and registers.integer_code(value) is None
        return hex(value) if large or self.hexadecimal == "always" else str(value)

    def read(self, decoded: Decoded, text: str) -> None:
        """A number that fits; where nothing says the sign, both readings of the bits do."""
        low = -(1 << self.count - 1)
        high = (1 << self.count - 1) - 1 if self.signed else (1 << self.count) - 1
        value = parse_bounded(text, low, high, f"a number of {self.count} bits")
        self.slot.put(decoded, value & (1 << self.count) - 1)
