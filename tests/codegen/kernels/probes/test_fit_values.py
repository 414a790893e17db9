"""The fit of conversions and dot products finds hidden answers, says what it cannot know, and what nothing explains."""

import random
from functools import cache

import numpy as np
import pytest

from codegen.kernels.probes import capture
from codegen.kernels.probes.capture import Origin
from codegen.kernels.probes.digests import DigestStep
from codegen.kernels.probes.fit import Evidence, fit
from codegen.kernels.probes.fit_values import FAMILIES, family_of, value_steps
from codegen.kernels.probes.probe import SIZES, probes
from codegen.kernels.probes.run import Runner, run_steps
from emu.dispatch import RunOptions
from gfx950.models import DEFAULT, load_switches, make_model

NAMES = [name for family in FAMILIES for name in family.switches]
EMULATOR, DEVICE = Origin("emulator", "made up"), Origin("device", "made up")
BY_NAME = {family.name: family for family in FAMILIES}


def hidden(seed):
    choose, switches = random.Random(seed), load_switches()
    return make_model("hidden", {name: choose.choice(switches[name].answers) for name in NAMES})


def answers(model):
    return {name: model.values.get(name, load_switches()[name].default) for name in NAMES}


def captured(model, probe="P1", families=None, origin=EMULATOR, change=None):
    """A capture of the steps that need no kernel, of some families only."""
    steps = [s for s in value_steps() if s.name.startswith(probe)]
    steps = [s for s in steps if families is None or family_of(s.mnemonic) in families]
    pairs = [(s, s.predicted(model)) for s in steps]
    if change:
        pairs = [(s, change(s, output)) for s, output in pairs]
    return capture.make(origin, "quick", ((capture.entry_of(s.name, s.inputs_digest, "", o), o) for s, o in pairs))


def test_families_have_every_switch_once():
    ours = [name for name in load_switches() if name.startswith(("convert.", "valu."))]
    assert sorted(NAMES) == sorted(ours)


@pytest.mark.parametrize("seed", [1])
def test_hidden_answers_are_found(seed):
    model = hidden(seed)
    found = fit(captured(model), FAMILIES)
    assert found.explained
    assert found.model().values == model.values
    assert not any(family.undecided for family in found.families)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 42))
def test_more_hidden_answers_are_found(seed):
    test_hidden_answers_are_found(seed)


@pytest.mark.parametrize("seed", range(5, 8))
def test_hidden_answers_of_small_families_are_found(seed):
    model = hidden(seed)
    chosen = [f for f in FAMILIES if f.switches and f.name != "scaled conversions"]
    found = fit(captured(model, families={f.name for f in chosen}), chosen)
    assert found.explained
    for family in found.families:
        assert family.answers == {n: answers(model)[n] for n in BY_NAME[family.family].switches}
        assert not family.undecided


def test_the_default_is_found():
    found = fit(captured(DEFAULT, families={"float dot products", "conversions from 8 bits"}, origin=DEVICE), FAMILIES)
    assert [family.family for family in found.families] == ["float dot products", "conversions from 8 bits"]
    assert found.model().values == {}
    assert set(found.model().measured) == {n for f in found.families for n in BY_NAME[f.family].switches}


@cache
def asked(name):
    steps = [s for p in ("P10", "P11") for s in probes()[p].steps(SIZES["quick"])]
    return [s for s in steps if family_of(s.mnemonic) == name]


def test_kernels_and_digests_under_a_hidden_model():
    name = "integers from floats"
    model = make_model("hidden", {"convert.normalized": "half_up", "valu.rpi_sum": "f32"})
    assert any(isinstance(s, DigestStep) for s in asked(name))
    made = capture.make(EMULATOR, "quick", run_steps(Runner(RunOptions(model=model)), asked(name)))
    found = BY_NAME[name].fit(Evidence(made, {s.name: s for s in asked(name)}), DEFAULT)
    assert (found.unexplained, found.undecided) == ([], {})
    assert found.answers == {n: answers(model)[n] for n in BY_NAME[name].switches}


def test_a_digest_that_differs_is_told():
    name = "integers from floats"
    steps = [s for s in asked(name) if s.name == "P10/digests/v_cvt_rpi_i32_f32/default"]
    pairs = [(e, output ^ np.uint32(1 << 31)) for e, output in run_steps(Runner(RunOptions()), steps)]
    made = capture.make(DEVICE, "quick", ((capture.entry_of(e.name, e.inputs, e.code, o), o) for e, o in pairs))
    found = fit(made, [BY_NAME[name]])
    assert [d.step for d in found.families[0].unexplained] == [steps[0].name]
    assert found.model().measured == {}


def test_what_the_capture_cannot_tell_is_undecided():
    families = {"stochastic conversions"}
    found = fit(captured(DEFAULT, "P11/v_cvt_sr_fp8", families), [BY_NAME[name] for name in families])
    (family,) = found.families
    assert family.undecided == {"convert.stochastic_bits": ["low"]}
    assert family.telling["convert.stochastic_bits"] == "P10/v_cvt_scalef32_sr_pk32_bf6_f16/default would tell"
    assert "convert.stochastic_bits" not in found.model().measured


def test_what_nothing_explains_is_told_where_it_differs():
    def change(step, output):
        output = output.copy()
        if step.name == "P10/v_cvt_f32_fp8/default":
            output[1, 0, 5] ^= np.uint32(4)
        return output

    found = fit(captured(DEFAULT, families={"conversions from 8 bits"}, origin=DEVICE, change=change), FAMILIES)
    (family,) = found.families
    ((step, index, count),) = [(d.step, d.index, d.count) for d in family.unexplained]
    assert (step, index, count) == ("P10/v_cvt_f32_fp8/default", (1, 0, 5), 1)
    assert not found.explained
    assert found.model().measured == {}


def test_nothing_captured_is_nothing_found():
    made = capture.make(EMULATOR, "quick", [])
    assert fit(made, FAMILIES).families == []
