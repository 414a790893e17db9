"""The first instruction that goes another way: found again where a bit was flipped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from hip_stand_in import Fault, stand_in
from instrumented_kernels import assembly_kernel, jobs, moments
from kernel_builds import HEADER
from llvm_tools import compiled, linked

from emu.bisect import find_first_difference
from emu.bisect_compare import Base, differences
from emu.bisect_finding import Finding
from emu.bisect_trace import Trace, works_alone
from emu.code_object import load
from emu.dispatch import RunOptions
from emu.errors import LaunchError, NoProgress
from emu.geometry import Geometry
from emu.instrument import Point
from emu.instrument_registers import usage
from emu.instrument_run import Job, run
from emu.observers import Observer
from gfx950.isa.text import instruction_text

ACCUMULATORS = 256


@dataclass
class Flip(Observer):
    """Flips a bit of a register after an instruction of a wave, also where a variant runs it in another place."""

    job: Job
    point: Point
    register: str
    lane: int = 0
    bit: int = 0
    seen: Counter = field(default_factory=Counter)

    def __post_init__(self):
        code = load(self.job.code)
        self.kernel = code.kernel(self.job.kernel)
        run_of = code.code_of(self.kernel)
        self.end = run_of.address + len(run_of.data)
        at = self.kernel.entry + self.point.offset - run_of.address
        self.raw = run_of.data[at : at + 16]

    def _is_it(self, one, decoded):
        place = (decoded.pc & 0xFFFFFFFF) - self.kernel.entry
        copied = place + self.kernel.entry >= self.end and self.raw.startswith(decoded.raw)
        mine = (tuple(one.workgroup), one.index) == (self.point.workgroup, self.point.wave)
        return mine and (place == self.point.offset or copied) and self.raw.startswith(decoded.raw)

    def before(self, one, decoded):
        if not one.wave.count and (tuple(one.workgroup), one.index) == (self.point.workgroup, self.point.wave):
            self.seen.clear()

    def after(self, one, decoded):
        if not self._is_it(one, decoded):
            return
        self.seen[self.point] += 1
        if self.seen[self.point] != self.point.occurrence:
            return
        wave, bit = one.wave, np.uint32(1 << self.bit)
        if self.register == "scc":
            wave.scc_bit = not wave.scc_bit
        elif self.register == "vcc":
            wave.sgprs[106] ^= bit
        elif self.register == "store":
            address = next(a for a, lane, _ in wave.last_stores if lane == self.lane)
            wave.address_space.view(address, 1)[0] ^= np.uint8(1)
        elif self.register[0] == "s":
            wave.sgprs[int(self.register[1:])] ^= bit
        else:
            wave.vgprs[int(self.register[1:]) + ACCUMULATORS * (self.register[0] == "a"), self.lane] ^= bit


def point_of(job: Job, text: str, nth: int, workgroup=(1, 0, 0), wave=1, last: bool = False) -> Point:
    """Where an instruction whose text begins so stands: its first place (or last), at the nth visit."""
    code = load(job.code)
    kernel = code.kernel(job.kernel)
    run_of = code.code_of(kernel)
    for address in sorted(usage(job.code, job.kernel).starts, reverse=last):
        if address >= kernel.entry and instruction_text(run_of.data, run_of.address, address).startswith(text):
            return Point(address - kernel.entry, nth, workgroup, wave)
    raise AssertionError(f"no {text}")


def found(job: Job, point: Point, register: str, lane: int = 0, bit: int = 0, **how):
    suspect = RunOptions(engine="numpy", observers=(Flip(job, point, register, lane, bit),))
    how = {"reference": RunOptions(engine="numpy"), **how}
    return find_first_difference(job, point.workgroup, point.wave, suspect, **how)


FLIPS = [
    pytest.param("loops", "v_mul_lo_u32 v1", 4, "v1", 5, 17, marks=pytest.mark.slow),
    ("places", "v_add_u32_sdwa", 3, "v3", 63, 31),
    ("places", "v_cmp_lt_u32", 3, "vcc", 0, 3),
    ("places", "s_cselect_b32 s14", 3, "s14", 0, 9),
    ("matrices", "v_mfma_f32_32x32x2_f32 a[0:15], v5", 1, "a7", 40, 2),
    ("matrices", "v_mfma_scale", 1, "a19", 3, 30),
    ("matrices", "v_cvt_f32_u32", 1, "v4", 0, 0),
]


@pytest.mark.parametrize(("name", "text", "nth", "register", "lane", "bit"), FLIPS)
def test_the_flipped_instruction_is_found(name, text, nth, register, lane, bit):
    job = jobs()[name]
    point = point_of(job, text, nth)
    finding = found(job, point, register, lane, bit)
    assert (finding.kind, finding.point) == ("instruction", point)
    assert finding.instruction.startswith(text)
    one = finding.differences[0]
    assert one.register == register
    assert one.reference[0] ^ one.suspect[0] == 1 << bit
    assert one.lanes == (() if register[0] == "s" or register == "vcc" else (lane,))
    assert finding.runs <= 2 * (2 + finding.total.bit_length())
    assert finding.instruction in str(finding)
    assert f"offset {point.offset:#x}, occurrence {nth}" in str(finding)


def test_a_load_of_what_was_wrong_before_is_called_a_load():
    job = jobs()["shared"]
    point = point_of(job, "ds_read", 2)
    write = point_of(job, "ds_write", 2, wave=0)
    fault = Fault("shared", write.offset, "store", 3, 8, 2, 0, (1, 0, 0))
    with stand_in(faults=[fault]):
        finding = find_first_difference(job, (1, 0, 0), 1, RunOptions(engine="device"))
        earlier = find_first_difference(
            job, (1, 0, 0), 0, RunOptions(engine="device"), until=(write.offset, write.occurrence)
        )
    assert (finding.kind, finding.point, finding.in_lds) == ("load", point, True)
    assert finding.addresses[9] == 4 * ((64 + 9) ^ 65)
    assert "it loads: look at who wrote byte 32 of LDS (lane 9)" in str(finding)
    assert (earlier.kind, earlier.point, earlier.in_lds) == ("store", write, True)
    assert f"registers agree before `{earlier.instruction}`" in str(earlier)
    assert "but what it stored in LDS differs: it went wrong, or another store hit the same bytes" in str(earlier)


def test_a_store_to_lds_of_a_wrong_register_is_not_called_wrong():
    job = jobs()["shared"]
    point, write = point_of(job, "v_add_u32", 2, wave=0), point_of(job, "ds_write", 2, wave=0)
    with stand_in(faults=[Fault("shared", point.offset, "v3", 3, 8, 2, 0, (1, 0, 0))]):
        device = RunOptions(engine="device")
        finding = find_first_difference(job, (1, 0, 0), 0, device, until=(write.offset, write.occurrence))
        before = find_first_difference(job, (1, 0, 0), 0, device, until=(write.offset, 1))
    assert (finding.kind, finding.point) == ("instruction", point)
    assert before.kind == "memory"


def test_a_load_from_lds_that_is_wrong_itself():
    job = jobs()["shared"]
    point = point_of(job, "ds_read", 2)
    finding = found(job, point, "v" + str(_results(job, point)[0]), lane=9)
    assert (finding.kind, finding.point, finding.in_lds) == ("instruction", point, True)
    assert "what it reads in LDS is the same in both before it" in str(finding)


def _results(job: Job, point: Point) -> list[int]:
    """The VGPRs that an instruction changes, by two neighbouring moments."""
    rows, _ = moments(job, [(point.workgroup, point.wave)])
    at = next(n for n, (p, _) in enumerate(rows) if p == point)
    return [int(name[1:]) for name in rows[at + 1][1].differences(rows[at][1]) if name[0] == "v" and name[1:].isdigit()]


def reading_job() -> Job:
    source = "KERNEL k(GLOBAL u32 *out, GLOBAL const u32 *in) { u32 i = GROUP * 128 + ITEM; out[i] = in[i ^ 3] * 3; }"
    code = linked(compiled(HEADER + source))
    values = np.arange(256, dtype=np.uint32) * 7 + 5
    return Job(code, "k", Geometry.of_blocks(2, 128), (np.zeros(256, np.uint32), values))


def test_a_load_names_the_addresses():
    job = reading_job()
    point = point_of(job, "global_load_dword", 1)
    finding = found(job, point, "v" + str(_results(job, point)[0]), lane=9)
    place = run(job, Point(0)).places[1]
    assert finding.kind == "load"
    assert finding.addresses[9] == place.address + 4 * (128 + 64 + (9 ^ 3))
    assert "it loads: look at who wrote byte 808 of argument 1 (lane 9)" in str(finding)
    assert (finding.origin(9), finding.origin(64)) == ((1, 808), None)


def test_a_loop_that_ends_too_early():
    job = jobs()["places"]
    point = point_of(job, "s_cmp_lg_u32 s8, s6", 2)
    finding = found(job, point, "scc")
    assert (finding.kind, finding.point) == ("instruction", point)
    assert finding.differences[0].register == "scc"


@dataclass
class WrongWay(Flip):
    """Sends a branch the other way, with SCC as it was."""

    def before(self, one, decoded):
        super().before(one, decoded)
        if self._is_it(one, decoded) and self.seen[self.point] == self.point.occurrence - 1:
            one.wave.scc_bit = not one.wave.scc_bit


def test_a_branch_that_goes_another_way():
    job = jobs()["places"]
    point = point_of(job, "s_cbranch_scc1", 2, last=True)
    suspect = RunOptions(engine="numpy", observers=(WrongWay(job, point, "scc"),))
    finding = find_first_difference(job, point.workgroup, point.wave, suspect)
    assert (finding.kind, finding.point) == ("branch", point)
    assert "the branch itself went another way" in str(finding)


@pytest.mark.parametrize("until", [None, 0, 1])
def test_a_store_that_goes_wrong_by_itself(until):
    job = reading_job()
    point = point_of(job, "global_store_dword", 1)
    finding = found(job, point, "store", lane=5, until=None if until is None else (point.offset, until))
    assert (finding.kind, finding.point, finding.arrays, finding.in_lds) == ("store", point, (0,), False)
    assert finding.inputs
    assert "but what it stored in argument 0 differs: it went wrong, or another store" in str(finding)


def test_another_waves_instruction():
    job = reading_job()
    point = point_of(job, "v_lshl_add_u32 v4", 1)
    register = "v" + str(_results(job, point)[0])
    suspect = RunOptions(engine="numpy", observers=(Flip(job, point, register, 5),))
    store = point_of(job, "global_store_dword", 1).offset
    for until in (None, (store, 0)):
        finding = find_first_difference(job, (0, 0, 0), 0, suspect, until=until)
        assert (finding.kind, finding.point) == ("instruction", point)
        assert (finding.workgroup, finding.wave) == ((1, 0, 0), 1)
    assert find_first_difference(job, (0, 0, 0), 0, suspect, until=(store, 1)).kind == "memory"


def test_a_wrong_address_of_another_wave():
    """It stores where this wave's result belongs, which is then no fault of this wave's own store."""
    job = reading_job()
    point = point_of(job, "v_lshl_add_u64 v[0:1]", 1)
    store = point_of(job, "global_store_dword", 1).offset
    suspect = RunOptions(engine="numpy", observers=(Flip(job, point, "v0", 5, 8),))
    finding = find_first_difference(job, (1, 0, 0), 0, suspect, until=(store, 0))
    assert (finding.kind, finding.point, finding.workgroup, finding.wave) == ("instruction", point, (1, 0, 0), 1)


def test_a_store_in_a_loop_whose_registers_are_right_again_at_its_end():
    source = """KERNEL k(GLOBAL u32 *out, GLOBAL const u32 *in, u32 n) {
      for (u32 r = 0; r < n; r++) out[r * 128 + ITEM] = (in[ITEM] + r) * (r ^ 29);
    }"""
    values = np.arange(128, dtype=np.uint32) * 7 + 5
    job = Job(
        linked(compiled(HEADER + source)), "k", Geometry.of_blocks(1, 128), (np.zeros(20 * 128, np.uint32), values, 20)
    )
    point = point_of(job, "v_mul_lo_u32", 5, (0, 0, 0))
    register = "v" + str(_results(job, point)[0])
    store = point_of(job, "global_store_dword", 1).offset
    finding = found(job, point, register, 9, 4, until=(store, 0))
    assert (finding.kind, finding.point) == ("instruction", point)


@dataclass
class WildStore(Flip):
    """Changes a byte far behind what is stored."""

    def after(self, one, decoded):
        if self._is_it(one, decoded):
            one.wave.address_space.view(one.wave.last_stores[0][0] + 2048, 1)[0] ^= np.uint8(4)


def test_memory_that_nobody_stores_in_the_emulator():
    job = jobs()["places"]
    point = point_of(job, "global_store_dword", 1)
    finding = find_first_difference(
        job, point.workgroup, point.wave, RunOptions(engine="numpy", observers=(WildStore(job, point, "store"),))
    )
    assert (finding.kind, finding.arrays) == ("memory", (0,))
    assert "a store itself went wrong, or another wave's" in str(finding)


def test_no_difference_at_all():
    job = reading_job()
    finding = find_first_difference(job, (1, 0, 0), 1, RunOptions(engine="numpy"))
    assert finding.kind == "none"
    assert "no difference found in" in str(finding)


def test_the_engines_agree_and_registers_nobody_wrote_do_not_count():
    job = reading_job()
    last = Trace((0, 0, 0), 0)
    run(job, None, RunOptions(engine="numpy", observers=(last,)))
    rows, _ = moments(job, [((0, 0, 0), 0)])
    mine = rows[3][1]
    theirs = run(job, Point(rows[3][0].offset), RunOptions(engine="numpy")).registers
    unwritten = ~last.written(3).vgprs[: len(mine.vgprs)]
    assert unwritten.any()
    theirs.vgprs.setflags(write=True)
    theirs.vgprs[unwritten] = 0xDEADBEEF
    assert differences(mine, theirs, last.written(3), []) == []
    theirs.vgprs[0, 0] ^= 1
    assert [d.register for d in differences(mine, theirs, last.written(3), [])] == ["v0"]


def test_addresses_of_the_same_memory_are_the_same():
    job = reading_job()
    rows, _ = moments(job, [((0, 0, 0), 0)])
    point, mine = rows[-1]
    trace = Trace((0, 0, 0), 0)
    run(job, None, RunOptions(engine="numpy", observers=(trace,)))
    written = trace.written(len(rows) - 1)
    place = run(job, Point(0)).places[0]
    theirs = run(job, point, RunOptions(engine="numpy")).registers
    moved = Base(place.address, 0x7F12_3456_7000, place.nbytes)
    addresses = [n for n in range(len(mine.vgprs) - 1) if (mine.vgprs[n + 1] == place.address >> 32).all()]
    sgprs = [n for n in range(len(mine.sgprs) - 1) if mine.sgprs[n + 1] == place.address >> 32]
    assert addresses or sgprs
    for n in addresses:
        whole = mine.vgprs[n].astype(np.uint64) + np.uint64(0x7F12_3456_7000)
        theirs.vgprs[n], theirs.vgprs[n + 1] = whole & np.uint64(0xFFFFFFFF), whole >> np.uint64(32)
    for n in sgprs:
        theirs.sgprs[n], theirs.sgprs[n + 1] = int(mine.sgprs[n]) + 0x3456_7000, 0x7F12
    assert differences(mine, theirs, written, [moved]) == []
    assert differences(mine, theirs, written, [])


def test_until_an_instruction():
    job = jobs()["loops"]
    point = point_of(job, "v_mul_lo_u32 v1", 4)
    store = point_of(job, "global_store_dword", 1)
    assert found(job, point, "v1", 5, 17, until=(store.offset, 0)).point == point
    with pytest.raises(LaunchError, match=r"the wave does not run the instruction at offset .* 7 times"):
        found(job, point, "v1", until=(store.offset, 7))


def test_what_cannot_be():
    job = reading_job()
    with pytest.raises(LaunchError, match="the reference runs on a device"):
        find_first_difference(job, (0, 0, 0), 0, RunOptions(), RunOptions(engine="device"))
    with pytest.raises(LaunchError, match=r"workgroup \(0, 0, 0\) has no wave 7"):
        find_first_difference(job, (0, 0, 0), 7, RunOptions())
    with pytest.raises(LaunchError, match="does not run the instruction at offset 0x0 -3 times"):
        find_first_difference(job, (0, 0, 0), 0, RunOptions(), until=(0, -3))


def test_the_step_limit_holds_for_the_run_that_is_traced_too():
    with pytest.raises(NoProgress, match="the step limit of 3 wave instructions is used up"):
        find_first_difference(reading_job(), (0, 0, 0), 0, RunOptions(), RunOptions(step_limit=3))


def test_registers_that_nobody_wrote_are_named():
    body = """
  s_load_dwordx2 s[4:5], s[0:1], 0
  v_lshlrev_b32_e32 v2, 2, v0
  v_add_u32_e32 v3, v9, v0
  s_waitcnt lgkmcnt(0)
  global_store_dword v2, v3, s[4:5]
  s_endpgm
