"""Progress of workgroups that wait for each other, launches that make none, and loads to LDS that land late."""

import itertools

import numpy as np
import pytest
from kernel_builds import assemble_kernel, compile_c

from emu import schedule
from emu.dispatch import TO_BARRIER, Device, RunOptions
from emu.errors import LaunchError, MemoryFault, NoProgress

ENGINES = ["host", "numpy"]
SOURCE = """
#define ADD(p, x) __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST)
#define LOAD(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
KERNEL grid_barrier(GLOBAL u32* count, GLOBAL u32* data, GLOBAL u32* out, u32 groups) {
    for (u32 round = 1; round <= 3; round++) {
        data[GROUP] += GROUP + round;
        BARRIER();
        if (ITEM == 0) {
            ADD(count, 1);
            while (LOAD(count) < groups * (2 * round - 1)) __builtin_amdgcn_s_sleep(1);
        }
        BARRIER();
        u32 next = data[(GROUP + 1) % groups];
        BARRIER();
        if (ITEM == 0) {
            ADD(count, 1);
            while (LOAD(count) < groups * 2 * round) {}
            data[GROUP] += next;
        }
        BARRIER();
    }
    if (ITEM == 0) out[GROUP] = data[GROUP];
}
KERNEL locked(GLOBAL u32* lock, GLOBAL u32* total) {
    if (ITEM == 0) {
        u32 free = 0;
        while (!__atomic_compare_exchange_n(lock, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) free = 0;
        u32 old = __atomic_load_n(total, __ATOMIC_RELAXED);
        for (u32 i = 0; i < 50; i++) __builtin_amdgcn_s_sleep(1);
        __atomic_store_n(total, old * 3 % 1000003 + 1, __ATOMIC_RELAXED);
        __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
    }
}
KERNEL backwards(GLOBAL u32* flags, u32 groups) {
    if (GROUP + 1 < groups) while (!LOAD(flags + GROUP + 1)) {}
    __atomic_store_n(flags + GROUP, 1, __ATOMIC_RELEASE);
}
KERNEL never(GLOBAL u32* flag) { while (!LOAD(flag)) {} }
KERNEL bad_or_waiting(GLOBAL u32* flag, u32 bad) {
    if (GROUP == bad) flag[1 << 20] = 1;
    while (!LOAD(flag)) {}
}
"""


def module(engine, threads=1, level="-O2"):
    return Device(RunOptions(engine=engine, threads=threads)).load(compile_c(SOURCE, level))


def barrier_model(groups):
    data = np.zeros(groups, np.uint64)
    for turn in range(1, 4):
        data += np.arange(groups, dtype=np.uint64) + np.uint64(turn)
        data += np.roll(data, -1)
    return data.astype(np.uint32)


@pytest.mark.parametrize(("engine", "threads", "groups"), [("host", 1, 64), ("host", 2, 300), ("numpy", 1, 3)])
def test_workgroups_wait_for_each_other_at_a_barrier_of_the_grid(engine, threads, groups):
    count, data, out = np.zeros(1, np.uint32), np.zeros(groups, np.uint32), np.zeros(groups, np.uint32)
    module(engine, threads)["grid_barrier"][groups, 1](count, data, out, np.uint32(groups))
    assert np.array_equal(out, barrier_model(groups))
    assert count[0] == 6 * groups


@pytest.mark.parametrize(("engine", "threads", "groups"), [("host", 1, 30), ("host", 2, 100), ("numpy", 1, 4)])
def test_a_lock_lets_one_in_at_a_time(engine, threads, groups):
    lock, total = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    module(engine, threads)["locked"][groups, 64](lock, total)
    expected = 0
    for _ in range(groups):
        expected = expected * 3 % 1000003 + 1
    assert (lock[0], total[0]) == (0, expected)


@pytest.mark.parametrize(("engine", "threads"), [("host", 1), ("host", 2), ("numpy", 1)])
def test_a_workgroup_may_wait_for_one_that_starts_later(engine, threads):
    flags = np.zeros(8, np.uint32)
    module(engine, threads)["backwards"][8, 1](flags, np.uint32(8))
    assert flags.all()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(schedule, "PATIENCE", 1 << 14)


