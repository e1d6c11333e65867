# SPDX-License-Identifier: Apache-2.0
"""The home node's course: offer, have it built, seal, commit; or withdraw."""

from __future__ import annotations

import contextlib
import typing

from oslo_log import log as logging
from oslo_utils import excutils

from cinder_dmclone.database import rows
from cinder_dmclone import deadlines
from cinder_dmclone.events import moves
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.relocation import borrower
from cinder_dmclone.relocation import chain
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import room
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)


def relocate(world: World, row: rows.Row, peer: NodeName,
             purpose: rows.Purpose) -> dict[str, typing.Any]:
    """Move a volume from this node to ``peer``; the caller holds its lock.

    :param peer: ``host@backend``
    :returns: the connection info of the volume's front there
    :raises CannotRelocate, PeerUnreachable, PeerRefused, RowChanged: the
        volume is still here and usable, nothing is left behind that the
        reconciler does not clean up
    :raises DatabaseAway: the outcome is not known; it is settled later
    """
    chain.require_short(world, row, peer)
    there = find_room(world, row, peer)
    # Whatever would stop the seal is found before anything is made.
    stack = lender.check_sealable(world, row, purpose, peer)
    row = offer(world, row, peer, purpose)
    purpose = purpose.begun
    with undone(world, row):
        if stack.thin:
            # What it has not written so far the copy will not read.
            lender.seal(world, row, purpose, peer)
        info = prepare_there(world, row, there, purpose)
        lender.seal(world, row, purpose, peer)
        commit(world, row, there.pool, purpose)
    world.peers.notify(peer, row.id)
    return info


@contextlib.contextmanager
def undone(world: World, row: rows.Row) -> typing.Iterator[None]:
    """Withdraw the row's offer if what happens inside fails."""
    try:
        yield
    except exceptions.DatabaseAway:
        raise
    except Exception as error:
        with excutils.save_and_reraise_exception():
            _undo(world, row, str(error))


def offer(world: World, row: rows.Row, peer: NodeName,
          purpose: rows.Purpose) -> rows.Row:
    """Write down a copy that has never been before; the row as it is now."""
    copy = Location.never_used(peer)
    row = world.rows.offer(row, copy, purpose)
    _tell(world, row, moves.What.START)
    return row


def _tell(world: World, row: rows.Row, what: moves.What,
          reason: str = '') -> None:
    """Tell whoever wants to know what the row has just come to say.

    :param row: as it was while the copy was offered
    """
    assert row.offer is not None
    # On its own node a volume goes on in another LV, and does not move.
    if row.offer.node != row.node:
        world.moves.tell(what, moves.Move(
            row.id, row.generation + 1, row.node, row.offer.node), reason)


def prepare_there(world: World, row: rows.Row, there: messages.Identity,
                  purpose: rows.Purpose) -> dict[str, typing.Any]:
    """Lend to the offered copy and have it built.

    :returns: the connection info of its front
    """
    assert row.offer is not None
    path = world.peers.ask(row.offer.node,
                           lend(world, row, there, purpose))
    return exports.local(path, there.thin)


def lend(world: World, row: rows.Row, there: messages.Identity,
         purpose: rows.Purpose) -> messages.Prepare:
    """Lend to the offered copy; what its node is to be asked."""
    copy = row.offer
    assert copy is not None
    size = world.host.group.report().lvs[names.data_lv(row.lv)].size
    tag = lv_tags.LoanTag(row.generation + 1, row.id, copy.node, copy.lv,
                          there.group, there.initiator, size)
    return messages.Prepare(
        volume=row.id, generation=tag.generation, lv=copy.lv,
        lent=lender.lend(world, row.lv, tag), group=there.group,
        front=purpose.server, gated=purpose.gated,
        seconds=world.settings.budget * deadlines.PREPARE_PART)


