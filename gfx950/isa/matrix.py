"""Matrix instructions (VOP3P-MAI): a row each over the native arithmetic of gfx950.arithmetic.mfma, and the AGPR moves.

MFMA ignores EXEC and MODE's rounding and denormals; FP16_OVFL clamps an overflowing result. [CDNA4 ISA 7.1.2, 7.4]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from gfx950.arithmetic.mfma import RULES, Format, pack_parameters
from gfx950.isa.registry import Instruction, Place, inst, vop1
from gfx950.lanes import B32, B64, B128, B256, B512, Mode, Words

# An f8f6f4 operand: as many registers as its format (CBSZ for A, BLGP for B) needs, 8, 6 or 4; the rest read as 0.
MatrixA = Annotated[B256, Place("matrix_a")]
MatrixB = Annotated[B256, Place("matrix_b")]


def _multiply(native: str, a: Any, b: Any, c: Words, extra: list[Any], parameters: int) -> Any:
    words = [*_words(a), *_words(b), *c.words, *extra]
    engine = c.words[0].engine
    results = engine.native(native, [w.raw for w in words], parameters)
    return type(c)([B32(engine, r) for r in results])


def _words(operand: Any) -> tuple[B32, ...]:
    if isinstance(operand, Words):
        return operand.words
    return operand.to(B32), (operand >> 32).to(B32)


def _f8f6f4(shape: str, opcode: int, cd: type[Words]) -> tuple[Instruction, Instruction]:
    """The plain and the scaled form of one F8F6F4 shape; CBSZ and BLGP are the formats. [7.1.5, 7.2.1]"""
    native = f"mfma_f8f6f4_{shape}"

    def plain(src0: MatrixA, src1: MatrixB, src2, cbsz: int, blgp: int, mode: Mode):  # type: ignore[no-untyped-def]
        """D = C + A * B, every scale 1."""
        one = B32.constant(src2[0].engine, 127).splat()
        parameters = pack_parameters(Format(cbsz), Format(blgp), clamp=mode.fp16_ovfl)
        return _multiply(native, src0, src1, src2, [one, one], parameters)

    def scaled(  # type: ignore[no-untyped-def]
        src0: MatrixA,
        src1: MatrixB,
        src2,
        scale_a: B32,
        scale_b: B32,
        cbsz: int,
        blgp: int,
        scale_op_sel: int,
        scale_op_sel_hi: int,
        mode: Mode,
    ):
        """D = C + A * B with E8M0 block scales; {OP_SEL_HI[i], OP_SEL[i]} of the prefix picks the byte of scale i."""
        bytes_ = [scale_op_sel >> i & 1 | (scale_op_sel_hi >> i & 1) << 1 for i in (0, 1)]
        parameters = pack_parameters(
            Format(cbsz),
            Format(blgp),
            scaled=True,
            scale_byte_a=bytes_[0],
            scale_byte_b=bytes_[1],
            clamp=mode.fp16_ovfl,
        )
        return _multiply(native, src0, src1, src2, [scale_a, scale_b], parameters)

    for body in (plain, scaled):
        body.__annotations__.update({"src2": cd, "return": cd})
    name = f"v_mfma_f32_{shape}_f8f6f4"
    options = {"ignores_exec": True, "rules": RULES}
    return (
        inst(name, "MAI", opcode, **options)(plain),
        inst(name.replace("v_mfma_", "v_mfma_scale_"), "MAI_SCALE", opcode, **options)(scaled),
    )


v_mfma_f32_16x16x128_f8f6f4, v_mfma_scale_f32_16x16x128_f8f6f4 = _f8f6f4("16x16x128", 45, B128)
v_mfma_f32_32x32x64_f8f6f4, v_mfma_scale_f32_32x32x64_f8f6f4 = _f8f6f4("32x32x64", 46, B512)


def _dense(
    name: str, opcode: int, native: str, formats: tuple[Format, Format], ab: type[Any], cd: type[Words]
) -> Instruction:
    """A dense shape whose formats are in its name. No broadcasts: CBSZ, ABID and BLGP must be 0. [7.1]"""

    def body(src0, src1, src2, cbsz: int, abid: int, blgp: int, mode: Mode):  # type: ignore[no-untyped-def]
        """D = C + A * B."""
        if cbsz or abid or blgp:
            raise ValueError(f"{name}: broadcasts (cbsz {cbsz}, abid {abid}, blgp {blgp}) are not built for this shape")
        return _multiply(native, src0, src1, src2, [], pack_parameters(*formats, clamp=mode.fp16_ovfl))

    body.__annotations__.update({"src0": ab, "src1": ab, "src2": cd, "return": cd})
    define: Callable[[Any], Instruction] = inst(name, "MAI", opcode, ignores_exec=True, rules=RULES)
    return define(body)


_FP8, _BF8, _F16, _BF16 = Format.fp8, Format.bf8, Format.f16, Format.bf16
_F8_PAIRS = {"bf8_bf8": (_BF8, _BF8), "bf8_fp8": (_BF8, _FP8), "fp8_bf8": (_FP8, _BF8), "fp8_fp8": (_FP8, _FP8)}
DENSE = {
    f"v_mfma_f32_{shape}_{pair}": _dense(f"v_mfma_f32_{shape}_{pair}", first + i, f"mfma_{shape}_f8", formats, B64, cd)
    for shape, first, cd in (("16x16x32", 112, B128), ("32x32x16", 116, B512))
    for i, (pair, formats) in enumerate(_F8_PAIRS.items())
} | {
    f"v_mfma_f32_{shape}_{kind}": _dense(f"v_mfma_f32_{shape}_{kind}", opcode, f"mfma_{shape}_f16", (f, f), ab, cd)
    for shape, kind, opcode, f, ab, cd in (
        ("32x32x8", "f16", 76, _F16, B64, B512),
        ("16x16x16", "f16", 77, _F16, B64, B128),
        ("32x32x8", "bf16", 96, _BF16, B64, B512),
        ("16x16x16", "bf16", 97, _BF16, B64, B128),
        ("16x16x32", "f16", 84, _F16, B128, B128),
        ("32x32x16", "f16", 85, _F16, B128, B512),
        ("16x16x32", "bf16", 53, _BF16, B128, B128),
        ("32x32x16", "bf16", 55, _BF16, B128, B512),
    )
}
v_mfma_f32_16x16x32_fp8_fp8 = DENSE["v_mfma_f32_16x16x32_fp8_fp8"]

AgprSource = Annotated[B32, Place("agpr")]
AgprResult = Annotated[B32, Place("agpr")]


@inst("v_accvgpr_read_b32", "MAI", 88)
def v_accvgpr_read_b32(src0: AgprSource) -> B32:
    """D (a v register) = the a register S0. [12.10]"""
    return src0


@inst("v_accvgpr_write_b32", "MAI", 89)
def v_accvgpr_write_b32(src0: B32) -> AgprResult:
    """D (an a register) = S0. [12.10]"""
    return src0


@vop1("v_accvgpr_mov_b32", 82)
def v_accvgpr_mov_b32(src0: AgprSource) -> AgprResult:
    """D = S0, both a registers. [12.8]"""
    return src0
