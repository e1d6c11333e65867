# SPDX-License-Identifier: Apache-2.0
"""What the database says about a volume, as values."""

from __future__ import annotations

import dataclasses
import functools
import typing

from cinder.objects.fields import VolumeMigrationStatus
from cinder.objects.fields import VolumeStatus

from cinder_dmclone.database.attachment import Attachment
from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone.database.provider_id import Ranges
from cinder_dmclone.database import record
from cinder_dmclone import exceptions
from cinder_dmclone.location import host_of
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId

# Statuses in which Cinder lets a server's attachment through
# (cinder.volume.api.API._attachment_reserve and attachment_update).
ATTACH_STATUSES = (VolumeStatus.RESERVED, VolumeStatus.ATTACHING,
                   VolumeStatus.IN_USE)
# Those of a volume that nobody has who wants, or wanted, it.
WANTED = (VolumeStatus.RESERVED, VolumeStatus.ATTACHING,
          VolumeStatus.DETACHING)
MIGRATE_STATUSES = (VolumeStatus.AVAILABLE, VolumeStatus.MAINTENANCE,
                    VolumeStatus.RETYPING)
# Cinder has no name for it.
REVERTING = 'reverting'
BEING_MADE = (VolumeStatus.CREATING, VolumeStatus.DOWNLOADING)
# While Cinder itself reads the volume: backup, upload, generic migration.
READ_STATUSES = (VolumeStatus.BACKING_UP, VolumeStatus.UPLOADING)
READ_MIGRATION = (VolumeMigrationStatus.STARTING,
                  VolumeMigrationStatus.MIGRATING)
SETTLED_MIGRATION = (None, VolumeMigrationStatus.ERROR,
                     VolumeMigrationStatus.SUCCESS)


