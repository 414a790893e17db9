"""The fit of matrix arithmetic: a search over the answers of one class of shapes at a time.

The search goes from the nearest named model by the change of one answer, or of two, that leaves the fewest words wrong,
on a few tiles; every tile of the capture that the outcome gets wrong joins them, until none does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.apply import body_arguments, operand
from codegen.kernels.probes.fit import Evidence, FamilyFit, differences, spread
from codegen.kernels.probes.matrix_step import MatrixStep
from codegen.kernels.probes.matrix_variants import FORMATS, Variant
from codegen.kernels.probes.probe import SIZES, probes
from emu.engines.numpy_engine import NumpyEngine
from gfx950.arithmetic.mfma import GeneralNative
from gfx950.arithmetic.mfma_models import DEFAULT, Format, MfmaModel, mfma_class
from gfx950.arithmetic.mfma_numbers import SAMPLE_SHIFT, native_numbers
from gfx950.arithmetic.mfma_switches import CLASS_SWITCHES, CLASSES, FIELDS, QUESTIONS, GroupRule, Method, Split
from gfx950.isa.registry import lookup
from gfx950.lanes import LANES, Mode
from gfx950.models import Answer, Model, Switch, find_model

Words = NDArray[np.uint32]
ASKING = ("P1/", "P1b/", "P2/", "P3/", "P4/", "P5/", "P6/", "P7/", "P8/tiles/", "P9/")
DECIDING = ("P1/", "P2/", "P3/", "P4/", "P5/", "P6/", "P9/")  # without any of them a capture asks for no answers
NOT_ASKED = "the capture asks for no answers of this family: its steps are only confirmed"
STARTS = ("gfx950", "cdna3", "exact", "fma_chain")
FIRST_STEPS, FIRST_TILES = 24, 3  # what the search begins with, tiles of each step
GROUP_FIELDS = ("method", "length", "split", "split_direction")
EXACT_FIELDS = (  # what an exact sum depends on
    "method", "length", "output_direction", "product_overflow", "subnormal_inputs", "subnormal_c", "subnormal_d",
    "zero_sign",
)  # fmt: skip
MORE_STEPS, MORE_TILES = 12, 3  # of what the outcome gets wrong, how much joins the search
SAMPLE = 4  # one of so many elements is looked at while searching
WHOLE = ("f32", "f64", "integers")  # families that are always looked at whole
MOST_BASES = 12  # models from which undecided answers are looked for
PATIENCE = 6  # searches that end without a model before the family is given up


# ---- What a step gives under a model ---------------------------------------------------------------------------------


class _Reached(Exception):
    """The native that a body calls: its name, its inputs and parameters."""


class _Recorder(NumpyEngine):
    """A numpy engine that stops where a body calls its native."""

    def native(self, name: str, inputs: Sequence[Any], parameters: int) -> list[Any]:
        shape = np.broadcast_shapes(*(np.shape(i) for i in inputs), (1, LANES))
        stacked = np.stack([np.broadcast_to(i, shape) for i in inputs], axis=-2)
        raise _Reached(name, np.ascontiguousarray(stacked, dtype=np.uint32), parameters)


@dataclass(frozen=True, eq=False)
class Question:
    """Tiles of a step as its native sees them. inputs: (tiles, registers, 64). captured: D's registers alike."""

    step: MatrixStep
    native: str
    inputs: Words
    parameters: int
    captured: Words
    sampled: Any = None  # the words of D that are looked at, all of them if none

    def predicted(self, model: MfmaModel) -> Words:
        """D's registers under a model."""
        return GeneralNative(self.native, native_numbers(self.native, model))(self.inputs, self.parameters)

    def wrong(self, model: MfmaModel) -> Words:
        """How many words of each tile a model gets wrong."""
        unequal = self.predicted(model) != self.captured
        if self.sampled is not None:
            unequal &= self.sampled
        return unequal.sum(axis=(1, 2))  # type: ignore[no-any-return]

    def tiles(self, chosen: Iterable[int]) -> list[Question]:
        """Some of the tiles, each by itself."""
        return [replace(self, inputs=self.inputs[i : i + 1], captured=self.captured[i : i + 1]) for i in chosen]

    def sample(self) -> Question:
        """The same of a part of D's elements, in every row and column."""
        variant = self.step.variant
        if class_of(variant) in WHOLE or variant.rows < SAMPLE * SAMPLE:
            return self
        sampled = variant.places_of_results(lambda row, column: (row + column) % SAMPLE == 0)
        return replace(self, parameters=self.parameters | SAMPLE << SAMPLE_SHIFT, sampled=sampled)


