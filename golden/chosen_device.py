"""Where tests of kernels run: the chip, or the emulator in its place, with the same calls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from emu.dispatch import Device, RunOptions
from gfx950.hip import Hip
from gfx950.models import in_force

Kind: TypeAlias = Literal["device", "emulator"]


@dataclass(frozen=True)
class Choice:
    """What there is to run on. kind: "device" for the chip. text: which one, in words. threads: the emulator's."""

    kind: Kind
    text: str
    threads: int = 1

    def options(self) -> RunOptions:
        """How to run there."""
        return RunOptions(engine="device") if self.kind == "device" else RunOptions(threads=self.threads)


def the_chip() -> Choice:
    """The device behind HIP. Raises gfx950.hip.NoDevice that says what was looked for and where."""
    with Hip() as hip:
        p = hip.properties
        memory = f"{p.memory / 2**30:.0f} GiB"
        text = f"device {hip.index}: {p.name}, {p.architecture}, {p.compute_units} compute units, {memory}"
    return Choice("device", text)


def the_emulator(environment: Mapping[str, str] = os.environ) -> Choice:
    """The emulator on this process's share of the cores, of which pytest-xdist has as many processes as it says."""
    workers = environment.get("PYTEST_XDIST_WORKER_COUNT", "1")
    threads = max(1, (os.cpu_count() or 1) // max(1, int(workers) if workers.isdecimal() else 1))
    count = "1 thread" if threads == 1 else f"{threads} threads"
    return Choice("emulator", f"the emulator, engine host, {count}, model {in_force().name}", threads)


class ChosenDevice(Device):
    """An `emu.Device` that runs on the chip or on the emulator. kind: "device" or "emulator"."""

    def __init__(self, choice: Choice) -> None:
        super().__init__(choice.options())
        self.choice = choice
        self.kind: Kind = choice.kind

    def describe(self) -> str:
        """Which chip, or that it is the emulator, in one line."""
        return self.choice.text
