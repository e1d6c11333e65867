# SPDX-License-Identifier: Apache-2.0
"""Cinder's generic migration: a copy of another id becomes the volume.

As ``VolumeManager`` does it (cinder/volume/manager.py): the node of the volume
has a volume made elsewhere, copies what there is, and exchanges LV, node and
record of the two rows, one after the other. The old LV is that of the other
row then, which is deleted. No change of a row has a condition.

Where the node dies between two of them nothing goes on by itself: an operator
puts the rows right.
"""

from __future__ import annotations

import contextlib
import typing
import uuid

from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone.service import connections
from cinder_dmclone.service import volumes
from tests.simulation import backups
from tests.simulation import cloud as cloud_module
from tests.simulation import control
from tests.simulation import outside
from tests.simulation import truth as truth_module
from tests.unit.fake import cloud as unit_cloud
from tests.unit.fake import ports

# Between two regions that are copied.
PAUSE_SECONDS = 5.0


class Copied(truth_module.Truth):
    """Of the volume that is made: what is written to it is a copy."""

    coming = ''

    def fresh(self, number: int) -> str:
        return self.coming


class Source(backups.Reader):
    """Who reads what is copied."""

    found = ''

    def _check_value(self, number: int, value: str) -> None:
        super()._check_value(number, value)
        self.found = value


