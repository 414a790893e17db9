"""Lane values and instructions to play with, on the numpy engine, without a kernel. Everything is 64 lanes wide.

    >>> from emu import lane_id, to_numpy, v_add_u32, v_mul_f32
    >>> to_numpy(v_add_u32(lane_id(), 100))[:4]
    array([100, 101, 102, 103], dtype=uint32)
    >>> to_numpy(v_mul_f32(1.5, lane_id().to(F32Lanes)))[:4]
    array([0. , 1.5, 3. , 4.5], dtype=float32)

Instructions take lane values, Python numbers and numpy arrays of 64: an integer operand takes integers (and the bits of
any lane value of its width), a float operand takes numbers, rounded to nearest even. Operands stand in the order of the
definition (`gfx950 isa NAME` prints it); static fields are 0 and MODE is the default unless given by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from emu.engines.numpy_engine import FLOATS, SIGNED, UNSIGNED, NumpyEngine
from gfx950.formats import BF16, E2M1, E2M3, E3M2, E4M3FN, E5M2, E8M0FNU, F16, F32, Format
from gfx950.isa.registry import Instruction, Parameter, lookup
from gfx950.lanes import (
    B96,
    B128,
    B192,
    B256,
    B512,
    B1024,
    I32,
    LANES,
    U16,
    U32,
    U64,
    Float,
    Lanes,
    Mask,
    Mode,
    Signed,
    Words,
    join,
    lanes_of,
)
from gfx950.lanes import F16 as F16Lanes
from gfx950.lanes import F32 as F32Lanes
from gfx950.lanes import F64 as F64Lanes

IMPLICIT = {"exec": -1, "m0": 0}  # registers a caller may leave out
ENGINE = NumpyEngine()
# The number formats by the ISA's names; codes of fewer than 32 bits are packed, low bits first.
FORMATS: dict[str, Format] = {
    "f32": F32, "f16": F16, "bf16": BF16, "fp8": E4M3FN, "bf8": E5M2, "fp6": E2M3, "bf6": E3M2, "fp4": E2M1,
    "e8m0": E8M0FNU,
}  # fmt: skip
_TYPES: dict[str, type[Lanes]] = {
    "u32": U32, "i32": I32, "u64": U64, "f16": F16Lanes, "f32": F32Lanes, "f64": F64Lanes,
}  # fmt: skip
_RUNS: dict[int, type[Words]] = {kind.count: kind for kind in (B96, B128, B192, B256, B512, B1024)}
L = TypeVar("L", bound=Lanes)


# ---- making lane values --------------------------------------------------------------------------------------------


def u32(values: npt.ArrayLike | Lanes) -> U32:
    """64 lanes of 32 bits: one integer for all lanes, or 64. Lane values of 32 bits keep their bits.

    >>> u32(-1).raw[0:2]
    array([4294967295, 4294967295], dtype=uint32)
    """
    return _wide(U32, values)


def i32(values: npt.ArrayLike | Lanes) -> I32:
    """64 lanes of signed 32-bit integers."""
    return _wide(I32, values)


def u64(values: npt.ArrayLike | Lanes) -> U64:
    """64 lanes of 64 bits."""
    return _wide(U64, values)


def f32(values: npt.ArrayLike | Lanes) -> F32Lanes:
    """64 lanes of f32: one number or 64, rounded to nearest even.

    >>> hex(f32(0.1).raw[5])
    '0x3dcccccd'
    """
    return _wide(F32Lanes, values)


def f16(values: npt.ArrayLike | Lanes) -> F16Lanes:
    """64 lanes of f16, one a lane."""
    return _wide(F16Lanes, values)


def f64(values: npt.ArrayLike | Lanes) -> F64Lanes:
    """64 lanes of f64."""
    return _wide(F64Lanes, values)


def mask(values: npt.ArrayLike | Lanes) -> Mask:
    """64 bits: booleans, or one integer whose bit i is lane i.

    >>> [int(lane) for lane in mask(0b1010).raw.nonzero()[0]]
    [1, 3]
    """
    return _wide(Mask, values)


def lane_id() -> U32:
    """Lane i holds i.

    >>> to_numpy(lane_id() * 4)[:4]
    array([ 0,  4,  8, 12], dtype=uint32)
    """
    return u32(np.arange(LANES))


def lanes(values: npt.ArrayLike, dtype: str = "u32") -> Any:
    """Lane values by type name, or packed narrow values.

    With 64 values (or one) and u32, i32, u64, f16, f32 or f64: that type, one value a lane. With values of shape
    (64, n), or (n,) with n other than 64 and 1, for all lanes: n codes of `dtype` (u8, u16 or a name of `FORMATS`) a
    lane, low bits first, as many registers as they fill. Values are rounded to nearest even.

    >>> hex(lanes([1.0, 2.0, -0.5, 448.0], "fp8").raw[0])
    '0x7eb04038'
    """
    array = np.asarray(values)
    if array.ndim <= 1 and array.size in (1, LANES):
        if dtype not in _TYPES:
            raise ValueError(
                f"one {dtype} a lane is no register; give shape (64, n) to pack, or use {', '.join(_TYPES)}"
            )
        return _wide(_TYPES[dtype], array.reshape(-1))
    codes = _codes(np.broadcast_to(array, (LANES, array.shape[-1])), dtype)
    return from_codes(codes, _packed_bits(dtype))


def _packed_bits(dtype: str) -> int:
    bits = {"u8": 8, "u16": 16, "u32": 32} | {name: form.bits for name, form in FORMATS.items()}
    if dtype not in bits:
        raise ValueError(f"{dtype!r} cannot be packed; there are: {', '.join(bits)}")
    return bits[dtype]


def _codes(values: NDArray[Any], dtype: str) -> NDArray[np.uint64]:
    bits = _packed_bits(dtype)
    if dtype in FORMATS:
        return FORMATS[dtype].encode(values.astype(np.float64)).astype(np.uint64)
    if values.dtype.kind not in "iu" or values.min() < -(1 << bits - 1) or values.max() >= 1 << bits:
        raise ValueError(
            f"{dtype} takes integers of {bits} bits, got {values.dtype} from {values.min()} to {values.max()}"
        )
    return values.astype(np.int64).view(np.uint64) & np.uint64((1 << bits) - 1)


def from_codes(codes: NDArray[np.uint64], bits: int) -> Any:
    """Registers from codes of `bits` bits, shape (64, n), low bits first. Raises ValueError where they end in one."""
    total = codes.shape[1] * bits
    if total % 32:
        raise ValueError(f"{codes.shape[1]} codes of {bits} bits fill {total / 32:g} registers; give a whole number")
    places = np.arange(bits, dtype=np.uint64)
    bit_rows = (codes[:, :, None] >> places & np.uint64(1)).astype(np.uint8).reshape(LANES, total)
    words = np.packbits(bit_rows, axis=1, bitorder="little").view("<u4").astype(np.uint32)
    return from_words(words.T)


def from_words(words: NDArray[np.uint32]) -> Any:
    """The lane value of registers given as (count, 64) words: U32, U64, B96 .. B1024."""
    registers = [U32(ENGINE, np.ascontiguousarray(row)) for row in words]
    if len(registers) == 1:
        return registers[0]
    if len(registers) == 2:
        return join(*registers)
    if len(registers) not in _RUNS:
        raise ValueError(f"no operand has {len(registers)} registers; there are 1, 2, {', '.join(map(str, _RUNS))}")
    return _RUNS[len(registers)](registers)


def to_words(value: Lanes | Words) -> NDArray[np.uint32]:
    """The registers of a lane value as (count, 64) words; 8 and 16 bits are zero-extended."""
    if isinstance(value, Words):
        return np.stack([np.broadcast_to(w.raw, (LANES,)) for w in value.words])
    raw = np.broadcast_to(value.raw, (LANES,))
    if value.width == 64:
        return np.stack([raw & np.uint64(0xFFFFFFFF), raw >> np.uint64(32)]).astype(np.uint32)
    return raw.astype(np.uint32)[None, :]


def to_numpy(value: Lanes | Words) -> NDArray[Any]:
    """A lane value as a numpy array of its own type, shape (64,); register runs as uint32 of shape (64, count).

    >>> to_numpy(f32(1.5))[:2]
    array([1.5, 1.5], dtype=float32)
    """
    if isinstance(value, Words):
        return np.ascontiguousarray(to_words(value).T)
    raw = np.array(np.broadcast_to(value.raw, (LANES,)))
    kinds = FLOATS if isinstance(value, Float) else SIGNED if isinstance(value, Signed) else UNSIGNED
    return raw.view(kinds[value.width])


# ---- from Python's numbers to an operand's type ----------------------------------------------------------------------


def _wide(kind: type[L], values: Any) -> L:
    made = convert(kind, values, ENGINE)
    return kind(ENGINE, np.array(np.broadcast_to(made.raw, (LANES,))))


def convert(kind: type[L], value: Any, engine: NumpyEngine) -> L:
    """A value as `kind`. Lane values keep their bits; 16-bit and 8-bit operands take the low bits of 32."""
    if isinstance(value, Lanes):
        if value.width == kind.width:
            return kind(engine, value.raw)
        if value.width == 32 and kind.width in (8, 16):
            return kind(engine, engine.apply("trunc", kind.width, value.raw))
        raise TypeError(f"a {type(value).__name__} has {value.width} bits, the operand ({kind.__name__}) {kind.width}")
    if isinstance(value, Words):
        raise TypeError(f"a {type(value).__name__} has {value.count} registers, the operand is a {kind.__name__}")
    if kind.width == 64 and isinstance(value, Sequence) and len(value) == 2:
        low, high = (convert(U32, half, engine) for half in value)
        return kind(engine, join(low, high).raw)
    if kind is Mask:
        return cast(L, _mask(value, engine))
    array = _array(kind, value)
    return kind(engine, _float_bits(kind, array) if issubclass(kind, Float) else _integer_bits(kind, array))


def _array(kind: type[Lanes], value: Any) -> NDArray[Any]:
    array = np.asarray(value)
    if not array.dtype.isnative:  # the bits are read as they are
        array = array.astype(array.dtype.newbyteorder("="))
    if array.ndim == 0:
        array = array.reshape(1)
    if array.shape not in ((1,), (LANES,)):
        raise ValueError(f"{kind.__name__} takes one value or {LANES}, got an array of shape {array.shape}")
    return array


def _mask(value: Any, engine: NumpyEngine) -> Mask:
    if isinstance(value, int) and not isinstance(value, bool):
        return lanes_of(U64(engine, np.array([value & 2**LANES - 1], dtype=np.uint64)))
    array = _array(Mask, value)
    if array.dtype != np.bool_:
        raise TypeError(f"a mask takes booleans, or one integer whose bit i is lane i; got an array of {array.dtype}")
    return Mask(engine, array)


def _float_bits(kind: type[Lanes], array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{kind.__name__} takes numbers, got an array of {array.dtype}")
    if array.dtype == FLOATS[kind.width]:
        return array.view(UNSIGNED[kind.width])
    wide = array.astype(np.float64)
    return wide.view(np.uint64) if kind.width == 64 else (F32 if kind.width == 32 else F16).encode(wide)


def _integer_bits(kind: type[Lanes], array: NDArray[Any]) -> NDArray[Any]:
    name, width = kind.__name__, kind.width
    if array.dtype.kind not in "iuO":
        raise TypeError(f"{name} takes integers, got {array.dtype}: write f32(..) to pass the bits of a float")
    low, high = int(array.min()), int(array.max())
    if low < -(1 << width - 1) or high >= 1 << width:
        raise ValueError(f"{low if low < 0 else high} does not fit the {width} bits of {name}")
    return np.array([int(v) & (1 << width) - 1 for v in array], dtype=UNSIGNED[width])


# ---- instructions ----------------------------------------------------------------------------------------------------


class InteractiveInstruction:
    """An instruction as a Python function: operands are converted, the body runs on the numpy engine.

    `.instruction` is its definition. Packed (VOP3P) instructions take and give 32-bit registers with two halves.
    """

    def __init__(self, definition: Instruction) -> None:
        self.instruction = definition
        self.__name__ = definition.name
        self.__doc__ = definition.doc
        self.__signature__ = inspect.Signature([_signature_of(p) for p in _given(definition)])

    def __repr__(self) -> str:
        return f"<{self.__name__}{self.__signature__}: {self.instruction.doc.partition(chr(10))[0]}>"

    def __call__(self, *operands: Any, mode: Mode | None = None, **named: Any) -> Any:
        """Runs it. mode: the MODE fields, default rounding and denormals if not given."""
        try:
            bound = self.__signature__.bind(*operands, **named)
        except TypeError as error:
            raise TypeError(f"{self.__name__}{self.__signature__}: {error}") from None
        bound.apply_defaults()
        if mode is not None and not isinstance(mode, Mode):
            raise TypeError(f"{self.__name__}: mode= takes gfx950.lanes.Mode(...) or None, got {type(mode).__name__}")
        engine = NumpyEngine(mode)
        if self.instruction.packed:
            return _run_packed(self.instruction, bound.arguments, engine)
        values = [self._operand(p, bound.arguments, engine) for p in self.instruction.parameters]
        return self.instruction.body(*values)

    def _operand(self, parameter: Parameter, given: dict[str, Any], engine: NumpyEngine) -> Any:
        if parameter.kind is Mode:
            return engine.mode
        value = given[parameter.name]
        if parameter.kind is int:
            return value
        if parameter.place == "scc":
            return Mask(engine, np.array([bool(value)]))
        try:
            return _memory(value, engine) if _is_memory(parameter) else _operand(parameter.kind, value, engine)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self.__name__}, operand {parameter.name}: {error}") from None


def instruction(name: str) -> InteractiveInstruction:
    """The function of a mnemonic. Raises KeyError with the nearest names."""
    return InteractiveInstruction(lookup(name))


def _given(definition: Instruction) -> list[Parameter]:
    """What a caller passes: operands in the order of the definition, then static fields, then EXEC and M0 by name."""
    passed = [p for p in definition.parameters if p.kind is not Mode]
    return sorted(passed, key=lambda p: 2 if p.name in IMPLICIT else 1 if p.kind is int else 0)


def _signature_of(parameter: Parameter) -> inspect.Parameter:
    if parameter.name in IMPLICIT:
        return inspect.Parameter(parameter.name, inspect.Parameter.KEYWORD_ONLY, default=IMPLICIT[parameter.name])
    default = 0 if parameter.kind is int else inspect.Parameter.empty
    return inspect.Parameter(parameter.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def _is_memory(parameter: Parameter) -> bool:
    return parameter.place in ("lds", "global", "scalar_memory")


def _memory(value: Any, engine: NumpyEngine) -> Any:
    from emu.interactive_lds import Lds

    if not isinstance(value, Lds):
        raise TypeError(
            f"takes an emu.Lds, got {type(value).__name__}; global memory needs a kernel (emu.dispatch.Device)"
        )
    return value.seen_by(engine)


def _operand(kind: Any, value: Any, engine: NumpyEngine) -> Any:
    if not issubclass(kind, Words):
        return convert(kind, value, engine)
    words = value.words if isinstance(value, Words) else value
    if isinstance(words, Lanes) and words.width == 64:
        words = [U32(engine, row) for row in to_words(words)]
    if isinstance(words, int | float):
        words = [words] * kind.count
    if not isinstance(words, Sequence | np.ndarray) or len(words) > kind.count or len(words) == 0:
        raise TypeError(f"{kind.__name__} takes {kind.count} registers (a run, or a list of lane values)")
    if len(words) < kind.count and kind is not B256:
        raise TypeError(f"{kind.__name__} takes {kind.count} registers, got {len(words)}")
    registers = [convert(U32, w, engine) for w in words]
    zero = U32(engine, np.zeros(LANES, np.uint32))
    return kind(registers + [zero] * (kind.count - len(registers)))


def _run_packed(definition: Instruction, given: dict[str, Any], engine: NumpyEngine) -> Any:
    """The body on the low halves, then on the high ones; 32-bit types take register pairs."""
    halves = [_packed_half(definition, given, engine, high) for high in (0, 1)]
    if halves[0].width == 32:
        return join(*(h.bits(U32) for h in halves))
    low, high = (U32(engine, engine.apply("zext", 32, h.raw)) for h in halves)
    return low | (high << 16)


def _packed_half(definition: Instruction, given: dict[str, Any], engine: NumpyEngine, high: int) -> Any:
    values = []
    for parameter in definition.parameters:
        if parameter.kind is Mode or parameter.kind is int:
            values.append(engine.mode if parameter.kind is Mode else given[parameter.name])
            continue
        kind = parameter.kind
        whole = convert(U64 if kind.width == 32 else U32, given[parameter.name], engine)
        part = (whole >> kind.width * high).to(U32 if kind.width == 32 else U16)
        values.append(part.bits(kind))
    return definition.body(*values)
