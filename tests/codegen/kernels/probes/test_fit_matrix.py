"""The fit of matrix arithmetic finds what was hidden: captures of the emulator under random answers to all switches."""

import functools
import random

import numpy as np
import pytest

from codegen.kernels.probes import capture, fit, matrix_sums, matrix_tiles, matrix_values, run
from codegen.kernels.probes.fit_matrix import ASKING, FAMILIES, class_of
from codegen.kernels.probes.matrix_variants import Variant
from codegen.kernels.probes.probe import SIZES
from emu.dispatch import RunOptions
from gfx950.evidence import Evidence
from gfx950.models import DEFAULT, SWITCHES, load_switches, make_model, rule_in_force, write_model

SCALED = "v_mfma_scale_f32_16x16x128_f8f6f4"
# Of each family the variants whose steps are captured: enough to decide, and few enough to run often.
VARIANTS = (
    Variant("v_mfma_f32_16x16x16_f16", "f16", "f16"),
    Variant("v_mfma_f32_16x16x16_bf16", "bf16", "bf16"),
    Variant("v_mfma_f32_16x16x32_f16", "f16", "f16"),
    Variant("v_mfma_f32_16x16x32_bf16", "bf16", "bf16"),
    Variant("v_mfma_f32_16x16x32_fp8_fp8", "fp8", "fp8"),
    Variant("v_mfma_f32_16x16x32_bf8_bf8", "bf8", "bf8"),
    Variant(SCALED, "fp8", "fp8"),
    Variant(SCALED, "bf8", "bf8"),
    Variant(SCALED, "fp6", "fp6"),
    Variant(SCALED, "bf6", "fp4"),
    Variant(SCALED, "fp8", "fp4"),
    Variant("v_smfmac_f32_16x16x64_bf16", "bf16", "bf16"),
    Variant("v_smfmac_f32_16x16x128_bf8_fp8", "bf8", "fp8"),
    Variant("v_mfma_f32_16x16x4_f32", "f32", "f32"),
    Variant("v_mfma_f64_16x16x4_f64", "f64", "f64"),
    Variant("v_mfma_i32_16x16x32_i8", "i8", "i8"),
)
PROBES = (*matrix_sums.PROBES, *matrix_values.PROBES)


@functools.cache
def steps(families):
    """The steps of the variants of some families."""
    chosen = {v for v in VARIANTS if f"matrix {class_of(v)}" in families}
    asked = [s for p in PROBES for s in p.steps(SIZES["quick"]) if s.name.startswith(ASKING)]
    return [s for s in (*asked, *matrix_tiles.tiles()) if s.variant in chosen]


def hidden_model(seed, families):
    """Random answers to every switch of some families."""
    rng = random.Random(seed)
    load_switches()
    names = [name for family in families for name in family.switches]
    return make_model("hidden", {name: rng.choice(SWITCHES[name].answers) for name in names})


@functools.cache
def runner():
    return run.Runner(RunOptions())


def captured(model, asked, kind="emulator"):
    """What the emulator gives under a model, through the kernels' code objects."""
    with_model = run.Runner(RunOptions(model=model))
    with_model.modules, with_model.device = runner().modules, runner().device
    return capture.make(capture.Origin(kind, "a name"), "quick", run.run_steps(with_model, asked))


def fitted(capture_, asked, families):
    evidence = fit.Evidence(capture_, {step.name: step for step in asked})
    model, found = DEFAULT, []
    for family in families:
        found.append(family.fit(evidence, model))
        model = model.with_values(found[-1].answers)
    return fit.Fit(capture_, found, [])


def check_found(seed, families):
    asked = steps(tuple(f.name for f in families))
    model = hidden_model(seed, families)
    result = fitted(captured(model, asked), asked, families)
    assert result.explained, [d.text for f in result.families for d in f.unexplained[:3]]
    for one in result.families:
        for name, answer in one.answers.items():
            hidden = model.values.get(name, SWITCHES[name].default)
            others = one.undecided.get(name, [])
            assert hidden == answer or hidden in others, (name, hidden, answer, others)
            assert not others or one.telling[name]
    return result


def family(name):
    return next(f for f in FAMILIES if f.name == f"matrix {name}")


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("name", ["half", "half_deep", "byte", "byte_deep", "small"])
def test_hidden_answers_of_a_class_are_found(name, seed):
    check_found(seed, [family(name)])


def test_hidden_answers_to_the_other_questions_are_found():
    check_found(3, [family(n) for n in ("mixed", "sparse", "f32", "f64", "integers")])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
@pytest.mark.parametrize("name", ["half", "half_deep", "byte", "byte_deep", "small"])
def test_hidden_answers_of_a_class_are_found_fifty_times(name, seed):
    check_found(seed, [family(name)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 106))
def test_every_hidden_answer_is_found(seed):
    """All switches of matrix arithmetic at once."""
    check_found(seed, FAMILIES)


def test_the_default_is_found_and_a_device_makes_it_measured(tmp_path):
    families = [family("half")]
    asked = steps(("matrix half",))
    emulated = fitted(captured(DEFAULT, asked), asked, families)
    assert emulated.explained
    assert not emulated.model().values
    assert not emulated.model().measured
    device = fitted(captured(DEFAULT, asked, "device"), asked, families)
    model = device.model()
    rules = {rule.name: rule for name in model.measured for rule in SWITCHES[name].rules}
    decided = [r for r in rules.values() if rule_in_force(r, model).evidence is Evidence.measured]
    assert len(decided) >= 5
    assert all(device.capture.digest[:16] in rule_in_force(r, model).source for r in decided)
    write_model(model, tmp_path / "m.json")


def test_a_step_that_no_answers_explain_is_shown():
    asked = steps(("matrix half",))
    whole = captured(DEFAULT, asked)
    name = next(n for n in whole.entries if n.startswith("P2/"))
    output = whole.read(name).copy()
    output[3, 1, 17] ^= 0x00010000
    entry = capture.entry_of(name, whole.entries[name].inputs, whole.entries[name].code, output)
    spoiled = capture.Capture(
        whole.origin, whole.size, {**whole.entries, name: entry}, {**whole.outputs, name: output.tobytes()}
    )
    result = fitted(spoiled, asked, [family("half")])
    assert not result.explained
    (difference,) = result.families[0].unexplained
    assert difference.step == name
    assert difference.index == (3, 1, 17)
    assert difference.captured ^ difference.predicted == 0x00010000
    assert "1 words differ, first [3, 1, 17]" in difference.text
    assert not result.model().measured


def test_what_was_asked_otherwise_is_not_used():
    asked = steps(("matrix f64",))
    whole = captured(DEFAULT, asked)
    name, *_ = whole.entries
    entry = capture.entry_of(name, "0" * 64, "", np.asarray(whole.read(name)))
    old = capture.Capture(whole.origin, whole.size, {**whole.entries, name: entry}, whole.outputs)
    evidence, stale = fit.evidence_of(old)
    assert stale == [name]
    assert name not in evidence.steps
