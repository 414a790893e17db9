"""The verifier: every rule of the IR, broken once, gives its message with the source line and the operation."""

import numpy as np
import pytest

from codegen.ir import Argument, Block, Op, Program, Value, VerifyError, verify
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Pointer,
    constant,
    kernel,
    load,
    loop,
    store,
    thread_id,
    trace,
    when,
)
from gfx950.isa.vop3 import v_perm_b32

LINE = "kernel.py:7"


def value(number, width=32):
    return Value(number, width)


def constants(*widths):
    return [Op("constant", (), (value(n, w),), {"bits": 1}, (), LINE) for n, w in enumerate(widths)]


def program(*ops, widths=(32, 32, 64, 1), lds=64, block=64, arguments=()):
    return Program("k", tuple(arguments), block, lds, Block((), [*constants(*widths), *ops]))


def values_of(made):
    return [op.results[0] for op in made.body.ops]


def check(message, name, operands, results, attributes=None, regions=(), **options):
    """The program of one op over constants %0:32 %1:32 %2:64 %3:1 must be refused with `message`."""
    made = program(**options)
    pool = values_of(made)
    chosen = tuple(pool[n] for n in operands)
    outcome = tuple(value(100 + i, w) for i, w in enumerate(results))
    made.body.ops.append(Op(name, chosen, outcome, attributes or {}, tuple(regions), LINE))
    with pytest.raises(VerifyError, match=message) as caught:
        verify(made)
    assert f"{LINE}: op `{name}`" in str(caught.value)


def test_a_good_program_passes():
    made = program()
    a, b, _, mask = values_of(made)
    made.body.ops += [Op("add", (a, b), (value(9),), {}, (), LINE), Op("when", (mask,), (), {}, (Block(),), LINE)]
    verify(made)


@pytest.mark.parametrize(
    ("message", "name", "operands", "results", "attributes"),
    [
        (r"operand 1 \(%2\) has 64 bits, expected 32", "add", (0, 2), (32,), {}),
        ("has 1 operands, expected 2", "add", (0,), (32,), {}),
        ("has 2 results, expected 1", "add", (0, 1), (32, 32), {}),
        (r"operand 0 \(%0\) has 32 bits, expected 1", "select", (0, 0, 1), (32,), {}),
        (r"result 0 \(%100\) has 32 bits, expected 1", "eq", (0, 1), (32,), {}),
        ("the result must be wider", "zext", (2,), (32,), {}),
        ("the result must be narrower", "trunc", (0,), (64,), {}),
        ("floats have 16, 32 or 64", "fadd", (3, 3), (1,), {}),
        ("result 0 has 8 bits; floats have 16, 32 or 64", "sitofp", (0,), (8,), {}),
        (r"operand 0 \(%0\) has 32 bits, expected 1", "ballot", (0,), (64,), {}),
        (r"operand 1 \(%2\) has 64 bits, expected 32", "gather", (0, 2), (32,), {}),
        ("is no operation of the IR", "frobnicate", (), (), {}),
        ("needs the static attribute `bits`", "constant", (), (32,), {}),
        ("do not fit 32 bits", "constant", (), (32,), {"bits": 1 << 32}),
        ("index 3 is out of range: the kernel has 0 arguments", "argument", (), (32,), {"index": 3}),
        ("axis is 3", "workgroup_id", (), (32,), {"axis": 3}),
        ("moves 5 bytes", "load", (2,), (32,), {"nbytes": 5, "align": 4}),
        ("align is 3", "load", (2,), (32,), {"nbytes": 4, "align": 3}),
        (r"operand 0 \(%0\) has 32 bits, expected 64", "load", (0,), (32,), {"nbytes": 4, "align": 4}),
        ("has 1 results, expected 4", "lds_read", (0,), (32,), {"nbytes": 16, "align": 4}),
        ("has 2 operands, expected 3", "store", (2, 0), (), {"nbytes": 8, "align": 4}),
        ("needs 64 lane numbers", "permute", (0,), (32,), {"lanes": (0, 1)}),
        ("names an unknown instruction: no instruction 'v_perm_b3'", "inst", (), (), {"mnemonic": "v_perm_b3"}),
        (r"has immediates \{'x': 1\}", "inst", (0, 0, 0), (32,), {"mnemonic": "v_perm_b32", "immediates": {"x": 1}}),
        ("has 0 regions, expected 1", "when", (3,), (), {}),
        ("has 0 regions, expected 1", "loop", (0, 0, 0), (), {}),
        ("has 0 regions, expected 2", "branch", (3,), (), {}),
        ("has results", "yield", (), (32,), {}),
        ("has 1 operands, expected 0", "barrier", (0,), (), {}),
    ],
)
def test_each_breach_has_its_message(message, name, operands, results, attributes):
    check(message, name, operands, results, attributes)


