"""Which register numbers an operand may have: what leaves its register file or starts it badly is refused."""

from __future__ import annotations

SCALAR_REGISTERS = 128
AGPR = 256  # index of a0 in the unified register file


class UnsupportedForm(Exception):
    """A legal encoding of a known instruction that this emulator does not run yet."""


def check_vector(index: int) -> None:
    """Raises UnsupportedForm for an index outside the unified vector register file (0..511)."""
    if not 0 <= index < 2 * AGPR:
        raise UnsupportedForm(f"it reaches past the last vector register (a{index - AGPR})")


def check_run(index: int, count: int) -> None:
    """Raises UnsupportedForm where `count` registers from `index` on leave their half of the file (v or a)."""
    if index % AGPR + count > AGPR:
        name = f"{'av'[index < AGPR]}{index % AGPR}"
        raise UnsupportedForm(f"{count} registers from {name} on reach past the last one (255)")


def check_even(index: int, count: int) -> None:
    """Raises UnsupportedForm where several vector registers start at an odd one. [6.7.1, 7.1.2]"""
    if count > 1 and index % 2:
        raise UnsupportedForm(f"{'av'[index < AGPR]}{index % AGPR} starts an operand of {count} registers: it is odd")


def check_vector_run(instruction: str, index: int, count: int) -> None:
    """Raises UnsupportedForm where an operand of an instruction cannot be `count` vector registers from `index` on."""
    check_run(index, count)
    if instruction != "ds_read_b96_tr_b6":  # the one whose result starts anywhere [11.4]
        check_even(index, count)


def check_scalar_run(index: int, count: int) -> None:
    """Raises UnsupportedForm where two scalar registers start at an odd one, or more at no multiple of 4. [5.2, 8.4]"""
    if index < SCALAR_REGISTERS and index % min(count, 4):
        which = "odd" if count == 2 else "no multiple of 4"
        raise UnsupportedForm(f"scalar register {index} starts an operand of {count} registers: it is {which}")


def check_scalar(index: int) -> None:
    """Raises UnsupportedForm for a scalar code that is no register (0..127)."""
    if not 0 <= index < SCALAR_REGISTERS:
        raise UnsupportedForm(f"scalar code {index} is no register")
