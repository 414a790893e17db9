"""Memory instructions of translated code: functions called by address, checked like emu.memory and emu.numpy_memory.

Each takes the context (uint64 words, listed below), the lanes' addresses, EXEC, the data registers (word-major, 64
lanes) and returns 0, or 1 after writing the fault into the context. A store checks every lane before it writes
anything. They may overwrite the addresses of inactive lanes.
"""

from __future__ import annotations

import functools
from typing import Any

LDS, LDS_BYTES, TABLE = range(3)
FAULT_LANE, FAULT_ADDRESS, FAULT_BYTES, FAULT_KIND, FAULT_LANES = range(3, 8)
WATCH_LOW, WATCH_HIGH, WATCH_PC, WATCH_LANE, WATCH_SEEN, WATCH_WAVE = range(8, 14)
# The driver's own: the wave that runs, then its place in the schedule. LEFT: instructions it may still run.
WAVE, NEXT_WAVE, SPENT, LEFT, RUNNING, WAITING = range(14, 20)
CONTEXT_WORDS = 24
READABLE, WRITABLE, UNALIGNED = 1, 2, 4  # kinds of fault: not readable, not writable, an atomic off its alignment
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
