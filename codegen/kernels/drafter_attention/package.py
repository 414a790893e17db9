"""The drafter attention as the project's commands see it: cases, outputs, both ways to run it, its bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernel_package import KernelPackage, Output, Watchpoint
from codegen.kernels.drafter_attention import launch
from codegen.kernels.drafter_attention.cases import BLOCK, CASES, HEAD_DIM, QPR, Inputs, build
from codegen.kernels.drafter_attention.reference import check_outputs, reference
from emu.dispatch import RunOptions, RunReport

Array = NDArray[Any]


def _a8(index: tuple[int, ...]) -> str:
    token, column = index
    return f"request {token // QPR} row {token % QPR}, head {column // HEAD_DIM} dim {column % HEAD_DIM}"


def _as8(index: tuple[int, ...]) -> str:
    token, group = index
    first = group % 4 * 32
    return f"request {token // QPR} row {token % QPR}, head {group // 4}, scale of dims {first}..{first + 31}"


def _cache(index: tuple[int, ...]) -> str:
    block, key, byte = index
    side = "K" if byte < HEAD_DIM else "V"
    return f"block {block} key {key} (slot {block * BLOCK + key}), {side} dim {byte % HEAD_DIM}"


def _partials(index: tuple[int, ...]) -> str:
    part, word = index
    if word < 256:
        return f"partial {part}, {'ml'[word // 128]} of row {word % 128 // 16} head {word % 16}"
    row, dim = divmod(word - 256, HEAD_DIM)
    return f"partial {part}, o of row {row // 16} head {row % 16} dim {dim}"


OUTPUTS = (
    Output("a8", "e4m3fn", True, _a8),
    Output("as8", "e8m0fnu", True, _as8),
    Output("cache", "e4m3fn", False, _cache),
    Output("partials", "f32", False, _partials),
)


def _arrays(outputs: launch.Outputs) -> dict[str, Array]:
    return {"a8": outputs.a8, "as8": outputs.as8, "cache": outputs.cache, "partials": outputs.partials.view(np.float32)}


def _run_source(inputs: Inputs) -> dict[str, Array]:
    return _arrays(launch.run_source_case(inputs))


def _run_machine(inputs: Inputs, options: RunOptions, watch: Watchpoint | None) -> tuple[dict[str, Array], RunReport]:
    outputs, report = launch.run_machine_case(inputs, options=options, watch=watch)
    return _arrays(outputs), report


def _bound(inputs: Inputs, outputs: dict[str, Array]) -> list[str]:
    expected = reference(inputs)
    return [str(v) for v in check_outputs(inputs, expected, outputs["a8"], outputs["as8"], outputs["cache"])]


PACKAGE = KernelPackage(
    name="drafter_attention",
    cases={name: case.why for name, case in CASES.items()},
    build=lambda name: build(CASES[name]),
    digests=lambda inputs: inputs.digests(),
    outputs=OUTPUTS,
    run_source=_run_source,
    run_machine=_run_machine,
    bound=_bound,
    programs=lambda: launch.programs(),
    compiled=lambda: launch.compiled(),
    recipe=lambda name: f"codegen.kernels.drafter_attention.cases.build({CASES[name]!r}), drawn by gfx950.random_bits",
)
