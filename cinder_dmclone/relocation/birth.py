# SPDX-License-Identifier: Apache-2.0
"""A birth: a new volume begins as what another one is, or was.

Its LV borrows from one that nobody writes, on this node or another::

    node of the source                         node of the new volume
    ------------------                         ----------------------
                                               offer     CAS: its row names
                                                         the LV to be
    lend      tag, flush, export  <----------  ask for it
                                               build
                                               commit    CAS: its row names
                                                         LV and source
                                               adopt, hydrate, finish

If source and copy are thin LVs of one pool, that makes the copy at once: no
loan, and no source to hydrate from.

The row of the new volume is the only one that is changed. Until the commit it
may be made on another node instead: each attempt has an LV of its own.
"""

from __future__ import annotations


from oslo_log import log as logging

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import SnapshotId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.relocation import borrower
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import room
from cinder_dmclone.relocation import thin_snapshot
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone import units
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)


def begin(world: World, row: rows.Row,
          source: Location | None) -> rows.Row:
    """Write down the LV that a new volume is to be; the row as it is now.

    The caller holds the new volume's lock, here and in what follows.

    :param source: see ``require_room``
    :raises NoRoom: if there is no room
    :raises RowChanged: if it is not being made here any more
    :raises DatabaseAway: if the outcome is not known
    """
    require_room(world, row, source)
    copy = Location.never_used(world.settings.node)
    return world.rows.begin(row, copy)


def require_room(world: World, row: rows.Row,
                 source: Location | None) -> None:
    """Have room here for what a volume is to be, if that takes any.

    A thin snapshot takes none, but its pool may be too full for it. What only
    seemed to be possible as one finds too little room when it is built.

    :param source: the LV that it begins as; on any node
    :raises NoRoom: if there is none
    """
    host = world.host
    if source and source.node == world.settings.node and (
            thin_snapshot.possible(host, inspect.refresh(host, source.lv))):
        return
    room.require(host, host.group.report(), units.Bytes.from_gib(row.size))


def request(world: World, row: rows.Row, source: rows.Row,
            snapshot: SnapshotId) -> messages.Lend:
    """What the node of the source is to be asked.

    :param snapshot: its id; empty for what the source is now
    """
    assert row.offer is not None
    return messages.Lend(
        volume=source.id, snapshot=snapshot, borrower=row.id,
        generation=row.generation + 1, copy=row.offer,
        group=world.host.group.report().uuid,
        initiator=world.host.initiator.name())


def lend(world: World, stack: Stack, size: units.Bytes,
         asked: messages.Lend) -> messages.Lent:
    """Lend an LV of this node to a copy that becomes a volume.

    The caller holds the lock of the volume that the LV is of.

    :param size: as much of it as there is of the source
    :raises PeerRefused: if that volume's row does not ask for it, or if the
        LV is written
    """
    require_asked(world, asked)
    if not stack.put_together:
        raise _refused(world, f'LV {stack.lv} is not put together')
    if stack.tags.lost:
        raise _refused(world, f'the lender of LV {stack.lv} is lost, and what '
                       'has not arrived was given up')
    if stack.of_kind(*names.WRITERS):
        raise _refused(world, f'LV {stack.lv} is still written')
    # It must not lose on a power cut what the copy has already.
    consumers.flush(world.host, stack)
    here = asked.copy.node == world.settings.node
    return lender.lend(world, stack.lv, lv_tags.LoanTag(
        asked.generation, asked.borrower, asked.copy.node, asked.copy.lv,
        asked.group, '' if here else asked.initiator, size))


def make_at_once(world: World, stack: Stack, size: units.Bytes,
                 asked: messages.Lend) -> bool:
    """Make a copy that becomes a volume, if it can be a thin snapshot.

    The caller holds the lock of the volume that the other LV is of.

    :param size: as much of that as there is of the source
    :returns: whether it was made: it has all then, and needs no loan
    :raises PeerRefused: if that volume's row does not ask for it
    :raises PoolFull, PoolUnusable: see ``thin_snapshot.make``
    """
    if not thin_snapshot.possible(world.host, stack) or (
            stack.data is None or stack.data.size != size):
        return False
    row = require_asked(world, asked)
    wanted = units.Bytes.from_gib(row.size)
    if wanted < size:
        return False
    thin_snapshot.make(world.host, stack, asked.copy.lv, [lv_tags.CopyTag(
        asked.generation, asked.borrower)], wanted)
    return True


def require_asked(world: World, asked: messages.Lend) -> rows.Row:
    """The row of the volume that the copy becomes.

    :raises PeerRefused: if it does not ask for that any more
    """
    row = world.rows.get(asked.borrower)
    if (not row or row.deleted or row.offer != asked.copy
            or row.generation + 1 != asked.generation):
        raise _refused(world, f'the database does not offer {asked.copy}')
    return row


def _refused(world: World, reason: str) -> exceptions.PeerRefused:
    return exceptions.PeerRefused(
        node=world.settings.node, what='to lend', reason=reason)


def finish(world: World, row: rows.Row,
           lent: messages.Lent | None) -> rows.Row:
    """Build what was begun, and make it the volume.

    :param lent: None if it was made, by ``make_at_once``
    :returns: the row as it is then
    :raises CannotBear, NoRoom, LoginFailed, SourceMismatch: see ``build``
    :raises RowChanged, DatabaseAway: see ``begin``
    """
    if lent:
        build(world, row, lent)
    row = world.rows.bear(row, lent.lender if lent else None)
    LOG.info('Volume %(volume)s begins as %(source)s.', {
        'volume': row.id, 'source': lent.lender if lent
        else 'a thin LV that has all of its source'})
    return row


def build(world: World, row: rows.Row, lent: messages.Lent) -> None:
    """Build what the row offers, of what was lent.

    :raises CannotBear: if that does not fit
    :raises NoRoom: if its room is gone
    :raises LoginFailed, SourceMismatch: if the lender cannot be reached
    """
    assert row.offer is not None
    lv, size = row.offer.lv, units.Bytes.from_gib(row.size)
    if reason := room.unlike(world, lent.lender.node, lent.block):
        raise _cannot(world, row, reason)
    if lent.size > size:
        raise _cannot(world, row, f'its source has {lent.size} bytes, more '
                      f'than its own {size}')
    borrower.build(world, lv, lv_tags.CopyTag(row.generation + 1, row.id),
                   lent, size)


def adopt(world: World, row: rows.Row) -> None:
    """Begin to hydrate; what fails is done when Cinder has made the volume.

    There is no way back any more: Cinder must not make it elsewhere.
    """
    try:
        borrower.adopt(world, inspect.refresh(world.host, row.lv), row)
    except exceptions.DMCloneException as error:
        LOG.warning('Volume %(volume)s is left to the reconciler: %(error)s',
                    {'volume': row.id, 'error': error.msg})


def _cannot(world: World, row: rows.Row,
            reason: str) -> exceptions.CannotBear:
    return exceptions.CannotBear(volume=row.id, node=world.settings.node,
                                 reason=reason)
