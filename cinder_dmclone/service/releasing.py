# SPDX-License-Identifier: Apache-2.0
"""A loan whose borrower will never say that it is done: its node is lost."""

from __future__ import annotations

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import loans
from cinder_dmclone.reconcile import observed
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import recovery
from cinder_dmclone.service.base import Service
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags


def release(service: Service, request: messages.Release) -> messages.Plan:
    """Lend an LV of this node no more to those who are lost.

    The reconciler then decides about it as about any other.

    :raises NotReleased: if all that it was lent to may need it, or if an
        operator has agreed to something else
    """
    volume = inspect.refresh(service.host, request.lv).volume
    with service.locked(volume, messages.Lock.SHORT):
        _, known = service.loop.judge(request.lv, volume)
        lost = _lost(service, known)
        plan = messages.Plan(
            does=f'LV {names.data_lv(request.lv)} on {service.node} is lent '
            'no more to ' + ' and '.join(str(tag.borrower) for tag in lost)
            + ', which must be off, and stay off. ' + _then(known),
            gives_up=[_given_up(known, tag) for tag in lost],
            record=' '.join(map(lv_tags.print_tag, lost)))
        if request.record:
            if request.record != plan.record:
                raise _refusal(service, request.lv, 'it is not as it was when '
                               'that was agreed to')
            for tag in lost:
                # One that is past takes the place of one before it.
                stack = inspect.refresh(service.host, request.lv)
                lender.revoke_loan(service.world, stack, tag,
                                   _went_on(known, tag))
    service.loop.enqueue(request.lv)
    return plan


def _lost(service: Service, known: observed.Facts
          ) -> tuple[lv_tags.LoanTag, ...]:
    """The loans that may be ended.

    :raises NotReleased: if there is none
    """
    stack, row = known.stack, known.row
    reason = ''
    if stack.data is None:
        reason = 'there is no such LV'
    elif stack.unreadable:
        reason = stack.unreadable
    elif known.rivals:
        reason = 'several volumes claim it'
    elif not stack.tags.lent:
        reason = 'it is lent to nobody'
    elif row and not known.home and not row.unreadable and (
            row.generation < stack.tags.generation):
        reason = ('it may be newer than the volume: the database may have '
                  'gone back in time')
    elif not service.world.peers.is_up(service.node):
        # An empty one knows nothing of any borrower.
        reason = ('the database does not know that this node works: it may be '
                  'the wrong one')
    if reason:
        raise _refusal(service, stack.lv, reason)
    needed = {tag: _why_needed(service, known, tag)
              for tag in stack.tags.lent}
    lost = tuple(tag for tag, why in needed.items() if not why)
    if not lost:
        raise _refusal(service, stack.lv, '; '.join(needed.values()))
    return lost


def _why_needed(service: Service, known: observed.Facts,
                tag: lv_tags.LoanTag) -> str:
    """Why a loan is not ended whatever an operator says; empty if it may."""
    row = known.row_of(tag.volume)
    if tag.local:
        return f'{tag.borrower} is on this node, which knows what it needs'
    if row and row.unreadable:
        return row.unreadable
    if row and not row.deleted and not loans.elsewhere(known, row):
        if row.offer == tag.borrower:
            return (f'volume {row.id} is offered to {tag.borrower}, until its '
                    'node takes that back')
        if row.owner == tag.borrower:
            return (f'volume {row.id} is {tag.borrower}: take it back '
                    '("cinder-dmclone recover"), or delete it first')
    exports = known.stack.exports_of(names.loan(known.stack.lv, tag.lv))
    if any(export.sessions for export in exports.values()):
        return f'{tag.node} is logged in to this node, and reads it'
    return recovery.comes_back(service.world, tag.borrower)


def _went_on(known: observed.Facts, tag: lv_tags.LoanTag
             ) -> lv_tags.PastTag | None:
    """What keeps an LV from being taken for the volume that has left it."""
    own = known.stack.tags.own
    if known.home or own is None or tag.volume != own.volume:
        return None
    return lv_tags.PastTag(tag.generation, tag.volume, tag.node, tag.lv)


def _then(known: observed.Facts) -> str:
    """What becomes of the LV."""
    if known.home:
        return f'It stays volume {known.stack.volume}.'
    if known.row is None:
        return ('The database knows nothing of it: it stays until it is '
                'forgotten ("cinder-dmclone forget").')
    return 'It is deleted when nobody else needs it.'


def _given_up(known: observed.Facts, tag: lv_tags.LoanTag) -> str:
    row = known.row
    if known.home and row and tag.volume == row.id and (
            tag.generation > row.generation):
        return (f'what {tag.borrower} may have of volume {tag.volume} that is '
                'newer than this: the database knows nothing of it')
    return (f'what {tag.borrower} has not copied of volume {tag.volume}, for '
            'itself and for all that hydrates from it')


def _refusal(service: Service, lv: LvUuid,
             reason: str) -> exceptions.NotReleased:
    return exceptions.NotReleased(lv=lv, node=service.node, reason=reason)
