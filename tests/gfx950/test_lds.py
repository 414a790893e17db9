"""LDS geometry: allocation, phases, and bank conflicts against a count by hand."""

import numpy as np
import pytest

from gfx950 import lds
from gfx950.evidence import Evidence

LANE = np.arange(64)


@pytest.mark.parametrize(
    ("size", "granted"),
    [(0, 0), (1, 1280), (1280, 1280), (1281, 2560), (65536, 66560), (163839, 163840), (163840, 163840)],
)
def test_allocation_rounds_up_to_the_granule(size, granted):
    assert lds.allocation(size) == granted


@pytest.mark.parametrize("size", [-1, 163841])
def test_allocation_refuses_what_a_cu_does_not_have(size):
    with pytest.raises(ValueError, match=f"cannot have {size} bytes of LDS: a CU of gfx950 has 163840"):
        lds.allocation(size)


@pytest.mark.parametrize("name", lds.PLANS)
def test_every_lane_is_in_one_phase_and_a_phase_fits_its_banks(name):
    plan = lds.phases(name)
    assert sorted(lane for phase in plan.phases for lane in phase) == list(range(64))
    for phase in plan.phases:
        assert len(phase) * plan.width <= plan.banks * 4


def test_published_phases():
    def lanes(*runs):
        return tuple(lane for first, last in runs for lane in range(first, last + 1))

    assert lds.phases("ds_read_b128").phases == (
        lanes((0, 3), (12, 15), (20, 27)),
        lanes((4, 11), (16, 19), (28, 31)),
        lanes((32, 35), (44, 47), (52, 59)),
        lanes((36, 43), (48, 51), (60, 63)),
    )
    assert lds.phases("ds_read_b96").phases[4] == (32, 33, 34, 35, 52, 53, 54, 55)
    assert [len(p) for p in lds.phases("ds_read_b64").phases] == [32, 32]
    assert lds.phases("ds_write_b64").phases[1] == tuple(range(16, 32))
    banks = {name: lds.phases(name).banks for name in ("ds_read_b64", "ds_read_b96", "ds_read_b128", "ds_write_b64")}
    assert banks == {"ds_read_b64": 64, "ds_read_b96": 32, "ds_read_b128": 64, "ds_write_b64": 32}
    assert all(lds.phases(name).rule.evidence is Evidence.published for name in banks)
    assert lds.phases("ds_write_b128").rule.evidence is Evidence.carried
    assert lds.phases("ds_read_b32").rule.evidence is Evidence.chosen


