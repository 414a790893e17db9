"""One-instruction kernels of exact instructions: operands from memory, results to memory, and what stands in the code."""

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

    def program(self, label):
        def body(a, out):
            number = iter(range(1000))
            at = thread_id().to(U64) * 4

            def word():
                return load(a + at + 256 * next(number))

            def operand(register):
                if register.is_mask:
                    return (word() & 1) == 1
                return in_registers([word() for _ in range(register.words)])

            given = [operand(r) for r in self.plan.sources]
            olds = tuple(operand(r) for r in (self.plan.untied if self.plan.keeps else ()))
            old = olds[0] if len(olds) == 1 else olds or None
            instruction = load_registry()[self.name]
            static = self.fields | ({"extra": self.extra} if self.extra else {})
            named = dict(zip((r.name for r in self.plan.sources), given, strict=True)) | static
            if self.mask is None:
                made = exact(instruction, old=old, **named)
            else:
                bits = constant(U64, self.mask)
                lanes = Mask(bits.engine, bits.engine.apply("lanes_of", 1, bits.raw))
                made = masked(lanes, instruction, old, **named)
            kept = iter(range(1000))
            for value in made if isinstance(made, tuple) else (made,):
                if isinstance(value, Mask):
                    value = value.select(constant(U32, 1), 0)
                elif not isinstance(value, Words):
                    value = value.bits(U64 if value.width == 64 else U32)
                for part in registers_of(value):
                    store(out + at + 256 * next(kept), part)

        return trace(Kernel(body, label, (Argument("a", U64, True), Argument("out", U64, True)), 64, self.lds))


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
