"""docs/device.md: its commands for a chip run as they stand, with the stand-in for the chip."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hip_stand_in import SOURCES
from kernel_builds import compile_c

TEXT = (Path(__file__).parent.parent / "docs" / "device.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
    if line.startswith("gfx950 ")
]
KERNEL = "KERNEL k(GLOBAL u32 *data, u32 n) { data[ITEM] += n; }"


def on_stand_in(folder, command, *options):
    words = [sys.executable, str(SOURCES / "with_stand_in.py"), *options, *shlex.split(command)]
    wide = os.environ | {"COLUMNS": "100"}
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False, env=wide)


def test_there_are_commands():
    assert [c.split()[1] for c in COMMANDS] == ["check", "diff", "probe", "diff"]


@pytest.mark.parametrize("command", [c for c in COMMANDS if "probe run" not in c])
def test_a_command_of_the_page_agrees(command, tmp_path):
    (tmp_path / "scale.hsaco").write_bytes(compile_c(KERNEL))
    np.save(tmp_path / "x.npy", np.arange(128, dtype=np.uint32))
    done = on_stand_in(tmp_path, command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(("ok ", "same "))


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in COMMANDS if "probe run" in c])
def test_the_probes_of_the_page_make_a_capture(command, tmp_path):
    """One probe of them, at the quick size: all of them at full size are for a chip."""
    done = on_stand_in(tmp_path, command.replace(" run ", " run P14 --size quick "))
    assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["mi355x.capture"]


def test_the_wrong_bits_of_the_page_are_what_a_fault_gives(tmp_path):
    """The page's block, word by word around its ellipsis; the fault that it shows is in one bit of one product."""
    (shown,) = re.findall(r"^```text\n\$ (.*?)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    done = on_stand_in(tmp_path, shown[0], "--fault", "drafter_merge:0x610:v3:17")
    assert done.returncode == 1, done.stderr
    printed = " ".join(done.stdout.split())
    for part in shown[1].split("..."):
        found = printed.find(" ".join(part.split()))
        assert found >= 0, done.stdout
        printed = printed[found:]
