"""S_CBRANCH_G_FORK, S_CBRANCH_I_FORK and S_CBRANCH_JOIN on both engines: who runs in which order, and EXEC after it."""

import numpy as np
import pytest
from kernel_builds import assemble_kernel

from emu.dispatch import Device, RunOptions

ENGINES = ["host", "numpy"]
ALL = (1 << 64) - 1
START = """
s_load_dwordx2 s[40:41], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 29, 3), 1
v_mov_b32 v2, 0
s_mov_b32 s42, 0
s_mov_b32 s39, 1
"""
END = """
v_lshlrev_b32 v40, 3, v0
v_mov_b32 v3, s42
s_getreg_b32 s43, hwreg(HW_REG_MODE, 29, 3)
v_lshl_or_b32 v2, s43, 28, v2
global_store_dwordx2 v40, v[2:3], s[40:41]
s_endpgm
"""


def run(engine, text):
    """What every lane did (the sum of its steps), how often scalar code passed which step, and CSP at the end."""
    out = np.zeros((64, 2), np.uint32)
    device = Device(RunOptions(engine=engine))
    kernarg = np.array([device.map(out)], np.uint64).tobytes()
    device.load(assemble_kernel(START + text + END))["k"][1, 64](kernarg)
    (log,) = set(out[:, 1].tolist())
    (pointer,) = set((out[:, 0] >> 28).tolist())
    return (out[:, 0] & 0xFFFFFFF).tolist(), log, pointer


def step(number):
    """Each lane adds the step; the log of the scalar code gets another digit."""
    return f"v_add_u32 v2, {1 << number}, v2\ns_lshl_b32 s42, s42, 4\ns_or_b32 s42, s42, {number}\n"


def fork(mask, kind, label):
    text = f"s_mov_b32 s30, {mask & 0xFFFFFFFF:#x}\ns_mov_b32 s31, {mask >> 32:#x}\n"
    if kind == "i":
        return text + f"s_cbranch_i_fork s[30:31], {label}\n"
    return f"""{text}s_getpc_b64 s[32:33]
after_{label}:
s_add_u32 s32, s32, {label}-after_{label}
s_addc_u32 s33, s33, 0
s_cbranch_g_fork s[30:31], s[32:33]
"""


def diamond(mask, kind):
    """A fork and its join, after which the program has to restore EXEC itself: the second side's is left."""
    return f"""
s_mov_b64 s[34:35], exec
{fork(mask, kind, "jump")}
{step(1)}
s_branch meet
jump:
{step(2)}
meet:
{step(3)}
s_cbranch_join s39
s_mov_b64 exec, s[34:35]
{step(4)}
"""


@pytest.mark.parametrize("kind", ["i", "g"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mask", [0xFFFFF, ALL ^ 0xFFFFF, 0xFFFFFFFF, ALL, 0], ids=["20", "44", "32", "all", "none"])
def test_both_sides_run_once_the_smaller_first(engine, mask, kind):
    """[4.6] One side alone pushes nothing; of two equal sides the jump's runs first."""
    lanes, log, pointer = run(engine, diamond(mask, kind))
    jumps = [mask >> lane & 1 for lane in range(64)]
    assert lanes == [(1 << 2 if j else 1 << 1) + (1 << 3) + (1 << 4) for j in jumps]
    count = sum(jumps)
    side = {True: "23", False: "13"}
    order = [count <= 32, count > 32] if 0 < count < 64 else [count == 64]
    assert f"{log:x}" == "".join(side[o] for o in order) + "4"
    assert pointer == 1, "every push was popped"


@pytest.mark.parametrize("engine", ENGINES)
def test_six_deep(engine):
    """A chain of forks, each of which splits off one lane: the deepest stack of the manual, s[4:27] here."""
    masks = [ALL ^ ((1 << 10 * depth + 1) - 1) for depth in range(6)]  # lanes 10 * depth and below stay
    text = ""
    for number, mask in enumerate(masks):
        text += f"{fork(mask, 'i', f'deeper{number}')}{step(1)}s_branch meet\ndeeper{number}:\n"
    lanes, log, pointer = run(engine, f"{text}{step(2)}meet:\ns_cbranch_join s39\ns_mov_b64 exec, -1\n{step(3)}")
    assert lanes == [(1 << 1 if lane <= 50 else 1 << 2) + (1 << 3) for lane in range(64)]
    assert f"{log:x}".count("1") == 6
    assert f"{log:x}".count("2") == 1
    assert f"{log:x}".endswith("3")
    assert pointer == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_inactive_lanes_stay_out(engine):
    """The mask counts inside EXEC only: 3 of 8 lanes jump, the 5 others do not, and the rest sleep throughout."""
    text = f"s_mov_b64 exec, 0xff\n{diamond(ALL ^ 0b11111, 'i')}s_mov_b64 exec, -1\n"
    lanes, log, _ = run(engine, text)
    assert lanes == [0b11010 if n < 5 else 0b11100 if n < 8 else 0 for n in range(64)]
    assert f"{log:x}" == "23134"
