"""Steps that no switch decides: what the emulator predicts under the model found so far, beside what was captured.

Where they differ, a rule of the ledger is wrong that has no other answers yet; the first differing word is told as its
index, which in outputs of registers is item, register, lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.kernels.probes.fit import Difference, Evidence, FamilyFit, difference
from codegen.kernels.probes.probe import Step
from codegen.kernels.probes.run import Runner
from emu.dispatch import RunOptions
from gfx950.models import Model


@dataclass(frozen=True)
class ConfirmFamily:
    """Confirms every exact captured step whose name begins with one of `prefixes` and with none of `except_for`.
    Runs them all on the emulator, which for P8's digests takes as long as a run of the probe there."""

    name: str
    prefixes: tuple[str, ...]
    except_for: tuple[str, ...] = ()
    switches: Sequence[str] = ()

    def fit(self, evidence: Evidence, model: Model) -> FamilyFit | None:
        """No answers; what is unexplained under `model`, by step. None where the capture has no step of the family."""
        steps = [step for step in evidence.of(*self.prefixes) if step.exact and not self._excepted(step)]
        if not steps:
            return None
        found = FamilyFit(self.name, steps=len(steps))
        found.unexplained = list(confirmed(evidence, steps, model))
        return found

    def _excepted(self, step: Step) -> bool:
        return bool(self.except_for) and step.name.startswith(self.except_for)


def confirmed(evidence: Evidence, steps: Sequence[Step], model: Model) -> list[Difference]:
    """Where the captured outputs of steps differ from the emulator's under a model, one difference a step."""
    runs = Runner(RunOptions(model=model)).outputs(steps)
    found = (difference(step.name, evidence.output(step), output) for step, _, output in runs)
    return [one for one in found if one is not None]


FAMILIES = (ConfirmFamily("confirm", ("P8/digests/", "P13/", "P13b/")),)