def question(step: MatrixStep, captured: Words) -> Question:
    """A captured step with the native that its instruction calls."""
    engine = _Recorder(None if step.mode is None else Mode.from_bits(step.mode))
    mnemonic = step.variant.mnemonic
    arguments = body_arguments(mnemonic, step.variant.static, step.inputs[0], engine, operand)
    try:
        lookup(mnemonic).body(*arguments)
    except _Reached as reached:
        native, inputs, parameters = reached.args
        return Question(step, native, inputs, parameters, captured)
    raise ValueError(f"{step.name}: {mnemonic} calls no native")


# ---- The search ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coordinate:
    """One switch of the search: where its value is in an `MfmaModel`. class_: the class, or none for a question."""

    switch: Switch
    class_: str | None
    field: str

    def put(self, model: MfmaModel, answer: Answer) -> MfmaModel:
        """The model with another answer."""
        if self.class_ is not None:
            rule = getattr(model, self.class_)._replace(**{self.field: FIELDS[self.field].values[answer]})
            return replace(model, **{self.class_: rule})
        kind = QUESTIONS[self.field][1]
        return replace(model, **{self.field: answer if kind is int else kind[answer]})  # type: ignore[arg-type]

    def answer(self, model: MfmaModel) -> Answer:
        """What a model answers."""
        return model.answers[self.switch.name]


def coordinates(names: Sequence[str]) -> list[Coordinate]:
    """The switches of classes, by their names, and of questions, by their fields."""
    found = []
    for name in names:
        if name in CLASS_SWITCHES:
            found += [Coordinate(switch, name, field) for field, switch in CLASS_SWITCHES[name].items()]
        else:
            found.append(Coordinate(QUESTIONS[name][0], None, name))
    return found


def wrong_words(model: MfmaModel, asked: Sequence[Question], enough: int = 1 << 62) -> int:
    """How many words come out wrong; counting stops at `enough`."""
    count = 0
    for one in asked:
        count += int(one.wrong(model).sum())
        if count >= enough:
            break
    return count


def search(starts: Sequence[MfmaModel], free: Sequence[Coordinate], asked: Sequence[Question]) -> tuple[MfmaModel, int]:
    """The model that changes of one answer at a time lead to from one of the starts, or where those fail changes of two
    answers, and the words it has wrong."""
    singles, near = [(coordinate,) for coordinate in free], _of_one_level(free)

    def settle(model: MfmaModel) -> tuple[MfmaModel, int]:
        model, count = _descend(model, singles, asked)
        before = count + 1
        while 0 < count < before:
            before = count
            model, count = _descend(model, near, asked, first_only=True)
            model, count = _descend(model, singles, asked) if count < before else (model, count)
        return model, count

    ends = []
    for start in starts:
        ends.append(settle(start))
        if ends[-1][1] == 0:
            return ends[-1]
    best, count = min(ends, key=lambda end: end[1])
    before = count + 1
    while 0 < count < before:
        before = count
        best, count = _descend(best, list(combinations(free, 2)), asked, first_only=True)
        best, count = settle(best) if count < before else (best, count)
    return best, count


