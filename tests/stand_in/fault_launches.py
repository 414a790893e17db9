"""Small launches of real machine code to put faults into: kernels of codegen, of both attentions, of C, of assembly.

`LAUNCHES` has what makes each, by name: a subject as `gfx950 diff FILE` makes it.
"""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
from c_kernels import source_of
from instrumented_kernels import MATRICES, PLACES, assembly_kernel, c_kernels
from kernel_builds import compile_c

from codegen.compile import compile_kernels
from codegen.kernels.drafter_attention import launch as drafter
from codegen.kernels.lanes import at, butterfly, fp8_pack4, hw_exp2, ld
from codegen.kernels.sparse_attention.launch import program
from codegen.kernels.sparse_attention.reduce import REDUCERS
from codegen.kernels.sparse_attention.select import select_blocks_kernel
from codegen.language import (
    F32,
    I32,
    U32,
    Pointer,
    barrier,
    constant,
    kernel,
    lds_read,
    lds_write,
    loop,
    maximum,
    store,
    thread_id,
    when,
    workgroup_id,
)  # fmt: skip
from emu.geometry import Geometry
from emu.run_arguments import RunArgument
from gfx950.isa.matrix import v_mfma_scale_f32_16x16x128_f8f6f4
from gfx950.isa.vop1 import v_rcp_f32
from gfx950.lanes import B128, B256
from gfx950.random_bits import bell, bits32, permutation, uniform
from golden.diff import FileSubject


def subject(code: bytes, name: str, grid, block, *values) -> FileSubject:
    """A launch. values: numbers, arrays that are read only, and [an array that is compared]."""
    arguments = []
    for n, value in enumerate(values):
        if isinstance(value, list):
            arguments.append(RunArgument(f"{n}.npy:{n}.npy", value[0], output=f"{n}.npy"))
            continue
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
        arguments.append(RunArgument(str(n), value))
    return FileSubject(code, name, Geometry.of_blocks(grid, block), arguments, linked=True)


def words(key: str, *shape: int):
    return bits32(f"faults {key}", shape).copy()


def zeros(*shape: int, dtype=np.uint32):
    return [np.zeros(shape, dtype)]


# ---- codegen ---------------------------------------------------------------------------------------------------------


@kernel(block=128, lds=512)
def mixed(a: Pointer, out: Pointer, turns: I32) -> None:
    """Matrix instructions in a loop, words passed through LDS and between lanes, exp, rcp, E4M3, lanes that part."""
    tid = thread_id()
    number = workgroup_id(0) * 128 + tid
    left = [*ld(a, number * 8, 4), *ld(a, number * 8 + 4, 4)]

    @loop(0, turns, carry=tuple(constant(U32, 0) for _ in range(4)))
    def sums(i: I32, *acc: U32):
        lds_write(tid * 4, left[0] ^ (i + 1).bits(U32))
        barrier()
        other = lds_read((tid ^ 65) * 4)
        barrier()
        right = B256([other, *left[1:]])
        return tuple(v_mfma_scale_f32_16x16x128_f8f6f4(B256(left), right, B128(list(acc)), 127, 127, 0, 0, 0, 0).words)

    values = [s.bits(F32) for s in sums]
    top = butterfly(maximum(maximum(*values[:2]), maximum(*values[2:])), (8, 4, 2, 1), maximum)
    powers = [hw_exp2((v - top) * 0.0078125) for v in values]
    share = v_rcp_f32(powers[0] + powers[1] + powers[2] + powers[3])
    packed = fp8_pack4(*[p * share for p in powers])
    store(at(out, number * 8), packed, top.bits(U32))
    with when(tid % 4 == 1):
        store(at(out, number * 8), packed ^ 0x55, share.bits(U32))


@functools.cache
def codegen_kernels() -> bytes:
    """The kernels of codegen, linked, in one code object."""
    kernels = [program(k) for k in (mixed, select_blocks_kernel, *REDUCERS.values())]
    return compile_kernels([*kernels, drafter.programs()[1]]).code_object


def mixed_launch() -> FileSubject:
    small = (words("mixed", 2 * 128, 8) & 0xBFBFBFBF) | 0x08080808  # E4M3 without NaNs
    return subject(codegen_kernels(), "mixed", 2, 128, small, zeros(256, 2), 3)


