"""Matrix instructions (VOP3P-MAI): a row each over the native arithmetic of gfx950.arithmetic.mfma, and the AGPR moves.

They ignore EXEC and, but for the subnormal inputs of f32, MODE's rounding and denormals; FP16_OVFL clamps an
overflowing result. [CDNA4 ISA 7.1.2, 7.4]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from gfx950.arithmetic.mfma import Format, pack_parameters
from gfx950.arithmetic.mfma_evidence import BROADCAST_RULES, SCALE_RULES, rules_of
from gfx950.arithmetic.mfma_shapes import SHAPES, Shape, kind_of
from gfx950.evidence import Rule
from gfx950.isa.registry import Instruction, Place, inst, vop1, vop3p
from gfx950.lanes import B32, B64, B128, B256, B512, LANES, REGISTERS, Mode, Words, in_registers, registers_of
from gfx950.layouts import F6F4_RULE, F8_RULE, SCALE_RULE, layout

# An f8f6f4 operand: as many registers as its format (CBSZ for A, BLGP for B) needs, 8, 6 or 4; the rest read as 0.
MatrixA = Annotated[B256, Place("matrix_a")]
MatrixB = Annotated[B256, Place("matrix_b")]
Scale = Annotated[B32, Place("scale")]  # an inline float constant is its exponent [rule mfma.scale_constant]
Index = Annotated[B32, Place("index")]  # src2 of a sparse instruction: always a v register
# C of f64: an inline constant is an f64.
DOUBLES = {2: Annotated[B64, Place("f64")], 8: Annotated[B256, Place("f64")]}


def _multiply(native: str, operands: Sequence[Sequence[B32]], parameters: int) -> Any:
    """Runs the native on the words of its operands."""
    words = [word for operand in operands for word in operand]
    engine = words[0].engine
    return in_registers([B32(engine, raw) for raw in engine.native(native, [w.raw for w in words], parameters)])


def _layout_rules(name: str) -> tuple[Rule, ...]:
    """What the places of the elements rest on."""
    return tuple(dict.fromkeys(layout(name, operand).rule for operand in "ABD"))


def _defined(
    name: str, opcode: int, body: Callable[..., Any], kinds: dict[str, Any], rules: tuple[Rule, ...]
) -> Instruction:
    """Registers a body. kinds: the types that follow from the shape, by parameter and "return"."""
    body.__annotations__.update(kinds)
    define: Callable[[Any], Instruction]
    define = inst(name, "MAI", opcode, ignores_exec=True, rules=rules + _layout_rules(name))
    return define(body)


# ---- Dense -----------------------------------------------------------------------------------------------------------


def broadcast_lanes(shape: Shape, cbsz: int, abid: int) -> tuple[int, ...]:
    """The lane that each lane of A is read from. Raises ValueError for a CBSZ or ABID that the shape does not have.

    [rules mfma.broadcast, mfma.broadcast_limits]
    """
    together = 1 << cbsz
    if together > shape.copies:
        raise ValueError(
            f"CBSZ {cbsz} broadcasts to {together} blocks, and the instruction has {shape.copies}: give less"
        )
    if abid >= together:
        raise ValueError(f"ABID {abid} is none of the {together} blocks that CBSZ {cbsz} puts together: give less")
    blocks = [lane // shape.rows % shape.copies for lane in range(LANES)]
    moved = [block // together * together + (abid if cbsz else block % together) - block for block in blocks]
    return tuple(lane + shape.rows * move for lane, move in enumerate(moved))


def b_lanes(blgp: int) -> tuple[int, ...]:
    """The lane that each lane of B is read from. [rule mfma.b_lanes]"""
    if blgp == 3:
        return tuple((lane + 16) % LANES for lane in range(LANES))
    size, first = (LANES, 0) if blgp == 0 else (32, 32 * (blgp - 1)) if blgp < 3 else (16, 16 * (blgp - 4))
    return tuple(lane % size + first for lane in range(LANES))


def _from_lanes(words: tuple[B32, ...], lanes: tuple[int, ...]) -> tuple[B32, ...]:
    return words if lanes == tuple(range(LANES)) else tuple(word.permute(lanes) for word in words)


def _dense(name: str, opcode: int, native: str, formats: tuple[Format, Format]) -> Instruction:
    """A shape whose formats are in its name. [7.1]"""
    shape, kind = SHAPES[native], kind_of(native)
    ab, cd = REGISTERS[shape.operand_registers], REGISTERS[shape.c_registers]

    def body(src0, src1, src2, cbsz: int, abid: int, blgp: int, mode: Mode):  # type: ignore[no-untyped-def]
        """D = C + A * B in every block; CBSZ and ABID broadcast blocks of A, BLGP lanes of B."""
        a = _from_lanes(registers_of(src0), broadcast_lanes(shape, cbsz, abid))
        b = _from_lanes(registers_of(src1), b_lanes(blgp))
        flush = kind == "f32" and not mode.denorm32 & 1
        parameters = pack_parameters(*formats, clamp=mode.fp16_ovfl, flush=flush)
        return _multiply(native, (a, b, registers_of(src2)), parameters)

    kinds = {"src0": ab, "src1": ab, "src2": cd, "return": cd}
    return _defined(name, opcode, body, kinds, rules_of(native) + BROADCAST_RULES)


def _double(name: str, opcode: int, native: str) -> Instruction:
    """f64: BLGP negates. [7.1.6.4]"""
    c_registers = SHAPES[native].c_registers

    def body(src0: B64, src1: B64, src2, blgp: int):  # type: ignore[no-untyped-def]
        """D = C + A * B in every block; BLGP's bits negate A, B, C."""
        parameters = pack_parameters(Format.fp8, Format.fp8, negate=blgp)
        return _multiply(native, [registers_of(operand) for operand in (src0, src1, src2)], parameters)

    return _defined(
        name, opcode, body, {"src2": DOUBLES[c_registers], "return": REGISTERS[c_registers]}, rules_of(native)
    )


