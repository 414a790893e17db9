"""The source's bits are the machine code's: operations alone on special values, and random programs with control flow.

NaNs are compared as NaNs: LLVM may fold a negation into an operand and so choose another sign or payload of a NaN.
"""

import random
import re

import numpy as np
import pytest

from codegen.compile import compile_kernels
from codegen.ir import Argument
from codegen.language import (
    F32,
    I32,
    I64,
    U32,
    U64,
    Kernel,
    Mask,
    Pointer,
    barrier,
    branch,
    constant,
    kernel,
    lds_read,
    lds_write,
    load,
    loop,
    maximum,
    minimum,
    permute,
    readfirstlane,
    store,
    thread_id,
    trace,
    when,
)
from codegen.run_source import run_source
from emu.dispatch import Device
from emu.errors import LaunchError
from gfx950.isa.conversions import v_cvt_pk_bf16_f32, v_cvt_pk_fp8_f32
from gfx950.isa.cross_lane import ds_swizzle_b32
from gfx950.isa.vop1 import v_exp_f32, v_rcp_f32, v_rsq_f32
from gfx950.isa.vop3 import v_perm_b32
from gfx950.lanes import F64, fma, join, split

THREADS = 512
SPECIAL = np.array(
    [
        0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF,
        0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00123, 0x4B000000, 0x3EFFFFFF, 0xFFFFFFFF, 0x7FFFFFFF,
    ],
    np.uint32,
)  # fmt: skip


def canonical(x):
    """A float's bits with every NaN made the same."""
    return x.is_nan().select(0x7FC00000, x.bits(U32))


def both(program, *arrays, outputs):
    """The outputs of a source run and of the compiled code on the emulated machine: uint32 (outputs, THREADS) each."""
    source, machine = (np.zeros((outputs, THREADS), np.uint32) for _ in range(2))
    run_source(program, (1,), [*arrays, source])
    compiled = compile_kernels([program])
    Device().load(compiled.object)[program.name][1, THREADS](*arrays, machine)
    return source, machine


def pointer_kernel(body, *names, lds=0):
    return trace(Kernel(body, "k", tuple(Argument(n, U64, True) for n in names), THREADS, lds))


