"""Instructions as LLVM intrinsics: most have their definition's signature, the table `IRREGULAR` holds the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from codegen.ir import Op, instruction_of
from codegen.llvm_text import LANE_FLOATS, EmitError, FunctionText
from codegen.matrix_intrinsics import matrix_intrinsics
from gfx950.isa.registry import Instruction
from gfx950.lanes import Lanes, Words

# LLVM 22 knows these for other chips only and aborts the process ("Cannot select").
_UNSELECTABLE = {"v_dot2c_f32_bf16"}


def has_intrinsic(instruction: Instruction) -> bool:
    """Whether LLVM can be told to emit this very instruction."""
    if instruction.name in _UNSELECTABLE:
        return False
    return instruction.intrinsic is not None or instruction.name in IRREGULAR


def emit_instruction(f: FunctionText, op: Op) -> None:
    """One `inst` operation, by its intrinsic."""
    instruction = instruction_of(op.attributes["mnemonic"])
    operands = _inst_operands(instruction, op)
    special = IRREGULAR.get(instruction.name)
    if special is not None:
        special(f, op, operands)
    else:
        _emit_regular(f, op, instruction, operands)


def _inst_operands(instruction: Instruction, op: Op) -> dict[str, Any]:
    """By parameter name: a list of IR values, or an int for static ones."""
    rest = list(op.operands)
    operands: dict[str, Any] = {}
    for parameter in instruction.parameters:
        kind = parameter.kind
        if kind is int:
            operands[parameter.name] = op.attributes["immediates"][parameter.name]
        elif isinstance(kind, type) and issubclass(kind, (Lanes, Words)) and parameter.place != "exec":
            count = kind.count if issubclass(kind, Words) else 1
            operands[parameter.name], rest = rest[:count], rest[count:]
    return operands


def _kind_text(kind: Any) -> str:
    if issubclass(kind, Words):
        return f"<{kind.count} x i32>"
    return LANE_FLOATS.get(kind, f"i{kind.width}")


def _emit_regular(f: FunctionText, op: Op, instruction: Instruction, operands: dict[str, Any]) -> None:
    """An intrinsic with the signature of the definition: lanes in order, static operands as i32 constants."""
    if len(instruction.results) != 1 or instruction.intrinsic is None:
        raise EmitError(f"{op.where}: {instruction.name} needs an entry in IRREGULAR: it has not one plain result")
    arguments: list[tuple[str, str]] = []
    immediate: list[int] = []
    for parameter in instruction.parameters:
        value = operands.get(parameter.name)
        if isinstance(value, int):
            immediate.append(len(arguments))
            arguments.append(("i32", str(value)))
        elif value is not None:
            kind = _kind_text(parameter.kind)
            arguments.append((kind, f.operand(value, kind)))
    result = _kind_text(instruction.results[0].kind)
    called = f.temporary(f.call(instruction.intrinsic, result, arguments, immediate))
    f.spread(op.results, called, result)


Irregular = Callable[[FunctionText, Op, dict[str, Any]], None]


def _swap(name: str) -> Irregular:
    def emit_swap(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
        words = [("i32", f.use(operands[n][0])) for n in ("vdst", "src0")]
        arguments = [*words, ("i1", "false"), ("i1", "false")]
        pair = f.temporary(f.call(name, "{ i32, i32 }", arguments, (2, 3)))
        for index, result in enumerate(op.results):
            f.set(result, f"extractvalue {{ i32, i32 }} {pair}, {index}")

    return emit_swap


def _fp8_pack(name: str) -> Irregular:
    """(f32, f32, old register, i1: which half). The one static operand of the definition, zero or not, is the half."""

    def emit_pack(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
        floats = [("float", f.operand(operands[n], "float")) for n in ("src0", "src1")]
        half = next((v for v in operands.values() if isinstance(v, int)), 0)
        arguments = [*floats, ("i32", f.use(operands["vdst"][0])), ("i1", "true" if half else "false")]
        f.set(op.results[0], f.call(name, "i32", arguments, (3,)))

    return emit_pack


def _typed(name: str, result: str, kinds: Sequence[str], constants: Sequence[tuple[str, str]] = ()) -> Irregular:
    """An intrinsic whose LLVM types differ from the definition's registers; constants follow the operands."""

    def emit_typed(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
        static = {name: value for name, value in operands.items() if isinstance(value, int) and value}
        if static:
            raise EmitError(
                f"{op.where}: {op.attributes['mnemonic']} with {static}: its intrinsic has no such modifiers;"
                " call it by exact(...)"
            )
        registers = [values for values in operands.values() if not isinstance(values, int)]
        given = [f.operand(values, kind) for values, kind in zip(registers, kinds, strict=True)]
        arguments = [*zip(kinds, given, strict=True), *constants]
        immediate = range(len(kinds), len(arguments))
        f.spread(op.results, f.temporary(f.call(name, result, arguments, immediate)), result)

    return emit_typed


def _fp8_stochastic(name: str) -> Irregular:
    """(f32, random bits, old register, byte): op_sel's upper two bits are the byte."""

    def emit_stochastic(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
        source = ("float", f.operand(operands["src0"], "float"))
        words = [("i32", f.use(operands[n][0])) for n in ("src1", "vdst")]
        arguments = [source, *words, ("i32", str(operands["op_sel"] >> 2 & 3))]
        f.set(op.results[0], f.call(name, "i32", arguments, (3,)))

    return emit_stochastic


def _bf16_pair(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
    """No intrinsic: LLVM selects the instruction for a rounding of two floats."""
    pair = "poison"
    for index, name in enumerate(("src0", "src1")):
        element = f.operand(operands[name], "float")
        pair = f.temporary(f"insertelement <2 x float> {pair}, float {element}, i32 {index}")
    f.set(op.results[0], f"bitcast <2 x bfloat> {f.temporary(f'fptrunc <2 x float> {pair} to <2 x bfloat>')} to i32")


def _nested(name: str) -> Irregular:
    """Three operands through a function of two; LLVM makes one instruction of the pair."""

    def emit_nested(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
        first, *others = (("float", f.operand(operands[n], "float")) for n in ("src0", "src1", "src2"))
        for other in others:
            first = ("float", f.temporary(f.call(name, "float", [first, other])))
        f.alias(op.results[0], f.cast(first[1], "float", "i32"))

    return emit_nested


def _write_lane(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
    """The intrinsic takes the scalar, the lane, then the old register."""
    arguments = [("i32", f.use(operands[n][0])) for n in ("src0", "src1", "vdst")]
    f.set(op.results[0], f.call("llvm.amdgcn.writelane.i32", "i32", arguments))


def _lane_push(name: str) -> Irregular:
    """DS permutes by address; the intrinsics have no offset, so it is added."""

    def emit_push(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
        address = f.temporary(f"add i32 {f.use(operands['addr'][0])}, {operands.get('offset', 0)}")
        f.set(op.results[0], f.call(name, "i32", [("i32", address), ("i32", f.use(operands["data0"][0]))]))

    return emit_push


# Operand type of the dot products and of their sum; all end in the clamp bit.
_DOT_OPERANDS = {
    "v_dot2_f32_f16": ("llvm.amdgcn.fdot2", "<2 x half>", "float"),
    "v_dot2_f32_bf16": ("llvm.amdgcn.fdot2.f32.bf16", "<2 x bfloat>", "float"),
    "v_dot2_i32_i16": ("llvm.amdgcn.sdot2", "<2 x i16>", "i32"),
    "v_dot2_u32_u16": ("llvm.amdgcn.udot2", "<2 x i16>", "i32"),
    "v_dot4_i32_i8": ("llvm.amdgcn.sdot4", "i32", "i32"),
    "v_dot4_u32_u8": ("llvm.amdgcn.udot4", "i32", "i32"),
    "v_dot8_i32_i4": ("llvm.amdgcn.sdot8", "i32", "i32"),
    "v_dot8_u32_u4": ("llvm.amdgcn.udot8", "i32", "i32"),
}


def _dot_products() -> dict[str, Irregular]:
    clamp = [("i1", "false")]
    return {n: _typed(name, total, (pair, pair, total), clamp) for n, (name, pair, total) in _DOT_OPERANDS.items()}


def _transposed_read(name: str, register: str) -> Irregular:
    """A read of LDS that transposes elements among lanes, by pointer."""

    def emit_read(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
        pointer = f.lds_pointer(operands["addr"][0])
        pointer = f.temporary(f"getelementptr i8, ptr addrspace(3) {pointer}, i32 {operands['offset']}")
        f.spread(op.results, f.temporary(f.call(name, register, [("ptr addrspace(3)", pointer)])), register)

    return emit_read


def _swizzle(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
    arguments = [("i32", f.use(operands["addr"][0])), ("i32", str(operands["offset"]))]
    f.set(op.results[0], f.call("llvm.amdgcn.ds.swizzle", "i32", arguments, (1,)))


_FLOAT_PAIR = ("float", "float")
_WORD_PAIR = ("i32", "i32")
_BYTE_0, _LOW_HALF = ("i32", "0"), ("i1", "false")

IRREGULAR: dict[str, Irregular] = {
    "v_cvt_sr_fp8_f32": _fp8_stochastic("llvm.amdgcn.cvt.sr.fp8.f32"),
    "v_cvt_sr_bf8_f32": _fp8_stochastic("llvm.amdgcn.cvt.sr.bf8.f32"),
    "v_cvt_f32_fp8": _typed("llvm.amdgcn.cvt.f32.fp8", "float", ("i32",), [_BYTE_0]),
    "v_cvt_f32_bf8": _typed("llvm.amdgcn.cvt.f32.bf8", "float", ("i32",), [_BYTE_0]),
    "v_cvt_pk_f32_fp8": _typed("llvm.amdgcn.cvt.pk.f32.fp8", "<2 x float>", ("i32",), [_LOW_HALF]),
    "v_cvt_pk_f32_bf8": _typed("llvm.amdgcn.cvt.pk.f32.bf8", "<2 x float>", ("i32",), [_LOW_HALF]),
    "v_cvt_pkrtz_f16_f32": _typed("llvm.amdgcn.cvt.pkrtz", "<2 x half>", _FLOAT_PAIR),
    "v_cvt_pk_u16_u32": _typed("llvm.amdgcn.cvt.pk.u16", "<2 x i16>", _WORD_PAIR),
    "v_cvt_pk_i16_i32": _typed("llvm.amdgcn.cvt.pk.i16", "<2 x i16>", _WORD_PAIR),
    "v_cvt_pknorm_i16_f32": _typed("llvm.amdgcn.cvt.pknorm.i16", "<2 x i16>", _FLOAT_PAIR),
    "v_cvt_pknorm_u16_f32": _typed("llvm.amdgcn.cvt.pknorm.u16", "<2 x i16>", _FLOAT_PAIR),
    "v_sad_u8": _typed("llvm.amdgcn.sad.u8", "i32", ("i32", "i32", "i32")),
    "v_exp_f16": _typed("llvm.amdgcn.exp2.f16", "half", ("half",)),
    "v_log_f16": _typed("llvm.amdgcn.log.f16", "half", ("half",)),
    "v_cvt_pk_bf16_f32": _bf16_pair,
    **_dot_products(),
    "v_permlane16_swap_b32": _swap("llvm.amdgcn.permlane16.swap"),
    "v_permlane32_swap_b32": _swap("llvm.amdgcn.permlane32.swap"),
    "v_cvt_pk_fp8_f32": _fp8_pack("llvm.amdgcn.cvt.pk.fp8.f32"),
    "v_cvt_pk_bf8_f32": _fp8_pack("llvm.amdgcn.cvt.pk.bf8.f32"),
    "v_minimum3_f32": _nested("llvm.minimum.f32"),
    "v_maximum3_f32": _nested("llvm.maximum.f32"),
    "v_writelane_b32": _write_lane,
    "ds_permute_b32": _lane_push("llvm.amdgcn.ds.permute"),
    "ds_bpermute_b32": _lane_push("llvm.amdgcn.ds.bpermute"),
    "ds_swizzle_b32": _swizzle,
    "ds_read_b64_tr_b4": _transposed_read("llvm.amdgcn.ds.read.tr4.b64.v2i32", "<2 x i32>"),
    "ds_read_b96_tr_b6": _transposed_read("llvm.amdgcn.ds.read.tr6.b96.v3i32", "<3 x i32>"),
    "ds_read_b64_tr_b8": _transposed_read("llvm.amdgcn.ds.read.tr8.b64.v2i32", "<2 x i32>"),
    "ds_read_b64_tr_b16": _transposed_read("llvm.amdgcn.ds.read.tr16.b64.v4i16", "<4 x i16>"),
    **matrix_intrinsics(),
}
