"""The kernel language: what a kernel's source imports.

A kernel is a Python function over lane values, traced once. Values are the types of `gfx950.lanes`; operators, these
functions and the instructions of `gfx950.isa` record what runs. Python's own `for` and `if` are static.

    @kernel(block=256, lds=1024)
    def scale(data: Pointer, count: I32, factor: F32) -> None:
        index = workgroup_id() * 256 + thread_id()
        with when(index < count):
            address = data + index.to(U64) * 4
            store(address, (load(address).bits(F32) * factor).bits(U32))

An instruction that a kernel calls stands for its result: LLVM may choose another with the same meaning. Where just this
instruction is wanted, under EXEC or MODE of one's choice too, there are `@kernel(exact=True)`, `exact`, `masked` and
`set_mode`.

Source and machine code have the same bits, with one exception: the sign and payload of a NaN that arithmetic made. LLVM
may swap operands or move a negation, which changes which NaN comes out; that one comes out does not change.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from codegen.exact import record_exact
from codegen.ir import Argument, Op, Value
from codegen.trace import current, raws, rebuild, trace
from gfx950.isa.registry import Instruction
from gfx950.lanes import F32, I32, I64, LANES, U32, U64, Lanes, Mask, Words

Pointer = Annotated[U64, "pointer"]
L = TypeVar("L", bound=Lanes)
MOST_WAVES = 8  # of a SIMD
MOST_AGPRS = 256  # of a lane
SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel function with its launch shape. attributes: the other keywords of `@kernel`."""

    function: Callable[..., None]
    name: str
    arguments: tuple[Argument, ...]
    block: int
    lds: int
    attributes: dict[str, Any] = field(default_factory=dict)


def kernel(block: int, lds: int = 0, **attributes: Any) -> Callable[[Callable[..., None]], Kernel]:
    """Declares a kernel of `block` threads a workgroup and `lds` bytes of LDS.

    attributes: `waves_per_eu` (an int, or (least, most)); `agprs`, how many accumulation registers to set apart (0
    without it: matrix results stay in VGPRs, which saves the copies); `name`; `exact`, whether every instruction that
    the kernel calls is emitted as that one and no other, as by `exact`. Arguments are Pointer, I32, U32, F32, U64 or
    I64.
    """
    for what, value in (("block", block), ("lds", lds)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"@kernel({what}={value!r}): expected a whole number")
    _check_attributes(attributes)

    def declare(function: Callable[..., None]) -> Kernel:
        name = attributes.get("name", function.__name__)
        _check_attributes(attributes | {"name": name})
        rest = {key: value for key, value in attributes.items() if key != "name"}
        return Kernel(function, name, _arguments(function), block, lds, rest)

    return declare


def _check_attributes(attributes: dict[str, Any]) -> None:
    """Refuses what LLVM would not survive: it ends the process over an attribute that it cannot read."""
    unknown = set(attributes) - {"waves_per_eu", "agprs", "name", "exact"}
    if unknown:
        raise TypeError(f"@kernel knows block, lds, waves_per_eu, agprs, exact and name, not {sorted(unknown)}")
    if not isinstance(attributes.get("exact", False), bool):
        raise TypeError(f"@kernel(exact={attributes['exact']!r}): expected True or False")
    waves = attributes.get("waves_per_eu", 1)
    least, most = waves if isinstance(waves, tuple) and len(waves) == 2 else (waves, waves)
    if not (_whole(least, 1, MOST_WAVES) and _whole(most, 1, MOST_WAVES) and least <= most):
        raise ValueError(f"@kernel(waves_per_eu={waves!r}): expected 1 to {MOST_WAVES} waves, or (least, most)")
    agprs = attributes.get("agprs", 0)
    if not _whole(agprs, 0, MOST_AGPRS):
        raise ValueError(f"@kernel(agprs={agprs!r}): expected 0 to {MOST_AGPRS} accumulation registers")
    name = attributes.get("name", "kernel")
    if not isinstance(name, str) or not SYMBOL.fullmatch(name):
        raise ValueError(f"@kernel(name={name!r}): expected letters, digits and _, no digit first")


