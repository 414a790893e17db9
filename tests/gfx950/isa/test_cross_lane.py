"""Row swaps, ds_swizzle, ds_permute and ds_bpermute against lists."""

import random

import numpy as np
import pytest

from emu.wave import Wave
from gfx950.isa.cross_lane import swizzle_source
from gfx950.isa.encoding import decode

LANES = range(64)
EXECS = [(1 << 64) - 1, 0x0F0F_1234_FFFF_8001, 0, 1 << 63]


def lanes(seed):
    return np.array([random.Random(f"{seed} {n}").getrandbits(32) for n in LANES], dtype=np.uint32)


def active(mask):
    return [bool(mask >> n & 1) for n in LANES]


@pytest.fixture
def wave():
    wave = Wave()
    for index in range(1, 6):
        wave.vgprs[index] = lanes(index)
    return wave


def run(wave, assemble, text):
    wave.step(decode(assemble(text), 0))


@pytest.mark.parametrize("mask", EXECS)
def test_permlane32_swap(wave, assemble, mask):
    d, s = wave.vgprs[1].tolist(), wave.vgprs[2].tolist()
    wave.set_exec(mask)
    run(wave, assemble, "v_permlane32_swap_b32 v1, v2")
    new_d, new_s = d[:32] + s[:32], d[32:] + s[32:]
    assert wave.vgprs[1].tolist() == [n if on else o for n, o, on in zip(new_d, d, active(mask), strict=True)]
    assert wave.vgprs[2].tolist() == [n if on else o for n, o, on in zip(new_s, s, active(mask), strict=True)]


@pytest.mark.parametrize("mask", EXECS)
def test_permlane16_swap(wave, assemble, mask):
    d, s = wave.vgprs[1].reshape(4, 16).copy(), wave.vgprs[2].reshape(4, 16).copy()
    wave.set_exec(mask)
    run(wave, assemble, "v_permlane16_swap_b32_e64 v1, v2")
    new_d, new_s = d.copy(), s.copy()
    new_d[1], new_s[0], new_d[3], new_s[2] = s[0], d[1], s[2], d[3]
    on = np.array(active(mask))
    assert (wave.vgprs[1] == np.where(on, new_d.ravel(), d.ravel())).all()
    assert (wave.vgprs[2] == np.where(on, new_s.ravel(), s.ravel())).all()


def test_swapping_twice_gives_the_start(wave, assemble):
    before = wave.vgprs[1:3].copy()
    for text in ("v_permlane16_swap_b32 v1, v2", "v_permlane16_swap_b32 v1, v2"):
        run(wave, assemble, text)
    assert (wave.vgprs[1:3] == before).all()


@pytest.mark.parametrize("mask", EXECS)
@pytest.mark.parametrize("offset", [0, 4, 0xFFFC, 7])
def test_bpermute(wave, assemble, mask, offset):
    address, data, old = (wave.vgprs[i].tolist() for i in (1, 2, 5))
    wave.set_exec(mask)
    run(wave, assemble, f"ds_bpermute_b32 v5, v1, v2 offset:{offset}")
    on = active(mask)
    for n in LANES:
        source = (address[n] + offset) // 4 % 64
        assert wave.vgprs[5][n] == (old[n] if not on[n] else data[source] if on[source] else 0)


@pytest.mark.parametrize("mask", EXECS)
@pytest.mark.parametrize("spread", [1, 8, 64])
def test_permute_highest_lane_wins(wave, assemble, mask, spread):
    targets = [random.Random(n).randrange(spread) for n in LANES]
    wave.vgprs[1] = np.array([4 * t - 8 & 0xFFFFFFFF for t in targets], dtype=np.uint32)
    data, old, on = wave.vgprs[2].tolist(), wave.vgprs[5].tolist(), active(mask)
    wave.set_exec(mask)
    run(wave, assemble, "ds_permute_b32 v5, v1, v2 offset:8")
    pushed = [0] * 64
    for n in LANES:
        if on[n]:
            pushed[targets[n]] = data[n]
    assert wave.vgprs[5].tolist() == [p if a else o for p, o, a in zip(pushed, old, on, strict=True)]


