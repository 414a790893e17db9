"""P10 and P11: what they ask, that every answer of every switch shows, and that predictions are what kernels give."""

import random
from functools import cache

import numpy as np
import pytest

from codegen.kernels.probes import conversions
from codegen.kernels.probes.probe import SIZES, probes
from codegen.kernels.probes.run import Runner
from codegen.kernels.probes.value_step import MODES, ValueStep, registers, switches_in, value_step
from emu.dispatch import RunOptions
from gfx950.isa.registry import INSTRUCTIONS
from gfx950.models import DEFAULT, load_switches, make_model

OURS = ("convert.", "valu.")
ANSWERS = [
    (name, answer)
    for name, switch in sorted(load_switches().items())
    if name.startswith(OURS)
    for answer in switch.answers
    if answer != switch.default
]


@cache
def steps():
    return [s for p in ("P10", "P11") for s in probes()[p].steps(SIZES["quick"])]


@cache
def value_steps():
    return [s for s in steps() if isinstance(s, ValueStep)]


@cache
def default_of(name):
    return next(s for s in value_steps() if s.name == name).predicted(DEFAULT)


def some_model(seed):
    choose = random.Random(seed)
    switches = load_switches()
    return make_model("some", {n: choose.choice(s.answers) for n, s in switches.items() if n.startswith(OURS)})


def telling(name, answer, probe=""):
    """The first step that an answer changes."""
    model = make_model("other", {name: answer})
    asked = (s for s in value_steps() if name in s.switches and s.name.startswith(probe))
    return next((s.name for s in asked if (s.predicted(model) != default_of(s.name)).any()), None)


@pytest.mark.parametrize(("name", "answer"), ANSWERS)
def test_every_answer_shows(name, answer):
    assert telling(name, answer) is not None


@pytest.mark.parametrize(("name", "answer"), [a for a in ANSWERS if a[0].startswith("convert.stochastic")])
def test_p11_alone_shows_how_random_parts_go(name, answer):
    assert telling(name, answer, "P11/") is not None


def test_every_instruction_with_a_switch_is_asked():
    asked = {step.mnemonic for p in ("P10", "P11") for step in probes()[p].steps(SIZES["full"])}
    known = {name for name in INSTRUCTIONS if name.startswith(("v_cvt", "v_dot")) and is_ours(name)}
    assert len(known) > 60
    assert known <= asked


def is_ours(mnemonic):
    return any(name.startswith(OURS) for name in switches_in(mnemonic))


def test_steps_and_kernels_have_names_of_their_own():
    names = [s.name for s in steps()]
    assert len(set(names)) == len(names)
    kernels = {s.kernel for s in steps()}
    assert len({k.name for k in kernels}) == len(kernels)


def test_steps_are_the_same_every_time():
    again = [s for p in ("P10", "P11") for s in probes()[p].steps(SIZES["quick"])]
    assert [(s.name, s.inputs_digest) for s in again] == [(s.name, s.inputs_digest) for s in steps()]


def agrees(chosen, model):
    runs = Runner(RunOptions(model=model)).outputs(chosen)
    return [s.name for s, _, output in runs if (output != s.predicted(model)).any()] == []


@pytest.mark.parametrize("seed", [None, 1])
def test_predictions_are_what_kernels_give(seed):
    small = [s for s in value_steps() if not s.mnemonic.startswith("v_cvt_scalef32_") or s.name.endswith("/default")]
    chosen = [s for s in small[:: 19 if seed else 13] if s.inputs[0].shape[1] < 16]
    assert agrees(chosen, some_model(seed) if seed else DEFAULT)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_all_predictions_are_what_kernels_give(seed):
    assert agrees(value_steps(), some_model(seed))


