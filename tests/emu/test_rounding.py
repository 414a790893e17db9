"""Rounding up, down and toward zero, and denormal modes, on both engines against MPFR and against the host's C."""

import ctypes
import itertools
import subprocess
import sys

import gmpy2
import numpy as np
import pytest

from emu.engines import host_engine
from emu.engines.host_engine import HostEngine, Value
from emu.engines.numpy_engine import NumpyEngine
from gfx950.host_code import HostCode, Translation
from gfx950.lanes import Mode, infinity_bits

ARITHMETIC = {"fadd": 2, "fsub": 2, "fmul": 2, "fdiv": 2, "fma": 3, "fsqrt": 1}
WIDTHS = (16, 32, 64)
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}
MPFR_ROUNDING = {1: gmpy2.RoundUp, 2: gmpy2.RoundDown, 3: gmpy2.RoundToZero}
RESIZES = ((64, 32), (64, 16), (32, 16))


def rounding(direction, width=64, **more):
    """MODE with a rounding for the floats of one width; the other field asks for another, wrong one."""
    other = 3 - direction if direction in (1, 2) else 1
    return Mode(direction, other, **more) if width == 32 else Mode(other, direction, **more)


# ---- the engines -----------------------------------------------------------------------------------------------------


class HostFunctions:
    """Primitives as functions of the host engine on 64 lanes or 1: pointers to the operands, then to the result."""

    def __init__(self, lanes=64):
        self.lanes = lanes
        self.functions = {}
        self.code = []

    def function(self, op, width, sources, mode):
        key = (op, width, sources, mode)
        if key not in self.functions:
            engine, together = HostEngine(mode), self.lanes > 1
            kinds = [f"<64 x i{w}>" if together else f"i{w}" for w in sources]
            inputs = [
                engine.define(f"load {kind}, ptr %p{i}, align 1", w, together)
                for i, (kind, w) in enumerate(zip(kinds, sources, strict=True))
            ]
            result = engine.apply(op, width, *inputs)
            engine.emit(f"store {engine.typed(result, together)}, ptr %out, align 1")
            parameters = ", ".join([*(f"ptr %p{i}" for i in range(len(sources))), "ptr %out"])
            name = f"f{len(self.functions)}"
            lines = [*sorted(engine.declared), f"define void @{name}({parameters}) {{", *engine.lines, "ret void", "}"]
            self.functions[key] = self.compiled("\n".join(lines), name, len(sources) + 1)
        return self.functions[key]

    def compiled(self, text, name, pointers):
        code = HostCode()
        code.add(lambda: Translation(text), f"test_rounding|{text}")
        self.code.append(code)
        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * pointers)(code.address(name))

    def __call__(self, op, width, mode, *operands):
        sources = tuple(o.dtype.itemsize * 8 for o in operands)
        function = self.function(op, width, sources, mode)
        count = len(operands[0])
        padded = [np.concatenate([o, np.zeros(-count % self.lanes, o.dtype)]) for o in operands]
        out = np.zeros(len(padded[0]), UNSIGNED[width])
        for start in range(0, len(out), self.lanes):
            parts = [p[start:] for p in (*padded, out)]
            function(*(p.ctypes.data for p in parts))
        return out[:count]


@pytest.fixture(scope="module")
def host():
    return HostFunctions()


def on_numpy(op, width, mode, *operands):
    return NumpyEngine(mode).apply(op, width, *operands)


def check(host, op, width, mode, operands, expected):
    """Both engines give `expected`, and a message that shows the first lane that differs."""
    for name, result in (("numpy", on_numpy(op, width, mode, *operands)), ("host", host(op, width, mode, *operands))):
        if not np.array_equal(result, expected):
            at = int(np.argwhere(result != expected)[0][0])
            shown = [hex(o[at]) for o in operands]
            raise AssertionError(f"{name} {op} f{width} {mode} {shown}: {result[at]:#x}, expected {expected[at]:#x}")


# ---- operands --------------------------------------------------------------------------------------------------------


