# SPDX-License-Identifier: Apache-2.0
"""What a volume must hold, as the servers that wrote it know it.

Every write gets a number. A region must show the last write that was
acknowledged; after a power cut it may be an earlier one, but none before the
last acknowledged flush.
"""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone import names
from cinder_dmclone import records
from tests.unit.fake import mapped
from tests.unit.fake import storage

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module


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
    take away.
    """

    values: list[str]
    where: list[str]
    last: int = 0
    floor: int = 0


class Truth:
    """What is known about the data of one volume."""

    def __init__(self, cloud: cloud_module.Cloud, volume: str,
                 node: cloud_module.Node, regions: int) -> None:
        self.cloud = cloud
        self.volume = volume
        # Somebody took attachments away under a server: it may see errors.
        self.meddled = False
        self._number = 0
        self.regions = [Region([f'{number}:0'], [node.name])
                        for number in range(regions)]

    def first_data(self) -> dict[int, str]:
        return {number: region.values[0]
                for number, region in enumerate(self.regions)}

    @property
    def owner(self) -> records.Location:
        return self.cloud.row(self.volume).owner

    # -- what servers do ----------------------------------------------------

    def fresh(self, number: int) -> str:
        """A value that was never written before."""
        self._number += 1
        return f'{number}:{self._number}'

    def wrote(self, number: int, value: str, node: str) -> None:
        region = self.regions[number]
        region.values.append(value)
        region.where.append(node)
        region.last = len(region.values) - 1

    def snapshot(self) -> list[int]:
        """What a flush that begins now has to make durable."""
        return [region.last for region in self.regions]

    def flushed(self, seen: list[int]) -> None:
        for region, last in zip(self.regions, seen, strict=True):
            region.floor = max(region.floor, min(last, region.last))

    def read(self, number: int, value: str, who: str) -> None:
        self.check(number, value, who)
        region = self.regions[number]
        region.last = region.values.index(value)

    def power_cut(self, node: str) -> None:
        """Writes that were made there since the last flush may be gone."""
        for region in self.regions:
            while region.last > region.floor and (
                    region.where[region.last] == node):
                region.last -= 1

    # -- what must hold -----------------------------------------------------

    def check(self, number: int, value: str, who: str,
              durable: bool = False) -> None:
        region = self.regions[number]
        if value not in region.values:
            raise Violation('I6 foreign', f'{who}: region {number} has '
                            f'{value!r}, which was never written to it')
        found = region.values.index(value)
        if found < region.floor:
            raise Violation('I1 lost', f'{who}: region {number} has {value}, '
                            f'{region.values[region.floor]} was flushed')
        if not durable and found < region.last:
            raise Violation('I1 stale', f'{who}: region {number} has '
                            f'{value}, {region.values[region.last]} was '
                            'acknowledged')

    def check_copies(self, durable: bool) -> None:
        """Read the volume as the row and the disks say it is.

        :param durable: as it would be if every node lost power now
        """
        row = self.cloud.row(self.volume)
        if row.deleted or row.status == 'deleting':
            return
        copies = list(self._copies(row.owner, durable))
        who = 'after a power cut of all nodes' if durable else 'on the disks'
        for number in range(len(self.regions)):
            blocks = next(blocks for blocks, hydrated in copies
                          if hydrated is None or number in hydrated)
            self.check(number, blocks.get(number, storage.OLD), who, durable)

    def _copies(self, where: records.Location, durable: bool) -> (
            typing.Iterator[tuple[dict[int, str],
                                  typing.Collection[int] | None]]):
        """The volume's LV and its lenders: content, and what counts of it.

        All of it if that is None.
        """
        while True:
            node = self.cloud.nodes[where.node]
            lv, tags = _look(node, names.data_lv(where.lv), durable)
            if lv is None:
                raise Violation('I3 gone', f'{where}, which is needed, is '
                                'gone')
            blocks = lv.durable if durable else lv.blocks
            source = records.Tags.parse(tags).source
            if source is None:
                yield blocks, None
                return
            yield blocks, self._hydrated(node, where.lv, durable)
            where = records.Location(source.node, source.lv)

    @staticmethod
    def _hydrated(node: cloud_module.Node, uuid: str,
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


class Server:
    """What runs in a server: it writes, flushes and reads its disk.

    :ivar may_fail: it runs on another node as well. Whichever loses the
        race for the volume may see errors, and reads what was there before
    """

    def __init__(self, truth: Truth, node: cloud_module.Node,
                 path: str) -> None:
        self.truth = truth
        self.node = node
        self.path = path
        self.running = False
        self.may_fail = False
        self.kernel = node.kernel
        self.name = path.rpartition('/')[2]
        node.mapper.open(path)
        self.opened = True

    @property
    def here(self) -> records.Location:
        name = names.DeviceName.parse(self.name)
        assert name
        return records.Location(self.node.name, name.lv)

    @property
    def alive(self) -> bool:
        """Until the power goes; its disk goes with it."""
        return self.kernel.alive

    def close(self) -> None:
        self.running = False
        if self.alive and self.opened:
            self.node.mapper.close(self.path)
        self.opened = False

    # -- I/O; each answers whether it was carried out -----------------------

    def write(self, number: int) -> bool:
        value = self.truth.fresh(number)
        done = self._io(lambda: self.node.mapper.write(
            self.path, number, value))
        if done:
            self.truth.cloud.note(f'wrote {value}')
            if self.truth.owner != self.here:
                raise Violation(
                    'I2 writer', f'a write was acknowledged on {self.here}, '
                    f'{self.truth.owner} is the volume')
            self.truth.wrote(number, value, self.node.name)
        return done

    def flush(self) -> bool:
        """Through a closed gate it is about nothing: none was written."""
        seen = self.truth.snapshot()
        done = self._io(lambda: self.node.mapper.flush(self.path))
        if done and self.truth.owner == self.here:
            self.truth.cloud.note('flushed')
            self.truth.flushed(seen)
        return done

    def read(self, number: int) -> bool:
        found = []
        done = self._io(lambda: found.append(
            self.node.mapper.read(self.path, number)))
        if done and not self.may_fail:
            self.truth.cloud.note(f'read {found[0]}')
            self.truth.read(number, found[0], f'read on {self.node.host}')
        return done

    def _io(self, attempt: typing.Callable[[], None]) -> bool:
        scheduler = self.truth.cloud.scheduler
        rejected, pause = self._rejected(), 0.5
        while True:
            scheduler.point()
            if not (self.alive and self.opened):
                return False
            if self._rejected() > rejected:
                return self._failed('a write that was held')
            try:
                attempt()
                return True
            except mapped.Queued:
                scheduler.sleep(pause)
                pause = min(2 * pause, 30.0)
            except mapped.Failed as error:
                return self._failed(str(error))

    def _rejected(self) -> int:
        hold = self.node.mapper.mapped.get(str(names.hold(self.here.lv)))
        return hold.rejected if hold else 0

    def _failed(self, what: str) -> bool:
        if not (self.may_fail or self.truth.meddled):
            raise Violation('I6 error', 'I/O error for the server on '
                            f'{self.node.host}: {what}')
        return False
