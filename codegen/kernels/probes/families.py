"""All families of switches, in the order in which they are fitted."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.kernels.probes.fit import Family
from codegen.kernels.probes.fit_matrix import FAMILIES as MATRIX

FAMILIES: Sequence[Family] = (*MATRIX,)
