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

RULES = [rule.name for rule in table.rules()]


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


def test_the_document_is_the_generated_one():
    assert table.DOCUMENT.read_text() == table.document(), "run: python tests/rules/table.py"


def test_marks_without_a_rule_are_found(tmp_path, monkeypatch):
    (tmp_path / "test_a.py").write_text("@pytest.mark.rule('RJ-1', 'P9')\ndef test_b(): ...\n")
    monkeypatch.setattr(table, "HERE", tmp_path)
    assert table.marked_tests() == {"RJ-1": ["tests/rules/test_a.py::test_b"], "P9": ["tests/rules/test_a.py::test_b"]}
