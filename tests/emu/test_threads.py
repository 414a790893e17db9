"""Launches from several Python threads at once: on one device, one module, one array."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from kernel_builds import compile_c

from emu.dispatch import Device, RunOptions
from emu.memory import Memory
from gfx950.host_code import once

SOURCE = """
KERNEL number(GLOBAL u32* out, u32 n) { out[ITEM] = n + ITEM; }
KERNEL count(GLOBAL u32* out, u32 n) { for (u32 i = 0; i < n; i++) __atomic_fetch_add(out + i, 1, __ATOMIC_RELAXED); }
"""


def on_threads(count, work):
    """Runs work(0), work(1), ... at once. Raises what one of them raised."""
    problems, ready = [], threading.Barrier(count)

    def run(index):
        ready.wait()
        try:
            work(index)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def launches(module, index):
    """Launches on both engines with other turns; each has its own array."""
    for turn in range(1, 6):
        out = np.zeros(64, np.uint32)
        options = RunOptions(engine="host" if (index + turn) % 2 else "numpy", quantum=turn)
        module["number"][1, 64](out, 100 * index + turn, options=options)
        assert np.array_equal(out, np.arange(64) + 100 * index + turn)


def one_module():
    """A process of its own runs this: nothing has been compiled yet when the threads start."""
    device = Device()
    module = device.load(compile_c(SOURCE))
    on_threads(6, lambda index: launches(module, index))
    assert [b.name for b in device.memory.buffers] == ["code object"]
    on_threads(4, lambda index: launches(Device().load(compile_c(SOURCE)), index))


def test_launches_on_one_module_in_a_fresh_process(tmp_path):
    folder = Path(__file__).parent
    code = f"import sys; sys.path[:0] = {[str(folder), str(folder.parent / 'toolchain')]!r}\n"
    code += "import test_threads; test_threads.one_module()"
    for _ in range(2):  # the second time the translations are only loaded
        ended = subprocess.run(
            [sys.executable, "-c", code],
            env={"GFX950_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder.parents[1])},
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr


def test_atomics_of_several_launches_on_one_array():
    device, out = Device(), np.zeros(32, np.uint32)
    module = device.load(compile_c(SOURCE))
    on_threads(4, lambda _: [module["count"][2, 64](out, 32, options=RunOptions(threads=2)) for _ in range(5)])
    assert (out == 4 * 5 * 2 * 64).all()


def test_buffers_mapped_at_once_lie_apart():
    memory, addresses = Memory(), []

    def work(_):
        for _ in range(300):
            mine = [memory.map(np.zeros(8, np.uint8)) for _ in range(3)]
            addresses.extend(mine[:2])
            memory.unmap(mine[2])

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        on_threads(8, work)
    finally:
        sys.setswitchinterval(switching)
    assert len(set(addresses)) == len(addresses) == 4800
    assert [b.address for b in memory.buffers] == sorted(addresses)


def test_what_is_made_once_is_made_once():
    made = []

    @once
    def slow():
        """Slow."""
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    seen = []
    on_threads(8, lambda _: seen.append(slow()))
    assert len(made) == 1
    assert seen == made * 8
    assert slow.__doc__ == "Slow."