def pairs(seed=1):
    """Two arrays of THREADS words: all pairs of special values, then random bits."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 1 << 32, (2, THREADS), dtype=np.uint32)
    count = len(SPECIAL)
    a[: count * count], b[: count * count] = np.repeat(SPECIAL, count), np.tile(SPECIAL, count)
    return a, b


def wide(x, y):
    return join(x.bits(U32), y.bits(U32))


def mask_of_ballot(x, y):
    return Mask(x.engine, x.engine.apply("lanes_of", 1, (x < y).ballot().raw)).select(x, y)


OPERATIONS = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "maximum": lambda x, y: maximum(x, y),
    "minimum": lambda x, y: minimum(x, y),
    "fma": lambda x, y: fma(x, y, x),
    "fma constant": lambda x, y: fma(x, y, 1.0),
    "sqrt": lambda x, y: x.sqrt(),
    "floor": lambda x, y: x.floor(),
    "ceil": lambda x, y: x.ceil(),
    "truncate": lambda x, y: x.truncate(),
    "rint": lambda x, y: x.rint(),
    "negative": lambda x, y: -x,
    "absolute": lambda x, y: abs(x),
    "add negative": lambda x, y: x + (-y),
    "multiply negative": lambda x, y: (-x) * y,
    "to I32": lambda x, y: x.to(I32),
    "to U32": lambda x, y: x.to(U32),
    "to I64": lambda x, y: x.to(I64).to(I32),
    "to U64": lambda x, y: split(x.to(U64))[1],
    "from I32": lambda x, y: x.bits(I32).to(F32),
    "from U32": lambda x, y: x.bits(U32).to(F32),
    "from I64": lambda x, y: wide(x, y).bits(I64).to(F32),
    "from U64": lambda x, y: wide(x, y).to(F32),
    "F64 add": lambda x, y: (x.to(F64) + y.to(F64)).to(F32),
    "F64 divide": lambda x, y: (x.to(F64) / y.to(F64)).to(F32),
    "less": lambda x, y: (x < y).select(x, y),
    "less or equal": lambda x, y: (x <= y).select(x, y),
    "equal": lambda x, y: (x == y).select(1, x.bits(U32)),
    "not equal": lambda x, y: (x != y).select(1, x.bits(U32)),
    "is nan": lambda x, y: x.is_nan().select(1, x.bits(U32)),
    "clz": lambda x, y: x.bits(U32).clz(),
    "ctz": lambda x, y: x.bits(U32).ctz(),
    "popcount": lambda x, y: x.bits(U32).popcount(),
    "bitreverse": lambda x, y: x.bits(U32).bitreverse(),
    "clz 64": lambda x, y: wide(x, y).clz().to(U32),
    "ctz 64": lambda x, y: wide(x, y).ctz().to(U32),
    "shift 64": lambda x, y: split(wide(x, y) << 37)[1],
    "multiply 64": lambda x, y: split(wide(x, y) * wide(y, x))[1],
    "minimum 64": lambda x, y: split(wide(x, y).minimum(wide(y, x)))[1],
    "shift right": lambda x, y: x.bits(I32) >> y.bits(I32),
    "shift left": lambda x, y: x.bits(U32) << y.bits(U32),
    "signed minimum": lambda x, y: x.bits(I32).minimum(y.bits(I32)),
    "unsigned maximum": lambda x, y: x.bits(U32).maximum(y.bits(U32)),
    "floor division": lambda x, y: x.bits(I32) // 16 + y.bits(I32) % 64,
    "gather": lambda x, y: x.gather(y.bits(U32)),
    "byte permute": lambda x, y: v_perm_b32(x, y, y),
    "exp": lambda x, y: v_exp_f32(x),
    "reciprocal": lambda x, y: v_rcp_f32(x),
    "reciprocal root": lambda x, y: v_rsq_f32(x),
    "fp8 low": lambda x, y: v_cvt_pk_fp8_f32(x, y, 0x12345678, 0),
    "fp8 high": lambda x, y: v_cvt_pk_fp8_f32(x, y, 0x12345678, 8),
    "bf16": lambda x, y: v_cvt_pk_bf16_f32(x, y),
    "to mask": lambda x, y: x.bits(U32).to(Mask).select(x, y),
    "ballot": lambda x, y: split((x < y).ballot())[1],
    "lanes of": mask_of_ballot,
    "first lane": lambda x, y: readfirstlane(x),
    "read lane": lambda x, y: x.readlane(constant(U32, 37)),
    "write lane": lambda x, y: x.writelane(constant(U32, 37), readfirstlane(y)),
    **{
        f"xor {k}": lambda x, y, k=k: permute(x, [i ^ k for i in range(64)])
        for k in (1, 3, 4, 5, 6, 7, 8, 12, 15, 16, 32, 63)
    },
    "rotate": lambda x, y: permute(x, [(i - 3) % 16 for i in range(16)]),
    "broadcast": lambda x, y: permute(x, [5] * 16),
    "quad": lambda x, y: permute(x, [2, 0, 0, 1]),
    **{f"swizzle {n:#x}": lambda x, y, n=n: ds_swizzle_b32(x.bits(U32), n) for n in (0x2B4D, 0x8039, 0xC0B0, 0xE004)},
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_one_operation(name):
    def body(a, b, out):
        at = thread_id().to(U64) * 4
        result = OPERATIONS[name](load(a + at).bits(F32), load(b + at).bits(F32))
        store(out + at, canonical(result) if isinstance(result, F32) else result.bits(U32))

    source, machine = both(pointer_kernel(body, "a", "b", "out"), *pairs(), outputs=1)
    np.testing.assert_array_equal(source, machine)


class RandomProgram:
    """Builds a kernel by drawing operations on pools of values: u (U32), f (F32), q (U64), m (Mask)."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def one_of(self, *choices):
        """One of several thunks, run."""
        return self.rng.choice(choices)()

    def fill(self, pools, steps, depth=0):
        for _ in range(steps):
            self.rng.choice(
                (self.integers, self.integers, self.floats, self.floats, self.masks, self.wides, self.lanes)
            )(pools)
            if depth < 2 and self.rng.random() < 0.08:
                self.rng.choice((self.branches, self.loops))(pools, depth + 1)

    def integers(self, pools):
        x, y = self.rng.choice(pools["u"]), self.rng.choice([*pools["u"], self.rng.getrandbits(32)])
        n = self.rng.randrange(32)
        pools["u"].append(
            self.one_of(
                lambda: x + y, lambda: x - y, lambda: x * y, lambda: x & y, lambda: x | y, lambda: x ^ y,
                lambda: x.minimum(y), lambda: x.maximum(y), lambda: x << n, lambda: x >> n, lambda: x.popcount(),
                lambda: x.clz(), lambda: (x.bits(I32) >> n).bits(U32), lambda: v_perm_b32(x, y, x),
                lambda: self.rng.choice(pools["m"]).select(x, y),
            )
        )  # fmt: skip

    def floats(self, pools):
        x, y = self.rng.choice(pools["f"]), self.rng.choice([*pools["f"], self.rng.uniform(-3, 3)])
        pools["f"].append(
            self.one_of(
                lambda: x + y, lambda: x - y, lambda: x * y, lambda: x / y, lambda: maximum(x, y),
                lambda: minimum(x, y),
                lambda: fma(x, y, x), lambda: x.floor(), lambda: x.rint(), lambda: -x, lambda: abs(x),
                lambda: self.rng.choice(pools["u"]).to(F32), lambda: self.rng.choice(pools["u"]).bits(F32),
                lambda: self.rng.choice(pools["m"]).select(x, y),
            )
        )  # fmt: skip
        if self.rng.random() < 0.3:
            pools["u"].append(self.one_of(lambda: canonical(x), lambda: x.to(I32).bits(U32)))

    def masks(self, pools):
        u, f, m = ([self.rng.choice(pools[k]) for _ in range(2)] for k in "ufm")
        pools["m"].append(
            self.one_of(
                lambda: u[0] < u[1], lambda: u[0].bits(I32) <= u[1].bits(I32), lambda: u[0] == u[1],
                lambda: f[0] < f[1], lambda: f[0] <= f[1], lambda: f[0] != f[1], lambda: f[0].is_nan(),
                lambda: m[0] & m[1], lambda: m[0] | m[1], lambda: ~m[0],
            )
        )  # fmt: skip

    def wides(self, pools):
        x, y = (self.rng.choice(pools["q"]) for _ in range(2))
        n = self.rng.randrange(64)
        u = self.rng.choice(pools["u"])
        pools["q"].append(
            self.one_of(
                lambda: x + y, lambda: x - y, lambda: x * y, lambda: x ^ y, lambda: x << n, lambda: x >> n,
                lambda: u.to(U64), lambda: u.bits(I32).to(I64).bits(U64), lambda: x.minimum(y),
            )
        )  # fmt: skip
        pools["u"].append(split(x)[n & 1])

    def lanes(self, pools):
        """Exchanges between lanes, outside of divergent control only."""
        if pools["divergent"]:
            return
        x, n = self.rng.choice(pools["u"]), self.rng.choice([1, 2, 3, 4, 6, 8, 12, 15, 16, 32])
        pools["u"].append(
            self.one_of(
                lambda: permute(x, [i ^ n for i in range(64)]),
                lambda: x.gather(self.rng.choice(pools["u"])),
                lambda: self.rng.choice(pools["m"]).ballot().popcount().to(U32),
                lambda: readfirstlane(x),
            )
        )

    def inside(self, pools, depth, extra=()):
        """Results of a region: one value of each kind made there."""
        mine = {k: list(v) if isinstance(v, list) else True for k, v in pools.items()}
        mine["u"] += extra
        self.fill(mine, self.rng.randrange(1, 6), depth)
        return mine["u"][-1], mine["f"][-1], mine["q"][-1]

    def keep(self, pools, values):
        for name, value in zip("ufq", values, strict=True):
            pools[name].append(value)

    def branches(self, pools, depth):
        mask = self.rng.choice(pools["m"])
        self.keep(pools, branch(mask, lambda: self.inside(pools, depth), lambda: self.inside(pools, depth)))

    def loops(self, pools, depth):
        first = tuple(self.rng.choice(pools[k]) for k in "ufq")
        stop = (self.rng.choice(pools["u"]) & 3).bits(I32)

        @loop(self.rng.randrange(2), stop, carry=first)
        def last(i, *carried):
            mine = {k: list(v) if isinstance(v, list) else True for k, v in pools.items()}
            self.keep(mine, carried)
            return self.inside(mine, depth, [i.bits(U32)])

        self.keep(pools, last)

    def program(self, steps):
        def body(a, out):
            at = thread_id().to(U64) * 4
            u = [load(a + at + 4 * THREADS * k) for k in range(4)]
            q = [join(u[0], u[1]), join(u[2], u[3])]
            pools = {"u": u, "f": [x.bits(F32) for x in u], "q": q, "m": [u[0] < u[1]], "divergent": False}
            self.fill(pools, steps)
            kept = pools["u"][-12:] + [canonical(x) for x in pools["f"][-12:]]
            kept += [word for x in pools["q"][-4:] for word in split(x)]
            for index, word in enumerate(kept):
                store(out + at + 4 * THREADS * index, word)

        return pointer_kernel(body, "a", "out")


