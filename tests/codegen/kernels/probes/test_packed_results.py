"""Results packed by their difference to the default's: nothing is lost, whatever they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.kernels.probes.capture import CaptureError
from codegen.kernels.probes.packed_results import default_results, pack, unpack
from codegen.kernels.probes.transcendentals import results_step
from gfx950.models import DEFAULT

PLAIN = default_results("v_rsq_f32", np.arange(256, dtype=np.uint32) * np.uint32(0x9E3779B1))


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1)), max_size=40))
def test_whatever_comes_is_kept(changed):
    results = PLAIN.copy()
    for place, word in changed:
        results[place] = word
    assert (unpack("t", pack(results, PLAIN), PLAIN) == results).all()


@pytest.mark.parametrize("step", [1, -1])
def test_neighbours_are_kept_in_two_bits(step):
    results = PLAIN + np.uint32(step % 2**32)
    packed = pack(results, PLAIN)
    assert packed.nbytes < 8 + 64 + 16
    assert (unpack("t", packed, PLAIN) == results).all()


def test_words_at_the_ends_wrap():
    plain = np.array([0, 0xFFFFFFFF, 1, 0], np.uint32)
    results = np.array([0xFFFFFFFF, 0, 0, 1], np.uint32)
    assert unpack("t", pack(results, plain), plain).tolist() == results.tolist()


def test_another_default_is_refused():
    packed = pack(PLAIN, PLAIN)
    with pytest.raises(CaptureError, match="P12/x: its results were packed against another version of the default"):
        unpack("P12/x", packed, PLAIN ^ np.uint32(1 << 20))


@pytest.mark.parametrize("damage", [lambda p: p[:-9], lambda p: p[::-1], lambda p: p[:0]])
def test_damage_is_told(damage):
    with pytest.raises(CaptureError, match="P12/x: the capture has no packed results"):
        unpack("P12/x", damage(pack(PLAIN, PLAIN)), PLAIN)


def test_a_step_keeps_what_it_unpacks():
    step = results_step("v_log_f16", 0, 16)
    output = step.predicted(DEFAULT)
    output[7] = 0xDEADBEEF
    kept = step.kept(output)
    assert kept.nbytes < 1000
    assert (step.unpacked(kept) == output).all()
