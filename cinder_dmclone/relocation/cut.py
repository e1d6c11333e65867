# SPDX-License-Identifier: Apache-2.0
"""The cut: a volume goes on in a copy on its own node.

What it was until then is frozen: others may read it, and nobody writes it
any more. It is a relocation without another node::

    offer     CAS: the row names the copy
    lend      tag, flush
    build     the copy, which reads what was lent; nothing hydrates
    commit    CAS: the row names the copy's LV
    lead over those who write, adopt, hydrate, finish

The commit comes before anybody is led over. Until then the copy has nothing
of its own, and both are the same, whoever crashes and whatever the database
answers: no server ever waits for it.

A thin volume that nobody writes goes on in an LV that shares what it has
(``thin_snapshot``). That reads nothing of the other, and only takes its place.
"""

from __future__ import annotations


from oslo_log import log as logging

from cinder_dmclone.database import rows
from cinder_dmclone.database import snapshots
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.relocation import borrower
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.relocation import holes
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import pins
from cinder_dmclone.relocation import room
from cinder_dmclone.relocation import thin_snapshot
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import joint
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)

# So many copies of one another there may be on a node: each makes reads of
# what has not hydrated longer, and is one more copy of everything.
MOST_LINKS = 8


def writable(world: World, row: rows.Row, stack: Stack) -> tuple[
        rows.Row, Stack]:
    """Have a volume of this node on an LV that may be written.

    The caller holds the volume's lock, and nothing is open on it.

    :returns: row and stack as they are then
    :raises CannotCut, NoRoom, RowChanged, DatabaseAway: see ``cut``
    """
    if not stack.frozen(row.offer):
        return row, stack
    row = cut(world, row)
    return row, inspect.refresh(world.host, row.lv)


def cut(world: World, row: rows.Row,
        pin: snapshots.Pin | None = None) -> rows.Row:
    """Let a volume of this node go on in another LV.

    The caller holds the volume's lock, and nothing is open on it.

    :param pin: the snapshot that the LV becomes which it was until then
    :returns: the row as it is then
    :raises CannotCut, NoRoom, RowChanged: nothing was changed that is not
        undone, or will be
    :raises DatabaseAway: the outcome is not known; it is settled later
    :raises CommandTimeout: it was done, but those who write still have to be
        led over
    """
    settings = world.settings
    stack = inspect.refresh(world.host, row.lv)
    at_once = not (pin or stack.of_kind(*names.WRITERS)) and (
        thin_snapshot.possible(world.host, stack))
    _require_possible(world, row, stack, at_once)
    copy = Location.never_used(settings.node)
    row = world.rows.offer(row, copy, rows.Cut())
    built: Stack | None = None
    with coordinator.undone(world, row):
        if at_once:
            _make_at_once(world, row, stack)
        else:
            built = _build(world, row, stack, _lend(world, row, stack, pin))
        row = world.rows.commit(row, rows.Owner(copy, settings.pool),
                                rows.Cut(), row.owner if built else None,
                                pin)
    LOG.info('Volume %(volume)s goes on in %(lv)s.',
             {'volume': row.id, 'lv': copy.lv})
    if built:
        joint.lead_over(world.host, built,
                        inspect.refresh(world.host, stack.lv))
    borrower.adopt(world, inspect.refresh(world.host, copy.lv), row)
    return row


