"""A pytest plugin that notes which instructions the passing tests of each module ran, on whichever engine.

    PYTHONPATH=tests/toolchain python -m pytest -p record_instructions --instructions-to FILE tests/...

FILE gets one JSON object: the sorted mnemonics by module. A definition's body runs for a step of the numpy engine, for
a translation of the host engine and for a call on lane values, so it is the bodies that are watched. The test of a
native, the compiled arithmetic of a large body, counts for the instructions whose bodies call it.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from emu.wave import Wave
from gfx950.arithmetic.native import Native
from gfx950.instruction_rules import _recorded
from gfx950.isa.registry import Instruction, load

RUNNING: set[str] = set()  # by the test that runs now
FOUND: dict[str, set[str]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--instructions-to", help="The file that gets the mnemonics by module.")


def pytest_configure(config: pytest.Config) -> None:
    callers: dict[str, set[str]] = {}
    for instruction in load().values():
        for native in _recorded(instruction).natives:
            callers.setdefault(native, set()).add(instruction.name)
        watch(instruction)
    watch_natives(callers)
    watch_steps()


def watch(instruction: Instruction) -> None:
    """Has a definition note its name when its body runs."""
    body = instruction.body

    @functools.wraps(body)
    def noted(*args, **kwargs):
        RUNNING.add(instruction.name)
        return body(*args, **kwargs)

    object.__setattr__(instruction, "body", noted)


def watch_steps() -> None:
    """Has the numpy engine note its steps: waits, hints and ends have no body that runs."""
    step = Wave.step

    @functools.wraps(step)
    def noted(wave, decoded):
        RUNNING.add(decoded.instruction.name)
        return step(wave, decoded)

    Wave.step = noted


def watch_natives(callers: dict[str, set[str]]) -> None:
    """Has natives note the instructions that call them when they are called themselves."""
    call = Native.__call__

    @functools.wraps(call)
    def noted(native, *args, **kwargs):
        RUNNING.update(callers.get(native.name, ()))
        return call(native, *args, **kwargs)

    Native.__call__ = noted


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    RUNNING.clear()
    yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        FOUND.setdefault(report.nodeid.partition("::")[0], set()).update(RUNNING)


def pytest_sessionfinish(session: pytest.Session) -> None:
    found = {module: sorted(names) for module, names in sorted(FOUND.items())}
    target = session.config.getoption("--instructions-to")
    if target:
        Path(target).write_text(json.dumps(found, indent=1) + "\n")
