"""The numpy engine: lane values are arrays whose last axis is the 64 lanes; scalars have a last axis of length 1.

Leading axes are free: one wave is (64,), the waves of a workgroup together (waves, 64). Raw values are unsigned integer
arrays (bool for masks). This is the readable reference; the host LLVM engine must give the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from emu.engines.float_rules import default_nan, quiet_bit
from gfx950.arithmetic.directed import directed, directed_integer, directed_resize
from gfx950.lanes import MANTISSA_BITS, PRIMITIVES, Mode, infinity_bits

Array = Any  # NDArray of an unsigned integer or bool; numpy's stubs lose the dtype in every expression below
UNSIGNED = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}


def _is_nan(value: Array, width: int) -> Array:
    infinity = value.dtype.type(infinity_bits(width))
    return np.asarray((value & value.dtype.type((1 << width - 1) - 1)) > infinity)


def _quiet(value: Array, width: int) -> Array:
    return value | value.dtype.type(quiet_bit(width))


def _flush(value: Array, width: int) -> Array:
    """Denormals become zeros of the same sign."""
    kind = value.dtype.type
    denormal = (value & kind(infinity_bits(width))) == 0
    return np.where(denormal, value & kind(1 << width - 1), value)


def _round_to_odd_sum(product: Array, addend: Array) -> Array:
    """product + addend in double, inexact results rounded to odd, so that one more rounding to <= 50 bits is exact."""
    total = product + addend
    rest = total - product
    error = (product - (total - rest)) + (addend - rest)
    bits = np.array(total, dtype=np.float64).view(np.uint64)
    even = (bits & np.uint64(1)) == 0
    fix = (error != 0) & even & np.isfinite(total)
    grows = (error > 0) == (total > 0)
    step = np.where(grows, np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF))
    with np.errstate(over="ignore"):
        return np.where(fix, bits + step, bits).view(np.float64)


def _fma64(a: Array, b: Array, c: Array) -> Array:
    """Exact by rationals where all three are finite, else the product and sum alone decide."""
    plain = np.where(np.isfinite(a) & np.isfinite(b) & np.isinf(c), c, a * b + c)  # a * b alone may overflow
    a, b, c, plain = np.broadcast_arrays(a, b, c, plain)
    result = np.array(plain)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    for index in np.argwhere(finite):
        at = tuple(index)
        exact = Fraction(float(a[at])) * Fraction(float(b[at])) + Fraction(float(c[at]))
        if exact == 0:
            result[at] = float(a[at]) * float(b[at]) + float(c[at]) if c[at] == 0 or a[at] * b[at] == 0 else 0.0
        else:
            result[at] = _to_double(exact)
    return result


def _to_double(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


@functools.lru_cache(maxsize=4096)
def _constant(bits: int, width: int) -> Array:
    value: Array = np.array([bits], dtype=UNSIGNED[width])
    value.flags.writeable = False
    return value


class NumpyEngine:
    """Lane arithmetic on numpy arrays. mode: the MODE fields in force."""

    traces = False

    def __init__(self, mode: Mode | None = None) -> None:
        self.mode = mode or Mode()

    def apply(self, op: str, width: int, *operands: Array) -> Array:
        """One primitive; see `gfx950.lanes.PRIMITIVES`."""
        return OPERATIONS[op](self, width, *operands)

    def constant(self, bits: int, width: int) -> Array:
        """A scalar: shape (1,), shared and read-only."""
        return _constant(bits, width)

    def permute(self, value: Array, width: int, lanes: tuple[int, ...]) -> Array:
        """A static lane permutation."""
        return np.asarray(_lanes64(value)[..., list(lanes)])

    def native(self, name: str, inputs: Sequence[Array], parameters: int) -> list[Array]:
        """Puts the registers of a wave side by side and calls the compiled body."""
        from gfx950.arithmetic.native import native_in_force

        *leading, lanes = np.broadcast_shapes(*(np.shape(i) for i in inputs), (64,))
        registers = np.empty((*leading, len(inputs), lanes), np.uint32)
        for number, value in enumerate(inputs):
            registers[..., number, :] = value
        result = native_in_force(name)(registers, parameters)
        return [result[..., i, :] for i in range(result.shape[-2])]

    def float_operation(self, width: int, operation: Callable[..., Array], op: str, *operands: Array) -> Array:
        """A float operation under MODE's rounding and denormals with the ledger's NaN rule."""
        denorm, direction = self.mode.denorm(width), self.mode.rounding(width)
        inputs = operands if denorm & 1 else tuple(_flush(o, width) for o in operands)
        with np.errstate(all="ignore"):
            value = operation(*(i.view(FLOATS[width]) for i in inputs))
        bits: Array = np.ascontiguousarray(value, dtype=FLOATS[width]).view(UNSIGNED[width])
        if direction and op:
            bits = _directed(op, width, direction, bits, inputs)
        if not denorm & 2:
            bits = _flush(bits, width)
        return self._nan_rule(width, bits, operands)

    def _nan_rule(self, width: int, bits: Array, operands: tuple[Array, ...]) -> Array:
        nan = _is_nan(bits, width)
        if not nan.any():
            return bits
        made: Array = bits.dtype.type(default_nan(width))
        for operand in reversed(operands):
            made = np.where(_is_nan(operand, width), _quiet(operand, width), made)
        return np.where(nan, made, bits)


def _lanes64(value: Array) -> Array:
    return np.broadcast_to(value, (*value.shape[:-1], 64)) if value.shape[-1] == 1 else value


def _shift(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(engine: NumpyEngine, width: int, a: Array, b: Array) -> Array:
        return np.asarray(function(a, b & b.dtype.type(width - 1)))

    return run


def _integer(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(engine: NumpyEngine, width: int, *operands: Array) -> Array:
        return np.asarray(function(*operands))

    return run


def _signed(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(engine: NumpyEngine, width: int, *operands: Array) -> Array:
        result = np.asarray(function(*(o.view(SIGNED[width]) for o in operands)))
        return result if result.dtype == np.bool_ else result.view(UNSIGNED[width])

    return run


def _float(function: Callable[..., Array], op: str = "") -> Callable[..., Array]:
    """op: the primitive's name, where its result depends on the rounding."""

    def run(engine: NumpyEngine, width: int, *operands: Array) -> Array:
        return engine.float_operation(width, function, op, *operands)

    return run


