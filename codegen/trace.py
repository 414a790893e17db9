"""Tracing: a kernel function runs once in Python, and its operators record the IR."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gfx950.isa.registry
import gfx950.lanes
from codegen.exact import record_exact
from codegen.intrinsics import has_intrinsic
from codegen.ir import Argument, Block, Op, Program, Value, verify
from gfx950.isa.registry import Instruction, Parameter
from gfx950.lanes import PRIMITIVES, U32, U64, Lanes, Mask, Mode, Raw, Words

_ROOT = Path(__file__).resolve().parent.parent
_MACHINERY = {
    str(Path(__file__).resolve()),
    str(_ROOT / "codegen" / "language.py"),
    str(_ROOT / "codegen" / "exact.py"),
    str(Path(gfx950.lanes.__file__).resolve()),
    str(Path(gfx950.isa.registry.__file__).resolve()),
    str(Path(sys.modules["contextlib"].__file__ or "").resolve()),
}


class _Active(threading.local):
    """The tracers of the kernels that this thread is tracing, the innermost last."""

    def __init__(self) -> None:
        self.tracers: list[Tracer] = []


_ACTIVE = _Active()
_MEMORY_PLACES = ("lds", "global", "scalar_memory")
_STATE_PLACES = ("scc", "pc", "m0")


class NotTraceable(TypeError):
    """A body whose operations the language does not have: its instruction must be recorded itself."""


class Tracer:
    """The engine of traced values: raw values are `codegen.ir.Value`, every primitive appends an operation."""

    traces = True
    mode = Mode()

    def __init__(self, exact: bool = False) -> None:
        self.exact = exact  # whether every instruction called is emitted as itself
        self.blocks = [Block()]
        self._constants: dict[tuple[int, int], Value] = {}
        self._constant_ops: list[Op] = []
        self._numbers = 0
        self._lines: dict[tuple[str, int], str] = {}
        self.pending: dict[str, str] = {}  # source line: what was begun there and has no body yet

    # ---- the Engine protocol -------------------------------------------------------------------------

    def apply(self, op: str, width: int, *operands: Raw) -> Value:
        """Records one primitive."""
        result = self.value(1 if PRIMITIVES[op].result == "mask" else width)
        self.record(Op(op, operands, (result,)))
        return result

    def constant(self, bits: int, width: int) -> Value:
        """One value for each constant of the program; they stand at its beginning."""
        if (bits, width) not in self._constants:
            value = self._constants[bits, width] = self.value(width)
            self._constant_ops.append(Op("constant", (), (value,), {"bits": bits}, (), self.where()))
        return self._constants[bits, width]

    def permute(self, value: Raw, width: int, lanes: tuple[int, ...]) -> Value:
        """Records a static lane permutation."""
        result = self.value(width)
        self.record(Op("permute", (value,), (result,), {"lanes": tuple(lanes)}))
        return result

    def native(self, name: str, inputs: Sequence[Raw], parameters: int) -> list[Raw]:
        """Not traceable: an instruction with a native body is recorded as itself."""
        raise NotTraceable(
            f"{self.where()}: the native body {name!r} cannot be traced into a kernel; call its instruction, which is"
            " recorded as itself"
        )

    def trace_instruction(self, instruction: Instruction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Records an instruction call; one without an intrinsic is traced through its body, which means the same.

        In an exact kernel, and where the body cannot be traced, exactly this instruction is recorded.
        """
        if self.exact or instruction.packed:
            return record_exact(self, instruction, args, kwargs)
        bound = self._bind(instruction, args, kwargs)
        if not has_intrinsic(instruction):
            return self._trace_body(instruction, bound)
        operands: list[Value] = []
        immediates: dict[str, int] = {}
        for parameter in instruction.parameters:
            if parameter.name not in bound:
                continue
            if parameter.kind is int:
                immediates[parameter.name] = bound[parameter.name]
            else:
                operands += raws(bound[parameter.name])
        results = tuple(self._fresh(p.kind) for p in instruction.results)
        attributes = {"mnemonic": instruction.name, "immediates": immediates}
        self.record(Op("inst", tuple(operands), tuple(v for r in results for v in raws(r)), attributes))
        return results[0] if len(results) == 1 else results or None

    def _trace_body(self, instruction: Instruction, bound: dict[str, Any]) -> Any:
        try:
            with self.region() as region:
                made = instruction.body(*(self._implicit(p, bound) for p in instruction.parameters))
        except NotTraceable:
            return record_exact(self, instruction, (), bound)
        self.blocks[-1].ops += region.ops
        return made

    def _implicit(self, parameter: Parameter, bound: dict[str, Any]) -> Any:
        """A parameter of a traced body: MODE, EXEC, or what the caller gave."""
        if parameter.kind is Mode:
            return self.mode
        if parameter.place == "exec":
            return Mask.constant(self, 1).ballot()
        return bound[parameter.name]

    # ---- recording -----------------------------------------------------------------------------------

    def value(self, width: int) -> Value:
        """A new value."""
        self._numbers += 1
        return Value(self._numbers - 1, width)

    def record(self, op: Op) -> None:
        """Appends an operation to the open region, with the kernel's source line."""
        op.where = op.where or self.where()
        self.blocks[-1].ops.append(op)

    @contextmanager
    def region(self, arguments: tuple[Value, ...] = ()) -> Iterator[Block]:
        """Opens a region; what is recorded meanwhile goes into it."""
        block = Block(arguments)
        self.blocks.append(block)
        try:
            yield block
        finally:
            self.blocks.pop()

    def finish(self) -> Block:
        """The body: constants first."""
        return Block((), self._constant_ops + self.blocks[0].ops)

    def where(self) -> str:
        """file:line of the nearest caller outside the language's own files."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename in _MACHINERY:
            frame = frame.f_back
        key = (frame.f_code.co_filename, frame.f_lineno)
        if key not in self._lines:
            self._lines[key] = f"{_shown(key[0])}:{key[1]}"
        return self._lines[key]

    # ---- instruction operands ------------------------------------------------------------------------

    def _bind(self, instruction: Instruction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name, each of the parameter's type."""
        asked = [p for p in instruction.parameters if not is_implicit(p)]
        self._refuse(instruction)
        if len(args) > len(asked):
            raise self._bad(instruction, f"takes {len(asked)} operands, got {len(args)}")
        bound = dict(zip((p.name for p in asked), args, strict=False))
        for name, value in kwargs.items():
            if name in bound or name not in {p.name for p in asked}:
                raise self._bad(instruction, f"got an unexpected or repeated operand `{name}`")
            bound[name] = value
        defaults = inspect.signature(instruction.body).parameters
        for parameter in asked:
            if parameter.name not in bound and defaults[parameter.name].default is not inspect.Parameter.empty:
                bound[parameter.name] = defaults[parameter.name].default
        missing = [p.name for p in asked if p.name not in bound]
        if missing:
            raise self._bad(instruction, f"is missing {', '.join(missing)}")
        return {p.name: self._operand(instruction, p, bound[p.name]) for p in asked}

    def _refuse(self, instruction: Instruction) -> None:
        for parameter in (*instruction.parameters, *instruction.results):
            if parameter.place in _MEMORY_PLACES and not has_intrinsic(instruction):
                raise self._bad(instruction, "touches memory: in a kernel write load, store, lds_read or lds_write")
            if parameter.place in _STATE_PLACES:
                raise self._bad(instruction, f"uses the register {parameter.place}, which kernels cannot name")
        if instruction.flow:
            raise self._bad(instruction, "steers the wave: in a kernel write loop, branch, when or barrier")

    def _operand(self, instruction: Instruction, parameter: Parameter, value: Any) -> Any:
        kind = parameter.kind
        if kind is int:
            if not isinstance(value, int):
                raise self._bad(instruction, f"operand `{parameter.name}` is static: pass a Python int, not {value!r}")
            return int(value)
        if isinstance(kind, type) and issubclass(kind, Words):
            return self._words(instruction, parameter, value)
        if isinstance(value, (int, float)):
            return kind.constant(self, value)
        if isinstance(value, Lanes) and value.width == kind.width:
            return value if type(value) is kind else value.bits(kind)
        raise self._bad(instruction, f"operand `{parameter.name}` is {kind.__name__}, got {type(value).__name__}")

    def _words(self, instruction: Instruction, parameter: Parameter, value: Any) -> Any:
        kind = parameter.kind
        words = value.words if isinstance(value, Words) else value
        if not isinstance(words, (tuple, list)) or len(words) != kind.count:
            raise self._bad(instruction, f"operand `{parameter.name}` is {kind.count} registers ({kind.__name__})")
        single = Parameter(parameter.name, U32)
        return kind([self._operand(instruction, single, word) for word in words])

    def _bad(self, instruction: Instruction, what: str) -> TypeError:
        return TypeError(f"{self.where()}: {instruction.name} {what}")

    def _fresh(self, kind: Any) -> Any:
        if issubclass(kind, Words):
            return kind([U32(self, self.value(32)) for _ in range(kind.count)])
        return kind(self, self.value(kind.width))


