# SPDX-License-Identifier: Apache-2.0
"""The ``snapshots`` row: which LV a snapshot is.

Six changes exist: *pin*, alone or with the commit of a cut; *rule out*, after
which a pin that is still on its way to the database cannot be made; *adopt*,
of one of which the database is wrong; and three of a snapshot that moves,
*offer*, *withdraw* and *arrive*. Rows are found by their ids, or by that of
the volume.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import typing

from cinder import context as cinder_context
from cinder.objects.fields import SnapshotStatus
from oslo_log import log as logging
import sqlalchemy as sa

from cinder_dmclone.database import causal_reads
from cinder_dmclone.database import changes
from cinder_dmclone.database import conditions
from cinder_dmclone.database.pin_record import PinRecord
from cinder_dmclone.database import record
from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone.marks import reads
from cinder_dmclone.releases import db_api
from cinder_dmclone.releases import models

LOG = logging.getLogger(__name__)

# The generation that it is made with. Each move adds one.
PINNED = 1
# Nobody works on it: who reads what it is has said so in the status. One whose
# deletion has failed stays so until somebody deletes it again.
AT_REST = (SnapshotStatus.AVAILABLE, SnapshotStatus.ERROR_DELETING)
# What became of the row of a pin that was never made.
NEVER = PinRecord(0)


@dataclasses.dataclass(frozen=True)
class SnapshotRow(record.Recorded):
    """What the database says about a snapshot.

    :ivar size: of the volume when it was asked for, in GiB
    """

    id: SnapshotId
    volume: VolumeId
    size: int
    status: str
    deleted: bool
    provider_id: str | None

    @functools.cached_property
    def record(self) -> PinRecord | None:
        """The driver's part; None if nothing was ever written down.

        :raises CorruptRecord: if ``unreadable``
        """
        return PinRecord.parse(self.provider_id) if self.provider_id else None

    @property
    def at(self) -> Location | None:
        """The LV that the snapshot is."""
        return self.record.at if self.record else None

    @property
    def offer(self) -> Location | None:
        """The copy of that LV which it is to be, if it moves."""
        return self.record.offer if self.record else None


@dataclasses.dataclass(frozen=True)
class Pin:
    """A snapshot that is being made, and the LV that it is to be."""

    snapshot: SnapshotRow
    at: Location

    @property
    def record(self) -> PinRecord:
        """What is written down of it."""
        return PinRecord(PINNED, self.at)

    @property
    def change(self) -> changes.Change:
        """Makes the LV the snapshot, if nothing has become of that yet."""
        snapshot = models.Snapshot
        return changes.Change(snapshot, (
            snapshot.id == self.snapshot.id,
            snapshot.status == SnapshotStatus.CREATING,
            snapshot.provider_id.is_(None)), {
                'provider_id': str(self.record)})


class SnapshotStore:
    """Cinder's snapshots, as far as the driver reads and writes them."""

    def __init__(self, clock: typing.Callable[[], float] = time.monotonic
                 ) -> None:
        self._clock = clock

    @reads
    def get(self, snapshot: SnapshotId) -> SnapshotRow | None:
        """The row with this id, a deleted one too; None if there is none."""
        found = self.find([snapshot])
        return found[0] if found else None

    @reads
    def find(self, snapshots: typing.Iterable[SnapshotId]
             ) -> list[SnapshotRow]:
        """The rows with these ids, deleted ones too.

        :raises DatabaseAway: if the database does not answer
        """
        wanted = sorted(snapshots)
        try:
            return [row for some in changes.portions(wanted)
                    for row in self._query(models.Snapshot.id.in_(some))]
        except changes.AWAY as error:
            raise exceptions.DatabaseAway(
                volume='of snapshot ' + ', '.join(wanted),
                reason=error) from error

    @reads
    def of(self, volume: VolumeId) -> list[SnapshotRow]:
        """The rows of a volume's snapshots, deleted ones too.

        By the index of their foreign key.

        :raises DatabaseAway: if the database does not answer
        """
        try:
            return self._query(models.Snapshot.volume_id == volume)
        except changes.AWAY as error:
            raise exceptions.DatabaseAway(volume=volume,
                                          reason=error) from error

    @reads
    def moving(self) -> list[SnapshotRow]:
        """The rows of all living snapshots whose record has an offer.

        For a command of an operator: no index has that, and the rows of all
        snapshots are read. It has those of other backends, too.

        :raises DatabaseSilent: if the database does not answer
        """
        snapshot = models.Snapshot
        with changes.silent():
            return self._query(sa.and_(
                snapshot.deleted == sa.false(),
                snapshot.provider_id.contains(';offer=')))

    def _query(self, condition: sa.ColumnElement) -> list[SnapshotRow]:
        context = cinder_context.get_admin_context(read_deleted='yes')
        snapshot = models.Snapshot
        with db_api.main_context_manager.reader.using(context) as session:
            causal_reads.see_all(session)
            found = session.query(
                snapshot.id, snapshot.volume_id, snapshot.volume_size,
                snapshot.status, snapshot.deleted,
                snapshot.provider_id).filter(condition).all()
        return [SnapshotRow(
            id=row.id, volume=row.volume_id, size=row.volume_size,
            status=row.status, deleted=bool(row.deleted),
            provider_id=row.provider_id) for row in found]

    def pin(self, pin: Pin, row: rows.Row) -> None:
        """Make an LV that nobody writes a snapshot.

        :param row: of the volume, which must still be as it says
        :raises RowChanged: if the volume is not, or the snapshot is not
            being created any more
        :raises DatabaseAway: if the outcome is not known
        """
        volume = models.Volume
        still = sa.exists().where(
            volume.deleted == sa.false(),
            *(conditions.expects(getattr(volume, column), getattr(row, field))
              for column, field in conditions.OWNER.items()))
        change = pin.change
        self._swap(pin.snapshot, row.id, dataclasses.replace(
            change, holds=(*change.holds, still)))

    def rule_out(self, snapshot: SnapshotRow) -> None:
        """Let no pin of a snapshot be made any more that was tried before.

        One whose connection was lost may still be on its way, whatever a read
        shows: it comes before this, which then finds it, or never.

        :raises RowChanged: if there is a pin
        :raises DatabaseAway: if the outcome is not known
        """
        found = models.Snapshot
        self._swap(snapshot, snapshot.volume, changes.Change(found, (
            found.id == snapshot.id, found.provider_id.is_(None)), {
                'provider_id': str(NEVER)}))

    def adopt(self, snapshot: SnapshotRow, at: Location) -> None:
        """Make an LV the snapshot, whatever its row says.

        :raises RowChanged: if that says something else by now
        :raises DatabaseAway: if the outcome is not known
        """
        found = models.Snapshot
        self._swap(snapshot, snapshot.volume, changes.Change(found, (
            found.id == snapshot.id, found.status == snapshot.status,
            conditions.expects(found.provider_id, snapshot.provider_id)), {
                'provider_id': str(PinRecord(PINNED, at))}))

    def offer(self, snapshot: SnapshotRow, copy: Location) -> SnapshotRow:
        """Write down that a copy is made which the snapshot is to be.

        :returns: the row as this change leaves it
        :raises RowChanged: if the snapshot is no longer as ``snapshot`` says,
            or something is done with it
        :raises DatabaseAway: if the outcome is not known
        :raises CorruptRecord: if the names of the nodes are too long
        """
        record = dataclasses.replace(_record(snapshot), offer=copy)
        return self._become(
            snapshot, record,
            models.Snapshot.status == SnapshotStatus.AVAILABLE)

    def withdraw(self, snapshot: SnapshotRow) -> SnapshotRow:
        """Take that back, whatever is done with the snapshot.

        An ``arrive`` that is still on its way finds another row then.

        :raises RowChanged, DatabaseAway: see ``offer``
        """
        record = dataclasses.replace(_record(snapshot), offer=None)
        return self._become(snapshot, record)

    def arrive(self, snapshot: SnapshotRow) -> SnapshotRow:
        """Make the offered copy, which is complete, the snapshot.

        :raises RowChanged, DatabaseAway: see ``offer``
        """
        record = _record(snapshot)
        assert record.offer is not None
        return self._become(
            snapshot, PinRecord(record.generation + 1, record.offer),
            models.Snapshot.status.in_(AT_REST))

    def _become(self, snapshot: SnapshotRow, record: PinRecord,
                *holds: sa.ColumnElement) -> SnapshotRow:
        found, text = models.Snapshot, str(record)
        self._swap(snapshot, snapshot.volume, changes.Change(found, (
            found.id == snapshot.id,
            found.provider_id == snapshot.provider_id, *holds), {
                'provider_id': text}))
        return dataclasses.replace(snapshot, provider_id=text)

    def _swap(self, snapshot: SnapshotRow, volume: VolumeId,
              change: changes.Change) -> None:
        failure: Exception | None = None
        try:
            if self._update(change):
                return
        except changes.AWAY as error:
            LOG.warning('Snapshot %(snapshot)s: the answer to a change was '
                        'lost (%(error)s); reading the outcome.',
                        {'snapshot': snapshot.id, 'error': error})
            failure = error
        fresh = self.get(snapshot.id)
        if fresh and fresh.provider_id == change.values['provider_id']:
            return
        if failure:
            raise exceptions.DatabaseAway(volume=volume, reason=failure)
        raise exceptions.RowChanged(
            volume=volume, step='snapshot', reason=refusal(fresh))

    def _update(self, change: changes.Change) -> int:
        return changes.patiently(lambda: changes.make(change), self._clock)


def _record(snapshot: SnapshotRow) -> PinRecord:
    """That of a snapshot which is somewhere."""
    assert snapshot.record is not None
    return snapshot.record


def refusal(fresh: SnapshotRow | None) -> str:
    """Why its row was not changed, as far as that itself tells."""
    if fresh is None or fresh.deleted:
        return 'the snapshot was deleted'
    if fresh.provider_id:
        return (f'the snapshot is {fresh.provider_id} already, its status is '
                f'{fresh.status}')
    if fresh.status != SnapshotStatus.CREATING:
        return f'the status of the snapshot is {fresh.status}'
    return 'the volume has changed'
