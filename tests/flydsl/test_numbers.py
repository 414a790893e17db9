"""Functions, random numbers and atomics that FlyDSL's compiler makes, against numpy; the same bits on every engine."""

import numpy as np
import pytest
from flydsl_kernels import compile_flydsl, needs_flydsl, run_everywhere

pytestmark = needs_flydsl

THREADS = 256


def results(build, source, count, dtype):
    """The results of each thread, as (threads, count)."""
    (_, out), mnemonics = run_everywhere(
        compile_flydsl("numbers", build), 1, THREADS, [source, np.zeros(THREADS * count, dtype)]
    )
    return out.reshape(THREADS, count), mnemonics


def rounded(exact):
    return exact.astype(np.float32)


def test_functions():
    """The first ones are exact to the bit. The compiler's own expansions and the chip's instructions: within 2 units of
    the last place of the larger of the result and 1 (expm1 and log1p come from exp and log, by a subtraction)."""
    rng = np.random.default_rng(15)
    x = np.concatenate([rng.uniform(0.01, 8, 200), [0.5, 1.5, 2.5, 1.0], rng.uniform(1e-3, 0.1, 52)]).astype(np.float32)
    out, mnemonics = results("functions", x, 22, np.float32)
    wide = x.astype(np.float64)
    exact = [wide, np.trunc(wide), np.floor(wide + 0.5), np.rint(wide), np.sqrt(wide), wide / 3, wide * wide + wide]
    exact += [np.maximum(wide, 0.5), np.minimum(wide, 0.5), -wide, np.ones(THREADS)]
    assert out[:, :11].tobytes() == rounded(np.stack(exact, axis=1)).tobytes()
    near = [np.exp2(wide), wide**-0.5, np.exp(wide), np.expm1(wide), np.log(wide), np.log1p(wide)]
    near += [np.exp2(wide), np.log2(wide), 1 / wide, wide**-0.5, np.sqrt(wide)]
    near = np.stack(near, axis=1)
    assert (abs(out[:, 11:] - near) <= 2 * 2.0**-23 * np.maximum(abs(near), 1)).all()
    assert {"v_exp_f32", "v_log_f32", "v_rcp_f32", "v_rsq_f32", "v_sqrt_f32", "v_div_fixup_f32"} <= mnemonics


def test_conversions():
    import ml_dtypes

    x = np.random.default_rng(16).uniform(0, 200, THREADS).astype(np.float32)
    out, mnemonics = results("conversions", x, 7, np.float32)
    whole = np.trunc(x)
    expected = [x.astype(np.float16), x.astype(ml_dtypes.bfloat16), x, whole, whole, whole, whole]
    assert out.tobytes() == np.stack([e.astype(np.float32) for e in expected], axis=1).tobytes()
    assert {"v_cvt_f16_f32", "v_cvt_pk_bf16_f32"} <= mnemonics


def philox(seed, offset, rounds):
    """Philox 4x32, from its definition (Salmon et al., SC 2011), on arrays of 64-bit seeds and 32-bit offsets."""
    c = [offset, 0 * offset, 0 * offset, 0 * offset]
    low = np.uint64(0xFFFFFFFF)
    k = [seed & low, seed >> np.uint64(32)]
    for _ in range(rounds):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k[0], p1 & low, (p0 >> np.uint64(32)) ^ c[3] ^ k[1], p0 & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return [x.astype(np.uint32) for x in c]


def test_random_numbers():
    seeds = np.random.default_rng(17).integers(0, 1 << 32, (THREADS, 2), dtype=np.uint32)
    out, _ = results("random_words", seeds, 10, np.uint32)
    # What FlyDSL loads through a pointer is signed, whatever the pointer's type was: the seed is extended so.
    wide = seeds[:, 0].view(np.int32).astype(np.int64).view(np.uint64), seeds[:, 1].astype(np.uint64)
    words = philox(*wide, 10)
    expected = [*words, philox(*wide, 7)[0]]
    for word in (words[0], *words):  # a word as a signed number, its magnitude scaled to below 1
        signed = word.view(np.int32)
        folded = np.where(signed < 0, ~signed, signed).astype(np.float32)
        expected.append((folded * np.float32(4.6566127342e-10)).view(np.uint32))
    assert np.array_equal(out, np.stack(expected, axis=1))


INTEGERS = [np.add, np.subtract, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor]
FLOATS = [np.add, np.minimum, np.maximum]


@pytest.mark.parametrize("place", ["", "lds_"])
@pytest.mark.parametrize("kind", ["Int32", "Uint32", "Int64", "Float32", "Float64"])
def test_atomics(place, kind):
    """Floats are small integers here, so that sums are exact in any order."""
    dtype = np.dtype(kind.lower())
    rng = np.random.default_rng(18)
    low = 0 if kind == "Uint32" else -1000
    values = rng.integers(low, 1000, THREADS).astype(dtype)
    cells = np.zeros(16 + THREADS, dtype)
    cells[:16] = rng.integers(max(low, -50), 50, 16)
    (_, out), _ = run_everywhere(compile_flydsl("numbers", f"atomics_{place}{kind}"), 1, THREADS, [values, cells])
    functions = FLOATS if dtype.kind == "f" else INTEGERS
    expected = cells[:16].copy()
    for i, function in enumerate(functions):
        expected[i] = function.reduce(np.concatenate([cells[i : i + 1], values]), dtype=dtype)
    if dtype.kind != "f":
        expected[1:2] = cells[1:2] - values.sum(dtype=dtype)
    expected[8] += THREADS
    assert np.array_equal(out[:16], expected)
    assert np.array_equal(np.sort(out[16:]), cells[8] + np.arange(THREADS, dtype=dtype))  # each thread another one


def test_compare_and_swap():
    values = np.random.default_rng(19).integers(-1000, 1000, THREADS).astype(np.int32)
    (_, out), mnemonics = run_everywhere(
        compile_flydsl("numbers", "tickets"), 1, THREADS, [values, np.zeros(1, np.int32)]
    )
    assert out[0] == values.sum()
    assert "global_atomic_cmpswap" in mnemonics


@pytest.mark.parametrize(("name", "dtype"), [("add", np.float32), ("max", np.int32), ("min", np.int32)])
def test_buffer_atomics(name, dtype):
    """The buffer holds half of the 64 cells; atomics past its end do nothing. FlyDSL's minimum is an unsigned one."""
    rng = np.random.default_rng(20)
    values, cells = rng.integers(-99, 99, THREADS).astype(dtype), rng.integers(-99, 99, 64).astype(dtype)
    (_, out), mnemonics = run_everywhere(compile_flydsl("numbers", f"buffer_{name}"), 1, THREADS, [values, cells])
    groups = np.concatenate([cells[:, None], values.reshape(64, 4)], axis=1)
    if name == "min":
        groups = groups.view(np.uint32)
    expected = {"add": np.sum, "max": np.max, "min": np.min}[name](groups, axis=1).view(dtype)
    assert np.array_equal(out, np.where(np.arange(64) < 32, expected, cells))
    assert any(m.startswith("buffer_atomic_") for m in mnemonics)
