"""The host LLVM engine: operators append LLVM IR text over `<64 x iN>` values; bodies run once, at translation time.

A raw value is a `Value`: an SSA name or a constant, its width, and whether it holds 64 lanes or one scalar. Same bits
as the numpy engine on every host: the float NaN rule is written out where the host's own choice could show.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Sequence
from typing import NamedTuple

from emu.engines import directed_text
from emu.engines.float_rules import default_nan, quiet_bit
from gfx950.lanes import MANTISSA_BITS, PRIMITIVES, Mode, infinity_bits

FLOAT_NAMES = {16: "half", 32: "float", 64: "double"}
# x86 returns the first NaN operand quieted and the negative default NaN, as the ledger's rule does; only the order of
# two NaN operands is the compiler's. Elsewhere the whole rule is written out.
HOST_NAN_IS_OURS = platform.machine().lower() in ("x86_64", "amd64")


class Value(NamedTuple):
    """text: `%12` or a constant's digits. width in bits (1: mask). lanes: 64 of them, else a scalar.

    touched: made by and, or, xor, which LLVM may fold into a float instruction as a sign change. known: made of
    constants alone, beside which LLVM may make an instruction another one: x * -1 a sign change, 1 * x just x.
    """

    text: str
    width: int
    lanes: bool
    constant: bool = False
    touched: bool = False
    known: bool = False


def type_of(width: int, lanes: bool, floating: bool = False) -> str:
    """The LLVM type of a value."""
    element = FLOAT_NAMES[width] if floating else f"i{width}"
    return f"<64 x {element}>" if lanes else element


@functools.cache
def native_order() -> list[str]:
    """All natives by name: a native's place here is its place in the table translated code calls through."""
    from gfx950.arithmetic import mfma, transcendental
    from gfx950.arithmetic.native import NATIVES

    del mfma, transcendental  # importing them declares their natives
    return sorted(NATIVES)


