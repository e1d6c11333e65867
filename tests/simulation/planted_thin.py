# SPDX-License-Identifier: Apache-2.0
"""Mistakes about what was never written, and what the pool itself copies.

See ``planted`` for those about a volume that moves.
"""

from __future__ import annotations

from cinder_dmclone.location import Location
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.relocation import borrower
from cinder_dmclone.relocation import cut
from cinder_dmclone.relocation import holes
from cinder_dmclone.relocation import room
from cinder_dmclone.relocation import thin_snapshot
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from cinder_dmclone import units
from tests.simulation import mistakes

bug = mistakes.bug


def _all_of(host, lv, copy):
    """Whatever happens to it, and wherever the rest may be."""
    data = inspect.refresh(host, lv).data
    assert data
    return holes.between(host.group.allocated(data, 1.0), data.size)


def _unless_hydrating(host, lv, copy):
    stack = inspect.refresh(host, lv)
    return [] if stack.tags.source or stack.assembled else _all_of(
        host, lv, copy)


def _unless_written(host, lv, copy):
    stack = inspect.refresh(host, lv)
    return [] if stack.of_kind(*names.WRITERS) else _all_of(host, lv, copy)


@bug('a copy for a live migration is told of holes', (borrower, 'build'),
     where='slow/thin live', also=((holes, 'here', _unless_hydrating),))
def _written(world, lv, copy, lent, size, front=False, written=False,
             build=borrower.build):
    build(world, lv, copy, lent, size, front)


bug('what a server writes has holes', (holes, 'here'),
    where='slow/thin cut')(_unless_hydrating)

bug('what has not arrived at a lender is a hole', (holes, 'here'),
    where='story/thin chain')(_unless_written)


@bug('a copy that is not thin is told of holes', (holes, 'find'),
     where='story/thin thick')
def _thick(world, lv, lent):
    return holes.unpack(world.peers.ask(
        lent.lender.node, messages.FindHoles(
            lent.lender.lv, Location(world.settings.node, lv))))


@bug('a copy is told of holes when its server has it', (clones, '_format'),
     where='story/thin', also=((clones, '_skip', lambda *rest: None),))
def _late(host, stack, format_=clones._format):
    format_(host, stack)
    host.dm.take_as_copied(
        str(names.clone(stack.lv)),
        [(units.Bytes(0), host.settings.least_region)])


@bug('H12: a copy that is thin takes discards', (consumers, 'refuse_discards'),
     where='story/thin trim')
def _taken(host, stack):
    """It would read zeros, and nothing of others."""


@bug('room for a copy is asked for, but not seen to', (room, 'make'),
     where='story/pool cut')
def _promised_twice(world, lv, size, copy, source, *others):
    clones.create(world.host, lv, size, copy, source, *others)


def _unflushed(host, stack, lv, tags, size):
    host.group.snapshot(names.data_lv(lv), names.data_lv(stack.lv),
                        [lv_tags.print_tag(tag) for tag in tags])
    host.group.flush()


def _undurable(host, stack, lv, tags, size):
    host.group.snapshot(names.data_lv(lv), names.data_lv(stack.lv),
                        [lv_tags.print_tag(tag) for tag in tags])
    consumers.flush(host, stack)


bug('what a snapshot has of a server is not flushed', (thin_snapshot, 'make'),
    where='story/thin snap used')(_unflushed)

bug('the row has a snapshot whose LV is not durable', (thin_snapshot, 'make'),
    where='story/thin snap used')(_undurable)

bug('the row has a clone whose LV is not durable', (thin_snapshot, 'make'),
    where='story/thin births')(_undurable)


@bug('LVM makes a snapshot of what has not arrived',
     (thin_snapshot, 'possible'), where='story/thin snap live')
def _half(host, stack):
    return bool(host.group.pool)


@bug('where a thin volume went that was pinned is not written down',
     (cut, '_make_at_once'), where='story/thin pinned')
def _unmarked(world, row, stack):
    thin_snapshot.make(world.host, stack, row.offer.lv, (
        lv_tags.CopyTag(row.generation + 1, row.id),
        lv_tags.FrontTag(stack.known_as)), stack.data.size)


bug('an LV stays suspended whose LVM was killed', (state.Stack, 'suspended'),
    where='crash/thin snap used/answer/before/0')(False)

bug('a pool stays suspended whose LVM was killed', (state.Stack, 'suspended'),
    where='crash/thin extend/answer/before/1')(False)
