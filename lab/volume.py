# SPDX-License-Identifier: Apache-2.0
"""cinder-volume in a node, as a packager would set it up."""
from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping

from lab import config
from lab.errors import LabError
from lab.node import Node
from lab.processes import wait_for

_PID = '/run/cinder-volume.pid'
# What Cinder logs last when a backend starts, and when it cannot.
_UP = 'Driver post RPC initialization completed successfully'
_FAILED = 'Failed to initialize driver'

# The leader of a session of its own, so that all the service's processes
# (but not its privileged helpers, which see it go) can be found and killed.
_START = f'''
cd /var/lib/cinder
install -d -o cinder -g cinder /run/cinder
rm -f {_PID}
export PATH="$1/bin:$PATH" HOME=/var/lib/cinder
setsid sh -c 'echo $$ >{_PID}
    exec setpriv --reuid cinder --regid cinder --init-groups \\
    "$1/bin/cinder-volume" --config-file /etc/cinder/cinder.conf' \\
    sh "$1" </dev/null >>"$2" 2>&1 &
until [ -s {_PID} ]; do sleep 0.05; done
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
                 etc: pathlib.Path, driver: str,
                 backend: Mapping[str, object],
                 default: Mapping[str, object]) -> None:
        self.log = node.directory / 'cinder-volume.log'
        self.host = f'{node.name}@{config.BACKEND}'
        self._node = node
        self._venv = venv
        self._etc = etc
        self._driver = driver
        self._backend = backend
        self._default = default
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
        self._node.run(['sh', '-c', _START, 'sh', str(self._venv),
                        str(self.log)])
        if wait:
            self.wait_up()

    def pids(self) -> list[int]:
        """The service's processes in the node."""
        out = self._node.run(
            f'test ! -e {_PID} || pgrep -s "$(cat {_PID})"',
            check=False).stdout
        return [int(pid) for pid in out.split()]

    def running(self) -> bool:
        """Whether a process of the service is alive."""
        return bool(self.pids())

    def wait_up(self, timeout: float = 240) -> None:
        """Wait until the driver is initialized and the service listens.

        LabError says what the log shows if it ends or cannot.
        """
        def up() -> bool:
            log = self.new_log()
            if _FAILED in log:
                raise LabError(f'{self.host}: the driver failed to '
                               f'initialize: {self.errors()}')
            if _UP in log:
                return True
            if not self.running():
                raise LabError(f'{self.host} ended: {self.errors()}')
            return False
        wait_for(f'{self.host} to be up (see {self.log})', up, timeout, 0.5)

    def new_log(self) -> str:
        """What the service logged since start()."""
        with self.log.open('rb') as file:
            file.seek(self._log_start)
            return file.read().decode(errors='replace')

    def errors(self) -> str:
        """The last error logged since start(), without its traceback."""
        found = re.findall(r' (?:ERROR|CRITICAL) \S+ \[.*', self.new_log())
        return found[-1].strip() if found else f'see {self.log}'

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
