"""The fit: which answers to which switches explain a capture bit for bit.

Each family of switches is searched by itself, in an order in which what one needs is known from those before. The
result says of every switch either its one answer, or the answers that the capture cannot tell apart, and of every step
that no answers explain where it first differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.capture import Capture
from codegen.kernels.probes.probe import SIZES, Step, probes
from gfx950.models import DEFAULT, Answer, Model, load_switches, make_model
from gfx950.whole_files import write_whole

Array = NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """Where a step differs from what the best answers predict: how many words, and the first of them."""

    step: str
    count: int
    index: tuple[int, ...]
    captured: int
    predicted: int

    @property
    def text(self) -> str:
        """One line."""
        where = ", ".join(map(str, self.index))
        bits = f"captured {self.captured:#x}, predicted {self.predicted:#x}"
        return f"{self.step}: {self.count} words differ, first [{where}] {bits}"


@dataclass
class FamilyFit:
    """What the fit of one family found. answers: of each switch the one in the explaining model. undecided: for some of
    them the other answers that explain as much, each with what would tell. unexplained: what no answers explain.
    tables: files of transcendental results by mnemonic, as `result_table.write_table` writes them. notes: what else the
    capture says, each one line."""

    family: str
    answers: dict[str, Answer] = field(default_factory=dict)
    undecided: dict[str, list[Answer]] = field(default_factory=dict)
    telling: dict[str, str] = field(default_factory=dict)
    unexplained: list[Difference] = field(default_factory=list)
    steps: int = 0
    tables: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Family(Protocol):
    """Switches that are fitted together."""

    @property
    def name(self) -> str:
        """What they are of."""
        ...

    @property
    def switches(self) -> Sequence[str]:
        """Their names."""
        ...

    def fit(self, evidence: Evidence, model: Model) -> FamilyFit | None:
        """The answers under which the captured steps come out, the others being those of `model`; None where the
        capture has no step of the family."""
        ...


@dataclass(frozen=True)
class Evidence:
    """A capture beside the steps that made it."""

    capture: Capture
    steps: Mapping[str, Step]

    def of(self, *prefixes: str) -> list[Step]:
        """The captured steps whose names begin so."""
        return [s for name, s in self.steps.items() if name.startswith(prefixes) and name in self.capture.entries]

    def output(self, step: Step) -> Array:
        """What the chip gave."""
        return self.capture.read(step.name)


@dataclass
class Fit:
    """The fit of a capture. stale: captured steps that this version asks otherwise, which say nothing here."""

    capture: Capture
    families: list[FamilyFit]
    stale: list[str]

    @property
    def explained(self) -> bool:
        """Whether every step comes out bit for bit."""
        return not any(family.unexplained for family in self.families)

    def model(self, name: str = "fitted", folder: Path | None = None) -> Model:
        """The model that explains. Of a device's capture its decided answers and its tables count as measured; those of
        a family with an unexplained step do not.

        folder: where the files of its tables are written, `name.mnemonic.results`; without one it has no tables.
        """
        values = {switch: answer for family in self.families for switch, answer in family.answers.items()}
        tables = {} if folder is None else self._write_tables(name, folder)
        measured: dict[str, str] = {}
        if self.capture.origin.kind == "device":
            source = f"capture {self.capture.digest[:16]} of {self.capture.origin.text}"
            for family in self.families:
                if not family.unexplained:
                    decided = [switch for switch in family.answers if switch not in family.undecided]
                    measured |= {one: source for one in (*decided, *(t for t in family.tables if t in tables))}
        return make_model(name, values, tables, measured)

    def _write_tables(self, name: str, folder: Path) -> dict[str, Path]:
        tables = {}
        for family in self.families:
            for mnemonic, content in family.tables.items():
                tables[mnemonic] = folder / f"{name}.{mnemonic}.results"
                write_whole(tables[mnemonic], content)
        return tables


def evidence_of(capture: Capture) -> tuple[Evidence, list[str]]:
    """A capture with this version's steps, those left out whose inputs are not the captured ones."""
    steps = {step.name: step for step in asked(capture)}
    stale = [name for name, entry in capture.entries.items() if name not in steps or _other(steps[name], entry.inputs)]
    return Evidence(capture, {name: step for name, step in steps.items() if name not in stale}), stale


def _other(step: Step, inputs: str) -> bool:
    return step.inputs_digest != inputs


def asked(capture: Capture) -> Iterable[Step]:
    """The steps that a run of the captured probes and size makes."""
    names = dict.fromkeys(name.partition("/")[0] for name in capture.entries)
    for name in names:
        if name in probes():
            yield from probes()[name].steps(SIZES[capture.size])


def fit(capture: Capture, families: Sequence[Family], done: Callable[[FamilyFit], None] = lambda _: None) -> Fit:
    """Fits the families in order. done is called after each."""
    load_switches()
    evidence, stale = evidence_of(capture)
    model, found = DEFAULT, []
    for family in families:
        one = family.fit(evidence, model)
        if one is None:
            continue
        model = model.with_values(one.answers)
        found.append(one)
        done(one)
    return Fit(capture, found, stale)


def difference(step: str, captured: Array, predicted: Array) -> Difference | None:
    """The first differing word of two outputs."""
    unequal = captured != predicted
    if not unequal.any():
        return None
    index = tuple(int(i) for i in np.unravel_index(int(unequal.argmax()), unequal.shape))
    return Difference(step, int(unequal.sum()), index, int(captured[index]), int(predicted[index]))


def differences(outputs: Iterable[tuple[str, Array, Array]]) -> list[Difference]:
    """Where steps differ, one difference each, from their names, captured and predicted outputs."""
    return [one for output in outputs if (one := difference(*output)) is not None]


def spread(count: int, wanted: int) -> list[int]:
    """Some numbers below count, evenly apart."""
    return sorted({i * count // wanted for i in range(min(wanted, count))})
