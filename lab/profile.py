# SPDX-License-Identifier: Apache-2.0
"""tools/bench --statements: what the driver asks of a fleet's database."""
from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lab import fleet, install, ranking, virtualenv
from lab.crew import Crew
from lab.fleet import Fleet, Statement
from lab.ranking import Kind

# How many nodes work at once, each in a process of its own.
ACTORS = (1, 3, 5, 24)
# A node asks so many others, less one, whether they take in what leaves it.
NODES = 6
# Of a node; as many as a node of the fleet has.
VOLUMES = fleet.VOLUMES // fleet.NODES
# Nodes that are drained at once, and sizes of fleets that are restarted.
DRAINED = 10
FLEETS = (100, 300, 1000)
# Kinds of statements that have a line of their own.
_LINES = 8
_NAMES = 'FROM services  WHERE services.id >'
# What the reconciler asked for every decision before it looked for rows by
# the ids in an LV's tags: no index has two of the three.
_BEFORE = (
    'SELECT volumes.id, volumes.host, volumes._name_id, volumes.size, '
    'volumes.status, volumes.provider_id FROM volumes WHERE volumes.id IN '
    "('{0}') OR volumes._name_id IN ('{0}') OR volumes.provider_id LIKE "
    "'%/{0}%'")
_ID = '00000000-0000-4000-8000-000000000000'
# So often in an attachment elsewhere, until the old copy was released.
_DECISIONS = 27


@dataclasses.dataclass(frozen=True)
class Work:
    """What some work of one node or of several costs.

    :ivar names: of the statements, those that read names of services
    :ivar rows: examined
    :ivar most: by one statement
    :ivar messages: between nodes, answers too
    """

    name: str
    statements: int
    names: int
    rows: int
    most: int
    seconds: float
    messages: int

    @classmethod
    def of(cls, about: str, sent: Sequence[Statement],
           messages: int) -> Work:
        return cls(about, len(sent), sum(_NAMES in one.text for one in sent),
                   sum(one.examined for one in sent),
                   max((one.examined for one in sent), default=0),
                   sum(one.seconds for one in sent), messages)

    def times(self, nodes: int, about: str) -> Work:
        """The same of so many nodes, each on its own."""
        return dataclasses.replace(
            self, name=about, statements=self.statements * nodes,
            names=self.names * nodes, rows=self.rows * nodes,
            seconds=self.seconds * nodes, messages=self.messages * nodes)

    def __str__(self) -> str:
        return (f'{self.name:<44}{self.statements:>10}{self.names:>8}'
                f'{self.rows:>10}{self.most:>6}{self.messages:>9}')


_HEADING = (f'{"":<44}{"statements":>10}{"names":>8}{"rows":>10}{"most":>6}'
            f'{"messages":>9}')


@dataclasses.dataclass(frozen=True)
class Profile:
    """All that was measured.

    :ivar works: of single nodes, of ten, and of fleets
    :ivar kinds: by how many actors there were
    :ivar waits: for rows, and their ms, by the same
    :ivar before: one statement of before, as it would be today
    """

    works: list[Work]
    kinds: dict[int, list[Kind]]
    waits: dict[int, tuple[int, int]]
    before: Statement

    def lines(self) -> list[str]:
        """Tables for a person."""
        scan = self.before
        found = ['What work costs', '', _HEADING, *map(str, self.works), '',
                 'Before', '',
                 f'One look for the row of an LV: {scan.examined} rows, '
                 f'{1000 * scan.seconds:.0f} ms; an attachment elsewhere had '
                 f'{_DECISIONS} of them: {_DECISIONS * scan.examined} rows.']
        for actors, kinds in self.kinds.items():
            seconds = sum(kind.seconds for kind in kinds)
            calls = sum(kind.calls for kind in kinds)
            waits, milliseconds = self.waits[actors]
            found += ['', f'{actors} nodes at work: {calls} statements, '
                      f'{seconds:.2f} s of the server; {waits} waits for a '
                      f'row, {milliseconds} ms', '',
                      *ranking.table(kinds, _LINES)]
        return found

    def report(self) -> str:
        """All of it as JSON."""
        return json.dumps({
            'commit': virtualenv.commit(), 'services': fleet.NODES,
            'volumes': fleet.VOLUMES, 'deleted': fleet.DELETED,
            'before': dataclasses.asdict(self.before),
            'row_waits': self.waits,
            'works': [dataclasses.asdict(work) for work in self.works],
            'profiles': {actors: [dataclasses.asdict(kind) for kind in kinds]
                         for actors, kinds in self.kinds.items()},
        }, indent=2) + '\n'


