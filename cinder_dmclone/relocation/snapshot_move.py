# SPDX-License-Identifier: Apache-2.0
"""A snapshot moves: it is copied to another node, and is the copy then::

    node of the snapshot                       the other node
    --------------------                       --------------
    offer     CAS: its row names the copy
    lend      tag, flush, export
              ------------------------------>  build
                                               hydrate, finish
                                               arrive    CAS: its row says
                                                         that it is the copy
    forget    asks whether the copy has all
              <------------------------------

What a snapshot holds never changes. So it is where it was until all of it has
arrived, whoever reads it; the copy is nothing until then, and everything
afterwards: at no time are both needed. Before *arrive* every failure is undone
by *withdraw*, after which the copy goes; a crash is found by the node that has
the copy, or by that of the snapshot, which misses it.
"""

from __future__ import annotations

import contextlib

from oslo_log import log as logging
from oslo_utils import excutils

from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone import deadlines
from cinder_dmclone.events import moves
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.snapshot_messages import CopySnapshot
from cinder_dmclone.relocation import borrower
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import room
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.stack import teardown
from cinder_dmclone import units
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)


def find_room(world: World, row: SnapshotRow, size: units.Bytes,
              peer: NodeName) -> messages.Room:
    """Ask another node for room before anything is written down.

    :raises NotMoved: if there is none, or its disks do not fit
    :raises PeerRefused, PeerUnreachable: if it does not say
    """
    there = world.peers.ask(peer, messages.FindRoom(size))
    require_room(world, row, size, peer, there)
    return there


def require_room(world: World, row: SnapshotRow, size: units.Bytes,
                 peer: NodeName, there: messages.Room) -> None:
    """See that a snapshot can move, after what the other node has said.

    :raises NotMoved: if there is no room, or its disks do not fit
    """
    reason = (room.lacking(peer, there, size, 'snapshot')
              or room.unlike(world, peer, there.block))
    if reason:
        raise refusal(world, row, reason)


def refusal(world: World, row: SnapshotRow,
            reason: str) -> exceptions.NotMoved:
    """The error that names the snapshot and this node."""
    return exceptions.NotMoved(snapshot=row.id, node=world.settings.node,
                               reason=reason)


def begin(world: World, row: SnapshotRow, stack: Stack,
          pinned: lv_tags.SnapTag, there: messages.Identity,
          peer: NodeName) -> SnapshotRow:
    """Have a snapshot of this node copied; its volume's lock is held.

    :param stack: the LV that it is, which is complete
    :param there: what the other node has said of itself
    :returns: the row as it is then
    :raises PeerRefused, PeerUnreachable, RowChanged: it stays here
    :raises DatabaseAway: the outcome is not known; it is settled later
    """
    row = world.snapshots.offer(row, Location.never_used(peer))
    _tell(world, row, moves.What.START)
    try:
        world.peers.ask(peer, _lend(world, row, stack, pinned, there))
    except exceptions.DatabaseAway:
        raise
    except Exception as error:
        with excutils.save_and_reraise_exception():
            _undo(world, row, str(error))
    LOG.info('Snapshot %(snapshot)s is copied from %(here)s to %(there)s.',
             {'snapshot': row.id, 'here': row.at, 'there': row.offer})
    return row


def _tell(world: World, row: SnapshotRow, what: moves.What,
          reason: str = '') -> None:
    """Tell whoever wants to know what the row has just come to say.

    :param row: as it was while the copy was offered
    """
    assert row.record and row.at and row.offer
    world.moves.tell(what, moves.Move(
        row.volume, row.record.generation + 1, row.at.node, row.offer.node,
        row.id), reason)


