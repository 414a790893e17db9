"""The ledger: one home for each rule, nothing half declared."""

import pytest

from gfx950.evidence import LEVELS, Evidence, counted, counts, rule, weakest, weakest_first


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
    assert Evidence.chosen < Evidence.vendor < Evidence.carried < Evidence.published < Evidence.measured < Evidence.spec
    assert LEVELS == ("chosen", "vendor", "carried", "published", "measured", "spec")


def test_rules_weakest_first_are_each_there_once(ledger):
    b, a, vendor = (
        rule(n, e, "s", "t") for n, e in (("b", Evidence.spec), ("a", Evidence.spec), ("c", Evidence.vendor))
    )
    assert weakest_first([b, a, vendor, b]) == (vendor, a, b)


def test_an_instruction_counts_once_with_its_weakest_rule(ledger):
    vendor, published = (rule(level.name, level, "s", "t") for level in (Evidence.vendor, Evidence.published))
    found = counts({"v_a": (published,), "v_b": (published, vendor), "v_c": (), "v_d": (published,)})
    assert found == {"measured": 0, "published": 2, "carried": 0, "vendor": 1, "chosen": 0, "spec": 1}
    assert counted(found) == "4 instructions: 0 measured, 2 published, 0 carried, 1 vendor, 0 chosen, 1 spec"
    assert counted(counts({"v_a": ()})).startswith("1 instruction: 0 measured")
