"""The text made of blocks."""

from emu.blocks import Block, discover
from emu.translate import module_text
from gfx950.isa.encoding import decode
from gfx950.lanes import Mode

BASE = 0x1000


def test_a_block_that_ends_early_is_left_once(assemble):
    (block,) = discover(assemble("v_mov_b32 v1, 0") + bytes.fromhex("00fe80be"), BASE, BASE).values()
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
