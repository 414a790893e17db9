"""The fit of conversions and dot products: a search over the answers of a few switches at a time.

A step belongs to the last family that has a switch of its instruction's rules, so that all the others are known by
then. The search goes from the model found so far by the change of one answer, then of two and more, that leaves fewer
words wrong; what it ends with is tested on the digests of all inputs too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.digests import DigestStep
from codegen.kernels.probes.fit import Evidence, FamilyFit, differences, spread
from codegen.kernels.probes.fit_confirm import confirmed
from codegen.kernels.probes.probe import SIZES, Step, probes
from codegen.kernels.probes.value_step import ValueStep, predicted, switches_in
from gfx950.models import Answer, Model, load_switches

Words = NDArray[np.uint32]
PROBES = ("P10", "P11")
FIRST_STEPS, FIRST_WAVES = 24, 12  # what the search begins with, waves of each step
MORE_STEPS, MORE_WAVES = 8, 2  # of what the outcome gets wrong, how much joins the search


@dataclass(frozen=True, eq=False)
class Question:
    """Some waves of a step, and what was captured of them."""

    step: ValueStep
    words: Words
    captured: Words

    def predicted(self, model: Model) -> Words:
        """What they give under a model."""
        return predicted(self.step.mnemonic, self.step.static, self.step.mode, self.words, model)

    def wrong(self, model: Model) -> NDArray[np.int64]:
        """How many words of each wave a model gets wrong."""
        counts: NDArray[np.int64] = (self.predicted(model) != self.captured).sum(axis=(1, 2))
        return counts

    def only(self, waves: Iterable[int]) -> Question:
        """Some of the waves."""
        chosen = list(waves)
        return Question(self.step, self.words[chosen], self.captured[chosen])


class Search:
    """Questions, and how many of their words models get wrong. What was predicted once is not predicted again for a
    model that differs in other switches only."""

    def __init__(self, asked: Iterable[Question]) -> None:
        self.asked = list(asked)
        self._wrong: dict[tuple[object, ...], int] = {}

    def wrong(self, model: Model, enough: int = 1 << 62) -> int:
        """The number of wrong words; counting stops at `enough`."""
        count = 0
        for one in self.asked:
            count += self._of(one, model)
            if count >= enough:
                break
        return count

    def _of(self, one: Question, model: Model) -> int:
        key = (id(one), *(model.values.get(name) for name in one.step.switches))
        if key not in self._wrong:
            self._wrong[key] = int(one.wrong(model).sum())
        return self._wrong[key]

    def best(self, model: Model, switches: Sequence[str]) -> tuple[Model, int]:
        """The model with the answers that leave the fewest words wrong, and how many these are."""
        best, count, together = model, self.wrong(model), 1
        while count and together <= len(switches):
            self.asked.sort(key=lambda one: -self._of(one, best))
            found, fewer = self._better(best, count, switches, together)
            together = 1 if fewer < count else together + 1
            best, count = found, fewer
        return best, count

    def _better(self, model: Model, count: int, switches: Sequence[str], together: int) -> tuple[Model, int]:
        """The best change of so many answers at once."""
        best = model
        for changed in changes(model, switches, together):
            if (fewer := self.wrong(changed, count)) < count:
                best, count = changed, fewer
        return best, count


def explain(asked: Sequence[Question], model: Model, switches: Sequence[str]) -> tuple[Model, list[Question], Search]:
    """The model that a search on a few waves ends with, those joining them that it gets wrong; what it gets wrong in
    the end; and the search."""
    search = Search(one.only(spread(len(one.words), FIRST_WAVES)) for one in _some(asked))
    while True:
        model, count = search.best(model, switches)
        bad = [(one, waves) for one in asked if len(waves := np.flatnonzero(one.wrong(model)))]
        if count or not bad:
            return model, [one for one, _ in bad], search
        search.asked += [one.only(waves[:MORE_WAVES]) for one, waves in bad[:MORE_STEPS]]


def _some(asked: Sequence[Question]) -> list[Question]:
    return [asked[i] for i in spread(len(asked), FIRST_STEPS)]


def changes(model: Model, switches: Sequence[str], together: int) -> Iterator[Model]:
    """The model with every set of other answers to so many switches."""
    known = load_switches()
    for chosen in combinations(switches, together):
        present = [model.values.get(name, known[name].default) for name in chosen]
        for answers in product(
            *([a for a in known[n].answers if a != p] for n, p in zip(chosen, present, strict=True))
        ):
            yield model.with_values(dict(zip(chosen, answers, strict=True)))


@dataclass(frozen=True)
class ValueFamily:
    """Switches of conversions, or none: then its steps are those whose instructions have none of any family."""

    name: str
    switches: tuple[str, ...] = ()

    def fit(self, evidence: Evidence, model: Model) -> FamilyFit | None:
        """See `fit.Family`."""
        mine = [step for step in evidence.of(*(f"{name}/" for name in PROBES)) if self._takes(step)]
        if not mine:
            return None
        asked = [Question(s, s.inputs[0], evidence.output(s)) for s in mine if isinstance(s, ValueStep)]
        best, wrong, search = explain(asked, model, self.switches)
        known = load_switches()
        answers = {name: best.values.get(name, known[name].default) for name in self.switches}
        result = FamilyFit(self.name, answers, steps=len(mine))
        result.unexplained = differences((one.step.name, one.captured, one.predicted(best)) for one in wrong)
        result.unexplained += confirmed(evidence, [step for step in mine if isinstance(step, DigestStep)], best)
        if not result.unexplained:
            self._find_undecided(result, asked, search, best)
        return result

    def _takes(self, step: Step) -> bool:
        return isinstance(step, ValueStep | DigestStep) and family_of(step.mnemonic) == self.name

    def _find_undecided(self, result: FamilyFit, asked: Sequence[Question], search: Search, found: Model) -> None:
        """Which single other answers explain as much, and what would tell them apart."""
        captured = {one.step.name for one in asked}
        for name in self.switches:
            for changed in changes(found, (name,), 1):
                if search.wrong(changed, 1) or any(one.wrong(changed).any() for one in asked):
                    continue
                answer: Answer = changed.values.get(name, load_switches()[name].default)
                result.undecided.setdefault(name, []).append(answer)
                result.telling.setdefault(name, _what_tells(name, found, changed, captured))


def _what_tells(switch: str, found: Model, changed: Model, captured: set[str]) -> str:
    for step in value_steps():
        asks = switch in step.switches and step.name not in captured
        if asks and (step.predicted(found) != step.predicted(changed)).any():
            return f"{step.name} would tell"
    return "no step of any probe tells them apart"


@cache
def value_steps() -> tuple[ValueStep, ...]:
    """The steps whose outputs are predicted without a kernel."""
    steps = (step for name in PROBES for step in probes()[name].steps(SIZES["quick"]))
    return tuple(step for step in steps if isinstance(step, ValueStep))


@cache
def family_of(mnemonic: str) -> str:
    """The name of the family that the steps of an instruction belong to."""
    asked = set(switches_in(mnemonic))
    return next((f.name for f in reversed(FAMILIES) if asked.intersection(f.switches)), FAMILIES[-1].name)


def _converting(*names: str) -> tuple[str, ...]:
    return tuple(f"convert.{name}" for name in names)


FAMILIES = (
    ValueFamily(
        "integers from floats",
        (*_converting("pack_integer", "normalized", "pack_byte"), "valu.rpi_sum", "valu.flr_denorm"),
    ),
    ValueFamily(
        "float dot products",
        tuple(
            f"valu.{n}" for n in ("dot_float_order", "dot_bf16_inputs", "dot_float_denorm", "dot_float_nan", "dot2_neg")
        ),
    ),
    ValueFamily("conversions from 8 bits", _converting("nan_wide")),
    ValueFamily("conversions to nearest", _converting("nan_narrow", "saturate_infinity", "bf16_denorm")),
    ValueFamily(
        "stochastic conversions",
        _converting("stochastic", "stochastic_small", "stochastic_bits", "stochastic_overflow"),
    ),
    ValueFamily(
        "scaled conversions",
        _converting("scale_nan", "scale_zero", "scaled_halves", "scaled_wide", "small_format_nan"),
    ),
    ValueFamily("other conversions"),
)