def _is_finite(value: Array, width: int) -> Array:
    return (value & value.dtype.type((1 << width - 1) - 1)) < value.dtype.type(infinity_bits(width))


def _each(function: Callable[..., int], nearest: Array, where: Array, *operands: Array) -> Array:
    """`nearest` with function(*operands) in the lanes of `where`."""
    shape = np.broadcast_shapes(nearest.shape, where.shape)
    result, lanes = np.array(np.broadcast_to(nearest, shape)), [np.broadcast_to(o, shape) for o in operands]
    for index in np.argwhere(np.broadcast_to(where, shape)):
        at = tuple(index)
        result[at] = function(*(int(lane[at]) for lane in lanes))
    return result


def _directed(op: str, width: int, direction: int, nearest: Array, inputs: Sequence[Array]) -> Array:
    """A result to nearest rounded the other way; infinities, NaNs and what they come from do not depend on it."""
    finite = functools.reduce(np.logical_and, (_is_finite(i, width) for i in inputs))
    if op in ("fdiv", "fsqrt"):  # those of zeros and the roots of negative numbers either
        finite = finite & ~_is_nan(nearest, width) & (inputs[-1] << inputs[-1].dtype.type(1) != 0)
    return _each(functools.partial(directed, op, width, direction), nearest, finite, *inputs)