def _require_possible(world: World, row: rows.Row, stack: Stack,
                      at_once: bool) -> None:
    if row.offer:
        raise _cannot(world, row, f'it is offered to {row.offer}')
    if stack.data is None or stack.lacks_clone:
        raise _cannot(world, row, 'its devices are not put together')
    if stack.tags.lost:
        raise _cannot(world, row, 'its lender is lost, and what has not '
                      'arrived was given up')
    writers = stack.of_kind(*names.WRITERS)
    if len(writers) > 1:
        raise _cannot(world, row, _several(writers))
    away = lender_away(world, stack) if writers else None
    if away:
        raise _cannot(world, row, f'its lender {away} is away: a server that '
                      'waits for it cannot be led over')
    if not all(_flushed(world, stack, writer) for writer in writers):
        raise _cannot(world, row, 'a server has it over iSCSI from a disk '
                      'that keeps nothing back, so that its kernel flushes '
                      'nothing, as a copy needs it. Detach it from the '
                      'servers that are elsewhere, and try again')
    if len(_chain(world, stack)) > MOST_LINKS:
        raise _cannot(world, row, f'it has {MOST_LINKS} copies here that '
                      'have yet to hydrate')
    lender.require_openers(world, row, stack)
    if not at_once:
        room.require(world.host, world.host.group.report(), stack.data.size)


def _flushed(world: World, stack: Stack, writer: names.DeviceName) -> bool:
    """Whether those who write through a device flush what needs it.

    An initiator asks once, when it logs in (``sd_read_cache_type`` in the
    kernel's sd.c; LIO says what ``iblock_get_write_cache`` finds). A clone
    has to be flushed: its metadata says what was written.
    """
    return writer.kind is not names.Kind.SERVE or (
        world.host.dm.caches(stack.devices[writer].devnum))


def lender_away(world: World, stack: Stack) -> NodeName | None:
    """The lender that a read of an LV may wait for; None if it waits for none.

    It may be that of an LV of this node from which this one hydrates.
    """
    for link in reversed(_chain(world, stack)):
        if link.tags.source and not (link.has_path or link.given_up):
            return link.tags.source.node
    return None


def _several(writers: list[names.DeviceName]) -> str:
    kinds = {writer.kind for writer in writers}
    if {names.Kind.FRONT, names.Kind.SERVE} <= kinds:
        return ('several servers have it, on this node and over iSCSI. '
                'Detach it from those on one side, and try again')
    return f'{" and ".join(map(str, writers))} write it at the same time'


def _cannot(world: World, row: rows.Row, reason: str) -> exceptions.CannotCut:
    return exceptions.CannotCut(volume=row.id, node=world.settings.node,
                                reason=reason)


def _chain(world: World, stack: Stack) -> list[Stack]:
    """An LV and those of this node that it hydrates from, behind each other.
    """
    found = [stack]
    while stack.tags.source and stack.tags.source.local:
        stack = inspect.refresh(world.host, stack.tags.source.lv)
        found.append(stack)
    return found


def _lend(world: World, row: rows.Row, stack: Stack,
          pin: snapshots.Pin | None) -> messages.Lent:
    copy, group = row.offer, world.host.group
    assert copy is not None and stack.data is not None
    # No flush reaches it any more if nobody is led over.
    consumers.flush(world.host, stack)
    tag = lv_tags.LoanTag(row.generation + 1, row.id, copy.node, copy.lv,
                          group.report().uuid, '', stack.data.size)
    return lender.lend(world, stack.lv, tag,
                       *([pins.tag(pin)] if pin else []))


def _make_at_once(world: World, row: rows.Row, stack: Stack) -> None:
    copy = row.offer
    assert copy is not None and stack.data is not None
    lender.mark_replaced(world, row)
    thin_snapshot.make(world.host, stack, copy.lv, (
        lv_tags.CopyTag(row.generation + 1, row.id),
        lv_tags.FrontTag(stack.known_as)), stack.data.size)


def _build(world: World, row: rows.Row, stack: Stack,
           lent: messages.Lent) -> Stack:
    assert row.offer is not None
    # Of what a server writes there are none.
    skip = holes.find(world, row.offer.lv, lent)
    room.make(world, row.offer.lv, lent.size,
              lv_tags.CopyTag(row.generation + 1, row.id), lent.tag,
              lv_tags.FrontTag(stack.known_as))
    return clones.build_here(world.host, row.offer.lv, skip)
