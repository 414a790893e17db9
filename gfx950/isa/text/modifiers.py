"""The modifiers after the operands: each writes its text, nothing where its bits are the default, and reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from gfx950.isa.encoding import Decoded
from gfx950.isa.text import immediates
from gfx950.isa.text.fields import Slot
from gfx950.isa.text.operands import parse_bounded
from gfx950.isa.text.problems import TextProblem


class Modifier(Protocol):
    """One modifier."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words it starts with; those with an argument end in a colon."""
        ...

    def show(self, decoded: Decoded) -> str:
        """Its text, empty for the default."""
        ...

    def read(self, decoded: Decoded, word: str, argument: str) -> None:
        """Puts in what `word` with `argument` says. Raises TextProblem."""
        ...


@dataclass(frozen=True)
class Flag:
    """A word that sets a bit: clamp, glc, offen."""

    word: str
    slot: Slot

    @property
    def words(self) -> tuple[str, ...]:
        """The word."""
        return (self.word,)

    def show(self, decoded: Decoded) -> str:
        """The word where the bit is set."""
        return self.word if self.slot.get(decoded) else ""

    def read(self, decoded: Decoded, word: str, argument: str) -> None:
        """Sets the bit."""
        self.slot.put(decoded, 1)


@dataclass(frozen=True)
class Value:
    """name:number. count: its bits; hexadecimal: from which number on it is printed so (None: never); default: what is
    left unsaid (None: nothing is)."""

    name: str
    slot: Slot
    count: int
    signed: bool = False
    hexadecimal: int | None = None
    default: int | None = 0

    @property
    def words(self) -> tuple[str, ...]:
        """name:"""
        return (f"{self.name}:",)

    def show(self, decoded: Decoded) -> str:
        """name:number."""
        value = self.slot.get(decoded)
        if value == self.default:
            return ""
        if self.signed and value >> self.count - 1:
            value -= 1 << self.count
        in_hexadecimal = self.hexadecimal is not None and abs(value) >= self.hexadecimal
        return f"{self.name}:{hex(value) if in_hexadecimal else value}"

    def read(self, decoded: Decoded, word: str, argument: str) -> None:
        """A number that fits."""
        low, high = (-(1 << self.count - 1), (1 << self.count - 1) - 1) if self.signed else (0, (1 << self.count) - 1)
        value = parse_bounded(argument, low, high, self.name)
        self.slot.put(decoded, value & (1 << self.count) - 1)


@dataclass(frozen=True)
class BoundControl:
    """bound_ctrl:1; 0 says the same, for the sake of old texts."""

    slot: Slot

    @property
    def words(self) -> tuple[str, ...]:
        """bound_ctrl:"""
        return ("bound_ctrl:",)

    def show(self, decoded: Decoded) -> str:
        """bound_ctrl:1 where the bit is set."""
        return "bound_ctrl:1" if self.slot.get(decoded) else ""

    def read(self, decoded: Decoded, word: str, argument: str) -> None:
        """Sets the bit."""
        parse_bounded(argument, 0, 1, "bound_ctrl")
        self.slot.put(decoded, 1)


@dataclass(frozen=True)
class BitList:
    """name:[0,1]: a bit for each slot. default: the value of each bit when the list is left out."""

    name: str
    slots: tuple[Slot, ...]
    default: int = 0
    shortest: int = 0  # how many bits a text must give at least (0: all)

    @property
    def words(self) -> tuple[str, ...]:
        """name:"""
        return (f"{self.name}:",)

    def show(self, decoded: Decoded) -> str:
        """The list, where a bit is not the default."""
        bits = [slot.get(decoded) for slot in self.slots]
        return f"{self.name}:[{','.join(map(str, bits))}]" if any(b != self.default for b in bits) else ""

    def read(self, decoded: Decoded, word: str, argument: str) -> None:
        """As many bits as there are slots; the last may be left out where `shortest` says so."""
        match = re.fullmatch(r"\[([01\s,]*)\]", argument)
        bits = [b.strip() for b in match[1].split(",")] if match is not None else []
        least = self.shortest or len(self.slots)
        if not least <= len(bits) <= len(self.slots) or any(b not in ("0", "1") for b in bits):
            raise TextProblem(f"{self.name} takes {len(self.slots)} bits in brackets, found {argument!r}")
        for slot, text in zip(self.slots, bits, strict=False):
            slot.put(decoded, int(text))


@dataclass(frozen=True)
class Choice:
    """name:WORD, always printed. names: the word of each code."""

    name: str
    slot: Slot
    names: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """name:"""
        return (f"{self.name}:",)

    def show(self, decoded: Decoded) -> str:
        """name:WORD, a number for a code without one."""
        code = self.slot.get(decoded)
        return f"{self.name}:{self.names[code] if code < len(self.names) else code}"

    def read(self, decoded: Decoded, word: str, argument: str) -> None:
        """One of the words."""
        if argument not in self.names:
            raise TextProblem(f"{self.name} takes {', '.join(self.names)}, found {argument!r}")
        self.slot.put(decoded, self.names.index(argument))


