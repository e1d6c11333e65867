# SPDX-License-Identifier: Apache-2.0
"""The map in ``cinder_dmclone`` is what the imports say."""

from __future__ import annotations

import ast
import pathlib
import re
import typing
import unittest

import cinder_dmclone

PACKAGE = 'cinder_dmclone'
HOUSE = pathlib.Path(cinder_dmclone.__file__).parent
ROOM = re.compile(r'^ {4}(\d) (\w+) +\S', re.MULTILINE)

# What builds devices works without a control plane: at boot there is none.
BARE = ('host', 'ports', 'stack')
CONTROL_PLANE = ('database', 'locks', 'peers', 'world')
# Installed where Nova is, and not its Cinder.
ABROAD = 'nova'


def floors() -> dict[str, int]:
    """The floor of each room, by the map."""
    return {room: int(floor) for floor, room in
            ROOM.findall(cinder_dmclone.__doc__)}


def modules() -> dict[str, pathlib.Path]:
    """Every module of the package by its name below it."""
    found = {}
    for path in HOUSE.rglob('*.py'):
        parts = path.relative_to(HOUSE).with_suffix('').parts
        name = '.'.join(parts).removesuffix('__init__').rstrip('.')
        if name:
            found[name] = path
    return found


def imports() -> dict[str, set[str]]:
    """What each module imports, for its type hints too."""
    paths = modules()
    return {name: set(_imported(path, paths)) - {name}
            for name, path in paths.items()}


def _imported(path: pathlib.Path,
              known: typing.Container[str]) -> typing.Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            wanted = [f'{node.module}.{alias.name}' for alias in node.names]
        else:
            continue
        for name in wanted:
            below = name.removeprefix(PACKAGE + '.')
            if below == name:
                continue
            # ``from module import Name`` names what is in a module.
            yield below if below in known else below.rpartition('.')[0]


class LayersTest(unittest.TestCase):

    def test_every_room_is_on_the_map(self) -> None:
        self.assertEqual({name.partition('.')[0] for name in modules()},
                         set(floors()))

    def test_nobody_imports_from_above(self) -> None:
        floor = floors()
        up = [f'{name} imports {other}'
              for name, others in imports().items() for other in others
              if floor[name.partition('.')[0]] < floor[
                  other.partition('.')[0]]]
        self.assertEqual([], up)

    def test_there_is_no_circle(self) -> None:
        left = imports()
        while free := {name for name, others in left.items()
                       if not others & left.keys()}:
            left = {name: others for name, others in left.items()
                    if name not in free}
        self.assertEqual({}, left)

    def test_devices_need_no_control_plane(self) -> None:
        found = [f'{name} imports {other}'
                 for name, others in imports().items() for other in others
                 if name.partition('.')[0] in BARE
                 and other.partition('.')[0] in CONTROL_PLANE]
        self.assertEqual([], found)

    def test_what_nova_loads_shares_nothing_with_the_rest(self) -> None:
        found = [f'{name} imports {other}'
                 for name, others in imports().items() for other in others
                 if (name.partition('.')[0] == ABROAD)
                 != (other.partition('.')[0] == ABROAD)]
        self.assertEqual([], found)
