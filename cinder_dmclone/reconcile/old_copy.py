# SPDX-License-Identifier: Apache-2.0
"""When the old copy may go: what to do about an LV that is needed as it is.

It goes when it is no snapshot, when those it was lent to have said that they
are complete, at the generation and in the volume group they had when they
borrowed, and when it is known where the volume went from it. Every doubt
keeps it.
"""

from __future__ import annotations

import typing

from cinder_dmclone.database import rows
from cinder_dmclone import names
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import most_urgent
from cinder_dmclone.reconcile.decision import one_question
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import loans
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone.reconcile import pins
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack


Found = typing.Sequence[tuple[lv_tags.LoanTag, Decision]]


def decide(facts: Facts, row: rows.Row) -> Decision:
    """The next step for an LV that others need, and that is not the volume.
    """
    stack = facts.stack
    writers = stack.of_kind(*names.WRITERS)
    stale = None
    if writers and facts.here == row.source and facts.goes_on_here:
        stale = Decision(Verdict.WAIT, f'{row.owner} leads them over')
    elif writers and _has_left(facts, row):
        stale = stale_writers(stack, row, writers)
    if stale and stale.step is not Verdict.WAIT:
        return stale
    needed = kept(facts, row)
    if needed:
        return needed
    found = outlived(facts, row, 'nobody needs it any more')
    return stale if stale and found.step is not Verdict.REPORT else found


def outlived(facts: Facts, row: rows.Row, why: str) -> Decision:
    """What to do about an LV that nobody else needs, and that no row names.

    Its loans have ended, and make place for what an operator can forget or
    adopt. If the volume is later it must not get a front at the next boot.

    :param why: it may go, if it is not the volume itself
    """
    tags = facts.stack.tags
    if tags.only_snapshot or _went_on(facts, row):
        return Decision(Action.ERASE, why)
    barred = bar(facts, row)
    ended = tuple(tag for tag in tags.lent
                  if barred or not _of_volume(tag, facts))
    if ended:
        return Decision(Action.BAR if barred else Action.REVOKE,
                        f'{ended[0].borrower} needs it no more', lent=ended)
    if not tags.bars_front and _is_later(facts, row):
        return Decision(Action.BAR, f'the row says {row.owner}')
    return Decision(Verdict.REPORT, _doubt(facts, row))


def _doubt(facts: Facts, row: rows.Row) -> str:
    tags = facts.stack.tags
    if not tags.own or tags.lent or tags.snaps:
        return ('others needed it, and where the volume went from it is not '
                f'known; the row says {row.owner}')
    if row.deleted:
        return (f'a deleted volume that was last owned by {row.owner} left '
                'this LV, which claims to own it')
    return (f'the LV claims to be the volume, the row says {row.owner}; it is '
            'kept without a front')


def _went_on(facts: Facts, row: rows.Row) -> bool:
    """Whether the volume is known to have become another LV than this.

    That others borrowed proves nothing. Nor does an offer to the volume
    itself that was withdrawn: the row is no later than this LV then. A later
    row proves nothing of an LV that was given up, unless what it was lent to
    says that it was the volume.
    """
    tags = facts.stack.tags
    left = [tag for tag in tags.lent if _of_volume(tag, facts)]
    last = tags.own or tags.copy
    past = tags.past if tags.past and not (
        last and tags.past.generation <= last.generation) else None
    if last and row.given_up(last.generation):
        return any(_became(facts, tag) for tag in left)
    if facts.foreign(row):
        # Other drivers give a volume the name that its first LV has here.
        return bool(past or left and row.lv != facts.stack.lv)
    return bool(past or left) and _is_later(facts, row)


def _is_later(facts: Facts, row: rows.Row) -> bool:
    """Whether the volume is of a later generation than this LV.

    One of another backend has none, nor has one that differs from this by the
    name of its node.
    """
    last = facts.stack.tags.own or facts.stack.tags.copy
    return row.lv != facts.stack.lv and (
        last is None or row.generation > last.generation)


def _has_left(facts: Facts, row: rows.Row) -> bool:
    """Whether the volume is another LV, here or of another backend."""
    return _is_later(facts, row) or (
        facts.foreign(row) and row.lv != facts.stack.lv)


def bar(facts: Facts, row: rows.Row) -> lv_tags.PastTag | None:
    """What keeps an LV from a front that is not the volume, if it is known.

    Of the LV's own generation it proves nothing of where the volume went.
    """
    tags = facts.stack.tags
    if tags.own is None or not _has_left(facts, row):
        return None
    return tags.past or lv_tags.PastTag(
        tags.own.generation, tags.own.volume, row.node, row.lv)


def _became(facts: Facts, tag: lv_tags.LoanTag) -> bool:
    shown = facts.shown.get(tag.borrower)
    return bool(shown and shown.group == tag.group
                and shown.state in (LvState.COMPLETE, LvState.HYDRATING)
                and shown.generation >= tag.generation)


