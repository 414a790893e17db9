"""Grids, workgroups and waves."""

import pytest
from described_kernels import ONE

from emu.errors import LaunchError
from emu.geometry import Geometry


def test_grids_are_counted_in_blocks_or_in_items():
    assert Geometry.of_blocks((3, 2), 64) == Geometry((192, 2, 1), (64, 1, 1))
    assert Geometry.of_items([100, 7, 2], (64, 2)) == Geometry((100, 7, 2), (64, 2, 1))
    partial = Geometry.of_items((100, 7, 2), (64, 2))
    assert partial.workgroups == (2, 4, 2)
    assert partial.full_workgroups == (1, 3, 2)
    assert partial.remainder == (36, 1, 0)
    assert partial.size_of((1, 3, 1)) == (36, 1, 1)
    assert list(partial.workgroup_ids())[:4] == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
    assert len(list(partial.workgroup_ids())) == 16


@pytest.mark.parametrize("bad", [0, -1, (), (1, 2, 3, 4), 1.5, (2, 0), 1 << 32, "12"])
def test_impossible_dimensions_are_named(bad):
    with pytest.raises(
        LaunchError, match=r"the block is .*\n  expected: one to three whole numbers from 1 to 4294967295"
    ):
        Geometry.of_blocks(1, bad)


def test_workgroups_outside_the_grid_are_refused():
    with pytest.raises(LaunchError, match=r"there is no workgroup \(1, 0, 0\)"):
        ONE.size_of((1, 0, 0))
