"""Which workgroup and which wave run next. Workgroups start in ascending order, and all that the chip would hold at
once make progress; the waves of each take turns in rounds. On demand the last ones come first, or a seed draws them.

A workgroup runs to its end in one go unless it seems to wait for others: then it is set aside and its turn comes again.
A launch in which everybody waits and memory stays as it is ends with a report. The schedule never changes the bits of a
program that is free of races. [facts: kernels on this chip rely on ascending starts and on the progress of residents]
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from emu.errors import EmulatorError, NoProgress
from emu.geometry import Dimensions

LONGEST_SLICE = 1 << 22  # instructions of a workgroup before Python looks at Ctrl-C
TURN = 1 << 26  # instructions after which a workgroup that shows no sign of waiting is set aside all the same
POLL_SHARE = 256  # a slice waits when one instruction in so many is a poll
PATIENCE = 1 << 28  # instructions of nothing but waiting before a launch is given up
ROUNDS = 8  # but never before every workgroup has had so many turns
GRACE = 1 << 20  # what a waiting workgroup may still take after another has failed

PLACE_BITS = 4  # of a wave's number in a packed order: a workgroup has at most 16 waves
DRAW_SHIFT = 32  # the bits of a random state that draw a wave are other ones than those that draw a short turn
RANDOM_STEPS = (("shl", 13), ("lshr", 7), ("shl", 17))  # Marsaglia's xorshift64


def first_random(seed: int | None, number: int) -> int:
    """The state of a random schedule before the workgroup that begins as `number` does, never 0; 0 without a seed."""
    return 0 if seed is None else (seed * 0x9E3779B97F4A7C15 + (number + 1) * 0xD1B54A32D192ED03) % (1 << 64) | 1


def next_random(state: int) -> int:
    """The state after `state`."""
    for direction, amount in RANDOM_STEPS:
        state ^= (state << amount if direction == "shl" else state >> amount) & (1 << 64) - 1
    return state


@dataclass
class Turns:
    """Whose turn it is in a workgroup: in each round each of its `count` waves has one. The host engine's driver goes
    on from what `first` returns as `advance` does.

    quantum: instructions of the longest turn. order: the waves of the round by place, PLACE_BITS each, the first one
    lowest. length: of the turn, in instructions. random: the state of a random schedule, else 0. place: of the turn, in
    the round.
    """

    count: int
    quantum: int
    order: int
    length: int
    random: int = 0
    place: int = 0

    @staticmethod
    def first(count: int, quantum: int, order: str, seed: int | None, number: int) -> Turns:
        """The first turn in the workgroup that begins as `number` does. order: one of `emu.engines.ORDERS`."""
        waves = range(count) if order == "ascending" else range(count - 1, -1, -1)
        packed = sum(wave << PLACE_BITS * place for place, wave in enumerate(waves))
        turns = Turns(count, quantum, packed, quantum, first_random(seed, number))
        turns._draw()
        return turns

    @property
    def wave(self) -> int:
        """The wave whose turn it is."""
        return self.order >> PLACE_BITS * self.place & (1 << PLACE_BITS) - 1

    def advance(self) -> None:
        """Goes on to the next turn; after a round's last one comes place 0."""
        self.place = (self.place + 1) % self.count
        self._draw()

    def _draw(self) -> None:
        """Under a seed: how long the turn is, and which of the waves that have none yet in this round has it."""
        if not self.random:
            return
        self.random = next_random(self.random)
        self.length = 1 + self.random % self.quantum
        drawn = self.place + (self.random >> DRAW_SHIFT) % (self.count - self.place)
        here, there = PLACE_BITS * self.place, PLACE_BITS * drawn
        unlike = (self.order >> here ^ self.order >> there) & (1 << PLACE_BITS) - 1
        self.order ^= unlike << here | unlike << there