class HostEngine:
    """Collects LLVM IR lines of one function. mode: the MODE fields in force. native_names: in order of first use."""

    traces = False

    def __init__(self, mode: Mode | None = None) -> None:
        self.mode = mode or Mode()
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.native_names: list[str] = []
        self._next = 0

    def restart(self) -> None:
        """Begins another function: no lines, names from the start."""
        self.lines = []
        self._next = 0

    # ---- emission -------------------------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        """One line without a result."""
        self.lines.append("  " + text)

    def begin(self, label: str) -> None:
        """Begins a block of the function."""
        self.lines.append(f"{label}:")

    def name(self) -> str:
        """A fresh SSA name."""
        self._next += 1
        return f"%v{self._next}"

    def define(self, text: str, width: int, lanes: bool) -> Value:
        """One line with a result."""
        result = self.name()
        self.lines.append(f"  {result} = {text}")
        return Value(result, width, lanes)

    def constant(self, bits: int, width: int) -> Value:
        """A scalar constant."""
        return Value(str(bits) if width > 1 else ("true" if bits else "false"), width, False, True, known=True)

    def operand(self, value: Value, lanes: bool) -> str:
        """The text of a value, splatted when lanes are asked of a scalar."""
        if not lanes or value.lanes:
            return value.text
        if value.constant:
            return f"splat (i{value.width} {value.text})"
        scalar, vector = f"i{value.width}", f"<64 x i{value.width}>"
        first = self.define(f"insertelement {vector} poison, {scalar} {value.text}, i64 0", value.width, True)
        zeros = "<64 x i32> zeroinitializer"
        return self.define(f"shufflevector {vector} {first.text}, {vector} poison, {zeros}", value.width, True).text

    def typed(self, value: Value, lanes: bool) -> str:
        """Type and text of a value."""
        return f"{type_of(value.width, lanes)} {self.operand(value, lanes)}"

    def as_float(self, value: Value, lanes: bool) -> str:
        """The value's bits as a float: type and text."""
        floating = type_of(value.width, lanes, True)
        cast = self.define(f"bitcast {self.typed(value, lanes)} to {floating}", value.width, lanes)
        return f"{floating} {cast.text}"

    def from_float(self, text: str, width: int, lanes: bool) -> Value:
        """A float instruction's result as bits."""
        floating = self.define(text, width, lanes)
        cast = f"bitcast {type_of(width, lanes, True)} {floating.text} to {type_of(width, lanes)}"
        return self.define(cast, width, lanes)

    def call_intrinsic(
        self, name: str, width: int, lanes: bool, arguments: Sequence[str], floating: bool = False
    ) -> str:
        """The text of a call of an overloaded LLVM intrinsic; arguments are typed texts of the result's type, or i1."""
        kind = type_of(width, lanes, floating)
        element = f"f{width}" if floating else f"i{width}"
        suffix = f"v64{element}" if lanes else element
        kinds = ", ".join("i1" if a.startswith("i1 ") else kind for a in arguments)
        self.declared.add(f"declare {kind} @llvm.{name}.{suffix}({kinds})")
        return f"call {kind} @llvm.{name}.{suffix}({', '.join(arguments)})"

    # ---- the Engine protocol --------------------------------------------------------------------------------------

    def apply(self, op: str, width: int, *operands: Value) -> Value:
        """One primitive; see `gfx950.lanes.PRIMITIVES`."""
        result: Value = OPERATIONS[op](self, op, width, *operands)
        return result._replace(known=True) if all(operand.known for operand in operands) else result

    def permute(self, value: Value, width: int, lanes: tuple[int, ...]) -> Value:
        """A static shuffle."""
        kind = type_of(width, True)
        indices = ", ".join(f"i32 {n}" for n in lanes)
        return self.define(
            f"shufflevector {self.typed(value, True)}, {kind} poison, <64 x i32> <{indices}>", width, True
        )

    def native(self, name: str, inputs: Sequence[Value], parameters: int) -> list[Value]:
        """Calls a compiled body through the context's table of addresses."""
        from gfx950.arithmetic.native import NATIVES

        if name not in self.native_names:
            self.native_names.append(name)
        index = native_order().index(name)
        n_out = NATIVES[name].n_out
        source, target = (
            self.define(f"getelementptr i8, ptr %scratch, i64 {at}", 64, False).text for at in (0, 64 * 256)
        )
        for i, value in enumerate(inputs):
            self.store_lanes(value, f"{source}", i)
        slot = self.define(f"getelementptr ptr, ptr %natives, i64 {index}", 64, False)
        function = self.define(f"load ptr, ptr {slot.text}", 64, False)
        self.emit(f"call void {function.text}(ptr {source}, ptr {target}, i64 {parameters})")
        return [self.load_lanes(target, i) for i in range(n_out)]

    def store_lanes(self, value: Value, base: str, register: int) -> None:
        """Stores 64 dwords to register `register` of an array of registers."""
        at = self.define(f"getelementptr i8, ptr {base}, i64 {register * 256}", 64, False)
        self.emit(f"store {self.typed(value, True)}, ptr {at.text}, align 64")

    def load_lanes(self, base: str, register: int) -> Value:
        """Loads 64 dwords of register `register` of an array of registers."""
        at = self.define(f"getelementptr i8, ptr {base}, i64 {register * 256}", 64, False)
        return self.define(f"load <64 x i32>, ptr {at.text}, align 64", 32, True)

    # ---- float rules ----------------------------------------------------------------------------------------------

    def flush(self, value: Value) -> Value:
        """Denormals become zeros of the same sign."""
        width = value.width
        exponent = self.apply("and", width, value, self.constant(infinity_bits(width), width))
        denormal = self.apply("eq", width, exponent, self.constant(0, width))
        sign = self.apply("and", width, value, self.constant(1 << width - 1, width))
        return self.apply("select", width, denormal, sign, value)

    def flushed_inputs(self, width: int, operands: Sequence[Value]) -> list[Value]:
        """The operands with denormals as MODE says."""
        return list(operands) if self.mode.denorm(width) & 1 else [self.flush(o) for o in operands]

    def finish_float(self, result: Value, operands: Sequence[Value]) -> Value:
        """Output denormals and the NaN rule."""
        width = result.width
        if not self.mode.denorm(width) & 2:
            result = self.flush(result)
        if HOST_NAN_IS_OURS:
            trusted = not operands[-1].touched and not any(operand.known for operand in operands)
            for operand in reversed(operands[:-1] if trusted else operands):
                result = self._take_nan(operand, result)
            return result
        nan = self.apply("funo", width, result, result)
        fixed: Value = self.constant(default_nan(width), width)
        for operand in reversed(operands):
            fixed = self._take_nan(operand, fixed)
        return self.apply("select", width, nan, fixed, result)

    def _take_nan(self, operand: Value, otherwise: Value) -> Value:
        width = operand.width
        if operand.constant:
            magnitude = int(operand.text) & (1 << width - 1) - 1
            if magnitude <= infinity_bits(width):
                return otherwise
        quiet = self.apply("or", width, operand, self.constant(quiet_bit(width), width))
        return self.apply("select", width, self.nan_mask(operand), quiet, otherwise)

    def nan_mask(self, value: Value) -> Value:
        """Lanes that hold a NaN, whatever MODE says."""
        text = self.as_float(value, value.lanes)
        return self.define(f"fcmp uno {text}, {text.rsplit(' ', 1)[1]}", 1, value.lanes)

    def finite_mask(self, value: Value) -> Value:
        """Lanes that hold neither an infinity nor a NaN."""
        width = value.width
        magnitude = self.apply("and", width, value, self.constant((1 << width - 1) - 1, width))
        return self.apply("ult", width, magnitude, self.constant(infinity_bits(width), width))

    def directed(self, op: str, nearest: Value, inputs: Sequence[Value], direction: int, usable: Value | None) -> Value:
        """A result to nearest rounded the other way in the lanes of `usable` (None: all), by integers alone."""
        width, source = nearest.width, inputs[0].width
        name, texts = directed_text.function(op, width, direction, source)
        self.declared.update(texts)
        arguments = ", ".join(self.typed(i, nearest.lanes) for i in inputs)
        suffix = ".lanes" if nearest.lanes else ""
        call = f"call {type_of(width, nearest.lanes)} @{name}{suffix}({arguments})"
        result = self.define(call, width, nearest.lanes)
        return result if usable is None else self.apply("select", width, usable, result, nearest)

    def rounded(self, op: str, nearest: Value, inputs: Sequence[Value]) -> Value:
        """A result to nearest of an operation on floats of one width, rounded by MODE. What comes from infinities, NaNs
        or a division by zero, and the root of a zero or of a negative number, does not depend on the rounding."""
        width = nearest.width
        direction = self.mode.rounding(width)
        if not direction or op not in ROUNDED:
            return nearest
        usable = functools.reduce(lambda a, b: self.apply("and", 1, a, b), map(self.finite_mask, inputs))
        zero = self.constant(0, width)
        if op == "fdiv":
            divisor = self.apply("shl", width, inputs[1], self.constant(1, width))
            usable = self.apply("and", 1, usable, self.apply("ne", width, divisor, zero))
        if op == "fsqrt":
            usable = self.apply("and", 1, usable, self.apply("slt", width, zero, inputs[0]))
        if op == "fsub":
            negated = self.apply("xor", width, inputs[1], self.constant(1 << width - 1, width))
            return self.directed("fadd", nearest, (inputs[0], negated), direction, usable)
        return self.directed(op, nearest, inputs, direction, usable)


