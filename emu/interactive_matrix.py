"""Matrix instructions on whole matrices or on registers: in by the layouts, through the instruction, out again."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.interactive import instruction
from emu.matrix_registers import lane_value, operand_layout, pack, unpack, words_of
from gfx950.lanes import LANES, Lanes, Mode, Words
from gfx950.layouts import FORMAT_BITS, MatrixInstruction, OperandLayout, matrix_instruction
from gfx950.matrix_elements import (
    Codes,
    as_array,
    check_mode,
    compress_dense,
    element_kind,
    from_codes,
    further_operands,
    to_codes,
)
from gfx950.models import Model, using

ONE = 127  # the E8M0 code of 1
_FORMATS = tuple(FORMAT_BITS)  # by their CBSZ and BLGP codes


def mfma(
    mnemonic: str,
    a: Any,
    b: Any,
    c: Any = 0,
    *,
    model: Model | str | PathLike[str] | None = None,
    codes: bool = False,
    a_format: str | None = None,
    b_format: str | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    op_sel: tuple[int, int] = (0, 0),
    index: Any = None,
    cbsz: int = 0,
    abid: int = 0,
    blgp: int = 0,
    mode: Mode | None = None,
) -> Any:
    """D = C + A * B as one matrix instruction computes it, any of them.

    a: (m, k), b: (k, n), c: (m, n) or one number; shapes with blocks take (blocks, m, k) and so on, or one matrix for
    all blocks. Gives (m, n) or (blocks, m, n): float32, float64 of f64, int32 of i8, with the bits of every NaN.
    More dimensions in front are as many independent instructions.

    Numbers are rounded to the operand's format, nearest even. Arrays of exactly its type (numpy, ml_dtypes, torch on
    the CPU) keep their bits. With codes=True integers are the bits of elements, one an integer.

    a, b and c as registers (lane values, or uint32 arrays of (registers, 64)) give D as registers, in the same form;
    c may be a number or a matrix all the same.

    model: the arithmetic, as `gfx950.models.using` takes it; what is in force if not given. a_format, b_format: fp8
    (default), bf8, fp6, bf6, fp4, for f8f6f4 only. scale_a: (m, k / 32) and scale_b: (n, k / 32) E8M0 codes, or one for
    all (127, which is 1, if not given), or registers, for the scaled forms only; op_sel: the bytes of their registers.
    index: (m, k / 2) of a sparse instruction, whose a is then the stored elements (m, k / 2), or a register; without it
    a is dense, (m, k), with at most two of every four k not zero. cbsz, abid, blgp: the instruction's fields. mode: the
    MODE register.

    Raises ValueError or TypeError, with what was expected, for whatever does not fit the instruction.

    >>> import numpy as np
    >>> from emu import mfma
    >>> mfma("v_mfma_f32_16x16x32_bf16", np.eye(16, 32), np.arange(512).reshape(32, 16) % 7)[2, :8]
    array([4., 5., 6., 0., 1., 2., 3., 4.], dtype=float32)
    """
    shape = matrix_instruction(mnemonic)
    check_mode(mode)
    _check_fields(mnemonic, {"cbsz": cbsz, "abid": abid, "blgp": blgp}, op_sel)
    call = _Call(shape, a_format, b_format, codes, _index_set(shape, cbsz, abid), op_sel)
    as_registers = call.result_in_registers(a, b)
    fields = _fields(shape, call, {"cbsz": cbsz, "abid": abid, "blgp": blgp})
    is_dense = shape.sparse and index is None and not as_registers
    stored, index = call.compressed(a) if is_dense else (a, index)
    given = {"A": stored, "B": b, "C": c}
    given |= _others(shape, {"scaleA": scale_a, "scaleB": scale_b, "index": index})
    words = {operand: call.words(operand, value) for operand, value in given.items()}
    with using(model):
        result = instruction(mnemonic)(*call.ordered(words), **fields, mode=mode)
    d_words = words_of(result)
    if as_registers:
        return d_words if isinstance(a, np.ndarray) else result
    return call.matrix("D", d_words)


def to_registers(
    mnemonic: str,
    operand: str,
    matrix: Any,
    a_format: str | None = None,
    b_format: str | None = None,
    *,
    op_sel: int = 0,
    codes: bool = False,
) -> Any:
    """The registers of an operand (A, B, C, D, scaleA, scaleB, index) that hold `matrix`, which is broadcast to its
    shape: (rows, columns), or (blocks, rows, columns) where there are blocks.

    Elements are taken as `mfma` takes them; scales and indices are codes. op_sel: the byte of a scale, or the set of an
    index. Raises ValueError for a shape that does not fit.
    """
    where = operand_layout(mnemonic, operand, a_format, b_format, op_sel)
    kind = element_kind(mnemonic, operand, a_format, b_format)
    taken = _codes_of(where, to_codes(kind, matrix, codes))
    if taken.ndim > 3:
        raise ValueError(f"one instruction's {operand} has no more dimensions than {_core(where)}, got {taken.shape}")
    return lane_value(pack(where, taken))


def from_registers(
    mnemonic: str,
    operand: str,
    registers: Any,
    a_format: str | None = None,
    b_format: str | None = None,
    *,
    op_sel: int = 0,
    codes: bool = False,
) -> NDArray[Any]:
    """The matrix that the registers of an operand hold, (rows, columns) or (blocks, rows, columns).

    float32, float64, int32 and int8 elements keep every bit; narrower floats come as float64, exact, scales and indices
    as codes, and with codes=True all do (uint64). registers: a lane value, or uint32 of (registers, 64).
    """
    where = operand_layout(mnemonic, operand, a_format, b_format, op_sel)
    words = _words_in(where, registers)
    _check_registers(where, words)
    found = _squeezed(where, unpack(where, words))
    return found if codes else from_codes(element_kind(mnemonic, operand, a_format, b_format), found)


def is_registers(value: Any, where: OperandLayout) -> bool:
    """Whether a value is registers: a lane value, or uint32 of (..., registers, 64)."""
    if isinstance(value, Lanes | Words):
        return True
    is_words = isinstance(value, np.ndarray) and value.dtype.newbyteorder("=") == np.uint32
    return is_words and value.shape[-2:] == (where.registers, LANES)


def _words_in(where: OperandLayout, registers: Any) -> NDArray[Any]:
    """The words of registers in either form. Raises TypeError for what is neither."""
    if isinstance(registers, Lanes | Words):
        return words_of(registers)
    if isinstance(registers, np.ndarray):
        return as_array(registers)
    raise TypeError(
        f"{where.operand} of {where.mnemonic} as registers is a lane value or a numpy array of uint32"
        f" ({where.registers}, {LANES}), got {type(registers).__name__}"
    )


@dataclass(frozen=True)
class _Call:
    """One call of `mfma`: what decides how its operands are read."""

    shape: MatrixInstruction
    a_format: str | None
    b_format: str | None
    codes: bool
    index_set: int
    op_sel: tuple[int, int]

    def layout(self, operand: str) -> OperandLayout:
        if operand.startswith("scale"):
            picked = self.op_sel[operand == "scaleB"]
        else:
            picked = self.index_set if operand == "index" else 0
        return operand_layout(self.shape.mnemonic, operand, self.a_format, self.b_format, picked)

    def words(self, operand: str, value: Any) -> NDArray[np.uint32]:
        """An operand in registers, (..., registers, 64)."""
        where = self.layout(operand)
        if is_registers(value, where):
            words = _words_in(where, value)
            _check_registers(where, words, 8 if self.shape.has_formats and operand in "AB" else where.registers)
            return words
        kind = element_kind(self.shape.mnemonic, operand, self.a_format, self.b_format)
        try:
            codes = to_codes(kind, value, self.codes)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{operand} of {self.shape.mnemonic}: {error}") from None
        return pack(where, _codes_of(where, codes))

    def compressed(self, a: Any) -> tuple[Any, Any]:
        """The stored elements of a dense A, and their index, as codes."""
        dense = to_codes(element_kind(self.shape.mnemonic, "A"), a, self.codes)
        stored, index = compress_dense(self.shape, dense)
        return lane_value(pack(self.layout("A"), stored[..., None, :, :])), index

    def result_in_registers(self, a: Any, b: Any) -> bool:
        """Whether A and B are registers. Raises TypeError where one is and the other is not."""
        a_held, b_held = is_registers(a, self.layout("A")), is_registers(b, self.layout("B"))
        if a_held != b_held:
            held, other = ("A", "B") if a_held else ("B", "A")
            raise TypeError(f"{held} of {self.shape.mnemonic} is registers and {other} is not: give both in one form")
        return a_held

    def ordered(self, words: dict[str, NDArray[np.uint32]]) -> list[Any]:
        """Lane values in the order of the instruction's operands, all with the same leading dimensions."""
        try:
            leading = np.broadcast_shapes(*(w.shape[:-2] for w in words.values()))
        except ValueError:
            counts = ", ".join(f"{operand} {w.shape[:-2]}" for operand, w in words.items())
            raise ValueError(
                f"{self.shape.mnemonic}: the dimensions in front of the operands must be alike or 1, got {counts}"
            ) from None
        order = ("A", "B", "index", "C") if self.shape.sparse else tuple(words)
        return [lane_value(np.broadcast_to(words[o], (*leading, *words[o].shape[-2:]))) for o in order]

    def matrix(self, operand: str, words: NDArray[np.uint32]) -> NDArray[Any]:
        where = self.layout(operand)
        return from_codes(element_kind(self.shape.mnemonic, operand), _squeezed(where, unpack(where, words)))


