# SPDX-License-Identifier: Apache-2.0
"""When a loan ends: the borrower's node says so, or nobody does.

A loan belongs to the volume that borrows, be it this one, which moves, or
another. That its row was deleted is not enough: what hydrates from the
borrower meanwhile needs this LV too. Silence is never enough.
"""

from __future__ import annotations

import typing

from cinder_dmclone.database import rows
from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone import units

Loans = typing.Sequence[lv_tags.LoanTag]

# States of what has yet to get all of its data.
_HYDRATES = (LvState.COPY, LvState.HYDRATING)


def standing(facts: Facts, tag: lv_tags.LoanTag) -> Decision | None:
    """Why a loan still needs this LV; None if it does not.

    :returns: a question, a report, ``WAIT`` while the borrower needs it, or
        ``RETRY`` if nobody says whether it does
    """
    if tag.borrower in facts.silent:
        return silent(facts, tag.borrower)
    shown = facts.shown.get(tag.borrower)
    if shown is None:
        return decision.show(tag.borrower)
    if shown.group == tag.group and shown.state in _HYDRATES:
        return Decision(Verdict.WAIT, f'{tag.borrower} hydrates from here')
    doubt = _doubt(tag.borrower, tag.generation, tag.size, tag.group, shown)
    if doubt and shown.state in (LvState.MISSING, LvState.ERASED):
        return _without_borrower(facts, tag, doubt, (
            shown.state is LvState.MISSING and shown.group == tag.group))
    return _kept(doubt) if doubt else None


def to_lost_owner(stack: Stack, row: rows.Row
                  ) -> tuple[lv_tags.LoanTag, ...]:
    """Those to what the volume was meanwhile, if it is this LV again.

    No LV that a volume has left becomes it again but by an operator's
    decision (``relocation/recovery.py``): two generations later, or more if
    the volume had gone on in other LVs of the lost node.
    """
    own = stack.tags.own
    return tuple(tag for tag in stack.tags.lent if own
                 and tag.volume == own.volume == row.id
                 and tag.generation == own.generation + 1
                 and row.generation >= own.generation + 2)


def silent(facts: Facts, asked: Location, why: str = '') -> Decision:
    """What follows from a question that was not answered.

    :param why: it was put
    """
    return Decision(Verdict.RETRY, why + facts.silent[asked])


def _kept(doubt: str) -> Decision:
    return Decision(Verdict.REPORT, f'{doubt}; this copy is kept')


def _without_borrower(facts: Facts, tag: lv_tags.LoanTag, doubt: str,
                      same_group: bool) -> Decision | None:
    """Why a loan to what is not there, or soon not any more, needs this LV.

    Nobody can hydrate from the borrower: what is left to ask is whether its
    volume does without.

    :param same_group: whether it may never have been there: its node has the
        disks it had then
    """
    snapshot = facts.snapshots.get(SnapshotId(tag.volume))
    if snapshot:
        return _without_snapshot(snapshot, tag, doubt)
    row = facts.row_of(tag.volume)
    if row is None or row.unreadable:
        return _kept(doubt)
    if row.deleted or elsewhere(facts, row):
        return None
    if row.offer == tag.borrower and not _failed(row, same_group):
        return Decision(Verdict.WAIT, f'{tag.borrower} is being made')
    if row.owner == tag.borrower:
        return _kept(doubt)
    if row.generation < tag.generation and same_group:
        # It never came to be.
        return None
    if not row.node:
        return Decision(Verdict.WAIT, 'Cinder looks for a node')
    if row.owner in facts.silent:
        return silent(facts, row.owner)
    owner = facts.shown.get(row.owner)
    if owner is None:
        return decision.show(row.owner)
    if owner.state in _HYDRATES:
        return Decision(Verdict.WAIT, f'{row.owner} hydrates')
    # It may be smaller than what was lent, which may have been larger than it
    # had to be: its size is that of its row.
    left = _doubt(row.owner, row.generation, units.Bytes(0), None, owner)
    return _kept(left) if left else None


