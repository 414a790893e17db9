"""What atomics do to a datum: functions of the old `t` and the operands. [CDNA4 ISA 9.2, 12.12]

Each works on one lane at a time, the memory calls them in ascending lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gfx950.evidence import Evidence, Rule, rule
from gfx950.isa.lane_arithmetic import EXACT, NEAREST, with_mode
from gfx950.lanes import (
    B128,
    F16,
    F32,
    F64,
    I32,
    I64,
    MANTISSA_BITS,
    U16,
    U32,
    U64,
    Float,
    Mask,
    infinity_bits,
    join,
    split,
)

ORDER = rule(
    "atomic.order",
    Evidence.chosen,
    "CDNA4 ISA 2.2.1, 2.3: unordered",
    "The lanes of one atomic instruction take their turns in ascending order; a lane that is left out returns 0.",
)
ALIGNMENT = rule(
    "atomic.alignment",
    Evidence.chosen,
    "CDNA4 ISA 3.11: misaligned memory accesses raise MEM_VIOL; no exception is stated for atomics",
    "An atomic on memory whose address is no multiple of its size is a fault. LDS atomics may be unaligned.",
)
FLOAT_ADD = rule(
    "atomic.float_add",
    Evidence.spec,
    "CDNA4 ISA 9.2.1-9.2.3",
    "Float atomics add to nearest even whatever MODE says; of two NaNs src0's is returned, quieted.",
)
MEMORY_FIRST = rule(
    "atomic.memory_first",
    Evidence.chosen,
    "CDNA4 ISA 9.2.3 speaks of src0 without saying whether it is the memory's operand or the instruction's",
    "The operand in memory is src0 of float atomics: of two NaNs it is the one returned.",
)
LDS_DENORM = rule(
    "atomic.lds_denorm",
    Evidence.spec,
    "CDNA4 ISA table 53",
    "In LDS f32 and packed adds follow MODE's denormal fields, f64 adds keep them, comparisons flush inputs by MODE.",
)
LDS_DENORM_BF16 = rule(
    "atomic.lds_denorm_bf16",
    Evidence.chosen,
    "CDNA4 ISA table 53 names MODE's denormal fields; bf16 has none of its own",
    "In LDS the packed bf16 add follows MODE's f32 denormal field.",
)
MEMORY_DENORM = rule(
    "atomic.memory_denorm",
    Evidence.vendor,
    "LLVM uses the native f32 add where denormals are required on gfx942 and gfx950; CDNA4 ISA table 53 says it"
    " flushes, and that LDS follows MODE",
    "Float atomics on memory keep denormals, the f32 add too, and so do FLAT ones that reach LDS.",
)
FLOAT_ORDER = rule(
    "atomic.float_min_max",
    Evidence.spec,
    "CDNA4 ISA 9.2.3; the pseudo-code of chapter 12 disagrees",
    "A signalling NaN wins, quieted, src0's first; else numbers are ordered with -0 below +0 and a quiet NaN loses.",
)

Operation = Callable[..., Any]


def add(t: Any, s: Any) -> Any:
    """t + s."""
    return t + s


def subtract(t: Any, s: Any) -> Any:
    """t - s."""
    return t - s


def subtract_reversed(t: Any, s: Any) -> Any:
    """s - t."""
    return s - t


def minimum(t: Any, s: Any) -> Any:
    """The smaller, by the type's sign."""
    return t.minimum(s)


def maximum(t: Any, s: Any) -> Any:
    """The larger, by the type's sign."""
    return t.maximum(s)


def bitwise_and(t: Any, s: Any) -> Any:
    """t & s."""
    return t & s


def bitwise_or(t: Any, s: Any) -> Any:
    """t | s."""
    return t | s


def bitwise_xor(t: Any, s: Any) -> Any:
    """t ^ s."""
    return t ^ s


def exchange(t: Any, s: Any) -> Any:
    """s."""
    return s


