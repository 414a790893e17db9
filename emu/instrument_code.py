"""The code that an instrumented kernel runs besides its own: where it starts, and at the point where it may dump.

All of it is assembly text for the project's own assembler, put together piece by piece at its final addresses.

Waits are generous, for none of it is in a hurry: after any instruction of the kernel's, even a matrix instruction of 16
passes, the dump waits longer than any hazard of the ISA asks for [CDNA4 ISA 4.5, 7.6].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from emu.errors import CodeObjectError
from emu.execute import branch_target
from emu.instrument_registers import (
    INDEXING,
    REACHED,
    ROW,
    SGPRS,
    SKIPPING,
    Layout,
)
from emu.kernel_descriptor import KernelDescriptor
from gfx950.isa.encoding import Decoded
from gfx950.isa.operand_codes import VCC
from gfx950.isa.text import assemble, disassemble
from gfx950.lanes import LANES

WAIT = "s_nop 15\ns_nop 15"  # 32 wait states: the longest hazard asks for 20
COHERENT = "sc0 sc1"  # past every cache that another reader might not see
FARTHEST = 4095 // ROW  # rows that the offset of a global instruction reaches
ADD_LANE, ALL_RECORDS = 1 << 23, 0xFFFFFFFF  # words 3 and 2 of a buffer descriptor [table 48]


@dataclass(frozen=True)
class Reserved:
    """The SGPRs that the kernel leaves free, by number. base, exec, stub: the first of a pair; spare: two more.

    base: address of the dump; with `spare` behind it a buffer descriptor, four SGPRs from a multiple of 4 on. exec: the
    kernel's EXEC during a dump, an address to jump to at other times. count: how many more visits until the dump. scc:
    the kernel's SCC. stub: the address of the code at the point, where a branch does not reach it.
    """

    base: int
    spare: int
    exec: int
    count: int
    scc: int
    stub: int | None
    end: int


def reserve(first: int, far: bool, kernel: str) -> Reserved:
    """SGPRs from `first` on. Raises CodeObjectError when the kernel leaves too few."""
    base = -(-first // 4) * 4
    end = base + (10 if far else 8)
    if end > SGPRS:
        raise CodeObjectError(
            f"the code of kernel {kernel} names {first} SGPRs",
            expected=f"at most {(SGPRS - (10 if far else 8)) // 4 * 4}, so that instrumentation has some for itself",
            advice="compile it for fewer SGPRs: __attribute__((amdgpu_num_sgpr(80)))",
            kernel=kernel,
        )
    return Reserved(base, base + 2, base + 4, base + 6, base + 7, base + 8 if far else None, end)


def pair(first: int) -> str:
    """A pair of SGPRs as an operand."""
    return f"s[{first}:{first + 1}]"


@dataclass
class Piece:
    """Machine code that grows at a known address."""

    address: int
    data: bytearray = field(default_factory=bytearray)

    @property
    def end(self) -> int:
        """The address after it."""
        return self.address + len(self.data)

    def add(self, lines: str | Iterable[str], **symbols: int) -> None:
        """Assembles some lines, which may name addresses."""
        text = lines if isinstance(lines, str) else "\n".join(lines)
        self.data += assemble(text, self.end, symbols)

    def pad(self, nbytes: int) -> None:
        """Adds bytes that do nothing when they run. nbytes: a multiple of 4."""
        self.add(["s_nop 0"] * (nbytes // 4))

    def add_address(self, first: int, target: int) -> None:
        """A pair of SGPRs = an address of the same code object; changes SCC."""
        self.add(f"s_getpc_b64 {pair(first)}")
        distance = (target - self.end) & 0xFFFFFFFFFFFFFFFF
        low, high = distance & 0xFFFFFFFF, distance >> 32
        high_text = "-1" if high == 0xFFFFFFFF else str(high)
        self.add([f"s_add_u32 s{first}, s{first}, 0x{low:x}", f"s_addc_u32 s{first + 1}, s{first + 1}, {high_text}"])


# ---- the start ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """The wave that shall dump. first_item: its first work-item as VGPR0 packs it. occurrence: the visit, from 1."""

    workgroup: tuple[int, int, int]
    first_item: int
    occurrence: int


def workitem_bits(mode: int) -> int:
    """The bits of VGPR0 that a descriptor's workitem_id mode fills."""
    return (1 << 10 * (mode + 1)) - 1