def agree(seed, steps):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 1 << 32, (4, THREADS), dtype=np.uint32)
    chosen = rng.random(a.shape) < 0.4
    a[chosen] = SPECIAL[rng.integers(0, len(SPECIAL), chosen.sum())]
    source, machine = both(RandomProgram(seed).program(steps), a, outputs=32)
    np.testing.assert_array_equal(source, machine, err_msg=f"seed {seed}")


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed):
    agree(seed, 50)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_random_programs(seed):
    agree(seed, 80)


@kernel(block=THREADS, lds=8 * THREADS)
def sums(a: Pointer, out: Pointer) -> None:
    t = thread_id()
    v = load(a + t.to(U64) * 4).bits(F32)
    for step in (32, 16, 8, 4, 2, 1):
        v = v + permute(v, [i ^ step for i in range(64)])
    with when((t & 63) == 0):
        lds_write((t >> 6) * 8, v.bits(U32), t)
    barrier()

    @loop(0, (t >> 6) + 1, carry=(constant(F32, 0.0), constant(U32, 0)))
    def result(i, total, seen):
        value, thread = lds_read(i * 8, 2)
        return total + value.bits(F32), seen + thread

    store(out + t.to(U64) * 4, result[0].bits(U32))
    store(out + t.to(U64) * 4 + 4 * THREADS, result[1])


