"""Elements of matrix operands: their kinds, numbers and arrays to codes and back, and a sparse A from a dense one.

A code is the bits of one element as a non-negative integer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfx950.formats import BF16, E2M1, E2M3, E3M2, E4M3FN, E5M2, F16, F32, Format
from gfx950.lanes import Mode
from gfx950.layouts import INDEX_BITS, MatrixInstruction, matrix_instruction

Codes = NDArray[np.uint64]
STORED_OF_FOUR = 2  # elements of every four k that a sparse A can hold


@dataclass(frozen=True)
class ElementKind:
    """What the elements of an operand are.

    name: as mnemonics spell it, `scale` or `index`. dtype: the name of the array type that holds them bit for bit
    (numpy, ml_dtypes or torch). form: the format of floats of at most 32 bits.
    """

    name: str
    bits: int
    dtype: str
    form: Format | None = None

    @property
    def whole(self) -> bool:
        """Whether numbers of this kind are integers."""
        return self.form is None and self.name != "f64"

    @property
    def signed(self) -> bool:
        return self.dtype.startswith("int")


KINDS: dict[str, ElementKind] = {
    kind.name: kind
    for kind in (
        ElementKind("f64", 64, "float64"),
        ElementKind("f32", 32, "float32", F32),
        ElementKind("f16", 16, "float16", F16),
        ElementKind("bf16", 16, "bfloat16", BF16),
        ElementKind("fp8", 8, "float8_e4m3fn", E4M3FN),
        ElementKind("bf8", 8, "float8_e5m2", E5M2),
        ElementKind("fp6", 6, "float6_e2m3fn", E2M3),
        ElementKind("bf6", 6, "float6_e3m2fn", E3M2),
        ElementKind("fp4", 4, "float4_e2m1fn", E2M1),
        ElementKind("i8", 8, "int8"),
        ElementKind("i32", 32, "int32"),
        ElementKind("scale", 8, "float8_e8m0fnu"),
        ElementKind("index", INDEX_BITS, "uint2"),
    )
}


def element_kind(mnemonic: str, operand: str, a_format: str | None = None, b_format: str | None = None) -> ElementKind:
    """The kind of an operand's elements (A, B, C, D, scaleA, scaleB, index).

    Raises ValueError for an unknown mnemonic.
    """
    shape = matrix_instruction(mnemonic)
    if operand.startswith("scale") or operand == "index":
        return KINDS["index" if operand == "index" else "scale"]
    if operand in ("C", "D"):
        return KINDS[
            mnemonic.removeprefix("v_mfma_").removeprefix("v_smfmac_").removeprefix("scale_").partition("_")[0]
        ]
    if shape.has_formats:
        return KINDS[(a_format if operand == "A" else b_format) or "fp8"]
    kinds = [part for part in mnemonic.split("_")[3:] if part in KINDS]  # f16, or fp8 and bf8
    return KINDS[kinds[0] if operand == "A" else kinds[-1]]


# ---- to codes --------------------------------------------------------------------------------------------------------


def to_codes(kind: ElementKind, matrix: Any, codes: bool = False) -> Codes:
    """The codes of an array of any shape.

    Arrays of `kind.dtype` keep their bits; with `codes`, integers are codes already; scales and indices always are.
    Other numbers are rounded to nearest even, once. Raises TypeError for what are no numbers of the kind, ValueError
    for a number outside its range.
    """
    array = as_array(matrix)
    if array.dtype.name == kind.dtype:
        return _bits(array) & np.uint64((1 << kind.bits) - 1)
    is_integer = array.dtype.kind in "iu"
    if is_integer and (codes or kind.name in ("scale", "index")):
        return _in_range(kind, array, 0, (1 << kind.bits) - 1, "code")
    if kind.whole:
        if not is_integer or not kind.signed:
            wanted = "integers" if kind.signed else "integer codes"
            hint = " (E8M0: 127 is 1.0)" if kind.name == "scale" else ""
            raise TypeError(f"{kind.name} takes {wanted}{hint}, got {array.dtype}")
        half = 1 << kind.bits - 1
        return _in_range(kind, array, -half, half - 1, "number") & np.uint64(2 * half - 1)
    return _rounded(kind, array)


def as_array(matrix: Any) -> NDArray[Any]:
    """A numpy array of what is array-like, in this machine's byte order; a CPU tensor of torch, of any type, with its
    bits. Raises TypeError for a tensor whose memory does not hold its elements one by one."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(matrix, torch.Tensor):
        array = np.asarray(matrix)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if matrix.is_nested or matrix.layout is not torch.strided or matrix.device.type != "cpu":
        kind = "nested" if matrix.is_nested else f"{matrix.layout} on {matrix.device}"
        raise TypeError(f"a tensor must be dense and on the CPU, got {kind}; give tensor.to_dense().cpu()")
    name = str(matrix.dtype).removeprefix("torch.")
    tensor = matrix.detach().resolve_conj().resolve_neg().contiguous()
    if hasattr(np, name):
        return np.asarray(tensor.numpy())
    import ml_dtypes

    if not hasattr(ml_dtypes, name):
        raise TypeError(f"a tensor of {matrix.dtype} holds no single elements; give their codes, one an integer")
    flat = tensor.reshape(-1).view(torch.uint8).numpy()
    return np.asarray(flat.view(getattr(ml_dtypes, name)).reshape(matrix.shape))


