"""Matrix instructions (VOP3P-MAI): one row each; the arithmetic is a native body of gfx950.arithmetic.mfma. [CDNA4 ISA 7]"""

from __future__ import annotations

from gfx950.isa.registry import mai
from gfx950.lanes import B128, B256, B32

__all__: list[str] = []
_ = (mai, B128, B256, B32)
