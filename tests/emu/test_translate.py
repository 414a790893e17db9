"""Blocks and the text made of them."""

import pytest

from emu.translate import Block, discover, module_text
from gfx950.isa.encoding import decode
from gfx950.lanes import Mode

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
    text, *_ = module_text([block], Mode(), True)
    assert text.count("ret i64") == 1


def test_instructions_that_differ_in_registers_share_a_form(assemble):
    def forms(*lines):
        instructions, pc = [], BASE
        for line in lines:
            instructions.append(decode(assemble(line), pc, pc))
            pc += instructions[-1].nbytes
        return module_text([Block(BASE, instructions)], Mode(), False)[0].count("define internal")

    assert forms("v_exp_f32 v1, v2", "v_fma_f32 v1, v2, v3, v4", "v_fma_f32 v9, v9, v9, v9") == forms(
        "v_exp_f32 v1, v2", "v_fma_f32 v1, v2, v3, v4"
    )
    assert forms("v_fma_f32 v1, v2, v3, v4", "v_fma_f32 v1, -v2, v3, v4") == 2
