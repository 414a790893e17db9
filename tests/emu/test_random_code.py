"""Random instruction streams, known and garbage: neither engine crashes or hangs, and both end alike."""

import numpy as np
import pytest
from kernel_builds import assemble_kernel, with_code
from random_streams import EPILOGUE, PROLOGUE, ROOM, random_code

from emu.dispatch import Device, RunOptions
from emu.errors import EmulatorError, NoProgress

BUFFER = 1 << 32  # the first buffer of a device lies here


def run(data, engine, seed):
    """How it ended, and the buffer."""
    buffer = np.zeros(16384, np.uint8)
    buffer[12288:] = np.arange(4096) % 251
    device = Device()
    assert device.map(buffer, "buffer") == BUFFER
    options = RunOptions(engine=engine, step_limit=1000, quantum=(1, 8, 32)[seed % 3])
    try:
        device.load(data)["k"][1, (1, 64, 100)[seed // 3 % 3]](bytes(64), options=options)
    except NoProgress as error:
        ending = error.what  # which wave it names depends on the schedule
    except EmulatorError as error:
        ending = f"{type(error).__name__}: {error}"
    else:
        return "done", buffer.tobytes()
    assert [b.name for b in device.memory.buffers] == ["buffer", "code object"]
    return ending, b""


@pytest.fixture(scope="module")
def template():
    room = "s_nop 7\n" * ROOM
    return assemble_kernel(PROLOGUE + room + EPILOGUE, ".amdhsa_group_segment_fixed_size 4096")


def check(template, seed):
    code = random_code(np.random.default_rng(seed))
    data = with_code(template, bytes.fromhex("070080bf") * ROOM, code)
    on_numpy, on_host = (run(data, engine, seed) for engine in ("numpy", "host"))
    assert on_numpy[0] == on_host[0], (seed, code.hex())
    assert on_numpy[1] == on_host[1], (seed, code.hex())
    return on_host[0]


def test_random_code_ends_alike_on_both_engines(template):
    endings = [check(template, seed) for seed in range(30)]
    assert endings.count("done") > 2
    assert any("MemoryFault" in e for e in endings)
    assert any("UnknownInstruction" in e for e in endings)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_much_random_code(template, block):
    for seed in range(100 * block + 30, 100 * block + 130):
        check(template, seed)