def merge_launch() -> FileSubject:
    """The drafter attention's merge of three partials, one row of one request."""
    partials = np.zeros((3, 58368 // 4), np.float32)
    partials[:, :128] = bell("faults m", (3, 128)) * 3
    partials[:, 128:256] = uniform("faults l", (3, 128)) * 9 + 1
    partials[:, 256:] = bell("faults o", (3, 58368 // 4 - 256)) * 20
    out = zeros(7, 2048, dtype=np.uint8), zeros(7, 64, dtype=np.uint8)
    return subject(codegen_kernels(), "drafter_merge", (2, 1, 1), 512, partials, *out, 3)


def reduce_launch(backend: str) -> FileSubject:
    """The sparse attention's merge of splits, one of the two sequences short."""
    ctx = np.array([2048, 3], np.int32)
    o = bell("faults reduce o", (2, 5, 16, 128)).astype(ml_dtypes.bfloat16).view(np.uint16)
    m = (bell("faults reduce m", (2, 5, 16)) * 4).astype(np.float32)
    l = (uniform("faults reduce l", (2, 5, 16)) * 300 + 1).astype(np.float32)  # noqa: E741
    code, name = codegen_kernels(), REDUCERS[backend].name
    return subject(code, name, 2, 256, o, m, l, ctx, zeros(2, 16, 128, dtype=np.uint16), 5)


def select_launch() -> FileSubject:
    """The sparse attention's selection: three rows, two kv heads."""
    scores = bell("faults scores", (1, 3, 40)).astype(np.float32)
    table = permutation("faults table", 80).astype(np.int32).reshape(2, 40)
    request, kv_len = np.array([0, 1, 1], np.int32), np.array([4000, 700, 5001], np.int32)
    out = zeros(1, 3, 16, dtype=np.int32), zeros(6, 128, dtype=np.int32), zeros(6, dtype=np.int32)
    numbers = (3, 40, 40, 2, 2, 8)
    return subject(codegen_kernels(), "select_blocks", (3, 1), 64, scores, table, request, kv_len, *out, *numbers)


# ---- C and assembly --------------------------------------------------------------------------------------------------


def c_launch(name: str, block=128, out: int = 256) -> FileSubject:
    return subject(c_kernels(), name, 2, block, zeros(out), 3)


def program_launch(file: str, name: str, takes: int, gives: int, level: str = "-O1") -> FileSubject:
    """A PROGRAM of tests/c_programs: 96 of 128 work-items of two workgroups are there."""
    given = words(name, 96, takes) & 0xBFFFFFFF  # floats that are not too large
    return subject(compile_c(source_of(file), level), name, 2, 64, given, zeros(96, gives), 96)


def lanes_launch(name: str, rows: int) -> FileSubject:
    given = words(name, 2, 128)
    return subject(compile_c(source_of("lanes.c"), "-O1"), name, 2, 64, given, zeros(rows, 128), 128)


def group_launch(name: str, grid, block, *values) -> FileSubject:
    return subject(compile_c(source_of("groups.c"), "-O1"), name, grid, block, *values)


def tiled_launch() -> FileSubject:
    a, b = (bell(f"faults tiles {side}", (20, 20)).astype(np.float32) for side in "ab")
    return group_launch("tiled_product", (2, 2, 1), (16, 16, 1), a, b, zeros(20, 20, dtype=np.float32), 20, 20, 20)


def to_lds_launch() -> FileSubject:
    code = compile_c(source_of("memory.c"), "-O1")
    return subject(code, "loads_to_lds", 1, 256, words("to lds", 256), zeros(256))


def assembly_launch(name: str, body: str, **directives: int) -> FileSubject:
    return subject(assembly_kernel(name, body, **directives), name, 2, 128, zeros(1024), 3)


LAUNCHES = {
    "mixed": mixed_launch,
    "merge": merge_launch,
    "reduce": lambda: reduce_launch("hip"),
    "reduce apart": lambda: reduce_launch("flydsl"),
    "select": select_launch,
    "matrices": lambda: assembly_launch("matrices", MATRICES, next_free_vgpr=48, accum_offset=24),
    "places": lambda: assembly_launch("places", PLACES),
    "loops": lambda: c_launch("loops"),
    "shared": lambda: c_launch("shared"),
    "calls": lambda: c_launch("calls"),
    "three": lambda: subject(c_kernels(), "three", (1, 2, 1), (7, 5, 3), zeros(210), 2),
    "prefix sums": lambda: group_launch("prefix_sums", 2, 128, words("sums", 256), zeros(256)),
    "bitonic sort": lambda: group_launch("bitonic_sort", 2, 128, [words("sort", 256)]),
    "tiled product": tiled_launch,
    "to lds": to_lds_launch,
    "moves": lambda: lanes_launch("data_parallel_moves", 22),
    "reductions": lambda: lanes_launch("reductions", 6),
    "votes": lambda: lanes_launch("votes", 14),
    "doubles": lambda: program_launch("floating.c", "double_basics", 6, 18),
    "packed pairs": lambda: program_launch("instructions.c", "packed_pairs", 3, 11),
    "conversions": lambda: program_launch("floating.c", "conversions_to_integers", 4, 14),
    "siphash": lambda: program_launch("hashing.c", "siphash", 8, 2),
}  # fmt: skip
