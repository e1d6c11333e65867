# SPDX-License-Identifier: Apache-2.0
"""Mistakes planted in the protocol, to see that the simulator finds them.

Each is a small change of the product's code. ``H<n>`` numbers the hole of an
earlier draft of the protocol that it opens again: see
doc/source/contributor/holes.rst.
"""

from __future__ import annotations

import contextlib
import dataclasses

from cinder_dmclone.database import conditions
from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile import home
from cinder_dmclone.reconcile import new_copy
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import live_migration
from cinder_dmclone.service import answers
from cinder_dmclone.service import base
from cinder_dmclone.service import connections
from cinder_dmclone.service import images
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import teardown
from cinder_dmclone.stack import write_gate
from tests.simulation import mistakes

bug = mistakes.bug


@contextlib.contextmanager
def _unmarked(service, volume_id):
    """An image copy that nobody knows of but its device."""
    with service.home(volume_id, 'written') as (_, stack):
        name = names.local_io(stack.lv)
        consumers.consume(service.host, stack, name)
    try:
        yield name.path
    finally:
        service.host.dm.remove(str(name))


UNMARKED = ((images, 'local_path', _unmarked),)


# -- moving -----------------------------------------------------------------

@bug('commit before the fence', (coordinator, 'relocate'),
     where='pair/new/attach2 c/image', also=UNMARKED)
def _commit_first(world, row, peer, purpose):
    room = coordinator.find_room(world, row, peer)
    row = coordinator.offer(world, row, peer, purpose)
    with coordinator.undone(world, row):
        path = coordinator.prepare_there(world, row, room, purpose)
        coordinator.commit(world, row, room.pool, purpose)
        lender.seal(world, row, purpose, peer)
    return path


@bug('H9: the lender is not flushed', (consumers, 'flush'), where='story/here')
def _no_flush(host, stack):
    """The borrower's flushes reach only its own disk."""


@bug('the attachment is not looked at again', (conditions, 'to_move'),
     where='pair/new/attach b/drop')
def _no_attachment(row, purpose):
    return []


@bug('hydration before the commit', (clones, 'build'))
def _early_hydration(host, lv, source, front, skip, build=clones.build):
    build(host, lv, source, front, skip)
    clones.hydrate(host, inspect.refresh(host, lv))


@bug('H11: a lent LV gets its front at boot', (activation, 'decide'),
     where='crash/attach/power/before/1')
def _careless_boot(host, stack, wise=activation.decide):
    found = wise(host, stack)
    if found.step is not decision.Verdict.REST:
        return found
    return wise(host, dataclasses.replace(
        stack, tags=dataclasses.replace(stack.tags, lent=())))


# -- live migration ---------------------------------------------------------

@bug('H2: the gate of the copy is open', (write_gate, 'close_gate'))
def _open_gate(host, stack, front):
    consumers.consume(host, stack, front)


@bug('H13: the end of the other attachment is refused',
     (connections, '_end_offer'))
def _refusing(service, row, stack, connector):
    raise exceptions.CannotServe(volume=row.id, node='', reason='no')


@bug('the gate is opened by whoever finds a write waiting',
     (new_copy, '_offered'))
def _opened(known, row):
    if known.stack.write_waits:
        return decision.Decision(decision.Action.OPEN)
    return decision.Decision(decision.Verdict.WAIT)


@bug('H10: a commit that the row does not show was not made',
     (live_migration, 'keep_here'), where='crash/live held/commit/before/0')
def _not_made(world, row):
    """It was read, after all."""


# -- the end of a relocation ------------------------------------------------

@bug('H7: the count of copied regions is believed', (clones, 'is_complete'))
def _in_core(host, stack):
    return stack.clone is not None and stack.clone.complete


@bug('release before the end is recorded',
     (answers.ANSWERS, messages.Show), first=500)
def _early_end(service, request):
    found = answers.show(service, request)
    stack = inspect.refresh(service.host, request.lv)
    if stack.tags.own and stack.clone and stack.clone.complete:
        return dataclasses.replace(found, state=messages.LvState.COMPLETE)
    return found


@bug('the swap is recorded before it is done', (clones, 'swap'))
def _early_record(host, stack, swap=clones.swap):
    host.group.retag(names.data_lv(stack.lv), remove=[
        lv_tags.print_tag(stack.tags.source)])
    clones.flush_records(host)
    host.dm.remove(str(names.clone(stack.lv)))
    swap(host, stack)


@bug('H17: copying goes on during a teardown', (teardown, 'quiesce'),
     where='crash/delete/power/before/1')
def _busy_teardown(host, stack):
    source = names.source(stack.lv)
    if source in stack.devices:
        host.dm.message(str(source), 'fail_if_no_path')


@bug('a gate stays below which there is nothing any more',
     (teardown, 'dismantle'), where='story/live chain')
def _gate_stays(host, stack):
    host.group.flush()
    teardown.quiesce(host, stack)
    teardown._dismantle(host, stack)


# -- the reconciler and requests --------------------------------------------

@bug('H22: a front needs an attachment with a connector',
     (home, '_consumers'), where='pair/new/attach a/extend')
def _impatient(known, row, decide_=home._consumers):
    there = tuple(a for a in row.attachments if a.connected)
    return decide_(known, dataclasses.replace(row, attachments=there))


@bug('H15: requests are not checked for the home',
     (base.Service, 'require_home'), where='message/migrate/LATE')
def _anywhere(self, row):
    """Whoever gets it does it."""


@bug('H29: a copy may take as long as it likes', (coordinator,
                                                  'prepare_there'))
def _endless_prepare(world, row, room, purpose):
    request = coordinator.lend(world, row, room, purpose)
    return exports.local(world.peers.ask(
        row.offer.node, dataclasses.replace(request, seconds=90.0)))
