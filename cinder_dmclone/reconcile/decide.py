# SPDX-License-Identifier: Apache-2.0
"""What to do next about one LV: a pure function from facts to an action.

It never asks what happened, only what is and what should be. Missing facts
lead to waiting, never to building or deleting; nothing is deleted on the
absence of evidence.
"""

from __future__ import annotations

import dataclasses

from cinder.objects.fields import VolumeStatus

from cinder_dmclone.database import rows
from cinder_dmclone import names
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import home
from cinder_dmclone.reconcile import loans
from cinder_dmclone.reconcile import new_copy
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone.reconcile import offers
from cinder_dmclone.reconcile import old_copy
from cinder_dmclone.reconcile import pins
from cinder_dmclone.reconcile import views


def decide(facts: Facts) -> Decision:
    """The next step for ``facts.stack``."""
    return views.considered(facts, _with_borrowers(facts))


def _with_borrowers(facts: Facts) -> Decision:
    found = for_request(facts)
    if not facts.home or not facts.row or found.step not in (
            Verdict.REST, Verdict.WAIT, Verdict.WATCH):
        return found
    if facts.stack.tags.snaps:
        found = pins.at_home(facts, found)
    if facts.stack.tags.lent and not isinstance(found.step, Action):
        found = loans.at_home(facts, facts.row, found)
    return found


def for_request(facts: Facts) -> Decision:
    """The same, without what others need of a volume.

    Whether they can be helped is no matter of those who ask for this one.
    """
    found = _decide(facts)
    if isinstance(found.step, Verdict) and not found.hindrance:
        return dataclasses.replace(found, hindrance=offers.hindrance(facts))
    return found


def _decide(facts: Facts) -> Decision:
    stack, row = facts.stack, facts.row
    if stack.suspended:
        return Decision(
            Action.ACTIVATE, 'LVM was interrupted in a change of it')
    if stack.unreadable:
        return Decision(Verdict.REPORT, stack.unreadable)
    if stack.data is None and not facts.home:
        return _without_lv(facts)
    if stack.tags.erased:
        return _erased(facts)
    if stack.tags.forgotten:
        return _forgotten(facts)
    if row is None:
        return Decision(
            Verdict.REPORT, 'the database knows nothing of this LV: it has no '
            'row of the volume that the tags name, not even a deleted one, '
            'and no volume of this node is this LV; nothing is deleted '
            'without proof')
    if facts.rivals:
        return Decision(Verdict.REPORT, 'several volumes claim this LV')
    if row.unreadable:
        return Decision(Verdict.REPORT, row.unreadable)
    # A row without a record is one whose creation did not end.
    if row.provider_id and stack.tags.generation > row.generation and (
            not facts.unrecorded):
        return Decision(
            Verdict.REPORT, f'the LV has generation {stack.tags.generation}, '
            f'the database {row.generation}: the database went back in time')
    if row.deleted:
        return _deleted(facts, row)
    if row.status == VolumeStatus.DELETING and facts.home:
        return Decision(Verdict.WAIT, 'the volume is being deleted')
    return home.decide(facts, row) if facts.home else _elsewhere(facts, row)


def _erased(facts: Facts) -> Decision:
    """The next step for an LV whose deletion has begun.

    It was proven that nobody needs it. If the database says otherwise, it has
    gone back in time.
    """
    row = facts.row
    if row and not row.deleted and (row.unreadable
                                    or facts.here in row.places):
        return Decision(
            Verdict.REPORT, 'its deletion had begun, and the row of volume '
            f'{row.id} names it: what it held may be overwritten in part')
    for found in facts.snapshots.values():
        if not found.deleted and (
                found.unreadable or found.at == facts.here):
            return Decision(
                Verdict.REPORT, 'its deletion had begun, and the row of '
                f'snapshot {found.id} names it: what it held may be '
                'overwritten in part')
    return Decision(Action.ERASE, 'its deletion has begun')


def _forgotten(facts: Facts) -> Decision:
    """The next step for an LV that nobody misses, as an operator has said."""
    row = facts.row
    if row and not row.deleted and (row.unreadable
                                    or facts.here in row.places):
        return Decision(Verdict.REPORT, 'it was forgotten by an operator, and '
                        f'the row of volume {row.id} names it')
    if row and facts.may_be_newer:
        return Decision(Verdict.REPORT, 'it was forgotten by an operator, and '
                        f'may be newer than volume {row.id}')
    if facts.rivals or facts.stack.tags.lent or pins.any_known(facts):
        return Decision(Verdict.REPORT, 'it was forgotten by an operator, and '
                        'others need it')
    return Decision(Action.ERASE, 'it was forgotten by an operator')


def _without_lv(facts: Facts) -> Decision:
    stack, row = facts.stack, facts.row
    if not (stack.meta or stack.devices):
        return Decision(Verdict.REST)
    if row and row.deleted:
        return Decision(Action.ERASE, 'the volume was deleted')
    # Teardown removes the data LV last: this is not ours to explain.
    return Decision(Verdict.REPORT, 'the data LV is gone, what was built '
                    'on it is still there')


def _deleted(facts: Facts, row: rows.Row) -> Decision:
    needed = old_copy.kept(facts, row)
    if needed:
        return needed
    if facts.here in row.places or not facts.stack.tags.own:
        return Decision(Action.ERASE, 'the volume was deleted')
    return old_copy.outlived(facts, row, 'the volume was deleted')


def _elsewhere(facts: Facts, row: rows.Row) -> Decision:
    """The next step for an LV of a volume that is another LV."""
    stack = facts.stack
    if stack.tags.bars_front:
        return old_copy.decide(facts, row)
    if stack.tags.copy:
        return new_copy.decide(facts, row)
    if stack.tags.own:
        writers = stack.of_kind(*names.WRITERS)
        if writers and row.generation > stack.tags.generation:
            stale = old_copy.stale_writers(stack, row, writers)
            if stale.step is not Verdict.WAIT:
                return stale
        return old_copy.outlived(facts, row, 'nobody needs it')
    return Decision(Verdict.REPORT, f'unknown LV of a volume of {row.owner}')