def _of_one_level(free: Sequence[Coordinate]) -> list[tuple[Coordinate, ...]]:
    """Pairs of switches that act on one number: its bits and the direction of their cut, a group's length and parts."""
    level = {c: "group" if c.field in GROUP_FIELDS else c.field.partition("_")[0] for c in free}
    level |= {c: "sum" for c in free if c.field == "output_direction"}
    return [pair for pair in combinations(free, 2) if level[pair[0]] == level[pair[1]]]


def _descend(
    best: MfmaModel, moves: Sequence[tuple[Coordinate, ...]], asked: Sequence[Question], first_only: bool = False
) -> tuple[MfmaModel, int]:
    """Sweeps over moves, each a change of some switches together, as long as a sweep leaves fewer words wrong.
    first_only: the first move that does ends it."""
    before, count = 1 << 62, wrong_words(best, asked)
    while 0 < count < before:
        asked, before = _wrong_first(asked, best), count
        for chosen in moves:
            improved = False
            for candidate in _changes(best, chosen):
                found = wrong_words(candidate, asked, count)
                if found < count:
                    best, count, improved = candidate, found, True
            if count == 0 or (first_only and count < before):
                return best, count
            asked = _wrong_first(asked, best) if improved else asked
    return best, count


def _wrong_first(asked: Sequence[Question], model: MfmaModel) -> list[Question]:
    """Questions in an order in which counting what another model gets wrong is soon at an end: a change that leaves
    those wrong that are is no gain, whatever it does to the others."""
    return sorted(asked, key=lambda one: -int(one.wrong(model).sum()))


def _changes(model: MfmaModel, chosen: Sequence[Coordinate]) -> Iterator[MfmaModel]:
    """The model with every other set of answers to some switches."""
    for answers in product(*(c.switch.answers for c in chosen)):
        changed = model
        for coordinate, answer in zip(chosen, answers, strict=True):
            changed = coordinate.put(changed, answer)
        if changed != model:
            yield changed


