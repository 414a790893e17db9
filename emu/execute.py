"""Executes one decoded instruction on any engine: operands in, the definition's body, results out.

Everything that wraps an instruction lives here, once: source codes and literals, register files, EXEC masking, DPP,
SDWA, neg, abs, op_sel, clamp, omod. A `State` holds the registers; the numpy wave and the translator's block are two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from emu.memory import PRIVATE_APERTURE, SHARED_APERTURE
from emu.modifiers import (
    apply_neg_abs,
    apply_omod,
    dpp_lanes,
    sdwa_merge,
    sdwa_select,
)
from emu.registers import EXEC, M0, VCC, HardwareWords, ScalarNumbers
from gfx950.evidence import Evidence, rule
from gfx950.isa.buffer_addressing import Buffer
from gfx950.isa.encoding import LITERAL, Decoded
from gfx950.isa.lane_arithmetic import clamped
from gfx950.isa.mode_registers import STATUS, TRAPSTS
from gfx950.isa.registry import Instruction, Parameter
from gfx950.lanes import (
    B128,
    F16,
    F64,
    U16,
    U32,
    U64,
    Engine,
    Float,
    Lanes,
    Mask,
    Mode,
    Raw,
    Words,
    float_bits,
    join,
    split,
)

NO_SADDR = 0x7F
SCALAR_REGISTERS = 128
_APERTURE_LIMIT = (1 << 32) - 1
APERTURES = {
    235: SHARED_APERTURE,
    236: SHARED_APERTURE | _APERTURE_LIMIT,
    237: PRIVATE_APERTURE,
    238: PRIVATE_APERTURE | _APERTURE_LIMIT,
}
PC_MASK = (1 << 48) - 1  # the program counter has 48 bits [CDNA4 ISA 3.2]
AGPR = 256  # index of a0 in the unified register file
ACCVGPR_MOVES = (
    88,
    89,
)  # v_accvgpr_read / write: LLVM's assembler sets their ACC bits, which mean nothing
MATRIX_REGISTERS = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}  # by f8f6f4 format code [7.1.5]
INLINE_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
INLINE_TWO_PI = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}  # 1 / (2 pi), as LLVM's assembler knows it
FLOAT_PAIRS = ("f16_pair", "bf16_pair", "f32_pair")

rule(
    "valu.inline_float",
    Evidence.published,
    "LLVM's AMDGPU assembler (getOpFltSemantics, isInlinableLiteralBF16): for 16-bit integers it truncates the 32-bit"
    " constant, which it says is what hardware does; CDNA4 ISA table 23 names half, single and double, 12.7 and 12.9"
    " half for S1 of V_LDEXP_F16 and V_CMP_CLASS_F16 (of which LLVM says f32)",
    "An inline float constant is a 32-bit word: f16 in the low half for f16 operands and pairs and those two, the top"
    " of the f32 in the low half for bf16 ones, the f32 for all others, 16-bit integers too.",
)
rule(
    "valu.inline_half",
    Evidence.chosen,
    "the manual says nothing about OP_SEL on a constant; LLVM accepts it, and clears OP_SEL_HI for a constant of packed"
    " f32, so that what it compiles never asks for the second register",
    "OP_SEL picks a half of that word, the high half of an integer constant is its sign. An operand of V_FMA_MIX is an"
    " f16 constant where its OP_SEL_HI bit is set. Both registers of a packed f32 pair are the constant.",
)


# What the registers of a memory instruction are called in its encoding, where it is not their usual name.
MEMORY_FIELDS = {
    ("FLAT", "data0"): "data",
    **{(form, name): "vdata" for form in ("MUBUF", "MTBUF") for name in ("data0", "vdst")},
}
STOPS = ("end", "barrier", "trap", "halt", "halt_always", "kill")
DEBUG_TRAP = 3
VECTOR_MEMORY = frozenset(("FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MUBUF_LDS", "MTBUF"))  # what vmcnt counts
INDEXED_ENCODINGS = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P"))
VECTOR_ENCODINGS = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P", "MAI", "MAI_SCALE", "DS")) | VECTOR_MEMORY
MEMORY_ENCODINGS = VECTOR_MEMORY | {"DS", "SMEM"}
VMCNT_FREE = 63  # a wait for no more than so many is none
DESTINATION = 3  # the role of a destination in VGPR indexing
SELECT_ONLY = ("v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8")  # of SDWA: SRC0_SEL [7.3]
ADDEND_IN_SRC1 = ("v_fmamk_f32", "v_madmk_f16")  # for VGPR indexing the addend is source 2 [6.6.2]
# FLAT_SCRATCH is read-only [3.1]; only a trap handler writes the trap registers, to others they read 0 [3.10].
READ_ONLY = (102, 103, *range(108, 124))

rule(
    "valu.gpr_index",
    Evidence.spec,
    "CDNA4 ISA 6.6; which VALU formats it covers, and that a register past the last is v0 or not written, are chosen",
    "With MODE.GPR_IDX_EN, M0[7:0] is added to the number of every VGPR operand of VOP1, VOP2, VOPC, VOP3 and VOP3P"
    " whose bit in M0[15:12] is set; the destination's old value moves with the destination.",
)


class State(Protocol):
    """The registers and memories an instruction sees. Raw values belong to `engine`."""

    engine: Engine

    def sgpr(self, index: int) -> Raw:
        """The 32-bit scalar at scalar code `index` (0..127)."""
        ...

    def set_sgpr(self, index: int, value: Raw) -> None:
        """Writes a 32-bit scalar register."""
        ...

    def sgpr_at(self, index: Raw) -> Raw:
        """The 32-bit scalar at a computed scalar code, 0..127."""
        ...

    def set_sgpr_at(self, index: Raw, value: Raw) -> None:
        """Writes the scalar register at a computed scalar code, 0..127."""
        ...

    def vgpr(self, index: int, role: int | None = None) -> Raw:
        """The 64 lanes of a vector register: 0..255 v, 256..511 a. role: the operand's bit above M0[12] that says
        whether VGPR indexing moves it (0..2 sources, 3 destination; None: never)."""
        ...

    def set_vgpr(self, index: int, value: Raw, mask: Raw | None, role: int | None = None) -> None:
        """Writes the lanes in `mask` (None: all)."""
        ...

    def hardware_word(self, number: int) -> Raw:
        """The 32-bit scalar kept for a hardware register."""
        ...

    def set_hardware_word(self, number: int, value: Raw) -> None:
        """Writes one that is not MODE."""
        ...

    def set_mode(self, value: Raw) -> None:
        """Writes MODE; the next instruction runs under it."""
        ...

    def clock(self) -> Raw:
        """A 64-bit scalar: the instructions this wave has run."""
        ...

    def issue(self) -> None:
        """Counts one instruction of those that vmcnt counts."""
        ...

    def land(self, outstanding: int) -> None:
        """Loads to LDS land, but the youngest `outstanding` of what `issue` counted."""
        ...

    def window(self, name: str) -> Raw:
        """64 bits: `lds`, the address LDS has in memory (a scalar); `scratch`, that of each lane's scratch (64 lanes);
        `scratch_bytes`, how much of it a lane has (a scalar)."""
        ...

    def scc(self) -> Raw:
        """SCC, a scalar mask."""
        ...

    def set_scc(self, value: Raw) -> None:
        """Writes SCC."""
        ...

    def exec_mask(self) -> Raw:
        """EXEC as a mask of lanes."""
        ...

    def memory(self, space: str) -> Any:
        """The LaneMemory `lds` or `global`, or the ScalarMemory `scalar_memory`."""
        ...


@dataclass(frozen=True)
class Transfer:
    """Where control goes: kind (branch, jump, end, barrier, trap, halt), the scalar condition (None: always), the
    target (an address, or a 64-bit scalar for jump)."""

    kind: str
    condition: Raw | None = None
    target: Any = None


class UnsupportedForm(Exception):
    """A legal encoding of a known instruction that this emulator does not run yet."""


def check_vector(index: int) -> None:
    """Raises UnsupportedForm for an index outside the unified vector register file (0..511)."""
    if not 0 <= index < 2 * AGPR:
        raise UnsupportedForm(f"it reaches past the last vector register (a{index - AGPR})")


def check_run(index: int, count: int) -> None:
    """Raises UnsupportedForm where `count` registers from `index` on leave their half of the file (v or a)."""
    if index % AGPR + count > AGPR:
        name = f"{'av'[index < AGPR]}{index % AGPR}"
        raise UnsupportedForm(f"{count} registers from {name} on reach past the last one (255)")


def check_even(index: int, count: int) -> None:
    """Raises UnsupportedForm where several vector registers start at an odd one. [6.7.1, 7.1.2]"""
    if count > 1 and index % 2:
        raise UnsupportedForm(f"{'av'[index < AGPR]}{index % AGPR} starts an operand of {count} registers: it is odd")


def check_scalar_run(index: int, count: int) -> None:
    """Raises UnsupportedForm where two scalar registers start at an odd one, or more at no multiple of 4. [5.2, 8.4]"""
    if index < SCALAR_REGISTERS and index % min(count, 4):
        which = "odd" if count == 2 else "no multiple of 4"
        raise UnsupportedForm(f"scalar register {index} starts an operand of {count} registers: it is {which}")


def check_scalar(index: int) -> None:
    """Raises UnsupportedForm for a scalar code that is no register (0..127)."""
    if not 0 <= index < SCALAR_REGISTERS:
        raise UnsupportedForm(f"scalar code {index} is no register")


def execute(decoded: Decoded, state: State) -> Transfer | None:
    """Runs one instruction. Returns how control leaves it, None for the next instruction."""
    instruction = decoded.instruction
    if instruction.flow == "nothing" and not decoded.refusal:
        return None
    if instruction.flow == "priority":
        _set_priority(decoded, state)
        return None
    if instruction.flow == "wait":
        _wait(decoded, state)
        return None
    if instruction.flow in STOPS:
        return _stop(decoded, state)
    if state.engine.mode.vskip and instruction.encoding in VECTOR_ENCODINGS:
        return None
    if instruction.flow == "clear":
        _clear_exceptions(state)
        return None
    if instruction.encoding in VECTOR_MEMORY:
        state.issue()
    if decoded.refusal:
        raise UnsupportedForm(decoded.refusal)
    if instruction.flow == "refused":
        raise UnsupportedForm(f"{instruction.name}: {instruction.rules[0].text} [rule {instruction.rules[0].name}]")
    operands = Operands(decoded, state)
    if instruction.packed:
        operands.run_packed()
        return None
    if instruction.encoding in MEMORY_ENCODINGS:
        operands.check_returned()
    results = instruction.body(*(operands.read(p) for p in instruction.parameters))
    if instruction.flow == "branch":
        offset = decoded.fields["simm16"]
        target = decoded.pc + decoded.nbytes + 4 * (offset - 0x10000 if offset & 0x8000 else offset)
        return Transfer("branch", results.raw if results is not None else None, target)
    return operands.write(results)


rule(
    "lds.late_landing",
    Evidence.published,
    "shipped gfx950 kernels run right only so (facts: field kernels); CDNA4 ISA 4.4: vmcnt counts down in order",
    "The data of a load to LDS land at the s_waitcnt whose vmcnt retires it, or at the end of the wave; a 65th before"
    " that lands the oldest.",
)


def _wait(decoded: Decoded, state: State) -> None:
    """S_WAITCNT: vmcnt = {SIMM16[15:14], SIMM16[3:0]}. [12.5]"""
    simm16 = decoded.fields["simm16"]
    vmcnt = simm16 >> 14 << 4 | simm16 & 15
    if decoded.instruction.name == "s_waitcnt" and vmcnt < VMCNT_FREE:
        state.land(vmcnt)


def _set_priority(decoded: Decoded, state: State) -> None:
    """S_SETPRIO: STATUS[4:3] = SIMM16[1:0]. [3.4, 12.5]"""
    kept = U32(state.engine, state.hardware_word(STATUS)) & ~0x18
    state.set_hardware_word(STATUS, (kept | (decoded.fields["simm16"] & 3) << 3).raw)


def _clear_exceptions(state: State) -> None:
    """V_CLREXCP: TRAPSTS[6:0] = 0, what vector arithmetic raises. [3.10.1, 12.8]"""
    word = U32(state.engine, state.hardware_word(TRAPSTS))
    state.set_hardware_word(TRAPSTS, (word & ~0x7F).raw)


def _stop(decoded: Decoded, state: State) -> Transfer | None:
    """A barrier, or the end of the wave in one way or another [rules salu.trap, salu.halt]."""
    flow, simm16 = decoded.instruction.flow, decoded.fields["simm16"]
    if flow in ("end", "kill"):
        state.land(0)
    if flow == "trap":
        return None if simm16 & 0xFF == DEBUG_TRAP else Transfer("trap")
    if flow in ("halt", "kill"):
        return Transfer("halt" if flow == "halt" else "end") if simm16 & 1 else None
    return Transfer("halt" if flow == "halt_always" else flow)


def polls(decoded: Decoded) -> bool:
    """Whether this is an instruction of which loops that wait are made: a sleep, a load that looks past the caches, an
    atomic that returns."""
    name, fields = decoded.instruction.name, decoded.fields
    if name == "s_sleep":
        return True
    if decoded.form == "SMEM":
        return bool(fields["glc"]) and "store" not in name
    if decoded.instruction.encoding not in VECTOR_MEMORY:
        return False
    return bool(fields["sc0"]) if "atomic" in name else "load" in name and bool(fields["sc1"])


class Operands:
    """The operands of one instruction: reads parameters, writes results."""

    def __init__(self, decoded: Decoded, state: State) -> None:
        if decoded.sdwa is not None and decoded.instruction.name in SELECT_ONLY:
            kept = {name: decoded.sdwa[name] for name in ("src0", "src0_sel", "s0")}
            decoded = replace(decoded, sdwa={**dict.fromkeys(decoded.sdwa, 0), **kept, "dst_sel": 6})
        self.decoded = decoded
        self.state = state
        self.engine = state.engine
        self.fields = decoded.fields
        self.instruction: Instruction = decoded.instruction
        self.write_mask: Raw | None = None  # lanes a DPP form may write, beside EXEC

    # ---- reading --------------------------------------------------------------------------------------------------

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
            return self._scalar(self.fields[name], parameter.kind)
        if form == "SMEM":
            code = self.fields["sbase"] * 2 if name == "sbase" else self.fields["sdata"]
            return self._scalar(code, parameter.kind)
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
        if self.instruction.encoding.startswith("MAI") and self.instruction.opcode not in ACCVGPR_MOVES:
            return self._matrix_source(parameter)
        if parameter.place == "agpr":
            return self._registers((self.fields[name] & 0xFF) + AGPR, parameter.kind)
        code = self._source_code(name)
        if parameter.place == "scalar":
            if code >= 256:
                raise UnsupportedForm(f"operand {name} must be scalar and is v{code - 256}")
            return self._scalar(code & 0xFF if code < 256 else code, parameter.kind)
        role = 2 if name == "src1" and self.instruction.name in ADDEND_IN_SRC1 else int(name[-1])
        value = self._source(code, parameter.kind, self._half(name), self._float_place(parameter), role)
        return self._modified(name, parameter, value)

    def _float_place(self, parameter: Parameter) -> str | None:
        """The place that says which floats an operand in an integer type holds."""
        if parameter.place != "mixed":
            return parameter.place
        op_sel_hi = self.fields["op_sel_hi"] | self.fields["op_sel_hi2"] << 2
        return "f16_pair" if op_sel_hi >> int(parameter.name[-1]) & 1 else None

    def _matrix_operand(self, parameter: Parameter) -> Any:
        """As many registers as the format needs (CBSZ for A, BLGP for B: 8, 6 or 4), zeros behind them."""
        code = self._source_code(parameter.name) - 256
        count = MATRIX_REGISTERS.get(self.fields["cbsz" if parameter.place == "matrix_a" else "blgp"])
        if count is None or code < 0:
            raise UnsupportedForm(
                f"pc 0x{self.decoded.pc:x}: {self.instruction.name} with format {self.fields['cbsz']},"
                f" {self.fields['blgp']}: formats are 0..4 in vector registers"
            )
        check_run(code, count)
        check_even(code, count)
        words = [U32(self.engine, self.state.vgpr(code + i)) for i in range(count)]
        zero = U32.constant(self.engine, 0).splat()
        return parameter.kind([*words, *[zero] * (8 - count)])

    def _matrix_source(self, parameter: Parameter) -> Any:
        """A, B, C or the index of a matrix instruction: vector registers, and for C a constant too. [7.1.2, 7.5]"""
        name, kind = parameter.name, parameter.kind
        code = self.fields[name] if parameter.place == "index" else self._source_code(name)
        if code >= 256:
            check_even(code - 256, _words_of(kind))
            return self._registers(code - 256, kind)
        width = 64 if parameter.place == "f64" else 32
        bits = self._inline_bits(code, width) if name == "src2" and parameter.place != "index" else None
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
        if code in INLINE_FLOATS or code == 248:
            exponent = (self._inline_bits(code, 32) or 0) >> 23 & 0xFF
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
        if self.instruction.encoding.startswith("MAI") and code >= 256 and self.instruction.opcode not in ACCVGPR_MOVES:
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
        constant = self._constant_word(code, parameter.kind, parameter.place)
        raw = self._code_raw(code, 32, role=index) if constant is None else self.engine.constant(constant, 32)
        whole = U32(self.engine, raw)
        return sdwa_select(whole, sdwa[f"src{index}_sel"], sdwa[f"src{index}_sext"], parameter.kind)

    def _scalar(self, code: int, kind: Any) -> Any:
        if isinstance(kind, type) and issubclass(kind, Words):
            check_scalar_run(code, kind.count)
            return kind([U32(self.engine, self.state.sgpr(code + i)) for i in range(kind.count)])
        return kind(self.engine, self._code_raw(code, kind.width))

    def _source(self, code: int, kind: Any, half: int = 0, place: str | None = None, role: int | None = None) -> Any:
        if code >= 256:
            return self._registers(code - 256, kind, half, role)
        if issubclass(kind, Words):
            word = U32(self.engine, self._code_raw(code, 32)).splat()
            return kind([word] * kind.count)
        if self.instruction.encoding == "VOP3P" and kind.width == 64 and code >= 128:
            word = U32(self.engine, self._code_raw(code, 32))  # both registers of a pair are the 32-bit constant
            return join(word, word).bits(kind)
        constant = self._constant_word(code, kind, place) if kind.width <= 32 else None
        if constant is None:
            return kind(self.engine, self._code_raw(code, kind.width, half))
        part = constant >> 16 * half if kind.width < 32 else constant
        return kind(self.engine, self.engine.constant(part & (1 << kind.width) - 1, kind.width))

    def _constant_word(self, code: int, kind: Any, place: str | None) -> int | None:
        """The 32 bits of a constant as an operand of up to 32 bits. [rules valu.inline_float, valu.inline_half]"""
        if code in INLINE_FLOATS or code == 248:
            if place in ("bf16", "bf16_pair"):
                return (self._inline_bits(code, 32) or 0) >> 16
            return self._inline_bits(code, 16 if kind is F16 or place in ("f16", "f16_pair") else 32)
        return self._inline_bits(code, 32)

    def _registers(self, index: int, kind: Any, half: int = 0, role: int | None = None) -> Any:
        count = max(1, _words_of(kind))
        check_run(index, count)
        self._check_even(index, count)
        words = [U32(self.engine, self._vgpr(index + i, role)) for i in range(count)]
        if issubclass(kind, Words):
            return kind(words)
        if kind.width == 64:
            return join(words[0], words[1]).bits(kind)
        if kind.width < 32:
            part = words[0] >> (16 * half) if half else words[0]
            return kind(self.engine, self.engine.apply("trunc", kind.width, part.raw))
        return words[0].bits(kind)

    def _check_even(self, index: int, count: int) -> None:
        if self.instruction.name != "ds_read_b96_tr_b6":  # the one whose result starts anywhere [11.4]
            check_even(index, count)

    def _vgpr(self, index: int, role: int | None) -> Raw:
        """A vector register, moved by VGPR indexing where the instruction knows it."""
        return self.state.vgpr(index, role if self.instruction.encoding in INDEXED_ENCODINGS else None)

    def _code_raw(self, code: int, width: int, half: int = 0, role: int | None = None) -> Raw:
        """The raw value of a 9-bit source code (VGPRs too) or an 8-bit scalar one, in `width` bits."""
        if code >= 256:
            return self._vgpr(code - 256, role)
        if code < 128:
            return self._sgpr_raw(code, width, half)
        constant = self._inline_bits(code, width)
        if constant is not None:
            return self.engine.constant(constant, width)
        if code in (251, 252, 253):
            return self._flag_raw(code, width)
        if code in APERTURES:
            return self.engine.constant(APERTURES[code] & (1 << width) - 1, width)
        raise UnsupportedForm(f"scalar source code {code} is reserved")

    def _sgpr_raw(self, code: int, width: int, half: int) -> Raw:
        low = U32(self.engine, self.state.sgpr(code))
        if width == 64:
            check_scalar_run(code, 2)
            return join(low, U32(self.engine, self.state.sgpr(code + 1))).raw
        if width < 32:
            return self.engine.apply("trunc", width, (low >> 16 if half else low).raw)
        return low.raw

    def _flag_raw(self, code: int, width: int) -> Raw:
        """VCCZ, EXECZ, SCC as a number."""
        if code == 253:
            return self.engine.apply("zext", width, self.state.scc())
        pair = VCC if code == 251 else EXEC
        zero = join(U32(self.engine, self.state.sgpr(pair)), U32(self.engine, self.state.sgpr(pair + 1))) == 0
        return self.engine.apply("zext", width, zero.raw)

    def _inline_bits(self, code: int, width: int) -> int | None:
        if 128 <= code <= 192:
            return code - 128
        if 193 <= code <= 208:
            return (192 - code) & (1 << width) - 1
        if code in INLINE_FLOATS:
            return float_bits(INLINE_FLOATS[code], width)
        if code == 248:
            return INLINE_TWO_PI[width]
        if code == LITERAL:
            return self._literal_bits(width)
        return None

    def _literal_bits(self, width: int) -> int:
        literal = self.decoded.literal or 0
        if width < 64:
            return literal & (1 << width) - 1
        kinds = [p.kind for p in self.instruction.parameters]
        if F64 in kinds:
            return literal << 32
        signed = any(isinstance(k, type) and k.__name__ == "I64" for k in kinds)
        return literal | (0xFFFFFFFF << 32 if signed and literal >> 31 else 0)

    # ---- packed ---------------------------------------------------------------------------------------------------

    def run_packed(self) -> None:
        """VOP3P: the body on the low results' halves, then on the high ones'. 32-bit types take register pairs."""
        parameters = self.instruction.parameters
        halves = [self.instruction.body(*(self._packed_source(p, high) for p in parameters)) for high in (0, 1)]
        halves = [clamped(h) if self.fields["clamp"] and isinstance(h, Float) else h for h in halves]
        if halves[0].width == 32:
            words = [h.bits(U32) for h in halves]
        else:
            low, high = (U32(self.engine, self.engine.apply("zext", 32, h.raw)) for h in halves)
            words = [low | (high << 16)]
        check_even(self.fields["vdst"], len(words))
        for i, word in enumerate(words):
            self._set_vgpr(self.fields["vdst"] + i, word.raw)

    def _packed_source(self, parameter: Parameter, high: int) -> Any:
        if not isinstance(parameter.kind, type) or not issubclass(parameter.kind, Lanes):
            return self.read(parameter)
        index = int(parameter.name[-1])
        fields, kind = self.fields, parameter.kind
        op_sel_hi = fields["op_sel_hi"] | fields["op_sel_hi2"] << 2
        half = (op_sel_hi if high else fields["op_sel"]) >> index & 1
        code = fields[parameter.name]
        if kind.width == 32:
            check_even(code, 2 * (code >= 256))
            raw = self._vgpr(code - 256 + half, index) if code >= 256 else self._packed_scalar(code, half)
            value: Lanes = kind(self.engine, raw)
        else:
            value = self._source(code, kind, half, role=index)
        neg = (fields["neg_hi"] if high else fields["neg"]) >> index & 1
        return apply_neg_abs(value, neg, 0)

    def _packed_scalar(self, code: int, half: int) -> Raw:
        check_scalar_run(code, 2)
        return self.state.sgpr(code + half) if code < 128 else self._code_raw(code, 32)

    # ---- writing --------------------------------------------------------------------------------------------------

    def write(self, results: Any) -> Transfer | None:
        """Puts the body's results where the definition's annotations say."""
        if results is None:
            return None
        values: Sequence[Any] = results if isinstance(results, tuple) else (results,)
        transfer = None
        for place, value in zip(self.instruction.results, values, strict=True):
            if place.place == "pc":
                transfer = Transfer("jump", None, value.raw)
            elif place.place == "agpr":
                self._set_vgpr(self.fields["vdst"] + AGPR, value.raw)
            elif place.place in _IMPLICIT:
                _IMPLICIT[place.place](self, value)
            elif place.kind is Mask:
                self._write_mask_result(value)
            else:
                self._write_register(value)
        return transfer

    def _write_register(self, value: Any) -> None:
        form = self.decoded.form
        if form in ("SOP1", "SOP2", "SOPK", "SMEM"):
            self._set_scalar(self.fields["sdata" if form == "SMEM" else "sdst"], value)
            return
        index, words = self._destination(), self._result_words(value)
        check_run(index, len(words))
        self._check_even(index, len(words))
        for i, word in enumerate(words):
            self._set_vgpr(index + i, word.raw)

    def _destination(self) -> int:
        """The vector register that a result begins in."""
        form = self.decoded.form
        in_agprs = self.fields.get("acc_cd") or (form in ("DS", "FLAT", "MUBUF", "MTBUF") and self.fields["acc"])
        return self.fields[MEMORY_FIELDS.get((form, "vdst"), "vdst")] + (AGPR if in_agprs else 0)

    def check_returned(self) -> None:
        """Refuses registers that a memory instruction cannot return to, before it touches memory."""
        instruction, fields = self.instruction, self.fields
        bit = next((name for name in ("sc0", "glc") if instruction.parameter(name) is not None), None)
        if not instruction.results or (bit is not None and not fields[bit]):  # an atomic that returns nothing
            return
        count = instruction.results[0].registers
        if self.decoded.form == "SMEM":
            check_scalar_run(fields["sdata"], count)
            for index in range(fields["sdata"], fields["sdata"] + count):
                check_scalar(index)
            return
        index = self._destination()
        check_run(index, count)
        self._check_even(index, count)

    def _result_words(self, value: Any) -> Sequence[U32]:
        if isinstance(value, Words):
            return value.words
        value = self._output_modified(value)
        if value.width == 64:
            return split(value.bits(U64))
        if value.width == 32:
            return (value.bits(U32),)
        return (self._narrow_result(value),)

    def _output_modified(self, value: Lanes) -> Lanes:
        extra = self.fields if self.decoded.form in ("VOP3", "VOP3P") else self.decoded.sdwa or {}
        if isinstance(value, Float):
            value = apply_omod(value, extra.get("omod", 0), self.engine.mode)
            if extra.get("clamp"):
                value = clamped(value)
        if self.decoded.sdwa is not None and "dst_sel" in self.decoded.sdwa and value.width < 64:
            old = U32(self.engine, self._vgpr(self.fields["vdst"], DESTINATION))
            word = U32(self.engine, self.engine.apply("zext", 32, value.raw)) if value.width < 32 else value.bits(U32)
            return sdwa_merge(old, word, self.decoded.sdwa["dst_sel"], self.decoded.sdwa["dst_u"])
        return value

    def _narrow_result(self, value: Lanes) -> U32:
        """A 16-bit result: OP_SEL[3] puts it high and keeps the low half; low, native VOP3 instructions but the legacy
        ones keep the high half, the rest zero it. [12.11 V_MAD_F16, V_MAD_LEGACY_F16, V_MAC_F16]"""
        wide = U32(self.engine, self.engine.apply("zext", 32, value.raw))
        if self.decoded.form != "VOP3":
            return wide
        native, legacy = self.instruction.encoding == "VOP3", "_legacy_" in self.instruction.name
        old = U32(self.engine, self._vgpr(self.fields["vdst"], DESTINATION))
        if self.fields["op_sel"] >> 3 & 1 and (native or self.instruction.name == "v_mac_f16"):
            return (wide << 16) | (old & 0xFFFF)
        return wide | (old & 0xFFFF0000) if native and not legacy else wide

    def _write_mask_result(self, value: Mask) -> None:
        """A compare's or carry's bits: active lanes, zeros elsewhere, all 64 replaced. [3.9]"""
        active = value & Mask(self.engine, self.state.exec_mask())
        self._set_scalar(self._mask_destination(), active.ballot())

    def _mask_destination(self) -> int:
        if self.decoded.form == "VOP3":
            return self.fields["sdst"] if "sdst" in self.fields else self.fields["vdst"]
        if self.decoded.sdwa is not None and self.decoded.sdwa.get("sd"):
            return self.decoded.sdwa["sdst"]
        return VCC

    def _write_cmpx(self, value: Mask) -> None:
        active = (value & Mask(self.engine, self.state.exec_mask())).ballot()
        self._set_scalar(self._mask_destination(), active)
        self._set_scalar(EXEC, active)

    def _set_scalar(self, index: int, value: Any) -> None:
        if isinstance(value, Words):
            words: Sequence[U32] = value.words
        else:
            words = split(value.bits(U64)) if value.width == 64 else (value.bits(U32),)
        check_scalar_run(index, len(words))
        for i, word in enumerate(words):
            if index + i not in READ_ONLY:
                self.state.set_sgpr(index + i, word.raw)

    def _set_vgpr(self, index: int, raw: Raw, role: int = DESTINATION) -> None:
        moved = role if self.instruction.encoding in INDEXED_ENCODINGS else None
        if self.instruction.ignores_exec:
            self.state.set_vgpr(index, raw, None, moved)
            return
        mask = self.state.exec_mask()
        if self.write_mask is not None:
            mask = self.engine.apply("and", 1, mask, self.write_mask)
        self.state.set_vgpr(index, raw, mask, moved)

    def carry_in(self) -> Mask:
        """VCC in the 32-bit forms, the pair in src2 in the 64-bit form."""
        if self.decoded.form == "VOP3":
            return self.mask_of(self.fields["src2"])
        return self.mask_of(VCC)

    def mask_of(self, code: int) -> Mask:
        """The lanes of a 64-bit scalar operand."""
        if code >= 256:
            raise UnsupportedForm(f"a mask of lanes must be scalar and is v{code - 256}")
        return Mask(self.engine, self.engine.apply("lanes_of", 1, self._code_raw(code, 64)))

    def scalar64(self, index: int) -> U64:
        """A pair of scalar registers."""
        return U64(self.engine, self._sgpr_raw(index, 64, 0))

    def address(self) -> U64:
        """The byte address of a FLAT, GLOBAL, SCRATCH or SMEM instruction, by its addressing mode. [8.2.1, 10.3]"""
        fields, engine = self.fields, self.engine
        if self.decoded.form == "SMEM":
            return self._scalar_address()
        offset = fields["offset"]
        if self.instruction.encoding == "FLAT":
            return self._flat_address(self._vector_address() + (offset & 0xFFF))
        if offset & 0x1000:
            offset -= 0x2000
        if self.instruction.encoding == "SCRATCH":
            return self._scratch_address(self._scratch_offset(offset))
        if fields["saddr"] != NO_SADDR:
            base = self.scalar64(fields["saddr"])
            return base + U32(engine, self.state.vgpr(fields["addr"])).to(U64) + offset
        return self._vector_address() + offset

    def _vector_address(self) -> U64:
        check_even(self.fields["addr"], 2)
        return join(*(U32(self.engine, self.state.vgpr(self.fields["addr"] + i)) for i in (0, 1)))

    def _window(self, name: str) -> U64:
        return U64(self.engine, self.state.window(name))

    def _flat_address(self, address: U64) -> U64:
        """Addresses in an aperture become those of LDS and of the lane's scratch. [10.3, rule memory.apertures]"""
        part = (address >> 32).to(U32)
        low = address.to(U32)
        in_lds = part == SHARED_APERTURE >> 32
        in_scratch = part == PRIVATE_APERTURE >> 32
        address = in_lds.select(self._window("lds") + low.to(U64), address)
        return in_scratch.select(self._scratch_address(low), address)

    def _scratch_offset(self, offset: int) -> U32:
        """SADDR, the VGPR where SVE is set, and the offset. [10.3 table 56]"""
        total = U32.constant(self.engine, offset)
        if self.fields["saddr"] != NO_SADDR:
            total = total + U32(self.engine, self.state.sgpr(self.fields["saddr"]))
        if self.fields["sve"]:
            total = total + U32(self.engine, self.state.vgpr(self.fields["addr"]))
        return total

    def _scratch_address(self, offset: U32) -> U64:
        """Where byte `offset` of each lane's scratch lies; outside of it an address that nothing has."""
        wide = offset.to(U64)
        inside = self._window("scratch") + wide
        return (wide < self._window("scratch_bytes")).select(inside, wide + PRIVATE_APERTURE)

    def buffer(self) -> Buffer:
        """What a MUBUF or MTBUF instruction names: descriptor, index, offsets. [9.1.5, table 42]"""
        fields, engine = self.fields, self.engine
        descriptor = self._scalar(fields["srsrc"] * 4, B128)
        if fields["soffset"] == LITERAL:
            raise UnsupportedForm("SOFFSET is a literal: it is an SGPR, M0 or an inline constant")
        count = fields["idxen"] + fields["offen"]
        check_run(fields["vaddr"], count)
        check_even(fields["vaddr"], count)
        vgprs = [U32(engine, self.state.vgpr(fields["vaddr"] + i)) for i in range(count)]
        immediate = U32.constant(engine, fields["offset"])
        return Buffer(
            self.state.memory("global"),
            descriptor,
            vgprs[0] if fields["idxen"] else None,
            vgprs[-1] + immediate if fields["offen"] else immediate.splat(),
            U32(engine, self._code_raw(fields["soffset"], 32)),
            (fields["dfmt"], fields["nfmt"]) if self.decoded.form == "MTBUF" else None,
        )

    def _scalar_address(self) -> U64:
        """Base, immediate and register, each without its low two bits. [8.2.1.1]"""
        return (self.scalar64(self.fields["sbase"] * 2) & ~3) + self.smem_offset(~3)

    def smem_offset(self, kept: int = -1) -> U64:
        """The immediate and register offsets of an SMEM instruction, in bytes; the bits of `kept` of either.

        S_BUFFER_LOAD aligns the sum instead. [8.2.1.1]
        """
        fields, engine = self.fields, self.engine
        immediate = fields["offset"] if fields["imm"] else 0
        offset = U64.constant(engine, (immediate - (1 << 21) if immediate >> 20 else immediate) & kept)
        if fields["soe"] or not fields["imm"]:
            register = U32(engine, self.state.sgpr(fields["soffset"] if fields["soe"] else fields["offset"] & 0x7F))
            scratch = self.instruction.name.startswith("s_scratch_")  # counts 64 bytes [rule smem.scratch]
            offset = offset + (register.to(U64) << 6 if scratch else (register & kept).to(U64))
        return offset


