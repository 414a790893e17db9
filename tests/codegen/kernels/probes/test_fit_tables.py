"""Tables are found from the results that are kept, explain the digests, and are written beside the model."""

from functools import cache

import numpy as np
import pytest

from codegen.kernels.probes import capture
from codegen.kernels.probes.capture import Origin
from codegen.kernels.probes.digests import DigestStep
from codegen.kernels.probes.fit import fit
from codegen.kernels.probes.fit_tables import FAMILIES, digested_whole
from codegen.kernels.probes.packed_results import ResultsStep, default_results
from codegen.kernels.probes.probe import SIZES, probes
from codegen.kernels.probes.run import Runner, run_steps
from emu.dispatch import RunOptions
from gfx950.arithmetic.result_table import PUBLISHED_DIGESTS, SCALING, read_header, write_table
from gfx950.arithmetic.transcendental import rules
from gfx950.evidence import Evidence
from gfx950.models import DEFAULT, make_model, read_model, write_model

EMULATOR, DEVICE = Origin("emulator", "made up"), Origin("device", "AMD Instinct MI355X")
BY_NAME = {family.name: family for family in FAMILIES}


@cache
def steps(mnemonic):
    """The steps of a unit."""
    return [s for s in probes()["P12"].steps(SIZES["quick"]) if s.mnemonic in BY_NAME[mnemonic].mnemonics]


def hidden(folder, mnemonic, seed, more=()):
    """A model whose unit is off by one here and there, of what is kept. more: first inputs and results beside them."""
    random, ranges = np.random.default_rng(seed), list(more)
    for step in steps(mnemonic):
        if isinstance(step, ResultsStep) and step.name.endswith("/default"):
            words = default_results(mnemonic, step.bits).copy()
            places = random.choice(len(words) - 2000, 1000, replace=False) + 1000  # a period's ends stay in its range
            words[places] += random.choice(np.array([1, 0xFFFFFFFF], np.uint32), len(places))
            ranges.append((step.first, words & np.uint32(0xFFFF) if mnemonic.endswith("f16") else words))
    path, period = folder / f"{mnemonic}.hidden", SCALING.get(mnemonic, (None,))[0]
    origin = {"device": "hidden", "capture": "hidden", "mode": "0xf0"}
    write_table(path, mnemonic, sorted(ranges, key=lambda one: one[0]), period=period, **origin)
    return make_model("hidden", {}, {mnemonic: path})


def captured(mnemonic, model=DEFAULT, origin=EMULATOR):
    return capture.make(origin, "quick", run_steps(Runner(RunOptions(model=model)), steps(mnemonic)))


@pytest.mark.parametrize("mnemonic", ["v_exp_f32", "v_rcp_f32", "v_log_f16"])
def test_hidden_tables_are_found(tmp_path, mnemonic):
    model = hidden(tmp_path, mnemonic, 1)
    found = fit(captured(mnemonic, model), FAMILIES)
    assert found.explained
    (family,) = found.families
    assert list(family.tables) == [mnemonic]
    fitted = found.model("fitted", tmp_path)
    kept = [s for s in steps(mnemonic) if isinstance(s, ResultsStep)]
    assert all((s.predicted(fitted) == s.predicted(model)).all() for s in kept)
    assert any((s.predicted(fitted) != s.predicted(DEFAULT)).any() for s in kept)
    assert dict(fitted.measured) == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize("mnemonic", [name for name in BY_NAME if not name.endswith("f64")])
def test_more_hidden_tables_are_found(tmp_path, mnemonic, seed):
    model = hidden(tmp_path, mnemonic, seed)
    found = fit(captured(mnemonic, model), FAMILIES)
    assert found.explained
    header = read_header(found.model("fitted", tmp_path).tables[mnemonic])
    assert header.differing == read_header(model.tables[mnemonic]).differing


def test_the_default_is_confirmed_without_a_table():
    found = fit(captured("v_rsq_f16"), FAMILIES)
    (family,) = found.families
    assert (found.explained, family.tables) == (True, {})
    assert family.notes == ["0 of 65,536 results that are kept are not correctly rounded"]


