# SPDX-License-Identifier: Apache-2.0
"""A volume's LV: made, deleted, grown."""

from __future__ import annotations

from oslo_utils import excutils

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import actions
from cinder_dmclone.reconcile import schedule
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.relocation import cut
from cinder_dmclone.relocation import room
from cinder_dmclone.service.base import Service
from cinder_dmclone.service import manage
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.stack import teardown
from cinder_dmclone import units


def create(service: Service, volume_id: VolumeId) -> None:
    """Make the LV of a new volume; its row says so when this returns.

    :raises PoolFull, PoolUnusable: if its pool may take nothing new
    :raises NotBeingMade, RowChanged: if it is not being made any more
    """
    with service.locked(volume_id):
        row = service.row(volume_id)
        service.require_being_made(row)
        _create(service, row)


def _create(service: Service, row: rows.Row) -> None:
    group = service.host.group
    report = group.report()
    if group.pool:
        # Else LVM knows: an LV that is not thin has all its room at once.
        room.admit(service.host, report)
    name, tag = names.data_lv(row.lv), lv_tags.OwnTag(row.reached + 1, row.id)
    try:
        group.create(name, units.Bytes.from_gib(row.size),
                     [lv_tags.print_tag(tag)])
        group.flush()
        service.world.rows.create(row)
    except exceptions.NotBegun:
        raise
    except Exception:
        # Cinder makes the volume on another node then. LVM that was killed
        # may have made it here all the same.
        with excutils.save_and_reraise_exception():
            if name not in report.lvs:
                group.remove(name)


def delete(service: Service, volume_id: VolumeId) -> None:
    """See that nobody uses a volume, nor will; idempotent.

    One that failed to be managed is an operator's LV, which is kept. The
    reconciler erases any other's when Cinder has deleted the row, and nobody
    else needs it. While a volume is being made nobody deletes it, but what a
    failed attempt has left: the next may be under way, also here.

    :raises DeviceBusy: if it is in use; it is then left as it was
    """
    world, host = service.world, service.host
    with service.locked(volume_id):
        row = world.rows.get(volume_id)
        if row is None or row.deleted:
            return
        if row.status in rows.BEING_MADE:
            _clear_attempt(service, row)
            return
        service.require_home(row)
        if manage.was_given(row):
            manage.hand_back(service, row)
            return
        if row.offer:
            row = coordinator.withdraw(world, row, 'it is deleted')
        stack = inspect.refresh(host, row.lv)
        teardown.close(host, stack)
        if stack.tags.own and stack.tags.own.volume != row.id:
            actions.rename(world, stack, row)
    service.loop.enqueue(row.lv, schedule.SOONEST)


def _clear_attempt(service: Service, row: rows.Row) -> None:
    """Let go of an LV that was made here for a volume that was not.

    When what follows has failed Cinder forgets the host, has the volume made
    anew, elsewhere or here, and asks the node that has failed
    (``_post_reschedule`` of OnFailureRescheduleTask in
    cinder/volume/flows/manager/create_volume.py). Nobody has had it, and its
    LV is called after the volume on each node.
    """
    stack = inspect.refresh(service.host, LvUuid(row.id))
    own = stack.tags.own
    if (row.node == service.node or row.name_id or row.attachments
            or not stack.bare or own is None or own.volume != row.id
            or stack.tags != lv_tags.Tags(own=own, erased=stack.tags.erased)):
        return
    # A later attempt is known by the generation that it comes after. One of
    # another node may have yet to begin.
    if own.generation <= row.reached:
        if stack.data and stack.data.pool:
            teardown.teardown(service.host, stack)
        else:
            teardown.condemn(service.host, stack)
            service.loop.enqueue(stack.lv)


def extend(service: Service, volume_id: VolumeId, size_gib: int) -> None:
    """Grow a volume; idempotent. Who uses it sees the new size.

    :raises CannotExtend: if a device that is in use could not grow, Cinder
        migrates it, or it has become larger since that was asked for
    :raises GrownInPart: if one did not; asked for again it may
    :raises LiveMigrated: if its server is live-migrated for long
    """
    service.after_migration(messages.Extend(volume_id, size_gib), _grow)


def extend_here(service: Service, request: messages.Extend) -> None:
    """The same for another node, which the volume has left."""
    service.after_migration(request, _grow, passed_on=True)


def _grow(service: Service, row: rows.Row, request: messages.Extend) -> None:
    """The volume is of this node; its lock is held."""
    host = service.host
    if row.being_migrated:
        # Another LV, made with the size of before, becomes the volume.
        raise exceptions.CannotExtend(volume=row.id, node=service.node,
                                      reason=row.until_migrated)
    if request.gib < row.size:
        # Cinder would write down the size that comes late.
        raise exceptions.CannotExtend(
            volume=row.id, node=service.node,
            reason=f'it has {row.size} GiB, which is more than '
            f'{request.gib} GiB')
    row, stack = service.at_rest(row, 'extended')
    _require_growth(service, stack)
    name, size = names.data_lv(stack.lv), units.Bytes.from_gib(request.gib)
    # One that has failed may have made it larger than it is to be now.
    if host.group.report().lvs[name].size < size:
        host.group.extend(name, size)
    host.group.flush()
    stack = inspect.refresh(host, stack.lv)
    for writer in stack.of_kind(*names.WRITERS):
        try:
            consumers.consume(host, stack, writer)
        except exceptions.CommandTimeout as error:
            raise exceptions.GrownInPart(
                volume=row.id, node=service.node, device=writer,
                gib=request.gib) from error


def _require_growth(service: Service, stack: Stack) -> None:
    """See that no request may keep a device from growing."""
    away = (cut.lender_away(service.world, stack)
            if stack.of_kind(*names.WRITERS) else None)
    if away:
        raise exceptions.CannotExtend(
            volume=stack.volume, node=service.node, reason='while its lender '
            f'{away} is away a server that waits for it could not be shown '
            'the new size')
