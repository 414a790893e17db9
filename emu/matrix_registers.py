"""Registers of matrix operands: codes of matrices into them by the layouts, and out of them; many items at once.

Words are uint32 arrays (..., registers, 64), codes uint64 arrays (..., blocks, rows, columns).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.interactive import ENGINE
from gfx950.lanes import B32, LANES, Lanes, Words, in_registers, registers_of
from gfx950.layouts import REGISTER_BITS, OperandLayout, Slot, layout
from gfx950.matrix_elements import Codes

Registers = NDArray[np.uint32]


@lru_cache(maxsize=256)
def operand_layout(
    mnemonic: str, operand: str, a_format: str | None = None, b_format: str | None = None, op_sel: int = 0
) -> OperandLayout:
    """`gfx950.layouts.layout`, remembered."""
    return layout(mnemonic, operand, a_format, b_format, op_sel)


@lru_cache(maxsize=256)
def element_of_slot(where: OperandLayout) -> NDArray[np.intp]:
    """For each item and lane, (items, 64), the number of its element in a flat (blocks, rows, columns) array."""
    places = np.empty((where.items, LANES), np.intp)
    for item in range(where.items):
        for lane in range(LANES):
            row, col, block = where.layout.element(Slot(lane, item))
            places[item, lane] = (block * where.rows + row) * where.cols + col
    return places


def pack(where: OperandLayout, codes: Codes) -> Registers:
    """The registers that hold an operand; bits that belong to no element are 0."""
    leading = codes.shape[:-3]
    items = codes.reshape(*leading, where.blocks * where.rows * where.cols)[..., element_of_slot(where)]
    words = np.zeros((*leading, where.registers, LANES), np.uint64)
    for item in range(where.items):
        register, low = divmod(where.first_bit + item * where.element_bits, REGISTER_BITS)
        words[..., register, :] |= items[..., item, :] << np.uint64(low)
        if low + where.element_bits > REGISTER_BITS:
            words[..., register + 1, :] |= items[..., item, :] >> np.uint64(REGISTER_BITS - low)
    return (words & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def unpack(where: OperandLayout, words: Registers) -> Codes:
    """The codes that registers hold."""
    leading, wide = words.shape[:-2], words.astype(np.uint64)
    codes = np.zeros((*leading, where.blocks * where.rows * where.cols), np.uint64)
    for item, elements in enumerate(element_of_slot(where)):
        register, low = divmod(where.first_bit + item * where.element_bits, REGISTER_BITS)
        code = wide[..., register, :] >> np.uint64(low)
        if low + where.element_bits > REGISTER_BITS:
            code |= wide[..., register + 1, :] << np.uint64(REGISTER_BITS - low)
        codes[..., elements] = code & np.uint64((1 << where.element_bits) - 1)
    return codes.reshape(*leading, where.blocks, where.rows, where.cols)


def lane_value(words: Registers) -> Any:
    """The lane value of registers: U32, U64, B96 .. B1024; with leading dimensions, one for all items."""
    return in_registers([B32(ENGINE, np.ascontiguousarray(words[..., i, :])) for i in range(words.shape[-2])])


def words_of(value: Lanes | Words) -> Registers:
    """The registers of a lane value; 8 and 16 bits are zero-extended."""
    rows = [np.asarray(word.raw) for word in registers_of(value)]
    shape = np.broadcast_shapes((LANES,), *(row.shape for row in rows))
    return np.stack([np.broadcast_to(row, shape).astype(np.uint32) for row in rows], axis=-2)
