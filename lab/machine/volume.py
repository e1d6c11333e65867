# SPDX-License-Identifier: Apache-2.0
"""cinder-volume of a machine, installed and run as systemd would have it."""
from __future__ import annotations

import pathlib
from collections.abc import Mapping

from lab.agent import Result
from lab.errors import LabError
from lab.machine import image
from lab.machine.node import Machine
from lab.processes import wait_for
from lab.volume import CONF, DRIVER, VolumeService

UNIT = 'cinder-volume.service'
# Of the product: brings volumes up from the disks alone.
ACTIVATION = 'cinder-dmclone.service'
# What the service reads. The command of an operator, which the product's unit
# runs too, knows the product's driver only, not one with fault points.
_CONF = '/etc/cinder/cinder-volume.conf'
_UNIT_TEXT = '''\
[Unit]
Description=Cinder volume
After=network-online.target iscsid.service
Wants=network-online.target

[Service]
User=cinder
RuntimeDirectory=cinder
Environment=PATH={venv}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
ExecStart={venv}/bin/cinder-volume --config-file {conf}
StandardOutput=append:{log}
StandardError=inherit

[Install]
WantedBy=multi-user.target
'''
# What pip would want to have is in place; to let it see that takes minutes.
_INSTALL = '''
set -e
"$1"/bin/pip install --quiet --no-index --no-deps --force-reinstall \
    "$2"/wheels/*.whl
[ ! -e "$2"/dmclone_faulty.py ] ||
    cp "$2"/dmclone_faulty.py "$1"/lib/python3.*/site-packages
'''


class MachineVolumeService(VolumeService):
    """cinder-volume of one machine; from its first start on at each boot.

    :ivar directory: where the machine sees the folder ``wheels``
    """

    def __init__(self, node: Machine, directory: pathlib.Path, driver: str,
                 backend: Mapping[str, object],
                 default: Mapping[str, object]) -> None:
        super().__init__(node, image.VENV, driver, backend, default)
        self._directory = directory

    def install(self) -> None:
        node = self._node
        node.run(['sh', '-c', _INSTALL, 'sh', str(self._venv),
                  str(self._directory)], timeout=900)
        node.write(f'/etc/systemd/system/{UNIT}', _UNIT_TEXT.format(
            venv=self._venv, log=self.log, conf=_CONF))
        super().install()
        node.run('systemctl daemon-reload; sync')

    def configure(self) -> None:
        self._write(CONF, DRIVER)
        self._write(_CONF, self._driver)

    def start(self, wait: bool = False) -> None:
        if self.running():
            raise LabError(f'{self.program} runs on {self._node.name}')
        self.await_start()
        # What failed may start again.
        self._systemctl('reset-failed')
        self._systemctl('enable', '--quiet', '--now')
        if wait:
            self.wait_up()

    def await_start(self) -> None:
        """Let wait_up() tell of a start that follows, at boot perhaps."""
        self._log_start = self.log.stat().st_size if self.log.exists() else 0

    def pids(self) -> list[int]:
        text = self._node.run(
            f'cat /sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs',
            check=False).stdout
        return [int(word) for word in text.split()]

    def pause(self) -> None:
        self._systemctl('kill', '--signal=STOP')

    def resume(self) -> None:
        self._systemctl('kill', '--signal=CONT')

    def _signal(self, name: str) -> None:
        # systemd sends both to every process, privileged ones too.
        if name == 'KILL':
            self._systemctl('kill', '--signal=KILL')
        else:
            self._systemctl('stop')
        wait_for(f'end of {self.title}', lambda: not self.running())

    def _systemctl(self, verb: str, *options: str) -> None:
        self._node.run(['systemctl', verb, *options, UNIT], check=False)

    def cli(self, verb: str, *words: str, check: bool = True) -> Result:
        return self.run_cli(verb, *words, check=check)
