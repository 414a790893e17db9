"""The ledger: one home for each rule, nothing half declared."""

import pytest

from gfx950.evidence import Evidence, rule, weakest


@pytest.fixture
def ledger(monkeypatch):
    monkeypatch.setattr("gfx950.evidence.LEDGER", {})


def test_a_rule_may_be_declared_again_only_with_the_same_contents(ledger):
    first = rule("a.b", Evidence.chosen, "nowhere", "text")
    assert rule("a.b", Evidence.chosen, "nowhere", "text") == first
    with pytest.raises(ValueError, match=r"rule 'a.b' is declared twice with different contents"):
        rule("a.b", Evidence.spec, "nowhere", "text")


@pytest.mark.parametrize(
    "parts",
    [("", Evidence.spec, "s", "t"), ("n", 4, "s", "t"), ("n", Evidence.spec, None, "t"), ("n", Evidence.spec, "s", "")],
)
def test_missing_parts_are_refused(ledger, parts):
    with pytest.raises(TypeError, match="takes a name, an Evidence level, a source and a text"):
        rule(*parts)


def test_a_result_is_as_sure_as_its_weakest_rule(ledger):
    carried, chosen = (rule(level.name, level, "nowhere", "text") for level in (Evidence.carried, Evidence.chosen))
    assert weakest([]) is Evidence.spec
    assert weakest([carried]) is Evidence.carried
    assert weakest([carried, chosen]) is Evidence.chosen
    assert Evidence.chosen < Evidence.carried < Evidence.published < Evidence.measured < Evidence.spec
