# SPDX-License-Identifier: Apache-2.0
"""tools/bench --places: N servers move at once to a node with room for K.

Meanwhile Cinder makes volumes there. The driver's way, in which the node
itself shares out its room, beside three in which the database does.
"""
from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lab import galera, install, virtualenv
from lab.crew import Crew
from lab.figures import number
from lab.fleet import Fleet

MOVERS = (1, 5, 20, 30)
OURS = 'the node (the driver)'
WAYS = (OURS, 'SELECT ... FOR UPDATE', 'two steps', 'compare-and-swap')
# How a refusal says that there is no room.
_CLEAN = ('not enough room', 'No place is free')


@dataclasses.dataclass(frozen=True)
class Case:
    """So many that want a place, and so many places.

    :ivar creates: new volumes that Cinder makes there
    """

    movers: int
    creates: int
    places: int
    thin: bool = False

    @classmethod
    def of(cls, movers: int, thin: bool = False) -> Case:
        """Half as many places as movers; thin pools always take new volumes.
        """
        return cls(movers, 0 if thin else max(1, movers // 4),
                   max(1, movers // 2), thin)

    @property
    def right(self) -> int:
        """How many have to have a place in the end."""
        return min(self.places, self.movers + self.creates)


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of the table; times in seconds.

    :ivar won: how many have a place, by what is on the disks
    :ivar unclean: refusals that do not say that there is no room
    :ivar verdicts: from the start until each knows whether it has a place
    :ivar statements: of all, until each has its answer
    """

    database: str
    way: str
    case: Case
    won: int
    unclean: int
    statements: int
    messages: int
    deadlocks: int
    verdicts: list[float]
    answers: list[float]

    @classmethod
    def of(cls, database: str, way: str, case: Case,
           result: dict[str, Any]) -> Line:
        told = result['told']
        return cls(database, way, case, result['won'], sum(
            bool(one['refused']) and not any(
                word in one['refused'] for word in _CLEAN)
            # Of a new volume nobody is told: Cinder tries another node.
            for one in told if one['moves']),
            result['statements'], result['messages'], result['deadlocks'],
            [one['verdict'] for one in told],
            [one['seconds'] for one in told])

    def __str__(self) -> str:
        case = self.case
        median, most, end = (number(1000 * value) for value in (
            statistics.median(self.verdicts), max(self.verdicts),
            max(self.answers)))
        kind = 'thin' if case.thin else ''
        return (f'{self.database:<8}{kind:<5}'
                f'{case.movers:>3}+{case.creates:<2}{case.right:>3}'
                f'{self.won:>5}  {self.way:<23}'
                f'{self.unclean:>3}{self.statements:>6}{self.messages:>6}'
                f'{self.deadlocks:>5}{median:>7}{most:>7}{end:>7}')


HEADING = (f'{"":<13}{"want":>6}{"fit":>3}{"have":>5}  {"who decides":<23}'
           f'{"?":>3}{"SQL":>6}{"msgs":>6}{"dead":>5}'
           f'{"verdict ms":>14}{"all":>7}\n'
           f'{"":<63}{"locks":>5}{"median":>7}{"most":>7}{"ms":>7}')


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All lines."""

    lines_: list[Line]

    def lines(self) -> list[str]:
        """The table for a person."""
        return [*HEADING.split('\n'), *map(str, self.lines_)]

    def report(self) -> str:
        """All of it as JSON."""
        return json.dumps(
            {'commit': virtualenv.commit(),
             'lines': [dataclasses.asdict(line) for line in self.lines_]},
            indent=2) + '\n'


def measure(quick: bool, say: Callable[[str], object]) -> Comparison:
    """Every way in every case, on one server and on a cluster."""
    venv = install.ensure()
    install.ensure_galera()
    found: list[Line] = []
    # Names of nodes that were never before.
    numbers = itertools.count(1)
    for name, database in (('one', _one), ('Galera', _cluster)):
        with database(venv) as (url, directory), \
                Crew(venv, url, directory / 'crew.log') as crew:
            for case in _cases(quick):
                for way in WAYS[:1] if case.thin else WAYS:
                    say(f'{name}, {case}, {way}')
                    result, = crew.run([{
                        'do': 'lab.movers:race', 'way': way,
                        'name': f'race{next(numbers)}',
                        **dataclasses.asdict(case)}])
                    found.append(Line.of(name, way, case, result))
    return Comparison(found)


def _cases(quick: bool) -> Sequence[Case]:
    movers = MOVERS[:3] if quick else MOVERS
    return [*map(Case.of, movers),
            *(Case.of(count, thin=True) for count in movers)]


@contextlib.contextmanager
def _one(venv: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    with tempfile.TemporaryDirectory(prefix='dmclone-places-') as name:
        directory = pathlib.Path(name)
        server = Fleet(directory, venv)
        try:
            server.start()
            yield server.url, directory
        finally:
            server.stop()


@contextlib.contextmanager
def _cluster(venv: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    with galera.Cluster(venv) as cluster:
        yield cluster.url, cluster.directory
