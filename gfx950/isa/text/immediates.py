"""Immediates that have a text of their own: counters, hardware registers, messages, index modes, swizzles, formats."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gfx950.isa.encoding import Decoded
from gfx950.isa.text.fields import Slot
from gfx950.isa.text.operands import parse_bounded, parse_integer
from gfx950.isa.text.problems import TextProblem

# Counter: low bits and high bits of S_WAITCNT's immediate as (low, count). [CDNA4 ISA 12.5]
COUNTERS = {"vmcnt": ((0, 4), (14, 2)), "expcnt": ((4, 3), (0, 0)), "lgkmcnt": ((8, 4), (0, 0))}
HARDWARE_REGISTERS = {
    1: "MODE", 2: "STATUS", 3: "TRAPSTS", 4: "HW_ID", 5: "GPR_ALLOC", 6: "LDS_ALLOC", 7: "IB_STS",
    15: "SH_MEM_BASES", 16: "TBA_LO", 17: "TBA_HI", 18: "TMA_LO", 19: "TMA_HI", 20: "XCC_ID",
    21: "SQ_PERF_SNAPSHOT_DATA", 22: "SQ_PERF_SNAPSHOT_DATA1", 23: "SQ_PERF_SNAPSHOT_PC_LO",
    24: "SQ_PERF_SNAPSHOT_PC_HI",
}  # fmt: skip
MESSAGES = {
    1: "MSG_INTERRUPT", 2: "MSG_GS", 3: "MSG_GS_DONE", 4: "MSG_SAVEWAVE", 5: "MSG_STALL_WAVE_GEN",
    6: "MSG_HALT_WAVES", 7: "MSG_ORDERED_PS_DONE", 8: "MSG_EARLY_PRIM_DEALLOC", 9: "MSG_GS_ALLOC_REQ",
    10: "MSG_GET_DOORBELL", 15: "MSG_SYSMSG",
}  # fmt: skip
_GS_OPERATIONS = {1: "GS_OP_CUT", 2: "GS_OP_EMIT", 3: "GS_OP_EMIT_CUT"}
OPERATIONS = {
    2: _GS_OPERATIONS,
    3: {0: "GS_OP_NOP", **_GS_OPERATIONS},
    15: {1: "SYSMSG_OP_ECC_ERR_INTERRUPT", 2: "SYSMSG_OP_REG_RD", 4: "SYSMSG_OP_TTRACE_PC"},
}
INDEX_MODES = ("SRC0", "SRC1", "SRC2", "DST")
DATA_FORMATS = (
    "INVALID", "8", "16", "8_8", "32", "16_16", "10_11_11", "11_11_10", "10_10_10_2", "2_10_10_10", "8_8_8_8",
    "32_32", "16_16_16_16", "32_32_32", "32_32_32_32", "RESERVED_15",
)  # fmt: skip
NUMBER_FORMATS = ("UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "RESERVED_6", "FLOAT")


def arguments(text: str, name: str) -> list[str] | None:
    """The arguments of `name(a, b)`, None for another text."""
    match = re.fullmatch(rf"{name}\s*\((.*)\)", text, re.DOTALL)
    return None if match is None else [a.strip() for a in match[1].split(",")] if match[1].strip() else []


def named(text: str, names: dict[int, str], what: str, limit: int) -> int:
    """The number of a name, or a number below `limit`. Raises TextProblem with the names."""
    for number, name in names.items():
        if text == name:
            return number
    if not text[:1].isdigit():
        raise TextProblem(f"expected {what} ({', '.join(names.values())}) or its number, found {text!r}")
    return parse_bounded(text, 0, limit - 1, what)


@dataclass(frozen=True)
class WaitCounters:
    """S_WAITCNT: vmcnt(3) expcnt(0) lgkmcnt(0); a counter at its maximum is left out, unless all are."""

    slot: Slot

    def show(self, decoded: Decoded) -> str:
        """The counters that are waited for."""
        value = self.slot.get(decoded)
        counts = {name: _unpack(value, *parts) for name, parts in COUNTERS.items()}
        waits = {n: c for n, c in counts.items() if c != _most(n)} or counts
        return " ".join(f"{name}({count})" for name, count in waits.items())

    def read(self, decoded: Decoded, text: str) -> None:
        """Counters in any order, between spaces, commas or &; or the number of the whole immediate."""
        if re.fullmatch(r"-?\w+", text):
            self.slot.put(decoded, parse_bounded(text, 0, 0xFFFF, "the counters"))
            return
        value = sum(_pack(_most(name), *parts) for name, parts in COUNTERS.items())
        pieces = [p for p in re.split(r"\s*[,&]\s*|\s+(?![^(]*\))", text) if p]
        for piece in pieces:
            value = self._counter(value, piece)
        self.slot.put(decoded, value)

    def _counter(self, value: int, piece: str) -> int:
        match = re.fullmatch(r"(\w+?)(_sat)?\s*\(\s*(\w+)\s*\)", piece)
        if match is None or match[1] not in COUNTERS:
            raise TextProblem(f"expected vmcnt(), expcnt() or lgkmcnt(), found {piece!r}")
        name, most = match[1], _most(match[1])
        count = parse_integer(match[3]) if match[2] else parse_bounded(match[3], 0, most, name)
        mask = _pack(most, *COUNTERS[name])
        return value & ~mask | _pack(min(count, most), *COUNTERS[name])


def _most(name: str) -> int:
    (_, low), (_, high) = COUNTERS[name]
    return (1 << low + high) - 1


def _unpack(value: int, low: tuple[int, int], high: tuple[int, int]) -> int:
    return (value >> low[0] & (1 << low[1]) - 1) | (value >> high[0] & (1 << high[1]) - 1) << low[1]


def _pack(count: int, low: tuple[int, int], high: tuple[int, int]) -> int:
    return (count & (1 << low[1]) - 1) << low[0] | count >> low[1] << high[0]


@dataclass(frozen=True)
class HardwareRegister:
    """S_GETREG, S_SETREG: hwreg(HW_REG_MODE), or hwreg(name, offset, size). [CDNA4 ISA 5.8]"""

    slot: Slot

    def show(self, decoded: Decoded) -> str:
        """The register, and the bits of it where they are not all 32."""
        value = self.slot.get(decoded)
        number, offset, size = value & 63, value >> 6 & 31, (value >> 11) + 1
        name = f"HW_REG_{HARDWARE_REGISTERS[number]}" if number in HARDWARE_REGISTERS else str(number)
        return f"hwreg({name})" if (offset, size) == (0, 32) else f"hwreg({name}, {offset}, {size})"

    def read(self, decoded: Decoded, text: str) -> None:
        """The same, or the number of the whole immediate."""
        parts = arguments(text, "hwreg")
        if parts is None:
            self.slot.put(decoded, parse_bounded(text, -0x8000, 0xFFFF, "hwreg() or its number") & 0xFFFF)
            return
        if len(parts) not in (1, 3):
            raise TextProblem(f"hwreg takes a register, or a register, an offset and a size, found {text!r}")
        names = {number: f"HW_REG_{name}" for number, name in HARDWARE_REGISTERS.items()}
        number = named(parts[0], names, "a hardware register", 64)
        offset, size = (0, 32) if len(parts) == 1 else (
            parse_bounded(parts[1], 0, 31, "the offset"),
            parse_bounded(parts[2], 1, 32, "the size"),
        )  # fmt: skip
        self.slot.put(decoded, number | offset << 6 | size - 1 << 11)


@dataclass(frozen=True)
class Message:
    """S_SENDMSG: sendmsg(MSG_GS, GS_OP_EMIT, 1). [CDNA4 ISA 12.5.1]"""

    slot: Slot

    def show(self, decoded: Decoded) -> str:
        """The message, operation and stream by name where they have one."""
        value = self.slot.get(decoded)
        message, operation, stream = value & 15, value >> 4 & 7, value >> 8 & 3
        operations = OPERATIONS.get(message, {})
        if message in MESSAGES and operation in operations and not (stream and (operation == 0 or message == 15)):
            more = f", {stream}" if message != 15 and operation else ""
            return f"sendmsg({MESSAGES[message]}, {operations[operation]}{more})"
        if message in MESSAGES and not operations and operation == stream == 0:
            return f"sendmsg({MESSAGES[message]})"
        plain = value & ~0x37F == 0
        return f"sendmsg({message}, {operation}, {stream})" if plain else str(value)

    def read(self, decoded: Decoded, text: str) -> None:
        """The same, or the number of the whole immediate."""
        parts = arguments(text, "sendmsg")
        if parts is None:
            self.slot.put(decoded, parse_bounded(text, 0, 0xFFFF, "sendmsg() or its number"))
            return
        if not 1 <= len(parts) <= 3:
            raise TextProblem(f"sendmsg takes a message, an operation and a stream, found {text!r}")
        message = named(parts[0], MESSAGES, "a message", 16)
        operations = OPERATIONS.get(message, {})
        operation = named(parts[1], operations, "an operation", 8) if len(parts) > 1 else 0
        stream = parse_bounded(parts[2], 0, 3, "the stream") if len(parts) > 2 else 0
        self.slot.put(decoded, message | operation << 4 | stream << 8)


@dataclass(frozen=True)
class IndexMode:
    """The operands that GPR indexing moves: gpr_idx(SRC0,DST). [CDNA4 ISA 6.6]"""

    slot: Slot
    count: int

    def show(self, decoded: Decoded) -> str:
        """The operands by name."""
        value = self.slot.get(decoded)
        if value > 15:
            return str(value)
        return f"gpr_idx({','.join(name for i, name in enumerate(INDEX_MODES) if value >> i & 1)})"

    def read(self, decoded: Decoded, text: str) -> None:
        """The same, or a number."""
        parts = arguments(text, "gpr_idx")
        if parts is None:
            self.slot.put(decoded, parse_bounded(text, 0, 15, "gpr_idx() or its number"))
            return
        unknown = [p for p in parts if p not in INDEX_MODES]
        if unknown:
            raise TextProblem(f"gpr_idx takes {', '.join(INDEX_MODES)}, found {unknown[0]!r}")
        self.slot.put(decoded, sum(1 << INDEX_MODES.index(p) for p in set(parts)))


# ---- DS_SWIZZLE ---------------------------------------------------------------------------------------------------


def swizzle_text(offset: int) -> str:
    """A DS_SWIZZLE offset as swizzle(...), or as a number where that would not give the same bits. [CDNA4 ISA 12.12]"""
    text = _swizzle_name(offset)
    return text if swizzle_offset(text) == offset else str(offset)


def _swizzle_name(offset: int) -> str:
    if offset >= 0xE000:
        return f"swizzle(FFT,{offset & 31})"
    if offset >= 0xC000:
        return f"swizzle(ROTATE,{offset >> 10 & 1},{offset >> 5 & 31})"
    if offset & 0xFF00 == 0x8000:
        return f"swizzle(QUAD_PERM,{','.join(str(offset >> 2 * i & 3) for i in range(4))})"
    if offset & 0x8000:
        return str(offset)
    return f"swizzle({_bitmask_text(offset & 31, offset >> 5 & 31, offset >> 10)})"


def _bitmask_text(kept: int, ones: int, flipped: int) -> str:
    if kept == 31 and ones == 0 and flipped:
        if flipped & flipped - 1 == 0:
            return f"SWAP,{flipped}"
        if flipped & flipped + 1 == 0:
            return f"REVERSE,{flipped + 1}"
    group = 32 - kept
    if group > 1 and group & group - 1 == 0 and ones < group and flipped == 0:
        return f"BROADCAST,{group},{ones}"
    pairs = [((ones ^ flipped) >> i & 1, ((kept | ones) ^ flipped) >> i & 1) for i in range(4, -1, -1)]
    letters = {(0, 0): "0", (1, 1): "1", (0, 1): "p", (1, 0): "i"}
    return f'BITMASK_PERM,"{"".join(letters[p] for p in pairs)}"'


def swizzle_offset(text: str) -> int:
    """The offset of swizzle(...) or of a number. Raises TextProblem."""
    parts = arguments(text, "swizzle")
    if parts is None:
        return parse_bounded(text, 0, 0xFFFF, "swizzle() or an offset")
    counts = {"FFT": 1, "ROTATE": 2, "QUAD_PERM": 4, "SWAP": 1, "REVERSE": 1, "BROADCAST": 2, "BITMASK_PERM": 1}
    if not parts or parts[0] not in counts or len(parts) - 1 != counts[parts[0]]:
        forms = ", ".join(f"{mode} with {n}" for mode, n in counts.items())
        raise TextProblem(f"swizzle takes a mode and its numbers ({forms}), found {text!r}")
    mode, numbers = parts[0], parts[1:]
    if mode == "BITMASK_PERM":
        return _bitmask_offset(numbers[0])
    return _swizzle_numbers(mode, numbers)


def _swizzle_numbers(mode: str, numbers: list[str]) -> int:
    if mode == "QUAD_PERM":
        return 0x8000 | sum(parse_bounded(n, 0, 3, "a lane of four") << 2 * i for i, n in enumerate(numbers))
    if mode == "FFT":
        return 0xE000 | parse_bounded(numbers[0], 0, 31, "the FFT mask")
    if mode == "ROTATE":
        direction = parse_bounded(numbers[0], 0, 1, "the direction")
        return 0xC000 | direction << 10 | parse_bounded(numbers[1], 0, 31, "the rotation") << 5
    powers = {"SWAP": (1, 2, 4, 8, 16), "REVERSE": (2, 4, 8, 16, 32), "BROADCAST": (2, 4, 8, 16, 32)}[mode]
    group = parse_integer(numbers[0], "a group size")
    if group not in powers:
        raise TextProblem(f"{mode} takes {', '.join(map(str, powers))}, found {group}")
    if mode == "BROADCAST":
        return 32 - group | parse_bounded(numbers[1], 0, group - 1, "the lane") << 5
    return 31 | (group if mode == "SWAP" else group - 1) << 10


def _bitmask_offset(text: str) -> int:
    letters = text.strip('"')
    if not re.fullmatch(r"[01pi]{5}", letters):
        raise TextProblem(f"BITMASK_PERM takes five letters of 0, 1, p and i, found {text}")
    bits = {letter: int("".join(str(int(c in letter)) for c in letters), 2) for letter in ("pi", "1", "i")}
    return bits["pi"] | bits["1"] << 5 | bits["i"] << 10


# ---- buffer formats -----------------------------------------------------------------------------------------------


def format_text(data: int, number: int) -> str:
    """format:[...] of DFMT and NFMT, nothing for 8-bit UNORM, which is the default."""
    parts = [f"BUF_DATA_FORMAT_{DATA_FORMATS[data]}"] if data != 1 else []
    parts += [f"BUF_NUM_FORMAT_{NUMBER_FORMATS[number]}"] if number else []
    return f"format:[{','.join(parts)}]" if parts else ""


def format_numbers(text: str) -> tuple[int, int]:
    """DFMT and NFMT of the text after `format:`. Raises TextProblem."""
    if not text.startswith("["):
        both = parse_bounded(text, 0, 127, "the format")
        return both & 15, both >> 4
    data, number = 1, 0
    for part in text.strip("[] ").split(","):
        name = part.strip()
        if name.removeprefix("BUF_DATA_FORMAT_") in DATA_FORMATS and name.startswith("BUF_DATA"):
            data = DATA_FORMATS.index(name.removeprefix("BUF_DATA_FORMAT_"))
        elif name.removeprefix("BUF_NUM_FORMAT_") in NUMBER_FORMATS and name.startswith("BUF_NUM"):
            number = NUMBER_FORMATS.index(name.removeprefix("BUF_NUM_FORMAT_"))
        else:
            raise TextProblem(f"expected BUF_DATA_FORMAT_... and BUF_NUM_FORMAT_..., found {name!r}")
    return data, number
