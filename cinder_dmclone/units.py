# SPDX-License-Identifier: Apache-2.0
"""Sizes that know what they count.

Adding, subtracting or comparing two of them works only within one unit; a
result of the same unit keeps it. All other arithmetic gives a plain int.
"""

from __future__ import annotations

from typing import Self

SECTOR = 512
GIB = 1 << 30


class _Size(int):

    def __new__(cls, count: int = 0) -> Self:
        if isinstance(count, _Size) and not isinstance(count, cls):
            raise TypeError(f'{count!r} is not in {cls.__name__}')
        if count < 0:
            raise ValueError(f'{cls.__name__}({count}) is negative')
        return super().__new__(cls, count)

    def _same(self, other: int) -> int:
        if isinstance(other, _Size) and type(other) is not type(self):
            raise TypeError(f'cannot mix {self!r} and {other!r}')
        return int(other)

    def __repr__(self) -> str:
        return f'{type(self).__name__}({int(self)})'

    def __str__(self) -> str:
        return str(int(self))

    def __hash__(self) -> int:
        return hash(int(self))

    def __add__(self, other: int) -> Self:
        return type(self)(int(self) + self._same(other))

    def __sub__(self, other: int) -> Self:
        return type(self)(int(self) - self._same(other))

    def __lt__(self, other: int) -> bool:
        return int(self) < self._same(other)

    def __le__(self, other: int) -> bool:
        return int(self) <= self._same(other)

    def __gt__(self, other: int) -> bool:
        return int(self) > self._same(other)

    def __ge__(self, other: int) -> bool:
        return int(self) >= self._same(other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int):
            return NotImplemented
        return int(self) == self._same(other)


class Bytes(_Size):
    """A number of bytes."""

    @classmethod
    def from_gib(cls, count: int) -> Self:
        """Cinder counts in GiB."""
        return cls(count * GIB)

    def to_gib(self) -> int:
        """So many are needed for it."""
        return -(-int(self) // GIB)

    def to_sectors(self) -> Sectors:
        """
        :raises ValueError: if it is not a whole number of sectors
        """
        count, rest = divmod(int(self), SECTOR)
        if rest:
            raise ValueError(f'{self!r} is not a whole number of sectors')
        return Sectors(count)

    def round_up(self, step: int) -> Bytes:
        """The next multiple of ``step`` bytes."""
        return Bytes(-(-int(self) // int(step)) * int(step))


class Sectors(_Size):
    """A number of 512-byte sectors, what the device mapper counts in."""

    def to_bytes(self) -> Bytes:  # type: ignore[override]
        return Bytes(int(self) * SECTOR)

    def to_regions(self, region_size: Sectors) -> Regions:
        """How many regions cover it; the last one may be partial."""
        return Regions(-(-int(self) // int(region_size)))


class Regions(_Size):
    """A number of dm-clone regions."""
