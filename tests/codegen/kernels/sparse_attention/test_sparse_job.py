"""The whole job: both ways to run it, who writes what, what it rests on and uses, and what it refuses."""

from __future__ import annotations

import dataclasses
import functools
import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

from codegen.commands import emit
from codegen.kernel_package import Watchpoint, kernel_package
from codegen.kernels.sparse_attention import job, kernels
from codegen.kernels.sparse_attention.cases import CASES, Case, DataStyle, Request, build
from codegen.kernels.sparse_attention.launch import Runner
from codegen.kernels.sparse_attention.watch import watched
from emu import code_object
from emu.blocks import discover
from emu.dispatch import RunOptions
from gfx950.evidence import LEDGER
from gfx950.isa.encoding import decode
from gfx950.isa.registry import lookup
from golden.check import check_case, kernel_rules, recorded_evidence
from golden.report import case_lines

OPTIONS = RunOptions(threads=2)
PACKAGE = kernel_package("sparse_attention")


@functools.cache
def inputs_of(case):
    return build(CASES[case])


@functools.cache
def outputs_of(case):
    return PACKAGE.run_machine(inputs_of(case), OPTIONS, None)[0]


# ---- both ways to run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["first_token", "page_edges", "chunk_edges", "padding", "per_token", "bf16"])
def test_source_is_machine_code_and_right_and_the_inputs_stay(case):
    inputs = build(CASES[case])
    before = PACKAGE.digests(inputs)
    source = PACKAGE.run_source(inputs)
    machine, report = PACKAGE.run_machine(inputs, OPTIONS, None)
    assert PACKAGE.digests(inputs) == before
    assert set(source) == set(machine) == {output.name for output in PACKAGE.outputs}
    for name, array in source.items():
        assert (array.dtype, array.shape) == (machine[name].dtype, machine[name].shape), name
        assert array.tobytes() == machine[name].tobytes(), name
    assert PACKAGE.bound(inputs, source) == []
    assert report.instructions > 10_000
    assert report.watch is None


def random_case(seed):
    """Any requests, cache, heads, splits, forced blocks and values."""
    random = np.random.default_rng(seed)

    def pick(*choices):
        return choices[random.integers(len(choices))]

    def length():
        edge = pick(0, 1, 15, 16, 17, 127, 128, 129, 255, 256, 257)
        return int(pick(edge, edge, *random.integers(1, 700, 2), random.integers(2000, 2400)))

    rows = pick(1, 1, 2, 3, 5)
    decode_requests = [Request(length(), rows) for _ in range(random.integers(0, 4))]
    ends = [max(length(), 1) for _ in range(random.integers(0, 3) if decode_requests else 2)]
    prefill = [Request(end, int(random.integers(1, min(end, 20) + 1)), True) for end in ends]
    kv_heads, cache, packed = pick(1, 1, 2, 3, 4), pick("fp8", "fp8", "bf16"), pick(True, False)
    per_token = cache == "fp8" and not packed and pick(True, False)
    style = {name: pick(False, False, True) for name in ("sink", "ties", "zeros", "opposed", "nan_blocks")}
    return Case(
        f"random {seed}",
        (*decode_requests, *prefill),
        "",
        kv_heads,
        pick(1, kv_heads),
        cache,
        packed,
        "x448" if cache == "fp8" and not per_token and pick(True, False) else "unscaled",
        per_token,
        pick(None, None, 1, 2, 3, 5, 8),
        pick("hip", "flydsl"),
        pick(0, 0, 1, 2, 3),
        pick(1, 1, 0, 2, 5),
        (1.0, 1.0) if per_token else (pick(1.0, 0.7, 0.5, 1.3), pick(1.0, 0.3, 1.7)),
        pick(0, 0, 1, 4),
        DataStyle(q=pick(1.0, 1.0, 3.0), k=pick(1.0, 0.5), **style),
    )


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 150))])
def test_random_jobs(seed):
    inputs = build(random_case(seed))
    source = PACKAGE.run_source(inputs)
    machine, _ = PACKAGE.run_machine(inputs, OPTIONS, None)
    assert [name for name in source if source[name].tobytes() != machine[name].tobytes()] == []
    assert PACKAGE.bound(inputs, source) == []


def test_a_case_is_built_alike_every_time():
    assert build(CASES["mixed"]).digests() == inputs_of("mixed").digests()


