"""Transcendental instructions against MPFR: every hard input, every f16 input, the special values.

The proof for f32 has two parts. A scan over all inputs (slow) collects those whose double lies within 32 units in the
last place of a rounding boundary; the cores are far more accurate than that (measured here), so all others round
correctly. The collected ones are compared with MPFR at 200 bits, and a fixed list of the hardest always is.
"""

import hashlib
import os
import subprocess
import sys

import gmpy2
import numpy as np
import pytest
from rounding_boundaries import boundary_scan

from emu.engines.numpy_engine import NumpyEngine
from gfx950.arithmetic import transcendental, transcendental_lanes
from gfx950.arithmetic.native import NATIVES
from gfx950.arithmetic.result_table import SCALING
from gfx950.evidence import Evidence
from gfx950.isa.registry import lookup
from gfx950.lanes import F64 as F64Lanes
from gfx950.lanes import Mode

EXACT = {
    "exp": gmpy2.exp2,
    "log": gmpy2.log2,
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / gmpy2.sqrt(x),
    "sqrt": gmpy2.sqrt,
}
HERE = [name for name in transcendental.DEFAULTS if name not in transcendental._TURNS]  # those have their own tests
F32 = [name for name in HERE if name.endswith("f32")]
F16 = [name for name in HERE if name.endswith("f16")]


@pytest.fixture(autouse=True)
def _precise():
    with gmpy2.context(gmpy2.get_context(), precision=200, emin=-2000, emax=2000):
        yield


