# SPDX-License-Identifier: Apache-2.0
"""A volume that nobody uses moves: Cinder's migration, its retype, a drain.
"""

from __future__ import annotations

import functools
import typing

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import foreign
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers import messages
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.service.base import Service
from cinder_dmclone import units

# So many nodes are asked for room; the one with most of it is taken.
CHOICES = 5
NO_OTHER = 'no other node of this availability zone is up and enabled'


def migrate(service: Service, volume_id: VolumeId, host: str) -> bool:
    """Move a volume nobody is attached to.

    :param host: ``host@backend#pool``
    :returns: False if ``host`` is no peer; nothing was done then
    """
    world, peer = service.world, NodeName(host.partition('#')[0])
    if (foreign(peer, service.node) or peer == service.node
            or not world.peers.is_up(peer)):
        return False
    with service.home(volume_id, 'moved') as (row, stack):
        try:
            coordinator.relocate(world, row, peer, rows.Migrate())
        finally:
            service.loop.enqueue(stack.lv)
    return True


def leave(service: Service, row: rows.Row,
          request: messages.Leave) -> NodeName:
    """Move a volume of this node, which is drained, to another.

    :returns: where it is now
    :raises CannotRelocate: if it has to stay
    :raises NodeFull, PeerRefused, PeerUnreachable: if no node takes it in;
        what the last that was asked has said
    """
    row, stack = service.at_rest(row, 'moved')
    try:
        peer = _refuge(service, row)
        coordinator.relocate(service.world, row, peer, rows.Leave())
    finally:
        service.loop.enqueue(stack.lv)
    return peer


def _refuge(service: Service, row: rows.Row) -> NodeName:
    """The node with most room for a volume, of some that take volumes in."""
    world, other = service.world, 'another node'
    size = coordinator.size_of(world, row, other)
    peer, _ = roomiest(
        service, size, functools.partial(
            coordinator.require_room, world, row, size),
        coordinator.cannot(world, row, other, NO_OTHER))
    return peer


def roomiest(service: Service, size: units.Bytes,
             require_room: typing.Callable[[NodeName, messages.Room], None],
             refusal: exceptions.DMCloneException
             ) -> tuple[NodeName, messages.Room]:
    """The node with most room, of some others that take volumes in.

    :param require_room: raises if what a node has said is not enough
    :param refusal: raised if there is none; else what the last has said
    """
    found, peers = [], service.world.peers
    for peer, room in peers.ask_all(
            peers.taking_in(service.node, CHOICES),
            messages.FindRoom(size)).items():
        try:
            if isinstance(room, exceptions.DMCloneException):
                raise room
            require_room(peer, room)
        except (exceptions.CannotRelocate, exceptions.NotMoved,
                exceptions.PeerRefused,
                exceptions.PeerUnreachable) as error:
            refusal = error
        else:
            found.append((room.free, peer, room))
    if not found:
        raise refusal
    _, peer, room = max(found, key=lambda one: one[:2])
    return peer, room


def settled_host(service: Service, volume_id: VolumeId) -> str | None:
    """Where a volume is that is being retyped, as Cinder writes it.

    Its manager writes the host that the scheduler has found, which may be
    that of before a live migration. While the status is ``retyping`` none
    begins; one that is under way may end at any moment.

    :raises LiveMigrated: if one is
    """
    with service.locked(volume_id):
        row = service.row(volume_id)
        service.require_unoffered(row, 'retyped')
        return row.host
