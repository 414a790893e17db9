"""The generated kernels in one place: their programs, their gfx950 object, and what runs them."""

from __future__ import annotations

import functools
import os

from codegen.compile import Compiled, compile_kernels
from codegen.ir import Program
from codegen.kernels.sparse_attention.attend import ATTEND
from codegen.kernels.sparse_attention.insert import INSERT
from codegen.kernels.sparse_attention.launch import Runner, Watched, program
from codegen.kernels.sparse_attention.reduce import REDUCE
from codegen.kernels.sparse_attention.score import index_score
from codegen.kernels.sparse_attention.select import select_blocks_kernel
from codegen.kernels.sparse_attention.table import build_table_kernel
from emu.dispatch import RunOptions
from emu.engines import ENGINES

KERNELS = (*INSERT, index_score, select_blocks_kernel, build_table_kernel, *ATTEND, *REDUCE)


@functools.cache
def programs() -> tuple[Program, ...]:
    """The traced programs of all kernels."""
    return tuple(program(kernel) for kernel in KERNELS)


@functools.cache
def compiled() -> Compiled:
    """All kernels in one gfx950 object."""
    return compile_kernels(programs())


def machine(options: RunOptions, code_object: bytes | None = None, watch: Watched | None = None) -> Runner:
    """What runs the kernels' gfx950 code: our own object when none is given, linked where a device wants it so."""
    if code_object is None:
        code_object = compiled().code_object if options.engine == "device" else compiled().object
    return Runner(code_object, options, watch)


def runner(engine: str = "host") -> Runner:
    """What runs the kernels: "source", or an engine of the machine, on all cores. Raises ValueError for other names."""
    check_engine(engine)
    if engine == "source":
        return Runner()
    return machine(RunOptions(engine=engine, threads=os.cpu_count() or 1))


def check_engine(engine: str) -> None:
    """Refuses names of which `runner` has nothing. Raises ValueError."""
    if engine not in ("source", *ENGINES):
        raise ValueError(f"there is no engine {engine!r}; there are source, {', '.join(ENGINES)}")
