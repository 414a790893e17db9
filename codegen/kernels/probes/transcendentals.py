"""P12: exp, log, rcp, rsq, sqrt, sin and cos.

First the digests that were published of RDNA's units: whether gfx950 has the same is seen at once. Then digests of all
inputs, tables of special numbers, and what a table of results needs (`gfx950.arithmetic.result_table`): all results of
a binade, or of two where the function repeats every two. The f16 forms are kept whole, of the f64 ones a sample.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.apply import run_instruction
from codegen.kernels.probes.conversions import NANS, signed
from codegen.kernels.probes.digests import DigestStep, digest_step, digests_of, every
from codegen.kernels.probes.packed_results import ResultsStep
from codegen.kernels.probes.probe import Probe, Size, Step
from codegen.kernels.probes.value_step import MODES, ValueStep, value_step
from codegen.language import U32, U64, Kernel, Pointer, kernel, set_mode_register, store, thread_id, workgroup_id
from gfx950.arithmetic.result_table import PUBLISHED_DIGESTS
from gfx950.isa.registry import lookup
from gfx950.lanes import LANES

Words = NDArray[np.uint32]
_ONE, _HALF, _BINADE = 0x3F800000, 0x3F000000, 23
# First inputs of the binades of which all results are kept.
BINADES = {
    "v_exp_f32": (_ONE, _ONE | 1 << 31),
    "v_log_f32": (_HALF, _ONE),
    "v_rcp_f32": (_ONE,),
    "v_rsq_f32": (_ONE, _ONE + (1 << _BINADE)),
    "v_sqrt_f32": (_ONE, _ONE + (1 << _BINADE)),
    "v_sin_f32": (_HALF,),
    "v_cos_f32": (_HALF,),
}
HALVES = ("v_exp_f16", "v_log_f16", "v_rcp_f16", "v_rsq_f16", "v_sqrt_f16", "v_sin_f16", "v_cos_f16")
DOUBLES = ("v_rcp_f64", "v_rsq_f64", "v_sqrt_f64")
# Instructions that may have the unit of another, whose digests of all inputs are kept beside it.
SAME_UNIT = {"v_rcp_iflag_f32": "v_rcp_f32", "v_exp_legacy_f32": "v_exp_f32", "v_log_legacy_f32": "v_log_f32"}
ALL_PUBLISHED = 24  # bits of the inputs of a published digest


# ---- Published digests -----------------------------------------------------------------------------------------------


def fractions(number: Any, shift: Any) -> Sequence[Any]:
    """i * 2^-24 of the low `shift` bits of a number; the bits above are its sign, and powers of two that scale it."""
    block = number >> shift
    i = number - (block << shift)
    scaled = lookup("v_cvt_f32_u32")(i).bits(U32) + ((block >> 1) << 23) - (24 << 23)
    return [(i == 0).select(U32.constant(i.engine, 0), scaled) | (block & 1) << 31]


def from_half_on(number: Any, shift: Any) -> Sequence[Any]:
    """Consecutive words, 2^24 for each number above the low `shift` bits, from that of 0.5 on."""
    block = number >> shift
    return [number - (block << shift) + (block << 24) + _HALF]


def published_digest(output: NDArray[Any], mnemonic: str) -> dict[str, tuple[int, int]]:
    """What was published of RDNA and what a step of `_published` gave, by the inputs' text."""
    found = digests_of(output)
    ones = [one for one in PUBLISHED_DIGESTS if one.mnemonic == mnemonic]
    return {one.text: (one.digest, int(found[block])) for block, one in enumerate(ones)}


def _published(size: Size) -> Iterator[DigestStep]:
    """A lane for each published digest; the other lanes go on in other binades."""
    bits = min(ALL_PUBLISHED, size.inputs - 8)
    for mnemonic, operands in (("v_exp_f32", fractions), ("v_log_f32", from_half_on)):
        name, mode = f"P12/published/{mnemonic}", MODES["default"]
        yield digest_step(name, mnemonic, operands, bits + 6, mode, blocks=LANES, shift=bits)


