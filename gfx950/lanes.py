"""Typed lane values: what the body of an instruction and the source of a kernel compute with.

A lane value holds 64 lanes of one type, or one scalar of it (SALU); which of the two is the engine's business. Behind
the operators stands an engine: numpy arrays, host LLVM IR, or the tracer of the kernel language. An engine sees raw
bits and the primitive operations of `PRIMITIVES`; every type here is a view on them. Float operations follow the rules
`float.*` of the ledger on every engine.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar

from gfx950.evidence import Evidence, rule

LANES = 64  # of a wave
ALL_LANES = (1 << LANES) - 1  # EXEC with every lane on
Raw = Any  # an engine's own value: a numpy array, an LLVM IR value, an IR value of the kernel language


@dataclass(frozen=True)
class Primitive:
    """One operation of an engine. result: "same" (width of the call), "mask" (one bit a lane). text: its meaning."""

    operands: int
    result: str
    text: str


PRIMITIVES: dict[str, Primitive] = {
    # integers of the call's width, modulo 2^width
    "add": Primitive(2, "same", "a + b"),
    "sub": Primitive(2, "same", "a - b"),
    "mul": Primitive(2, "same", "low half of a * b"),
    "and": Primitive(2, "same", "bitwise and"),
    "or": Primitive(2, "same", "bitwise or"),
    "xor": Primitive(2, "same", "bitwise exclusive or"),
    "shl": Primitive(2, "same", "a << (b mod width)"),
    "lshr": Primitive(2, "same", "a >> (b mod width), zeros enter"),
    "ashr": Primitive(2, "same", "a >> (b mod width), the sign enters"),
    "umin": Primitive(2, "same", "unsigned minimum"),
    "umax": Primitive(2, "same", "unsigned maximum"),
    "smin": Primitive(2, "same", "signed minimum"),
    "smax": Primitive(2, "same", "signed maximum"),
    "popcount": Primitive(1, "same", "number of ones"),
    "clz": Primitive(1, "same", "leading zeros; width for 0"),
    "ctz": Primitive(1, "same", "trailing zeros; width for 0"),
    "bitreverse": Primitive(1, "same", "bits in reverse order"),
    "eq": Primitive(2, "mask", "a == b"),
    "ne": Primitive(2, "mask", "a != b"),
    "ult": Primitive(2, "mask", "a < b unsigned"),
    "ule": Primitive(2, "mask", "a <= b unsigned"),
    "slt": Primitive(2, "mask", "a < b signed"),
    "sle": Primitive(2, "mask", "a <= b signed"),
    "zext": Primitive(1, "same", "zero-extends to the call's width"),
    "sext": Primitive(1, "same", "sign-extends to the call's width"),
    "trunc": Primitive(1, "same", "keeps the low bits"),
    "select": Primitive(3, "same", "mask ? a : b"),
    # IEEE floats of the call's width (16, 32, 64), rounding and denormals by MODE
    "fadd": Primitive(2, "same", "a + b"),
    "fsub": Primitive(2, "same", "a - b"),
    "fmul": Primitive(2, "same", "a * b"),
    "fdiv": Primitive(2, "same", "a / b, correctly rounded"),
    "fma": Primitive(3, "same", "a * b + c, rounded once"),
    "fsqrt": Primitive(1, "same", "square root, correctly rounded"),
    "ffloor": Primitive(1, "same", "to an integral value, down"),
    "fceil": Primitive(1, "same", "to an integral value, up"),
    "ftrunc": Primitive(1, "same", "to an integral value, toward zero"),
    "frint": Primitive(1, "same", "to an integral value, nearest even"),
    "feq": Primitive(2, "mask", "a == b, false with a NaN"),
    "flt": Primitive(2, "mask", "a < b, false with a NaN"),
    "fle": Primitive(2, "mask", "a <= b, false with a NaN"),
    "funo": Primitive(2, "mask", "a or b is a NaN"),
    "fpext": Primitive(1, "same", "to the wider float of the call's width, exact; a NaN is quieted, its payload kept"),
    "fptrunc": Primitive(1, "same", "to the narrower float; a NaN is quieted, its payload's top kept"),
    "sitofp": Primitive(1, "same", "signed integer to float"),
    "uitofp": Primitive(1, "same", "unsigned integer to float"),
    "fptosi": Primitive(1, "same", "float to signed integer of the call's width toward zero; saturates, NaN gives 0"),
    "fptoui": Primitive(1, "same", "float to unsigned integer of the call's width toward zero; saturates, NaN gives 0"),
    # across lanes
    "gather": Primitive(2, "same", "lane i of the result is lane b[i] mod 64 of a"),
    "readlane": Primitive(2, "same", "the scalar in lane b mod 64 of a (b a scalar)"),
    "writelane": Primitive(3, "same", "a with lane b mod 64 replaced by the scalar c"),
    "ballot": Primitive(1, "same", "64-bit scalar of a mask, lane i at bit i"),
    "lanes_of": Primitive(1, "mask", "mask of a 64-bit scalar: the inverse of ballot"),
    "splat": Primitive(1, "same", "a scalar in every lane"),
}

FLOAT_NAN = rule(
    "float.nan_operand",
    Evidence.chosen,
    "the manual leaves it open; LDS/L2 atomics: first NaN operand, quieted (9.2.3); generated NaNs in examples",
    "An arithmetic result is the first NaN operand in source order, quieted with its payload kept, whatever MODE.IEEE"
    " says; a NaN made from no NaN is the negative quiet NaN (f32 0xffc00000).",
)
FLOAT_ROUND = rule(
    "float.round",
    Evidence.spec,
    "CDNA4 ISA 6.4, 12 preface; MODE[3:0]",
    "Add, multiply, fused multiply-add and conversions are rounded once, in MODE's direction.",
)
FLOAT_ENDS = rule(
    "float.ends",
    Evidence.chosen,
    "the manual names the directions only; IEEE 754-2019 4.3, 6.3, 7.4",
    "Rounding away from zero overflows to infinity, toward it to the largest number; a sum of nonzero numbers that is"
    " exactly zero, and that of zeros of both signs, is +0, rounding down -0.",
)
FLOAT_FLUSH = rule(
    "float.flush_after_rounding",
    Evidence.chosen,
    "CDNA4 ISA 6.4 says that denormal results are flushed, not whether one is denormal before or after it is rounded",
    "A result is flushed if it is a denormal after it was rounded as if denormals were kept.",
)
FLOAT_ROUND_FIELD = rule(
    "float.round_field",
    Evidence.vendor,
    "CDNA4 ISA 12.8 V_CVT_F16_F32 names MODE's double field; for V_CVT_F32_F64 LLVM's SIModeRegister sets the same",
    "A conversion between floats rounds by MODE[3:2] where either of them is f16 or f64, f64 to f32 too.",
)
FLOAT_DENORM = rule(
    "float.denorm",
    Evidence.spec,
    "CDNA4 ISA 3.5, 6.4; MODE[7:4]",
    "Denormal inputs and outputs are kept or replaced by a zero of the same sign, by MODE's two bits for the width.",
)


@dataclass(frozen=True)
class Mode:
    """The MODE register's fields that change bits. Rounding codes: 0 nearest even, 1 up, 2 down, 3 toward zero.

    Denormal codes: bit 0 keeps inputs, bit 1 keeps outputs. gpr_idx: M0 indexes vector registers. vskip: vector
    instructions are skipped. [CDNA4 ISA 3.5, 6.6, 12.4 S_SETVSKIP]
    """

    round32: int = 0
    round16_64: int = 0
    denorm32: int = 3
    denorm16_64: int = 3
    dx10_clamp: bool = True
    ieee: bool = True
    fp16_ovfl: bool = False
    gpr_idx: bool = False
    vskip: bool = False

    @classmethod
    def from_bits(cls, bits: int) -> Mode:
        """The fields of a 32-bit MODE value."""
        return cls(
            bits & 3,
            bits >> 2 & 3,
            bits >> 4 & 3,
            bits >> 6 & 3,
            bool(bits >> 8 & 1),
            bool(bits >> 9 & 1),
            bool(bits >> 23 & 1),
            bool(bits >> 27 & 1),
            bool(bits >> 28 & 1),
        )

    def rounding(self, *widths: int) -> int:
        """The rounding code of an operation on floats of these widths [rule float.round_field]."""
        return self.round32 if all(width == 32 for width in widths) else self.round16_64

    def denorm(self, width: int) -> int:
        """The denormal code for floats of `width` bits."""
        return self.denorm32 if width == 32 else self.denorm16_64


class Engine(Protocol):
    """What stands behind lane values. `mode` is fixed while a body runs."""

    mode: Mode
    traces: bool  # True: an instruction called on this engine's values is recorded, its body does not run

    def apply(self, op: str, width: int, *operands: Raw) -> Raw:
        """One primitive of `PRIMITIVES`; `width` is the result's width, or the operands' where the result is a mask."""
        ...

    def constant(self, bits: int, width: int) -> Raw:
        """A scalar with these bits (width 1: a mask scalar)."""
        ...

    def permute(self, value: Raw, width: int, lanes: tuple[int, ...]) -> Raw:
        """Lane i of the result is lane `lanes[i]` of `value`; 64 static indices."""
        ...

    def native(self, name: str, inputs: Sequence[Raw], parameters: int) -> list[Raw]:
        """A big body by name (gfx950.arithmetic.native): 32-bit lanes in, 32-bit lanes out."""
        ...


L = TypeVar("L", bound="Lanes")


MANTISSA_BITS = {16: 10, 32: 23, 64: 52}  # stored ones, by the width of the float


def infinity_bits(width: int) -> int:
    """The bits of +infinity in a float of `width` bits: the exponent's ones, below which lie all finite magnitudes."""
    return (1 << width - 1) - (1 << MANTISSA_BITS[width])


