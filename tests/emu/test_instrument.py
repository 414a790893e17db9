"""Variants that dump registers: they run the same, and show what an observer of the plain run sees."""

from __future__ import annotations

import ctypes
import io
import itertools

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hip_stand_in import stand_in
from instrumented_kernels import BEGINNING, ENDING, assembly_kernel, jobs, moments
from kernel_builds import HEADER
from llvm_tools import assembled, compiled, text_section

from emu import instrument
from emu.code_object import load
from emu.dispatch import RunOptions
from emu.errors import CodeObjectError, LaunchError
from emu.geometry import Geometry
from emu.instrument import Point, dump_bytes, instrumented, read_dump
from emu.instrument_registers import layout_of, usage
from emu.instrument_run import Job, run, run_to
from gfx950.isa.text import listing

JOBS = (
    "loops", "shared", "calls", "calls at -O0", "preloaded", "no_ids", "three", "only_x", "places", "modes", "matrices",
    "crowded",
)  # fmt: skip
QUICK = 7
BUFFER = 1 << 32


def last_wave(job: Job):
    group = tuple(n - 1 for n in job.geometry.workgroups)
    return group, job.geometry.waves_of(group) - 1


def offsets(code: bytes, kernel: str) -> list[int]:
    """Of all instructions from the kernel's first one on."""
    entry = load(code).kernel(kernel).entry
    return sorted(address - entry for address in usage(code, kernel).starts if address >= entry)


def spread(rows: list, count: int) -> list:
    """The first, the last and some between."""
    chosen = np.unique(np.linspace(0, len(rows) - 1, count).round().astype(int))
    return [rows[n] for n in chosen]


def check(job: Job, point: Point, expected, arrays, engine: str = "numpy", **how) -> None:
    done = run(job, point, RunOptions(engine=engine), **how)
    assert done.registers.differences(expected) == [], point
    for name, array in arrays.items():
        assert np.array_equal(done.arrays[name], array), (point, "the kernel's results changed")


@pytest.mark.parametrize("name", JOBS)
def test_a_dump_is_what_an_observer_sees_and_the_kernel_runs_the_same(name):
    job = jobs()[name]
    rows, arrays = moments(job, [last_wave(job)])
    for point, expected in spread(rows, 3 if name == "calls at -O0" else QUICK):
        check(job, point, expected, arrays)


@pytest.mark.parametrize("name", [name for name in JOBS if name not in ("calls at -O0", "three")])
def test_the_host_engine_dumps_the_same(name):
    job = jobs()[name]
    rows, arrays = moments(job, [last_wave(job)])
    for point, expected in spread(rows, 4)[1:3]:
        check(job, point, expected, arrays, "host")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in JOBS if name != "calls at -O0"])