def commit(world: World, row: rows.Row, pool: str,
           purpose: rows.Purpose) -> None:
    """Make the offered copy the volume; there is no way back.

    Its node has to be told.

    :param pool: the pool of the copy's node
    """
    copy = row.offer
    assert copy is not None
    world.rows.commit(row, rows.Owner(copy, pool), purpose, row.owner)
    LOG.info('Volume %(volume)s moved from %(here)s to %(there)s.',
             {'volume': row.id, 'here': row.owner, 'there': copy})
    _tell(world, row, moves.What.END)


def find_room(world: World, row: rows.Row, peer: NodeName) -> messages.Room:
    """Ask the peer for room before anything is written down.

    :raises NodeFull: if there is none
    :raises CannotRelocate: if its disks do not fit
    """
    size = size_of(world, row, peer)
    there = world.peers.ask(peer, messages.FindRoom(size))
    require_room(world, row, size, peer, there)
    return there


def size_of(world: World, row: rows.Row, peer: str) -> units.Bytes:
    """How large the LV of a volume of this node is.

    :param peer: where the volume should move
    :raises CannotRelocate: if it is missing
    """
    lv = world.host.group.report().lvs.get(names.data_lv(row.lv))
    if lv is None:
        raise cannot(world, row, peer,
                     f'its LV {names.data_lv(row.lv)} is missing')
    return lv.size


def require_room(world: World, row: rows.Row, size: units.Bytes,
                 peer: NodeName, there: messages.Room) -> None:
    """See that a volume of this node can move, after what the peer has said.

    :raises NodeFull: if there is no room
    :raises CannotRelocate: if its disks do not fit
    """
    if reason := room.lacking(peer, there, size, 'volume'):
        raise exceptions.NodeFull(volume=row.id, node=world.settings.node,
                                  peer=peer, reason=reason)
    _require_blocks(world, row, peer, there)


def identify(world: World, row: rows.Row, peer: NodeName) -> messages.Identity:
    """Ask the peer of an offer that stands who it is; it may be full.

    :raises CannotRelocate: if its disks do not fit
    """
    there = world.peers.ask(peer, messages.Identify())
    _require_blocks(world, row, peer, there)
    return there


def _require_blocks(world: World, row: rows.Row, peer: NodeName,
                    there: messages.Identity) -> None:
    if reason := room.unlike(world, peer, there.block):
        raise cannot(world, row, peer, reason)


def cannot(world: World, row: rows.Row, peer: str,
           reason: str) -> exceptions.CannotRelocate:
    """The error that names the volume, this node and the other."""
    return exceptions.CannotRelocate(
        volume=row.id, node=world.settings.node, peer=peer, reason=reason)


def withdraw(world: World, row: rows.Row, why: str) -> rows.Row:
    """Take an offer back: the row first, then what was made for it."""
    copy, offered = row.offer, row
    assert copy is not None
    row = world.rows.withdraw(row)
    _tell(world, offered, moves.What.ERROR, why)
    try:
        if copy.node == world.settings.node:
            borrower.discard(world, row.id, copy.lv)
        else:
            world.peers.ask(copy.node, messages.Discard(row.id, copy.lv))
    except (exceptions.PeerUnreachable, exceptions.PeerRefused) as error:
        LOG.warning('Volume %(volume)s: %(copy)s is left to the reconciler '
                    'of its node: %(error)s',
                    {'volume': row.id, 'copy': copy, 'error': error})
        if isinstance(error, exceptions.PeerRefused):
            # It may be the volume, and the row an old one that was restored:
            # what it shows decides about the loan.
            return row
    stack = inspect.refresh(world.host, row.lv)
    for tag in stack.tags.lent:
        if tag.borrower == copy:
            lender.revoke_loan(world, stack, tag)
    return row


def _undo(world: World, row: rows.Row, why: str) -> None:
    try:
        withdraw(world, row, why)
    except exceptions.DMCloneException as error:
        LOG.warning('Volume %(volume)s: offer %(offer)s is left to the '
                    'reconciler: %(error)s',
                    {'volume': row.id, 'offer': row.offer, 'error': error})
