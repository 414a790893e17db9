"""What goes wrong in a launch: the message says what and where, and the device stays usable."""

import numpy as np
import pytest
from kernel_builds import assemble_kernel, compile_c

from emu.dispatch import Device, RunOptions
from emu.errors import EmulatorError, LaunchError, MemoryFault, NoProgress, UnknownInstruction
from emu.observers import BankConflicts
from gfx950.isa.text import assemble

ENGINES = pytest.mark.parametrize("engine", ["host", "numpy"])
SOURCE = """
KERNEL touch(GLOBAL const u32 *in, GLOBAL u32 *out, u32 shift) {
  u32 i = GROUP * ITEMS + ITEM; out[i] = in[i + shift] + 1; }
KERNEL spin(GLOBAL volatile u32 *flag) { while (*flag == 0) ; }
KERNEL local(GLOBAL u32 *out, u32 n) {
  volatile u32 table[40]; for (u32 i = 0; i < 40; i++) table[i] = i * n; out[ITEM] = table[n % 40]; }
"""


def run(data, name, grid, block, *arguments, engine="host", **options):
    """Launches, checks that the device is as before, and that it still works."""
    device = Device()
    module = device.load(data)
    before = device.memory.buffers
    try:
        return module[name][grid, block](*arguments, options=RunOptions(engine=engine, **options))
    finally:
        assert device.memory.buffers == before
        values, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
        good = device.load(compile_c(SOURCE))["touch"]
        good[1, 64](values, out, np.uint32(0), options=RunOptions(engine=engine))
        assert np.array_equal(out, values + 1)


def assembled(body, directives=""):
    return assemble_kernel(body, directives)


@ENGINES
def test_a_load_past_the_end_names_kernel_workgroup_wave_lane_and_buffer(engine):
    values, out = np.zeros(300, np.uint32), np.zeros(384, np.uint32)
    with pytest.raises(MemoryFault) as caught:
        run(compile_c(SOURCE), "touch", 3, 128, values, out, np.uint32(10), engine=engine)
    error = caught.value
    assert (error.kernel, error.workgroup, error.wave, error.lane) == ("touch", (2, 0, 0), 0, 34)
    assert error.instruction == "global_load_dword v4, v[2:3], off"
    assert error.pc % 4 == 0
    assert 'a lane loads 4 bytes at 0 bytes past the end of buffer "argument 0" (1200 bytes) (30 lanes' in str(error)
    assert "check the index arithmetic" in error.advice
    assert out[: 2 * 128].all()  # the workgroups before ran
    assert not out[2 * 128 :].any()


@ENGINES
def test_a_store_into_a_read_only_array_writes_nothing(engine):
    out = np.zeros(64, np.uint32)
    out.flags.writeable = False
    with pytest.raises(
        MemoryFault, match=r'a lane stores 4 bytes at byte 0 of buffer "argument 1".*read-only'
    ) as caught:
        run(compile_c(SOURCE), "touch", 1, 64, np.arange(64, dtype=np.uint32), out, np.uint32(0), engine=engine)
    assert caught.value.instruction == "global_store_dword v[0:1], v4, off"
    assert not out.any()


@ENGINES
def test_a_store_with_one_bad_lane_writes_nothing(engine):
    out = np.zeros(63, np.uint32)
    with pytest.raises(MemoryFault, match="a lane stores 4 bytes at 0 bytes past the end") as caught:
        run(compile_c(SOURCE), "touch", 1, 64, np.arange(64, dtype=np.uint32), out, np.uint32(0), engine=engine)
    assert caught.value.lane == 63
    assert not out.any()


@ENGINES
def test_a_scalar_load_from_nowhere_names_the_address(engine):
    body = "s_mov_b32 s4, 16\ns_mov_b32 s5, 0\ns_load_dwordx2 s[6:7], s[4:5], 0x8\ns_endpgm"
    with pytest.raises(MemoryFault, match="a scalar load reads 8 bytes at 24 bytes past the null pointer") as caught:
        run(assembled(body), "k", 1, 64, b"", engine=engine)
    assert (caught.value.lane, caught.value.address) == (None, 24)
    assert caught.value.instruction == "s_load_dwordx2 s[6:7], s[4:5], 0x8"


@ENGINES
def test_with_threads_the_error_is_that_of_the_first_workgroup(engine):
    values, out = np.zeros(500, np.uint32), np.zeros(64 * 40, np.uint32)
    for _ in range(3):
        threads = 2 if engine == "host" else 1
        with pytest.raises(MemoryFault) as caught:
            run(compile_c(SOURCE), "touch", 40, 64, values, out, np.uint32(0), engine=engine, threads=threads)
        assert caught.value.workgroup == (7, 0, 0)
        assert caught.value.lane == 500 - 7 * 64


