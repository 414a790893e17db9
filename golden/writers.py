"""Where differing elements were written: lanes, waves and workgroups, and whether only some of them are wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.dispatch import Watch
from emu.geometry import Dimensions
from gfx950.lanes import LANES

ENOUGH = 16  # bits that must speak against an accident
ROW = 16  # lanes

Numbers = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Writers:
    """Who wrote elements of an array. element: flat indices; lane, wave, workgroup (a row of `workgroups`): of each;
    differs: whether it differs. complete: whether these are all the elements that were written, or a sample. weight:
    how many elements each stands for."""

    element: Numbers
    lane: Numbers
    wave: Numbers
    workgroup: Numbers
    differs: NDArray[np.bool_]
    workgroups: list[Dimensions]
    complete: bool
    weight: NDArray[np.float64]

    @property
    def wrong(self) -> int:
        """How many of them differ."""
        return int(np.count_nonzero(self.differs))


def numbered(workgroups: Iterable[Dimensions]) -> dict[Dimensions, int]:
    """Each workgroup once with its number, in the order they start."""
    groups = sorted(set(workgroups), key=lambda group: group[::-1])
    return {group: n for n, group in enumerate(groups)}


def writers_of(found: list[tuple[int, Watch, bool]], differing: int, total: int) -> Writers:
    """Of a sample: (flat index, writer, whether it differs). differing of total: of all the elements."""
    number = numbered(w.workgroup for _, w, _ in found)
    columns = [(e, w.lane, w.wave, number[w.workgroup]) for e, w, _ in found]
    table = np.array(columns, np.intp).reshape(-1, 4)
    element, lane, wave, group = table.T
    differs = np.array([d for _, _, d in found], bool)
    wrong = max(1, sum(d for _, _, d in found))
    right = max(1, len(found) - wrong)
    weight = np.where(differs, differing / wrong, (total - differing) / right)
    return Writers(element, lane, wave, group, differs, list(number), False, weight)


def narrowed(writers: Writers) -> str:
    """The lanes, wave and workgroup that all wrong elements come from, where it is hardly an accident that no other
    has any; empty when there is nothing of the kind."""
    wrong = writers.differs
    if writers.wrong < 2:
        return ""
    found = [_best(writers, _lane_sets(writers.lane, wrong))]
    found += [_best(writers, _single("wave", writers.wave, wrong, str))]
    found += [_best(writers, _single("workgroup", writers.workgroup, wrong, lambda n: str(writers.workgroups[n])))]
    return ", ".join(f"only {name}" for name in found if name)


def _best(writers: Writers, sets: Iterator[tuple[str, NDArray[np.bool_]]]) -> str:
    """The first set that holds all that is wrong and is small enough to say something."""
    for name, inside in sets:
        share = max(float(writers.weight[inside].sum() / writers.weight.sum()), 1 / inside.size)
        if inside[writers.differs].all() and share < 1 and (writers.wrong - 1) * -math.log2(share) >= ENOUGH:
            return name
    return ""


def _single(
    what: str, numbers: Numbers, wrong: NDArray[np.bool_], show: Callable[[int], Any]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    first = int(numbers[wrong][0])
    yield f"{what} {show(first)}", numbers == first


def _lane_sets(lane: Numbers, wrong: NDArray[np.bool_]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    first, half = int(lane[wrong][0]), LANES // 2
    yield f"lane {first}", lane == first
    row = first // ROW
    yield f"lanes {row * ROW}..{row * ROW + ROW - 1}", lane // ROW == row
    name = "upper" if first >= half else "lower"
    yield f"the {name} lanes, {first // half * half}..{first // half * half + half - 1}", lane // half == first // half
    yield f"{'odd' if first % 2 else 'even'} lanes", lane % 2 == first % 2
