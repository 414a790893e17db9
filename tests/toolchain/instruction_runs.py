"""Single instructions on both engines, from the same random registers, LDS and memory: who runs them, and who agrees.

One kernel holds many instructions; each workgroup runs one and stores everything it can have changed. Addresses,
descriptors and branch targets are put into the instructions first, so that what they reach is there.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvm_tools import assembled

from emu.dispatch import Device, RunOptions
from emu.errors import EmulatorError
from emu.geometry import Geometry
from gfx950.isa.encoding import ENCODINGS, Decoded

FIRST_VECTORS, FIRST_SCALARS = range(32, 224, 32), range(16, 96, 16)  # of the operands of the examples
LDS_BYTES = 4096
MEMORY_BYTES = 4096  # of each workgroup
BATCH = 400  # instructions of a kernel: branches reach 128 KiB
SCRATCH_BYTES = 8192
NARROW = 4  # registers of an operand; more need the wide kernel, which stores more
HEAD = """
s_getreg_b32 s101, hwreg(HW_REG_MODE)
s_load_dwordx8 s[80:87], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
s_lshl_b32 s3, s2, 2
s_load_dword s3, s[86:87], s3
s_mul_i32 s4, s2, {state}
s_add_u32 s4, s82, s4
s_addc_u32 s5, s83, 0
s_mul_i32 s8, s2, {memory}
s_add_u32 s8, s84, s8
s_addc_u32 s9, s85, 0
s_mov_b32 s10, 0
s_mov_b32 s11, 16
s_mov_b32 s12, s8
s_and_b32 s13, s9, 0xffff
s_mov_b32 s14, {memory}
s_mov_b32 s15, 0x77fac
v_lshlrev_b32 v1, 4, v0
v_mov_b32 v10, v1
v_mov_b32 v9, s9
v_add_co_u32 v8, vcc, s8, v1
v_addc_co_u32 v9, vcc, 0, v9, vcc
"""
MIDDLE = """
s_load_dwordx2 vcc, s[80:81], 0x200
s_mov_b32 m0, 64
s_mov_b32 exec_lo, 0xf7a9c35b
s_mov_b32 exec_hi, 0x5e3b9dfd
s_waitcnt lgkmcnt(0)
s_load_dwordx16 s[80:95], s[80:81], 0x100
s_waitcnt vmcnt(0) lgkmcnt(0)
"""
TAIL = """
tail:
s_cselect_b32 s96, 1, 0
s_mov_b32 s97, m0
s_mov_b64 s[98:99], exec
s_getreg_b32 s100, hwreg(HW_REG_MODE)
s_setreg_b32 hwreg(HW_REG_MODE), s101
s_set_gpr_idx_off
s_mov_b64 exec, -1
s_waitcnt vmcnt(0) lgkmcnt(0)
s_barrier
"""


@dataclass(frozen=True)
class Kind:
    """What an instruction needs of the kernel it runs in. flow: it may leave the kernel, so few share one."""

    scratch: bool
    wide: bool
    flow: bool

    @property
    def quads(self) -> list[str]:
        """The vector registers that are loaded before and stored after, four at a time."""
        vectors = (*range(32, 144, 4), 160, 192) if self.wide else FIRST_VECTORS
        return [f"v[{n}:{n + 3}]" for n in vectors] + ["a[32:35]", "a[64:67]"]

    @property
    def scalars(self) -> list[int]:
        """The first of four scalar registers that are stored."""
        return list(range(16, 100, 4)) if self.wide else [*FIRST_SCALARS, 92, 96]

    @property
    def state_bytes(self) -> int:
        """What a workgroup stores."""
        return 1024 * (len(self.quads) + LDS_BYTES // 1024) + 512


def kind_of(decoded: Decoded) -> Kind:
    """The kernel that an instruction runs in."""
    one = decoded.instruction
    wide = one.encoding == "MAI" or any(p.registers > NARROW for p in (*one.parameters, *one.results))
    return Kind(one.encoding == "SCRATCH", wide, bool(one.flow))


@dataclass
class Outcome:
    """What became of one instruction. refused: by engine, the error it stopped with. equal: both left the same bits.
    state: a number that stands for the bits that the numpy engine left."""

    refused: dict[str, str]
    equal: bool = False
    state: int = 0


def reached(decoded: Decoded) -> bytes:
    """The instruction with addresses, descriptors and targets that the kernel has prepared."""
    form, raw = decoded.form, decoded.raw
    if form not in ENCODINGS or form in ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P"):
        return raw
    fields, name = dict(decoded.fields), decoded.instruction.name
    if form == "FLAT":
        has_base = fields["seg"] != 0 and fields["saddr"] != 0x7F
        fields["addr"] = 10 if has_base or fields["seg"] == 1 else 8
        fields["saddr"] = {1: 10, 2: 8}[fields["seg"]] if has_base else fields["saddr"]
    elif form in ("MUBUF", "MTBUF"):
        fields.update(vaddr=10, srsrc=3, soffset=11)
    elif form == "SMEM" and "sbase" in fields:
        fields["sbase"] = 6 if "buffer" in name else 4
        if not fields["imm"] and not fields["soe"]:
            fields["offset"] = 11
    elif form == "DS":
        fields["addr"] = 10
    elif form in ("SOPP", "SOPK") and name.startswith(("s_branch", "s_cbranch", "s_call", "s_rfe_restore")):
        fields["simm16"] = 1
    elif form == "SOP1" and any(p.place == "pc" for p in decoded.instruction.results) and "getpc" not in name:
        fields["ssrc0"] = 6
    return ENCODINGS[form].pack(fields).to_bytes(ENCODINGS[form].nbytes, "little") + raw[ENCODINGS[form].nbytes :]


def source(codes: Sequence[bytes], kind: Kind) -> str:
    """The kernel of a batch."""
    quads = kind.quads
    lines = [HEAD.format(state=kind.state_bytes, memory=MEMORY_BYTES)]
    for number, quad in enumerate(quads):
        lines.append(f"global_load_dwordx4 {quad}, v1, s[80:81] offset:{number % 4 * 1024}")
        if number % 4 == 3:
            lines.append("s_add_u32 s80, s80, 4096\ns_addc_u32 s81, s81, 0")
    lines.append("s_waitcnt vmcnt(0)")
    lines += [f"ds_write_b128 v1, {quads[-3 - n]} offset:{1024 * n}" for n in range(LDS_BYTES // 1024)]
    lines += [f"s_load_dwordx16 s[{n}:{n + 15}], s[80:81], {n * 4:#x}" for n in FIRST_SCALARS[:-1]]
    lines += [MIDDLE, *_tree(0, len(codes))]
    for number, code in enumerate(codes):
        lines.append(f"case{number}:\ns_getpc_b64 s[6:7]\ns_add_u32 s6, s6, {16 + len(code)}\ns_addc_u32 s7, s7, 0")
        words = ", ".join(f"{w:#x}" for (w,) in struct.iter_unpack("<I", code))
        lines.append(f"s_cmp_eq_u32 s3, s3\n.long {words}\ns_mov_b32 s94, 7\ns_branch tail")
    lines.append(TAIL + _stores(kind) + "s_endpgm")
    return KERNEL.format(body="\n".join(lines), scratch=SCRATCH_BYTES * kind.scratch)


KERNEL = """
.text
.globl k
.p2align 8
.type k,@function
k:
{body}
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_group_segment_fixed_size 4096
  .amdhsa_private_segment_fixed_size {scratch}
  .amdhsa_kernarg_size 32
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_accum_offset 256
  .amdhsa_next_free_vgpr 512
  .amdhsa_next_free_sgpr 102
  .amdhsa_float_denorm_mode_32 3
