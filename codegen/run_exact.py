"""Exact instructions in a source run: one wave's values into registers, the machine's own execution, results out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.ir import Op, Value, exact_plan
from codegen.machine_text import Plan, Register
from emu.engines.numpy_engine import OPERATIONS
from emu.wave import Wave
from gfx950.isa.mode_registers import MODE
from gfx950.lanes import LANES

Array = NDArray[Any]
DEFAULT_MODE = 0x3F0  # nearest even, denormals kept, DX10_CLAMP, IEEE: what a kernel of this language starts with
MODE_BITS = 0x8000FF  # what set_mode writes


@dataclass(frozen=True)
class Place:
    """Where an IR value stands: the word number `part` of a register, or all of a mask and of a pair."""

    register: Register
    part: int
    value: Value


class ExactStep:
    """An `exact` operation, or an `inst` that reads LDS. mask: the value of the lanes it runs in, None for all."""

    def __init__(self, op: Op) -> None:
        self.form: Plan = exact_plan(op)
        untied = self.form.untied if op.attributes.get("old") else ()
        self.given = list(_places((*self.form.sources, *untied), op.operands))
        self.made = list(_places(self.form.results, op.results))
        self.mask = op.operands[-1] if op.attributes.get("masked") else None

    def run(self, state: Wave, given: Sequence[Array], active: Array) -> list[Array]:
        """The results of one wave, (64,) each. given: of the places, (64,); active: lanes that run, mask or not."""
        for place, values in zip(self.given, given, strict=True):
            _put(state, place, values, active)
        state.step(self.form.decoded)
        return [_taken(state, place) for place in self.made]


def _places(registers: Sequence[Register], values: Sequence[Value]) -> Iterator[Place]:
    rest = iter(values)
    for register in registers:
        for part in range(len(register.widths)):
            yield Place(register, part, next(rest))


def prepare(state: Wave, mode: int, active: Array, lds: NDArray[np.uint8]) -> None:
    """Gives the machine's wave the MODE, the EXEC and the LDS of one wave."""
    if int(state.hardware[MODE]) != mode:
        state.set_mode(np.array([mode], np.uint32))
    state.set_exec(_bits(active))
    state.lds = lds


def _bits(mask: Array) -> int:
    return int(np.packbits(mask, bitorder="little").view(np.uint64)[0])


def _put(state: Wave, place: Place, values: Array, active: Array) -> None:
    first = place.register.first
    if place.register.is_mask:
        bits = _bits(values & active)
        state.sgprs[first], state.sgprs[first + 1] = bits & 0xFFFFFFFF, bits >> 32
    elif place.register.file != "v":
        state.sgprs[first] = values[int(active.argmax())]
    elif values.dtype == np.uint64:
        state.vgprs[first], state.vgprs[first + 1] = values & np.uint64(0xFFFFFFFF), values >> np.uint64(32)
    else:
        state.vgprs[first + place.part] = values


def _taken(state: Wave, place: Place) -> Array:
    first, width = place.register.first, place.value.width
    if place.register.is_mask:
        lanes: Array = OPERATIONS["lanes_of"](state.engine, 1, state.sgprs[first : first + 2].view(np.uint64))
        return lanes
    if place.register.file != "v":
        return np.full(LANES, state.sgprs[first])
    if width == 64:
        low, high = (state.vgprs[first + i].astype(np.uint64) for i in (0, 1))
        pair: Array = low | high << np.uint64(32)
        return pair
    word: Array = state.vgprs[first + place.part]
    return word
