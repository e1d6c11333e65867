# SPDX-License-Identifier: Apache-2.0
"""cinder-volume of a machine, installed and run as systemd would have it."""
from __future__ import annotations

import pathlib
from collections.abc import Mapping

from lab.errors import LabError
from lab.machine import image
from lab.machine.node import Machine
from lab.processes import wait_for
from lab.volume import VolumeService

UNIT = 'cinder-volume.service'
# Of the product: brings volumes up from the disks alone.
ACTIVATION = 'cinder-dmclone.service'
_UNIT_TEXT = '''\
[Unit]
Description=Cinder volume
After=network-online.target iscsid.service
Wants=network-online.target

[Service]
User=cinder
RuntimeDirectory=cinder
Environment=PATH={venv}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
ExecStart={venv}/bin/cinder-volume --config-file /etc/cinder/cinder.conf
StandardOutput=append:{log}
StandardError=inherit

[Install]
WantedBy=multi-user.target
'''


class MachineVolumeService(VolumeService):
    """cinder-volume of one machine.

    :ivar wheels: where the machine sees the wheel of the package
    """

    def __init__(self, node: Machine, wheels: pathlib.Path, driver: str,
                 backend: Mapping[str, object],
                 default: Mapping[str, object]) -> None:
        super().__init__(node, image.VENV, driver, backend, default)
        self._wheels = wheels

    def install(self) -> None:
        node = self._node
        wheel, = self._wheels.glob('*.whl')
        # What it requires is in place; to let pip see that takes minutes.
        node.run([f'{self._venv}/bin/pip', 'install', '--quiet', '--no-index',
                  '--no-deps', '--force-reinstall', str(wheel)], timeout=900)
        node.write(f'/etc/systemd/system/{UNIT}',
                   _UNIT_TEXT.format(venv=self._venv, log=self.log))
        # It lets systemd look at all units again.
        super().install()

    def start(self, wait: bool = False) -> None:
        if self.running():
            raise LabError(f'{self.program} runs on {self._node.name}')
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._node.run(['systemctl', 'start', UNIT])
        if wait:
            self.wait_up()

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