@dataclasses.dataclass(frozen=True)
class Row(record.Recorded):
    """What the database says about a volume.

    :ivar host: None while Cinder looks for one
    :ivar size: in GiB
    :ivar multiattach: whether several servers may have it at the same time
    """

    id: VolumeId
    host: str | None
    name_id: str | None
    size: int
    status: str
    migration_status: str | None
    provider_id: str | None
    deleted: bool
    project: str | None = None
    attachments: tuple[Attachment, ...] = ()
    multiattach: bool = False

    @property
    def node(self) -> NodeName:
        """The owner, ``host@backend``."""
        return NodeName((self.host or '').partition('#')[0])

    @property
    def lv(self) -> LvUuid:
        """The uuid of the LV that is the volume (``Volume.name_id``)."""
        return LvUuid(self.name_id or self.id)

    @functools.cached_property
    def record(self) -> ProviderId:
        """The driver's part, which generation, source and offer are of.

        :raises CorruptRecord: as they do, if ``unreadable``
        """
        return ProviderId.parse(self.provider_id)

    @property
    def generation(self) -> int:
        """How often the volume has become another LV."""
        return self.record.generation

    @property
    def reached(self) -> int:
        """The generation that what is made for it comes after.

        Cinder copies the record of a volume that it migrates into the row of
        the one that will be exchanged with it, and other drivers write what
        they like.
        """
        return 0 if self.unreadable else self.generation

    @property
    def lost(self) -> Ranges:
        """See ``ProviderId``."""
        return () if self.unreadable else self.record.lost

    def given_up(self, generation: int) -> bool:
        """Whether it was taken back from what it was then."""
        return any(first <= generation <= last for first, last in self.lost)

    @property
    def owner(self) -> Location:
        """The LV that is the volume."""
        return Location(self.node, self.lv)

    @property
    def source(self) -> Location | None:
        """The LV that it hydrates from."""
        return self.record.source

    @property
    def is_read(self) -> bool:
        """Whether Cinder itself reads the volume, as its status says.

        Who connects then without an attachment only reads. The API and the
        managers set these before they connect, and end them afterwards
        (``create`` in cinder/backup/api.py, ``copy_volume_to_image`` and
        ``migrate_volume`` in cinder/volume/api.py).
        """
        return not self.deleted and (
            self.status in READ_STATUSES
            or self.migration_status in READ_MIGRATION)

    def connected_at(self, host: str) -> tuple[Attachment, ...]:
        """Attachments that are connected on a host, complete ones first."""
        found = [a for a in self.attachments
                 if a.connected and a.host == host]
        return tuple(sorted(found, key=lambda a: not a.attached))

    @property
    def shared(self) -> bool:
        """Whether several servers have it, or wait for it."""
        return self.multiattach and len(_servers(self.attachments)) > 1

    @property
    def servers(self) -> set[str]:
        """Those that it is connected to."""
        return _servers(a for a in self.attachments if a.connected)

    @property
    def offer(self) -> Location | None:
        """The LV that the volume may become, until that is settled."""
        return self.record.offer

    @property
    def places(self) -> tuple[Location, ...]:
        """Every LV that it speaks of.

        :raises CorruptRecord: if ``unreadable``: there may be others
        """
        return tuple(place for place in (self.owner, self.source, self.offer)
                     if place)

    @property
    def migrates(self) -> bool:
        """Whether its offer is for ``Migrate``; others bar that status."""
        return bool(
            self.offer and self.offer.node != self.node
            and self.migration_status == VolumeMigrationStatus.MIGRATING)

    @property
    def being_migrated(self) -> bool:
        """Whether Cinder migrates it: what is done with it now may be lost.

        In the end another volume becomes it, which is a ``target:`` until
        then (``_migrate_volume_generic`` of cinder/volume/manager.py).
        """
        return self.migration_status not in SETTLED_MIGRATION and (
            not str(self.migration_status).startswith('target:'))

    @property
    def until_migrated(self) -> str:
        """What keeps it from anything until its migration has ended."""
        return (f'its migration status is {self.migration_status}: try again '
                'when the migration has ended. If none runs, an administrator '
                'resets it (cinder reset-state --reset-migration-status)')

    @property
    def let_down(self) -> bool:
        """Whether a volume that should have moved is left to nobody.

        While it migrates Cinder leaves the status as it is when an attachment
        ends (``volume_detached`` of cinder/db/api.py). The row of one that
        somebody has just begun to want has no attachment yet, either.
        """
        return (self.status in WANTED and not self.attachments
                and self.migration_status == VolumeMigrationStatus.ERROR)

    @property
    def migration(self) -> Attachment | None:
        """The attachment that a live migration's offer is for.

        Of the server that has the volume here: one connected where the offer
        points, or one whose connector the manager has not written down yet.
        """
        here = self.connected_at(host_of(self.node))
        if not self.offer or not here or self.offer.node == self.node:
            return None
        there = self.connected_at(host_of(self.offer.node))
        waiting = (a for a in self.attachments
                   if not a.connected and a.instance == here[0].instance)
        return next(iter((*there, *waiting)), None)

    def after(self, values: typing.Mapping[str, typing.Any]) -> Row:
        """This row as a change with these values leaves it."""
        return dataclasses.replace(
            self, provider_id=values['provider_id'],
            host=values.get('host', self.host),
            name_id=values.get('_name_id', self.name_id),
            status=values.get('status', self.status),
            migration_status=values.get('migration_status',
                                        self.migration_status))

    def attachment(self, attachment_id: str) -> Attachment | None:
        """One of its attachments, if it has it."""
        return next((a for a in self.attachments if a.id == attachment_id),
                    None)


def _servers(attachments: typing.Iterable[Attachment]) -> set[str]:
    """Of which servers they are; one that is of none counts by itself."""
    return {found.instance or found.id for found in attachments}


class Purpose:
    """Why a volume moves to another LV.

    :cvar statuses: those that the volume must have
    :cvar migrations: its migration statuses, likewise
    :cvar server: whether a server gets a front of the copy
    :cvar gated: whether writes to that front wait until the commit
    :cvar offered: what of Cinder's columns the offer changes as well
    :cvar committed: the same of the commit
    """

    statuses: typing.ClassVar[tuple[str, ...]] = ATTACH_STATUSES
    migrations: typing.ClassVar[tuple[str | None, ...]] = SETTLED_MIGRATION
    server: typing.ClassVar[bool] = True
    gated: typing.ClassVar[bool] = False
    offered: typing.ClassVar[typing.Mapping[str, str]] = {}
    committed: typing.ClassVar[typing.Mapping[str, str | None]] = {}

    @property
    def begun(self) -> Purpose:
        """What it is from the offer on."""
        return self

    def refusal(self, row: Row, peer: NodeName,
                reason: str) -> exceptions.DMCloneException:
        """The error if something keeps a volume from it.

        :param peer: where it would move
        """
        return exceptions.CannotRelocate(volume=row.id, node=row.node,
                                         peer=peer, reason=reason)


@dataclasses.dataclass(frozen=True)
class ForAttachment(Purpose):
    """For a server that has the volume nowhere yet."""

    attachment: str


