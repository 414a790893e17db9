"""Where a value of the text stands in a decoded instruction: a field, some bits of one, or two fields in a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gfx950.isa.encoding import Decoded


class Slot(Protocol):
    """A place for an unsigned number."""

    def get(self, decoded: Decoded) -> int:
        """The number that stands there."""
        ...

    def put(self, decoded: Decoded, value: int) -> None:
        """Writes it."""
        ...


@dataclass(frozen=True)
class Field:
    """`count` bits from bit `low` of a field. part: the dictionary of `Decoded` it is in (fields dpp sdwa scale)."""

    name: str
    part: str = "fields"
    low: int = 0
    count: int = 32

    def _table(self, decoded: Decoded) -> dict[str, int]:
        table: dict[str, int] = getattr(decoded, self.part)
        return table

    def get(self, decoded: Decoded) -> int:
        """The number that stands there."""
        return self._table(decoded)[self.name] >> self.low & (1 << self.count) - 1

    def put(self, decoded: Decoded, value: int) -> None:
        """Writes it, leaving the field's other bits."""
        table = self._table(decoded)
        mask = (1 << self.count) - 1 << self.low
        table[self.name] = table[self.name] & ~mask | value << self.low & mask


@dataclass(frozen=True)
class Joined:
    """Two slots as one number: `low` holds its lower `count` bits."""

    low: Slot
    high: Slot
    count: int

    def get(self, decoded: Decoded) -> int:
        """The number that stands there."""
        return self.low.get(decoded) | self.high.get(decoded) << self.count

    def put(self, decoded: Decoded, value: int) -> None:
        """Writes both parts."""
        self.low.put(decoded, value & (1 << self.count) - 1)
        self.high.put(decoded, value >> self.count)


def bit(name: str, index: int, part: str = "fields") -> Field:
    """One bit of a field."""
    return Field(name, part, index, 1)
