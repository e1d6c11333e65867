# SPDX-License-Identifier: Apache-2.0
"""Making a volume a snapshot, and forgetting one.

Cinder sends both to the node that was the volume's home when it was asked,
and a request may wait for long: fresh rows decide.
"""

from __future__ import annotations

import typing

from cinder.objects.fields import SnapshotStatus
from cinder.objects.fields import VolumeStatus

from cinder_dmclone.database import rows
from cinder_dmclone.database import snapshots
from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers.messages import Answer
from cinder_dmclone.peers import snapshot_messages
from cinder_dmclone.reconcile import schedule
from cinder_dmclone.relocation import cut
from cinder_dmclone.relocation import pins
from cinder_dmclone.relocation import thin_snapshot
from cinder_dmclone.service.base import Service
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state

# Statuses in which no service of the control plane writes a volume, or only
# this node does: who reads or writes it has a device of it. While an image is
# downloaded Cinder saves the record once more, over one that a cut has written
# (CreateVolumeFromSpecTask).
_UNWRITTEN = (VolumeStatus.AVAILABLE, VolumeStatus.DOWNLOADING,
              VolumeStatus.RESERVED, VolumeStatus.ATTACHING,
              VolumeStatus.DETACHING, VolumeStatus.IN_USE, VolumeStatus.ERROR,
              VolumeStatus.ERROR_DELETING, VolumeStatus.ERROR_EXTENDING,
              VolumeStatus.ERROR_RESTORING, VolumeStatus.BACKING_UP,
              VolumeStatus.UPLOADING)


def create(service: Service, volume_id: VolumeId,
           snapshot_id: SnapshotId) -> None:
    """Make what a volume holds a snapshot, whoever uses it; idempotent.

    It holds every write that was acknowledged before the call.

    :raises CannotSnapshot: if it cannot be made, or is not asked for any more
    """
    known = service.world.snapshots.get(snapshot_id)
    if not not_meant(volume_id, known, SnapshotStatus.AVAILABLE) and (
            known and known.at):
        # The request comes twice, late: Cinder would save the status error.
        return
    service.after_migration(
        snapshot_messages.TakeSnapshot(volume_id, snapshot_id), _take_here)


def take(service: Service, request: snapshot_messages.TakeSnapshot) -> None:
    """The same for another node, which the volume has left."""
    service.after_migration(request, _take_here, passed_on=True)


def _take_here(service: Service, row: rows.Row,
               request: snapshot_messages.TakeSnapshot) -> None:
    """The volume is of this node; its lock is held."""
    world = service.world
    try:
        row, stack = service.at_rest(row, 'made a snapshot')
        snapshot = world.snapshots.get(request.snapshot)
        reason = _hindrance(row, stack, snapshot)
        if reason or snapshot is None:
            raise exceptions.CannotSnapshot(volume=row.id, node=service.node,
                                            reason=reason)
        if snapshot.at:
            # The answer to an earlier request was lost.
            return
        pin = snapshots.Pin(snapshot, row.owner)
        if thin_snapshot.possible(world.host, stack):
            pins.take(world, row, stack, snapshot)
        elif has_writer(row, stack):
            cut.cut(world, row, pin)
        else:
            pins.pin(world, row, pin)
    finally:
        service.loop.enqueue(row.id)


def not_meant(volume: VolumeId, snapshot: snapshots.SnapshotRow | None,
              status: str) -> str:
    """Why a request is not about a snapshot of a volume; it may come late.

    :param status: that of the snapshot while such a request is carried out
    """
    if snapshot is None or snapshot.deleted:
        return 'the snapshot was deleted'
    if snapshot.unreadable:
        return snapshot.unreadable
    if snapshot.status != status:
        return f'the status of the snapshot is {snapshot.status}'
    if snapshot.volume != volume:
        return f'it is one of volume {snapshot.volume}'
    return ''


def _hindrance(row: rows.Row, stack: state.Stack,
               snapshot: snapshots.SnapshotRow | None) -> str:
    """Why a snapshot cannot be made."""
    other = not_meant(row.id, snapshot, SnapshotStatus.CREATING)
    if other:
        return other
    if row.migration_status not in rows.SETTLED_MIGRATION:
        return f'the migration status of the volume is {row.migration_status}'
    if not stack.put_together:
        return 'its devices cannot be put together'
    if stack.tags.lost:
        return 'its lender is lost, and what has not arrived was given up'
    return ''


def has_writer(row: rows.Row, stack: state.Stack) -> bool:
    """Whether somebody writes, or has been told that he may.

    A server that was stopped finds its device when it starts: nobody asks.
    """
    return bool(stack.of_kind(*names.WRITERS)
                or any(found.connected for found in row.attachments)
                or row.status not in _UNWRITTEN)


def readable(service: Service, snapshot: SnapshotId) -> tuple[
        state.Stack, lv_tags.SnapTag]:
    """The LV on this node that a snapshot is, and what it says of that.

    The caller holds the lock of the snapshot's volume.

    :raises PeerRefused: if it is not here, or still written
    """
    found = service.world.snapshots.get(snapshot)
    if (found is None or found.deleted or not found.at
            or found.at.node != service.node
            or found.status == SnapshotStatus.DELETING):
        raise _unreadable(service, snapshot,
                          'it is not here, or is being deleted')
    stack = inspect.refresh(service.host, found.at.lv)
    tag = next((tag for tag in stack.tags.snaps if tag.snapshot == found.id),
               None)
    if tag is None:
        raise _unreadable(service, snapshot, f'LV {found.at.lv} does not say '
                          'that it is this snapshot')
    if stack.tags.erased:
        raise _unreadable(service, snapshot, 'its deletion had begun: LV '
                          f'{stack.lv} may be overwritten in part')
    if not stack.put_together:
        raise _unreadable(service, snapshot,
                          f'LV {stack.lv} is not put together')
    if stack.of_kind(*names.WRITERS):
        raise _unreadable(service, snapshot,
                          f'LV {stack.lv} is still written')
    return stack, tag


def _unreadable(service: Service, snapshot: SnapshotId,
                reason: str) -> exceptions.PeerRefused:
    return exceptions.PeerRefused(
        node=service.node, what=f'to have snapshot {snapshot} read',
        reason=reason)


def there(service: Service, found: snapshots.SnapshotRow,
          ask: typing.Callable[[NodeName], Answer]) -> Answer:
    """Ask the node of a snapshot; where that is by now, if it has moved.

    :param ask: asks a node, which may be this one
    """
    assert found.at is not None
    try:
        return ask(found.at.node)
    except exceptions.PeerRefused:
        fresh = service.world.snapshots.get(found.id)
        if (fresh is None or fresh.unreadable or fresh.at is None
                or fresh.at == found.at):
            raise
        return ask(fresh.at.node)


def delete(service: Service, volume_id: VolumeId,
           snapshot_id: SnapshotId) -> None:
    """Have the node of a snapshot look until Cinder has deleted the row.

    One that is away looks when it starts, and every node once a day.
    """
    world = service.world
    row = world.snapshots.get(snapshot_id)
    known = row if row and not row.unreadable else None
    for place in (known.at, known.offer) if known else ():
        if place and place.node != service.node:
            world.peers.notify(place.node, volume_id)
    at = known.at if known else None
    if at is None or at.node == service.node:
        service.loop.enqueue(at.lv if at else volume_id, schedule.SOONEST)
