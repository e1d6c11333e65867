# SPDX-License-Identifier: Apache-2.0
"""An LV is kept for those who will never say that they need it no more.

Such are borrowers on a node that is lost, and snapshots that the database
does not know, or knows as another LV.
"""

from __future__ import annotations

import dataclasses
import functools
import typing

from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import SnapshotId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import loans
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import old_copy
from cinder_dmclone.reconcile import questions
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import pins
from cinder_dmclone.relocation import recovery
from cinder_dmclone.service.base import Service
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags

_Tag = lv_tags.LoanTag | lv_tags.SnapTag
_Found = typing.TypeVar('_Found', lv_tags.LoanTag, lv_tags.SnapTag)


def release(service: Service, request: messages.Release) -> messages.Plan:
    """Keep an LV of this node no more for those who are lost.

    The reconciler then decides about it as about any other.

    :raises NotReleased: if all that it is kept for may need it, or if an
        operator has agreed to something else
    """
    volume = inspect.refresh(service.host, request.lv).volume
    with service.locked(volume, messages.Lock.SHORT):
        _, known = service.loop.judge(request.lv, volume)
        lost = _lost(service, known)
        lent = _of(lv_tags.LoanTag, lost)
        snaps = _of(lv_tags.SnapTag, lost)
        plan = messages.Plan(
            does=' '.join((*_told(service, known, lent, snaps),
                           _then(known))),
            gives_up=[*(_given_up(known, tag) for tag in lent),
                      *(f'snapshot {tag.snapshot} of volume {tag.volume}, '
                        f'{tag.size} bytes' for tag in snaps)],
            record=' '.join(map(lv_tags.print_tag, lost)))
        if plan.agreed(request.record, functools.partial(
                _refusal, service, request.lv)):
            for tag in lent:
                # One that is past takes the place of one before it.
                stack = inspect.refresh(service.host, request.lv)
                known = dataclasses.replace(known, stack=stack)
                lender.revoke_loan(service.world, stack, tag,
                                   _went_on(known, tag))
            for snap in snaps:
                pins.forget(service.world, request.lv, snap)
    service.loop.enqueue(request.lv)
    return plan


def _of(kind: type[_Found], tags: typing.Iterable[_Tag]) -> list[_Found]:
    return [tag for tag in tags if isinstance(tag, kind)]


def _lost(service: Service, known: observed.Facts) -> tuple[_Tag, ...]:
    """The loans and snapshots that may be ended.

    :raises NotReleased: if there is none
    """
    stack, row = known.stack, known.row
    if stack.data is None:
        reason = 'there is no such LV'
    elif stack.unreadable:
        reason = stack.unreadable
    elif known.rivals:
        reason = 'several volumes claim it'
    elif not (stack.tags.lent or stack.tags.snaps):
        reason = 'it is lent to nobody, and no snapshot'
    elif row and not (known.home or row.unreadable or row.deleted
                      or known.foreign(row)) and (
            row.generation < stack.tags.generation):
        reason = ('it may be newer than the volume: the database may have '
                  'gone back in time')
    else:
        reason = service.wrong_database
    if reason:
        raise _refusal(service, stack.lv, reason)
    needed: dict[_Tag, str] = {
        tag: _why_needed(service, known, tag) for tag in stack.tags.lent}
    needed |= {tag: _why_pinned(service, known, tag)
               for tag in stack.tags.snaps}
    lost = tuple(tag for tag, why in needed.items() if not why)
    if not lost:
        raise _refusal(service, stack.lv, '; '.join(needed.values()))
    return lost


def _why_needed(service: Service, known: observed.Facts,
                tag: lv_tags.LoanTag) -> str:
    """Why a loan is not ended whatever an operator says; empty if it may."""
    row, snapshot = known.row_of(tag.volume), _snapshot(known, tag)
    if tag.local:
        return f'{tag.borrower} is on this node, which knows what it needs'
    if snapshot and not snapshot.deleted and (
            snapshot.unreadable or snapshot.offer == tag.borrower):
        return snapshot.unreadable or (
            f'snapshot {snapshot.id} moves to {tag.borrower}: take that back '
            f'first (cinder-dmclone move-snapshot {snapshot.id} '
            f'{service.node} --yes)')
    if row and row.unreadable:
        return row.unreadable
    if row and not row.deleted and not loans.elsewhere(known, row):
        if row.offer == tag.borrower:
            return (f'volume {row.id} is offered to {tag.borrower}, until its '
                    'node takes that back')
        if row.node == tag.node:
            # Perhaps in a later LV there, which borrows from the borrower.
            return (f'volume {row.id} is {row.owner}: take it back '
                    '("cinder-dmclone recover"), or delete it first')
        if row.owner == known.here and tag in loans.to_lost_owner(
                known.stack, row):
            # The tag is all that tells the node to be the volume again.
            return (f'volume {row.id} was taken back from {tag.borrower}, and '
                    'the driver itself ends that')
    if known.stack.sessions_of(names.loan(known.stack.lv, tag.lv)):
        return f'{tag.node} is logged in to this node, and reads it'
    return recovery.comes_back(service.world, tag.borrower)