def _others(shape: MatrixInstruction, given: dict[str, Any]) -> dict[str, Any]:
    """The operands that this instruction has beside A, B and C. Raises ValueError for those it does not have."""
    wanted = further_operands(shape, given)
    if shape.sparse and given["index"] is None:
        raise ValueError(f"{shape.mnemonic}: A as registers holds stored elements and needs index=")
    return {operand: ONE if given[operand] is None else given[operand] for operand in wanted}


_FIELD_ENDS = {"cbsz": 7, "abid": 15, "blgp": 7}  # their bits in the encoding of VOP3P-MAI


def _check_fields(mnemonic: str, given: dict[str, Any], op_sel: Any) -> None:
    """Raises TypeError for fields that are no whole numbers, ValueError for those that the encoding cannot hold."""
    for name, value in given.items():
        if not isinstance(value, int | np.integer):
            raise TypeError(f"{mnemonic}: {name} is a whole number, got {value!r}")
        if not 0 <= value <= _FIELD_ENDS[name]:
            raise ValueError(f"{mnemonic}: {name}={value} does not fit the encoding; give 0 to {_FIELD_ENDS[name]}")
    if not isinstance(op_sel, tuple) or len(op_sel) != 2 or not all(isinstance(n, int) for n in op_sel):
        raise TypeError(f"{mnemonic}: op_sel is a pair of whole numbers, bytes of scaleA and scaleB, got {op_sel!r}")


