"""Instructions as LLVM intrinsics: most have their definition's signature, the table `IRREGULAR` holds the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from codegen.ir import Op, instruction_of
from codegen.llvm_text import LANE_FLOATS, EmitError, FunctionText
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
                f"{op.where}: {op.attributes['mnemonic']} with {static}: its intrinsic has no such modifiers"
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


def _mfma(name: str, operand: str, register: str) -> Irregular:
    """Two operands of one type, an accumulator, and cbsz, abid, blgp (0 where the definition has none)."""

    def emit_mfma(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
        ab = [(operand, f.operand(operands[n], operand)) for n in ("src0", "src1")]
        zeros = [("i32", str(operands.get(n, 0))) for n in ("cbsz", "abid", "blgp")]
        arguments = [*ab, (register, f.operand(operands["src2"], register)), *zeros]
        f.spread(op.results, f.temporary(f.call(name, register, arguments, (3, 4, 5))), register)

    return emit_mfma


def _mfma_scale(shape: str, register: str) -> Irregular:
    """Two operands of 8 registers with their format and scale; the scale's byte is chosen by the two op_sel bits.

    The unscaled form is the same intrinsic with both scales the constant 0.
    """
    name = f"llvm.amdgcn.mfma.scale.f32.{shape}.f8f6f4.v8i32.v8i32"

    def emit_mfma(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
        ab = [("<8 x i32>", f.operand(operands[n], "<8 x i32>")) for n in ("src0", "src1")]
        formats = [("i32", str(operands[n])) for n in ("cbsz", "blgp")]
        low, high = operands.get("scale_op_sel", 0), operands.get("scale_op_sel_hi", 0)
        scales: list[tuple[str, str]] = []
        for bit, scale in enumerate(("scale_a", "scale_b")):
            byte = (low >> bit & 1) | (high >> bit & 1) << 1
            scales += [("i32", str(byte)), ("i32", f.use(operands[scale][0]) if scale in operands else "0")]
        arguments = [*ab, (register, f.operand(operands["src2"], register)), *formats, *scales]
        f.spread(op.results, f.temporary(f.call(name, register, arguments, (3, 4, 5, 7))), register)

    return emit_mfma


# What follows `llvm.amdgcn.mfma.f32.` and the type of the two operands, by shape and type.
_F16_OPERANDS = {
    ("16x16x16", "f16"): ("16x16x16f16", "<4 x half>"),
    ("32x32x8", "f16"): ("32x32x8f16", "<4 x half>"),
    ("16x16x16", "bf16"): ("16x16x16bf16.1k", "<4 x i16>"),
    ("32x32x8", "bf16"): ("32x32x8bf16.1k", "<4 x i16>"),
    ("16x16x32", "f16"): ("16x16x32.f16", "<8 x half>"),
    ("32x32x16", "f16"): ("32x32x16.f16", "<8 x half>"),
    ("16x16x32", "bf16"): ("16x16x32.bf16", "<8 x bfloat>"),
    ("32x32x16", "bf16"): ("32x32x16.bf16", "<8 x bfloat>"),
}


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


def _accumulator(shape: str) -> str:
    return "<4 x float>" if shape.startswith("16x16") else "<16 x float>"


def _matrix_intrinsics() -> dict[str, Irregular]:
    table: dict[str, Irregular] = {}
    for shape in ("16x16x128", "32x32x64"):
        for form in ("", "scale_"):
            table[f"v_mfma_{form}f32_{shape}_f8f6f4"] = _mfma_scale(shape, _accumulator(shape))
    for shape in ("16x16x32", "32x32x16"):
        for a in ("fp8", "bf8"):
            for b in ("fp8", "bf8"):
                name = f"llvm.amdgcn.mfma.f32.{shape}.{a}.{b}"
                table[f"v_mfma_f32_{shape}_{a}_{b}"] = _mfma(name, "i64", _accumulator(shape))
    for (shape, kind), (name, operand) in _F16_OPERANDS.items():
        table[f"v_mfma_f32_{shape}_{kind}"] = _mfma(f"llvm.amdgcn.mfma.f32.{name}", operand, _accumulator(shape))
    return table


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
    **_matrix_intrinsics(),
}