# ---- Families --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatrixFamily:
    """Switches of matrix arithmetic. free: classes and questions they belong to. takes: whether a variant's steps are
    theirs."""

    name: str
    free: tuple[str, ...]
    takes: Callable[[Variant], bool] = field(repr=False)

    @cached_property
    def switches(self) -> list[str]:
        """The names of its switches."""
        return [c.switch.name for c in coordinates(self.free)]

    def fit(self, evidence: Evidence, model: Model) -> FamilyFit | None:
        """See `fit.Family`."""
        asked = [question(step, evidence.output(step)) for step in self._own(evidence.of(*ASKING))]
        if not asked:
            return None
        if not any(one.step.name.startswith(DECIDING) for one in asked):
            known = MfmaModel.of(model)
            confirmed = differences((one.step.name, one.captured, one.predicted(known)) for one in asked)
            return FamilyFit(self.name, unexplained=confirmed, steps=len(asked), notes=[NOT_ASKED])
        found, wrong, few = self._explain(asked, MfmaModel.of(model))
        result = FamilyFit(self.name, {s: found.answers[s] for s in self.switches}, steps=len(asked))
        result.unexplained += differences((one.step.name, one.captured, one.predicted(found)) for one in wrong)
        if not wrong:
            self._find_undecided(result, asked, few, found)
        return result

    def _own(self, steps: Sequence[Any]) -> list[MatrixStep]:
        return [s for s in steps if isinstance(s, MatrixStep) and self.takes(s.variant)]

    def _explain(self, asked: Sequence[Question], known: MfmaModel) -> tuple[MfmaModel, list[Question], list[Question]]:
        """The model that the search ends with, the steps that it gets wrong, and the tiles that led to it."""
        free = coordinates(self.free)
        few: list[Question] = []
        for one in _spread_over(asked, FIRST_STEPS):
            few += one.sample().tiles(spread(len(one.inputs), FIRST_TILES))
        starts, stuck = _starts(known, free, few), 0
        best, count = search(starts, free, few)
        while True:
            wrong = [one for one in asked if one.wrong(best).any()]
            stuck += count > 0
            if not wrong or stuck > PATIENCE:
                return best, wrong, few
            for one in _spread_over(wrong, MORE_STEPS):
                part, places = one.sample(), np.flatnonzero(one.sample().wrong(best))
                if not len(places):
                    part, places = one, np.flatnonzero(one.wrong(best))
                few += part.tiles(_some(places, stuck))
            best, count = search([best], free, few)
            if count:
                best, count = min((best, count), search(starts, free, few), key=lambda end: end[1])

    def _find_undecided(
        self, result: FamilyFit, asked: Sequence[Question], few: Sequence[Question], found: MfmaModel
    ) -> None:
        """Which other answers, to one switch or to two of a level, explain as much, and what would tell them apart."""
        free, others = coordinates(self.free), None
        sample = [*reversed(few), *(one.sample() for one in _of_few_variants(asked))]
        # Where one switch has another answer, what goes with that is looked for from there.
        bases = [found]
        for candidate in _neighbours(bases, free):
            changed = {c.switch.name: c.answer(candidate) for c in free if c.answer(candidate) != c.answer(found)}
            if all(answer in result.undecided.get(name, ()) for name, answer in changed.items()):
                continue
            moot = _effective(candidate) == _effective(found)
            if not moot and wrong_words(candidate, sample, 1):
                continue
            if not moot and not changed.keys() <= result.telling.keys():
                others = self._not_captured(asked) if others is None else others
                what = _what_tells(found, candidate, others)
            if not moot and len(bases) < MOST_BASES and not changed.keys() <= result.undecided.keys():
                bases.append(candidate)
            for name, answer in changed.items():
                result.telling.setdefault(name, "the other answers leave it without a meaning" if moot else what)
                told = result.undecided.setdefault(name, [])
                told += [answer] if answer not in told else []

    def _not_captured(self, asked: Sequence[Question]) -> list[Question]:
        """What the probes that the capture lacks would ask of the variants that it has."""
        captured, variants = {one.step.name for one in asked}, {one.step.variant for one in asked}
        lacking = [prefix for prefix in ASKING if not any(name.startswith(prefix) for name in captured)]
        names = dict.fromkeys(prefix.partition("/")[0] for prefix in lacking)
        steps = [s for n in names for s in probes()[n].steps(SIZES["quick"]) if s.name.startswith(tuple(lacking))]
        return [question(s, np.zeros(s.output[0], np.uint32)) for s in self._own(steps) if s.variant in variants]


def _neighbours(bases: Sequence[MfmaModel], free: Sequence[Coordinate]) -> Iterator[MfmaModel]:
    """The models one answer, or two of one level, away from each of the bases, which may grow meanwhile."""
    for base in bases:
        for move in chain([(coordinate,) for coordinate in free], _of_one_level(free)):
            yield from _changes(base, move)


def _starts(known: MfmaModel, free: Sequence[Coordinate], few: Sequence[Question]) -> list[MfmaModel]:
    """Where searches begin: of either method the start that has the fewest words wrong, best first."""
    found = [_started(known, free, find_model(name)) for name in STARTS]
    for key in ("length", "split"):
        found += [
            coordinate.put(start, answer)
            for start in found
            for coordinate in free
            if coordinate.field == key
            for answer in coordinate.switch.answers
        ]
    by_method: dict[int, list[tuple[int, MfmaModel]]] = {}
    for start in dict.fromkeys(found):
        method = max((getattr(start, c.class_).method for c in free if c.class_), default=0)
        by_method.setdefault(method, []).append((wrong_words(start, few), start))
    best = sorted((min(ends, key=lambda end: end[0]) for ends in by_method.values()), key=lambda end: end[0])
    return [start for _, start in best]


