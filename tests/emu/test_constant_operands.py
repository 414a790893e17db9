"""NaN operands beside constants: no identity that a compiler knows (x * -1, x + -0, 1 * x) changes their bits."""

import numpy as np
import pytest
from kernel_builds import assemble_kernel

from emu.dispatch import Device, RunOptions

ENGINES = pytest.mark.parametrize("engine", ["host", "numpy"])
CONSTANTS = ("-1.0", "1.0", "0", "2.0", "-0.5", "0.5", "-4.0")
ZEROS = {"f16": "0x8000", "f32": "0x80000000", "f64": "0x80000000"}  # the literal is the high half of an f64
FORMS = {
    "f16": ("v_mul_f16 v4, {}, v2", "v_add_f16 v4, {}, v2", "v_sub_f16 v4, {}, v2", "v_subrev_f16 v4, {}, v2",
            "v_madak_f16 v4, {}, v2, 0x6ce0", "v_madmk_f16 v4, v2, 0x3c00, v8", "v_mac_f16 v4, {}, v2",
            "v_fma_f16 v4, 1.0, {}, v2", "v_fma_f16 v4, v2, {}, v8", "v_pk_mul_f16 v4, {}, v2 op_sel_hi:[0,1]",
            "v_pk_add_f16 v4, {}, v2 op_sel_hi:[0,1]", "v_pk_fma_f16 v4, {}, v2, v8 op_sel_hi:[0,1,1]"),
    "f32": ("v_mul_f32 v4, {}, v2", "v_add_f32 v4, {}, v2", "v_sub_f32 v4, {}, v2", "v_subrev_f32 v4, {}, v2",
            "v_fma_f32 v4, v2, {}, v8", "v_fma_f32 v4, {}, v2, v8", "v_fma_f32 v4, v8, {}, v2", "v_fmac_f32 v4, {}, v2",
            "v_fmaak_f32 v4, {}, v2, 0x3f800000", "v_fmamk_f32 v4, v2, 0xbf800000, v8"),
    "f64": ("v_mul_f64 v[4:5], {}, v[2:3]", "v_add_f64 v[4:5], {}, v[2:3]", "v_fma_f64 v[4:5], v[2:3], {}, v[8:9]",
            "v_fma_f64 v[4:5], {}, v[2:3], v[8:9]", "v_fma_f64 v[4:5], v[8:9], {}, v[2:3]"),
}  # fmt: skip
WIDTHS = {"f16": 16, "f32": 32, "f64": 64}


def nans(width):
    """Quiet and signalling NaNs of both signs, by lane."""
    mantissa = {16: 10, 32: 23, 64: 52}[width]
    rng = np.random.default_rng(width)
    payload = np.concatenate([[1, (1 << mantissa) - 1, 1 << mantissa - 1], rng.integers(1, 1 << mantissa, 61)])
    exponent = (1 << width - 1) - (1 << mantissa)
    sign = (np.arange(64) & 1).astype(np.uint64) << np.uint64(width - 1)
    return payload.astype(np.uint64) | np.uint64(exponent) | sign, 1 << mantissa - 1


def forms_of(kind):
    """Every form with every constant that it can have."""
    forms = []
    for pattern in FORMS[kind]:
        no_literal = "v_pk_" in pattern or "fma" in pattern or "ak_" in pattern or kind == "f64"
        constants = CONSTANTS if no_literal else (*CONSTANTS, ZEROS[kind])
        forms += [pattern.format(constant) for constant in constants] if "{}" in pattern else [pattern]
    if kind == "f32":  # widens its f16 constants, of which a compiler knows what comes out
        forms += [f"v_fma_mix_f32 v4, {constant}, v2, v8 op_sel_hi:[1,0,0]" for constant in CONSTANTS]
    return forms


def kernel(kind):
    """Loads NaNs into v[2:3] (f16: both halves alike) and stores what each form makes of them behind each other.
    v[8:9] is 1.0, v4 begins as 0."""
    one = {"f16": (0x3C003C00, 0), "f32": (0x3F800000, 0), "f64": (0, 0x3FF00000)}[kind]
    first = f"""
      s_load_dwordx2 s[0:1], s[0:1], 0x0
      v_lshlrev_b32 v1, 3, v0
      s_waitcnt lgkmcnt(0)
      global_load_dwordx2 v[2:3], v1, s[0:1]
      v_mov_b32 v8, {one[0]}
      v_mov_b32 v9, {one[1]}
      s_waitcnt vmcnt(0)
    """
    each = "v_mov_b32 v4, 0\nv_mov_b32 v5, 0\n{}\nglobal_store_dwordx2 v1, v[4:5], s[0:1]\nv_add_u32 v1, 512, v1\n"
    return assemble_kernel(first + "".join(each.format(form) for form in forms_of(kind)) + "s_endpgm")


@ENGINES
@pytest.mark.parametrize("kind", FORMS)
def test_a_nan_beside_a_constant_is_the_result(kind, engine):
    """[rule float.nan_operand]"""
    width, forms = WIDTHS[kind], forms_of(kind)
    given, quiet = nans(width)
    array, device = np.zeros((len(forms), 64), np.uint64), Device()
    array[0] = given | given << np.uint64(16) if width == 16 else given
    device.load(kernel(kind))["k"][1, 64](device.map(array).to_bytes(8, "little"), options=RunOptions(engine=engine))
    wrong = (array & np.uint64((1 << width) - 1)) != (given | np.uint64(quiet))
    assert not [form for form, lanes in zip(forms, wrong, strict=True) if lanes.any()]
