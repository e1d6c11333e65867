# SPDX-License-Identifier: Apache-2.0
"""What the devices of a node do in the simulator only."""

from __future__ import annotations

import contextlib
import typing

from cinder_dmclone.host.dm import device
from cinder_dmclone.host.dm import table
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from tests.simulation import pools
from tests.unit.fake import mapped
from tests.unit.fake import mapper
from tests.unit.fake import storage

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module


def _lv(device: str) -> LvUuid | None:
    """Whose device one is."""
    found = names.DeviceName.parse(device)
    return found.lv if found else None


class Mapper(mapper.Mapper):
    """The device mapper, with bad sectors, discards and block sizes.

    :ivar bad: sectors that cannot be read, as names of LVs and regions
    :ivar failed_at: when the path of a source failed
    :ivar waits: reads that wait: through which devices, and their regions
    """

    def __init__(self, node: cloud_module.Node) -> None:
        super().__init__(node)
        self.bad: set[tuple[str, int]] = set()
        self.failed_at: dict[str, float] = {}
        self.waits: list[tuple[list[mapped.Mapped], int]] = []

    def apply(self, name: str, new: table.Table, readonly: bool = False,
              noflush: bool = False,
              seen: device.Device | None = None) -> None:
        found = self.mapped.get(name)
        if found and found.table != new:
            self._go_on(found)
        super().apply(name, new, readonly, noflush, seen)
        for segment in new.segments:
            match segment.target:
                case table.Multipath(path=str(path)):
                    self._check_blocks(name, path)

    def _go_on(self, passed: mapped.Mapped) -> None:
        """Let reads that have gone through a device be tried once more.

        One that fails waits again, and the device cannot change.
        """
        for through, region in list(self.waits):
            # A read has ended if one of them is gone; its server is slow.
            if passed in through[:-1] and all(
                    self.mapped.get(found.name) is found for found in through):
                with contextlib.suppress(mapped.Queued, mapped.Failed):
                    self.read_on(through, region)

    def remove(self, name: str) -> None:
        found = self.mapped.get(name)
        for other in self.mapped.values():
            if found and other.uses(found.devnum) and (
                    _lv(other.name) == _lv(name)):
                # Nothing that is done about another LV takes it away.
                self._node.complain(f'{name} is removed below {other.name}')
        super().remove(name)

    def _check_blocks(self, name: str, devnum: str) -> None:
        """I/O of servers is aligned to the blocks of this node's disks."""
        initiator = self._node.initiator
        for iqn, found in initiator.sessions_.items():
            target = initiator._target(iqn) if found == devnum else None
            if target and (target[0].group.block_size
                           != self._node.group.block_size):
                self._node.complain(f'{name}: the blocks of {devnum} have '
                                    'another size')

    def write(self, path: str, region: int, value: str) -> None:
        super().write(path, region, value)
        pools.grow(typing.cast('cloud_module.Node', self._node))

    def source(self, lv: LvUuid) -> mapped.Mapped | None:
        return self.mapped.get(str(names.source(lv)))

    def read_on(self, through: list[mapped.Mapped], region: int) -> str:
        """What a read gets that waited in the last of these devices.

        :raises Queued: if it waits on
        :raises Failed: if it waits no longer
        """
        *above, last = through
        try:
            return self._read(last.devnum, region)
        except mapped.Queued as waits:
            waits.through[:0] = above
            raise
        except mapped.Failed:
            while above and not isinstance(above[-1].target, table.Multipath):
                above.pop()
            if not above:
                raise
        self._fail(above[-1])
        return self.read_on(above, region)

    def discard(self, path: str, region: int) -> bool:
        """Whether a discard gives something back to a pool.

        A clone takes a discarded region for copied, if it lets it in. A gate
        lets none through.
        """
        found = self.mapped[path.rpartition('/')[2]]
        while found.discards and isinstance(found.target, table.Linear):
            devnum, region = found.leads_to(region)
            below = self._by_devnum(devnum)
            if below is None:
                return self._give_back(devnum, region)
            found = below
        if found.table.has(table.Clone) and found.discards:
            found.copied.add(region)
        return False

    def _give_back(self, devnum: str, region: int) -> bool:
        lv = self._active(devnum)
        assert lv
        if lv.pool:
            lv.blocks.pop(region, None)
        return bool(lv.pool)

    def _read(self, devnum: str, region: int) -> str:
        lv: storage.Volume | None = self._lv(devnum) if self.bad else None
        if lv and (lv.name, region) in self.bad:
            raise mapped.Failed(f'{lv.name}: bad sector')
        try:
            return super()._read(devnum, region)
        except mapped.Queued as waits:
            if found := self._by_devnum(devnum):
                waits.through.insert(0, found)
            raise

    def _fail(self, found: mapped.Mapped) -> None:
        if not found.path_failed:
            self.failed_at[found.name] = self._node.cloud.clock.monotonic()
        super()._fail(found)
