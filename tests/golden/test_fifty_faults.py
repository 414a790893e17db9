"""Fifty single wrong bits, each after another instruction of real machine code: `gfx950 diff --bisect` names the
instruction, and where it does not, it claims none.

The chip is the stand-in. A fault that changes no result, or that stops the launch, is drawn again and counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from click.testing import CliRunner
from drawn_faults import Drawn, draws, launch
from hip_stand_in import stand_in

from gfx950.hip import HipError
from golden.diff import Comparison, Plan, diff
from golden.diff_commands import diff as command
from golden.first_wrong import FirstWrong, find_first_wrong

COUNT, WANTED = 50, 48
SAMPLE = (4, 7, 12, 20, 25, 26, 28, 46)
PLAN = Plan(("numpy", "device"))
STEPS = 100_000  # of a workgroup that a fault keeps in a loop


@dataclass
class Score:
    """verdicts: by fault, in order. redrawn: why faults were not taken, by how many."""

    verdicts: list[tuple[Drawn, str, FirstWrong | None]] = field(default_factory=list)
    redrawn: Counter = field(default_factory=Counter)

    def count(self, verdict: str) -> int:
        return sum(one == verdict for _, one, _ in self.verdicts)

    def __str__(self) -> str:
        first = f"{self.count('named')} of {len(self.verdicts)} named; drawn again: {dict(self.redrawn)}"
        others = [
            f"{d}\n{w.finding if w else 'nothing found'}" for d, verdict, w in self.verdicts if verdict != "named"
        ]
        return "\n".join([first, *others])


def struck(numbers) -> Score:
    """Each fault looked for with `diff` and its bisection."""
    score, used = Score(), set()
    for number in numbers:
        for drawn in draws(number, used):
            found = first_wrong(drawn, score.redrawn)
            if found is not None:
                used.add((drawn.launch, drawn.fault.offset))
                score.verdicts.append((drawn, verdict(drawn, found[1]), found[1]))
                break
    return score


def first_wrong(drawn: Drawn, redrawn: Counter) -> tuple[Comparison, FirstWrong | None] | None:
    """What diff and its bisection find; None for a fault that changes no result or stops the launch."""
    subject = launch(drawn.launch)[0]
    with stand_in(faults=[drawn.fault]) as one:
        one.options = replace(one.options, step_limit=STEPS)
        try:
            found = diff(subject, PLAN)
        except HipError:
            redrawn["stops the launch"] += 1
            return None
        if found.good:
            redrawn["masked"] += 1
            return None
        return found, find_first_wrong(subject, PLAN, found)


def verdict(drawn: Drawn, first: FirstWrong | None) -> str:
    """Whether the instruction is named, in the right wave and at the right execution; `honest` where only something
    is named that passes on what was wrong, `wrong` for the claim of another instruction."""
    if first is None:
        return "honest"
    fault, finding = drawn.fault, first.finding
    point = finding.point
    right = point is not None and point.offset + launch(drawn.launch)[2] == fault.offset
    if right and fault.wave is not None:
        right = (finding.workgroup, finding.wave) == (fault.workgroup, fault.wave)
        right = right and fault.execution in (None, point.occurrence)
    if right:
        return "named"
    return "wrong" if finding.kind in ("instruction", "store", "branch", "start") else "honest"


def test_a_sample_is_named():
    score = struck(SAMPLE)
    assert score.count("named") == len(SAMPLE), str(score)


@pytest.mark.slow
def test_fifty_are_named():
    score = struck(range(COUNT))
    print(score)
    assert len(score.verdicts) == COUNT
    assert len({(drawn.fault.kernel, drawn.fault.offset) for drawn, _, _ in score.verdicts}) == COUNT
    assert score.count("named") >= WANTED, str(score)
    assert score.count("wrong") == 0, str(score)


# ---- the command -----------------------------------------------------------------------------------------------------


def words_of(drawn: Drawn, folder) -> list[str]:
    """The command line of a launch, its files in a folder."""
    subject = launch(drawn.launch)[0]
    (folder / "k.hsaco").write_bytes(subject.source)
    geometry = subject.geometry
    groups = tuple(-(-items // block) for items, block in zip(geometry.grid, geometry.block, strict=True))
    sizes = {"--grid": groups, "--block": geometry.block}
    words = [str(folder / "k.hsaco"), "--kernel", subject.name]
    words += [word for name, size in sizes.items() for word in (name, ",".join(map(str, size)))]
    for n, argument in enumerate(subject.arguments):
        if isinstance(argument.value, np.ndarray):
            np.save(folder / f"{n}.npy", argument.value)
            out = f":{folder / f'{n}.out.npy'}" if argument.output else ""
            words += ["--arg", f"{folder / f'{n}.npy'}{out}"]
        else:
            words += ["--arg", str(argument.value)]
    return words


def run_command(number: int, folder, *more: str):
    """The first fault of a number that changes a result, and what the command says of it."""
    for drawn in draws(number, set()):
        with stand_in(faults=[drawn.fault]):
            result = CliRunner().invoke(command, [*words_of(drawn, folder), "--bisect", *more])
        if result.exit_code == 1 and isinstance(result.exception, SystemExit):
            return drawn, result
    raise AssertionError("no fault that changes a result")


@pytest.mark.parametrize("number", [7, 12, 28])
def test_the_command_names_it(number, tmp_path):
    drawn, result = run_command(number, tmp_path)
    offset = drawn.fault.offset - launch(drawn.launch)[2]
    text = " ".join(result.stdout.split())
    assert "[first wrong] kernel" in text
    assert re.search(rf"(comes from|agree before) `{re.escape(drawn.text)}` at offset {offset:#x}", text), text
    assert "hip_stand_in" in text or "stand-in" in text


def test_the_command_names_it_in_json(tmp_path):
    drawn, result = run_command(13, tmp_path, "--json")
    (found,) = json.loads(result.stdout)["comparisons"]
    first = found["first_wrong"]
    offset = drawn.fault.offset - launch(drawn.launch)[2]
    assert (first["kernel"], first["offset"], first["kind"]) == (drawn.fault.kernel, offset, "instruction")
    assert first["instruction"] == drawn.text
    (register,) = (one for one in first["differences"] if one["register"] == drawn.fault.register)
    at = register["lanes"].index(drawn.fault.lane)
    assert int(register["emulator"][at], 16) ^ int(register["suspect"][at], 16) == 1 << drawn.fault.bit


def test_the_page_is_one_small_offline_file_with_the_heat_map(tmp_path):
    page = tmp_path / "report.html"
    drawn, _ = run_command(6, tmp_path, "--html", str(page))
    text = page.read_text()
    assert page.stat().st_size < 1_000_000
    assert not re.search(r"https?:|url\(|@import|<script|<img|<link|src=", text)
    assert "<svg" in text
    assert re.search(r"<rect [^>]*><title>row \d+, column \d+", text)
    assert f"at offset {drawn.fault.offset - launch(drawn.launch)[2]:#x}" in text
    assert [p.name for p in tmp_path.glob("*.html*")] == ["report.html"]
