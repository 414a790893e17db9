"""Digests of an instruction's results over many inputs, against Python."""

import numpy as np
import pytest

from codegen.kernels.probes import conversions, transcendentals
from codegen.kernels.probes.digests import FNV_PRIME, FNV_START, digest_step, digests_of, every
from codegen.kernels.probes.run import Runner
from codegen.kernels.probes.value_step import MODES, predicted
from emu.dispatch import RunOptions
from gfx950.arithmetic.result_table import fnv_digest
from gfx950.models import DEFAULT, make_model

LANES = 64


def launched(step, model=DEFAULT):
    ((_, _, output),) = Runner(RunOptions(model=model)).outputs([step])
    return digests_of(output).tolist()


def expected(mnemonic, operands, bits, mode, blocks, shift, model=DEFAULT):
    """The digests, from results of the instruction's body and Python's integers."""
    numbers = np.arange(1 << bits, dtype=np.uint32)
    words = [np.broadcast_to(w, numbers.shape) for w in operands(numbers, np.uint32(shift))]
    registers = np.stack(words).reshape(len(words), -1, LANES).transpose(1, 0, 2)
    results = predicted(mnemonic, {}, mode, np.ascontiguousarray(registers), model)
    found = []
    for block in results.transpose(0, 2, 1).reshape(blocks, -1).tolist():
        digest = FNV_START
        for word in block:
            digest = (digest ^ word) * FNV_PRIME % 2**64
        found.append(digest)
    return found


CASES = [
    ("v_exp_f32", transcendentals.one_input, "default", 22),
    ("v_rcp_f32", transcendentals.one_input, "flush", 22),
    ("v_cvt_f16_f32", conversions.one_of_every, "up", 22),
    ("v_cvt_pk_bf16_f32", conversions.pair_of_every, "flush", 22),
    ("v_cvt_pk_fp8_f32", conversions.pair_into_old, "ovfl", 22),
    ("v_cvt_scalef32_pk_bf8_f32", conversions.scaled_pair, "default", 22),
    ("v_cvt_scalef32_pk_fp4_f16", conversions.scaled_halves, "default", 14),
]


@pytest.mark.parametrize(("mnemonic", "operands", "mode", "shift"), CASES)
def test_digests_are_pythons(mnemonic, operands, mode, shift):
    step = digest_step("t", mnemonic, operands, 10, MODES[mode], blocks=128, shift=shift)
    assert launched(step) == expected(mnemonic, operands, 10, MODES[mode], 128, shift)


def test_digests_follow_the_model():
    model = make_model("other", {"convert.nan_narrow": "positive"})
    step = digest_step("t", "v_cvt_pk_bf16_f32", conversions.pair_of_every, 12, MODES["default"], blocks=64)
    found = launched(step, model)
    args = "v_cvt_pk_bf16_f32", conversions.pair_of_every, 12, MODES["default"], 64, 20
    assert found == expected(*args, model) != expected(*args)


def test_digest_is_the_published_kind():
    results = np.array([1, 0xFFFFFFFF, 0x7FC00000], np.uint32)
    digest = FNV_START
    for word in results.tolist():
        digest = (digest ^ word) * FNV_PRIME % 2**64
    assert fnv_digest(results) == digest


@pytest.mark.parametrize("bits", [8, 16, 20])
def test_every_goes_over_all_exponents_in_order(bits):
    words = every(np.arange(1 << bits, dtype=np.uint32), np.uint32(32 - bits))
    assert (words >> np.uint32(32 - bits)).tolist() == list(range(1 << bits))
    if bits >= 16:
        assert len(set((words >> np.uint32(23)).tolist())) == 512
        assert len(set((words & np.uint32(0xFFF)).tolist())) > 4000  # low bits vary


def test_every_of_32_bits_is_each_word():
    numbers = np.array([0, 1, 0x12345678, 0x9E3779B1, 0xFFFFFFFF], np.uint32)
    assert every(numbers, np.uint32(0)).tolist() == numbers.tolist()


def test_scaled_halves_are_all_of_them():
    numbers = np.arange(0, 1 << 24, 4099, dtype=np.uint32)
    words, scales, _ = conversions.scaled_halves(numbers, np.uint32(0))
    assert ((words & np.uint32(0xFFFF)) == (numbers & np.uint32(0xFFFF))).all()
    assert ((scales >> np.uint32(23)) == (numbers >> np.uint32(16))).all()


@pytest.mark.parametrize(("bits", "blocks"), [(10, 96), (5, 64)])
def test_blocks_must_fit(bits, blocks):
    with pytest.raises(ValueError, match=rf"t: 2\^{bits} inputs in {blocks} blocks: blocks must be whole waves"):
        digest_step("t", "v_exp_f32", transcendentals.one_input, bits, 0, blocks=blocks)
