# SPDX-License-Identifier: Apache-2.0
"""A node that is a stock Debian in QEMU."""
from __future__ import annotations

import pathlib
import signal
from collections.abc import Sequence

from lab import install
from lab.machine import image
from lab.network import CONTROLLER, Network
from lab.node import Node, Size
from lab.processes import run, wait_for

PROCESSORS = 2
# It takes what it touches; a stock system does not start in less.
MEMORY_MIB = 2048


class Machine(Node):
    """Node ``number`` (from 1); see Node.

    Of a size with volatile disks only that of the volume group is one: the
    system's own keeps what it was given.
    """

    def __init__(self, number: int, directory: pathlib.Path,
                 network: Network, shares: Sequence[pathlib.Path],
                 size: Size = Size(memory_mib=MEMORY_MIB)) -> None:
        super().__init__(number, directory, network, shares, size)
        self.disk = '/dev/vdb'
        del self._disks[:1]
        self._root = directory / 'root.qcow2'

    def _command(self) -> list[str]:
        found = image.ensure()
        arguments = ['root=/dev/vda', 'rw', 'console=ttyS0', 'quiet',
                     'net.ifnames=0', *self._told()]
        return [
            'qemu-system-x86_64', '-nodefaults', '-no-user-config',
            '-no-reboot', '-display', 'none', '-M', 'q35',
            '-accel', 'tcg,thread=multi', '-cpu', 'max',
            '-smp', str(PROCESSORS), '-m', str(self._size.memory_mib),
            '-chardev', f'file,id=console,path={self.console_log},append=on',
            '-serial', 'chardev:console', '-device', 'virtio-rng-pci',
            *_drive('root', _file(self._root, 'qcow2')),
            *_drive('disk', self._disk()),
            *self._tap(0, 'data'), *self._tap(1, 'mgmt'),
            *(word for number, path in enumerate(self._shares)
              for word in _share(number, path)),
            '-kernel', str(found.kernel), '-initrd', str(found.initrd),
            '-append', ' '.join(arguments)]

    def _disk(self) -> str:
        """Where QEMU finds that of the volume group."""
        if not self._disks:
            return _file(self._images[1], 'raw')
        install.ensure_volatile()
        (disk,) = self._disks
        disk.start()
        # What the machine does not flush is not flushed here either.
        return ('driver=nbd,server.type=inet,export=disk,cache.no-flush=off,'
                f'server.host={CONTROLLER},server.port={disk.port}')

    def _tap(self, index: int, bridge: str) -> list[str]:
        return ['-netdev', f'tap,id={bridge},ifname={bridge}{self.number},'
                'script=no,downscript=no',
                '-device', f'virtio-net-pci,netdev={bridge},'
                f'mac={self._mac(index)},romfile=']

    def _make_disks(self) -> None:
        disk = self._images[1]
        if not self._root.exists():
            run('qemu-img', 'create', '-q', '-f', 'qcow2', '-F', 'raw',
                '-b', str(image.ensure().root), str(self._root))
        if not disk.exists():
            with disk.open('wb') as file:
                file.truncate(self._size.disk_gib << 30)

    def reboot(self) -> None:
        """Let systemd end everything, and wait until it is up again."""
        self._on = False
        # It answers before the agent ends, or not at all.
        self.run('systemctl --no-block reboot')
        wait_for(f'end of {self.name} (see {self.console_log})',
                 lambda: not self.running())
        self.start()
        self.wait_booted()

    def freeze(self) -> None:
        self._group.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._group.signal(signal.SIGCONT)


def _file(path: pathlib.Path, form: str) -> str:
    # What was written stays if QEMU is killed; only the machine that runs
    # the lab could lose it.
    return f'file={path},format={form},cache=unsafe'


def _drive(name: str, source: str) -> list[str]:
    return ['-drive', f'if=none,id={name},discard=unmap,{source}',
            '-device', f'virtio-blk-pci,drive={name}']


def _share(number: int, path: pathlib.Path) -> list[str]:
    return ['-virtfs', f'local,path={path},mount_tag=share{number},'
            'security_model=none,multidevs=remap']
