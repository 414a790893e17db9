"""Memory instructions of translated code: compiled functions called by address, checked like emu.memory and emu.numpy_memory.

Each takes the context (uint64 words, see `Context`), the lanes' addresses, EXEC, the data registers (word-major, 64 lanes)
and returns 0, or 1 after writing the fault into the context. A store checks every lane before it writes anything.
"""

from __future__ import annotations

import functools
from typing import Any

LDS, LDS_BYTES, TABLE, FAULT_LANE, FAULT_ADDRESS, FAULT_BYTES, WATCH_LOW, WATCH_HIGH, WATCH_PC, WATCH_LANE, WATCH_SEEN, STORED, WATCH_WAVE, WAVE = range(14)
CONTEXT_WORDS = 16
ALL = (1 << 64) - 1


@functools.cache
def functions() -> dict[str, int]:
    """The addresses of the compiled memory functions by name."""
    return {name: f.address for name, f in _compile().items()}


@functools.cache
def _compile() -> dict[str, Any]:
    """Compiles (or loads from numba's disk cache) the functions."""
    from emu import host_memory_bodies as bodies

    return bodies.compiled()
