# SPDX-License-Identifier: Apache-2.0
"""What users ask of a volume while it moves, of Cinder's own API.

Each looks at a status, writes another one, and sends a message to a service;
what that service writes in the end is written here.
"""
from __future__ import annotations

import contextlib
import typing
import uuid
from collections import Counter

from cinder import context as cinder_context
from cinder import exception
from cinder import objects
from cinder.backup import api as backup_api
from cinder.volume import api as volume_api
from oslo_db import exception as db_exc

from cinder_dmclone.database import snapshots
from cinder_dmclone.database.pin_record import PinRecord
from cinder_dmclone.location import Location
from cinder_dmclone.location import VolumeId
from cinder_dmclone.releases import db_api


class Images:
    """In place of Glance: takes every image."""

    def create(self, context: object,
               metadata: dict[str, typing.Any]) -> dict[str, typing.Any]:
        return {**metadata, 'id': str(uuid.uuid4())}


def _context() -> cinder_context.RequestContext:
    return cinder_context.RequestContext('user', 'project', is_admin=True)


class Requests:
    """Extend, upload, backup; a snapshot that is deleted while it moves."""

    def __init__(self) -> None:
        self._api = volume_api.API(image_service=Images())
        self._backups = backup_api.API()
        self._snapshots = snapshots.SnapshotStore()
        # Snapshots of which this process was told that it may delete them.
        self.deleted: list[str] = []
        # What was begun, and not refused.
        self.made: Counter[str] = Counter()

    def extend(self, volume: VolumeId) -> None:
        """By one GiB."""
        found = objects.Volume.get_by_id(_context(), volume)
        size = found.size + 1
        with self._ends(volume, 'extending', size=size):
            self._api.extend(_context(), found, size)

    def upload(self, volume: VolumeId) -> None:
        """To an image."""
        found = objects.Volume.get_by_id(_context(), volume)
        with self._ends(volume, 'uploading'):
            self._api.copy_volume_to_image(
                _context(), found, {'name': 'x', 'container_format': 'bare',
                                    'disk_format': 'raw'}, False)

    def backup(self, volume: VolumeId) -> None:
        """The one of them that still looks first and writes afterwards."""
        with self._ends(volume, 'backing-up'):
            self._backups.create(_context(), None, None, volume, 'x')

    @contextlib.contextmanager
    def _ends(self, volume: VolumeId, status: str,
              **values: typing.Any) -> typing.Iterator[None]:
        """End what a request begins, as its service does; failed ones too."""
        try:
            yield
        except exception.InvalidVolume:
            raise
        except BaseException:
            _conditionally(volume, status, {})
            raise
        self.made[status] += 1
        _conditionally(volume, status, values)

    def snapshot(self, volume: VolumeId, here: Location,
                 copy: Location) -> None:
        """Move one of the volume, which is made if there is none."""
        if not self._living(volume):
            objects.Snapshot(
                _context(), volume_id=volume, volume_size=1,
                status='available', provider_id=str(PinRecord(1, here)),
                project_id='project', user_id='user').create()
        for row in self._living(volume)[:1]:
            self._snapshots.arrive(self._snapshots.offer(row, copy))
            self.made['snapshot moved'] += 1

    def _living(self, volume: VolumeId) -> list[snapshots.SnapshotRow]:
        return [row for row in self._snapshots.of(volume) if not row.deleted]

    def delete_snapshot(self, volume: VolumeId) -> None:
        """One that may be moving."""
        for row in self._living(volume)[:1]:
            found = objects.Snapshot.get_by_id(_context(), row.id)
            self._api.delete_snapshot(_context(), found)
            self.deleted.append(row.id)
            self.made['snapshot deleted'] += 1
            asked = self._snapshots.get(row.id)
            while asked and not asked.deleted:
                with contextlib.suppress(db_exc.DBDeadlock):
                    db_api.snapshot_destroy(_context(), row.id)
                asked = self._snapshots.get(row.id)


def _conditionally(volume: VolumeId, status: str,
                   values: dict[str, typing.Any]) -> None:
    """Make a volume available again that has this status."""
    while True:
        with contextlib.suppress(db_exc.DBDeadlock):
            with contextlib.suppress(exception.VolumeNotFound):
                found = objects.Volume.get_by_id(_context(), volume)
                found.conditional_update({'status': 'available', **values},
                                         {'status': status})
            return