.end_amdhsa_kernel
"""


def _tree(first: int, end: int) -> list[str]:
    """Branches to the case whose number is in s3."""
    if end - first == 1:
        return [f"s_branch case{first}"]
    middle = (first + end) // 2
    left = f"below{first}_{end}"
    return [
        f"s_cmp_lt_u32 s3, {middle}",
        f"s_cbranch_scc1 {left}",
        *_tree(middle, end),
        f"{left}:",
        *_tree(first, middle),
    ]


def _stores(kind: Kind) -> str:
    """Everything an instruction can have changed, to the workgroup's own part of the output."""
    lines = [f"s_store_dwordx4 s[{n}:{n + 3}], s[4:5], {(n - 16) * 4:#x}" for n in kind.scalars]
    lines += ["s_store_dword s100, s[4:5], 0x150", "s_store_dwordx2 vcc, s[4:5], 0x158", "s_add_u32 s4, s4, 512"]
    lines.append("s_addc_u32 s5, s5, 0")
    lds = [f"ds_read_b128 v[32:35], v1 offset:{1024 * n}\ns_waitcnt lgkmcnt(0)" for n in range(LDS_BYTES // 1024)]
    for number, (before, quad) in enumerate([*(("", q) for q in kind.quads), *((read, "v[32:35]") for read in lds)]):
        lines.append(f"{before}\nglobal_store_dwordx4 v1, {quad}, s[4:5] offset:{number % 4 * 1024}")
        if number % 4 == 3:
            lines.append("s_add_u32 s4, s4, 4096\ns_addc_u32 s5, s5, 0")
    return "\n".join(lines) + "\n"


INTERESTING = np.array([0, 1 << 31, 0x7F800000, 0x7FC01234, 0x7F800001, 1, 0x3F800000, 0x7F7FFFFF], dtype=np.uint32)


def _random(words: int, seed: str) -> np.ndarray:
    bits = np.frombuffer(random.Random(seed).randbytes(4 * words), np.uint32).copy()
    bits[::5] = np.resize(INTERESTING, bits[::5].size)
    return bits


class Batch:
    """A kernel of instructions and the data it runs on."""

    def __init__(self, codes: Sequence[bytes], kind: Kind) -> None:
        self.kind, self.count = kind, len(codes)
        self.object = assembled(source(codes, kind))
        self.inputs = _random(256 * len(kind.quads) + 1024, "registers")

    def run(self, engine: str, cases: Sequence[int]) -> dict[int, bytes]:
        """State and memory after each of these cases."""
        state = np.zeros((len(cases), self.kind.state_bytes), np.uint8)
        memory = np.tile(_random(MEMORY_BYTES // 4, "memory"), (len(cases), 1))
        table = np.array(cases, np.uint32)
        device = Device(RunOptions(engine=engine))
        pointers = [device.map(a) for a in (self.inputs, state, memory, table)]
        device.load(self.object)["k"].launch(Geometry.of_blocks(len(cases), 64), struct.pack("<4Q", *pointers))
        return {case: state[row].tobytes() + memory[row].tobytes() for row, case in enumerate(cases)}

    def results(self, engine: str) -> tuple[dict[int, bytes], dict[int, str]]:
        """What is left after each case, and the error of each that the engine does not run."""
        refused: dict[int, str] = {}
        cases = list(range(self.count))
        while cases:
            try:
                return self.run(engine, cases), refused
            except EmulatorError as error:
                if error.workgroup is None:
                    return {}, dict.fromkeys(range(self.count), str(error))
                refused[cases.pop(error.workgroup[0])] = error.what
        return {}, refused


def outcomes(instructions: Sequence[Decoded]) -> list[Outcome]:
    """Runs each instruction on both engines."""
    found = [Outcome({}) for _ in instructions]
    kinds: dict[Kind, list[int]] = {}
    for number, decoded in enumerate(instructions):
        kinds.setdefault(kind_of(decoded), []).append(number)
    for kind, chosen in kinds.items():
        for start in range(0, len(chosen), BATCH):
            part = chosen[start : start + BATCH]
            batch = Batch([reached(instructions[i]) for i in part], kind)
            _compare(batch, [found[i] for i in part])
    return found


def _compare(batch: Batch, found: Sequence[Outcome]) -> None:
    left: dict[str, dict[int, bytes]] = {}
    for engine in ("numpy", "host"):
        left[engine], refused = batch.results(engine)
        for case, error in refused.items():
            found[case].refused[engine] = error
    for case, outcome in enumerate(found):
        if not outcome.refused:
            outcome.equal = left["numpy"][case] == left["host"][case]
            outcome.state = hash(left["numpy"][case])