def float_bits(value: float, width: int) -> int:
    """The IEEE bits of a Python float in `width` bits, nearest even; overflow gives infinity."""
    formats = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}
    pack, unpack = formats[width]
    try:
        return int(struct.unpack(unpack, struct.pack(pack, float(value)))[0])
    except OverflowError:
        return int(struct.unpack(unpack, struct.pack(pack, float("inf") if value > 0 else float("-inf")))[0])


class Lanes:
    """A value of one type in every lane. Made by engines and operators; `T(engine, raw)` wraps raw bits."""

    __slots__ = ("engine", "raw")
    width: ClassVar[int] = 0

    def __init__(self, engine: Engine, raw: Raw) -> None:
        self.engine = engine
        self.raw = raw

    @classmethod
    def constant(cls, engine: Engine, value: int | float) -> Self:
        """A constant of this type on `engine`."""
        return cls(engine, engine.constant(cls.constant_bits(value), cls.width))

    @classmethod
    def constant_bits(cls, value: int | float) -> int:
        """The bits of a Python number in this type. Raises TypeError and ValueError for one that it does not hold."""
        if not isinstance(value, int):
            raise TypeError(
                f"{value!r} is no integer: {cls.__name__} holds integers; write {cls.__name__}.constant of an int"
            )
        if not -(1 << cls.width - 1) <= value < 1 << cls.width:
            raise ValueError(f"{value} does not fit the {cls.width} bits of {cls.__name__}")
        return value & ((1 << cls.width) - 1)

    def coerce(self, other: Any) -> Self:
        """`other` as this value's type: the same type, or a Python number. Raises TypeError for anything else."""
        if type(other) is type(self):
            return other
        if isinstance(other, (bool, int, float)):
            return type(self).constant(self.engine, other)
        raise TypeError(
            f"{type(self).__name__} and {type(other).__name__} do not mix:"
            " convert one with .to(T) (value) or .bits(T) (same bits)"
        )

    def _op(self, op: str, *others: Any) -> Self:
        return type(self)(
            self.engine, self.engine.apply(op, self.width, self.raw, *(self.coerce(o).raw for o in others))
        )

    def _reverse(self, op: str, other: Any) -> Self:
        return self.coerce(other)._op(op, self)

    def _compare(self, op: str, other: Any, swap: bool = False) -> Mask:
        a, b = self.raw, self.coerce(other).raw
        return Mask(self.engine, self.engine.apply(op, self.width, b if swap else a, a if swap else b))

    def bits(self, kind: type[L]) -> L:
        """The same bits seen as another type of the same width."""
        if kind.width != self.width:
            raise TypeError(
                f"{type(self).__name__} has {self.width} bits, {kind.__name__} {kind.width}:"
                " use .to() to change the width"
            )
        return kind(self.engine, self.raw)

    def to(self, kind: type[L]) -> L:
        """The value converted to another type: extension, truncation, or a float conversion rounded by MODE."""
        op = _conversion(type(self), kind)
        return self.bits(kind) if op is None else kind(self.engine, self.engine.apply(op, kind.width, self.raw))

    def permute(self, lanes: Sequence[int]) -> Self:
        """Lane i of the result is lane `lanes[i]` of this value (64 static indices)."""
        return type(self)(self.engine, self.engine.permute(self.raw, self.width, tuple(lanes)))

    def gather(self, lanes: U32) -> Self:
        """Lane i of the result is lane `lanes[i]` mod 64 of this value."""
        return self._with("gather", lanes.raw)

    def readlane(self, lane: U32) -> Self:
        """The scalar in lane `lane` mod 64 (a scalar)."""
        return self._with("readlane", lane.raw)

    def writelane(self, lane: U32, value: Self) -> Self:
        """This value with lane `lane` mod 64 replaced by the scalar `value`."""
        return self._with("writelane", lane.raw, value.raw)

    def splat(self) -> Self:
        """A scalar in every lane."""
        return self._with("splat")

    def _with(self, op: str, *raws: Raw) -> Self:
        return type(self)(self.engine, self.engine.apply(op, self.width, self.raw, *raws))

    def __bool__(self) -> bool:
        raise TypeError(
            f"a {type(self).__name__} has a value in every lane, so Python's `if`, `and`, `or`, `not` and `while`"
            " cannot ask for its truth: use mask.select(a, b), & | ~, or branch / when / loop in a kernel"
        )

    def __index__(self) -> int:
        raise TypeError(
            f"a {type(self).__name__} has a value in every lane, so `range`, an index or a slice cannot take it: use"
            " loop(start, stop, carry=...)(body) for a loop, readlane or gather for a lane"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"

    __hash__ = None  # type: ignore[assignment]  # == makes a mask


class Mask(Lanes):
    """One bit a lane: a comparison's result, a carry, EXEC, VCC. Also SCC, as a scalar."""

    __slots__ = ()
    width = 1

    def __and__(self, other: Any) -> Mask:
        return self._op("and", other)

    def __or__(self, other: Any) -> Mask:
        return self._op("or", other)

    def __xor__(self, other: Any) -> Mask:
        return self._op("xor", other)

    def __invert__(self) -> Mask:
        return self._op("xor", 1)

    def select(self, a: L | float, b: L | float) -> L:
        """`a` where the bit is set, else `b`; one of them may be a Python number."""
        like = a if isinstance(a, Lanes) else b
        if not isinstance(like, Lanes):
            raise TypeError("select needs a lane value on at least one side: a Python number alone has no type")
        left, right = like.coerce(a), like.coerce(b)
        return type(like)(self.engine, self.engine.apply("select", like.width, self.raw, left.raw, right.raw))

    def ballot(self) -> U64:
        """The 64-bit scalar whose bit i is lane i."""
        return U64(self.engine, self.engine.apply("ballot", 64, self.raw))


class Bits(Lanes):
    """Bits without sign or float meaning; the base of the integers."""

    __slots__ = ()
    shift_right: ClassVar[str] = "lshr"

    def __and__(self, other: Any) -> Self:
        return self._op("and", other)

    def __or__(self, other: Any) -> Self:
        return self._op("or", other)

    def __xor__(self, other: Any) -> Self:
        return self._op("xor", other)

    def __rand__(self, other: Any) -> Self:
        return self._reverse("and", other)

    def __ror__(self, other: Any) -> Self:
        return self._reverse("or", other)

    def __rxor__(self, other: Any) -> Self:
        return self._reverse("xor", other)

    def __invert__(self) -> Self:
        return self._op("xor", -1)

    def __lshift__(self, other: Any) -> Self:
        return self._op("shl", other)

    def __rshift__(self, other: Any) -> Self:
        return self._op(self.shift_right, other)

    def __floordiv__(self, other: int) -> Self:
        """Floor division by a static power of two."""
        return self >> _log2(other)

    def __mod__(self, other: int) -> Self:
        """The floor remainder by a static power of two: never negative."""
        _log2(other)
        return self & (other - 1)

    def __add__(self, other: Any) -> Self:
        return self._op("add", other)

    def __radd__(self, other: Any) -> Self:
        return self._reverse("add", other)

    def __sub__(self, other: Any) -> Self:
        return self._op("sub", other)

    def __rsub__(self, other: Any) -> Self:
        return self._reverse("sub", other)

    def __mul__(self, other: Any) -> Self:
        return self._op("mul", other)

    def __rmul__(self, other: Any) -> Self:
        return self._reverse("mul", other)

    def __neg__(self) -> Self:
        return self._reverse("sub", 0)

    def __eq__(self, other: Any) -> Mask:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: Any) -> Mask:  # type: ignore[override]
        return self._compare("ne", other)

    def popcount(self) -> Self:
        """Number of ones."""
        return self._op("popcount")

    def clz(self) -> Self:
        """Leading zeros, the width for 0."""
        return self._op("clz")

    def ctz(self) -> Self:
        """Trailing zeros, the width for 0."""
        return self._op("ctz")

    def bitreverse(self) -> Self:
        """The bits in reverse order."""
        return self._op("bitreverse")

    def field(self, low: int, count: int) -> Self:
        """Bits low .. low + count - 1, moved to bit 0, zeros above (static positions)."""
        shifted = self._op("lshr", low) if low else self
        return shifted if low + count == self.width else shifted & ((1 << count) - 1)


