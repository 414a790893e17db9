"""What the inputs of every kernel's cases can tell: their arrays by name, and the digests that goldens record."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ArrayInputs:
    """A dataclass whose array fields are the inputs of a job."""

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The arrays by name."""
        return {f.name: v for f in fields(self) if isinstance(v := getattr(self, f.name), np.ndarray)}

    def digests(self) -> dict[str, str]:
        """SHA-256 of each array: its dtype, its shape and its little-endian bytes."""
        return {name: _digest(array) for name, array in self.arrays().items()}


def _digest(array: NDArray[np.generic]) -> str:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    header = f"{little.dtype.str} {little.shape} ".encode()
    return hashlib.sha256(header + little.tobytes()).hexdigest()