# ---- Sparse ----------------------------------------------------------------------------------------------------------


def index_shift(shape: Shape, cbsz: int, abid: int) -> int:
    """The first bit of the set of indices in force. [rule layout.sparse.index_set]"""
    bits = 2 * shape.lane_items
    return abid % (32 // bits) * bits if cbsz & 3 == 0 else 0


def _sparse(name: str, opcode: int, native: str, formats: tuple[Format, Format]) -> Instruction:
    """A stores two of every four k, and src2 says which. [7.5]"""
    shape = SHAPES[native]
    a_kind, b_kind, cd = (
        REGISTERS[n] for n in (shape.operand_registers, shape.b_shape.operand_registers, shape.c_registers)
    )

    def body(src0, src1, src2: Index, vdst, cbsz: int, abid: int, mode: Mode):  # type: ignore[no-untyped-def]
        """D = D + A * B, A sparse with indices in S2; CBSZ 0 lets ABID pick among the sets of indices."""
        shift = index_shift(shape, cbsz, abid)
        parameters = pack_parameters(*formats, clamp=mode.fp16_ovfl, index_shift=shift)
        operands = [registers_of(operand) for operand in (src0, src1, vdst, src2)]
        return _multiply(native, operands, parameters)

    kinds = {"src0": a_kind, "src1": b_kind, "vdst": cd, "return": cd}
    return _defined(name, opcode, body, kinds, rules_of(native))


# ---- F8F6F4 ----------------------------------------------------------------------------------------------------------


def _f8f6f4(shape: str, opcode: int, cd: type[Words]) -> tuple[Instruction, Instruction]:
    """The plain and the scaled form of one F8F6F4 shape; CBSZ and BLGP are the formats. [7.1.5, 7.2.1]"""
    native = f"mfma_f8f6f4_{shape}"

    def plain(src0: MatrixA, src1: MatrixB, src2, cbsz: int, blgp: int, mode: Mode):  # type: ignore[no-untyped-def]
        """D = C + A * B, every scale 1."""
        one = B32.constant(src2[0].engine, 127).splat()
        parameters = pack_parameters(Format(cbsz), Format(blgp), clamp=mode.fp16_ovfl)
        return _multiply(native, (src0.words, src1.words, src2.words, (one, one)), parameters)

    def scaled(  # type: ignore[no-untyped-def]
        src0: MatrixA,
        src1: MatrixB,
        src2,
        scale_a: Scale,
        scale_b: Scale,
        cbsz: int,
        blgp: int,
        scale_op_sel: int,
        scale_op_sel_hi: int,
        mode: Mode,
    ):
        """D = C + A * B with E8M0 block scales; {OP_SEL_HI[i], OP_SEL[i]} of the prefix picks the byte of scale i."""
        a, b = (scale_op_sel >> i & 1 | (scale_op_sel_hi >> i & 1) << 1 for i in (0, 1))
        formats, clamp = (Format(cbsz), Format(blgp)), mode.fp16_ovfl
        parameters = pack_parameters(*formats, scaled=True, scale_byte_a=a, scale_byte_b=b, clamp=clamp)
        return _multiply(native, (src0.words, src1.words, src2.words, (scale_a, scale_b)), parameters)

    for body in (plain, scaled):
        body.__annotations__.update({"src2": cd, "return": cd})
    name = f"v_mfma_f32_{shape}_f8f6f4"
    rules = (*rules_of(native), *_layout_rules(name), F8_RULE, F6F4_RULE, SCALE_RULE)
    options = {"ignores_exec": True, "rules": tuple(dict.fromkeys(rules))}
    return (
        inst(name, "MAI", opcode, **options)(plain),
        inst(name.replace("v_mfma_", "v_mfma_scale_"), "MAI_SCALE", opcode, **options)(scaled),
    )


v_mfma_f32_16x16x128_f8f6f4, v_mfma_scale_f32_16x16x128_f8f6f4 = _f8f6f4("16x16x128", 45, B128)
v_mfma_f32_32x32x64_f8f6f4, v_mfma_scale_f32_32x32x64_f8f6f4 = _f8f6f4("32x32x64", 46, B512)


@vop3p("v_mfma_ld_scale_b32", 44, flow="nothing", rules=SCALE_RULES)
def v_mfma_ld_scale_b32(src0: Scale, src1: Scale) -> None:
    """Loads the scales of A and B for the F8F6F4 instruction that follows; alone it does nothing. [7.2.1]"""


# ---- The rows --------------------------------------------------------------------------------------------------------

_FP8, _BF8, _F16, _BF16 = Format.fp8, Format.bf8, Format.f16, Format.bf16
_F8_PAIRS = {"bf8_bf8": (_BF8, _BF8), "bf8_fp8": (_BF8, _FP8), "fp8_bf8": (_FP8, _BF8), "fp8_fp8": (_FP8, _FP8)}
_FORMATS = {"f16": (_F16, _F16), "bf16": (_BF16, _BF16), **_F8_PAIRS}


class Row(NamedTuple):
    """family: v_mfma or v_smfmac. kind: as the mnemonic has it. opcodes: of the shapes, in order."""

    family: str
    kind: str
    shapes: tuple[str, ...]
    opcodes: tuple[int, ...]


_WIDE = ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b")
_HALVES = ("32x32x8", "16x16x16", "16x16x32", "32x32x16")
_BYTES = ("16x16x32", "32x32x16")
_SPARSE_HALVES, _SPARSE_BYTES = ("16x16x32", "32x32x16", "16x16x64", "32x32x32"), ("16x16x64", "32x32x32")
_DEEP_BYTES = ("16x16x128", "32x32x64")
# fmt: off
ROWS = (
    Row("v_mfma", "f32", ("32x32x1_2b", "16x16x1_4b", "4x4x1_16b", "32x32x2", "16x16x4"), (64, 65, 66, 68, 69)),
    Row("v_mfma", "f16", (*_WIDE, *_HALVES), (72, 73, 74, 76, 77, 84, 85)),
    Row("v_mfma", "bf16", (*_WIDE, *_HALVES), (93, 94, 95, 96, 97, 53, 55)),
    Row("v_mfma", "i8", (*_WIDE, *_BYTES, "16x16x64", "32x32x32"), (80, 81, 82, 87, 86, 54, 56)),
    Row("v_mfma", "f64", ("16x16x4", "4x4x4_4b"), (110, 111)),
    *(Row("v_mfma", pair, _BYTES, (112 + i, 116 + i)) for i, pair in enumerate(_F8_PAIRS)),
    Row("v_smfmac", "f16", _SPARSE_HALVES, (98, 100, 90, 91)),
    Row("v_smfmac", "bf16", _SPARSE_HALVES, (102, 104, 57, 70)),
    Row("v_smfmac", "i8", (*_SPARSE_BYTES, *_DEEP_BYTES), (106, 108, 58, 71)),
    *(Row("v_smfmac", pair, _SPARSE_BYTES, (120 + i, 124 + i)) for i, pair in enumerate(_F8_PAIRS)),
    *(
        Row("v_smfmac", pair, _DEEP_BYTES, opcodes)
        for pair, opcodes in zip(_F8_PAIRS, ((59, 75), (60, 78), (61, 79), (67, 83)), strict=True)
    ),
)
# fmt: on


def _define(row: Row) -> Iterator[Instruction]:
    result = {"i8": "i32", "f64": "f64"}.get(row.kind, "f32")
    native_kind = "f8" if row.kind in _F8_PAIRS else "f16" if row.kind == "bf16" else row.kind
    formats = _FORMATS.get(row.kind, (_FP8, _FP8))
    for shape, opcode in zip(row.shapes, row.opcodes, strict=True):
        name = f"{row.family}_{result}_{shape}_{row.kind}"
        native = f"{row.family.removeprefix('v_')}_{shape}_{native_kind}"
        if row.kind == "f64":
            yield _double(name, opcode, native)
        else:
            yield (_sparse if row.family == "v_smfmac" else _dense)(name, opcode, native, formats)


MATRIX = {instruction.name: instruction for row in ROWS for instruction in _define(row)}


# ---- AGPR moves ------------------------------------------------------------------------------------------------------

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
