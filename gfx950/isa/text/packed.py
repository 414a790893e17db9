"""How VOP3P instructions are written: packed and dot arithmetic, MFMA, SMFMAC. [CDNA4 ISA 6.7, 7, 12.10, 13.3.6]"""

from __future__ import annotations

from dataclasses import dataclass

from gfx950.isa.encoding import Decoded
from gfx950.isa.operand_codes import FORMAT_REGISTERS
from gfx950.isa.registry import Instruction
from gfx950.isa.text.fields import Field, Slot, bit
from gfx950.isa.text.modifiers import BitList, Flag, Modifier, Value
from gfx950.isa.text.operands import Operand, Signed, Source, Vector
from gfx950.isa.text.problems import TextProblem
from gfx950.isa.text.syntax import Syntax, constants_of, registers_of
from gfx950.isa.text.vector import sources_of

ACC_CD = bit("acc_cd", 0)


def packed(instruction: Instruction) -> tuple[Syntax, ...]:
    """VOP3P but for matrices. The mixed-precision ones write NEG_HI as an absolute value."""
    mixed = instruction.name.startswith("v_fma_mix")
    operands: list[Operand] = [Vector(Field("vdst"), registers_of(instruction, r)) for r in instruction.results]
    indexes = []
    for index, parameter in sources_of(instruction):
        kind, words = constants_of(instruction, parameter), registers_of(instruction, parameter)
        source = Source(Field(parameter.name), words, kind)
        operands.append(Signed(source, bit("neg", index), bit("neg_hi", index)) if mixed else source)
        indexes.append(index)
    default = 0 if mixed else 1
    modifiers = _halves(instruction, indexes, default)
    if instruction.results:  # V_MFMA_LD_SCALE has none, and no arithmetic to modify
        modifiers = (*modifiers, *(() if mixed else _negations(indexes)), Flag("clamp", bit("clamp", 0)))
    defaults = ((Field("op_sel_hi"), 3 * default), (Field("op_sel_hi2"), default))
    return (Syntax(instruction, instruction.name, "VOP3P", tuple(operands), modifiers, defaults=defaults),)


def _halves(instruction: Instruction, indexes: list[int], default: int) -> tuple[Modifier, ...]:
    if "_dot" in instruction.name:
        return ()
    low = tuple(bit("op_sel", i) for i in indexes)
    high = tuple(bit("op_sel_hi", i) if i < 2 else bit("op_sel_hi2", 0) for i in indexes)
    return BitList("op_sel", low), BitList("op_sel_hi", high, default)


def _negations(indexes: list[int]) -> tuple[Modifier, ...]:
    return tuple(
        BitList(name, tuple(bit(field, i) for i in indexes))
        for name, field in (("neg_lo", "neg"), ("neg_hi", "neg_hi"))
    )


# ---- matrices -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatrixOperand:
    """A or B of an F8F6F4 instruction: as many registers as its format asks for."""

    slot: Slot
    format: Slot
    acc: Slot

    def show(self, decoded: Decoded) -> str:
        """v[0:7], v[0:5] or v[0:3]."""
        return Vector(self.slot, self._words(decoded), "va", self.acc, 256).show(decoded)

    def _words(self, decoded: Decoded) -> int:
        return FORMAT_REGISTERS.get(self.format.get(decoded), 8)

    def read(self, decoded: Decoded, text: str) -> None:
        """The registers of the format, which is read first."""
        code = self.format.get(decoded)
        if code not in FORMAT_REGISTERS:
            raise TextProblem(f"formats are 0 (fp8), 1 (bf8), 2 (fp6), 3 (bf6) and 4 (fp4), found {code}")
        Vector(self.slot, self._words(decoded), "va", self.acc, 256).read(decoded, text)


def matrix(instruction: Instruction) -> tuple[Syntax, ...]:
    """MFMA, SMFMAC, the scaled MFMA and the moves of accumulation registers."""
    if "accvgpr" in instruction.name:
        return (_accumulator_move(instruction),)
    operands: list[Operand] = [Vector(Field("vdst"), registers_of(instruction, instruction.results[0]), "va", ACC_CD)]
    for index, parameter in sources_of(instruction):
        slot, words = Field(parameter.name), registers_of(instruction, parameter)
        if index == 2:
            operands.append(_third(instruction, slot, words, constants_of(instruction, parameter)))
        elif parameter.place in ("matrix_a", "matrix_b"):
            operands.append(MatrixOperand(slot, Field("cbsz" if index == 0 else "blgp"), bit("acc", index)))
        else:
            operands.append(Vector(slot, words, "va", bit("acc", index), 256))
    if instruction.encoding == "MAI_SCALE":
        return (_scaled(instruction, operands),)
    modifiers = _matrix_modifiers(instruction)
    return (Syntax(instruction, instruction.name, "VOP3P", tuple(operands), modifiers, fixed=_unscaled(instruction)),)


def _unscaled(instruction: Instruction) -> tuple[tuple[Slot, int], ...]:
    return ((bit("abid", 0), 0),) if "f8f6f4" in instruction.name else ()


def _third(instruction: Instruction, slot: Slot, words: int, kind: str) -> Operand:
    """C of an MFMA, the indexes of an SMFMAC."""
    if "smfmac" in instruction.name:
        return Vector(slot, words, offset=256)
    return Source(slot, words, kind, "va", ACC_CD, scalars=False, follows=True)


def _matrix_modifiers(instruction: Instruction) -> tuple[Modifier, ...]:
    cbsz, abid, blgp = Value("cbsz", Field("cbsz"), 3), Value("abid", Field("abid"), 4), Value("blgp", Field("blgp"), 3)
    if "f8f6f4" in instruction.name:
        return cbsz, blgp
    if "smfmac" in instruction.name:
        return cbsz, abid
    if instruction.name.endswith("_f64"):  # BLGP negates A, B and C [7.1.6.4]
        return cbsz, abid, BitList("neg", tuple(bit("blgp", i) for i in range(3)))
    return cbsz, abid, blgp


class Zero:
    """A bit that is written in a list but must be 0: the place of a third scale."""

    def get(self, decoded: Decoded) -> int:
        """0."""
        return 0

    def put(self, decoded: Decoded, value: int) -> None:
        """Nothing but 0."""
        if value:
            raise TextProblem("the third bit must be 0: there are two scales")


def _scaled(instruction: Instruction, operands: list[Operand]) -> Syntax:
    """The prefix's scales follow the operands; OP_SEL and OP_SEL_HI pick their bytes. [7.2.1]"""
    scales = [Source(Field(f"src{i}", "scale"), 1, "f32", scalars=False) for i in range(2)]
    bytes_ = tuple(
        BitList(name, (bit(name, 0, "scale"), bit(name, 1, "scale"), Zero()), default)
        for name, default in (("op_sel", 0), ("op_sel_hi", 1))
    )
    return Syntax(
        instruction,
        instruction.name,
        "MAI",
        (*operands, *scales),
        (*bytes_, *_matrix_modifiers(instruction)),
        defaults=((bit("abid", 0), 1),),
    )


def _accumulator_move(instruction: Instruction) -> Syntax:
    """V_ACCVGPR_READ and WRITE; LLVM sets bits that mean nothing in them."""
    reads = "read" in instruction.name
    target = Vector(Field("vdst"), 1, "v" if reads else "a")
    source: Operand = Vector(Field("src0"), 1, "a", offset=256) if reads else Source(Field("src0"), 1, "i32")
    defaults = ((Field("acc"), 3), (Field("abid"), 8))
    return Syntax(instruction, instruction.name, "VOP3P", (target, source), defaults=defaults)
