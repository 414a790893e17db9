"""Steps that are confirmed, with no switch left to decide: what the emulator predicts under the model found so far,
beside what was captured.

Where they differ, a rule of the ledger is wrong that has no other answers yet; the first differing word is told as its
index, which in outputs of registers is item, register, lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.kernels.probes.fit import Difference, Evidence, FamilyFit, differences
from codegen.kernels.probes.probe import Step
from codegen.kernels.probes.run import Runner
from emu.dispatch import RunOptions
from gfx950.models import Model


@dataclass(frozen=True)
class ConfirmFamily:
    """Confirms every exact captured step whose name begins with one of `prefixes`. Runs them all on the emulator, which
    for P8's digests takes as long as a run of the probe there."""

    name: str
    prefixes: tuple[str, ...]
    switches: Sequence[str] = ()

    def fit(self, evidence: Evidence, model: Model) -> FamilyFit | None:
        """No answers; what is unexplained under `model`, by step. None where the capture has no step of the family."""
        steps = [step for step in evidence.of(*self.prefixes) if step.exact]
        if not steps:
            return None
        return FamilyFit(self.name, steps=len(steps), unexplained=confirmed(evidence, steps, model))


def confirmed(evidence: Evidence, steps: Sequence[Step], model: Model) -> list[Difference]:
    """Where the captured outputs of steps differ from the emulator's under a model, one difference a step."""
    runs = Runner(RunOptions(model=model)).outputs(steps)
    return differences((step.name, evidence.output(step), output) for step, _, output in runs)


FAMILIES = (ConfirmFamily("confirm", ("P8/digests/", "P13/", "P13b/")),)
