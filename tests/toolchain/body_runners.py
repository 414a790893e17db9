"""Instruction bodies as functions of whole arrays: compiled by the host engine, or run by the numpy engine.

    on_host("v_cvt_pk_fp8_f32", Mode(fp16_ovfl=True), op_sel=8)(src0, src1, vdst)

takes and gives registers: arrays of uint32, one item a lane, 64 n of them; 16-bit operands in the low half, wider ones
as several registers. A function is made and called under the same model.
"""

from __future__ import annotations

import ctypes
import functools
import itertools

import numpy as np

from emu.engines.host_engine import HostEngine
from emu.engines.numpy_engine import NumpyEngine
from gfx950.host_code import HostCode, Translation
from gfx950.isa.registry import lookup
from gfx950.lanes import U16, U32, U64, Mode, Words, join, split
from gfx950.models import in_force

PLAIN = Mode()


def _given(kind, words):
    """A body's operand from registers."""
    if issubclass(kind, Words):
        return kind([U32(w.engine, w.raw) for w in words])
    if kind.width == 64:
        return join(words[0], words[1]).bits(kind)
    return words[0].to(U16).bits(kind) if kind.width == 16 else words[0].bits(kind)


def input_count(name):
    """Registers that a body takes."""
    return sum(register_count(p.kind) for p in lookup(name).parameters if p.kind is not int)


def _taken(result):
    """The registers of a body's result."""
    if isinstance(result, Words):
        return list(result.words)
    if result.width == 64:
        return list(split(result.bits(U64)))
    return [result.bits(U16).to(U32) if result.width == 16 else result.bits(U32)]


def register_count(kind):
    """Registers of an operand's type."""
    return kind.count if issubclass(kind, Words) else max(1, kind.width // 32)


@functools.cache
def _host():
    return HostCode(opt=1)


def on_host(name, mode=PLAIN, **static):
    """The compiled function; it returns (registers, lanes)."""
    return _compiled(name, mode, in_force().body_digest, **static)


@functools.cache
def _compiled(name, mode, digest, **static):
    engine, symbol = HostEngine(mode), f"all_{name}_{next(_NUMBERS)}"
    outputs = _loop(engine, name, static)
    pointers = [f"ptr %in{i}" for i in range(input_count(name))] + [f"ptr %out{i}" for i in range(outputs)]
    head = f"define void @{symbol}(i64 %count, {', '.join(pointers)}) {{\nentry:\n  br label %loop"
    text = "\n".join([*sorted(engine.declared), head, *engine.lines, "end:\n  ret void\n}\n"])
    _host().add(lambda: Translation(text), None)
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))(_host().address(symbol))
    return functools.partial(_run_on_host, call, input_count(name), outputs)


_NUMBERS = itertools.count()


def _loop(engine, name, static):
    """The body for 64 lanes after another; returns how many registers it gives."""
    engine.begin("loop")
    engine.emit("%i = phi i64 [ 0, %entry ], [ %following, %loop ]")
    engine.emit("%offset = shl i64 %i, 8")
    words = []
    for at in range(input_count(name)):
        place = engine.define(f"getelementptr i8, ptr %in{at}, i64 %offset", 64, False)
        words.append(U32(engine, engine.define(f"load <64 x i32>, ptr {place.text}, align 4", 32, True)))
    results = _results(name, words, static)
    for i, result in enumerate(results):
        slot = engine.define(f"getelementptr i8, ptr %out{i}, i64 %offset", 64, False)
        engine.emit(f"store {engine.typed(result.raw, True)}, ptr {slot.text}, align 4")
    engine.emit("%following = add i64 %i, 1")
    engine.emit("%done = icmp eq i64 %following, %count")
    engine.emit("br i1 %done, label %end, label %loop")
    return len(results)


def _results(name, words, static):
    """The body on registers."""
    definition, values, left = lookup(name), [], list(words)
    for kind in (p.kind for p in definition.parameters if p.kind is not int):
        values.append(_given(kind, left[: register_count(kind)]))
        del left[: register_count(kind)]
    assert not left
    return _taken(definition.body(*values, **static))


def _run_on_host(call, inputs, outputs, *registers):
    assert len(registers) == inputs
    arrays = [np.ascontiguousarray(r, dtype=np.uint32) for r in registers]
    lanes = arrays[0].size
    assert lanes % 64 == 0 < lanes
    assert all(a.size == lanes for a in arrays)
    results = np.empty((outputs, lanes), np.uint32)
    call(lanes // 64, *(a.ctypes.data for a in arrays), *(results[i].ctypes.data for i in range(outputs)))
    return results


def on_numpy(name, mode=PLAIN, **static):
    """As `on_host`, on the numpy engine."""

    def run(*registers):
        engine = NumpyEngine(mode)
        words = [U32(engine, np.ascontiguousarray(r, dtype=np.uint32).reshape(-1, 64)) for r in registers]
        shape = (registers[0].size // 64, 64)
        results = _results(name, words, static)
        return np.stack([np.broadcast_to(r.raw, shape).ravel() for r in results]).astype(np.uint32)

    return run
