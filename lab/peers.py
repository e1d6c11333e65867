# SPDX-License-Identifier: Apache-2.0
"""This driver beside what a user would otherwise take: Cinder's LVM driver.

Both are backends of the same nodes and have their volumes in the same groups.
What is compared alternates, so that a machine busy for a while does not show.
"""
from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lab import config, figures, fio, look
from lab.figures import Aim, Figure
from lab.fio import Load
from lab.lab import Lab, LabNode
from lab.processes import wait_for

T = TypeVar('T')
LVM = 'lvm'
# What enables it, with LIO as here, and nothing else.
BACKENDS = {LVM: {
    'volume_driver': 'cinder.volume.drivers.lvm.LVMVolumeDriver',
    'target_helper': 'lioadm', 'lvm_type': 'default',
    'volume_clear': 'none'}}
OURS = config.BACKEND
BARE = 'bare LV'
# The node with the volume, and the one of the server; from 1.
_HOME, _AWAY = 1, 2
# Of each load: kind, block size, depth, and how fio tells its direction.
LOADS = {
    '4 KiB random reads, depth 1': ('randread', '4k', 1, 'read'),
    '4 KiB random reads, depth 32': ('randread', '4k', 32, 'read'),
    '4 KiB random writes, depth 1': ('randwrite', '4k', 1, 'write'),
    '4 KiB random writes, depth 32': ('randwrite', '4k', 32, 'write'),
    '1 MiB reads in a row': ('read', '1m', 4, 'read'),
    '1 MiB writes in a row': ('write', '1m', 4, 'write'),
}
_SECONDS = 3
# Bytes of the volume that are read and written: they are on the disk before.
_AREA = 256 << 20
# What Nova's os-brick does on a host. It runs there already when a volume is
# attached: to start it does not count.
_BRICK = '''
import json, sys, time
from oslo_config import cfg
from oslo_concurrency import lockutils
lockutils.set_defaults('/tmp')
import os_brick
from os_brick import privileged
from os_brick.initiator import connector
os_brick.setup(cfg.CONF)
for context in privileged.default, privileged.brick_privsep_hide_output:
    context.set_client_mode(False)
verb, properties = sys.argv[1], json.loads(sys.argv[2])
found = connector.InitiatorConnector.factory('ISCSI', None)
begin = time.monotonic()
if verb == 'connect':
    path = found.connect_volume(properties)['path']
else:
    path = found.disconnect_volume(properties, None)
print(json.dumps([time.monotonic() - begin, path]))
'''
# In the order of a volume's life.
STEPS = ('create', 'attach at home', 'detach at home', 'attach elsewhere',
         'detach elsewhere', 'delete')
# Of what is measured how many times as long as the peer it may take.
_AIMS = {'attach elsewhere': Aim(1.5, most=True)}


@dataclasses.dataclass(frozen=True)
class Connected:
    """A volume that a server could use.

    :ivar info: what Cinder told the host
    """

    attachment: str
    node: LabNode
    path: str
    info: dict[str, Any]


class Driver:
    """How hosts get at the volumes of a backend.

    :ivar name: of the backend; all but ours are logged in to by os-brick
    """

    def __init__(self, lab: Lab, name: str) -> None:
        self.name = name
        self._lab = lab

    def connect(self, volume: str, number: int) -> tuple[Connected, float]:
        """Attach on a node; and the seconds until a server may use it."""
        begin, node = time.monotonic(), self._lab.nodes[number - 1]
        attachment = self._lab.reserve(volume)
        info = self._lab.connect(attachment, number)
        seconds = time.monotonic() - begin
        # With ours it is there when Cinder has answered.
        more, path = ((0.0, info['device_path']) if self.name == OURS
                      else self._brick(node, 'connect', info))
        self._lab.complete(attachment)
        return Connected(attachment, node, str(path), info), seconds + more

    def disconnect(self, found: Connected) -> float:
        """The seconds until it is detached."""
        seconds = 0.0
        if self.name != OURS:
            seconds, _ = self._brick(found.node, 'disconnect', found.info)
        begin = time.monotonic()
        self._lab.detach_volume(found.attachment)
        return seconds + time.monotonic() - begin

    def _brick(self, node: LabNode, verb: str, info: dict[str, Any]
               ) -> tuple[float, str | None]:
        out = node.run([f'{self._lab.venv}/bin/python', '-W', 'ignore', '-c',
                        _BRICK, verb, json.dumps(info)], timeout=300).stdout
        seconds, path = json.loads(out.splitlines()[-1])
        return float(seconds), path


