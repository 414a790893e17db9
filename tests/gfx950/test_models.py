"""Models: what a switch may be, what is in force where, files, and what the ledger says of a rule."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest
from llvm_tools import compiled

from emu.dispatch import Device, RunOptions
from emu.errors import LaunchError
from gfx950 import models
from gfx950.evidence import Evidence, rule
from gfx950.models import (
    DEFAULT,
    SWITCHES,
    Model,
    ModelError,
    find_model,
    in_force,
    load_switches,
    make_model,
    name_model,
    named_models,
    read_model,
    rule_in_force,
    switch,
    switches_of,
    using,
    write_model,
)

SOFFSET, UNALIGNED = "buffer.soffset_in_range", "buffer.unaligned"


@pytest.fixture
def declared(monkeypatch):
    """Two switches of one rule of level carried, in a table of switches of their own: `test.a` (bodies read it) and
    `test.b`."""
    load_switches()
    monkeypatch.setattr(models, "SWITCHES", dict(SWITCHES))
    monkeypatch.setattr(models, "_DECIDED_BY", dict(models._DECIDED_BY))
    monkeypatch.setattr(models, "_NAMED", dict(models._NAMED))
    monkeypatch.setattr("gfx950.evidence.LEDGER", {})
    found = rule("test.rule", Evidence.carried, "a paper", "It is so.")
    switch("test.a", 1, (0, 1, 2), "How many?", rules=(found,), in_bodies=True)
    switch("test.b", "up", ("up", "down"), "Where to?", rules=(found,))
    return found


# ---- switches --------------------------------------------------------------------------------------------------------


def test_every_switch_is_declared_as_it_should_be():
    for name, one in load_switches().items():
        assert one.name == name
        assert one.text.endswith((".", "?")), name
        assert one.rules, name
        assert len(one.answers) > 1, name
        assert all(type(answer) in (int, str) for answer in one.answers), name
        assert one.answer == one.default, name
        assert all(one in switches_of(rule) for rule in one.rules), name


@pytest.mark.parametrize(
    ("default", "answers", "message"),
    [
        (3, (0, 1), "the default 3 must be one of the answers \\(0, 1\\), each once"),
        (0, (0, 1, 0), "each once"),
        (True, (True, False), "must be whole numbers or words"),
        (0, (0, 1.5), "must be whole numbers or words"),
    ],
)
def test_a_switch_that_cannot_be(declared, default, answers, message):
    with pytest.raises(ValueError, match=message):
        switch("test.c", default, answers, "What?")
    assert "test.c" not in models.SWITCHES


def test_a_switch_has_one_home(declared):
    with pytest.raises(ValueError, match=r"switch 'test\.a' is declared twice; a switch has one home"):
        switch("test.a", 1, (0, 1, 2), "How many?")


# ---- making models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"buffer.soffset_in_rang": 0},
            "there is no switch 'buffer.soffset_in_rang'; nearest: buffer.soffset_in_range",
        ),
        ({"": 0}, "there is no switch ''; there are buffer.invalid_is_unbound, "),
        ({SOFFSET: 2}, "switch buffer.soffset_in_range cannot be 2; its answers are 1, 0"),
        ({SOFFSET: "0"}, "cannot be '0'"),
        ({SOFFSET: False}, "cannot be False"),
        ({SOFFSET: 0.0}, "cannot be 0.0"),
        ({SOFFSET: np.int64(0)}, r"cannot be (np\.int64\()?0"),
        ({SOFFSET: None}, "cannot be None"),
        ({SOFFSET: [0]}, r"cannot be \[0\]"),
    ],
)
def test_unknown_switches_and_answers(values, message):
    with pytest.raises(ModelError, match=f"^.*{message}"):
        make_model("m", values)


def test_measured_names_switches_and_tables():
    assert make_model("m", measured={SOFFSET: "capture 1"}).measured == {SOFFSET: "capture 1"}
    with pytest.raises(ModelError, match="measured names 'v_exp_f32', which is neither a switch nor a table"):
        make_model("m", measured={"v_exp_f32": "capture 1"})


def test_a_default_answer_is_no_value():
    assert make_model("m", {SOFFSET: 1}).values == {}
    assert make_model("m", {SOFFSET: 1}).digest == DEFAULT.digest
    assert make_model("m").with_values({SOFFSET: 0}).with_values({SOFFSET: 1}).values == {}


def test_digests_are_of_what_changes_bits(declared):
    plain, body, other = make_model("m"), make_model("m", {"test.a": 0}), make_model("m", {"test.b": "down"})
    assert len({one.digest for one in (plain, body, other)}) == 3
    assert plain.body_digest == other.body_digest != body.body_digest
    both = make_model("m", {"test.a": 0, "test.b": "down"})
    assert both.digest == make_model("n", {"test.b": "down", "test.a": 0}, measured={"test.a": "x"}).digest
    assert both.body_digest == body.body_digest


def test_models_cannot_be_changed():
    model = make_model("m", {SOFFSET: 0})
    with pytest.raises(TypeError):
        model.values[SOFFSET] = 1
    with pytest.raises(AttributeError):
        model.name = "n"


@pytest.mark.parametrize("send", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_models_can_be_sent_to_other_processes(send):
    model = make_model("m", {SOFFSET: 0}, measured={SOFFSET: "capture 1"})
    there = send(model)
    assert there == model
    assert there.digest == model.digest
    assert send(RunOptions(model=model)).model == model


def test_another_answer_is_no_longer_measured():
    model = make_model("m", {SOFFSET: 0}, measured={SOFFSET: "capture 1", UNALIGNED: "capture 1"})
    assert model.with_values({"buffer.range_by_end": 0}).measured == model.measured
    assert model.with_values({SOFFSET: 0}).measured == model.measured
    assert model.with_values({SOFFSET: 1}).measured == {UNALIGNED: "capture 1"}
    assert model.with_values({UNALIGNED: 0}, "n").measured == {SOFFSET: "capture 1"}
    assert model.with_values({UNALIGNED: 0}, "n").name == "n"


# ---- in force --------------------------------------------------------------------------------------------------------


def answers():
    return SWITCHES[SOFFSET].answer, SWITCHES[UNALIGNED].answer


def test_the_inner_model_is_in_force_whole():
    outer, inner = make_model("outer", {SOFFSET: 0}), make_model("inner", {UNALIGNED: 0})
    assert in_force() is DEFAULT
    with using(outer) as found:
        assert (found, in_force(), answers()) == (outer, outer, (0, 1))
        with using(inner):
            assert answers() == (1, 0)
        assert answers() == (0, 1)
        with using("gfx950"):
            assert answers() == (1, 1)
    assert in_force() is DEFAULT


def test_an_error_ends_a_model():
    with pytest.raises(ZeroDivisionError), using(make_model("m", {SOFFSET: 0})):
        raise ZeroDivisionError
    assert answers() == (1, 1)


def test_a_model_that_there_is_not_leaves_the_one_in_force():
    with using(make_model("m", {SOFFSET: 0})):
        with pytest.raises(ModelError), using("no such model"):
            raise AssertionError
        assert answers() == (0, 1)


def test_other_threads_have_models_of_their_own():
    seen, ready = {}, threading.Barrier(3)

    def work(name, model):
        with using(model):
            ready.wait(10)
            seen[name] = answers()
            ready.wait(10)

    chosen = {"a": make_model("a", {SOFFSET: 0}), "b": make_model("b", {UNALIGNED: 0})}
    threads = [threading.Thread(target=work, args=one) for one in chosen.items()]
    for thread in threads:
        thread.start()
    ready.wait(10)
    assert answers() == (1, 1)
    ready.wait(10)
    for thread in threads:
        thread.join()
    assert seen == {"a": (0, 1), "b": (1, 0)}


# ---- names -----------------------------------------------------------------------------------------------------------


def test_every_named_model_can_be_made():
    for name, text in named_models().items():
        assert find_model(name).name == name
        assert text
    assert find_model("gfx950") is DEFAULT
    assert next(iter(named_models())) == "gfx950"


def test_a_name_is_given_once(declared):
    name_model("test", {"test.a": 2}, "For a test.")
    assert find_model("test").values == {"test.a": 2}
    assert named_models()["test"] == "For a test."
    for name in ("test", "gfx950"):
        with pytest.raises(ValueError, match=f"model '{name}' is named twice"):
            name_model(name, {}, "For a test.")


@pytest.mark.parametrize("name", ["gfx942", "", 5, "exact.jsn"])
def test_names_that_there_are_not(name):
    with pytest.raises(ModelError, match=f"there is no model '{name}'; named ones: gfx950.*; a file ends in .json"):
        find_model(name)


def test_a_model_is_found_as_itself():
    model = make_model("m")
    assert find_model(model) is model


# ---- files -----------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path):
    model = make_model("fitted", {SOFFSET: 0}, measured={SOFFSET: "capture 1234", UNALIGNED: "capture 1234"})
    path = tmp_path / "fitted.json"
    write_model(model, path)
    assert json.loads(path.read_text())["schema"] == "gfx950.model/1"
    for found in (read_model(path), find_model(path), find_model(str(path))):
        assert found == model
        assert found.digest == model.digest
    write_model(read_model(path), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_a_file_without_a_name_has_that_of_the_file(tmp_path):
    (tmp_path / "short.json").write_text(json.dumps({"schema": "gfx950.model/1"}))
    assert read_model(tmp_path / "short.json") == Model("short")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is no model: Expecting value"),
        ("[1]", "is no model: its schema is not 'gfx950.model/1'"),
        ('{"schema": "gfx950.model/2"}', "its schema is not 'gfx950.model/1'"),
        ({"values": []}, "'values' is not a table of names and answers \\(whole numbers or words\\)"),
        ({"values": {SOFFSET: True}}, "'values' is not a table of names and answers"),
        ({"values": {SOFFSET: 0.0}}, "'values' is not a table of names and answers"),
        ({"values": {SOFFSET: 7}}, "switch buffer.soffset_in_range cannot be 7; its answers are 1, 0"),
        ({"values": {"buffer.soffset": 1}}, "there is no switch 'buffer.soffset'; nearest: buffer.soffset_in_range"),
        ({"tables": {"v_exp_f32": 1}}, "'tables' is not a table of names and files"),
        ({"tables": {"v_exp_f32": "none.table"}}, "v_exp_f32: "),
        ({"measured": {SOFFSET: 1}}, "'measured' is not a table of names and sources"),
        ({"measured": {"v_exp_f32": "capture"}}, "measured names 'v_exp_f32'"),
        ({"vaules": {SOFFSET: 0}}, "is no model: it has vaules, which no model has"),
    ],
)
def test_files_that_are_no_models(tmp_path, content, message):
    path = tmp_path / "m.json"
    path.write_text(content if isinstance(content, str) else json.dumps({"schema": "gfx950.model/1"} | content))
    with pytest.raises(ModelError, match=f"m\\.json.*{message}"):
        find_model(path)


def test_a_file_that_is_not_there_and_one_that_is_no_text(tmp_path):
    with pytest.raises(ModelError, match=r"none\.json is no model: .*No such file"):
        read_model(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"bytes\.json is no model: "):
        read_model(tmp_path / "bytes.json")


# ---- the ledger ------------------------------------------------------------------------------------------------------

CAPTURE = {"test.a": "capture 1", "test.b": "capture 1"}


@pytest.mark.parametrize(
    ("values", "measured", "level", "source", "text"),
    [
        ({}, {}, "carried", "a paper", "It is so."),
        ({"test.a": 1}, {}, "carried", "a paper", "It is so."),
        ({"test.a": 2}, {}, "chosen", "model m", "It is so. Switched here: test.a = 2."),
        (
            {"test.b": "down", "test.a": 0},
            {},
            "chosen",
            "model m",
            "It is so. Switched here: test.a = 0. Switched here: test.b = down.",
        ),
        ({}, {"test.a": "capture 1"}, "carried", "a paper", "It is so."),
        ({"test.a": 2}, {"test.a": "capture 1"}, "chosen", "model m", "It is so. Switched here: test.a = 2."),
        ({}, CAPTURE, "measured", "capture 1", "It is so."),
        ({}, CAPTURE | {"test.b": "capture 2"}, "measured", "capture 1; capture 2", "It is so."),
        ({"test.a": 2}, CAPTURE, "measured", "capture 1", "It is so. Switched here: test.a = 2."),
    ],
)
def test_a_rule_under_a_model(declared, values, measured, level, source, text):
    model = make_model("m", values, measured=measured)
    found = rule_in_force(declared, model)
    assert (found.name, found.evidence.name, found.source, found.text) == ("test.rule", level, source, text)
    with using(model):
        assert rule_in_force(declared) == found


def test_a_rule_of_the_isa_text_stays_one_when_a_capture_confirms_it(declared):
    text = rule("test.text", Evidence.spec, "CDNA4 ISA 1.2", "It is so.")
    switch("test.c", 1, (1, 0), "Is it?", rules=(text,))
    confirmed = rule_in_force(text, make_model("m", measured={"test.c": "capture 1"}))
    assert (confirmed.evidence, confirmed.source) == (Evidence.spec, "CDNA4 ISA 1.2; as measured: capture 1")
    refuted = rule_in_force(text, make_model("m", {"test.c": 0}, measured={"test.c": "capture 1"}))
    assert (refuted.evidence, refuted.source) == (Evidence.measured, "capture 1")
    assert refuted.text == "It is so. Switched here: test.c = 0."


def test_a_rule_without_switches_is_what_it_is(declared):
    alone = rule("test.alone", Evidence.vendor, "a compiler", "It is so.")
    assert switches_of(alone) == ()
    assert rule_in_force(alone, make_model("m", {"test.a": 2}, measured=CAPTURE)) is alone
    assert [s.name for s in switches_of(declared)] == ["test.a", "test.b"]


# ---- launches --------------------------------------------------------------------------------------------------------

# 64 workgroups of a wave; a lane's load is out of range where 4 * lane + 4 + 4 is above the 252 bytes of the buffer, by
# default; without SOFFSET one lane more is in range.
SOURCE = r"""
#define space(n) __attribute__((address_space(n)))
__attribute__((amdgpu_kernel)) void k(space(1) int *words, space(1) int *out) {
  int lane = __builtin_amdgcn_workitem_id_x();
  __amdgpu_buffer_rsrc_t buffer = __builtin_amdgcn_make_buffer_rsrc((int *)words, 0, 252, 0x27000);
  int word = __builtin_amdgcn_raw_buffer_load_b32(buffer, 4 * lane, 4, 0);
  out[64 * __builtin_amdgcn_workgroup_id_x() + lane] = word;
}
"""
WORDS = np.arange(1, 65, dtype=np.int32)
SWITCHED = {SOFFSET: 0}


@pytest.fixture(scope="module")
def data():
    return compiled(SOURCE)


def in_range(module, options=None, workgroups=64):
    """How many lanes of each workgroup had their load in range."""
    out = np.zeros((workgroups, 64), dtype=np.int32)
    module["k"][workgroups, 64](WORDS, out, options=options)
    return set((out != 0).sum(axis=1).tolist())


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_options_name_the_model_of_a_launch(data, engine, tmp_path):
    write_model(make_model("m", SWITCHED), tmp_path / "m.json")
    module = Device(RunOptions(engine=engine)).load(data)
    count = 64 if engine == "host" else 2
    for model, wanted in ((None, 62), (make_model("m", SWITCHED), 63), ("gfx950", 62), (str(tmp_path / "m.json"), 63)):
        assert in_range(module, RunOptions(engine=engine, model=model), count) == {wanted}, model


def test_options_read_the_file_of_a_model_once(data, tmp_path):
    path = tmp_path / "m.json"
    write_model(make_model("m", SWITCHED), path)
    options = RunOptions(model=str(path))
    path.unlink()
    assert options.model == make_model("m", SWITCHED)
    there = pickle.loads(pickle.dumps(replace(options, threads=2)))
    assert there == replace(options, threads=2)
    module = Device(options).load(data)
    for chosen in (None, options, there):
        assert in_range(module, chosen) == {63}
    assert module["k"].evidence().model == options.model


def test_options_come_before_the_model_in_force(data):
    module = Device().load(data)
    with using(make_model("m", SWITCHED)):
        assert in_range(module) == {63}
        assert in_range(module, RunOptions(model="gfx950")) == {62}
        assert answers() == (0, 1)
    assert in_range(module) == {62}


def test_a_launch_on_several_threads_uses_its_model_on_all(data):
    module = Device(RunOptions(threads=4)).load(data)
    with using(make_model("m", SWITCHED)):
        assert in_range(module) == {63}
    assert in_range(module, RunOptions(threads=4, model=make_model("m", SWITCHED))) == {63}
    assert in_range(module) == {62}


def test_two_threads_launch_under_their_own_models(data):
    module, seen = Device().load(data), {}

    def work(wanted, model):
        with using(model):
            seen[wanted] = set.union(*(in_range(module) for _ in range(20)))

    jobs = [(62, "gfx950"), (63, make_model("m", SWITCHED))]
    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {62: {62}, 63: {63}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "gfx942"}, r"(?s)the model is 'gfx942'.*there is no model 'gfx942'; named ones: gfx950"),
        ({"model": "none.json"}, r"(?s)the model is 'none.json'.*No such file"),
        ({"model": 7}, r"(?s)the model is 7.*there is no model '7'"),
        (
            {"model": make_model("m", SWITCHED), "engine": "device"},
            r"(?s)model 'm' on a device.*a device has its own arithmetic",
        ),
    ],
)
def test_options_with_models_that_cannot_be(options, message):
    with pytest.raises(LaunchError, match=message):
        RunOptions(**options)


def test_a_device_takes_the_defaults():
    for model, found in ((None, None), ("gfx950", DEFAULT), (make_model("m"), make_model("m"))):
        assert RunOptions(engine="device", model=model).model == found


@pytest.mark.parametrize(("content", "text"), [
    ("[" * 200000, "is no model: .*recursion"),
    ('{"schema": "gfx950.model/1", "name": ["x"]}', r"the name of a model is one line of text, got \['x'\]"),
    ('{"schema": "gfx950.model/1", "name": "\\ud800"}', "one line of text"),
    ('{"schema": "gfx950.model/1", "name": "a\\nb"}', "one line of text"),
    ('{"schema": "gfx950.model/1", "values": {"mfma.half.length": 8, "mfma.half.length": 4}}', "half.length' twice"),
    ('{"schema": "gfx950.model/1", "tables": {"v_exp_f32": "a\\u0000b"}}', "names no file"),
])  # fmt: skip
def test_hostile_files(tmp_path, content, text):
    path = tmp_path / "hostile.json"
    path.write_text(content)
    with pytest.raises(ModelError, match=rf"hostile\.json.*{text}"):
        read_model(path)


def test_what_is_no_mapping_or_name():
    wrong = (5,), ("x", [1]), ("x", "abc"), ("x", {5: 1}), ("x", None, ["v_exp_f32"]), ("x", None, None, "m")
    for arguments in wrong:
        with pytest.raises(ModelError, match=r"is one line of text|is not a mapping of names to"):
            make_model(*arguments)


def test_a_model_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "m.json"
    write_model(make_model("m"), path)
    before = path.read_bytes()
    with pytest.raises(OSError, match="it is a folder"):
        write_model(make_model("m"), tmp_path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.json"]