class Stage:
    """A fleet's database, and nodes that work on it."""

    def __init__(self, server: Fleet, crew: Crew) -> None:
        self._server = server
        self._crew = crew
        self._runs = 0

    def work(self, about: str, what: str, volumes: int,
             actors: int = 1, nodes: int = NODES
             ) -> tuple[Work, list[Statement]]:
        """Have so many nodes do something at once, with volumes of each.

        :param nodes: those of an actor that others move to, and itself
        """
        self._runs += 1
        self._server.forget()
        tasks: list[dict[str, Any]] = [
            {'do': 'lab.actor:work', 'work': what, 'volumes': volumes,
             'nodes': nodes, 'name': f'actor{self._runs}-{number}'}
            for number in range(actors)]
        results = self._crew.run(tasks)
        sent = self._server.statements()
        return Work.of(about, sent, sum(result['messages']
                                        for result in results)), sent

    def row_waits(self) -> tuple[int, int]:
        return self._server.row_waits()

    def before(self) -> Statement:
        """The second of two, for which the server has all in its memory."""
        self._server.forget()
        for _ in range(2):
            self._server.query(_BEFORE.format(_ID))
        return self._server.statements()[-1]


def measure(quick: bool, say: Callable[[str], object]) -> Profile:
    """All of it, on a server of its own."""
    say(f'a database with {fleet.VOLUMES} volumes')
    with _stage() as stage:
        return _measure(stage, quick, say)


def model(volumes: int, nodes: int) -> dict[str, int]:
    """Statements for each work of a node, but for names of services.

    :param volumes: of the node
    :param nodes: how many there are
    """
    with _stage() as stage:
        works = {what: stage.work('', what, count, nodes=nodes)[0]
                 for what, count in (('restart', volumes), ('relocate', 1),
                                     ('drain', volumes))}
    return {what: work.statements - work.names
            for what, work in works.items()}


@contextlib.contextmanager
def _stage() -> Iterator[Stage]:
    venv = install.ensure()
    with tempfile.TemporaryDirectory(prefix='dmclone-fleet-') as name:
        directory = pathlib.Path(name)
        server = Fleet(directory, venv)
        try:
            server.start()
            with Crew(venv, server.url, directory / 'crew.log') as crew:
                yield Stage(server, crew)
        finally:
            server.stop()


def _measure(stage: Stage, quick: bool,
             say: Callable[[str], object]) -> Profile:
    say('what work costs')
    works = [
        stage.work('an attachment elsewhere, the first', 'relocate', 1)[0],
        stage.work('six of one node', 'relocate', 6)[0],
        stage.work(f'a drain of {VOLUMES} volumes', 'drain', VOLUMES)[0],
        stage.work(f'{DRAINED} such drains at once', 'drain', VOLUMES,
                   DRAINED)[0]]
    start, _ = stage.work(f'a start with {VOLUMES} volumes', 'restart',
                          VOLUMES)
    works += [start, *(start.times(nodes, f'{nodes} such starts')
                       for nodes in FLEETS)]
    before = stage.before()
    kinds, waits = {}, {}
    for actors in ACTORS[:2] if quick else ACTORS:
        say(f'{actors} nodes at work')
        earlier = stage.row_waits()
        kinds[actors] = ranking.rank(
            one for what, volumes in (
                ('restart', VOLUMES), ('relocate', 6), ('drain', VOLUMES))
            for one in stage.work('', what, volumes, actors)[1])
        now = stage.row_waits()
        waits[actors] = (now[0] - earlier[0], now[1] - earlier[1])
    return Profile(works, kinds, waits, before)
