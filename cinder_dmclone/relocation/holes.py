# SPDX-License-Identifier: Apache-2.0
"""Holes: what was never written of a thin LV, or discarded, is not copied.

A copy is told of the holes of its lender before it is read or written, and
before it hydrates. The kernel takes them for copied: nothing of them crosses
the network, and they take nothing of the copy's pool, which shows zeros there
as the lender does.

This holds only if the lender is not written from the moment on at which its
holes are found until the copy is the volume, or is given up. So it does not
for a live migration, whose server writes the lender all the while.

Where holes are not known, everything is copied, as between LVs that are not
thin.
"""

from __future__ import annotations

import itertools
import typing

from oslo_log import log as logging

from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.host.thin_map import Range
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import inspect
from cinder_dmclone.units import Bytes
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)

# A message holds so many at most; smaller ones are left out.
MOST = 16384
_SMALLEST = 1 << 16


def find(world: World, lv: LvUuid, lent: messages.Lent) -> list[Range]:
    """What a copy need not read of its lender, in order.

    Nobody writes the lender from now on, until the copy is the volume or is
    given up.

    :param lv: the copy, which is about to be made
    """
    host, copy = world.host, Location(world.settings.node, lv)
    try:
        # A pool that did not zero would show what others have left.
        if not host.group.pool or not host.group.usage().zeroes:
            return []
        if lent.tag.local:
            found = here(host, lent.lender.lv, copy)
        else:
            told = world.peers.ask(
                lent.lender.node, messages.FindHoles(lent.lender.lv, copy))
            found = unpack(told)
    except (exceptions.DMCloneException, ValueError) as error:
        LOG.info('All of LV %(lv)s is copied: %(error)s',
                 {'lv': lv, 'error': error})
        return []
    return [(first, min(end, lent.size)) for first, end in found
            if first < lent.size]


def here(host: Host, lv: LvUuid, copy: Location) -> list[Range]:
    """The holes of an LV of this node, the largest ones if there are many.

    :param copy: whom it is lent to
    :raises PeerRefused: if they are not known, or it may be written
    """
    stack = inspect.refresh(host, lv)
    reason = ''
    if not stack.thin:
        reason = f'LV {lv} is not thin'
    elif stack.tags.source or stack.assembled:
        reason = f'LV {lv} hydrates itself'
    elif not stack.loans_to(copy) or stack.of_kind(*names.WRITERS):
        reason = f'LV {lv} may be written'
    if stack.data is None or reason:
        raise _refused(host, reason)
    try:
        data = host.group.allocated(stack.data, deadlines.HOLES_SECONDS)
    except (exceptions.DMCloneException, ValueError) as error:
        raise _refused(host, error) from error
    return largest(between(data, stack.data.size))


def _refused(host: Host, reason: object) -> exceptions.PeerRefused:
    return exceptions.PeerRefused(node=host.settings.node,
                                  what='to tell holes', reason=reason)


def between(data: typing.Iterable[Range], size: Bytes) -> list[Range]:
    """What parts of a device leave."""
    edges = [Bytes(0), *itertools.chain(*data), size]
    return [(first, end) for first, end in zip(edges[::2], edges[1::2])
            if first < end]


def largest(holes: list[Range]) -> list[Range]:
    """Those of at least some size, so that there are ``MOST`` at most."""
    least = _SMALLEST
    while len(holes) > MOST:
        holes = [(first, end) for first, end in holes if end - first >= least]
        least *= 2
    return holes


def pack(holes: typing.Iterable[Range]) -> list[int]:
    """Holes for a message: how far each begins from the end of the one
    before, and how long it is, in bytes.
    """
    found, at = [], 0
    for first, end in holes:
        found += [int(first) - at, int(end) - int(first)]
        at = int(end)
    return found


def unpack(lengths: typing.Iterable[int]) -> list[Range]:
    """What ``pack`` was given.

    :raises ValueError: if that makes no sense
    """
    edges = list(itertools.accumulate(map(Bytes, lengths)))
    if len(edges) % 2:
        raise ValueError('a hole has no end')
    return list(zip(edges[::2], edges[1::2]))