def _lanes(*values: Value) -> bool:
    return any(v.lanes for v in values)


_LLVM_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_LLVM_COMPARE = {"eq": "eq", "ne": "ne", "ult": "ult", "ule": "ule", "slt": "slt", "sle": "sle"}
_LLVM_FLOAT = {"fadd": "fadd", "fsub": "fsub", "fmul": "fmul", "fdiv": "fdiv"}
ROUNDED = ("fadd", "fsub", "fmul", "fdiv", "fma", "fsqrt")
_LLVM_FLOAT_COMPARE = {"feq": "oeq", "flt": "olt", "fle": "ole", "funo": "uno"}
_LLVM_FLOAT_CALL = {
    "fma": "fma",
    "fsqrt": "sqrt",
    "ffloor": "floor",
    "fceil": "ceil",
    "ftrunc": "trunc",
    "frint": "roundeven",
}
_LLVM_CALL = {
    "umin": "umin",
    "umax": "umax",
    "smin": "smin",
    "smax": "smax",
    "popcount": "ctpop",
    "bitreverse": "bitreverse",
}


def _integer(e: HostEngine, op: str, width: int, a: Value, b: Value) -> Value:
    lanes = _lanes(a, b)
    result = e.define(f"{_LLVM_INTEGER[op]} {e.typed(a, lanes)}, {e.operand(b, lanes)}", width, lanes)
    return result._replace(touched=op in ("and", "or", "xor"))


