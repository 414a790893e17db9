"""Translations made by these tests stay out of the user's cache."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for kernel_builds

from kernel_builds import FOLDER


@pytest.fixture(autouse=True, scope="session")
def translations_apart():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GFX950_CACHE", str(FOLDER / "translations"))
        yield
