"""The cache of translations: found again, made again when damaged, and never in the way."""

import multiprocessing

import numpy as np
import pytest
from kernel_builds import assemble_kernel, compile_c

from emu import host_machine
from emu.dispatch import Device, RunOptions
from gfx950.host_code import HostCode, Translation, cache_folder

TEXT = "define i64 @seven() {\n  ret i64 7\n}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GFX950_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def add(key="k"):
    """(notes, whether the text was asked for, whether the function is there)."""
    made = []
    code = HostCode()
    notes = code.add(lambda: made.append(1) or Translation(TEXT, {"n": [1]}), key)
    return notes, bool(made), code.address("seven") != 0


def test_the_second_time_nothing_is_made(folder):
    assert cache_folder() == folder
    assert add() == ({"n": [1]}, True, True)
    assert add() == ({"n": [1]}, False, True)
    assert add("other")[1]


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b[:10], lambda b: b"", lambda b: b[:50] + b"!" + b[51:], lambda b: b + b"x"]
)
def test_damaged_files_are_made_again(folder, damage):
    add()
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert add() == ({"n": [1]}, True, True)
    assert add() == ({"n": [1]}, False, True)


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("GFX950_CACHE", str(blocked / "below"))
    assert add() == ({"n": [1]}, True, True)
    assert add() == ({"n": [1]}, True, True)


def _in_process(queue):
    queue.put(add("same"))


def test_processes_may_write_at_once(folder):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=_in_process, args=(queue,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert [queue.get(timeout=60)[2] for _ in workers] == [True, True]
    for worker in workers:
        worker.join()
    assert [p.suffix for p in folder.iterdir()] == [".gfx950"]


CALLS = """
s_mov_b32 s20, 0
s_getpc_b64 s[4:5]
here:
s_add_u32 s4, s4, function-here
s_addc_u32 s5, s5, 0
s_swappc_b64 s[6:7], s[4:5]
s_swappc_b64 s[6:7], s[4:5]
s_cmp_eq_u32 s20, 2
s_cbranch_scc1 fine
.long 0xed9f3cd3
fine:
s_endpgm
function:
s_add_u32 s20, s20, 1
s_setpc_b64 s[6:7]
"""


def test_a_warm_start_decodes_and_emits_nothing(folder, monkeypatch):
    source = "KERNEL k(GLOBAL u32 *out, u32 n) { for (u32 i = 0; i < n; i++) if (ITEM % 3 < i) out[ITEM] += i; }"

    def run():
        out = np.zeros(100, np.uint32)
        report = Device().load(compile_c(source))["k"][1, 100](out, np.uint32(5))
        return out.tobytes(), report.instructions

    first = run()
    monkeypatch.setattr(host_machine, "discover", None)
    monkeypatch.setattr(host_machine, "module_text", None)
    assert run() == first


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_calls_and_returns(folder, engine):
    data = assemble_kernel(CALLS)
    for _ in range(2):
        report = Device().load(data)["k"][1, 64](b"", options=RunOptions(engine=engine))
        assert report.instructions == 4 + 2 + 4 + 3
