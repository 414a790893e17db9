"""Translations made by these tests stay out of the user's cache."""

import pytest
from kernel_builds import FOLDER


@pytest.fixture(autouse=True, scope="session")
def translations_apart():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GFX950_CACHE", str(FOLDER / "translations"))
        yield
