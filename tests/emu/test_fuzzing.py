"""Damaged code objects and random programs never crash, hang, or reach memory that is not theirs, and both engines
leave the same bits everywhere."""

import random
from collections import Counter

import fuzzing
import numpy as np
import pytest
from random_programs import families, legal_instruction

from gfx950.isa.registry import load


def test_a_sample_of_cases():
    endings, findings = fuzzing.fuzz(0, 64, jobs=1)
    assert not findings
    assert endings.total() == 64
    assert endings["done"] > 35
    assert endings["CodeObjectError"] > 0
    assert endings["UnknownInstruction"] > 0


@pytest.mark.slow
def test_many_cases():
    endings, findings = fuzzing.fuzz(1000, 10000, jobs=2)
    assert not findings
    assert endings.total() == 10000


def _crash(seed, kind):
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
    def touch(made, seed):
        array = fuzzing.guarded(100)
        array.base[0] = 0
        return "done"

    monkeypatch.setattr(fuzzing, "run_program", touch)
    with pytest.raises(AssertionError, match="seed 7: bytes outside"):
        fuzzing.run_case(7)


@pytest.mark.parametrize("wrong", ["a vector", "memory", "an ending"])
def test_engines_that_differ_are_found(monkeypatch, wrong):
    whole = fuzzing.outcome

    def outcome(code, program, buffer, options, block):
        result = whole(code, program, buffer, options, block)
        if options.engine == "numpy":
            result.left["wave 0 v40"] = b"other" if wrong == "a vector" else result.left["wave 0 v40"]
            result.buffer = result.buffer[1:] if wrong == "memory" else result.buffer
            result.ending = "NoProgress: " if wrong == "an ending" else result.ending
        return result

    seed = next(seed for seed in range(2, 50, 8) if fuzzing.run_case(seed) == "done")
    monkeypatch.setattr(fuzzing, "outcome", outcome)
    found = {"a vector": "wave 0 v40", "memory": "buffer", "an ending": "'done' and 'NoProgress: '"}[wrong]
    with pytest.raises(AssertionError, match=f"engines differ: {found}"):
        fuzzing.run_case(seed)


def test_the_generator_knows_every_encoding():
    """Straight-line instructions of every encoding, and of most names within a sample."""
    assert set(families()) == {i.encoding for i in load().values()}
    rng = random.Random(7)
    drawn = Counter(legal_instruction(rng).instruction.name for _ in range(6000))
    assert len(drawn) > 0.8 * sum(map(len, families().values()))
