"""What source codes below 256 stand for."""

import numpy as np
from filled_wave import make_wave, run

from gfx950.isa.encoding import decode
from gfx950.isa.operand_codes import M0, VCC

VECTOR_SOURCES = [  # text of src0, the 32 bits v_mov_b32 must give
    ("s3", None),
    ("vcc_lo", 0x11111111),
    ("vcc_hi", 0x22222222),
    ("m0", 0x33333333),
    ("exec_hi", 0xFFFFFFFF),
    ("0", 0),
    ("64", 64),
    ("-1", 0xFFFFFFFF),
    ("-16", 0xFFFFFFF0),
    ("0.5", 0x3F000000),
    ("-0.5", 0xBF000000),
    ("1.0", 0x3F800000),
    ("-1.0", 0xBF800000),
    ("2.0", 0x40000000),
    ("-2.0", 0xC0000000),
    ("4.0", 0x40800000),
    ("-4.0", 0xC0800000),
    ("0.15915494", 0x3E22F983),
    ("0x12345678", 0x12345678),
    ("src_scc", 1),
    ("src_vccz", 0),
    ("src_execz", 0),
]


def test_vector_sources(assemble_lines):
    codes = assemble_lines([f"v_mov_b32 v9, {text}" for text, _ in VECTOR_SOURCES])
    for (text, expected), code in zip(VECTOR_SOURCES, codes, strict=True):
        wave = make_wave()
        wave.scc_bit = True
        wave.sgprs[VCC], wave.sgprs[VCC + 1], wave.sgprs[M0] = 0x11111111, 0x22222222, 0x33333333
        wave.step(decode(code, 0))
        assert (wave.vgprs[9] == (wave.sgprs[3] if expected is None else expected)).all(), text


def test_inline_floats_take_the_operands_format(assemble):
    wave = make_wave()
    run(wave, assemble, "v_add_f16_e32 v9, 1.0, v1")
    halves = wave.vgprs[1].astype(np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        want = (np.float16(1.0) + halves).view(np.uint16)
    known = ~np.isnan(halves)
    assert (wave.vgprs[9][known] == want[known]).all()


def test_f64_constants_fill_the_high_word(assemble):
    wave = make_wave()
    wave.vgprs[2:4] = 0
    run(wave, assemble, "v_add_f64 v[6:7], v[2:3], 2.0")
    assert (wave.vgprs[7] == 0x40000000).all()
    assert not wave.vgprs[6].any()
