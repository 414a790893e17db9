"""The same bits with one thread, with two, under other schedules and on the numpy engine, on every test kernel.

C programs here; FlyDSL's kernels in tests/flydsl (every launch goes through all of them), the drafter attention and the
sparse attention below.
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
    RunOptions(order="reversed", quantum=TO_BARRIER),
    RunOptions(order="reversed"),
    RunOptions(seed=11),
    RunOptions(seed=12, quantum=TO_BARRIER),
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


def outputs(kernel: str, case: str, options: RunOptions) -> dict[str, bytes]:
    package = kernel_package(kernel)
    arrays, _ = package.run_machine(case_inputs(package, case), options, None)
    return {name: array.tobytes() for name, array in arrays.items()}


def check_case(kernel: str, case: str, ways=WAYS) -> None:
    one = outputs(kernel, case, RunOptions(threads=1))
    for options in ways:
        assert outputs(kernel, case, options) == one, options


def test_the_drafter_attention_under_every_schedule():
    check_case("drafter_attention", "small")


@pytest.mark.slow
def test_the_drafter_attention_on_the_numpy_engine():
    check_case("drafter_attention", "small", [RunOptions(engine="numpy")])


@pytest.mark.parametrize("case", ["first_token", "chunk_edges", "padding", "per_token"])
def test_the_sparse_attention_under_every_schedule(case):
    check_case("sparse_attention", case)


def test_the_sparse_attention_on_the_numpy_engine():
    check_case("sparse_attention", "first_token", [RunOptions(engine="numpy")])


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in kernel_package("sparse_attention").cases if case != "first_token"])
def test_every_sparse_attention_case_under_every_schedule(case):
    check_case("sparse_attention", case)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["eight_splits", "heads_4", "bf16", "x448", "per_token"])
def test_some_sparse_attention_cases_on_the_numpy_engine(case):
    check_case("sparse_attention", case, [RunOptions(engine="numpy")])