class Unsigned(Bits):
    """Unsigned integers."""

    __slots__ = ()

    def __lt__(self, other: Any) -> Mask:
        return self._compare("ult", other)

    def __le__(self, other: Any) -> Mask:
        return self._compare("ule", other)

    def __gt__(self, other: Any) -> Mask:
        return self._compare("ult", other, swap=True)

    def __ge__(self, other: Any) -> Mask:
        return self._compare("ule", other, swap=True)

    def minimum(self, other: Any) -> Self:
        """Unsigned minimum."""
        return self._op("umin", other)

    def maximum(self, other: Any) -> Self:
        """Unsigned maximum."""
        return self._op("umax", other)


class Signed(Bits):
    """Two's complement integers."""

    __slots__ = ()
    shift_right = "ashr"

    def __lt__(self, other: Any) -> Mask:
        return self._compare("slt", other)

    def __le__(self, other: Any) -> Mask:
        return self._compare("sle", other)

    def __gt__(self, other: Any) -> Mask:
        return self._compare("slt", other, swap=True)

    def __ge__(self, other: Any) -> Mask:
        return self._compare("sle", other, swap=True)

    def minimum(self, other: Any) -> Self:
        """Signed minimum."""
        return self._op("smin", other)

    def maximum(self, other: Any) -> Self:
        """Signed maximum."""
        return self._op("smax", other)


