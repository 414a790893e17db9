"""Who wrote what a load found: LDS, global memory, and what is wrong in a wave that another wave's results show."""

from __future__ import annotations

import numpy as np
import pytest
from diff_kernels import instruction
from hip_stand_in import Fault, stand_in
from kernel_builds import compile_c

from emu.dispatch import RunOptions
from emu.geometry import Geometry
from emu.run_arguments import RunArgument
from golden import memory_writers
from golden.diff import FileSubject, Plan, diff
from golden.diff_report import inside_lines
from golden.first_wrong import find_first_wrong
from golden.memory_writers import bytes_of_access

LDS = compile_c(
    """SHARED(u32, tile, 256);
    KERNEL k(GLOBAL u32 *out, GLOBAL const u32 *in) {
      u32 x = in[GROUP * ITEMS + ITEM] ^ 0x55aa;
      tile[ITEM] = x; BARRIER(); out[GROUP * ITEMS + ITEM] = tile[255 - ITEM]; }"""
)
GLOBAL = compile_c(
    """KERNEL k(GLOBAL u32 *out, GLOBAL u32 *passed) {
      u32 i = GROUP * ITEMS + ITEM;
      if (GROUP == 0) { passed[ITEM] = (ITEM + 5) ^ 0x55aa; out[i] = 1; }
      else out[i] = passed[255 - ITEM] + 1; }"""
)


def subject(code):
    data = np.arange(512, dtype=np.uint32)
    arguments = [RunArgument("o", np.zeros(512, np.uint32), output="o.npy"), RunArgument("i", data, output="i.npy")]
    return FileSubject(code, None, Geometry.of_blocks((2,), (256,)), arguments)


def found(code, fault):
    own = subject(code)
    with stand_in(faults=[fault]):
        compared = diff(own, Plan())
        compared.first_wrong = find_first_wrong(own, Plan(), compared)
    return compared


def test_through_lds_to_another_wave():
    offset, register = instruction("v_xor_b32", 0, LDS)
    compared = found(LDS, Fault("k", offset, register, bit=9, lane=3, wave=0, workgroup=(1, 0, 0)))
    assert compared.arrays[0].difference.index == (256 + 252,)
    assert compared.arrays[0].writer.wave == 3
    first = compared.first_wrong
    assert (first.finding.kind, first.finding.point.offset) == ("instruction", offset)
    assert (first.finding.workgroup, first.finding.wave) == ((1, 0, 0), 0)
    (load,) = first.through
    assert (load.wave, load.in_lds) == (3, True)
    assert "then workgroup (1, 0, 0) wave 3 loads it by `ds_read_b32 " in "\n".join(inside_lines(compared))


def test_writers_are_looked_for_in_the_order_of_waves_that_was_asked_for(monkeypatch):
    offset, register = instruction("v_xor_b32", 0, LDS)
    own, plan, made = subject(LDS), Plan(options=RunOptions(order="reversed", quantum=2)), []
    run = memory_writers.run
    monkeypatch.setattr(memory_writers, "run", lambda job, point, how: made.append(how) or run(job, point, how))
    with stand_in(faults=[Fault("k", offset, register, bit=9, lane=3, wave=0, workgroup=(1, 0, 0))]):
        first = find_first_wrong(own, plan, diff(own, plan))
    assert (first.finding.kind, first.finding.point.offset) == ("instruction", offset)
    assert [(how.engine, how.order, how.quantum) for how in made] == [("numpy", "reversed", 2)]


def test_through_global_memory_to_another_workgroup():
    offset, register = instruction("v_xor_b32", 0, GLOBAL)
    fault = Fault("k", offset, register, bit=9, lane=3, wave=0, workgroup=(0, 0, 0))
    compared = found(GLOBAL, fault)
    assert compared.arrays[0].difference.index == (256 + 252,)
    first = compared.first_wrong
    assert (first.finding.kind, first.finding.point.offset) == ("instruction", offset)
    assert (first.finding.workgroup, first.finding.wave) == ((0, 0, 0), 0)


@pytest.mark.parametrize(("code", "mnemonic"), [(LDS, "ds_read_b32"), (GLOBAL, "global_load_dword")])
def test_a_load_that_is_wrong_by_itself_stays_the_first(code, mnemonic):
    """What it reads was stored right."""
    offset, register = instruction(mnemonic, 0, code)
    compared = found(code, Fault("k", offset, register, bit=9, lane=3, wave=3, workgroup=(1, 0, 0)))
    first = compared.first_wrong
    assert first.finding.kind in ("load", "instruction")
    assert (first.finding.point.offset, first.finding.wave) == (offset, 3)
    assert first.through == ()


@pytest.mark.parametrize(
    ("mnemonic", "nbytes"),
    [
        ("ds_write_b64", 8), ("ds_read_u8", 1), ("ds_write_b16", 2), ("ds_read2_b32", 4), ("ds_read_b128", 16),
        ("global_load_dwordx4", 16), ("buffer_load_dword", 4), ("global_load_ushort", 2), ("buffer_load_ubyte", 1),
        ("s_load_dwordx2", 8), ("ds_add_u32", 4), ("ds_add_f32", 4),
    ],
)  # fmt: skip
def test_bytes_of_an_access(mnemonic, nbytes):
    assert bytes_of_access(mnemonic) == nbytes
