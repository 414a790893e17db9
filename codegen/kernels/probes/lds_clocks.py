"""P14: bank conflicts of LDS, by the clock; and what the clocks of a capture say beside `gfx950.lds`.

A workgroup that has all of LDS, and so a compute unit of its own, times runs of one access: of two lanes whose data lie
in the same banks or in others, for every pair of lanes (which share a phase?); of two lanes a growing stride apart (how
many banks?); of more and more lanes at different dwords of one bank, or at one dword (what does it cost?). Transposing
reads want all lanes: there all but the two read one dword, which is taken to cost nothing in their phases.

Reads are exact instructions, each waited for. Writes are the language's, for instructions without result cannot be
exact; a read that is waited for ends their run. Clocks are compared with nothing, so the steps are not exact; the
emulator counts instructions, and its captures say nothing of time. Loads to LDS are not asked: a kernel cannot name M0.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.apply import Static
from codegen.kernels.probes.capture import Capture
from codegen.kernels.probes.lane_forms import EXEC_PATTERNS, ROW, Form, Words, exec_row
from codegen.kernels.probes.lds import ONE_WRITE, TRANSPOSES
from codegen.kernels.probes.probe import SIZES, Probe, Size, Step
from codegen.language import (
    I32,
    U32,
    U64,
    Kernel,
    Mask,
    Pointer,
    clock,
    constant,
    kernel,
    lds_write,
    load,
    loop,
    store,
    thread_id,
    when,
    workgroup_id,
)
from gfx950.lanes import LANES
from gfx950.lds import BANKS, LDS_BYTES, phases

Clocks = NDArray[np.uint32]
Pairs = list[tuple[int, int]]
RUN, TRIES = 32, 4  # accesses timed together; runs of which the quickest counts
ALL_PAIRS = 1 << 16  # tiles of a size from which on every pair of lanes is asked
SAMPLED = (1, 6, 12, 21, 31, 32, 43, 52, 63)  # lanes that smaller sizes pair, and with lane 0
FAR = 4096  # bytes: the same bank, whatever the number of banks
OTHER_BANK = 32  # bytes on: beside the widest access
STRIDES = range(1, 2 * BANKS + 1)
CROWDS = (1, 2, 3, 4, 5, 8, 16, 32, 33, 48, 64)
LEAST_SPREAD = RUN // 2  # clocks by which a run with conflicts must be longer than one without


@dataclass(frozen=True)
class Access:
    """A timed access. words: of a write, 0 for a read. width: bytes of a lane's access."""

    mnemonic: str
    static: Static = ()
    words: int = 0

    @property
    def width(self) -> int:
        """Bytes from the first to the last byte that a lane touches."""
        plan = phases(self.mnemonic)
        return plan.width * plan.accesses

    @property
    def transposes(self) -> bool:
        """Whether all lanes must be active."""
        return self.mnemonic in TRANSPOSES


ACCESSES = (
    *(Access(f"ds_read_{width}") for width in ("u16", "b32", "b64", "b96", "b128")),
    Access("ds_read2_b32", (("offset1", 1),)),
    Access("ds_read2_b64", (("offset1", 1),)),
    *(Access(mnemonic) for mnemonic in TRANSPOSES),
    *(Access(f"ds_write_b{32 * words}", (), words) for words in (1, 2, 3, 4)),
    Access("ds_add_rtn_u32"),
)


# ---- the kernel ------------------------------------------------------------------------------------------------------


@functools.cache
def clock_kernel(access: Access) -> Kernel:
    """Rows: EXEC, LDS addresses. The output is one word an item: the clocks of the quickest run."""

    def body(inputs: Pointer, outputs: Pointer) -> None:
        item, lane = workgroup_id().to(U64), thread_id().to(U64)
        at = inputs + item * (2 * ROW) + lane * 4
        mask, address = load(at) != 0, load(at + ROW)

        @loop(0, TRIES, carry=(constant(U32, 0xFFFFFFFF),))
        def quickest(i: I32, best: U32) -> tuple[U32]:
            start = clock()
            _run(access, mask, address)
            return (best.minimum((clock() - start).to(U32)),)

        with when(lane.to(I32) == 0):
            store(outputs + item * 4, quickest[0])

    name = f"P14_{access.mnemonic}"
    return kernel(block=LANES, lds=LDS_BYTES, name=name, exact=True)(body)


def _run(access: Access, mask: Mask, address: U32) -> None:
    if access.words:
        with when(mask):

            @loop(0, RUN)
            def written(i: I32) -> None:
                lds_write(address, *[i] * access.words, align=ONE_WRITE[access.words])

        Form("ds_read_b32").run(mask, [address, constant(U32, 0)])
        return
    form = Form(access.mnemonic, access.static)
    for _ in range(RUN):
        form.run(mask, [address] + [constant(U32, 1)] * (form.rows - 2))


# ---- the addresses ---------------------------------------------------------------------------------------------------


def lane_pairs(size: Size) -> Pairs:
    """The pairs of lanes that are asked."""
    if size.tiles >= ALL_PAIRS:
        return [(i, j) for i in range(LANES) for j in range(i + 1, LANES)]
    sampled = (0, *SAMPLED)
    return [(i, j) for i in sampled for j in sampled if i < j]


def pair_rows(access: Access, pair: tuple[int, int], conflict: bool) -> Words:
    """EXEC and addresses with which two lanes meet in a bank, or do not."""
    first, second = pair
    addresses = np.zeros(LANES, np.uint32)
    addresses[first] = OTHER_BANK
    addresses[second] = FAR + (1 if conflict else 2) * OTHER_BANK
    active = EXEC_PATTERNS["full"] if access.transposes else 1 << first | 1 << second
    return np.stack([exec_row(active), addresses])