def _failed(row: rows.Row, same_group: bool) -> bool:
    """Whether a volume that was to be made never will be.

    Cinder gives up one whose cinder-volume was killed (``_do_cleanup`` of
    cinder/volume/manager.py), and nothing is born then (``rows.Birth``).
    """
    return (same_group and row.generation == 0
            and row.status not in rows.BEING_MADE)


def _without_snapshot(row: SnapshotRow, tag: lv_tags.LoanTag,
                      doubt: str) -> Decision | None:
    """The same of one that a snapshot was to move to."""
    if row.deleted:
        return None
    if row.unreadable or row.at == tag.borrower:
        return _kept(doubt)
    if row.offer == tag.borrower:
        return Decision(Verdict.WAIT, f'{tag.borrower} is being made')
    return None


def elsewhere(facts: Facts, row: rows.Row) -> bool:
    """Whether a volume has left this backend for good."""
    return (facts.foreign(row)
            and row.migration_status in rows.SETTLED_MIGRATION)


def _doubt(who: Location, generation: int, size: units.Bytes,
           group: GroupUuid | None, shown: messages.Shown) -> str | None:
    """Why a node's statement does not prove this copy superfluous.

    :param size: that of what was lent
    :param group: the volume group the node had when it borrowed
    """
    if shown.state is not LvState.COMPLETE:
        return f'{who} is {shown.state.value}'
    if shown.generation < generation:
        return (f'{who} is at generation {shown.generation} instead of '
                f'{generation}')
    if group and shown.group != group:
        return f'{who.node} has another volume group than when it borrowed'
    if shown.size < size:
        return f'{who} is smaller than what was lent'
    return None


def serve(facts: Facts, loans: Loans) -> Decision:
    """Lend, and hydrate meanwhile if this LV is itself a copy.

    Reads that wait here would wait inside the iSCSI target and keep its
    other initiators from logging in: they fail while the path is lost, and
    the borrower, where the server is, lets them wait; also one that is here,
    for only it can lead them on when it has all. A server that has yet to be
    led over to that waits here.
    """
    stack = facts.stack
    if stack.lacks_clone:
        return Decision(Action.ASSEMBLE)
    missing = stack.missing_loans(loans)
    if missing:
        return Decision(Action.LEND, lent=missing)
    wait = (Decision(Verdict.WAIT, 'it is lent') if loans
            else Decision(Verdict.REST))
    if not stack.tags.source:
        return Decision(Action.COMPLETE) if stack.leftovers else wait
    finished = decision.finished(stack)
    if finished:
        return finished
    if facts.left_behind and not stack.queues:
        return Decision(Action.RECONNECT, 'reads would fail, not wait')
    away = decision.without_path(stack, facts.lender)
    if away and not stack.quiesced and not facts.left_behind:
        return Decision(Action.PAUSE, 'the path to the lender is lost')
    if away:
        return away
    return decision.copying(stack, facts.lender)


def at_home(facts: Facts, row: rows.Row, found: Decision) -> Decision:
    """What a volume has to do for others that it is lent to.

    :param found: what is known of the volume itself: nothing is to be done,
        or something has to be shown first
    """
    needing, verdicts = [], [found]
    for tag in facts.stack.tags.lent:
        if tag.borrower == row.offer or (
                tag.volume == row.id and tag.borrower not in facts.shown):
            # Whether the row knows of it is found out first.
            continue
        why = standing(facts, tag)
        if why is None:
            return Decision(Action.REVOKE, f'{tag.borrower} needs it no more',
                            lent=(tag,))
        verdicts.append(why)
        if why.step is not Verdict.REPORT:
            needing.append(tag)
    # Who has yet to be asked may not answer, and others wait for theirs.
    missing = facts.stack.missing_loans(needing)
    if missing:
        return Decision(Action.LEND, lent=missing)
    return (decision.one_question(verdicts)
            or decision.most_urgent(*verdicts))
