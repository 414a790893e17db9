"""Instructions of other chips are refused by their names; the table is what LLVM's assembler says."""

from __future__ import annotations

import pytest
from find_other_chips import SAME_ENCODING, TABLE, known_to, number, table_text
from llvm_tools import assembled, text_section

from gfx950.isa import other_chips
from gfx950.isa.encoding import DecodeError, decode
from gfx950.isa.other_chips_table import NAMES, OPCODES
from gfx950.isa.registry import load, lookup

XF32, BF16 = "v_mfma_f32_32x32x4_xf32", "v_mfma_f32_4x4x2bf16"
OLD = [  # a line, a chip that has it, and what the decoder says of its bytes
    (f"{XF32} v[0:15], v[2:3], v[4:5], v[0:15]", "gfx942",
     f"{XF32} is an instruction of gfx942, which gfx950 does not have"),
    ("v_mad_f32 v1, v2, v3, v4", "gfx90a", "v_mad_f32 is an instruction of gfx900, gfx906, gfx908, gfx90a"),
    ("buffer_store_lds_dword s[8:11], s3 lds", "gfx906", "buffer_store_lds_dword is an instruction of"),
    ("buffer_wbinvl1", "gfx90a", "buffer_wbinvl1 is an instruction of"),
    ("ds_add_src2_u32 v1", "gfx900", "ds_add_src2_u32 is an instruction of"),
    (f"{BF16} a[0:3], v1, v2, a[0:3]", "gfx908", f"{BF16} is an instruction of gfx908 and gfx90a"),
    ("image_load v[0:3], v[4:7], s[8:15] dmask:0xf", "gfx900", "gfx950 has no image instructions (MIMG)"),
    ("v_interp_p1_f32 v1, v2, attr0.x", "gfx900", "gfx950 has no interpolation (VINTRP)"),
    ("exp mrt0 v0, v1, v2, v3 done", "gfx900", "gfx950 has no exports (EXP)"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "chip", "message"), OLD, ids=[line.split()[0] for line, *_ in OLD])
def test_bytes_of_another_chip_are_named(line, chip, message):
    code = text_section(assembled(line, chip))
    with pytest.raises(DecodeError) as caught:
        decode(code, 0x40, 0x40)
    assert message in str(caught.value)
    assert str(caught.value).startswith("pc 0x40: ")


def test_lookup_says_whose_instruction_it_is():
    with pytest.raises(KeyError, match="v_dual_fmac_f32 is an instruction of gfx1100, gfx1200"):
        lookup("v_dual_fmac_f32")
    with pytest.raises(KeyError, match="no instruction 'v_perm_b31' is defined; nearest: v_perm_b32"):
        lookup("v_perm_b31")
    assert other_chips.chips_of("v_perm_b32") == []


def test_no_name_of_the_table_is_one_of_ours():
    theirs = {name for names in NAMES.values() for name in names.split()}
    assert len(theirs) > 500
    assert not theirs & set(load())


def test_a_sample_of_the_names_is_refused_for_gfx950_and_taken_elsewhere():
    samples = {}
    for chips, names in NAMES.items():
        samples.setdefault(chips.split()[0], []).extend(names.split()[:3])
    assert len(samples) > 5
    assert not known_to("gfx950", [name for names in samples.values() for name in names])
    for chip, names in samples.items():
        assert known_to(chip, names) == set(names)


def test_numbers_are_llvms():
    """One line of each of a few formats, by the assembler of the chip."""
    for line, chip, _ in OLD[:6]:
        assert OPCODES[number(line, chip)] == line.split()[0]
    assert len(SAME_ENCODING) == 5


@pytest.mark.slow
def test_the_table_is_as_generated():
    assert TABLE.read_text() == table_text()
