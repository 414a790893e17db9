"""Inputs of the drafter attention that are refused before anything runs."""

from dataclasses import replace

import numpy as np
import pytest

from codegen.kernel_package import Watchpoint
from codegen.kernels.drafter_attention.cases import CASES, build
from codegen.kernels.drafter_attention.launch import check_inputs, run_machine_case


@pytest.fixture(scope="module")
def tiny():
    return build(CASES["tiny"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"na": 1.5}, TypeError, r"na is 1\.5, a float; expected a whole number of partitions"),
        ({"na": True}, TypeError, "na is True, a bool"),
        ({"na": None}, TypeError, "na is None, a NoneType"),
        ({"na": 0}, ValueError, "na is 0; a request has 1 to 64 partitions"),
        ({"na": 65}, ValueError, "na is 65; a request has 1 to 64 partitions"),
        ({"eps": "a"}, TypeError, "eps is 'a', a str; expected a number"),
        ({"eps": np.array(1.0)}, TypeError, "a ndarray; expected a number"),
        ({"eps": 1e-50}, ValueError, r"eps is 1e-50; expected a positive number that float32 holds"),
        ({"eps": 1e300}, ValueError, r"eps is 1e\+300; expected a positive number that float32 holds"),
        ({"eps": float("nan")}, ValueError, "eps is nan"),
    ],
)
def test_scalars(tiny, change, error, message):
    with pytest.raises(error, match=message):
        check_inputs(replace(tiny, **change))


def test_what_is_no_input(tiny):
    with pytest.raises(TypeError, match="qkv is a MaskedArray; expected a numpy array of uint16"):
        check_inputs(replace(tiny, qkv=np.ma.masked_array(tiny.qkv)))
    with pytest.raises(TypeError, match="the inputs are a dict; expected an Inputs"):
        check_inputs({})
    check_inputs(replace(tiny, na=np.int64(3), eps=np.float32(1e-6)))


def test_a_watch_names_an_output(tiny):
    with pytest.raises(ValueError, match="there is no output 'nope' to watch; there are: a8, as8, cache, partials"):
        run_machine_case(tiny, watch=Watchpoint("nope", 0))