@ENGINES
def test_unknown_bytes_are_no_error_before_they_are_reached(engine):
    skipped = assembled("s_branch 1\n.long 0xbfffffff\ns_endpgm")
    assert run(skipped, "k", 1, 64, b"", engine=engine).instructions == 2
    reached = assembled("v_mov_b32 v1, 0\nv_mov_b32 v2, 0\n.long 0xbe80fe00\ns_endpgm")
    with pytest.raises(UnknownInstruction, match=r"unknown SOP1 opcode 254 in 0xbe80fe00.*nearest known: ") as caught:
        run(reached, "k", 1, 64, b"", engine=engine)
    assert caught.value.pc % 256 == 8
    with pytest.raises(UnknownInstruction, match=r"0xed9f3cd3: it belongs to no gfx950 instruction format"):
        run(assembled(".long 0xed9f3cd3\ns_endpgm"), "k", 1, 64, b"", engine=engine)


@ENGINES
def test_code_that_runs_off_its_end(engine):
    with pytest.raises(EmulatorError, match="the program counter left the code") as caught:
        run(assembled("v_mov_b32 v1, 0"), "k", 1, 64, b"", engine=engine)
    assert "s_endpgm" in caught.value.advice
    assert "a multiple of 4 from 0x" in caught.value.expected


@ENGINES
@pytest.mark.parametrize(
    "body",
    [
        "s_branch 0x7000",
        "s_branch 0x8000",
        "s_mov_b64 s[4:5], 64\ns_setpc_b64 s[4:5]",
        "s_mov_b64 s[4:5], -1\ns_setpc_b64 s[4:5]",
        "s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 2\ns_setpc_b64 s[4:5]",
    ],
)
def test_jumps_outside_and_off_alignment(engine, body):
    with pytest.raises(EmulatorError, match="the program counter left the code") as caught:
        run(assembled(body + "\ns_endpgm"), "k", 1, 64, b"", engine=engine)
    assert caught.value.kernel == "k"
    assert caught.value.wave == 0


@ENGINES
@pytest.mark.parametrize("quantum", [1, 32, 1 << 50])
def test_an_endless_loop_ends_at_the_step_limit(engine, quantum):
    flag = np.zeros(1, np.uint32)
    with pytest.raises(NoProgress, match="the step limit of 5000 wave instructions is used up") as caught:
        run(compile_c(SOURCE), "spin", 1, 128, flag, engine=engine, step_limit=5000, quantum=quantum)
    assert "look for a wait that nobody ends" in caught.value.advice
    assert caught.value.location.pc is not None


@ENGINES
def test_the_step_limit_is_exact(engine):
    body = "\n".join(["v_mov_b32 v1, 0"] * 99 + ["s_endpgm"])
    assert run(assembled(body), "k", 1, 128, b"", engine=engine, step_limit=200).instructions == 200
    with pytest.raises(NoProgress):
        run(assembled(body), "k", 1, 128, b"", engine=engine, step_limit=199)


@ENGINES
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (".long 0x7e0202d1", "scalar source code 209 is reserved"),
        (".long 0xd9fe0000\n.long 0xfd000000", r"4 registers from v253 on reach past the last one \(255\)"),
        (".long 0xdbfe0000\n.long 0xfe000000", "4 registers from a254 on reach past"),
        ("v_readlane_b32 s4, v1, s2\n.long 0xd2890004\n.long 0x00020501", "must be scalar and is v2"),
    ],
)
def test_forms_that_are_not_built(engine, body, message):
    with pytest.raises(UnknownInstruction, match=message):
        run(assembled(body + "\ns_endpgm"), "k", 1, 64, b"", engine=engine)


@ENGINES
@pytest.mark.parametrize(("direction", "result"), list(enumerate((0x3F800000, 0x3F800001, 0x3F800000, 0x3F800000))))
def test_a_launch_with_another_rounding(engine, direction, result):
    body = """
v_lshlrev_b32 v0, 2, v0
v_mov_b32 v1, 1.0
v_add_f32 v1, 1, v1
s_mov_b64 s[0:1], 0
s_mov_b32 s1, 1
global_store_dword v0, v1, s[0:1]
s_endpgm
"""
    directives = f".amdhsa_float_round_mode_32 {direction}\n.amdhsa_float_denorm_mode_32 3"
    out, device = np.zeros(64, np.uint32), Device()
    assert device.map(out, "out") == 1 << 32
    device.load(assembled(body, directives))["k"][1, 64](b"", options=RunOptions(engine=engine))
    assert (out == result).all()