def _shift(e: HostEngine, op: str, width: int, a: Value, b: Value) -> Value:
    lanes = _lanes(a, b)
    if b.constant:
        amount: Value = e.constant(int(b.text) & width - 1, width)
    else:
        amount = _integer(e, "and", width, b, e.constant(width - 1, width))
    return e.define(f"{op} {e.typed(a, lanes)}, {e.operand(amount, lanes)}", width, lanes)


def _call(e: HostEngine, op: str, width: int, *operands: Value) -> Value:
    lanes = _lanes(*operands)
    return e.define(e.call_intrinsic(_LLVM_CALL[op], width, lanes, [e.typed(o, lanes) for o in operands]), width, lanes)


def _count_zeros(e: HostEngine, op: str, width: int, a: Value) -> Value:
    name = {"clz": "ctlz", "ctz": "cttz"}[op]
    return e.define(e.call_intrinsic(name, width, a.lanes, [e.typed(a, a.lanes), "i1 false"]), width, a.lanes)


def _compare(e: HostEngine, op: str, width: int, a: Value, b: Value) -> Value:
    lanes = _lanes(a, b)
    return e.define(f"icmp {_LLVM_COMPARE[op]} {e.typed(a, lanes)}, {e.operand(b, lanes)}", 1, lanes)


def _resize(e: HostEngine, op: str, width: int, a: Value) -> Value:
    if a.width == width:
        return a
    return e.define(f"{op} {e.typed(a, a.lanes)} to {type_of(width, a.lanes)}", width, a.lanes)


def _select(e: HostEngine, op: str, width: int, mask: Value, a: Value, b: Value) -> Value:
    lanes = _lanes(mask, a, b)
    return e.define(f"select {e.typed(mask, lanes)}, {e.typed(a, lanes)}, {e.typed(b, lanes)}", width, lanes)


def _float(e: HostEngine, op: str, width: int, a: Value, b: Value) -> Value:
    lanes = _lanes(a, b)
    flushed = e.flushed_inputs(width, (a, b))
    left, right = (e.as_float(x, lanes) for x in flushed)
    result = e.from_float(f"{_LLVM_FLOAT[op]} {left}, {right.rsplit(' ', 1)[1]}", width, lanes)
    return e.finish_float(e.rounded(op, result, flushed), (a, b))


def _float_call(e: HostEngine, op: str, width: int, *operands: Value) -> Value:
    if (op, width) == ("fma", 16):
        return _fma16(e, op, *operands)
    lanes = _lanes(*operands)
    flushed = e.flushed_inputs(width, operands)
    inputs = [e.as_float(x, lanes) for x in flushed]
    result = e.from_float(e.call_intrinsic(_LLVM_FLOAT_CALL[op], width, lanes, inputs, True), width, lanes)
    return e.finish_float(e.rounded(op, result, flushed), operands)


def _float_compare(e: HostEngine, op: str, width: int, a: Value, b: Value) -> Value:
    lanes = _lanes(a, b)
    left, right = (e.as_float(x, lanes) for x in e.flushed_inputs(width, (a, b)))
    return e.define(f"fcmp {_LLVM_FLOAT_COMPARE[op]} {left}, {right.rsplit(' ', 1)[1]}", 1, lanes)