def add_start(
    code: Piece, descriptor: KernelDescriptor, mode: int, wanted: Wanted, own: Reserved, entry: int, stub: int
) -> None:
    """What a wave runs before the kernel's first instruction at `entry`: it finds out whether it is the wanted one.

    The variant's descriptor asks for all workgroup ids; afterwards they stand where the kernel's own descriptor puts
    them. mode: the variant's workitem_id. SCC is 0 at the end, as the emulator starts a wave.
    """
    user = descriptor.user_sgpr_count
    lines = [f"s_mov_b32 s{own.count}, 0"]
    for axis, number in enumerate(wanted.workgroup):
        lines += [f"s_cmp_lg_u32 s{user + axis}, 0x{number:x}", "s_cbranch_scc1 other"]
    lines += [
        f"v_readfirstlane_b32 s{own.scc}, v0",
        WAIT,
        f"s_and_b32 s{own.scc}, s{own.scc}, 0x{workitem_bits(mode):x}",
        f"s_cmp_lg_u32 s{own.scc}, 0x{wanted.first_item:x}",
        "s_cbranch_scc1 other",
        f"s_mov_b32 s{own.count}, 0x{wanted.occurrence:x}",
        "other:",
        *_restored_ids(descriptor),
    ]
    if mode != descriptor.workitem_id:
        lines.append(f"v_and_b32_e32 v0, 0x{workitem_bits(descriptor.workitem_id):x}, v0")
    code.add(lines)
    if own.stub is not None:
        code.add_address(own.stub, stub)
    code.add_address(own.exec, entry)
    code.add([f"s_cmp_lg_u32 s{own.count}, s{own.count}", WAIT, f"s_setpc_b64 {pair(own.exec)}"])


def _restored_ids(descriptor: KernelDescriptor) -> Iterator[str]:
    """The workgroup ids and info moved to where the kernel expects them, the SGPRs behind them 0."""
    enabled = (descriptor.enable_workgroup_id_x, descriptor.enable_workgroup_id_y, descriptor.enable_workgroup_id_z)
    sources = [axis for axis in range(3) if enabled[axis]] + [3] * descriptor.enable_workgroup_info
    user = descriptor.user_sgpr_count
    for place, source in enumerate(sources):
        if place != source:
            yield f"s_mov_b32 s{user + place}, s{user + source}"
    for place in range(len(sources), 3 + descriptor.enable_workgroup_info):
        yield f"s_mov_b32 s{user + place}, 0"


# ---- the point ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dump:
    """What the point's code needs to know. free: a VGPR that the kernel does not name, or None. buffer: the dump's
    address. entry: the kernel's first instruction. indexed, skips: see `emu.instrument_registers.Usage`."""

    layout: Layout
    own: Reserved
    free: int | None
    buffer: int
    entry: int
    indexed: bool
    skips: bool