class Migration:
    """One of them, ``openstack volume migrate --lock-volume``.

    :param node: where the volume is to go
    """

    def __init__(self, api: control.Api, truth: truth_module.Truth,
                 node: cloud_module.Node) -> None:
        self.api, self.truth, self.node = api, truth, node
        self.cloud, self.tables = api.cloud, api.tables
        self.row = api.tables.volumes[api.volume]
        self.old = {name: self.row[name]
                    for name in ('host', '_name_id', 'provider_id')}
        self.home = self.cloud.nodes[self.cloud.row(api.volume).node]
        self.owner = truth.owner
        self.other = VolumeId(str(uuid.uuid4()))
        self.there = control.Api(self.cloud, self.other)
        self.there.fate = self._fate
        self.source: Source | None = None
        self.ended = False

    def _fate(self, what: str) -> ports.Fate:
        """Nothing keeps Cinder from making what comes late."""
        fate = self.api.fate(what)
        return (fate if fate in (ports.Fate.LOST, ports.Fate.UNANSWERED)
                else ports.Fate.ARRIVES)

    def run(self) -> None:
        """
        :raises Refused: if it did not come to its end
        """
        self.tables.volume(
            self.other, f'{self.node.name}#{unit_cloud.POOL}',
            provider_id=self.old['provider_id'], size=self.row['size'],
            migration_status=f'target:{self.api.volume}')
        self.copied = Copied(self.cloud, self.other, self.node,
                             len(self.truth.regions))
        self.copied.main, self.copied.unborn = False, True
        # Its disk may go.
        self.copied.meddled = True
        self.truth.born.append(self.copied)
        process = self.home.process
        self.cloud.scheduler.spawn('migration', self._work, process,
                                   owner=process)
        while process.alive and not self.ended:
            if self.truth.kept is not None and self.source:
                # Somebody ends what would wait for what is lost.
                self.source.close()
            self.cloud.scheduler.sleep(1.0)
        self.truth.target = None
        self._put_right()
        if self.row['migration_status'] != 'success':
            raise control.Refused('exchange: it has failed')

    # -- what the manager does ----------------------------------------------

    def _work(self, process: cloud_module.Process) -> None:
        with contextlib.suppress(control.Refused, *cloud_module.ANSWERS):
            self.there.call('create', self._create)
            self._copy(process)
            self.row['migration_status'] = 'completing'
            self.there.call('exchange', self._update_migrated)
            self._finish(process)
            process.check_alive()
        self.ended = True

    def _create(self, process: cloud_module.Process) -> None:
        volumes.create(process.service, self.other)
        process.check_alive()
        self.tables.update(self.other, status='available')

    def _copy(self, process: cloud_module.Process) -> None:
        """``_copy_volume_data``; a disk that goes away makes it fail."""
        connector, service = self.home.connector, process.service
        there = self.there.call('connect', lambda other: connections.connect(
            other.service, self.other, connector))
        here = connections.connect(service, self.api.volume, connector)
        self.truth.target = Location(self.node.name, LvUuid(self.other))
        source = self.source = Source(self.truth, self.home,
                                      here['data']['device_path'])
        target = outside.Served(self.copied, self.home, there['data'])
        try:
            if not source.whole:
                raise control.Refused('exchange: its data is lost')
            source.begin()
            if not (all(self._copy_one(source, target, number)
                        for number in range(len(self.truth.regions)))
                    and target.flush()):
                raise control.Refused('exchange: a disk is gone')
        finally:
            source.close()
            target.close()
            if process.alive:
                connections.disconnect(service, self.api.volume, connector)
                self.there.call('disconnect', lambda other: (
                    connections.disconnect(other.service, self.other,
                                           connector)))
                self.truth.target = None

    def _copy_one(self, source: Source, target: outside.Served,
                  number: int) -> bool:
        self.cloud.scheduler.sleep(PAUSE_SECONDS)
        if not source.look(number):
            return False
        self.copied.coming = source.found
        return target.write(number)

    def _update_migrated(self, process: cloud_module.Process) -> None:
        """``update_migrated_volume`` on the other node."""
        self._save(process, self.other, _name_id=self.row['_name_id'])
        # The row names an LV of the wrong node now.
        self.truth.exchanged = self.owner
        self._save(process, self.api.volume, _name_id=self.other)

    def _finish(self, process: cloud_module.Process) -> None:
        """``finish_volume_migration``, and what comes after it."""
        record = self.row['provider_id']
        self.tables.before_commit = {}
        # What was flushed there is on the disks of this node.
        self.truth.flushed(self.truth.snapshot())
        self._save(process, self.api.volume, **self._new)
        self._save(process, self.other, **self._deleted(record))
        self._save(process, self.api.volume, status='available',
                   migration_status='success')
        with contextlib.suppress(control.Refused):
            self.there.delete()

    @property
    def _new(self) -> dict[str, typing.Any]:
        return {'host': self.tables.volumes[self.other]['host'],
                'provider_id': self.tables.volumes[self.other]['provider_id'],
                'migration_status': None}

    def _deleted(self, record: str | None) -> dict[str, typing.Any]:
        return {'host': self.old['host'], 'provider_id': record,
                '_name_id': self.old['_name_id'] or self.api.volume,
                'status': 'deleting', 'migration_status': 'deleting'}

    def _save(self, process: cloud_module.Process, volume: VolumeId,
              **values: typing.Any) -> None:
        self.cloud.take_time()
        self.cloud.scheduler.point()
        process.check_alive()
        self.truth.exchanges = 'host' in values and (
            volume == self.api.volume)
        if self.truth.exchanges:
            self.truth.exchanged = None
        self.tables.update(volume, **values)

    # -- what an operator does ----------------------------------------------

    def _put_right(self) -> None:
        """The rows of a migration whose node has died in it."""
        row, other = self.row, self.tables.volumes[self.other]
        if row['migration_status'] == 'success':
            return
        if self.cloud.row(self.api.volume).node == self.node.name:
            # The other one may still say the same.
            self.tables.update(self.other, **self._deleted(
                self.old['provider_id']))
            self.tables.update(self.api.volume, status='available',
                               migration_status='success')
            return
        if not other['deleted']:
            self.tables.update(self.other, _name_id=None,
                               status='error', migration_status=None)
        self.tables.update(self.api.volume, _name_id=self.old['_name_id'],
                           status='available', migration_status='error')
        self.truth.exchanged = None
        with contextlib.suppress(control.Refused):
            self.there.delete()


def migrate(api: control.Api, truth: truth_module.Truth,
            node: cloud_module.Node) -> None:
    """What the API asks for before it is begun."""
    row = api.tables.volumes[api.volume]
    if api.snapshots or api.tables.real or truth.kept is not None or (
            row['migration_status'] not in (None, 'success', 'error')):
        raise api.refused('exchange: it is not only this volume')
    if api.cloud.row(api.volume).node == node.name:
        raise api.refused('exchange: it is there')
    api.begin('exchange', 'maintenance')
    row['migration_status'] = 'migrating'
    Migration(api, truth, node).run()