@dataclass(frozen=True)
class OutputScale:
    """OMOD: mul:2, mul:4, div:2."""

    slot: Slot

    @property
    def words(self) -> tuple[str, ...]:
        """mul: and div:"""
        return ("mul:", "div:")

    def show(self, decoded: Decoded) -> str:
        """Its text."""
        return ("", "mul:2", "mul:4", "div:2")[self.slot.get(decoded)]

    def read(self, decoded: Decoded, word: str, argument: str) -> None:
        """One of the three; by 1 is none."""
        codes = {"mul:1": 0, "div:1": 0, "mul:2": 1, "mul:4": 2, "div:2": 3}
        if word + argument not in codes:
            raise TextProblem(f"an output is scaled by mul:2, mul:4 or div:2, found {word}{argument}")
        self.slot.put(decoded, codes[word + argument])


# Name of a DPP control with a number, its first code, and the numbers it takes. [CDNA4 ISA 13.3.9]
DPP_NUMBERED = {
    "row_shl": (0x100, range(1, 16)), "row_shr": (0x110, range(1, 16)), "row_ror": (0x120, range(1, 16)),
    "row_newbcast": (0x150, range(16)),
}  # fmt: skip
DPP_NAMED = {
    0x130: "wave_shl:1", 0x134: "wave_rol:1", 0x138: "wave_shr:1", 0x13C: "wave_ror:1", 0x140: "row_mirror",
    0x141: "row_half_mirror", 0x142: "row_bcast:15", 0x143: "row_bcast:31",
}  # fmt: skip


@dataclass(frozen=True)
class DppControl:
    """The lanes of a DPP source: quad_perm:[0,1,2,3], row_shl:1, row_mirror ... only_broadcast: 64-bit operands take
    row_newbcast alone. [CDNA4 ISA 13.3.9]"""

    slot: Slot
    only_broadcast: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Every control's word."""
        named = [n.partition(":") for n in DPP_NAMED.values()]
        return ("quad_perm:", *(f"{n}:" for n in DPP_NUMBERED), *dict.fromkeys(a + b for a, b, _ in named))

    def show(self, decoded: Decoded) -> str:
        """The control by name; LLVM's words for a reserved one."""
        code = self.slot.get(decoded)
        if code < 0x100:
            return f"quad_perm:[{','.join(str(code >> 2 * i & 3) for i in range(4))}]"
        for name, (first, numbers) in DPP_NUMBERED.items():
            if code - first in numbers:
                return f"{name}:{code - first}"
        return DPP_NAMED.get(code, "/* Invalid dpp_ctrl value */")

    def read(self, decoded: Decoded, word: str, argument: str) -> None:
        """Any of them."""
        if self.only_broadcast and word != "row_newbcast:":
            raise TextProblem(f"64-bit operands take row_newbcast only, found {word}{argument}")
        self.slot.put(decoded, self._code(word, argument))

    def _code(self, word: str, argument: str) -> int:
        if word == "quad_perm:":
            match = re.fullmatch(r"\[\s*([0-3])\s*,\s*([0-3])\s*,\s*([0-3])\s*,\s*([0-3])\s*\]", argument)
            if match is None:
                raise TextProblem(f"quad_perm takes four lanes 0..3 in brackets, found {argument!r}")
            return sum(int(lane) << 2 * i for i, lane in enumerate(match.groups()))
        if word[:-1] in DPP_NUMBERED:
            first, numbers = DPP_NUMBERED[word[:-1]]
            return first + parse_bounded(argument, numbers[0], numbers[-1], word[:-1])
        for code, name in DPP_NAMED.items():
            if name == word + argument:
                return code
        allowed = [n for n in DPP_NAMED.values() if n.startswith(word)]
        raise TextProblem(f"expected {' or '.join(allowed)}, found {word}{argument}")


@dataclass(frozen=True)
class Swizzle:
    """The offset of DS_SWIZZLE: offset:swizzle(SWAP,16)."""

    slot: Slot

    @property
    def words(self) -> tuple[str, ...]:
        """offset:"""
        return ("offset:",)

    def show(self, decoded: Decoded) -> str:
        """The swizzle, nothing for 0."""
        offset = self.slot.get(decoded)
        return f"offset:{immediates.swizzle_text(offset)}" if offset else ""

    def read(self, decoded: Decoded, word: str, argument: str) -> None:
        """A swizzle or a number."""
        self.slot.put(decoded, immediates.swizzle_offset(argument))


@dataclass(frozen=True)
class BufferFormat:
    """The data and number format of an MTBUF instruction; dfmt: and nfmt: are the older words."""

    data: Slot
    number: Slot

    @property
    def words(self) -> tuple[str, ...]:
        """format:, dfmt: and nfmt:"""
        return ("format:", "dfmt:", "nfmt:")

    def show(self, decoded: Decoded) -> str:
        """format:[...], nothing for the default."""
        return immediates.format_text(self.data.get(decoded), self.number.get(decoded))

    def read(self, decoded: Decoded, word: str, argument: str) -> None:
        """Names, or the number of both."""
        if word == "dfmt:":
            self.data.put(decoded, parse_bounded(argument, 0, 15, "dfmt"))
        elif word == "nfmt:":
            self.number.put(decoded, parse_bounded(argument, 0, 7, "nfmt"))
        else:
            data, number = immediates.format_numbers(argument)
            self.data.put(decoded, data)
            self.number.put(decoded, number)
