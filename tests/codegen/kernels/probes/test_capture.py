"""The capture file under damage, and the run that is broken off."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

from codegen.kernels.probes import capture, run
from codegen.kernels.probes.capture import CaptureError, Origin, entry_of, make, read, write
from codegen.kernels.probes.lane_forms import Form, forms_step, lane_ids, under_patterns
from codegen.kernels.probes.probe import SIZES, Probe
from codegen.kernels.probes.run import run_probes
from emu.dispatch import RunOptions

ORIGIN = Origin("device", "AMD Instinct MI355X", rocm="7.1", driver="6.16")
OUTPUTS = {
    "P1/words": np.arange(12, dtype=np.uint32).reshape(3, 4),
    "P1/bytes": np.array([[1], [255]], np.uint8),
    "P2/none": np.zeros((0, 64), np.float32),
}


def small(size="quick", origin=ORIGIN):
    steps = [(entry_of(name, "1" * 64, "2" * 64, output), output) for name, output in OUTPUTS.items()]
    return make(origin, size, steps)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "small.capture"
    write(small(), path)
    return path


def refused(path, *says):
    with pytest.raises(CaptureError) as caught:
        read(path)
    text = str(caught.value)
    assert str(path) in text
    for words in says:
        assert words in text, text
    return text


def index_of(path):
    with zipfile.ZipFile(path) as zipped:
        return json.loads(zipped.read("capture.json")), {n: zipped.read(n) for n in zipped.namelist()}


def rewrite(path, index=None, members=None, method=zipfile.ZIP_DEFLATED):
    """The file with another index or other members. index: a function that changes it, or bytes."""
    content, found = index_of(path)
    if callable(index):
        index(content)
        found["capture.json"] = json.dumps(content).encode()
    elif index is not None:
        found["capture.json"] = index
    with zipfile.ZipFile(path, "w", method) as zipped:
        for name, data in (found | (members or {})).items():
            if data is not None:
                zipped.writestr(name, data)


def test_what_is_written_is_read(path):
    found = read(path)
    assert (found.origin, found.size, found.digest) == (ORIGIN, "quick", small().digest)
    for name, output in OUTPUTS.items():
        again = found.read(name)
        assert again.dtype == output.dtype
        assert not again.flags.writeable
        np.testing.assert_array_equal(again, output)
    with pytest.raises(CaptureError, match=r"device AMD Instinct MI355X.*no step P1/other"):
        found.read("P1/other")


def test_two_writes_give_the_same_bytes(path, tmp_path):
    write(small(), tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == path.read_bytes()
    assert small("full").digest != small().digest != small(origin=Origin("emulator", "gfx950 1")).digest


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_every_truncated_length_is_refused(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refused(path, "is no capture")


def read_or_none(path):
    try:
        return read(path)
    except CaptureError:
        return None


@pytest.mark.parametrize(("flip", "step"), [(0x01, 3), (0x80, 3), (0xFF, 1)])
def test_a_flipped_byte_is_refused_or_changes_nothing(path, flip, step):
    """Zip has bytes that say nothing of the content: times, versions, the attributes of a file."""
    whole, harmless = path.read_bytes(), 0
    for place in range(0, len(whole), step):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
        found = read_or_none(path)
        harmless += found is not None
        assert found in (None, small())
    assert harmless < len(whole) / step / 3


def test_bytes_of_outputs_and_of_the_index_are_never_harmless(path):
    rewrite(path, method=zipfile.ZIP_STORED)
    whole = path.read_bytes()
    starts = {b"{": len(index_of(path)[1]["capture.json"]), OUTPUTS["P1/words"].tobytes(): 48}
    for first, length in starts.items():
        begin = whole.index(first)
        for place in range(begin, begin + length, 5):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            refused(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"{}", b"PK\x05\x06" + bytes(18), b"\x00" * 100000])
def test_no_zip_at_all(path, content):
    path.write_bytes(content)
    refused(path, "is no capture")


def test_no_file_and_a_folder(tmp_path):
    refused(tmp_path / "nowhere", "is no capture")
    refused(tmp_path, "is no capture")


def test_a_foreign_zip(path):
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("word/document.xml", "<w/>")
    refused(path, "has no capture.json")


@pytest.mark.parametrize("index", [
    b"", b"[]", b"null", b"3", b'"x"', b"\xff\xfe", b"{", b"[" * 100000, b'{"a":' * 100000, b"1" * 5000, b"{}",
    b'{"schema": "gfx950.capture/1"}', b'{"schema": ["gfx950.capture/1"]}', b"NaN",
])  # fmt: skip
def test_an_index_that_is_none(path, index):
    rewrite(path, index)
    refused(path, "capture.json" if index[:3] != b'{"s' else "")


def test_another_schema(path):
    rewrite(path, lambda index: index.update(schema="gfx950.capture/2"))
    refused(path, "'gfx950.capture/2'", "reads 'gfx950.capture/1'")


WRONG_STEPS = [
    {"shape": 3}, {"shape": None}, {"shape": [-1, -4]}, {"shape": [2.0]}, {"shape": [True]}, {"shape": ["3"]},
    {"shape": [1] * 9}, {"shape": [[3]]}, {"dtype": "O"}, {"dtype": "<u3"}, {"dtype": "garbage"}, {"dtype": "<f8,<f8"},
    {"dtype": None}, {"dtype": "<U4"}, {"name": 7}, {"name": None}, {"name": ["P1"]}, {"output": "12"},
    {"output": None}, {"inputs": 5}, {"code": "Z" * 64}, {"more": 1},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_STEPS, ids=str)
def test_a_step_that_is_none(path, wrong):
    rewrite(path, lambda index: index["steps"][0].update(wrong))
    refused(path, "capture.json does not read")


@pytest.mark.parametrize("wrong", [
    {"origin": None}, {"origin": []}, {"origin": {}}, {"origin": {"kind": "device", "name": 3}}, {"size": 3},
    {"origin": {"kind": "device", "name": "x", "owner": "y"}}, {"steps": None}, {"steps": 3}, {"steps": [3]},
    {"steps": [None]}, {"steps": {"a": 1}}, {"steps": [[]]},
], ids=str)  # fmt: skip
def test_an_index_with_wrong_parts(path, wrong):
    rewrite(path, lambda index: index.update(wrong))
    refused(path, "capture.json does not read")


@pytest.mark.parametrize("key", ["origin", "size", "steps"])
def test_an_index_without_a_part(path, key):
    rewrite(path, lambda index: index.pop(key))
    refused(path, "capture.json does not read", key)


def test_a_wrong_digest(path):
    rewrite(path, lambda index: index["steps"][1].update(output="0" * 64))
    refused(path, "P1/bytes", "not what its digest says")


def test_another_output_than_the_digest_is_of(path):
    rewrite(path, members={"steps/0": bytes(48)})
    refused(path, "P1/words", "not what its digest says")
    rewrite(path, members={"steps/0": OUTPUTS["P1/words"].tobytes() + b"x"})
    refused(path, "P1/words", "not what its digest says")


def test_a_missing_and_a_further_member(path, tmp_path):
    shutil.copy(path, tmp_path / "other")
    rewrite(path, members={"steps/1": None})
    refused(path, "the output of step P1/bytes is missing")
    rewrite(tmp_path / "other", members={"steps/3": b"x"})
    refused(tmp_path / "other", "'steps/3'")


def test_members_twice(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with zipfile.ZipFile(path, "a") as zipped:
            zipped.writestr("steps/0", OUTPUTS["P1/words"].tobytes())
    refused(path, "'steps/0'", "not twice")


def test_steps_of_one_name(path):
    rewrite(path, lambda index: index["steps"][1].update(name="P1/words"))
    refused(path, "two steps of a capture are called P1/words")
    output = OUTPUTS["P1/words"]
    with pytest.raises(CaptureError, match="two steps of a capture are called P1/a"):
        make(ORIGIN, "quick", [(entry_of("P1/a", "1" * 64, "2" * 64, output), output)] * 2)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packed_another_way(path, method):
    rewrite(path, method=method)
    refused(path, "packed by method")


# ---- claims ----------------------------------------------------------------------------------------------------------


def most_memory(path):
    """The most bytes that refusing a file takes."""
    tracemalloc.start()
    try:
        refused(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [[1 << 40], [1 << 32, 1 << 32], [1 << 62, 4], [1 << 200], [1 << 28, 2]])
def test_a_claim_beyond_what_a_capture_may_hold(path, shape):
    """The second and the third are 0 modulo 2^64."""
    rewrite(path, lambda index: index["steps"][0].update(shape=shape))
    refused(path, "claims", f"at most {capture.LARGEST}")
    assert most_memory(path) < 1 << 20


def test_claims_add_up(path):
    def change(index):
        for step in index["steps"]:
            step.update(shape=[1 << 27])

    rewrite(path, change)
    refused(path, "claims")


def test_a_claim_that_the_member_does_not_fill(path):
    rewrite(path, lambda index: index["steps"][0].update(shape=[1 << 27]))
    refused(path, "P1/words", "not what its digest says")
    assert most_memory(path) < 1 << 20


def test_a_bomb_behind_a_small_claim(path):
    rewrite(path, members={"steps/0": bytes(1 << 24)})
    assert path.stat().st_size < 1 << 16
    refused(path, "P1/words", "not what its digest says")
    assert most_memory(path) < 1 << 20


def test_an_index_that_is_a_bomb(path):
    rewrite(path, b" " * (capture.LARGEST_INDEX + 1))
    refused(path, "capture.json claims")
    assert most_memory(path) < 1 << 20


def test_a_bomb_that_lies_about_its_size(path):
    """The directory says 48 bytes where the data unpack to 16 MB."""
    rewrite(path, members={"steps/0": bytes(1 << 24)})
    data = path.read_bytes()
    assert data.count((1 << 24).to_bytes(4, "little")) == 2
    path.write_bytes(data.replace((1 << 24).to_bytes(4, "little"), (48).to_bytes(4, "little")))
    assert most_memory(path) < 1 << 20


# ---- a run that is broken off ----------------------------------------------------------------------------------------


def rows_step(name, base=0x100):
    return forms_step(name, [Form("v_mov_b32", (), "row_mirror")], under_patterns([lane_ids(base), lane_ids(0x200)]))


def probe(name, base=0x100):
    return Probe(name, "a test", lambda size: [rows_step(f"{name}/mirror", base)])


ALL = [probe("T1"), probe("T2"), probe("T3")]


class BrokenOff(BaseException):
    """As KeyboardInterrupt: nothing catches it."""


def broken_off_after(count, path, options=None, size="quick"):
    """Runs ALL, and breaks off when `count` probes are done. Returns whether each was taken up."""
    seen = []

    def done(one, steps, taken_up):
        seen.append(taken_up)
        if len(seen) == count:
            raise BrokenOff

    with pytest.raises(BrokenOff):
        run_probes(ALL, path, options or RunOptions(), size, done)
    return seen


def taken_up(path, wanted=None, options=None, size="quick"):
    seen = {}
    found = run_probes(
        wanted or ALL, path, options or RunOptions(), size, lambda one, steps, taken: seen.update({one.name: taken})
    )
    assert read(path) == found
    assert not path.with_name(f"{path.name}.part").exists()
    return seen


def test_a_run_goes_on_where_it_was_broken_off(tmp_path):
    path, plain = tmp_path / "a", tmp_path / "b"
    assert broken_off_after(2, path) == [False, False]
    assert not path.exists()
    assert sorted(p.name for p in (tmp_path / "a.part").iterdir()) == ["T1", "T2"]
    assert taken_up(path) == {"T1": True, "T2": True, "T3": False}
    assert taken_up(plain) == {"T1": False, "T2": False, "T3": False}
    assert path.read_bytes() == plain.read_bytes()
    assert read(path).digest == read(plain).digest
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(("member", "kept"), [(3, 1), (8, 3)])
def test_a_run_that_is_killed_goes_on(tmp_path, member, kept):
    """Killed without a word, in the middle of the second probe's file, or of the whole one."""
    path, names = tmp_path / "a", ["T1", "T2", "T3"]
    program = """
        import os, zipfile
        from pathlib import Path
        from codegen.kernels.probes.run import run_probes
        from emu.dispatch import RunOptions
        from tests.codegen.kernels.probes.test_capture import ALL

        write, count = zipfile.ZipFile.writestr, 0

        def dying(self, *args, **kwargs):
            global count
            write(self, *args, **kwargs)
            count += 1
            if count == MEMBER:
                self.fp.flush()
                os._exit(9)

        zipfile.ZipFile.writestr = dying
        run_probes(ALL, Path(PATH), RunOptions(), "quick")
    """
    text = textwrap.dedent(program).replace("PATH)", f"{str(path)!r})").replace("MEMBER", str(member))
    assert subprocess.run([sys.executable, "-c", text], timeout=120, check=False).returncode == 9
    assert [p.name for p in tmp_path.iterdir()] == ["a.part"]
    assert [name for name in names if (tmp_path / "a.part" / name).exists()] == names[:kept]
    assert taken_up(path) == {name: name in names[:kept] for name in names}
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_failing_write_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a"
    write(small(), path)
    before = path.read_bytes()

    def full(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(OSError, match="no space left"):
        write(small("full"), path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("content", [b"", b"PK half a file", None])
def test_a_damaged_part_is_run_again(tmp_path, content):
    path = tmp_path / "a"
    broken_off_after(2, path)
    part = tmp_path / "a.part" / "T1"
    part.write_bytes(part.read_bytes()[:-9] if content is None else content)
    assert taken_up(path) == {"T1": False, "T2": True, "T3": False}


def test_a_part_of_another_origin_or_size_is_run_again(tmp_path, monkeypatch):
    path = tmp_path / "a"
    broken_off_after(2, path)
    assert taken_up(path, size="full") == {"T1": False, "T2": False, "T3": False}
    broken_off_after(2, path)
    monkeypatch.setattr(run, "version", lambda name: "another")
    assert taken_up(path) == {"T1": False, "T2": False, "T3": False}


def test_a_part_that_was_asked_otherwise_is_run_again(tmp_path):
    path = tmp_path / "a"
    broken_off_after(2, path)
    changed = [probe("T1", 0x700), *ALL[1:]]
    assert taken_up(path, changed) == {"T1": False, "T2": True, "T3": False}
    assert read(path).read("T1/mirror")[0, 0, 0] == 0x700 + 15


def test_probes_that_share_a_name_of_a_step(tmp_path):
    shared = [Probe(name, "a test", lambda size: [rows_step("T1/mirror")]) for name in ("T1", "T2")]
    with pytest.raises(CaptureError, match="two steps of a capture are called T1/mirror"):
        run_probes(shared, tmp_path / "a", RunOptions(), "quick")


def test_the_sizes_that_captures_name_exist():
    assert small().size in SIZES


# ---- where a capture cannot be ---------------------------------------------------------------------------------------


def test_a_place_that_no_capture_can_have(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"kept")
    (tmp_path / "taken.part").write_bytes(b"kept")
    wrong = {"pipe": "no ordinary file", "file/x": "file", ".": "folder", "taken": r"taken\.part is no folder"}
    for name, text in wrong.items():
        with pytest.raises(OSError, match=text):
            capture.Unfinished(tmp_path / name, ORIGIN, "quick")
    assert (tmp_path / "file").read_bytes() == (tmp_path / "taken.part").read_bytes() == b"kept"
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_to_a_capture_stays_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    unfinished = capture.Unfinished(tmp_path / "link", ORIGIN, "quick")
    unfinished.finish([small()])
    assert (tmp_path / "link").is_symlink()
    assert read(tmp_path / "real") == small()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_a_folder_where_a_part_goes(tmp_path):
    (tmp_path / "x.part" / "T1").mkdir(parents=True)
    with pytest.raises(OSError, match=r"T1 is a folder, and what T1 gives goes there; move it"):
        run_probes([probe("T1")], tmp_path / "x", RunOptions(), "quick")
