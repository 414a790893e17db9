"""SOPP: program flow, waits and messages. [CDNA4 ISA 4, 12.5]

Branches return their condition; the executor adds 4 * SIMM16 to the next instruction's address.
"""

from __future__ import annotations

from collections.abc import Callable

from gfx950.evidence import Evidence, Rule, rule
from gfx950.isa.mode_registers import STATUS
from gfx950.isa.registry import Exec, Hardware, Instruction, Scc, sopp
from gfx950.lanes import U32, Mask

DEBUG_FLAGS = rule(
    "salu.debug_flags",
    Evidence.spec,
    "CDNA4 ISA 3.4, 4.2, 12.5; a launch clears both flags, which are set from outside",
    "S_CBRANCH_CDBG* tests bit 21 (system) and bit 20 (user) of STATUS.",
)
MESSAGES = rule(
    "salu.messages",
    Evidence.chosen,
    "CDNA4 ISA 12.5.1: messages for the driver and its trap handler",
    "Messages reach nobody. Get Doorbell ID, whose answer comes in EXEC, is refused when it runs.",
)


@sopp("s_endpgm", 1, flow="end", intrinsic="llvm.amdgcn.endpgm")
def s_endpgm() -> None:
    """Ends the wave. [12.5]"""


@sopp("s_endpgm_saved", 27, flow="end")
def s_endpgm_saved() -> None:
    """Ends the wave; the trap handler's variant. [12.5]"""


@sopp("s_endpgm_ordered_ps_done", 30, flow="end")
def s_endpgm_ordered_ps_done() -> None:
    """Ends the wave; the variant of ordered pixel shaders. [12.5]"""


@sopp("s_branch", 2, flow="branch")
def s_branch() -> None:
    """Jumps always. [12.5]"""


@sopp("s_cbranch_scc0", 4, flow="branch")
def s_cbranch_scc0(scc: Scc) -> Mask:
    """Jumps when SCC is clear. [12.5]"""
    return ~scc


@sopp("s_cbranch_scc1", 5, flow="branch")
def s_cbranch_scc1(scc: Scc) -> Mask:
    """Jumps when SCC is set. [12.5]"""
    return scc


@sopp("s_cbranch_vccz", 6, flow="branch")
def s_cbranch_vccz(vcc: Mask) -> Mask:
    """Jumps when VCC is 0. [12.5]"""
    return vcc.ballot() == 0


@sopp("s_cbranch_vccnz", 7, flow="branch")
def s_cbranch_vccnz(vcc: Mask) -> Mask:
    """Jumps when VCC is not 0. [12.5]"""
    return vcc.ballot() != 0


@sopp("s_cbranch_execz", 8, flow="branch")
def s_cbranch_execz(exec: Exec) -> Mask:
    """Jumps when EXEC is 0. [12.5]"""
    return exec == 0


@sopp("s_cbranch_execnz", 9, flow="branch")
def s_cbranch_execnz(exec: Exec) -> Mask:
    """Jumps when EXEC is not 0. [12.5]"""
    return exec != 0


@sopp("s_barrier", 10, flow="barrier", intrinsic="llvm.amdgcn.s.barrier")
def s_barrier() -> None:
    """Waits for every live wave of the workgroup; waits for no counter. [4.3, 12.5]"""


def _debug_branch(name: str, opcode: int, flags: Callable[[U32, U32], U32]) -> Instruction:
    def body(hardware: Hardware) -> Mask:
        status = hardware.read(STATUS)
        return (flags(status >> 21, status >> 20) & 1) != 0

    body.__doc__ = "Jumps by the flags that a debugger sets in STATUS. [12.5, rule salu.debug_flags]"
    return sopp(name, opcode, flow="branch", rules=(DEBUG_FLAGS,))(body)


s_cbranch_cdbgsys = _debug_branch("s_cbranch_cdbgsys", 23, lambda system, user: system)
s_cbranch_cdbguser = _debug_branch("s_cbranch_cdbguser", 24, lambda system, user: user)
s_cbranch_cdbgsys_or_user = _debug_branch("s_cbranch_cdbgsys_or_user", 25, lambda system, user: system | user)
s_cbranch_cdbgsys_and_user = _debug_branch("s_cbranch_cdbgsys_and_user", 26, lambda system, user: system & user)


def _no_effect(
    name: str, opcode: int, text: str, flow: str = "nothing", intrinsic: str | None = None, rules: tuple[Rule, ...] = ()
) -> Instruction:
    """An instruction that changes timing, counters or caches only."""

    def body(simm16: int) -> None: ...

    body.__doc__ = f"{text} [12.5]"
    return sopp(name, opcode, flow=flow, intrinsic=intrinsic, rules=rules)(body)


s_nop = _no_effect("s_nop", 0, "Waits SIMM16[3:0] + 1 cycles.")
s_wakeup = _no_effect("s_wakeup", 3, "Wakes sleeping waves of the workgroup.")
s_waitcnt = _no_effect("s_waitcnt", 12, "Waits for the counters in SIMM16.", "wait", "llvm.amdgcn.s.waitcnt")
s_sleep = _no_effect("s_sleep", 14, "Sleeps about 64 * SIMM16[6:0] clocks.", intrinsic="llvm.amdgcn.s.sleep")
s_setprio = _no_effect("s_setprio", 15, "Sets the wave's priority, STATUS[4:3].", "priority", "llvm.amdgcn.s.setprio")
s_sendmsg = _no_effect(
    "s_sendmsg", 16, "Sends a message to the host.", intrinsic="llvm.amdgcn.s.sendmsg", rules=(MESSAGES,)
)
s_icache_inv = _no_effect("s_icache_inv", 19, "Invalidates the instruction cache.")
s_incperflevel = _no_effect("s_incperflevel", 20, "Counts a performance event up.")
s_decperflevel = _no_effect("s_decperflevel", 21, "Counts a performance event down.")
s_ttracedata = _no_effect("s_ttracedata", 22, "Sends M0 to the thread trace.")
# AMD's machine-readable ISA has it, 12.5 and LLVM's assembler do not.
s_set_valu_coexec_mode = _no_effect("s_set_valu_coexec_mode", 31, "Says what may overlap the next vector instruction.")
