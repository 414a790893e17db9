"""The operands of one instruction as values for its body: registers, constants, and what DPP, SDWA, neg, abs and op_sel
make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from emu.addresses import address, buffer, smem_offset
from emu.modifiers import apply_neg_abs, dpp_lanes, sdwa_select
from emu.register_checks import AGPR, SCALAR_REGISTERS, UnsupportedForm, check_even, check_scalar_run, check_vector_run
from emu.registers import HardwareWords, ScalarNumbers
from emu.scalar_sources import (
    constant_word,
    inline_bits,
    is_float_constant,
    scalar_pair,
    scalar_raw,
    scalar_value,
)
from emu.state import State
from gfx950.evidence import Evidence, rule
from gfx950.isa.encoding import Decoded
from gfx950.isa.operand_codes import EXEC, FORMAT_REGISTERS, LITERAL, M0, VCC, VGPR_FIRST
from gfx950.isa.registry import Instruction, Parameter
from gfx950.lanes import U16, U32, U64, Engine, Lanes, Mask, Mode, Raw, Words, join

ACCVGPR_MOVES = (88, 89)  # v_accvgpr_read / write: LLVM's assembler sets their ACC bits, which mean nothing
FLOAT_PAIRS = ("f16_pair", "bf16_pair", "f32_pair")
# What the registers of a memory instruction are called in its encoding, where it is not their usual name.
MEMORY_FIELDS = {
    ("FLAT", "data0"): "data",
    **{(form, name): "vdata" for form in ("MUBUF", "MTBUF") for name in ("data0", "vdst")},
}
INDEXED_ENCODINGS = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P"))
DESTINATION = 3  # the role of a destination in VGPR indexing
ADDEND_IN_SRC1 = ("v_fmamk_f32", "v_madmk_f16")  # for VGPR indexing the addend is source 2 [6.6.2]

rule(
    "valu.gpr_index",
    Evidence.spec,
    "CDNA4 ISA 6.6",
    "With MODE.GPR_IDX_EN, M0[7:0] is added to the number of every VGPR operand whose bit in M0[15:12] is set; the"
    " destination's old value moves with the destination.",
)
rule(
    "valu.gpr_index_reach",
    Evidence.chosen,
    "CDNA4 ISA 6.6 names neither the formats nor what a number past the last register does",
    "MODE.GPR_IDX_EN acts on VOP1, VOP2, VOPC, VOP3 and VOP3P; past the last register v0 is read and nothing written.",
)


class Operands:
    """Reads the parameters of one instruction's body."""

    def __init__(self, decoded: Decoded, state: State) -> None:
        self.decoded = decoded
        self.state = state
        self.engine = state.engine
        self.fields = decoded.fields
        self.instruction: Instruction = decoded.instruction
        self.write_mask: Raw | None = None  # lanes a DPP form may write, beside EXEC

    def read(self, parameter: Parameter) -> Any:
        """The value of one parameter of the body."""
        if parameter.kind is Mode:
            return self.engine.mode
        if parameter.kind is int:
            return self._immediate(parameter.name)
        reader = _SPECIAL.get(parameter.name)
        if reader is not None:
            return reader(self)
        if parameter.place in ("lds", "global", "scalar_memory"):
            return self.state.memory(parameter.place)
        if parameter.place in ("hardware", "scalar_file"):
            return (HardwareWords if parameter.place == "hardware" else ScalarNumbers)(self.state)
        return self._read_field(parameter)

    def _immediate(self, name: str) -> int:
        if name == "literal":
            return self.decoded.literal or 0
        if name == "offset" and self.decoded.form == "DS":
            return self.fields["offset0"] | self.fields["offset1"] << 8
        if name.endswith("_code"):
            return self.fields[name.removesuffix("_code")]
        if name.startswith("scale_"):
            return (self.decoded.scale or {}).get(name.removeprefix("scale_"), 0)
        sdwa = self.decoded.sdwa or {}
        value = sdwa["clamp"] if name == "clamp" and "clamp" in sdwa else self.fields.get(name, 0)
        return value - 0x10000 if name == "simm16" and self.decoded.form == "SOPK" and value & 0x8000 else value

    def _read_field(self, parameter: Parameter) -> Any:
        name, form = parameter.name, self.decoded.form
        if form in ("SOP1", "SOP2", "SOPC", "SOPK"):
            return scalar_value(self.decoded, self.state, self.fields[name], parameter.kind)
        if form == "SMEM":
            code = self.fields["sbase"] * 2 if name == "sbase" else self.fields["sdata"]
            return scalar_value(self.decoded, self.state, code, parameter.kind)
        if form in ("DS", "FLAT", "MUBUF", "MTBUF"):
            return self._memory_register(parameter)
        return self._vector_operand(parameter)

    def _memory_register(self, parameter: Parameter) -> Any:
        name = MEMORY_FIELDS.get((self.decoded.form, parameter.name), parameter.name)
        acc = AGPR if self.fields["acc"] and name != "addr" else 0
        return self._registers(self.fields[name] + acc, parameter.kind)

    def _vector_operand(self, parameter: Parameter) -> Any:
        name = parameter.name
        if name == "vdst":
            index = self.fields["vdst"] + (AGPR if self.fields.get("acc_cd") else 0)
            return self._registers(index, parameter.kind, role=DESTINATION)
        if parameter.place == "scale":
            return self._scale((self.decoded.scale or {})["src0" if name == "scale_a" else "src1"])
        if parameter.place in ("matrix_a", "matrix_b"):
            return self._matrix_operand(parameter)
        if self._of_matrices():
            return self._matrix_source(parameter)
        if parameter.place == "agpr":
            return self._registers((self.fields[name] & 0xFF) + AGPR, parameter.kind)
        code = self._source_code(name)
        if parameter.place == "scalar":
            if code >= VGPR_FIRST:
                raise UnsupportedForm(f"operand {name} must be scalar and is v{code - VGPR_FIRST}")
            return scalar_value(self.decoded, self.state, code, parameter.kind)
        role = 2 if name == "src1" and self.instruction.name in ADDEND_IN_SRC1 else int(name[-1])
        value = self._source(code, parameter.kind, self._half(name), self._float_place(parameter), role)
        return self._modified(name, parameter, value)

    def _of_matrices(self) -> bool:
        return self.instruction.encoding.startswith("MAI") and self.instruction.opcode not in ACCVGPR_MOVES

    def _float_place(self, parameter: Parameter) -> str | None:
        """The place that says which floats an operand in an integer type holds."""
        if parameter.place != "mixed":
            return parameter.place
        op_sel_hi = self.fields["op_sel_hi"] | self.fields["op_sel_hi2"] << 2
        return "f16_pair" if op_sel_hi >> int(parameter.name[-1]) & 1 else None

    def _matrix_operand(self, parameter: Parameter) -> Any:
        """As many registers as the format needs (CBSZ for A, BLGP for B: 8, 6 or 4), zeros behind them."""
        code = self._source_code(parameter.name) - 256
        count = FORMAT_REGISTERS.get(self.fields["cbsz" if parameter.place == "matrix_a" else "blgp"])
        if count is None or code < 0:
            raise UnsupportedForm(
                f"pc 0x{self.decoded.pc:x}: {self.instruction.name} with format {self.fields['cbsz']},"
                f" {self.fields['blgp']}: formats are 0..4 in vector registers"
            )
        check_vector_run(self.instruction.name, code, count)
        words = [U32(self.engine, self.state.vgpr(code + i)) for i in range(count)]
        zero = U32.constant(self.engine, 0).splat()
        return parameter.kind([*words, *[zero] * (8 - count)])

    def _matrix_source(self, parameter: Parameter) -> Any:
        """A, B, C or the index of a matrix instruction: vector registers, and for C a constant too. [7.1.2, 7.5]"""
        name, kind = parameter.name, parameter.kind
        code = self.fields[name] if parameter.place == "index" else self._source_code(name)
        if code >= VGPR_FIRST:
            return self._registers(code - VGPR_FIRST, kind)
        width = 64 if parameter.place == "f64" else 32
        bits = inline_bits(self.decoded, code, width) if name == "src2" and parameter.place != "index" else None
        if bits is None or code == LITERAL:
            raise UnsupportedForm(
                f"{name} of a matrix instruction is source code {code}: A, B and the index of a sparse A are vector"
                " registers, and C is those or an inline constant"
            )
        words = [U32.constant(self.engine, bits >> 32 * i & 0xFFFFFFFF).splat() for i in range(width // 32)]
        if issubclass(kind, Words):
            return kind(words * (kind.count // len(words)))
        return join(words[0], words[1]).bits(kind)

    def _scale(self, code: int) -> U32:
        """The scales of A or B. [rule mfma.scale_constant]"""
        if is_float_constant(code):
            exponent = (inline_bits(self.decoded, code, 32) or 0) >> 23 & 0xFF
            return U32.constant(self.engine, exponent * 0x01010101).splat()
        value: U32 = self._source(code, U32)
        return value

    def _source_code(self, name: str) -> int:
        form, fields = self.decoded.form, self.fields
        index = int(name[-1])
        if self.decoded.dpp is not None and index == 0:
            return 256 + self.decoded.dpp["src0"]
        if self.decoded.sdwa is not None:
            sdwa = self.decoded.sdwa
            if index == 0:
                return sdwa["src0"] + (0 if sdwa["s0"] else 256)
            return fields["src1"] + (0 if sdwa["s1"] else 256)
        if form in ("VOP2", "VOPC") and index == 1:
            return 256 + fields["src1"]
        code = fields[name]
        if (
            self.instruction.encoding.startswith("MAI")
            and code >= VGPR_FIRST
            and self.instruction.opcode not in ACCVGPR_MOVES
        ):
            acc = fields["acc_cd"] if index == 2 else fields["acc"] >> index & 1
            return code + (AGPR if acc else 0)
        return code

    def _half(self, name: str) -> int:
        """Which 16-bit half a 16-bit source comes from (VOP3 op_sel)."""
        return self.fields.get("op_sel", 0) >> int(name[-1]) & 1 if self.decoded.form == "VOP3" else 0

    def _modified(self, name: str, parameter: Parameter, value: Any) -> Any:
        if not isinstance(value, Lanes):
            return value
        index = int(name[-1])
        if index == 0 and self.decoded.dpp is not None:
            value = self._dpp(value)
        if self.decoded.sdwa is not None and index < 2:
            value = self._sdwa_source(index, parameter)
        return self._signed(value, parameter, *self._signs(index))

    def _signed(self, value: Lanes, parameter: Parameter, neg: int, absolute: int) -> Lanes:
        """NEG and ABS, of floats in integer types too. Those of pairs are for bodies that ask for them. [6.2.1]"""
        if parameter.place == "bf16":
            word = U16(self.engine, value.raw)
            word = word & 0x7FFF if absolute else word
            return word ^ 0x8000 if neg else word
        asked = self.decoded.form == "VOP3" and self.instruction.parameter("neg") is not None
        if (neg or absolute) and parameter.place in FLOAT_PAIRS and not asked:
            raise UnsupportedForm(f"neg or abs on the pair {parameter.name}: its meaning is not documented")
        return apply_neg_abs(value, neg, absolute)

    def _signs(self, index: int) -> tuple[int, int]:
        if self.decoded.form == "VOP3":
            return self.fields["neg"] >> index & 1, self.fields.get("abs", 0) >> index & 1
        extra = self.decoded.dpp or self.decoded.sdwa
        if extra is not None and index < 2:
            return extra[f"src{index}_neg"], extra[f"src{index}_abs"]
        return 0, 0

    def _dpp(self, value: Lanes) -> Lanes:
        dpp = self.decoded.dpp
        assert dpp is not None
        lanes, valid = dpp_lanes(dpp["ctrl"], self.decoded.pc)
        moved = value.permute(lanes)
        active = Mask(self.engine, self.state.exec_mask()).permute(lanes)
        good = active & _static_mask(self.engine, valid)
        rows = _static_mask(
            self.engine,
            [bool(dpp["row_mask"] >> n // 16 & 1) and bool(dpp["bank_mask"] >> n % 16 // 4 & 1) for n in range(64)],
        )
        self.write_mask = (rows if dpp["bound_ctrl"] else rows & good).raw
        return good.select(moved, type(value).constant(self.engine, 0))

    def _sdwa_source(self, index: int, parameter: Parameter) -> Lanes:
        sdwa = self.decoded.sdwa
        assert sdwa is not None
        code = self._source_code(f"src{index}")
        whole = U32(self.engine, self._sdwa_word(code, index, parameter))
        return sdwa_select(whole, sdwa[f"src{index}_sel"], sdwa[f"src{index}_sext"], parameter.kind)

    def _sdwa_word(self, code: int, index: int, parameter: Parameter) -> Raw:
        if code >= VGPR_FIRST:
            return self._vgpr(code - VGPR_FIRST, index)
        constant = constant_word(self.decoded, code, parameter.kind, parameter.place)
        return self._scalar(code, 32) if constant is None else self.engine.constant(constant, 32)

    def _source(self, code: int, kind: Any, half: int = 0, place: str | None = None, role: int | None = None) -> Any:
        if code >= VGPR_FIRST:
            return self._registers(code - VGPR_FIRST, kind, half, role)
        if issubclass(kind, Words):
            word = U32(self.engine, self._scalar(code, 32)).splat()
            return kind([word] * kind.count)
        if self.instruction.encoding == "VOP3P" and kind.width == 64 and code >= 128:
            word = U32(self.engine, self._scalar(code, 32))  # both registers of a pair are the 32-bit constant
            return join(word, word).bits(kind)
        constant = constant_word(self.decoded, code, kind, place) if kind.width <= 32 else None
        if constant is None:
            return kind(self.engine, self._scalar(code, kind.width, half))
        part = constant >> 16 * half if kind.width < 32 else constant
        return kind(self.engine, self.engine.constant(part & (1 << kind.width) - 1, kind.width))

    def _registers(self, index: int, kind: Any, half: int = 0, role: int | None = None) -> Any:
        count = max(1, _words_of(kind))
        check_vector_run(self.instruction.name, index, count)
        words = [U32(self.engine, self._vgpr(index + i, role)) for i in range(count)]
        if issubclass(kind, Words):
            return kind(words)
        if kind.width == 64:
            return join(words[0], words[1]).bits(kind)
        if kind.width < 32:
            part = words[0] >> (16 * half) if half else words[0]
            return kind(self.engine, self.engine.apply("trunc", kind.width, part.raw))
        return words[0].bits(kind)

    def _vgpr(self, index: int, role: int | None) -> Raw:
        """A vector register, moved by VGPR indexing where the instruction knows it."""
        return self.state.vgpr(index, role if self.instruction.encoding in INDEXED_ENCODINGS else None)

    def _scalar(self, code: int, width: int, half: int = 0) -> Raw:
        return scalar_raw(self.decoded, self.state, code, width, half)

    def packed_source(self, parameter: Parameter, high: int) -> Any:
        """A parameter for the low or the high result of a packed instruction."""
        if not isinstance(parameter.kind, type) or not issubclass(parameter.kind, Lanes):
            return self.read(parameter)
        index = int(parameter.name[-1])
        fields, kind = self.fields, parameter.kind
        op_sel_hi = fields["op_sel_hi"] | fields["op_sel_hi2"] << 2
        half = (op_sel_hi if high else fields["op_sel"]) >> index & 1
        code = fields[parameter.name]
        if kind.width == 32:
            value: Lanes = kind(self.engine, self._packed_word(code, half, index))
        else:
            value = self._source(code, kind, half, role=index)
        neg = (fields["neg_hi"] if high else fields["neg"]) >> index & 1
        return apply_neg_abs(value, neg, 0)

    def _packed_word(self, code: int, half: int, role: int) -> Raw:
        """One word of a pair of registers; a constant is both words."""
        if code >= VGPR_FIRST:
            check_even(code - VGPR_FIRST, 2)
            return self._vgpr(code - VGPR_FIRST + half, role)
        check_scalar_run(code, 2)
        return self._scalar(code + half if code < SCALAR_REGISTERS else code, 32)

    def carry_in(self) -> Mask:
        """VCC in the 32-bit forms, the pair in src2 in the 64-bit form."""
        if self.decoded.form == "VOP3":
            return self.mask_of(self.fields["src2"])
        return self.mask_of(VCC)

    def mask_of(self, code: int) -> Mask:
        """The lanes of a 64-bit scalar operand."""
        if code >= VGPR_FIRST:
            raise UnsupportedForm(f"a mask of lanes must be scalar and is v{code - VGPR_FIRST}")
        return Mask(self.engine, self.engine.apply("lanes_of", 1, self._scalar(code, 64)))


def _words_of(kind: Any) -> int:
    return kind.count if issubclass(kind, Words) else 2 if kind.width == 64 else 1


def _static_mask(engine: Engine, lanes: Sequence[bool]) -> Mask:
    bits = sum(1 << n for n, on in enumerate(lanes) if on)
    return Mask(engine, engine.apply("lanes_of", 1, engine.constant(bits, 64)))


_SPECIAL: dict[str, Callable[[Operands], Any]] = {
    "scc": lambda o: Mask(o.engine, o.state.scc()),
    "exec": lambda o: scalar_pair(o.state, EXEC),
    "vcc": lambda o: o.mask_of(VCC),
    "m0": lambda o: U32(o.engine, o.state.sgpr(M0)),
    "carry_in": lambda o: o.carry_in(),
    "clock": lambda o: U64(o.engine, o.state.clock()),
    "pc": lambda o: U64.constant(o.engine, o.decoded.pc + o.decoded.nbytes),
    "address": lambda o: address(o.decoded, o.state),
    "smem_offset": lambda o: smem_offset(o.decoded, o.state),
    "buffer": lambda o: buffer(o.decoded, o.state),
}