def _float_compare(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(engine: NumpyEngine, width: int, *operands: Array) -> Array:
        inputs = operands if engine.mode.denorm(width) & 1 else tuple(_flush(o, width) for o in operands)
        with np.errstate(all="ignore"):
            return np.asarray(function(*(i.view(FLOATS[width]) for i in inputs)))

    return run


def _ashr(a: Array, b: Array) -> Array:
    return np.right_shift(a.view(SIGNED[a.dtype.itemsize * 8]), b.view(SIGNED[b.dtype.itemsize * 8])).view(a.dtype)


def _popcount(value: Array) -> Array:
    return (
        np.asarray(np.bitwise_count(value)).astype(value.dtype)
        if hasattr(np, "bitwise_count")
        else _popcount_bytes(value)
    )


_BYTE_COUNTS = np.array([bin(i).count("1") for i in range(256)], dtype=np.uint8)


def _popcount_bytes(value: Array) -> Array:
    contiguous = np.ascontiguousarray(value)
    counts = _BYTE_COUNTS[contiguous.view(np.uint8).reshape(*value.shape, value.dtype.itemsize)]
    return counts.sum(axis=-1).astype(value.dtype)


def _smear(value: Array) -> Array:
    width = value.dtype.itemsize * 8
    step = 1
    while step < width:
        value = value | (value >> value.dtype.type(step))
        step *= 2
    return value


def _clz(value: Array) -> Array:
    return value.dtype.type(value.dtype.itemsize * 8) - _popcount(_smear(value))


def _ctz(value: Array) -> Array:
    lowest = value & (~value + value.dtype.type(1))
    return _popcount(lowest - value.dtype.type(1))


def _bitreverse(value: Array) -> Array:
    width = value.dtype.itemsize * 8
    result = np.zeros_like(value)
    for bit in range(width):
        result |= ((value >> value.dtype.type(bit)) & value.dtype.type(1)) << value.dtype.type(width - 1 - bit)
    return result


def _extend(engine: NumpyEngine, width: int, value: Array) -> Array:
    if width == 1:
        return np.asarray((value & value.dtype.type(1)) != 0)
    return value.astype(UNSIGNED[width])


def _sign_extend(engine: NumpyEngine, width: int, value: Array) -> Array:
    if value.dtype == np.bool_:
        return np.where(value, UNSIGNED[width](-1 & (1 << width) - 1), UNSIGNED[width](0))
    return value.view(SIGNED[value.dtype.itemsize * 8]).astype(SIGNED[width]).view(UNSIGNED[width])


def _fma(a: Array, b: Array, c: Array) -> Array:
    if a.dtype == np.float64:
        return _fma64(a, b, c)
    return _round_to_odd_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)).astype(a.dtype)


def _float_convert(engine: NumpyEngine, width: int, value: Array) -> Array:
    """fpext and fptrunc. Denormals of either width follow MODE's code for that width."""
    source = value.dtype.itemsize * 8
    flushed = value if engine.mode.denorm(source) & 1 else _flush(value, source)
    with np.errstate(all="ignore"):
        bits: Array = np.ascontiguousarray(flushed.view(FLOATS[source]).astype(FLOATS[width])).view(UNSIGNED[width])
    direction = engine.mode.rounding(source, width)
    if direction and width < source:
        bits = _each(
            lambda one: directed_resize(width, direction, one, source), bits, _is_finite(flushed, source), flushed
        )
    if not engine.mode.denorm(width) & 2:
        bits = _flush(bits, width)
    return np.where(_is_nan(value, source), _convert_nan(value, source, width), bits)


def _convert_nan(value: Array, source: int, width: int) -> Array:
    """Sign and the payload's top bits, quieted."""
    wide = value.astype(np.uint64)
    sign = (wide >> np.uint64(source - 1)) << np.uint64(width - 1)
    payload = wide & np.uint64((1 << MANTISSA_BITS[source]) - 1)
    shift = MANTISSA_BITS[width] - MANTISSA_BITS[source]
    payload = payload << np.uint64(shift) if shift > 0 else payload >> np.uint64(-shift)
    return (sign | payload | np.uint64(infinity_bits(width) | quiet_bit(width))).astype(UNSIGNED[width])


def _from_integer(kinds: dict[int, Any]) -> Callable[..., Array]:
    def run(engine: NumpyEngine, width: int, value: Array) -> Array:
        integer = value.view(kinds[value.dtype.itemsize * 8])
        with np.errstate(over="ignore"):
            bits: Array = np.ascontiguousarray(integer.astype(FLOATS[width])).view(UNSIGNED[width])
        direction = engine.mode.rounding(width)
        if not direction:
            return bits
        return _each(functools.partial(directed_integer, width, direction), bits, np.True_, integer)

    return run


def _to_integer(signed: bool) -> Callable[..., Array]:
    def run(engine: NumpyEngine, width: int, value: Array) -> Array:
        low = -(1 << width - 1) if signed else 0
        high = (1 << width - 1 if signed else 1 << width) - 1
        kind = SIGNED[width] if signed else UNSIGNED[width]
        with np.errstate(all="ignore"):
            whole = np.trunc(value.view(FLOATS[value.dtype.itemsize * 8]).astype(np.float64))
            inside = (
                (whole > float(low) - 1) & (whole < float(high + 1))
                if width < 64
                else (whole >= float(low)) & (whole < float(high + 1))
            )
            converted: Array = np.where(inside, whole, 0.0).astype(kind)
        result = np.where(inside, converted, np.where(whole > 0, kind(high), kind(low)))
        return np.where(np.isnan(whole), kind(0), result).view(UNSIGNED[width])

    return run


