"""The loop around translated blocks, in LLVM text: waves in turn, barriers, and the ways back to Python.

Its place in the schedule lies in the context (see emu.host_layout), so a call that comes back for a translation or for
its budget goes on exactly where it stopped, and the order in which waves run never depends on what was translated when.
"""

from __future__ import annotations

from emu.host_layout import (
    BARRIER,
    COUNT,
    END,
    KIND_SHIFT,
    LEFT,
    ORDER,
    PC,
    PLACE,
    RANDOM,
    RUN,
    RUNNING,
    SGPRS,
    SPENT,
    STATUS,
    TABLES,
    TURN,
    WAITING,
    WAVE,
    WAVE_BYTES,
)
from emu.schedule import DRAW_SHIFT, PLACE_BITS, RANDOM_STEPS
from gfx950.isa.operand_codes import EXEC


def _context(*words: tuple[str, int]) -> str:
    return "\n".join(f"  %{name}.at = getelementptr i64, ptr %context, i64 {word}" for name, word in words)


def _random_turn() -> str:
    """The next turn's length, 1 .. %quantum, and its wave, as emu.schedule.Turns draws them."""
    lines, last = [], "%random"
    for i, (direction, amount) in enumerate(RANDOM_STEPS):
        lines += [f"  %shifted.{i} = {direction} i64 {last}, {amount}", f"  %mixed.{i} = xor i64 {last}, %shifted.{i}"]
        last = f"%mixed.{i}"
    lines += [f"  store i64 {last}, ptr %random.at", f"  %drawn = urem i64 {last}, %quantum"]
    return "\n".join(
        [
            *lines,
            "  %turn.next = add i64 %drawn, 1",
            "  store i64 %turn.next, ptr %turn.at",
            "  %others = sub i64 %count, %place.next",
            f"  %high = lshr i64 {last}, {DRAW_SHIFT}",
            "  %ahead = urem i64 %high, %others",
            "  %there = add i64 %place.next, %ahead",
            f"  %here.bits = mul i64 %place.next, {PLACE_BITS}",
            f"  %there.bits = mul i64 %there, {PLACE_BITS}",
            "  %wave.here = lshr i64 %order, %here.bits",
            "  %wave.there = lshr i64 %order, %there.bits",
            "  %unlike.all = xor i64 %wave.here, %wave.there",
            f"  %unlike = and i64 %unlike.all, {(1 << PLACE_BITS) - 1}",
            "  %change.here = shl i64 %unlike, %here.bits",
            "  %change.there = shl i64 %unlike, %there.bits",
            "  %change = or i64 %change.here, %change.there",
            "  %order.next = xor i64 %order, %change",
            "  store i64 %order.next, ptr %order.at",
        ]
    )


