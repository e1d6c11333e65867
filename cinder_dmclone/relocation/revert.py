# SPDX-License-Identifier: Apache-2.0
"""A revert: a volume goes on as what its snapshot is.

It is a birth on the volume's own node, in place of what the volume was::

    home node                                  node of the snapshot
    ---------                                  --------------------
    seal      nobody has it
    offer     CAS: the row names the copy
    mark      tag, flush: the copy takes
              the place of this LV
    lend      ------------------------------>  tag, flush, export
    build
    commit    CAS: the row names the copy's
              LV, and the snapshot's
    adopt, hydrate, finish

Up to the commit every failure is undone by *withdraw*, and the volume is what
it was. What it was stays until the copy has shown that it is complete; only
then it is known that nobody will ask for it again.
"""

from __future__ import annotations


from oslo_log import log as logging

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.peers import messages
from cinder_dmclone.relocation import birth
from cinder_dmclone.relocation import chain
from cinder_dmclone.relocation import lender
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)


def seal(world: World, row: rows.Row) -> None:
    """See that nobody has a volume of this node, nor gets it by itself.

    The caller holds its lock, here and in what follows.

    :raises CannotRevert: if somebody has it open
    """
    lender.seal(world, row, rows.Revert(), row.node)


def begin(world: World, row: rows.Row, source: Location) -> rows.Row:
    """Write down the LV that the volume is to be; the row as it is then.

    :param source: the LV that the snapshot is
    :raises CannotRevert: if something keeps the volume from it
    :raises NoRoom: if there is no room
    :raises RowChanged, DatabaseAway: see ``RowStore.offer``
    """
    reason = _too_often(world, row)
    if reason:
        raise exceptions.CannotRevert(volume=row.id, node=row.node,
                                      reason=reason)
    birth.require_room(world, row, source)
    copy = Location.never_used(world.settings.node)
    return world.rows.offer(row, copy, rows.Revert())


def _too_often(world: World, row: rows.Row) -> str:
    """Why there may be no more copies here of what the volume was.

    No quota counts them, and users cause them.
    """
    left = len(chain.reverted(world, row))
    if left + 1 < world.settings.max_copies:
        return ''
    return (f'it was reverted {left} times and has yet to hydrate; more '
            'copies of it than dmclone_max_copies there may not be')


def finish(world: World, row: rows.Row,
           lent: messages.Lent | None) -> rows.Row:
    """Build what was begun, and make it the volume.

    :param lent: None if it was made, by ``birth.make_at_once``
    :returns: the row as it is then
    :raises CannotBear, NoRoom, LoginFailed, SourceMismatch: see
        ``birth.build``
    :raises CannotRevert, RowChanged, DatabaseAway: see ``RowStore.commit``
    """
    assert row.offer is not None
    if lent:
        birth.build(world, row, lent)
    return world.rows.commit(
        row, rows.Owner(row.offer, world.settings.pool), rows.Revert(),
        lent.lender if lent else None)
