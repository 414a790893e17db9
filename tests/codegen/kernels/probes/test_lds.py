"""P13b and P14: bytes of LDS as counted here, the clock's kernels as compiled, and reports of made-up clocks."""

from functools import cache

import ml_dtypes
import numpy as np
import pytest

from codegen.kernels.probes import fit_clocks, lds, lds_clocks
from codegen.kernels.probes.capture import Origin, entry_of, make
from codegen.kernels.probes.fit import Evidence
from codegen.kernels.probes.fit_confirm import FAMILIES
from codegen.kernels.probes.lane_forms import EXEC_PATTERNS
from codegen.kernels.probes.lds_clocks import ACCESSES, CROWDS, Access, PhaseReport, pair_rows, phase_report
from codegen.kernels.probes.probe import SIZES, compiled, probes
from codegen.kernels.probes.run import Runner, run_steps
from emu import code_object
from emu.dispatch import RunOptions
from gfx950.lds import LDS_BYTES, conflicts, phases
from gfx950.models import DEFAULT
from tests.codegen.exact_kernels import code_lines

QUICK, FULL = SIZES["quick"], SIZES["full"]
STEPS = {step.name: step for step in lds.edges(QUICK)}
CLOCKS = {step.name: step for step in lds_clocks.steps(QUICK)}
DEVICE = Origin("device", "AMD Instinct MI355X")


@cache
def outputs():
    """Every output of P13b, run once."""
    return {step.name: output for step, _, output in Runner(RunOptions()).outputs(list(STEPS.values()))}


def memory_of(step, item):
    """LDS of an item before the step, and the item's rows."""
    registers, contents = STEPS[step].inputs
    return bytearray(contents[item].tobytes()), registers[item].astype(np.uint64)


# ---- reads and writes ------------------------------------------------------------------------------------------------


def dword(memory, address):
    """4 bytes, each in range or all 0: a dword is checked by itself."""
    return int.from_bytes(memory[address : address + 4], "little") if address + 4 <= len(memory) else 0


def part(memory, address, size, signed=False):
    if address + size > len(memory):
        return 0
    return int.from_bytes(memory[address : address + size], "little", signed=signed) & 0xFFFFFFFF


READERS = {
    "ds_read_b32": lambda m, a, old: [dword(m, a)],
    "ds_read_u16": lambda m, a, old: [part(m, a, 2)],
    "ds_read_i8": lambda m, a, old: [part(m, a, 1, True)],
    "ds_read_b64": lambda m, a, old: [dword(m, a + 4 * i) for i in range(2)],
    "ds_read_b96": lambda m, a, old: [dword(m, a + 4 * i) for i in range(3)],
    "ds_read_b128": lambda m, a, old: [dword(m, a + 4 * i) for i in range(4)],
    "ds_read2_b32": lambda m, a, old: [dword(m, a), dword(m, a + 4 & 0xFFFFFFFF)],
    "ds_read2_b64": lambda m, a, old: [dword(m, (a + 8 * n & 0xFFFFFFFF) + 4 * i) for n in (0, 1) for i in (0, 1)],
    "ds_read_u16_d16_hi": lambda m, a, old: [part(m, a, 2) << 16 | old & 0xFFFF],
}


@pytest.mark.parametrize("mnemonic", lds.READS)
@pytest.mark.parametrize("where", ["read_range", "read_unaligned"])
def test_reads(where, mnemonic):
    name = f"P13b/{where}/{mnemonic}"
    for item, found in enumerate(outputs()[name]):
        memory, rows = memory_of(name, item)
        expected = [READERS[mnemonic](memory, int(a), int(old)) for a, old in zip(rows[1], rows[2], strict=True)]
        np.testing.assert_array_equal(found.T, np.array(expected))


def test_addresses_reach_what_they_are_for():
    near, far = lds.edge_addresses()
    assert near.min() < lds.GRANTED - 16
    assert near.max() > lds.GRANTED + 16
    assert {0x10000, LDS_BYTES, 0xFFFFFFF8, 0} <= {int(n) for n in far}
    inside = lds.unaligned_addresses()
    assert inside.max() + 16 <= lds.GRANTED
    assert {int(n) % 16 for n in inside.ravel()} == set(range(16))


