# SPDX-License-Identifier: Apache-2.0
"""cinder-volume in a node, as a packager would set it up."""
from __future__ import annotations

import datetime
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from lab import config
from lab.errors import LabError
from lab.node import Node
from lab.processes import wait_for

_PID = '/run/cinder-volume.pid'
Query = Callable[[str], list[tuple[Any, ...]]]

# The leader of a session of its own, so that all the service's processes
# (but not its privileged helpers, which see it go) can be found and killed.
_START = f'''
cd /var/lib/cinder
export PATH="$1/bin:$PATH" HOME=/var/lib/cinder
setsid sh -c 'echo $$ >{_PID}
    exec setpriv --reuid cinder --regid cinder --init-groups \\
    "$1/bin/cinder-volume" --config-file /etc/cinder/cinder.conf' \\
    sh "$1" </dev/null >>"$2" 2>&1 &
'''

_INSTALL = '''
set -e
getent passwd cinder >/dev/null ||
    useradd --system --home-dir /var/lib/cinder --shell /bin/sh cinder
install -d -o cinder -g cinder /var/lib/cinder /var/lib/cinder/lock
install -d /etc/cinder/rootwrap.d
cp "$1"/etc/cinder/rootwrap.d/*.filters \\
    "$1"/etc/os-brick/rootwrap.d/*.filters /etc/cinder/rootwrap.d
for file in "$2"/cinder/rootwrap.d/*.filters; do
    [ ! -e "$file" ] || cp "$file" /etc/cinder/rootwrap.d
done
for file in "$2"/udev/rules.d/*.rules; do
    [ ! -e "$file" ] || cp "$file" /etc/udev/rules.d
done
udevadm control --reload
'''


class VolumeService:
    """cinder-volume of one node."""

    def __init__(self, node: Node, venv: pathlib.Path,
                 etc: pathlib.Path, query: Query, driver: str, backend: Mapping[str, object],
                 default: Mapping[str, object]) -> None:
        self.log = node.directory / 'cinder-volume.log'
        self.host = f'{node.name}@{config.BACKEND}'
        self._node = node
        self._venv = venv
        self._etc = etc
        self._query = query
        self._driver = driver
        self._backend = backend
        self._default = default
        self._started: datetime.datetime | None = None
        self._log_start = 0

    def install(self) -> None:
        """Write what a package and its operator put on a node."""
        node = self._node
        self.configure()
        node.write('/etc/cinder/rootwrap.conf', config.rootwrap(self._venv))
        node.write('/etc/sudoers.d/cinder', config.sudoers(self._venv),
                   0o440)
        node.run(['sh', '-c', _INSTALL, 'sh', str(self._venv),
                  str(self._etc)])

    def configure(self, backend: Mapping[str, object] | None = None,
                  default: Mapping[str, object] | None = None) -> None:
        """Write cinder.conf, with options changed; start() makes it so."""
        node = self._node
        node.write('/etc/cinder/cinder.conf', config.node(
            node.name, node.mgmt_address, node.data_address, self._venv,
            self._driver, {**self._backend, **(backend or {})},
            {**self._default, **(default or {})}))

    def start(self, wait: bool = False) -> None:
        """Start the service; wait_up() tells when it works."""
        if self.running():
            raise LabError(f'cinder-volume runs on {self._node.name}')
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._started = self._now()
        self._node.run(['sh', '-c', _START, 'sh', str(self._venv),
                        str(self.log)])
        if wait:
            self.wait_up()

    def _now(self) -> datetime.datetime:
        # The clock that heartbeats are written by, in whole seconds.
        return datetime.datetime.now(datetime.timezone.utc).replace(
            tzinfo=None, microsecond=0)

    def pids(self) -> list[int]:
        """The service's processes in the node."""
        out = self._node.run(
            f'test ! -e {_PID} || pgrep -s "$(cat {_PID})"',
            check=False).stdout
        return [int(pid) for pid in out.split()]

    def running(self) -> bool:
        """Whether a process of the service is alive."""
        return bool(self.pids())

    def wait_up(self, timeout: float = 180) -> None:
        """Wait for the first heartbeat since start().

        Cinder writes none before the driver is initialized and the
        service listens.  LabError says what the log shows if it ends.
        """
        if self._started is None:
            raise LabError(f'{self.host} was not started')
        since = self._started.isoformat(sep=' ')

        def beats() -> bool:
            if self._query(
                    'SELECT 1 FROM services WHERE deleted = 0 AND '
                    f'`binary` = "cinder-volume" AND host = "{self.host}" '
                    f'AND updated_at > "{since}"'):
                return True
            if 'Failed to initialize driver' in self.new_log():
                raise LabError(f'{self.host}: the driver failed to '
                               f'initialize: {self.errors()}')
            if not self.running():
                raise LabError(f'{self.host} ended: see {self.log}')
            return False
        wait_for(f'heartbeat of {self.host} (see {self.log})', beats,
                 timeout, 0.5)

    def new_log(self) -> str:
        """What the service logged since start()."""
        with self.log.open('rb') as file:
            file.seek(self._log_start)
            return file.read().decode(errors='replace')

    def errors(self) -> str:
        """The last error in the log since start()."""
        lines = [line for line in self.new_log().splitlines()
                 if ' ERROR ' in line or ' CRITICAL ' in line]
        return lines[-1] if lines else f'see {self.log}'

    def stop(self) -> None:
        """SIGTERM the service and wait for its end."""
        self._signal('TERM')

    def kill(self) -> None:
        """kill -9 every process of the service at once."""
        self._signal('KILL')

    def _signal(self, name: str) -> None:
        # TERM goes to the leader, which ends its workers itself.
        who = f'-s "$(cat {_PID})"' if name == 'KILL' else f'-F {_PID}'
        self._node.run(f'test ! -e {_PID} || pkill -{name} {who}',
                       check=False)
        wait_for(f'end of {self.host}', lambda: not self.running(), 60)
