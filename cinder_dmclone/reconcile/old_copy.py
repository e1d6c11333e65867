# SPDX-License-Identifier: Apache-2.0
"""When the old copy may go: what to do about an LV that is lent.

It goes when those it was lent to have said that they are complete, at the
generation and in the volume group they had when they borrowed. Every doubt
keeps it.
"""

from __future__ import annotations

from cinder_dmclone.database import rows
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack


def decide(facts: Facts, row: rows.Row) -> Decision:
    """The next step for an LV that was lent and is not the volume."""
    stack = facts.stack
    writers = stack.of_kind(*names.WRITERS)
    stale = _stale_writers(stack, row, writers) if writers else None
    if stale and stale.step is not Verdict.WAIT:
        return stale
    if facts.here == row.source:
        return _serve(stack, row.owner)
    for tag in stack.tags.lent:
        # A lender in the middle of a chain is named by no row: what it lent
        # to tells.
        needed = _discharge(facts, row, tag)
        if needed:
            return needed
    return stale or Decision(Action.RELEASE,
                             'those it was lent to are complete')


def _stale_writers(stack: Stack, row: rows.Row,
                   writers: list[names.DeviceName]) -> Decision:
    held = [name for name in writers if stack.is_held(name)]
    if not held:
        return Decision(Action.CONSUMERS, drop=frozenset(writers))
    open_fronts = [name for name in held if name.kind is names.Kind.FRONT
                   and not stack.fenced(name)]
    if open_fronts:
        return Decision(Action.FENCE, f'{row.owner} is the volume',
                        drop=frozenset(open_fronts))
    if any(name.kind is not names.Kind.FRONT for name in held):
        return Decision(Verdict.REPORT, f'{held[0]} is open on a copy that is '
                        f'no longer the volume ({row.owner} is)')
    return Decision(Verdict.WAIT, f'a server that has moved to {row.node} '
                    'still has its device here')


def _discharge(facts: Facts, row: rows.Row,
               tag: lv_tags.LoanTag) -> Decision | None:
    """Why a loan still needs this LV; None if it does not."""
    shown = facts.shown.get(tag.borrower)
    if shown is None:
        return Decision(Question.SHOW, ask=tag.borrower)
    if shown.group == tag.group and shown.state in (
            LvState.COPY, LvState.HYDRATING):
        return _serve(facts.stack, tag.borrower)
    doubt = _doubt(facts.stack, tag.borrower, tag.generation, tag.group,
                   shown)
    if doubt is None:
        return None
    if tag.borrower == row.owner or shown.state is not LvState.MISSING:
        return Decision(Verdict.REPORT, f'{doubt}; this copy is kept')
    # The borrower has passed the volume on and is gone itself: only the
    # volume's owner can prove that nobody needs either.
    owner = facts.shown.get(row.owner)
    if owner is None:
        return Decision(Question.SHOW, ask=row.owner)
    doubt = _doubt(facts.stack, row.owner, row.generation, None, owner)
    if doubt is None:
        return None
    return Decision(Verdict.REPORT, f'{doubt}; this copy is kept')


def _doubt(stack: Stack, who: Location, generation: int,
           group: GroupUuid | None, shown: messages.Shown) -> str | None:
    """Why a node's statement does not prove this copy superfluous.

    :param group: the volume group the node had when it borrowed
    """
    if shown.state is not LvState.COMPLETE:
        return f'{who} is {shown.state.value}'
    if shown.generation != generation:
        return (f'{who} is at generation {shown.generation} instead of '
                f'{generation}')
    if group and shown.group != group:
        return f'{who.node} has another volume group than when it borrowed'
    assert stack.data is not None
    if shown.size < stack.data.size:
        return f'{who} is smaller than this copy'
    return None


def _serve(stack: Stack, borrower: Location) -> Decision:
    """Lend, and hydrate meanwhile if this LV is itself a copy.

    Reads that wait here would wait inside the iSCSI target and keep its
    other initiators from logging in: they fail while the path is lost, and
    the borrower, where the server is, lets them wait.
    """
    if stack.tags.source and not stack.assembled:
        return Decision(Action.ASSEMBLE)
    missing = stack.missing_loans(borrower)
    if missing:
        return Decision(Action.LEND, lent=missing)
    wait = Decision(Verdict.WAIT, f'{borrower} hydrates from here')
    if not stack.tags.source:
        left = stack.meta or stack.of_kind(names.Kind.CLONE, names.Kind.SOURCE)
        return Decision(Action.COMPLETE) if left else wait
    finished = decision.finished(stack)
    if finished:
        return finished
    if not stack.has_path:
        if stack.queues:
            return Decision(Action.PAUSE, 'the path to the lender is lost')
        return decision.without_path(stack)
    return decision.copying(stack)
