# SPDX-License-Identifier: Apache-2.0
"""New volumes that begin as another volume, or as a snapshot."""

from __future__ import annotations

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
from cinder_dmclone.service import snapshots
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack.state import Stack
from cinder_dmclone import units


def clone(service: Service, volume_id: VolumeId, source: VolumeId) -> None:
    """Make a volume that begins as what another one is now.

    :raises CannotBear: if the other is not of this backend, or does not fit
    :raises NoRoom: if this node has none
    """
    row = service.row(source)
    _bear(service, volume_id, row, row.node)


def from_snapshot(service: Service, volume_id: VolumeId,
                  snapshot: SnapshotId) -> None:
    """Make a volume that begins as a snapshot.

    :raises CannotBear, NoRoom: see ``clone``
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
        service.require_home(row)
        if not lender or foreign(lender, service.node):
            raise exceptions.CannotBear(
                volume=volume_id, node=service.node,
                reason=f'its source is on {lender or "no node"}, which is '
                'not of this backend')
        try:
            row = birth.begin(world, row)
            with coordinator.undone(world, row):
                row = birth.finish(world, row, _lent(
                    service, birth.request(
                        world, row, source,
                        snapshot.id if snapshot else SnapshotId('')),
                    lender, snapshot))
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
    return None if _at_once(service, request) else lend(service, request)


def _at_once(service: Service, request: messages.Lend) -> bool:
    """Whether a copy was made that is a thin snapshot of its source.

    Also of one that is written: the volume begins as what it is now.
    """
    if not service.host.group.pool:
        return False
    if request.snapshot:
        stack, tag = snapshots.readable(service, request.snapshot)
        return birth.make_at_once(service.world, stack, tag.size, request)
    row, stack = _settled(service, request)
    size = units.Bytes.from_gib(row.size)
    return birth.make_at_once(service.world, stack, size, request)


def lend(service: Service, request: messages.Lend) -> messages.Lent:
    """Lend to a copy that becomes a volume; the source's lock is held.

    What is written is cut first: the volume begins as what the source is at
    that moment.
    """
    try:
        if request.snapshot:
            return _lend_snapshot(service, request)
        return _lend_volume(service, request)
    finally:
        service.loop.enqueue(request.volume)


def _lend_snapshot(service: Service, request: messages.Lend) -> messages.Lent:
    stack, tag = snapshots.readable(service, request.snapshot)
    return birth.lend(service.world, stack, tag.size, request)


def _lend_volume(service: Service, request: messages.Lend) -> messages.Lent:
    row, stack = _settled(service, request)
    if snapshots.has_writer(row, stack):
        cut.cut(service.world, row)
        stack = inspect.refresh(service.host, stack.lv)
    if stack.data is None:
        raise _refused(service, f'LV {stack.lv} is missing')
    return birth.lend(service.world, stack,
                      units.Bytes.from_gib(row.size), request)


def _settled(service: Service,
             request: messages.Lend) -> tuple[rows.Row, Stack]:
    """The volume that is the source, with nothing open on it."""
    row = service.row(request.volume)
    service.require_home(row)
    known = service.settled(row, 'cloned')
    assert known.row is not None
    service.require_unoffered(known.row, 'cloned')
    return known.row, known.stack


def _refused(service: Service, reason: str) -> exceptions.PeerRefused:
    return exceptions.PeerRefused(
        node=service.node, what='to lend', reason=reason)
