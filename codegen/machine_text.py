"""One machine instruction with its modifiers as text: what inline assembly says and what a source run executes.

A `Plan` is one decoded instruction whose operands stand in registers of their own. Its text, the registers replaced by
the operands of inline assembly, goes to LLVM; the emulator runs the same fields. So a form has one description.

LLVM's hazard recogniser hardly looks into inline assembly, so every instruction stands between waits that are long
enough for any neighbour. [CDNA4 ISA 4.5 and 7.6; LLVM GCNHazardRecognizer.cpp] Around a matrix instruction, and before
any other where LLVM may put a matrix instruction, that is 32 wait states: the longest dependency, on a result of 16
passes, is 20. Otherwise 8: the longest, a vector write of EXEC before DPP or of an SGPR before memory that reads it, is
5, that of VCC before V_DIV_FMAS 4, a dot product's result 3, a transcendental or partial one before its use 1 or 2.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gfx950.isa.encoding import Decoded, DecodeError, blank, decode, encode
from gfx950.isa.operand_codes import FORMAT_REGISTERS, M0, VCC, VGPR_FIRST
from gfx950.isa.registry import Instruction, Parameter, lookup
from gfx950.isa.text import AssemblyError, assemble, disassemble
from gfx950.isa.text.catalog import syntaxes
from gfx950.isa.text.problems import TextProblem
from gfx950.isa.text.syntax import Syntax, registers_of
from gfx950.lanes import Lanes, Mask, Words

MATRIX_WAIT = ("s_nop 15", "s_nop 15")
OTHER_WAIT = ("s_nop 7",)
LDS_WAIT = ("s_waitcnt lgkmcnt(0)",)

# Where each operand stands in the plan: no two overlap, the widest has 32 registers.
_VECTORS = {
    "vdst": 0, "src0": 32, "src1": 64, "src2": 96, "scale_a": 128, "scale_b": 129, "addr": 32, "data0": 64, "data1": 96,
}  # fmt: skip
_SCALARS = {"src0": 8, "src1": 9}  # operands that are one scalar
_CARRY_OUT, _CARRY_IN = 0, 4  # pairs of SGPRs
_PLACES = {"agpr": "a-registers, which kernels do not use", "cmpx": "EXEC as a destination"}


class NoSuchForm(ValueError):
    """An instruction or a form of it that cannot be put into a kernel by itself; the message says why."""


@dataclass(frozen=True)
class Register:
    """An operand's registers. file: v, s, vcc or m0. kind: mask, or words of 32 bits. tied: the number of the result
    that it shares its registers with."""

    name: str
    file: str
    first: int
    words: int
    is_mask: bool = False
    tied: int | None = None

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the IR values that hold it: one of 1, 32 or 64 bits, or 32 bits for each of several registers."""
        if self.is_mask:
            return (1,)
        return (32 * self.words,) if self.words < 3 else (32,) * self.words