def _float_resize(e: HostEngine, op: str, width: int, a: Value) -> Value:
    flushed = e.flushed_inputs(a.width, (a,))[0]
    source = _round_to_odd_f32(e, flushed) if (a.width, width) == (64, 16) else flushed
    text = e.as_float(source, a.lanes)
    result = e.from_float(f"{op} {text} to {type_of(width, a.lanes, True)}", width, a.lanes)
    direction = e.mode.rounding(a.width, width)
    if direction and op == "fptrunc":
        result = e.directed(op, result, (flushed,), direction, e.finite_mask(flushed))
    if not e.mode.denorm(width) & 2:
        result = e.flush(result)
    return e.apply("select", width, e.nan_mask(a), _resized_nan(e, a, width), result)


def _round_to_odd_f32(e: HostEngine, a: Value) -> Value:
    """f64 to f32 rounded to odd, so that a second rounding to f16 is the right one (hosts lack f64 to f16)."""
    text, single = e.as_float(a, a.lanes), type_of(32, a.lanes, True)
    near = e.from_float(f"fptrunc {text} to {single}", 32, a.lanes)
    back = e.from_float(f"fpext {e.as_float(near, a.lanes)} to {type_of(64, a.lanes, True)}", 64, a.lanes)
    magnitude = e.constant((1 << 63) - 1, 64)
    above = e.apply("ult", 64, e.apply("and", 64, a, magnitude), e.apply("and", 64, back, magnitude))
    cut = e.apply("sub", 32, near, e.apply("zext", 32, above))
    odd = e.apply("or", 32, cut, e.constant(1, 32))
    return e.apply("select", 32, e.apply("eq", 64, a, back), near, odd)


def _resized_nan(e: HostEngine, a: Value, width: int) -> Value:
    """Sign and the payload's top bits, quieted."""
    wide = max(width, a.width)
    bits = _resize(e, "zext", wide, a)
    sign = e.apply("and", wide, e.apply("lshr", wide, bits, e.constant(a.width - 1, wide)), e.constant(1, wide))
    sign = e.apply("shl", wide, sign, e.constant(width - 1, wide))
    payload = e.apply("and", wide, bits, e.constant((1 << MANTISSA_BITS[a.width]) - 1, wide))
    shift = MANTISSA_BITS[width] - MANTISSA_BITS[a.width]
    payload = e.apply("shl" if shift > 0 else "lshr", wide, payload, e.constant(abs(shift), wide))
    quiet = e.constant(infinity_bits(width) | quiet_bit(width), wide)
    whole = e.apply("or", wide, e.apply("or", wide, sign, payload), quiet)
    return _resize(e, "trunc", width, whole)


def _fma16(e: HostEngine, op: str, *operands: Value) -> Value:
    """f16 fma through doubles: the product is exact there, and the sum is exact or far from any f16 tie."""
    lanes = _lanes(*operands)
    double = type_of(64, lanes, True)
    flushed = e.flushed_inputs(16, operands)
    inputs = [e.as_float(x, lanes) for x in flushed]
    a, b, c = (e.define(f"fpext {x} to {double}", 64, lanes).text for x in inputs)
    product = e.define(f"fmul {double} {a}, {b}", 64, lanes)
    total = _round_to_odd_f32(e, e.from_float(f"fadd {double} {product.text}, {c}", 64, lanes))
    half = e.from_float(f"fptrunc {e.as_float(total, lanes)} to {type_of(16, lanes, True)}", 16, lanes)
    # An invalid product is a NaN of the host's before the addend counts, so that the addend's has to be put in.
    asked = (*operands[:2], operands[2]._replace(touched=True))
    return e.finish_float(e.rounded(op, half, flushed), asked)


def _from_integer(e: HostEngine, op: str, width: int, a: Value) -> Value:
    nearest, direction = _nearest_integer(e, op, width, a), e.mode.rounding(width)
    return e.directed(op, nearest, (a,), direction, None) if direction else nearest


def _nearest_integer(e: HostEngine, op: str, width: int, a: Value) -> Value:
    if width == 16:
        single = e.from_float(f"{op} {e.typed(a, a.lanes)} to {type_of(32, a.lanes, True)}", 32, a.lanes)
        if a.width > 16:
            double = e.from_float(f"{op} {e.typed(a, a.lanes)} to {type_of(64, a.lanes, True)}", 64, a.lanes)
            single = _round_to_odd_f32(e, double)
        return e.from_float(f"fptrunc {e.as_float(single, a.lanes)} to {type_of(16, a.lanes, True)}", 16, a.lanes)
    return e.from_float(f"{op} {e.typed(a, a.lanes)} to {type_of(width, a.lanes, True)}", width, a.lanes)


