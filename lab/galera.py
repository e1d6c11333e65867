# SPDX-License-Identifier: Apache-2.0
"""A MariaDB Galera cluster with Cinder's schema, behind a proxy.

Everything listens on loopback, on free ports, with its files in one
temporary directory.
"""
from __future__ import annotations

import contextlib
import pathlib
import secrets
import shutil
import socket
import typing
from collections.abc import Iterator

from lab import database, install, remains
from lab.errors import LabError
from lab.processes import Group, run, wait_for
from lab.services import PASSWORD, environment

ADDRESS = '127.0.0.1'
NODES = 3
_USER = 'mysql'
_LIBRARY = '/usr/lib/galera/libgalera_smm.so'
# The first writes of a cluster that begins, for nodes that join it.
_CACHE = 'gcache.size=32M'


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        # All are held until the last is known, so that they differ.
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind((ADDRESS, 0))
        return [one.getsockname()[1] for one in held]


class Process:
    """One server process that ends with the process that started it."""

    def __init__(self, directory: pathlib.Path, name: str) -> None:
        self.name = name
        self.log = directory / f'{name}.log'
        self._group = Group(directory / f'{name}.pid')

    def start(self, *argv: str) -> None:
        self._group.start(
            ['setpriv', '--pdeathsig', 'KILL', *_unprivileged(), *argv],
            self.log, environment())

    def wait(self, condition: typing.Callable[[], object],
             timeout: float = 180) -> None:
        """Wait for a condition; LabError if the process ends before."""
        def holds() -> object:
            if self._group.leader() is None:
                raise LabError(f'{self.name} ended: '
                               f'{self.log.read_text()[-2000:]}')
            return condition()
        wait_for(self.name, holds, timeout, 0.1)

    def stop(self) -> None:
        """End it in its own way."""
        self._group.terminate(120)

    def kill(self) -> None:
        """kill -9."""
        self._group.kill()


class Node:
    """One MariaDB server of a cluster."""

    def __init__(self, directory: pathlib.Path, number: int,
                 venv: pathlib.Path) -> None:
        self.port, self.group, self.transfer, self.copy = free_ports(4)
        self._venv = venv
        self._name = f'node{number}'
        self.data = directory / self._name
        self.socket = directory / f'{self._name}.socket'
        self.process = Process(directory, self._name)

    def start(self, cluster: list[Node], *options: str) -> None:
        """Start it as a member of a cluster of these nodes."""
        members = ','.join(f'{ADDRESS}:{node.group}' for node in cluster)
        self._start(
            '--wsrep-on=ON', f'--wsrep-provider={_LIBRARY}',
            f'--wsrep-cluster-address=gcomm://{members}',
            f'--wsrep-node-name={self._name}',
            f'--wsrep-node-address={ADDRESS}',
            '--wsrep-sst-method=rsync',
            f'--wsrep-sst-receive-address={ADDRESS}:{self.copy}',
            '--wsrep-provider-options='
            f'gmcast.listen_addr=tcp://{ADDRESS}:{self.group};'
            f'ist.recv_addr={ADDRESS}:{self.transfer};{_CACHE}', *options)

    def start_alone(self) -> None:
        """Start it without Galera; returns when it answers."""
        self._start('--wsrep-on=OFF')
        self.process.wait(lambda: self.status('uptime'))

    def _start(self, *options: str) -> None:
        self.process.start(
            'mariadbd', '--no-defaults', f'--datadir={self.data}',
            f'--socket={self.socket}', f'--pid-file={self.data}/pid',
            f'--bind-address={ADDRESS}', f'--port={self.port}',
            '--skip-name-resolve',
            '--innodb-buffer-pool-size=64M', '--innodb-log-file-size=32M',
            '--innodb-flush-log-at-trx-commit=0', '--innodb-doublewrite=0',
            '--innodb-flush-method=nosync', '--performance-schema=OFF',
            '--max-connections=2000', '--character-set-server=utf8mb4',
            '--binlog-format=ROW', '--innodb-autoinc-lock-mode=2', *options)

    def query(self, statement: str,
              base: str = 'cinder') -> list[tuple[typing.Any, ...]]:
        """Run one statement as root; returns all rows."""
        return database.query(self._venv, self.socket, statement, base)

    def status(self, name: str) -> str:
        """A status variable; empty if the server does not answer."""
        try:
            found = self.query(f"SHOW STATUS LIKE '{name}'", '')
        except LabError:
            return ''
        return str(found[0][1]) if found else ''

    def wait_synced(self, size: int) -> None:
        """Wait until it is one of so many nodes and has caught up."""
        self.process.wait(
            lambda: self.status('wsrep_local_state_comment') == 'Synced'
            and self.status('wsrep_cluster_size') == str(size))