def test_permute_gives_the_manuals_example(wave, assemble):
    """The example of DS_PERMUTE: data A B C D, targets 0 0 3 1 give B D 0 C. [12.12, E28]"""
    wave.set_exec(0xF)
    wave.vgprs[1][:4] = [0, 0, 12, 4]
    wave.vgprs[2][:4] = [0xA, 0xB, 0xC, 0xD]
    run(wave, assemble, "ds_permute_b32 v5, v1, v2")
    assert wave.vgprs[5][:4].tolist() == [0xB, 0xD, 0, 0xC]


SWIZZLES = {
    "offset:swizzle(QUAD_PERM, 1, 0, 3, 2)": lambda n: n ^ 1,
    "offset:swizzle(QUAD_PERM, 3, 3, 0, 1)": lambda n: n // 4 * 4 + (3, 3, 0, 1)[n % 4],
    "offset:swizzle(SWAP, 16)": lambda n: n ^ 16,
    "offset:swizzle(SWAP, 2)": lambda n: n ^ 2,
    "offset:swizzle(REVERSE, 8)": lambda n: n // 8 * 8 + 7 - n % 8,
    "offset:swizzle(REVERSE, 32)": lambda n: n // 32 * 32 + 31 - n % 32,
    "offset:swizzle(BROADCAST, 8, 3)": lambda n: n // 8 * 8 + 3,
    'offset:swizzle(BITMASK_PERM, "01pip")': lambda n: n // 32 * 32 + (8 | n & 4 | (n & 2 ^ 2) | n & 1),
    "offset:swizzle(ROTATE, 0, 3)": lambda n: n // 32 * 32 + (n + 3) % 32,
    "offset:swizzle(ROTATE, 1, 3)": lambda n: n // 32 * 32 + (n - 3) % 32,
    "offset:swizzle(FFT, 31)": lambda n: n,
    "offset:swizzle(FFT, 0)": lambda n: n // 32 * 32 + int(f"{n % 32:05b}"[::-1], 2),
    "offset:0": lambda n: n // 32 * 32,
}


@pytest.mark.parametrize("mask", EXECS[:2])
@pytest.mark.parametrize("pattern", sorted(SWIZZLES))
def test_swizzle(wave, assemble, pattern, mask):
    source, old, on = wave.vgprs[2].tolist(), wave.vgprs[5].tolist(), active(mask)
    wave.set_exec(mask)
    run(wave, assemble, f"ds_swizzle_b32 v5, v2 {pattern}")
    for n in LANES:
        j = SWIZZLES[pattern](n)
        assert wave.vgprs[5][n] == (old[n] if not on[n] else source[j] if on[j] else 0), n


# Written out by hand: FFT reverses the bits the mask leaves and keeps the others; rotate counts in the unmasked bits.
# All agree with the examples printed under DS_SWIZZLE_B32. [CDNA4 ISA 12.12]
TABLES = [  # offset, source lanes of lanes 0..
    (0xE000, [0, 16, 8, 24, 4, 20, 12, 28, 2, 18, 10, 26, 6, 22, 14, 30, 1, 17, 9, 25, 5, 21, 13, 29, 3, 19, 11, 27]),
    (0xE010, [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15, 16, 24, 20, 28, 18, 26, 22, 30, 17, 25, 21, 29]),
    (0xE01F, list(range(32))),
    (0xC020, [*range(1, 32), 0]),
    (0xC420, [31, *range(31)]),
    (0xC021, [0, 3, 2, 5, 4, 7, 6, 9, 8, 11]),
    (0xC421, [30, 1, 0, 3, 2, 5, 4, 7, 6, 9]),
]


@pytest.mark.parametrize(("offset", "expected"), TABLES)
def test_swizzle_tables(offset, expected):
    assert [swizzle_source(offset, n) for n in range(len(expected))] == expected
    assert [swizzle_source(offset, n + 32) for n in range(len(expected))] == [n + 32 for n in expected]