@pytest.mark.parametrize(("engine", "threads"), [("host", 1), ("host", 2), ("numpy", 1)])
def test_a_launch_in_which_everybody_waits_ends_with_a_report(engine, threads, impatient):
    with pytest.raises(NoProgress, match="every workgroup waits and memory no longer changes") as caught:
        module(engine, threads)["never"][6, 64](np.zeros(1, np.uint32))
    assert "workgroup (0, 0, 0) wave 0 at pc" in str(caught.value)
    assert "and 2 more" in str(caught.value)
    assert "a flag that nobody sets" in str(caught.value)


def test_a_workgroup_that_is_never_resident_is_never_started(impatient, monkeypatch):
    monkeypatch.setattr("emu.host_machine.residents", lambda launch: 3)
    flags = np.zeros(4, np.uint32)
    with pytest.raises(NoProgress):
        module("host")["backwards"][4, 1](flags, np.uint32(4))
    module("host")["backwards"][3, 1](flags, np.uint32(3))
    assert flags.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("line", ["s_branch again", "s_mov_b32 s4, 5\nv_mov_b32 v1, s4\ns_nop 0\ns_branch again"])
def test_a_loop_without_an_end_is_found_out(line, monkeypatch):
    monkeypatch.setattr(schedule, "LONGEST_SLICE", 1 << 9)
    monkeypatch.setattr(schedule, "PATIENCE", 1 << 14)
    code = assemble_kernel(f"again:\n{line}\ns_endpgm")
    for engine in ENGINES if line.startswith("s_branch") else ["host"]:
        with pytest.raises(NoProgress, match="every workgroup waits"):
            Device(RunOptions(engine=engine)).load(code)["k"][1, 64](b"")


@pytest.mark.parametrize("line", ["s_branch again", "s_sleep 1\ns_branch again", "s_barrier\ns_branch again"])
def test_a_loop_without_an_end_is_found_out_in_seconds_on_both_engines(line):
    code = assemble_kernel(f"again:\n{line}\ns_endpgm")
    for engine in ENGINES:
        with pytest.raises(NoProgress, match="every workgroup waits"):
            Device(RunOptions(engine=engine)).load(code)["k"][1, 128](b"")


BACKWARDS = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_load_dword s6, s[0:1], 0x8
  s_waitcnt lgkmcnt(0)
  s_lshl_b32 s7, s2, 2
  v_mov_b32 v1, s7
  s_add_u32 s8, s2, 1
  s_cmp_lt_u32 s8, s6
  s_cbranch_scc0 go
again:
  global_load_dword v2, v1, s[4:5] offset:4
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s9, v2
  s_cmp_eq_u32 s9, 0
  s_cbranch_scc1 again
go:
  v_mov_b32 v3, 1
  global_store_dword v1, v3, s[4:5]
  s_endpgm"""


@pytest.mark.parametrize("threads", [1, 2])
def test_many_may_wait_in_loops_that_do_not_look_like_waiting(threads, monkeypatch):
    """Each waits for the next one's flag: between two stores every other workgroup comes back to its state."""
    monkeypatch.setattr(schedule, "LONGEST_SLICE", 1 << 12)
    code, groups = assemble_kernel(BACKWARDS, ".amdhsa_system_sgpr_workgroup_id_x 1"), 150
    device, flags = Device(RunOptions(threads=threads)), np.zeros(groups, np.uint32)
    block = device.map(flags).to_bytes(8, "little") + groups.to_bytes(8, "little")
    device.load(code)["k"][groups, 1](block)
    assert flags.all()


@pytest.mark.parametrize(("engine", "threads"), [("host", 1), ("host", 2), ("numpy", 1)])
def test_the_error_is_that_of_the_failing_workgroup_though_others_wait(engine, threads, monkeypatch):
    monkeypatch.setattr(schedule, "GRACE", 1 << 10)
    with pytest.raises(MemoryFault) as caught:
        module(engine, threads)["bad_or_waiting"][5, 64](np.zeros(1, np.uint32), np.uint32(3))
    assert caught.value.workgroup == (3, 0, 0)


