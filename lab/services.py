# SPDX-License-Identifier: Apache-2.0
"""The control plane's processes, each with its files in one directory."""
from __future__ import annotations

import pathlib
import secrets
from collections.abc import Mapping

from lab.errors import LabError
from lab.network import CONTROLLER, Network
from lab.processes import Group, run, wait_for

DATABASE_PORT = 3306
RABBIT_PORT = 5672
KEYSTONE_PORT = 5000
CINDER_PORT = 8776
GLANCE_PORT = 9292
NOVA_PORT = 8774
PLACEMENT_PORT = 8778
GATEWAY_PORT = 8786
PASSWORD = 'lab'
_RABBIT_BIN = '/usr/lib/rabbitmq/bin'
_SERVE = pathlib.Path(__file__).with_name('serve.py')


def environment(**extra: str) -> dict[str, str]:
    """A small environment: nothing of the caller's gets in."""
    return {'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:'
                    '/sbin:/bin', 'LANG': 'C.UTF-8', 'HOME': '/nonexistent',
            **extra}


class Service:
    """One process of the control plane, inside the lab's network."""

    name = ''
    port = 0

    def __init__(self, directory: pathlib.Path, network: Network) -> None:
        self.directory = directory / self.name
        self.log = directory / f'{self.name}.log'
        self._network = network
        self._group = Group(directory / f'{self.name}.pid')

    def command(self) -> list[str]:
        """The command line."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """The environment of the process."""
        return environment()

    def prepare(self) -> None:
        """Make the files the process needs."""
        self.directory.mkdir(parents=True, exist_ok=True)

    def ready(self) -> bool:
        """Whether the service answers."""
        try:
            self._network.connect(CONTROLLER, self.port, 5).close()
        except OSError:
            return False
        return True

    def start(self, wait: bool = True) -> None:
        """Start the process and wait until it answers."""
        self.prepare()
        self._group.start(self._network.argv(*self.command()), self.log,
                          self.environment(), cwd=self.directory)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the service answers; LabError if it ends before."""
        def answers() -> bool:
            if self._group.leader() is None:
                raise LabError(f'{self.name} ended: see {self.log}')
            return self.ready()
        wait_for(f'{self.name} (see {self.log})', answers, 180, 0.2)

    def running(self) -> bool:
        """Whether the process is alive."""
        return self._group.leader() is not None

    def stop(self) -> None:
        """End the process in its own way; kill it if it does not."""
        self._group.terminate()

    def kill(self) -> None:
        """kill -9."""
        self._group.kill()

    def restart(self) -> None:
        """stop() and start()."""
        self.stop()
        self.start()


class MariaDB(Service):
    """The database; root may use its socket."""

    name = 'mariadb'
    port = DATABASE_PORT

    @property
    def socket(self) -> pathlib.Path:
        """The Unix socket."""
        return self.directory / 'socket'

    @property
    def data(self) -> pathlib.Path:
        """The data directory."""
        return self.directory / 'data'

    def command(self) -> list[str]:
        return [
            'mariadbd', '--no-defaults', '--user=root',
            f'--datadir={self.data}', f'--socket={self.socket}',
            f'--pid-file={self.directory}/pid', '--skip-log-bin',
            f'--bind-address={CONTROLLER}', f'--port={self.port}',
            '--skip-name-resolve', '--innodb-buffer-pool-size=64M',
            '--innodb-log-file-size=32M',
            '--innodb-flush-log-at-trx-commit=0', '--innodb-doublewrite=0',
            '--innodb-flush-method=nosync', '--performance-schema=OFF',
            '--max-connections=500', '--character-set-server=utf8mb4']


