"""Instructions on MODE and the other hardware registers, relative register access, VGPR indexing, traps and halts.

[CDNA4 ISA 3, 5.7, 6.6, 12.1 to 12.5]
"""

from __future__ import annotations

from gfx950.evidence import Evidence, rule
from gfx950.isa.registry import M0, Hardware, Instruction, Scalars, sop1, sopc, sopk, sopp
from gfx950.lanes import U32, U64, HardwareRegisters, join, split

MODE, STATUS, TRAPSTS, HW_ID, GPR_ALLOC, LDS_ALLOC, IB_STS = 1, 2, 3, 4, 5, 6, 7
SH_MEM_BASES, XCC_ID = 15, 20
GPR_IDX_EN, VSKIP = 27, 28  # bits of MODE

HARDWARE = rule(
    "salu.hardware_registers",
    Evidence.chosen,
    "CDNA4 ISA 3.5 to 3.12, 5.8, 12.2; LLVM AMDGPUUsage has no table of what a program may write; the field of table"
    " 21 for VGPRs would overflow in steps of 4",
    "S_SETREG changes MODE and TRAPSTS[8:0]. S_GETREG: STATUS has SCC, WAVE_PRIO, EXECZ, VCCZ, IN_TG, VALID and"
    " SCRATCH_EN; TRAPSTS what was written, for no exception is recorded; HW_ID the wave's index in bits 3:0 and what"
    " is above it in 5:4; GPR_ALLOC the sizes, VGPRs in steps of 8, LDS_ALLOC the size granted; SH_MEM_BASES the"
    " aperture bases; every other register reads 0.",
)
RELATIVE = rule(
    "salu.relative",
    Evidence.spec,
    "CDNA4 ISA 5.7, 12.3, 3.6.1",
    "S_MOVREL adds M0 to the register's number, unscaled for pairs too; a source past the last SGPR reads SGPR 0, a"
    " destination past it is not written.",
)
TRAP = rule(
    "salu.trap",
    Evidence.vendor,
    "LLVM AMDGPUUsage, trap handler ABI of amdhsa: 2 is llvm.trap, 3 is llvm.debugtrap",
    "S_TRAP 3 does nothing, for no debugger is attached; any other S_TRAP ends the launch with an error.",
)
HALT = rule(
    "salu.halt",
    Evidence.chosen,
    "CDNA4 ISA 12.5: only the host resumes a halted wave",
    "S_SETHALT 1 and S_SENDMSGHALT end the launch with an error: nobody would resume the wave. S_SETKILL 1 ends the"
    " wave.",
)


def _field(simm16: int) -> tuple[int, int, int]:
    """Register number, lowest bit, and mask of the bits that SIMM16 = {size - 1, offset, id} names."""
    size, offset = (simm16 >> 11 & 31) + 1, simm16 >> 6 & 31
    return simm16 & 63, offset, (1 << min(size, 32 - offset)) - 1


@sopk("s_getreg_b32", 17, rules=(HARDWARE,))
def s_getreg_b32(hardware: Hardware, simm16: int) -> U32:
    """D = the bits of a hardware register that SIMM16 names. [12.2]"""
    number, offset, mask = _field(simm16)
    return (hardware.read(number) >> offset) & mask


def _set(hardware: HardwareRegisters, value: U32, simm16: int) -> None:
    number, offset, mask = _field(simm16)
    kept = hardware.read(number) & (~(mask << offset) & 0xFFFFFFFF)
    hardware.write(number, kept | ((value & mask) << offset))


@sopk("s_setreg_b32", 18, flow="mode", rules=(HARDWARE,))
def s_setreg_b32(hardware: Hardware, sdst: U32, simm16: int) -> None:
    """The bits of a hardware register that SIMM16 names = SDST. [12.2]"""
    _set(hardware, sdst, simm16)


@sopk("s_setreg_imm32_b32", 20, flow="mode", rules=(HARDWARE,))
def s_setreg_imm32_b32(hardware: Hardware, literal: int, simm16: int) -> None:
    """The bits of a hardware register that SIMM16 names = the literal. [12.2]"""
    _set(hardware, U32.constant(hardware.read(MODE).engine, literal), simm16)