LATE = """
s_load_dwordx2 s[0:1], s[0:1], 0x0
v_mbcnt_lo_u32_b32 v0, -1, 0
v_mbcnt_hi_u32_b32 v0, -1, v0
v_lshlrev_b32 v40, 2, v0
s_mov_b32 m0, 0
s_waitcnt lgkmcnt(0)
global_load_lds_dword v40, s[0:1]
s_mov_b32 m0, 256
global_load_lds_dword v40, s[0:1] offset:256
global_load_dword v9, v40, s[0:1]
ds_read_b32 v1, v40
ds_read_b32 v2, v40 offset:512
s_waitcnt vmcnt(2)
ds_read_b32 v3, v40
ds_read_b32 v4, v40 offset:512
s_waitcnt vmcnt(1)
ds_read_b32 v5, v40 offset:512
s_waitcnt lgkmcnt(0)
global_store_dword v40, v1, s[0:1] offset:512
global_store_dword v40, v2, s[0:1] offset:768
global_store_dword v40, v3, s[0:1] offset:1024
global_store_dword v40, v4, s[0:1] offset:1280
global_store_dword v40, v5, s[0:1] offset:1536
s_endpgm
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_loads_to_lds_land_at_the_wait_that_retires_them(engine):
    data = np.zeros(7 * 64, np.uint32)
    data[:128] = np.arange(1, 129)
    device = Device(RunOptions(engine=engine))
    kernarg = np.array([device.map(data)], np.uint64).tobytes()
    device.load(assemble_kernel(LATE, ".amdhsa_group_segment_fixed_size 2048"))["k"][1, 64](kernarg)
    before, before_too, first, second_early, second = data[128:].reshape(5, 64)
    assert not before.any()
    assert not before_too.any()
    assert np.array_equal(first, np.arange(1, 65))
    assert not second_early.any()
    assert np.array_equal(second, np.arange(65, 129))


@pytest.mark.parametrize("engine", ENGINES)
def test_more_loads_than_the_counter_holds_land_in_order(engine):
    loads = "\n".join(f"s_mov_b32 m0, {4 * i}\nglobal_load_lds_dword v40, s[0:1] offset:{4 * i}" for i in range(70))
    text = f"""
    s_load_dwordx2 s[0:1], s[0:1], 0x0
    v_mov_b32 v40, 0
    s_mov_b64 exec, 1
    s_waitcnt lgkmcnt(0)
    {loads}
    s_mov_b64 exec, -1
    v_mbcnt_lo_u32_b32 v0, -1, 0
    v_mbcnt_hi_u32_b32 v0, -1, v0
    v_lshlrev_b32 v41, 2, v0
    v_lshlrev_b32 v42, 3, v0
    ds_read_b32 v1, v42
    global_store_dword v41, v1, s[0:1] offset:1024
    s_endpgm
    """
    data = np.zeros(320, np.uint32)
    data[:70] = np.arange(1, 71)
    device = Device(RunOptions(engine=engine))
    kernarg = np.array([device.map(data)], np.uint64).tobytes()
    device.load(assemble_kernel(text, ".amdhsa_group_segment_fixed_size 2048"))["k"][1, 64](kernarg)
    # Six of seventy have landed; the offset moves both sides.
    assert data[256:].tolist() == [1, 2, 3, 4, 5, 6, *[0] * 58]


RACE = """
s_load_dwordx2 s[0:1], s[0:1], 0x0
v_lshrrev_b32 v2, 6, v0
v_readfirstlane_b32 s4, v2
s_mov_b32 s5, 0
v_mov_b32 v3, 0
v_mov_b32 v41, 0
s_waitcnt lgkmcnt(0)
again:
ds_read_b32 v5, v41
s_waitcnt lgkmcnt(0)
v_mul_lo_u32 v5, v5, 3
v_add_u32 v5, s4, v5
ds_write_b32 v41, v5
s_add_u32 s5, s5, 1
s_cmp_lt_u32 s5, 20
s_cbranch_scc1 again
s_barrier
ds_read_b32 v5, v41
s_waitcnt lgkmcnt(0)
v_lshlrev_b32 v40, 2, v0
global_store_dword v40, v5, s[0:1]
s_endpgm
"""


def race(engine, **options):
    """What is left of a cell that four waves update without care: another number for another order of turns."""
    out = np.zeros(256, np.uint32)
    device = Device(RunOptions(engine=engine, **options))
    kernarg = np.array([device.map(out)], np.uint64).tobytes()
    device.load(assemble_kernel(RACE, ".amdhsa_group_segment_fixed_size 64"))["k"][1, 256](kernarg)
    (left,) = set(out.tolist())
    return left


def test_the_schedule_is_a_parameter_and_the_same_each_time():
    kinds = [{"quantum": q} for q in (1, 8, 32, TO_BARRIER)] + [{"seed": s} for s in range(6)]
    kinds += [{"quantum": q, "order": "reversed"} for q in (1, 8, 32, TO_BARRIER)]
    found = [race("host", **kind) for kind in kinds]
    assert found == [race("host", **kind) for kind in kinds]
    assert len(set(found[:4])) > 2
    assert len(set(found[4:10])) > 3
    assert not set(found[:4]) & set(found[10:])


@pytest.mark.parametrize("quantum", [1, TO_BARRIER])
@pytest.mark.parametrize("order", [{}, {"order": "reversed"}, *({"seed": s} for s in range(8))], ids=str)
def test_both_engines_take_turns_alike_where_blocks_are_no_limit(quantum, order):
    assert race("host", quantum=quantum, **order) == race("numpy", quantum=quantum, **order)


def one_after_the_other(waves):
    """What is left where each wave runs as far as its barrier."""
    value = 0
    for wave in waves:
        for _ in range(20):
            value = (value * 3 + wave) % (1 << 32)
    return value


def test_waves_that_run_to_their_barrier_run_one_after_the_other():
    assert race("host", quantum="barrier") == one_after_the_other(range(4))
    assert race("host", quantum="barrier", order="reversed") == one_after_the_other([3, 2, 1, 0])


def test_a_seed_lets_any_wave_go_first_and_next():
    orders = {one_after_the_other(waves): waves for waves in itertools.permutations(range(4))}
    found = [orders.get(race("host", quantum=TO_BARRIER, seed=seed)) for seed in range(120)]
    assert {waves for waves in found if waves} == set(orders.values())


def test_without_a_seed_the_first_wave_goes_on_being_first():
    assert {q: race("host", quantum=q) for q in (1, TO_BARRIER)} == {1: 935209304, TO_BARRIER: 3320511664}
    assert [race("numpy", quantum=q) for q in (8, 32)] == [935209304, 1192935905]


def turns_of(count, rounds, **chosen):
    turns = schedule.Turns.first(count, **{"quantum": 5, "order": "ascending", "seed": None, "number": 3, **chosen})
    for _ in range(rounds * count):
        yield turns.wave, turns.length
        turns.advance()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("chosen", [{}, {"order": "reversed"}, {"seed": 0}, {"seed": -5}], ids=str)
def test_each_wave_has_one_turn_in_each_round(count, chosen):
    taken = list(turns_of(count, 40, **chosen))
    rounds = [[wave for wave, _ in taken[at : at + count]] for at in range(0, len(taken), count)]
    assert all(sorted(one) == list(range(count)) for one in rounds)
    if "seed" in chosen:
        assert {length for _, length in taken} == {1, 2, 3, 4, 5}
        assert {one[0] for one in rounds} == {one[-1] for one in rounds} == set(range(count)) or count == 16
    else:
        assert {length for _, length in taken} == {5}
        assert rounds == [list(range(count))[:: -1 if chosen else 1]] * 40


def test_workgroups_change_places_with_those_that_run_at_once():
    ids = [(n, 0, 0) for n in range(10)]

    def started(order="ascending", seed=None):
        return [n for n, _, _ in schedule.starts(iter(ids), 4, order, seed)]

    assert started() == list(range(10))
    assert started("reversed") == [3, 2, 1, 0, 7, 6, 5, 4, 9, 8]
    drawn = {tuple(started(seed=seed)) for seed in range(20)}
    assert len(drawn) == 20
    assert all(sorted(d[:4]) == [0, 1, 2, 3] and sorted(d[8:]) == [8, 9] for d in drawn)


OTHERS = [
    {"order": "reversed"},
    {"order": "reversed", "quantum": 1 << 11},
    {"seed": 1},
    {"seed": 2, "quantum": 1 << 11},
]
SPIN = """
#define LOAD(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
KERNEL chain(GLOBAL u32* done) {
    u32 wave = ITEM / 64, from = wave ? wave - 1 : ITEMS / 64 - 1;
    for (u32 round = 1; round <= 3; round++) {
        while (LOAD(done + from) < (wave ? round : round - 1)) {}
        if (ITEM % 64 == 0) __atomic_store_n(done + wave, round, __ATOMIC_RELEASE);
    }
}
KERNEL after_the_one_before(GLOBAL u32* flags) {
    if (GROUP) while (!LOAD(flags + GROUP - 1)) {}
    __atomic_store_n(flags + GROUP, 1, __ATOMIC_RELEASE);
}
KERNEL last_group(GLOBAL u32* out) { out[0] = GROUP; }
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", OTHERS, ids=str)
def test_waves_and_workgroups_that_wait_for_others_make_progress_in_any_order(engine, order):
    module = Device(RunOptions(engine=engine, **order)).load(compile_c(SPIN))
    done = np.zeros(4, np.uint32)
    module["chain"][1, 256](done)
    assert done.tolist() == [3, 3, 3, 3]
    flags = np.zeros(10, np.uint32)
    module["after_the_one_before"][10, 64](flags)
    assert flags.all()


