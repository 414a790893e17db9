"""Damaged code objects and random instruction streams never crash, hang, or reach memory that is not theirs."""

import fuzzing
import numpy as np
import pytest


def test_a_sample_of_cases():
    endings, findings = fuzzing.fuzz(0, 100, jobs=1)
    assert not findings
    assert endings.total() == 100
    assert endings["done"] > 8
    assert endings["CodeObjectError"] > 2
    assert endings["MemoryFault"] > 2


@pytest.mark.slow
def test_many_cases():
    endings, findings = fuzzing.fuzz(1000, 10000, jobs=2)
    assert not findings
    assert endings.total() == 10000


def _crash(seed):
    if seed == 3:
        np.ctypeslib.as_array  # noqa: B018
        import os

        os.abort()
    if seed == 4:
        raise KeyError("foreign")
    return "done"


def test_what_goes_wrong_is_found(monkeypatch):
    monkeypatch.setattr(fuzzing, "run_case", _crash)
    endings, findings = fuzzing.fuzz(0, 6, jobs=1)
    assert endings["done"] == 4
    assert "seed 3: the process died with exit code -6" in findings
    assert any(f.startswith("seed 4: FAILED KeyError") for f in findings)


def test_a_touched_zone_is_found(monkeypatch):
    def touch(seed):
        array = fuzzing.guarded(100)
        array.base[0] = 0
        return bytes(1)

    monkeypatch.setattr(fuzzing, "made", touch)
    with pytest.raises(AssertionError, match="seed 7: bytes outside"):
        fuzzing.run_case(7)
