# SPDX-License-Identifier: Apache-2.0
"""What must hold for a volume to be moved, and what is said if it does not.

Each condition is one expression on the ``volumes`` row: the change of the
row is made only if all hold, and the same expressions tell afterwards which
one did not.
"""

from __future__ import annotations

import dataclasses
import typing

from cinder.objects.fields import VolumeAttachStatus
import sqlalchemy as sa

from cinder_dmclone.database import rows
from cinder_dmclone.location import VolumeId
from cinder_dmclone.releases import models

# The columns that every change of a row expects to be as they were read, and
# what they are called in a ``Row``.
OWNER = {'id': 'id', 'host': 'host', '_name_id': 'name_id',
         'provider_id': 'provider_id'}


@dataclasses.dataclass(frozen=True)
class Condition:
    """One condition.

    :ivar holds: an expression on the ``volumes`` row
    :ivar reason: says what is the matter with a row for which it is not true
    :ivar stays: whether the volume could be served from where it is instead
    """

    holds: sa.ColumnElement
    reason: typing.Callable[[rows.Row], str]
    stays: bool = False


def unmade(volume_id: VolumeId, had: bool) -> sa.ColumnElement:
    """Whether a volume is not all made yet.

    CreateVolumeOnFinishTask (cinder/volume/flows/manager/create_volume.py)
    writes when it was launched, and nothing before. What is made with a group
    is never launched.

    :param had: whether somebody has, or had, it, too
    """
    volume, attachment = models.Volume, models.VolumeAttachment
    found = sa.and_(volume.id == volume_id, volume.launched_at.is_(None))
    if had:
        found &= sa.exists().where(attachment.volume_id == volume_id)
    return found


def to_move(row: rows.Row, purpose: rows.Purpose) -> list[Condition]:
    """For an offer, a commit but one of a live migration, a take-back."""
    volume = models.Volume
    status = Condition(expects(volume.status, purpose.statuses),
                       lambda fresh: f'its status is {fresh.status}')
    settled = Condition(
        expects(volume.migration_status, purpose.migrations),
        lambda fresh: f'its migration status is {fresh.migration_status}')
    match purpose:
        case rows.Birth():
            return [status]
        case rows.Cut():
            return [settled]
        case rows.Revert() | rows.LetGo():
            return [*_attachments(row, purpose), settled, status]
        case rows.TakeBack():
            return [settled, status]
    return [
        *_attachments(row, purpose),
        Condition(sa.and_(volume.group_id.is_(None),
                          volume.consistencygroup_id.is_(None)),
                  lambda fresh: 'it is in a group of Cinder, which '
                  'stays where it is; take it out of the group first '
                  '(cinder group-update --remove-volumes)', stays=True),
        settled, status]


def broken(needed: typing.Sequence[Condition],
           hold: typing.Sequence[bool]) -> Condition | None:
    """The first condition that does not hold.

    :param hold: which ones do; nothing if there is no row
    """
    return next((condition for condition, holds in zip(needed, hold)
                 if not holds), None)


def _attachments(row: rows.Row,
                 purpose: rows.Purpose) -> typing.Iterator[Condition]:
    attachment = models.VolumeAttachment
    mine = sa.and_(attachment.volume_id == models.Volume.id,
                   attachment.deleted == sa.false())
    match purpose:
        case (rows.Leave() | rows.Migrate() | rows.Revert()
              | rows.LetGo()):
            yield Condition(sa.not_(sa.exists().where(mine)),
                            lambda fresh: 'it has the attachment '
                            + attachments_of(fresh))
        case rows.ForAttachment(asking):
            yield _still_asked_for(mine, asking)
            yield Condition(
                sa.not_(sa.exists().where(mine, attachment.id != asking,
                                          _in_the_way(row, asking))),
                lambda fresh: 'it has another attachment, '
                + attachments_of(fresh, asking))
        case rows.LiveMigration(asking):
            yield _still_asked_for(mine, asking)


def _still_asked_for(mine: sa.ColumnElement, asking: str) -> Condition:
    return Condition(
        sa.exists().where(mine, models.VolumeAttachment.id == asking),
        lambda fresh: f'its attachment {asking} was deleted meanwhile')


def _in_the_way(row: rows.Row, attachment_id: str) -> sa.ColumnElement:
    """Attachments that a volume must not have beside this one.

    All but those of the same server that it never got an answer to, which
    Cinder leaves behind when a request fails: see ``Attachment.given``.
    """
    attachment = models.VolumeAttachment
    mine = row.attachment(attachment_id)
    return sa.or_(
        sa.and_(attachment.connector.is_not(None), sa.or_(
            # Cinder writes this when it makes one without a connector.
            sa.func.coalesce(attachment.connection_info, '{}') != '{}',
            attachment.attach_status == VolumeAttachStatus.ATTACHED)),
        attachment.instance_uuid.is_(None),
        attachment.instance_uuid != (mine.instance if mine else ''))


def attachments_of(row: rows.Row, but: str | None = None) -> str:
    """What a refusal calls them."""
    return ', '.join(f'{found.id} ({found.host or "reserved"})'
                     for found in row.attachments if found.id != but)


def difference(row: rows.Row, fresh: rows.Row) -> str:
    """What became of a row, in the columns that a change expects.

    Nothing if they are as before.
    """
    return ', '.join(
        f'{field} is {getattr(fresh, field)}, not {getattr(row, field)}'
        for field in (*OWNER.values(), 'size')
        if getattr(fresh, field) != getattr(row, field))


def expects(column: typing.Any, value: typing.Any) -> sa.ColumnElement:
    """That a column has a value, or one of several; None is NULL."""
    values = value if isinstance(value, tuple) else (value,)
    known = column.in_([one for one in values if one is not None])
    return sa.or_(known, column.is_(None)) if None in values else known
