"""Kernels that put one instruction before the chip: a wave loads its registers, runs it, and stores the results.

Registers lie in memory as natives have them: (items, registers, 64 lanes) of 32 bits, a workgroup of one wave an item.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.probe import Step
from codegen.language import (
    U32,
    U64,
    Kernel,
    Pointer,
    kernel,
    load,
    set_mode_register,
    store,
    thread_id,
    workgroup_id,
)
from codegen.machine_text import Register, plan
from emu.engines.numpy_engine import NumpyEngine
from gfx950.isa.registry import Instruction, Parameter, lookup
from gfx950.lanes import LANES, Lanes, Mode, in_registers, registers_of

Words = NDArray[np.uint32]
Static = tuple[tuple[str, int], ...]
Kind = TypeVar("Kind", bound=Step)


def operands_of(instruction: Instruction) -> list[Parameter]:
    """The operands that registers hold, in the order of the definition."""
    return [p for p in instruction.parameters if p.kind not in (int, Mode) and p.registers and p.place != "exec"]


def is_matrix(mnemonic: str) -> bool:
    """Whether an instruction is a matrix product, for which LLVM has intrinsics."""
    return lookup(mnemonic).encoding.startswith("MAI")


def registers_read(mnemonic: str, static: Static = ()) -> list[int]:
    """How many registers each operand takes, vdst where it is one. An F8F6F4 operand takes 8 whatever its format."""
    if is_matrix(mnemonic):
        return [p.registers for p in operands_of(lookup(mnemonic))]
    return [_count(mnemonic, register) for register in plan(mnemonic, static).sources]


def registers_written(mnemonic: str, static: Static = ()) -> int:
    """How many registers the results take."""
    if is_matrix(mnemonic):
        return sum(p.registers for p in lookup(mnemonic).results)
    return sum(_count(mnemonic, register) for register in plan(mnemonic, static).results)


def _count(mnemonic: str, register: Register) -> int:
    if register.is_mask:
        raise ValueError(f"{mnemonic}: its {register.name} is a mask, which a probe does not load or keep")
    return register.words


def static_fields(mnemonic: str, given: Mapping[str, int]) -> dict[str, int]:
    """The fields that are given, and 0 for every other static operand."""
    return {p.name: 0 for p in lookup(mnemonic).parameters if p.kind is int} | dict(given)


def operand(parameter: Parameter, words: list[U32]) -> Any:
    """Registers as a matrix operand's type."""
    whole = in_registers(words)
    return whole.bits(parameter.kind) if isinstance(whole, Lanes) else whole


def body_arguments(
    mnemonic: str,
    static: Mapping[str, int],
    words: Words,
    engine: NumpyEngine,
    make: Callable[[Parameter, list[U32]], Any],
) -> list[Any]:
    """What the body of an instruction is called with, on registers (items, registers, 64) of a numpy engine. make: an
    operand from its registers."""
    instruction, at = lookup(mnemonic), 0
    given: dict[str, Any] = static_fields(mnemonic, static)
    counts = registers_read(mnemonic, tuple(sorted(static.items())))
    for parameter, count in zip(operands_of(instruction), counts, strict=True):
        given[parameter.name] = make(parameter, [U32(engine, words[:, at + i]) for i in range(count)])
        at += count
    return [engine.mode if p.kind is Mode else given[p.name] for p in instruction.parameters]


def words_of(result: Any) -> list[U32]:
    """A result as registers."""
    if isinstance(result, Lanes):
        result = result.bits(U64 if result.width == 64 else U32)
    return list(registers_of(result))


def run_instruction(mnemonic: str, static: Static, words: list[U32]) -> list[U32]:
    """The results' registers of an instruction in a kernel, from its operands' registers."""
    instruction, given = lookup(mnemonic), []
    parameters = operands_of(instruction)
    for number, count in enumerate(registers_read(mnemonic, static)):
        part, words = words[:count], words[count:]
        given.append(operand(parameters[number], part) if is_matrix(mnemonic) else in_registers(part))
    results = instruction(*given, **static_fields(mnemonic, dict(static)))
    return [word for result in (results if isinstance(results, tuple) else (results,)) for word in words_of(result)]


@functools.cache
def apply_kernel(mnemonic: str, static: Static = (), with_mode: bool = False) -> Kernel:
    """The kernel of one instruction with its static fields. with_mode: its last argument is put into MODE first."""
    name = "_".join(["apply", mnemonic, *(f"{key}{value}" for key, value in static), *["mode"] * with_mode])
    n_in, n_out = sum(registers_read(mnemonic, static)), registers_written(mnemonic, static)

    def body(inputs: Pointer, outputs: Pointer, mode: U32) -> None:
        item, lane = workgroup_id().to(U64), thread_id().to(U64)
        at = inputs + item * (4 * LANES * n_in) + lane * 4
        words = [load(at + 4 * LANES * i) for i in range(n_in)]
        if with_mode:
            set_mode_register(mode)
        to = outputs + item * (4 * LANES * n_out) + lane * 4
        for i, word in enumerate(run_instruction(mnemonic, static, words)):
            store(to + 4 * LANES * i, word)

    return kernel(block=LANES, name=name, exact=not is_matrix(mnemonic))(body)


def apply_step(
    kind: type[Kind],
    name: str,
    mnemonic: str,
    registers: Words,
    static: Mapping[str, int],
    mode: int | None,
    more: Mapping[str, Any],
) -> Kind:
    """The step that runs an instruction on (items, registers, 64) words. mode: MODE's value, else the default one.
    kind, more: the class of the step, and its fields beyond those of `Step`."""
    fields = tuple(sorted(static.items()))
    wanted = (sum(registers_read(mnemonic, fields)), LANES)
    if registers.ndim != 3 or registers.shape[1:] != wanted or registers.dtype != np.uint32:
        raise ValueError(f"{name}: {mnemonic} takes uint32 of (items, {wanted[0]}, {wanted[1]}), got {registers.shape}")
    shape = (len(registers), registers_written(mnemonic, fields), LANES)
    made = apply_kernel(mnemonic, fields, mode is not None)
    return kind(name, made, len(registers), (registers,), (shape, "<u4"), (mode or 0,), **more)
