# SPDX-License-Identifier: Apache-2.0
"""Snapshots of the volume: what users ask for, and what one must hold."""

from __future__ import annotations

import typing
import uuid

from cinder_dmclone.location import Location
from cinder_dmclone.location import SnapshotId
from cinder_dmclone import names
from cinder_dmclone.service import snapshots
from cinder_dmclone.stack import lv_tags
from tests.simulation import truth as truth_module

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module
    from tests.simulation import control

Violation = truth_module.Violation


class Snapshot:
    """What is known of one snapshot.

    :ivar content: what it held when the call that made it returned
    """

    def __init__(self, truth: truth_module.Truth) -> None:
        self.truth = truth
        self.tables = truth.cloud.tables
        self.id = SnapshotId(str(uuid.uuid4()))
        self._begun = truth.snapshot()
        self.content: list[str] | None = None
        self.tables.snapshot(truth.volume, self.id)

    @property
    def row(self) -> dict[str, typing.Any]:
        return self.tables.snapshots[self.id]

    @property
    def at(self) -> Location | None:
        """The LV that it is, as long as it is wanted."""
        if self.row['deleted'] or self.row['status'] == 'deleting':
            return None
        return self.tables.snapshot_row(self.id).at

    @property
    def lost(self) -> bool:
        """Whether disks are gone that it needs."""
        return self.at is not None and not self.truth.lost.isdisjoint(
            self.truth.chain(self.at))

    def made(self) -> None:
        """The call has returned: it holds what was acknowledged before."""
        at = self.at
        if at is None or self.lost:
            return
        self.content = self.truth.read_copies(at, durable=False)
        for region, begun, value in zip(self.truth.regions, self._begun,
                                        self.content, strict=True):
            # A power cut meanwhile may have taken what was not flushed.
            least = min(begun, region.last)
            if value not in region.values[least:]:
                raise Violation(
                    'I9 data', f'{self.id} at {at} has {value}, '
                    f'{region.values[least]} was acknowledged before')

    def check(self) -> None:
        """What is wanted is there, and never changes."""
        at = self.at
        if at is None or self.lost:
            return
        lv = self.truth.cloud.nodes[at.node].group.volumes.get(
            names.data_lv(at.lv))
        marks = lv_tags.Tags.parse(lv.tags).snaps if lv else ()
        if self.id not in [tag.snapshot for tag in marks]:
            raise Violation('I11 mark', f'{at} does not say that it is '
                            f'snapshot {self.id}')
        self._check_whole(at)
        for durable in (False, True):
            found = self.truth.read_copies(at, durable)
            if self.content and found != self.content:
                raise Violation(
                    'I9 data', f'{self.id} at {at} has {found}, it had '
                    f'{self.content}' + durable * ', after a power cut')

    def _check_whole(self, at: Location) -> None:
        """Where it has moved to it needs nothing of where it was."""
        record = self.tables.snapshot_row(self.id).record
        if record and record.generation > 1 and len(self.truth.chain(at)) > 1:
            raise Violation('I18 half', f'{self.id} moved to {at}, which '
                            'has not all of it')


def take(api: control.Api, truth: truth_module.Truth) -> None:
    """``openstack volume snapshot create --force``."""
    row = api.tables.volumes[api.volume]
    if row['deleted'] or row['status'] not in ('available', 'in-use'):
        raise api.refused(f'snapshot: the volume is {row["status"]}')
    taken = Snapshot(truth)
    truth.snapshots.append(taken)

    def manager(process: cloud_module.Process) -> None:
        try:
            snapshots.create(process.service, api.volume, taken.id)
        except Exception:
            # A change that is still on its way has the row locked.
            while api.tables.locked:
                api.cloud.scheduler.sleep(1.0)
            # Saved whatever has happened since, but for a deletion.
            if process.alive and taken.row['status'] == 'creating':
                taken.row['status'] = 'error'
            raise
        process.check_alive()
        if taken.row['status'] == 'creating':
            taken.row['status'] = 'available'
            taken.made()
    api.call('snapshot', manager)


def drop(api: control.Api, taken: Snapshot) -> None:
    """``openstack volume snapshot delete --force``."""
    if taken.row['deleted']:
        return
    if api.tables.real:
        raise api.refused('snapshot: not while the database is an old one')
    taken.row['status'] = 'deleting'

    def manager(process: cloud_module.Process) -> None:
        try:
            delete(process, taken)
        except Exception:
            if process.alive:
                taken.row['status'] = 'error_deleting'
            raise
    api.call('drop snapshot', manager)


def delete(process: cloud_module.Process, taken: Snapshot) -> None:
    """What the manager does, also on the way to the volume's deletion."""
    snapshots.delete(process.service, taken.truth.volume, taken.id)
    process.check_alive()
    taken.row.update(deleted=True, status='deleted')
