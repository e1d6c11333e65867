# SPDX-License-Identifier: Apache-2.0
"""A machine without a control plane: the driver's devices and nothing else."""
from __future__ import annotations

import pathlib
import secrets
import shutil

from lab import install, logs, programs, remains, virtualenv
from lab.errors import LabError
from lab.machine import image
from lab.machine.node import Machine
from lab.machine.volume import MachineVolumeService
from lab.network import Network
from lab.processes import wait_for
from lab.volume import DRIVER

_STACKS = pathlib.Path(__file__).with_name('stacks.py')
# As the service makes it when it starts first.
_KEY = '''
cd /var/lib/cinder && umask 077 && head -c 32 /dev/urandom >dmclone.key &&
    chown cinder: dmclone.key
'''
# Both ends of a pipe are open in who reads, so that it never ends.
_LISTEN = '''
mkfifo "$0" && exec 0<>"$0" && exec "$@"
'''
_TELL = '''
until [ -p "$0" ]; do sleep 0.1; done
printf '%s\\n' "$@" >"$0"
'''


class Alone:
    """A machine with the driver installed; start() and stop()."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = remains.ROOT / name
        self.network = Network(name)
        self.node = Machine(1, self.directory / 'node1', self.network,
                            [self.directory, install.cache_directory()])
        self.nodes = [self.node]
        self.volume = MachineVolumeService(
            self.node, self.directory, DRIVER,
            {'volume_clear': 'none'}, {})
        self._claim: remains.Claim | None = None

    def start(self) -> None:
        """Boot it and install the driver; if it fails nothing stays."""
        base = install.ensure()
        image.ensure()
        self._claim = remains.Claim(self.name)
        remains.sweep()
        try:
            remains.remove(self.name)
            self.directory.mkdir(parents=True)
            self.network.create(1)
            self.node.start()
            virtualenv.build_wheel(base, self.directory)
            programs.install(self.directory)
            shutil.copy(_STACKS, self.directory)
            self.node.wait_booted()
            self.volume.install()
            self.node.run(_KEY)
        except BaseException as error:
            if isinstance(error, Exception):
                logs.keep(self.directory)
            self.stop()
            raise

    def stop(self) -> None:
        """End it and remove every trace."""
        remains.remove(self.name)
        if self._claim:
            self._claim.release()
            self._claim = None

    def stacks(self, *words: object) -> Stacks:
        """Start lab.machine.stacks in it."""
        return Stacks(self.node, [
            f'{image.VENV}/bin/python', '-W', 'ignore',
            str(self.directory / _STACKS.name), self.node.data_address,
            *map(str, words)])


class Stacks:
    """A program in a machine that takes steps when it is told to."""

    def __init__(self, node: Machine, command: list[str]) -> None:
        self._node = node
        self._pipe = f'/run/steps-{secrets.token_hex(4)}'
        self._command = node.popen(
            ['sh', '-c', _LISTEN, self._pipe, *command])
        self._done = 0

    def __call__(self, *steps: str) -> None:
        """Let it take steps; returns when all are done.

        :raises LabError: if one fails
        """
        self._node.run(['sh', '-c', _TELL, self._pipe, *steps])
        self._done += len(steps)
        wait_for(' '.join(steps), self._taken, 1800, 0.5)

    def _taken(self) -> bool:
        result = self._command.poll()
        if result:
            raise LabError(f'{result.stdout}{result.stderr}')
        return self._command.output().count('\n') >= self._done

    def ended(self) -> bool:
        """Whether it takes no more steps."""
        return self._command.poll() is not None

    def close(self) -> None:
        """End it."""
        self._command.kill()
