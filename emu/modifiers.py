"""What wraps an instruction's operands and results: neg, abs, omod, DPP lane maps, SDWA selects.

[CDNA4 ISA 6.2, 13.3.7-9]
"""

from __future__ import annotations

from typing import Any

from emu.errors import EmulatorError
from gfx950.isa.lane_arithmetic import limited
from gfx950.lanes import F16, U32, Engine, Float, Lanes, Mode


def apply_neg_abs(value: Lanes, neg: int, absolute: int) -> Lanes:
    """|value| first, then -value; floats only, other types pass unchanged. [12.7, 12.8]"""
    if not isinstance(value, Float):
        return value
    if absolute:
        value = abs(value)
    return -value if neg else value


def apply_omod(value: Float, omod: int, mode: Mode) -> Float:
    """Output modifier 1: *2, 2: *4, 3: /2; ignored with IEEE or output denormals. [6.2.2, rule valu.fp16_ovfl]"""
    if omod == 0 or mode.ieee or mode.denorm(value.width) & 2:
        return value
    scaled = value * (2.0, 4.0, 0.5)[omod - 1]
    if isinstance(value, F16) and isinstance(scaled, F16):
        scaled = limited(scaled, value)
    zero = type(value).constant(value.engine, 0.0)
    return (scaled == 0.0).select(zero, scaled)


def dpp_lanes(ctrl: int, pc: int) -> tuple[list[int], list[bool]]:
    """Source lane of each lane for a DPP control, and whether it exists. [13.3.9]

    Raises EmulatorError for a reserved control.
    """
    maps = [_dpp_lane(ctrl, n) for n in range(64)]
    if any(m is None for m in maps):
        raise EmulatorError(f"pc 0x{pc:x}: DPP control 0x{ctrl:x} is reserved on gfx950")
    lanes = [m if m is not None and 0 <= m < 64 else n for n, m in enumerate(maps)]
    valid = [m is not None and 0 <= m < 64 for m in maps]
    return lanes, valid


def _dpp_lane(ctrl: int, n: int) -> int | None:
    """The source lane, -1 where none, None for a reserved control."""
    row, amount = ctrl & 0x1F0, ctrl & 15
    if ctrl < 0x100:
        return (n & ~3) + (ctrl >> 2 * (n & 3) & 3)
    if amount or row == 0x150:
        if row == 0x100:
            return n + amount if (n & 15) + amount <= 15 else -1
        if row == 0x110:
            return n - amount if (n & 15) >= amount else -1
        if row == 0x120:
            return (n & 48) + (n - amount & 15)
        if row == 0x150:
            return (n & 48) + amount
    return _dpp_wave(ctrl, n)


def _dpp_wave(ctrl: int, n: int) -> int | None:
    table = {
        0x130: n + 1 if n < 63 else -1,
        0x134: (n + 1) % 64,
        0x138: n - 1,
        0x13C: (n + 63) % 64,
        0x140: (n & 48) + 15 - (n & 15),
        0x141: (n & 56) + 7 - (n & 7),
        0x142: (n & 48) - 1,
        0x143: 31 if n >= 32 else -1,
    }
    return table.get(ctrl)


def sdwa_select(word: U32, select: int, sign_extend: int, kind: Any) -> Lanes:
    """The selected byte (0..3), word (4, 5) or dword (6) of a register, extended, as the operand's type. [13.3.7]"""
    engine: Engine = word.engine
    width = 8 if select < 4 else 16 if select < 6 else 32
    shift = 8 * select if select < 4 else 16 * (select - 4) if select < 6 else 0
    raw = (word >> shift).raw if shift else word.raw
    if width < 32:
        raw = engine.apply("sext" if sign_extend else "zext", 32, engine.apply("trunc", width, raw))
    if kind.width < 32:
        raw = engine.apply("trunc", kind.width, raw)
    value: Lanes = kind(engine, raw)
    return value


def sdwa_merge(old: U32, word: U32, select: int, unused: int) -> U32:
    """The result put into the selected part of the destination; unused: 0 zeros, 1 sign above, 2 old bits. [13.3.7]"""
    if select == 6:
        return word
    width = 8 if select < 4 else 16
    shift = 8 * select if select < 4 else 16 * (select - 4)
    mask = ((1 << width) - 1) << shift
    part = (word << shift) & mask
    if unused == 2:
        return part | (old & (mask ^ 0xFFFFFFFF))
    if unused == 1:
        sign = ((word >> width - 1) & 1) != 0
        above = 0xFFFFFFFF & ~((1 << shift + width) - 1)
        return part | sign.select(U32.constant(word.engine, above), 0)
    return part


__all__ = ["apply_neg_abs", "apply_omod", "dpp_lanes", "sdwa_merge", "sdwa_select"]
