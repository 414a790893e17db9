"""What both engines know of floats: the NaN an operation makes."""

from __future__ import annotations

from gfx950.lanes import MANTISSA_BITS


def quiet_bit(width: int) -> int:
    """The top bit of the mantissa: set in quiet NaNs."""
    return 1 << MANTISSA_BITS[width] - 1


def default_nan(width: int) -> int:
    """The NaN an operation makes from no NaN [rule float.nan_operand]."""
    return (1 << width) - quiet_bit(width)
