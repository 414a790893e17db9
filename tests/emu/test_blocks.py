"""How code is cut into blocks."""

import pytest

from emu.blocks import discover

BASE = 0x1000


def blocks_of(assemble, text, **options):
    return discover(assemble(text), BASE, BASE, **options)


def shape(blocks):
    return {start - BASE: len(block.instructions) for start, block in sorted(blocks.items())}


def test_blocks_end_at_branches_targets_and_barriers(assemble):
    text = "v_mov_b32 v1, 0\ns_cbranch_scc1 2\nv_mov_b32 v2, 0\ns_barrier\nv_mov_b32 v3, 0\ns_endpgm"
    assert shape(blocks_of(assemble, text)) == {0: 2, 8: 2, 16: 2}


@pytest.mark.parametrize(("longest", "expected"), [(32, {0: 32, 128: 32, 256: 7}), (1, {4 * n: 1 for n in range(71)})])
def test_long_blocks_are_cut(assemble, longest, expected):
    text = "\n".join(["v_mov_b32 v1, 0"] * 70 + ["s_endpgm"])
    assert shape(blocks_of(assemble, text, longest=longest)) == expected


def test_code_behind_an_unconditional_branch_is_left_alone(assemble):
    code = assemble("s_branch 1") + b"\xff\xff\xff\xff" + assemble("s_endpgm")
    assert shape(discover(code, BASE, BASE)) == {0: 1, 8: 1}


def test_a_block_says_why_it_ends_early(assemble):
    (block,) = discover(assemble("v_mov_b32 v1, 0") + bytes.fromhex("00fe80be"), BASE, BASE).values()
    assert "unknown SOP1 opcode 254" in block.error
    assert block.end == BASE + 4
