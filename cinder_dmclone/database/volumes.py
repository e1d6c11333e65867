# SPDX-License-Identifier: Apache-2.0
"""The ``volumes`` row: read whole, changed by compare-and-swap only.

Each change is one UPDATE: *offer*, *renew*, *withdraw*, *commit* and
*complete* of a volume, *create*, *begin* and *bear* of a new one, *spare* of
one that was not reverted, *let go* of a snapshot, *take back* of one whose
owner is lost, *adopt* of one of which the database is wrong; a commit may pin
a snapshot in the same transaction. A change whose answer was lost is read
back. That it was made is then known; that it was not is known only of one that
can be made no more, for the COMMIT may still be on its way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import typing

from cinder import context as cinder_context
from cinder import exception
from cinder.objects.fields import VolumeMigrationStatus
from cinder.objects.fields import VolumeStatus
from oslo_log import log as logging
import sqlalchemy as sa

from cinder_dmclone.database.attachment import read_attachments
from cinder_dmclone.database import causal_reads
from cinder_dmclone.database import changes
from cinder_dmclone.database import conditions
from cinder_dmclone.database.provider_id import and_lost
from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone.database.provider_id import Ranges
from cinder_dmclone.database import refusals
from cinder_dmclone.database import rows
from cinder_dmclone.database import services
from cinder_dmclone.database import snapshots
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.marks import reads
from cinder_dmclone.releases import db_api
from cinder_dmclone.releases import models

LOG = logging.getLogger(__name__)


class RowStore:
    """Cinder's database, as far as the driver reads and writes it."""

    def __init__(self, clock: typing.Callable[[], float] = time.monotonic,
                 sleep: typing.Callable[[float], None] = time.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._services = services.Services()

    @reads
    def get(self, volume_id: VolumeId) -> rows.Row | None:
        """The row with this id, a deleted one too; None if there is none."""
        found = self.find([volume_id])
        return found[0] if found else None

    @reads
    def find(self, volume_ids: typing.Iterable[VolumeId]) -> list[rows.Row]:
        """The rows with these ids, deleted ones too.

        :raises DatabaseAway: if the database does not answer
        """
        wanted = sorted(volume_ids)
        return [row for some in changes.portions(wanted)
                for row in self._read(models.Volume.id.in_(some), wanted)]

    @reads
    def homes(self, node: NodeName,
              lvs: typing.Iterable[LvUuid]) -> list[rows.Row]:
        """The rows of a node's living volumes that are one of these LVs.

        Reads the rows of that node's volumes, by ``volumes_deleted_host_idx``.

        :param node: ``host@backend``
        :raises DatabaseAway: if the database does not answer
        """
        volume, wanted = models.Volume, sorted(lvs)
        return self._read(sa.and_(
            self._of(node),
            sa.or_(volume._name_id.in_(wanted), volume.id.in_(wanted))),
            wanted)

    @reads
    def on(self, node: NodeName) -> list[rows.Row]:
        """The rows of all living volumes of a node; see ``homes``."""
        return self._read(self._of(node), [f'on {node}'])

    @staticmethod
    def _of(node: NodeName) -> sa.ColumnElement:
        volume = models.Volume
        return sa.and_(
            volume.deleted == sa.false(),
            sa.or_(volume.host == node,
                   volume.host.startswith(node + '#', autoescape=True)))

    @reads
    def unmade(self, volume_id: VolumeId, had: bool = False) -> bool:
        """Whether Cinder still makes a volume; or one that somebody had."""
        return bool(self._read(conditions.unmade(volume_id, had), [volume_id]))

    @reads
    def moving(self) -> list[rows.Row]:
        """The rows of all living volumes whose record names another LV.

        For a command of an operator: no index has that, and the rows of all
        living volumes are read. It has those of other backends, too.

        :raises DatabaseSilent: if the database does not answer
        """
        volume = models.Volume
        with changes.silent():
            return self._query(sa.and_(
                volume.deleted == sa.false(),
                sa.or_(*(volume.provider_id.contains(f';{field}=')
                         for field in ('from', 'offer')))))

    def _read(self, condition: sa.ColumnElement,
              wanted: typing.Iterable[str]) -> list[rows.Row]:
        try:
            return self._query(condition)
        except changes.AWAY as error:
            raise exceptions.DatabaseAway(
                volume=', '.join(wanted), reason=error) from error

    def _query(self, condition: sa.ColumnElement) -> list[rows.Row]:
        context = cinder_context.get_admin_context(read_deleted='yes')
        volume, attachment = models.Volume, models.VolumeAttachment
        with db_api.main_context_manager.reader.using(context) as session:
            causal_reads.see_all(session)
            found = session.query(
                volume.id, volume.host, volume._name_id, volume.size,
                volume.status, volume.migration_status, volume.provider_id,
                volume.deleted, volume.project_id,
                volume.multiattach).filter(condition).all()
            attachments = session.query(
                attachment.volume_id, attachment.id,
                attachment.attach_status, attachment.instance_uuid,
                attachment.connector, attachment.connection_info).filter(
                    attachment.volume_id.in_([row.id for row in found]),
                    attachment.deleted == sa.false()).all() if found else []
        by_volume = read_attachments(attachments)
        return [rows.Row(
            id=row.id, host=row.host, name_id=row._name_id,
            size=row.size, status=row.status,
            migration_status=row.migration_status,
            provider_id=row.provider_id, deleted=bool(row.deleted),
            project=row.project_id,
            attachments=tuple(by_volume.get(row.id, ())),
            multiattach=bool(row.multiattach)) for row in found]

    def offer(self, row: rows.Row, copy: Location,
              purpose: rows.Purpose) -> rows.Row:
        """Write down that ``copy`` is being prepared.

        :returns: the row as this change leaves it
        :raises CannotRelocate: if something keeps the volume where it is
        :raises RowChanged: if the volume is no longer as ``row`` says
        :raises DatabaseAway: if the outcome is not known
        """
        record = dataclasses.replace(row.record, offer=copy)
        return self._swap(row, 'offer', {
            'provider_id': str(record), **purpose.offered}, purpose)

    def renew(self, row: rows.Row) -> rows.Row:
        """Offer the same copy anew: no commit before this can be made then.

        One whose connection was lost may still be on its way, whatever a read
        shows. It has the row locked, so that this comes after it and finds
        another row; or it comes after this, and finds another row itself.

        :raises RowChanged: if the volume is no longer as ``row`` says
        :raises DatabaseAway: if the outcome is not known
        """
        record = row.record
        record = dataclasses.replace(record, renewed=record.renewed + 1)
        return self._swap(row, 'renew', {'provider_id': str(record)})

    def withdraw(self, row: rows.Row) -> rows.Row:
        """Take the offer back. Nothing of it is undone before this.

        With it ends a migration that the offer was for: the manager may be
        dead, or there never was one.
        """
        record = dataclasses.replace(row.record, offer=None, renewed=0)
        values = {'provider_id': str(record)}
        if row.migrates:
            values['migration_status'] = VolumeMigrationStatus.ERROR
        return self._swap(row, 'withdraw', values)

    def commit(self, row: rows.Row, owner: rows.Owner,
               purpose: rows.Purpose, source: Location | None,
               pin: snapshots.Pin | None = None) -> rows.Row:
        """Make the offered copy the volume: the point of no return.

        For a live migration nothing but owner and offer has to be as before:
        whatever else goes on with the volume, its server is there now.

        Sets what Cinder's own driver migration sets
        (``VolumeManager.migrate_volume``), in one UPDATE.

        :param source: what the copy hydrates from; None if it has all
        :param pin: a snapshot that is made with it or not at all
        :raises CannotRelocate, RowChanged, DatabaseAway: see ``offer``
        """
        values = {**self._moved(row, owner, source), **purpose.committed}
        live = isinstance(purpose, rows.LiveMigration)
        return self._swap(row, 'commit', values, None if live else purpose,
                          pin)

    def take_back(self, row: rows.Row, owner: rows.Owner,
                  source: Location | None, generation: int) -> rows.Row:
        """Make what the volume was before its last move the volume again.

        It is not made by the node that owns it, which is lost. What is
        offered there is forgotten.

        :param source: what that LV itself hydrates from
        :param generation: that it had when the volume left it
        :raises NotTakenBack, RowChanged, DatabaseAway: see ``offer``
        """
        lost = and_lost(row.lost, generation + 1, row.generation)
        return self._swap(row, 'take back',
                          self._moved(row, owner, source, lost),
                          rows.TakeBack())

    def adopt(self, row: rows.Row, owner: rows.Owner,
              record: ProviderId) -> rows.Row:
        """Make an LV the volume, while all services that may have it are down.

        :param record: what the tags of that LV say
        :raises NotAdopted, RowChanged, DatabaseAway: see ``offer``
        """
        return self._swap(row, 'adopt', {
            **self._moved(row, owner, None), 'provider_id': str(record)},
            rows.Adopt())

    def _moved(self, row: rows.Row, owner: rows.Owner,
               source: Location | None,
               lost: Ranges = ()) -> dict[str, typing.Any]:
        """What a row says a generation later, when the volume is elsewhere."""
        record = ProviderId(row.generation + 1, source=source,
                            lost=lost or row.lost)
        service = self._service(owner.location.node, row.id)
        return {
            **owner.columns(row),
            'provider_id': str(record),
            'provider_location': None, 'provider_auth': None,
            'service_uuid': service.uuid,
            'availability_zone': service.availability_zone,
        }

    def spare(self, row: rows.Row) -> rows.Row:
        """Let a volume be used again that was not reverted.

        :raises RowChanged, CannotRevert: if it is not being reverted any more
        :raises DatabaseAway: if the outcome is not known
        """
        return self._swap(row, 'spare', {
            'provider_id': str(row.record),
            'status': VolumeStatus.AVAILABLE}, rows.Revert())

    def let_go(self, row: rows.Row) -> rows.Row:
        """Let a volume be used that somebody wanted, who has gone.

        :raises RowChanged: if somebody wants it again
        :raises DatabaseAway: if the outcome is not known
        """
        return self._swap(row, 'let go', {
            'provider_id': row.provider_id,
            'status': VolumeStatus.AVAILABLE}, rows.LetGo())

    def create(self, row: rows.Row,
               purpose: rows.Purpose | None = rows.Birth()) -> rows.Row:
        """Write down that the LV which the row names is a new volume.

        What its row has from another one is left behind, but for the
        generation: the LVs that one has left must stay older than this.

        :param purpose: None if it is not being made any more
        :raises RowChanged, DatabaseAway: see ``begin``
        """
        return self._swap(row, 'create', {
            'provider_id': str(ProviderId(row.reached + 1, lost=row.lost)),
            'provider_location': None, 'provider_auth': None}, purpose)

    def begin(self, row: rows.Row, copy: Location) -> rows.Row:
        """Write down the LV that a volume is to be which is being made.

        What its row has from another one, or of an earlier attempt, is left
        behind but for the generation.

        :raises RowChanged: if it is not being made any more
        :raises DatabaseAway: if the outcome is not known
        """
        record = ProviderId(row.reached, offer=copy, lost=row.lost)
        return self._swap(row, 'begin', {'provider_id': str(record)},
                          rows.Birth())

    def bear(self, row: rows.Row, source: Location | None) -> rows.Row:
        """Make the offered LV a new volume, which hydrates from a source.

        :param source: None if it has all
        :raises RowChanged, DatabaseAway: see ``begin``
        """
        assert row.offer is not None
        record = ProviderId(row.generation + 1, source=source, lost=row.lost)
        return self._swap(
            row, 'bear', {'provider_id': str(record),
                          '_name_id': row.offer.lv}, rows.Birth())

    def complete(self, row: rows.Row) -> rows.Row:
        """Write down that the volume no longer needs its source."""
        record = dataclasses.replace(row.record, source=None)
        return self._swap(row, 'complete', {'provider_id': str(record)})

    def _service(self, node: NodeName, volume_id: VolumeId) -> typing.Any:
        try:
            found = self._services.get(node)
        except changes.AWAY as error:
            raise exceptions.DatabaseAway(volume=volume_id,
                                          reason=error) from error
        if found is None:
            raise exception.ServiceNotFound(service_id='cinder-volume',
                                            host=node)
        return found

    def _swap(self, row: rows.Row, step: str, values: dict[str, typing.Any],
              purpose: rows.Purpose | None = None,
              pin: snapshots.Pin | None = None) -> rows.Row:
        """Change a row that is as ``row`` says.

        :param purpose: for which more has to hold
        :param pin: what is written down in the same transaction
        """
        needed = conditions.to_move(row, purpose) if purpose else []
        failure: Exception | None = None
        expected = {column: getattr(row, field)
                    for column, field in conditions.OWNER.items()}
        if needed:
            expected['size'] = row.size
        try:
            if self._update(values, expected,
                            [condition.holds for condition in needed],
                            *([pin.change] if pin else [])):
                # Not read back: others may have gone on from there.
                return row.after(values)
        except changes.AWAY as error:
            LOG.warning('Volume %(volume)s: the answer to %(step)s was lost '
                        '(%(error)s); reading the outcome.',
                        {'volume': row.id, 'step': step, 'error': error})
            failure = error
        fresh = self._read_back(row.id, failure)
        # The generation, the freshly minted LV in ``provider_id`` and how
        # often it was offered make the value unique to one attempt. The new
        # owner may have gone on from a commit already; nobody but the home
        # raises the generation.
        wanted = ProviderId.parse(values['provider_id']).generation
        if fresh and (fresh == fresh.after(values) and not fresh.deleted
                      or failure and row.generation < wanted
                      and wanted <= fresh.generation):
            return fresh
        raise refusals.of(
            refusals.Attempt(step, row, row.after(values), purpose,
                             bool(pin)), fresh,
            self._broken(row, purpose) if purpose and fresh else None)

    @reads
    def hindrances(self, found: typing.Sequence[rows.Row],
                   purpose: rows.Leave) -> dict[VolumeId, str]:
        """What keeps volumes from leaving, as of now, if anything does.

        :raises DatabaseAway: if the database does not answer
        """
        reasons: dict[VolumeId, str] = {}
        for some in changes.portions(found):
            needed = conditions.to_move(some[0], purpose)
            try:
                hold = self._hold([row.id for row in some], needed)
            except changes.AWAY as error:
                raise exceptions.DatabaseAway(volume=some[0].id,
                                              reason=error) from error
            reasons.update((row.id, broken.reason(row)) for row in some if (
                broken := conditions.broken(needed, hold.get(row.id, ()))))
        return reasons

    def _broken(self, row: rows.Row, purpose: rows.Purpose
                ) -> conditions.Condition | None:
        """The first condition that does not hold, as far as can be read."""
        needed = conditions.to_move(row, purpose)
        with contextlib.suppress(*changes.AWAY):
            return conditions.broken(needed, self._hold(
                [row.id], needed).get(row.id, ()))
        return None

    def _hold(self, volume_ids: typing.Sequence[VolumeId],
              needed: typing.Sequence[conditions.Condition]
              ) -> dict[VolumeId, typing.Sequence[bool]]:
        """Which of these conditions hold now, of each row there is."""
        context = cinder_context.get_admin_context()
        with db_api.main_context_manager.reader.using(context) as session:
            causal_reads.see_all(session)
            found = session.query(
                models.Volume.id,
                *(condition.holds for condition in needed)).filter(
                    models.Volume.id.in_(volume_ids)).all()
        return {row_id: holds for row_id, *holds in found}

    def _update(self, values: dict[str, typing.Any],
                expected: dict[str, typing.Any],
                filters: list[sa.ColumnElement],
                *also: changes.Change) -> int:
        """One UPDATE of the row that is as expected; 0 if there is none.

        :param also: changes that are made with it or not at all
        """
        return changes.patiently(
            lambda: self._update_once(values, expected, filters, *also),
            self._clock)

    @staticmethod
    def _update_once(values: dict[str, typing.Any],
                     expected: dict[str, typing.Any],
                     filters: list[sa.ColumnElement],
                     *also: changes.Change) -> int:
        wanted = [conditions.expects(getattr(models.Volume, name), value)
                  for name, value in expected.items()]
        return changes.make(changes.Change(
            models.Volume, (*wanted, *filters), values), *also)

    def _read_back(self, volume_id: VolumeId,
                   failure: Exception | None) -> rows.Row | None:
        deadline = self._clock() + deadlines.SETTLE_SECONDS
        while True:
            try:
                return self.get(volume_id)
            except exceptions.DatabaseAway as error:
                if self._clock() > deadline:
                    raise exceptions.DatabaseAway(
                        volume=volume_id,
                        reason=failure or error) from error
                self._sleep(0.5)
