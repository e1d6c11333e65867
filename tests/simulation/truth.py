# SPDX-License-Identifier: Apache-2.0
"""What a volume must hold, as the servers that wrote it know it.

Every write gets a number. A region must show the last write that was
acknowledged; after a power cut it may be an earlier one, but none before the
last acknowledged flush.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing

from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.stack import lv_tags
from tests.unit.fake import storage

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module
    from tests.simulation import reverts
    from tests.simulation import snaps


class Violation(BaseException):
    """An invariant does not hold; ``rule`` is its short name.

    No code under test may catch it.
    """

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f'{rule}: {text}')
        self.rule = rule


@dataclasses.dataclass
class Region:
    """The writes to a region as they were acknowledged.

    ``last``: what a read must show at least; ``floor``: what no crash may
    take away; ``below``: what counted when each was made.
    """

    values: list[str]
    where: list[str]
    last: int = 0
    floor: int = 0
    below: list[int] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.below = [0] * len(self.values)

    def number(self, value: str) -> int:
        """Which write has made it; of zeros, the last that may have.

        All others are made once.
        """
        return len(self.values) - 1 - self.values[::-1].index(value)


class Truth:
    """What is known about the data of one volume."""

    def __init__(self, cloud: cloud_module.Cloud, volume: VolumeId,
                 node: cloud_module.Node, regions: int,
                 holes: typing.Collection[int] = ()) -> None:
        """
        :param holes: regions that were never written
        """
        self.cloud = cloud
        self.volume = volume
        # Whether it is the volume that servers use and faults are about;
        # it knows those that began as what it was.
        self.main = True
        self.born: list[Truth] = []
        # It is being made, or was not made.
        self.unborn = False
        self.snapshots: list[snaps.Snapshot] = []
        # The last one that was asked for.
        self.revert: reverts.Revert | None = None
        # Somebody took attachments away under a server, or its node's disks
        # seem to have gone: it may see errors.
        self.meddled = False
        # The end of a connection may come, from another node, after the next
        # one was given: at the same host nothing tells which of them it means.
        self.ends_later = False
        # Its LV was promised to the operator.
        self.unmanaged = False
        # Cinder's generic migration writes to it; and, while its row names an
        # LV that is on another node, which one it is.
        self.target: Location | None = None
        self.exchanged: Location | None = None
        # The next change of the row makes what was copied the volume.
        self.exchanges = False
        # LVs that went with the disks of their node, and what is left of a
        # volume that needs one: nobody hydrates from these any more.
        self.lost: set[Location] = set()
        self.kept: list[Location] | None = None
        # Where an operator has given up what had not arrived, and from whom.
        self.torn: tuple[Location, Location] | None = None
        # LVs that the volume has left, and what they held then.
        self.left: dict[Location, list[str]] = {}
        self._number = 0
        self.regions = [
            Region([storage.ZEROS if number in holes else f'{number}:0'],
                   [node.name]) for number in range(regions)]

    def first_data(self) -> dict[int, str]:
        return {number: region.values[0]
                for number, region in enumerate(self.regions)
                if region.values[0] != storage.ZEROS}

    @property
    def owner(self) -> Location:
        """Also while the database says something else."""
        real = self.cloud.tables.real if self.main else None
        return real or self.exchanged or self.cloud.row(self.volume).owner

    @property
    def all(self) -> list[Truth]:
        """Of each volume there is."""
        return [self, *self.born]

    def lose_disks(self, node: cloud_module.Node) -> None:
        """A node's disks are about to be lost."""
        row = self.cloud.row(self.volume)
        lost = {Location(node.name, uuid)
                for uuid in map(names.lv_uuid, node.group.volumes) if uuid}
        if self.unborn:
            self.lost |= lost
        elif names.unmanaged_lv(self.volume) in (
                self.cloud.nodes[row.node].group.volumes):
            # It needs no other.
            if row.node == node.name:
                self.lost |= lost | {row.owner}
                self.kept = []
        elif not row.deleted and row.status != 'deleting':
            self.mourn(lost)

    def mourn(self, lost: set[Location]) -> None:
        """What is lost is not there any more, and all that needs it."""
        chains = [self.chain(head) for head in self._heads()]
        self.lost |= lost
        if any(lost & set(chain) for chain in chains):
            # A lender whose borrower's disks are gone does not know that
            # something else hydrated from there.
            self.kept = [where for chain in chains
                         for above, where in itertools.pairwise(chain)
                         if above in self.lost and where not in self.lost
                         ] if self.main else []

    def _heads(self) -> list[Location]:
        owner = [] if self.owner in self.lost else [self.owner]
        return owner + (self.kept or [])

    def chain(self, where: Location) -> list[Location]:
        """An LV that must not go, and those it hydrates from.

        The last one may be lost.
        """
        found = [where]
        while found[-1] not in self.lost:
            node = self.cloud.nodes[found[-1].node]
            lv, tags = _look(node, names.data_lv(found[-1].lv), False)
            if lv is None:
                raise Violation('I3 gone', f'{found[-1]}, which is left of '
                                'the volume, is gone')
            source = lv_tags.Tags.parse(tags).source
            if source is None:
                break
            found.append(Location(source.node, source.lv))
        return found

    def _mourns(self) -> bool:
        """Whether the volume is lost; what is left of it must be there."""
        row = self.cloud.row(self.volume)
        if self.kept is None and self.owner in self.lost:
            # Nobody could know when it became the volume.
            self.kept = [row.source] if row.source else []
        if self.kept is not None:
            chains = [self.chain(head) for head in self._heads()]
            if chains and chains[0][0] == self.owner and (
                    chains[0][-1] not in self.lost):
                # Nothing of what was lost was needed any more.
                self.kept = None
        return self.kept is not None

    def given_up(self, where: Location) -> bool:
        """Whether what has not arrived at an LV is lost, and was given up."""
        return self.torn is not None and self.torn[0] == where and (
            self.torn[1] in self.lost)

    def arrived(self, where: Location, number: int) -> bool:
        """Whether a region is where the volume is."""
        node = self.cloud.nodes[where.node]
        clone = node.mapper.mapped.get(str(names.clone(where.lv)))
        return clone is None or number in clone.copied

    # -- what servers do ----------------------------------------------------

    def fresh(self, number: int) -> str:
        """A value that was never written before."""
        self._number += 1
        return f'{number}:{self._number}'

    def wrote(self, number: int, value: str, node: str) -> None:
        region = self.regions[number]
        region.values.append(value)
        region.where.append(node)
        region.below.append(region.last)
        region.last = len(region.values) - 1

    def snapshot(self) -> list[int]:
        """What a flush that begins now has to make durable."""
        return [region.last for region in self.regions]

    def flushed(self, seen: list[int]) -> None:
        for region, last in zip(self.regions, seen, strict=True):
            region.floor = max(region.floor, min(last, region.last))

    def read(self, number: int, value: str, who: str, begun: int) -> None:
        """
        :param begun: the last write when the read began; it may miss those
            that were made meanwhile
        """
        region = self.regions[number]
        if begun < region.last:
            self.check(number, value, who, missing=region.last - begun)
        else:
            self.check(number, value, who)
            region.last = region.number(value)

    def power_cut(self, node: str) -> None:
        """Writes that were made there since the last flush may be gone."""
        for region in self.regions:
            while region.last > region.floor and (
                    region.where[region.last] == node):
                region.last = region.below[region.last]

    # -- what must hold -----------------------------------------------------

    def check(self, number: int, value: str, who: str,
              durable: bool = False, missing: int = 0) -> None:
        region = self.regions[number]
        if value not in region.values:
            raise Violation('I6 foreign', f'{who}: region {number} has '
                            f'{value!r}, which was never written to it')
        found = region.number(value)
        if found < region.floor - missing:
            raise Violation('I1 lost', f'{who}: region {number} has {value}, '
                            f'{region.values[region.floor]} was flushed')
        if not durable and found < region.last - missing:
            raise Violation('I1 stale', f'{who}: region {number} has '
                            f'{value}, {region.values[region.last]} was '
                            'acknowledged')

    def check_copies(self, durable: bool) -> None:
        """Read the volume as the row and the disks say it is.

        :param durable: as it would be if every node lost power now
        """
        row = self.cloud.row(self.volume)
        if self.unborn or self._check_unmanaged(durable):
            return
        if row.deleted or row.status == 'deleting':
            return
        if self._mourns():
            return
        who = 'after a power cut of all nodes' if durable else 'on the disks'
        for number, value in enumerate(self.read_copies(self.owner, durable)):
            self.check(number, value, who, durable)

    def operators(self, node: cloud_module.Node) -> set[str]:
        """The LV that is the operator's, if it is one of a node."""
        home = self.cloud.row(self.volume).owner
        mine = (self.unmanaged and home.node == node.name
                and home not in self.lost)
        return {names.unmanaged_lv(self.volume)} if mine else set()

    def _check_unmanaged(self, durable: bool) -> bool:
        """Whether its LV is the operator's by now; it has to hold all then.
        """
        row = self.cloud.row(self.volume)
        name = names.unmanaged_lv(self.volume)
        lv, tags = _look(self.cloud.nodes[row.node], name, durable)
        if lv is None:
            if self.unmanaged and row.owner not in self.lost:
                raise Violation('I3 gone', f'{name} on {row.node} is gone')
            return self.unmanaged
        if self.unmanaged and tags:
            raise Violation('I5 left', f'{name} has tags: {tags}')
        for number in range(len(self.regions)):
            self.check(number, lv.read(number, durable), name, durable)
        return True

    def read_copies(self, where: Location, durable: bool) -> list[str]:
        """What an LV shows, with what it still needs of its lenders.

        :param durable: as it would be if every node lost power now
        """
        copies = list(self._copies(where, durable))
        found = []
        for number in range(len(self.regions)):
            lv = next((lv for lv, hydrated in copies
                       if hydrated is None or number in hydrated), None)
            if lv is None:
                raise Violation('I3 gone', f'{where}: region {number}')
            found.append(lv.read(number, durable))
        return found

    def _copies(self, where: Location, durable: bool) -> (
            typing.Iterator[tuple[storage.Volume,
                                  typing.Collection[int] | None]]):
        """The volume's LV and its lenders: content, and what counts of it.

        All of it if that is None.
        """
        while True:
            node = self.cloud.nodes[where.node]
            lv, tags = _look(node, names.data_lv(where.lv), durable)
            if lv is None and where in self.lost:
                return
            if lv is None:
                raise Violation('I3 gone', f'{where}, which is needed, is '
                                'gone')
            source = lv_tags.Tags.parse(tags).source
            if source is None:
                yield lv, None
                return
            yield lv, self._hydrated(node, where.lv, durable)
            where = Location(source.node, source.lv)

    @staticmethod
    def _hydrated(node: cloud_module.Node, uuid: LvUuid,
                  durable: bool) -> typing.Collection[int]:
        clone = node.mapper.mapped.get(str(names.clone(uuid)))
        if clone and not durable:
            return clone.copied
        lv, _ = _look(node, names.meta_lv(uuid), durable)
        if lv is None or lv.superblock is None:
            raise Violation('I3 gone', f'{node.name}: the metadata of {uuid} '
                            'is gone')
        return lv.superblock.hydrated


def _look(node: cloud_module.Node, name: str, durable: bool) -> tuple[
        storage.Volume | None, typing.Collection[str]]:
    for group in (node.group, node.meta_group):
        if durable and name in group._durable:
            lv, _, tags = group._durable[name]
            return lv, tags
        if not durable and name in group.volumes:
            lv = group.volumes[name]
            return lv, lv.tags
    return None, ()
