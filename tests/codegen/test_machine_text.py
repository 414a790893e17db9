"""Plans: the text of one instruction over registers of its own, which parts are tied, and the waits around it."""

import re

import pytest

from codegen.machine_text import NoSuchForm, plan

TEXTS = {
    ("v_add_f32", ()): "v_add_f32_e32 v0, v32, v64",
    ("v_add_f32", (("abs", 2), ("clamp", 1), ("neg", 1), ("omod", 1))): "v_add_f32_e64 v0, -v32, |v64| clamp mul:2",
    ("v_addc_co_u32", ()): "v_addc_co_u32_e64 v0, s[0:1], v32, v64, s[4:5]",
    ("v_mfma_f32_32x32x4_2b_f16", (("blgp", 2), ("cbsz", 1))): (
        "v_mfma_f32_32x32x4_2b_f16 v[0:31], v[32:33], v[64:65], v[96:127] cbsz:1 blgp:2"
    ),
    ("v_mfma_f32_32x32x64_f8f6f4", (("blgp", 4), ("cbsz", 2))): (
        "v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[32:37], v[64:67], v[96:111] cbsz:2 blgp:4"
    ),
    ("v_writelane_b32", ()): "v_writelane_b32 v0, s8, m0",
    ("v_swap_b32", ()): "v_swap_b32 v0, v32",
}


@pytest.mark.parametrize(("asked", "text"), TEXTS.items(), ids=[name for name, _ in TEXTS])
def test_text(asked, text):
    assert plan(*asked).text == text


def test_dpp_and_sdwa_are_given_as_text():
    shifted = plan("v_exp_f32", (), "row_shr:1 row_mask:0xf bank_mask:0x3")
    assert shifted.text == "v_exp_f32_dpp v0, v32 row_shr:1 row_mask:0xf bank_mask:0x3"
    assert shifted.keeps
    assert plan("v_cvt_f32_fp8", (), "src0_sel:BYTE_2").text == "v_cvt_f32_fp8_sdwa v0, v32 src0_sel:BYTE_2"


def test_an_old_destination_that_is_an_operand_is_tied():
    sparse = plan("v_smfmac_f32_16x16x32_f16")
    assert {s.name: s.tied for s in sparse.sources} == {"src0": None, "src1": None, "src2": None, "vdst": 0}
    assert sparse.untied == ()
    swap = plan("v_permlane32_swap_b32")
    assert [s.tied for s in swap.sources] == [0, 1]


def test_a_half_of_a_register_keeps_the_other():
    assert plan("v_exp_f16").keeps
    assert not plan("v_exp_f32").keeps
    assert plan("v_exp_f32", masked=True).keeps


def test_other_names_for_the_registers():
    names = {("v", 0): "$0", ("s", 0): "$1", ("v", 32): "$2", ("v", 64): "$3", ("v", 96): "$4"}
    assert plan("v_mad_u64_u32").over(names) == "v_mad_u64_u32 $0, $1, $2, $3, $4"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("v_cmpx_lt_f32",), "v_cmpx_lt_f32 uses EXEC as a destination"),
        (("global_load_dword",), "is no vector instruction"),
        (("v_readfirstlane_b32", (("clamp", 1),)), "v_readfirstlane_b32 has no form with clamp=1; its forms are"),
        (("v_exp_f32", (), "row_shr:99"), "row_shr must be 1..15, found 99"),
    ],
)
def test_what_is_no_form(asked, message):
    with pytest.raises(NoSuchForm, match=re.escape(message)):
        plan(*asked)


def test_waits():
    assert plan("v_mfma_f32_4x4x1_16b_f32").waits == (("s_nop 15", "s_nop 15"), ("s_nop 15", "s_nop 15"))
    assert plan("v_exp_f32").waits == (("s_nop 7",), ("s_nop 7",))
    assert plan("ds_read_b64_tr_b8").waits[1][0] == "s_waitcnt lgkmcnt(0)"
