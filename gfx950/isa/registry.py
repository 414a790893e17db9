"""The registry: one decorated function an instruction, everything else read off it.

A definition is a function over typed lanes. Its parameter names are the ISA's operand names and say where a value comes
from; its annotations say what it is:

    @vop3("v_perm_b32", 0x1ED, intrinsic="llvm.amdgcn.perm")
    def v_perm_b32(src0: B32, src1: B32, src2: B32) -> B32: ...

Parameters        ssrc0 ssrc1 src0 src1 src2 data0 data1 addr   operand fields of the encoding
                  vdst sdst                                      the destination's old value
                  scc: Scc, exec: Exec, vcc: Mask, m0: U32       implicit registers
                  carry_in: Mask                                 VCC in the 32-bit form, src2's pair in the 64-bit form
                  pc: U64, clock: U64                            address of the next instruction; instructions run
                  simm16 offset offset0 offset1 sc0 glc: int     static fields
                  mode: Mode                                     the MODE fields in force
                  lds: Lds, memory: Global | Scalar              memory; address: U64 is the finished address
                  hardware: Hardware, scalars: Scalars           hardware registers; SGPRs under a computed number
                  ssrc0_code sdst_code: int                      the number in an operand field
                  sbase: B128, smem_offset: U64                  descriptor and byte offset of a scalar buffer access
                  buffer: Buffer                                 memory through a buffer descriptor, MUBUF and MTBUF
                  src0: Bf16, F16Pair, Bf16Pair, F32Pair, Mixed  floats that the lane types do not have
                  src1: F16Integer, F16Mask                      integers whose inline constants are those of f16
Results           in order; a plain type goes to vdst / sdst, Mask (after it or alone) to vcc / sdst, `Scc`, `Exec`,
                  `Pc`, `M0` to the register named, `ToSrc0` back into the src0 register, `Scalar32` to an SGPR in the
                  vdst field.

A body annotated `T | None` may return None: then it writes no register.

Bodies never mention EXEC masking, DPP, SDWA, neg, abs, clamp, omod, op_sel, literals: those wrap any instruction, once,
in `emu.operands` and `emu.results`. VOP1, VOP2 and VOPC definitions have their 64-bit (VOP3) form by themselves.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from gfx950.evidence import Rule
from gfx950.lanes import I16, U16, U32, U64, HardwareRegisters, LaneMemory, Lanes, Mask, ScalarFile, ScalarMemory, Words


@dataclass(frozen=True)
class Place:
    """Marks an annotation with the register it stands for."""

    name: str


Scc = Annotated[Mask, Place("scc")]
Exec = Annotated[U64, Place("exec")]
Pc = Annotated[U64, Place("pc")]
M0 = Annotated[U32, Place("m0")]
ToSrc0 = Annotated[U32, Place("src0")]
Scalar32 = Annotated[U32, Place("scalar")]  # an operand or result that is one scalar although the encoding is vector
Lds = Annotated[LaneMemory, Place("lds")]
Global = Annotated[LaneMemory, Place("global")]
Scalar = Annotated[ScalarMemory, Place("scalar_memory")]
Hardware = Annotated[HardwareRegisters, Place("hardware")]
Scalars = Annotated[ScalarFile, Place("scalar_file")]
# Floats in integer types: what an inline constant of the operand is, and whose signs NEG and ABS change.
Bf16 = Annotated[U16, Place("bf16")]
F16Integer = Annotated[I16, Place("f16")]
F16Mask = Annotated[U32, Place("f16")]
F16Pair = Annotated[U32, Place("f16_pair")]
Bf16Pair = Annotated[U32, Place("bf16_pair")]
F32Pair = Annotated[U64, Place("f32_pair")]
Mixed = Annotated[U32, Place("mixed")]  # f32, or an f16 half where the operand's OP_SEL_HI bit is set


@dataclass(frozen=True)
class Parameter:
    """One input of a body: its name (the operand), its type, and the place the annotation names, if any."""

    name: str
    kind: Any
    place: str | None = None

    @property
    def registers(self) -> int:
        """How many 32-bit registers hold it (0 for static values)."""
        return register_count(self.kind)


@dataclass(frozen=True)
class Instruction:
    """A definition: name, encoding, opcode, body and what the signature says.

    flow: "" for straight-line instructions, else branch, end, barrier, trap, halt, wait, nothing, mode for one that
    may change MODE, or refused for one that does not run, by its first rule. packed: the body is applied to
    the low and the high half (VOP3P). ignores_exec: results reach every lane.
    """

    name: str
    encoding: str
    opcode: int
    body: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    results: tuple[Parameter, ...]
    where: str
    intrinsic: str | None = None
    flow: str = ""
    packed: bool = False
    ignores_exec: bool = False
    rules: tuple[Rule, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the body on lane values; on a tracing engine records the instruction instead."""
        for value in (*args, *kwargs.values()):
            words = value.words if isinstance(value, Words) else value
            lanes = words[0] if isinstance(words, (tuple, list)) and words else words
            if isinstance(lanes, Lanes):
                if lanes.engine.traces:
                    return lanes.engine.trace_instruction(self, args, kwargs)  # type: ignore[attr-defined]
                break
        return self.body(*args, **kwargs)

    @property
    def doc(self) -> str:
        """The body's docstring."""
        return inspect.getdoc(self.body) or ""

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of that name, if the body has it."""
        return next((p for p in self.parameters if p.name == name), None)


INSTRUCTIONS: dict[str, Instruction] = {}
OPCODES: dict[tuple[str, int], Instruction] = {}

F = TypeVar("F", bound=Callable[..., Any])


class DuplicateInstruction(Exception):
    """Two definitions claim one name or one opcode."""


def register_count(kind: Any) -> int:
    """32-bit registers an operand of this type takes; 0 for masks, static values and memories."""
    if isinstance(kind, type) and issubclass(kind, Words):
        return kind.count
    if isinstance(kind, type) and issubclass(kind, Lanes):
        return 0 if kind is Mask else 2 if kind.width == 64 else 1
    return 0


def _parameter(name: str, annotation: Any) -> Parameter:
    if typing.get_origin(annotation) is Annotated:
        kind, place = typing.get_args(annotation)[:2]
        return Parameter(name, kind, place.name)
    return Parameter(name, annotation)


@functools.cache
def _annotation_code(text: str) -> types.CodeType:
    return compile(text, "<annotation>", "eval")


def _hints(body: Callable[..., Any]) -> dict[str, Any]:
    """As typing.get_type_hints gives them, but each spelling is compiled once: half the time of loading all modules."""
    names = body.__globals__
    written = body.__annotations__.items()
    return {n: eval(_annotation_code(a), names) if isinstance(a, str) else a for n, a in written}


def _signature(body: Callable[..., Any]) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    hints = _hints(body)
    result = hints.pop("return", None)
    if typing.get_origin(result) is types.UnionType:  # a body may return None: then it writes nothing
        result = next(r for r in typing.get_args(result) if r is not type(None))
    results = typing.get_args(result) if typing.get_origin(result) is tuple else (result,)
    kept = [r for r in results if r is not None and r is not type(None)]
    names = body.__code__.co_varnames[: body.__code__.co_argcount]  # inspect.signature takes half the loading time
    inputs = tuple(_parameter(n, hints[n]) for n in names)
    return inputs, tuple(_parameter(f"result{i}", r) for i, r in enumerate(kept))


def register(instruction: Instruction) -> None:
    """Enters a definition. Raises DuplicateInstruction, naming both places, when the name or the opcode is taken."""
    key = (instruction.encoding, instruction.opcode)
    for other in (INSTRUCTIONS.get(instruction.name), OPCODES.get(key)):
        if other is not None:
            raise DuplicateInstruction(
                f"{instruction.name} ({instruction.encoding} opcode {instruction.opcode})"
                f" defined at {instruction.where} is already defined as {other.name}"
                f" ({other.encoding} opcode {other.opcode}) at {other.where}"
            )
    INSTRUCTIONS[instruction.name] = instruction
    OPCODES[key] = instruction


def inst(name: str, encoding: str, opcode: int, **options: Any) -> Callable[[F], Instruction]:
    """Registers the decorated body as instruction `name`. Options are the fields of `Instruction`."""

    def define(body: F) -> Instruction:
        parameters, results = _signature(body)
        where = f"{body.__code__.co_filename.rsplit('/', 1)[-1]}:{body.__code__.co_firstlineno}"
        instruction = Instruction(name, encoding, opcode, body, parameters, results, where, **options)
        register(instruction)
        return instruction

    return define


def _family(encoding: str) -> Callable[..., Callable[[F], Instruction]]:
    def decorator(name: str, opcode: int, **options: Any) -> Callable[[F], Instruction]:
        return inst(name, encoding, opcode, **options)

    return decorator


sop1, sop2, sopk, sopc, sopp = (_family(e) for e in ("SOP1", "SOP2", "SOPK", "SOPC", "SOPP"))
vop1, vop2, vopc, vop3, vop3p = (_family(e) for e in ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P"))
smem, ds, flat, global_, scratch = (_family(e) for e in ("SMEM", "DS", "FLAT", "GLOBAL", "SCRATCH"))
mubuf, mubuf_lds, mtbuf = (_family(e) for e in ("MUBUF", "MUBUF_LDS", "MTBUF"))  # MUBUF_LDS: MUBUF with its LDS bit set


def lookup(name: str) -> Instruction:
    """The definition of a mnemonic. Raises KeyError with the nearest known names."""
    load()
    if name not in INSTRUCTIONS:
        from gfx950.isa.other_chips import why_unknown

        if why := why_unknown(name):
            raise KeyError(why)
        near = difflib.get_close_matches(name, INSTRUCTIONS, n=3)
        raise KeyError(f"no instruction {name!r} is defined; nearest: {', '.join(near) or 'none'}")
    return INSTRUCTIONS[name]


def load() -> dict[str, Instruction]:
    """Imports every definition (all modules of gfx950.isa, once) and returns the table by name."""
    _import_all()
    return INSTRUCTIONS


@functools.cache
def _import_all() -> None:
    import importlib
    import pkgutil

    import gfx950.isa as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"gfx950.isa.{module.name}")
