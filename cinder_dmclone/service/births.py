# SPDX-License-Identifier: Apache-2.0
"""New volumes that begin as another volume, or as a snapshot."""

from __future__ import annotations

import dataclasses

from cinder_dmclone.database import rows
from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone import exceptions
from cinder_dmclone.location import foreign
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers import messages
from cinder_dmclone.relocation import birth
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.relocation import cut
from cinder_dmclone.service.base import Service
from cinder_dmclone.service import images
from cinder_dmclone.service import snapshots
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack.state import Stack
from cinder_dmclone import units


def clone(service: Service, volume_id: VolumeId, source: VolumeId) -> None:
    """Make a volume that begins as what another one is now.

    :raises CannotBear: if the other is not of this backend, or does not fit
    :raises NotBeingMade: if the volume is not being made any more
    :raises NoRoom: if this node has none
    """
    row = service.row(source)
    _bear(service, volume_id, row, row.node)


def from_snapshot(service: Service, volume_id: VolumeId,
                  snapshot: SnapshotId) -> None:
    """Make a volume that begins as a snapshot.

    :raises CannotBear, NotBeingMade, NoRoom: see ``clone``
    """
    found = service.world.snapshots.get(snapshot)
    if found is None or found.deleted or not found.at:
        raise exceptions.CannotBear(
            volume=volume_id, node=service.node,
            reason=f'snapshot {snapshot} is on no node')
    source = service.world.rows.get(found.volume)
    if source is None:
        raise service.unknown(found.volume)
    _bear(service, volume_id, source, found.at.node, found)


def _bear(service: Service, volume_id: VolumeId, source: rows.Row,
          lender: NodeName, snapshot: SnapshotRow | None = None) -> None:
    world = service.world
    with service.locked(volume_id):
        row = service.row(volume_id)
        service.require_being_made(row)
        if not lender or foreign(lender, service.node):
            raise exceptions.CannotBear(
                volume=volume_id, node=service.node,
                reason=f'its source is on {lender or "no node"}, which is '
                'not of this backend')
        try:
            row = birth.begin(world, row,
                              snapshot.at if snapshot else source.owner)
            with coordinator.undone(world, row):
                lent = _lent(service, birth.request(
                    world, row, source,
                    snapshot.id if snapshot else SnapshotId('')),
                    lender, snapshot)
                if not snapshot:
                    # Nobody can write to what it begins with any more.
                    images.require_clean(service, volume_id, source.id)
                row = birth.finish(world, row, lent)
            birth.adopt(world, row)
        finally:
            service.loop.enqueue(volume_id)
            if lender == service.node:
                service.loop.enqueue(source.id)
            else:
                world.peers.notify(lender, source.id)


def _lent(service: Service, request: messages.Lend, lender: NodeName,
          snapshot: SnapshotRow | None) -> messages.Lent | None:
    def ask(node: NodeName) -> messages.Lent | None:
        if node != service.node:
            return service.world.peers.ask(node, request)
        with service.locked(request.volume):
            return provide(service, request)
    return (snapshots.there(service, snapshot, ask) if snapshot
            else ask(lender))


def provide(service: Service,
            request: messages.Lend) -> messages.Lent | None:
    """Let a copy of this node begin; the source's lock is held.

    :returns: None if it was made: it has all that its source has
    """
    source = _source(service, request)
    # Also of one that is written: the volume begins as what it is now.
    if birth.make_at_once(service.world, source.stack, source.size, request):
        return None
    return _lend(service, request, source)


def lend(service: Service, request: messages.Lend) -> messages.Lent:
    """Lend to a copy that becomes a volume; the source's lock is held.

    What is written is cut first: the volume begins as what the source is at
    that moment.
    """
    return _lend(service, request, _source(service, request))


@dataclasses.dataclass(frozen=True)
class _Source:
    """What a volume begins as.

    :ivar size: as much of the LV as there is of it
    :ivar row: of the volume that it is; None of a snapshot
    """

    stack: Stack
    size: units.Bytes
    row: rows.Row | None = None


def _source(service: Service, request: messages.Lend) -> _Source:
    if request.snapshot:
        stack, tag = snapshots.readable(service, request.snapshot)
        return _Source(stack, tag.size)
    row = service.row(request.volume)
    service.require_home(row)
    row, stack = service.at_rest(row, 'cloned')
    return _Source(stack, units.Bytes.from_gib(row.size), row)


def _lend(service: Service, request: messages.Lend,
          source: _Source) -> messages.Lent:
    stack, row = source.stack, source.row
    try:
        if row and snapshots.has_writer(row, stack):
            # A request may come late, when nobody wants the copy any more.
            birth.require_asked(service.world, request)
            cut.cut(service.world, row)
            stack = inspect.refresh(service.host, stack.lv)
        return birth.lend(service.world, stack, source.size, request)
    finally:
        service.loop.enqueue(request.volume)