def _why_pinned(service: Service, known: observed.Facts,
                tag: lv_tags.SnapTag) -> str:
    """Why a snapshot is not ended whatever an operator says."""
    row, stack = known.snapshots.get(tag.snapshot), known.stack
    if known.row and known.row.unreadable:
        return known.row.unreadable
    if known.row and known.home and (
            known.row.generation < stack.tags.generation):
        return ('the database has gone back in time, and may have known '
                f'snapshot {tag.snapshot} before')
    own = stack.tags.own
    if not (known.home or stack.tags.past or own and any(
            loan.volume == own.volume for loan in stack.tags.lent)):
        # Without the database it would be taken for the volume.
        return ('where its volume went is not known: if nobody misses it, '
                '"cinder-dmclone forget"')
    if row is None:
        return ''
    if row.unreadable:
        return row.unreadable
    if row.deleted or row.at is None:
        return (f'the driver itself knows what is to become of snapshot '
                f'{tag.snapshot}, which is {row.status}')
    if row.at == known.here:
        return f'it is snapshot {tag.snapshot}, as its row says'
    return _why_not_there(service, tag, row.at)


def _why_not_there(service: Service, tag: lv_tags.SnapTag,
                   place: Location) -> str:
    """Why a snapshot may not be what its row says; empty if that is there."""
    try:
        shown = (questions.show(service.host, place.lv)
                 if place.node == service.node
                 else service.world.peers.ask(place.node,
                                              messages.Show(place.lv)))
    except (exceptions.PeerUnreachable, exceptions.PeerRefused) as error:
        return error.msg.rstrip('.')
    if shown.state is not messages.LvState.MISSING:
        return ''
    return (f'its row says that snapshot {tag.snapshot} is {place}, which is '
            'not there: if it is this LV, "cinder-dmclone adopt"')


def _snapshot(known: observed.Facts,
              tag: lv_tags.LoanTag) -> SnapshotRow | None:
    """That which was to move to the borrower, if one was."""
    return known.snapshots.get(SnapshotId(tag.volume))


def _went_on(known: observed.Facts, tag: lv_tags.LoanTag
             ) -> lv_tags.PastTag | None:
    """What keeps an LV from being taken for the volume that has left it."""
    own, row = known.stack.tags.own, known.row
    if known.home or own is None:
        return None
    if tag.volume == own.volume:
        return lv_tags.PastTag(tag.generation, tag.volume, tag.node, tag.lv)
    return old_copy.bar(known, row) if row and not row.unreadable else None


def _told(service: Service, known: observed.Facts,
          lent: typing.Sequence[lv_tags.LoanTag],
          snaps: typing.Sequence[lv_tags.SnapTag]) -> typing.Iterator[str]:
    """What is ended, a sentence each."""
    name = f'LV {names.data_lv(known.stack.lv)} on {service.node}'
    if lent:
        yield (f'{name} is lent no more to '
               + ' and '.join(str(tag.borrower) for tag in lent)
               + ', which must be off, and stay off.')
    for tag in snaps:
        row = known.snapshots.get(tag.snapshot)
        why = (f'which is {row.at}' if row
               else 'of which the database knows nothing')
        yield f'{name} is no more snapshot {tag.snapshot}, {why}.'


def _then(known: observed.Facts) -> str:
    """What becomes of the LV."""
    if known.home:
        return f'It stays volume {known.stack.volume}.'
    if known.row is None:
        return ('The database knows nothing of it: it stays until it is '
                'forgotten ("cinder-dmclone forget").')
    return ('When nobody else needs it, it is deleted if it is known where '
            'the volume went from it, and reported if not.')


def _given_up(known: observed.Facts, tag: lv_tags.LoanTag) -> str:
    row = known.row
    if known.home and row and tag.volume == row.id and (
            tag.generation > row.generation):
        return (f'what {tag.borrower} may have of volume {tag.volume} that is '
                'newer than this: the database knows nothing of it')
    what = 'snapshot' if _snapshot(known, tag) else 'volume'
    return (f'what {tag.borrower} has not copied of {what} {tag.volume}, for '
            'itself and for all that hydrates from it')


def _refusal(service: Service, lv: LvUuid,
             reason: str) -> exceptions.NotReleased:
    return exceptions.NotReleased(lv=lv, node=service.node, reason=reason)
