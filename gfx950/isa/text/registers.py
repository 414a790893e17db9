"""Registers and inline constants as LLVM spells them, both ways. [CDNA4 ISA 5.2, 6.1 table of source codes]"""

from __future__ import annotations

import functools
import re
import struct
from dataclasses import dataclass

from gfx950.isa.operand_codes import INLINE_FLOATS, TWO_PI, TWO_PI_BITS
from gfx950.isa.text.problems import TextProblem

SGPRS = 102
TTMP_FIRST, TTMPS = 108, 16
VGPRS = 256
SPECIAL = {
    102: "flat_scratch_lo", 103: "flat_scratch_hi", 104: "xnack_mask_lo", 105: "xnack_mask_hi", 106: "vcc_lo",
    107: "vcc_hi", 124: "m0", 126: "exec_lo", 127: "exec_hi",
}  # fmt: skip
SPECIAL_PAIRS = {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}
# Read-only sources, spelt alike for every width.
SOURCES = {
    235: "src_shared_base", 236: "src_shared_limit", 237: "src_private_base", 238: "src_private_limit",
    239: "src_pops_exiting_wave_id", 251: "src_vccz", 252: "src_execz", 253: "src_scc",
}  # fmt: skip
UNKNOWN = "/*INV_OP*/"  # what LLVM prints for an operand code that means nothing

_CODES = {name: code for table in (SPECIAL, SOURCES) for code, name in table.items()}
_CODES |= {name.removeprefix("src_"): code for code, name in SOURCES.items()}
_PAIR_CODES = {name: code for code, name in SPECIAL_PAIRS.items()}
_REGISTER = re.compile(r"(v|s|a|ttmp)(?:(\d+)|\[\s*(\d+)\s*(?::\s*(\d+)\s*)?\])")


def vector_text(letter: str, index: int, words: int) -> str:
    """v1 or v[2:3]."""
    return f"{letter}{index}" if words == 1 else f"{letter}[{index}:{index + words - 1}]"


def scalar_text(code: int, words: int) -> str:
    """A scalar register code 0..127 of some width; /*INV_OP*/ where no register starts."""
    if code + words <= SGPRS:
        return vector_text("s", code, words)
    if TTMP_FIRST <= code <= TTMP_FIRST + TTMPS - words:
        return vector_text("ttmp", code - TTMP_FIRST, words)
    names = SPECIAL if words == 1 else SPECIAL_PAIRS if words == 2 else {}
    return names.get(code, UNKNOWN)


@dataclass(frozen=True)
class Register:
    """A register as text names it. file: v, a or s (with ttmp and the named ones); index: number in v and a, scalar
    code in s; words: its 32-bit registers, None where the name stands for any width."""

    file: str
    index: int
    words: int | None


@functools.lru_cache(maxsize=4096)
def parse_register(text: str) -> Register | None:
    """The register a text names, None if it is none. Raises TextProblem for one that does not exist."""
    if text.startswith("["):
        return _listed(text)
    if text in _CODES:
        code = _CODES[text]
        return Register("s", code, None if code in SOURCES else 1)
    if text in _PAIR_CODES:
        return Register("s", _PAIR_CODES[text], 2)
    match = _REGISTER.fullmatch(text)
    if match is None:
        return None
    letter, single, first, last = match.groups()
    start = int(single or first)
    end = int(last) if last is not None else start
    limit = {"s": SGPRS, "ttmp": TTMPS}.get(letter, VGPRS)
    if not start <= end < limit:
        raise TextProblem(f"{text} does not exist: {letter} registers are {letter}0..{letter}{limit - 1}")
    index = start + TTMP_FIRST if letter == "ttmp" else start
    return Register("s" if letter == "ttmp" else letter, index, end - start + 1)


def _listed(text: str) -> Register | None:
    """[s0,s1]: single registers in a row."""
    parts = [parse_register(part.strip()) for part in text.strip("[]").split(",")]
    found = [part for part in parts if part is not None and part.words == 1]
    if len(found) != len(parts):
        return None
    first = found[0]
    if any((part.file, part.index) != (first.file, first.index + i) for i, part in enumerate(found)):
        raise TextProblem(f"a list names registers in a row, found {text}")
    return Register(first.file, first.index, len(found))


def scalar_alignment(words: int) -> int:
    """What the first register of a scalar group is a multiple of. [CDNA4 ISA 3.6.3]"""
    return min(words, 4)


# ---- constants --------------------------------------------------------------------------------------------------


def constant_text(code: int, kind: str) -> str | None:
    """An inline constant of a source code, None where the code is none."""
    if 128 <= code <= 192:
        return str(code - 128)
    if 193 <= code <= 208:
        return str(192 - code)
    if code in INLINE_FLOATS:
        return str(INLINE_FLOATS[code])
    if code == TWO_PI:
        return "0.15915494309189532" if kind in ("f64", "i64") else "0.15915494"
    return None


def float_bits(value: float, kind: str) -> int:
    """The bits of a number in an operand's format: f16, bf16 (of pairs too: the low half), f64, else f32."""
    kind = kind.removesuffix("x2")
    if kind in ("f64", "i64"):
        return int.from_bytes(struct.pack("<d", value), "little")
    if kind == "f16":
        return int.from_bytes(struct.pack("<e", value), "little")
    bits = int.from_bytes(struct.pack("<f", value), "little")
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16 if kind == "bf16" else bits


def inline_code(bits: int, kind: str) -> int | None:
    """The source code whose inline float constant has these bits in the operand's format."""
    kind = kind.removesuffix("x2")
    for code, value in INLINE_FLOATS.items():
        if float_bits(value, kind) == bits:
            return code
    two_pi = TWO_PI_BITS["f64" if kind == "i64" else kind if kind in TWO_PI_BITS else "f32"]
    return TWO_PI if bits == two_pi else None


def integer_code(value: int) -> int | None:
    """The source code of an integer constant -16..64."""
    return value + 128 if 0 <= value <= 64 else 192 - value if -16 <= value < 0 else None
