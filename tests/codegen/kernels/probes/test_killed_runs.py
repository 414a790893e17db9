"""Runs of probes on a device that are killed: against the stand-in, in processes of their own."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hip_stand_in import SOURCES

from codegen.kernels.probes.capture import CaptureError, read

ROOT = Path(__file__).parents[4]
RUN = """
    import os, time
    from pathlib import Path
    from codegen.kernels.probes.lane_forms import Form, forms_step, lane_ids, under_patterns
    from codegen.kernels.probes.probe import Probe
    from codegen.kernels.probes.run import Runner, run_probes
    from emu.dispatch import RunOptions

    def steps(size, name):
        for number in range(8):
            patterns = under_patterns([lane_ids(0x100 + number), lane_ids(0x200)])
            yield forms_step(f"{name}/{number}", [Form("v_mov_b32", (), "row_mirror")], patterns)

    def launched(self, step, code, launch=Runner._launch):
        if step.name == os.environ.get("HOLD"):
            Path("held").touch()
            time.sleep(120)
        return launch(self, step, code)

    def done(one, count, taken_up):
        print(one.name, taken_up)

    Runner._launch = launched
    ALL = [Probe(name, "a test", lambda size, name=name: steps(size, name)) for name in ("T1", "T2", "T3")]
    run_probes(ALL, Path("x.capture"), RunOptions(engine="device"), "quick", done)
"""


@pytest.fixture
def start(tmp_path):
    """Starts a run of three small probes with the stand-in, or of a command. hold: a step that does not come to an
    end; then there is a file `held`."""
    (tmp_path / "three_probes.py").write_text(textwrap.dedent(RUN))

    def process(*words, hold=""):
        command = [sys.executable, str(SOURCES / "with_stand_in.py"), *(words or ("three_probes",))]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "HOLD": hold}
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    return process


def kill_when(process, happened):
    """SIGKILL as soon as something has happened."""
    until = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)
    process.kill()
    process.communicate()


def kept(folder):
    """The probes that a killed run left whole. Nothing else may read as a capture."""
    found = []
    for path in folder.iterdir():
        try:
            found += [path.name] if read(path).entries else []
        except CaptureError:
            assert path.name.startswith(".part."), "a file under a probe's name is whole"
    return sorted(found)


def finished(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out, err


@pytest.mark.parametrize(("hold", "whole"), [("T1/3", []), ("T2/0", ["T1"]), ("T3/7", ["T1", "T2"])])
def test_a_run_on_a_device_that_is_killed_leaves_no_half_capture_and_goes_on(start, tmp_path, hold, whole):
    path, parts = tmp_path / "x.capture", tmp_path / "x.capture.part"
    kill_when(start(hold=hold), (tmp_path / "held").exists)
    assert not path.exists()
    assert kept(parts) == whole
    out, _ = finished(start())
    assert out.split() == [word for name in ("T1", "T2", "T3") for word in (name, str(name in whole))]
    after = path.read_bytes()
    assert read(path).origin.name == "gfx950 stand-in (emulated)"
    assert not parts.exists()
    path.unlink()
    finished(start())
    assert path.read_bytes() == after, "a run that went on is byte for byte one that was never killed"


@pytest.mark.slow
def test_the_command_itself(start, tmp_path):
    words = ("gfx950", "probe", "run", "P11", "P14", "--device", "--size", "quick", "-o", "x.capture")
    kill_when(start(*words), (tmp_path / "x.capture.part" / "P11").exists)
    assert not (tmp_path / "x.capture").exists()
    out, err = finished(start(*words))
    assert "P11  20 launches, taken from the earlier run" in err
    assert out.startswith("wrote x.capture: ")
    assert [p.name for p in tmp_path.glob("x.capture*")] == ["x.capture"]
    again = start(*words)
    assert "x.capture exists: name another file" in again.communicate()[1]
    assert again.returncode == 2


def test_a_capture_says_nothing_of_the_machine_or_its_user(start, tmp_path):
    import zipfile

    finished(start())
    with zipfile.ZipFile(tmp_path / "x.capture") as zipped:
        content = b"".join(zipped.read(name) for name in zipped.namelist())
        stamps = {info.date_time for info in zipped.infolist()}
        more = {(info.extra, info.comment) for info in zipped.infolist()} | {(zipped.comment, b"")}
    assert stamps == {(1980, 1, 1, 0, 0, 0)}, "no time of the run"
    assert more == {(b"", b"")}
    named = [os.uname().nodename, str(tmp_path), str(Path.home()), str(ROOT), os.environ.get("USER", "")]
    for words in [w for w in named if len(w) > 5]:
        assert words.encode() not in content
