# SPDX-License-Identifier: Apache-2.0
"""Cinder's database as a large fleet has it, and what statements cost there.

A MariaDB server with Cinder's own schema that nobody can connect to but by
its socket. It writes every statement to its slow query log, with the rows it
has examined for it, its times and, if wanted, its plan.
"""
from __future__ import annotations

import dataclasses
import pathlib
import re
import typing

from lab import database
from lab.errors import LabError
from lab.processes import Group, run, wait_for
from lab.services import environment

NODES = 1000
VOLUMES = 30_000
DELETED = 120_000
# Attachments of the past, of each volume.
DETACHED = 2

# How the ids of its rows begin: after any uuid.
FLEET = 'fleet'

_STATEMENTS = ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
# What a statement is sent with that may not wait for long.
_BOUND = re.compile(r'^SET STATEMENT \w+ = \d+ FOR ')
_OWN = ('SELECT @@', 'SELECT VERSION()', 'SELECT DATABASE()')
_NUMBERS = re.compile(r'Query_time: ([\d.]+) +Lock_time: ([\d.]+) .*?'
                      r'Rows_examined: (\d+)', re.DOTALL)
# How a statement ends that the control plane has sent, none of the driver's.
ELSE = ' /* control plane */'

_VOLUME = '''
    INSERT INTO volumes (id, host, service_uuid, _name_id, provider_id,
        size, status, attach_status, deleted, use_quota, volume_type_id,
        created_at)
    SELECT CONCAT('fleet-{kind}-', seq), {host}, {service},
        IF(seq % 2, NULL, UUID()),
        CONCAT(seq % 9, ';from=node', seq % 7, '@dmclone/', UUID()),
        1, '{status}', 'detached', {deleted}, 1, 'type', NOW()
    FROM seq_1_to_{count}'''
_ATTACHMENT = '''
    INSERT INTO volume_attachment (id, volume_id, attach_status, deleted,
        instance_uuid)
    SELECT CONCAT('fleet-', UUID_SHORT()), id, '{status}', {deleted}, UUID()
    FROM volumes {where}'''
# Some volumes are on the nodes that tests use.
_NAMES = "ELT(1 + seq % {nodes}, 'a', 'b', 'c')"
_HOST = ("CONCAT(COALESCE(" + _NAMES + ", CONCAT('node', seq % {nodes})), "
         "'@dmclone#pool')")
_FILL = (
    # Cinder has the schedulers there too.
    '''INSERT INTO services (uuid, host, `binary`, topic, report_count,
        disabled, deleted, availability_zone, updated_at)
    SELECT UUID(), IF(seq % 50, CONCAT('node', seq, '@dmclone'),
                      CONCAT('node', seq)),
        IF(seq % 50, 'cinder-volume', 'cinder-scheduler'), 'topic', 0, 0,
        seq % 97 = 0, 'nova', NOW() FROM seq_1_to_{nodes}''',
    _VOLUME.format(kind='live', host=_HOST, status='available', deleted=0,
                   service='NULL', count=VOLUMES),
    _VOLUME.format(kind='gone', host=_HOST, status='deleted', deleted=1,
                   service='NULL', count=DELETED),
    *(_ATTACHMENT.format(status='detached', deleted=1, where='')
      for _ in range(DETACHED)),
    _ATTACHMENT.format(status='attached', deleted=0,
                       where='WHERE NOT deleted'),
    '''INSERT INTO snapshots (id, volume_id, status, deleted, use_quota,
        volume_type_id) SELECT CONCAT('fleet-', UUID_SHORT()), id, 'deleted',
        1, 1, 'type' FROM volumes''',
    # The driver's and others', of nodes that are there and that were.
    '''INSERT INTO driver_initiator_data (initiator, namespace, `key`, value)
    SELECT CONCAT('iqn.fleet-', seq), ELT(1 + seq % 2, 'cinder_dmclone',
        'another'), CONCAT('node', seq % {nodes}, '@dmclone'), ''
    FROM seq_1_to_{nodes}0''',
    # As a server does by itself, but in the background.
    'ANALYZE TABLE volumes, volume_attachment, snapshots, services, '
    'driver_initiator_data')