def test_too_much_lds():
    device = Device()
    kernel = device.load(compile_c(SOURCE))["spin"]
    before = device.memory.buffers
    with pytest.raises(LaunchError, match=r"asks for 0 .* 163841 bytes of LDS"):
        kernel[1, 64](np.ones(1, np.uint32), dynamic_lds=163841)
    assert device.memory.buffers == before
    kernel[1, 64](np.ones(1, np.uint32), dynamic_lds=163840)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "gpu"}, "there is no engine 'gpu'\n  expected: host or numpy"),
        ({"threads": 0}, "threads is 0"),
        ({"quantum": -1}, "quantum is -1"),
        ({"step_limit": 1.5}, "step_limit is 1.5"),
        ({"observers": (BankConflicts(),)}, "observers see single instructions"),
        ({"observers": 5, "engine": "numpy"}, "observers is 5.*which have the methods before and after"),
        ({"observers": (1,), "engine": "numpy"}, r"observers is \(1,\)"),
        ({"threads": 10**9}, "threads is 1000000000.*at most 1024"),
        ({"watch": (-1, 8)}, r"watch is \(-1, 8\)"),
        ({"watch": (0, 1 << 64)}, "watch is "),
    ],
)
def test_options_that_mean_nothing(options, message):
    with pytest.raises(LaunchError, match="(?s)" + message):
        RunOptions(**options)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.zeros(4, np.uint32),), LaunchError, "takes 3 arguments and got 1"),
        ((np.zeros(4, np.uint32), np.zeros((4, 4), np.uint32)[:, 1], np.uint32(0)), ValueError, "not C-contiguous"),
        ((np.zeros(4, np.uint32), "text", np.uint32(0)), LaunchError, "argument 1 .*got str"),
        ((np.zeros(4, np.uint32), np.zeros(4, ">u4"), np.uint32(0)), ValueError, "big-endian"),
        ((np.zeros(4, np.uint32), np.zeros(4, np.uint32), 1 << 40), LaunchError, "argument 2"),
    ],
)
def test_argument_mistakes_leave_nothing_mapped(arguments, error, message):
    device = Device()
    module = device.load(compile_c(SOURCE))
    before = device.memory.buffers
    with pytest.raises(error, match=message):
        module["touch"][1, 64](*arguments)
    assert device.memory.buffers == before


def test_a_geometry_that_is_none():
    kernel = Device().load(compile_c(SOURCE))["touch"]
    with pytest.raises(
        LaunchError, match=r"the geometry is 4\n  where: kernel touch\n  expected: kernel\[workgroups, threads\]"
    ):
        kernel[4]
    with pytest.raises(LaunchError, match="has 2048 work-items"):
        kernel[1, 2048](np.zeros(4, np.uint32), np.zeros(4, np.uint32), np.uint32(0))


def test_a_watch_needs_an_argument():
    kernel = Device().load(compile_c(SOURCE))["touch"]
    values, out = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    with pytest.raises(LaunchError, match="byte 0 of the watched array cannot be watched"):
        kernel[1, 64](values, out, np.uint32(0), watch=(np.zeros(4), 0))
    with pytest.raises(LaunchError, match="byte 256 of the watched array"):
        kernel[1, 64](values, out, np.uint32(0), watch=(out, 256))


ODD = {
    "v[8:9]": "flat_atomic_add_x2 v[8:9], v[2:3], v[4:5] sc0",
    "v[10:11]": "global_load_dwordx2 v[10:11], v0, s[0:1] offset:-4096",
    "s[8:9]": "s_atomic_add_x2 s[8:9], s[0:1], 0x0 glc",
    "v[12:13]": "ds_add_rtn_u64 v[12:13], v0, v[4:5]",
}


@ENGINES
@pytest.mark.parametrize("registers", ODD)
def test_registers_that_nothing_can_return_to_are_refused_before_memory_is_touched(engine, registers):
    code = bytearray(assemble(ODD[registers]))
    code[0 if registers[0] == "s" else 7] ^= 0x40 if registers[0] == "s" else 1  # the next register, an odd one
    words = ", ".join(f"0x{int.from_bytes(code[at : at + 4], 'little'):x}" for at in range(0, len(code), 4))
    setup = "s_load_dwordx2 s[0:1], s[0:1], 0x0\nv_mov_b32 v2, s0\nv_mov_b32 v3, s1\nv_mov_b32 v4, 1\n"
    data = assemble_kernel(f"{setup}.long {words}\ns_endpgm", ".amdhsa_group_segment_fixed_size 512")
    device, out = Device(), np.zeros(64, np.uint32)
    with pytest.raises(UnknownInstruction, match=r"starts an operand of 2 registers: it is odd"):
        device.load(data)["k"][1, 64](device.map(out).to_bytes(8, "little"), options=RunOptions(engine=engine))
    assert not out.any()
