"""LDS geometry: what a workgroup may allocate, in which phases an instruction's lanes are served, and bank conflicts.

Nothing here changes a bit of a result; it says what an access pattern costs. A lane's access covers `width` bytes from
its address. The lanes of an instruction are served in phases; within a phase every bank delivers one dword a cycle, so
a bank that is asked for n different dwords makes the phase n - 1 cycles longer.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gfx950.evidence import Evidence, Rule, rule
from gfx950.lanes import LANES

LDS_BYTES = 163840
GRANULE_BYTES = 1280
BANKS = 64
BANK_BYTES = 4

Lanes = tuple[int, ...]

GEOMETRY_RULE = rule(
    "lds.geometry",
    Evidence.spec,
    "CDNA4 ISA 3.6.5, 11.1",
    "A CU has 160 KB of LDS in 64 banks of 4 bytes, granted to workgroups in blocks of 1280 bytes.",
)
READ_B64_RULE = rule(
    "lds.phases.ds_read_b64",
    Evidence.published,
    "HipKittens, phase and bank solver results on gfx950",
    "ds_read_b64 is served in two phases, lanes 0-31 and 32-63, over 64 banks.",
)
READ_B96_RULE = rule(
    "lds.phases.ds_read_b96",
    Evidence.published,
    "HipKittens, phase and bank solver results on gfx950",
    "ds_read_b96 is served in eight phases of eight lanes, 0-3 with 20-23, 4-7 with 16-19, 8-11 with 28-31, 12-15 with"
    " 24-27 and the same 32 lanes on, over 32 banks.",
)
READ_B128_RULE = rule(
    "lds.phases.ds_read_b128",
    Evidence.published,
    "HipKittens, phase and bank solver results on gfx950",
    "ds_read_b128 is served in four phases of 16 lanes, {0-3, 12-15, 20-27}, {4-11, 16-19, 28-31} and the same 32 lanes"
    " on, over 64 banks.",
)
WRITE_B64_RULE = rule(
    "lds.phases.ds_write_b64",
    Evidence.published,
    "HipKittens, phase and bank solver results on gfx950",
    "ds_write_b64 is served in four phases of 16 consecutive lanes, over 32 banks.",
)
WRITE_B128_RULE = rule(
    "lds.phases.ds_write_b128",
    Evidence.carried,
    "Composable Kernel documentation, for parts with 32 banks",
    "ds_write_b128 is served in eight phases of eight consecutive lanes, over 32 banks.",
)
READ_CHOSEN_RULE = rule(
    "lds.phases.other_reads",
    Evidence.chosen,
    "nothing published; 256 bytes a phase as ds_read_b64 and ds_read_b128 do",
    "Reads of at most 32 bits are served in one phase of 64 lanes over 64 banks; a read2 as its two reads one after the"
    " other; a transposing read as the plain read of its width.",
)
WRITE_CHOSEN_RULE = rule(
    "lds.phases.other_writes",
    Evidence.chosen,
    "nothing published; at most 128 bytes a phase as ds_write_b64 and ds_write_b128 do",
    "Writes of at most 32 bits are served in two phases of 32 lanes, ds_write_b96 in eight of eight consecutive lanes,"
    " over 32 banks; a write2 as its two writes one after the other; an atomic as the write of its width.",
)
BROADCAST_RULE = rule(
    "lds.conflict.same_dword",
    Evidence.chosen,
    "nothing published for gfx950",
    "Lanes of one phase that touch the same dword are served together and count once, whatever bytes of it they touch.",
)
COST_RULE = rule(
    "lds.conflict.cost",
    Evidence.chosen,
    "CDNA4 ISA 11.1 says only that accesses to one bank are serialised",
    "A phase takes as many cycles as the most asked bank has different dwords, at least one.",
)


@dataclass(frozen=True)
class AccessPlan:
    """How one instruction's accesses are served.

    width: bytes of one access. accesses: 1, or 2 for read2 and write2, served one after the other. banks: banks that a
    phase sees. phases: the lanes of each phase, every lane once. rule: what this rests on.
    """

    mnemonic: str
    width: int
    accesses: int
    banks: int
    phases: tuple[Lanes, ...]
    rule: Rule


@dataclass(frozen=True)
class PhaseConflict:
    """One phase of one access: its lanes, the cycles it takes beyond the first, and the bank that makes it so.

    bank is the (first) most asked bank, or -1 when no lane is active. dwords: the different dword numbers
    (byte address / 4) that bank is asked for; asking: for each of them the lanes that want it.
    """

    access: int
    lanes: Lanes
    extra_cycles: int
    bank: int
    dwords: tuple[int, ...]
    asking: tuple[Lanes, ...]


@dataclass(frozen=True)
class ConflictReport:
    """What one wave's LDS instruction costs. cycles = phases + extra_cycles; both count every access and phase."""

    plan: AccessPlan
    phases: tuple[PhaseConflict, ...]

    @property
    def extra_cycles(self) -> int:
        return sum(phase.extra_cycles for phase in self.phases)

    @property
    def cycles(self) -> int:
        return len(self.phases) + self.extra_cycles

    @property
    def worst(self) -> PhaseConflict:
        """The (first) phase with the most extra cycles."""
        return max(self.phases, key=lambda phase: phase.extra_cycles)

    @property
    def rules(self) -> list[Rule]:
        return [GEOMETRY_RULE, self.plan.rule, BROADCAST_RULE, COST_RULE]

    def explain(self) -> str:
        """The report in words: totals, and lanes, bank and addresses of the worst conflict."""
        plan, worst = self.plan, self.worst
        head = (
            f"{plan.mnemonic}: {_count(len(self.phases), 'phase')} over {plan.banks} banks ({plan.rule.evidence.name})"
        )
        if not worst.extra_cycles:
            return f"{head}, no bank conflict"
        asked = "; ".join(
            f"{_named_lanes(lanes)} at {BANK_BYTES * dword:#07x}"
            for dword, lanes in zip(worst.dwords, worst.asking, strict=True)
        )
        number = self.phases.index(worst)
        return (
            f"{head}, {_count(self.extra_cycles, 'extra cycle')}\n"
            f"worst: phase {number} ({_named_lanes(worst.lanes)}), bank {worst.bank} is asked for {len(worst.dwords)}"
            f" different dwords: {asked}"
        )


