"""Steps of one instruction on registers whose results a fit can predict without a kernel: its body on numpy arrays."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.apply import apply_step, body_arguments, words_of
from codegen.kernels.probes.probe import Step
from emu.engines.numpy_engine import NumpyEngine
from gfx950.instruction_rules import rules_of
from gfx950.isa.registry import Parameter, lookup
from gfx950.lanes import LANES, U16, U32, Lanes, Mode, in_registers
from gfx950.models import Model, load_switches, switches_of, using

Words = NDArray[np.uint32]
_KEPT = Mode()  # of what a kernel's launch puts into MODE
# Values of MODE that probes use: denormals in bits 5:4 (f32) and 7:6 (f16, f64), rounding in 1:0 and 3:2, FP16_OVFL 23.
MODES: Mapping[str, int] = MappingProxyType(
    {
        "default": 0xF0,
        "flush": 0x00,
        "denorm-in": 0x50,
        "denorm-out": 0xA0,
        "flush-f32": 0xC0,
        "flush-f16": 0x30,
        "up": 0xF5,
        "down": 0xFA,
        "zero": 0xFF,
        "ovfl": 0x8000F0,
        "ovfl-flush": 0x800000,
    }
)


@dataclass(frozen=True)
class ValueStep(Step):
    """A step that applies an instruction to registers; its output is the result's registers. mode: MODE's value."""

    mnemonic: str = field(kw_only=True)
    static: Mapping[str, int] = field(kw_only=True, default_factory=lambda: MappingProxyType({}))
    mode: int = field(kw_only=True, default=MODES["default"])

    @functools.cached_property
    def switches(self) -> tuple[str, ...]:
        """The names of the switches that the instruction's rules involve."""
        return switches_in(self.mnemonic)

    def predicted(self, model: Model) -> Words:
        """The output under a model."""
        return predicted(self.mnemonic, self.static, self.mode, self.inputs[0], model)


@functools.cache
def switches_in(mnemonic: str) -> tuple[str, ...]:
    """The names of the switches that an instruction's rules involve."""
    load_switches()
    found = (switch.name for rule in rules_of(lookup(mnemonic)) for switch in switches_of(rule))
    return tuple(dict.fromkeys(found))


def predicted(mnemonic: str, static: Mapping[str, int], mode: int, words: Words, model: Model) -> Words:
    """What an instruction gives under a model in an exact kernel. mode: MODE's value. words: (items, registers, 64)."""
    fields = Mode.from_bits(mode | int(_KEPT.dx10_clamp) << 8 | int(_KEPT.ieee) << 9)
    with using(model), np.errstate(all="ignore"):
        return _run(mnemonic, static, words, NumpyEngine(fields))


def _run(mnemonic: str, static: Mapping[str, int], words: Words, engine: NumpyEngine) -> Words:
    results = lookup(mnemonic).body(*body_arguments(mnemonic, static, words, engine, _operand))
    registers = [w for r in (results if isinstance(results, tuple) else (results,)) for w in words_of(_wide(r))]
    shape = (len(words), LANES)
    return np.stack([np.broadcast_to(w.raw, shape) for w in registers], axis=1).astype(np.uint32)


def _operand(parameter: Parameter, registers: Sequence[U32]) -> Any:
    """Registers as an operand's type; one of 16 bits takes the low half."""
    whole = in_registers(registers)
    if not isinstance(whole, Lanes):
        return whole
    kind = parameter.kind
    return (whole.to(U16) if kind.width == 16 else whole).bits(kind)


def _wide(result: Any) -> Any:
    """A result of 16 bits as its register, whose other half was 0."""
    return result.bits(U16).to(U32) if isinstance(result, Lanes) and result.width == 16 else result


def value_step(
    name: str, mnemonic: str, columns: Sequence[Words], static: Mapping[str, int] | None = None, mode: str = "default"
) -> ValueStep:
    """The step of an instruction on values of its registers, each of as many numbers. name: the probe's; the step is
    `name/mnemonic[/fields]/mode`. Columns are filled up to whole waves with their first numbers."""
    fields = dict(static or {})
    text = "/".join([name, mnemonic, *("-".join(f"{k}{v}" for k, v in fields.items()),) * bool(fields), mode])
    more = {"mnemonic": mnemonic, "static": MappingProxyType(fields), "mode": MODES[mode]}
    return apply_step(ValueStep, text, mnemonic, registers(columns), fields, MODES[mode], more)


def registers(columns: Sequence[Words]) -> Words:
    """Columns of values, each (n,), as (items, registers, 64)."""
    values = np.stack(np.broadcast_arrays(*columns)).astype(np.uint32)
    items = -(-values.shape[1] // LANES)
    filled = np.resize(values.T, (items * LANES, len(values)))
    return np.ascontiguousarray(filled.reshape(items, LANES, -1).transpose(0, 2, 1))
