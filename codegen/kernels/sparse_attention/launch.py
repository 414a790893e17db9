"""Launching the kernels one after another, as source on the CPU or as gfx950 code on the emulated machine or a device,
and the checks of arrays and numbers that every part shares."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.ir import Program
from codegen.language import Kernel, trace
from codegen.run_source import run_source
from emu.dispatch import Device, Module, RunOptions, RunReport

Array = NDArray[Any]


@functools.cache
def program(kernel: Kernel) -> Program:
    """A kernel traced, once."""
    return trace(kernel)


@functools.lru_cache(maxsize=4)
def _loaded(code_object: bytes) -> Module:
    """The object on a device of its own: translated once for all launches."""
    return Device().load(code_object)


@dataclass(frozen=True)
class Watched:
    """A byte of an argument whose last writer is asked for: of the launch number `launch`, counted from 0, of those
    kernels whose names begin with `kernel`."""

    kernel: str
    argument: str
    byte: int
    launch: int = 0


@dataclass
class Runner:
    """How kernels are run, and what the launches did.

    code_object: an ELF with the kernels, which `options` say how to run; None runs their source.
    """

    code_object: bytes | None = None
    options: RunOptions | None = None
    watch: Watched | None = None
    report: RunReport = field(default_factory=RunReport)
    launches: int = 0  # of the watched kernels

    def launch(self, kernel: Kernel, grid: Sequence[int], arguments: Sequence[Any]) -> None:
        """Runs a grid of workgroups; arrays are used in place. A grid with nothing in it launches nothing."""
        if 0 in grid:
            return
        if self.code_object is None:
            run_source(program(kernel), grid, arguments)
            return
        bound = _loaded(self.code_object)[kernel.name][tuple(grid), kernel.block]
        self.report.add(bound(*arguments, options=self.options, watch=self._watched(kernel, arguments)))

    def _watched(self, kernel: Kernel, arguments: Sequence[Any]) -> tuple[Array, int] | None:
        if self.watch is None or not kernel.name.startswith(self.watch.kernel):
            return None
        self.launches += 1
        if self.launches != self.watch.launch + 1:
            return None
        names = [argument.name for argument in kernel.arguments]
        return arguments[names.index(self.watch.argument)], self.watch.byte


def check_array(name: str, array: object, dtype: Any, shape: Sequence[int | None]) -> None:
    """Refuses anything but a C-contiguous numpy array of this dtype and shape (None: any size), naming it. Raises
    TypeError for another kind or dtype, ValueError for another shape or order."""
    wanted = np.dtype(dtype)
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is a {type(array).__name__}; expected a numpy array of {wanted}")
    if array.dtype != wanted:
        raise TypeError(f"{name} has dtype {array.dtype}; expected {wanted}")
    if len(array.shape) != len(shape) or any(n is not None and n != m for n, m in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{name} has shape {array.shape}; expected {shape_text(shape)}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} is not C-contiguous; pass np.ascontiguousarray({name})")


def shape_text(shape: Sequence[int | None]) -> str:
    """A shape as Python shows it, `any` where any size will do: (6,), (any, 128)."""
    sizes = ", ".join("any" if n is None else str(n) for n in shape)
    return f"({sizes},)" if len(shape) == 1 else f"({sizes})"


def check_whole(name: str, value: object) -> None:
    """Refuses anything but a whole number, Python's or numpy's, naming it. Raises TypeError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; expected a whole number")