def stride_rows(stride: int) -> Words:
    """Lanes 0 and 1, dwords apart."""
    return np.stack([exec_row(3), np.arange(LANES) * 4 * stride]).astype(np.uint32)


def crowd_rows(lanes: int, apart: int) -> Words:
    """The first lanes, bytes apart."""
    return np.stack([exec_row((1 << lanes) - 1), np.arange(LANES) * apart]).astype(np.uint32)


def _step(kind: str, access: Access, rows: list[Words]) -> Step:
    inputs, name = np.stack(rows), f"P14/{kind}/{access.mnemonic}"
    return Step(name, clock_kernel(access), len(inputs), (inputs,), ((len(inputs),), "<u4"), exact=False)


def steps(size: Size) -> Iterator[Step]:
    """All of P14."""
    pairs = lane_pairs(size)
    for access in ACCESSES:
        rows = [pair_rows(access, pair, conflict) for pair in pairs for conflict in (False, True)]
        yield _step("pairs", access, rows)
        if not access.transposes:
            yield _step("strides", access, [stride_rows(n) for n in STRIDES])
            yield _step("crowd", access, [crowd_rows(n, apart) for n in CROWDS for apart in (4 * BANKS, 0)])


# ---- what the clocks say ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PhaseReport:
    """The pairs of lanes of one access that take longer when they meet in a bank, beside those that share a phase.

    timed: whether the clocks tell anything. pairs: asked. sets: lanes that conflict with one another, linked by pairs.
    other: pairs for which `gfx950.lds` says otherwise.
    """

    mnemonic: str
    timed: bool
    pairs: int = 0
    sets: tuple[tuple[int, ...], ...] = ()
    other: tuple[tuple[int, int], ...] = ()

    @property
    def text(self) -> str:
        """One or two lines."""
        rule = phases(self.mnemonic).rule
        if not self.timed:
            return f"{self.mnemonic}: no timing"
        found = " ".join("{" + ",".join(map(str, lanes)) + "}" for lanes in self.sets) or "none"
        if not self.other:
            return f"{self.mnemonic}: all {self.pairs} pairs as {rule.name} has them; conflict sets {found}"
        first = "lanes {} and {}".format(*self.other[0])
        return (
            f"{self.mnemonic}: {len(self.other)} of {self.pairs} pairs not as {rule.name} has them, first {first}\n"
            f"  conflict sets {found}"
        )


def phase_reports(capture: Capture) -> list[PhaseReport]:
    """What a capture's clocks say of phases, an access each. A capture of an emulator tells no time."""
    pairs = lane_pairs(SIZES[capture.size])
    found = []
    for access in ACCESSES:
        name = f"P14/pairs/{access.mnemonic}"
        if name in capture.entries:
            timed = capture.origin.kind == "device"
            found.append(phase_report(access.mnemonic, pairs, capture.read(name), timed))
    return found


def phase_report(mnemonic: str, pairs: Pairs, clocks: Clocks, timed: bool = True) -> PhaseReport:
    """The report of one access. clocks: of each pair apart, then together."""
    apart, together = clocks.astype(np.int64).reshape(-1, 2).T
    more = together - apart
    if not timed or int(more.max() - more.min()) < LEAST_SPREAD:
        return PhaseReport(mnemonic, False)
    conflicts = {pair for pair, extra in zip(pairs, more, strict=True) if 2 * extra > more.max() + more.min()}
    phase = {lane: n for n, lanes in enumerate(phases(mnemonic).phases) for lane in lanes}
    other = tuple(pair for pair in pairs if (phase[pair[0]] == phase[pair[1]]) != (pair in conflicts))
    return PhaseReport(mnemonic, True, len(pairs), _linked(conflicts), other)


def _linked(conflicts: set[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Lanes in sets, those of each pair in the same one."""
    sets: dict[int, set[int]] = {}
    for first, second in conflicts:
        joined = sets.get(first, {first}) | sets.get(second, {second})
        sets |= dict.fromkeys(joined, joined)
    return tuple(sorted({tuple(sorted(lanes)) for lanes in sets.values()}))


def cost_table(capture: Capture, mnemonic: str) -> Mapping[int, tuple[int, int]]:
    """By number of lanes: the clocks of an access of a run where they want different dwords of one bank, and one
    dword."""
    clocks = capture.read(f"P14/crowd/{mnemonic}").reshape(-1, 2) // RUN
    return {lanes: (int(row[0]), int(row[1])) for lanes, row in zip(CROWDS, clocks, strict=True)}


def bank_count(capture: Capture, mnemonic: str) -> int | None:
    """How many banks there are, by the smallest stride at which two lanes conflict though their data do not touch;
    None where no stride takes longer."""
    if capture.origin.kind != "device":
        return None
    clocks = capture.read(f"P14/strides/{mnemonic}").astype(np.int64)
    width = -(-phases(mnemonic).width * phases(mnemonic).accesses // 4)
    beyond = clocks[width - 1 :]
    if beyond.max() - beyond.min() < LEAST_SPREAD:
        return None
    stride = width + int(np.argmax(2 * beyond > beyond.max() + beyond.min()))
    return stride + width - 1


PROBES = (Probe("P14", "bank conflicts of LDS: phases, banks and costs by the clock", steps),)