@dataclasses.dataclass(frozen=True)
class Statement:
    """A statement and what the server did for it.

    :ivar seconds: until it was carried out
    :ivar waited: of these, until it had its locks, in seconds; to read the
        statement is counted, too (MariaDB's ``Lock_time``)
    :ivar plan: empty unless the server was told to write it down
    """

    text: str
    examined: int
    seconds: float
    waited: float
    plan: tuple[str, ...] = ()

    @property
    def shape(self) -> str:
        """The same for statements that differ in values only."""
        text = re.sub(r"'(?:[^'\\]|\\.)*'", '?', self.text)
        text = re.sub(r'\b\d+\b', '?', text)
        return re.sub(r'\((\?, )+\?\)', '(?..)', text)

    @property
    def keys(self) -> set[str]:
        """The indexes that were used."""
        return {line.split('\t')[5] for line in self.plan}

    @property
    def scans(self) -> bool:
        """Whether a table or an index is read from end to end."""
        return any(line.split('\t')[3] in ('ALL', 'index')
                   and line.split('\t')[1] != 'INSERT'
                   for line in self.plan)

    def __str__(self) -> str:
        return '\n'.join((f'{self.examined} rows: {self.text}', *self.plan))


class Fleet:
    """The server; it ends with the process that started it."""

    def __init__(self, directory: pathlib.Path, venv: pathlib.Path,
                 plans: bool = False) -> None:
        """
        :param directory: for its files; the path must be short
        :param venv: the virtualenv of a lab
        :param plans: whether plans of statements are written down, too
        """
        self._venv = venv
        self._verbosity = 'query_plan' + ',explain' * plans
        self._log = directory / 'statements.log'
        self._seen = 0
        self._data = directory / 'data'
        self._socket = directory / 'socket'
        self._output = directory / 'mariadb.log'
        self._group = Group(directory / 'mariadb.pid')

    def start(self) -> None:
        """Start it with a copy of the labs' empty database, and fill it."""
        source = database.template(self._venv)
        run('cp', '-a', str(source / 'mariadb' / 'data'), str(self._data))
        self._group.start(
            ['setpriv', '--pdeathsig', 'KILL',
             'mariadbd', '--no-defaults', '--user=root',
             f'--datadir={self._data}', f'--socket={self._socket}',
             f'--pid-file={self._data}/pid', '--skip-networking',
             '--skip-log-bin', '--innodb-buffer-pool-size=256M',
             '--innodb-log-file-size=32M',
             '--innodb-flush-log-at-trx-commit=0',
             '--innodb-doublewrite=0', '--innodb-flush-method=nosync',
             '--character-set-server=utf8mb4',
             f'--slow-query-log-file={self._log}', '--long-query-time=0',
             f'--log-slow-verbosity={self._verbosity}'],
            self._output, environment())
        wait_for('MariaDB', self._answers, 180)
        for statement in _FILL:
            self.query(statement.format(nodes=NODES))
        self.query('SET GLOBAL slow_query_log = ON')

    def stop(self) -> None:
        """End it; nobody needs what it has."""
        self._group.kill()

    def _answers(self) -> bool:
        if self._group.leader() is None:
            raise LabError(f'MariaDB ended: {self._output.read_text()}')
        return self._socket.exists()

    def query(self, statement: str) -> list[tuple[typing.Any, ...]]:
        """Run one statement as root; returns all rows."""
        return database.query(self._venv, self._socket, statement)

    @property
    def url(self) -> str:
        return ('mysql+pymysql://root@localhost/cinder?unix_socket='
                f'{self._socket}')

    def row_waits(self) -> tuple[int, int]:
        """How often somebody has waited for a row, and for how many ms."""
        found = dict(self.query(
            "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_%'"))
        return (int(found['Innodb_row_lock_waits']),
                int(found['Innodb_row_lock_time']))

    def forget(self) -> None:
        """What was sent so far is not in ``statements`` any more."""
        self._seen = self._log.stat().st_size

    def statements(self) -> list[Statement]:
        """All that the driver has sent, oldest first."""
        with self._log.open() as log:
            log.seek(self._seen)
            entries = ('\n' + log.read()).split('\n# User@Host: ')[1:]
        return [found for found in map(parse, entries)
                if found.text.startswith(_STATEMENTS)
                and not found.text.endswith(ELSE)
                # What a new connection asks the server about itself.
                and not found.text.startswith(_OWN)]


def parse(entry: str) -> Statement:
    """A statement from what the server has written down of it."""
    lines = entry.splitlines()
    numbers = _NUMBERS.search(entry)
    assert numbers
    plan = [line.removeprefix('# explain: ') for line in lines
            if line.startswith('# explain: ')]
    text = ' '.join(line for line in lines[1:] if not line.startswith(
        ('#', 'SET timestamp', 'use ')))
    seconds, waited, examined = numbers.groups()
    # The first line of a plan has the names of the columns.
    return Statement(_BOUND.sub('', text.strip()).removesuffix(';'),
                     int(examined),
                     float(seconds), float(waited), tuple(plan[1:]))