def test_offsets_carry_out_of_the_address():
    memory, rows = memory_of("P13b/read_wrap/ds_read_b32", 0)
    expected = [dword(memory, (int(a) + 128) % (1 << 32)) for a in rows[1]]
    np.testing.assert_array_equal(outputs()["P13b/read_wrap/ds_read_b32"][0, 0], expected)


def test_equal_offsets_read_one_datum_twice():
    found = outputs()["P13b/read_equal/ds_read2st64_b32"][0]
    memory, rows = memory_of("P13b/read_equal/ds_read2st64_b32", 0)
    np.testing.assert_array_equal(found, [[dword(memory, int(a) + 256) for a in rows[1]]] * 2)


def test_halves():
    for item, found in enumerate(outputs()["P13b/d16"]):
        memory, rows = memory_of("P13b/d16", item)
        for lane in np.flatnonzero(rows[0]):
            address, old = int(rows[1, lane]), int(rows[2, lane])
            halves = [part(memory, address, 1), part(memory, address, 1, True) & 0xFFFF, part(memory, address, 2)]
            both = [[old & 0xFFFF0000 | n, n << 16 | old & 0xFFFF] for n in halves]
            assert [int(n) for n in found[:, lane]] == [n for pair in both for n in pair]
        off = rows[0] == 0
        assert (found[:, off] == rows[2, off]).all()


def stored(memory, rows, whole):
    """Lanes store their words in order; whole: a dword beyond the end is dropped by itself."""
    for lane in np.flatnonzero(rows[0]):
        for i, word in enumerate(rows[2:, lane]):
            address = int(rows[1, lane]) + 4 * i
            if address + 4 <= len(memory):
                memory[address : address + 4] = int(word).to_bytes(4, "little")
    return np.frombuffer(bytes(memory), np.uint32).reshape(whole.shape)


@pytest.mark.parametrize("words", range(1, 5))
@pytest.mark.parametrize("where", ["write_range", "write_unaligned"])
def test_writes(where, words):
    name = f"P13b/{where}/x{words}"
    for item, found in enumerate(outputs()[name]):
        memory, rows = memory_of(name, item)
        np.testing.assert_array_equal(found, stored(memory, rows, found), err_msg=str(item))


@pytest.mark.parametrize("words", range(1, 5))
def test_overlaps_in_lds_leave_the_highest_lane(words):
    name = f"P13b/overlap_lds/x{words}"
    for item, found in enumerate(outputs()[name]):
        memory, rows = memory_of(name, item)
        np.testing.assert_array_equal(found, stored(memory, rows, found), err_msg=str(item))


@pytest.mark.parametrize("words", range(1, 5))
def test_overlaps_in_memory_leave_the_highest_lane(words):
    name = f"P13b/overlap_global/x{words}"
    for item, found in enumerate(outputs()[name]):
        rows = memory_of(name, item)[1]
        np.testing.assert_array_equal(found, stored(bytearray(found.nbytes), rows, found), err_msg=str(item))


def test_stores_are_one_instruction_each():
    kernels = tuple(lds.store_kernel(words, to_lds) for words in range(1, 5) for to_lds in (True, False))
    loaded = code_object.load(compiled(kernels).object)
    for words, x in zip(range(1, 5), ("", "x2", "x3", "x4"), strict=True):
        assert any(
            line.startswith(f"global_store_dword{x} ") for line in code_lines(loaded, f"P13b_store_global_{words}")
        )
        lines = code_lines(loaded, f"P13b_store_lds_{words}")
        fills = [line.split()[0] for line in lines if line.startswith("ds_write")][-1]
        assert fills == f"ds_write_b{32 * words}"


# ---- atomics ---------------------------------------------------------------------------------------------------------


def atomic_parts(mnemonic, mode, dtype):
    """Memory before, operands, memory after, and what came back, as an array of floats each."""
    name = f"P13b/{mnemonic}/mode_{mode}"
    registers, contents = STEPS[name].inputs
    count = np.dtype(dtype).itemsize // 4 or 1
    output = outputs()[name]

    def joined(rows):
        return np.ascontiguousarray(rows.transpose(0, 2, 1)).view(dtype).ravel()

    after = np.ascontiguousarray(output[:, count:].reshape(len(output), -1)).view(dtype).ravel()
    before = np.ascontiguousarray(contents).view(dtype).ravel()
    return before, joined(registers[:, 2 : 2 + count]), after, joined(output[:, :count])


