"""Kernels of one exact instruction: operands from memory, results to memory, and what stands in the code."""

import re

import numpy as np

from codegen.ir import Argument
from codegen.language import U32, U64, Kernel, Mask, constant, exact, load, masked, store, thread_id, trace
from codegen.machine_text import plan
from gfx950.isa.registry import load as load_registry
from gfx950.isa.text import listing
from gfx950.lanes import Words, in_registers, registers_of

SUFFIX = re.compile(r"_(e32|e64|dpp|sdwa)$")


def plain(mnemonic):
    """A mnemonic without the suffix of its form."""
    return SUFFIX.sub("", mnemonic)


class Form:
    """An instruction with fields, maybe under a mask of lanes."""

    def __init__(self, name, fields=None, extra="", mask=None, lds=0):
        self.name, self.fields, self.extra, self.mask, self.lds = name, fields or {}, extra, mask, lds
        self.plan = plan(name, tuple(sorted(self.fields.items())), extra, mask is not None)

    @property
    def words_in(self):
        olds = self.plan.untied if self.plan.keeps else ()
        return sum(r.words if not r.is_mask else 1 for r in (*self.plan.sources, *olds))

    @property
    def words_out(self):
        return sum(r.words if not r.is_mask else 1 for r in self.plan.results)

    def body(self, a, out, ordinary=False):
        """Loads the operands, then the old registers, in order; stores the results."""
        number = iter(range(1000))
        at = thread_id().to(U64) * 4

        def operand(register):
            words = [load(a + at + 256 * next(number)) for _ in range(1 if register.is_mask else register.words)]
            return (words[0] & 1) == 1 if register.is_mask else in_registers(words)

        given = {r.name: operand(r) for r in self.plan.sources}
        olds = tuple(operand(r) for r in (self.plan.untied if self.plan.keeps else ()))
        made = self.called(given, olds[0] if len(olds) == 1 else olds or None, ordinary)
        kept = iter(range(1000))
        for value in made if isinstance(made, tuple) else (made,):
            for part in self.parts(value):
                store(out + at + 256 * next(kept), part)

    def called(self, given, old, ordinary):
        instruction = load_registry()[self.name]
        static = self.fields | ({"extra": self.extra} if self.extra else {})
        if ordinary:
            zeros = {p.name: 0 for p in instruction.parameters if p.kind is int}
            return instruction(**given, **(zeros | static))
        if self.mask is None:
            return exact(instruction, old=old, **given, **static)
        bits = constant(U64, self.mask)
        lanes = Mask(bits.engine, bits.engine.apply("lanes_of", 1, bits.raw))
        return masked(lanes, instruction, old, **given, **static)

    def parts(self, value):
        if isinstance(value, Mask):
            return (value.select(constant(U32, 1), 0),)
        if isinstance(value, Words):
            return value.words
        return registers_of(value.bits(U64 if value.width == 64 else U32))

    def program(self, label, ordinary=False):
        """The kernel of pointers `a` and `out`, traced. ordinary: called as any kernel calls it."""
        arguments = (Argument("a", U64, True), Argument("out", U64, True))
        return trace(Kernel(lambda a, out: self.body(a, out, ordinary), label, arguments, 64, self.lds))


def code_lines(loaded, name):
    """The instructions of one kernel of a code object, as text."""
    kernel, symbol = loaded.kernels[name], loaded.symbols[name]
    run = next(r for r in loaded.code if r.address <= kernel.entry < r.address + len(r.data))
    data = run.data[kernel.entry - run.address : kernel.entry - run.address + symbol.size]
    return [text for _, _, text in listing(data, kernel.entry)]


def over_registers(text):
    """A line with every register replaced by its width, for comparison."""
    return re.sub(r"\b([vs])(?:\[(\d+):(\d+)\]|\d+\b)", lambda m: f"{m[1]}{int(m[3]) - int(m[2]) if m[2] else 0}", text)


def random_words(rng, count):
    """Registers of random bits, some of them special floats."""
    words = rng.integers(0, 1 << 32, (max(1, count), 64), dtype=np.uint32)
    special = np.array([0, 0x80000000, 0x3F800000, 0x7F800000, 0x7FC00001, 1, 0x3C003C00, 0xFFFFFFFF], np.uint32)
    chosen = rng.random(words.shape) < 0.2
    words[chosen] = special[rng.integers(0, len(special), int(chosen.sum()))]
    return words