def _log2(divisor: int) -> int:
    if not isinstance(divisor, int) or divisor <= 0 or divisor & (divisor - 1):
        raise ValueError(
            f"division by {divisor!r}: only static powers of two divide here (a shift);"
            " anything else needs v_rcp arithmetic"
        )
    return divisor.bit_length() - 1


class Float(Lanes):
    """IEEE floats; rounding and denormals by MODE."""

    __slots__ = ()

    @classmethod
    def constant_bits(cls, value: int | float) -> int:
        bits = float_bits(value, cls.width)
        if bits & ~(1 << cls.width - 1) == infinity_bits(cls.width) and abs(value) != math.inf:
            raise ValueError(f"{value} is beyond the largest {cls.__name__}; write float('inf') to mean infinity")
        return bits

    def __add__(self, other: Any) -> Self:
        return self._op("fadd", other)

    def __radd__(self, other: Any) -> Self:
        return self._reverse("fadd", other)

    def __sub__(self, other: Any) -> Self:
        return self._op("fsub", other)

    def __rsub__(self, other: Any) -> Self:
        return self._reverse("fsub", other)

    def __mul__(self, other: Any) -> Self:
        return self._op("fmul", other)

    def __rmul__(self, other: Any) -> Self:
        return self._reverse("fmul", other)

    def __truediv__(self, other: Any) -> Self:
        return self._op("fdiv", other)

    def __neg__(self) -> Self:
        return self._sign("xor", 1 << self.width - 1)

    def __abs__(self) -> Self:
        return self._sign("and", (1 << self.width - 1) - 1)

    def _sign(self, op: str, bits: int) -> Self:
        raw = self.engine.apply(op, self.width, self.raw, self.engine.constant(bits, self.width))
        return type(self)(self.engine, raw)

    def __eq__(self, other: Any) -> Mask:  # type: ignore[override]
        return self._compare("feq", other)

    def __ne__(self, other: Any) -> Mask:  # type: ignore[override]
        return ~self._compare("feq", other)

    def __lt__(self, other: Any) -> Mask:
        return self._compare("flt", other)

    def __le__(self, other: Any) -> Mask:
        return self._compare("fle", other)

    def __gt__(self, other: Any) -> Mask:
        return self._compare("flt", other, swap=True)

    def __ge__(self, other: Any) -> Mask:
        return self._compare("fle", other, swap=True)

    def is_nan(self) -> Mask:
        """True in the lanes that hold a NaN."""
        return self._compare("funo", self)

    def sqrt(self) -> Self:
        """Correctly rounded square root."""
        return self._op("fsqrt")

    def floor(self) -> Self:
        """Integral value at or below."""
        return self._op("ffloor")

    def ceil(self) -> Self:
        """Integral value at or above."""
        return self._op("fceil")

    def truncate(self) -> Self:
        """Integral value toward zero."""
        return self._op("ftrunc")

    def rint(self) -> Self:
        """Nearest integral value, ties to even."""
        return self._op("frint")