def test_every_instruction_of_every_kernel(name):
    job = jobs()[name]
    rows, arrays = moments(job, [last_wave(job), ((0, 0, 0), 0)])
    by_offset = {}
    for point, expected in rows:
        by_offset.setdefault(point.offset, []).append((point, expected))
    for visits in by_offset.values():
        for point, expected in {p: (p, e) for p, e in (visits[0], visits[-1], visits[len(visits) // 2])}.values():
            check(job, point, expected, arrays)
            check(job, point, expected, arrays, "host")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["drafter_attention", "drafter_merge"])
def test_a_kernel_of_eight_waves_with_matrices_and_lds(name):
    from codegen.kernels.drafter_attention import cases, launch

    inputs = cases.build(cases.CASES["small"])
    outputs = launch._outputs(inputs)
    merge = name == "drafter_merge"
    grid = (launch._merge_grid if merge else launch._attention_grid)(inputs)
    arguments = (launch._merge_arguments if merge else launch._attention_arguments)(inputs, outputs)
    job = Job(launch.compiled().code_object, name, Geometry.of_blocks(grid, launch.THREADS), arguments)
    group, wave = last_wave(job)
    rows, arrays = moments(job, [(group, wave - 2)])
    for point, expected in spread(rows, 12):
        check(job, point, expected, arrays, "host")


@pytest.mark.parametrize("name", ["loops", "places", "matrices", "modes", "preloaded"])
def test_code_that_no_branch_reaches_is_reached_through_a_register(name, monkeypatch):
    monkeypatch.setattr(instrument, "BRANCH_REACH", 0)
    job = jobs()[name]
    rows, arrays = moments(job, [last_wave(job)])
    for point, expected in spread(rows, 4):
        check(job, point, expected, arrays)
    check(job, *spread(rows, 5)[3], arrays, "host")


@pytest.mark.slow
def test_every_place_is_reached_through_a_register(monkeypatch):
    monkeypatch.setattr(instrument, "BRANCH_REACH", 0)
    job = jobs()["places"]
    rows, arrays = moments(job, [last_wave(job)])
    for point, expected in rows:
        check(job, point, expected, arrays)


@pytest.mark.parametrize("name", ["loops", "calls", "matrices", "modes", "crowded"])
def test_no_free_vgpr_is_needed(name, monkeypatch):
    monkeypatch.setattr(instrument, "_vgprs", lambda *_: None)
    job = jobs()[name]
    plain = load(job.code).kernel(job.kernel)
    variant = instrumented(job.code, job.kernel, Point(0), BUFFER)
    descriptor = load(variant).kernel(job.kernel).descriptor
    assert (descriptor.vgprs, descriptor.accum_offset) == (plain.descriptor.vgprs, plain.descriptor.accum_offset)
    rows, arrays = moments(job, [last_wave(job)])
    for point, expected in spread(rows, 4)[1:]:
        check(job, point, expected, arrays)


def test_accumulators_move_together_when_a_vgpr_is_added():
    job = jobs()["matrices"]
    descriptor = load(instrumented(job.code, "matrices", Point(0), BUFFER)).kernel("matrices").descriptor
    assert (usage(job.code, "matrices").vgprs, usage(job.code, "matrices").agprs) == (24, 20)
    assert (descriptor.accum_offset, descriptor.vgprs) == (28, 48)


def test_a_full_compute_unit_keeps_its_registers():
    body = BEGINNING + "  v_mov_b32_e32 v127, v0\n  v_mov_b32_e32 v3, v127" + ENDING
    code = assembly_kernel("k", body, items=1024, next_free_vgpr=128, accum_offset=128)
    assert load(instrumented(code, "k", Point(0), BUFFER)).kernel("k").descriptor.vgprs == 128
    job = Job(code, "k", jobs()["loops"].geometry, (np.zeros(256, np.uint32), 1))
    rows, arrays = moments(job, [last_wave(job)])
    check(job, *rows[-1], arrays)


@pytest.mark.parametrize("engine", ["numpy", "host"])
def test_lds_is_dumped_on_request(engine):
    job = jobs()["shared"]
    rows, arrays = moments(job, [last_wave(job)], lds=512)
    for point, expected in spread(rows, 5)[1:]:
        check(job, point, expected, arrays, engine, lds=512)
    assert len(run_to(job, rows[-1][0], lds=300).lds) == 512
    assert rows[-1][1].lds.any()


def test_every_workgroup_and_wave_can_be_the_one():
    job = jobs()["loops"]
    for group, wave in itertools.product(((0, 0, 0), (1, 0, 0)), (0, 1)):
        rows, arrays = moments(job, [(group, wave)])
        point, expected = rows[len(rows) // 2]
        check(job, point, expected, arrays)
        assert expected.vgprs.any()


def test_waves_of_a_workgroup_in_three_dimensions():
    job = jobs()["three"]
    rows, arrays = moments(job, [((0, 1, 0), 0), ((0, 1, 0), 1)])
    for point, expected in (rows[5], rows[-5]):
        check(job, point, expected, arrays)
    assert {point.wave for point, _ in (rows[5], rows[-5])} == {0, 1}


@pytest.mark.parametrize("missed", [Point(0, 2), Point(0, 1, (2, 0, 0)), Point(0x48, 99)])
def test_a_point_that_is_never_reached(missed):
    job = jobs()["loops"]
    plain = run(job, None, RunOptions(engine="numpy"))
    if missed.workgroup[0] == 2:
        with pytest.raises(LaunchError, match="there is no workgroup"):
            run_to(job, missed)
        return
    done = run(job, missed)
    assert not done.registers.reached
    assert not done.registers.vgprs.any()
    assert np.array_equal(done.arrays[0], plain.arrays[0])


def test_the_callers_arrays_stay_as_they_are_and_read_only_ones_read_only():
    job, mine = jobs()["loops"], np.full(256, 7, np.uint32)
    one = Job(job.code, job.kernel, job.geometry, (mine, 3))
    assert run_to(one, Point(0x48)).reached
    assert (mine == 7).all()
    mine.flags.writeable = False
    with pytest.raises(Exception, match="which is read-only"):
        run_to(one, Point(0))


def test_the_current_device_is_as_it_was_afterwards(monkeypatch):
    """As torch in the same process expects."""
    with stand_in(devices=2) as s:
        monkeypatch.setenv("GFX950_DEVICE", "1")
        assert run_to(jobs()["loops"], Point(0x48), RunOptions(engine="device")).reached
        current = ctypes.c_int(-1)
        s.library.hipGetDevice(ctypes.byref(current))
    assert current.value == 0


# ---- the file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["loops", "matrices", "preloaded"])
def test_the_file_stays_a_code_object(name):
    job = jobs()[name]
    data = instrumented(job.code, job.kernel, Point(offsets(job.code, job.kernel)[1]), BUFFER)
    before, after = ELFFile(io.BytesIO(job.code)), ELFFile(io.BytesIO(data))
    loads = [s for s in after.iter_segments() if s["p_type"] == "PT_LOAD"]
    for low, high in itertools.pairwise(loads):
        assert low["p_vaddr"] + low["p_memsz"] <= high["p_vaddr"]
        assert low["p_offset"] + low["p_filesz"] <= high["p_offset"]
    assert all(s["p_vaddr"] % s["p_align"] == s["p_offset"] % s["p_align"] for s in loads)
    assert (loads[-1]["p_flags"], loads[-1]["p_memsz"]) == (5, loads[-1]["p_filesz"])
    for section in (".dynsym", ".hash", ".gnu.hash", ".dynstr", ".note", ".dynamic", ".symtab", ".strtab"):
        old, new = before.get_section_by_name(section), after.get_section_by_name(section)
        assert (old.data(), old["sh_addr"]) == (new.data(), new["sh_addr"]), section
    section = after.get_section_by_name(".text.instrument")
    assert (section["sh_addr"], section.data()) == (loads[-1]["p_vaddr"], loads[-1].data())
    header = after.header  # HIP takes the end of the section headers for the end of the file
    assert header["e_shoff"] + header["e_shnum"] * header["e_shentsize"] == len(data)


@pytest.mark.parametrize("name", ["crowded", "modes", "matrices", "preloaded"])
def test_llvm_assembles_the_new_code_to_the_same_bytes(name):
    job = jobs()[name]
    data = instrumented(job.code, job.kernel, Point(0), BUFFER + 0x1234, lds=512, block=(16, 4, 1))
    new = ELFFile(io.BytesIO(data)).get_section_by_name(".text.instrument").data()
    lines = [text for _, _, text in listing(new, 0)]
    assert text_section(assembled(".text\n" + "\n".join(lines) + "\n")) == new
    assert not any(line.startswith(".") for line in lines)
    assert ("buffer_store_dword" in "".join(lines)) == (name == "crowded")


def test_all_code_stays_where_it_was_but_for_the_point():
    job = jobs()["loops"]
    old, new = load(job.code), load(instrumented(job.code, "loops", Point(0x14), BUFFER))
    kernel = old.kernel("loops")
    changed = np.flatnonzero(old.image != new.image[: len(old.image)])
    changed = changed[changed >= ELFFile(io.BytesIO(job.code)).get_section_by_name(".note")["sh_addr"]]
    at, descriptor = kernel.entry + 0x14, kernel.descriptor_address
    assert {int(n) for n in changed} <= {*range(at, at + 4), *range(descriptor, descriptor + 64)}
    assert set(new.kernels) == set(old.kernels)
    assert not new.kernel("loops").disagreements
    assert new.kernel("no_ids").descriptor == old.kernel("no_ids").descriptor


def test_sizes_and_reading():
    job = jobs()["loops"]
    layout = layout_of(job.code, "loops")
    assert dump_bytes(job.code, "loops") == layout.nbytes == 256 * (3 + layout.vgprs + layout.agprs)
    assert dump_bytes(job.code, "loops", lds=1000) == layout.nbytes + 1024
    empty = read_dump(bytes(layout.nbytes), job.code, "loops")
    assert not empty.reached
    assert (empty.vgprs.shape, len(empty.sgprs)) == ((layout.vgprs, 64), layout.sgprs)
    with pytest.raises(ValueError, match="the dump has 5 bytes; this kernel's has"):
        read_dump(b"12345", job.code, "loops")


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_relocatable_objects_are_refused():
    data = compiled(HEADER + "KERNEL k(GLOBAL u32 *out) { *out = 1; }")
    with pytest.raises(CodeObjectError, match="a relocatable object cannot be instrumented") as error:
        instrumented(data, "k", Point(0), BUFFER)
    assert "link it first" in str(error.value)


def test_points_that_are_no_instruction():
    code = jobs()["loops"].code
    with pytest.raises(CodeObjectError, match=r"of kernel loops begins at offset 0x4; the one before .* 0x0"):
        instrumented(code, "loops", Point(4), BUFFER)
    with pytest.raises(CodeObjectError, match="no instruction of kernel loops begins at offset 0x123456"):
        instrumented(code, "loops", Point(0x123456), BUFFER)


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (Point(0, 0), "occurrences count from 1 to 4294967295"),
        (Point(0, 1 << 32), "occurrences count from 1 to 4294967295"),
        (Point(0, 1, (0, 0)), "three numbers from 0 on"),
        (Point(0, 1, (0, 0, 0), -1), "waves from 0"),
        (Point(0, 1, (0, -1, 0)), "three numbers from 0 on"),
        (Point(0, 1, (0, 0, 0), 2), "a workgroup of .* work-items has 2 waves"),
    ],
)
def test_points_out_of_range(point, words):
    with pytest.raises(ValueError, match=words):
        instrumented(jobs()["loops"].code, "loops", point, BUFFER, block=(128, 1, 1))


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (Point("0x10"), "the offset must be a whole number"),
        (Point(8.0), "the offset must be a whole number"),
        (Point(0, None), "the occurrence must be a whole number"),
        (Point(0, 1, (0, 0, 0), 1.5), "the wave must be a whole number"),
        (Point(0, 1, 0), "a workgroup is given by three whole numbers"),
        (Point(0, 1, (1.0, 0, 0)), "a workgroup is given by three whole numbers"),
    ],
)
def test_points_that_are_no_numbers(point, words):
    job = jobs()["loops"]
    with pytest.raises(TypeError, match=words):
        instrumented(job.code, "loops", point, BUFFER, block=(128, 1, 1))
    with pytest.raises(TypeError, match=words):
        run_to(job, point)


