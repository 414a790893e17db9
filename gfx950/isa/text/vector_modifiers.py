"""Which modifiers LLVM's assembler gives a vector instruction; which forms it has is in `gfx950.isa.legality`.

Mostly this follows from the operands: NEG and ABS for floats, OMOD for float results, OP_SEL for 16-bit operands of
64-bit instructions. The sets below are what does not follow.
"""

from __future__ import annotations

from gfx950.isa.encoding import Decoded, uses_vop3b
from gfx950.isa.legality import takes_vop3
from gfx950.isa.registry import Instruction, Parameter
from gfx950.isa.text.fields import Field, bit
from gfx950.isa.text.modifiers import BitList, BoundControl, Flag, Modifier, OutputScale, Value
from gfx950.lanes import F16, F32, F64, Lanes, Words

# LLVM writes their 64-bit, DPP and SDWA forms without a suffix too, which loses the form; here they have theirs.
NO_SHORT_SUFFIX = {"v_nop", "v_clrexcp"}
# An SDWA form that selects of its source only. [CDNA4 ISA 7.3]
PLAIN_SDWA = {"v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8"}
MOVES = {"v_mov_b32", "v_cndmask_b32"}  # floats for the lanes, but without output modifiers
PAIRS_WITH_SIGNS = ("bf16", "f16_pair", "bf16_pair", "f32_pair")
OMOD_ON_INTEGERS = {
    "v_cvt_pk_bf16_f32", "v_cvt_pk_f16_f32", "v_cvt_pkrtz_f16_f32", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8",
    "v_pk_fmac_f16", "v_cvt_i32_f64", "v_cvt_u32_f64", "v_cvt_i32_f32", "v_cvt_u32_f32", "v_cvt_u16_f16",
    "v_cvt_i16_f16", "v_cvt_norm_i16_f16", "v_cvt_norm_u16_f16", "v_frexp_exp_i32_f64", "v_frexp_exp_i16_f16",
}  # fmt: skip
CLAMP_ON_INTEGERS = {
    "v_alignbit_b32", "v_alignbyte_b32", "v_min3_i16", "v_min3_u16", "v_max3_i16", "v_max3_u16", "v_med3_i16",
    "v_med3_u16",
}  # fmt: skip
NO_CLAMP = {"v_mul_lo_u16"}  # in the 64-bit form, though the manual says that it saturates [12.7]
OP_SEL_ON_32_BITS = {"v_alignbit_b32", "v_alignbyte_b32"}
# Results of a byte: OP_SEL names it in two bits though there are two sources. [CDNA4 ISA 7.3]
BYTE_RESULTS = {"v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32", "v_cvt_scalef32_pk_fp4_f16", "v_cvt_scalef32_pk_fp4_bf16"}
LANE_SWAPS = {"v_permlane16_swap_b32", "v_permlane32_swap_b32"}


def _kinds(instruction: Instruction) -> list[type]:
    items = (*instruction.parameters, *instruction.results)
    return [i.kind for i in items if isinstance(i.kind, type) and issubclass(i.kind, (Lanes, Words))]


def is_float(item: Parameter) -> bool:
    """Whether an operand is a float of 16, 32 or 64 bits."""
    return item.kind in (F16, F32, F64)


def short_mnemonic(instruction: Instruction) -> str:
    """The name of the 32-bit form: with its suffix where there is a 64-bit one to tell it from."""
    plain = instruction.name in NO_SHORT_SUFFIX or not takes_vop3(instruction)
    return instruction.name if plain else f"{instruction.name}_e32"


def has_plain_sdwa(instruction: Instruction) -> bool:
    """Whether the SDWA form has a source select only."""
    return instruction.name in PLAIN_SDWA


def _is_scale(instruction: Instruction, parameter: Parameter) -> bool:
    """The scale of a block conversion is written as a float; those of whole blocks have no signs at all."""
    if "_cvt_scalef32_" not in instruction.name or instruction.parameter("op_sel") is None:
        return False
    return parameter == [p for p in instruction.parameters if p.name in ("src0", "src1", "src2")][-1]


