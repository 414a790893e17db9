"""`gfx950 diff` on the command line: what it prints where, its files and its exit codes."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pytest
from diff_kernels import CODE, changed_results, inputs, instruction
from hip_stand_in import Fault, stand_in
from kernel_builds import assemble_kernel, compile_c

from gfx950.terminal import columns
from golden.diff_commands import diff

SCALE = "KERNEL scale(GLOBAL float *x, float by) { x[GROUP * ITEMS + ITEM] *= by; }"
ADD, REGISTER = instruction("v_add_f32")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with the kernel and its input."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.hsaco").write_bytes(CODE)
    np.save("x.npy", inputs())
    return tmp_path


LAUNCH = shlex.split("k.hsaco --grid 8 --block 128 --arg zeros:f32:16x64:out.npy --arg x.npy --arg 5")


def fault(**more):
    return Fault("k", ADD, REGISTER, bit=12, lane=9, **more)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


# ---- what cannot be looked into --------------------------------------------------------------------------------------


def test_a_point_that_is_no_instruction_s_does_not_lose_the_comparison(gfx950, folder):
    with stand_in(faults=[fault()]):
        code, out, err = gfx950("diff", *LAUNCH, "--bisect", "--registers", f"{ADD + 2:#x}", "--html", "report.html")
    assert (code, err) == (1, "wrote report.html\n")
    text = " ".join(out.split())
    assert "[arg0] 16 of 1024 elements (f32) differ" in text
    assert text.count(f"at offset {ADD:#x}, occurrence 1") == 1, "what was found before stands too"
    assert "[not looked into] wave 0 of workgroup (0, 0, 0), which wrote the wrong element, does not run" in text
    assert "to do: `gfx950 disasm` lists the instructions" in text
    assert "does not run an instruction at offset" in (folder / "report.html").read_text()


def test_a_device_that_fails_while_it_is_looked_into_does_not_lose_the_comparison(gfx950, folder):
    with stand_in(faults=[fault()]) as chip:
        chip.fail("hipModuleLoadData", 209, skip=1, times=-1)
        code, out, _ = gfx950("diff", *LAUNCH, "--bisect", "--json")
    found = json.loads(out)["comparisons"][0]
    assert (code, found["outputs"][0]["differing"], found["first_wrong"]) == (1, 16, None)
    assert found["not_inside"].startswith("hipModuleLoadData failed with 209")


# ---- same, different -------------------------------------------------------------------------------------------------


def test_the_same_bits(gfx950, folder):
    with stand_in():
        code, out, err = gfx950("diff", *LAUNCH, "--device")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert re.fullmatch(r"same  k +every bit of host = device, \d+\.\d\d s", lines[0])
    assert lines[1] == "1 of 1 the same on host and device"
    assert lines[2] == "code object of host and device: sha256"
    assert "stand-in" in out, "a stand-in is named wherever it shows"
    assert files(folder) == ["k.hsaco", "x.npy"], "no output file is written"


def test_different_bits(gfx950, folder):
    with stand_in(faults=[fault(wave=1, workgroup=(2, 0, 0))]):
        code, out, err = gfx950("diff", *LAUNCH)
    assert (code, err) == (1, "")
    text = re.sub(r"\n +(?=from)", " ", out)
    assert re.search(
        r"WRONG k +1 of 1 output: host against device\n"
        r"  \[arg0\] 1 of 1024 elements \(f32\) differ\n"
        r"    first     arg0\[5\]\[9\]\n"
        r"    host      0x[0-9a-f]{8}  [01]\|[01]{8}\|[01]{23}  \S+\n"
        r"    device    0x[0-9a-f]{8}  [01]\|[01]{8}\|[01]{23}  \S+\n"
        r"    distance  4096 ulp of f32\n"
        r"    writer    global_store_dword at k\+0x58, workgroup \(2, 0, 0\) wave 1 lane 9, from v2\n"
        r"    text      global_store_dword v\[0:1\], v2, off\n"
        r"    inputs    v0 0x[0-9a-f]{8}, v1 0x[0-9a-f]{8}, v2 0x[0-9a-f]{8}\n",
        text,
    ), out
    assert "0 of 1 the same on host and device" in out


def test_many_differences_are_capped(gfx950, folder):
    with stand_in(faults=[fault()]):
        code, out, _ = gfx950("diff", *LAUNCH)
    assert code == 1
    assert out.count("    also ") == 7
    assert "    and 8 more\n" in out
    assert "pattern   bit 12 (mantissa) is flipped in each\n" in out
    assert "lanes     only lane 9\n" in out
    assert "all in    arg0[*][9]\n" in out


def test_nothing_is_wider_than_the_terminal(gfx950, folder):
    with stand_in(faults=[fault()]):
        _, out, _ = gfx950("diff", *LAUNCH, "--bisect", "--registers", "0x58", "--repeat", "2")
    assert max(map(len, out.splitlines())) <= columns() == 80
    assert "\x1b" not in out


def test_what_changes_between_runs(gfx950, folder, monkeypatch):
    def change(data, number):
        data[40] ^= np.uint8(number)

    with changed_results(change, monkeypatch=monkeypatch):
        code, out, err = gfx950("diff", *LAUNCH, "--repeat", "3", "--bisect")
    assert code == 1
    assert err == "note: k: nothing differs in the same way in all runs of device: no wave to look into\n"
    assert "WRONG k                1 of 1 output: host against device, 3 runs\n" in out
    assert "  [arg0] 1 of 1024 elements are not the same in all 3 runs of device\n" in out
    assert "    first     arg0[0][10]\n" in out
    assert out.count("    1 of 3    0x") == 3
    assert "differ" not in out


def test_the_first_wrong_instruction_and_registers(gfx950, folder):
    with stand_in(faults=[fault()]):
        code, out, _ = gfx950("diff", *LAUNCH, "--bisect", "--registers", f"{ADD:#x}")
    assert code == 1
    assert "  [first wrong] kernel k, launch 0, which wrote arg0\n" in out
    text = " ".join(out.split())
    assert f"comes from `v_add_f32_e32 v2, 1.0, v2` at offset {ADD:#x}" in text
    assert f"before offset {ADD:#x}, run 1, of workgroup (0, 0, 0) wave 0: 0 registers differ" in text


def test_what_no_launch_stores_has_no_wave_to_look_into(gfx950, folder, monkeypatch):
    (folder / "k.hsaco").write_bytes(compile_c("KERNEL k(GLOBAL float *out, GLOBAL const float *in, u32 n) {}"))

    with changed_results(lambda data, number: data.__setitem__(3, 1), monkeypatch=monkeypatch):
        code, out, err = gfx950("diff", *LAUNCH, "--bisect")
    assert (code, err) == (1, "note: k: in the emulator nothing stores what differs: no wave to look into\n")
    assert "    writer    none in the emulator: nothing was stored there" in out


def test_a_kernel_and_its_cases(gfx950, made_up, monkeypatch):
    monkeypatch.setattr("golden.diff_commands.kernel_names", lambda: ["made_up"])
    code, out, _ = gfx950("diff", "made_up", "--engines", "host,numpy")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[:4]] == [["same", c] for c in ("one", "two", "three", "four")]
    assert "4 of 4 the same on host and numpy" in out
    code, out, _ = gfx950("diff", "made_up", "--engines", "host,numpy", "--case", "two")
    assert out.splitlines()[1] == "1 of 1 the same on host and numpy"
    runs = iter(range(100))
    made_up.machine = lambda outputs: outputs | {"sums": outputs["sums"] + (next(runs) % 3 == 1)}
    code, out, _ = gfx950("diff", "made_up", "--engines", "host,numpy", "--case", "two")
    assert code == 1
    assert "    first     sums[0]: sum 0\n" in out


# ---- JSON and HTML ---------------------------------------------------------------------------------------------------


def test_json(gfx950, folder):
    with stand_in(faults=[fault()]):
        code, out, err = gfx950("diff", *LAUNCH, "--json", "--bisect", "--registers", "0x58")
    document = json.loads(out)
    assert (code, err) == (1, "")
    assert (document["schema"], document["ok"], document["subject"]) == ("gfx950.diff/1", False, "k.hsaco")
    (found,) = document["comparisons"]
    assert (found["name"], found["engines"], found["repeat"]) == ("k", ["host", "device"], 1)
    assert found["device_milliseconds"] is not None
    (output,) = found["outputs"]
    assert (output["differing"], output["of"], output["index"], output["shape"]) == (16, 1024, [0, 9], [16, 64])
    values = [int(output["values"][engine]["bits"], 16) for engine in ("host", "device")]
    assert values[0] ^ values[1] == 1 << 12
    assert (output["ulps"], output["only"]) == (4096, "only lane 9")
    writer = output["writer"]
    assert (writer["lane"], writer["register"], writer["text"]) == (9, "v2", "global_store_dword v[0:1], v2, off")
    assert int(writer["inputs"]["v2"], 16) == values[0]
    assert (found["first_wrong"]["offset"], found["first_wrong"]["kind"]) == (ADD, "instruction")
    assert [d["register"] for d in found["registers"]["differences"]] == ["v2"]
    assert document["provenance"]["device"]["architecture"].startswith("gfx950")
    assert len(document["provenance"]["code"]["device"]) == 64


def test_json_of_what_is_the_same(gfx950, folder):
    code, out, _ = gfx950("diff", *LAUNCH, "--json", "--engines", "host,numpy")
    document = json.loads(out)
    assert (code, document["ok"], document["provenance"]["device"]) == (0, True, {})
    assert document["comparisons"][0]["outputs"] == [
        {"name": "arg0", "ok": True, "format": "f32", "dtype": "float32", "shape": [16, 64]}
    ]


def test_an_html_page_beside_the_text(gfx950, folder):
    with stand_in(faults=[fault()]):
        code, out, err = gfx950("diff", *LAUNCH, "--html", "report.html")
    assert (code, err) == (1, "wrote report.html\n")
    assert "WRONG" in out
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_a_page_that_cannot_be_written_is_said_before_anything_runs(gfx950, folder, monkeypatch):
    monkeypatch.setattr("golden.diff.diff", None)
    code, out, err = gfx950("diff", *LAUNCH, "--engines", "host,numpy", "--html", "nowhere/report.html")
    assert (code, out) == (2, "")
    assert "there is no folder nowhere; make it first" in err


@pytest.mark.parametrize("page", ["x.npy", "./k.hsaco", "m.json", "link.html"])
def test_a_page_does_not_replace_what_is_read(gfx950, folder, page):
    (folder / "m.json").write_text("{}")
    (folder / "link.html").symlink_to("x.npy")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, out, err = gfx950("diff", *LAUNCH, "--engines", "host,numpy", "--model", "m.json", "--html", page)
    assert (code, out) == (2, "")
    read = "x.npy" if page == "link.html" else page.removeprefix("./")
    assert f"would replace {read}, which this command reads; give another name" in " ".join(err.split())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_run_that_is_stopped_leaves_the_old_page(gfx950, folder):
    (folder / "report.html").write_text("old")
    with stand_in() as one:
        one.fail("hipModuleLaunchKernel", 719)
        code, _, err = gfx950("diff", *LAUNCH, "--html", "report.html")
    assert code == 4
    assert "hipModuleLaunchKernel failed with 719" in err
    assert (folder / "report.html").read_text() == "old"
    assert files(folder) == ["k.hsaco", "report.html", "x.npy"]


# ---- exit codes ------------------------------------------------------------------------------------------------------


def test_without_a_device(gfx950, folder, monkeypatch):
    monkeypatch.setenv("GFX950_HIP", "/nowhere/libamdhip64.so")
    for words in (LAUNCH, ("drafter_attention",), (*LAUNCH, "--device", "--json", "--html", "r.html")):
        code, out, err = gfx950("diff", *words)
        assert (code, out) == (4, "")
        assert err.startswith("error: no HIP library: tried /nowhere/libamdhip64.so (")
        assert "install ROCm, or name the library in GFX950_HIP" in err
    assert files(folder) == ["k.hsaco", "x.npy"]


def test_another_chip(gfx950, folder):
    with stand_in(arch="gfx942"):
        code, out, err = gfx950("diff", *LAUNCH)
    assert (code, out) == (4, "")
    assert "is a gfx942" in err


def test_an_instruction_that_is_not_known(gfx950, folder):
    (folder / "bad.hsaco").write_bytes(assemble_kernel(".long 0xffffffff\ns_endpgm"))
    code, _, err = gfx950(
        "diff", "bad.hsaco", "--grid", "1", "--block", "64", "--engines", "host,numpy", "--arg", "zeros:u32:4:o.npy"
    )
    assert code == 3, err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("no_such", "there is no file 'no_such' and no kernel of that name: drafter_attention"),
        ("k.hsaco --case small", "--case is for a KERNEL; k.hsaco is a file, whose arguments are given by --arg"),
        ("drafter_attention --grid 4", "launch options are for a FILE"),
        ("drafter_attention --format a8=f32", "launch options are for a FILE"),
        ("drafter_attention --case smal", "has no case 'smal'.*did you mean small"),
        ("k.hsaco --grid 8", "a FILE needs --block, the threads of a workgroup"),
        ("k.hsaco --block 8", "give one of --grid .* and --items"),
        ("k.hsaco --grid 8 --block 128 --arg x.npy", "k takes 3 arguments and got 1"),
        ("k.hsaco --grid 8 --block 128 --arg x.npy --arg x.npy --arg 5", "no --arg names an output file"),
        ("k.hsaco --engines host", "'host' is not two of host, numpy, device"),
        ("k.hsaco --engines host,gpu", "'host,gpu' is not two of host, numpy, device"),
        ("k.hsaco --registers here", "'here' is not OFFSET\\[:OCCURRENCE\\], as in 0x1a4 or 0x1a4:3"),
        ("k.hsaco --registers 4:0", "'4:0' is not OFFSET"),
        ("k.hsaco --format bf16", "write ARGUMENT=FORMAT, as in out=bf16"),
    ],
)
def test_usage(gfx950, folder, words, message):
    code, out, err = gfx950("diff", *shlex.split(words), *(() if "--engines" in words else ("--engines", "host,numpy")))
    assert (code, out) == (2, "")
    assert re.search(message, err), err


def test_formats_of_a_file(gfx950, folder):
    with stand_in(faults=[fault()]):
        _, out, _ = gfx950("diff", *LAUNCH, "--format", "0=bf16")
    assert "[arg0] 16 of 2048 elements (bf16) differ" in out


def test_the_device_replaces_the_second_engine(gfx950, folder):
    with stand_in():
        _, out, _ = gfx950("diff", *LAUNCH, "--engines", "numpy,host", "--device")
    assert "every bit of numpy = device" in out


# ---- help ------------------------------------------------------------------------------------------------------------


def examples():
    found = re.findall(r"^ +gfx950 (diff .*)$", diff.help, re.MULTILINE)
    assert len(found) == 4
    return [shlex.split(line) for line in found]


def test_the_examples_of_the_help(gfx950, folder, made_up, monkeypatch):
    """With the stand-in, a small kernel in place of the drafter attention, and a kernel of two arguments as scale.o."""
    monkeypatch.setattr("golden.diff_commands.kernel_names", lambda: ["made_up"])
    (folder / "scale.o").write_bytes(compile_c(SCALE))
    np.save("x.npy", np.ones(128, np.float32))
    for words in examples():
        words = [{"drafter_attention": "made_up", "small": "one"}.get(word, word) for word in words]
        with stand_in():
            code, out, err = gfx950(*words)
        assert code == 0, (words, out, err)


@pytest.mark.slow
def test_the_examples_of_the_help_with_the_kernel_itself(gfx950, folder):
    for words in examples()[:3]:
        with stand_in():
            code, out, err = gfx950(*words, *(["--case", "small"] if "--case" not in words else []))
        assert code == 0, (words, out, err)


def test_the_options_of_a_launch_are_those_of_run():
    from emu.commands import run

    theirs = {p.name: p for p in run.params}
    ours = {p.name: p for p in diff.params}
    for name in ("kernel_name", "grid", "items", "block", "texts", "dynamic_lds", "hidden", "quantum", "seed", "model"):
        assert (ours[name].opts, ours[name].type) == (theirs[name].opts, theirs[name].type)
        assert not ours[name].required
    assert theirs["block"].required
