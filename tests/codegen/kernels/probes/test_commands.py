"""`gfx950 probe`: from a run to a fitted model, and what goes wrong on the way."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from codegen.kernels.probes import capture
from codegen.kernels.probes.commands import probe
from gfx950.commands import models
from gfx950.models import find_model, make_model, write_model
from golden.evidence_commands import evidence


def run(command, *words, code=0):
    result = CliRunner().invoke(command, list(map(str, words)))
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """A capture of P9 under hidden answers."""
    folder = tmp_path_factory.mktemp("captures")
    hidden = make_model("hidden", {"mfma.f64.order": "descending", "mfma.i8.overflow": "wrap"})
    write_model(hidden, folder / "hidden.json")
    text = run(probe, "run", "P9", "--on", "emulator", "--model", folder / "hidden.json", "-o", folder / "p9")
    assert f"capture {capture.read(folder / 'p9').digest}" in text
    return folder / "p9"


def test_a_capture_of_the_emulator_is_fitted_and_is_no_evidence(captured, tmp_path):
    text = run(probe, "fit", captured, "-o", tmp_path / "found.json")
    assert "mfma.f64.order: descending (not the default)" in text
    assert "no evidence for the chip: an emulator made this capture" in text
    found = find_model(tmp_path / "found.json")
    assert dict(found.values) == {"mfma.f64.order": "descending", "mfma.i8.overflow": "wrap"}
    assert not found.measured


def test_a_capture_of_a_device_makes_rules_measured(captured, tmp_path):
    """The same bits, as if a device had given them."""
    whole = capture.read(captured)
    device = replace(whole, origin=capture.Origin("device", "AMD Instinct MI355X"))
    capture.write(device, tmp_path / "device")
    run(probe, "fit", tmp_path / "device", "-o", tmp_path / "measured.json")
    document = json.loads(run(evidence, "v_mfma_f64_16x16x4_f64", "--model", tmp_path / "measured.json", "--json"))
    levels = {rule["name"]: rule for rule in document["rules"]}
    assert levels["mfma.f64.chain"]["evidence"] == "measured"
    assert device.digest[:16] in levels["mfma.f64.chain"]["source"]
    assert "mfma.f64.order" in run(models, tmp_path / "measured.json")


def test_show_lists_steps_and_prints_words(captured):
    text = run(probe, "show", captured)
    assert "emulator gfx950" in text
    assert "P9/v_mfma_f64_16x16x4_f64" in text
    first = run(probe, "show", captured, "P9/v_mfma_f64_16x16x4_f64").splitlines()[0].split()
    assert len(first) == 65


def test_bad_requests_say_what_was_expected(captured, tmp_path):
    assert "there is no probe 'P99'; there are P1, P1b" in run(
        probe, "run", "P99", "--device", "-o", tmp_path / "x", code=2
    )
    assert "say where: --device, or --on emulator" in run(probe, "run", "-o", tmp_path / "x", code=2)
    both = ("run", "--device", "--on", "emulator", "-o", tmp_path / "x")
    assert "say where" in run(probe, *both, code=2)
    before = captured.read_bytes()
    assert "exists: name another file" in run(probe, "run", "P9", "--on", "emulator", "-o", captured, code=2)
    assert captured.read_bytes() == before
    assert "the file of a model ends in .json" in run(probe, "fit", captured, "-o", tmp_path / "model", code=2)
    with pytest.raises(capture.CaptureError, match="has no step P9/nothing"):
        CliRunner().invoke(probe, ["show", str(captured), "P9/nothing"], catch_exceptions=False)