# ---- All results of a range ------------------------------------------------------------------------------------------


@functools.cache
def results_kernel(mnemonic: str) -> Kernel:
    """The kernel that stores the results of consecutive inputs."""

    def body(outputs: Pointer, first: U32, mode: U32) -> None:
        set_mode_register(mode)
        index = (workgroup_id() * LANES + thread_id()).bits(U32)
        store(outputs + index.to(U64) * 4, run_instruction(mnemonic, (), [index + first])[0])

    return kernel(block=LANES, name=f"results_{mnemonic}", exact=True)(body)


def results_step(mnemonic: str, first: int, bits: int, mode: str = "default") -> ResultsStep:
    """The step that keeps the results of 2^bits inputs."""
    count = 1 << bits
    scalars = first, MODES[mode]
    name = f"P12/results/{mnemonic}/{first:#x}/{mode}"
    made, output = results_kernel(mnemonic), ((count,), "<u4")
    return ResultsStep(name, made, count // LANES, (), output, scalars, mnemonic=mnemonic, first=first, mode=scalars[1])


# ---- Special numbers -------------------------------------------------------------------------------------------------


def special_values() -> Words:
    """All exponents of f32 with mantissas at the edges, and NaNs; of both signs."""
    fractions_ = np.array([0, 1, 0x2AAAAA, 0x400000, 0x7FFFFF], np.uint32)
    table = (np.arange(256, dtype=np.uint32)[:, None] << np.uint32(_BINADE)) | fractions_
    return signed(np.concatenate([table.reshape(-1), np.array(NANS, np.uint32)]))


def double_values() -> list[Words]:
    """f64 numbers as low and high words: exponents at the ends, between, and two binades of random mantissas."""
    random = np.random.default_rng(12)
    exponents = np.array([0, 1, 2, 511, 1022, 1023, 1024, 1025, 1535, 2045, 2046, 2047], np.uint64)
    edges = np.array([0, 1, 1 << 22, 1 << 28, 1 << 29, 1 << 51, (1 << 51) + 1, (1 << 52) - 1], np.uint64)
    table = ((exponents[:, None] << np.uint64(52)) | edges).reshape(-1)
    sample = random.integers(0x3FF << 52, 0x401 << 52, 1024, dtype=np.uint64)
    values = np.concatenate([table, table | np.uint64(1 << 63), sample])
    return [(values & np.uint64(0xFFFFFFFF)).astype(np.uint32), (values >> np.uint64(32)).astype(np.uint32)]


def _specials() -> Iterator[ValueStep]:
    for mnemonic in BINADES:
        for mode in ("default", "flush"):
            yield value_step("P12/special", mnemonic, [special_values()], mode=mode)
    for mnemonic in DOUBLES:
        for mode in ("default", "flush", "up"):
            yield value_step("P12/special", mnemonic, double_values(), mode=mode)


def one_input(number: Any, shift: Any) -> Sequence[Any]:
    """A word."""
    return [every(number, shift)]


def _p12(size: Size) -> Iterator[Step]:
    yield from _published(size)
    for mnemonic in (*BINADES, *SAME_UNIT):
        for mode in ("default", "flush")[: 1 if mnemonic in SAME_UNIT else 2]:
            yield digest_step(f"P12/digests/{mnemonic}/{mode}", mnemonic, one_input, size.inputs, MODES[mode])
    yield from _specials()
    for mnemonic, binades in BINADES.items():
        for first in binades:
            yield results_step(mnemonic, first, min(_BINADE, size.inputs - 4))
    for mnemonic in HALVES:
        for mode in ("default", "flush"):
            yield results_step(mnemonic, 0, 16, mode)


PROBES = (Probe("P12", "what the transcendental instructions return", _p12),)
