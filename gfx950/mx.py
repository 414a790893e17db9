"""MXFP8: blocks of 32 values that share one power of two, and the four public rules that pick it.

A block of 32 consecutive values becomes 32 FP8 codes and one E8M0 scale byte; a value is code * 2^(byte - 127).
The rules differ in the byte they derive from the largest magnitude of the block, nothing else (rules `mx.*`).
"""

from __future__ import annotations

import enum
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from gfx950.evidence import Evidence, rule
from gfx950.formats import E4M3FN, E5M2, E8M0FNU, F32, Codes, Format

BLOCK: Final = 32
"""Values that share a scale."""

Nonfinite = Literal["element", "block"]

BLOCK_FORMAT = rule(
    "mx.block",
    Evidence.spec,
    "OCP MX v1.0, section 5; CDNA4 ISA, section 7.2",
    "A block is 32 elements along the last axis with one E8M0 scale 2^(byte-127); byte 0xff makes all its values NaN.",
)
ROUND_UP = rule(
    "mx.round_up",
    Evidence.chosen,
    "AITER csrc/include/mx_quant_utils.h RoundUp (torchao RCEIL), with the clamp to 1..254 of vLLM's mx8_scale",
    "p = f32(amax * f32(1/max)); byte = exponent field of p, one more if its mantissa is not zero, kept within 1..254: "
    "the smallest scale with amax / scale <= max. Byte 0 is what AITER gives for p = 0 and torchao for p <= 2^-127.",
)
ROUND_DOWN = rule(
    "mx.round_down",
    Evidence.chosen,
    "OCP MX v1.0, section 6.3; torchao FLOOR, AITER RoundDown",
    "byte = exponent field of amax less the exponent of the largest power of two of the element format (8 for e4m3fn, "
    "15 for e5m2), at least 0. Clips what lies over the maximum after scaling.",
)
EVEN = rule(
    "mx.even",
    Evidence.chosen,
    "torchao EVEN, AMD Quark and AITER Even",
    "As mx.round_down, of amax first rounded (half up) to the mantissa width of the element format, so that an amax "
    "that would round up to the next power of two takes its scale.",
)
CEIL = rule(
    "mx.ceil",
    Evidence.chosen,
    "torchao CEIL; AITER Ceil differs by one step where amax * 2^-8 (e4m3fn) is a subnormal float32",
    "As mx.round_down, of amax first rounded up to a power of two. Never clips.",
)
ELEMENTS = rule(
    "mx.elements",
    Evidence.chosen,
    "vLLM's mx8_scale and AITER scale by the reciprocal of the scale; the denormal mode of their kernels is not known",
    "code = nearest code of value * 2^(127-byte), saturating, sign of zero kept. Float32 subnormals are kept, as "
    "input and as product amax * (1/max); a scaled value below the normal float32 is 0 in FP8 in either denormal mode.",
)
NONFINITE = rule(
    "mx.nonfinite",
    Evidence.chosen,
    "what the drafter's kernel does with NaN is not known; 'block' is what torchao does and AITER says of its scale",
    "'element': NaN is left out of amax and becomes a NaN code; Inf in a block makes the byte 254 and is the maximum. "
    "'block': a block with NaN or Inf gets byte 0xff and NaN codes only. A block of zeros (or NaN) has amax 0.",
)


class ScaleRule(enum.StrEnum):
    """How the scale byte follows from the largest magnitude: AITER's names, torchao's in brackets."""

    ROUND_DOWN = "RoundDown"  # FLOOR
    ROUND_UP = "RoundUp"  # RCEIL
    EVEN = "Even"
    CEIL = "Ceil"


