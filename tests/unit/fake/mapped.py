# SPDX-License-Identifier: Apache-2.0
"""One device of the device mapper in memory."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.host.dm import status
from cinder_dmclone.host.dm import table
from cinder_dmclone.host.dm.table import Target
from cinder_dmclone.host import thin_map
from cinder_dmclone import units
from tests.unit.fake import storage


class Queued(Exception):
    """The I/O waits for a path: nobody gets an answer now.

    :ivar through: the devices it went through; it waits in the last
    """

    def __init__(self) -> None:
        super().__init__()
        self.through: list[Mapped] = []


class Failed(Exception):
    """An I/O error."""


@dataclasses.dataclass
class Mapped:
    """A dm device.

    ``copied`` and ``phantom`` are a clone's in-core map, ``cursor`` where it
    copies next. ``waiting`` tells that a hold has a write, ``rejected`` how
    often such were answered with an error, ``stuck`` how many reads wait
    below for a path. ``counts`` tells whether its I/O is counted from now on,
    which some hosts switch off, and ``counted`` whether the write was.
    ``discards`` tells whether it takes any, as it was when it got its table.
    """

    name: str
    devnum: str
    table: table.Table
    readonly: bool
    openers: int = 0
    hydration: bool = False
    copied: set[int] = dataclasses.field(default_factory=set)
    phantom: set[int] = dataclasses.field(default_factory=set)
    cursor: int = 0
    path_failed: bool = False
    waiting: bool = False
    rejected: int = 0
    stuck: int = 0
    broken: status.Mode = status.Mode.RW
    discards: bool = False
    counts: bool = False
    counted: bool = False

    @property
    def target(self) -> Target:
        # One that never got a table answers with errors.
        return (self.table.segments[0].target if self.table.segments
                else table.Error())

    def queues(self, devnum: str) -> bool:
        """Whether I/O would wait for ever if this path went."""
        return any(isinstance(segment.target, table.Multipath)
                   and segment.target.queue
                   and segment.target.path == devnum
                   for segment in self.table.segments)

    def below(self) -> set[str | None]:
        """The devices that this one has open."""
        return {devnum for segment in self.table.segments
                for devnum in devices(segment.target)}

    def uses(self, devnum: str) -> bool:
        return devnum in self.below()

    def leads_to(self, region: int) -> tuple[str, int]:
        """Device and region that a region of a linear device maps to."""
        for segment in self.table.segments:
            first = regions(segment.start)
            if first <= region < first + regions(segment.length):
                target = typing.cast(table.Linear | table.Gate,
                                     segment.target)
                return target.device, region - first + regions(target.offset)
        raise Failed(f'{self.name} has no region {region}')

    def take(self, ranges: typing.Iterable[thin_map.Range]) -> None:
        """Take what was discarded of a clone for copied."""
        for first, end in ranges:
            self.copied.update(range(first // storage.REGION,
                                     end // storage.REGION))


def devnums(new: table.Table) -> list[str]:
    """What a table leads to."""
    return [devnum for segment in new.segments
            for devnum in devices(segment.target) if devnum]


def discards(new: table.Table,
             find: typing.Callable[[str], Mapped | None]) -> bool:
    """``dm_table_supports_discards``: whether all that is below does."""
    below = map(find, devnums(new))
    return not new.has(table.Error) and (new.has(table.Clone) or all(
        found.discards for found in below if found))


def devices(target: table.Target) -> tuple[str | None, ...]:
    match target:
        case table.Linear(device=found):
            return (found,)
        case table.Clone():
            return (target.metadata, target.data, target.source)
        case table.Multipath():
            return (target.path,)
        case table.Gate(device=found, hold=hold):
            return (found, hold)
    return ()


def regions(length: int) -> int:
    return int(units.Sectors(length).to_bytes()) // int(storage.REGION)
