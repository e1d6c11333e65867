# SPDX-License-Identifier: Apache-2.0
"""A node of the lab: a user-mode-linux kernel of its own."""
from __future__ import annotations

import dataclasses
import os
import pathlib
import random
import re
import shutil
import socket
from collections.abc import Sequence

from lab import agent, install, kernel, mconsole
from lab.disk import Disk, Loss
from lab.errors import LabError
from lab.network import CONTROLLER, Network, data_address, mgmt_address
from lab.processes import Group, run, wait_for

_INIT = pathlib.Path(__file__).with_name('node-init')
_HOLD = 'exec 3<>"$1"; echo open; exec sleep infinity'
# The kernel of a node sets its timer for one alarm at a time, and forgets an
# alarm that comes while it handles one (unblock_signals,
# arch/um/os-Linux/signal.c): time may stand still in the node from then on.
# Any alarm makes it look at its clock and set the timer again. Until it
# listens to them, they are ignored.
ALARMED = '''
trap "" ALRM
while [ -e /proc/$$/exe ]; do kill -ALRM $$; sleep 1; done 2>/dev/null &
exec "$@"
'''
# In the console's log, which goes on after a boot.
_SWITCHED_ON = '--- switched on\n'
# pr_err() in mm/oom_kill.c: it is shown in spite of "quiet".
_KILLED = re.compile(r'^.*ut of memory: Killed process .*$', re.M)
# What is shown of the console of a kernel that has died.
_LAST_LINES = 5
# Of the servers of volatile disks.
_FIRST_PORT = 10809
_MOST_DISKS = 3
_META_GIB = 1


@dataclasses.dataclass(frozen=True)
class Size:
    """Memory and (sparse) disk of a node.

    The machine gives memory as the node touches it, and gets it back when
    the node is switched off.

    :ivar volatile: its disks have a write cache that a power cut empties
    :ivar metadata: the metadata of clones has a disk and a group of its own
    :ivar state_mib: of the file system for what is written beside volumes
    """

    memory_mib: int = 768
    disk_gib: int = 100
    state_mib: int = 512
    volatile: bool = False
    metadata: bool = False


