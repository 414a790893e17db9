"""The fit of transcendental instructions: tables of the captured results, and whether they explain the digests.

There is no switch to decide. What an instruction gave for the inputs that are kept is written as a table of results
where it is not the correctly rounded value, and of a device always: then the ledger says that it was measured. Under
the model with that table everything else that was captured must come out, digests of all inputs first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.digests import DigestStep
from codegen.kernels.probes.fit import Difference, Evidence, FamilyFit, differences
from codegen.kernels.probes.fit_confirm import confirmed
from codegen.kernels.probes.packed_results import ResultsStep, default_results
from codegen.kernels.probes.probe import Step
from codegen.kernels.probes.transcendentals import ALL_PUBLISHED, BINADES, DOUBLES, HALVES, SAME_UNIT, published_digest
from codegen.kernels.probes.value_step import MODES, ValueStep
from gfx950.arithmetic.result_table import (
    SCALING,
    TableError,
    chunk_bits_of,
    chunk_inputs,
    input_space,
    read_header,
    write_table,
)
from gfx950.lanes import LANES
from gfx950.models import Model, make_model

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class TableFamily:
    """The steps of some instructions of one unit. mnemonics: the one that has a table first, if any has."""

    mnemonics: tuple[str, ...]
    switches: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The first of them."""
        return self.mnemonics[0]

    def fit(self, evidence: Evidence, model: Model) -> FamilyFit | None:
        """Tables and what is unexplained under them; None where the capture has no step of the unit."""
        mine = [step for step in evidence.of("P12/") if getattr(step, "mnemonic", None) in self.mnemonics]
        if not mine:
            return None
        result = FamilyFit(self.name, steps=len(mine))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{self.name}.results"
            found = self._with_table(result, evidence, mine, model, path)
            result.unexplained += _differences(evidence, mine, found)
            if digested_whole(mine, self.name) and not result.unexplained:
                self._confirm(result, evidence, path)
        result.notes += [
            note for step in mine if step.name.startswith("P12/published/") for note in _said(evidence, step)
        ]
        return result

    def _with_table(
        self, result: FamilyFit, evidence: Evidence, mine: Sequence[Step], model: Model, path: Path
    ) -> Model:
        """The model with a table of the captured results, where it takes one."""
        ranges = _captured_ranges(evidence, mine, self.name)
        if not ranges:
            return model
        differing = sum(int((words != _default(self.name, first, len(words))).sum()) for first, words in ranges)
        covered = sum(len(words) for _, words in ranges)
        result.notes.append(f"{differing:,} of {covered:,} results that are kept are not correctly rounded")
        if not differing and evidence.capture.origin.kind != "device":
            return model
        try:
            _write(path, self.name, ranges, evidence, SCALING.get(self.name, (None,))[0])
        except TableError as error:
            result.notes.append(f"no table: {error}")
            return model
        result.tables[self.name] = path.read_bytes()
        return make_model(model.name, model.values, {**model.tables, self.name: path}, model.measured)

    def _confirm(self, result: FamilyFit, evidence: Evidence, path: Path) -> None:
        """Says that the digests of all inputs came out. Where none is other than correctly rounded, a device's table
        then says so of them all."""
        result.notes.append(f"the digests of all inputs of {self.name} are explained")
        device = evidence.capture.origin.kind == "device"
        if device and self.name in result.tables and not read_header(path).differing:
            _write(path, self.name, _all_default(self.name), evidence, None)
            result.tables[self.name] = path.read_bytes()


def digested_whole(mine: Sequence[Step], mnemonic: str) -> bool:
    """Whether steps are among them that digest all inputs of an instruction."""
    whole = (s for s in mine if isinstance(s, DigestStep) and s.name.startswith(f"P12/digests/{mnemonic}/"))
    return any(step.count * step.output[0][0] == input_space(mnemonic) for step in whole)


def _all_default(mnemonic: str) -> Iterator[tuple[int, Words]]:
    """The correctly rounded results of all inputs, chunk by chunk."""
    bits = chunk_bits_of(mnemonic)
    for number in range(input_space(mnemonic) >> bits):
        yield number << bits, default_results(mnemonic, chunk_inputs(number, bits))


