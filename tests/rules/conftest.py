"""`@pytest.mark.rule(id)` says which rule of docs/rules.md a test proves; `@programs(...)` gives it machine code."""

from translations import translations_apart  # noqa: F401


def pytest_configure(config):
    config.addinivalue_line("markers", "rule(id, ...): the test proves these rules of docs/rules.md")
