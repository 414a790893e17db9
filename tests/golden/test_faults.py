"""Deliberate faults in the drafter attention: `check` must catch each of them.

A fault replaces a step of the kernel's source. Source and machine code then agree with each other, and the recorded
golden and the float64 bound must tell. Faults of the machine code itself (a changed instruction) must show as source
against machine, with the instruction that wrote the wrong element.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen.kernel_package import kernel_package
from codegen.kernels import lanes
from codegen.kernels.drafter_attention import block, kernel, launch, merge, qkv, tiles
from codegen.language import lds_read, maximum
from emu.dispatch import RunOptions
from gfx950.lanes import F32
from golden.check import check_case

OPTIONS = RunOptions(threads=2)


def swizzle_off_by_one(patch):
    """Matrix operands are read with the swizzle of the next row."""
    good = tiles.tw
    patch(tiles, "_read4", lambda t, rows, l16, w: lds_read(good(t, l16, w ^ 4) * 4 + rows // 16 * tiles.ROWS_BYTES, 4))


def wrong_perm_selector(patch):
    """The byte transpose takes two bytes in the other order."""
    good = lanes.perm
    patch(tiles, "perm", lambda a, b, sel: good(a, b, 0x07020603 if sel == 0x07030602 else sel))


def natural_key_order(patch):
    """V words stand in key order instead of the order of the scores."""
    patch(tiles, "v_word", lambda group: group)


def missing_mask(patch):
    """Edge blocks are not masked."""
    good = block._scores
    patch(block, "_scores", lambda row, tk, blk, mask: good(row, tk, blk, False))


def p_unscaled(patch):
    """P lacks its factor of 256, so small weights fall among E4M3's subnormals."""
    patch(block, "P_EXPONENT", 0.0)


def merge_backwards(patch):
    """The partials are merged from the last to the first."""

    def backwards(na, carry, fold):
        return merge.loop(0, na, 1, carry)(lambda i, *c: fold([na - 1 - i], *c))

    patch(merge, "_over_partials", backwards)


def window_one_key_long(patch):
    """Rows see one key more to the left."""
    patch(kernel, "WINDOW", kernel.WINDOW + 1)


def rope_sign(patch):
    """RoPE turns the other way."""
    good = qkv.rope_rotated
    negated = lambda n, cs, rope: good(n, [cs[0], cs[1], cs[2] ^ 0x80008000, cs[3] ^ 0x80008000], rope)  # noqa: E731
    patch(qkv, "rope_rotated", negated)


def gamma_without_one(patch):
    """The norm multiplies by gamma instead of 1 + gamma."""
    good = qkv._unpacked
    patch(qkv, "_unpacked", lambda words, plus=0.0: good(words, 0.0))


def dead_keys_not_zeroed(patch):
    """Stale bytes of keys outside [lo, hi] reach the matrix unit."""
    patch(tiles, "_live", lambda key, lo, hi: key == key)


def new_rows_miss_the_tiles(patch):
    """New K and V rows go to the cache only."""
    patch(qkv, "store_new_key", lambda *a: None)
    patch(qkv, "store_new_value", lambda *a: None)


def scale_rounded_down(patch):
    """The MXFP8 scale follows the floor rule, which clips."""

    def floor_rule(value):
        amax = merge.butterfly(abs(value), (16, 8, 4, 2, 1), maximum)
        scale = ((amax.bits(merge.U32) >> 23).maximum(9) - 8).minimum(254)
        scaled = maximum(merge.minimum(value * ((254 - scale) << 23).bits(F32), 448.0), -448.0)
        return merge.fp8_pack4(scaled, scaled, scaled, scaled), scale

    patch(merge, "quantised", floor_rule)


def alpha_forgotten(patch):
    """The running sum is not rescaled to the new maximum."""
    good = block.block_acc

    def wrong(row, tk, tv, blk, state, mask):
        after = good(row, tk, tv, blk, state, mask)
        return block.State(after.m, after.l + state.l, after.o)

    patch(kernel, "block_acc", wrong)


def scale_one_ulp_off(patch):
    """log2(e) / sqrt(128) is one unit in the last place too large."""
    value = np.float32(block.QK_C)
    patch(block, "QK_C", float(np.nextafter(value, np.float32(1))))


def no_bf16_before_e4m3(patch):
    """q and k go to E4M3 without the rounding to bf16 in between."""
    patch(qkv, "bf16_round", lambda a, b: [a, b])


def last_key_left_out(patch):
    """Keys are seen up to hi - 1."""
    good = block._masked
    patch(block, "_masked", lambda row, s, blk: good(replace(row, hi=row.hi - 1), s, blk))


# fault -> the case that shows it, and whether the float64 bound alone must see it too
FAULTS = {
    swizzle_off_by_one: ("small", True),
    wrong_perm_selector: ("small", True),
    natural_key_order: ("small", True),
    missing_mask: ("small", True),
    p_unscaled: ("default", False),
    merge_backwards: ("opposed", False),
    window_one_key_long: ("lo_edge", False),
    rope_sign: ("small", True),
    gamma_without_one: ("small", True),
    dead_keys_not_zeroed: ("small", True),
    new_rows_miss_the_tiles: ("small", True),
    scale_rounded_down: ("small", True),
    alpha_forgotten: ("default", True),
    scale_one_ulp_off: ("default", False),
    no_bf16_before_e4m3: ("default", False),
    last_key_left_out: ("small", True),
}


@pytest.fixture
def faulty(monkeypatch):
    """Applies a fault and makes the kernel be traced and compiled anew, with it and after it."""

    def forget():
        launch.programs.cache_clear()
        launch.compiled.cache_clear()

    def apply(fault):
        fault(lambda module, name, value: monkeypatch.setattr(module, name, value))
        forget()

    yield apply
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_check_catches_the_fault(fault, faulty):
    case, in_bound = FAULTS[fault]
    faulty(fault)
    result = check_case(kernel_package("drafter_attention"), case, OPTIONS)
    kinds = {finding.kind for finding in result.findings}
    assert "golden" in kinds, f"{fault.__doc__} went unnoticed"
    assert "source-machine" not in kinds, "source and machine code run the same fault"
    if in_bound:
        assert "bound" in kinds, f"{fault.__doc__} stayed inside the float64 bound"


def test_without_a_fault_nothing_is_found():
    assert check_case(kernel_package("drafter_attention"), "small", OPTIONS).findings == []
