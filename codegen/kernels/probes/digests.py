"""Digests of results that a kernel makes, and the kernel that keeps one of each block of an instruction's inputs.

A lane works through a block, in order of the inputs' numbers: digest = (digest ^ word) * 1099511628211 for each word of
each result, from 14695981039346656037 on, modulo 2^64. The registers of input number k of 2^bits are told by
`Operands`, most of which start from `every`: k << (32 - bits), plus as many top bits of the 32-bit product k *
0x9e3779b1. With 32 bits these are all words in order; with fewer they are in order still, evenly apart, so that all
exponents occur, and their low bits vary.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.apply import Static, run_instruction
from codegen.kernels.probes.probe import Step
from codegen.language import (
    I32,
    U32,
    U64,
    Kernel,
    Pointer,
    constant,
    kernel,
    loop,
    set_mode_register,
    store,
    thread_id,
    workgroup_id,
)
from gfx950.lanes import LANES

Words = NDArray[np.uint32]
FNV_PRIME, FNV_START = 1099511628211, 14695981039346656037
BLOCKS = 1024
SPREAD = 0x9E3779B1
# The registers of an input from its number and the number of bits that numbers do not have. Works on lanes of a kernel,
# and on the integers of a test.
Operands = Callable[[Any, Any], Sequence[Any]]


def every(number: Any, shift: Any) -> Any:
    """Word `number` of 2^(32 - shift) that are evenly apart."""
    return (number << shift) + (number * SPREAD >> 1 >> 31 - shift)


@dataclass(frozen=True)
class DigestStep(Step):
    """A step that keeps digests of an instruction's results: (blocks, 2) words, low first. count: inputs a block."""

    mnemonic: str = field(kw_only=True)
    count: int = field(kw_only=True)

    @property
    def inputs_digest(self) -> str:
        """SHA-256 of what tells the inputs: the kernel's name, which has that of their function, and the scalars."""
        return hashlib.sha256(f"{self.kernel.name} {super().inputs_digest}".encode()).hexdigest()


def digests_of(output: NDArray[Any]) -> NDArray[np.uint64]:
    """The digests in a step's output."""
    words = np.ascontiguousarray(output, dtype="<u4")
    return words.view("<u8").reshape(-1).astype(np.uint64)


def digested(count: I32, words_of: Callable[[I32], Sequence[U32]]) -> tuple[U32, U32]:
    """In a kernel: the digest of the words of 0 .. count - 1 in order, its low and its high half."""

    @loop(0, count, carry=(constant(U64, FNV_START),))
    def digest(i: I32, total: U64) -> tuple[U64]:
        for word in words_of(i):
            total = (total ^ word.to(U64)) * FNV_PRIME
        return (total,)

    return digest[0].to(U32), (digest[0] >> 32).to(U32)


@functools.cache
def digest_kernel(mnemonic: str, static: Static, operands: Operands) -> Kernel:
    """The kernel of one instruction: arguments are the bits that numbers lack, the inputs a block, and MODE."""
    name = "_".join(["digests", mnemonic, *(f"{key}{value}" for key, value in static), operands.__name__])

    def body(outputs: Pointer, shift: U32, count: U32, mode: U32) -> None:
        set_mode_register(mode)
        block = (workgroup_id() * LANES + thread_id()).bits(U32)
        first = block * count

        def results(i: I32) -> list[U32]:
            return run_instruction(mnemonic, static, list(operands(first + i.bits(U32), shift)))

        low, high = digested(count.bits(I32), results)
        store(outputs + block.to(U64) * 8, low, high)

    return kernel(block=LANES, name=name, exact=True)(body)


def digest_step(
    name: str,
    mnemonic: str,
    operands: Operands,
    bits: int,
    mode: int,
    static: Static = (),
    blocks: int = BLOCKS,
    shift: int | None = None,
) -> DigestStep:
    """The step that digests 2^bits inputs in blocks. shift: what `operands` is given, 32 - bits unless told."""
    if blocks % LANES or (1 << bits) % blocks:
        raise ValueError(
            f"{name}: 2^{bits} inputs in {blocks} blocks: blocks must be whole waves and divide the inputs"
        )
    count = (1 << bits) // blocks
    scalars = (32 - bits if shift is None else shift, count, mode)
    made = digest_kernel(mnemonic, static, operands)
    output = ((blocks, 2), "<u4")
    return DigestStep(name, made, blocks // LANES, (), output, scalars, mnemonic=mnemonic, count=count)