def increment(t: Any, s: Any) -> Any:
    """t >= s ? 0 : t + 1."""
    return (t >= s).select(0, t + 1)


def decrement(t: Any, s: Any) -> Any:
    """t == 0 or t > s ? s : t - 1."""
    return ((t == 0) | (t > s)).select(s, t - 1)


def masked_or(t: Any, mask: Any, s: Any) -> Any:
    """(t & ~mask) | s."""
    return (t & ~mask) | s


def compare_exchange(t: Any, compare: Any, new: Any) -> Any:
    """t == compare ? new : t."""
    return (t == compare).select(new, t)


def wrap(t: Any, limit: Any, s: Any) -> Any:
    """t >= limit ? t - limit : t + s."""
    return (t >= limit).select(t - limit, t + s)


# name, signed type (by width) or unsigned, operation; the order of the opcodes in every family
INTEGER: tuple[tuple[str, bool, Operation], ...] = (
    ("add", False, add),
    ("sub", False, subtract),
    ("smin", True, minimum),
    ("umin", False, minimum),
    ("smax", True, maximum),
    ("umax", False, maximum),
    ("and", False, bitwise_and),
    ("or", False, bitwise_or),
    ("xor", False, bitwise_xor),
    ("inc", False, increment),
    ("dec", False, decrement),
)


def integer_type(signed: bool, width: int) -> Any:
    """I32, I64, U32 or U64."""
    return {(True, 32): I32, (True, 64): I64, (False, 32): U32, (False, 64): U64}[signed, width]


def integer_atomics() -> Iterator[tuple[str, int, Any, Operation]]:
    """What scalar and vector memory both have: name, number in the family of opcodes, the datum's type, operation.

    Numbers 1 and 33 are CMPSWAP and CMPSWAP_X2.
    """
    for width, first, suffix in ((32, 0, ""), (64, 32, "_x2")):
        yield f"swap{suffix}", first, integer_type(False, width), exchange
        for index, (name, signed, operation) in enumerate(INTEGER):
            yield f"{name}{suffix}", first + 2 + index, integer_type(signed, width), operation


def compared_and_new(data: U64 | B128) -> tuple[Any, Any]:
    """The operands of `compare_exchange` in the data registers of a CMPSWAP, which have the new datum first."""
    if isinstance(data, U64):
        new, compare = split(data)
        return compare, new
    return join(data[2], data[3]), join(data[0], data[1])


def float_add(t: Any, s: Any) -> Any:
    """t + s to nearest even, denormals by MODE. [rule atomic.lds_denorm]"""
    with with_mode(t.engine, **NEAREST):
        return t + s


def float_add_exact(t: Any, s: Any) -> Any:
    """t + s to nearest even, denormals kept."""
    with with_mode(t.engine, **EXACT):
        return t + s


def _halves(value: U32) -> tuple[U16, U16]:
    return value.to(U16), (value >> 16).to(U16)


def _packed(low: U16, high: U16) -> U32:
    return low.to(U32) | (high.to(U32) << 16)


def _add_f16(t: U16, s: U16) -> U16:
    return (t.bits(F16) + s.bits(F16)).bits(U16)


def _add_bf16(t: U16, s: U16) -> U16:
    """The sum in f32, then to nearest even: two roundings that give the bits of one, f32 has 24 >= 2 * 8 + 2 bits."""
    total = ((t.to(U32) << 16).bits(F32) + (s.to(U32) << 16).bits(F32)).bits(U32)
    return ((total + 0x7FFF + ((total >> 16) & 1)) >> 16).to(U16)


def packed_add(add_half: Callable[[U16, U16], U16], keep_denormals: bool) -> Operation:
    """Two independent adds in the halves of a dword."""

    def operation(t: U32, s: U32) -> U32:
        with with_mode(t.engine, **(EXACT if keep_denormals else NEAREST)):
            low, high = (add_half(a, b) for a, b in zip(_halves(t), _halves(s), strict=True))
        return _packed(low, high)

    return operation