def test_lds_must_be_declared():
    check("uses LDS, but the kernel has none", "lds_read", (0,), (32,), {"nbytes": 4, "align": 4}, lds=0)


def test_region_types():
    one = Block((), [Op("yield", (), (), {}, (), LINE)])
    check(r"first side yields values of \[\] bits, expected \[32\]", "branch", (3,), (32,), {}, [one, one])
    check(r"loop body takes values of \[\] bits, expected \[32, 32\]", "loop", (0, 0, 0, 1), (32,), {}, [one])
    index, carried = value(50), value(51)
    short = Block((index, carried), [])
    check(r"loop body yields values of \[\] bits, expected \[32\]", "loop", (0, 0, 0, 1), (32,), {}, [short])


def test_yield_is_last():
    made = program()
    a = values_of(made)[0]
    body = Block((), [Op("yield", (), (), {}, (), LINE), Op("add", (a, a), (value(9),), {}, (), LINE)])
    made.body.ops.append(Op("when", (values_of(made)[3],), (), {}, (body,), LINE))
    with pytest.raises(VerifyError, match="op `yield` is not the last operation of its region"):
        verify(made)


def test_a_value_has_one_definition():
    made = program()
    a = values_of(made)[0]
    made.body.ops.append(Op("add", (a, a), (a,), {}, (), LINE))
    with pytest.raises(VerifyError, match="defines %0 a second time"):
        verify(made)


def test_use_before_definition():
    made = program()
    a = values_of(made)[0]
    made.body.ops.append(Op("add", (a, value(77)), (value(9),), {}, (), LINE))
    with pytest.raises(VerifyError, match=r"operand 1 \(%77\) is used before it is defined"):
        verify(made)


@pytest.mark.parametrize(("block", "lds", "message"), [(0, 0, "0 threads"), (2048, 0, "2048"), (64, 163841, "163840")])
def test_launch_shape(block, lds, message):
    with pytest.raises(VerifyError, match=message):
        verify(program(block=block, lds=lds))


def test_values_of_a_when_stay_inside():
    @kernel(block=64)
    def leaks(p: Pointer) -> None:
        with when(thread_id() < 3):
            inner = load(p)
        store(p, inner)

    with pytest.raises(VerifyError, match=r"test_ir.py:\d+: op `store` operand 1 .* was made inside a `when`"):
        trace(leaks)


def test_values_of_a_loop_stay_inside():
    @kernel(block=64)
    def leaks(p: Pointer) -> None:
        kept = []

        @loop(0, 4)
        def result(i):
            kept.append(i + 1)

        store(p, kept[0].bits(U32))

    with pytest.raises(VerifyError, match="carry or yield it out of the region"):
        trace(leaks)


def test_text_names_arguments_regions_and_lines():
    @kernel(block=128, lds=256)
    def shown(p: Pointer, n: I32) -> None:
        with when(thread_id() < n):
            store(p, v_perm_b32(constant(U32, 1), constant(U32, 2), constant(U32, 3)))

    text = str(trace(shown))
    assert text.startswith("kernel shown(p: Pointer, n: I32) block=128 lds=256\n")
    assert "region 0 ():" in text
    assert "inst" in text
    assert "mnemonic=v_perm_b32" in text
    assert "tests/codegen/test_ir.py:" in text


def test_arguments_and_operations():
    @kernel(block=100)
    def k(p: Pointer, x: F32, y: U64) -> None:
        with when(thread_id() == 0):
            store(p, x.bits(U32))

    made = trace(k)
    assert made.arguments == (Argument("p", U64, True), Argument("x", F32), Argument("y", U64))
    assert made.waves == 2
    assert [op.name for op in made.operations()][-2:] == ["when", "store"]
    assert np.all([op.where for op in made.operations()])