def _words_of(kind: Any) -> int:
    return kind.count if issubclass(kind, Words) else 2 if kind.width == 64 else 1


def _static_mask(engine: Engine, lanes: Sequence[bool]) -> Mask:
    bits = sum(1 << n for n, on in enumerate(lanes) if on)
    return Mask(engine, engine.apply("lanes_of", 1, engine.constant(bits, 64)))


_SPECIAL: dict[str, Callable[[Operands], Any]] = {
    "scc": lambda o: Mask(o.engine, o.state.scc()),
    "exec": lambda o: o.scalar64(EXEC),
    "vcc": lambda o: o.mask_of(VCC),
    "m0": lambda o: U32(o.engine, o.state.sgpr(M0)),
    "carry_in": lambda o: o.carry_in(),
    "clock": lambda o: U64(o.engine, o.state.clock()),
    "pc": lambda o: U64.constant(o.engine, o.decoded.pc + o.decoded.nbytes),
    "address": lambda o: o.address(),
    "smem_offset": lambda o: o.smem_offset(),
    "buffer": lambda o: o.buffer(),
}
_IMPLICIT: dict[str | None, Callable[[Operands, Any], None]] = {
    "scc": lambda o, v: o.state.set_scc(v.raw),
    "exec": lambda o, v: o._set_scalar(EXEC, v),
    "m0": lambda o, v: o._set_scalar(M0, v),
    "src0": lambda o, v: o._set_vgpr(o.fields["src0"] - 256, v.raw, 0),
    "scalar": lambda o, v: o._set_scalar(o.fields["vdst"], v),
    "cmpx": lambda o, v: o._write_cmpx(v),
}