def starts(ids: Iterator[Dimensions], limit: int, order: str, seed: int | None) -> Iterator[Dimensions]:
    """The workgroups in the order of their starts. order: one of `emu.engines.ORDERS`.

    Reversed or drawn are as many at a time as run at once: a workgroup may wait for those before it, which then come to
    run without it.
    """
    random = first_random(seed, -1)
    while batch := list(islice(ids, 1 if order == "ascending" and seed is None else limit)):
        if order == "reversed":
            batch.reverse()
        for place in range(len(batch)) if random else ():
            random = next_random(random)
            drawn = place + (random >> DRAW_SHIFT) % (len(batch) - place)
            batch[place], batch[drawn] = batch[drawn], batch[place]
        yield from batch


class Resident(Protocol):
    """A workgroup that has started, with its registers and LDS; reused for the next when it has ended.

    instructions, polls, changes: run so far, how many of them were `polls`, how often memory was changed.
    """

    number: int  # of its start, from 0 on

    @property
    def done(self) -> bool:
        """Whether all its waves have ended, or none has begun yet."""
        ...

    @property
    def instructions(self) -> int: ...

    @property
    def polls(self) -> int: ...

    @property
    def changes(self) -> int: ...

    def begin(self, number: int, workgroup: Dimensions) -> None:
        """Takes up a workgroup at its first instruction."""
        ...

    def release(self) -> None:
        """Gives back what it has in the address space."""
        ...

    def advance(self, budget: int) -> None:
        """Runs about `budget` instructions, or to the end."""
        ...

    def repeats(self) -> bool:
        """Whether everything is as it was some time ago, so that it will go on like this while memory stays."""
        ...

    def where(self) -> str:
        """Where its waves stand, in a line."""
        ...


def standing(first: Mapping[str, Any], text: str, live: int, waiting: int) -> str:
    """Where the waves of a workgroup stand, in a line.

    first: the fields of `errors.Location` of the first of the `live` ones, `waiting` of which are at a barrier; text:
    its instruction.
    """
    barrier = f", {waiting} at a barrier" if waiting else ""
    return (
        f"kernel {first['kernel']}, workgroup {first['workgroup']} wave {first['wave']} at pc {first['pc']:#x} `{text}`"
        f" ({live} waves live{barrier})"
    )


R = TypeVar("R", bound=Resident)
Fresh = tuple[int, Dimensions]  # the number of a workgroup's start, and its id


