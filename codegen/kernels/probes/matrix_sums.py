"""P1 to P4: how products are grouped, aligned, cut and rounded on their way to D.

Every element of a tile is a sum of at most four numbers at chosen places of k; one tile asks rows times columns such
questions at once. U is a large power of two, so that U - U leaves what an alignment to U has kept of a third number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, product

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.matrix_step import Draft, MatrixStep, Numbers, matrix_step, range_of, tiles_of
from codegen.kernels.probes.matrix_variants import FORMATS, Variant, grouped, variants
from codegen.kernels.probes.probe import Probe, Size

SEED = 950
FRACTIONS = (1.25, 1.5, 1.75)


def probed() -> list[Variant]:
    """The variants whose sums are asked: every instruction and pair of formats of one block of products."""
    return [v for v in grouped(variants()) if v.blocks == 1]


def _places(variant: Variant, bit: int, value: int) -> list[int]:
    """As many places as rows: numbers below the depth with one bit given and the others drawn, the same every time."""
    random = np.random.default_rng([SEED, bit, value, variant.depth])
    free = random.integers(0, variant.depth, variant.rows)
    return [int(k) & ~(1 << bit) | value << bit for k in free]


def _largest(variant: Variant) -> tuple[float, float]:
    """The largest powers of two of A and of B: U is their product."""
    return 2.0 ** range_of(variant.a_format).high, 2.0 ** range_of(variant.b_format).high


def _ends(variant: Variant) -> tuple[int, int]:
    """The exponents of the smallest product and of U."""
    a, b = range_of(variant.a_format), range_of(variant.b_format)
    return a.low + b.low, a.high + b.high


def _powers(variant: Variant, exponents: NDArray[np.int64], factor: float = 1.0) -> tuple[Numbers, float] | None:
    """x by row and one y whose products are factor * 2^exponents, as near as the formats come; None where B's format
    does not hold such a y."""
    a, b = range_of(variant.a_format), range_of(variant.b_format)
    q = max(int(exponents.max()) - a.high, int(exponents.min()) - a.low)
    q = min(max(q, b.low), b.high)
    form = FORMATS[variant.b_format]
    for power in range(q, b.high + 1):
        y = factor * 2.0**power
        if form.decode(form.encode(np.array(y))) == y:
            return np.exp2(np.clip(exponents - power, a.low, a.high).astype(np.float64)), y
    return None


def pairs(variant: Variant) -> Iterator[Draft]:
    """P1. Do two places meet in one group? For each bit of k, pairs of places that differ in it: two halves of C's last
    place are lost one by one and not together; and U - U keeps or drops what all other places hold."""
    (u, v), (low, high) = _largest(variant), _ends(variant)
    for bit in range(variant.depth.bit_length() - 1):
        first, second = _places(variant, bit, 0), _places(variant, bit, 1)
        for c in (2.0**24, -(2.0**25)):
            yield Draft(variant).by_row(first, 1.0).by_column(second, 1.0).plus(c)
        for distance in sorted({min(high - low, 24), min(high - low, 34)}):
            draft, found = Draft(variant), _powers(variant, np.full(variant.rows, high - distance))
            for k in set(range(variant.depth)) - {*first, *second}:
                draft.everywhere(k, *found or (0.0, 0.0))
            yield draft.by_row(first, u, v).by_column(second, -u, v)


def _distances(variant: Variant, last: int) -> Iterator[NDArray[np.int64]]:
    """How far below U a number lies, by row, in as many tiles as it takes to reach `last`."""
    for first in range(0, last + 1, variant.rows):
        yield np.minimum(np.arange(first, first + variant.rows), last)


def _frames(variant: Variant) -> Iterator[Draft]:
    """What cancels: U - U in places near and far, or U against C."""
    u, v = _largest(variant)
    for other in (1, variant.depth // 2):
        yield Draft(variant).everywhere(0, u, v).everywhere(other, -u, v)
    yield Draft(variant).everywhere(0, u, v).plus(-u * v)
    yield Draft(variant).everywhere(variant.depth - 1, -u, v).plus(u * v)


def cuts(variant: Variant, factors: tuple[float, ...]) -> Iterator[Draft]:
    """P2 and P3. What is left of a third product beside U - U, by its distance (row), its place (column) and its
    bits."""
    low, high = _ends(variant)
    for below, factor in product(_distances(variant, min(high - low, 40)), factors):
        found = _powers(variant, high - below, factor)
        if found is None:
            continue
        for draft in _frames(variant):
            free = [k for k in range(variant.depth) if not draft.a[0, k]]
            places = [free[(5 * j + 3) % len(free)] for j in range(variant.rows)]
            yield draft.by_column(places, *found)


def c_cuts(variant: Variant, factors: tuple[float, ...]) -> Iterator[Draft]:
    """P2 and P3. What is left of C beside U - U, by its distance and its bits."""
    u, v = _largest(variant)
    for below, factor in product(_distances(variant, 47), factors):
        c = factor * u * v * 2.0 ** -below[:, None].astype(np.float64)
        for other in (1, variant.depth // 2):
            yield Draft(variant).everywhere(0, u, v).everywhere(other, -u, v).plus(c)


def roundings(variant: Variant) -> Iterator[Draft]:
    """P4. C with 24 significant bits, quarters of its last place, and a far smaller product, of either sign: where the
    total is cut and how it is rounded, also where it carries out."""
    low, high = _ends(variant)
    last = min(low + 41, high + 21) - 23
    mantissas = np.random.default_rng(SEED).integers(1 << 23, 1 << 24, variant.rows)
    mantissas[:4] = (1 << 23, (1 << 24) - 1, (1 << 24) - 2, (1 << 23) + 1)
    tiny = _powers(variant, np.maximum(last - 1 - np.arange(variant.rows), low))
    for quarters, sign, tiny_sign, c_sign in product((1, 2, 3), (1, -1), (1, -1), (1, -1)):
        draft = Draft(variant).plus(c_sign * mantissas * 2.0**last)
        for bit in (0, 1):
            if quarters >> bit & 1:
                x, y = _powers(variant, np.full(variant.rows, last - 2 + bit)) or (0.0, 0.0)
                draft.everywhere(bit, sign * np.asarray(x), y)
        x, y = tiny or (0.0, 0.0)
        yield draft.everywhere(2, tiny_sign * np.asarray(x), y)


def tails(variant: Variant) -> Iterator[Draft]:
    """P4. C and one product (1 + 2^-i)(1 - 2^-j) of a quarter, a half or all of C's last place: for i = j its only
    fraction bit lies far below, and a cut above that bit makes a tie of it, or not."""
    a, b = range_of(variant.a_format), range_of(variant.b_format)
    reach = min(a.fractions, b.fractions)
    steps = 1 + np.arange(variant.rows) % reach
    low, high = _ends(variant)
    last = (low + high) // 2
    for places, sign, c_sign, odd in product((0, 1, 2), (1, -1), (1, -1), (0, 1)):
        x, y = _powers(variant, np.full(variant.rows, last - places)) or (np.zeros(variant.rows), 0.0)
        draft = Draft(variant).plus(c_sign * ((1 << 23) + odd) * 2.0**last)
        yield draft.everywhere(0, sign * x * (1 + np.exp2(-steps)), y * (1 - np.exp2(-steps)))


def cancellations(variant: Variant) -> Iterator[Draft]:
    """P4. C against the negative of its leading bit, so that what is left is normalised: bits below the cut that is
    made before show."""
    (u, v), (low, high) = _largest(variant), _ends(variant)
    mantissas = np.random.default_rng(SEED + 1).integers(1, 1 << 23, variant.rows)
    tiny = _powers(variant, np.maximum(high - 20 - np.arange(variant.rows), low))
    for sign, tiny_sign in product((1, -1), (1, -1)):
        c = sign * u * v * (1 + mantissas * 2.0**-23)
        draft = Draft(variant).everywhere(0, -sign * u, v).plus(c)
        x, y = tiny or (0.0, 0.0)
        yield draft.everywhere(1, tiny_sign * np.asarray(x), y)


def _steps(name: str, draw: Callable[[Variant], Iterator[Draft]]) -> Callable[[Size], Iterator[MatrixStep]]:
    def steps(size: Size) -> Iterator[MatrixStep]:
        for variant in probed():
            yield matrix_step(name, variant, tiles_of(draw(variant)))

    return steps


def _fractions(variant: Variant) -> tuple[float, ...]:
    """Numbers of quarters of a power of two that B's format holds, of either sign."""
    fractions = range_of(variant.b_format).fractions
    held = [n for n in FRACTIONS if n * 2**fractions % 1 == 0]
    return (*held, *(-n for n in held))


PROBES = (
    Probe("P1", "which products are summed together, and in which order the groups follow", _steps("P1", pairs)),
    Probe(
        "P2",
        "how far below the largest product, or C, a number is cut off",
        _steps("P2", lambda v: chain(cuts(v, (1, -1)), c_cuts(v, (1, -1)))),
    ),
    Probe(
        "P3",
        "which way it is cut, at every level",
        _steps("P3", lambda v: chain(cuts(v, _fractions(v)), c_cuts(v, (1.25, -1.25, 1.75, -1.75)))),
    ),
    Probe(
        "P4",
        "how the total is cut, normalised and rounded",
        _steps("P4", lambda v: chain(roundings(v), cancellations(v), tails(v))),
    ),
)
