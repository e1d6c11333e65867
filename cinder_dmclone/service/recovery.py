# SPDX-License-Identifier: Apache-2.0
"""What an operator decides when a node is lost: told first, then done."""

from __future__ import annotations

import functools
import typing

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.host.thin_map import Range
from cinder_dmclone.location import Location
from cinder_dmclone.peers import messages
from cinder_dmclone.relocation import recovery
from cinder_dmclone.service.base import Service
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags

# So many ranges are told one by one; there may be millions.
RANGES = 64


def take_back(service: Service, request: messages.TakeBack) -> messages.Plan:
    """Make what this node lent the volume again; its owner is lost.

    :raises NotTakenBack: if the owner may not be lost, if this node has
        nothing to take back, or if the operator has agreed to something else
    """
    world, row = service.world, service.row(request.volume)
    stack, tag = recovery.find(world, row)
    plan = messages.Plan(
        does=f'Volume {row.id} becomes '
        f'{Location(service.node, stack.lv)} again, as it was when it moved '
        f'to {tag.borrower} (generation {tag.generation}). Make sure that '
        f'{row.node} is off, and stays off.',
        gives_up=list(_given_up(service, row, tag)),
        record=f'{row.owner} {row.provider_id} {row.size}')
    if not plan.agreed(request.record, functools.partial(
            recovery.refusal, world, row)):
        return plan
    try:
        recovery.take_back(world, row, stack)
    finally:
        service.loop.enqueue(stack.lv)
    return plan


def _given_up(service: Service, row: rows.Row,
              tag: lv_tags.LoanTag) -> list[str]:
    """What was on the lost node alone, a line each.

    :param tag: the loan with which the volume moved there
    """
    lost = [f'all that was written to it since, on {row.node}']
    if tag.generation < row.generation:
        lost.append('what another node has lent it later, if any has: ask '
                    f'each that has lent to {row.node}, and take the highest '
                    f'generation up to {row.generation}')
    if row.offer:
        lost.append(f'the copy that is prepared for it, {row.offer}, and what '
                    'a server there waits to write')
    return lost + [
        f'its snapshot {found.id}, which is {found.at}'
        for found in service.world.snapshots.of(row.id)
        if not found.deleted and not found.unreadable
        and found.at and found.at.node == row.node]


def give_up(service: Service, row: rows.Row,
            request: messages.GiveUp) -> messages.Plan:
    """Let reads of what has not arrived of a volume of this node fail.

    That is told again of one of which it was given up before.

    :raises NotGivenUp: if its lender may come back, if others need it too, or
        if the operator has agreed to something else
    :raises CopyUnusable: if what has arrived cannot be told
    """
    world, host = service.world, service.host
    service.loop.settle(row)
    stack = inspect.refresh(host, row.lv)
    if not stack.tags.lost:
        reason = recovery.why_kept(world, row, stack)
        if reason:
            raise _refusal(service, row, reason)
        stack = inspect.refresh(host, row.lv)
    verb = 'fail already' if stack.tags.lost else 'fail from now on'
    plan = messages.Plan(
        does=f'Reads of what has not arrived of volume {row.id} on '
        f'{service.node} {verb}: its lender {row.source} is lost.',
        gives_up=_told(clones.missing(host, stack)),
        record=f'{row.owner} {row.provider_id}')
    if not stack.tags.lost and plan.agreed(request.record, functools.partial(
            _refusal, service, row)):
        recovery.give_up(world, row, stack)
    service.loop.enqueue(row.lv)
    return plan


def _told(missing: typing.Iterable[Range]) -> list[str]:
    """How much is missing, and where the first of it is, a line each."""
    first: list[str] = []
    count = size = 0
    for begin, end in missing:
        count, size = count + 1, size + end - begin
        if count <= RANGES:
            first.append(f'bytes {begin} to {end - 1}')
    rest = count - len(first)
    return [f'{size} bytes in {count} ranges', *first,
            *([f'{rest} ranges behind these'] if rest else [])]


def _refusal(service: Service, row: rows.Row,
             reason: str) -> exceptions.NotGivenUp:
    return exceptions.NotGivenUp(volume=row.id, node=service.node,
                                 reason=reason)