"""
    job = Job(assembly_kernel("k", body), "k", Geometry.of_blocks(1, 64), (np.zeros(64, np.uint32), 1))
    point = point_of(job, "v_add_u32", 1, (0, 0, 0), 0)
    finding = found(job, point, "v3", 11)
    assert finding.undefined == ("v9",)
    assert "it names registers that nothing has written: v9" in str(finding)


@pytest.mark.parametrize(("name", "text", "nth", "register", "lane", "bit"), [FLIPS[0], FLIPS[4]])
def test_a_wrong_chip_behind_hip(name, text, nth, register, lane, bit):
    job = jobs()[name]
    point = point_of(job, text, nth)
    fault = Fault(name, point.offset, register, bit, lane, nth, point.wave, point.workgroup)
    with stand_in(faults=[fault]):
        finding = find_first_difference(job, point.workgroup, point.wave, RunOptions(engine="device"))
    assert (finding.kind, finding.point, finding.differences[0].register) == ("instruction", point, register)


@pytest.mark.parametrize("launch", [1, 2])
def test_a_chip_that_is_wrong_now_and_then_accuses_no_instruction(launch):
    """Whichever launch of the search the bit flips in, the instruction where the halving ends has not done it."""
    name, text, nth, register, lane, bit = FLIPS[-1]
    job = jobs()[name]
    point = point_of(job, text, nth)
    once = Fault(name, point.offset, register, bit, lane, nth, point.wave, point.workgroup, launch)
    always = Fault(name, point.offset, register, bit, lane, nth, point.wave, point.workgroup)
    with stand_in(faults=[once]) as chip:
        finding = find_first_difference(job, point.workgroup, point.wave, RunOptions(engine="device"))
        assert len(chip.launches) < 40
    assert finding.kind == "unsteady"
    assert "no instruction can be named: the runs do not part at the same place each time" in str(finding)
    with stand_in(faults=[always]):
        assert find_first_difference(job, point.workgroup, point.wave, RunOptions(engine="device")).point == point


@pytest.mark.parametrize(
    ("instruction", "said"),
    [
        ("global_atomic_add v2, v2, v3, s[4:5] sc0", True),
        ("ds_add_rtn_u32 v1, v2, v3", True),
        ("global_load_dword v2, v3, s[4:5]", False),
        ("ds_read_b32 v1, v2", False),
    ],
)
def test_an_atomic_s_order_is_no_fault(instruction, said):
    finding = Finding("load", (0, 0, 0), 0, 9, 4, 3, Point(8), instruction)
    assert ("another order of waves is no fault" in str(finding)) == said


def test_a_right_chip_behind_hip():
    with stand_in():
        finding = find_first_difference(reading_job(), (1, 0, 0), 1, RunOptions(engine="device"))
    assert finding.kind == "none"


def test_the_low_bits_of_addresses_can_be_chosen():
    job = reading_job()
    plain, moved = run(job, Point(0)), run(job, Point(0), lows=[0x123400, 0xFFFF_FF00])
    assert [place.address & 0xFFFF_FFFF for place in moved.places] == [0x123400, 0xFFFF_FF00]
    assert np.array_equal(plain.arrays[0], moved.arrays[0])
    assert plain.arrays[0].any()


@pytest.mark.parametrize("name", ["loops", "shared", "places", "calls", "only_x"])
def test_a_trace_of_one_workgroup_alone(name):
    job = jobs()[name]
    assert works_alone(job.code, job.kernel)
    where = (0, 0, 1) if name == "only_x" else (1, 0, 0)
    whole, alone = Trace(where, 1), Trace(where, 1, alone=True)
    reports = [run(job, None, RunOptions(engine="numpy", observers=(trace,))).report for trace in (whole, alone)]
    assert len(alone.offsets) > 5
    assert (alone.offsets, alone.stores, alone.pointers) == (whole.offsets, whole.stores, whole.pointers)
    last = len(alone.offsets)
    for field_name in ("vgprs", "sgprs", "scc"):
        mine, theirs = (getattr(trace.written(last), field_name) for trace in (alone, whole))
        assert np.array_equal(mine, theirs)
    assert reports[1].instructions < 0.7 * reports[0].instructions


@pytest.mark.parametrize(
    ("line", "alone"),
    [
        ("global_load_dword v3, v2, s[4:5] sc0", True),
        ("ds_add_u32 v2, v3", True),
        ("global_load_dword v3, v2, s[4:5] sc0 sc1", False),
        ("global_atomic_add v2, v3, s[4:5]", False),
        ("buffer_inv sc1", False),
        ("s_sleep 1", False),
    ],
)
def test_kernels_whose_workgroups_may_wait_for_each_other(line, alone):
    assert works_alone(assembly_kernel("k", f"{line}\n s_endpgm"), "k") == alone
