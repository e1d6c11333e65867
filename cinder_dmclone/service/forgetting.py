# SPDX-License-Identifier: Apache-2.0
"""An LV that the driver reports and keeps, and that nobody misses."""

from __future__ import annotations

import functools

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import pins
from cinder_dmclone.reconcile import questions
from cinder_dmclone.service.base import Service
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import tagging


def forget(service: Service, request: messages.Forget) -> messages.Plan:
    """Have an LV of this node deleted that is kept only because of a doubt.

    A tag says so durably; the reconciler erases it like any other.

    :raises NotForgotten: if it is no such LV, or if an operator has agreed to
        something else
    """
    volume = inspect.refresh(service.host, request.lv).volume
    answers = questions.find_out(service.world, functools.partial(
        service.loop.judge, request.lv, volume))
    with service.locked(volume, messages.Lock.SHORT):
        decision, known = service.loop.judge(request.lv, volume, answers)
        forgotten = known.stack.tags.forgotten
        reason = ('' if forgotten else _why_not(decision, known)
                  ) or service.wrong_database
        if reason:
            raise _refusal(service, request.lv, reason)
        assert known.stack.data is not None
        tags = lv_tags.ours(known.stack.data.tags)
        plan = messages.Plan(
            does=f'LV {names.data_lv(request.lv)} on {service.node} is '
            f'deleted. It was kept because {decision.why}.',
            gives_up=[f'the {known.stack.data.size} bytes that it has',
                      *_told_wrongly(known),
                      *(f'what it says of itself: {tag}' for tag in tags)],
            record=f'{decision.why} {tags}')
        if not forgotten and plan.agreed(request.record, functools.partial(
                _refusal, service, request.lv)):
            tagging.write(service.host, request.lv,
                          add=[lv_tags.ForgottenTag(volume)])
    service.loop.enqueue(request.lv)
    return plan


def _why_not(decision: Decision, known: observed.Facts) -> str:
    """Why an LV is kept whatever an operator says; empty if it is not."""
    stack, row = known.stack, known.row
    if stack.data is None:
        return 'there is no such LV'
    if row and not row.deleted and row.unreadable and not known.rivals:
        return row.unreadable
    if known.rivals or row and not row.deleted and known.here in row.places:
        return f'the row of volume {row.id} names it' if row else (
            'several volumes claim it')
    if decision.ask:
        asked = ', '.join(sorted({place.node for place in decision.ask}))
        return f'{asked} has to be asked first, and does not answer'
    if decision.step is not Verdict.REPORT:
        return ('the driver itself knows what is to become of it '
                f'({decision.why or decision.step.value})')
    if stack.unreadable:
        return stack.unreadable
    if row and row.unreadable:
        return row.unreadable
    if known.may_be_newer:
        return f'it may be newer than the volume: {decision.why}'
    if stack.tags.lent or pins.any_known(known):
        return f'others may need it: {decision.why}'
    held = [name for name in stack.devices if stack.is_held(name)
            and name.kind in names.CONSUMERS]
    return f'{held[0]} is in use' if held else ''


def _told_wrongly(known: observed.Facts) -> list[str]:
    """What is lost if the database is the wrong one, a line each."""
    row, tags = known.row, known.stack.tags
    lines = [f'snapshot {tag.snapshot} of volume {tag.volume}, of which the '
             'database knows nothing' for tag in tags.snaps
             if tag.snapshot not in known.snapshots]
    if row and row.deleted and row.generation < tags.generation:
        lines.append(
            f'what volume {row.id} was at generation {tags.generation}: it '
            f'was deleted at generation {row.generation}, by a database that '
            'had gone back in time')
    return lines


def _refusal(service: Service, lv: LvUuid,
             reason: str) -> exceptions.NotForgotten:
    return exceptions.NotForgotten(lv=lv, node=service.node, reason=reason)