def _of_volume(tag: lv_tags.LoanTag, facts: Facts) -> bool:
    """Whether the volume itself borrows: the row may have another id."""
    return tag.volume == facts.stack.volume or bool(
        facts.row and tag.volume == facts.row.id)


def kept(facts: Facts, row: rows.Row) -> Decision | None:
    """What to do about an LV for the sake of those who need it as it is.

    A lender in the middle of a chain is named by no row: what it lent to
    tells. Who does not answer keeps nobody else from being served.

    :returns: None if nobody needs it
    """
    pinned, unpinned = _pinned(facts)
    arriving = [why for why in pinned if why.step is Action.ARRIVE]
    for doubt in pinned:
        if isinstance(doubt.step, Action) and doubt not in arriving:
            return doubt
    found, ended = [], []
    for tag in facts.stack.tags.lent:
        if tag.borrower == row.owner and facts.here == row.source and (
                not row.deleted):
            found.append((tag, Decision(Verdict.WAIT)))
            continue
        why = loans.standing(facts, tag)
        if why:
            found.append((tag, why))
        else:
            ended.append(tag)
    if not found and not pinned:
        return None
    asked = one_question([*pinned, *(why for _, why in found)])
    if asked:
        return _lend(facts, found) or asked
    if ended:
        return _forget(facts, row, ended[0])
    if unpinned and not facts.stack.tags.only_snapshot:
        return pins.unpin(unpinned[0])
    if pinned or any(tag.read for tag, _ in found):
        serving = loans.serve(facts, _needing(found))
    else:
        serving = _unread(facts.stack)
    if serving.step not in (Verdict.WAIT, Verdict.REST):
        return serving
    if arriving:
        return arriving[0]
    return most_urgent(serving, *pinned, *(why for _, why in found))


def _needing(found: Found) -> list[lv_tags.LoanTag]:
    return [tag for tag, why in found if why.step is not Verdict.REPORT]


def _lend(facts: Facts, found: Found) -> Decision | None:
    """Lend what is not lent, before anybody is asked who may not answer.

    What is lent no more as nobody needed it, or would have to be put together
    first, is probably not needed.
    """
    stack = facts.stack
    if facts.going or stack.lacks_clone:
        return None
    missing = stack.missing_loans(_needing(found))
    return Decision(Action.LEND, lent=missing) if missing else None


def _unread(stack: Stack) -> Decision:
    """What to do about an LV whose place another one takes."""
    if stack.clone and stack.clone.hydration:
        return Decision(Action.PAUSE, 'nobody reads it any more')
    return Decision(Verdict.REST)


def _pinned(facts: Facts) -> tuple[list[Decision], list[lv_tags.SnapTag]]:
    """Why snapshots need it, and those that do not."""
    found = {tag: pins.standing(facts, tag) for tag in facts.stack.tags.snaps}
    return ([why for why in found.values() if why],
            [tag for tag, why in found.items() if not why])


def _forget(facts: Facts, row: rows.Row, tag: lv_tags.LoanTag) -> Decision:
    """End one of several loans.

    That the volume has gone on must stay known: a database that is restored
    would make this LV the volume again.
    """
    went_on = (tag.volume == row.id == facts.stack.volume
               and tag.generation <= row.generation)
    return Decision(Action.DISCHARGE if went_on else Action.REVOKE,
                    f'{tag.borrower} needs it no more', lent=(tag,))


def stale_writers(stack: Stack, row: rows.Row,
                  writers: list[names.DeviceName]) -> Decision:
    """What to do about those who write what is not the volume any more."""
    held = [name for name in writers if stack.is_held(name)]
    if not held:
        return Decision(Action.CONSUMERS, drop=frozenset(writers))
    open_fronts = [name for name in held if name.kind is names.Kind.FRONT
                   and not stack.fenced(name)]
    if open_fronts:
        if stack.queues and not stack.has_path:
            # A device is not changed while reads through it wait.
            return Decision(Action.PAUSE, 'the path to the lender is lost, '
                            f'and {row.owner} is the volume')
        return Decision(Action.FENCE, f'{row.owner} is the volume',
                        drop=frozenset(open_fronts))
    served = [name for name in held if name.kind is names.Kind.SERVE
              and stack.exports_of(name)]
    if served:
        # The end of the target ends its sessions.
        return Decision(Action.CONSUMERS, f'{row.owner} is the volume',
                        drop=frozenset(served))
    others = [name for name in held if name.kind is not names.Kind.FRONT]
    if others:
        return Decision(Verdict.REPORT, f'{others[0]} is open on a copy that '
                        f'is no longer the volume ({row.owner} is)')
    return Decision(Verdict.WAIT, f'a server that has moved to {row.node} '
                    'still has its device here')
