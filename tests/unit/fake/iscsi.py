# SPDX-License-Identifier: Apache-2.0
"""iSCSI targets and sessions between the nodes of a cloud in memory."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import table
from cinder_dmclone.host.iscsi import targets
from cinder_dmclone.host.iscsi import initiator
from cinder_dmclone.sysfs import sessions
from cinder_dmclone.sysfs.sessions import Disk
from cinder_dmclone import units
from tests.unit.fake import mapped

if typing.TYPE_CHECKING:
    from tests.unit.fake import cloud


class Targets:
    """``iscsi.targets.Targets``: what configfs holds."""

    def __init__(self, node: cloud.Node) -> None:
        self._node = node
        self.exports: dict[str, targets.Export] = {}
        # Whether the kernel can export; not after a boot.
        self.loaded = True

    def load(self) -> None:
        self.loaded = True

    def check(self) -> None:
        self.load()

    def lose_power(self) -> None:
        self.exports.clear()
        self.loaded = False

    def list(self, lv: str = '', iqns: typing.Iterable[str] = ()
             ) -> dict[str, targets.ExportState]:
        return {iqn: targets.ExportState(
            iqn=iqn, device=export.device, serial=export.serial, enabled=True,
            initiators=frozenset(g.initiator for g in export.grants),
            sessions=frozenset(self._node.cloud.logged_in(self._node, iqn)))
            for iqn, export in self.exports.items()
            if lv in export.device or iqn in iqns}

    def ensure(self, export: targets.Export) -> None:
        if not self.loaded:
            raise exceptions.TargetUnusable(reason='it is not loaded')
        name = export.device.rpartition('/')[2]
        if name not in self._node.mapper.mapped:
            raise exceptions.TargetUnusable(reason=f'no device {name}')
        readonly = self._node.mapper.mapped[name].readonly
        if readonly and not export.readonly:
            raise exceptions.TargetUnusable(reason=f'{name} is read-only')
        former = self.exports.get(export.iqn, export)
        if (former.serial, former.readonly) != (export.serial,
                                                export.readonly):
            # A storage object cannot change: the target goes, and sessions
            # with it (``privileged.lio._build``).
            self._node.complain(f'{export.iqn} is another disk: '
                                f'{export.serial}, not {former.serial}')
        self.exports[export.iqn] = export

    def remove(self, iqn: str) -> None:
        self.exports.pop(iqn, None)
        self._node.cloud.lose_paths()

    def revoke(self, iqn: str, initiator: str) -> None:
        if iqn in self.exports:
            export = self.exports[iqn]
            self.exports[iqn] = dataclasses.replace(
                export, grants=tuple(g for g in export.grants
                                     if g.initiator != initiator))
            self._node.cloud.lose_paths()


@dataclasses.dataclass
class Record:
    """A node record of open-iscsi: it outlives a reboot."""

    portal: str
    user: str
    password: str


class Initiator:
    """``iscsi.initiator.Initiator``: sessions end with the node."""

    def __init__(self, node: cloud.Node) -> None:
        self._node = node
        self.records_: dict[str, Record] = {}
        self.sessions_: dict[str, str] = {}
        # Portals that did not answer the last login.
        self.silent_: set[str] = set()
        # Disks that the kernel has given up.
        self.offline_: set[str] = set()

    def check(self) -> None:
        """Always usable."""

    def name(self) -> str:
        return f'iqn.1993-08.org.debian:01:{self._node.host}'

    def sessions(self) -> set[str]:
        return set(self.sessions_)

    def records(self) -> set[str]:
        return set(self.records_)

    def disk(self, iqn: str) -> Disk | None:
        devnum = self.sessions_.get(iqn)
        if devnum is None:
            return None
        state = (
            'FAILED' if self._target(iqn) is None else
            sessions.OFFLINE if devnum in self.offline_ else
            sessions.LOGGED_IN)
        return sessions.Disk(f'/dev/sd{devnum.partition(":")[2]}', devnum,
                             state)

    def revive(self, iqn: str, disk: Disk) -> Disk:
        self.offline_.discard(disk.devnum)
        found = self.disk(iqn)
        assert found
        return found

    def disks(self) -> dict[str, Disk | None]:
        return {iqn: self.disk(iqn) for iqn in self.sessions_}

    def by_devnum(self, devnum: str) -> Disk | None:
        for iqn, found in self.sessions_.items():
            if found == devnum:
                return self.disk(iqn)
        return None

    def login(self, source: initiator.Source,
              timeout: float) -> Disk:
        self.records_[source.iqn] = Record(source.portal, source.user,
                                           source.password)
        disk = self.relogin(source.iqn, source.portal, timeout)
        self.verify(source, disk)
        return disk

    def relogin(self, iqn: str, portal: str,
                timeout: float) -> Disk:
        self.silent_.discard(portal)
        if self._node.cloud.by_portal(self._node, portal) is None:
            self.silent_.add(portal)
        if iqn not in self.records_ or self._target(iqn) is None:
            raise exceptions.LoginFailed(iqn=iqn, portal='its portal',
                                         reason='no answer or no access')
        self.sessions_.setdefault(iqn, self._node.number('8'))
        disk = self.disk(iqn)
        assert disk
        return disk

    def silent(self, portal: str) -> bool:
        return portal in self.silent_

    def verify(self, source: initiator.Source, disk: Disk) -> None:
        found = self._target(source.iqn)
        if found is None:
            raise exceptions.CommandTimeout(command='inquiry', seconds=10)
        node, export = found
        name = export.device.rpartition('/')[2]
        size = node.mapper.mapped[name].table.length.to_bytes()
        shown = (export.serial, size, node.group.block_size, export.readonly)
        wanted = (source.serial, units.Bytes(source.size),
                  source.block_size, True)
        if shown != wanted:
            raise exceptions.SourceMismatch(
                iqn=source.iqn, reason=f'{shown} instead of {wanted}')

    def logout(self, iqn: str) -> None:
        self.disconnect(iqn)
        self.records_.pop(iqn, None)

    def disconnect(self, iqn: str) -> None:
        # Ending a session whose lender is away is how stuck I/O comes back.
        reachable = self._target(iqn) is not None
        devnum = self.sessions_.pop(iqn, None)
        for found in self._node.mapper.mapped.values():
            if devnum and reachable and found.queues(devnum) and (
                    self._needed(found)):
                self._node.complain(f'{found.name} lost its disk {devnum}')

    def _needed(self, source: mapped.Mapped) -> bool:
        """Whether a clone has not yet copied all from a source."""
        return any(found.uses(source.devnum) and found.table.has(table.Clone)
                   and len(found.copied) < mapped.regions(
                       found.table.length)
                   for found in self._node.mapper.mapped.values())

    def read(self, devnum: str, region: int) -> str:
        """Read from an imported disk, through the lender's devices."""
        iqn = next(iqn for iqn, found in self.sessions_.items()
                   if found == devnum)
        found = self._target(iqn)
        assert found, 'read on a dead path'
        node, export = found
        return node.mapper.read(export.device, region)

    def _target(self, iqn: str) -> tuple[cloud.Node,
                                         targets.Export] | None:
        """The target behind a record, if it answers and lets us in."""
        record = self.records_.get(iqn)
        if record is None:
            return None
        node = self._node.cloud.by_portal(self._node, record.portal)
        export = node.targets.exports.get(iqn) if node else None
        if node is None or export is None:
            return None
        mine = targets.Grant(self.name(), record.user, record.password)
        return (node, export) if mine in export.grants else None
