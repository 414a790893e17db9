"""Numbers for kernel arguments of a known type: their bytes, or what was expected instead.

The source run and the launch of machine code both take them from here, so a number means the same to both.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

# Type names of the metadata that are numbers, and the bytes of the floats; a typedef of the program's own is none.
FLOAT_TYPES = {"half": 2, "_Float16": 2, "__half": 2, "float": 4, "double": 8}
FLOAT_FORMATS = {2: ("<e", 5, 10), 4: ("<f", 8, 23), 8: ("<d", 11, 52)}  # struct code, exponent and mantissa bits
INTEGER_TYPES = {f"{sign}{name}" for name in ("char", "short", "int", "long") for sign in ("", "u", "unsigned ")} | {
    "bool", "size_t", "long long", "unsigned long long",
    *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}  # fmt: skip


@dataclass(frozen=True)
class Refusal:
    """Why a value has no bytes: what was expected, and what to do."""

    expected: str
    advice: str | None = None


def is_number(type_name: str, size: int) -> bool:
    """Whether an argument of `size` bytes is stated to be a number, of a kind that is known."""
    return FLOAT_TYPES.get(type_name) == size or type_name in INTEGER_TYPES


def same_kind(type_name: str, dtype: np.dtype[Any]) -> bool:
    """Whether the bits of a number of `dtype` mean that number to an argument of a stated type of the same size."""
    if type_name in FLOAT_TYPES:
        return dtype == np.dtype(f"f{FLOAT_TYPES[type_name]}")
    return type_name not in INTEGER_TYPES or dtype.kind in "iu"


def number_bytes(type_name: str, size: int, value: object) -> bytes | Refusal:
    """The bytes of a number for an argument of a stated type, for which `is_number` holds.

    value: a Python number, a numpy scalar or a 0-d array. For a float the number is converted, integers too: rounded to
    nearest even (by way of binary64), a NaN quieted and its payload cut; one of the very same type keeps its bits. An
    integer takes a whole number of its size, signed or unsigned, and no float.
    """
    scalar = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    number = _plain(scalar)
    if number is None:
        return Refusal(f"a number of type {type_name}")
    if type_name not in FLOAT_TYPES:
        return _integer_bytes(type_name, size, number)
    if isinstance(scalar, np.generic) and scalar.dtype == np.dtype(f"f{size}"):
        same: bytes = scalar.astype(f"<f{size}").tobytes()
        return same
    try:
        return pack_float(float(number), size)
    except OverflowError:
        return _too_large(size)


def _plain(scalar: Any) -> int | float | None:
    """The Python number of the same value (a long double's is rounded), None for what is no real number."""
    if isinstance(scalar, np.longdouble):
        return float(scalar)
    if isinstance(scalar, np.datetime64 | np.timedelta64):
        return None
    number = scalar.item() if isinstance(scalar, np.generic) else scalar
    return int(number) if isinstance(number, int) else float(number) if isinstance(number, float) else None


def _integer_bytes(type_name: str, size: int, number: int | float) -> bytes | Refusal:
    if isinstance(number, float):
        whole = f"write {int(number)}" if number.is_integer() else "write int(...) or round(...), whichever is meant"
        return Refusal(f"a whole number, for the argument is of type {type_name}", whole)
    low, high = -(1 << (8 * size - 1)), (1 << (8 * size)) - 1
    return pack_integer(number, size) or Refusal(
        f"an integer of {8 * size} bits, signed or unsigned: {low} to {high}",
        "pass a number in that range, or give the kernel's argument a wider type",
    )


def pack_integer(value: int, size: int) -> bytes | None:
    """Little-endian bytes of a signed or unsigned integer; None when it does not fit."""
    if size == 0 or not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
        return None
    return (value % (1 << (8 * size))).to_bytes(size, "little")


def pack_float(value: float, size: int) -> bytes | Refusal:
    """A float rounded to nearest even in `size` bytes, a NaN quieted and its payload cut; or what was expected."""
    if size not in FLOAT_FORMATS:
        return Refusal(f"{size} bytes; floats have 2, 4 or 8")
    code, exponent, mantissa = FLOAT_FORMATS[size]
    if math.isnan(value):
        bits = int.from_bytes(struct.pack("<d", value), "little")
        payload = (bits & ((1 << 52) - 1)) >> (52 - mantissa) | 1 << (mantissa - 1)
        sign = (bits >> 63) << (exponent + mantissa)
        return (sign | ((1 << exponent) - 1) << mantissa | payload).to_bytes(size, "little")
    try:
        return struct.pack(code, value)
    except OverflowError:
        return _too_large(size)


def _too_large(size: int) -> Refusal:
    return Refusal(f"a float that {8 * size} bits can hold; pass math.inf to mean infinity")
