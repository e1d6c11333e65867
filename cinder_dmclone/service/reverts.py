# SPDX-License-Identifier: Apache-2.0
"""Making a volume what its latest snapshot is.

Cinder has set the status ``reverting`` before it asks, and sets ``error`` if
that is still so when the driver has failed
(``VolumeManager.revert_to_snapshot``).
"""

from __future__ import annotations

import contextlib
import typing

from cinder.objects.fields import SnapshotStatus
from oslo_log import log as logging
from oslo_utils import excutils

from cinder_dmclone.database import conditions
from cinder_dmclone.database import rows
from cinder_dmclone.database import snapshots
from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers import messages
from cinder_dmclone.relocation import birth
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import revert as protocol
from cinder_dmclone.service import births
from cinder_dmclone.service.base import Service
from cinder_dmclone.service import snapshots as service_snapshots

LOG = logging.getLogger(__name__)


def revert(service: Service, volume_id: VolumeId,
           snapshot_id: SnapshotId) -> None:
    """Make a volume that nobody uses what a snapshot of it is.

    :raises CannotRevert, NoRoom, PeerUnreachable, PeerRefused, CannotBear,
        RowChanged, VolumeLocked: the volume is as it was, and can be used
    :raises DatabaseAway: the outcome is not known; it is settled later
    :raises NotHome: if another node owns the volume
    """
    try:
        with _spared(service, volume_id, snapshot_id), (
                service.locked(volume_id)):
            row = service.row(volume_id)
            service.require_home(row)
            _revert(service, row, snapshot_id)
    finally:
        service.loop.enqueue(volume_id)


@contextlib.contextmanager
def _spared(service: Service, volume_id: VolumeId,
            snapshot_id: SnapshotId) -> typing.Iterator[None]:
    """Let the volume be used again if what happens inside fails.

    Cinder would leave it in error.
    """
    try:
        yield
    except (exceptions.DatabaseAway, exceptions.NotHome):
        raise
    except Exception as error:
        with excutils.save_and_reraise_exception():
            LOG.error('Volume %(volume)s was not reverted to snapshot '
                      '%(snapshot)s: %(error)s',
                      {'volume': volume_id, 'snapshot': snapshot_id,
                       'error': error})
            _spare(service, volume_id)


def _spare(service: Service, volume_id: VolumeId) -> None:
    try:
        row = service.row(volume_id)
        if row.status == rows.REVERTING:
            service.world.rows.spare(row)
    except exceptions.DMCloneException as error:
        LOG.warning('Volume %(volume)s stays in status error: %(error)s',
                    {'volume': volume_id, 'error': error.msg})


def _revert(service: Service, row: rows.Row, snapshot_id: SnapshotId) -> None:
    world = service.world
    row, _ = service.at_rest(row, 'reverted')
    snapshot = world.snapshots.get(snapshot_id)
    reason = _hindrance(row, snapshot)
    if reason or not snapshot or not snapshot.at:
        raise exceptions.CannotRevert(volume=row.id, node=service.node,
                                      reason=reason)
    # Somebody may have it without an attachment.
    protocol.seal(world, row)
    if snapshot.at == row.owner:
        # Whoever writes what is a snapshot writes another LV.
        return
    row = protocol.begin(world, row, snapshot.at)
    copy = row.offer
    try:
        with coordinator.undone(world, row):
            lender.mark_replaced(world, row)
            row = protocol.finish(world, row, _lent(service, row, snapshot))
    except exceptions.RowChanged:
        # The commit may have been made later than was waited for.
        row = service.row(row.id)
        if row.owner != copy:
            raise
    LOG.info('Volume %(volume)s goes on as snapshot %(snapshot)s.',
             {'volume': row.id, 'snapshot': snapshot.id})
    birth.adopt(world, row)
    if snapshot.at.node != service.node:
        world.peers.notify(snapshot.at.node, row.id)


def _lent(service: Service, row: rows.Row,
          snapshot: snapshots.SnapshotRow) -> messages.Lent | None:
    request = birth.request(service.world, row, row, snapshot.id)

    def ask(node: NodeName) -> messages.Lent | None:
        if node == service.node:
            return births.provide(service, request)
        return service.world.peers.ask(node, request)
    return service_snapshots.there(service, snapshot, ask)


def _hindrance(row: rows.Row, snapshot: snapshots.SnapshotRow | None) -> str:
    """Why a volume is not made what a snapshot is.

    A request may come late, when others have been made since.
    """
    if row.status != rows.REVERTING:
        return f'its status is {row.status}'
    if row.attachments:
        # Who was just given its device would find it gone.
        return f'it has the attachment {conditions.attachments_of(row)}'
    other = service_snapshots.not_meant(row.id, snapshot,
                                        SnapshotStatus.RESTORING)
    if other or snapshot is None:
        return other
    if snapshot.size != row.size:
        return (f'it has {row.size} GiB by now, the snapshot has '
                f'{snapshot.size}')
    if snapshot.at is None:
        return 'the snapshot is on no node'
    return ''
