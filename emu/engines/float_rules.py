"""What both engines know of floats: the NaN an operation makes, and the rounding that is built."""

from __future__ import annotations

from emu.errors import EmulatorError
from gfx950.lanes import MANTISSA_BITS, Mode


def quiet_bit(width: int) -> int:
    """The top bit of the mantissa: set in quiet NaNs."""
    return 1 << MANTISSA_BITS[width] - 1


def default_nan(width: int) -> int:
    """The NaN an operation makes from no NaN [rule float.nan_operand]."""
    return (1 << width) - quiet_bit(width)


def check_rounding(mode: Mode, width: int) -> None:
    """Raises EmulatorError unless `mode` rounds floats of this width to nearest even."""
    rounding = mode.round32 if width == 32 else mode.round16_64
    if rounding:
        direction = ("", "up", "down", "toward zero")[rounding]
        raise EmulatorError(
            f"MODE asks for rounding code {rounding} ({direction}) on {width}-bit floats; only nearest even (0) is"
            " built: clear the field in the kernel descriptor or with s_setreg"
        )
