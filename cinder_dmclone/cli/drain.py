# SPDX-License-Identifier: Apache-2.0
"""``cinder-dmclone drain``: a node is taken out of service.

Its volumes that nobody uses move by the protocol by which all volumes do, one
request to its cinder-volume for each. Nothing but rows and disks says what has
moved and what has not: whoever stops this runs it again.
"""

from __future__ import annotations

import argparse
import re
import typing

from cinder_dmclone.cli import decisions
from cinder_dmclone.cli.errors import fail
from cinder_dmclone.cli.errors import UNCHANGED
from cinder_dmclone.cli import remains
from cinder_dmclone.cli.remains import Fate
from cinder_dmclone.cli.remains import Item
from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.snapshot_messages import MoveSnapshot
from cinder_dmclone.world import World

# Between two looks.
SECONDS = 5.0
# How often a volume is tried that no node has taken in; and how often one for
# which LVM had no time. A removal takes up to two minutes, and what has moved
# away is removed here one after the other.
TRIES = 3
BUSY_TRIES = 12
# That one of LVM's commands did not end (``exceptions.CommandTimeout``), which
# mostly waits for another that changes the group.
_LATE = re.compile(r'\bCommand lvm .*? did not end within ')
_AGAIN = 'run it again, what has moved is not here any more'


def run(arguments: argparse.Namespace, worlds: typing.Sequence[World]) -> int:
    """Show what would move and what stays; with ``--yes`` move it and wait.

    :returns: 0, 1 if something stays, 2 if it could not be done or told
    """
    try:
        codes = [_drain(world, arguments) for world in worlds]
    except KeyboardInterrupt:
        return fail('stopped' + (f'; {_AGAIN}' if arguments.yes
                                 else f'. {UNCHANGED}'))
    if not arguments.yes and not all(codes):
        print(f'{UNCHANGED} With --yes it is done.')
    return max(codes)


def _drain(world: World, arguments: argparse.Namespace) -> int:
    """One backend; what fails does not keep the command from the others."""
    node = world.settings.node
    try:
        decisions.require_up(world, node)
        items = remains.look(world)
    except decisions.FAILURES as error:
        return fail(f'{decisions.said(error)}. Nothing was changed on '
                    f'{node}.')
    _tell_plan(world, items, arguments.parallel)
    if not arguments.yes:
        return 0
    drain = Drain(world, _movable(items), arguments.parallel)
    try:
        left = drain.run()
    except decisions.FAILURES as error:
        return fail(f'{decisions.said(error)}; {_AGAIN}')
    _tell_end(node, left)
    return int(bool(left))


def _movable(items: typing.Iterable[Item]) -> set[str]:
    """The volumes and snapshots that move, now or when they have hydrated."""
    return {item.moves for item in items
            if item.moves and item.fate is not Fate.STAYS}


def _tell_plan(world: World, items: list[Item], parallel: int) -> None:
    node = world.settings.node
    volumes = _movable(item for item in items if not item.snapshot)
    snapshots = _movable(item for item in items if item.snapshot)
    print(f'{node}: {len(volumes)} volumes and {len(snapshots)} snapshots '
          f'move to other nodes; at most {parallel} are read from here at a '
          'time.')
    for item in items:
        if item.fate is Fate.MOVES:
            print(f'moves: {item.what}, {item.size} GiB')
        else:
            print(_line(item))
    if world.peers.is_enabled(node):
        print(f'note: new volumes may be made on {node} meanwhile: openstack '
              f'volume service set --disable {node} cinder-volume')


def _line(item: Item) -> str:
    verb = 'waits' if item.fate is Fate.WAITS else 'stays'
    return f'{verb}: {item.what}: {item.why}'


def _tell_end(node: NodeName, left: list[Item]) -> None:
    print(*map(_line, left), sep='\n', end='\n' * bool(left))
    if any(item.reader for item in left):
        print(f'{node} has to stay on: other nodes need what it has.')
    elif left:
        print(f'No other node needs {node}. What stays is away while it is '
              'off.')
    else:
        print(f'{node} has nothing any more: it may be switched off, and '
              'removed.')


class Drain:
    """Moves volumes of a node until there is nothing to wait for."""

    def __init__(self, world: World, planned: set[str],
                 parallel: int) -> None:
        """
        :param planned: the volumes and snapshots to be moved
        :param parallel: how many of all LVs here others read at a time,
            not counting those who cannot
        """
        self._world = world
        self._planned = planned
        self._parallel = parallel
        self._refused: dict[str, list[str]] = {}
        self._told: set[str] = set()
        self._moved = 0

    @property
    def node(self) -> NodeName:
        """The node that is drained."""
        return self._world.settings.node

    def run(self) -> list[Item]:
        """Move, and wait; what stays.

        :raises decisions.FAILURES: if that could not be done
        """
        while True:
            decisions.require_up(self._world, self.node)
            items = remains.look(self._world)
            movable = [item for item in items if self._is_movable(item)]
            waiting = [item for item in items if self._is_waited_for(item)]
            if not movable and not waiting:
                return [self._as_it_stays(item) for item in items]
            reading = [item for item in items
                       if item.reader and item.fate is Fate.WAITS]
            for item in movable[:max(self._parallel - len(reading), 0)]:
                self._move(item)
            for item in waiting:
                self._tell(_line(item))
            self._world.clock.sleep(SECONDS)

    def _is_movable(self, item: Item) -> bool:
        if item.fate is not Fate.MOVES or item.moves not in self._planned:
            return False
        said = self._refused.get(item.moves, ())
        busy = sum(map(_is_busy, said))
        return len(said) - busy < TRIES and busy < BUSY_TRIES

    def _is_waited_for(self, item: Item) -> bool:
        return item.fate is Fate.WAITS and (
            item.moves is None or item.moves in self._planned)

    def _as_it_stays(self, item: Item) -> Item:
        """An item with what is known of why it has not moved."""
        if item.fate is not Fate.MOVES or item.moves is None:
            return item
        *_, why = self._refused.get(
            item.moves, ['it was not here, or in use, when this was agreed '
                         'to: run it again'])
        return item.staying(why)

    def _move(self, item: Item) -> None:
        assert item.moves
        try:
            done = self._ask(item)
        except (exceptions.PeerRefused,
                exceptions.PeerUnreachable) as error:
            # It is looked at again: it may have moved all the same.
            self._refused.setdefault(item.moves, []).append(error.msg)
            self._tell(f'{item.what} has not moved yet: {error.msg}')
            return
        self._moved += 1
        print(f'{done} ({self._moved} of {len(self._planned)})', flush=True)

    def _ask(self, item: Item) -> str:
        """Have something moved by cinder-volume; what that has done.

        A volume is elsewhere at once, and hydrates there. A snapshot is when
        all of it has arrived, which is waited for.
        """
        row = item.snapshot
        if row:
            plan = decisions.ask(self._world, self.node, MoveSnapshot(
                row.volume, row.id, NodeName(''), str(row.record)))
            return f'begun: {plan.does}'
        assert item.volume
        peer = decisions.ask(self._world, self.node,
                             messages.Leave(item.volume))
        return f'moved: {item.what} is on {peer}'

    def _tell(self, line: str) -> None:
        """Say something that was not said before."""
        if line not in self._told:
            self._told.add(line)
            print(line, flush=True)


def _is_busy(said: str) -> bool:
    """Whether something failed as LVM had to wait too long.

    :param said: of an error, also of another node: only texts cross the wire
    """
    return _LATE.search(said) is not None
