# SPDX-License-Identifier: Apache-2.0
"""tools/bench --races: ways to change a row that others change, compared."""
from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import typing
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence

from lab import galera, install
from lab.crew import Crew, Result, Task
from lab.figures import number

# What the database itself saw: every change of a volume, in its order.
_HISTORY = (
    'CREATE TABLE history (number BIGINT PRIMARY KEY AUTO_INCREMENT, '
    'volume CHAR(36), was VARCHAR(255), became VARCHAR(255), '
    'status_was VARCHAR(255), status VARCHAR(255), deleted BOOL)',
    'CREATE TRIGGER history AFTER UPDATE ON volumes FOR EACH ROW '
    'IF NOT (NEW.provider_id <=> OLD.provider_id AND '
    'NEW.status <=> OLD.status AND NEW.deleted <=> OLD.deleted) THEN '
    'INSERT INTO history SET volume = NEW.id, was = OLD.provider_id, '
    'became = NEW.provider_id, status_was = OLD.status, '
    'status = NEW.status, deleted = NEW.deleted; END IF')

NODES = ('a@lab', 'b@lab', 'c@lab')

# A change of a row: the volume, what was there before, what is there now.
Change = tuple[str, str, str]

WAYS: dict[str, dict[str, typing.Any]] = {
    'compare-and-swap': {'way': 'swap'},
    'SELECT ... FOR UPDATE': {'way': 'for update', 'sync': 3},
    'tooz, file': {'locks': 'file', 'sync': 3},
    'tooz, Redis': {'locks': 'redis', 'sync': 3},
    'tooz, file, stale reads': {'locks': 'file'},
    'tooz, Redis, stale reads': {'locks': 'redis'},
}


@dataclasses.dataclass(frozen=True)
class Case:
    """How many volumes there are, and how many contenders for all."""

    name: str
    volumes: int
    contenders: int
    shared: bool = False

    def tasks(self, volumes: list[str], turns: int) -> list[Task]:
        """What the contenders do; together so many turns, or some more."""
        each = -(-turns // self.contenders)
        return [{'do': 'lab.contender:turns', 'turns': each,
                 'volumes': volumes if self.shared
                 else [volumes[place % self.volumes]]}
                for place in range(self.contenders)]


CASES = (Case('1 a volume', 3, 3), Case('3 a volume', 3, 9),
         Case('5 a volume', 3, 15),
         Case('20 for 2 volumes', 2, 20, shared=True))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How what the workers say compares with what the database saw.

    ``lost`` are changes that overwrote one their author had not seen;
    ``untold`` were made while their author was told that they were not;
    ``untrue`` were never made.
    """

    changes: int
    lost: list[Change]
    untold: list[Change]
    untrue: list[Change]

    @property
    def right(self) -> bool:
        return not (self.lost or self.untold or self.untrue)


def judge(claims: Iterable[Sequence[str]],
          history: Iterable[Sequence[str]]) -> Verdict:
    """Compare claimed changes, each of which wrote something unique."""
    said = Counter((volume, was, became) for volume, was, became in claims)
    seen = Counter((volume, was, became) for volume, was, became in history)
    made = {(volume, became) for volume, _, became in seen}
    told = {(volume, became) for volume, _, became in said}
    wrong = list((said - seen).elements())
    return Verdict(
        seen.total(), [one for one in wrong if (one[0], one[2]) in made],
        [one for one in seen if (one[0], one[2]) not in told],
        [one for one in wrong if (one[0], one[2]) not in made])


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of the table; times in seconds."""

    case: str
    way: str
    seconds: list[float]
    deadlocks: int
    lost: int
    total: float

    def __str__(self) -> str:
        median, most = (number(1000 * value) for value in (
            statistics.median(self.seconds), max(self.seconds)))
        return (f'{self.case:<18}{self.way:<26}{median:>8}{most:>8}'
                f'{self.deadlocks:>10}{self.lost:>6}{self.total:>8.1f}')


def report(lines: Sequence[Line]) -> str:
    """The lines as JSON."""
    return json.dumps([dataclasses.asdict(line) for line in lines],
                      indent=2) + '\n'


HEADING = (f'{"contenders":<18}{"way":<26}{"median":>8}{"most":>8}'
           f'{"deadlocks":>10}{"lost":>6}{"total":>8}\n'
           f'{"":<44}{"ms":>8}{"ms":>8}{"":>16}{"s":>8}')


class Races:
    """Contenders on a cluster that is up."""

    def __init__(self, cluster: galera.Cluster, crew: Crew,
                 redis: str) -> None:
        self._cluster = cluster
        self._crew = crew
        self._locks = {'redis': redis,
                       'file': f'file://{cluster.directory}/locks'}
        record_history(cluster)

    def run(self, case: Case, way: str, turns: int) -> Line:
        """Let the contenders of one case change rows in one way."""
        options = dict(WAYS[way])
        if 'locks' in options:
            options['locks'] = self._locks[options['locks']]
        volumes = [add_volume(self._cluster, status='available',
                              migration_status='migrating')
                   for _ in range(case.volumes)]
        results = self._crew.run([task | options for task in
                                  case.tasks(volumes, turns)])
        return _line(case.name, way, results,
                     changes(self._cluster, volumes))


def _line(case: str, way: str, results: list[Result],
          history: list[Change]) -> Line:
    verdict = judge([claim for result in results
                     for claim in result['claims']], history)
    if verdict.untold or verdict.untrue:
        raise AssertionError(f'{way}: {verdict}')
    return Line(case, way,
                [one for result in results for one in result['seconds']],
                sum(result['deadlocks'] for result in results),
                len(verdict.lost),
                max(result['end'] for result in results)
                - min(result['begin'] for result in results))


def record_history(cluster: galera.Cluster) -> None:
    """Make the cluster write down every change of a volume."""
    for statement in _HISTORY:
        cluster.nodes[0].query(statement)


def changes(cluster: galera.Cluster, volumes: list[str]) -> list[Change]:
    """Every change of these volumes' ``provider_id``."""
    names = ', '.join(f"'{volume}'" for volume in volumes)
    return typing.cast(list[Change], cluster.read(
        'SELECT volume, was, became FROM history WHERE was <> became '
        f'AND volume IN ({names}) ORDER BY number'))


def add_volume(cluster: galera.Cluster, host: str = f'{NODES[0]}#pool',
               **columns: str) -> str:
    """A row of a new volume; its id."""
    values = {'id': str(uuid.uuid4()), 'host': host, 'status': 'available',
              'provider_id': '1', 'project_id': 'project',
              'availability_zone': 'nova', **columns}
    fields = ', '.join(f"{name} = '{value}'"
                       for name, value in values.items())
    cluster.nodes[0].query(
        f'INSERT INTO volumes SET {fields}, size = 1, deleted = 0, '
        'use_quota = 1, created_at = now(), volume_type_id = '
        "(SELECT id FROM volume_types WHERE name = '__DEFAULT__')")
    return values['id']


def compare(turns: int, program: str) -> list[Line]:
    """Every way in every case, on a cluster of its own."""
    venv = install.ensure()
    install.ensure_galera()
    with galera.Cluster(venv) as cluster, \
            galera.redis(cluster.directory) as redis, \
            Crew(venv, cluster.url, cluster.directory / 'crew.log') as crew:
        return _compare(Races(cluster, crew, redis), turns, program)


def _compare(races: Races, turns: int, program: str) -> list[Line]:
    found = []
    for case in CASES:
        for way in WAYS:
            print(f'{program}: {case.name}, {way}', file=sys.stderr,
                  flush=True)
            found.append(races.run(case, way, turns))
    return found