class U8(Unsigned):
    """8 bits."""

    __slots__ = ()
    width = 8


class U16(Unsigned):
    """16 bits, unsigned."""

    __slots__ = ()
    width = 16


class I16(Signed):
    """16 bits, signed."""

    __slots__ = ()
    width = 16


class U32(Unsigned):
    """32 bits, unsigned or untyped (`B32`)."""

    __slots__ = ()
    width = 32


class I32(Signed):
    """32 bits, signed."""

    __slots__ = ()
    width = 32


class U64(Unsigned):
    """64 bits, unsigned or untyped (`B64`)."""

    __slots__ = ()
    width = 64


class I64(Signed):
    """64 bits, signed."""

    __slots__ = ()
    width = 64


class F16(Float):
    """IEEE binary16."""

    __slots__ = ()
    width = 16


class F32(Float):
    """IEEE binary32."""

    __slots__ = ()
    width = 32


class F64(Float):
    """IEEE binary64."""

    __slots__ = ()
    width = 64


B16 = U16
B32 = U32
B64 = U64


class Words:
    """A run of 32-bit registers, lowest first: the operands wider than 64 bits."""

    __slots__ = ("words",)
    count: ClassVar[int] = 0

    def __init__(self, words: Sequence[U32]) -> None:
        if len(words) != self.count:
            raise ValueError(f"{type(self).__name__} takes {self.count} registers, got {len(words)}")
        self.words = tuple(words)

    def __getitem__(self, index: int) -> U32:
        return self.words[index]


