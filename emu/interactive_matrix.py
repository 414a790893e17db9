"""Matrix instructions on whole matrices: into registers by the layouts, through the instruction, and out again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from emu.interactive import FORMATS, from_words, instruction, to_words
from gfx950.formats import Format
from gfx950.lanes import LANES
from gfx950.layouts import FORMAT_BITS, MatrixInstruction, OperandLayout, layout, matrix_instruction

ONE = 127  # the E8M0 code of 1


def mfma(
    mnemonic: str,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c: npt.ArrayLike = 0.0,
    *,
    a_format: str | None = None,
    b_format: str | None = None,
    scale_a: npt.ArrayLike = ONE,
    scale_b: npt.ArrayLike = ONE,
) -> NDArray[np.float32]:
    """D = C + A * B as one matrix instruction computes it: float32 of shape (m, n).

    a: (m, k) and b: (k, n) numbers, rounded to the instruction's formats; c: (m, n) or one number, in f32.
    a_format, b_format: fp8 (default), bf8, fp6, bf6, fp4, for f8f6f4 only. scale_a: (m, k / 32) and scale_b:
    (n, k / 32) E8M0 codes, or one for all, for the scaled forms only.

    >>> import numpy as np
    >>> from emu import mfma
    >>> mfma("v_mfma_f32_16x16x32_bf16", np.eye(16, 32), np.arange(512).reshape(32, 16) % 7)[2, :8]
    array([4., 5., 6., 0., 1., 2., 3., 4.], dtype=float32)
    """
    shape = _one_block(mnemonic)
    formats = {"A": a_format, "B": b_format} if shape.has_formats else {}
    registers = [to_registers(mnemonic, o, m, a_format, b_format) for o, m in (("A", a), ("B", b), ("C", c))]
    named: dict[str, Any] = {}
    if formats:
        codes = list(FORMAT_BITS)
        named = {"cbsz": codes.index(a_format or "fp8"), "blgp": codes.index(b_format or "fp8")}
    if shape.has_scales:
        registers += [to_registers(mnemonic, o, m) for o, m in (("scaleA", scale_a), ("scaleB", scale_b))]
    return from_registers(mnemonic, "D", instruction(mnemonic)(*registers, **named)).astype(np.float32)


def to_registers(
    mnemonic: str, operand: str, matrix: npt.ArrayLike, a_format: str | None = None, b_format: str | None = None
) -> Any:
    """The registers of an operand (A, B, C, scaleA, scaleB) that hold `matrix`, which is broadcast to its shape.

    Numbers are rounded to nearest even in the operand's format; scales are E8M0 codes. Raises ValueError for a shape
    that does not fit.
    """
    where = layout(mnemonic, operand, a_format, b_format)
    form = _format(mnemonic, operand, a_format, b_format)
    given = np.asarray(matrix)
    try:
        whole = np.broadcast_to(given, (where.rows, where.cols))
    except ValueError:
        raise ValueError(
            f"{operand} of {mnemonic} has shape {(where.rows, where.cols)}, got an array of {given.shape}"
        ) from None
    codes = whole.astype(np.uint64) if form is None else form.encode(whole.astype(np.float64)).astype(np.uint64)
    lanes = [0] * LANES
    for (row, col), (lane, low) in _places(where).items():
        lanes[lane] |= int(codes[row, col]) << low
    words = [[value >> 32 * register & 0xFFFFFFFF for value in lanes] for register in range(where.registers)]
    return from_words(np.array(words, dtype=np.uint32))


def from_registers(
    mnemonic: str, operand: str, registers: Any, a_format: str | None = None, b_format: str | None = None
) -> NDArray[np.float64]:
    """The matrix that the registers of an operand hold, exact in float64; scales as E8M0 codes."""
    where = layout(mnemonic, operand, a_format, b_format)
    form = _format(mnemonic, operand, a_format, b_format)
    words = to_words(registers)
    if len(words) < where.registers:
        raise ValueError(f"{operand} of {mnemonic} has {where.registers} registers, got {len(words)}")
    lanes = [sum(int(words[i, lane]) << 32 * i for i in range(where.registers)) for lane in range(LANES)]
    codes = np.zeros((where.rows, where.cols), dtype=np.uint32)
    for (row, col), (lane, low) in _places(where).items():
        codes[row, col] = lanes[lane] >> low & (1 << where.element_bits) - 1
    return codes.astype(np.float64) if form is None else form.decode(codes)


def _places(where: OperandLayout) -> dict[tuple[int, int], tuple[int, int]]:
    """Lane and first bit (counted from the operand's first register) of every element."""
    found = {}
    for row, col, block in where.elements():
        place = where.locate(row, col, block)
        found[row, col] = (place.lane, 32 * place.register + place.low_bit)
    return found


def _one_block(mnemonic: str) -> MatrixInstruction:
    shape = matrix_instruction(mnemonic)
    if shape.blocks != 1 or shape.sparse or shape.mnemonic.endswith(("_f64", "_i8")):
        raise ValueError(f"{mnemonic} is not one dense block of floats of at most 32 bits; use its registers directly")
    return shape


def _format(mnemonic: str, operand: str, a_format: str | None, b_format: str | None) -> Format | None:
    """The format of an operand's elements; None for scales, which stay codes."""
    _one_block(mnemonic)
    if operand.startswith("scale"):
        return None
    if operand in ("C", "D"):
        return FORMATS["f32"]
    if mnemonic.endswith("f8f6f4"):
        return FORMATS[(a_format if operand == "A" else b_format) or "fp8"]
    kinds = mnemonic.rpartition("x")[2].split("_")[1:]  # f16, or fp8 and bf8
    return FORMATS[kinds[0] if operand == "A" else kinds[-1]]
