"""Compiles a kernel for every instruction LLVM has an intrinsic for; a program of its own, since LLVM may abort.

Prints a line a mnemonic: the name, then what stands in its kernel's assembly.
"""

import sys

from codegen.compile import compile_kernels
from codegen.intrinsics import has_intrinsic
from codegen.ir import Argument
from codegen.language import U32, U64, Kernel, Mask, constant, load, store, thread_id, trace
from gfx950.isa.registry import load as load_registry
from gfx950.lanes import U8, U16, Mode, Words, join, split

CLOCKS = ("s_memtime", "s_memrealtime")


class Operands:
    """Makes an operand of any type from memory, and stores any result."""

    def __init__(self, pointer):
        self.at = pointer + thread_id().to(U64) * 4
        self.used = 0

    def next_address(self):
        self.used += 1
        return self.at + 4096 * self.used

    def operand(self, kind):
        if kind is int:
            return 0
        if issubclass(kind, Words):
            return kind([load(self.next_address()) for _ in range(kind.count)])
        word = load(self.next_address())
        if kind is Mask:
            return word < 5
        if kind.width == 64:
            return join(word, load(self.next_address())).bits(kind)
        return (word if kind.width == 32 else word.to({16: U16, 8: U8}[kind.width])).bits(kind)

    def keep(self, value):
        for word in value.words if isinstance(value, Words) else self.words(value):
            store(self.next_address(), word)

    def words(self, value):
        if isinstance(value, Mask):
            return (value.select(constant(U32, 1), constant(U32, 0)),)
        if value.width == 64:
            return split(value.bits(U64))
        return (value.bits({8: U8, 16: U16, 32: U32}[value.width]).to(U32),) if value.width < 32 else (value.bits(U32),)


def kernel_of(instruction):
    def body(pointer):
        operands = Operands(pointer)
        asked = [p for p in instruction.parameters if p.kind is not Mode and p.place != "exec"]
        results = instruction(*(operands.operand(p.kind) for p in asked))
        for result in results if isinstance(results, tuple) else (results,):
            operands.keep(result)

    return Kernel(body, "k", (Argument("pointer", U64, True),), 64, 0)


def usable(instruction):
    memory = any(p.place in ("lds", "global", "scalar_memory") for p in instruction.parameters)
    return not (memory or instruction.flow or instruction.packed or instruction.name in CLOCKS)


def main():
    names = sys.argv[1:] or [n for n, i in load_registry().items() if usable(i) and has_intrinsic(i)]
    for name in names:
        print(name, end=" ", flush=True)
        compiled = compile_kernels([trace(kernel_of(load_registry()[name]))])
        print(*compiled.resources["k"].instructions, flush=True)


if __name__ == "__main__":
    main()