class B96(Words):
    """3 registers."""

    __slots__ = ()
    count = 3


class B128(Words):
    """4 registers."""

    __slots__ = ()
    count = 4


class B192(Words):
    """6 registers."""

    __slots__ = ()
    count = 6


class B256(Words):
    """8 registers."""

    __slots__ = ()
    count = 8


class B512(Words):
    """16 registers."""

    __slots__ = ()
    count = 16


class B1024(Words):
    """32 registers."""

    __slots__ = ()
    count = 32


# The untyped operands by how many registers they have.
REGISTERS: dict[int, Any] = {1: U32, 2: U64, 3: B96, 4: B128, 6: B192, 8: B256, 16: B512, 32: B1024}


def registers_of(value: Any) -> tuple[U32, ...]:
    """The 32-bit registers of a value of 32, 64 or more bits, lowest first."""
    if isinstance(value, Words):
        return value.words
    return split(value) if value.width == 64 else (value,)


def in_registers(registers: Sequence[U32]) -> Any:
    """The inverse of `registers_of`: a U32, a U64 or a run."""
    if len(registers) == 1:
        return registers[0]
    return join(*registers) if len(registers) == 2 else REGISTERS[len(registers)](registers)


def fma(a: L, b: L | float, c: L | float) -> L:
    """a * b + c with one rounding; the three of one float type."""
    return a._op("fma", b, c)


def join(low: U32, high: U32) -> U64:
    """The 64-bit value of two registers, low one first."""
    return low.to(U64) | (high.to(U64) << 32)


def split(value: U64) -> tuple[U32, U32]:
    """The two registers of a 64-bit value, low one first."""
    return value.to(U32), (value >> 32).to(U32)


def lanes_of(bits: U64) -> Mask:
    """The mask whose lane i is bit i of a 64-bit scalar; the inverse of `Mask.ballot`."""
    return Mask(bits.engine, bits.engine.apply("lanes_of", 1, bits.raw))


