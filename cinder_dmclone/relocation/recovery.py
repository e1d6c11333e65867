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
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone import units
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)


def find(world: World, row: rows.Row) -> Stack:
    """The LV of this node that a volume was before its last move.

    It is what the row says, or if that has all of it, what was not deleted
    yet.

    :raises NotTakenBack: if there is none, or if it is not what the volume
        was then and nothing else
    """
    if row.node == world.settings.node:
        raise refusal(world, row, f'it is on this node, as {row.owner}')
    if row.source and row.source.node == world.settings.node:
        found = [inspect.refresh(world.host, row.source.lv)]
    else:
        found = [stack for stack in inspect.collect(world.host).values()
                 if stack.loans_to(row.owner)]
    stack = next(iter(found), None)
    if not stack or not stack.data or not _was(stack, row):
        raise refusal(world, row, 'this node has nothing that was lent to '
                      f'{row.owner} when it became the volume')
    _require_unused(world, row, stack)
    return stack


def _was(stack: Stack, row: rows.Row) -> bool:
    own = stack.tags.own
    return not stack.unreadable and own is not None and (
        own == lv_tags.OwnTag(row.generation - 1, row.id)
        and any(tag.generation == row.generation and tag.volume == row.id
                and tag.read for tag in stack.loans_to(row.owner)))


def _require_unused(world: World, row: rows.Row, stack: Stack) -> None:
    """See that nobody reads it for the lost node, nor has it open here."""
    for tag in stack.loans_to(row.owner):
        exports = stack.exports_of(names.loan(stack.lv, tag.lv))
        if any(export.sessions for export in exports.values()):
            raise refusal(world, row, f'{row.node} is logged in to this node '
                          'and reads it: its kernel works, and with it '
                          'perhaps a server')
    for name in stack.of_kind(*names.WRITERS):
        if stack.is_held(name):
            raise refusal(world, row, f'{name} is in use here: end the server '
                          'that has it')


def require_lost(world: World, row: rows.Row, place: Location) -> None:
    """See that nobody knows of an LV any more.

    :raises NotTakenBack: if its node has it, or may answer soon
    """
    try:
        shown = world.peers.ask(place.node, messages.Show(place.lv))
    except exceptions.PeerUnreachable as error:
        if world.peers.is_up(place.node):
            raise refusal(
                world, row, f'cinder-volume of {place.node} does not answer, '
                'but has reported in within service_down_time') from error
        return
    except exceptions.PeerRefused as error:
        raise refusal(world, row, error.msg) from error
    if shown.state is not LvState.MISSING:
        raise refusal(world, row, f'{place.node} answers, and has it '
                      f'({shown.state.value})')


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
    assert stack.data is not None
    if stack.data.size < size:
        world.host.group.extend(names.data_lv(stack.lv), size)
        world.host.group.flush()
    fresh = world.rows.take_back(
        row, rows.Owner(here, world.settings.pool), stack.tags.hydrates_from)
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
    own = lv_tags.OwnTag(row.generation, row.id)
    stale = [tag for tag in (stack.tags.own, stack.tags.past, *loans) if tag]
    world.host.group.retag(names.data_lv(stack.lv),
                           add=[lv_tags.print_tag(own)],
                           remove=[lv_tags.print_tag(tag) for tag in stale])
    world.host.group.flush()
