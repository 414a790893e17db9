"""Prints one of the README's two commands: the fenced `sh` block under the heading that names it (`run` or `test`)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HEADINGS = {"run": "Run the main job", "test": "Run the tests"}


def command(name: str, text: str) -> str:
    """The first `sh` block after the heading."""
    found = re.search(rf"^## {HEADINGS[name]}$.*?^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise SystemExit(f"README.md has no sh block under '## {HEADINGS[name]}'")
    return found[1]


if __name__ == "__main__":
    print(command(sys.argv[1], Path(__file__).parent.parent.joinpath("README.md").read_text()))