@dataclass(frozen=True)
class Plan:
    """An instruction, the registers of its operands and results, and the decoded form over them.

    keeps: whether a part of the destination may stay as it was, so that its old value must be known.
    """

    instruction: Instruction
    decoded: Decoded
    sources: tuple[Register, ...]
    results: tuple[Register, ...]
    keeps: bool

    @property
    def untied(self) -> tuple[Register, ...]:
        """The results in vector registers that no operand shares: their old values are not yet operands."""
        shared = {source.tied for source in self.sources}
        return tuple(r for i, r in enumerate(self.results) if r.file == "v" and i not in shared)

    @property
    def text(self) -> str:
        """The instruction over the plan's registers."""
        return disassemble(self.decoded)

    @property
    def waits(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What stands before and after it."""
        if self.instruction.encoding.startswith("MAI"):
            return MATRIX_WAIT, MATRIX_WAIT
        if self.instruction.encoding == "DS":
            return LDS_WAIT + OTHER_WAIT, LDS_WAIT + OTHER_WAIT
        return OTHER_WAIT, OTHER_WAIT

    def over(self, names: Mapping[tuple[str, int], str]) -> str:
        """The text with other names for the registers, by file and first number."""
        return re.sub(r"\b([vs])(?:\[(\d+):\d+\]|(\d+)\b)", lambda m: names[m[1], int(m[2] or m[3])], self.text)


Fields = tuple[tuple[str, int], ...]


@functools.cache
def plan(mnemonic: str, fields: Fields = (), extra: str = "", masked: bool = False) -> Plan:
    """The plan of a mnemonic. fields: the encoding's fields that are not operands. extra: DPP or SDWA as text.

    Raises NoSuchForm where the instruction, or this form of it, has no text, or is none for a kernel.
    """
    instruction = lookup(mnemonic)
    if why := unusable(instruction):
        raise NoSuchForm(f"{mnemonic} {why}")
    syntax = _syntax(instruction, dict(fields), extra)
    decoded = blank(instruction, syntax.form, syntax.extra)
    for slot, value in (*syntax.defaults, *syntax.fixed):
        slot.put(decoded, value)
    if instruction.parameter("literal"):
        decoded.literal = 0
    _read_extra(syntax, decoded, extra)
    for name, value in fields:
        _put(decoded, name, value)
    results = _results(instruction, decoded)
    sources = _sources(instruction, decoded, results)
    narrow = any(isinstance(r.kind, type) and r.kind is not Mask and _width(r) < 32 for r in instruction.results)
    made = Plan(instruction, decoded, sources, results, narrow or masked or bool(extra))
    _check(made)
    return made


def unusable(instruction: Instruction) -> str:
    """Why an instruction cannot be put into a kernel by itself, "" where it can."""
    items = (*instruction.parameters, *instruction.results)
    if instruction.encoding not in ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P", "MAI", "MAI_SCALE", "DS"):
        return "is no vector instruction: write it with the language's operators"
    if instruction.flow:
        return "steers the wave: in a kernel write loop, branch, when or barrier"
    for item in items:
        if item.place in _PLACES:
            return f"uses {_PLACES[item.place]}"
        if item.name in ("scc", "pc", "m0") or item.place in ("scc", "pc", "m0"):
            return f"uses the register {item.place or item.name}, which kernels cannot name"
        if item.place in ("global", "scalar_memory"):
            return "touches memory: in a kernel write load or store"
    return "" if instruction.results else "has no result"


# ---- the form --------------------------------------------------------------------------------------------------------


def _syntax(instruction: Instruction, fields: dict[str, int], extra: str) -> Syntax:
    """The shortest form that has the fields and the words of `extra`; masks of lanes ask for the long one."""
    words = [word.partition(":")[0] + ":" if ":" in word else word for word in extra.split()]
    long = instruction.encoding == "VOPC" or any(_is_mask(p) for p in (*instruction.parameters, *instruction.results))
    ways = syntaxes(instruction)
    for way in ways:
        if extra:
            fits = bool(way.extra) and all(word in way.modifier_words for word in words)
        else:
            short = way.form in ("VOP1", "VOP2", "VOPC")
            fits = not way.extra and not (short and ((long and len(ways) > 1) or _asks(instruction, fields)))
        if fits:
            return way
    asked = ", ".join([extra] * bool(extra) + [f"{n}={v}" for n, v in fields.items() if v])
    forms = ", ".join(w.mnemonic for w in ways)
    raise NoSuchForm(f"{instruction.name} has no form with {asked}; its forms are {forms}")


def _asks(instruction: Instruction, fields: dict[str, int]) -> bool:
    """Whether a field that the 32-bit form lacks is set."""
    return any(value and name != "literal" for name, value in fields.items())


def _is_mask(parameter: Parameter) -> bool:
    return parameter.kind is Mask and parameter.name != "vcc"


def _width(parameter: Parameter) -> int:
    return getattr(parameter.kind, "width", 32)


def _read_extra(syntax: Syntax, decoded: Decoded, extra: str) -> None:
    seen = []
    for word in extra.split():
        head, colon, argument = word.partition(":")
        modifier = syntax.modifier_words[head + colon]
        try:
            modifier.read(decoded, head + colon, argument)
        except TextProblem as problem:
            raise NoSuchForm(f"{syntax.mnemonic}: {problem}") from None
        seen.append(modifier)
    for modifier in syntax.required:
        if modifier not in seen:
            raise NoSuchForm(f"{syntax.mnemonic} needs one of {', '.join(modifier.words)}")


def _put(decoded: Decoded, name: str, value: int) -> None:
    """Writes a field that is no operand."""
    table, key = _slot(decoded, name)
    if key == "literal":
        decoded.literal = value & 0xFFFFFFFF
    elif key == "offset" and decoded.form == "DS":
        decoded.fields["offset0"], decoded.fields["offset1"] = value & 0xFF, value >> 8
    elif name in ("neg", "abs") and (decoded.dpp is not None or decoded.sdwa is not None):
        for index in (0, 1):
            table[f"src{index}_{name}"] = value >> index & 1
    elif key in table:
        table[key] = value
    elif value:
        raise NoSuchForm(f"{decoded.instruction.name} has no field {name} in its {decoded.form} form")


def _slot(decoded: Decoded, name: str) -> tuple[dict[str, int], str]:
    if name.startswith("scale_") and decoded.scale is not None:
        return decoded.scale, name.removeprefix("scale_")
    extra = decoded.dpp or decoded.sdwa
    if extra is not None and (name in extra or name in ("neg", "abs")):
        return extra, name
    return decoded.fields, name


# ---- the registers ---------------------------------------------------------------------------------------------------


def _results(instruction: Instruction, decoded: Decoded) -> tuple[Register, ...]:
    made: list[Register] = []
    fields = decoded.fields
    for result in instruction.results:
        if result.kind is Mask:
            in_vcc = decoded.form != "VOP3"
            if not in_vcc:
                fields["sdst" if "sdst" in fields else "vdst"] = _CARRY_OUT
            made.append(Register(result.name, "vcc" if in_vcc else "s", VCC if in_vcc else _CARRY_OUT, 2, True))
        elif result.place == "scalar":
            fields["vdst"] = _CARRY_OUT
            made.append(Register(result.name, "s", _CARRY_OUT, 1))
        elif result.place == "src0":
            made.append(Register(result.name, "v", _VECTORS["src0"], 1))
        else:
            fields["vdst"] = _VECTORS["vdst"]
            made.append(Register(result.name, "v", _VECTORS["vdst"], registers_of(instruction, result)))
    return tuple(made)


def _sources(instruction: Instruction, decoded: Decoded, results: tuple[Register, ...]) -> tuple[Register, ...]:
    made = []
    for parameter in instruction.parameters:
        kind = parameter.kind
        if not isinstance(kind, type) or not issubclass(kind, (Lanes, Words)) or parameter.place == "exec":
            continue
        source = _source(instruction, decoded, parameter)
        tied = next((i for i, r in enumerate(results) if (r.file, r.first) == (source.file, source.first)), None)
        made.append(Register(source.name, source.file, source.first, source.words, source.is_mask, tied))
    return tuple(made)


def _source(instruction: Instruction, decoded: Decoded, parameter: Parameter) -> Register:
    """The registers of one operand, which are written into the fields."""
    name, fields = parameter.name, decoded.fields
    if parameter.kind is Mask:
        if name == "vcc" or decoded.form != "VOP3":
            return Register(name, "vcc", VCC, 2, True)
        fields["src2"] = _CARRY_IN
        return Register(name, "s", _CARRY_IN, 2, True)
    if parameter.place == "scalar":
        in_m0 = instruction.name == "v_writelane_b32" and name == "src1"  # room for one SGPR only
        fields[name] = M0 if in_m0 else _SCALARS[name]
        return Register(name, "m0" if in_m0 else "s", fields[name], 1)
    first, words = _VECTORS[name], registers_of(instruction, parameter)
    if parameter.place in ("matrix_a", "matrix_b"):
        words = FORMAT_REGISTERS.get(fields["cbsz" if name == "src0" else "blgp"], 8)
    _place_vector(decoded, name, first)
    return Register(name, "v", first, words)


def _place_vector(decoded: Decoded, name: str, first: int) -> None:
    fields = decoded.fields
    if name in ("scale_a", "scale_b"):
        assert decoded.scale is not None
        decoded.scale["src0" if name == "scale_a" else "src1"] = VGPR_FIRST + first
    elif name == "src0" and decoded.dpp is not None:
        decoded.dpp["src0"] = first
    elif name == "src0" and decoded.sdwa is not None:
        decoded.sdwa["src0"] = first
    elif decoded.form == "DS" or name == "vdst" or (name == "src1" and decoded.form in ("VOP2", "VOPC")):
        fields[name] = first
    else:
        fields[name] = VGPR_FIRST + first


def _check(made: Plan) -> None:
    """Raises NoSuchForm where the text does not say what the fields hold, or the chip has no such form."""
    text = made.text
    try:
        bits = assemble(text)
        again = decode(bits, 0)
    except (AssemblyError, DecodeError) as problem:
        raise NoSuchForm(f"{made.instruction.name}: `{text}` is no instruction of the chip: {problem}") from None
    if encode(made.decoded) != bits or again.refusal:
        why = again.refusal or f"the assembler's text for these fields, `{text}`, has other bits"
        raise NoSuchForm(f"{made.instruction.name}: {why}")