def static_mask(engine: Engine, lanes: Sequence[bool]) -> Mask:
    """A mask known when the body is written: 64 booleans."""
    return lanes_of(U64.constant(engine, sum(1 << n for n, on in enumerate(lanes) if on)))


def static_lanes(engine: Engine, values: Sequence[int]) -> U32:
    """A lane value known when the body is written: 64 integers of at most 32 bits."""
    result = U32.constant(engine, 0)
    for bit in range(max(values).bit_length()):
        here = static_mask(engine, [bool(value >> bit & 1) for value in values])
        result = result | here.select(U32.constant(engine, 1 << bit), 0)
    return result


def _conversion(source: type[Lanes], target: type[Lanes]) -> str | None:
    """The primitive that converts, None where the bits stay."""
    if issubclass(source, Float):
        if issubclass(target, Float):
            return None if source.width == target.width else "fpext" if target.width > source.width else "fptrunc"
        return "fptosi" if issubclass(target, Signed) else "fptoui"
    if issubclass(target, Float):
        return "sitofp" if issubclass(source, Signed) else "uitofp"
    if source.width == target.width:
        return None
    if target.width < source.width:
        return "trunc"
    return "sext" if issubclass(source, Signed) else "zext"


ACCESS_BYTES = (1, 2, 4, 8, 12, 16)  # what one access of a lane may move


class LaneMemory(Protocol):
    """LDS or global memory as an instruction sees it: one address a lane, EXEC decides which lanes take part.

    where: lanes outside it take no part either, as if EXEC had them off. ahead: a scalar to add to every address.
    """

    def load(self, address: Any, nbytes: int, where: Mask | None = None, ahead: U64 | None = None) -> tuple[U32, ...]:
        """`nbytes` (1, 2, 4, 8, 12, 16) at each lane's byte address, as 32-bit words; 1 and 2 bytes zero-extended."""
        ...

    def store(
        self, address: Any, words: Sequence[U32], nbytes: int, where: Mask | None = None, ahead: U64 | None = None
    ) -> None:
        """The low `nbytes` of `words` to each lane's byte address."""
        ...

    def store_late(self, address: U32, words: Sequence[U32], nbytes: int, where: Mask | None = None) -> None:
        """As `store`, of the data of a load to LDS: they land when a wait retires the load [rule lds.late_landing]."""
        ...

    def size(self) -> U32:
        """Of LDS: the bytes of the workgroup's allocation, a scalar."""
        ...

    def atomic(self, address: Any, operands: Sequence[L], operation: Callable[..., L], where: Mask | None = None) -> L:
        """Lane after lane, ascending: the datum at the lane's address becomes `operation(datum, *operands)`, a scalar.

        The datum has the operands' type (32 or 64 bits). Gives the old data, 0 where no access took place.
        """
        ...


class HardwareRegisters(Protocol):
    """The registers that S_GETREG and S_SETREG name by number. [CDNA4 ISA 3, 12.2]"""

    def read(self, number: int) -> U32:
        """The whole register; 0 for one that does not exist."""
        ...

    def write(self, number: int, value: U32) -> None:
        """Writes what a user program may write of it: MODE; anything else stays as it is."""
        ...


class ScalarFile(Protocol):
    """The SGPRs under a number that is only known when the instruction runs. [CDNA4 ISA 5.7]"""

    def read(self, index: U32) -> U32:
        """SGPR `index`; SGPR 0 where there is none of that number."""
        ...

    def write(self, index: U32, value: U32) -> None:
        """Writes SGPR `index`; nothing where there is none of that number."""
        ...


class ScalarMemory(Protocol):
    """Memory as SMEM sees it: one scalar byte address."""

    def load(self, address: U64, words: int) -> tuple[U32, ...]:
        """`words` dwords from the scalar address on."""
        ...

    def load_bounded(self, address: U64, words: int, available: U64) -> tuple[U32, ...]:
        """As `load`, but only the first `available` dwords are read; the others are 0."""
        ...

    def store(self, address: U64, words: Sequence[U32], where: Mask | None = None) -> None:
        """The dwords from the scalar address on; where: a scalar, nothing is stored where it is false."""
        ...

    def atomic(self, address: U64, operands: Sequence[L], operation: Callable[..., L], where: Mask | None = None) -> L:
        """The datum at the address becomes `operation(datum, *operands)`. Gives the old datum, 0 where not `where`."""
        ...
