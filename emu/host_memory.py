"""Memory instructions of translated code: functions called by address, checked like emu.memory and emu.numpy_memory.

Each takes the context (see emu.host_layout), the lanes' addresses, EXEC, the data registers (word-major, 64
lanes) and returns 0, or 1 after writing the fault into the context. A store checks every lane before it writes
anything. They may overwrite the addresses of inactive lanes.
"""

from __future__ import annotations

import hashlib

from emu.host_layout import MEMORY_FUNCTIONS
from gfx950.host_code import HostCode, Translation, once


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
