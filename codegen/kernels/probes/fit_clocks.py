"""What P14's clocks say of bank conflicts, as notes of a fit: no switch and no bit depends on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codegen.kernels.probes.capture import Capture
from codegen.kernels.probes.fit import Evidence, FamilyFit
from codegen.kernels.probes.lds_clocks import bank_count, cost_table, phase_reports
from gfx950.models import Model


@dataclass(frozen=True)
class ClockFamily:
    """Phases, banks and costs of LDS accesses by the clock of a device, beside those of `gfx950.lds`."""

    name: str = "clocks of LDS"
    switches: Sequence[str] = ()

    def fit(self, evidence: Evidence, model: Model) -> FamilyFit | None:
        """No answers, only notes. None where the capture has no P14."""
        steps = evidence.of("P14/")
        if not steps:
            return None
        return FamilyFit(self.name, steps=len(steps), notes=list(_notes(evidence.capture)))


def _notes(capture: Capture) -> Iterator[str]:
    if capture.origin.kind != "device":
        yield "an emulator's clocks count instructions and say nothing of time"
        return
    for report in phase_reports(capture):
        yield report.text
        if f"P14/strides/{report.mnemonic}" in capture.entries:
            yield f"{report.mnemonic}: {bank_count(capture, report.mnemonic) or 'an unknown number of'} banks"
        if f"P14/crowd/{report.mnemonic}" in capture.entries:
            costs = cost_table(capture, report.mnemonic).items()
            told = ", ".join(f"{lanes}: {apart} or {same}" for lanes, (apart, same) in costs)
            yield f"{report.mnemonic}: clocks by lanes that want different dwords of a bank, or one dword: {told}"


FAMILIES = (ClockFamily(),)