class Cluster:
    """Nodes, each with the same database, and one way to them all.

    :param size: how many; one is a MariaDB without Galera
    """

    def __init__(self, venv: pathlib.Path, size: int = NODES) -> None:
        self._venv = venv
        self._size = size
        self._stack = contextlib.ExitStack()
        self.directory = pathlib.Path()
        self.nodes: list[Node] = []
        self.port = 0

    @property
    def url(self) -> str:
        """The database through the proxy, as SQLAlchemy names it."""
        return url(self.port)

    def read(self, statement: str) -> list[tuple[typing.Any, ...]]:
        """What a statement gives after all that was committed anywhere."""
        self.nodes[0].query('SET GLOBAL wsrep_sync_wait = 1', '')
        try:
            return self.nodes[0].query(statement)
        finally:
            self.nodes[0].query('SET GLOBAL wsrep_sync_wait = 0', '')

    def __enter__(self) -> Cluster:
        with contextlib.ExitStack() as stack:
            self.directory = stack.enter_context(_directory())
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        source = database.cached(
            _template_name(self._venv), lambda part: _build(part, self._venv))
        self.nodes = [Node(self.directory, number, self._venv)
                      for number in range(1, self._size + 1)]
        for node in self.nodes:
            run('cp', '-a', str(source / 'node1'), str(node.data))
            stack.callback(node.process.kill)
        if self._size == 1:
            self.nodes[0].start_alone()
        else:
            self._join()
        self.port = _start_proxy(stack, self.directory, self.nodes)

    def _join(self) -> None:
        first, *others = self.nodes
        first.start(self.nodes, '--wsrep-new-cluster')
        first.wait_synced(1)
        for node in others:
            node.start(self.nodes)
        for node in self.nodes:
            node.wait_synced(self._size)


def url(port: int) -> str:
    """The database at a port of loopback."""
    return f'mysql+pymysql://lab:{PASSWORD}@{ADDRESS}:{port}/cinder'


@contextlib.contextmanager
def redis(directory: pathlib.Path) -> Iterator[str]:
    """A Redis server; its URL for tooz."""
    port, = free_ports(1)
    process = Process(directory, 'redis')
    try:
        process.start('redis-server', '--port', str(port), '--bind', ADDRESS,
                      '--save', '', '--dir', str(directory))
        process.wait(lambda: _answers(port))
        yield f'redis://{ADDRESS}:{port}'
    finally:
        process.kill()


def _start_proxy(stack: contextlib.ExitStack, directory: pathlib.Path,
                 nodes: list[Node]) -> int:
    """A proxy that gives each new connection to the next node; its port."""
    port, = free_ports(1)
    servers = ''.join(f'    server {node.process.name} {ADDRESS}:{node.port}'
                      '\n' for node in nodes)
    conf = directory / 'haproxy.cfg'
    conf.write_text(
        'defaults\n    mode tcp\n    timeout connect 30s\n'
        '    timeout client 1h\n    timeout server 1h\n'
        f'listen galera\n    bind {ADDRESS}:{port}\n'
        f'    balance roundrobin\n{servers}')
    process = Process(directory, 'haproxy')
    stack.callback(process.kill)
    process.start('haproxy', '-db', '-f', str(conf))
    process.wait(lambda: _answers(port))
    return port


def _answers(port: int) -> bool:
    try:
        socket.create_connection((ADDRESS, port), 5).close()
    except OSError:
        return False
    return True


def _unprivileged() -> list[str]:
    """Options of setpriv: root would be refused by rsync's daemon."""
    return ['--reuid', _USER, '--regid', _USER, '--clear-groups']


@contextlib.contextmanager
def _directory() -> Iterator[pathlib.Path]:
    # The name of a socket must be short.
    claim = remains.Claim(f'galera-{secrets.token_hex(4)}')
    path = remains.ROOT / claim.name
    try:
        path.mkdir(parents=True)
        shutil.chown(path, _USER, _USER)
        yield path
    finally:
        claim.clear()


def _template_name(venv: pathlib.Path) -> str:
    source = pathlib.Path(__file__).read_bytes()
    return f'galera-{install.digest(venv.name.encode(), source)}'


def _build(path: pathlib.Path, venv: pathlib.Path) -> None:
    """Make the first node's data, with Cinder's schema, in ``path``."""
    with _directory() as directory:
        node = Node(directory, 1, venv)
        run('setpriv', *_unprivileged(), 'mariadb-install-db',
            '--no-defaults', '--skip-test-db',
            '--auth-root-authentication-method=normal',
            f'--datadir={node.data}')
        try:
            node.start([node], '--wsrep-new-cluster')
            node.wait_synced(1)
            node.query('CREATE DATABASE cinder', '')
            node.query("GRANT ALL ON *.* TO lab@'%' "
                       f"IDENTIFIED BY '{PASSWORD}'", '')
            conf = directory / 'cinder.conf'
            conf.write_text(f'[database]\nconnection = {url(node.port)}\n')
            run(f'{venv}/bin/cinder-manage', '--config-file', str(conf),
                'db', 'sync', env=environment(HOME=str(directory)))
            node.process.stop()
        finally:
            node.process.kill()
        # Files of the cluster that was: the state stays in grastate.dat.
        for name in ('galera.cache', 'gvwstate.dat'):
            (node.data / name).unlink(missing_ok=True)
        run('cp', '-a', str(node.data), str(path / 'node1'))
