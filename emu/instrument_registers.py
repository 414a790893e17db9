"""Which registers the code of a kernel names, which it leaves free, and how a dump of its registers is laid out."""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from emu.code_object import CodeObject, load
from emu.elf_header import ET_DYN, elf_type
from emu.errors import CodeObjectError
from emu.kernel_metadata import Kernel
from gfx950.isa.text import listing
from gfx950.lanes import LANES

Words = npt.NDArray[np.uint32]

SGPRS = 102  # that a program can name
ARCHITECTED_VGPRS = 256
ROW = 4 * LANES  # bytes: one word for each lane
REACHED = 0x950D0E01  # the first word of a dump that a wave has written
SPECIAL = (  # lanes of the first row
    "reached", "vcc_lo", "vcc_hi", "exec_lo", "exec_hi", "m0", "scc", "mode", "entry_lo", "entry_hi",
)  # fmt: skip
SCALAR_ROWS = 1 + -(-SGPRS // LANES)  # the special registers, then the SGPRs

INDEXING, SKIPPING = 27, 28  # bits of MODE
_PART_OF_MODE = re.compile(r"HW_REG_MODE, (\d+), (\d+)")
_NAMED = re.compile(r"\b([vsa])(?:(\d+)\b|\[(\d+):(\d+)\])")


@dataclass(frozen=True)
class Usage:
    """What the code of one kernel names: the number of its VGPRs, AGPRs and SGPRs, highest and all below.

    starts: the addresses of its instructions. indexed: VGPRs are named by M0 too, so that every one may be used.
    skips: S_SETVSKIP occurs, so vector instructions may be switched off.
    """

    vgprs: int
    agprs: int
    sgprs: int
    starts: frozenset[int]
    indexed: bool
    skips: bool


@functools.lru_cache(maxsize=8)
def _loaded(code: bytes) -> CodeObject:
    return load(code)


def linked_code(code: bytes, kernel: str | None = None) -> tuple[CodeObject, Kernel]:
    """A linked code object at address 0 and a kernel of it. Raises CodeObjectError for a relocatable one."""
    loaded = _loaded(bytes(code))
    if elf_type(code) != ET_DYN:
        raise CodeObjectError(
            "a relocatable object cannot be instrumented: its code has no final addresses yet",
            expected="a linked code object (`.hsaco`, an ELF shared object)",
            advice="link it first: `ld.lld -shared k.o -o k.hsaco`, or codegen.link.link(bytes)",
        )
    return loaded, loaded.kernel(kernel)


@functools.lru_cache(maxsize=64)
def usage(code: bytes, kernel: str) -> Usage:
    """The registers that a kernel's code names: its own and that of every function which is no kernel."""
    loaded, chosen = linked_code(code, kernel)
    highest = {"v": 0, "s": -1, "a": -1}  # the launch fills v0
    starts, names, switched = set(), set(), False
    for address, text in _lines(loaded, chosen):
        starts.add(address)
        names.add(text.partition(" ")[0])
        switched |= _sets_switches(text)
        for kind, one, _, last in _NAMED.findall(text):
            highest[kind] = max(highest[kind], int(one or last))
    descriptor = chosen.descriptor
    indexed = switched or any(name.startswith("s_set_gpr_idx_") for name in names)
    relative = any(name.startswith("s_movrel") for name in names)
    return Usage(
        vgprs=descriptor.accum_offset if indexed else min(highest["v"] + 1, descriptor.accum_offset),
        agprs=max(0, min(highest["a"] + 1, descriptor.vgprs - descriptor.accum_offset)),
        sgprs=min(SGPRS, descriptor.sgprs - 6) if relative else min(SGPRS, highest["s"] + 1),
        starts=frozenset(starts),
        indexed=indexed,
        skips=switched or "s_setvskip" in names,
    )


def _sets_switches(text: str) -> bool:
    """Whether an S_SETREG reaches the bits of MODE that index VGPRs or skip vector instructions."""
    if not text.startswith("s_setreg") or "HW_REG_MODE" not in text:
        return False
    part = _PART_OF_MODE.search(text)
    return part is None or int(part[1]) + int(part[2]) > INDEXING


def _lines(loaded: CodeObject, kernel: Kernel) -> list[tuple[int, str]]:
    """Address and text of each instruction that the kernel may reach: all code but that of other kernels."""
    others = [k.entry for k in loaded.kernels.values() if k.entry != kernel.entry]
    functions = [s for s in loaded.symbols.values() if s.kind in ("function", "other")]
    skipped = [range(s.address, s.address + s.size) for s in functions if s.address in others]
    ends = {end for s in functions for end in (s.address, s.address + s.size)}
    found: list[tuple[int, str]] = []
    for run in loaded.code:
        last = run.address + len(run.data)
        marks = sorted({run.address, last, *(end for end in ends if run.address < end < last and end % 4 == 0)})
        for start, end in itertools.pairwise(marks):
            if not any(start in gap for gap in skipped):
                found += _listed(run.data[start - run.address : end - run.address], start)
    return found


def _listed(data: bytes, address: int) -> list[tuple[int, str]]:
    return [(at, text) for at, _, text in listing(data, address) if not text.startswith(".")]


@dataclass(frozen=True)
class Layout:
    """A dump: rows of 64 words. Row 0 the special registers, then two of SGPRs, then a row for each VGPR and AGPR, then
    LDS. vgprs, agprs, sgprs: how many; lds: bytes, a multiple of 256."""

    vgprs: int
    agprs: int
    sgprs: int
    lds: int = 0

    @property
    def first_vgpr(self) -> int:
        """The row of v0."""
        return SCALAR_ROWS

    @property
    def first_agpr(self) -> int:
        """The row of a0."""
        return SCALAR_ROWS + self.vgprs

    @property
    def first_lds(self) -> int:
        """The row where LDS begins."""
        return self.first_agpr + self.agprs

    @property
    def nbytes(self) -> int:
        """Bytes of the dump."""
        return ROW * self.first_lds + self.lds


def layout_of(code: bytes, kernel: str | None = None, lds: int = 0) -> Layout:
    """The dump of a kernel: every register that its code can name. lds: bytes of LDS to add, rounded up to 256."""
    _, chosen = linked_code(code, kernel)
    used = usage(bytes(code), chosen.name)
    return Layout(used.vgprs, used.agprs, max(used.sgprs, launched_sgprs(chosen)), -(-lds // ROW) * ROW)


def launched_sgprs(kernel: Kernel) -> int:
    """How many SGPRs, from s0 on, a launch fills."""
    d = kernel.descriptor
    ids = d.enable_workgroup_id_x + d.enable_workgroup_id_y + d.enable_workgroup_id_z
    return d.user_sgpr_count + ids + d.enable_workgroup_info


@dataclass(frozen=True, eq=False)
class Registers:
    """A wave's registers before an instruction.

    reached: whether the wave got there; if not, all else is 0. vgprs: uint32 (n, 64), agprs: uint32 (m, 64), sgprs:
    uint32 (k,), as many as the kernel's code names. vcc, exec: 64 bits. entry: the address of the kernel's first
    instruction where it ran. lds: uint8.
    """

    reached: bool
    vgprs: Words
    agprs: Words
    sgprs: Words
    vcc: int
    exec: int
    m0: int
    scc: int
    mode: int
    entry: int
    lds: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))

    def differences(self, other: Registers) -> list[str]:
        """The names of what is not the same: `v3`, `a0`, `s7`, `vcc`, `exec`, `m0`, `scc`, `mode`, `lds`, `reached`."""
        found = [] if self.reached == other.reached else ["reached"]
        for letter, mine, theirs in (("v", self.vgprs, other.vgprs), ("a", self.agprs, other.agprs)):
            found += [f"{letter}{n}" for n in np.flatnonzero((mine != theirs).any(axis=1))]
        found += [f"s{n}" for n in np.flatnonzero(self.sgprs != other.sgprs)]
        found += [name for name in SCALARS if getattr(self, name) != getattr(other, name)]
        return found if np.array_equal(self.lds, other.lds) else [*found, "lds"]


SCALARS = ("vcc", "exec", "m0", "scc", "mode")


def read_registers(data: bytes | npt.NDArray[np.uint8], layout: Layout) -> Registers:
    """The registers in a dump. Raises ValueError for too few bytes."""
    raw = np.frombuffer(bytes(data), np.uint8)
    if len(raw) < layout.nbytes:
        raise ValueError(f"the dump has {len(raw)} bytes; this kernel's has {layout.nbytes}")
    rows = raw[: ROW * layout.first_lds].view("<u4").astype(np.uint32).reshape(-1, LANES)
    word = {name: int(rows[0, lane]) for lane, name in enumerate(SPECIAL)}
    vector = rows[SCALAR_ROWS:]
    return Registers(
        reached=word["reached"] == REACHED,
        vgprs=vector[: layout.vgprs],
        agprs=vector[layout.vgprs :],
        sgprs=rows[1:SCALAR_ROWS].reshape(-1)[: layout.sgprs],
        vcc=word["vcc_lo"] | word["vcc_hi"] << 32,
        exec=word["exec_lo"] | word["exec_hi"] << 32,
        m0=word["m0"],
        scc=word["scc"],
        mode=word["mode"],
        entry=word["entry_lo"] | word["entry_hi"] << 32,
        lds=raw[ROW * layout.first_lds : layout.nbytes],
    )
