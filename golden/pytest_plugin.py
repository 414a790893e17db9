"""The pytest plugin for tests of kernels: fixtures `gfx950_device`, `assert_bits_equal` and `gfx950_compare`.

    def test_scale(gfx950_device, assert_bits_equal):
        gfx950_device.load("scale.hsaco")["scale"][2, 64](x, y, n)
        assert_bits_equal(y, expected)

`--gfx950=auto|device|emulator`, the environment variable GFX950_TEST and the ini option `gfx950` say where such tests
run, in this order. Every pytest that finds this package has it, as the plugin `gfx950`, so nothing is loaded before a
test asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from golden.bits import assert_bits_equal as assert_bits_equal
    from golden.chosen_device import Choice, ChosenDevice

MODES = ("auto", "device", "emulator")
VARIABLE = "GFX950_TEST"
ON_CHIP = "gfx950_device_only"
PACKAGES = ("gfx950", "emu", "codegen", "golden")
_MODE = pytest.StashKey[str]()
_FOUND = pytest.StashKey["Choice | str"]()  # a string says why there is none


def __getattr__(name: str) -> Any:
    """`assert_bits_equal` of golden.bits, loaded when it is asked for."""
    if name == "assert_bits_equal":
        from golden.bits import assert_bits_equal

        return assert_bits_equal
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares where to run."""
    text = (
        "where tests with gfx950_device run: auto (the default) on the MI355X, and skipped with the reason where there"
        " is none; device, a missing chip being an error; emulator"
    )
    group = parser.getgroup("gfx950", "kernels for gfx950 (AMD MI355X)")
    group.addoption("--gfx950", choices=MODES, default=None, help=f"{text} [also: {VARIABLE} in the environment]")
    parser.addini("gfx950", f"{'|'.join(MODES)}: as --gfx950, which comes first", type="string", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Reads where to run. Raises UsageError for a place that is none."""
    config.addinivalue_line("markers", f"{ON_CHIP}: makes sense on a chip alone, and is skipped on the emulator")
    stated = [
        ("--gfx950", config.getoption("gfx950") or ""),
        (VARIABLE, os.environ.get(VARIABLE, "")),
        ("the ini option gfx950", config.getini("gfx950")),
    ]
    where, mode = next(((w, m) for w, m in stated if m), ("", "auto"))
    if mode not in MODES:
        raise pytest.UsageError(f"{where} is {mode!r}; it is one of {', '.join(MODES)}")
    config.stash[_MODE] = mode


def pytest_report_header(config: pytest.Config) -> str | None:
    """Says where tests run if it is not the usual place."""
    mode = config.stash[_MODE]
    return None if mode == "auto" else f"gfx950: {mode}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what makes sense on a chip alone."""
    if item.get_closest_marker(ON_CHIP) is None:
        return
    if item.config.stash[_MODE] == "emulator":
        _skip(f"{ON_CHIP}: makes sense on a chip alone, and --gfx950 is emulator")
    _chosen(item.config, f"; this test is {ON_CHIP}, and the emulator does not stand in for it")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Keeps the inside of these packages out of a failure that is told in words: the line of the test is what counts.
    `--full-trace` shows it."""
    if call.excinfo is None or item.config.rootpath == Path(__file__).parents[1]:
        return  # this project's own tests are about the inside
    entry: TracebackType | None = call.excinfo.tb
    while entry is not None:
        names = entry.tb_frame.f_globals
        if str(names.get("__name__")).partition(".")[0] in PACKAGES:
            names.setdefault("__tracebackhide__", _is_told)
        entry = entry.tb_next


def _is_told(found: pytest.ExceptionInfo[BaseException] | None) -> bool:
    """Whether an error says by itself what is wrong with a launch."""
    from emu.errors import EmulatorError

    if found is None or isinstance(found.value, EmulatorError):
        return found is not None
    raised = str(found.traceback[-1].statement).lstrip().startswith("raise ")  # else it is a mistake of ours
    return raised and isinstance(found.value, TypeError | ValueError)


def _skip(reason: str) -> NoReturn:
    """Skips the test that asks, and gives its place as the one that skips."""
    raise pytest.skip.Exception(reason, _use_item_location=True)


def _chosen(config: pytest.Config, hint: str) -> Choice:
    """What there is to run on, looked for once. Skips the test where there is nothing, or fails it where there must be
    a chip. hint: what else would do."""
    found = config.stash.get(_FOUND, None)
    if found is None:
        found = config.stash[_FOUND] = _look(config.stash[_MODE])
    if not isinstance(found, str):
        return found
    if config.stash[_MODE] == "device":
        advice = f"give --gfx950=emulator, or unset --gfx950 ({VARIABLE}, the ini option) to have such tests skipped"
        pytest.fail(f"--gfx950 is device, and there is none: {found}; {advice}", pytrace=False)
    _skip(f"needs an MI355X: {found}{hint}")


def _look(mode: str) -> Choice | str:
    from gfx950.hip import NoDevice
    from golden.chosen_device import the_chip, the_emulator

    if mode == "emulator":
        return the_emulator()
    try:
        return the_chip()
    except NoDevice as error:
        return error.what


@pytest.fixture
def gfx950_device(request: pytest.FixtureRequest) -> ChosenDevice:
    """An `emu.Device` on the MI355X or, with --gfx950=emulator, on the emulator: `.load(path)["kernel"][1, 64](out)`.

    `.kind` is "device" or "emulator", `.describe()` says which. Without a chip the test is skipped with the reason.
    """
    choice = _chosen(request.config, "; or run these tests with --gfx950=emulator")
    from golden.chosen_device import ChosenDevice

    return ChosenDevice(choice)


@pytest.fixture(name="assert_bits_equal")
def _assert_bits_equal() -> Callable[..., None]:
    """`assert_bits_equal(actual, expected, format=None, name="result", where=None, nan="bits")`, without tolerance."""
    from golden.bits import assert_bits_equal

    return assert_bits_equal


@pytest.fixture
def gfx950_compare(gfx950_device: ChosenDevice) -> Callable[..., list[object]]:
    """`gfx950_compare(code_object, "kernel", grid, block, *arguments)`: one launch on the emulator and on
    `gfx950_device`, each with copies of the arguments; fails unless all arrays end with equal bits.

    Returns the arguments as the device left them. Where the device is the emulator, its waves run in other orders.
    Keywords: dynamic_lds, and formats by argument name or number (`formats={"out": "e4m3fn"}`).
    """

    def compare(code: Any, kernel: str, grid: Any, block: Any, *arguments: object, **keywords: Any) -> list[object]:
        __tracebackhide__ = True
        from golden.launch_twice import Twice

        results, report = Twice(gfx950_device, code, kernel, grid, block, arguments, **keywords).run()
        if report:
            raise AssertionError(report)
        return results

    return compare