def run(name, bits):
    """Results of native `name` for a one-dimensional array of input bits."""
    padded = np.zeros(-(-len(bits) // 64) * 64, np.uint32)
    padded[: len(bits)] = bits
    return NATIVES[name](padded.reshape(-1, 1, 64)).reshape(-1)[: len(bits)]


def function_of(name):
    return name.split("_")[1]


def rounded(value, precision, emin):
    """An MPFR value rounded to nearest even with gradual underflow, as a Python float."""
    if not gmpy2.is_finite(value) or value == 0:
        return float(value)
    exponent = gmpy2.get_exp(value)
    kept = min(precision, exponent - emin)
    if kept < 1:
        step = gmpy2.exp2(gmpy2.mpfr(emin))
        return float(step if abs(value) > step / 2 else 0)
    return float(gmpy2.mpfr(value, kept) if kept > 1 else _one_bit(value, exponent))


def _one_bit(value, exponent):
    low = gmpy2.exp2(gmpy2.mpfr(exponent - 1))
    return low if value < 1.5 * low else 2 * low


def expected_f32(name, bits):
    """The documented answer, from the bits, in plain Python."""
    bits = int(bits)
    sign, magnitude = bits & 0x80000000, bits & 0x7FFFFFFF
    function = function_of(name)
    if magnitude > 0x7F800000:
        return bits | 0x00400000
    x = float(np.uint32(bits).view(np.float32)) if magnitude >= 0x00800000 else (-0.0 if sign else 0.0)
    if function == "exp":
        if x < -126:
            return 0
        if x >= 128:
            return 0x7F800000
    elif x == 0:
        return {"log": 0xFF800000, "rcp": sign | 0x7F800000, "rsq": sign | 0x7F800000, "sqrt": sign}[function]
    elif x < 0 and function != "rcp":
        return 0xFFC00000
    value = EXACT[function](gmpy2.mpfr(x))
    if value != 0 and abs(value) < gmpy2.exp2(gmpy2.mpfr(-126)):
        return sign
    return int(np.float32(rounded(value, 24, -149)).view(np.uint32)) if value != 0 or function != "rcp" else sign


def words(text):
    return np.array([int(word, 16) for word in text.split()], np.uint32)


SPECIAL = words("""
    00000000 00000001 00400000 007fffff 00800000 00800001 3f7fffff 3f800000 3f800001 40000000 407fffff 40800000
    42fbffff 42fc0000 42fc0001 42fdffff 42fe0000 42ffffff 43000000 7e7fffff 7e800000 7e800001 7f000000 7f7fffff
    7f800000 7f800001 7fa12345 7fc00000 7fc54321 7fffffff 33000000 33800000 32ffffff 3f000000 3f3504f3 3f3504f4
    3fb504f3 3fb504f4
""")
SPECIAL = np.concatenate([SPECIAL, SPECIAL | np.uint32(0x80000000)])


@pytest.mark.parametrize("name", F32)
def test_special_values(name):
    got = run(name, SPECIAL)
    want = [expected_f32(name, bits) for bits in SPECIAL]
    assert [f"{b:08x}:{g:08x}" for b, g in zip(SPECIAL, got, strict=True)] == [
        f"{b:08x}:{w:08x}" for b, w in zip(SPECIAL, want, strict=True)
    ]


def test_special_values_written_out():
    facts = [
        ("v_exp_f32", 0x42FC0000, 0x7E800000),  # 2^126
        ("v_exp_f32", 0xC2FC0000, 0x00800000),  # 2^-126, the smallest normal
        ("v_exp_f32", 0xC2FC0001, 0x00000000),
        ("v_exp_f32", 0x43000000, 0x7F800000),
        ("v_exp_f32", 0xFF800000, 0x00000000),
        ("v_exp_f32", 0xFFA00001, 0xFFE00001),  # quiet, payload and sign kept
        ("v_exp_f32", 0x80000001, 0x3F800000),
        ("v_log_f32", 0x80000000, 0xFF800000),
        ("v_log_f32", 0x007FFFFF, 0xFF800000),
        ("v_log_f32", 0x3F800000, 0x00000000),
        ("v_log_f32", 0xBF800000, 0xFFC00000),
        ("v_rcp_f32", 0x80000000, 0xFF800000),
        ("v_rcp_f32", 0x80400000, 0xFF800000),
        ("v_rcp_f32", 0x7E800000, 0x00800000),
        ("v_rcp_f32", 0xFE800001, 0x80000000),  # -2^126 and a bit: flushed, sign kept
        ("v_rcp_iflag_f32", 0x40400000, 0x3EAAAAAB),
        ("v_rsq_f32", 0x80000000, 0xFF800000),
        ("v_rsq_f32", 0xFF800000, 0xFFC00000),
        ("v_rsq_f32", 0x7F800000, 0x00000000),
        ("v_sqrt_f32", 0x80000000, 0x80000000),
        ("v_sqrt_f32", 0x80000001, 0x80000000),
        ("v_sqrt_f32", 0xC0800000, 0xFFC00000),
    ]
    for name, bits, want in facts:
        assert f"{run(name, np.array([bits], np.uint32))[0]:08x}" == f"{want:08x}", (name, hex(bits))


# The f32 inputs nearest to a rounding boundary, from the scan below.
HARDEST = {
    "v_exp_f32": words("""
        b52d1f9a bcf3a937 3b429d37 b8d3d026 baec2b40 3a07857c 3c02a9ad 36879cf7 be1f29de 33b8aa3b 3dc9abe2 b466d4cb
        b8bbd3a2 b5160a52 bcaf4d02 3d036455 bae36f38 3b53aa14 37e338eb 3a0b4316 b8acad70 b63b8cf0 3deb2f8e b4fdea14
    """),
    "v_log_f32": words("""
        3ea07ab9 10114a90 2fd54996 37ffc006 106b8090 2ff50f8c 10174467 3feddffd 3d8d64de
    """),
    "v_rsq_f32": words("403a18e3 4009f038 407ffffe"),
}


@pytest.mark.parametrize("name", F32)
def test_hardest_and_random_inputs(name):
    random = np.random.default_rng(1).integers(0, 1 << 32, 4000, dtype=np.uint32)
    exponents = np.random.default_rng(2).integers(0x2F800000, 0x43000000, 4000, dtype=np.uint32)
    hardest = HARDEST.get(name, SPECIAL[:1])
    bits = np.concatenate([hardest, random, exponents, exponents | np.uint32(1 << 31)])
    want = np.array([expected_f32(name, b) for b in bits], np.uint32)
    got = run(name, bits)
    wrong = np.flatnonzero(got != want)
    assert not len(wrong), [f"{bits[i]:08x}: {got[i]:08x}, not {want[i]:08x}" for i in wrong[:5]]


def expected_f16(name, bits):
    sign, magnitude = bits & 0x8000, bits & 0x7FFF
    function = function_of(name)
    if magnitude > 0x7C00:
        return bits | 0x0200
    x = float(np.uint16(bits).view(np.float16))
    if x == 0 and function != "exp":
        return {"log": 0xFC00, "rcp": sign | 0x7C00, "rsq": sign | 0x7C00, "sqrt": sign}[function]
    if x < 0 and function in ("log", "rsq", "sqrt"):
        return 0xFE00
    value = EXACT[function](gmpy2.mpfr(x))
    if value == 0:
        return sign if function == "rcp" else 0
    nearest = rounded(abs(value), 11, -24)
    packed = 0x7C00 if nearest >= 65520 else int(np.float16(nearest).view(np.uint16))
    return packed | (0x8000 if value < 0 else 0)


@pytest.mark.parametrize("name", F16)
def test_every_f16_input(name):
    bits = np.arange(1 << 16, dtype=np.uint32)
    want = np.array([expected_f16(name, int(b)) for b in bits], np.uint32)
    got = run(name, bits)
    wrong = np.flatnonzero(got != want)
    assert not len(wrong), [f"{bits[i]:04x}: {got[i]:04x}, not {want[i]:04x}" for i in wrong[:5]]
    assert np.array_equal(run(name, bits | np.uint32(0xABCD0000)), got), "the high half is not read"


def core(name):
    lanes = transcendental_lanes
    return {
        "v_exp_f32": lambda x: lanes.exp2_split(np.float32(x))[1],
        "v_log_f32": lambda x: lanes.log2_of_bits(np.float32(x).view(np.uint32)),
        "v_rsq_f32": lambda x: 1.0 / np.sqrt(x),
    }[name]


def exact_core(name, x):
    if name == "v_exp_f32":
        return gmpy2.exp2(gmpy2.mpfr(x) - gmpy2.rint(gmpy2.mpfr(x)))
    return EXACT[function_of(name)](gmpy2.mpfr(x))


@pytest.mark.parametrize("name", HARDEST)
def test_cores_are_within_four_units(name):
    """The scan trusts doubles that are more than 32 units from a boundary; here is the room it has."""
    generator = np.random.default_rng(3)
    near_one = 1 + generator.integers(-(1 << 16), 1 << 16, 1000) * 2.0**-24
    wide = {"v_exp_f32": generator.uniform(-126, 128, 3000)}.get(name, 2 ** generator.uniform(-126, 128, 3000))
    for x in np.concatenate([near_one, wide]).astype(np.float32).astype(np.float64):
        got, want = float(core(name)(x)), exact_core(name, x)
        assert abs(gmpy2.mpfr(got) - want) <= 4 * np.spacing(abs(got)), x


SCANNED = {
    "v_exp_f32": [(0x33000000, 0x43000000), (0xB3000000, 0xC2FC0001)],
    "v_log_f32": [(0x00800000, 0x7F800000)],
    "v_rsq_f32": [(0x3F800000, 0x40800000)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCANNED)
def test_every_input_near_a_rounding_boundary(name):
    """Below 2^-25 in magnitude 2^x rounds to 1, and rsq repeats every two binades, so these ranges are all there is."""
    scan, found = boundary_scan(core(name)), np.zeros(1 << 16, np.uint32)
    for first, end in SCANNED[name]:
        hard = found[: scan(first, end, 32, found)].copy()
        want = np.array([expected_f32(name, b) for b in hard], np.uint32)
        assert np.array_equal(run(name, hard), want)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v_rcp_f32", "v_sqrt_f32", "v_rsq_f32"])
def test_scaling_by_powers_of_two_over_all_inputs(name):
    """Every f32 input: the results of one or two binades, moved by integer arithmetic, are those of the others."""
    period, slope = SCALING[name]
    table = run(name, np.arange(0x3F800000, 0x3F800000 + (period << 23), dtype=np.uint32))
    for binade in range(1, 255):
        bits = np.arange(binade << 23, (binade + 1) << 23, dtype=np.uint32)
        periods = (binade - 127) // period
        index = bits.astype(np.int64) - ((127 + periods * period) << 23)
        want = table[index].astype(np.int64) + slope * (periods << 23)
        assert np.array_equal(run(name, bits), np.where(want >= 0x00800000, want, 0).astype(np.uint32))


def neighbours_rcp(mantissas, roots, binade):
    """Twice the reciprocal's neighbours at half a unit, times x, less 2^48."""
    return [(2 * roots + side) * (mantissas << binade) - (1 << 48) for side in (-1, 1)]


def neighbours_sqrt(mantissas, roots, binade):
    """The square of twice the root's neighbours at half a unit, less four times x."""
    return [(2 * roots + side) ** 2 - (mantissas << (25 + binade)) for side in (-1, 1)]


def neighbours_rsq(mantissas, roots, binade):
    """The square of twice the neighbours of 1 / sqrt x at half a unit, times x, less 2^73, which is 0 modulo 2^64."""
    return [(2 * roots + side) ** 2 * (mantissas << binade) for side in (-1, 1)]


# x = m * 2^(binade - 23), its result r * 2^place: where the result's mantissa of 24 bits has its last place.
BY_INTEGERS = {
    "v_rcp_f32": (1, neighbours_rcp, -24, lambda x: 1 / x),
    "v_sqrt_f32": (2, neighbours_sqrt, -23, np.sqrt),
    "v_rsq_f32": (2, neighbours_rsq, -24, lambda x: 1 / np.sqrt(x)),
}


def nearest_by_integers(name, mantissas):
    """That results lie within half a unit of the exact ones: their neighbours at half a unit lie on either side of it.

    Products wrap modulo 2^64; the results are known to be near (here by doubles), so that what is left fits 63 bits.
    """
    binades, neighbours, place, function = BY_INTEGERS[name]
    for binade in range(binades):
        bits = (mantissas + (126 + binade << 23)).astype(np.uint32)
        results = run(name, bits).view(np.float32).astype(np.float64)
        near = function(bits.view(np.float32).astype(np.float64))
        assert np.all(abs(results - near) < 2.0 ** (place + 1))
        roots = (results * 2.0**-place).astype(np.int64)
        below, above = neighbours(mantissas, roots, binade)
        assert np.all((below < 0) & (above > 0)), binade


@pytest.mark.parametrize("name", BY_INTEGERS)
def test_results_are_the_nearest_by_integer_arithmetic(name):
    ends = np.array([1 << 23, (1 << 23) + 1, (1 << 24) - 2, (1 << 24) - 1])
    nearest_by_integers(name, np.concatenate([ends, np.random.default_rng(4).integers(1 << 23, 1 << 24, 100000)]))


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_INTEGERS)
def test_every_mantissa_gives_the_nearest_by_integer_arithmetic(name):
    for first in range(1 << 23, 1 << 24, 1 << 21):
        nearest_by_integers(name, np.arange(first, first + (1 << 21)))


def test_integer_arithmetic_sees_a_result_that_is_one_off(monkeypatch):
    plain = run
    monkeypatch.setitem(globals(), "run", lambda name, bits: plain(name, bits) + (bits == 0x3F912345))
    for name in BY_INTEGERS:
        with pytest.raises(AssertionError):
            nearest_by_integers(name, np.arange(0x912300, 0x912400))


def test_the_manuals_examples():
    """[CDNA4 ISA 12.8]"""
    examples = """
        v_rsq_f32 ff800000 ffc00000, v_rsq_f32 80000000 ff800000, v_rsq_f32 00000000 7f800000
        v_rsq_f32 40800000 3f000000, v_rsq_f32 7f800000 00000000
        v_sqrt_f32 ff800000 ffc00000, v_sqrt_f32 80000000 80000000, v_sqrt_f32 00000000 00000000
        v_sqrt_f32 40800000 40000000, v_sqrt_f32 7f800000 7f800000
        v_rcp_f16 fc00 8000, v_rcp_f16 c000 b800, v_rcp_f16 8000 fc00, v_rcp_f16 0000 7c00, v_rcp_f16 7c00 0000
        v_sqrt_f16 fc00 fe00, v_sqrt_f16 8000 8000, v_sqrt_f16 0000 0000, v_sqrt_f16 4400 4000, v_sqrt_f16 7c00 7c00
        v_rsq_f16 fc00 fe00, v_rsq_f16 8000 fc00, v_rsq_f16 0000 7c00, v_rsq_f16 4400 3800, v_rsq_f16 7c00 0000
        v_log_f16 fc00 fe00, v_log_f16 bc00 fe00, v_log_f16 8000 fc00, v_log_f16 0000 fc00, v_log_f16 3c00 0000
        v_log_f16 7c00 7c00, v_exp_f16 fc00 0000, v_exp_f16 8000 3c00, v_exp_f16 7c00 7c00
    """
    for line in examples.strip().replace("\n", ",").split(","):
        name, bits, want = line.split()
        assert f"{run(name, words(bits))[0]:x}" == f"{int(want, 16):x}", line


def bits_of(value):
    return int(np.array(float(value)).view(np.uint64))


F64 = {
    "v_rcp_f64": lambda x: 1 / x,
    "v_sqrt_f64": gmpy2.sqrt,
    "v_rsq_f64": lambda x: 1 / gmpy2.sqrt(x),  # the root rounded, then the quotient
}
F64_SPECIAL = {  # of 0, -0, Inf, -Inf, a signalling NaN, -1
    "v_rcp_f64": (0x7FF << 52, 0xFFF << 52, 0, 1 << 63, 0xFFFC << 48 | 5, 0xBFF << 52),
    "v_sqrt_f64": (0, 1 << 63, 0x7FF << 52, 0xFFF8 << 48, 0xFFFC << 48 | 5, 0xFFF8 << 48),
    "v_rsq_f64": (0x7FF << 52, 0xFFF << 52, 0, 0xFFF8 << 48, 0xFFFC << 48 | 5, 0xFFF8 << 48),
}


def run_f64(name, bits, mode):
    engine = NumpyEngine(mode)
    return lookup(name).body(F64Lanes(engine, bits.reshape(1, -1))).raw.view(np.uint64).reshape(-1)


@pytest.mark.parametrize("name", F64)
@pytest.mark.parametrize("rounding", range(4))
def test_f64_forms_are_what_their_rule_says(name, rounding):
    """Against MPFR at 53 bits with gradual underflow; normal numbers and denormals; MODE's rounding does not count."""
    generator = np.random.default_rng(9)
    bits = generator.integers(1 << 52, 0x7FE << 52, 256, dtype=np.uint64)
    bits[:64] = generator.integers(1, 1 << 52, 64, dtype=np.uint64)
    bits[64:80] = np.arange((0x3FF << 52) - 8, (0x3FF << 52) + 8)
    with gmpy2.ieee(64):
        want = [bits_of(F64[name](gmpy2.mpfr(float(x)))) for x in bits.view(np.float64)]
    got = run_f64(name, bits, Mode(round16_64=rounding, denorm16_64=3))
    assert [hex(g) for g in got] == [hex(w) for w in want]


@pytest.mark.parametrize("name", F64)
def test_special_values_of_f64_forms(name):
    inputs = np.array([0, 1 << 63, 0x7FF << 52, 0xFFF << 52, 0xFFF4 << 48 | 5, 0xBFF << 52], np.uint64)
    got = run_f64(name, np.resize(inputs, 64), Mode(denorm16_64=3))
    assert [hex(g) for g in got[: len(inputs)]] == [hex(w) for w in F64_SPECIAL[name]]


@pytest.mark.parametrize("name", F64)
def test_f64_forms_flush_denormals_where_mode_does(name):
    smallest = np.resize(np.array([1, 1 << 63 | 1, 0x7FE << 52], np.uint64), 64)
    got = run_f64(name, smallest, Mode(denorm16_64=0))[:3]
    zero, negative, large = {
        "v_rcp_f64": (0x7FF << 52, 0xFFF << 52, 0),  # 2^-1023 is a denormal
        "v_sqrt_f64": (0, 1 << 63, bits_of(2.0**511.5)),
        "v_rsq_f64": (0x7FF << 52, 0xFFF << 52, bits_of(2.0**-511.5)),
    }[name]
    assert got[:2].tolist() == [zero, negative]
    assert abs(int(got[2]) - large) <= 1


def digest():
    generator = np.random.default_rng(8)
    bits = np.concatenate([SPECIAL, generator.integers(0, 1 << 32, 20000, dtype=np.uint32)])
    near = generator.integers(0x2F800000, 0x43000000, 20000, dtype=np.uint32)
    bits = np.concatenate([bits, near, near | np.uint32(1 << 31)])
    bits = np.concatenate([bits, generator.integers(0, 1 << 25, 2000, dtype=np.uint32)])  # subnormals for the sine
    names = ("v_exp_f32", "v_log_f32", "v_rcp_f32", "v_exp_f16", "v_sin_f32", "v_cos_f32", "v_sin_f16")
    return hashlib.sha256(b"".join(run(name, bits).tobytes() for name in names)).hexdigest()


PLAIN_HOST = """
import importlib.util, sys, torch
sys.path[:] = {folders!r}
from gfx950 import host_code
host_code._host = lambda: ("generic", "")
spec = importlib.util.spec_from_file_location("there", {path!r})
there = importlib.util.module_from_spec(spec)
spec.loader.exec_module(there)
assert torch.set_flush_denormal(True)
print(there.digest())
"""


def test_a_plain_host_that_flushes_subnormals_gives_the_same_bits(tmp_path):
    """The same results compiled for the oldest processor of this kind, and with the host's own subnormals off."""
    pytest.importorskip("torch")
    host = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "GFX950_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", PLAIN_HOST.format(path=__file__, folders=sys.path)]
    done = subprocess.run(command, env=os.environ | host, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == digest(), done.stderr


def test_other_names_are_an_error():
    with pytest.raises(ValueError, match="no transcendental instruction modelled here; there are v_exp_f32"):
        transcendental.rules("v_add_f32")


def test_that_rcp_of_halves_keeps_subnormals_is_a_choice_and_of_the_others_the_manual_s_word():
    name = "transcendental.f16_rcp_subnormals"
    for mnemonic in ("v_exp_f16", "v_log_f16", "v_rcp_f16", "v_rsq_f16", "v_sqrt_f16"):
        levels = {rule.name: rule.evidence for rule in transcendental.rules(mnemonic)}
        assert levels["transcendental.f16"] is Evidence.spec
        assert levels.get(name) is (Evidence.chosen if mnemonic == "v_rcp_f16" else None)
