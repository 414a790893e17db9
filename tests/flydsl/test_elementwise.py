"""One value a lane: equal to numpy, bit for bit, on both engines and with one and two threads."""

import numpy as np
from flydsl_kernels import compile_flydsl, needs_flydsl, run_everywhere

pytestmark = needs_flydsl


def test_tensors_come_as_a_pointer_and_their_shape():
    """An `fx.Tensor` whose shape is not fixed takes two arguments: the pointer, and a struct with its length."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 1000), dtype=np.float32)
    count = np.int32(998)  # the last two stay
    arguments = [a, count, b, count, np.full(1000, 7, np.float32), count, count]
    (*_, total, _, _), mnemonics = run_everywhere(compile_flydsl("elementwise", "add_tensors"), 4, 256, arguments)
    assert total.tobytes() == np.append((a + b)[:998], np.float32([7, 7])).tobytes()
    assert "s_and_saveexec_b64" in mnemonics


def test_vectors_of_four():
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 1 << 32, (2, 4096), dtype=np.uint32).view(np.float32)
    a, b = (np.where(np.isnan(x), np.float32(1), x) for x in (a, b))
    with np.errstate(all="ignore"):
        expected = a + b
    arguments = [a, b, np.zeros_like(a)]
    (*_, total), mnemonics = run_everywhere(compile_flydsl("elementwise", "add_vectors"), 4, 256, arguments)
    made = np.isnan(expected)  # infinity minus infinity: the chip's own NaN, whose bits numpy does not know
    assert np.array_equal(np.isnan(total), made)
    assert total[~made].tobytes() == expected[~made].tobytes()
    assert {"global_load_dwordx4", "global_store_dwordx4"} <= mnemonics


def test_integers():
    rng = np.random.default_rng(3)
    a, b = rng.integers(-(1 << 31), 1 << 31, (2, 256), dtype=np.int64).astype(np.int32)
    a[:4], b[:4] = [7, -7, 7, -7], [3, 3, -3, -3]
    b[b == 0] = 1
    (*_, out), _ = run_everywhere(
        compile_flydsl("elementwise", "integers"), 4, 64, [a, b, np.zeros((256, 16), np.int32)]
    )
    u, v, wide = a.view(np.uint32), b.view(np.uint32), a.astype(np.int64) * b
    shift = (u % 32).astype(np.int32)
    # FlyDSL divides towards minus infinity, and takes the remainder of a division towards zero
    expected = {
        "floor_divide": a // b,
        "remainder": np.fmod(a, b),
        "unsigned divide": u // v,
        "unsigned remainder": u % v,
        "multiply": wide,
        "left": a << shift,
        "right": a >> shift,
        "high": wide >> 32,
        "xor": a ^ b,
        "and_not": a & ~b,
        "max": np.maximum(a, b),
        "min": np.minimum(a, b),
        "bits": np.bitwise_count(u),
        "leading zeros": [32 - int(x).bit_length() for x in u],
        "less": a < b,
        "unsigned less": u < v,
    }
    for column, (name, values) in enumerate(expected.items()):
        values = np.asarray(values).astype(np.int64).astype(np.uint32).view(np.int32)
        assert np.array_equal(out[:, column], values), name