PK_ADD_F16_LDS, PK_ADD_BF16_LDS = packed_add(_add_f16, False), packed_add(_add_bf16, False)
PK_ADD_F16, PK_ADD_BF16 = packed_add(_add_f16, True), packed_add(_add_bf16, True)


def _bits(value: Float) -> Any:
    return value.bits(U32 if value.width == 32 else U64)


def _quiet_bit(width: int) -> int:
    return 1 << MANTISSA_BITS[width] - 1


def _is_nan(bits: Any) -> Mask:
    found: Mask = (bits & (1 << bits.width - 1) - 1) > infinity_bits(bits.width)
    return found


def _flushed(bits: Any) -> Any:
    """Denormals become zeros of the same sign."""
    return ((bits & infinity_bits(bits.width)) == 0).select(bits & 1 << bits.width - 1, bits)


def _order(bits: Any, flush: bool, nan: int) -> Any:
    """A signed key in the order of the numbers, -0 below +0; `nan` for a NaN."""
    signed = I32 if bits.width == 32 else I64
    value = (_flushed(bits) if flush else bits).bits(signed)
    key = value ^ ((value >> bits.width - 1) & (1 << bits.width - 1) - 1)
    return _is_nan(bits).select(signed.constant(bits.engine, nan), key)


def float_extreme(largest: bool, flush_by_mode: bool) -> Operation:
    """MIN or MAX of floats; the winner itself is stored, flushed or not. [rule atomic.float_min_max]"""

    def operation(t: Float, s: Float) -> Float:
        a, b, width = _bits(t), _bits(s), t.width
        flush = flush_by_mode and not t.engine.mode.denorm(width) & 1
        loser = -(1 << width - 1) if largest else (1 << width - 1) - 1
        x, y = _order(a, flush, loser), _order(b, flush, loser)
        winner = ((x >= y) if largest else (x <= y)).select(a, b)
        for value in (b, a):
            signals = _is_nan(value) & ((value & _quiet_bit(width)) == 0)
            winner = signals.select(value | _quiet_bit(width), winner)
        return winner.bits(type(t))  # type: ignore[no-any-return]

    return operation


MIN_FLOAT_LDS, MAX_FLOAT_LDS = float_extreme(False, True), float_extreme(True, True)
MIN_FLOAT, MAX_FLOAT = float_extreme(False, False), float_extreme(True, False)


def compare_exchange_float(t: Float, compare: Float, new: Float) -> Float:
    """t == compare as floats ? new : t; with input flushing the result is flushed too. [9.2.2]"""
    chosen = (t == compare).select(new, t)
    if t.engine.mode.denorm(t.width) & 1:
        return chosen
    return _flushed(_bits(chosen)).bits(type(t))  # type: ignore[no-any-return]


FLOATS: dict[int, Any] = {32: F32, 64: F64}


def vector_atomics() -> Iterator[tuple[str, int, Any, Operation, tuple[Rule, ...]]]:
    """What FLAT, GLOBAL and MUBUF have, but for CMPSWAP: name, opcode, the datum's type, operation, further rules."""
    for name, number, kind, operation in integer_atomics():
        yield name, 64 + number, kind, operation, ()
    adds, ends = (FLOAT_ADD, MEMORY_FIRST, MEMORY_DENORM), (FLOAT_ORDER, MEMORY_FIRST)
    yield "add_f32", 77, F32, float_add_exact, adds
    yield "pk_add_f16", 78, U32, PK_ADD_F16, adds
    yield "add_f64", 79, F64, float_add_exact, adds
    yield "min_f64", 80, F64, MIN_FLOAT, ends
    yield "max_f64", 81, F64, MAX_FLOAT, ends
    yield "pk_add_bf16", 82, U32, PK_ADD_BF16, adds
