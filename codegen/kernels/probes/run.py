"""Running probes: on an MI355X through HIP, or on the emulator, into one capture."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.compile import Compiled
from codegen.kernels.probes import capture
from codegen.kernels.probes.capture import Capture, Entry, Origin
from codegen.kernels.probes.probe import SIZES, Probe, Step, compiled
from emu.dispatch import Device, Module, RunOptions
from gfx950.models import find_model

Array = NDArray[Any]
KERNELS_A_MODULE = 48  # compiled together


class Runner:
    """Launches steps on one engine: "device" for the chip, "host" or "numpy" for the emulator."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self.device = Device(options)
        self.modules: dict[bytes, Module] = {}

    def outputs(self, steps: Sequence[Step]) -> Iterator[tuple[Step, str, Array]]:
        """Each step with the SHA-256 of its code object and its output, in order."""
        code = {kernel: part for part in _parts(steps) for kernel in part}
        for step in steps:
            found = compiled(code[step.kernel])
            loaded = found.code_object if self.options.engine == "device" else found.object
            yield step, hashlib.sha256(found.object).hexdigest(), step.kept(self._launch(step, loaded))

    def _launch(self, step: Step, code: bytes) -> Array:
        if code not in self.modules:
            self.modules[code] = self.device.load(code)
        shape, dtype = step.output
        output = np.zeros(shape, dtype)
        self.modules[code][step.kernel.name][step.grid, step.kernel.block](
            *step.inputs, output, *step.scalars, options=self.options
        )
        return output


def code_objects(steps: Sequence[Step]) -> Iterator[Compiled]:
    """The code objects of the kernels of some steps."""
    for part in _parts(steps):
        yield compiled(part)


def _parts(steps: Sequence[Step]) -> Iterator[tuple[Any, ...]]:
    """The kernels of some steps in runs that are compiled together."""
    kernels = list(dict.fromkeys(step.kernel for step in steps))
    for first in range(0, len(kernels), KERNELS_A_MODULE):
        yield tuple(kernels[first : first + KERNELS_A_MODULE])


def emulator_origin(options: RunOptions) -> Origin:
    """Says that an emulator made the bits, and the digest of its model: nothing that it says is measured."""
    model = find_model(options.model)
    return Origin("emulator", f"gfx950 {version('gfx950')} model {model.digest}")


def device_origin() -> Origin:
    """What HIP and the system say of the device. Raises gfx950.hip.NoDevice where there is none."""
    from gfx950.hip import Hip

    with Hip() as hip:
        return Origin("device", **hip.describe())


def run_probes(
    wanted: Sequence[Probe],
    path: Path,
    options: RunOptions,
    size: str = "full",
    done: Callable[[Probe, int, bool], None] = lambda *_: None,
) -> Capture:
    """Runs probes into a capture file, going on where an earlier run of the same origin and size was broken off.

    done(probe, steps, taken_up) is called after each.
    """
    origin = device_origin() if options.engine == "device" else emulator_origin(options)
    unfinished, runner, parts = capture.Unfinished(path, origin, size), Runner(options), []
    for probe in wanted:
        steps = list(probe.steps(SIZES[size]))
        kept = unfinished.finished(probe.name)
        taken_up = kept is not None and _asked_alike(kept, steps)
        if kept is None or not taken_up:
            kept = unfinished.keep(probe.name, run_steps(runner, steps))
        parts.append(kept)
        done(probe, len(steps), taken_up)
    return unfinished.finish(parts)


def _asked_alike(kept: Capture, steps: Sequence[Step]) -> bool:
    """Whether what an earlier run left are these very steps: another version may have asked others of their names."""
    found = [(entry.name, entry.inputs) for entry in kept.entries.values()]
    return found == [(step.name, step.inputs_digest) for step in steps]


def run_steps(runner: Runner, steps: Sequence[Step]) -> Iterator[tuple[Entry, Array]]:
    """Runs steps; their entries and outputs."""
    for step, code, output in runner.outputs(steps):
        yield capture.entry_of(step.name, step.inputs_digest, code, output), output
