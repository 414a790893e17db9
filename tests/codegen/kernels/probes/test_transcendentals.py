"""P12: published inputs in the published order, ranges that tables need, special numbers."""

from functools import cache

import numpy as np
import pytest

from codegen.kernels.probes import transcendentals
from codegen.kernels.probes.digests import digests_of
from codegen.kernels.probes.packed_results import ResultsStep, default_results
from codegen.kernels.probes.probe import SIZES, probes
from codegen.kernels.probes.run import Runner
from codegen.kernels.probes.transcendentals import published_digest, results_step
from codegen.kernels.probes.value_step import ValueStep
from emu.dispatch import RunOptions
from gfx950.arithmetic.result_table import PUBLISHED_DIGESTS, SCALING, fnv_digest
from gfx950.isa.registry import INSTRUCTIONS
from gfx950.models import DEFAULT


@cache
def steps(size="quick"):
    return {s.name: s for s in probes()["P12"].steps(SIZES[size])}


def launched(step):
    ((_, _, output),) = Runner(RunOptions()).outputs([step])
    return output


@pytest.mark.parametrize("mnemonic", ["v_exp_f32", "v_log_f32"])
def test_published_inputs_come_in_the_published_order(mnemonic):
    step = steps()[f"P12/published/{mnemonic}"]
    found = digests_of(launched(step))
    ones = [one for one in PUBLISHED_DIGESTS if one.mnemonic == mnemonic]
    for block, one in enumerate(ones):
        results = default_results(mnemonic, one.inputs()[: step.count])
        assert int(found[block]) == fnv_digest(results)


@pytest.mark.parametrize("mnemonic", ["v_exp_f32", "v_log_f32"])
def test_the_published_digests_at_full_size(mnemonic):
    step = steps("full")[f"P12/published/{mnemonic}"]
    ones = [one for one in PUBLISHED_DIGESTS if one.mnemonic == mnemonic]
    assert step.count == 1 << 24
    assert all(len(one.inputs()) == step.count for one in ones)
    output = np.arange(128, dtype="<u4").reshape(64, 2)
    said = published_digest(output, mnemonic)
    assert said == {one.text: (one.digest, (2 * n + 1) << 32 | 2 * n) for n, one in enumerate(ones)}


def test_digests_of_all_inputs_are_small():
    full = steps("full")
    for name, step in full.items():
        if name.startswith("P12/digests/"):
            assert step.count * step.output[0][0] == 1 << 32
            assert step.output[0] == (1024, 2)


@pytest.mark.parametrize("mnemonic", [name for name in transcendentals.BINADES if name in SCALING])
def test_kept_binades_are_a_period(mnemonic):
    kept = [s for s in steps("full").values() if isinstance(s, ResultsStep) and s.mnemonic == mnemonic]
    first, count = min(s.first for s in kept), sum(s.output[0][0] for s in kept)
    assert (first, count) == (0x3F800000, SCALING[mnemonic][0] << 23)


def test_every_instruction_is_asked():
    asked = {step.mnemonic for step in steps().values()}
    kinds = ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos")
    known = {n for n in INSTRUCTIONS if n.startswith(tuple(f"v_{kind}_" for kind in kinds))}
    assert known == asked


def test_predictions_are_what_kernels_give():
    chosen = [s for s in steps().values() if isinstance(s, ResultsStep | ValueStep)][::5]
    for step, _, output in Runner(RunOptions()).outputs(chosen):
        found = step.unpacked(output) if isinstance(step, ResultsStep) else output
        assert (found == step.predicted(DEFAULT)).all(), step.name


def test_results_are_of_consecutive_inputs():
    step = results_step("v_cos_f32", 0x3F123440, 8)
    assert step.bits.tolist() == list(range(0x3F123440, 0x3F123540))
    found = step.unpacked(launched(step))
    assert (found == default_results("v_cos_f32", step.bits)).all()


def test_special_numbers_and_doubles():
    values = set(transcendentals.special_values().tolist())
    assert {0, 1 << 31, 1, 0x007FFFFF, 0x00800000, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF} <= values
    low, high = transcendentals.double_values()
    doubles = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    assert {0, 1, 0x7FF0000000000000, 0xFFF0000000000001, 0x3FF0000000000000} <= set(doubles.tolist())
