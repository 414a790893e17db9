"""Random programs and garbage: neither engine crashes or hangs, and both leave the same bits everywhere."""

import random
from collections import Counter

import numpy as np
import pytest
from fuzzing import program, run_program
from random_programs import families, legal_instruction

from gfx950.isa.registry import load


def check(seed):
    return run_program(program(np.random.default_rng(seed), seed), seed)


def test_random_programs_end_alike_on_both_engines():
    endings = Counter(check(seed) for seed in range(48))
    assert endings["done"] > 30
    assert endings["UnknownInstruction"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_many_random_programs(block):
    endings = Counter(check(seed) for seed in range(100 * block + 48, 100 * block + 148))
    assert endings["done"] > 60


def test_the_generator_knows_every_encoding():
    """Straight-line instructions of every encoding, and of most names within a sample."""
    assert set(families()) == {i.encoding for i in load().values()}
    rng = random.Random(7)
    drawn = Counter(legal_instruction(rng).instruction.name for _ in range(6000))
    assert len(drawn) > 0.8 * sum(map(len, families().values()))