class Workgroups(Generic[R]):
    """The workgroups of a launch, run on threads.

    ids: in the order of their starts. limit: how many may have started and not ended. first_slice: instructions of a
    workgroup before the first look for signs of waiting; then twice that, and so on. slowness: how many times slower
    than the host engine instructions are: as much less there is of them in the longest slice, before a launch is given
    up, and of what follows a failure.
    """

    def __init__(
        self,
        ids: Iterator[Dimensions],
        limit: int,
        make: Callable[[], R],
        finished: Callable[[R], None],
        first_slice: int,
        slowness: int = 1,
    ) -> None:
        self.ids, self.limit, self.make, self.finished = enumerate(ids), limit, make, finished
        self.first_slice = first_slice
        self.longest = max(first_slice, LONGEST_SLICE // slowness)
        self.patience = PATIENCE // slowness
        self.grace_turns = max(1, GRACE // slowness // first_slice)
        self.lock = threading.Lock()
        self.waiting: deque[R] = deque()
        self.running: list[R] = []
        self.spare: list[R] = []
        self.all: list[R] = []
        self.failures: dict[int, EmulatorError] = {}
        self.quiet = 0  # instructions since one began, changed memory, ended or did something else than wait
        self.grace: dict[int, int] = {}
        self.slices: dict[int, int] = {}  # of those that were found to repeat themselves
        self.live = 0
        self.fresh_turn = True  # whether a new workgroup comes before one that waits
        self.aborted = False

    def run(self, threads: int) -> None:
        """Runs all, then releases them. Raises the error of the workgroup that started first, or NoProgress."""
        try:
            self._run_all(threads)
        finally:
            for resident in self.all:
                resident.release()
        if self.failures:
            raise self.failures[min(self.failures)]

    def _run_all(self, threads: int) -> None:
        if threads <= 1:
            self._work()
        else:
            with ThreadPoolExecutor(threads) as pool:
                jobs = [pool.submit(copy_context().run, self._work) for _ in range(threads)]
                try:
                    for job in jobs:
                        job.result()
                finally:
                    self.aborted = True

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            resident, fresh = taken
            try:
                if fresh is not None:
                    resident.begin(*fresh)
                self._run(resident)
            except EmulatorError as error:
                with self.lock:
                    self.failures[resident.number] = error
                    self.live -= 1
            finally:
                with self.lock:
                    self.running.remove(resident)

    def _take(self) -> tuple[R, Fresh | None] | None:
        """Room for a new workgroup and which it is, or one that waits, in turn; None when there is neither."""
        with self.lock:
            if self.aborted:
                return None
            self.fresh_turn = not self.fresh_turn or not self.waiting
            taken = self._start() if self.fresh_turn else None
            if taken is None and (resident := self._resume()) is not None:
                taken = resident, None
            if taken is not None:
                self.running.append(taken[0])
            return taken

    def _start(self) -> tuple[R, Fresh | None] | None:
        following = next(self.ids, None) if self.live < self.limit and not self.failures else None
        if following is None:
            return None
        self.live += 1
        self.quiet = 0
        if not self.spare:
            self.spare.append(self.make())
            self.all.append(self.spare[-1])
        return self.spare.pop(), following

    def _resume(self) -> R | None:
        while self.waiting:
            resident = self.waiting.popleft()
            if not self.failures or self._may_go_on(resident):
                return resident
            self.live -= 1
        return None

    def _may_go_on(self, resident: R) -> bool:
        """After a failure: whether an earlier workgroup still gets a turn, since its error would come first."""
        left = self.grace.get(resident.number, self.grace_turns)
        self.grace[resident.number] = left - 1
        return resident.number < min(self.failures) and left > 0

    def _run(self, resident: R) -> None:
        budget, ran = self.slices.pop(resident.number, self.first_slice), 0
        while not self.aborted:
            before = resident.instructions, resident.polls, resident.changes
            resident.advance(budget)
            ran += resident.instructions - before[0]
            if resident.done:
                break
            waits = self._waits(resident, before, budget)
            if waits or ran >= TURN:
                with self.lock:
                    self.waiting.append(resident)
                return
            budget = min(2 * budget, self.longest)
        with self.lock:
            self.quiet = 0
            self.live -= 1
            self.finished(resident)
            self.spare.append(resident)

    def _waits(self, resident: R, before: tuple[int, int, int], budget: int) -> bool:
        """Whether a slice looks like waiting. Raises NoProgress when nobody has done anything else for long."""
        ran, polled = resident.instructions - before[0], resident.polls - before[1]
        repeats = budget == self.longest and resident.repeats()
        waits = repeats or polled * POLL_SHARE >= ran
        with self.lock:
            if not waits or resident.changes != before[2]:
                self.quiet = 0
            else:
                patience = max(self.patience, ROUNDS * self.live * self.first_slice)
                self.quiet += patience // (64 + 2 * self.live) if repeats else ran
                if repeats:
                    self.slices[resident.number] = budget
                if self.quiet >= patience and not self.failures:
                    self.aborted = True
                    raise self._no_progress()
        return waits

    def _no_progress(self) -> NoProgress:
        begun = [r for r in (*self.running, *self.waiting) if not r.done]
        standing: Sequence[R] = sorted(begun, key=lambda r: r.number)
        lines = "; ".join(one.where() for one in standing[:4])
        more = f"; and {len(standing) - 4} more" if len(standing) > 4 else ""
        return NoProgress(
            f"every workgroup waits and memory no longer changes: {lines}{more}",
            expected="somebody who stores what the others wait for",
            advice="look for a flag that nobody sets, or a grid larger than the workgroups that fit the chip at once",
        )