def has_signs(instruction: Instruction, parameter: Parameter, form: str) -> bool:
    """Whether a source takes NEG and ABS in a form: VOP3, dpp or sdwa."""
    if instruction.name == "v_mov_b32":
        return False
    if _is_scale(instruction, parameter):
        return True
    return is_float(parameter) or parameter.place in PAIRS_WITH_SIGNS


def _takes_omod(instruction: Instruction) -> bool:
    if instruction.name in OMOD_ON_INTEGERS:
        return True
    if instruction.name in MOVES or "_cvt_scalef32_" in instruction.name:
        return False
    return bool(instruction.results) and is_float(instruction.results[0])


def _takes_clamp(instruction: Instruction) -> bool:
    """In the 64-bit form: results that saturate, floats, and what is made of floats. [6.5]"""
    if instruction.name in NO_CLAMP:
        return False
    if instruction.parameter("clamp") or instruction.name in CLAMP_ON_INTEGERS:
        return True
    if instruction.name in MOVES or instruction.parameter("op_sel") or "_class_" in instruction.name:
        return False
    if "_cvt_scalef32_" in instruction.name:
        return False
    return any(is_float(i) or i.place == "bf16" for i in (*instruction.parameters, *instruction.results))


def _op_sel(instruction: Instruction, sources: int) -> tuple[Modifier, ...]:
    native = instruction.encoding == "VOP3" and "_legacy_" not in instruction.name
    halves = native and any(getattr(kind, "width", 0) == 16 for kind in _kinds(instruction))
    if uses_vop3b(instruction):  # SDST stands where its bits would
        return ()
    if not (halves or instruction.parameter("op_sel") or instruction.name in OP_SEL_ON_32_BITS):
        return ()
    bits = [0, 1, 2, 3] if instruction.name in BYTE_RESULTS else [*range(sources), 3]
    return (BitList("op_sel", tuple(bit("op_sel", i) for i in bits), shortest=sources),)


def long_modifiers(instruction: Instruction, sources: int) -> tuple[Modifier, ...]:
    """The modifiers of the 64-bit form, as LLVM orders them."""
    if instruction.name in LANE_SWAPS:
        return BoundControl(bit("op_sel", 1)), Value("fi", bit("op_sel", 0), 1)
    table: tuple[Modifier, ...] = ()
    if "_bitop3_" in instruction.name:
        table = (Value("bitop3", TruthTable(), 8, hexadecimal=11),)
    clamp: tuple[Modifier, ...] = (Flag("clamp", bit("clamp", 0)),) if _takes_clamp(instruction) else ()
    omod: tuple[Modifier, ...] = (OutputScale(Field("omod")),) if _takes_omod(instruction) else ()
    return (*table, *_op_sel(instruction, sources), *clamp, *omod)


class TruthTable:
    """The truth table of V_BITOP3: {OMOD, ABS, NEG}. [12.11]"""

    PARTS = (("neg", 0, 3), ("abs", 3, 3), ("omod", 6, 2))

    def get(self, decoded: Decoded) -> int:
        """The 8 bits."""
        return sum(Field(name).get(decoded) << low for name, low, _ in self.PARTS)

    def put(self, decoded: Decoded, value: int) -> None:
        """Writes the three fields."""
        for name, low, count in self.PARTS:
            Field(name).put(decoded, value >> low & (1 << count) - 1)


def sdwa_modifiers(instruction: Instruction) -> tuple[Modifier, ...]:
    """clamp and omod of the SDWA form; compares have neither."""
    if instruction.encoding == "VOPC" or not instruction.results:
        return ()
    clamp = Flag("clamp", Field("clamp", "sdwa"))
    return (clamp, OutputScale(Field("omod", "sdwa"))) if _takes_sdwa_omod(instruction) else (clamp,)


def _takes_sdwa_omod(instruction: Instruction) -> bool:
    if instruction.name in PLAIN_SDWA | {"v_pk_fmac_f16"}:
        return True
    return instruction.name not in MOVES and is_float(instruction.results[0])
