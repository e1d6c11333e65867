# SPDX-License-Identifier: Apache-2.0
"""A snapshot of this node moves to another, as an operator wants it to."""

from __future__ import annotations

import functools

from cinder.objects.fields import SnapshotStatus

from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone import exceptions
from cinder_dmclone.location import foreign
from cinder_dmclone.location import NodeName
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.snapshot_messages import CopySnapshot
from cinder_dmclone.peers.snapshot_messages import MoveSnapshot
from cinder_dmclone.relocation import snapshot_move
from cinder_dmclone.service.base import Service
from cinder_dmclone.service import migrate
from cinder_dmclone.service import snapshots
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack


def move(service: Service, request: MoveSnapshot) -> messages.Plan:
    """Have a snapshot of this node copied to another, where it is then.

    Its volume's lock is held. One that is on its way already can be let stay.

    :raises NotMoved: if it cannot move there, or if the operator has agreed
        to something else
    :raises PeerRefused, PeerUnreachable: what the other node has said
    """
    row = service.world.snapshots.get(request.snapshot)
    if row is None or row.deleted:
        raise exceptions.NotMoved(
            snapshot=request.snapshot, node=service.node,
            reason='the database has no such snapshot')
    if row.unreadable:
        raise _refusal(service, row, row.unreadable)
    try:
        if request.peer == service.node and row.offer:
            return _stay(service, row, request)
        return _move(service, row, request)
    finally:
        service.loop.enqueue(row.volume)


def _stay(service: Service, row: SnapshotRow,
          request: MoveSnapshot) -> messages.Plan:
    plan = messages.Plan(
        does=f'Snapshot {row.id} of volume {row.volume} stays {row.at}; what '
        f'has been copied to {row.offer} is deleted.', gives_up=[],
        record=str(row.record))
    if plan.agreed(request.record, functools.partial(
            _refusal, service, row)):
        snapshot_move.withdraw(service.world, row,
                               'an operator lets it stay')
    return plan


def _move(service: Service, row: SnapshotRow,
          request: MoveSnapshot) -> messages.Plan:
    reason = _hindrance(service, row, request.peer)
    if reason:
        raise _refusal(service, row, reason)
    stack, pinned = snapshots.readable(service, row.id)
    if stack.tags.source:
        raise _refusal(service, row, 'it hydrates from '
                       f'{stack.tags.hydrates_from}: wait until all of it is '
                       'here')
    peer, room = _place(service, row, pinned, request)
    plan = messages.Plan(
        does=f'Snapshot {row.id} of volume {row.volume} ({row.size} GiB) is '
        f'copied from {row.at} to {peer}, and is there when all of it has '
        'arrived.' + _then(stack, pinned), gives_up=[],
        record=str(row.record))
    if plan.agreed(request.record, functools.partial(
            _refusal, service, row)):
        snapshot_move.begin(service.world, row, stack, pinned, room, peer)
    return plan


def _hindrance(service: Service, row: SnapshotRow, peer: NodeName) -> str:
    """Why a snapshot does not move, as far as this node knows."""
    world = service.world
    if row.at is None or row.at.node != service.node:
        return f'it is {row.at or "on no node"}, says the database'
    if row.offer:
        return (f'it moves to {row.offer} already; with {service.node} as the '
                'node that is taken back')
    if row.status != SnapshotStatus.AVAILABLE:
        return f'its status is {row.status}'
    if peer == service.node:
        return 'it is there'
    if foreign(peer, service.node):
        return f'{peer} is no node of this backend'
    if peer and not world.peers.is_up(peer):
        return f'{peer} is down, or there is no such node'
    return ''


def _place(service: Service, row: SnapshotRow, pinned: lv_tags.SnapTag,
           request: MoveSnapshot) -> tuple[NodeName, messages.Room]:
    """Where it goes, and what that node has said."""
    if request.peer:
        return request.peer, snapshot_move.find_room(
            service.world, row, pinned.size, request.peer)
    return migrate.roomiest(
        service, pinned.size, functools.partial(
            snapshot_move.require_room, service.world, row, pinned.size),
        _refusal(service, row, migrate.NO_OTHER))


def _then(stack: Stack, pinned: lv_tags.SnapTag) -> str:
    """What becomes of the LV that it leaves."""
    others = [f'snapshot {tag.snapshot}' for tag in stack.tags.snaps
              if tag != pinned] + [
        str(tag.borrower) for tag in stack.tags.lent]
    if others:
        return f' Its logical volume stays for {" and ".join(others)}.'
    return (' Its logical volume is deleted then, unless it is the volume.'
            if stack.tags.own else ' Its logical volume is deleted then.')


def _refusal(service: Service, row: SnapshotRow,
             reason: str) -> exceptions.NotMoved:
    return snapshot_move.refusal(service.world, row, reason)


def copy(service: Service, request: CopySnapshot) -> None:
    """Build such a copy here; see ``relocation.snapshot_move``."""
    service.require_group(request.group, 'to copy a snapshot')
    try:
        snapshot_move.copy(service.world, request)
    finally:
        service.loop.enqueue(request.lv)