@pytest.mark.parametrize("address", [0, 6, 1 << 48])
def test_addresses_out_of_range(address):
    with pytest.raises(ValueError, match="it must be a multiple of 4 below 1 << 48"):
        instrumented(jobs()["loops"].code, "loops", Point(0), address)


def test_too_many_sgprs():
    code = assembly_kernel("k", BEGINNING + "s_mov_b32 s95, 0\n v_mov_b32_e32 v3, 0" + ENDING, next_free_sgpr=96)
    with pytest.raises(CodeObjectError, match="the code of kernel k names 96 SGPRs") as error:
        instrumented(code, "k", Point(0), BUFFER)
    assert "amdgpu_num_sgpr" in str(error.value)
    fits = assembly_kernel("k", BEGINNING + "s_mov_b32 s91, 0\n v_mov_b32_e32 v3, 0" + ENDING, next_free_sgpr=96)
    job = Job(fits, "k", jobs()["loops"].geometry, (np.zeros(256, np.uint32), 1))
    rows, arrays = moments(job, [last_wave(job)])
    check(job, *rows[-1], arrays)


def test_a_variant_cannot_be_instrumented_again():
    variant = instrumented(jobs()["loops"].code, "loops", Point(0), BUFFER)
    with pytest.raises(CodeObjectError, match="no program header to spare"):
        instrumented(variant, "no_ids", Point(0), BUFFER)


def test_forks_are_refused():
    body = BEGINNING + "s_mov_b64 s[8:9], 0\n s_cbranch_i_fork s[8:9], next\nnext:\n v_mov_b32_e32 v3, 0" + ENDING
    code = assembly_kernel("k", body)
    offset = offsets(code, "k")[5]
    with pytest.raises(CodeObjectError, match=r"`s_cbranch_i_fork .*` cannot be displaced"):
        instrumented(code, "k", Point(offset), BUFFER)
