# SPDX-License-Identifier: Apache-2.0
"""Mistakes about what surrounds a move: messages, databases, disks, paths.

See ``planted`` for those in the move itself.
"""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.database import causal_reads
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import decide
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile import home
from cinder_dmclone.reconcile import loans
from cinder_dmclone.reconcile import old_copy
from cinder_dmclone.reconcile import questions
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.service import answers
from cinder_dmclone.service import attach_policy
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import state
from cinder_dmclone.stack import write_gate
from tests.simulation import mistakes

bug = mistakes.bug


class Without:
    """A port one of whose functions is another."""

    def __init__(self, port: typing.Any, **others: typing.Any) -> None:
        self._port = port
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._port, name)


# -- evidence ---------------------------------------------------------------

@bug('H3: a loan that the row does not know is forgotten',
     (home, 'stale_loan'), where='crash/attach/restore/before/0')
def _forgotten(known, row, tag):
    if tag.volume != row.id or tag.borrower == row.offer:
        return None
    return decision.Decision(Action.REVOKE, lent=(tag,))


@bug('H3: what has no row is deleted', (decide, 'decide'),
     where='crash/attach/empty/before/0')
def _no_row(known, decide=decide.decide):
    if known.row is None and known.stack.data:
        return decision.Decision(Action.ERASE)
    return decide(known)


@bug('H3: a database server that lags is believed', (causal_reads, 'see_all'))
def _see_some(session):
    """It answers from what it has."""


@bug('H3: a borrower that has nothing needs nothing',
     (loans, '_doubt'), where='crash/chain/reinstall/before/2',
     first=40)
def _no_doubt(stack, who, generation, group, shown,
              doubt=loans._doubt):
    if shown.state is messages.LvState.MISSING:
        return None
    return doubt(stack, who, generation, group, shown)


@bug('H30: whose disks they are is not looked at',
     (answers.ANSWERS, messages.Prepare), where='message/attach/ASTRAY')
def _any_group(service, request):
    mine = service.host.group.report().uuid
    return answers.prepare(service, dataclasses.replace(request, group=mine))


# -- messages ---------------------------------------------------------------

def _locked_show(service, request):
    volume = inspect.refresh(service.host, request.lv).tags.volume
    with service.locked(volume or request.lv):
        return answers.show(service, request)


@bug('H21: a node that asks, or is asked, holds its lock',
     (questions, 'ask'),
     also=((answers.ANSWERS, messages.Show, _locked_show),))
def _locked_ask(world, found, stack, given, turns=None, ask=questions.ask):
    volume, locks = stack.volume, world.locks._target
    if locks._held.get(volume) is locks._scheduler.current():
        return ask(world, found, stack, given, turns)
    with world.locks.volume(volume, deadlines.LOCK_SECONDS):
        return ask(world, found, stack, given, turns)


# -- nodes ------------------------------------------------------------------

def _any_room(world, row, peer, keep):
    lv = world.host.group.report().lvs[names.data_lv(row.lv)]
    room = world.peers.ask(peer, messages.FindRoom(lv.size))
    mine = world.host.group.report().block_size
    fits = room.block == mine if keep == 'block' else room.free >= lv.size
    if not fits:
        raise exceptions.CannotRelocate(
            volume=row.id, node='', peer=peer, reason='it does not fit')
    return room


@bug('H28: an offer is made before there is room', (coordinator, 'find_room'))
def _no_room(world, row, peer):
    return _any_room(world, row, peer, 'block')


# -- paths ------------------------------------------------------------------

@bug('H16: the swap waits for reads of the lender', (clones, 'swap'),
     where='crash/fill/cut/before/1')
def _no_detour(host, stack, swap=clones.swap):
    source = names.source(stack.lv)
    swap(host, dataclasses.replace(stack, devices={
        name: found for name, found in stack.devices.items()
        if name != source}))


@bug('a server gets what would fail its reads', (consumers, 'let_wait'),
     where='story/served here')
def _let_fail(host, stack):
    pass


@bug('H18: who only lends waits for a server that was left behind',
     (old_copy, 'decide'), where='crash/held chain/cut/before/2',
     first=40)
def _distracted(known, row, lender=old_copy.decide):
    writers = known.stack.of_kind(*names.WRITERS)
    if writers:
        return old_copy.stale_writers(known.stack, row, writers)
    return lender(known, row)


@bug('H18: who only serves waits for its lender',
     (state.Stack, 'served_only'), where='crash/served/cut/before/1')
@property
def _server_here(self):
    """Whoever uses it is taken for a server on this node."""
    return False


@bug('H19: a path whose session stands is not tried again',
     (clones, 'reconnect'), where='crash/attach/sector/before/0')
def _once(host, stack, queue=True, reconnect=clones.reconnect):
    disk = stack.disk
    if stack.source and disk and disk.state == 'LOGGED_IN' and (
            disk.devnum in stack.source.paths):
        return True
    return reconnect(host, stack, queue)


# -- the kernel -------------------------------------------------------------

def _uncounted(function):
    """The function, on a host that does not count I/O."""
    def call(host, stack):
        return function(dataclasses.replace(host, dm=Without(
            host.dm, count_io=lambda name: None)), stack)
    return call


bug('a write that waits is looked for where nobody counts',
    (write_gate, 'prepare'), where='crash/live/kill/before/0',
    also=((write_gate, 'rearm', _uncounted(write_gate.rearm)),))(
        _uncounted(write_gate.prepare))


@bug('a server comes back to where it may be taken the volume from',
     (attach_policy, '_may_have_moved'), where='story/live back')
def _surely_here(row):
    return False