def test_every_element_of_an_output_has_a_name():
    names = {name: [] for name in outputs_of("dense")}
    for output in PACKAGE.outputs:
        for at in (0, -1):
            index = np.unravel_index(at % outputs_of("dense")[output.name].size, outputs_of("dense")[output.name].shape)
            names[output.name].append(output.describe(tuple(int(i) for i in index)))
    assert names["out"] == [
        "row 0, kv head 0, head 0 of it, dim 0",
        "row 2, kv head 3, head 15 of it, dim 127",
    ]
    assert names["o"][1] == "sequence 11, split 7, head 15 dim 127"
    assert names["m"][1] == names["l"][1] == "sequence 11, split 7, head 15"
    assert names["scores"][1].startswith("index head 3, row 2, block ")
    assert names["topk"][1] == "index head 3, row 2, choice 15"
    assert names["table"][1] == "sequence 11, page 127"
    assert names["ctx"] == ["sequence 0", "sequence 11"]
    assert names["index_cache"][0] == "index key of block 0 token 0, dim 0"
    assert names["kv_cache"][0].startswith("byte 0 of the allocation")
    assert names["k_scale"][0].startswith("scale [0]")


# ---- who writes an element -------------------------------------------------------------------------------------------


def cache_byte(inputs, row, head, side, dim):
    """Where a new token's element is in the allocation, by the layout's closed form."""
    case, slot = inputs.case, int(inputs.slots[row])
    block, page, token = slot // 128, slot % 128 // 16, slot % 16
    blocks = inputs.kv_cache.size // (2 * 8 * case.kv_heads * 2048)
    side_of_block = 2 * block + side if case.packed else side * blocks + block
    element = dim // 16 * 256 + token * 16 + dim % 16 if side == 0 else dim * 16 + token
    return ((side_of_block * 8 + page) * case.kv_heads + head) * 2048 + element


def tile_of(inputs, row):
    """The number of a row's tile of scores: runs of rows of one request that fit 16 columns."""
    limit, tiles, length = 16 // inputs.case.index_heads, -1, 0
    for r in range(row + 1):
        new = r == 0 or inputs.request[r] != inputs.request[r - 1] or length == limit
        tiles, length = (tiles + 1, 1) if new else (tiles, length + 1)
    return tiles


def element(case, output, *index):
    array = outputs_of(case)[output]
    return int(np.ravel_multi_index(index, array.shape)) * array.itemsize


def written(case, output, byte):
    """The kernel, workgroup and thread of the last store to a byte, and its instruction."""
    _, report = PACKAGE.run_machine(inputs_of(case), OPTIONS, Watchpoint(output, byte))
    watch = report.watch
    return None if watch is None else (watch.kernel, watch.workgroup, 64 * watch.wave + watch.lane, watch.instruction)


def reduced(row_head_dim):
    """The reduction's thread of (head, dim): 8 dims each."""
    head, dim = row_head_dim
    return (head * 128 + dim) // 8


# rows 0 .. 3 are decode rows of two requests, 4 .. 56 prefill rows of three
MIXED = [
    ("out", (1, 5, 77), "reduce_hip", (1, 0, 0)),
    ("out", (40, 15, 127), "reduce_hip", (36, 0, 0)),
    ("o", (2, 7, 3, 9), "attend_fp8", (7, 2, 0)),
    ("o", (56, 0, 15, 127), "attend_fp8", (0, 52, 0)),
    ("m", (3, 2, 4), "attend_fp8", (2, 3, 0)),
    ("m", (4, 2, 4), "attend_fp8", (2, 0, 0)),
    ("l", (0, 0, 0), "attend_fp8", (0, 0, 0)),
    ("l", (33, 5, 15), "attend_fp8", (5, 29, 0)),
    ("ctx", (41,), "select_blocks", (41, 0, 0)),
    ("table", (2, 9), "select_blocks", (2, 0, 0)),
    ("table", (30, 127), "select_blocks", (30, 0, 0)),
    ("topk", (0, 3, 15), "select_blocks", (3, 0, 0)),
]


@pytest.mark.parametrize(("output", "index", "kernel", "workgroup"), MIXED)
def test_writers_of_decode_and_prefill_rows(output, index, kernel, workgroup):
    found = written("mixed", output, element("mixed", output, *index))
    assert found is not None
    assert found[:2] == (kernel, workgroup)
    assert found[3].startswith("global_store_dword")
    if output == "out":
        assert found[2] == reduced(index[1:])