def counted_by_hand(plan, addresses, active):
    """Extra cycles of each phase, with sets and loops."""
    extra = []
    for access in np.reshape(addresses, (plan.accesses, 64)):
        for phase in plan.phases:
            banks = {}
            for lane in phase:
                if active[lane]:
                    for byte in range(int(access[lane]), int(access[lane]) + plan.width):
                        banks.setdefault(byte // 4 % plan.banks, set()).add(byte // 4)
            extra.append(max((len(dwords) for dwords in banks.values()), default=1) - 1)
    return extra


@pytest.mark.parametrize("name", lds.PLANS)
def test_random_addresses_against_a_count_by_hand(name):
    plan, generator = lds.phases(name), np.random.default_rng(len(name))
    for span, step in ((163840, 4), (1024, 4), (4096, 16), (2048, 1)):
        shape = (64,) if plan.accesses == 1 else (2, 64)
        addresses = generator.integers(0, (span - 16) // step, shape) * step
        active = generator.random(64) < generator.choice([0.1, 0.5, 1.0])
        report = lds.conflicts(name, addresses, active)
        assert [phase.extra_cycles for phase in report.phases] == counted_by_hand(plan, addresses, active)
        assert report.cycles == len(report.phases) + report.extra_cycles
        for phase in report.phases:
            assert len(phase.dwords) == len(phase.asking) == phase.extra_cycles + (phase.bank >= 0)
            assert all(dword % plan.banks == phase.bank for dword in phase.dwords)


def tile_addresses(block, chunk, swizzled):
    """Byte addresses of 16-byte column chunk + l/16 of row 16*block + l%16, in a tile of 128 bytes a row."""
    row, column = 16 * block + LANE % 16, chunk + LANE // 16
    return 4 * (32 * row + 4 * (column ^ (row % 8) if swizzled else column))


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("chunk", [0, 4])
def test_the_xor_swizzled_tile_reads_without_conflict(block, chunk):
    assert lds.conflicts("ds_read_b128", tile_addresses(block, chunk, True)).extra_cycles == 0


def test_the_plain_tile_does_not():
    report = lds.conflicts("ds_read_b128", tile_addresses(0, 0, False))
    assert [phase.extra_cycles for phase in report.phases] == [3, 3, 3, 3]
    assert report.explain() == (
        "ds_read_b128: 4 phases over 64 banks (published), 12 extra cycles\n"
        "worst: phase 0 (lanes 0-3, 12-15, 20-27), bank 0 is asked for 4 different dwords:"
        " lane 0 at 0x00000; lane 2 at 0x00100; lane 12 at 0x00600; lane 14 at 0x00700"
    )


def test_the_phase_decides_and_not_the_wave():
    """Lanes 0 and 4 are never served together by ds_read_b128, lanes 0 and 12 are."""
    addresses = 16 * (LANE % 4)
    for other, extra in ((4, 0), (12, 1)):
        active = np.isin(LANE, (0, other))
        apart = np.where(other == LANE, 256, addresses)
        assert lds.conflicts("ds_read_b128", apart, active).extra_cycles == extra


def test_one_dword_for_all_is_a_broadcast():
    assert lds.conflicts("ds_read_b32", np.full(64, 400)).extra_cycles == 0
    assert lds.conflicts("ds_read_u8", 400 + LANE % 4).extra_cycles == 0
    stride = lds.conflicts("ds_read_b32", 256 * LANE)
    assert (stride.extra_cycles, stride.worst.bank) == (63, 0)
    assert lds.conflicts("ds_read_b32", 260 * LANE).extra_cycles == 0


def test_reports_of_quiet_waves():
    idle = lds.conflicts("ds_write_b64", 0 * LANE, np.zeros(64, bool))
    assert (idle.extra_cycles, idle.cycles, idle.worst.bank) == (0, 4, -1)
    assert lds.conflicts("ds_read2_b32", np.stack([4 * LANE, 4 * LANE + 256])).explain() == (
        "ds_read2_b32: 2 phases over 64 banks (chosen), no bank conflict"
    )
    assert lds.conflicts("ds_read_b32", 4 * LANE).explain().startswith("ds_read_b32: 1 phase over 64 banks")
    assert [r.name for r in idle.rules][:2] == ["lds.geometry", "lds.phases.ds_write_b64"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lds.phases("ds_read_b129"), "nearest: ds_read_b12"),
        (lambda: lds.phases("v_exp_f32"), "is not a known access to LDS memory"),
        (lambda: lds.conflicts("ds_read_b32", LANE[:32]), r"shape \(64,\), got int64 of shape \(32,\)"),
        (lambda: lds.conflicts("ds_read2_b32", LANE), r"shape \(2, 64\)"),
        (lambda: lds.conflicts("ds_read_b32", LANE * 1.0), "integer byte addresses"),
        (lambda: lds.conflicts("ds_read_b32", LANE, np.ones(32, bool)), "mask of active lanes"),
        (lambda: lds.conflicts("ds_read_b64", 163840 - 4 * (LANE == 9)), "lane 0 accesses 8 bytes at 163840"),
        (lambda: lds.conflicts("ds_read_b64", -4 * (LANE == 9)), "lane 9 accesses 8 bytes at -4"),
    ],
)
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_idle_lane_may_point_anywhere():
    addresses = np.where(LANE == 5, -1, 4 * LANE)
    assert lds.conflicts("ds_read_b32", addresses, LANE != 5).extra_cycles == 0


def _assembly(plan):
    def registers(count, base):
        return f"v{base}" if count == 1 else f"v[{base}:{base + count - 1}]"

    name, count = plan.mnemonic, -(-plan.width // 4)
    offsets = " offset0:1 offset1:2" if plan.accesses == 2 else ""
    if name.startswith("ds_read"):
        return f"{name} {registers(count * plan.accesses, 4)}, v1{offsets}"
    sources = 2 if plan.accesses == 2 or "cmpst" in name or "mskor" in name else 1
    data = ", ".join([registers(count, 8)] * sources)
    return f"{name} {registers(count, 4) + ', ' if 'rtn' in name else ''}v1, {data}{offsets}"


def test_assembler_knows_every_instruction_and_width(assemble_lines):
    assert all(assemble_lines([_assembly(plan) for plan in lds.PLANS.values()]))
