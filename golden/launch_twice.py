"""One launch run twice, on the emulator and on what a test chose, with copies of the same arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from emu.arguments import is_tensor
from emu.dispatch import Device, LaunchableKernel, Source, Watch
from emu.errors import EmulatorError
from golden.bits import unequal
from golden.chosen_device import ChosenDevice, the_emulator

SHOWN = 8  # arguments whose differences are told
SIDES = {"device": ("device", "emulator"), "emulator": ("waves in another order", "emulator")}
RACE = "a race: what waves or workgroups leave depends on their order (here {})"
FAR = 1 << 16  # instructions of a turn that goes as far as a barrier, but does not keep out what a wave waits for


@dataclass(frozen=True)
class Order:
    """How the second run's waves and workgroups take turns. text: in words. options: what RunOptions calls it."""

    text: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


USUAL = Order()
ORDERS = (
    Order("the last first, each to its barrier", {"order": "reversed", "quantum": FAR}),
    Order("drawn, with long turns", {"seed": 1, "quantum": FAR}),
    Order("drawn, with short turns", {"seed": 2}),
    Order("drawn, with short turns", {"seed": 3}),
)
"""The orders of the second runs where both are the emulator's."""


class Twice:
    """A launch to be run on both. grid, block: as for an `emu` kernel. formats: what arguments hold, by name or number,
    where their dtypes do not say."""

    def __init__(
        self,
        device: ChosenDevice,
        source: Source,
        kernel: str,
        grid: Any,
        block: Any,
        arguments: Sequence[object],
        dynamic_lds: int = 0,
        formats: Mapping[str | int, str] | None = None,
    ) -> None:
        _check_apart(arguments)
        self.device, self.arguments, self.dynamic_lds = device, arguments, dynamic_lds
        self.geometry = grid, block
        code = device.code(source)
        self.there = device.load(code)[kernel]
        self.emulated = Device(the_emulator().options()).load(code)[kernel]
        self.formats = dict(formats or {})
        explicit = [a.name for a in self.there.kernel.explicit]
        self.names = [(explicit[i : i + 1] or [""])[0] or f"argument {i}" for i in range(len(arguments))]
        unknown = [n for n in self.formats if n not in (*self.names, *range(len(arguments)))]
        if unknown:
            raise ValueError(f"formats has {unknown[0]!r}; the arguments are {', '.join(self.names)}")

    def run(self) -> tuple[list[Any], str]:
        """Runs both. Returns the arguments as the chosen device left them, and how they differ, empty if they do not.

        An emulator in the device's place runs the launch in several orders of its waves, up to the first difference.
        """
        emulated, _ = self._run(self.emulated)
        for order in ORDERS if self.device.kind == "emulator" else (USUAL,):
            found, _ = self._run(self.there, order)
            report = self._report(emulated, found, order)
            if report:
                break
        return found, report

    def _report(self, emulated: Sequence[object], found: Sequence[object], order: Order) -> str:
        reports = []
        for number, value in enumerate(self.arguments):
            again = any(value is earlier for earlier in self.arguments[:number])
            if not again and (isinstance(value, np.ndarray) or is_tensor(value)):
                reports.append(self._unequal(number, emulated[number], found[number], order))
        said = [report for report in reports if report]
        more = [f"and {len(said) - SHOWN} more arguments differ"] if len(said) > SHOWN else []
        return "\n".join(said[:SHOWN] + more)

    def _run(
        self, kernel: LaunchableKernel, order: Order = USUAL, watch: tuple[int, int] | None = None
    ) -> tuple[list[Any], Watch | None]:
        """The arguments after a run, and who last wrote what was watched: an argument's number and a byte of it."""
        options = kernel.module.device.options
        copies = copied(self.arguments, options.engine == "device")
        watched = None if watch is None else (copies[watch[0]], watch[1])
        chosen = replace(options, **order.options)
        try:
            report = kernel[self.geometry](*copies, options=chosen, dynamic_lds=self.dynamic_lds, watch=watched)
        except EmulatorError as error:
            if order.text:
                error.add_note(f"in another order of waves and workgroups ({order.text}); in the usual one all is well")
            raise
        return copies, report.watch

    def _unequal(self, number: int, emulated: object, found: object, order: Order) -> str:
        """How an argument differs between the two runs, and who wrote it."""
        name = self.names[number]
        form = self.formats.get(name, self.formats.get(number))
        sides = SIDES[self.device.kind]
        before = self.arguments[number]
        cause = RACE.format(order.text) if order.text else ""
        unlike = unequal(found, emulated, format=form, name=name, sides=sides, before=before, cause=cause)
        if unlike is None or unlike.difference is None:
            return unlike.report if unlike else ""
        watch = number, unlike.difference.byte
        _, writer = self._run(self.emulated, watch=watch)
        report = unlike.report if writer is None else unlike.report_if_written
        lines = [report, _writer_text("writer", writer)]
        if order.text:
            _, other = self._run(self.there, order, watch)
            lines.append(_writer_text("in other", other))
        return "\n".join(lines)


def _writer_text(label: str, writer: Watch | None) -> str:
    """label: at most 9 characters."""
    if writer is None:
        return f"  {label:<9} none on the emulator"
    return f"  {label:<9} {writer.store},\n            {writer.place}"


# ---- arguments -------------------------------------------------------------------------------------------------------


def copied(arguments: Sequence[object], on_device: bool) -> list[Any]:
    """The arguments with each array and tensor copied, once where it is given twice. on_device: tensors stay on the
    device they are on; else they are copied to the CPU."""
    copies = {id(value): _copy(value, on_device) for value in arguments}
    return [copies[id(value)] for value in arguments]


def _copy(value: Any, on_device: bool) -> Any:
    if isinstance(value, np.ndarray):
        fresh = value.copy("C" if value.flags.c_contiguous else "K")  # one that is refused stays what it is
        fresh.flags.writeable = value.flags.writeable
        return fresh
    if not is_tensor(value):
        return value
    return value.detach().clone() if on_device else value.detach().cpu().clone()


def _check_apart(arguments: Sequence[object]) -> None:
    """Refuses arrays that share memory: their copies would not."""
    arrays = [(i, a) for i, a in enumerate(arguments) if isinstance(a, np.ndarray)]
    for place, (i, a) in enumerate(arrays):
        for j, b in arrays[place + 1 :]:
            if a is not b and np.may_share_memory(a, b):
                raise ValueError(
                    f"arguments {i} and {j} share memory, which their copies would not: give one array for both, or"
                    " copy one of them first"
                )
