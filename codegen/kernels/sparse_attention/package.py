"""The sparse attention as the project's commands see it: cases, outputs, both ways to run it, its bound."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from codegen.kernel_package import KernelPackage, Output, Watchpoint, bytes_of
from codegen.kernels.sparse_attention import job, kernels
from codegen.kernels.sparse_attention.cases import CASES, Inputs, build
from codegen.kernels.sparse_attention.launch import Runner
from codegen.kernels.sparse_attention.reference import check
from codegen.kernels.sparse_attention.shapes import GROUP
from codegen.kernels.sparse_attention.watch import watched
from emu.dispatch import RunOptions, RunReport

Array = NDArray[Any]


def _bytes(index: tuple[int, ...]) -> str:
    return f"byte {index[0]} of the allocation (`gfx950 layout kv_cache 'byte {index[0]}'` says which element)"


def _index_cache(index: tuple[int, ...]) -> str:
    block, token, dim = index
    return f"index key of block {block} token {token}, dim {dim}"


def _scales(index: tuple[int, ...]) -> str:
    return f"scale {list(index)}: [kv head][slot], or one for all"


def _scores(index: tuple[int, ...]) -> str:
    head, row, block = index
    return f"index head {head}, row {row}, block {block}"


def _topk(index: tuple[int, ...]) -> str:
    head, row, place = index
    return f"index head {head}, row {row}, choice {place}"


def _table(index: tuple[int, ...]) -> str:
    return f"sequence {index[0]}, page {index[1]}"


def _ctx(index: tuple[int, ...]) -> str:
    return f"sequence {index[0]}"


def _split(index: tuple[int, ...]) -> str:
    sequence, split, head, *dim = index
    return f"sequence {sequence}, split {split}, head {head}" + "".join(f" dim {d}" for d in dim)


def _out(index: tuple[int, ...]) -> str:
    row, head, dim = index
    return f"row {row}, kv head {head // GROUP}, head {head % GROUP} of it, dim {dim}"


OUTPUTS = (
    Output("kv_cache", "u8", False, _bytes),
    Output("k_scale", "f32", False, _scales),
    Output("v_scale", "f32", False, _scales),
    Output("index_cache", "e4m3fn", False, _index_cache),
    Output("scores", "f32", False, _scores),
    Output("topk", "u32", True, _topk),
    Output("table", "u32", False, _table),
    Output("ctx", "u32", True, _ctx),
    Output("m", "f32", False, _split),
    Output("l", "f32", False, _split),
    Output("o", "bf16", False, _split),
    Output("out", "bf16", True, _out),
)


def _arrays(outputs: job.Outputs) -> dict[str, Array]:
    arrays = {output.name: getattr(outputs, output.name) for output in OUTPUTS}
    return arrays | {"kv_cache": bytes_of(outputs.kv_cache)}


def _run_source(inputs: Inputs) -> dict[str, Array]:
    return _arrays(job.run(Runner(), inputs))


def _run_machine(inputs: Inputs, options: RunOptions, watch: Watchpoint | None) -> tuple[dict[str, Array], RunReport]:
    runner = kernels.machine(options, watch=None if watch is None else watched(inputs, watch))
    return _arrays(job.run(runner, inputs)), runner.report


def _bound(inputs: Inputs, outputs: dict[str, Array]) -> list[str]:
    whole = outputs["kv_cache"].view(inputs.kv_cache.dtype).reshape(inputs.kv_cache.shape)
    return check(inputs, outputs | {"kv_cache": whole})


PACKAGE = KernelPackage(
    name="sparse_attention",
    cases={name: case.why for name, case in CASES.items()},
    build=lambda name: build(CASES[name]),
    digests=lambda inputs: inputs.digests(),
    outputs=OUTPUTS,
    run_source=_run_source,
    run_machine=_run_machine,
    bound=_bound,
    programs=lambda: kernels.programs(),
    compiled=lambda: kernels.compiled(),
    recipe=lambda name: f"codegen.kernels.sparse_attention.cases.build({CASES[name]!r}), drawn by gfx950.random_bits",
)
