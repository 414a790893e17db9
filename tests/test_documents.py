"""Every example in the README and in docs/ is run: Python blocks as doctests, console blocks as commands."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [text for kind, text in FENCE.findall(path.read_text()) if kind == language]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_python_examples(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=FLAGS)
    names: dict[str, object] = {}
    for number, text in enumerate(blocks(path, "python")):
        test = parser.get_doctest(text, names, f"{path.name} block {number}", str(path), 0)
        runner.run(test, clear_globs=False)
        names = test.globs
    assert runner.summarize().failed == 0


def console_examples():
    for path in DOCUMENTS:
        for number, text in enumerate(blocks(path, "console")):
            for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                yield pytest.param(command, expected, id=f"{path.name}-{number}-{command[:40]}")


@pytest.mark.parametrize(("command", "expected"), list(console_examples()))
def test_console_examples(command, expected, tmp_path):
    words = shlex.split(command)
    assert words[0] == "gfx950"
    command, environment = [sys.executable, "-m", *words], os.environ | {"COLUMNS": "100"}
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    checker = doctest.OutputChecker()
    assert checker.check_output(expected, run.stdout, FLAGS), f"printed:\n{run.stdout}\nexpected:\n{expected}"


def test_ci_runs_the_readme_s_test_command():
    spec = importlib.util.spec_from_file_location("readme_command", ROOT / ".ci" / "readme_command.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "README.md").read_text()
    assert "pytest" in module.command("test", text)
    assert module.command("run", text).splitlines()[-1] == "gfx950 check drafter_attention"
    assert "readme_command.py test" in (ROOT / ".ci" / "run").read_text()