def _whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _arguments(function: Callable[..., None]) -> tuple[Argument, ...]:
    hints = typing.get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    arguments = []
    for name in function.__code__.co_varnames[: function.__code__.co_argcount]:
        kind = hints.get(name)
        pointer = kind is Pointer
        plain = U64 if pointer else kind
        if plain not in (I32, U32, F32, U64, I64):
            found = f"is {kind}" if name in hints else "is without a type"
            raise TypeError(
                f"kernel {function.__name__}: argument `{name}` {found}; use Pointer, I32, U32, F32, U64 or I64"
            )
        arguments.append(Argument(name, plain, pointer))
    return tuple(arguments)


# ---- identity and constants ----------------------------------------------------------------------


def _emit(name: str, width: int, *operands: Value, **attributes: Any) -> Value:
    tracer = current()
    result = tracer.value(width)
    tracer.record(Op(name, operands, (result,), attributes))
    return result


def thread_id() -> I32:
    """The thread's number in its workgroup, 0 .. block - 1."""
    return I32(current(), _emit("thread_id", 32))


def workgroup_id(axis: int = 0) -> I32:
    """The workgroup's number along an axis of the grid."""
    return I32(current(), _emit("workgroup_id", 32, axis=axis))


def constant(kind: type[L], value: int | float) -> L:
    """A constant of a type, where no value is at hand to mix a Python number with."""
    return kind.constant(current(), value)


# ---- memory --------------------------------------------------------------------------------------


def _address(value: Any, kinds: tuple[type[Lanes], ...], what: str) -> Value:
    if isinstance(value, kinds):
        raw: Value = value.raw
        return raw
    if isinstance(value, int) and kinds[0] is U32:
        return _static_word(what, value)
    names = " or ".join(k.__name__ for k in kinds)
    raise TypeError(f"{current().where()}: {what} takes a byte address of type {names}, got {type(value).__name__}")