def _gather(engine: NumpyEngine, width: int, value: Array, lanes: Array) -> Array:
    index = (_lanes64(lanes) & lanes.dtype.type(63)).astype(np.intp)
    shape = np.broadcast_shapes(_lanes64(value).shape, index.shape)
    return np.take_along_axis(np.broadcast_to(_lanes64(value), shape), np.broadcast_to(index, shape), axis=-1)


def _readlane(engine: NumpyEngine, width: int, value: Array, lane: Array) -> Array:
    index = (lane & lane.dtype.type(63)).astype(np.intp)
    wide = _lanes64(value)
    shape = (*np.broadcast_shapes(wide.shape[:-1], index.shape[:-1]),)
    return np.take_along_axis(np.broadcast_to(wide, (*shape, 64)), np.broadcast_to(index, (*shape, 1)), axis=-1)


def _writelane(engine: NumpyEngine, width: int, value: Array, lane: Array, scalar: Array) -> Array:
    here = np.arange(64, dtype=lane.dtype) == (lane & lane.dtype.type(63))
    return np.where(here, scalar, value)


_WEIGHTS = np.uint64(1) << np.arange(64, dtype=np.uint64)


def _ballot(engine: NumpyEngine, width: int, mask: Array) -> Array:
    return np.where(_lanes64(mask), _WEIGHTS, np.uint64(0)).sum(axis=-1, keepdims=True, dtype=np.uint64)


def _lanes_of(engine: NumpyEngine, width: int, bits: Array) -> Array:
    return np.asarray((bits & _WEIGHTS) != 0)


def _splat(engine: NumpyEngine, width: int, value: Array) -> Array:
    return np.array(_lanes64(value))


def _select(engine: NumpyEngine, width: int, mask: Array, a: Array, b: Array) -> Array:
    return np.where(mask, a, b)


OPERATIONS: dict[str, Callable[..., Array]] = {
    "add": _integer(np.add),
    "sub": _integer(np.subtract),
    "mul": _integer(np.multiply),
    "and": _integer(np.bitwise_and),
    "or": _integer(np.bitwise_or),
    "xor": _integer(np.bitwise_xor),
    "shl": _shift(np.left_shift),
    "lshr": _shift(np.right_shift),
    "ashr": _shift(_ashr),
    "umin": _integer(np.minimum),
    "umax": _integer(np.maximum),
    "smin": _signed(np.minimum),
    "smax": _signed(np.maximum),
    "popcount": _integer(_popcount),
    "clz": _integer(_clz),
    "ctz": _integer(_ctz),
    "bitreverse": _integer(_bitreverse),
    "eq": _integer(np.equal),
    "ne": _integer(np.not_equal),
    "ult": _integer(np.less),
    "ule": _integer(np.less_equal),
    "slt": _signed(np.less),
    "sle": _signed(np.less_equal),
    "zext": _extend,
    "sext": _sign_extend,
    "trunc": _extend,
    "select": _select,
    "fadd": _float(np.add, "fadd"),
    "fsub": _float(np.subtract, "fsub"),
    "fmul": _float(np.multiply, "fmul"),
    "fdiv": _float(np.divide, "fdiv"),
    "fma": _float(_fma, "fma"),
    "fsqrt": _float(np.sqrt, "fsqrt"),
    "ffloor": _float(np.floor),
    "fceil": _float(np.ceil),
    "ftrunc": _float(np.trunc),
    "frint": _float(np.rint),
    "feq": _float_compare(np.equal),
    "flt": _float_compare(np.less),
    "fle": _float_compare(np.less_equal),
    "funo": _float_compare(lambda a, b: np.isnan(a) | np.isnan(b)),
    "fpext": _float_convert,
    "fptrunc": _float_convert,
    "sitofp": _from_integer(SIGNED),
    "uitofp": _from_integer(UNSIGNED),
    "fptosi": _to_integer(True),
    "fptoui": _to_integer(False),
    "gather": _gather,
    "readlane": _readlane,
    "writelane": _writelane,
    "ballot": _ballot,
    "lanes_of": _lanes_of,
    "splat": _splat,
}
assert OPERATIONS.keys() == PRIMITIVES.keys(), OPERATIONS.keys() ^ PRIMITIVES.keys()
