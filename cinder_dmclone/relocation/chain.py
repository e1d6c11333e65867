# SPDX-License-Identifier: Apache-2.0
"""How many copies of one volume there may be at a time.

A volume that moves on before it has hydrated leaves its copies behind as a
chain, each on a node of its own and as large as the volume. Users cause
relocations, and quotas do not count old copies: the chain has to have an end.
"""

from __future__ import annotations

import typing

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone.peers import messages
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.world import World


def require_short(world: World, row: rows.Row, peer: NodeName) -> None:
    """Let a volume of this node have one more copy, or refuse it.

    Several LVs of one node are one copy: a cut moves nothing. A copy whose
    node does not answer counts, those behind it do not: a volume
    must be able to move on while its lender is away. Back to where it has just
    come from there is always a way, once: Nova leaves a server whose resize
    cannot be reverted in error.

    :param peer: ``host@backend``, where the volume would move to
    :raises CannotRelocate: if it has ``dmclone_max_copies`` already, or if a
        copy could never be complete
    """
    if row.source and inspect.refresh(world.host, row.lv).tags.lost:
        raise exceptions.CannotRelocate(
            volume=row.id, node=world.settings.node, peer=peer,
            reason=f'its lender {row.source} is lost, and what has not '
            'arrived was given up: copy what can be read to another volume')
    most = world.settings.max_copies
    if row.source and row.source.node == peer:
        most += 1
    copies = 1
    for copy in _copies(world, row):
        copies += copy
        if copies >= most:
            raise exceptions.CannotRelocate(
                volume=row.id, node=world.settings.node, peer=peer,
                reason=f'there are {copies} copies of it already, as many as '
                'dmclone_max_copies allows: wait until the hydration has '
                f'ended ({_progress(world, row)})')


def _copies(world: World, row: rows.Row) -> typing.Iterator[bool]:
    """For each LV that the volume may need: whether it is one more copy."""
    seen: set[Location] = set()
    for older in _lenders(world, row):
        at = row.node
        while older and older not in seen:
            seen.add(older)
            yield older.node != at
            at = older.node
            older = _behind(world, older)


def _lenders(world: World, row: rows.Row) -> typing.Iterator[Location | None]:
    """What it hydrates from, and what it did before each revert here."""
    if not row.source:
        return
    yield row.source
    for stack in reverted(world, row):
        yield stack.tags.hydrates_from


def reverted(world: World, row: rows.Row) -> list[Stack]:
    """What a volume of this node was before reverts, and still is here.

    It goes when the volume has hydrated.
    """
    return [stack for stack in inspect.collect(world.host).values()
            if any(tag.volume == row.id and not tag.read
                   for tag in stack.tags.lent)]


def _behind(world: World, copy: Location) -> Location | None:
    """What a copy hydrates from, as far as its node tells."""
    if copy.node == world.settings.node:
        return inspect.refresh(world.host, copy.lv).tags.hydrates_from
    if not world.peers.is_up(copy.node):
        return None
    try:
        shown = world.peers.ask(copy.node, messages.Show(copy.lv))
    except (exceptions.PeerUnreachable, exceptions.PeerRefused):
        return None
    return shown.source


def _progress(world: World, row: rows.Row) -> str:
    clone = inspect.refresh(world.host, row.lv).clone
    if not clone or not clone.total:
        return f'from {row.source}'
    done = 100 * clone.hydrated // clone.total
    return f'{done} % have arrived from {row.source}'