class Peers:
    """Compares in ``lab``, whose nodes have both backends."""

    def __init__(self, lab: Lab, times: int,
                 say: Callable[[str], None]) -> None:
        self._lab = lab
        self._times = times
        self._say = say
        self._drivers = [Driver(lab, name) for name in (OURS, LVM)]

    def run(self) -> list[Figure]:
        """Both comparisons."""
        self._lab.create_type(LVM, LVM)
        return [*self._lives(), *self._loads()]

    # How long each step of a volume's life takes

    def _lives(self) -> list[Figure]:
        samples: dict[str, dict[str, list[float]]] = {
            step: {OURS: [], LVM: []} for step in STEPS}
        for number in range(self._times + 1):
            self._say(f'steps of a volume, {number} of {self._times}')
            for driver in alternating(self._drivers, number):
                seconds = self._life(driver)
                # In the first round services load what they need.
                for step in STEPS if number else ():
                    samples[step][driver.name].append(seconds[step])
        return [figures.ratio(step, OURS, LVM, samples[step], 's',
                              _AIMS.get(step)) for step in STEPS]

    def _life(self, driver: Driver) -> dict[str, float]:
        lab, found = self._lab, {}
        begin = time.monotonic()
        volume = self._create(driver)
        found['create'] = time.monotonic() - begin
        for number, where in (_HOME, 'at home'), (_AWAY, 'elsewhere'):
            at, found[f'attach {where}'] = driver.connect(volume, number)
            found[f'detach {where}'] = driver.disconnect(at)
            lab.wait_volume(volume, 'available')
        self._settle(driver, volume)
        begin = time.monotonic()
        lab.delete_volume(volume)
        found['delete'] = time.monotonic() - begin
        return found

    def _create(self, driver: Driver) -> str:
        return self._lab.create_volume(1, _HOME, backend=driver.name,
                                       volume_type=driver.name)

    def _settle(self, driver: Driver, volume: str) -> None:
        """Wait until nothing is copied any more: it would be in the way."""
        def settled() -> bool:
            rows = self._lab.sql('SELECT provider_id FROM volumes WHERE '
                                 f"id = '{volume}'")
            return 'from=' not in (rows[0][0] or '')
        if driver.name == OURS:
            wait_for('the end of the relocation', settled, 600, 0.5)

    # What a server gets

    def _loads(self) -> list[Figure]:
        rates: dict[str, dict[str, list[float]]] = {
            load: {OURS: [], LVM: [], BARE: []} for load in LOADS}
        late: dict[str, dict[str, list[float]]] = {
            load: {OURS: [], LVM: [], BARE: []} for load in LOADS}
        volumes = {driver.name: self._create(driver)
                   for driver in self._drivers}
        at = {driver.name: driver.connect(volumes[driver.name], _AWAY)[0]
              for driver in self._drivers}
        self._settle(self._drivers[0], volumes[OURS])
        paths = {name: found.path for name, found in at.items()}
        node = at[OURS].node
        node.run('lvcreate --quiet --yes -n bench-bare -L 1g '
                 f'{look.GROUP}')
        paths[BARE] = f'/dev/{look.GROUP}/bench-bare'
        for path in paths.values():
            node.run(f'dd if=/dev/zero of={path} bs=1M count={_AREA >> 20} '
                     'oflag=direct', timeout=300)
        for number in range(self._times):
            self._say(f'loads, {number + 1} of {self._times}')
            for load in LOADS:
                for name in alternating(list(paths), number):
                    found = self._load(node, paths[name], load)
                    rates[load][name].append(found.rate)
                    late[load][name].append(found.late)
        node.run('lvremove --quiet --yes cinder-volumes/bench-bare')
        for driver in self._drivers:
            driver.disconnect(at[driver.name])
            self._lab.wait_volume(volumes[driver.name], 'available')
            self._lab.delete_volume(volumes[driver.name])
        return [figure for load in LOADS for figure in (
            figures.ratio(f'{load}, against LVM', OURS, LVM, rates[load],
                          'a second'),
            figures.ratio(f'{load}, against a bare LV', OURS, BARE,
                          rates[load], 'a second'),
            figures.ratio(f'{load}, 99 % within, against LVM', OURS, LVM,
                          late[load], 'ms'))]

    @staticmethod
    def _load(node: LabNode, path: str, load: str) -> Load:
        kind, size, depth, direction = LOADS[load]
        result = node.run(fio.command(
            path, f'--iodepth={depth}', '--ioengine=libaio',
            *fio.for_seconds(_SECONDS), f'--size={_AREA}', kind=kind,
            size=size))
        return Load.parse(result.stdout, direction)


def alternating(things: Sequence[T], number: int) -> list[T]:
    """The same in the order for a round: who is first changes."""
    return list(reversed(things) if number % 2 else things)
