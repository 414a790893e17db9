"""A fixture for folders of tests that translate much: the next run finds it, and the user's cache stays as it is."""

import pytest
from kernel_builds import FOLDER


@pytest.fixture(autouse=True, scope="session")
def translations_apart():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GFX950_CACHE", str(FOLDER / "translations"))
        yield