def _to_integer(e: HostEngine, op: str, width: int, a: Value) -> Value:
    text = e.as_float(a, a.lanes)
    kind, source = text.rsplit(" ", 1)[0], f"f{a.width}"
    vector = "v64" if a.lanes else ""
    name = f"llvm.{op}.sat.{vector}i{width}.{vector}{source}"
    result = type_of(width, a.lanes)
    e.declared.add(f"declare {result} @{name}({kind})")
    return e.define(f"call {result} @{name}({text})", width, a.lanes)


def _gather(e: HostEngine, op: str, width: int, a: Value, lanes: Value) -> Value:
    """Through memory: lane values out, then a masked gather by index."""
    e.emit(f"store {e.typed(a, True)}, ptr %scratch, align 64")
    index = _resize(e, "zext", 64, _integer(e, "and", lanes.width, lanes, e.constant(63, lanes.width)))
    pointers = e.define(f"getelementptr i{width}, ptr %scratch, {e.typed(index, True)}", 64, True)
    kind = type_of(width, True)
    e.declared.add(f"declare {kind} @llvm.masked.gather.v64i{width}.v64p0(<64 x ptr>, i32, <64 x i1>, {kind})")
    mask = "<64 x i1> splat (i1 true)"
    call = (
        f"call {kind} @llvm.masked.gather.v64i{width}.v64p0(<64 x ptr> {pointers.text}, i32 1, {mask}, {kind} poison)"
    )
    return e.define(call, width, True)


def _readlane(e: HostEngine, op: str, width: int, a: Value, lane: Value) -> Value:
    if not a.lanes:
        return a
    index = _integer(e, "and", lane.width, lane, e.constant(63, lane.width))
    return e.define(f"extractelement {e.typed(a, True)}, {e.typed(index, False)}", width, False)


def _writelane(e: HostEngine, op: str, width: int, a: Value, lane: Value, scalar: Value) -> Value:
    index = _integer(e, "and", lane.width, lane, e.constant(63, lane.width))
    return e.define(f"insertelement {e.typed(a, True)}, {e.typed(scalar, False)}, {e.typed(index, False)}", width, True)


def _ballot(e: HostEngine, op: str, width: int, mask: Value) -> Value:
    return e.define(f"bitcast {e.typed(mask, True)} to i64", 64, False)


def _lanes_of(e: HostEngine, op: str, width: int, bits: Value) -> Value:
    return e.define(f"bitcast {e.typed(bits, False)} to <64 x i1>", 1, True)


def _splat(e: HostEngine, op: str, width: int, value: Value) -> Value:
    if value.lanes:
        return value
    return Value(e.operand(value, True), width, True)


Operation = Callable[..., Value]
OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(_LLVM_INTEGER, _integer),
    **dict.fromkeys(("shl", "lshr", "ashr"), _shift),
    **dict.fromkeys(_LLVM_CALL, _call),
    **dict.fromkeys(("clz", "ctz"), _count_zeros),
    **dict.fromkeys(_LLVM_COMPARE, _compare),
    **dict.fromkeys(("zext", "sext", "trunc"), _resize),
    "select": _select,
    **dict.fromkeys(_LLVM_FLOAT, _float),
    **dict.fromkeys(_LLVM_FLOAT_CALL, _float_call),
    **dict.fromkeys(_LLVM_FLOAT_COMPARE, _float_compare),
    **dict.fromkeys(("fpext", "fptrunc"), _float_resize),
    **dict.fromkeys(("sitofp", "uitofp"), _from_integer),
    **dict.fromkeys(("fptosi", "fptoui"), _to_integer),
    "gather": _gather,
    "readlane": _readlane,
    "writelane": _writelane,
    "ballot": _ballot,
    "lanes_of": _lanes_of,
    "splat": _splat,
}
assert OPERATIONS.keys() == PRIMITIVES.keys(), OPERATIONS.keys() ^ PRIMITIVES.keys()