def _lend(world: World, row: SnapshotRow, stack: Stack,
          pinned: lv_tags.SnapTag,
          there: messages.Identity) -> CopySnapshot:
    """Lend to the offered copy; what its node is to be asked."""
    copy, record = row.offer, row.record
    assert copy is not None and record is not None
    # It must not lose on a power cut what the copy has already.
    consumers.flush(world.host, stack)
    loan = lv_tags.LoanTag(
        record.generation + 1, VolumeId(row.id), copy.node, copy.lv,
        there.group, there.initiator, pinned.size)
    return CopySnapshot(
        volume=row.volume, snapshot=row.id, generation=loan.generation,
        lv=copy.lv, lent=lender.lend(world, stack.lv, loan),
        group=there.group,
        seconds=world.settings.budget * deadlines.PREPARE_PART)


def _undo(world: World, row: SnapshotRow, why: str) -> None:
    try:
        withdraw(world, row, why)
    except exceptions.DMCloneException as error:
        LOG.warning('Snapshot %(snapshot)s: offer %(offer)s is left to the '
                    'reconciler: %(error)s', {
                        'snapshot': row.id, 'offer': row.offer,
                        'error': error})


def withdraw(world: World, row: SnapshotRow, why: str) -> None:
    """Let a snapshot stay where it is, if it has not arrived meanwhile.

    The loan and the copy end by themselves.

    :raises DatabaseAway: if the outcome is not known
    """
    assert row.at is not None and row.offer is not None
    # Who was faster is found by the next look.
    with contextlib.suppress(exceptions.RowChanged):
        world.snapshots.withdraw(row)
        _tell(world, row, moves.What.ERROR, why)
    for place in (row.at, row.offer):
        if place.node != world.settings.node:
            world.peers.notify(place.node, row.volume)


def copy(world: World, asked: CopySnapshot) -> None:
    """Build the copy of this node; the lock of its volume here is held.

    A second message for the same copy gets the same answer. Past the deadline
    the copy is undone: nobody waits for it any more.

    :raises PeerRefused: if the row does not offer it
    :raises NoRoom, LoginFailed, SourceMismatch: see ``borrower.build``
    """
    started = world.clock.monotonic()
    stack = _offered(world, asked)
    if stack.data:
        if stack.tags.source and not (stack.meta_tag
                                      and stack.meta_tag.ready):
            raise _refused(world, 'an earlier attempt was interrupted')
        return
    size = asked.lent.size
    try:
        borrower.build(world, asked.lv, lv_tags.SnapTag(
            asked.generation, asked.snapshot, asked.volume, size),
            asked.lent, size)
        if world.clock.monotonic() - started > asked.seconds:
            raise _refused(world, 'it took longer than '
                           f'{asked.seconds:.0f} seconds')
    except Exception:
        with excutils.save_and_reraise_exception():
            teardown.teardown(world.host,
                              inspect.refresh(world.host, asked.lv))


def _offered(world: World, asked: CopySnapshot) -> Stack:
    """What there is of a copy that the row still offers."""
    here = Location(world.settings.node, asked.lv)
    row = world.snapshots.get(asked.snapshot)
    if (not row or row.deleted or row.record is None or row.offer != here
            or row.at != asked.lent.lender
            or row.record.generation + 1 != asked.generation):
        raise _refused(world, f'the database does not offer {here}')
    return inspect.refresh(world.host, asked.lv)


def _refused(world: World, reason: str) -> exceptions.PeerRefused:
    return exceptions.PeerRefused(
        node=world.settings.node, what='to copy a snapshot', reason=reason)


def arrive(world: World, row: SnapshotRow) -> None:
    """Be the snapshot: all of it is here, durably.

    :raises DatabaseAway: if the outcome is not known
    """
    assert row.at is not None
    # It may have been deleted, or taken back: the next look finds that.
    with contextlib.suppress(exceptions.RowChanged):
        world.snapshots.arrive(row)
        LOG.info('Snapshot %(snapshot)s has moved from %(before)s to '
                 '%(here)s.', {'snapshot': row.id, 'before': row.at,
                               'here': row.offer})
        _tell(world, row, moves.What.END)
    world.peers.notify(row.at.node, row.volume)