class Node:
    """Node ``number`` (from 1) with everything it owns in ``directory``.

    ``shares`` are directories of the host that it sees as they are;
    ``kernel_name`` is one of those of lab.kernel.
    """

    def __init__(self, number: int, directory: pathlib.Path,
                 network: Network, shares: Sequence[pathlib.Path],
                 size: Size = Size(), kernel_name: str | None = None) -> None:
        self.number = number
        self.name = f'node{number}'
        self.directory = directory
        self.data_address = data_address(number)
        self.mgmt_address = mgmt_address(number)
        self.console_log = directory / 'console.log'
        self.volatile = size.volatile
        # As the node knows them; without the second there is no such group.
        self.disk = '/dev/nbd1' if size.volatile else '/dev/ubdb'
        self.meta_disk = ''
        if size.metadata:
            self.meta_disk = '/dev/nbd2' if size.volatile else '/dev/ubdc'
        self._network = network
        self._shares = list(shares)
        self._size = size
        self._kernel_name = kernel_name
        self._images = [directory / 'state.img', directory / 'disk.img']
        self._images += [directory / 'meta.img'] * size.metadata
        self._disks = [
            Disk(image, network, _FIRST_PORT + _MOST_DISKS * number + index)
            for index, image in enumerate(self._images) if size.volatile]
        self._group = Group(directory / 'kernel.pid')
        # Whether this object has switched it on; how much of the console's
        # log is old.
        self._on = False
        self._seen = 0

    def __repr__(self) -> str:
        return f'<{self.name}>'

    # Power

    def start(self) -> None:
        """Switch the node on; wait_booted() tells when it is usable."""
        if self.running():
            raise LabError(f'{self.name} is running already')
        self._end()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._make_disks()
        argv = self._network.argv(*self._command())
        with self.console_log.open('a') as log:
            log.write(_SWITCHED_ON)
        self._group.start(argv, self.console_log)
        self._on = True

    def _command(self) -> list[str]:
        """The command line that starts its kernel."""
        (self.directory / 'uml').mkdir()
        return [
            'sh', '-c', ALARMED, 'sh', *self._processor(),
            *kernel.choose(self._kernel_name).command(),
            f'mem={self._size.memory_mib}M',
            'rootfstype=hostfs', 'rootflags=/', 'ro', f'init={_INIT}',
            *self._attached(),
            self._interface(0, 'data'), self._interface(1, 'mgmt'),
            'con=null', 'con0=fd:0,fd:1', 'ssl=null', 'noreboot', 'quiet',
            f'uml_dir={self.directory}/uml', f'umid={self.name}',
            f'DISK={self.disk}', f'META={self.meta_disk}', *self._told()]

    def _processor(self) -> list[str]:
        """Keep a node, which has one processor, on one of the machine's.

        Its kernel and what runs on it take turns at each system call and each
        page fault, by a futex (wait_stub_done_seccomp,
        arch/um/os-Linux/skas/process.c). Between two processors that others
        use as well, that takes more than twice as long.
        """
        all_of_them = sorted(os.sched_getaffinity(0))
        place = sum(str(self.directory).encode())
        return ['taskset', '--cpu-list',
                str(all_of_them[place % len(all_of_them)])]

    def _told(self) -> list[str]:
        """The kernel's parameters that are for what boots."""
        shares = ':'.join(map(str, self._shares))
        return [f'NODE={self.number}', f'PORT={agent.PORT}',
                f'MGMT={self.mgmt_address}/24',
                f'DATA={self.data_address}/24',
                f'AGENT={agent.build(install.cache_directory())}',
                f'SHARE={shares}']

    def _mac(self, index: int) -> str:
        # Without an address of its own an interface gets another one at each
        # boot, and whoever knew the old one cannot reach the node for up to
        # a minute.
        return f'52:54:00:99:{index:02x}:{self.number:02x}'

    def _interface(self, index: int, bridge: str) -> str:
        return (f'vec{index}:transport=tap,ifname={bridge}{self.number},'
                f'mac={self._mac(index)},depth=128,gro=1')

    def _attached(self) -> list[str]:
        """The kernel's parameters that give it its disks."""
        if not self._disks:
            return [f'ubd{number}={image}'
                    for number, image in enumerate(self._images)]
        install.ensure_volatile()
        for disk in self._disks:
            disk.start()
        ports = ':'.join(str(disk.port) for disk in self._disks)
        return [f'SERVER={CONTROLLER}', f'PORTS={ports}']

    def _make_disks(self) -> None:
        state, disk, *meta = self._images
        if not state.exists():
            part = state.with_suffix('.part')
            with part.open('wb') as file:
                file.truncate(self._size.state_mib << 20)
            # Of a commit block that is torn the first sector is enough; a
            # checksum of the whole block makes older kernels refuse to mount
            # (jbd2_commit_block_csum_verify_partial, fs/jbd2/recovery.c).
            run('mkfs.ext4', '-q', '-F', '-O',
                '^metadata_csum,^metadata_csum_seed', str(part))
            part.rename(state)
        sizes = self._size.disk_gib, _META_GIB
        for image, gib in zip((disk, *meta), sizes):
            if not image.exists():
                with image.open('wb') as file:
                    file.truncate(gib << 30)

    def wait_booted(self) -> None:
        """Wait until commands can run in the node."""
        def answers() -> bool:
            if not self.running():
                raise LabError(f'{self.name} died while booting: see '
                               f'{self.console_log}')
            try:
                return self.run('true', check=False, timeout=10).code == 0
            except (LabError, TimeoutError):
                return False
        wait_for(f'boot of {self.name} (see {self.console_log})',
                 answers, 600)

    def running(self) -> bool:
        """Whether the node's kernel is running."""
        return self._group.leader() is not None

    def check(self) -> None:
        """Raise LabError if the node has died or run out of memory.

        What made it do so is told until it is switched on again, or
        forgive() is called.
        """
        if self._on and not self.running():
            lines = self.console().splitlines()[-_LAST_LINES:]
            raise LabError(f'{self.name} died; its console ends: '
                           f'{" / ".join(lines)}')
        try:
            size = self.console_log.stat().st_size
        except FileNotFoundError:
            return
        if size > self._seen:
            lines = self._killed()
            if lines:
                raise LabError(f'{self.name} is out of memory '
                               f'({self._size.memory_mib} MiB): '
                               f'{" / ".join(lines)}')
            self._seen = size

    def forgive(self) -> None:
        """Let check() tell only of what happens from now on."""
        if self.console_log.exists():
            self._seen = self.console_log.stat().st_size

    def _killed(self) -> list[str]:
        """What the kernel says of processes that it had to kill."""
        with self.console_log.open('rb') as file:
            file.seek(self._seen)
            text = file.read().decode(errors='replace')
        return _KILLED.findall(text.rpartition(_SWITCHED_ON)[2])

    def power_cut(self, seed: object = 0) -> Loss:
        """End the node at once; what it had not written to disk is lost.

        Of volatile disks also what was not flushed.

        :param seed: decides what is lost
        """
        self._end()
        return sum((disk.cut(random.Random(f'{seed} {number}'))
                    for number, disk in enumerate(self._disks)), Loss())

    @property
    def log_of_writes(self) -> pathlib.Path:
        """Log of what is written to the disk of its volume group.

        Of volatile disks only; see lab.disk.
        """
        return self._images[1].with_suffix('.writes')

    def _end(self) -> None:
        self._on = False
        self._group.kill()
        # That of a killed kernel stops the next one.
        shutil.rmtree(self.directory / 'uml', ignore_errors=True)

    def reboot(self) -> None:
        """Sync file systems, end the kernel and wait until it is up again."""
        # An in-kernel reboot loses the network.
        self.run('sync')
        self._end()
        for disk in self._disks:
            disk.close()
        self.start()
        self.wait_booted()

    def freeze(self) -> None:
        """Stop the node's processor; its peers see it fall silent."""
        mconsole.send(self._console_socket, 'stop')

    def thaw(self) -> None:
        """Undo freeze()."""
        mconsole.send(self._console_socket, 'go')

    @property
    def _console_socket(self) -> pathlib.Path:
        return self.directory / 'uml' / self.name / 'mconsole'

    # Network

    def partition(self) -> None:
        """Cut the node off the storage network; commands still work."""
        self._network.partition(self.number)

    def heal(self) -> None:
        """Undo partition()."""
        self._network.heal(self.number)

    # Commands and files

    def _connect(self, timeout: float) -> socket.socket:
        return self._network.connect(self.mgmt_address, agent.PORT, timeout)

    def run(self, command: str | Sequence[str], check: bool = True,
            timeout: float = 300,
            input: str | bytes | None = None) -> agent.Result:
        """Run a command as root: a string by the shell, a list as it is.

        Raises CommandError (status other than 0 and ``check``),
        TimeoutError (the command's process group is killed) or LabError
        (the node does not answer or went away).
        """
        data = input.encode() if isinstance(input, str) else input
        return agent.run_command(self._connect, _argv(command), check,
                                 timeout, data)

    def popen(self, command: str | Sequence[str]) -> agent.Command:
        """Start a command and return a handle: poll(), wait(), kill()."""
        return agent.Command(self._connect, _argv(command))

    def hold(self, device: str) -> agent.Command:
        """Keep a device open as QEMU does; closing the result closes it.

        :raises LabError: if it cannot be opened
        """
        command = self.popen(['sh', '-c', _HOLD, 'sh', device])
        wait_for(f'{device} to be open', lambda: (
            command.poll() or 'open' in command.output()))
        result = command.poll()
        if result:
            raise LabError(f'{device} cannot be opened: {result.stderr}')
        return command

    def read(self, path: str) -> str:
        """The text of a file of the node."""
        return self.run(['cat', path]).stdout

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the node."""
        self.run(['sh', '-c', 'mkdir -p "$(dirname "$1")" && cat >"$1" && '
                  'chmod "$2" "$1"', 'sh', path, f'{mode:o}'], input=text)

    def console(self) -> str:
        """What the kernel and node-init printed."""
        return self.console_log.read_text(errors='replace')


def _argv(command: str | Sequence[str]) -> list[str]:
    if isinstance(command, str):
        return ['sh', '-c', command]
    return list(command)