@pytest.mark.parametrize("form", [f for f in conversions.forms() if not f.narrows and not f.block])
def test_all_codes_with_all_scales(form):
    (step,) = [s for s in steps() if s.name == f"P10/{form.mnemonic}/default"]
    words, scales = step.inputs[0].transpose(1, 0, 2).reshape(2, -1).astype(np.int64)
    bits = {"fp8": 8, "bf8": 8, "fp4": 4}[form.source]
    places = (0, bits) if form.packing else (0,)
    pairs = {(c, s) for low in places for c, s in zip(words >> low & (1 << bits) - 1, scales >> 23 & 0xFF, strict=True)}
    assert len(pairs) == 256 << bits
    assert (scales & 0x807FFFFF).any()  # junk beside the exponent


def test_quick_runs_leave_out_only_blocks_of_other_formats():
    left_out = set(conversions.forms()) - set(conversions.forms_of(SIZES["quick"]))
    assert len(left_out) == 9
    assert all(form.block for form in left_out)
    assert set(conversions.forms_of(SIZES["full"])) == set(conversions.forms())


def test_all_codes_of_blocks():
    for form in conversions.forms_of(SIZES["quick"]):
        if not form.narrows and form.block:
            (step,) = [s for s in steps() if s.name == f"P10/{form.mnemonic}/default"]
            found = np.concatenate([codes(step.inputs[0][0, :6, lane]) for lane in (0, 1)])
            assert sorted(found) == list(range(64))


def codes(words):
    whole = sum(int(w) << 32 * i for i, w in enumerate(words))
    return [whole >> 6 * i & 63 for i in range(32)]


@pytest.mark.parametrize("drop", [13, 16, 20, 21])
def test_tables_have_ties_limits_and_nans(drop):
    values = set(conversions.f32_values(drop).tolist())
    tie = 1 << drop - 1
    for exponent in (1, 100, 127, 254):
        assert {exponent << 23 | m for m in (0, tie - 1, tie, tie + 1, 3 * tie & 0x7FFFFF, 0x7FFFFF)} <= values
    assert {0x43E80000, 0x43E80001, 0x43E7FFFF, 0xC3E80000, 0x47700000, 0x7F800000, 0xFF800000} <= values
    assert set(conversions.NANS) <= values


@pytest.mark.parametrize(("form", "exponent"), [("fp8", 1), ("bf16", 3), ("fp4", 0), ("f16", -15)])
def test_random_parts_walk_and_carry(form, exponent):
    magnitudes = {v & 0x7FFFFFFF for v in conversions.stochastic_values(form).tolist()}
    assert (exponent + 127) << 23 | 0x7FFFFF in magnitudes  # all mantissa bits: a carry into the exponent
    assert {1 << n for n in range(32)} <= set(conversions.SEEDS.tolist())


def test_random_parts_reach_the_largest_number():
    magnitudes = {v & 0x7FFFFFFF for v in conversions.stochastic_values("fp8").tolist()}
    assert {0x43E00000, 0x43E00001, 0x43EFFFFF} <= magnitudes  # 448, and what lies between it and 480


def test_a_block_of_random_parts_has_different_numbers():
    (step,) = [s for s in steps() if s.name.startswith("P11/v_cvt_scalef32_sr_pk32_fp6_f32/")]
    assert len(set(step.inputs[0][0, :32, 0].tolist())) > 16


def test_columns_fill_whole_waves():
    columns = [np.arange(70, dtype=np.uint32), np.array([5], np.uint32)]
    found = registers(columns)
    assert found.shape == (2, 2, 64)
    assert found[1, 0, :7].tolist() == [64, 65, 66, 67, 68, 69, 0]
    assert (found[:, 1] == 5).all()


def test_a_step_says_its_fields_and_mode():
    step = value_step("P10", "v_cvt_pk_fp8_f32", [np.zeros(1, np.uint32)] * 3, {"op_sel": 8}, "ovfl")
    assert step.name == "P10/v_cvt_pk_fp8_f32/op_sel8/ovfl"
    assert step.scalars == (MODES["ovfl"],)
    assert "convert.nan_narrow" in step.switches
