"""Speed of comparing bits: `python benchmarks/diff.py [MEBIBYTES]`.

One line for each format and kind of difference: milliseconds of `golden.compare.compare`, and how many times that of
`numpy.array_equal` on the same two arrays of the same run. The best of several rounds each, on one core.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.compare import compare

ROUNDS = 3
FORMATS = {"e4m3fn": np.uint8, "bf16": np.uint16, "f32": np.uint32, "u64": np.uint64}


def best(run: Callable[[], object]) -> float:
    """Milliseconds of the quickest round."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def changed(a: NDArray[Any], kind: str) -> NDArray[Any]:
    """The second array."""
    b, flat = a.copy(), a.size
    if kind == "one element":
        b.reshape(-1)[flat // 2] ^= 1
    elif kind == "one row":
        b[len(b) // 2] ^= 3
    elif kind == "noise":
        b[:] = np.random.default_rng(1).integers(0, 256, a.nbytes, dtype=np.uint8).view(a.dtype).reshape(a.shape)
    elif kind == "transposed":
        b[:] = np.swapaxes(a, 0, 1)
    elif kind == "another rounding":
        b += np.random.default_rng(1).integers(0, 2, a.shape, dtype=a.dtype)
    return b


def main() -> None:
    """Measures and prints."""
    nbytes = int(sys.argv[1] if len(sys.argv) > 1 else 64) << 20
    print(f"{'format':<8}{'difference':<20}{'ms':>8}{'array_equal ms':>16}{'ratio':>8}  named")
    for name, dtype in FORMATS.items():
        data = np.random.default_rng(0).integers(0, 256, nbytes, dtype=np.uint8).view(dtype)
        side = int(data.size**0.5)
        a = data[: side * side].reshape(side, side)
        for kind in ("none", "one element", "one row", "another rounding", "transposed", "noise"):
            b = changed(a, kind)
            found = compare("o", a, b, name)
            ours, numpy = (
                best(lambda b=b, n=name, a=a: compare("o", a, b, n)),
                best(lambda b=b, a=a: np.array_equal(a, b)),
            )
            print(f"{name:<8}{kind:<20}{ours:8.1f}{numpy:16.1f}{ours / numpy:8.1f}  {found.pattern if found else ''}")


if __name__ == "__main__":
    main()