def random_floats(rng, width, count):
    """Raw bits of which a third are denormals, zeros, the largest numbers, infinities, NaNs, or near one another."""
    kind = UNSIGNED[width]
    bits = rng.integers(0, 1 << width, count, dtype=kind)
    sign, infinity = kind(1 << width - 1), infinity_bits(width)
    dice = rng.random(count)
    bits = np.where(dice < 0.12, bits & kind(infinity ^ (1 << width) - 1), bits)
    bits = np.where((dice > 0.12) & (dice < 0.18), (bits & sign) | (kind(infinity - 1) - (bits & kind(7))), bits)
    bits = np.where((dice > 0.18) & (dice < 0.22), bits & sign, bits)
    bits = np.where((dice > 0.22) & (dice < 0.25), (bits & sign) | kind(infinity), bits)
    middle = kind(infinity >> 1)  # exponents near 0, where sums and products meet
    near = (bits & kind((1 << width) - 1 >> 4 | 1 << width - 1)) % kind(infinity // 8) + middle
    return np.where(dice > 0.6, near | (bits & sign), bits).astype(kind)


def random_operands(rng, op, width, count):
    operands = [random_floats(rng, width, count) for _ in range(ARITHMETIC[op])]
    if len(operands) > 1:  # differences that cancel
        last, sign = operands[-1], UNSIGNED[width](1 << width - 1)
        close = rng.random(count) < 0.2
        other = operands[0] if op != "fma" else on_numpy("fmul", width, Mode(), *operands[:2])
        operands[-1] = np.where(close, (other ^ sign) + rng.integers(0, 2, count, dtype=last.dtype), last)
    return operands


# ---- MPFR ------------------------------------------------------------------------------------------------------------


def mpfr_results(op, width, direction, floats):
    """The operation on exact values in MPFR with the format's precision, exponent range and denormals; numpy floats."""
    context = gmpy2.ieee(width)
    context.round = MPFR_ROUNDING[direction]
    function = getattr(gmpy2, {"fptrunc": "mpfr"}.get(op, op.removeprefix("f") if op != "fma" else op))
    with gmpy2.context(precision=64):
        exact = [[gmpy2.mpfr(float(x)) for x in lanes] for lanes in floats]
    with gmpy2.context(context):
        return np.array([float(function(*lane)) for lane in zip(*exact, strict=True)]).astype(FLOATS[width])


def without_nans(result, nearest):
    """`nearest` where it is a NaN: MPFR knows no payloads and the ledger's NaNs do not depend on the rounding."""
    return np.where(np.isnan(nearest.view(FLOATS[nearest.itemsize * 8])), nearest, result.view(nearest.dtype))


@pytest.mark.parametrize("direction", [1, 2, 3])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic_is_mpfr_s(host, op, width, direction):
    operands = random_operands(np.random.default_rng([width, direction, len(op)]), op, width, 1500)
    wanted = mpfr_results(op, width, direction, [o.view(FLOATS[width]) for o in operands])
    nearest = on_numpy(op, width, Mode(), *operands)
    check(host, op, width, rounding(direction, width), operands, without_nans(wanted, nearest))


@pytest.mark.parametrize("direction", [1, 2, 3])
@pytest.mark.parametrize(("source", "width"), RESIZES)
def test_narrowing_is_mpfr_s(host, source, width, direction):
    rng = np.random.default_rng([source, width, direction])
    operand = random_floats(rng, source, 3000)
    # Half of them in the range of the narrow format, its denormals and its end included.
    exponents = np.arange(-30, 20) if width == 16 else np.arange(-155, 130)
    scaled = np.ldexp(rng.uniform(-2, 2, 3000), rng.choice(exponents, 3000)).astype(FLOATS[source])
    operand = np.concatenate([operand, scaled.view(operand.dtype)])
    wanted = mpfr_results("fptrunc", width, direction, [operand.view(FLOATS[source])])
    nearest = on_numpy("fptrunc", width, Mode(), operand)
    check(host, "fptrunc", width, rounding(direction), [operand], without_nans(wanted, nearest))


@pytest.mark.parametrize("direction", [1, 2, 3])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("source", [16, 32, 64])
@pytest.mark.parametrize("op", ["sitofp", "uitofp"])
def test_integers_are_mpfr_s(host, op, source, width, direction):
    rng = np.random.default_rng([source, width, direction])
    bits = rng.integers(0, 1 << 64, 1000, dtype=np.uint64) >> rng.integers(64 - source, 64, 1000).astype(np.uint64)
    signs = rng.integers(0, 2, 1000, dtype=np.uint64) * np.uint64((1 << 64) - 1)
    edges = [0, 1, (1 << source) - 1, 1 << source - 1, (1 << source - 1) - 1, (1 << source - 1) + 1]
    operand = np.concatenate([bits ^ signs, np.array(edges, np.uint64)]).astype(UNSIGNED[source])
    context = gmpy2.ieee(width)
    context.round = MPFR_ROUNDING[direction]
    values = operand.view(np.dtype(f"i{source // 8}")) if op == "sitofp" else operand
    with gmpy2.context(context):
        wanted = np.array([float(gmpy2.mpfr(int(v))) for v in values]).astype(FLOATS[width])
    wanted[values == 0] = 0.0  # MPFR: rounding down makes no -0 of 0 either
    check(host, op, width, rounding(direction, width), [operand], wanted.view(UNSIGNED[width]))


# ---- f16, exhaustively -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", [1, 2, 3])
def test_every_f16_root(host, direction):
    operand = np.arange(1 << 16, dtype=np.uint16)
    wanted = mpfr_results("fsqrt", 16, direction, [operand.view(np.float16)])
    nearest = on_numpy("fsqrt", 16, Mode(), operand)
    check(host, "fsqrt", 16, rounding(direction), [operand], without_nans(wanted, nearest))


def exact_neighbours(value):
    """The f16 at or below and the one at or above each double, by search in the sorted table of all f16 values."""
    table = np.sort(np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float64))
    table = np.unique(np.concatenate([-table, table]))
    below = table[np.maximum(np.searchsorted(table, value, side="right") - 1, 0)]
    return below, table[np.searchsorted(table, value, side="left")]


