"""What loads of the memory families leave in registers, from the bytes in memory and the old registers, as numbers."""

from __future__ import annotations


def number(data, signed=False):
    """Little-endian bytes as a number."""
    return int.from_bytes(bytes(data), "little", signed=signed)


LOADS = {  # by the end of the name: bytes, and the result
    "ubyte": (1, lambda b, old: number(b)),
    "sbyte": (1, lambda b, old: number(b, True)),
    "ushort": (2, lambda b, old: number(b)),
    "sshort": (2, lambda b, old: number(b, True)),
    "dword": (4, lambda b, old: number(b)),
    "dwordx2": (8, lambda b, old: number(b)),
    "dwordx3": (12, lambda b, old: number(b)),
    "dwordx4": (16, lambda b, old: number(b)),
    "ubyte_d16": (1, lambda b, old: old & 0xFFFF0000 | number(b)),
    "ubyte_d16_hi": (1, lambda b, old: old & 0xFFFF | number(b) << 16),
    "sbyte_d16": (1, lambda b, old: old & 0xFFFF0000 | number(b, True) & 0xFFFF),
    "sbyte_d16_hi": (1, lambda b, old: old & 0xFFFF | number(b, True) << 16),
    "short_d16": (2, lambda b, old: old & 0xFFFF0000 | number(b)),
    "short_d16_hi": (2, lambda b, old: old & 0xFFFF | number(b) << 16),
}