def test_a_device_that_rounds_right_has_a_table_that_says_so(tmp_path):
    found = fit(captured("v_rsq_f16", origin=DEVICE), FAMILIES)
    write_model(found.model("fitted", tmp_path), tmp_path / "fitted.json")
    model = read_model(tmp_path / "fitted.json")
    header = read_header(model.tables["v_rsq_f16"])
    assert (header.complete, header.differing) == (True, 0)
    first = rules("v_rsq_f16", model)[0]
    assert first.evidence is Evidence.measured
    assert found.capture.digest[:16] in first.source
    assert found.model().tables == {}  # without a folder there is nowhere to write them


def test_what_the_kept_results_do_not_say_is_unexplained(tmp_path):
    """A unit that is off outside the binades that are kept: the digests tell."""
    first = 0x42000000
    words = default_results("v_exp_f32", np.arange(1 << 20, dtype=np.uint32) + np.uint32(first)) + np.uint32(1)
    model = hidden(tmp_path, "v_exp_f32", 3, [(first, words)])
    found = fit(captured("v_exp_f32", model, DEVICE), FAMILIES)
    (family,) = found.families
    told = {d.step for d in family.unexplained}
    assert {"P12/digests/v_exp_f32/default", "P12/digests/v_exp_legacy_f32/default"} <= told
    assert found.model("fitted", tmp_path).measured == {}


def test_special_numbers_are_in_the_table(tmp_path):
    """A unit that makes another NaN of one input: zeros, subnormals, infinities and NaNs are captured one by one."""
    model = hidden(tmp_path, "v_rcp_f32", 4, [(0x7FD55555, np.array([0x7FC00000], np.uint32))])
    found = fit(captured("v_rcp_f32", model), FAMILIES)
    assert found.explained
    assert found.families[0].tables


def test_only_a_full_run_digests_all_inputs():
    quick, full = (list(probes()["P12"].steps(SIZES[size])) for size in ("quick", "full"))
    assert not digested_whole(quick, "v_rcp_f32")
    assert digested_whole(full, "v_rcp_f32")
    assert not digested_whole([s for s in full if "published" in s.name], "v_exp_f32")


@pytest.mark.slow
def test_digests_of_all_inputs_confirm_all_of_a_device(tmp_path, monkeypatch):
    """The emulator's 2^32 results are taken as confirmed; the table then has every input."""
    monkeypatch.setattr("codegen.kernels.probes.fit_tables.confirmed", lambda *_: [])
    mine = [s for s in probes()["P12"].steps(SIZES["full"]) if s.mnemonic == "v_rcp_f32"]
    pairs = [(s, np.zeros(*s.output) if isinstance(s, DigestStep) else s.predicted(DEFAULT)) for s in mine]
    entries = [(capture.entry_of(s.name, s.inputs_digest, "", k), k) for s, o in pairs for k in [s.kept(o)]]
    found = fit(capture.make(DEVICE, "full", entries), FAMILIES)
    model = found.model("fitted", tmp_path)
    header = read_header(model.tables["v_rcp_f32"])
    assert (header.complete, header.differing) == (True, 0)
    assert [rule.evidence for rule in rules("v_rcp_f32", model)] == [Evidence.measured]


def test_rdna_is_recognised(monkeypatch):
    """Of a capture at full size: what the first lanes gave is compared with what was published."""
    step = next(s for s in probes()["P12"].steps(SIZES["full"]) if s.name == "P12/published/v_exp_f32")
    digests = np.zeros(64, "<u8")
    digests[0] = PUBLISHED_DIGESTS[0].digest
    output = digests.view("<u4").reshape(64, 2)
    made = capture.make(DEVICE, "full", [(capture.entry_of(step.name, step.inputs_digest, "", output), output)])
    monkeypatch.setattr("codegen.kernels.probes.fit_tables.confirmed", lambda *_: [])  # 2^30 inputs
    (family,) = fit(made, [BY_NAME["v_exp_f32"]]).families
    assert family.notes == [
        "the digest of v_exp_f32 over i * 2^-24, i from 0 to 2^24 - 1 is that of RDNA",
        "the digest of v_exp_f32 over -i * 2^-24, i from 0 to 2^24 - 1 is 0x0000000000000000, that of RDNA"
        " 0x88b75684494db8d3",
    ]
