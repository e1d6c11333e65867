# SPDX-License-Identifier: Apache-2.0
"""cinder-volume in a node, as a packager would set it up."""
from __future__ import annotations

import pathlib
from collections.abc import Mapping

from lab import config, container
from lab.agent import Result
from lab.daemon import Daemon
from lab.node import Node

_INSTALL = '''
set -e
getent passwd cinder >/dev/null ||
    useradd --system --home-dir /var/lib/cinder --shell /bin/sh cinder
install -d -o cinder -g cinder /var/lib/cinder /var/lib/cinder/lock
install -d /etc/cinder/rootwrap.d
cp "$1"/etc/cinder/rootwrap.d/*.filters \\
    "$1"/etc/os-brick/rootwrap.d/*.filters /etc/cinder/rootwrap.d
"$1"/bin/cinder-dmclone install-files
# As a package manager does: a node may lose power soon.
sync
'''


CONF = '/etc/cinder/cinder.conf'
DRIVER = 'cinder_dmclone.driver.DMCloneVolumeDriver'
# As systemd would: the service's user, few variables.
_CLI = '''
cd / && exec env -i LANG=C.UTF-8 HOME=/var/lib/cinder \\
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin \\
    setpriv --reuid cinder --regid cinder --init-groups "$@"
'''


class VolumeService(Daemon):
    """cinder-volume of one node.

    ``more`` are further sections of its cinder.conf, ``beside`` further
    backends; a ``native`` one runs on threads in place of eventlet.
    """

    program = 'cinder-volume'
    home = '/var/lib/cinder'
    up = 'Driver post RPC initialization completed successfully'
    failed = 'Failed to initialize driver'

    def __init__(self, node: Node, venv: pathlib.Path, driver: str,
                 backend: Mapping[str, object],
                 default: Mapping[str, object],
                 more: config.Sections | None = None,
                 native: bool = False,
                 beside: Mapping[str, Mapping[str, object]] | None = None
                 ) -> None:
        super().__init__(node, venv)
        self.host = self.title = f'{node.name}@{config.BACKEND}'
        self._driver = driver
        self._backend = backend
        self._default = default
        self._more = more
        self._beside = beside
        self._native = native
        # Whether it is started in what is to it a container of Kolla's.
        self.contained = False

    def install(self) -> None:
        node = self._node
        self.configure()
        node.write('/etc/cinder/rootwrap.conf', config.rootwrap(self._venv))
        node.write('/etc/sudoers.d/cinder', config.sudoers(self._venv),
                   0o440)
        node.run(['sh', '-c', _INSTALL, 'sh', str(self._venv)])

    def use(self, venv: pathlib.Path) -> None:
        """Have another release of the driver; start() makes it so."""
        self._venv = venv
        self.install()

    def configure(self) -> None:
        """Write cinder.conf; start() makes it so."""
        self._write(CONF, self._driver)

    def choose(self, **options: object) -> None:
        """The same with other options of the backend from now on."""
        self._backend = {**self._backend, **options}
        self.configure()

    def _write(self, path: str, driver: str) -> None:
        node = self._node
        node.write(path, config.node(
            node.name, node.mgmt_address, node.data_address, self._venv,
            driver, self._backend, self._default, self._more, self._beside))

    def prepare(self) -> None:
        self._node.run(['install', '-d', '-o', 'cinder', '-g', 'cinder',
                        '/run/cinder'])
        if self.contained:
            self._node.run(container.CONFIGFS)

    def command(self) -> list[str]:
        # cinder/monkey_patch.py
        choice = f'OS_CINDER_DISABLE_EVENTLET_PATCHING={self._native}'
        command = ['env', choice, 'setpriv', '--reuid', 'cinder', '--regid',
                   'cinder', '--init-groups',
                   f'{self._venv}/bin/cinder-volume', '--config-file', CONF]
        return container.inside(command) if self.contained else command

    def cli(self, verb: str, *words: str, check: bool = True) -> Result:
        """Run the command of an operator: ``cinder-dmclone VERB``."""
        # It knows the product's driver only, not one with fault points.
        self._node.run(['sed', '-i', f's/{self._driver}/{DRIVER}/', CONF])
        try:
            return self.run_cli(verb, *words, check=check)
        finally:
            self.configure()

    def run_cli(self, *words: str, check: bool = False) -> Result:
        """The same with any arguments, and a cinder.conf as it is."""
        return self._node.run(
            ['sh', '-c', _CLI, 'sh', f'{self._venv}/bin/cinder-dmclone',
             *words], check=check, timeout=600)
