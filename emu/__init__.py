"""The chip as a machine: lanes, waves, LDS, memory, translation to host code, code objects, dispatch.

For interactive use without any kernel, `from emu import ...` gives lane values (`u32`, `f32`, `lanes`, `lane_id`),
`show`, `to_numpy`, `Lds`, `mfma`, and every instruction as a function under its mnemonic:

    >>> from emu import show, u32, v_perm_b32
    >>> show(v_perm_b32(u32(0x33221100), u32(0x77665544), 0x05010400), count=4)
    U32 as hex
     0 11550044    1 11550044    2 11550044    3 11550044

To run code objects: `Device`, `RunOptions` and `Geometry` (emu.dispatch, emu.geometry). All of these load when they
are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emu.dispatch import Device, RunOptions
    from emu.display import show
    from emu.geometry import Geometry
    from emu.interactive import f16, f32, f64, i32, lane_id, lanes, mask, to_numpy, u32, u64
    from emu.interactive_lds import Lds
    from emu.interactive_matrix import from_registers, mfma, to_registers
    from gfx950.arithmetic.mfma_explain import explain

_HOMES = {
    "emu.interactive": ("lanes", "lane_id", "mask", "u32", "u64", "i32", "f16", "f32", "f64", "to_numpy"),
    "emu.interactive_lds": ("Lds",),
    "emu.interactive_matrix": ("mfma", "to_registers", "from_registers"),
    "gfx950.arithmetic.mfma_explain": ("explain",),
    "emu.display": ("show",),
    "emu.dispatch": ("Device", "RunOptions"),
    "emu.geometry": ("Geometry",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
# What mnemonics begin with; other names are modules of this folder, or mistakes.
_FAMILIES = ("v_", "s_", "ds_", "global_", "flat_", "buffer_", "tbuffer_", "scratch_")

__all__ = [
    "Device",
    "Geometry",
    "Lds",
    "RunOptions",
    "explain",
    "f16",
    "f32",
    "f64",
    "from_registers",
    "i32",
    "lane_id",
    "lanes",
    "mask",
    "mfma",
    "show",
    "to_numpy",
    "to_registers",
    "u32",
    "u64",
]


def __getattr__(name: str) -> Any:
    """Finds interactive names and mnemonics. Raises AttributeError with the nearest mnemonics for an unknown one."""
    if name in _HOME_OF:
        import importlib

        return getattr(importlib.import_module(_HOME_OF[name]), name)
    if name.startswith(_FAMILIES):
        from emu.interactive import instruction

        try:
            return instruction(name)
        except KeyError as error:
            raise AttributeError(error.args[0], name=name) from None
    raise AttributeError(f"module 'emu' has no attribute {name!r}", name=name)
