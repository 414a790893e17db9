"""A run of probes on a device: the whole way to a capture, against the stand-in HIP library."""

import numpy as np
import pytest
from hip_stand_in import stand_in

from codegen.kernels.probes import capture
from codegen.kernels.probes.apply import apply_step
from codegen.kernels.probes.probe import Probe, Step
from codegen.kernels.probes.run import run_probes
from emu.dispatch import RunOptions
from gfx950.hip import NoDevice


@pytest.fixture
def probe():
    registers = np.random.default_rng(950).integers(0, 1 << 32, (2, 8, 64), np.uint32)
    step = apply_step(Step, "PX/v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x16_f16", registers, {}, None, {})
    return Probe("PX", "what", lambda size: [step]), step


def test_a_device_s_capture_has_its_words_and_bits_and_says_where_they_come_from(probe, tmp_path):
    with stand_in() as s:
        found = run_probes([probe[0]], tmp_path / "x", RunOptions(engine="device"))
    assert found.origin.kind == "device"
    assert found.origin.name == "gfx950 stand-in (emulated)"
    assert found.origin.architecture == "gfx950:sramecc+:xnack-"
    assert found.origin.driver == "HIP runtime 70099999, driver 70099998"
    emulated = run_probes([probe[0]], tmp_path / "y", RunOptions(engine="numpy"))
    assert np.array_equal(found.read(probe[1].name), emulated.read(probe[1].name))
    assert found.digest != emulated.digest, "the origin is part of a capture"
    assert capture.read(tmp_path / "x").digest == found.digest
    assert [one.kernel for one in s.launches] == [probe[1].kernel.name]


def test_another_chip_captures_nothing(probe, tmp_path):
    with stand_in(arch="gfx942"), pytest.raises(NoDevice, match="device 0 is a gfx942"):
        run_probes([probe[0]], tmp_path / "x", RunOptions(engine="device"))
    assert not any(tmp_path.iterdir())
