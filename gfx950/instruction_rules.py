"""What the bits of an instruction rest on: the rules it declares, those of its natives, and those of float lanes.

Whether a body computes with floats or only moves them (`v_mov_b32` takes neg and abs), and by MODE or its own way
(`v_dot2_f32_f16`), is seen by running it once on an engine that has no values and writes down the primitives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from gfx950.evidence import Rule
from gfx950.isa.buffer_addressing import Buffer
from gfx950.isa.registry import Instruction, Parameter
from gfx950.lanes import (
    B128,
    FLOAT_DENORM,
    FLOAT_ENDS,
    FLOAT_FLUSH,
    FLOAT_NAN,
    FLOAT_ROUND,
    U32,
    Engine,
    Mode,
    Raw,
    Words,
)
from gfx950.models import rule_in_force

_ARITHMETIC = {"fadd", "fsub", "fmul", "fdiv", "fma", "fsqrt"}
_NAN = _ARITHMETIC | {"ffloor", "fceil", "ftrunc", "frint"}
_ROUNDED = _ARITHMETIC | {"fptrunc", "sitofp", "uitofp"}
_FLUSHED = _NAN | {"feq", "flt", "fle", "fpext", "fptrunc"}
_ENDS = _ARITHMETIC | {"fptrunc"}  # their results may lie outside the range of normal numbers


def rules_of(instruction: Instruction) -> tuple[Rule, ...]:
    """The rules as the model in force has them, declared ones first."""
    from gfx950.arithmetic import transcendental

    recorder = _recorded(instruction)
    used, rounded, flushed = recorder.used, recorder.rounded, recorder.flushed
    found = (
        (FLOAT_NAN, used & _NAN),
        (FLOAT_ROUND, rounded & _ROUNDED),
        (FLOAT_ENDS, rounded & _ENDS),
        (FLOAT_DENORM, flushed & _FLUSHED),
        (FLOAT_FLUSH, flushed & _ENDS),
    )
    floats, natives = [r for r, ops in found if ops], recorder.natives
    tables = [r for name in natives if name in transcendental.DEFAULTS for r in transcendental.rules(name)]
    return tuple(dict.fromkeys(rule_in_force(r) for r in (*instruction.rules, *tables, *floats)))


class _NativeReached(Exception):
    """The body's results come from a native, which has rules of its own; what follows only puts them in place."""


def _recorded(instruction: Instruction) -> _Recorder:
    """What a body did before any native, and the natives it reached."""
    recorder = _Recorder()
    with contextlib.suppress(_NativeReached):
        instruction.body(*(_stand_in(p, recorder) for p in instruction.parameters))
    return recorder


class _Recorder:
    """An engine without values, in a MODE that neither rounds to nearest nor keeps denormals.

    rounded, flushed: the primitives that were applied while those fields were in force.
    """

    traces = False

    def __init__(self) -> None:
        self.mode = Mode(round32=1, round16_64=1, denorm32=0, denorm16_64=0)
        self.used: set[str] = set()
        self.rounded: set[str] = set()
        self.flushed: set[str] = set()
        self.natives: set[str] = set()

    def apply(self, op: str, width: int, *operands: Raw) -> Raw:
        self.used.add(op)
        if self.mode.round32 or self.mode.round16_64:
            self.rounded.add(op)
        if self.mode.denorm32 != 3 or self.mode.denorm16_64 != 3:
            self.flushed.add(op)
        return None

    def constant(self, bits: int, width: int) -> Raw:
        return None

    def permute(self, value: Raw, width: int, lanes: tuple[int, ...]) -> Raw:
        return None

    def native(self, name: str, inputs: Sequence[Raw], parameters: int) -> list[Raw]:
        self.natives.add(name)
        raise _NativeReached


class _Memory:
    """A memory without contents. unit: bytes that a size of 1 means (1 for lanes, 4 for scalars)."""

    def __init__(self, engine: Engine, unit: int) -> None:
        self.engine, self.unit = engine, unit

    def load(self, address: Any, size: int, *_: Any) -> tuple[U32, ...]:
        return tuple(U32(self.engine, None) for _ in range(max(1, size * self.unit // 4)))

    def atomic(self, address: Any, operands: Sequence[Any], operation: Callable[..., Any], where: Any = None) -> Any:
        datum = type(operands[0])(self.engine, None)
        operation(datum, *operands)
        return datum

    def size(self) -> U32:
        return U32(self.engine, None)

    def load_bounded(self, address: Any, words: int, available: Any) -> tuple[U32, ...]:
        return self.load(address, words)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """What gives nothing back (stores, loads to LDS) uses no primitive here."""
        return lambda *_: None


class _Registers:
    """Registers under a number, without contents."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def read(self, number: Any) -> U32:
        return U32(self.engine, None)

    def write(self, number: Any, value: U32) -> None: ...


def _stand_in(parameter: Parameter, engine: Engine) -> Any:
    if parameter.place in ("lds", "global"):
        return _Memory(engine, 1)
    if parameter.place == "scalar_memory":
        return _Memory(engine, 4)
    if parameter.place in ("hardware", "scalar_file"):
        return _Registers(engine)
    if parameter.place == "buffer":
        word = U32(engine, None)
        return Buffer(_Memory(engine, 1), B128([word] * 4), word, word, word)
    if parameter.kind is Mode:
        return engine.mode
    if parameter.kind is int:
        return 0
    if issubclass(parameter.kind, Words):
        return parameter.kind([U32(engine, None)] * parameter.kind.count)
    return parameter.kind(engine, None)
