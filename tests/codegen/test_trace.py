"""Tracing: what is recorded, and what Python cannot do with lane values."""

import textwrap

import numpy as np
import pytest

from codegen import language
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Pointer,
    branch,
    constant,
    kernel,
    lds_read,
    load,
    loop,
    permute,
    store,
    thread_id,
    trace,
    when,
)
from codegen.run_source import run_source
from emu.errors import LaunchError
from gfx950.isa.ds import ds_read_b32
from gfx950.isa.matrix import v_mfma_scale_f32_16x16x128_f8f6f4
from gfx950.isa.sop2 import s_add_u32
from gfx950.isa.vop1 import v_rcp_iflag_f32
from gfx950.isa.vop2 import v_add_f32
from gfx950.isa.vop3 import v_perm_b32
from gfx950.lanes import B128, B256


def traced(body, block=64, lds=64):
    """The operation names of a kernel with one pointer."""

    def k(p: Pointer) -> None:
        body(p)

    return [op.name for op in trace(kernel(block=block, lds=lds)(k)).operations()]


def refused(error, message, body):
    with pytest.raises(error, match=message):
        traced(body)


def test_operators_record_primitives():
    names = traced(lambda p: (thread_id() * 3 + 1) ^ (thread_id() << 2))
    assert [n for n in names if n not in ("constant", "argument")] == [
        "thread_id",
        "mul",
        "add",
        "thread_id",
        "shl",
        "xor",
    ]


def test_equal_constants_are_one_value():
    assert traced(lambda p: (thread_id() + 5) * 5).count("constant") == 1


def test_an_instruction_is_recorded_as_itself():
    names = traced(lambda p: v_perm_b32(load(p), 1, constant(U32, 2)))
    assert names[-1] == "inst"


def test_an_instruction_without_intrinsic_is_traced_through_its_body():
    x = traced(lambda p: v_add_f32(load(p).bits(F32), 1.0))
    assert x[-1] == "fadd"


def test_registers_are_untyped_operands():
    assert traced(lambda p: v_perm_b32(load(p).bits(F32), thread_id(), load(p)))[-1] == "inst"


def test_wide_operands_take_runs_of_words():
    def body(p):
        a = B256([load(p)] * 8)
        c = v_mfma_scale_f32_16x16x128_f8f6f4(
            a, list(a.words), B128([load(p)] * 4), load(p), 127, cbsz=0, blgp=0, scale_op_sel=0, scale_op_sel_hi=0
        )
        assert isinstance(c, B128)
        store(p, *c.words)

    assert traced(body)[-2:] == ["inst", "store"]


def test_truth_of_a_lane_value():
    refused(TypeError, "use mask.select", lambda p: 1 if thread_id() < 3 else 2)
    refused(TypeError, r"branch / when / loop in a kernel", lambda p: not thread_id())
    refused(TypeError, "Mask has a value in every lane", lambda p: (thread_id() < 3) and 1)


def test_a_lane_value_is_no_python_integer():
    refused(TypeError, r"I32 has a value in every lane.*loop\(start, stop", lambda p: range(thread_id()))
    refused(TypeError, "readlane or gather", lambda p: [1, 2][thread_id()])


def test_types_do_not_mix():
    refused(TypeError, "I32 and F32 do not mix", lambda p: thread_id() + constant(F32, 1.0))
    refused(TypeError, r"load takes a byte address of type U64 or I64, got I32", lambda p: load(thread_id()))
    refused(TypeError, r"test_trace.py:\d+: store takes 32-bit words, got U64", lambda p: store(p, p))
    refused(TypeError, r"got float; write constant\(F32, 1.5\)", lambda p: store(p, 1.5))
    refused(TypeError, "lds_read takes a byte address of type U32 or I32, got U64", lambda p: lds_read(p))
    refused(ValueError, "load moves 1 to 4 words a lane, got 5", lambda p: load(p, 5))


