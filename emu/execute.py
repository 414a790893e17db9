"""Executes one decoded instruction on any engine: operands in, the definition's body, results out.

What wraps an instruction is written once: how control leaves it here, operands in emu.operands, emu.scalar_sources and
emu.addresses, results in emu.results. A `State` holds the registers; the numpy wave and the translator's block are two.
"""

from __future__ import annotations

from dataclasses import replace

from emu.operands import Operands
from emu.register_checks import UnsupportedForm
from emu.results import Results
from emu.state import State, Transfer
from gfx950.evidence import Evidence, rule
from gfx950.isa.encoding import Decoded
from gfx950.isa.mode_registers import STATUS, TRAPSTS
from gfx950.lanes import U32

PC_MASK = (1 << 48) - 1  # the program counter has 48 bits [CDNA4 ISA 3.2]
STOPS = ("end", "barrier", "trap", "halt", "halt_always", "kill")
DEBUG_TRAP = 3
VECTOR_MEMORY = frozenset(("FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MUBUF_LDS", "MTBUF"))  # what vmcnt counts
VECTOR_ENCODINGS = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P", "MAI", "MAI_SCALE", "DS")) | VECTOR_MEMORY
MEMORY_ENCODINGS = VECTOR_MEMORY | {"DS", "SMEM"}
VMCNT_FREE = 63  # a wait for no more than so many is none
SELECT_ONLY = ("v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8")  # of SDWA: SRC0_SEL [7.3]

rule(
    "lds.late_landing",
    Evidence.vendor,
    "hand-written kernels shipped for gfx950 as code objects give right results only so; CDNA4 ISA 4.4: vmcnt counts"
    " down in order",
    "The data of a load to LDS land at the s_waitcnt whose vmcnt retires it, or at the end of the wave; a 65th before"
    " that lands the oldest.",
)


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
    decoded = _as_run(decoded)
    operands = Operands(decoded, state)
    if instruction.packed:
        halves = [
            instruction.body(*(operands.packed_source(p, high) for p in instruction.parameters)) for high in (0, 1)
        ]
        Results(decoded, state).write_packed(*halves)
        return None
    if instruction.encoding in MEMORY_ENCODINGS:
        Results(decoded, state).check_returned()
    results = instruction.body(*(operands.read(p) for p in instruction.parameters))
    if instruction.flow == "branch":
        return Transfer("branch", results.raw if results is not None else None, branch_target(decoded))
    return Results(decoded, state, operands.write_mask).write(results)


def branch_target(decoded: Decoded) -> int:
    """The address that a branch names: SIMM16 words after the next instruction. [12.5]"""
    offset = decoded.fields["simm16"]
    return decoded.pc + decoded.nbytes + 4 * (offset - 0x10000 if offset & 0x8000 else offset)


def _as_run(decoded: Decoded) -> Decoded:
    """The instruction without the fields of SDWA that it does not know. [7.3]"""
    if decoded.sdwa is None or decoded.instruction.name not in SELECT_ONLY:
        return decoded
    kept = {name: decoded.sdwa[name] for name in ("src0", "src0_sel", "s0")}
    return replace(decoded, sdwa={**dict.fromkeys(decoded.sdwa, 0), **kept, "dst_sel": 6})


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
