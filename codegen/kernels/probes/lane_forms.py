"""Kernels that run forms of instructions under an EXEC of the input's choice, over registers and over LDS.

A form's registers lie in memory as (items, rows, 64 lanes) of 32 bits, a workgroup of one wave an item: row 0 is EXEC,
not 0 where a lane is active; then come the operands' registers, then what the results' registers hold before. Forms
that take the same rows share a kernel, one launch asking all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.apply import Static, words_of
from codegen.kernels.probes.probe import Step
from codegen.language import (
    U32,
    U64,
    Kernel,
    Mask,
    Pointer,
    barrier,
    kernel,
    lds_read,
    lds_write,
    load,
    masked,
    set_mode_register,
    store,
    thread_id,
    workgroup_id,
)
from codegen.machine_text import Plan, Register, plan
from gfx950.isa.registry import lookup
from gfx950.lanes import LANES, in_registers

Words = NDArray[np.uint32]
ROW = 4 * LANES  # bytes
# Which lanes are active.
EXEC_PATTERNS = MappingProxyType({
    "full": 0xFFFF_FFFF_FFFF_FFFF,
    "even": 0x5555_5555_5555_5555,
    "odd": 0xAAAA_AAAA_AAAA_AAAA,
    "holes": 0xF7C1_3E5A_0FF3_81B6,
    "rows": 0x0000_FFFF_0000_FFFF,
    "half": 0x0000_0000_FFFF_FFFF,
    "one": 1 << 21,
    "none": 0,
})  # fmt: skip


@dataclass(frozen=True)
class Form:
    """An instruction with its static fields, and a DPP form in `extra` as an assembler has its modifiers."""

    mnemonic: str
    static: Static = ()
    extra: str = ""

    @property
    def plan(self) -> Plan:
        """Its registers, under an EXEC."""
        return plan(self.mnemonic, self.static, self.extra, True)

    @property
    def rows(self) -> int:
        """Rows of an item: EXEC, operands, old registers."""
        return 1 + sum(r.words for r in (*self.plan.sources, *self.plan.untied))

    @property
    def results(self) -> int:
        """Registers it writes."""
        return sum(r.words for r in self.plan.results)

    def run(self, mask: Mask, words: Sequence[U32]) -> list[U32]:
        """The results' registers in a kernel, from those of operands and old results."""
        rest = list(words)
        operands = {r.name: _taken(rest, r) for r in self.plan.sources}
        olds = tuple(_taken(rest, r) for r in self.plan.untied)
        given: dict[str, Any] = {**operands, **dict(self.static), **({"extra": self.extra} if self.extra else {})}
        old = olds[0] if len(olds) == 1 else olds or None
        made = masked(mask, lookup(self.mnemonic), old, **given)
        return [word for result in (made if isinstance(made, tuple) else (made,)) for word in words_of(result)]


def _taken(rest: list[U32], register: Register) -> Any:
    words = [rest.pop(0) for _ in range(register.words)]
    return in_registers(words)


@dataclass(frozen=True)
class Setting:
    """What a kernel of forms has around them. lds: bytes, filled from memory first. shows: whether LDS is part of the
    output, as rows behind the results. with_mode: whether its last argument is put into MODE."""

    lds: int = 0
    shows: bool = False
    with_mode: bool = False

    @property
    def lds_rows(self) -> int:
        """LDS in rows of 64 words."""
        return self.lds // ROW


@functools.cache
def forms_kernel(name: str, forms: tuple[Form, ...], setting: Setting = Setting()) -> Kernel:
    """The kernel of some forms that take the same rows. Raises ValueError when they do not."""
    if len({form.rows for form in forms}) != 1:
        raise ValueError(f"{name}: its forms take {[form.rows for form in forms]} rows; one launch has one number")
    rows = forms[0].rows
    written = sum(form.results for form in forms) + setting.lds_rows * setting.shows

    def body(inputs: Pointer, contents: Pointer, outputs: Pointer, mode: U32) -> None:
        item, lane = workgroup_id().to(U64), thread_id().to(U64)
        at = inputs + item * (ROW * rows) + lane * 4
        mask, words = load(at) != 0, [load(at + ROW * i) for i in range(1, rows)]
        fill_lds(contents + item * max(setting.lds, 4), setting.lds_rows)
        if setting.with_mode:
            set_mode_register(mode)
        results = [word for form in forms for word in form.run(mask, words)]
        results += list(shown_lds(setting.lds_rows)) if setting.shows else []
        to = outputs + item * (ROW * written) + lane * 4
        for i, word in enumerate(results):
            store(to + ROW * i, word)

    return kernel(block=LANES, lds=setting.lds, name=name, exact=True)(body)


def fill_lds(contents: U64, rows: int) -> None:
    """In a kernel: LDS from memory, 64 words a row."""
    lane = thread_id()
    for i in range(rows):
        lds_write(lane * 4 + ROW * i, load(contents + ROW * i + lane.to(U64) * 4))
    if rows:
        barrier()


def shown_lds(rows: int) -> Iterator[U32]:
    """In a kernel: all of LDS, once every lane is done with it."""
    barrier()
    for i in range(rows):
        yield lds_read(thread_id() * 4 + ROW * i)


def forms_step(
    name: str,
    forms: Sequence[Form],
    registers: Words,
    contents: Words | None = None,
    *,
    shows: bool = False,
    mode: int | None = None,
) -> Step:
    """The step that asks forms. registers: (items, rows, 64). contents: LDS of each item, (items, words), a multiple of
    64. shows: whether the output has LDS afterwards. Steps that differ in `/mode_...` at the end of their names share
    a kernel. Raises ValueError for another shape."""
    forms = tuple(forms)
    if registers.ndim != 3 or registers.shape[1:] != (forms[0].rows, LANES) or registers.dtype != np.uint32:
        raise ValueError(f"{name} takes uint32 of (items, {forms[0].rows}, {LANES}), got {registers.shape}")
    filled = np.zeros((len(registers), 1), np.uint32) if contents is None else contents
    words = 0 if contents is None else filled.shape[1]
    if len(filled) != len(registers) or words % LANES or filled.dtype != np.uint32:
        raise ValueError(f"{name} fills LDS with uint32 of ({len(registers)}, n * {LANES}), got {filled.shape}")
    setting = Setting(4 * words, shows, mode is not None)
    made = forms_kernel(name.partition("/mode_")[0].replace("/", "_"), forms, setting)
    written = sum(form.results for form in forms) + setting.lds_rows * shows
    return Step(
        name, made, len(registers), (registers, filled), ((len(registers), written, LANES), "<u4"), (mode or 0,)
    )


def exec_row(pattern: int) -> Words:
    """EXEC as a row."""
    return np.array([pattern >> lane & 1 for lane in range(LANES)], np.uint32)


def under_patterns(rows: Sequence[Words], patterns: Mapping[str, int] = EXEC_PATTERNS) -> Words:
    """Items of the same rows, (64,) each, under every EXEC."""
    return np.stack([np.stack([exec_row(pattern), *rows]) for pattern in patterns.values()]).astype(np.uint32)


def lane_ids(base: int) -> Words:
    """Words that say which lane they come from, and of which register."""
    return np.arange(LANES, dtype=np.uint32) + np.uint32(base)