def add_point(code: Piece, dump: Dump, displaced: Decoded) -> None:
    """The code behind the branch at the point: counts, dumps when it is time, runs the displaced instruction."""
    count, scc = dump.own.count, dump.own.scc
    code.add([f"s_cselect_b32 s{scc}, 1, 0", f"s_sub_u32 s{count}, s{count}, 1", f"s_cmp_lg_u32 s{count}, 0"])
    over = len(code.data)
    code.add("s_cbranch_scc1 0")
    _add_dump(code, dump)
    code.data[over : over + 2] = ((len(code.data) - over) // 4 - 1).to_bytes(2, "little")
    _add_displaced(code, dump.own, displaced)


class _Rows:
    """Loads and stores of a dump's rows: each has an offset that its instruction reaches, the base moves along."""

    def __init__(self, own: Reserved, lane: int) -> None:
        self.own, self.lane, self.at = own, lane, 0

    def to(self, row: int) -> Iterator[str]:
        """Moves the base, where it must be moved, so that an offset reaches the row."""
        if not self.at <= row <= self.at + FARTHEST:
            low, high, step = self.own.base, self.own.base + 1, (row - self.at) * ROW
            sign, carry = ("add", "addc") if step >= 0 else ("sub", "subb")
            yield f"s_{sign}_u32 s{low}, s{low}, 0x{abs(step):x}"
            yield f"s_{carry}_u32 s{high}, s{high}, 0"
            self.at = row

    def store(self, register: str, row: int) -> Iterator[str]:
        """One register to its row."""
        yield from self.to(row)
        yield f"global_store_dword v{self.lane}, {register}, {pair(self.own.base)} {self._offset(row)}"

    def load(self, register: str, row: int) -> Iterator[str]:
        """One register from its row."""
        yield from self.to(row)
        yield f"global_load_dword {register}, v{self.lane}, {pair(self.own.base)} {self._offset(row)}"

    def _offset(self, row: int) -> str:
        return f"offset:{(row - self.at) * ROW} {COHERENT}"


def _add_dump(code: Piece, dump: Dump) -> None:
    """Everything into the buffer, under EXEC = -1; then all is as it was."""
    own, layout = dump.own, dump.layout
    lane, data = (0, 1) if dump.free is None else (dump.free, 0)
    rows = _Rows(own, lane)
    code.add([*_begin(dump), *_base(dump), *_vectors(dump, rows), "s_waitcnt vmcnt(0)", f"v_mov_b32_e32 v{data}, 0"])
    code.add_address(own.base, dump.entry)
    code.add([*_scalars(dump, rows, data), *_lds(dump, rows, data), *rows.load(f"v{data}", layout.first_vgpr + data)])
    if dump.free is None:
        code.add(["s_waitcnt vmcnt(0)", *rows.load("v0", layout.first_vgpr)])
    code.add(["s_waitcnt vmcnt(0) lgkmcnt(0)", f"s_mov_b32 m0, s{own.spare}", *_switches_back(dump)])
    code.add([f"s_mov_b64 exec, {pair(own.exec)}", f"s_mov_b32 s{own.count}, 0", WAIT])


def _begin(dump: Dump) -> Iterator[str]:
    own = dump.own
    yield from ("s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)", WAIT)
    yield f"s_getreg_b32 s{own.count}, hwreg(HW_REG_MODE)"  # the count is 0 now and free until the end
    yield from ["s_setvskip 0, 0"] * dump.skips
    yield from ["s_set_gpr_idx_off"] * dump.indexed
    yield from (f"s_mov_b64 {pair(own.exec)}, exec", "s_mov_b64 exec, -1", WAIT)
    yield from _save_v0(dump) if dump.free is None else ()
    yield f"s_mov_b32 s{own.spare}, m0"


def _base(dump: Dump) -> Iterator[str]:
    yield f"s_mov_b32 s{dump.own.base}, 0x{dump.buffer & 0xFFFFFFFF:x}"
    yield f"s_mov_b32 s{dump.own.base + 1}, 0x{dump.buffer >> 32:x}"


def _vectors(dump: Dump, rows: _Rows) -> Iterator[str]:
    """Makes the VGPR of lane offsets, then stores all vector registers."""
    lane, layout = rows.lane, dump.layout
    yield from (f"v_mbcnt_lo_u32_b32 v{lane}, -1, 0", f"v_mbcnt_hi_u32_b32 v{lane}, -1, v{lane}")
    yield f"v_lshlrev_b32_e32 v{lane}, 2, v{lane}"
    for number in range(dump.free is None, layout.vgprs):
        yield from rows.store(f"v{number}", layout.first_vgpr + number)
    for number in range(layout.agprs):
        yield from rows.store(f"a{number}", layout.first_agpr + number)


def _save_v0(dump: Dump) -> Iterator[str]:
    """Stores v0 without the help of any VGPR: a buffer descriptor of stride 4 adds the lane by itself. [CDNA4 ISA table
    48, ADD_TID_ENABLE]"""
    own, stride = dump.own, 4
    yield f"s_mov_b32 s{own.base}, 0x{dump.buffer & 0xFFFFFFFF:x}"
    yield f"s_mov_b32 s{own.base + 1}, 0x{dump.buffer >> 32 | stride << 16:x}"
    yield from (f"s_mov_b32 s{own.spare}, 0x{ALL_RECORDS:x}", f"s_mov_b32 s{own.spare + 1}, 0x{ADD_LANE:x}")
    offset = ROW * dump.layout.first_vgpr
    yield f"buffer_store_dword v0, off, s[{own.base}:{own.base + 3}], 0 offset:{offset} {COHERENT}"
    yield "s_waitcnt vmcnt(0)"


def _scalars(dump: Dump, rows: _Rows, data: int) -> Iterator[str]:
    """The rows of scalar registers, put together lane by lane in a VGPR that is in the dump already and 0 now.

    The base holds the address of the kernel's first instruction, which goes into the first row too.
    """
    own, layout = dump.own, dump.layout
    kept = [f"s{number}" for number in (own.exec, own.exec + 1, own.spare, own.scc, own.count, own.base, own.base + 1)]
    special = [f"s{own.spare + 1}", "vcc_lo", "vcc_hi", *kept]
    named = [f"s{number}" for number in range(layout.sgprs)]
    yield f"s_mov_b32 s{own.spare + 1}, 0x{REACHED:x}"
    yield from _row(special, data)
    yield from _base(dump)
    rows.at = 0
    yield from rows.store(f"v{data}", 0)
    for row, registers in enumerate((named[:LANES], named[LANES:]), 1):
        yield from ("s_waitcnt vmcnt(0)", f"v_mov_b32_e32 v{data}, 0")
        yield from (*_row(registers, data), *rows.store(f"v{data}", row))


def _row(registers: list[str], data: int) -> Iterator[str]:
    """Scalar registers into the lanes of a VGPR."""
    yield from (f"v_writelane_b32 v{data}, {register}, {lane}" for lane, register in enumerate(registers))
    yield "s_nop 7"


def _lds(dump: Dump, rows: _Rows, data: int) -> Iterator[str]:
    """LDS, a row at a time, in a loop: the VGPR of lane offsets walks through LDS and the buffer."""
    if not dump.layout.lds:
        return
    left, step = f"s{dump.own.spare + 1}", f"v_add_u32_e32 v{rows.lane}, 0x{ROW:x}, v{rows.lane}"
    yield from ("s_waitcnt vmcnt(0)", *rows.to(dump.layout.first_lds), "s_mov_b32 m0, -1", f"s_mov_b32 {left}, 0")
    yield from ("lds:", f"ds_read_b32 v{data}, v{rows.lane}", "s_waitcnt lgkmcnt(0)")
    yield from (*rows.store(f"v{data}", dump.layout.first_lds), "s_waitcnt vmcnt(0)", step)
    yield from (f"s_addk_i32 {left}, 1", f"s_cmp_lg_u32 {left}, 0x{dump.layout.lds // ROW:x}", "s_cbranch_scc1 lds")
    yield f"v_subrev_u32_e32 v{rows.lane}, 0x{dump.layout.lds:x}, v{rows.lane}"


def _switches_back(dump: Dump) -> Iterator[str]:
    """VGPR indexing and the skipping of vector instructions on again, where they were on. M0 must be the kernel's."""
    own = dump.own
    if dump.indexed:  # S_SET_GPR_IDX_ON changes M0 as well
        yield from (
            f"s_bitcmp1_b32 s{own.count}, {INDEXING}",
            "s_cbranch_scc0 unindexed",
            "s_set_gpr_idx_on s0, gpr_idx()",
        )
        yield from (f"s_mov_b32 m0, s{own.spare}", "unindexed:")
    if dump.skips:
        yield from (
            f"s_bitcmp1_b32 s{own.count}, {SKIPPING}",
            "s_cbranch_scc0 unskipped",
            "s_setvskip -1, 0",
            "unskipped:",
        )


# ---- the displaced instruction --------------------------------------------------------------------------------------

FORKS = ("s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join", "s_rfe_b64", "s_rfe_restore_b64")


def _add_displaced(code: Piece, own: Reserved, displaced: Decoded) -> None:
    """The displaced instruction as it would run at its own address, and the way on from there."""
    name, fields = displaced.instruction.name, displaced.fields
    following = displaced.pc + displaced.nbytes
    saved = fields["sdst"] if name in ("s_getpc_b64", "s_swappc_b64", "s_call_b64") else None
    if name in FORKS:
        raise CodeObjectError(
            f"`{disassemble(displaced)}` cannot be displaced: it keeps its own address in registers",
            expected="a point at another instruction",
        )
    if name == "s_swappc_b64":
        code.add(f"s_mov_b64 {pair(own.base)}, {_scalar_pair(fields['ssrc0'])}")
    if saved is not None:
        _add_return_address(code, own, saved, following)
    jumps = _jumps(displaced, following)
    if own.stub is not None:
        for first, target in zip((own.exec, own.base), jumps, strict=False):
            code.add_address(first, target)
    code.add(f"s_cmp_lg_u32 s{own.scc}, 0")
    if displaced.instruction.flow == "branch" and len(jumps) == 2:
        code.data += (1).to_bytes(2, "little") + displaced.raw[2:4]  # the condition, over the jump that follows
    elif name == "s_swappc_b64":
        code.add(f"s_setpc_b64 {pair(own.base)}")
    elif saved is None and displaced.instruction.flow != "branch":
        code.data += displaced.raw
    for first, target in zip((own.exec, own.base), jumps, strict=False):
        code.add(f"s_setpc_b64 {pair(first)}" if own.stub is not None else "s_branch target", target=target)


def _jumps(displaced: Decoded, following: int) -> list[int]:
    """Where control goes on: the next instruction, and for a branch with a condition its target behind that."""
    name = displaced.instruction.name
    if displaced.instruction.flow == "branch":
        return [branch_target(displaced)] if name == "s_branch" else [following, branch_target(displaced)]
    return [branch_target(displaced)] if name == "s_call_b64" else [following]


def _scalar_pair(code: int) -> str:
    return "vcc" if code == VCC else pair(code)


def _add_return_address(code: Piece, own: Reserved, saved: int, following: int) -> None:
    """The pair that a call or S_GETPC writes: what it would hold had the instruction run at its own address."""
    code.add_address(own.exec, following)
    code.add(f"s_mov_b64 {_scalar_pair(saved)}, {pair(own.exec)}")