def _bits(array: NDArray[Any]) -> Codes:
    unsigned = np.dtype(f"u{array.dtype.itemsize}")
    return np.ascontiguousarray(array).view(unsigned).reshape(array.shape).astype(np.uint64)


def _in_range(kind: ElementKind, array: NDArray[Any], low: int, high: int, what: str) -> Codes:
    outside = (array < low) | (array > high)
    if outside.any():
        at = tuple(int(i) for i in np.argwhere(outside)[0])
        hint = "" if what == "code" else "; with codes=True integers are codes"
        raise ValueError(f"{what} {array[at]} at index {at} is outside {low}..{high} of {kind.name}{hint}")
    return np.asarray(array.astype(np.int64 if array.dtype.kind == "i" else np.uint64)).view(np.uint64)


def _rounded(kind: ElementKind, array: NDArray[Any]) -> Codes:
    is_number = array.dtype.kind in "fV" and array.dtype.itemsize <= 8 and array.dtype.names is None
    if not (array.dtype.kind in "iub" or is_number):
        raise TypeError(f"{kind.name} takes numbers of at most 64 bits, got {array.dtype}")
    if array.dtype.kind in "iu" and ((array > 1 << 53) | (array < -(1 << 53))).any():
        raise ValueError(f"{kind.name} takes integers up to 2^53 as numbers; with codes=True integers are codes")
    try:
        numbers = array if array.dtype == np.float32 else array.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{kind.name} takes numbers, got {array.dtype}") from None
    if kind.form is None:
        return _bits(numbers.astype(np.float64))
    return kind.form.encode(numbers).astype(np.uint64)


# ---- from codes ------------------------------------------------------------------------------------------------------

_OWN = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i8": np.int8}


def from_codes(kind: ElementKind, codes: Codes) -> NDArray[Any]:
    """The numbers of codes: float32, float64, int32 or int8 where the kind is one of these, with every bit; narrower
    floats as float64, exact; scales and indices stay codes, uint8."""
    if kind.name in _OWN:
        dtype = np.dtype(_OWN[kind.name])
        return np.ascontiguousarray(codes).astype(f"u{dtype.itemsize}").view(dtype).reshape(codes.shape)
    return codes.astype(np.uint8) if kind.form is None else kind.form.decode(codes)


# ---- operands of a call ----------------------------------------------------------------------------------------------

_NAMES = {"scaleA": "scale_a", "scaleB": "scale_b", "index": "index"}


def further_operands(shape: MatrixInstruction, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The operands of an instruction beside A, B and C. Raises ValueError where one that it does not have is `given`,
    which is by operand, None where there is none."""
    wanted = ("scaleA", "scaleB") if shape.has_scales else ("index",) if shape.sparse else ()
    for operand, value in given.items():
        if value is not None and operand not in wanted:
            kind = "sparse" if operand == "index" else "scaled"
            raise ValueError(f"{shape.mnemonic} is not {kind}: drop {_NAMES[operand]}=")
    return wanted


def check_mode(mode: Any) -> None:
    """Raises TypeError for what is neither None nor the fields of MODE."""
    if mode is not None and not isinstance(mode, Mode):
        raise TypeError(f"mode= takes gfx950.lanes.Mode(...) or None, got {type(mode).__name__}")


# ---- sparse ----------------------------------------------------------------------------------------------------------


def compress_dense(shape: MatrixInstruction, dense: Codes) -> tuple[Codes, Codes]:
    """`compress` of a sparse instruction's dense A, (..., m, k). Raises ValueError for another shape."""
    m, k = shape.m, shape.k
    if dense.shape[-2:] != (m, k):
        raise ValueError(
            f"A of {shape.mnemonic} without index= is dense and has shape {(m, k)}, got an array of {dense.shape};"
            f" stored elements {(m, k // 2)} need index={(m, k // 2)}"
        )
    return compress(element_kind(shape.mnemonic, "A"), dense)


def compress(kind: ElementKind, dense: Codes) -> tuple[Codes, Codes]:
    """What a sparse A stores of a dense one, codes (..., m, k): the stored codes and their index, both (..., m, k / 2).

    Of every four k the two that are not zero are stored, in ascending order; where fewer are, the first zeros fill up,
    with their sign. Raises ValueError where more than two are not zero.
    """
    fours = dense.reshape(*dense.shape[:-1], dense.shape[-1] // 4, 4)
    sign = np.uint64(0 if kind.whole else 1 << kind.bits - 1)
    nonzero = (fours & ~sign) != 0
    crowded = nonzero.sum(axis=-1) > STORED_OF_FOUR
    if crowded.any():
        *_, row, four = (int(i) for i in np.argwhere(crowded)[0])
        raise ValueError(
            f"row {row} of A has {int(nonzero[crowded][0].sum())} elements that are not zero among k ="
            f" {4 * four}..{4 * four + 3}; a sparse A holds two of every four, or give stored elements with index="
        )
    first = np.argsort(~nonzero, axis=-1, kind="stable")[..., :STORED_OF_FOUR]
    index = np.sort(first, axis=-1)
    stored = np.take_along_axis(fours, index, axis=-1)
    shape = (*dense.shape[:-1], dense.shape[-1] // 2)
    return stored.reshape(shape), index.reshape(shape).astype(np.uint64)
