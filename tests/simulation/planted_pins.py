# SPDX-License-Identifier: Apache-2.0
"""Mistakes about what a snapshot needs, and for how long.

See ``planted`` for those about one volume that moves.
"""

from __future__ import annotations

import dataclasses

from cinder_dmclone import names
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile import old_copy
from cinder_dmclone.reconcile import pins as ends
from cinder_dmclone.relocation import pins
from cinder_dmclone.service import snapshots
from cinder_dmclone.service import volumes
from cinder_dmclone.stack import state
from cinder_dmclone.stack import teardown
from tests.simulation import mistakes

bug = mistakes.bug


@bug('the old copy goes although it is a snapshot', (old_copy, '_pinned'),
     where='story/snap', also=mistakes.UNASKED)
def _unpinned(known):
    return [], []


@bug('what is a snapshot gets its front at boot', (activation, 'decide'),
     where='crash/snap/power/before/0')
def _front_of_snapshot(host, stack, decide=activation.decide):
    tags = dataclasses.replace(stack.tags, snaps=(), past=None)
    return decide(host, dataclasses.replace(stack, tags=tags))


@bug('what somebody writes is pinned only', (snapshots, 'has_writer'),
     where='story/snap used')
def _no_writer(row, stack):
    return False


@bug('where the volume went is forgotten as it is a snapshot',
     (old_copy, '_forget'), where='crash/snap/restore/before/0')
def _forgotten(known, row, tag, forget=old_copy._forget):
    return dataclasses.replace(forget(known, row, tag), step=Action.REVOKE)


@bug('a deletion takes apart what is lent', (teardown, 'close'),
     where='story/birth')
def _taken_apart(host, stack):
    teardown.strip(host, stack)


@bug('a deletion erases at once what others need', (volumes, 'delete'),
     where='story/birth')
def _erased(service, volume_id, delete=volumes.delete):
    row = service.world.rows.get(volume_id)
    delete(service, volume_id)
    if row and not row.deleted:
        service.host.group.remove(names.data_lv(row.lv))


@bug('a pin that the row does not show was not made',
     (ends, 'standing'), where='crash/snap home/commit/before/0')
def _not_ruled_out(known, tag, standing=ends.standing):
    why = standing(known, tag)
    return None if why and why.step is Action.RULE_OUT else why


@bug('what is a snapshot is written', (state.Stack, 'frozen'),
     where='story/snap home')
def _written(self, offer):
    return any(tag.borrower != offer for tag in self.tags.lent)


@bug('the row is written before the mark', (pins, 'mark'),
     where='crash/snap/kill/after/0')
def _marked_late(world, lv, wanted, mark=pins.mark):
    row = world.rows.get(wanted.snapshot.volume)
    world.snapshots.pin(wanted, row)
    mark(world, lv, wanted)


@bug('nothing is flushed before a pin', (pins, 'pin'),
     where='story/snap unflushed')
def _unflushed(world, row, wanted):
    pins.mark(world, row.lv, wanted)
    world.snapshots.pin(wanted, row)


@bug('a snapshot that was deleted keeps its LV', (ends, 'standing'),
     where='story/snap')
def _for_ever(known, tag, standing=ends.standing):
    row = known.snapshots.get(tag.snapshot)
    gone = row and row.deleted and not known.home
    return decision.Decision(decision.Verdict.REST) if gone else standing(
        known, tag)