def by_search(value, direction):
    """Doubles that are exact results as f16 bits, by the definition of the direction alone (no zeros)."""
    below, above = exact_neighbours(value)
    chosen = above if direction == 1 else below if direction == 2 else np.where(value > 0, below, above)
    return np.copysign(chosen, value).astype(np.float16).view(np.uint16)


@pytest.mark.parametrize("direction", [1, 2, 3])
@pytest.mark.parametrize("op", ["fadd", "fmul", "fsub", "fdiv"])
def test_pairs_of_f16(host, op, direction):
    """Sums and products of two f16 are exact in double, quotients nearer to it than to any f16 they are not: the
    neighbours of the double are the answer."""
    a, b = np.random.default_rng(direction).integers(0, 1 << 16, (2, 20_000), dtype=np.uint16)
    check_pairs(host, op, direction, a, b)


@pytest.mark.slow
@pytest.mark.parametrize("direction", [1, 2, 3])
@pytest.mark.parametrize("op", ["fadd", "fmul", "fsub", "fdiv"])
def test_a_million_pairs_of_f16(host, op, direction):
    a, b = np.random.default_rng(direction).integers(0, 1 << 16, (2, 1_000_000), dtype=np.uint16)
    check_pairs(host, op, direction, a, b)


def check_pairs(host, op, direction, a, b):
    with np.errstate(all="ignore"):
        function = {"fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide}[op]
        exact = function(a.view(np.float16).astype(np.float64), b.view(np.float16).astype(np.float64))
    usable = np.isfinite(exact) & (exact != 0)
    check(host, op, 16, rounding(direction), [a[usable], b[usable]], by_search(exact[usable], direction))


# ---- single cases ----------------------------------------------------------------------------------------------------

ONE, TINY, LARGEST, MINUS = 0x3F800000, 1, 0x7F7FFFFF, 1 << 31
INFINITY = 0x7F800000
CASES = [  # operation, operands, results up, down, toward zero
    ("fsub", (ONE, ONE), (0, MINUS, 0)),  # x - x
    ("fadd", (0, MINUS), (0, MINUS, 0)),
    ("fadd", (MINUS, MINUS), (MINUS, MINUS, MINUS)),
    ("fadd", (0, 0), (0, 0, 0)),
    ("fma", (ONE, ONE, ONE | MINUS), (0, MINUS, 0)),
    ("fma", (MINUS, ONE, MINUS), (MINUS, MINUS, MINUS)),
    ("fadd", (LARGEST, TINY), (INFINITY, LARGEST, LARGEST)),  # overflow
    ("fadd", (LARGEST | MINUS, TINY | MINUS), (LARGEST | MINUS, INFINITY | MINUS, LARGEST | MINUS)),
    ("fmul", (LARGEST, LARGEST), (INFINITY, LARGEST, LARGEST)),
    ("fmul", (LARGEST, LARGEST | MINUS), (LARGEST | MINUS, INFINITY | MINUS, LARGEST | MINUS)),
    ("fdiv", (LARGEST, TINY), (INFINITY, LARGEST, LARGEST)),
    ("fadd", (INFINITY, LARGEST | MINUS), (INFINITY, INFINITY, INFINITY)),  # true infinities
    ("fdiv", (ONE, MINUS), (INFINITY | MINUS, INFINITY | MINUS, INFINITY | MINUS)),
    ("fdiv", (ONE, INFINITY), (0, 0, 0)),
    ("fmul", (TINY, TINY), (TINY, 0, 0)),  # underflow
    ("fmul", (TINY, TINY | MINUS), (MINUS, TINY | MINUS, MINUS)),
    ("fdiv", (TINY, LARGEST), (TINY, 0, 0)),
    ("fdiv", (TINY | MINUS, LARGEST), (MINUS, TINY | MINUS, MINUS)),
    ("fma", (TINY, TINY, ONE), (ONE + 1, ONE, ONE)),  # far below the last place
    ("fma", (TINY, TINY | MINUS, ONE), (ONE, ONE - 1, ONE - 1)),
    ("fma", (TINY, TINY | MINUS, TINY), (TINY, 0, 0)),
    ("fma", (TINY, TINY | MINUS, 0), (MINUS, TINY | MINUS, MINUS)),  # far below a zero addend's exponent
    ("fma", (TINY, TINY, MINUS), (TINY, 0, 0)),
    ("fsqrt", (MINUS,), (MINUS, MINUS, MINUS)),
    ("fsqrt", (0x40000000,), (0x3FB504F4, 0x3FB504F3, 0x3FB504F3)),
    ("fadd", (0x00800000, TINY | MINUS), (0x007FFFFF, 0x007FFFFF, 0x007FFFFF)),  # into the denormals, exact
    ("fmul", (0x007FFFFF, 0x3F800001), (0x00800000, 0x007FFFFF, 0x007FFFFF)),  # and out of them
]


@pytest.mark.parametrize(("op", "operands", "results"), CASES)
def test_single_cases(host, op, operands, results):
    lanes = [np.array([o], np.uint32) for o in operands]
    for direction, result in zip((1, 2, 3), results, strict=True):
        check(host, op, 32, rounding(direction, 32), lanes, np.array([result], np.uint32))


def test_a_nan_keeps_to_its_rule(host):
    quiet, signaling = 0x7FC01234, 0xFF800001
    for direction, (op, count) in itertools.product((1, 2, 3), ARITHMETIC.items()):
        lanes = [np.array([n], np.uint32) for n in (signaling, quiet, quiet)[:count]]
        check(host, op, 32, rounding(direction, 32), lanes, np.array([0xFFC00001], np.uint32))


def test_nearest_even_text_has_nothing_of_the_directions():
    for op, count in ARITHMETIC.items():
        for width in WIDTHS:
            engine = HostEngine(Mode())
            engine.apply(op, width, *(Value(f"%a{i}", width, True) for i in range(count)))
            assert "directed" not in "\n".join([*engine.lines, *engine.declared])


@pytest.mark.parametrize("op", ARITHMETIC)
def test_scalars(op):
    scalars = HostFunctions(lanes=1)
    for width, mode in itertools.product(WIDTHS, (Mode(), Mode(1, 2), Mode(2, 3, 0, 0))):
        operands = random_operands(np.random.default_rng(width), op, width, 100)
        check(scalars, op, width, mode, operands, on_numpy(op, width, mode, *operands))


def test_scalar_conversions():
    scalars = HostFunctions(lanes=1)
    for mode in (Mode(), Mode(1, 2), Mode(2, 1, 0, 0)):
        for source, width in RESIZES:
            operand = random_floats(np.random.default_rng(width), source, 100)
            check(scalars, "fptrunc", width, mode, [operand], on_numpy("fptrunc", width, mode, operand))
        operand = np.random.default_rng(1).integers(0, 1 << 32, 100, dtype=np.uint32)
        check(scalars, "sitofp", 32, mode, [operand], on_numpy("sitofp", 32, mode, operand))


@pytest.mark.parametrize("op", ARITHMETIC)
def test_the_nan_rule_where_it_is_written_out(monkeypatch, op):
    """As on hosts whose own choice of NaNs is another."""
    monkeypatch.setattr(host_engine, "HOST_NAN_IS_OURS", False)
    written_out = HostFunctions()
    for width, mode in itertools.product(WIDTHS, (Mode(), Mode(3, 1), Mode(0, 2, 1, 2))):
        operands = random_operands(np.random.default_rng(width), op, width, 640)
        check(written_out, op, width, mode, operands, on_numpy(op, width, mode, *operands))


# ---- denormals -------------------------------------------------------------------------------------------------------


def flushed(bits, width, keep):
    """Denormals as zeros of their sign, unless kept."""
    kind = UNSIGNED[width]
    denormal = (bits & kind(infinity_bits(width))) == 0
    return bits if keep else np.where(denormal, bits & kind(1 << width - 1), bits)


@pytest.mark.parametrize("denorm", [0, 1, 2])
@pytest.mark.parametrize("direction", [0, 1, 2, 3])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("op", ARITHMETIC)
def test_flushing_is_flushing_before_and_after(host, op, width, direction, denorm):
    """The mode is the mode that keeps denormals, between two flushes; NaNs are no denormals."""
    operands = random_operands(np.random.default_rng([width, direction, denorm]), op, width, 640)
    kept = rounding(direction, width) if direction else Mode()
    fields = {"denorm32": denorm, "denorm16_64": 3} if width == 32 else {"denorm32": 3, "denorm16_64": denorm}
    inner = host(op, width, kept, *(flushed(o, width, denorm & 1) for o in operands))
    mode = rounding(direction, width, **fields) if direction else Mode(**fields)
    check(host, op, width, mode, operands, flushed(inner, width, denorm & 2))


@pytest.mark.parametrize(("denorm32", "denorm16_64"), list(itertools.product(range(4), repeat=2)))
@pytest.mark.parametrize(("source", "width"), [*RESIZES, (16, 32), (32, 64), (16, 64)])
def test_conversions_flush_by_the_field_of_each_width(host, source, width, denorm32, denorm16_64):
    operand = random_floats(np.random.default_rng([source, width]), source, 320)
    codes = {16: denorm16_64, 32: denorm32, 64: denorm16_64}
    op = "fptrunc" if width < source else "fpext"
    for direction in (0, 1, 2):
        kept = rounding(direction) if direction else Mode()
        inner = on_numpy(op, width, kept, flushed(operand, source, codes[source] & 1))
        mode = Mode(kept.round32, kept.round16_64, denorm32, denorm16_64)
        check(host, op, width, mode, [operand], flushed(inner, width, codes[width] & 2))


# ---- the C library and the processor of the host ---------------------------------------------------------------------

C_SOURCE = """
#include <fenv.h>
#include <math.h>
#pragma STDC FENV_ACCESS ON
#define FUNCTIONS(T, FMA, SQRT, S) \\
  void fadd##S(int mode, long n, volatile T *a, volatile T *b, volatile T *c, volatile T *out) LOOP(a[i] + b[i]) \\
  void fsub##S(int mode, long n, volatile T *a, volatile T *b, volatile T *c, volatile T *out) LOOP(a[i] - b[i]) \\
  void fmul##S(int mode, long n, volatile T *a, volatile T *b, volatile T *c, volatile T *out) LOOP(a[i] * b[i]) \\
  void fdiv##S(int mode, long n, volatile T *a, volatile T *b, volatile T *c, volatile T *out) LOOP(a[i] / b[i]) \\
  void fma##S(int mode, long n, volatile T *a, volatile T *b, volatile T *c, volatile T *out) \\
    LOOP(FMA(a[i], b[i], c[i])) \\
  void fsqrt##S(int mode, long n, volatile T *a, volatile T *b, volatile T *c, volatile T *out) LOOP(SQRT(a[i]))
#define LOOP(X) { set(mode); for (long i = 0; i < n; ++i) out[i] = X; fesetround(FE_TONEAREST); }
static void set(int mode) {
  fesetround(mode == 1 ? FE_UPWARD : mode == 2 ? FE_DOWNWARD : FE_TOWARDZERO);
}
FUNCTIONS(float, fmaf, sqrtf, 32)
FUNCTIONS(double, fma, sqrt, 64)
void narrow(int mode, long n, volatile double *a, volatile float *out) LOOP((float)a[i])
void integers(int mode, long n, volatile int *a, volatile float *out) LOOP((float)a[i])
"""


@pytest.fixture(scope="module")
def c_library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rounding")
    source, library = folder / "rounding.c", folder / "rounding.so"
    source.write_text(C_SOURCE)
    flags = ["-shared", "-fPIC", "-O1", "-frounding-math", "-fno-builtin", "-o", str(library), str(source), "-lm"]
    subprocess.run([sys.executable, "-m", "ziglang", "cc", *flags], check=True, capture_output=True)
    return ctypes.CDLL(str(library))


def pointers(*arrays):
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


@pytest.mark.parametrize("direction", [1, 2, 3])
@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic_is_that_of_the_host_s_c(host, c_library, op, width, direction):
    operands = random_operands(np.random.default_rng([width, direction, 77]), op, width, 6400)
    out = np.zeros(6400, UNSIGNED[width])
    given = [*operands, *[operands[0]] * (3 - len(operands))]
    function = getattr(c_library, f"{op}{width}")
    function(ctypes.c_int(direction), ctypes.c_long(6400), *pointers(*given, out))
    nearest = host(op, width, Mode(), *operands)
    check(host, op, width, rounding(direction, width), operands, without_nans(out, nearest))


@pytest.mark.parametrize("direction", [1, 2, 3])
def test_conversions_are_those_of_the_host_s_c(host, c_library, direction):
    rng = np.random.default_rng(direction)
    integers = rng.integers(0, 1 << 32, 6400, dtype=np.uint32)
    doubles = np.concatenate([random_floats(rng, 64, 3200), rng.standard_normal(3200).view(np.uint64)])
    for name, op, operand, mode in (
        ("narrow", "fptrunc", doubles, rounding(direction)),
        ("integers", "sitofp", integers, rounding(direction, 32)),
    ):
        out = np.zeros(6400, np.uint32)
        getattr(c_library, name)(ctypes.c_int(direction), ctypes.c_long(6400), *pointers(operand, out))
        nearest = on_numpy(op, 32, Mode(), operand)
        check(host, op, 32, mode, [operand], without_nans(out, nearest))
