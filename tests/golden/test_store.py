"""Goldens on disk: what is written is read, and whatever is wrong with the files is said."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from codegen.kernel_package import Output
from gfx950.evidence import LEVELS
from golden import store
from golden.store import MissingGolden, RecordedEvidence, paths, read, recorded, sha256, write

NUMBERS = dict.fromkeys(LEVELS, 0) | {"carried": 1, "spec": 3}
EVIDENCE = RecordedEvidence({"mfma.half.c": "carried"}, NUMBERS, "gfx950", "0123")
OTHER = dataclasses.replace(EVIDENCE, rules={})


def record(made_up, home, case="one", package=None, change=None, evidence=EVIDENCE):
    package = package or made_up.package
    inputs = package.build(case)
    outputs = made_up.right(inputs)
    if change is not None:
        change(outputs)
    return write(package, case, inputs, outputs, evidence, home)


def edit(home, change):
    path, _ = paths("made_up", "one", home)
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))


def test_what_is_written_is_read(made_up, tmp_path):
    assert record(made_up, tmp_path) == "new"
    entry, arrays = read("made_up", "one", tmp_path)
    right = made_up.right(made_up.package.build("one"))
    assert list(arrays) == ["codes"], "of sums only the digest is kept"
    assert arrays["codes"].dtype == np.uint8
    assert np.array_equal(arrays["codes"], right["codes"])
    assert entry.outputs["sums"] == store.StoredOutput("float32", [4], sha256(right["sums"]))
    assert entry.inputs == {"x": sha256(made_up.package.build("one"))}
    assert entry.code_object == sha256(made_up.package.compiled().object)
    assert (entry.kernel, entry.case, entry.evidence) == ("made_up", "one", EVIDENCE)
    assert recorded("made_up", tmp_path) == ["one"]


def test_several_arrays_keep_their_bits(made_up, tmp_path):
    package = made_up.with_outputs(Output("sums", "f32", True, str), Output("codes", "e4m3fn", True, str))
    nans = np.array([0x7FC00001, 0xFF800001, 0x80000000, 1], np.uint32)
    record(made_up, tmp_path, package=package, change=lambda out: out.update(sums=nans.view(np.float32)))
    _, arrays = read("made_up", "one", tmp_path)
    assert np.array_equal(arrays["sums"].view(np.uint32), nans)
    assert arrays["codes"].shape == (4, 4)


def test_of_a_large_output_only_the_digest_is_kept(made_up, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MOST_KEPT", 15)  # the codes are 16 bytes
    record(made_up, tmp_path)
    entry, arrays = read("made_up", "one", tmp_path)
    assert arrays == {}
    assert entry.outputs["codes"].sha256 == sha256(made_up.right(made_up.package.build("one"))["codes"])


def test_recording_twice_gives_identical_files(made_up, tmp_path):
    record(made_up, tmp_path / "a")
    record(made_up, tmp_path / "b")
    assert record(made_up, tmp_path / "b") == "unchanged"
    for a, b in zip(paths("made_up", "one", tmp_path / "a"), paths("made_up", "one", tmp_path / "b"), strict=True):
        assert a.read_bytes() == b.read_bytes()


def flip(outputs):
    outputs["codes"][1, 1] ^= 1


def flip_digest_only(outputs):
    outputs["sums"][0] = -outputs["sums"][0]


def test_writing_says_what_it_changed(made_up, tmp_path):
    record(made_up, tmp_path)
    assert record(made_up, tmp_path, evidence=OTHER) == "same bits"
    assert record(made_up, tmp_path, evidence=OTHER, change=flip) == "CHANGED"
    assert record(made_up, tmp_path, evidence=OTHER) == "CHANGED"
    assert record(made_up, tmp_path, evidence=OTHER, change=flip_digest_only) == "CHANGED"
    paths("made_up", "one", tmp_path)[0].write_text("{")
    assert record(made_up, tmp_path, change=flip_digest_only) == "CHANGED"
    paths("made_up", "one", tmp_path)[1].unlink()
    assert record(made_up, tmp_path) == "CHANGED"
    paths("made_up", "one", tmp_path)[1].write_bytes(bytes(16))
    assert record(made_up, tmp_path) == "CHANGED"
    package = dataclasses.replace(made_up.package, digests=lambda inputs: {"x": "other"})
    assert record(made_up, tmp_path, package=package) == "CHANGED"
    made_up.generator = 2
    assert record(made_up, tmp_path) == "CHANGED"


def test_a_missing_golden_says_how_to_record_it(tmp_path):
    with pytest.raises(
        MissingGolden,
        match=r"no golden .* made_up case one; .* `gfx950 golden record made_up --case one`",
    ):
        read("made_up", "one", tmp_path)
    assert recorded("made_up", tmp_path) == []


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: bytes([b[0] ^ 1]) + b[1:], lambda b: b""])
def test_a_damaged_data_file(made_up, tmp_path, damage):
    record(made_up, tmp_path)
    path = paths("made_up", "one", tmp_path)[1]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"one\.bin: codes does not have the sha256 .*: the file is damaged"):
        read("made_up", "one", tmp_path)


def test_a_missing_data_file(made_up, tmp_path):
    record(made_up, tmp_path)
    paths("made_up", "one", tmp_path)[1].unlink()
    with pytest.raises(ValueError, match=r"one\.bin with the bytes of the golden is missing"):
        read("made_up", "one", tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", '"x"', "\x00"])
def test_garbage_instead_of_json(made_up, tmp_path, text):
    record(made_up, tmp_path)
    paths("made_up", "one", tmp_path)[0].write_text(text)
    with pytest.raises(ValueError, match=r"one\.json is no golden record: ."):
        read("made_up", "one", tmp_path)


def test_bytes_that_are_no_text(made_up, tmp_path):
    record(made_up, tmp_path)
    paths("made_up", "one", tmp_path)[0].write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"one\.json is no golden record: "):
        read("made_up", "one", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda raw: raw.update(schema="gfx950.golden/0"),
            "its schema is 'gfx950.golden/0', expected 'gfx950.golden/2'",
        ),
        (lambda raw: raw.pop("schema"), "its schema is None"),
        (lambda raw: raw.pop("outputs"), "it has no 'outputs'"),
        (lambda raw: raw.pop("inputs"), "inputs"),
        (lambda raw: raw.update(more=1), "more"),
        (lambda raw: raw.pop("evidence"), "it has no 'evidence'"),
        (lambda raw: raw.update(evidence={"mfma.half.c": "carried"}), "mfma.half.c"),
        (lambda raw: raw["evidence"].update(rules=[]), "its evidence has no rules"),
        (
            lambda raw: raw["evidence"]["instructions"].pop("vendor"),
            "no count of .* each of chosen, vendor",
        ),
        (lambda raw: raw["outputs"]["codes"].update(dtype="u99"), "codes is no u99"),
        (lambda raw: raw["outputs"]["codes"].update(shape=[3, 3]), r"codes is no uint8\[3, 3\]"),
        (lambda raw: raw["outputs"]["codes"].update(offset=1), "damaged"),
        (lambda raw: raw.update(case="two"), r"one\.json is the golden of made_up case two: the file was moved"),
    ],
)
def test_records_that_do_not_fit(made_up, tmp_path, change, message):
    record(made_up, tmp_path)
    edit(tmp_path, change)
    with pytest.raises(ValueError, match=message):
        read("made_up", "one", tmp_path)


def test_what_changed_in_the_evidence_is_said():
    assert EVIDENCE.changes(EVIDENCE) == []
    rules = {"mfma.half.c": "measured", "lds.m0": "vendor"}
    now = RecordedEvidence(rules, NUMBERS | {"carried": 0, "measured": 1}, "fitted", "4567")
    assert EVIDENCE.changes(now) == [
        "mfma.half.c is measured, was carried",
        "lds.m0 (vendor) is new",
        "the model is fitted (4567), was gfx950 (0123)",
        "4 instructions: 1 measured, 0 published, 0 carried, 0 vendor, 0 chosen, 3 spec;"
        " were 4 instructions: 0 measured, 0 published, 1 carried, 0 vendor, 0 chosen, 3 spec",
    ]
    assert now.changes(EVIDENCE)[1] == "lds.m0 (was vendor) is gone"