@pytest.mark.parametrize(("mnemonic", "dtype"), [
    ("ds_add_rtn_f32", np.float32), ("ds_add_rtn_f64", np.float64), ("ds_pk_add_rtn_f16", np.float16),
    ("ds_pk_add_rtn_bf16", ml_dtypes.bfloat16),
])  # fmt: skip
def test_sums_with_denormals_kept(mnemonic, dtype):
    """Where nothing is a NaN, the sum to nearest even; the old datum comes back."""
    before, operand, after, old = atomic_parts(mnemonic, "kept", dtype)
    assert old.tobytes() == before.tobytes()
    with np.errstate(all="ignore"):
        total = before + operand
    plain = ~np.isnan(total)
    assert plain.sum() > len(total) / 2
    assert after[plain].tobytes() == total[plain].tobytes()
    assert np.isnan(after[~plain]).all()


def test_modes_and_special_values_make_a_difference():
    """The question of denormals is put: flushing shows in what f32 sums give on the emulator."""
    kept, flush = (outputs()[f"P13b/ds_add_rtn_f32/mode_{mode}"] for mode in ("kept", "flush"))
    assert (kept != flush).any()
    for values in lds.SPECIAL.values():
        assert len(set(values)) == 16


def test_pairs_of_special_values_are_complete():
    memory, operand = lds._pairs_of("f8")
    assert len(set(zip(memory.ravel().tolist(), operand.ravel().tolist(), strict=True))) == 256


