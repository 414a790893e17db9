"""All families of switches, in the order in which they are fitted; what no switch decides comes last."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.kernels.probes import fit_clocks, fit_confirm, fit_matrix, fit_tables, fit_values
from codegen.kernels.probes.fit import Family

FAMILIES: Sequence[Family] = (
    *fit_matrix.FAMILIES,
    *fit_values.FAMILIES,
    *fit_tables.FAMILIES,
    *fit_confirm.FAMILIES,
    *fit_clocks.FAMILIES,
)