@dataclasses.dataclass(frozen=True)
class LiveMigration(Purpose):
    """For a server that moves, and has the volume where it comes from too."""

    gated = True
    attachment: str


@dataclasses.dataclass(frozen=True)
class Migrate(Purpose):
    """For Cinder's ``migrate``: nobody is attached."""

    statuses = MIGRATE_STATUSES
    migrations = (VolumeMigrationStatus.MIGRATING,)
    server = False


@dataclasses.dataclass(frozen=True)
class Left(Migrate):
    """Likewise, with no manager that writes afterwards that it has ended.

    One that does writes ``host`` as well, whatever the row says by then
    (``migrate_volume`` of cinder/volume/manager.py): until then the volume
    may not move on.
    """

    committed = {'migration_status': VolumeMigrationStatus.SUCCESS}


@dataclasses.dataclass(frozen=True)
class Leave(Purpose):
    """As for Cinder's ``migrate``, begun by this driver: a node is drained.

    From the offer on Cinder lets nobody use the volume or work on it, who
    might have read where it is before it moves.
    """

    statuses = (VolumeStatus.AVAILABLE,)
    server = False
    offered = {'migration_status': VolumeMigrationStatus.MIGRATING}

    @property
    def begun(self) -> Purpose:
        return Left()


@dataclasses.dataclass(frozen=True)
class Cut(Purpose):
    """To another LV of its node: whatever is done with the volume goes on."""

    server = False

    def refusal(self, row: Row, peer: NodeName,
                reason: str) -> exceptions.DMCloneException:
        return exceptions.CannotCut(volume=row.id, node=row.node,
                                    reason=reason)


@dataclasses.dataclass(frozen=True)
class Revert(Purpose):
    """To another LV of its node, which is what a snapshot is."""

    statuses = (REVERTING,)
    server = False

    def refusal(self, row: Row, peer: NodeName,
                reason: str) -> exceptions.DMCloneException:
        return exceptions.CannotRevert(volume=row.id, node=row.node,
                                       reason=reason)


@dataclasses.dataclass(frozen=True)
class LetGo(Purpose):
    """It stays, and nobody wants it any more: see ``Row.let_down``."""

    statuses = WANTED
    migrations = (VolumeMigrationStatus.ERROR,)
    server = False

    def refusal(self, row: Row, peer: NodeName,
                reason: str) -> exceptions.DMCloneException:
        return exceptions.RowChanged(volume=row.id, step='let go',
                                     reason=reason)


@dataclasses.dataclass(frozen=True)
class TakeBack(Purpose):
    """Back to what it was before its last move: its owner is lost."""

    # Those in which no service works on it. One that was left in another an
    # administrator has to reset.
    statuses = (VolumeStatus.AVAILABLE, VolumeStatus.IN_USE,
                VolumeStatus.RESERVED, VolumeStatus.ATTACHING,
                VolumeStatus.DETACHING, VolumeStatus.ERROR,
                VolumeStatus.MAINTENANCE)
    server = False

    def refusal(self, row: Row, peer: NodeName,
                reason: str) -> exceptions.DMCloneException:
        return exceptions.NotTakenBack(volume=row.id, node=peer,
                                       reason=reason)


@dataclasses.dataclass(frozen=True)
class Adopt(TakeBack):
    """An LV of which the row does not know: the database is wrong."""

    def refusal(self, row: Row, peer: NodeName,
                reason: str) -> exceptions.DMCloneException:
        return exceptions.NotAdopted(lv='of volume ' + row.id, node=peer,
                                     reason=reason)


@dataclasses.dataclass(frozen=True)
class Birth(Purpose):
    """To its first LV: it is being made."""

    statuses = BEING_MADE
    server = False

    def refusal(self, row: Row, peer: NodeName,
                reason: str) -> exceptions.DMCloneException:
        return exceptions.RowChanged(volume=row.id, step='birth',
                                     reason=reason)


@dataclasses.dataclass(frozen=True)
class Owner:
    """Where a commit moves a volume: the columns Cinder itself would set."""

    location: Location
    pool: str

    def columns(self, row: Row) -> dict[str, str | None]:
        """What they are then; those of a service aside.

        On another node a volume leaves its group, whose volumes Cinder deletes
        on the group's node alone (``delete_group`` of
        cinder/volume/manager.py).
        """
        found = {'host': f'{self.location.node}#{self.pool}',
                 '_name_id': self.location.lv, 'cluster_name': None}
        if self.location.node != row.node:
            found |= {'group_id': None, 'consistencygroup_id': None}
        return found
