"""Source codes below 256: scalar registers, inline constants, literals, flags, apertures. [CDNA4 ISA 5.2, 6.1]"""

from __future__ import annotations

from typing import Any

from emu.memory import PRIVATE_APERTURE, SHARED_APERTURE
from emu.register_checks import SCALAR_REGISTERS, UnsupportedForm, check_scalar_run
from emu.state import State
from gfx950.evidence import Evidence, rule
from gfx950.isa.encoding import Decoded
from gfx950.isa.operand_codes import EXEC, INLINE_FLOATS, LITERAL, TWO_PI, TWO_PI_BITS, VCC
from gfx950.lanes import F16, F64, I64, U32, U64, Raw, Words, float_bits, join

rule(
    "valu.inline_float",
    Evidence.vendor,
    "LLVM's AMDGPU assembler (getOpFltSemantics, isInlinableLiteralBF16): for 16-bit integers it truncates the 32-bit"
    " constant, which it says is what hardware does; CDNA4 ISA table 23 names half, single and double, 12.7 and 12.9"
    " half for S1 of V_LDEXP_F16 and V_CMP_CLASS_F16 (of which LLVM says f32)",
    "An inline float constant is a 32-bit word: f16 in the low half for f16 operands and pairs and those two, the top"
    " of the f32 in the low half for bf16 ones, the f32 for all others, 16-bit integers too.",
)
rule(
    "valu.inline_half",
    Evidence.chosen,
    "the manual says nothing about OP_SEL on a constant; LLVM accepts it, and clears OP_SEL_HI for a constant of packed"
    " f32, so that what it compiles never asks for the second register",
    "OP_SEL picks a half of that word, the high half of an integer constant is its sign. An operand of V_FMA_MIX is an"
    " f16 constant where its OP_SEL_HI bit is set. Both registers of a packed f32 pair are the constant.",
)

_APERTURE_LIMIT = (1 << 32) - 1
APERTURES = {
    235: SHARED_APERTURE,
    236: SHARED_APERTURE | _APERTURE_LIMIT,
    237: PRIVATE_APERTURE,
    238: PRIVATE_APERTURE | _APERTURE_LIMIT,
}
VCCZ, EXECZ, SCC = 251, 252, 253


def scalar_value(decoded: Decoded, state: State, code: int, kind: Any) -> Any:
    """A scalar operand as a value of `kind`."""
    if issubclass(kind, Words):
        check_scalar_run(code, kind.count)
        return kind([U32(state.engine, state.sgpr(code + i)) for i in range(kind.count)])
    return kind(state.engine, scalar_raw(decoded, state, code, kind.width))


def scalar_raw(decoded: Decoded, state: State, code: int, width: int, half: int = 0) -> Raw:
    """The raw value of a source code in `width` bits. half: which one of a register gives a narrower value."""
    if code < SCALAR_REGISTERS:
        return _register(state, code, width, half)
    constant = inline_bits(decoded, code, width)
    if constant is not None:
        return state.engine.constant(constant, width)
    if code in (VCCZ, EXECZ, SCC):
        return _flag(state, code, width)
    if code in APERTURES:
        return state.engine.constant(APERTURES[code] & (1 << width) - 1, width)
    raise UnsupportedForm(f"scalar source code {code} is reserved")


def scalar_pair(state: State, index: int) -> U64:
    """A pair of scalar registers."""
    check_scalar_run(index, 2)
    return join(U32(state.engine, state.sgpr(index)), U32(state.engine, state.sgpr(index + 1)))


def _register(state: State, index: int, width: int, half: int) -> Raw:
    if width == 64:
        return scalar_pair(state, index).raw
    word = U32(state.engine, state.sgpr(index))
    if width < 32:
        return state.engine.apply("trunc", width, (word >> 16 if half else word).raw)
    return word.raw


def _flag(state: State, code: int, width: int) -> Raw:
    """VCCZ, EXECZ, SCC as a number."""
    if code == SCC:
        return state.engine.apply("zext", width, state.scc())
    zero = scalar_pair(state, VCC if code == VCCZ else EXEC) == 0
    return state.engine.apply("zext", width, zero.raw)


def constant_word(decoded: Decoded, code: int, kind: Any, place: str | None) -> int | None:
    """The 32 bits of a constant as an operand of up to 32 bits. [rules valu.inline_float, valu.inline_half]"""
    if is_float_constant(code):
        if place in ("bf16", "bf16_pair"):
            return (inline_bits(decoded, code, 32) or 0) >> 16
        return inline_bits(decoded, code, 16 if kind is F16 or place in ("f16", "f16_pair") else 32)
    return inline_bits(decoded, code, 32)


def is_float_constant(code: int) -> bool:
    """Whether a source code is an inline float constant."""
    return code in INLINE_FLOATS or code == TWO_PI


def inline_bits(decoded: Decoded, code: int, width: int) -> int | None:
    """The bits of an inline constant or the literal in `width` bits; None for other codes."""
    if 128 <= code <= 192:
        return code - 128
    if 193 <= code <= 208:
        return (192 - code) & (1 << width) - 1
    if code in INLINE_FLOATS:
        return float_bits(INLINE_FLOATS[code], width)
    if code == TWO_PI:
        return TWO_PI_BITS[f"f{width}"]
    return _literal_bits(decoded, width) if code == LITERAL else None


def _literal_bits(decoded: Decoded, width: int) -> int:
    literal = decoded.literal or 0
    if width < 64:
        return literal & (1 << width) - 1
    kinds = [p.kind for p in decoded.instruction.parameters]
    if F64 in kinds:
        return literal << 32
    return literal | (0xFFFFFFFF << 32 if I64 in kinds and literal >> 31 else 0)
