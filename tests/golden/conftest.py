"""A made-up kernel whose two runs are plain functions, so that each can be made to go wrong."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types

import numpy as np
import pytest

import codegen.kernel_package
import golden.commands
from codegen.compile import compile_kernels
from codegen.kernel_package import KernelPackage, Output
from codegen.language import Pointer, kernel, load, store, thread_id, trace
from emu.dispatch import RunReport, Watch
from golden.store import sha256

WRITER = Watch((2, 0, 0), 1, 37, 0x100000040, "global_store_dword", "double_it", 0x40)
CASES = {"one": "the first", "two": "the second", "three": "the third", "four": "the last"}


@functools.cache
def compiled():
    @kernel(block=64, lds=0)
    def add_one(data: Pointer):
        at = data + thread_id().to(type(data)) * 4
        store(at, load(at) + 1)

    return compile_kernels([trace(add_one)])


class MadeUp:
    """What the made-up kernel does. source, machine, bound: changes to the outputs, findings; by default nothing."""

    def __init__(self):
        self.source = self.machine = lambda out: out
        self.bound = lambda out: []
        self.writer = WRITER
        self.watched = []
        self.generator = 1
        self.package = KernelPackage(
            name="made_up",
            cases=dict(CASES),
            build=lambda case: np.arange(16, dtype=np.uint8) * self.generator + list(CASES).index(case),
            digests=lambda inputs: {"x": sha256(inputs)},
            outputs=(
                Output("codes", "e4m3fn", True, lambda i: f"row {i[0]} dim {i[1]}"),
                Output("sums", "f32", False, lambda i: f"sum {i[0]}"),
            ),
            run_source=lambda inputs: self.source(self.right(inputs)),
            run_machine=self.run_machine,
            bound=lambda inputs, outputs: self.bound(outputs),
            programs=lambda: (),
            compiled=compiled,
        )

    def with_outputs(self, *outputs):
        """The package with other outputs declared."""
        return dataclasses.replace(self.package, outputs=outputs)

    @staticmethod
    def right(inputs):
        return {"codes": inputs.reshape(4, 4).copy(), "sums": inputs.reshape(4, 4).sum(1).astype(np.float32)}

    def run_machine(self, inputs, options, watch):
        self.watched += [watch] if watch is not None else []
        return self.machine(self.right(inputs)), RunReport(instructions=7, watch=self.writer if watch else None)


@pytest.fixture
def made_up(monkeypatch):
    """The made-up kernel, known to `gfx950` by its name."""
    kernel = MadeUp()
    module = types.ModuleType("codegen.kernels.made_up.package")
    module.PACKAGE = kernel.package
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for place in (codegen.kernel_package, golden.commands):
        monkeypatch.setattr(place, "kernel_names", lambda: ["drafter_attention", "made_up"])
    return kernel
