# SPDX-License-Identifier: Apache-2.0
"""A volume is taken back by its lender: the node that it moved to is lost.

What was lent is frozen as the volume was at its last move. That all later
writes are given up only an operator can decide::

    lender                                     the lost node
    ------                                     -------------
    ask       ------------------------------>  silence, or it has no such LV
    extend    to what the volume has by now
    take back CAS: the row names this LV
              again, a generation later
    resume    end the loan; tag: this is
              the volume

Nothing but the CAS decides. Who comes back after it finds a row of a later
generation, and cuts off whoever still writes there.

If it is the lender that is lost, what has arrived is all there is. Reads of
the rest wait for ever, until an operator gives that up: a tag on the volume's
own LV, which the reconciler then lets its devices follow.
"""

from __future__ import annotations

from oslo_log import log as logging

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.relocation import lender
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.stack import tagging
from cinder_dmclone import units
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)


def find(world: World, row: rows.Row) -> tuple[Stack, lv_tags.LoanTag]:
    """The LV of this node that a volume was before it moved to another.

    And the loan with which it moved. Since then it may have gone on in other
    LVs there, as for a snapshot. If it has all that it was lent, this may be
    an LV that was not deleted yet.

    :raises NotTakenBack: if there is none, if it is not what the volume was
        then and nothing else, or if the volume may not be lost
    """
    if row.node == world.settings.node:
        raise refusal(world, row, f'it is on this node, as {row.owner}')
    found = [(stack, tag) for stack in inspect.collect(world.host).values()
             for tag in stack.tags.lent if _was(stack, tag, row)]
    if not found:
        raise refusal(world, row, 'this node has nothing that was lent to '
                      f'{row.node} when the volume moved there')
    stack, tag = max(found, key=lambda one: one[1].generation)
    _require_unused(world, row, stack)
    reason = comes_back(world, row.owner)
    if reason:
        raise refusal(world, row, reason)
    return stack, tag


def _was(stack: Stack, tag: lv_tags.LoanTag, row: rows.Row) -> bool:
    """Whether an LV was the volume until it moved to where it is now."""
    if not stack.data or stack.unreadable or stack.tags.erased or (
            not tag.read or tag.volume != row.id or tag.node != row.node
            or stack.tags.own != lv_tags.OwnTag(tag.generation - 1, row.id)):
        return False
    if row.source and row.source.node != row.node:
        # The row knows who has lent last. It was taken back there if it has
        # a later generation than that LV had at first.
        return tag.borrower == row.owner and (
            tag.generation == row.generation or row.source.lv == stack.lv
            and tag.generation + 1 < row.generation)
    return tag.generation <= row.generation


def _require_unused(world: World, row: rows.Row, stack: Stack) -> None:
    """See that nobody reads it for the lost node, nor has it open here."""
    for tag in stack.tags.lent:
        if tag.node == row.node and stack.sessions_of(
                names.loan(stack.lv, tag.lv)):
            raise refusal(world, row, f'{row.node} is logged in to this node '
                          'and reads it: its kernel works, and with it '
                          'perhaps a server')
    for name in stack.of_kind(*names.WRITERS):
        if stack.is_held(name):
            raise refusal(world, row, f'{name} is in use here: end the server '
                          'that has it')


def comes_back(world: World, place: Location) -> str:
    """Why an LV may not be lost; empty if nobody knows of it any more."""
    try:
        shown = world.peers.ask(place.node, messages.Show(place.lv))
    except exceptions.PeerUnreachable:
        return (f'cinder-volume of {place.node} does not answer, but has '
                'reported in within service_down_time'
                if world.peers.is_up(place.node) else '')
    except exceptions.PeerRefused as error:
        return error.msg
    if shown.state in (LvState.MISSING, LvState.ERASED):
        return ''
    return f'{place.node} answers, and has it ({shown.state.value})'


def refusal(world: World, row: rows.Row,
            reason: str) -> exceptions.NotTakenBack:
    """The error that names the volume and this node."""
    return exceptions.NotTakenBack(
        volume=row.id, node=world.settings.node, reason=reason)


def take_back(world: World, row: rows.Row, stack: Stack) -> None:
    """Make an LV that was found the volume; the caller holds its lock.

    The reconciler does the rest.

    :raises NotTakenBack, RowChanged: nothing was changed
    :raises CommandFailed: if the volume was extended meanwhile, and there is
        no room
    :raises DatabaseAway: if the outcome is not known
    """
    here = Location(world.settings.node, stack.lv)
    size = units.Bytes.from_gib(row.size)
    assert stack.data is not None and stack.tags.own is not None
    if stack.data.size < size:
        world.host.group.extend(names.data_lv(stack.lv), size)
        world.host.group.flush()
    fresh = world.rows.take_back(
        row, rows.Owner(here, world.settings.pool), stack.tags.hydrates_from,
        stack.tags.own.generation)
    if fresh.owner != here:
        raise refusal(world, row, f'it is {fresh.owner} by now')
    LOG.info('Volume %(volume)s was taken back to %(here)s from %(lost)s, '
             'which is lost.',
             {'volume': row.id, 'here': here, 'lost': row.owner})


def resume(world: World, stack: Stack, row: rows.Row,
           loans: tuple[lv_tags.LoanTag, ...]) -> None:
    """Be the volume again that the row names; idempotent.

    :param loans: those to what is lost
    """
    for tag in loans:
        lender.close_loan(world, stack, tag)
    if stack.tags.source and stack.assembled:
        # A server may come at once.
        clones.wait_again(world.host, stack)
    tagging.write(world.host, stack.lv,
                  add=[lv_tags.OwnTag(row.generation, row.id)],
                  remove=[stack.tags.own, stack.tags.past, *loans])


def why_kept(world: World, row: rows.Row, stack: Stack) -> str:
    """Why what has not arrived of a volume of this node is not given up.

    Empty if it may be: its lender is lost, and nobody else needs it.
    """
    source = stack.tags.source
    if not source:
        return 'all of it is here'
    if not stack.tags.own or row.source != stack.tags.hydrates_from:
        return 'its LV needs a look, as the log of cinder-volume says'
    if source.local:
        return (f'it hydrates from LV {source.lv} of its own node, which '
                'others need as it is')
    if row.offer:
        return f'it is offered to {row.offer}, which needs it'
    if stack.tags.lent or stack.tags.snaps:
        others = [f'snapshot {tag.snapshot}' for tag in stack.tags.snaps]
        others += [str(tag.borrower) for tag in stack.tags.lent]
        return f'{" and ".join(others)} would be torn as well'
    if _reached(world, stack):
        return f'{source.node} can be reached, and read'
    return comes_back(world, Location(source.node, source.lv))


def _reached(world: World, stack: Stack) -> bool:
    """Whether the lender's target answers."""
    if stack.has_path or not stack.assembled:
        return stack.has_path
    try:
        return clones.reconnect(world.host, stack)
    except exceptions.DMCloneException as error:
        LOG.info('LV %(lv)s: %(error)s', {'lv': stack.lv, 'error': error.msg})
        return False


def give_up(world: World, row: rows.Row, stack: Stack) -> None:
    """Write down durably that what has not arrived is given up.

    The reconciler lets reads of it fail, now and after each boot.
    """
    tagging.write(world.host, stack.lv,
                  add=[lv_tags.LostTag(row.generation, row.id)])
    LOG.info('What has not arrived of volume %(volume)s on %(node)s from '
             '%(lost)s was given up.',
             {'volume': row.id, 'node': row.node, 'lost': row.source})