def quantize(
    x: npt.NDArray[np.float32],
    rule: str = ScaleRule.ROUND_UP,
    element: Format = E4M3FN,
    nonfinite: Nonfinite = "element",
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Quantises float32 `x`, shape (..., 32 n), to FP8 codes of the same shape and E8M0 scale bytes of shape (..., n).

    rule: a `ScaleRule` or its value. element: E4M3FN or E5M2. nonfinite: what NaN and Inf do, see rule `mx.nonfinite`.
    Raises TypeError unless `x` is float32, ValueError for a last axis not a multiple of 32 or an unknown option.
    Bits by rules `mx.*`; the host's denormal mode has no say.
    """
    chosen = _rule(rule)
    _require_element(element)
    if nonfinite not in ("element", "block"):
        raise ValueError(f"nonfinite is 'element' or 'block', got {nonfinite!r}")
    bits = _blocks(x)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    nan = magnitude > _INFINITY
    scales = scale_bytes(np.where(nan, np.uint32(0), magnitude).max(axis=-1), chosen, element)
    codes = element.encode(F32.decode(bits) * _reciprocals(scales)[..., None], "saturating").astype(np.uint8)
    codes[nan] = element.encode_f32(bits[nan])
    if nonfinite == "block":
        poisoned = (magnitude >= _INFINITY).any(axis=-1)
        scales[poisoned] = _NAN_SCALE
        codes[poisoned] = element.encode_f32(_NAN)
    return codes.reshape(x.shape), scales


def dequantize(
    codes: npt.NDArray[np.uint8], scales: npt.NDArray[np.uint8], element: Format = E4M3FN
) -> npt.NDArray[np.float64]:
    """The exact float64 values of `codes`, shape (..., 32 n), with the E8M0 bytes `scales`, shape (..., n).

    Raises TypeError unless both are uint8, ValueError for shapes that do not fit. Byte 0xff gives NaN.
    """
    _require_element(element)
    for name, array in (("codes", codes), ("scales", scales)):
        if not isinstance(array, np.ndarray) or array.dtype != np.uint8:
            raise TypeError(f"{name} are a uint8 array, got {getattr(array, 'dtype', type(array).__name__)}")
    if codes.ndim == 0 or codes.shape[-1] % BLOCK or scales.shape != (*codes.shape[:-1], codes.shape[-1] // BLOCK):
        raise ValueError(f"codes (..., 32 n) have scales (..., n), got shapes {codes.shape} and {scales.shape}")
    blocks = element.decode(codes.reshape(*scales.shape, BLOCK))
    values = blocks * E8M0FNU.decode(scales)[..., None]
    return values.reshape(codes.shape)


def scale_bytes(amax: npt.NDArray[np.uint32], rule: str, element: Format = E4M3FN) -> npt.NDArray[np.uint8]:
    """The E8M0 bytes for the largest magnitudes `amax`, bits of non-negative float32 up to infinity, any shape.

    Infinity gives 254 under every rule. Raises ValueError for an unknown rule, a NaN or a negative number.
    """
    chosen = _rule(rule)
    _require_element(element)
    dtype = getattr(amax, "dtype", type(amax).__name__)
    if dtype != np.uint32:
        raise TypeError(f"amax is given by its float32 bits as uint32, got {dtype}")
    if (amax > _INFINITY).any():
        raise ValueError("amax holds a NaN or a negative number; pass the largest magnitude of each block without NaN")
    if chosen is ScaleRule.ROUND_UP:
        lowest, byte = 1, _exponent_rounded_up(_times_reciprocal_of_max(amax, element))
    else:
        lowest, byte = 0, _floor_of(amax, chosen, element) - _largest_power(element)
    byte = np.where(amax == _INFINITY, _MAX_SCALE, byte)
    return np.clip(byte, lowest, _MAX_SCALE).astype(np.uint8)


_INFINITY: Final = np.uint32(0x7F800000)
_NAN: Final = np.array(0x7FC00000, np.uint32)
_NAN_SCALE: Final = 0xFF
_MAX_SCALE: Final = 0xFE


def _floor_of(amax: npt.NDArray[np.uint32], chosen: ScaleRule, element: Format) -> npt.NDArray[np.int64]:
    """The exponent field of `amax` after the rounding that the rule does first."""
    if chosen is ScaleRule.CEIL:
        return _exponent_rounded_up(amax)
    half = 1 << (F32.mantissa_bits - element.mantissa_bits - 1) if chosen is ScaleRule.EVEN else 0
    return (amax.astype(np.int64) + half) >> F32.mantissa_bits


def _exponent_rounded_up(bits: Codes) -> npt.NDArray[np.int64]:
    """The exponent field, one more when the mantissa field is not zero."""
    wide = bits.astype(np.int64)
    return np.asarray((wide >> F32.mantissa_bits) + (wide & ((1 << F32.mantissa_bits) - 1) != 0))


def _times_reciprocal_of_max(amax: npt.NDArray[np.uint32], element: Format) -> Codes:
    """Bits of the float32 product amax * f32(1/max): exact in float64, then rounded once."""
    reciprocal = F32.decode(F32.encode(np.float64(1.0 / element.max)))
    return F32.encode(F32.decode(amax) * reciprocal)


def _largest_power(element: Format) -> int:
    """Exponent of the largest power of two that the element format holds."""
    return element.fields(element.max_code).exponent - element.bias


def _reciprocals(scales: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """2^(127 - byte), exact."""
    return ((1023 + 127 - scales.astype(np.int64)) << 52).view(np.float64)


def _blocks(x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """Bits of `x` with the last axis split into blocks."""
    if not isinstance(x, np.ndarray) or x.dtype != np.float32:
        one = isinstance(x, np.generic)
        what = f"a single {x.dtype}" if one else getattr(x, "dtype", type(x).__name__)
        raise TypeError(f"quantize takes a float32 array, got {what}")
    if x.ndim == 0 or x.shape[-1] % BLOCK:
        raise ValueError(f"the last axis holds whole blocks of {BLOCK} values, got shape {x.shape}; pad it with zeros")
    return np.ascontiguousarray(x).view(np.uint32).reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)


def _rule(name: str) -> ScaleRule:
    """The rule of that name."""
    if not isinstance(name, str) or name not in [known.value for known in ScaleRule]:
        raise ValueError(f"scale rules are {', '.join(ScaleRule)}; got {name!r}")
    return ScaleRule(name)


def _require_element(element: Format) -> None:
    """MXFP8 has two element formats."""
    if not isinstance(element, Format):
        raise TypeError(f"element is a Format (gfx950.formats.E4M3FN or E5M2), got {element!r}")
    if element not in (E4M3FN, E5M2):
        raise ValueError(f"elements of MXFP8 are e4m3fn or e5m2, got {element.name}")
