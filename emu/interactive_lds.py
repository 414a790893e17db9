"""An LDS to write, read and look at without a kernel, through a swizzle if there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from emu.display import meaning
from emu.engines.numpy_engine import NumpyEngine
from emu.interactive import ENGINE, convert, from_words, mask, to_words
from emu.numpy_memory import LdsLanes, gather_lds, scatter_lds
from emu.wave import Wave
from gfx950 import lds as geometry
from gfx950 import terminal
from gfx950.lanes import LANES, U32, Lanes, Mask, Words

Swizzle = Callable[[Any], Any]
L = TypeVar("L", bound=Lanes)


class Lds:
    """`nbytes` bytes of LDS, zero and not written. contents: uint8 (nbytes,). written: bool (nbytes,).

    A swizzle is a function from logical to physical byte addresses, made of operators, so that the one function serves
    lanes, numpy arrays and integers; `write`, `read` and `show` take logical addresses and apply it.

    >>> from emu import Lds, lane_id, show
    >>> def swizzle(address):
    ...     return address ^ ((address >> 7 & 7) << 4)
    >>> lds = Lds(1024)
    >>> lds.write(lane_id() * 16, lane_id(), lane_id(), lane_id(), lane_id(), swizzle=swizzle)
    >>> lds.show(2, 4, start=128)
    0080 00000009 00000009 00000009 00000009
    0090 00000008 00000008 00000008 00000008
    >>> lds.show(2, 4, start=128, swizzle=swizzle)
    0080 00000008 00000008 00000008 00000008
    0090 00000009 00000009 00000009 00000009
    """

    def __init__(self, nbytes: int) -> None:
        geometry.allocation(nbytes)
        self.contents: NDArray[np.uint8] = np.zeros(nbytes, np.uint8)
        self.written: NDArray[np.bool_] = np.zeros(nbytes, np.bool_)

    def __repr__(self) -> str:
        return f"Lds({len(self.contents)} bytes, {int(self.written.sum())} written)"

    def write(
        self, addresses: Any, *values: Any, swizzle: Swizzle | None = None, active: npt.ArrayLike | int = -1
    ) -> None:
        """Stores registers at each active lane's byte address, lanes ascending: the highest lane wins a collision.

        values: lane values, register runs, integers or arrays of 64, stored one after the other. Raises IndexError
        where an active lane reaches outside; the chip drops such a store without a word.
        """
        words = np.concatenate([_words(value) for value in values])
        at, on = self._places(addresses, swizzle, active, 4 * len(words))
        scatter_lds(self.contents, at, on, words, 4 * len(words))
        self.mark(at, on, 4 * len(words))

    def read(
        self, addresses: Any, words: int = 1, swizzle: Swizzle | None = None, active: npt.ArrayLike | int = -1
    ) -> Any:
        """`words` consecutive dwords (1, 2, 3, 4) at each lane's byte address: U32, U64, B96 or B128.

        Inactive lanes read 0. Raises IndexError where an active lane reaches outside; the chip reads 0 there.
        """
        at, on = self._places(addresses, swizzle, active, 4 * words)
        return from_words(gather_lds(self.contents, at, on, 4 * words))

    def show(self, rows: int, words: int, swizzle: Swizzle | None = None, as_: str = "hex", start: int = 0) -> None:
        """Prints `rows` rows of `words` dwords from byte address `start`; dashes where nothing was written.

        Rows begin with their logical address. as_: as for `show`, of values that fit a dword. Rows too wide for the
        terminal go on in the next line.
        """
        print("\n".join(self.shown(rows, words, swizzle, as_, start)))

    def shown(
        self, rows: int, words: int, swizzle: Swizzle | None = None, as_: str = "hex", start: int = 0
    ) -> list[str]:
        """The lines that `show` prints."""
        logical = start + 4 * np.arange(rows * words).reshape(rows, words)
        physical = swizzle(logical) if swizzle is not None else logical
        if physical.min() < 0 or physical.max() + 4 > len(self.contents):
            raise IndexError(f"rows reach byte {int(physical.max()) + 3}, the LDS has {len(self.contents)} bytes")
        texts = [[self._dword_text(int(at), as_) for at in row] for row in physical]
        size = max(len(text) for row in texts for text in row)
        across = max(1, (terminal.columns() - 5) // (size + 1))
        lines = []
        for number, row in enumerate(texts):
            for first in range(0, words, across):
                head = f"{int(logical[number, 0]):04x}" if first == 0 else "    "
                lines.append(f"{head} {' '.join(t.rjust(size) for t in row[first : first + across])}")
        return lines

    def conflicts(
        self, instruction: str, addresses: Any, swizzle: Swizzle | None = None, active: npt.ArrayLike | int = -1
    ) -> geometry.ConflictReport:
        """Bank conflicts of an access by every active lane; `.explain()` puts the report in words.

        >>> from emu import Lds, lane_id
        >>> print(Lds(65536).conflicts("ds_read_b32", lane_id() * 256).explain().splitlines()[0])
        ds_read_b32: 1 phase over 64 banks (chosen), 63 extra cycles
        """
        at, on = _addresses(addresses, swizzle), mask(active).raw
        return geometry.conflicts(instruction, at, on)

    # ---- what instructions see ---------------------------------------------------------------------------------------

    def seen_by(self, engine: NumpyEngine) -> LdsView:
        """This LDS as the memory operand of an instruction on an engine: out of range reads 0 and drops stores."""
        return LdsView(self, engine)

    def mark(self, at: NDArray[np.int64], on: NDArray[np.bool_], nbytes: int) -> None:
        """Notes that the active lanes wrote `nbytes` bytes at these addresses."""
        ones = np.full((max(1, nbytes // 4), LANES), 0x01010101, np.uint32)
        scatter_lds(self.written.view(np.uint8), at, on, ones, nbytes)

    def _places(
        self, addresses: Any, swizzle: Swizzle | None, active: Any, nbytes: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        at, on = _addresses(addresses, swizzle), mask(active).raw
        outside = on & ((at < 0) | (at + nbytes > len(self.contents)))
        if outside.any():
            lane = int(np.flatnonzero(outside)[0])
            raise IndexError(
                f"lane {lane} reaches bytes {at[lane]}..{at[lane] + nbytes - 1}, the LDS has {len(self.contents)} bytes"
                "; the chip would read 0 or drop the store"
            )
        return at, on

    def _dword_text(self, at: int, as_: str) -> str:
        known, word = self.written[at : at + 4], int(self.contents[at : at + 4].view(np.uint32)[0])
        if as_ == "hex":
            digits = f"{word:08x}"
            return "".join(digits[6 - 2 * i : 8 - 2 * i] if known[i] else "--" for i in (3, 2, 1, 0))
        chosen = meaning(as_)
        if not chosen.bits or 32 % chosen.bits:
            raise ValueError(f"{as_} values do not fit a dword; read a run of registers and `show` that")
        if not known.all():
            return "-"
        return " ".join(chosen.text(word >> low & (1 << chosen.bits) - 1) for low in range(0, 32, chosen.bits))


class LdsView(LdsLanes):
    """An `Lds` as the memory of one instruction, every lane active; stores and atomics are noted as written."""

    def __init__(self, home: Lds, engine: NumpyEngine) -> None:
        wave = Wave(home.contents)
        wave.engine = engine
        super().__init__(wave)
        self.home = home

    def store(self, address: U32, words: Sequence[U32], nbytes: int, where: Mask | None = None) -> None:
        """The low `nbytes` of the words a lane."""
        super().store(address, words, nbytes, where)
        self.home.mark(*self._lanes(address, where), nbytes)

    def atomic(self, address: U32, operands: Sequence[L], operation: Callable[..., L], where: Mask | None = None) -> L:
        """Lanes in ascending order."""
        old = super().atomic(address, operands, operation, where)
        self.home.mark(*self._lanes(address, where), operands[0].width // 8)
        return old


def _words(value: Any) -> NDArray[np.uint32]:
    return to_words(value if isinstance(value, Lanes | Words) else convert(U32, value, ENGINE))


def _addresses(addresses: Any, swizzle: Swizzle | None) -> NDArray[np.int64]:
    """Byte addresses as int64 (64,), or (2, 64) for the two-address forms."""
    given = addresses.raw if isinstance(addresses, Lanes) else np.asarray(addresses)
    whole = given.astype(np.int64)
    placed = swizzle(whole) if swizzle is not None else whole
    return np.array(placed) if placed.ndim == 2 else np.array(np.broadcast_to(placed, (LANES,)))