def _started(known: MfmaModel, free: Sequence[Coordinate], named: Model) -> MfmaModel:
    """What is known, with the free switches as a named model has them."""
    for coordinate in free:
        known = coordinate.put(known, named.values.get(coordinate.switch.name, coordinate.switch.default))
    return known


def _some(places: Any, turn: int) -> list[int]:
    """A few of some tiles, other ones in another turn."""
    return [int(places[(turn + i) % len(places)]) for i in spread(len(places), MORE_TILES)]


def _spread_over(asked: Sequence[Question], wanted: int) -> list[Question]:
    return [asked[i] for i in spread(len(asked), wanted)]


def _of_few_variants(asked: Sequence[Question]) -> list[Question]:
    """The steps of the variants that have most of them, one for each format of A."""
    by_variant: dict[Variant, list[Question]] = {}
    for one in asked:
        by_variant.setdefault(one.step.variant, []).append(one)
    best: dict[str, list[Question]] = {}
    for variant, steps in by_variant.items():
        if len(steps) > len(best.get(variant.a_format, ())):
            best[variant.a_format] = steps
    return [one for steps in best.values() for one in steps]


def _effective(model: MfmaModel) -> MfmaModel:
    """A model with the default wherever its other answers leave an answer without a meaning."""
    rules = {class_: _effective_rule(getattr(model, class_), getattr(DEFAULT, class_)) for class_ in CLASSES}
    return replace(model, **rules)  # type: ignore[arg-type]  # fields by their names


def _effective_rule(rule: GroupRule, default: GroupRule) -> GroupRule:
    if rule.method == Method.exact:
        kept = {field: getattr(rule, field) for field in EXACT_FIELDS}
        return default._replace(**kept)
    if rule.length == 1:
        rule = rule._replace(split=Split.none)
    if rule.split == Split.none:
        rule = rule._replace(split_direction=default.split_direction)
    return rule


def _what_tells(found: MfmaModel, candidate: MfmaModel, others: Sequence[Question]) -> str:
    for one in others:
        if (one.predicted(found) != one.predicted(candidate)).any():
            return f"{one.step.name} would tell"
    return "no tile of any probe tells them apart"


def class_of(variant: Variant) -> str | None:
    """The class of a variant whose formats are equally wide, `mixed` and `sparse` for others; the format of chains and
    integers."""
    if variant.a_format in ("f32", "f64", "i8"):
        return {"i8": "integers"}.get(variant.a_format, variant.a_format)
    if variant.sparse:
        return "sparse"
    if len({FORMATS[name].bits == 8 for name in (variant.a_format, variant.b_format)}) == 2:
        return "mixed"
    return mfma_class(native_of(variant), Format[variant.a_format], Format[variant.b_format])


def native_of(variant: Variant) -> str:
    """The name of the native of a dense variant."""
    shape = re.search(r"\d+x\d+x\d+(_\d+b)?", variant.mnemonic)
    kind = {"bf16": "f16", "fp8": "f8", "bf8": "f8"}.get(variant.a_format, variant.a_format)
    return f"mfma_f8f6f4_{shape[0]}" if variant.has_formats else f"mfma_{shape[0]}_{kind}"  # type: ignore[index]


def _family(name: str, *free: str) -> MatrixFamily:
    return MatrixFamily(f"matrix {name}", free, lambda variant: class_of(variant) == name)


FAMILIES = (
    _family("half", "half", "nan", "nan_bits"),
    _family("half_deep", "half_deep"),
    _family("byte", "byte"),
    _family("byte_deep", "byte_deep", "group_order", "scale_entry"),
    _family("small", "small"),
    _family("mixed", "mixed_formats"),
    _family("sparse", "sparse_order"),
    _family("f32", "f32_fused", "f32_order", "f32_subnormal_inputs"),
    _family("f64", "f64_fused", "f64_order"),
    _family("integers", "i8_overflow"),
)