def test_control_takes_masks_and_lane_values():
    refused(TypeError, "branch takes a Mask", lambda p: branch(thread_id(), lambda: (), lambda: ()))
    refused(
        TypeError, r"loop carry value 0 is 0.0; use lane values", lambda p: loop(0, 4, carry=(0.0,))(lambda i, x: (x,))
    )
    refused(ValueError, "loop step is 0; it must be positive", lambda p: loop(0, 4, 0))
    refused(TypeError, "loop bounds are I32 or int, got U64", lambda p: loop(0, p))

    def when_int(p):
        with when(thread_id()):
            pass

    refused(TypeError, "when takes a Mask", when_int)


def test_carried_types_stay():
    one = lambda: constant(F32, 1.0)  # noqa: E731
    refused(
        TypeError,
        "loop body returns I32 as value 0, expected F32",
        lambda p: loop(0, 4, carry=(one(),))(lambda i, x: (i,)),
    )
    refused(TypeError, "loop body returns 0 values, expected 1", lambda p: loop(0, 4, carry=(one(),))(lambda i, x: ()))
    refused(
        TypeError,
        "the branch's second side returns I32 as value 0, expected F32",
        lambda p: branch(thread_id() < 1, lambda: (one(),), lambda: (thread_id(),)),
    )


def test_instruction_operands():
    refused(TypeError, "v_perm_b32 is missing src2", lambda p: v_perm_b32(load(p), load(p)))
    refused(TypeError, "v_perm_b32 takes 3 operands, got 4", lambda p: v_perm_b32(load(p), 1, 2, 3))
    refused(TypeError, "unexpected or repeated operand `vdst`", lambda p: v_perm_b32(load(p), 1, 2, vdst=3))
    refused(TypeError, r"operand `src1` is U32, got U64", lambda p: v_perm_b32(load(p), p, 2))
    refused(TypeError, "s_add_u32 uses the register scc", lambda p: s_add_u32(load(p), load(p)))
    refused(TypeError, "touches memory: in a kernel write load", lambda p: ds_read_b32(addr=load(p), offset=0))


def test_static_operands_are_python_ints():
    def body(p):
        words = [load(p)] * 8
        v_mfma_scale_f32_16x16x128_f8f6f4(words, words, words[:4], 127, words[0], words[0], 0, 0, 0)

    refused(TypeError, "operand `cbsz` is static: pass a Python int", body)


def test_an_instruction_without_intrinsic_whose_body_cannot_be_traced_is_exact():
    @kernel(block=64)
    def made(p: Pointer) -> None:
        store(p, v_rcp_iflag_f32(load(p)))

    (op,) = (op for op in trace(made).operations() if op.name == "exact")
    assert op.attributes["mnemonic"] == "v_rcp_iflag_f32"


def test_outside_of_a_kernel():
    with pytest.raises(RuntimeError, match="works inside a kernel only"):
        thread_id()


def test_permute_patterns():
    refused(ValueError, "permute takes 64 lane numbers or a pattern", lambda p: permute(load(p), [0, 1, 2]))


def test_kernel_declaration():
    with pytest.raises(TypeError, match=r"argument `x` is .*; use Pointer, I32"):

        @kernel(block=64)
        def bad(x: str) -> None: ...

    with pytest.raises(TypeError, match=r"argument `x` is without a type; use Pointer, I32"):

        @kernel(block=64)
        def untyped(x) -> None: ...

    with pytest.raises(TypeError, match=r"@kernel\(exact=1\): expected True or False"):
        kernel(block=64, exact=1)
    with pytest.raises(TypeError, match=r"knows block, lds, waves_per_eu, agprs, exact and name, not \['warps'\]"):
        kernel(block=64, warps=2)


def test_tracing_survives_an_error():
    refused(TypeError, "do not mix", lambda p: thread_id() + p)
    assert traced(lambda p: store(p, thread_id())) == ["argument", "thread_id", "store"]


def test_arguments_have_their_types():
    @kernel(block=64)
    def k(a: Pointer, b: I32, c: F32, d: U64) -> None:
        assert (type(a), type(b), type(c), type(d)) == (U64, I32, F32, U64)

    trace(k)


def test_the_example_of_the_language_runs():
    example = "    @kernel" + language.__doc__.partition("    @kernel")[2].partition("\n\n")[0]
    names = {}
    exec("from codegen.language import *\n" + textwrap.dedent(example), names)
    data = np.arange(300, dtype=np.float32)
    run_source(trace(names["scale"]), (2,), [data, 290, 0.5])
    np.testing.assert_array_equal(data[:290], np.arange(290) / 2)
    np.testing.assert_array_equal(data[290:], np.arange(290, 300))