def _read(name: str, address: Value, nbytes: int, align: int) -> Any:
    tracer = current()
    results = tuple(tracer.value(32) for _ in range(max(1, nbytes // 4)))
    tracer.record(Op(name, (address,), results, {"nbytes": nbytes, "align": align}))
    words = tuple(U32(tracer, r) for r in results)
    return words[0] if len(words) == 1 else words


def _write(name: str, address: Value, words: Sequence[Any], nbytes: int, align: int) -> None:
    operands = tuple(_word(name, word) for word in words)
    current().record(Op(name, (address, *operands), (), {"nbytes": nbytes, "align": align}))


def _word(name: str, value: Any) -> Value:
    """One register of data: any 32-bit value, or a Python int."""
    if isinstance(value, int):
        return _static_word(name, value)
    if isinstance(value, Lanes) and value.width == 32:
        raw: Value = value.raw
        return raw
    hint = f"; write constant(F32, {value!r})" if isinstance(value, float) else ""
    raise TypeError(f"{current().where()}: {name} takes 32-bit words, got {type(value).__name__}{hint}")


def _static_word(name: str, value: int) -> Value:
    """A Python int as a 32-bit constant."""
    if not -(1 << 31) <= value < 1 << 32:
        raise ValueError(f"{current().where()}: {name} takes 32-bit words, and {value} does not fit one")
    return current().constant(value & 0xFFFFFFFF, 32)


def _words(name: str, count: int) -> int:
    if count not in (1, 2, 3, 4):
        raise ValueError(f"{current().where()}: {name} moves 1 to 4 words a lane, got {count}")
    return 4 * count


_GLOBAL = (U64, I64)
_LDS = (U32, I32)
_LDS_ALIGN = {4: 4, 8: 8, 12: 4, 16: 16}


def load(address: U64, words: int = 1, align: int = 4) -> Any:
    """1 to 4 words of global memory: a U32, or a tuple of them. align: what the address is a multiple of."""
    return _read("load", _address(address, _GLOBAL, "load"), _words("load", words), align)


def load_byte(address: U64) -> U32:
    """A byte of global memory, zero-extended."""
    return typing.cast(U32, _read("load", _address(address, _GLOBAL, "load_byte"), 1, 1))


def load_half(address: U64) -> U32:
    """Two bytes of global memory at an even address, zero-extended."""
    return typing.cast(U32, _read("load", _address(address, _GLOBAL, "load_half"), 2, 2))


def store(address: U64, *words: Any, align: int = 4) -> None:
    """1 to 4 words to global memory."""
    _write("store", _address(address, _GLOBAL, "store"), words, _words("store", len(words)), align)


def store_byte(address: U64, value: Any) -> None:
    """The low byte of a word to global memory."""
    _write("store", _address(address, _GLOBAL, "store_byte"), (value,), 1, 1)


def store_half(address: U64, value: Any) -> None:
    """The low two bytes of a word to global memory at an even address."""
    _write("store", _address(address, _GLOBAL, "store_half"), (value,), 2, 2)


def lds_read(address: I32 | U32 | int, words: int = 1, align: int | None = None) -> Any:
    """1 to 4 words of LDS: a U32, or a tuple. Without align: 4, 8, 4, 16 bytes for 1, 2, 3, 4 words."""
    nbytes = _words("lds_read", words)
    return _read("lds_read", _address(address, _LDS, "lds_read"), nbytes, align or _LDS_ALIGN[nbytes])


def lds_read_byte(address: I32 | U32 | int) -> U32:
    """A byte of LDS, zero-extended."""
    return typing.cast(U32, _read("lds_read", _address(address, _LDS, "lds_read_byte"), 1, 1))


def lds_write(address: I32 | U32 | int, *words: Any, align: int | None = None) -> None:
    """1 to 4 words to LDS; alignment as `lds_read`."""
    nbytes = _words("lds_write", len(words))
    _write("lds_write", _address(address, _LDS, "lds_write"), words, nbytes, align or _LDS_ALIGN[nbytes])


def lds_write_byte(address: I32 | U32 | int, value: Any) -> None:
    """The low byte of a word to LDS."""
    _write("lds_write", _address(address, _LDS, "lds_write_byte"), (value,), 1, 1)


def barrier() -> None:
    """Every thread of the workgroup meets here; writes before it, LDS and global, are visible to all after it."""
    current().record(Op("barrier"))


# ---- across lanes, and float maximum -------------------------------------------------------------


def _lanes(value: Any, kind: type[L], what: str) -> L:
    """`value`, which must be of type `kind`."""
    if isinstance(value, kind):
        return value
    wanted = "a lane value" if kind is Lanes else kind.__name__
    raise TypeError(f"{current().where()}: {what} takes {wanted}, got {type(value).__name__}")


def readfirstlane(value: L) -> L:
    """The value of the wave's lowest active lane, as a wave-uniform scalar."""
    _lanes(value, Lanes, "readfirstlane")
    return type(value)(current(), _emit("readfirstlane", value.width, value.raw))


def permute(value: L, lanes: Sequence[int]) -> L:
    """Lane i takes the value of lane `lanes[i]`: 64 static numbers, or a pattern of 2 to 32 lanes repeated."""
    _lanes(value, Lanes, "permute")
    count = len(lanes)
    if count not in (2, 4, 8, 16, 32, LANES):
        raise ValueError(f"{current().where()}: permute takes 64 lane numbers or a pattern of 2 to 32, got {count}")
    return value.permute([i // count * count + lanes[i % count] for i in range(LANES)])


def maximum(a: F32, b: F32 | float) -> F32:
    """v_maximum3_f32(a, b, b): a NaN wins, +0 is above -0. Integers have their own `.maximum`."""
    first = _lanes(a, F32, "the first operand of maximum")
    return F32(current(), _emit("fmaximum", 32, first.raw, first.coerce(b).raw))


def minimum(a: F32, b: F32 | float) -> F32:
    """v_minimum3_f32(a, b, b): a NaN wins, -0 is below +0. Integers have their own `.minimum`."""
    first = _lanes(a, F32, "the first operand of minimum")
    return F32(current(), _emit("fminimum", 32, first.raw, first.coerce(b).raw))


# ---- exact instructions, MODE, the clock ---------------------------------------------------------


def exact(instruction: Instruction, *operands: Any, old: Any = None, **fields: Any) -> Any:
    """Exactly this instruction, never another with the same meaning, and never moved past another exact one.

    operands: registers, in the order of the definition: values of the operand's width, or of 32 bits (the whole
    register) for narrower ones. fields: static fields of the encoding by name (cbsz, abid, blgp, op_sel, op_sel_hi,
    neg, abs, clamp, omod, offset ...), 0 unless given; `extra`: a DPP or SDWA form, as an assembler has its modifiers,
    "row_shr:1 row_mask:0xf bank_mask:0xf". old: what the results' registers hold before (0 unless given, for forms that
    keep a part). A result narrower than 32 bits is the whole register. Compiling needs a clang: `codegen.clang`.

        doubled = exact(v_add_f32, x, x, clamp=1, neg=0b01)
    """
    return record_exact(current(), _definition(instruction), operands, fields, old=old)


def masked(mask: Mask, instruction: Instruction, old: Any, *operands: Any, **fields: Any) -> Any:
    """As `exact`, under an EXEC that has the lanes of `mask` only; elsewhere the results' registers keep `old`.

    old: None where the instruction has its old destination among its operands, or gives no vector register.
    """
    _mask(mask, "masked")
    return record_exact(current(), _definition(instruction), operands, fields, mask=mask, old=old)


def _definition(instruction: Any) -> Instruction:
    if isinstance(instruction, Instruction):
        return instruction
    raise TypeError(f"{current().where()}: expected an instruction of gfx950.isa, got {instruction!r}")


def set_mode(
    round32: int = 0, round16_64: int = 0, denorm32: int = 3, denorm16_64: int = 3, fp16_ovfl: int | bool = 0
) -> None:
    """Sets MODE's fields for the exact instructions that follow, the others to their default.

    Codes as in `gfx950.lanes.Mode`: rounding 0 nearest even, 1 up, 2 down, 3 toward zero; denormals bit 0 keeps
    inputs, bit 1 outputs. In a kernel that sets MODE every instruction called after it is exact, and float operators
    are refused, for LLVM takes MODE to be the default.
    """
    fields = {"round32": round32, "round16_64": round16_64, "denorm32": denorm32, "denorm16_64": denorm16_64}
    for name, value in fields.items():
        if not _whole(value, 0, 3):
            raise ValueError(f"{current().where()}: set_mode({name}={value!r}): expected 0 to 3")
    if fp16_ovfl not in (0, 1):
        raise ValueError(f"{current().where()}: set_mode(fp16_ovfl={fp16_ovfl!r}): expected 0 or 1")
    bits = round32 | round16_64 << 2 | denorm32 << 4 | denorm16_64 << 6 | int(fp16_ovfl) << 23
    set_mode_register(constant(U32, bits))


def set_mode_register(value: U32) -> None:
    """As `set_mode` with a value of run time, the lowest active lane's: MODE's bits 7:0 and 23 become its own."""
    tracer = current()
    tracer.record(Op("set_mode", (_lanes(value, U32, "set_mode_register").raw,)))
    tracer.exact = True


def clock() -> U64:
    """S_MEMTIME, a count of cycles; the emulator and a source run count instructions."""
    return U64(current(), _emit("clock", 64))


def lane_id() -> I32:
    """The lane's number in its wave, 0 .. 63."""
    return thread_id() & (LANES - 1)


# ---- control -------------------------------------------------------------------------------------


@contextmanager
def when(mask: Mask) -> Iterator[None]:
    """Side effects in the lanes of `mask` only. Values made inside cannot be used outside."""
    tracer = current()
    where = tracer.where()
    condition = _mask(mask, "when")
    with tracer.region() as region:
        yield
    tracer.record(Op("when", (condition,), (), {}, (region,), where))


def _mask(mask: Any, what: str) -> Value:
    if not isinstance(mask, Mask):
        raise TypeError(f"{current().where()}: {what} takes a Mask (a comparison's result), got {type(mask).__name__}")
    raw: Value = mask.raw
    return raw


def _tuple(values: Any) -> tuple[Any, ...]:
    if values is None:
        return ()
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def _check_carried(values: tuple[Any, ...], what: str) -> None:
    for index, value in enumerate(values):
        if not isinstance(value, (Lanes, Words)):
            raise TypeError(
                f"{current().where()}: {what} value {index} is {value!r};"
                " use lane values (constant(F32, 0.0) for numbers)"
            )


def _yield(values: tuple[Any, ...], likes: tuple[Any, ...], what: str) -> None:
    """Closes the open region with `values`, which must have the types of `likes`."""
    tracer = current()
    if len(values) != len(likes):
        raise TypeError(f"{tracer.where()}: {what} returns {len(values)} values, expected {len(likes)}")
    out: list[Value] = []
    for index, (value, like) in enumerate(zip(values, likes, strict=True)):
        same = like.coerce(value) if isinstance(value, (int, float)) and isinstance(like, Lanes) else value
        if type(same) is not type(like):
            got, wanted = type(value).__name__, type(like).__name__
            raise TypeError(f"{tracer.where()}: {what} returns {got} as value {index}, expected {wanted}")
        out += raws(same)
    tracer.record(Op("yield", tuple(out)))


def _refill(likes: tuple[Any, ...], values: Sequence[Value]) -> tuple[Any, ...]:
    """Values of the types of `likes` over a flat run of IR values."""
    tracer, rest, out = current(), list(values), []
    for like in likes:
        count = len(raws(like))
        out.append(rebuild(like, tracer, rest[:count]))
        rest = rest[count:]
    return tuple(out)


def loop(
    start: I32 | int, stop: I32 | int, step: I32 | int = 1, carry: Sequence[Any] = ()
) -> Callable[[Callable[..., Any]], tuple[Any, ...]]:
    """Calls for a body (i, *carried) -> carried; returns the final carried values. i: I32 from start while below stop.

    step must be positive. Lanes may make different numbers of trips; a lane of none keeps the initial values.

        (total,) = loop(0, count, carry=(constant(F32, 0.0),))(lambda i, total: total + value(i))
    """
    tracer = current()
    where = tracer.where()
    if isinstance(step, int) and step <= 0:
        raise ValueError(f"{where}: loop step is {step}; it must be positive")
    bounds = [_bound(b) for b in (start, stop, step)]
    initial = tuple(carry)
    tracer.pending[where] = "loop"
    _check_carried(initial, "loop carry")

    def run(body: Callable[..., Any]) -> tuple[Any, ...]:
        tracer.pending.pop(where, None)
        flat = [v for c in initial for v in raws(c)]
        inside = tuple(tracer.value(v.width) for v in flat)
        index = tracer.value(32)
        with tracer.region((index, *inside)) as region:
            _yield(_tuple(body(I32(tracer, index), *_refill(initial, inside))), initial, "loop body")
        results = tuple(tracer.value(v.width) for v in flat)
        tracer.record(Op("loop", (*bounds, *flat), results, {}, (region,), where))
        return _refill(initial, results)

    return run


def _bound(value: Any) -> Value:
    if isinstance(value, (I32, int)):
        raw: Value = (value if isinstance(value, I32) else constant(I32, value)).raw
        return raw
    raise TypeError(f"{current().where()}: loop bounds are I32 or int, got {type(value).__name__}")


def branch(mask: Mask, then: Callable[[], Any], otherwise: Callable[[], Any]) -> tuple[Any, ...]:
    """The values of `then` where the mask is set, of `otherwise` elsewhere; a side nobody takes may be skipped.

    Both return tuples of lane values of equal types.
    """
    tracer = current()
    where = tracer.where()
    condition = _mask(mask, "branch")
    with tracer.region() as first:
        likes = _tuple(then())
        _check_carried(likes, "branch")
        _yield(likes, likes, "branch")
    with tracer.region() as second:
        _yield(_tuple(otherwise()), likes, "the branch's second side")
    results = tuple(tracer.value(v.width) for like in likes for v in raws(like))
    tracer.record(Op("branch", (condition,), results, {}, (first, second), where))
    return _refill(likes, results)


__all__ = [
    "F32",
    "I32",
    "I64",
    "U32",
    "U64",
    "Kernel",
    "Mask",
    "Pointer",
    "barrier",
    "branch",
    "clock",
    "constant",
    "exact",
    "kernel",
    "lane_id",
    "lds_read",
    "lds_read_byte",
    "lds_write",
    "lds_write_byte",
    "load",
    "load_byte",
    "load_half",
    "loop",
    "masked",
    "maximum",
    "minimum",
    "permute",
    "readfirstlane",
    "set_mode",
    "set_mode_register",
    "store",
    "store_byte",
    "store_half",
    "thread_id",
    "trace",
    "when",
    "workgroup_id",
]