def test_reduction_through_lds():
    a = np.random.default_rng(3).standard_normal(THREADS).astype(np.float32)
    source, machine = both(trace(sums), a, outputs=2)
    np.testing.assert_array_equal(source, machine)
    np.testing.assert_array_equal(source[1].reshape(8, 64)[:, 0], np.cumsum(np.arange(8) * 64))


@kernel(block=64)
def numbers(out: Pointer, i: I32, u: U32, f: F32, wide: I64, long: U64) -> None:
    words = [i.bits(U32), u, f.bits(U32), *split(wide.bits(U64)), *split(long)]
    with when(thread_id() == 0):
        for place, word in enumerate(words):
            store(out + 4 * place, word)


GIVEN = [
    0, 2, -1, True, 100, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63, 1 << 64, -(1 << 63), 10**39, 10**400,
    (1 << 24) + 1, 0.0, -0.0, 2.0, 1.5, 0.1, 3e38, 1e39, 1e-42, float("inf"), float("nan"), -float("nan"),
    np.int8(-2), np.uint16(7), np.int64(-3), np.uint64(1 << 63), np.bool_(True), np.float16(1.5), np.float32(0.1),
    np.float64(0.1), np.uint32(0x7F800001).view(np.float32), np.complex64(1), np.array(5), np.array(2.5, np.float32),
    "1", None, np.str_("a"),
]  # fmt: skip


@pytest.mark.parametrize("value", GIVEN, ids=lambda v: repr(v)[:20])
def test_a_number_means_the_same_to_the_source_and_the_machine(value):
    program = trace(numbers)
    machine = Device().load(compile_kernels([program]))["numbers"][1, 64]
    for index in range(1, 6):
        results = []
        for run in (lambda *a: run_source(program, (1,), a), machine):
            out, arguments = np.zeros(7, np.uint32), [1, 1, 1, 1, 1]
            arguments[index - 1] = value
            try:
                run(out, *arguments)
                results.append(out.tolist())
            except LaunchError as error:
                results.append(re.sub(r"^a [IUF]\d\d: ", "", str(error).partition("expected: ")[2]))
        assert results[0] == results[1]


def test_a_number_for_a_float_is_that_float():
    machine = Device().load(compile_kernels([trace(numbers)]))["numbers"][1, 64]
    for value in (2, np.int32(2), 2.0, np.float64(2), np.float16(2), np.array(2)):
        out = np.zeros(7, np.uint32)
        machine(out, 1, 1, value, 1, 1)
        assert out[2:3].view(np.float32)[0] == 2.0
    with pytest.raises(
        LaunchError, match=r'argument 1 "i" \(int, .* got float 2.0\n.*\n.*a whole number.*\n.*write 2$'
    ):
        machine(out, 2.0, 1, 1, 1, 1)