_places = _context(
    ("turn", TURN),
    ("random", RANDOM),
    ("place", PLACE),
    ("order", ORDER),
    ("spent", SPENT),
    ("left", LEFT),
    ("running", RUNNING),
    ("waiting", WAITING),
    ("wave", WAVE),
)
DRIVER = f"""
; Returns 0 when all waves have ended, -1 when the budget (context word LEFT) is used up, else 1 + the index of a wave
; that needs Python: its status says why (fault, stopped, or run with no translation of its address).
; A wave's tables: one function a dword of code for EXEC all ones, one for any EXEC, the instructions of each block.
define i64 @run_waves(ptr %waves, i64 %count, i64 %base, i64 %bytes, ptr %context,
                      ptr %memory, ptr %natives, ptr %scratch, i64 %quantum) {{
entry:
{_places}
  br label %wave
wave:
  %place = load i64, ptr %place.at
  %order = load i64, ptr %order.at
  %place.bits = mul i64 %place, {PLACE_BITS}
  %order.rest = lshr i64 %order, %place.bits
  %w = and i64 %order.rest, {(1 << PLACE_BITS) - 1}
  store i64 %w, ptr %wave.at
  %offset = mul i64 %w, {WAVE_BYTES}
  %self = getelementptr i8, ptr %waves, i64 %offset
  %status.at = getelementptr i8, ptr %self, i64 {STATUS}
  %pc.at = getelementptr i8, ptr %self, i64 {PC}
  %exec.at = getelementptr i8, ptr %self, i64 {SGPRS + 4 * EXEC}
  %tables.at = getelementptr i8, ptr %self, i64 {TABLES}
  %count.at = getelementptr i8, ptr %self, i64 {COUNT}
  %status = load i64, ptr %status.at
  %turn = load i64, ptr %turn.at
  %is.run = icmp eq i64 %status, {RUN}
  br i1 %is.run, label %step, label %wave.done
step:
  %left = load i64, ptr %left.at
  %broke = icmp sle i64 %left, 0
  br i1 %broke, label %limit, label %where
where:
  %pc = load i64, ptr %pc.at
  %rel = sub i64 %pc, %base
  %inside = icmp ult i64 %rel, %bytes
  %low = and i64 %rel, 3
  %aligned = icmp eq i64 %low, 0
  %good = and i1 %inside, %aligned
  br i1 %good, label %tables.look, label %python
tables.look:
  %tables = load ptr, ptr %tables.at
  %no.tables = icmp eq ptr %tables, null
  br i1 %no.tables, label %python, label %lookup
lookup:
  %exec = load i64, ptr %exec.at
  %is.full = icmp eq i64 %exec, -1
  %half = select i1 %is.full, i64 0, i64 %bytes
  %slot.byte = add i64 %rel, %half
  %entry.offset = shl i64 %slot.byte, 1
  %slot = getelementptr i8, ptr %tables, i64 %entry.offset
  %function = load ptr, ptr %slot
  %missing = icmp eq ptr %function, null
  br i1 %missing, label %python, label %fits
fits:
  %dword = lshr i64 %rel, 2
  %lengths.offset = shl i64 %bytes, 2
  %lengths = getelementptr i8, ptr %tables, i64 %lengths.offset
  %length.at = getelementptr i8, ptr %lengths, i64 %dword
  %length = load i8, ptr %length.at
  %long = zext i8 %length to i64
  %spent = load i64, ptr %spent.at
  %would = add i64 %spent, %long
  %too.long = icmp ugt i64 %would, %turn
  %begun = icmp ne i64 %spent, 0
  %over = and i1 %too.long, %begun
  br i1 %over, label %wave.done, label %call
call:
  %before = load i64, ptr %count.at
  %result = call i64 %function(ptr %self, ptr %context, ptr %memory, ptr %natives, ptr %scratch)
  %after = load i64, ptr %count.at
  %ran = sub i64 %after, %before
  %spent.now = add i64 %spent, %ran
  %left.now = sub i64 %left, %ran
  store i64 %spent.now, ptr %spent.at
  store i64 %left.now, ptr %left.at
  %new.pc = and i64 %result, {(1 << KIND_SHIFT) - 1}
  %kind = lshr i64 %result, {KIND_SHIFT}
  store i64 %new.pc, ptr %pc.at
  store i64 %kind, ptr %status.at
  %fine = icmp ule i64 %kind, {END}
  br i1 %fine, label %again, label %python
again:
  %goes = icmp eq i64 %kind, {RUN}
  %more = icmp ult i64 %spent.now, %turn
  %stay = and i1 %goes, %more
  br i1 %stay, label %step, label %wave.done
wave.done:
  %last = load i64, ptr %status.at
  %last.run = icmp eq i64 %last, {RUN}
  %last.wait = icmp eq i64 %last, {BARRIER}
  %one.run = zext i1 %last.run to i64
  %one.wait = zext i1 %last.wait to i64
  %running = load i64, ptr %running.at
  %waiting = load i64, ptr %waiting.at
  %running.next = add i64 %running, %one.run
  %waiting.next = add i64 %waiting, %one.wait
  store i64 %running.next, ptr %running.at
  store i64 %waiting.next, ptr %waiting.at
  store i64 0, ptr %spent.at
  %following = add i64 %place, 1
  %more.waves = icmp ult i64 %following, %count
  %place.next = select i1 %more.waves, i64 %following, i64 0
  store i64 %place.next, ptr %place.at
  %random = load i64, ptr %random.at
  %is.random = icmp ne i64 %random, 0
  br i1 %is.random, label %draw, label %next.wave
draw:
{_random_turn()}
  br label %next.wave
next.wave:
  br i1 %more.waves, label %wave, label %round.end
round.end:
  store i64 0, ptr %running.at
  store i64 0, ptr %waiting.at
  %some.run = icmp ne i64 %running.next, 0
  br i1 %some.run, label %wave, label %all.stand
all.stand:
  %some.wait = icmp ne i64 %waiting.next, 0
  br i1 %some.wait, label %release, label %finished
release:
  %r = phi i64 [ 0, %all.stand ], [ %r.next, %release.next ]
  %r.offset = mul i64 %r, {WAVE_BYTES}
  %r.self = getelementptr i8, ptr %waves, i64 %r.offset
  %r.status.at = getelementptr i8, ptr %r.self, i64 {STATUS}
  %r.status = load i64, ptr %r.status.at
  %r.waits = icmp eq i64 %r.status, {BARRIER}
  br i1 %r.waits, label %free, label %release.next
free:
  store i64 {RUN}, ptr %r.status.at
  br label %release.next
release.next:
  %r.next = add i64 %r, 1
  %r.more = icmp ult i64 %r.next, %count
  br i1 %r.more, label %release, label %wave
python:
  %index = add i64 %w, 1
  ret i64 %index
limit:
  ret i64 -1
finished:
  ret i64 0
}}
"""
