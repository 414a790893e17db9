"""Every rule is proved by a test or listed with a reason, and docs/rules.md says which."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import table
from listed import NOTES, PROVED, REASONS

from gfx950.evidence import LEDGER
from gfx950.isa.registry import load

RULES = [rule.name for rule in table.recorded_rules()]


def test_every_rule_is_kept_in_one_way():
    marked = table.marked_tests()
    assert len(set(RULES)) == len(RULES) > 150
    proved = {*marked, *PROVED}
    assert proved | set(REASONS) == set(RULES), "a rule is neither proved nor listed, or an id is of no rule"
    assert not proved & set(REASONS), "a rule is proved and listed as one that cannot be"
    assert all(reason and not reason.endswith(".") for reason in REASONS.values())


def test_notes_are_of_rules_that_are_kept_and_name_rules_of_the_ledger():
    import emu.execute  # noqa: F401

    load()
    assert set(NOTES) <= {*table.marked_tests(), *PROVED}
    for text in [*NOTES.values(), *REASONS.values()]:
        for names in re.findall(r"\[rules? ([^]]+)\]", text):
            assert set(names.split(", ")) <= set(LEDGER), text


@pytest.mark.parametrize("node", sorted({node for nodes in PROVED.values() for node in nodes}))
def test_tests_that_are_named_exist(node):
    path, name = node.split("::")
    tree = ast.parse((table.ROOT / path).read_text())
    assert any(isinstance(one, ast.FunctionDef) and one.name == name for one in tree.body)


@pytest.mark.skipif(not table.FACTS.exists(), reason="the facts are not beside the repository")
def test_the_recorded_rules_are_those_of_the_facts():
    assert table.facts_rules(table.FACTS) == table.recorded_rules()


def test_the_document_is_the_generated_one():
    assert table.DOCUMENT.read_text() == table.document(), "run: python tests/rules/table.py"


def test_marks_without_a_rule_are_found(tmp_path, monkeypatch):
    (tmp_path / "test_a.py").write_text("@pytest.mark.rule('RJ-1', 'P9')\ndef test_b(): ...\n")
    monkeypatch.setattr(table, "HERE", tmp_path)
    assert table.marked_tests() == {"RJ-1": ["tests/rules/test_a.py::test_b"], "P9": ["tests/rules/test_a.py::test_b"]}


def test_bullets_get_their_ids(tmp_path):
    (tmp_path / "pitfalls.md").write_text(
        "# T\n\n## 7. One\n- RJ-001 §2: a is b.\n  Test: c. [C] d.\n- RJ-001, RJ-002 §3: e.\n- A note. Test: no.\n"
    )
    (tmp_path / "peers.md").write_text("# P\n- first; second\n  goes on;\n")
    found = [(rule.name, rule.text) for rule in table.facts_rules(tmp_path)]
    assert found == [
        ("RJ-001", "§2: a is b. [C] d."), ("RJ-001.2", "§3: e."), ("S7.1", "A note."), ("P1.1", "first"),
        ("P1.2", "second goes on"),
    ]  # fmt: skip
