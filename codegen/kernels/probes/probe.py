"""What a probe is: a question to the chip, as launches of small kernels whose outputs are kept bit for bit."""

from __future__ import annotations

import functools
import hashlib
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.compile import Compiled, compile_kernels
from codegen.language import Kernel, trace

Array = NDArray[Any]
# The modules that define probes, each with `PROBES`.
MODULES = (
    "matrix_sums", "matrix_values", "matrix_tiles", "lanes", "lds", "lds_clocks", "conversions", "transcendentals",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One launch. name: unique, and stable from version to version, parts divided by `/`, the probe's name first.

    kernel: takes a pointer for each of `inputs`, one for the output, then `scalars` as U32. grid: workgroups. output:
    shape and dtype of what it writes; it starts as zeros. exact: whether equal chips give equal outputs (clocks do
    not).
    """

    name: str
    kernel: Kernel
    grid: int
    inputs: tuple[Array, ...]
    output: tuple[tuple[int, ...], str]
    scalars: tuple[int, ...] = ()
    exact: bool = True

    @property
    def inputs_digest(self) -> str:
        """SHA-256 of all that the kernel is given."""
        total = hashlib.sha256(repr((self.grid, self.scalars, self.output)).encode())
        for array in self.inputs:
            total.update(repr((array.shape, array.dtype.str)).encode() + np.ascontiguousarray(array).tobytes())
        return total.hexdigest()

    def kept(self, output: Array) -> Array:
        """What a capture keeps of the output: all of it, or another form without loss."""
        return output


Steps = Callable[["Size"], Iterable[Step]]


@dataclass(frozen=True)
class Size:
    """How much a run asks. tiles: random tiles an instruction whose digests are kept. inputs: bits of the inputs that
    exhaustive kernels go through: 32 for all."""

    tiles: int
    inputs: int


SIZES = MappingProxyType({"full": Size(1 << 20, 32), "quick": Size(1 << 8, 20)})


@dataclass(frozen=True)
class Probe:
    """One of P1 to P14. title: the question in one line. steps(size): its launches, always the same ones."""

    name: str
    title: str
    steps: Steps = field(repr=False)


@functools.cache
def probes() -> dict[str, Probe]:
    """All probes by name, in order."""
    found: list[Probe] = []
    for module in MODULES:
        found += importlib.import_module(f"codegen.kernels.probes.{module}").PROBES
    return {probe.name: probe for probe in sorted(found, key=lambda p: _order(p.name))}


def _order(name: str) -> tuple[int, str]:
    digits = "".join(c for c in name if c.isdigit())
    return int(digits), name


@functools.lru_cache(maxsize=64)
def compiled(kernels: tuple[Kernel, ...]) -> Compiled:
    """The code object of some kernels."""
    return compile_kernels([trace(kernel) for kernel in kernels])