@pytest.mark.parametrize("row", [0, 3, 31, 32, 56])
@pytest.mark.parametrize("side", [0, 1])
def test_writers_of_new_rows(row, side):
    inputs = inputs_of("mixed")
    found = written("mixed", "kv_cache", cache_byte(inputs, row, 0, side, 100))
    assert found[:3] == ("insert_kv_fp8", (row // 32, 0, 0), 8 * (row % 32) + 100 // 16)
    assert found[3].startswith("global_store_byte" if side else "global_store_dwordx4")


@pytest.mark.parametrize("row", [0, 3, 31, 32, 56])
def test_writers_of_index_keys(row):
    slot = int(inputs_of("mixed").index_slots[row])
    found = written("mixed", "index_cache", 128 * slot + 100)
    assert found[:3] == ("insert_index_keys", (row // 32, 0, 0), 8 * (row % 32) + 100 // 16)


@pytest.mark.parametrize(("row", "block"), [(0, 0), (1, 19), (3, 4), (20, 2), (40, 0), (56, 18)])
def test_writers_of_scores(row, block):
    found = written("mixed", "scores", element("mixed", "scores", 0, row, block))
    assert found[:2] == ("index_score", (block // 16, tile_of(inputs_of("mixed"), row), 0))
    assert found[2] // 64 == block % 4, "the blocks of a chunk go round its four waves"


@pytest.mark.parametrize(
    ("output", "index", "kernel", "workgroup"),
    [
        ("out", (2, 63, 1), "reduce_hip", (11, 0, 0)),
        ("o", (6, 4, 15, 0), "attend_fp8", (4, 6, 0)),
        ("m", (7, 1, 2), "attend_fp8", (1, 7, 0)),
        ("table", (9, 3), "select_blocks", (2, 1, 0)),
        ("ctx", (7,), "select_blocks", (1, 3, 0)),
        ("topk", (3, 1, 0), "select_blocks", (1, 3, 0)),
        ("scores", (2, 0, 17), "index_score", (1, 0, 0)),
    ],
)
def test_writers_of_dense_planes_and_heads(output, index, kernel, workgroup):
    assert written("dense", output, element("dense", output, *index))[:2] == (kernel, workgroup)


@pytest.mark.parametrize(("row", "head", "side"), [(0, 0, 0), (1, 3, 1), (2, 2, 1), (2, 3, 0)])
def test_writers_of_new_rows_in_dense_planes(row, head, side):
    byte = cache_byte(inputs_of("dense"), row, head, side, 21)
    assert written("dense", "kv_cache", byte)[:3] == ("insert_kv_fp8", (0, head, 0), 8 * row + 1)


@pytest.mark.parametrize("output", ["k_scale", "v_scale"])
def test_writers_of_per_token_scales(output):
    for row in range(3):
        byte = 4 * int(inputs_of("per_token").slots[row])
        assert written("per_token", output, byte)[:3] == ("insert_kv_fp8_per_token", (0, 0, 0), 8 * row)


def test_with_one_split_the_attend_writes_the_output():
    byte = element("select_4k", "out", 1, 9, 40)
    kernel, workgroup, thread, _ = written("select_4k", "out", byte)
    assert (kernel, workgroup) == ("attend_fp8", (0, 1, 0))
    assert thread == 64 * (40 // 16) + 16 * (40 % 16 // 4) + 9, "wave and group by dim, lane by head"
    assert written("select_4k", "o", element("select_4k", "o", 1, 0, 9, 40))[:2] == (kernel, workgroup)


def test_writers_that_there_are_not():
    inputs = inputs_of("mixed")
    held = int(inputs.block_table[1, 0])
    assert written("mixed", "kv_cache", held * 2 * 8 * 2048) is None, "a cached token"
    assert written("mixed", "scores", element("mixed", "scores", 0, 3, 63)) is None, "a block that the row does not see"
    assert written("mixed", "k_scale", 0) is None, "one scale for all"
    split = inputs_of("mixed_splits")
    assert [job.splits_of(split.case, part) for part in split.case.parts] == [8, 4]
    for output, head_bytes in (("o", 256), ("m", 4), ("l", 4)):
        last = ((5 * 8 + 3) * 16 + 15) * head_bytes
        assert watched(split, Watchpoint(output, last)).byte == ((3 * 4 + 3) * 16 + 15) * head_bytes
        assert watched(split, Watchpoint(output, last + 16 * head_bytes)) is None, "a split that prefill rows have not"


@pytest.mark.parametrize("case", ["bf16", "bf16_dense"])
def test_writers_of_bf16_caches(case):
    inputs = inputs_of(case)
    for output in ("k_scale", "v_scale"):
        assert written(case, output, 0) is None, "no kernel of a bf16 cache has scales"
    slot, heads = int(inputs.slots[0]), inputs.case.kv_heads
    block, page, token = slot // 128, slot % 128 // 16, slot % 16
    for side in (0, 1):
        blocks = inputs.kv_cache.size // (2 * 8 * heads * 2048)
        side_of_block = 2 * block + side if inputs.case.packed else side * blocks + block
        element = 20 // 8 * 128 + token * 8 + 20 % 8 if side == 0 else token // 8 * 1024 + 20 * 8 + token % 8
        byte = 2 * (((side_of_block * 8 + page) * heads + heads - 1) * 2048 + element)
        assert written(case, "kv_cache", byte)[:3] == ("insert_kv_bf16", (0, heads - 1, 0), 1)
    assert written(case, "m", 0)[:2] == ("attend_bf16", (0, 0, 0))


def test_a_watch_names_an_output():
    with pytest.raises(ValueError, match="there is no output 'nope' to watch; there are: kv_cache, scores, topk,"):
        PACKAGE.run_machine(inputs_of("first_token"), OPTIONS, Watchpoint("nope", 0))


def test_a_byte_of_the_output_belongs_to_the_launch_of_its_rows():
    row_bytes = 4096
    for byte in (0, 3 * row_bytes + 77, 4 * row_bytes, 57 * row_bytes - 1):
        found = watched(inputs_of("mixed"), Watchpoint("out", byte))
        prefill = byte >= 4 * row_bytes
        assert (found.kernel, found.argument, found.launch) == ("reduce", "out", int(prefill))
        assert found.byte == byte - 4 * row_bytes * prefill


# ---- what it rests on and uses ---------------------------------------------------------------------------------------


RULES = """
contraction exp2 forced_blocks insert_divide insert_multiply insert_overflow insert_per_token output p_per_token
p_unscaled p_x448 query_cast recommended_splits reduce scores selection splits sum_order table table_duplicates
table_heads unscored v_mask
"""


def test_the_rules_of_the_job_are_in_its_evidence():
    own = {name for name in LEDGER if name.startswith("sparse_attention.")}
    assert {name.removeprefix("sparse_attention.") for name in own} >= set(RULES.split())
    assert own <= {rule.name for rule in kernel_rules("sparse_attention")}
    assert own <= set(recorded_evidence("sparse_attention").rules), "each is below `spec`"


LDS = {"attend_fp8": 4608, "attend_fp8_x448": 4608, "attend_fp8_per_token": 4864, "attend_bf16": 8704}


def test_emit_shows_no_spills_and_little_lds(tmp_path):
    run = CliRunner().invoke(emit, ["sparse_attention", "-o", str(tmp_path), "--json"])
    assert run.exit_code in (0, 4), run.exception  # 4: there is no linker
    shown = json.loads(run.stdout)["kernels"]
    by_name = shown if isinstance(shown, dict) else {kernel["name"]: kernel for kernel in shown}
    assert set(by_name) == {kernel.name for kernel in kernels.KERNELS}
    for name, used in by_name.items():
        assert (used["spills"], used["scratch"], used["agprs"]) == (0, 0, 0), name
        assert used["lds"] == LDS.get(name, 0) <= 64 * 1024, name
        assert used["vgprs"] <= 128, name
    assert (tmp_path / "sparse_attention.o").read_bytes() == kernels.compiled().object


# ---- a changed instruction -------------------------------------------------------------------------------------------


def instructions(data, kernel_name, name, form):
    """The bytes of a kernel's code, and the places of an instruction in it."""
    loaded = code_object.load(data)
    kernel = loaded.kernels[kernel_name]
    code = loaded.code_of(kernel)
    blocks = discover(code.data, code.address, kernel.entry).values()
    found = (d for block in blocks for d in block.instructions if (d.instruction.name, d.form) == (name, form))
    return code, sorted(d.pc for d in found)


def with_a_changed_word(compiled, kernel_name, name, which, change):
    """The object with `change` made to the first word of one VOP2 instruction."""
    code, places = instructions(compiled.object, kernel_name, name, "VOP2")
    at = compiled.object.index(bytes(code.data)) + places[which] - code.address
    changed = bytearray(compiled.object)
    changed[at : at + 4] = change(int.from_bytes(changed[at : at + 4], "little")).to_bytes(4, "little")
    before, after = (decode(bytes(data), 0, 0) for data in (compiled.object[at : at + 8], changed[at : at + 8]))
    assert before.instruction.name == name
    assert (after.instruction, after.fields) != (before.instruction, before.fields)
    return dataclasses.replace(compiled, object=bytes(changed))


def sum_for_product(word):
    return word ^ (lookup("v_mul_f32").opcode ^ lookup("v_add_f32").opcode) << 25


def other_register(word):
    """The next even or odd register for the second operand."""
    return word ^ 1 << 9


@pytest.mark.parametrize(
    ("case", "kernel_name", "name", "which", "change", "first", "store"),
    [
        ("chunk_edges", "reduce_hip", "v_mul_f32", 11, sum_for_product, "out", r"global_store_dwordx\d"),
        ("chunk_edges", "attend_fp8", "v_mul_f32", 30, sum_for_product, "[mlo]", r"global_store_dword\w*"),
        ("chunk_edges", "attend_fp8", "v_add_f32", 3, other_register, "[mlo]", r"global_store_dword\w*"),
        ("full_table", "index_score", "v_max_f32", 5, other_register, "scores", "global_store_dword"),
        ("page_edges", "select_blocks", "v_cndmask_b32", 3, other_register, "topk", "global_store_dword"),
        ("page_edges", "insert_kv_fp8", "v_lshlrev_b32", 4, other_register, "kv_cache", r"global_store_byte\w*"),
    ],
)
def test_a_changed_instruction_is_found_with_its_writer(
    monkeypatch, case, kernel_name, name, which, change, first, store
):
    changed = with_a_changed_word(kernels.compiled(), kernel_name, name, which, change)
    monkeypatch.setattr(kernels, "compiled", lambda: changed)
    result = check_case(PACKAGE, case, OPTIONS)
    found = next(f for f in result.findings if f.kind == "source-machine")
    assert re.fullmatch(first, found.difference.output)
    assert found.element == PACKAGE.output(found.difference.output).describe(found.difference.index)
    assert found.writer.kernel == kernel_name
    assert re.fullmatch(store, found.writer.instruction)
    code, _ = instructions(changed.object, kernel_name, name, "VOP2")
    entry = code_object.load(changed.object).kernels[kernel_name].entry
    written_by = decode(bytes(code.data), entry + found.writer.offset, code.address)
    assert written_by.instruction.name == found.writer.instruction
    lines = "\n".join(case_lines(result, ""))
    assert f"writer  {found.writer.instruction} at {kernel_name}+0x{found.writer.offset:x}, workgroup" in lines


# ---- damaged inputs --------------------------------------------------------------------------------------------------


def at(name, index, value):
    def change(inputs):
        array = getattr(inputs, name).copy()
        array[index] = value
        return {name: array}

    return change


def replaced(name, function):
    return lambda inputs: {name: function(getattr(inputs, name))}


DAMAGED = {
    "a slot beyond the cache": (at("slots", 2, 10**6), ValueError, r"slots\[2\] is 1999936; expected less than"),
    "a slot taken twice": (
        lambda i: at("slots", 1, i.slots[0])(i),
        ValueError,
        r"slots\[0\] and slots\[1\] are both \d+; expected a slot a token",
    ),
    "an index slot beyond its cache": (
        at("index_slots", 0, 10**6),
        ValueError,
        r"slots\[0\] is 1000000; expected less than \d+",
    ),
    "slots of another type": (replaced("slots", lambda a: a.astype(np.float64)), TypeError, "slots has dtype float64"),
    "too few keys": (replaced("key", lambda a: a[1:].copy()), ValueError, r"key has shape \(6, 1, 128\)"),
    "values in float32": (replaced("value", lambda a: a.astype(np.float32)), TypeError, "value has dtype float32"),
    "an index key too short": (
        replaced("index_k", lambda a: np.ascontiguousarray(a[:, :64])),
        ValueError,
        r"index_k has shape \(7, 64\); expected \(7, 128\)",
    ),
    "queries of another type": (replaced("q", lambda a: a.view(np.int16)), TypeError, "q has dtype int16"),
    "too many index heads": (
        replaced("index_q", lambda a: np.repeat(a, 17, axis=1)),
        ValueError,
        "index_q has 17 heads; expected 1 to 16",
    ),
    "index heads that kv heads do not share": (
        replaced("index_q", lambda a: np.repeat(a, 2, axis=1)),
        ValueError,
        "scores has 2 index heads for 1 kv heads",
    ),
    "a block table entry below 0": (
        at("block_table", (3, 0), -1),
        ValueError,
        r"block_table\[3, 0\] is -2, read for row 3",
    ),
    "a block table entry beyond the pages": (
        at("block_table", (3, 0), 500),
        ValueError,
        r"table\[3, 0\] is 8000; expected 0 \.\. \d+, a page of both k and v",
    ),
    "an index block that is not there": (
        at("index_block_table", (6, 1), 77),
        ValueError,
        r"block_table\[6, 1\] is 77, read for row 6; expected 0 to \d+, the blocks of index_cache",
    ),
    "a request that is not there": (at("request", 4, 7), ValueError, r"request of row 4 is 7; expected 0 to 6"),
    "a row longer than its table": (at("position", 5, 4000), ValueError, r"kv_len of row 5 is 4001; expected at most"),
    "fewer requests than rows": (
        replaced("request", lambda a: a[1:].copy()),
        ValueError,
        r"rows\.kv_len has shape \(7,\); expected \(6,\)",
    ),
    "a scale of 0": (at("k_scale", 0, 0), ValueError, r"k_scale\[0\] is 0\.0; expected a positive finite number"),
    "a scale that is no number": (at("v_scale", 0, np.nan), ValueError, r"v_scale\[0\] is nan"),
    "two scales": (replaced("v_scale", lambda a: np.repeat(a, 2)), ValueError, r"v_scale has shape \(2,\)"),
    "a cache of float32": (replaced("kv_cache", lambda a: a.view(np.float32)), (TypeError, ValueError), "k has"),
    "index keys in bf16": (replaced("index_cache", lambda a: a.view(np.uint16)), TypeError, "index_cache has dtype"),
    "a cache with a block cut off": (
        replaced("kv_cache", lambda a: a.reshape(-1)[: -3 * 2048].copy()),
        ValueError,
        r"k has \d+ pages and v \d+ for 1 kv heads; expected a multiple of 8",
    ),
}


@pytest.mark.parametrize("entry", [-(2**31), -(2**30) - 1, 2**30, 2**31 - 1])
def test_garbage_of_the_block_table_is_no_block_where_int32_wraps(entry):
    inputs = inputs_of("page_edges")
    assert inputs.case.packed
    with pytest.raises(ValueError, match=r"block_table\[3, 0\] is -?\d+, read for row 3; expected 0 to"):
        job.run(Runner(), dataclasses.replace(inputs, **at("block_table", (3, 0), entry)(inputs)))
    request, columns = int(inputs.request[0]), inputs.block_table.shape[1]
    seen = max(-(-(int(p) + 1) // 128) for r, p in zip(inputs.request, inputs.position, strict=True) if r == request)
    assert seen < columns
    unseen = dataclasses.replace(inputs, **at("block_table", (request, slice(seen, None)), entry)(inputs))
    got, right = job.run(Runner(), unseen), job.run(Runner(), inputs)
    assert (got.table.tobytes(), got.out.tobytes()) == (right.table.tobytes(), right.out.tobytes())


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("on", ["source", "machine"])
def test_damaged_inputs_are_refused_by_name(name, on):
    change, error, message = DAMAGED[name]
    inputs = inputs_of("page_edges")
    damaged = dataclasses.replace(inputs, **change(inputs))
    runner = Runner() if on == "source" else kernels.machine(OPTIONS)
    with pytest.raises(error, match=message):
        job.run(runner, damaged)


def test_engines_have_names():
    with pytest.raises(ValueError, match="there is no engine 'gpu'; there are source, "):
        kernels.runner("gpu")


@pytest.mark.parametrize("change", [{"p": "x2"}, {"reduce": "triton"}])
def test_treatments_and_reductions_have_names(change):
    inputs = inputs_of("first_token")
    with pytest.raises(ValueError, match=f"there is no .*{next(iter(change.values()))}'"):
        job.run(Runner(), dataclasses.replace(inputs, case=dataclasses.replace(inputs.case, **change)))