def is_implicit(parameter: Parameter) -> bool:
    """Whether a parameter is not a caller's to give: MODE, EXEC, a memory."""
    return parameter.kind is Mode or parameter.place == "exec" or parameter.place in _MEMORY_PLACES


def raws(value: Any) -> list[Value]:
    """The IR values behind a lane value or a run of registers."""
    return [w.raw for w in value.words] if isinstance(value, Words) else [value.raw]


def rebuild(like: Any, engine: Any, values: Sequence[Value]) -> Any:
    """A value of `like`'s type over other IR values."""
    if isinstance(like, Words):
        return type(like)([U32(engine, v) for v in values])
    return type(like)(engine, values[0])


def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else path.name


def current() -> Tracer:
    """The tracer of the kernel being traced. Raises RuntimeError outside of one."""
    if not _ACTIVE.tracers:
        raise RuntimeError("the kernel language works inside a kernel only: write @kernel(...) and call trace(kernel)")
    return _ACTIVE.tracers[-1]


def trace(kernel: Any) -> Program:
    """Runs the kernel function once on traced arguments and returns its verified program."""
    if not hasattr(kernel, "function"):
        raise TypeError(f"trace takes what @kernel(block=...) makes of a function, got {kernel!r}")
    tracer = Tracer(kernel.attributes.get("exact", False))
    _ACTIVE.tracers.append(tracer)
    try:
        returned = kernel.function(*(_argument(tracer, index, a) for index, a in enumerate(kernel.arguments)))
    finally:
        _ACTIVE.tracers.pop()
    if returned is not None:
        raise TypeError(f"kernel {kernel.name} returns {returned!r}; a kernel returns nothing: store its results")
    for where, what in tracer.pending.items():
        raise TypeError(f"{where}: this {what} has no body; write @{what}(...) above a function, or call it with one")
    program = Program(kernel.name, kernel.arguments, kernel.block, kernel.lds, tracer.finish(), dict(kernel.attributes))
    verify(program)
    return program


def _argument(tracer: Tracer, index: int, argument: Argument) -> Lanes:
    value = tracer.value(argument.kind.width)
    tracer._constant_ops.append(Op("argument", (), (value,), {"index": index}, (), argument.name))
    return U64(tracer, value) if argument.pointer else argument.kind(tracer, value)
