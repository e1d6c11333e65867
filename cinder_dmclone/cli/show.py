# SPDX-License-Identifier: Apache-2.0
"""The commands that only show something: to people, or to programs."""

from __future__ import annotations

import json
import sys
import typing

from cinder_dmclone.cli import moves
from cinder_dmclone.cli import status
from cinder_dmclone.reconcile import activation
from cinder_dmclone.world import World

# Grows when a program that reads it would have to be changed.
FORMAT = 1


def run(command: str, worlds: typing.Sequence[World], as_json: bool,
        unread: typing.Mapping[str, str]) -> int:
    """Show what there is; a backend that fails does not hide the others.

    :param unread: backends that cannot be shown, and why, as was told
    :returns: 0, 1 if anything needs a look, 2 if a backend cannot be shown
    """
    found: list[dict[str, typing.Any]] = [
        {'node': node, 'error': why} for node, why in unread.items()]
    code = 2 if unread else 0
    for world in worlds:
        node = world.settings.node
        try:
            lines, shown, worst = _READ[command](world)
        except Exception as error:
            why = activation.said(error)
            print(f'{node}: {why}', file=sys.stderr)
            found.append({'node': node, 'error': why})
            code = 2
            continue
        code = max(code, worst)
        found.append({'node': node, **shown})
        if not as_json:
            print(''.join(f'{line}\n' for line in lines), end='')
    if as_json:
        print(json.dumps({'format': FORMAT, 'backends': found}, indent=2))
    return code


# For people, for programs by the name of a field, and the exit status.
_Found = tuple[list[str], dict[str, list[dict[str, typing.Any]]], int]


def _status(world: World) -> _Found:
    seen = status.look(world)
    return ([f'{each.stack.lv}  {status.describe(each)}' for each in seen],
            {'lvs': [status.as_json(each) for each in seen]},
            int(any(each.problem for each in seen)))


def _list(world: World) -> _Found:
    rows, snapshots = moves.look(world), moves.snapshots(world)
    return ([*(f'{row.id}  {row.node}  {moves.describe(row)}'
               for row in rows), *map(moves.line, snapshots)],
            {'volumes': [moves.as_json(row) for row in rows],
             'snapshots': [moves.snapshot_as_json(row) for row in snapshots]},
            int(any(row.unreadable for row in (*rows, *snapshots))))


_READ: dict[str, typing.Callable[[World], _Found]] = {
    'list': _list, 'status': _status}
