# SPDX-License-Identifier: Apache-2.0
"""The relocation of a volume whose server is live-migrated.

::

    home node A                                node B
    -----------                                ------
    offer     as for any relocation
    prepare   ------------------------------>  a copy whose front is gated
              ... the server moves: it may run on either node ...
                                               its first write waits
    hand over <------------------------------  claim
              gate, flush, commit
              ------------------------------>  adopt: open the gate, hydrate

Until the commit nothing that was written on B has been acknowledged, so the
offer can be withdrawn at any time; after it nothing can be written on A.

Whether a commit was made may stay unknown for as long as the database likes.
From the moment it is tried nothing can be written on A, and before that is
allowed again the offer is renewed: the commit can be made no more, and B can
claim the volume again.
"""

from __future__ import annotations

import typing

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.relocation import chain
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.relocation import lender
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.stack import write_gate
from cinder_dmclone.world import World


def offer(world: World, row: rows.Row, peer: NodeName,
          purpose: rows.Purpose) -> dict[str, typing.Any]:
    """Have a gated copy built on ``peer``; the caller holds the lock.

    A repeated request finds the offer and gets the same path.

    :returns: the connection info of the copy's front
    :raises CannotRelocate, PeerUnreachable, PeerRefused, RowChanged: nothing
        is left behind that the reconciler does not clean up
    """
    there: messages.Identity
    if row.offer is None:
        chain.require_short(world, row, peer)
        there = coordinator.find_room(world, row, peer)
        row = coordinator.offer(world, row, peer, purpose)
    elif row.offer.node == peer:
        # The room is taken already, by this very copy.
        there = coordinator.identify(world, row, peer)
    else:
        raise exceptions.CannotRelocate(
            volume=row.id, node=world.settings.node, peer=peer,
            reason=f'a live migration to {row.offer.node} is under way; if '
            'it is not, delete the attachment there (openstack volume '
            'attachment delete)')
    with coordinator.undone(world, row):
        info = coordinator.prepare_there(world, row, there, purpose)
        # Ready before the server's first write has to wait for it.
        write_gate.prepare(world.host, inspect.refresh(world.host, row.lv))
    return info


def is_there(world: World, row: rows.Row, stack: Stack) -> bool:
    """Whether the node of the offered copy still has it; no if it is lost.

    Its name may have been given to another node, which has other disks.

    :param stack: that of the LV which lends to the copy
    :raises CannotRelocate: if its node cannot tell what has become of it
    :raises PeerUnreachable, PeerRefused: if it does not say
    """
    copy = row.offer
    assert copy is not None
    shown = world.peers.ask(copy.node, messages.Show(copy.lv))
    lent = stack.loans_to(copy)
    if shown.state is LvState.MISSING or lent and all(
            tag.group != shown.group for tag in lent):
        return False
    if shown.state is not LvState.COPY:
        raise coordinator.cannot(world, row, copy.node,
                                 f'{copy} is {shown.state.value}')
    return True


def hand_over(world: World, row: rows.Row, copy: Location,
              pool: str) -> None:
    """Make the offered copy the volume; the caller holds the lock.

    A front that is open here is gated first. If anything fails it stays so
    until the reconciler finds it, or a request.

    :param pool: the pool of the copy's node
    :raises CannotRelocate: if this copy is not offered to a server that can
        be there already, or if somebody else uses the volume here
    :raises RowChanged: also if the commit was made later than was waited for
    :raises DatabaseAway: if the outcome is not known
    """
    attachment = row.migration
    if row.offer != copy or not attachment or not attachment.attached:
        raise exceptions.CannotRelocate(
            volume=row.id, node=world.settings.node, peer=copy.node,
            reason=f'{copy} is not offered to a server that may be there')
    if len(row.servers) > 1:
        raise exceptions.CannotRelocate(
            volume=row.id, node=world.settings.node, peer=copy.node,
            reason='another server has it, too')
    purpose = rows.LiveMigration(attachment.id)
    lender.seal(world, row, purpose, copy.node)
    coordinator.commit(world, row, pool, purpose)


def keep_here(world: World, row: rows.Row) -> None:
    """Make sure of a volume before it can be written on its home node.

    The caller holds the lock. A copy stays offered, for the server may be
    there, but a commit that was tried before can be made no more.

    :raises RowChanged: if the commit was made after all
    :raises DatabaseAway: if that is not known
    """
    if row.offer:
        world.rows.renew(row)
