# SPDX-License-Identifier: Apache-2.0
"""Backups: who reads the volume, or a snapshot, and what must be read.

A reader sees what there was when it began, or what was written since: never
older data, and nothing else.
"""

from __future__ import annotations

import random
import typing

from cinder_dmclone.location import SnapshotId
from cinder_dmclone.service import connections
from cinder_dmclone.service import views
from tests.simulation import control
from tests.simulation import outside
from tests.simulation import server
from tests.simulation import truth as truth_module

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module
    from tests.simulation import snaps

Violation = truth_module.Violation

# Between two reads, and until a backup that died is one no more.
PAUSE_SECONDS = 25.0
DEAD_SECONDS = 100.0

Info = dict[str, typing.Any]


def woven(steps: typing.Iterable[tuple[str, ...]], choices: random.Random
          ) -> typing.Iterator[tuple[str, ...]]:
    """Steps of a story with backups and snapshots between them."""
    for step in steps:
        yield step
        if choices.random() < 0.4:
            host = choices.choice(('a', 'b', outside.Outside.host))
            yield choices.choice((
                ('snap',), ('backup_snap', host), ('backup_snap', host),
                ('unsnap',), ('backup', host),
                ('backup', host, choices.choice(('dies', 'reset')))))


class Reader(server.Server):
    """It has what it reads open on the node that has it."""

    @property
    def whole(self) -> bool:
        """Whether no disk is lost that what it reads needs."""
        return self.truth.lost.isdisjoint(self.truth.chain(self.here))

    def begin(self) -> None:
        """From now on it must not see less."""
        found = self.truth.read_copies(self.here, durable=False)
        self._least = [
            region.number(value) for region, value
            in zip(self.truth.regions, found, strict=True)]

    def look(self, number: int) -> bool:
        """Read a region; whether that was carried out."""
        found: list[str] = []
        done = self._io(lambda: found.append(
            self.node.mapper.read(self.path, number)))
        if done:
            self._check_value(number, found[0])
        return done

    def _check_value(self, number: int, value: str) -> None:
        region = self.truth.regions[number]
        if value not in region.values[self._least[number]:]:
            raise Violation('I13 read', f'{self.path} on {self.node.name} '
                            f'has {value} in region {number}, it had '
                            f'{region.values[self._least[number]]}')

    def _failed(self, what: str) -> bool:
        """Reads may fail: while a lender is away, and as disks do."""
        mapper = self.node.mapper
        if self.here in self.truth.lost or mapper.bad or any(
                found.path_failed for found in mapper.mapped.values()):
            return False
        return super()._failed(what)


class RemoteReader(outside.Served, Reader):
    """It is logged in; its target does not come back after a power cut."""

    @property
    def alive(self) -> bool:
        return super().alive and self.kernel.alive


def of_volume(api: control.Api, truth: truth_module.Truth,
              place: outside.Host, ending: str) -> None:
    """``openstack volume backup create`` of a volume that nobody uses.

    :param ending: 'done'; or cinder-backup 'dies', or the state is 'reset'
        while it goes on
    """
    row = api.tables.volumes[api.volume]
    if row['deleted'] or row['status'] != 'available' or api.tables.real or (
            api.tables.attachments_of(api.volume)):
        raise api.refused(f'backup: the volume is {row["status"]}')
    row['status'] = 'backing-up'

    freed = False

    def free() -> None:
        # Once: another one may have begun since.
        nonlocal freed
        if row['status'] == 'backing-up' and not freed:
            row['status'] = 'available'
        freed = True

    def connect(process: cloud_module.Process) -> Info:
        return connections.connect(process.service, api.volume,
                                   place.connector)

    def disconnect(process: cloud_module.Process) -> None:
        connections.disconnect(process.service, api.volume, place.connector)
    try:
        _read(api, truth, place, connect,
              disconnect if ending == 'done' else None,
              free if ending == 'reset' else lambda: None)
        if ending == 'dies':
            api.cloud.scheduler.sleep(DEAD_SECONDS)
    finally:
        free()


def of_snapshot(api: control.Api, truth: truth_module.Truth,
                taken: snaps.Snapshot, place: outside.Host) -> None:
    """The same of a snapshot."""
    if taken.row['status'] != 'available' or api.tables.real or taken.lost:
        raise api.refused(f'backup: the snapshot is {taken.row["status"]}')
    taken.row['status'] = 'backing-up'
    snapshot = SnapshotId(taken.id)

    def connect(process: cloud_module.Process) -> Info:
        return views.connect(process.service, snapshot, place.connector)

    def disconnect(process: cloud_module.Process) -> None:
        views.disconnect(process.service, snapshot, place.connector)
    try:
        _read(api, truth, place, connect, disconnect, lambda: None)
    finally:
        if taken.row['status'] == 'backing-up':
            taken.row['status'] = 'available'


def _read(api: control.Api, truth: truth_module.Truth, place: outside.Host,
          connect: typing.Callable[[cloud_module.Process], Info],
          disconnect: typing.Callable[[cloud_module.Process], None] | None,
          begun: typing.Callable[[], None]) -> None:
    """What cinder-backup does (``continue_backup`` in backup/manager.py)."""
    try:
        reader = _opened(truth, place, api.call('backup', connect))
        begun()
        if reader:
            _read_all(truth, reader)
    finally:
        if disconnect:
            _end(api, disconnect)


def _end(api: control.Api,
         disconnect: typing.Callable[[cloud_module.Process], None]) -> None:
    try:
        api.call('end of backup', disconnect)
    except control.Refused:
        # Late it would end the next backup of the same host.
        api.cloud.scheduler.sleep(DEAD_SECONDS)
        raise


def _opened(truth: truth_module.Truth, place: outside.Host,
            info: Info) -> Reader | None:
    """None if what was there is not any more."""
    data, there = info['data'], False
    reader: Reader | None = None
    if info['driver_volume_type'] == 'iscsi':
        remote = reader = RemoteReader(truth, place, data)
        there = remote.admitted
    else:
        node = typing.cast('cloud_module.Node', place)
        name = node.mapper.named(data['device_path'])
        there = name in node.mapper.mapped
        reader = Reader(truth, node, name) if there else None
    if reader and there and reader.whole:
        reader.begin()
        return reader
    if reader:
        reader.close()
    return None


def _read_all(truth: truth_module.Truth, reader: Reader) -> None:
    try:
        for number in range(len(truth.regions)):
            if not reader.look(number):
                return
            truth.cloud.scheduler.sleep(PAUSE_SECONDS)
    finally:
        reader.close()
