"""Matrix instructions as LLVM intrinsics, by their mnemonics: which one, and the types of its operands."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from codegen.ir import Op
from codegen.llvm_text import FunctionText
from gfx950.isa.matrix import MATRIX
from gfx950.isa.registry import Instruction

Emitter = Callable[[FunctionText, Op, dict[str, Any]], None]

# The LLVM type of an element of A and B and how many a register holds, by the kind in the mnemonic.
_ELEMENTS = {"f32": ("float", 1), "f16": ("half", 2), "bf16": ("bfloat", 2), "i8": ("i32", 1)}
_RESULTS = {"f32": ("float", 1), "i32": ("i32", 1), "f64": ("double", 2)}  # and registers an element
# Shapes that gfx950 or gfx940 brought: LLVM writes a dot before their kind, and their bf16 are bfloat.
_NEWER_DENSE = ("16x16x32", "32x32x16", "16x16x64", "32x32x32")
_NEWER_SPARSE = ("16x16x64", "32x32x32")


def _vector(element: str, count: int) -> str:
    return element if count == 1 else f"<{count} x {element}>"


def _operand_type(kind: str, registers: int, newer: bool) -> str:
    element, packed = _ELEMENTS[kind]
    return _vector("i16" if kind == "bf16" and not newer else element, registers * packed)


def _register_type(result: str, registers: int) -> str:
    element, words = _RESULTS[result]
    return _vector(element, registers // words)


def _mfma(name: str, operand: str, register: str) -> Emitter:
    """Two operands of one type, an accumulator, and cbsz, abid, blgp (0 where the definition has none)."""

    def emit_mfma(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
        ab = [(operand, f.operand(operands[n], operand)) for n in ("src0", "src1")]
        static = [("i32", str(operands.get(n, 0))) for n in ("cbsz", "abid", "blgp")]
        arguments = [*ab, (register, f.operand(operands["src2"], register)), *static]
        f.spread(op.results, f.temporary(f.call(name, register, arguments, (3, 4, 5))), register)

    return emit_mfma


def _dense(instruction: Instruction) -> Emitter:
    """v_mfma_{result}_{shape}[_{blocks}b]_{kind}, or two kinds."""
    _, _, result, shape, *kinds = [p for p in instruction.name.split("_") if not re.fullmatch(r"\d+b", p)]
    words, register = instruction.parameters[0].registers, _register_type(result, instruction.results[0].registers)
    newer = shape in _NEWER_DENSE
    if len(kinds) == 2:
        return _mfma(f"llvm.amdgcn.mfma.f32.{shape}.{kinds[0]}.{kinds[1]}", "i64", register)
    kind = kinds[0]
    name = f"{shape}.{kind}" if newer else f"{shape}{kind}{'.1k' * (kind == 'bf16')}"
    eight_bytes = {("f64", 2): "double", ("i8", 2): "i64"}.get((kind, words))
    return _mfma(f"llvm.amdgcn.mfma.{result}.{name}", eight_bytes or _operand_type(kind, words, newer), register)


def _sparse(instruction: Instruction) -> Emitter:
    """v_smfmac_{result}_{shape}_{kinds}: A, B, the accumulator, the indices, cbsz, abid."""
    _, _, result, shape, *kinds = instruction.name.split("_")
    newer, of_bytes = shape in _NEWER_SPARSE, kinds[0] not in ("f16", "bf16")
    sizes = [p.registers for p in instruction.parameters[:2]]
    types = [_vector("i32", n) if of_bytes else _operand_type(kinds[0], n, newer) for n in sizes]
    register = _register_type(result, instruction.results[0].registers)
    name = f"llvm.amdgcn.smfmac.{result}.{shape}.{'.'.join(kinds)}"

    def emit_smfmac(f: FunctionText, op: Op, operands: dict[str, Any]) -> None:
        arguments = [(kind, f.operand(operands[n], kind)) for kind, n in zip(types, ("src0", "src1"), strict=True)]
        arguments.append((register, f.operand(operands["vdst"], register)))
        arguments.append(("i32", f.use(operands["src2"][0])))
        arguments += [("i32", str(operands[n])) for n in ("cbsz", "abid")]
        f.spread(op.results, f.temporary(f.call(name, register, arguments, (4, 5))), register)

    return emit_smfmac


def _mfma_scale(shape: str, register: str) -> Emitter:
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


def matrix_intrinsics() -> dict[str, Emitter]:
    """How every matrix instruction is emitted, by mnemonic."""
    table: dict[str, Emitter] = {}
    for shape, register in (("16x16x128", "<4 x float>"), ("32x32x64", "<16 x float>")):
        for form in ("", "scale_"):
            table[f"v_mfma_{form}f32_{shape}_f8f6f4"] = _mfma_scale(shape, register)
    for name, instruction in MATRIX.items():
        table[name] = _sparse(instruction) if "smfmac" in name else _dense(instruction)
    return table
