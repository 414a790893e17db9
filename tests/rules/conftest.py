"""`@pytest.mark.rule(id)` says which rule of docs/rules.md a test proves; `@programs(...)` gives it machine code."""

import pytest
from kernel_builds import FOLDER


def pytest_configure(config):
    config.addinivalue_line("markers", "rule(id, ...): the test proves these rules of docs/rules.md")


@pytest.fixture(autouse=True, scope="session")
def translations_apart():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GFX950_CACHE", str(FOLDER / "translations"))
        yield
