"""The shape of a launch: work-items, workgroups and waves in three dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from emu.errors import LaunchError
from gfx950.evidence import Evidence, rule
from gfx950.lanes import LANES

Dimensions = tuple[int, int, int]

LARGEST_GRID = (1 << 32) - 1
GRID_DIMENSIONS = 3

rule(
    "launch.partial_workgroup",
    Evidence.chosen,
    "HSA allows grids that are no multiple of the workgroup; the manual has no lane order for the rest",
    "A partial workgroup numbers its work-items within its own smaller size; only the last wave has lanes off.",
)


def _dimensions(value: int | Sequence[int], what: str) -> Dimensions:
    numbers = list(value) if isinstance(value, Sequence) else [value]
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool | np.timedelta64) for n in numbers)
    good = 1 <= len(numbers) <= 3 and whole and not isinstance(value, bytes)
    if not good or any(not 1 <= n <= LARGEST_GRID for n in numbers):
        raise LaunchError(
            f"the {what} is {value!r}",
            expected=f"one to three whole numbers from 1 to {LARGEST_GRID}",
            advice="an empty grid is no launch: leave it out",
        )
    x, y, z = [*(int(n) for n in numbers), 1, 1][:3]
    return x, y, z


@dataclass(frozen=True)
class Geometry:
    """The shape of a launch. grid: work-items in x, y, z. block: work-items of a full workgroup in x, y, z.

    Where the grid is no multiple of the block the last workgroup of that dimension is smaller.
    """

    grid: Dimensions
    block: Dimensions

    def __post_init__(self) -> None:
        for what, value in (("grid (work-items)", self.grid), ("block", self.block)):
            if not isinstance(value, tuple) or len(value) != GRID_DIMENSIONS or _dimensions(value, what) != value:
                raise LaunchError(f"the {what} is {value!r}", expected="a tuple of three whole numbers")

    @staticmethod
    def of_items(items: int | Sequence[int], block: int | Sequence[int]) -> Geometry:
        """A grid counted in work-items, as an HSA dispatch packet counts it. One to three numbers each."""
        return Geometry(_dimensions(items, "grid (work-items)"), _dimensions(block, "block"))

    @staticmethod
    def of_blocks(blocks: int | Sequence[int], block: int | Sequence[int]) -> Geometry:
        """A grid counted in workgroups, as `hipLaunchKernel` counts it. One to three numbers each."""
        count, size = _dimensions(blocks, "grid (workgroups)"), _dimensions(block, "block")
        items = tuple(c * s for c, s in zip(count, size, strict=True))
        return Geometry(_dimensions(items, "grid (work-items)"), size)

    @property
    def workgroups(self) -> Dimensions:
        """Workgroups in x, y, z, partial ones included."""
        x, y, z = (-(-g // b) for g, b in zip(self.grid, self.block, strict=True))
        return x, y, z

    @property
    def full_workgroups(self) -> Dimensions:
        """Workgroups of full size in x, y, z."""
        x, y, z = (g // b for g, b in zip(self.grid, self.block, strict=True))
        return x, y, z

    @property
    def remainder(self) -> Dimensions:
        """Size of the partial workgroup in x, y, z; 0 where there is none."""
        x, y, z = (g % b for g, b in zip(self.grid, self.block, strict=True))
        return x, y, z

    def workgroup_ids(self) -> Iterator[Dimensions]:
        """All workgroup ids in the order workgroups start: x fastest, then y, then z."""
        nx, ny, nz = self.workgroups
        return ((x, y, z) for z in range(nz) for y in range(ny) for x in range(nx))

    def size_of(self, workgroup: Dimensions) -> Dimensions:
        """Work-items of one workgroup in x, y, z. Raises LaunchError for an id outside the grid."""
        if any(not 0 <= w < n for w, n in zip(workgroup, self.workgroups, strict=True)):
            raise LaunchError(f"there is no workgroup {workgroup}", expected=f"ids below {self.workgroups}")
        sizes = zip(workgroup, self.grid, self.block, strict=True)
        x, y, z = (min(block, grid - w * block) for w, grid, block in sizes)
        return x, y, z

    def waves_of(self, workgroup: Dimensions) -> int:
        """Waves of one workgroup."""
        return -(-math.prod(self.size_of(workgroup)) // LANES)