def test_lanes_at_one_address_take_turns():
    """An increment gives every lane another old value; a running total ends as all of them."""
    step = STEPS["P13b/crowd/ds_sub_rtn_u32"]
    for (on, address, data, _), output in zip(step.inputs[0], outputs()[step.name], strict=True):
        totals = {0: 0, 64: 0, 128: 0}
        for lane in np.flatnonzero(on):
            assert output[0, lane] == totals[int(address[lane])]
            totals[int(address[lane])] = (totals[int(address[lane])] - int(data[lane])) % (1 << 32)
        assert {a: int(output[1, a // 4]) for a in totals} == totals


@pytest.mark.parametrize(("mnemonic", "size"), [("ds_add_rtn_u32", 4), ("ds_add_rtn_u64", 8)])
def test_atomics_beyond_the_end_do_nothing_and_give_0(mnemonic, size):
    name = f"P13b/atomic_range/{mnemonic}"
    beyond = 0
    for item, found in enumerate(outputs()[name]):
        memory, rows = memory_of(name, item)
        for lane in range(64):
            address, old = int(rows[1, lane]), 0
            added = sum(int(rows[2 + i, lane]) << 32 * i for i in range(size // 4))
            if address + size <= len(memory):
                old = int.from_bytes(memory[address : address + size], "little")
                memory[address : address + size] = ((old + added) % (1 << 8 * size)).to_bytes(size, "little")
            else:
                beyond += 1
            assert sum(int(found[i, lane]) << 32 * i for i in range(size // 4)) == old
        np.testing.assert_array_equal(found[size // 4 :].ravel(), np.frombuffer(bytes(memory), np.uint32))
    assert beyond > 64


def test_exchanges_at_equal_offsets_store_the_first_datum():
    step = STEPS["P13b/exchange/equal"]
    for item, found in enumerate(outputs()[step.name]):
        memory, rows = memory_of(step.name, item)
        before = np.frombuffer(bytes(memory), np.uint32)
        after = before.copy()
        for lane in np.flatnonzero(rows[0]):
            at = int(rows[1, lane]) // 4 + 3
            assert [int(n) for n in found[:2, lane]] == [before[at]] * 2
            after[at] = rows[2, lane]
        np.testing.assert_array_equal(found[2:].ravel(), after)


def test_conditional_exchanges_go_by_the_top_bit():
    step = STEPS["P13b/exchange/conditional"]
    for item, found in enumerate(outputs()[step.name]):
        memory, rows = memory_of(step.name, item)
        after = np.frombuffer(bytes(memory), np.uint32).copy()
        for lane in np.flatnonzero(rows[0]):
            for half in (0, 1):
                word, at = int(rows[2 + half, lane]), int(rows[1, lane]) // 4 + half
                after[at] = word & 0x7FFFFFFF if word >> 31 else after[at]
        np.testing.assert_array_equal(found[2:].ravel(), after)


def test_a_whole_capture_of_the_emulator_is_confirmed():
    pairs = list(run_steps(Runner(RunOptions()), list(STEPS.values())))
    evidence = Evidence(make(DEVICE, "quick", pairs), STEPS)
    (family,) = FAMILIES
    found = family.fit(evidence, DEFAULT)
    assert (found.steps, found.unexplained) == (len(STEPS), [])


# ---- the steps -------------------------------------------------------------------------------------------------------


def test_steps_of_both_probes():
    assert {"P13b", "P14"} <= set(probes())
    assert list(probes()).index("P13b") == list(probes()).index("P13") + 1
    assert all(step.exact for step in STEPS.values())
    assert not any(step.exact for step in CLOCKS.values())
    assert sum(step.inputs[0].nbytes for step in STEPS.values()) < 8 << 20


def test_both_engines_agree():
    names = ["P13b/read_range/ds_read_b128", "P13b/overlap_lds/x3", "P13b/ds_pk_add_rtn_bf16/mode_flush"]
    for step, _, output in Runner(RunOptions(engine="numpy")).outputs([STEPS[name] for name in names]):
        np.testing.assert_array_equal(output, outputs()[step.name])


# ---- the clock's kernels ---------------------------------------------------------------------------------------------


def test_clock_kernels_time_their_instruction_alone_on_a_compute_unit():
    kernels = tuple(lds_clocks.clock_kernel(access) for access in ACCESSES)
    loaded = code_object.load(compiled(kernels).object)
    for access, made in zip(ACCESSES, kernels, strict=True):
        lines = code_lines(loaded, made.name)
        times = [i for i, line in enumerate(lines) if line.startswith("s_memtime")]
        accesses = [line for line in lines if line.split()[0] == access.mnemonic]
        assert len(times) == 2, access
        assert len(accesses) == (1 if access.words else lds_clocks.RUN), access
        assert made.lds == LDS_BYTES


def served(access, rows):
    """What an access costs by `gfx950.lds`, in cycles."""
    plan = phases(access.mnemonic)
    addresses = rows[1].astype(np.int64)
    if plan.accesses == 2:
        addresses = np.stack([addresses, addresses + plan.width])
    return conflicts(access.mnemonic, addresses, rows[0] != 0)


@pytest.mark.parametrize("access", ACCESSES, ids=lambda access: access.mnemonic)
def test_pairs_meet_in_a_bank_or_do_not(access):
    """By the phases that are assumed, lanes of one phase that are to meet cost more, and no others."""
    phase = {lane: n for n, lanes in enumerate(phases(access.mnemonic).phases) for lane in lanes}
    for pair in lds_clocks.lane_pairs(QUICK):
        apart, together = (served(access, pair_rows(access, pair, conflict)).cycles for conflict in (False, True))
        assert (together > apart) == (phase[pair[0]] == phase[pair[1]]), pair


def test_all_pairs_of_the_full_size():
    assert len(set(lds_clocks.lane_pairs(FULL))) == 64 * 63 // 2
    assert set(lds_clocks.lane_pairs(QUICK)) < set(lds_clocks.lane_pairs(FULL))
    plan = next(lds_clocks.steps(FULL))
    assert plan.grid == 2 * 64 * 63 // 2


# ---- reports ---------------------------------------------------------------------------------------------------------


def clocks_by(access, size, noise=None):
    """Clocks as a chip might give them whose phases are those of `gfx950.lds`."""
    pairs = lds_clocks.lane_pairs(size)
    rows = [pair_rows(access, pair, conflict) for pair in pairs for conflict in (False, True)]
    clocks = np.array([2000 + 32 * served(access, row).cycles for row in rows], np.uint32)
    return clocks + (0 if noise is None else noise.integers(0, 9, len(clocks), dtype=np.uint32))


@pytest.mark.parametrize("mnemonic", ["ds_read_b128", "ds_read_b96", "ds_write_b64", "ds_read_b64_tr_b8"])
def test_clocks_of_the_assumed_phases_are_found_to_agree(mnemonic):
    access = next(a for a in ACCESSES if a.mnemonic == mnemonic)
    pairs = lds_clocks.lane_pairs(FULL)
    report = phase_report(mnemonic, pairs, clocks_by(access, FULL, np.random.default_rng(1)))
    assert report.other == ()
    assert report.sets == tuple(sorted(tuple(sorted(lanes)) for lanes in phases(mnemonic).phases))
    assert report.text.startswith(f"{mnemonic}: all 2016 pairs as {phases(mnemonic).rule.name} has them")


def test_clocks_of_other_phases_are_told():
    clocks = clocks_by(Access("ds_read_b64"), FULL)
    report = phase_report("ds_read_b128", lds_clocks.lane_pairs(FULL), clocks)
    assert report.sets == (tuple(range(32)), tuple(range(32, 64)))
    assert len(report.other) == 2 * 16 * 16
    assert "512 of 2016 pairs not as lds.phases.ds_read_b128 has them, first lanes 0 and 4" in report.text
    assert "conflict sets {0,1,2,3," in report.text


def test_equal_clocks_are_no_timing():
    pairs = [(0, 1), (0, 2)]
    assert phase_report("ds_read_b32", pairs, np.array([9, 9, 9, 9], np.uint32)).text == "ds_read_b32: no timing"
    few = np.array([900, 903, 905, 900], np.uint32)
    assert not phase_report("ds_read_b32", pairs, few).timed
    assert PhaseReport("ds_read_b32", True, 2, (), ((0, 1), (0, 2))).text.endswith("conflict sets none")


def captured(origin, change=lambda name, output: output, wanted=("P14/",)):
    steps = [step for name, step in CLOCKS.items() if name.startswith(wanted)]
    made = [(entry, change(entry.name, output)) for entry, output in run_steps(Runner(RunOptions()), steps)]
    return make(origin, "quick", [(entry_of(e.name, e.inputs, e.code, output), output) for e, output in made])


def test_a_capture_of_the_emulator_tells_no_time():
    capture = captured(Origin("emulator", "gfx950 1"), wanted=("P14/pairs/ds_read_b32", "P14/strides/ds_read_b32"))
    assert [report.text for report in lds_clocks.phase_reports(capture)] == ["ds_read_b32: no timing"]
    assert lds_clocks.bank_count(capture, "ds_read_b32") is None
    (told,) = (family.fit(Evidence(capture, CLOCKS), DEFAULT) for family in fit_clocks.FAMILIES)
    assert told.notes == ["an emulator's clocks count instructions and say nothing of time"]


def test_a_capture_of_a_device():
    accesses = {access.mnemonic: access for access in ACCESSES}

    def timed(name, output):
        rows = CLOCKS[name].inputs[0]
        access = accesses[name.rpartition("/")[2]]
        return np.array([2048 + 32 * served(access, row).cycles for row in rows], np.uint32)

    names = ("ds_read_b6", "ds_write_b128")  # the transposing reads too
    wanted = tuple(f"P14/{kind}/{name}" for kind in ("pairs", "strides", "crowd") for name in names)
    capture = captured(DEVICE, timed, wanted)
    reports = {report.mnemonic: report for report in lds_clocks.phase_reports(capture)}
    assert all(report.timed for report in reports.values())
    assert not any(report.other for report in reports.values())
    assert lds_clocks.bank_count(capture, "ds_read_b64") == phases("ds_read_b64").banks
    assert lds_clocks.bank_count(capture, "ds_write_b128") == phases("ds_write_b128").banks
    costs = lds_clocks.cost_table(capture, "ds_read_b64")
    assert list(costs) == list(CROWDS)
    assert costs[64] == (64 + 64, 64 + 2)
    (told,) = (family.fit(Evidence(capture, CLOCKS), DEFAULT) for family in fit_clocks.FAMILIES)
    assert f"ds_read_b64: {phases('ds_read_b64').banks} banks" in told.notes
    assert any(note.startswith("ds_read_b64: all ") for note in told.notes)
    assert any(note.startswith("ds_read_b64: clocks by lanes") and "64: 128 or 66" in note for note in told.notes)
    assert EXEC_PATTERNS["full"] == (1 << 64) - 1