def _set_mode_bit(hardware: HardwareRegisters, bit: int, value: U32) -> None:
    hardware.write(MODE, (hardware.read(MODE) & ~(1 << bit)) | ((value & 1) << bit))


@sopc("s_setvskip", 16, flow="mode")
def s_setvskip(hardware: Hardware, ssrc0: U32, ssrc1: U32) -> None:
    """Vector instructions are skipped from here on where bit S1[4:0] of S0 is set. [12.4]"""
    _set_mode_bit(hardware, VSKIP, ssrc0 >> (ssrc1 & 31))


@sopc("s_set_gpr_idx_on", 17, flow="mode")
def s_set_gpr_idx_on(hardware: Hardware, ssrc0: U32, ssrc1_code: int, m0: U32) -> M0:
    """VGPR indexing on: M0[7:0] = S0[7:0], M0[15:12] = the low bits of the S1 field itself. [6.6, 12.4]"""
    _set_mode_bit(hardware, GPR_IDX_EN, U32.constant(ssrc0.engine, 1))
    return (m0 & 0xFFFF0F00) | (ssrc0 & 0xFF) | ((ssrc1_code & 15) << 12)


@sopp("s_set_gpr_idx_off", 28, flow="mode")
def s_set_gpr_idx_off(hardware: Hardware) -> None:
    """VGPR indexing off; M0 stays. [6.6, 12.5]"""
    _set_mode_bit(hardware, GPR_IDX_EN, U32.constant(hardware.read(MODE).engine, 0))


@sopp("s_set_gpr_idx_mode", 29)
def s_set_gpr_idx_mode(simm16: int, m0: U32) -> M0:
    """M0[15:12] = SIMM16[3:0]: which operands are indexed. [6.6, 12.5]"""
    return (m0 & 0xFFFF0FFF) | ((simm16 & 15) << 12)


@sop1("s_set_gpr_idx_idx", 50)
def s_set_gpr_idx_idx(ssrc0: U32, m0: U32) -> M0:
    """M0[7:0] = S0[7:0]: the index. [6.6, 12.3]"""
    return (m0 & 0xFFFFFF00) | (ssrc0 & 0xFF)


@sop1("s_movrels_b32", 42, rules=(RELATIVE,))
def s_movrels_b32(scalars: Scalars, ssrc0_code: int, m0: U32) -> U32:
    """D = the SGPR at S0's number + M0. [5.7, 12.3]"""
    return scalars.read(m0 + ssrc0_code)


@sop1("s_movrels_b64", 43, rules=(RELATIVE,))
def s_movrels_b64(scalars: Scalars, ssrc0_code: int, m0: U32) -> U64:
    """D = the pair of SGPRs at S0's number + M0. [5.7, 12.3]"""
    return join(scalars.read(m0 + ssrc0_code), scalars.read(m0 + ssrc0_code + 1))


@sop1("s_movreld_b32", 44, rules=(RELATIVE,))
def s_movreld_b32(scalars: Scalars, ssrc0: U32, sdst_code: int, m0: U32) -> None:
    """The SGPR at D's number + M0 = S0. [5.7, 12.3]"""
    scalars.write(m0 + sdst_code, ssrc0)


@sop1("s_movreld_b64", 45, rules=(RELATIVE,))
def s_movreld_b64(scalars: Scalars, ssrc0: U64, sdst_code: int, m0: U32) -> None:
    """The pair of SGPRs at D's number + M0 = S0. [5.7, 12.3]"""
    for i, word in enumerate(split(ssrc0)):
        scalars.write(m0 + sdst_code + i, word)


def _stopping(name: str, opcode: int, flow: str, text: str) -> Instruction:
    def body(simm16: int) -> None: ...

    body.__doc__ = f"{text} [12.5]"
    return sopp(name, opcode, flow=flow, rules=(TRAP if flow == "trap" else HALT,))(body)


s_trap = _stopping("s_trap", 18, "trap", "Enters the trap handler with the number SIMM16[7:0].")
s_sethalt = _stopping("s_sethalt", 13, "halt", "Halts the wave where SIMM16[0] is set.")
s_setkill = _stopping("s_setkill", 11, "kill", "Ends the wave where SIMM16[0] is set.")
s_sendmsghalt = _stopping("s_sendmsghalt", 17, "halt_always", "Sends a message and halts the wave.")