def _captured_ranges(evidence: Evidence, mine: Sequence[Step], mnemonic: str) -> list[tuple[int, Words]]:
    """First inputs and results of consecutive ones, ascending: those of whole ranges, and of special numbers where no
    normal number's table would have to follow from them."""
    ranges: dict[int, Words] = {}
    for step in mine:
        if step.name.startswith("P12/special/") and isinstance(step, ValueStep) and step.mode == MODES["default"]:
            ranges |= _special_ranges(step.inputs[0].reshape(-1), evidence.output(step).reshape(-1), mnemonic)
    for step in mine:
        if isinstance(step, ResultsStep) and step.mode == MODES["default"] and step.mnemonic == mnemonic:
            ranges[step.first] = step.unpacked(evidence.output(step))
    return sorted(_apart(ranges))


def _special_ranges(inputs: Words, results: Words, mnemonic: str) -> dict[int, Words]:
    """Zeros, subnormals, infinities and NaNs, one by one, of what has a table."""
    if mnemonic not in BINADES:
        return {}
    exponents = inputs >> np.uint32(23) & np.uint32(0xFF)
    chosen = np.flatnonzero((exponents == 0) | (exponents == 0xFF))
    return {int(inputs[i]): results[i : i + 1] for i in chosen}


def _apart(ranges: dict[int, Words]) -> list[tuple[int, Words]]:
    """Ranges of one input joined where they are consecutive."""
    singles = sorted(first for first, words in ranges.items() if len(words) == 1)
    found = [(first, words) for first, words in ranges.items() if len(words) > 1]
    for _, group in groupby(enumerate(singles), lambda one: one[1] - one[0]):
        members = [first for _, first in group]
        found.append((members[0], np.concatenate([ranges[first] for first in members])))
    return found


def _default(mnemonic: str, first: int, count: int) -> Words:
    """Correctly rounded results of consecutive inputs."""
    filled = -(-count // LANES) * LANES
    bits = np.arange(filled, dtype=np.uint64) + np.uint64(first)
    return default_results(mnemonic, (bits % np.uint64(input_space(mnemonic))).astype(np.uint32))[:count]


def _write(
    path: Path, mnemonic: str, ranges: Iterable[tuple[int, Words]], evidence: Evidence, period: int | None
) -> None:
    origin, digest = evidence.capture.origin.text, evidence.capture.digest
    write_table(path, mnemonic, ranges, device=origin, capture=digest, mode=f"{MODES['default']:#x}", period=period)


def _differences(evidence: Evidence, mine: Sequence[Step], model: Model) -> list[Difference]:
    kept = [step for step in mine if isinstance(step, ResultsStep | ValueStep)]
    found = differences((step.name, _captured(evidence, step), step.predicted(model)) for step in kept)
    return found + confirmed(evidence, [step for step in mine if isinstance(step, DigestStep)], model)


def _captured(evidence: Evidence, step: ResultsStep | ValueStep) -> Words:
    output = evidence.output(step)
    return step.unpacked(output) if isinstance(step, ResultsStep) else output


def _said(evidence: Evidence, step: Step) -> list[str]:
    """Whether RDNA's units give the same, where the step went through all the published inputs."""
    if not isinstance(step, DigestStep) or not step.name.startswith("P12/published/"):
        return []
    if step.count != 1 << ALL_PUBLISHED:
        return []
    notes = []
    for inputs, (published, found) in published_digest(evidence.output(step), step.mnemonic).items():
        same = "is that of RDNA" if found == published else f"is {found:#018x}, that of RDNA {published:#018x}"
        notes.append(f"the digest of {step.mnemonic} over {inputs} {same}")
    return notes


def _unit(mnemonic: str) -> TableFamily:
    return TableFamily((mnemonic, *(other for other, unit in SAME_UNIT.items() if unit == mnemonic)))


FAMILIES = tuple(_unit(mnemonic) for mnemonic in (*BINADES, *HALVES, *DOUBLES))
