"""Observers of a run on the numpy engine."""

import numpy as np
from kernel_builds import compile_c

from emu.dispatch import Device, RunOptions
from emu.observers import BankConflicts, Observer

SOURCE = """
SHARED(u32, tile, 8192);
KERNEL stride(GLOBAL u32 *out, u32 step) {
  tile[ITEM * step] = ITEM; BARRIER(); out[ITEM] = tile[(ITEM ^ 1) * step]; }
"""


class Log(Observer):
    def __init__(self):
        self.lines = []

    def before(self, one, decoded):
        self.lines.append(("before", one.index, decoded.pc, one.wave.pc))

    def after(self, one, decoded):
        self.lines.append(("after", one.index, decoded.pc, list(one.wave.last_stores)))


def run(step, *observers):
    out = np.zeros(128, np.uint32)
    options = RunOptions(engine="numpy", observers=observers)
    report = Device().load(compile_c(SOURCE))["stride"][1, 128](out, np.uint32(step), options=options)
    assert np.array_equal(out, np.arange(128) ^ 1)
    return report


def test_observers_see_every_instruction_before_and_after():
    log = Log()
    report = run(1, log)
    assert len(log.lines) == 2 * report.instructions
    assert all(
        b[:3] == ("before", a[1], a[2]) and b[3] == b[2] for b, a in zip(log.lines[::2], log.lines[1::2], strict=True)
    )
    stores = [line[3] for line in log.lines if line[0] == "after" and line[3]]
    assert [len(s) for s in stores] == [64, 64]
    assert {nbytes for s in stores for _, _, nbytes in s} == {4}
    assert sum(report.mnemonics.values()) == report.instructions


def test_bank_conflicts_are_counted_where_they_happen():
    none, many = BankConflicts(), BankConflicts()
    run(1, none)
    run(64, many)
    assert none.extra_cycles == 0
    assert none.table() == []
    assert many.extra_cycles > 0
    worst = many.table()[0][1]
    assert worst.mnemonic.startswith("ds_")
    assert worst.runs == 2
    assert worst.worst