@pytest.mark.parametrize("order", OTHERS, ids=str)
def test_a_workgroup_may_wait_for_one_that_started_before_in_a_grid_larger_than_the_chip(order, monkeypatch):
    monkeypatch.setattr("emu.host_machine.residents", lambda launch: 4)
    flags = np.zeros(30, np.uint32)
    Device(RunOptions(**order)).load(compile_c(SPIN))["after_the_one_before"][30, 64](flags)
    assert flags.all()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_last_workgroup_comes_first_and_the_watch_names_who_stored_last(engine):
    out = np.full(1, 9, np.uint32)
    kernel = Device(RunOptions(engine=engine, order="reversed")).load(compile_c(SPIN))["last_group"]
    report = kernel[5, 64](out, watch=(out, 0))
    assert out[0] == 0
    assert report.watch.workgroup == (0, 0, 0)


def test_a_seed_must_be_a_number_and_an_order_one_there_is():
    with pytest.raises(LaunchError, match="seed is 'x'"):
        RunOptions(seed="x")
    with pytest.raises(LaunchError, match=r"(?s)order is 'descending'.*'ascending' or 'reversed'"):
        RunOptions(order="descending")
    with pytest.raises(LaunchError, match=r"(?s)order is 'reversed' and seed is 0.*one of the two"):
        RunOptions(order="reversed", seed=0)


def test_a_quantum_may_be_the_word_of_the_command_line():
    assert RunOptions(quantum="barrier") == RunOptions(quantum=TO_BARRIER)
    with pytest.raises(LaunchError, match=r"(?s)quantum is 'end'.*a whole number from 1 on, or 'barrier'"):
        RunOptions(quantum="end")


@pytest.mark.parametrize("engine", ENGINES)
def test_waiting_is_seen_in_code_that_keeps_its_variables_in_scratch(engine, impatient):
    with pytest.raises(NoProgress, match="every workgroup waits"):
        module(engine, level="-O0")["never"][2, 64](np.zeros(1, np.uint32))


def test_a_barrier_of_the_grid_without_optimisation():
    groups = 20
    count, data, out = np.zeros(1, np.uint32), np.zeros(groups, np.uint32), np.zeros(groups, np.uint32)
    report = module("host", level="-O0")["grid_barrier"][groups, 1](count, data, out, np.uint32(groups))
    assert np.array_equal(out, barrier_model(groups))
    assert report.instructions < 50_000_000