class RabbitMQ(Service):
    """The message broker, with its own epmd inside the lab's network."""

    name = 'rabbitmq'
    port = RABBIT_PORT

    def prepare(self) -> None:
        super().prepare()
        (self.directory / 'rabbitmq.conf').write_text(
            f'listeners.tcp.1 = {CONTROLLER}:{self.port}\n'
            'default_user = lab\n'
            f'default_pass = {PASSWORD}\n'
            'loopback_users = none\n'
            'disk_free_limit.absolute = 50MB\n'
            'log.console = true\n'
            'log.console.level = warning\n'
            'log.file = false\n')
        (self.directory / 'enabled_plugins').write_text('[].\n')
        (self.directory / 'env.conf').write_text('')
        cookie = self.directory / '.erlang.cookie'
        if not cookie.exists():
            cookie.write_text(secrets.token_hex(16))
            cookie.chmod(0o400)

    def environment(self) -> Mapping[str, str]:
        at = self.directory
        return environment(
            HOME=str(at), ERL_EPMD_ADDRESS='127.0.0.1',
            RABBITMQ_NODENAME='rabbit@localhost',
            RABBITMQ_CONF_ENV_FILE=f'{at}/env.conf',
            RABBITMQ_CONFIG_FILE=f'{at}/rabbitmq.conf',
            RABBITMQ_ENABLED_PLUGINS_FILE=f'{at}/enabled_plugins',
            RABBITMQ_MNESIA_BASE=f'{at}/mnesia',
            RABBITMQ_LOG_BASE=f'{at}/log', RABBITMQ_LOGS='-',
            RABBITMQ_PID_FILE=f'{at}/pid',
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=(
                '+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none '
                '-kernel inet_dist_use_interface {127,0,0,1}'))

    def command(self) -> list[str]:
        # Not the wrapper in PATH, which changes to the rabbitmq user.
        return [f'{_RABBIT_BIN}/rabbitmq-server']

    def rows(self, what: str, *columns: str) -> list[list[str]]:
        """What there is of ``connections``, ``channels``, ``consumers``."""
        found = run(*self._network.argv(
            f'{_RABBIT_BIN}/rabbitmqctl', '--quiet', '--no-table-headers',
            f'list_{what}', *columns), env=self.environment())
        return [line.split('\t') for line in found.stdout.splitlines()]


class PythonService(Service):
    """A service from the lab's virtualenv."""

    def __init__(self, directory: pathlib.Path, network: Network,
                 venv: pathlib.Path) -> None:
        super().__init__(directory, network)
        self._venv = venv

    def environment(self) -> Mapping[str, str]:
        return environment(
            PATH=f'{self._venv}/bin:{environment()["PATH"]}',
            HOME=str(self.directory))


class WebService(PythonService):
    """A WSGI application, run by serve.py."""

    application = ''

    def arguments(self) -> list[str]:
        """What the application finds in sys.argv."""
        return []

    def command(self) -> list[str]:
        return [f'{self._venv}/bin/python', str(_SERVE), self.application,
                CONTROLLER, str(self.port), *self.arguments()]


class Keystone(WebService):
    """The identity service."""

    name = application = 'keystone'
    port = KEYSTONE_PORT

    @property
    def keys(self) -> pathlib.Path:
        """Directory of the Fernet keys."""
        return self.directory / 'keys'

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(),
                'OS_KEYSTONE_CONFIG_FILES': f'{self.directory}/keystone.conf'}

    def prepare(self) -> None:
        super().prepare()
        (self.directory / 'keystone.conf').write_text(
            '[DEFAULT]\nuse_stderr = true\n'
            '[database]\nconnection = '
            f'mysql+pymysql://lab:{PASSWORD}@{CONTROLLER}/keystone\n'
            f'[token]\nexpiration = 86400\n'
            # Nobody attacks a lab, and each request of a client without a
            # token costs a quarter of a second of hashing by default.
            '[identity]\npassword_hash_rounds = 4\n'
            # One process.
            '[cache]\nbackend = dogpile.cache.memory\n'
            f'[fernet_tokens]\nkey_repository = {self.keys}/fernet\n'
            '[fernet_receipts]\n'
            f'key_repository = {self.keys}/fernet\n'
            f'[credential]\nkey_repository = {self.keys}/credential\n')

    def manage(self, *words: str) -> None:
        """Run keystone-manage."""
        run(*self._network.argv(
            f'{self._venv}/bin/keystone-manage', '--config-file',
            f'{self.directory}/keystone.conf', *words),
            env=self.environment())


class CinderAPI(WebService):
    """cinder-api."""

    name = 'cinder-api'
    application = 'cinder'
    port = CINDER_PORT

    def arguments(self) -> list[str]:
        return ['--config-file', str(self.directory.parent / 'cinder.conf')]


class CinderScheduler(PythonService):
    """cinder-scheduler; the database says when it is up."""

    name = 'cinder-scheduler'

    def ready(self) -> bool:
        return True

    def command(self) -> list[str]:
        return [f'{self._venv}/bin/cinder-scheduler', '--config-file',
                str(self.directory.parent / 'cinder.conf')]