def test_values_that_are_no_lane_values():
    for what, body in (
        ("readfirstlane takes a lane value, got int", lambda p: language.readfirstlane(3)),
        ("permute takes a lane value, got int", lambda p: permute(3, [0, 1])),
        ("first operand of maximum takes F32, got float", lambda p: language.maximum(3.0, constant(F32, 1.0))),
        ("first operand of minimum takes F32, got I32", lambda p: language.minimum(thread_id(), 1.0)),
    ):
        refused(TypeError, what, body)


def test_words_and_lds_addresses_that_do_not_fit():
    refused(ValueError, "store takes 32-bit words, and 1099511627776 does not fit one", lambda p: store(p, 1 << 40))
    refused(ValueError, "lds_read takes 32-bit words, and -2147483649 does not", lambda p: lds_read(-(1 << 31) - 1))
    assert "store" in traced(lambda p: store(p, 0xFFFFFFFF, -(1 << 31)))


def test_a_loop_without_a_body_and_a_kernel_that_returns():
    refused(TypeError, r"test_trace\.py:\d+: this loop has no body; write @loop", lambda p: loop(0, 3) and None)

    def returns(p: Pointer) -> None:
        return p

    with pytest.raises(TypeError, match=r"kernel returns returns U64.*; a kernel returns nothing: store its results"):
        trace(kernel(block=64)(returns))


def test_what_is_no_kernel():
    with pytest.raises(TypeError, match=r"trace takes what @kernel\(block=\.\.\.\) makes of a function, got <function"):
        trace(traced)
    for shape in ({"block": "64"}, {"block": 1.5}, {"block": True}, {"block": 64, "lds": 0.5}):
        with pytest.raises(TypeError, match=r"@kernel\((block|lds)=.*\): expected a whole number"):
            kernel(**shape)


def test_constants_that_a_type_does_not_hold():
    for what, body in (
        (r"1099511627776 does not fit the 32 bits of I32", lambda p: thread_id() + (1 << 40)),
        (r"-2147483649 does not fit the 32 bits of I32", lambda p: thread_id() + (-(1 << 31) - 1)),
        (r"1e\+39 is beyond the largest F32; write float\('inf'\)", lambda p: constant(F32, 1e39)),
        (r"-1e\+300 is beyond the largest F32", lambda p: constant(F32, 1.0) * -1e300),
        (r"\d{61} is beyond the largest F32", lambda p: constant(F32, 1 << 200)),
        (r"\d+ is beyond the largest F32", lambda p: constant(F32, 1 << 2000)),
    ):
        refused(ValueError, what, body)
    assert "constant" in traced(
        lambda p: (thread_id() + 0xFFFFFFFF, constant(F32, float("-inf")), constant(F32, 3.4e38))
    )


@pytest.mark.parametrize(
    "attributes",
    [
        *({"waves_per_eu": waves} for waves in (0, 9, "a", (1, 2, 3), (4, 1), (1, "b"), True, None)),
        *({"agprs": agprs} for agprs in (-1, 257, "x", 1.5, True)),
        *({"name": name} for name in ("", "a b", "é", '"; x', 5, "1k", "k\n", "llvm.foo")),
    ],
)
def test_attributes_that_llvm_would_not_survive(attributes):
    with pytest.raises(ValueError, match=r"@kernel\((waves_per_eu|agprs|name)=.*\): expected "):
        kernel(block=64, **attributes)


@pytest.mark.parametrize("grid", [0, (), (0,), (-1,), (1.5,), ("a",), (1, 2, 3, 4), (1 << 40,), None])
def test_grids_of_the_source(grid):
    def k(p: Pointer) -> None:
        store(p, 1)

    with pytest.raises(LaunchError, match=r"the grid is .*\n.*\n  expected: 1 to 3 positive numbers of workgroups"):
        run_source(trace(kernel(block=64)(k)), grid, [np.zeros(1, np.uint32)])
