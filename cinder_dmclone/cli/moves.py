# SPDX-License-Identifier: Apache-2.0
"""What of the cloud is on its way, as the database has it."""

from __future__ import annotations

import typing

from cinder_dmclone.database import rows
from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone.location import foreign
from cinder_dmclone.location import NodeName
from cinder_dmclone.world import World


def look(world: World) -> list[rows.Row]:
    """The rows of all volumes of this backend that hydrate or are to move.

    :raises DatabaseSilent: if the database does not answer
    """
    return sorted((row for row in world.rows.moving()
                   if not foreign(row.node, world.settings.node)),
                  key=lambda row: (row.node, row.id))


def snapshots(world: World) -> list[SnapshotRow]:
    """The rows of all snapshots of this backend that are to move.

    Those that cannot be read may be of another one, too.

    :raises DatabaseSilent: if the database does not answer
    """
    return sorted((row for row in world.snapshots.moving()
                   if not foreign(_node(row), world.settings.node)),
                  key=lambda row: (_node(row), row.id))


def _node(row: SnapshotRow) -> NodeName:
    """Where a snapshot is; empty if that cannot be read."""
    at = None if row.unreadable else row.at
    return at.node if at else NodeName('')


def describe(row: rows.Row) -> str:
    """One volume in words: where it is, what it waits for."""
    words = [row.status]
    if row.unreadable:
        words.append(f'UNREADABLE: {row.unreadable}')
        return ', '.join(words)
    if row.source:
        words.append(f'hydrates from {row.source}')
    if row.offer:
        words.append(f'{_OFFERED[_next(row)]} {row.offer}')
    return ', '.join(words)


_OFFERED = {'new': 'is made as', 'cut': 'goes on in', 'move': 'moves to',
            'revert': 'is reverted as'}


def _next(row: rows.Row) -> str:
    """What its offer is for."""
    if row.status in rows.BEING_MADE:
        return 'new'
    if row.status == rows.REVERTING:
        return 'revert'
    assert row.offer is not None
    return 'cut' if row.offer.node == row.node else 'move'


def line(row: SnapshotRow) -> str:
    """One snapshot in words: where it is, and where it goes."""
    words = [f'snapshot of volume {row.volume}', row.status,
             f'UNREADABLE: {row.unreadable}' if row.unreadable
             else f'{_OFFERED["move"]} {row.offer}']
    return f'{row.id}  {_node(row) or "-"}  {", ".join(words)}'


def snapshot_as_json(row: SnapshotRow) -> dict[str, typing.Any]:
    """One snapshot as the page of the command has it."""
    at = None if row.unreadable else row.at
    return {
        'snapshot': row.id,
        'volume': row.volume,
        'node': at.node if at else None,
        'lv': at.lv if at else None,
        'status': row.status,
        'offer': None if row.unreadable else str(row.offer),
        'problem': row.unreadable,
    }


def as_json(row: rows.Row) -> dict[str, typing.Any]:
    """One volume as the page of the command has it."""
    readable = not row.unreadable
    return {
        'volume': row.id,
        'node': row.node,
        'lv': row.lv,
        'status': row.status,
        'generation': row.generation if readable else None,
        'lender': str(row.source) if readable and row.source else None,
        'offer': str(row.offer) if readable and row.offer else None,
        'offered_for': _next(row) if readable and row.offer else None,
        'problem': row.unreadable,
    }
