# SPDX-License-Identifier: Apache-2.0
"""tools/bench --races: ways to change a row that others change, compared."""
from __future__ import annotations

import dataclasses
import sys
import typing
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence

from lab import galera, install
from lab.crew import Crew, Result, Task
from lab.races_table import Line, Stop, Table

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

# All but stale reads see what was committed on any node.
_SYNC = {'sync': 3}
WAYS: dict[str, dict[str, typing.Any]] = {
    "compare-and-swap, the driver's": {'way': 'driver'},
    "compare-and-swap, the driver's, no pause": {'way': 'driver', 'pause': 0},
    'compare-and-swap, bare': {'way': 'bare', **_SYNC},
    'compare-and-swap, bare, no pause': {'way': 'bare', 'pause': 0, **_SYNC},
    'SELECT ... FOR UPDATE': {'way': 'for update', **_SYNC},
    'tooz, file': {'way': 'change', 'locks': 'file', **_SYNC},
    'tooz, Redis': {'way': 'change', 'locks': 'redis', **_SYNC},
    'tooz, file, whole operation': {
        'way': 'whole', 'locks': 'file', **_SYNC},
    'tooz, Redis, whole operation': {
        'way': 'whole', 'locks': 'redis', **_SYNC},
    'tooz, file, stale reads': {'way': 'change', 'locks': 'file'},
    'tooz, Redis, stale reads': {'way': 'change', 'locks': 'redis'},
}
# Those that differ when a process is stopped.
STOPPED = tuple(way for way in WAYS
                if not way.endswith(('no pause', 'stale reads')))
DATABASES = {'MariaDB': 1, 'Galera': galera.NODES}
# How often each contender acquires and releases a volume, and for how long it
# prepares something in between, in seconds.
TURNS = 10
HOLD = 0.01
# For so long a lock in Redis lives whose holder does not renew it, in seconds.
LIFE = 2


@dataclasses.dataclass(frozen=True)
class Case:
    """How many volumes there are, and how many contenders for each."""

    volumes: int
    contenders: int

    def scaled(self, part: float) -> Case:
        """The same contention in a part of the size.

        Fewer volumes; of few volumes with many contenders, fewer contenders.
        """
        few = self.contenders > self.volumes
        return Case(self.volumes if few else _part(self.volumes, part),
                    _part(self.contenders, part) if few else self.contenders)

    def tasks(self, volumes: list[str], turns: int) -> list[Task]:
        """What the contenders do, each so many turns."""
        return [{'do': 'lab.contender:turns', 'turns': turns,
                 'volumes': [volume]}
                for volume in volumes for _ in range(self.contenders)]

    def __str__(self) -> str:
        return f'{self.volumes} x {self.contenders}'


def _part(number: int, part: float) -> int:
    return max(1, round(number * part))


# Those of https://gorka.eguileor.com/cinders-api-races, and as many that load
# the database meanwhile.
CASES = (Case(100, 1), Case(400, 1), Case(100, 3), Case(100, 5), Case(5, 100))
LOAD = 50


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


class Races:
    """Contenders on a database that is up."""

    def __init__(self, cluster: galera.Cluster, crew: Crew,
                 redis: str) -> None:
        self._cluster = cluster
        self._crew = crew
        self._locks = {'redis': redis,
                       'file': f'file://{cluster.directory}/locks'}
        record_history(cluster)

    def run(self, case: Case, way: str, turns: int, load: int = 0,
            hold: float = 0) -> Line:
        """Let the contenders of one case have rows in one way.

        :param load: how many others change and read rows meanwhile
        :param hold: how long a contender keeps what it has, in seconds
        """
        options = self._options(way) | {'hold': hold}
        volumes = self._volumes(case.volumes)
        others = self._volumes(load)
        tasks = [task | options for task in case.tasks(volumes, turns)]
        results = self._crew.run([*tasks, *(
            {'do': 'lab.contender:load', 'volume': volume, 'beside': True}
            for volume in others)])[:len(tasks)]
        lost = self._lost(way, results, volumes)
        acquire, release = ([one for result in results for one in result[step]]
                            for step in ('acquire', 'release'))
        return Line(
            str(case), way, acquire, release,
            sum(result['deadlocks'] for result in results), lost,
            max(result['end'] for result in results)
            - min(result['begin'] for result in results))

    def stop(self, way: str) -> Stop:
        """Stop who has read a row, for longer than its lock lives."""
        options = self._options(way)
        if 'redis' in options.get('locks', ''):
            options['locks'] += f'?lock_timeout={LIFE}'
        volumes = self._volumes(1)
        pid = self._cluster.directory / f'{volumes[0]}.pid'
        results = self._crew.run([
            options | {'do': f'lab.stopped:{who}', 'volumes': volumes,
                       'pid': str(pid), 'stopped': 3 * LIFE}
            for who in ('holder', 'rival')])
        return Stop(way, results[1]['waited'],
                    self._lost(way, results, volumes))

    def _options(self, way: str) -> Task:
        options = dict(WAYS[way])
        if 'locks' in options:
            options['locks'] = self._locks[options['locks']]
        return options

    def _volumes(self, count: int) -> list[str]:
        return [add_volume(self._cluster, status='available')
                for _ in range(count)]

    def _lost(self, way: str, results: list[Result],
              volumes: list[str]) -> int:
        verdict = judge([claim for result in results
                         for claim in result['claims']],
                        changes(self._cluster, volumes))
        if verdict.untold or verdict.untrue:
            raise AssertionError(f'{way}: {verdict}')
        return len(verdict.lost)


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


def compare(part: float, turns: int, program: str) -> list[Table]:
    """Every way in every case, on one MariaDB and on a Galera cluster.

    :param part: of the sizes of the cases, and of the load
    """
    venv = install.ensure()
    install.ensure_galera()
    found = []
    for name, size in DATABASES.items():
        with galera.Cluster(venv, size) as cluster, \
                galera.redis(cluster.directory) as redis, \
                Crew(venv, cluster.url,
                     cluster.directory / 'crew.log') as crew:
            races = Races(cluster, crew, redis)
            found.append(_table(
                races, name, part, turns,
                lambda what: print(f'{program}: {name}, {what}',
                                   file=sys.stderr, flush=True)))
    return found


def _table(races: Races, name: str, part: float, turns: int,
           say: typing.Callable[[str], None]) -> Table:
    table = Table(name, [], [])
    for case in (case.scaled(part) for case in CASES):
        for way in WAYS:
            say(f'{case}, {way}')
            table.lines.append(races.run(case, way, turns,
                                         _part(LOAD, part), HOLD))
    for way in STOPPED:
        say(f'a holder that is stopped, {way}')
        table.stops.append(races.stop(way))
    return table
