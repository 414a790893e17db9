"""The same bits with one thread, with two, under other schedules and on the numpy engine, on every test kernel.

C programs here; FlyDSL's kernels in tests/flydsl (every launch goes through all of them), the drafter attention below.
"""

import numpy as np
import pytest
from c_kernels import Program, every_program, on_device, raw_inputs

from codegen.kernel_package import case_inputs, kernel_package
from emu.dispatch import TO_BARRIER, RunOptions

PROGRAMS = every_program()
WAYS = (
    RunOptions(threads=2),
    RunOptions(quantum=1),
    RunOptions(quantum=TO_BARRIER),
    RunOptions(seed=11),
)
QUICK = ("n_queens", "double_basics", "primes", "three_operands", "siphash", "recursion", "switches")
ON_NUMPY = 24  # work-items there


def check(program: Program, ways=WAYS, numpy_items: int = ON_NUMPY) -> None:
    values = raw_inputs(300, program.takes, seed=9)
    one = on_device(program, "-O1", values, options=RunOptions(threads=1))
    for options in ways:
        assert np.array_equal(on_device(program, "-O1", values, options=options), one), options
    few = on_device(program, "-O1", values[:numpy_items], options=RunOptions(engine="numpy"))
    assert np.array_equal(few, one[:numpy_items])


@pytest.mark.parametrize("name", QUICK)
def test_some_c_programs(name):
    check(PROGRAMS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_c_program(name):
    check(PROGRAMS[name], numpy_items=100)


def outputs(case: str, options: RunOptions) -> dict[str, bytes]:
    package = kernel_package("drafter_attention")
    arrays, _ = package.run_machine(case_inputs(package, case), options, None)
    return {name: array.tobytes() for name, array in arrays.items()}


def test_the_drafter_attention_under_every_schedule():
    one = outputs("small", RunOptions())
    for options in WAYS:
        assert outputs("small", options) == one, options


@pytest.mark.slow
def test_the_drafter_attention_on_the_numpy_engine():
    assert outputs("small", RunOptions(engine="numpy")) == outputs("small", RunOptions())
