"""Kernels that put one instruction before the chip: a wave loads its registers, runs it, and stores the results.

Registers lie in memory as natives have them: (items, registers, 64 lanes) of 32 bits, a workgroup of one wave an item.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen import language
from codegen.kernels.probes.probe import Step
from codegen.language import (
    U32,
    U64,
    Kernel,
    Pointer,
    kernel,
    load,
    store,
    thread_id,
    workgroup_id,
)
from gfx950.isa.registry import Instruction, Parameter, lookup
from gfx950.lanes import LANES, U8, U16, Lanes, Mode, Words, in_registers, registers_of

Words32 = NDArray[np.uint32]
Static = tuple[tuple[str, int], ...]
_UNSIGNED: dict[int, Any] = {8: U8, 16: U16}


def operands_of(instruction: Instruction) -> list[Parameter]:
    """The operands that registers hold, in the order of the definition."""
    return [p for p in instruction.parameters if p.kind not in (int, Mode) and p.registers]


def registers_read(mnemonic: str) -> int:
    """How many registers the instruction reads, vdst included where it does."""
    return sum(p.registers for p in operands_of(lookup(mnemonic)))


def registers_written(mnemonic: str) -> int:
    """How many registers the instruction writes."""
    return sum(p.registers for p in lookup(mnemonic).results)


def static_fields(mnemonic: str, given: Mapping[str, int]) -> dict[str, int]:
    """Every static field of an instruction, 0 where none is given."""
    return {p.name: given.get(p.name, 0) for p in lookup(mnemonic).parameters if p.kind is int}


def operand(parameter: Parameter, words: list[U32]) -> Any:
    """Registers as the type of an operand."""
    whole = in_registers(words)
    if isinstance(whole, Words) or not issubclass(parameter.kind, Lanes):
        return whole
    kind: type[Lanes] = parameter.kind
    if kind.width < 32:
        return whole.to(_UNSIGNED[kind.width]).bits(kind)
    return whole.bits(kind)


def words_of(result: Any) -> list[U32]:
    """A result as registers; 8 and 16 bits are zero-extended."""
    if isinstance(result, Lanes) and result.width < 32:
        return [result.bits(_UNSIGNED[result.width]).to(U32)]
    if isinstance(result, Lanes):
        result = result.bits(U64 if result.width == 64 else U32)
    return list(registers_of(result))


@functools.cache
def apply_kernel(mnemonic: str, static: Static = (), with_mode: bool = False) -> Kernel:
    """The kernel of one instruction with its static fields. with_mode: its last argument is put into MODE first."""
    instruction = lookup(mnemonic)
    name = "_".join(["apply", mnemonic, *(f"{key}{value}" for key, value in static), *["mode"] * with_mode])

    def body(inputs: Pointer, outputs: Pointer, mode: U32) -> None:
        item, lane = workgroup_id().to(U64), thread_id().to(U64)
        at = inputs + item * (4 * LANES * registers_read(mnemonic)) + lane * 4
        words = [load(at + 4 * LANES * i) for i in range(registers_read(mnemonic))]
        given = []
        for parameter in operands_of(instruction):
            given.append(operand(parameter, words[: parameter.registers]))
            words = words[parameter.registers :]
        if with_mode:
            language.set_mode_register(mode)
        results = instruction(*given, **static_fields(mnemonic, dict(static)))
        to = outputs + item * (4 * LANES * registers_written(mnemonic)) + lane * 4
        results = results if isinstance(results, tuple) else (results,)
        for i, word in enumerate(word for result in results for word in words_of(result)):
            store(to + 4 * LANES * i, word)

    return kernel(block=LANES, name=name)(body)


def apply_step(
    name: str, mnemonic: str, registers: Words32, static: Mapping[str, int] | None = None, mode: int | None = None
) -> Step:
    """The step that runs an instruction on (items, registers, 64) words. mode: MODE's value, else the default one."""
    wanted = (registers_read(mnemonic), LANES)
    if registers.ndim != 3 or registers.shape[1:] != wanted or registers.dtype != np.uint32:
        raise ValueError(f"{name}: {mnemonic} takes uint32 of (items, {wanted[0]}, {wanted[1]}), got {registers.shape}")
    fields = tuple(sorted((static or {}).items()))
    shape = (len(registers), registers_written(mnemonic), LANES)
    made = apply_kernel(mnemonic, fields, mode is not None)
    return Step(name, made, len(registers), (registers,), (shape, "<u4"), (mode or 0,))