def _index_set(shape: MatrixInstruction, cbsz: int, abid: int) -> int:
    return abid if shape.sparse and cbsz & 3 == 0 else 0


def _fields(shape: MatrixInstruction, call: _Call, given: dict[str, int]) -> dict[str, int]:
    """The static fields of the instruction. Raises ValueError for one it does not have."""
    has = {"blgp"} if shape.output_bits == 64 else {"cbsz", "abid"} if shape.sparse else {"cbsz", "abid", "blgp"}
    has = set() if shape.has_formats else has
    for name, value in given.items():
        if value and name not in has:
            hint = "; its formats are a_format and b_format" if shape.has_formats else ""
            raise ValueError(f"{shape.mnemonic} has no {name} to set{hint}: drop {name}={value}")
    if not shape.has_scales and call.op_sel != (0, 0):
        raise ValueError(f"{shape.mnemonic} takes no scales, so it has no scale byte to pick: drop op_sel")
    if shape.has_formats:
        fields = {"cbsz": _FORMATS.index(call.a_format or "fp8"), "blgp": _FORMATS.index(call.b_format or "fp8")}
        low, high = (sum((byte >> bit & 1) << i for i, byte in enumerate(call.op_sel)) for bit in (0, 1))
        return fields | ({"scale_op_sel": low, "scale_op_sel_hi": high} if shape.has_scales else {})
    return {name: given[name] for name in sorted(has)}


# ---- shapes ----------------------------------------------------------------------------------------------------------


def _core(where: OperandLayout) -> tuple[int, ...]:
    return (where.blocks, where.rows, where.cols) if where.blocks > 1 else (where.rows, where.cols)


def _codes_of(where: OperandLayout, codes: Codes) -> Codes:
    """Codes as (..., blocks, rows, columns), broadcast to the operand's shape."""
    core = _core(where)
    leading = codes.shape[: -len(core)] if codes.ndim > len(core) else ()
    try:
        whole = np.broadcast_to(codes, (*leading, *core))
    except ValueError:
        raise ValueError(
            f"{where.operand} of {where.mnemonic} has shape {core}, got an array of {codes.shape}"
        ) from None
    return whole.reshape(*leading, where.blocks, where.rows, where.cols)


def _squeezed(where: OperandLayout, codes: Codes) -> Codes:
    return codes if where.blocks > 1 else codes[..., 0, :, :]


def _check_registers(where: OperandLayout, words: NDArray[Any], most: int = LANES) -> None:
    if words.dtype != np.uint32 or words.ndim < 2 or words.shape[-1] != LANES:
        raise ValueError(
            f"{where.operand} of {where.mnemonic} as registers is uint32 of ({where.registers}, {LANES}), got"
            f" {words.dtype} of {words.shape}"
        )
    if not where.registers <= words.shape[-2] <= most:
        raise ValueError(f"{where.operand} of {where.mnemonic} has {where.registers} registers, got {words.shape[-2]}")
