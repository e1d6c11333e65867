# SPDX-License-Identifier: Apache-2.0
"""When a snapshot no longer needs an LV: its own row says so, or nobody does.

A row that was deleted says so for good. One that knows of no LV may yet get
one, from a change whose answer was lost: that is ruled out in the row first.
One that names another LV says so when that LV's node shows it, complete: what
a snapshot holds never changes, so that any whole copy of it is the snapshot.
"""

from __future__ import annotations

from cinder.objects.fields import SnapshotStatus

from cinder_dmclone.database.snapshots import AT_REST
from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone.location import Location
from cinder_dmclone import names
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.peers.messages import Shown
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import most_urgent
from cinder_dmclone.reconcile.decision import one_question
from cinder_dmclone.reconcile.decision import show
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import loans
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone.stack import lv_tags

# Those of a snapshot that may not have been made.
_UNMADE = (SnapshotStatus.CREATING, SnapshotStatus.ERROR,
           SnapshotStatus.DELETING, SnapshotStatus.ERROR_DELETING)


def standing(facts: Facts, tag: lv_tags.SnapTag) -> Decision | None:
    """Why a snapshot still needs this LV; None if it does not.

    :returns: a verdict; a question; or what has to be done first, one of
        ``RULE_OUT``, ``STAY`` and ``ARRIVE``
    """
    row = facts.snapshots.get(tag.snapshot)
    if row is None:
        return Decision(
            Verdict.REPORT, f'the database knows nothing of snapshot '
            f'{tag.snapshot}, not even that it was deleted; this LV is kept')
    if row.deleted:
        return None
    if row.unreadable:
        return Decision(Verdict.REPORT, row.unreadable)
    if row.record is None and row.status in _UNMADE:
        return Decision(Action.RULE_OUT, 'the database does not know it',
                        snaps=(tag,))
    if row.record is None:
        return Decision(
            Verdict.REPORT, f'snapshot {tag.snapshot} is {row.status}, the '
            'database does not say where; this LV is kept')
    if row.at is None:
        return None
    if facts.here not in (row.at, row.offer):
        return _elsewhere(facts, tag, row)
    if row.status == SnapshotStatus.DELETING:
        return Decision(Verdict.WAIT, 'the snapshot is being deleted')
    if row.offer == facts.here:
        return _arriving(facts, tag, row)
    return _leaving(facts, tag, row) if row.offer else Decision(Verdict.REST)


def _shown(facts: Facts, place: Location) -> Shown | Decision:
    """What another node shows of an LV, or what to do as it has not yet."""
    if place in facts.silent:
        return loans.silent(facts, place)
    return facts.shown.get(place) or show(place)


def _elsewhere(facts: Facts, tag: lv_tags.SnapTag,
               row: SnapshotRow) -> Decision | None:
    """Why a snapshot needs this LV that is another one; None if it does not.

    It has moved there, or was to move here and does not any more.
    """
    assert row.at is not None
    shown = _shown(facts, row.at)
    if isinstance(shown, Decision):
        return shown
    if tag.snapshot in shown.snapshots and shown.size >= tag.size:
        if shown.state is LvState.COMPLETE:
            return None
        if shown.state is LvState.HYDRATING:
            return Decision(Verdict.WAIT, f'{row.at} hydrates')
    return Decision(
        Verdict.REPORT, f'snapshot {tag.snapshot} is {row.at}, says the '
        'database, and that node does not have it; this LV is kept')


def _leaving(facts: Facts, tag: lv_tags.SnapTag,
             row: SnapshotRow) -> Decision:
    """What to do about a snapshot that moves from here to another node.

    Who has a copy made there holds the lock until it is.
    """
    assert row.offer is not None
    shown = _shown(facts, row.offer)
    if isinstance(shown, Decision):
        return shown
    if shown.state is LvState.MISSING:
        return Decision(Action.STAY, f'nobody makes {row.offer}',
                        snaps=(tag,))
    return Decision(Verdict.WAIT, f'the snapshot moves to {row.offer}')


def _arriving(facts: Facts, tag: lv_tags.SnapTag,
              row: SnapshotRow) -> Decision:
    """What to do about a snapshot that moves to this LV."""
    stack = facts.stack
    ready = stack.meta_tag is not None and stack.meta_tag.ready
    if stack.lacks_clone and not ready:
        # Whoever makes it holds the lock until it is ready.
        return Decision(Action.STAY, 'the copy was not finished',
                        snaps=(tag,))
    if stack.tags.source or stack.leftovers:
        return Decision(Verdict.WAIT, 'the snapshot moves here')
    if row.status not in AT_REST:
        return Decision(Verdict.WAIT, f'the snapshot is {row.status}')
    return Decision(Action.ARRIVE, f'all of snapshot {tag.snapshot} is here',
                    snaps=(tag,))


def any_known(facts: Facts) -> bool:
    """Whether a snapshot that the database knows needs this LV, or may.

    Others count until an operator has decided that nobody misses the LV.
    """
    return any(tag.snapshot in facts.snapshots and standing(facts, tag)
               for tag in facts.stack.tags.snaps)


def misplaced(facts: Facts) -> list[SnapshotRow]:
    """The snapshots that it is by its tags alone, and could be.

    Their rows say that they are another LV, or nothing. A copy to which one
    was to move is none of it before it has all.
    """
    tags = facts.stack.tags
    if tags.only_snapshot and tags.source or tags.erased:
        return []
    found = [facts.snapshots.get(tag.snapshot)
             for tag in facts.stack.tags.snaps]
    return [row for row in found if row and not row.deleted
            and not row.unreadable and row.status not in _UNMADE
            and (row.record is None or row.at and row.at != facts.here)]


def ended(facts: Facts) -> Decision | None:
    """What to do about a pin of a volume's LV that has ended, or may have.

    Requests come this way: what only another node knows they do not wait for.
    """
    for tag in facts.stack.tags.snaps:
        why = standing(facts, tag)
        if why is None:
            return unpin(tag)
        if why.step is Action.RULE_OUT:
            return why
    return None


def unpin(tag: lv_tags.SnapTag) -> Decision:
    """Forget a snapshot that is none.

    An LV that is not the volume keeps its last such tag (``bars_front``).
    """
    return Decision(Action.UNPIN, f'snapshot {tag.snapshot} is no more',
                    snaps=(tag,))


def at_home(facts: Facts, found: Decision) -> Decision:
    """What snapshots mean for the LV that is the volume.

    :param found: what is known of the volume itself: nothing is to be done
    """
    stack = facts.stack
    verdicts = [why for tag in stack.tags.snaps
                for why in [standing(facts, tag)] if why]
    for why in verdicts:
        if isinstance(why.step, Action):
            return why
    asked = one_question(verdicts)
    if asked:
        return asked
    writers = stack.of_kind(*names.WRITERS)
    if verdicts and writers:
        verdicts.append(Decision(
            Verdict.REPORT, f'{writers[0]} writes what is a snapshot'))
    return most_urgent(found, *verdicts)
