"""Memory instructions of translated code: functions called by address, checked like emu.memory and emu.numpy_memory.

Each takes the context (uint64 words, listed below), the lanes' addresses, EXEC, the data registers (word-major, 64
lanes) and returns 0, or 1 after writing the fault into the context. A store checks every lane before it writes
anything. They may overwrite the addresses of inactive lanes.
"""

from __future__ import annotations

import hashlib

from emu.translate import MEMORY_FUNCTIONS, MODE_TABLES, RANDOM
from gfx950.host_code import HostCode, Translation, once

LDS, LDS_BYTES, TABLE = range(3)
FAULT_LANE, FAULT_ADDRESS, FAULT_BYTES, FAULT_KIND, FAULT_LANES = range(3, 8)
WATCH_LOW, WATCH_HIGH, WATCH_PC, WATCH_LANE, WATCH_SEEN, WATCH_WAVE = range(8, 14)
# The driver's own: the wave that runs, then its place in the schedule. LEFT: instructions it may still run.
WAVE, NEXT_WAVE, SPENT, LEFT, RUNNING, WAITING = range(14, 20)
assert MODE_TABLES == WAITING + 1
CONTEXT_WORDS = RANDOM + 1
# A load to LDS on its way: its number among those that vmcnt counts, EXEC, bytes a lane, addresses, data; in bytes.
LATE_ENTRIES, LATE_BYTES = 64, 64 + 512 + 1024
LATE_NUMBER, LATE_ACTIVE, LATE_NBYTES, LATE_ADDRESSES, LATE_DATA = 0, 8, 16, 64, 64 + 512
READABLE, WRITABLE, UNALIGNED = 1, 2, 4  # kinds of fault: not readable, not writable, an atomic off its alignment


@once
def functions() -> dict[str, int]:
    """The addresses of the memory functions by name."""
    code = _compiled()
    return {name: code.address(name) for name in MEMORY_FUNCTIONS}


@once
def _compiled() -> HostCode:
    """The functions compiled, or loaded from the cache of translations."""
    from emu.host_memory_text import TEXT

    code = HostCode(opt=2)
    code.add(lambda: Translation(TEXT), f"memory|{hashlib.sha256(TEXT.encode()).hexdigest()}")
    return code
