"""Random legal instructions: bits for every operand and modifier of a way of writing, within the rules of the ISA."""

from __future__ import annotations

import random

from gfx950.isa.encoding import Decoded, blank, decode, encode
from gfx950.isa.legality import VECTORS
from gfx950.isa.operand_codes import INLINE_FLOATS, LITERAL, TWO_PI
from gfx950.isa.text import immediates, memory, modifiers, operands, packed, scalar
from gfx950.isa.text.fields import Field
from gfx950.isa.text.registers import SOURCES
from gfx950.isa.text.syntax import Syntax

NOTHING_MORE = LITERAL  # a literal or a mask of lanes has taken the one scalar operand


class Generator:
    """Fills one instruction; remembers the scalar register it has used."""

    def __init__(self, syntax: Syntax, rng: random.Random) -> None:
        self.syntax = syntax
        self.rng = rng
        self.decoded = blank(syntax.instruction, syntax.form, syntax.extra)
        self.bus: int | None = None
        implicit = {"carry_in", "vcc"} & {p.name for p in syntax.instruction.parameters}
        self.bus_words = 0
        if implicit or any(isinstance(o, operands.TrailingLiteral) for o in syntax.operands):
            self.bus = NOTHING_MORE

    def instruction(self) -> Decoded:
        """Modifiers first: some say how wide an operand is."""
        for slot, value in (*self.syntax.defaults, *self.syntax.fixed):
            slot.put(self.decoded, value)
        for modifier in self.syntax.modifiers:
            if self.rng.random() < 0.5 or isinstance(modifier, modifiers.DppControl):
                self.modifier(modifier)
        for operand in self.syntax.operands:
            self.operand(operand)
        for slot, value in self.syntax.fixed:
            slot.put(self.decoded, value)
        code = encode(self.decoded)
        return decode(code, 0x1000, 0x1000)

    # ---- modifiers --------------------------------------------------------------------------------------------------

    def modifier(self, item) -> None:
        rng, d = self.rng, self.decoded
        match item:
            case modifiers.Flag() | modifiers.BoundControl():
                item.slot.put(d, 1)
            case modifiers.Value(name="cbsz" | "blgp") if "f8f6f4" in self.syntax.instruction.name:
                item.slot.put(d, rng.randrange(5))
            case modifiers.Value():
                item.slot.put(d, rng.getrandbits(item.count))
            case modifiers.BitList():
                for slot in item.slots:
                    if not isinstance(slot, packed.Zero):
                        slot.put(d, rng.getrandbits(1))
            case modifiers.Choice():
                item.slot.put(d, rng.randrange(len(item.names)))
            case modifiers.OutputScale():
                item.slot.put(d, rng.randrange(4))
            case modifiers.DppControl():
                item.slot.put(d, self.dpp_control(item))
            case modifiers.Swizzle():
                item.slot.put(d, self.swizzle())
            case modifiers.BufferFormat():
                item.data.put(d, rng.randrange(16))
                item.number.put(d, rng.randrange(8))
            case _:
                raise AssertionError(item)

    def dpp_control(self, item) -> int:
        if item.only_broadcast:
            return 0x150 + self.rng.randrange(16)
        numbered = [first + n for first, numbers in modifiers.DPP_NUMBERED.values() for n in numbers]
        return self.rng.choice([self.rng.randrange(256), *numbered, *modifiers.DPP_NAMED])

    def swizzle(self) -> int:
        rng = self.rng
        low = rng.choice([rng.getrandbits(15), 0x1F | 1 << rng.randrange(10, 15), 0x18 | 3 << 5, 0x1F | 7 << 10])
        text = immediates.swizzle_text(rng.choice([low, 0x8000 | rng.getrandbits(8), 0xC000 | rng.getrandbits(14)]))
        return immediates.swizzle_offset(text)

    # ---- operands ---------------------------------------------------------------------------------------------------

    def operand(self, item) -> None:
        rng, d = self.rng, self.decoded
        match item:
            case operands.Vector():
                self.vector(item)
            case operands.Scalar():
                item.slot.put(d, self.scalar_code(item) // item.scale)
            case operands.Source():
                self.source(item)
            case operands.Signed():
                for slot in (item.neg, item.absolute):
                    if slot is not None:
                        slot.put(d, rng.getrandbits(1))
                if item.sext is not None and rng.random() < 0.3:
                    self.only_sext(item)
                self.source(item.source)
            case operands.Extended():
                item.sext.put(d, rng.getrandbits(1))
                self.source(item.source)
            case operands.SdwaMask():
                if rng.random() < 0.5:
                    Field("sd", "sdwa").put(d, 1)
                    Field("sdst", "sdwa").put(d, rng.randrange(0, 100, 2))
            case operands.Word():
                pass
            case packed.MatrixOperand():
                self.vector(operands.Vector(item.slot, 8, "va", item.acc, 256))
            case memory.BufferAddress():
                d.fields["vaddr"] = rng.randrange(0, 254, 2) if d.fields["offen"] or d.fields["idxen"] else 0
            case _:
                self.immediate(item)

    def immediate(self, item) -> None:
        rng, d = self.rng, self.decoded
        match item:
            case operands.Number():
                item.slot.put(d, rng.getrandbits(item.count))
            case operands.TrailingLiteral() | scalar.LiteralNumber():
                d.literal = rng.getrandbits(16 if getattr(item, "kind", "") == "f16" else 32)
            case immediates.WaitCounters():
                item.slot.put(d, rng.getrandbits(16) & 0xCF7F)
            case immediates.HardwareRegister() | scalar.Branch():
                item.slot.put(d, rng.getrandbits(16))
            case immediates.Message():
                item.slot.put(d, rng.choice([*range(128), 0x112, 0x222, 0x333, 0x313]))
            case immediates.IndexMode():
                item.slot.put(d, rng.randrange(16))
            case _:
                raise AssertionError(item)

    def only_sext(self, item) -> None:
        item.neg.put(self.decoded, 0)
        item.absolute.put(self.decoded, 0)
        item.sext.put(self.decoded, 1)

    def vector(self, item: operands.Vector) -> None:
        step = 1 if (item.words == 1 and not item.even) or item.any_start else 2
        item.slot.put(self.decoded, self.rng.randrange(0, 257 - item.words, step) + item.offset)
        if item.acc is not None and not item.follows:
            item.acc.put(self.decoded, self.rng.getrandbits(1))

    def scalar_code(self, item: operands.Scalar) -> int:
        rng = self.rng
        if item.off is not None and rng.random() < 0.3:
            return item.off
        step = min(item.words, 4)
        if item.words == 1:
            special = [102, 103, 104, 105, 106, 107, 108, 123]
        else:
            special = [106] if item.words == 2 else [108, 112] if item.words == 4 else []
        return rng.choice([*[rng.randrange(0, 103 - item.words, step) for _ in range(6)], *special])

    def source(self, item: operands.Source) -> None:
        rng = self.rng
        kinds = ["vector"] * (3 if item.files else 0)
        kinds += ["scalar"] * item.scalars + ["constant"] * item.constants + ["literal"] * item.literal
        kind = rng.choice(kinds)
        limited = self.syntax.form in VECTORS  # one scalar register at most, and no literal beside it [6.2.1]
        if limited and kind in ("scalar", "literal") and self.bus is not None:
            again = self.bus < 128 and item.scalars and item.words == self.bus_words
            kind = "scalar" if again else "constant" if item.constants else "vector"
        if kind == "vector":
            self.vector(operands.Vector(item.slot, item.words, item.files, item.acc, item.offset, follows=item.follows))
        elif kind == "scalar":
            code = self.bus if limited and self.bus is not None else self.scalar_source(item)
            self.bus, self.bus_words = code, item.words
            item.slot.put(self.decoded, code)
        elif kind == "constant":
            item.slot.put(self.decoded, rng.choice([rng.randrange(128, 209), *INLINE_FLOATS, TWO_PI]))
        else:
            self.bus = NOTHING_MORE
            item.slot.put(self.decoded, LITERAL)
            narrow = item.kind in ("f16", "bf16", "i16")
            if self.decoded.literal is None:
                self.decoded.literal = rng.getrandbits(16 if narrow else 32)

    def scalar_source(self, item: operands.Source) -> int:
        if item.words == 1 and self.rng.random() < 0.2:
            return self.rng.choice([102, 105, 106, 107, 115, 124, 126, 127, *list(SOURCES)])
        if item.words == 2 and self.rng.random() < 0.2:
            return self.rng.choice([102, 104, 106, 110, 126])
        return self.rng.randrange(0, 103 - item.words, min(item.words, 4))
