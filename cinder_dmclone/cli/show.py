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


def run(command: str, worlds: typing.Sequence[World], as_json: bool) -> int:
    """Show what there is; a backend that fails does not hide the others.

    :returns: 0, 1 if anything needs a look, 2 if a backend cannot be shown
    """
    found: list[dict[str, typing.Any]] = []
    code = 0
    for world in worlds:
        node = world.settings.node
        try:
            each, worst = _READ[command](world)
        except Exception as error:
            why = activation.said(error)
            print(f'{node}: {why}', file=sys.stderr)
            found.append({'node': node, 'error': why})
            code = 2
            continue
        code = max(code, worst)
        found.append({'node': node, _CALLED[command]: [
            value for _, value in each]})
        if not as_json:
            print(''.join(f'{line}\n' for line, _ in each), end='')
    if as_json:
        print(json.dumps({'format': FORMAT, 'backends': found}, indent=2))
    return code


_CALLED = {'list': 'volumes', 'status': 'lvs'}
_Found = list[tuple[str, dict[str, typing.Any]]]


def _status(world: World) -> tuple[_Found, int]:
    seen = status.look(world)
    return ([(f'{each.stack.lv}  {status.describe(each)}',
              status.as_json(each)) for each in seen],
            int(any(each.problem for each in seen)))


def _list(world: World) -> tuple[_Found, int]:
    rows = moves.look(world)
    return ([(f'{row.id}  {row.node}  {moves.describe(row)}',
              moves.as_json(row)) for row in rows],
            int(any(row.unreadable for row in rows)))


_READ: dict[str, typing.Callable[[World], tuple[_Found, int]]] = {
    'list': _list, 'status': _status}
