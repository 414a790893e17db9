"""Number formats: what a code means, and which code an exact value becomes.

A `Format` is plain data (field widths, bias, which codes are NaN or infinite); its methods work on whole arrays with
integer arithmetic only, so the bits depend on no host rounding mode, flush mode or NaN choice.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gfx950.evidence import Evidence, rule

Overflow = Literal["nonsaturating", "saturating"]
Codes = npt.NDArray[np.unsignedinteger[Any]]

UNORDERED: Final = np.iinfo(np.int64).max
"""What `Format.ulp_distance` returns where exactly one of the two codes is NaN."""

LAYOUT = rule(
    "formats.layout",
    Evidence.spec,
    "CDNA4 ISA, section 7.2 and table 30; OCP FP8 and MX v1.0",
    "Field widths, biases and special codes: FP8 = E4M3 without Inf, NaN x7f; BF8 = E5M2 with Inf; FP6 = E2M3, "
    "BF6 = E3M2 and FP4 = E2M1 without Inf and NaN; E8M0 = 2^(code-127) with NaN 0xff.",
)
ROUNDING = rule(
    "formats.rounding",
    Evidence.spec,
    "CDNA4 ISA, chapter 12 (v_cvt_pk_{fp8,bf8,f16,bf16}_f32) and section 7.3",
    "Round to nearest, ties to even, once, from the exact value, whatever MODE says.",
)
SUBNORMALS = rule(
    "formats.subnormals",
    Evidence.spec,
    "CDNA4 ISA, section 7.3: the narrow formats keep denormals",
    "Subnormal results and the sign of zero are kept. For f32, f16 and bf16 too: a flush by MODE is the instruction's.",
)
OVERFLOW_EDGE = rule(
    "formats.overflow_edge",
    Evidence.published,
    "RCCL issue 9556 (gfx950, all 65536 pair sums): 436 results overflow in e4m3fn and 120 in e5m2",
    "Overflow is judged after rounding: e4m3fn overflows for |x| > 464 (464 is a tie that goes down to 448), e5m2 for "
    "|x| >= 61440 (a tie that goes up).",
)
OVERFLOW_CODE = rule(
    "formats.overflow_code",
    Evidence.spec,
    "CDNA4 ISA, section 7.3, FP16_OVFL = 0",
    "Without saturation a value over the maximum and an infinity become NaN in e4m3fn and Inf of their sign in e5m2.",
)
SATURATION = rule(
    "formats.saturation",
    Evidence.spec,
    "CDNA4 ISA, section 7.3, FP16_OVFL = 1 (used on MI350 by triton PR 7337)",
    "With saturation a value over the maximum becomes the maximum of its sign, in e4m3fn Inf does too; NaN stays NaN.",
)
SATURATION_INFINITY = rule(
    "formats.saturation_infinity",
    Evidence.vendor,
    "CDNA4 ISA, section 7.3, leaves the BF8 cell blank; AMD's HIP host conversions (amd_hip_ocp_host.hpp) do the same",
    "With saturation an infinity becomes the maximum of its sign in e5m2 and all other formats that have infinities.",
)
NO_INFINITY = rule(
    "formats.no_infinity",
    Evidence.spec,
    "CDNA4 ISA, section 7.3",
    "FP6, BF6 and FP4 have neither Inf nor NaN: a finite value over the maximum saturates in either mode.",
)
NO_INFINITY_SPECIALS = rule(
    "formats.no_infinity_specials",
    Evidence.vendor,
    "not specified by the CDNA4 ISA; AMD's HIP host conversions (amd_hip_ocp_host.hpp) do the same",
    "Inf and NaN become the maximum of their sign in FP6, BF6 and FP4.",
)
NAN_F8 = rule(
    "formats.nan_f8",
    Evidence.vendor,
    "CDNA4 ISA, section 7.3, says NaN; AMD's HIP host conversions (amd_hip_ocp_host.hpp) give these codes",
    "NaN keeps its sign and loses its payload: e5m2 7e, e4m3fn 7f. The NaN made by overflow has the sign of the value.",
)
NAN_CODE = rule(
    "formats.nan_code",
    Evidence.chosen,
    "payloads are unknown on gfx950; AMD's HIP host conversions make all bits of a 16-bit NaN ones",
    "NaN keeps its sign and loses its payload: f32 7fc00000, f16 7e00, bf16 7fc0; FNUZ 80 and E8M0 ff have one NaN.",
)
FNUZ = rule(
    "formats.fnuz",
    Evidence.chosen,
    "formats of gfx942, which gfx950 no longer converts to; as ml_dtypes and torch do",
    "Overflow without saturation gives NaN (80); -0 and values that round to it give 0.",
)
E8M0_ENCODE = rule(
    "formats.e8m0_encode",
    Evidence.chosen,
    "the ISA has no conversion to E8M0; OCP MX v1.0 names the codes only",
    "To the nearest power of two, a tie to the larger (the even significand); both zeros and tiny values give 2^-127; "
    "negative values and NaN give NaN; overflow and Inf give NaN, with saturation 2^127.",
)


class NanKind(enum.Enum):
    """Which codes are NaN."""

    none = "no code"
    ieee = "exponent all ones, mantissa not zero"
    all_ones = "all bits below the sign are ones"
    negative_zero = "the code that would be -0 (FNUZ)"


class Fields(NamedTuple):
    """The three bit fields of one code, as stored (exponent biased). `sign` is 0 where the format has no sign bit."""

    sign: int
    exponent: int
    mantissa: int


@dataclass(frozen=True)
class Format:
    """A binary floating-point format of at most 32 bits.

    name: as in the open standards, lower case. bits: width of a code. bias: of the stored exponent. infinities: whether
    it has them. nan: which codes are NaN. canonical_nan: the NaN code that `encode` gives a NaN of positive sign (None
    without NaN). signed: whether the top bit is a sign; only E8M0 has none, and no subnormals and no zero either.
    Codes live in the smallest unsigned dtype that holds them, one code an item (`code_dtype`).
    Source: rules `formats.*`.
    """

    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    infinities: bool
    nan: NanKind
    canonical_nan: int | None
    signed: bool = True

    @property
    def code_dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """uint8, uint16 or uint32."""
        if self.bits <= 8:
            return np.dtype(np.uint8)
        return np.dtype(np.uint16 if self.bits == 16 else np.uint32)

    @property
    def sign_mask(self) -> int:
        """The sign bit, 0 when there is none."""
        return 1 << (self.bits - 1) if self.signed else 0

    @property
    def magnitude_mask(self) -> int:
        """All bits but the sign."""
        return (1 << (self.exponent_bits + self.mantissa_bits)) - 1

    @property
    def max_code(self) -> int:
        """Code of the largest finite value."""
        match self.nan:
            case NanKind.ieee:
                return (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1
            case NanKind.all_ones:
                return self.magnitude_mask - 1
            case NanKind.none | NanKind.negative_zero:
                return self.magnitude_mask

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal value, `min_normal` = 2^min_exponent."""
        return 1 - self.bias if self.signed else -self.bias

    @property
    def max(self) -> float:
        """Largest finite value."""
        return float(self.decode(self.max_code))

    @property
    def min_normal(self) -> float:
        """Smallest positive normal value."""
        return 2.0**self.min_exponent

    @property
    def min_subnormal(self) -> float:
        """Smallest positive value (E8M0 has no subnormals: its smallest power of two)."""
        return 2.0 ** (self.min_exponent - self.mantissa_bits)

    def decode(self, codes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The exact values of `codes` (integers, any shape) as float64 of that shape; NaN codes give NaN, -0 is kept.

        Raises TypeError when the codes are not integers, ValueError when one does not fit the format.
        """
        checked = self._checked(codes)
        if self.bits <= 16:
            return np.asarray(_values(self)[checked])
        return self._decode(checked)

    def encode(self, x: npt.ArrayLike, overflow: Overflow = "nonsaturating") -> Codes:
        """The codes nearest to `x` (float32 or float64, any shape), ties to even, rounded once from the exact value.

        `overflow` says what becomes of values over the maximum and of infinities (rules `formats.overflow_*`,
        `formats.saturation*`). Raises TypeError for other dtypes, ValueError for an unknown `overflow`.
        """
        values = np.asarray(x)
        if values.dtype == np.float32:
            return self._encode(values.view(np.uint32), _F32_SOURCE, overflow)
        if values.dtype == np.float64:
            return self._encode(values.view(np.uint64), _F64_SOURCE, overflow)
        raise TypeError(
            f"{self.name}.encode takes float32 or float64, got {values.dtype}; narrower floats fit float32 exactly"
        )

    def encode_f32(self, bits: npt.NDArray[np.uint32], overflow: Overflow = "nonsaturating") -> Codes:
        """As `encode`, of float32 values given by their bits, a uint32 array."""
        array = np.asarray(bits)
        if array.dtype != np.uint32:
            raise TypeError(f"{self.name}.encode_f32 takes the bits of float32 values as uint32, got {array.dtype}")
        return self._encode(array, _F32_SOURCE, overflow)

    def is_nan(self, codes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Which of `codes` are NaN, same shape. Errors as `decode`."""
        checked = self._checked(codes)
        magnitude = checked & self.magnitude_mask
        match self.nan:
            case NanKind.none:
                return np.zeros(checked.shape, bool)
            case NanKind.ieee:
                return np.asarray(magnitude > self.max_code + 1)
            case NanKind.all_ones:
                return np.asarray(magnitude == self.magnitude_mask)
            case NanKind.negative_zero:
                return np.asarray(checked == self.sign_mask)

    def fields(self, code: int) -> Fields:
        """The bit fields of one code. Errors as `decode`."""
        code = int(self._checked(code))
        exponent = code >> self.mantissa_bits & ((1 << self.exponent_bits) - 1)
        return Fields(int(code & self.sign_mask != 0), exponent, code & ((1 << self.mantissa_bits) - 1))

    def show(self, code: int) -> str:
        """One code for people: hexadecimal, sign|exponent|mantissa in binary, value, e.g. `0x7e  0|1111|110  448.0`."""
        sign, exponent, mantissa = self.fields(code)
        binary = [f"{sign}"] if self.signed else []
        binary.append(f"{exponent:0{self.exponent_bits}b}")
        if self.mantissa_bits:
            binary.append(f"{mantissa:0{self.mantissa_bits}b}")
        digits = (self.bits + 3) // 4
        return f"0x{int(code):0{digits}x}  {'|'.join(binary)}  {float(self.decode(code))!r}"

    def ulp_distance(self, a: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """How many representable values lie between the codes `a` and `b` (broadcast), as int64; 0 for equal values.

        -0 and +0 are one value, an infinity is the neighbour of the largest finite value, two NaNs are at distance 0,
        NaN and a number at `UNORDERED`. Errors as `decode`.
        """
        distance = np.abs(self._order(a) - self._order(b))
        a_nan, b_nan = self.is_nan(a), self.is_nan(b)
        return np.where(a_nan | b_nan, np.where(a_nan & b_nan, 0, UNORDERED), distance)

    def _order(self, codes: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The position of each code on the number line, counted from zero."""
        wide = self._checked(codes).astype(np.int64)
        magnitude = wide & self.magnitude_mask
        return np.where(wide & self.sign_mask != 0, -magnitude, magnitude)

    def _checked(self, codes: npt.ArrayLike) -> Codes:
        """`codes` in `code_dtype`, or the error that says why not."""
        array = np.asarray(codes)
        if array.dtype.kind not in "iu":
            raise TypeError(f"codes of {self.name} are integers, got {array.dtype}; view them as {self.code_dtype}")
        if array.dtype == self.code_dtype and self.bits == 8 * array.dtype.itemsize:
            return array
        outside = (array < 0) | (array >= 1 << self.bits)
        if outside.any():
            at = tuple(int(i) for i in np.argwhere(outside)[0])
            raise ValueError(f"code {int(array[at]):#x} at index {at} does not fit the {self.bits} bits of {self.name}")
        return array.astype(self.code_dtype)

    def _decode(self, codes: Codes) -> npt.NDArray[np.float64]:
        """Decodes by arithmetic: significand times a power of two, both exact in float64."""
        code = codes.astype(np.uint64)
        exponent = code >> self.mantissa_bits & ((1 << self.exponent_bits) - 1)
        fraction = code & ((1 << self.mantissa_bits) - 1)
        if self.signed:
            fraction = np.where(exponent > 0, fraction | 1 << self.mantissa_bits, fraction)
            exponent = np.maximum(exponent, 1)
        else:
            fraction = np.ones_like(fraction)
        power = (exponent + (1023 - self.bias - self.mantissa_bits)) << 52
        values = fraction.astype(np.float64) * power.view(np.float64)
        values = np.where(code & self.sign_mask != 0, -values, values)
        if self.infinities:
            infinite = code & self.magnitude_mask == self.max_code + 1
            values = np.where(infinite, np.copysign(np.inf, values), values)
        return np.where(self.is_nan(codes), np.nan, values)

    def _encode(self, bits: Codes, source: _Source, overflow: Overflow) -> Codes:
        """Encodes values given by their bits in the wider format `source`, in blocks that stay in the cache."""
        flat = bits.reshape(-1)
        codes = np.empty(flat.shape, self.code_dtype)
        overflow_code = self._overflow_code(overflow)
        for start in range(0, flat.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            codes[part] = self._encode_block(flat[part], source, overflow_code)
        return codes.reshape(bits.shape)

    def _encode_block(self, bits: Codes, source: _Source, overflow_code: int) -> npt.NDArray[Any]:
        """The codes of one block, in the dtype of `bits`."""
        magnitude = bits & (source.sign_bit - 1)
        code = self._round(magnitude, source)
        np.copyto(code, overflow_code, where=code > self.max_code)
        np.copyto(code, self._nan_code(), where=magnitude > source.infinity)
        negative = bits >> source.sign_shift
        if not self.signed:
            np.copyto(code, self._nan_code(), where=(negative != 0) & (magnitude != 0))
        elif self.nan is NanKind.negative_zero:
            code |= negative * ((code != 0) & (code != self.sign_mask)) << (self.bits - 1)
        else:
            code |= negative << (self.bits - 1)
        return code

    def _round(self, magnitude: npt.NDArray[Any], source: _Source) -> npt.NDArray[Any]:
        """Nearest codes of positive values as if the exponent had no upper end: above `max_code` they overflow."""
        steps = (magnitude >> source.mantissa_bits).view(source.signed_dtype) - (self.min_exponent + source.bias)
        fraction = magnitude & ((1 << source.mantissa_bits) - 1)
        # The significand is doubled so that there is always a bit to round away; a subnormal has exponent 0 and is
        # doubled once more, which makes it a number of the next lower exponent.
        hidden = magnitude >> source.mantissa_bits != 0
        significand = np.where(hidden, fraction << 1 | 2 << source.mantissa_bits, fraction << 2)
        below = np.clip(-steps, 0, self.mantissa_bits + 2).astype(magnitude.dtype)
        drop = below + (source.mantissa_bits - self.mantissa_bits + 1)
        significand += (significand >> drop & 1) + (np.left_shift(1, drop - 1, dtype=magnitude.dtype) - 1)
        significand >>= drop
        if not self.signed:
            significand = np.maximum(significand, 1) - 1
        # Adding, not or-ing: the hidden bit and a carry out of the mantissa both count the exponent up.
        significand += np.maximum(steps, 0).astype(magnitude.dtype) << self.mantissa_bits
        return significand

    def _overflow_code(self, overflow: Overflow) -> int:
        """What a positive value over the maximum becomes."""
        if overflow not in ("nonsaturating", "saturating"):
            raise ValueError(f"overflow is 'nonsaturating' or 'saturating', got {overflow!r}")
        if overflow == "saturating":
            return self.max_code
        return self.max_code + 1 if self.infinities else self._nan_code()

    def _nan_code(self) -> int:
        """What a NaN of positive sign becomes."""
        return self.max_code if self.canonical_nan is None else self.canonical_nan


@dataclass(frozen=True)
class _Source:
    """The IEEE format that `Format.encode` reads."""

    bits: int
    mantissa_bits: int
    bias: int
    signed_dtype: type[np.signedinteger[Any]]

    @property
    def sign_shift(self) -> int:
        return self.bits - 1

    @property
    def sign_bit(self) -> int:
        return 1 << self.sign_shift

    @property
    def infinity(self) -> int:
        return (2 * self.bias + 1) << self.mantissa_bits


_BLOCK: Final = 1 << 16
_F32_SOURCE = _Source(32, 23, 127, np.int32)
_F64_SOURCE = _Source(64, 52, 1023, np.int64)


@cache
def _values(form: Format) -> npt.NDArray[np.float64]:
    """The value of every code of a format of at most 16 bits, read-only."""
    table = form._decode(np.arange(1 << form.bits, dtype=form.code_dtype))
    table.flags.writeable = False
    return table


F32 = Format("f32", 32, 8, 23, 127, True, NanKind.ieee, 0x7FC00000)
F16 = Format("f16", 16, 5, 10, 15, True, NanKind.ieee, 0x7E00)
BF16 = Format("bf16", 16, 8, 7, 127, True, NanKind.ieee, 0x7FC0)
E4M3FN = Format("e4m3fn", 8, 4, 3, 7, False, NanKind.all_ones, 0x7F)
E5M2 = Format("e5m2", 8, 5, 2, 15, True, NanKind.ieee, 0x7E)
E8M0FNU = Format("e8m0fnu", 8, 8, 0, 127, False, NanKind.all_ones, 0xFF, signed=False)
E2M3 = Format("e2m3", 6, 2, 3, 1, False, NanKind.none, None)
E3M2 = Format("e3m2", 6, 3, 2, 3, False, NanKind.none, None)
E2M1 = Format("e2m1", 4, 2, 1, 1, False, NanKind.none, None)
E4M3FNUZ = Format("e4m3fnuz", 8, 4, 3, 8, False, NanKind.negative_zero, 0x80)
E5M2FNUZ = Format("e5m2fnuz", 8, 5, 2, 16, False, NanKind.negative_zero, 0x80)

FORMATS: Final[dict[str, Format]] = {
    form.name: form for form in (F32, F16, BF16, E4M3FN, E5M2, E8M0FNU, E2M3, E3M2, E2M1, E4M3FNUZ, E5M2FNUZ)
}
"""Every format by name."""
