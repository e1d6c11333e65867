# SPDX-License-Identifier: Apache-2.0
"""What dm targets say about themselves, parsed."""

from __future__ import annotations

import dataclasses
import enum
from typing import Iterator, Mapping, Self

from cinder_dmclone.host.dm import table
from cinder_dmclone.units import Regions
from cinder_dmclone.units import Sectors


class Mode(str, enum.Enum):
    """State of a clone's metadata; anything but ``RW`` is an alarm."""

    RW = 'rw'
    RO = 'ro'
    FAIL = 'fail'


def _ratio(text: str) -> tuple[int, int]:
    used, _, total = text.partition('/')
    return int(used), int(total)


def _list(words: Iterator[str]) -> list[str]:
    return [next(words) for _ in range(int(next(words)))]


@dataclasses.dataclass(frozen=True)
class CloneStatus:
    """State of a dm-clone (``clone_status`` in dm-clone-target.c).

    The counts are the in-core ones: they run ahead of what is on the disk
    until a status that flushes was taken. In mode ``FAIL`` the kernel tells
    nothing else and the counts are 0.
    """

    mode: Mode
    region_size: Sectors = Sectors(0)
    hydrated: Regions = Regions(0)
    total: Regions = Regions(0)
    hydrating: Regions = Regions(0)
    features: frozenset[str] = frozenset()
    core: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every region is on the data device, and known to be."""
        return self.mode is Mode.RW and 0 < self.total == self.hydrated

    @property
    def size(self) -> int:
        """What has to be here in the end, in bytes of whole regions."""
        return int(self.total) * int(self.region_size.to_bytes())

    @property
    def copied(self) -> int:
        """What is here, in bytes of whole regions."""
        return int(self.hydrated) * int(self.region_size.to_bytes())

    @property
    def hydration(self) -> bool:
        """Whether background copying is switched on."""
        return 'no_hydration' not in self.features

    @property
    def copies(self) -> bool:
        """Whether there is something to copy in the background."""
        return (self.mode is Mode.RW and self.hydration
                and self.hydrated < self.total)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the part of the status line behind the target's name.

        :raises ValueError: if it is not a clone's status
        """
        words = iter(text.split())
        first = next(words, '')
        if first in ('Fail', 'Error'):
            return cls(Mode.FAIL)
        try:
            _ratio(next(words))  # metadata blocks, used and all
            region_size = Sectors(int(next(words)))
            hydrated, regions = _ratio(next(words))
            return cls(
                region_size=region_size, hydrated=Regions(hydrated),
                total=Regions(regions), hydrating=Regions(int(next(words))),
                features=frozenset(_list(words)),
                core=table.pairs(_list(words)),
                mode=Mode(next(words).lower()))
        except StopIteration:
            raise ValueError(f'{text!r} is not a clone status') from None


@dataclasses.dataclass(frozen=True)
class MultipathStatus:
    """State of a multipath device (``multipath_status`` in dm-mpath.c).

    Whether it queues without a path is in its table, not here.

    :ivar paths: whether each path works, by device number
    """

    paths: Mapping[str, bool]

    @property
    def usable(self) -> bool:
        """Whether a path works."""
        return any(self.paths.values())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the part of the status line behind the target's name.

        :raises ValueError: if it is not a multipath status
        """
        words = iter(text.split())
        paths = {}
        try:
            _list(words)  # features
            _list(words)  # hardware handler
            groups = int(next(words))
            next(words)  # the group used next
            for _ in range(groups):
                next(words)  # state of the group
                _list(words)  # of the path selector
                count, arguments = int(next(words)), int(next(words))
                for _ in range(count):
                    path, state = next(words), next(words)
                    paths[path] = state == 'A'
                    for _ in range(1 + arguments):
                        next(words)  # failures, and of the path selector
        except StopIteration:
            raise ValueError(f'{text!r} is not a multipath status') from None
        return cls(paths)