def allocation(size: int) -> int:
    """Bytes of LDS granted to a workgroup that asks for `size`: the next multiple of 1280 bytes.

    Raises ValueError when size is negative or beyond the 163840 bytes of a CU.
    """
    if not 0 <= size <= LDS_BYTES:
        raise ValueError(f"a workgroup cannot have {size} bytes of LDS: a CU of gfx950 has {LDS_BYTES}")
    return -(-size // GRANULE_BYTES) * GRANULE_BYTES


def phases(mnemonic: str) -> AccessPlan:
    """How an LDS instruction (ds_read_b128, ds_write2_b64, ds_add_u32, ...) is served.

    Raises ValueError with the nearest names for an instruction that does not access LDS memory or is not known.
    """
    plan = PLANS.get(mnemonic)
    if plan is None:
        near = difflib.get_close_matches(mnemonic, PLANS, n=3, cutoff=0.5)
        hint = f"nearest: {', '.join(near)}" if near else "for example ds_read_b128"
        raise ValueError(f"{mnemonic!r} is not a known access to LDS memory; {hint}")
    return plan


def conflicts(
    instruction: str, addresses: npt.ArrayLike, active: npt.NDArray[np.bool_] | None = None
) -> ConflictReport:
    """Bank conflicts of one wave's access.

    addresses: LDS byte addresses, integers of shape (64,), or (2, 64) for read2 and write2 (offsets added).
    active: bool (64,), the lanes that take part; all when not given. Raises ValueError for another shape and for an
    active lane that reaches outside the 163840 bytes.
    """
    plan = phases(instruction)
    table, mask = _checked(plan, addresses, active)
    found: list[PhaseConflict] = []
    for access in range(plan.accesses):
        found += _access_conflicts(plan, access, table[access], mask)
    return ConflictReport(plan, tuple(found))


def _checked(
    plan: AccessPlan, addresses: npt.ArrayLike, active: npt.NDArray[np.bool_] | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    given = np.asarray(addresses)
    shape = (LANES,) if plan.accesses == 1 else (plan.accesses, LANES)
    if given.shape != shape or given.dtype.kind not in "iu":
        raise ValueError(
            f"{plan.mnemonic} needs integer byte addresses of shape {shape}, got {given.dtype} of shape {given.shape}"
        )
    mask = np.ones(LANES, np.bool_) if active is None else np.asarray(active, np.bool_)
    if mask.shape != (LANES,):
        raise ValueError(f"the mask of active lanes has shape ({LANES},), got {mask.shape}")
    table = given.astype(np.int64).reshape(plan.accesses, LANES)
    outside = ((table < 0) | (table + plan.width > LDS_BYTES)) & mask
    if outside.any():
        access, lane = (int(i) for i in np.argwhere(outside)[0])
        raise ValueError(
            f"{plan.mnemonic}: lane {lane} accesses {plan.width} bytes at {table[access, lane]}, outside the"
            f" {LDS_BYTES} bytes of LDS"
        )
    return table, mask


def _access_conflicts(
    plan: AccessPlan, access: int, addresses: npt.NDArray[np.int64], active: npt.NDArray[np.bool_]
) -> Iterator[PhaseConflict]:
    """All phases at once: the different (phase, dword) pairs, counted by (phase, bank)."""
    count, banks = len(plan.phases), plan.banks
    phase_of_lane = np.empty(LANES, np.int64)
    for number, lanes in enumerate(plan.phases):
        phase_of_lane[list(lanes)] = number
    phase, lane, dword = _touched_dwords(plan, addresses, active, phase_of_lane)
    pairs = np.unique(phase * LDS_BYTES + dword)
    asked = np.bincount(pairs // LDS_BYTES * banks + pairs % LDS_BYTES % banks, minlength=count * banks)
    asked = asked.reshape(count, banks)
    for number, lanes in enumerate(plan.phases):
        bank, most = int(asked[number].argmax()), int(asked[number].max())
        if most == 0:
            yield PhaseConflict(access, lanes, 0, -1, (), ())
            continue
        there = (phase == number) & (dword % banks == bank)
        wanted = np.unique(dword[there])
        asking = tuple(tuple(int(i) for i in np.unique(lane[there & (dword == one)])) for one in wanted)
        yield PhaseConflict(access, lanes, most - 1, bank, tuple(int(one) for one in wanted), asking)


def _touched_dwords(
    plan: AccessPlan,
    addresses: npt.NDArray[np.int64],
    active: npt.NDArray[np.bool_],
    phase_of_lane: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(phase, lane, dword) of every dword that an active lane touches; a misaligned access touches one more."""
    first, last = addresses // BANK_BYTES, (addresses + plan.width - 1) // BANK_BYTES
    steps = np.arange(-(-plan.width // BANK_BYTES) + 1)
    dwords = first[:, None] + steps
    touched = (dwords <= last[:, None]) & active[:, None]
    lane, step = np.nonzero(touched)
    return phase_of_lane[lane], lane.astype(np.int64), dwords[lane, step]


def _named_lanes(lanes: Lanes) -> str:
    """'lanes 0-3, 12-15' or 'lane 7'."""
    runs: list[list[int]] = []
    for lane in lanes:
        if runs and lane == runs[-1][1] + 1:
            runs[-1][1] = lane
        else:
            runs.append([lane, lane])
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
    return f"lane{'s' * (len(lanes) > 1)} {text}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _consecutive(size: int) -> tuple[Lanes, ...]:
    return tuple(tuple(range(start, start + size)) for start in range(0, LANES, size))


def _in_both_halves(*runs_of_phases: tuple[tuple[int, int], ...]) -> tuple[Lanes, ...]:
    """Phases given as runs (first, last) of lanes below 32, and the same phases 32 lanes on."""
    low = [tuple(lane for first, last in runs for lane in range(first, last + 1)) for runs in runs_of_phases]
    return (*low, *(tuple(lane + 32 for lane in lanes) for lanes in low))


_READ_B96 = _in_both_halves(((0, 3), (20, 23)), ((4, 7), (16, 19)), ((8, 11), (28, 31)), ((12, 15), (24, 27)))
_READ_B128 = _in_both_halves(((0, 3), (12, 15), (20, 27)), ((4, 11), (16, 19), (28, 31)))
_SMALL_READS = {"u8": 1, "i8": 1, "u16": 2, "i16": 2, "b32": 4}
_SMALL_READS |= {f"{kind}_d16{half}": 1 + (kind == "u16") for kind in ("u8", "i8", "u16") for half in ("", "_hi")}
_SMALL_WRITES = {"b8": 1, "b16": 2, "b32": 4, "b8_d16_hi": 1, "b16_d16_hi": 2}
_ATOMICS: tuple[str, ...] = (
    *("add_u", "sub_u", "rsub_u", "inc_u", "dec_u", "min_i", "max_i", "min_u", "max_u"),
    *("and_b", "or_b", "xor_b", "mskor_b", "cmpst_b", "cmpst_f", "min_f", "max_f", "add_f"),
)


def _plans() -> Iterator[AccessPlan]:
    yield AccessPlan("ds_read_b64", 8, 1, 64, _consecutive(32), READ_B64_RULE)
    yield AccessPlan("ds_read_b96", 12, 1, 32, _READ_B96, READ_B96_RULE)
    yield AccessPlan("ds_read_b128", 16, 1, 64, _READ_B128, READ_B128_RULE)
    yield AccessPlan("ds_write_b64", 8, 1, 32, _consecutive(16), WRITE_B64_RULE)
    yield AccessPlan("ds_write_b128", 16, 1, 32, _consecutive(8), WRITE_B128_RULE)
    yield AccessPlan("ds_write_b96", 12, 1, 32, _consecutive(8), WRITE_CHOSEN_RULE)
    for name, width in _SMALL_READS.items():
        yield AccessPlan(f"ds_read_{name}", width, 1, 64, _consecutive(64), READ_CHOSEN_RULE)
    for name, width in _SMALL_WRITES.items():
        yield AccessPlan(f"ds_write_{name}", width, 1, 32, _consecutive(32), WRITE_CHOSEN_RULE)
    for stride in ("", "st64"):
        yield AccessPlan(f"ds_read2{stride}_b32", 4, 2, 64, _consecutive(64), READ_CHOSEN_RULE)
        yield AccessPlan(f"ds_read2{stride}_b64", 8, 2, 64, _consecutive(32), READ_CHOSEN_RULE)
        yield AccessPlan(f"ds_write2{stride}_b32", 4, 2, 32, _consecutive(32), WRITE_CHOSEN_RULE)
        yield AccessPlan(f"ds_write2{stride}_b64", 8, 2, 32, _consecutive(16), WRITE_CHOSEN_RULE)
    for element in ("b16", "b8", "b4"):
        yield AccessPlan(f"ds_read_b64_tr_{element}", 8, 1, 64, _consecutive(32), READ_CHOSEN_RULE)
    yield AccessPlan("ds_read_b96_tr_b6", 12, 1, 32, _READ_B96, READ_CHOSEN_RULE)
    yield from _atomic_plans()


def _atomic_plans() -> Iterator[AccessPlan]:
    names = [f"{name}{bits}" for name in _ATOMICS for bits in (32, 64)]
    returning = [name.replace("_", "_rtn_") for name in names] + ["wrxchg_rtn_b32", "wrxchg_rtn_b64"]
    packed = ["pk_add_f16", "pk_add_bf16", "pk_add_rtn_f16", "pk_add_rtn_bf16"]
    for name in names + returning + packed:
        width = 8 if name.endswith("64") else 4
        yield AccessPlan(f"ds_{name}", width, 1, 32, _consecutive(128 // width), WRITE_CHOSEN_RULE)


PLANS: dict[str, AccessPlan] = {plan.mnemonic: plan for plan in _plans()}
