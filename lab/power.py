# SPDX-License-Identifier: Apache-2.0
"""Servers that write to their volumes while nodes lose power."""
from __future__ import annotations

import http.client
import pathlib
import typing

from lab import ledger, look, programs
from lab.attached import AttachedVolume
from lab.errors import LabError
from lab.processes import wait_for
from lab.rest import RestError

if typing.TYPE_CHECKING:
    from lab.agent import Command
    from lab.lab import Lab, LabNode

# How long a request may fail while a node is away, in seconds.
_LATER = 600
# For what reads or writes a whole volume.
_LONG_SECONDS = 900
# By the disks of a node; lab/node-init knows how many there are.
_TAKEN_NBDS = 3
# Modes of QEMU in which a guest sees a disk without a write cache.
_NO_CACHE = ('writethrough', 'directsync')
# As doc/source/admin/failures.rst says of a volume group that is not found.
_REPAIR = r'''
vgs "$GROUP" >/dev/null 2>&1 && exit
set -e
rm -f /run/metadata
bad=$(pvck --dump headers "$DISK" |
    sed -n 's/^ *metadata text at \([0-9]*\) .*/\1/p')
at=$(pvck --dump metadata_search "$DISK" | awk -v bad="$bad" '
    $1 " " $2 == "metadata at" { last = $3; if ($3 < bad) before = $3 }
    END { print before ? before : last }')
pvck --dump metadata_search --settings "metadata_offset=$at" \
    -f /run/metadata "$DISK" 2>&1 | { ! grep WARNING; }
pvck --yes --repair -f /run/metadata "$DISK"
sync "$DISK"
'''


def repair(node: LabNode) -> bool:
    """Make LVM find the volume groups again; whether it did not find one.

    LVM writes a description of the group and then where it is, without a
    flush in between.
    """
    said = [node.run(f'GROUP={group} DISK={disk}\n{_REPAIR}').stdout
            for group, disk in look.groups(node).items()]
    return any('Writing metadata' in text for text in said)


def wait_device(at: AttachedVolume) -> None:
    """Wait for a device whose node has just come up."""
    wait_for(at.path, lambda: at.node.run(
        ['test', '-e', at.path], check=False).code == 0)


class Server:
    """A volume, what writes to it, and what it has to hold.

    :ivar at: its attachment, or None
    :ivar node: where it is attached, or was
    :ivar told: what the program that writes is told of its disk
    """

    told: tuple[str, ...] = ()

    def __init__(self, lab: Lab, volume: str, owner: int, node: LabNode,
                 size: int) -> None:
        self.volume = volume
        self.node = node
        self.at: AttachedVolume | None = None
        self.ledger = ledger.Ledger(owner, size)
        self._lab = lab
        self._attachment = ''
        self._command: Command | None = None
        self._said = 0
        self._files = pathlib.Path(lab.directory, f'server-{volume}')

    # -- requests -----------------------------------------------------------

    def attach(self, node: LabNode) -> None:
        """Attach as Nova does, which tries again if it fails."""
        self.node = node
        self.at = typing.cast(AttachedVolume, wait_for(
            f'{self.volume} on {node.name}', lambda: self.request(node),
            _LATER, 1))

    def request(self, node: LabNode) -> AttachedVolume | None:
        """Try to attach once; None if it fails."""
        self._attachment = self._attachment or self._lab.reserve(self.volume)
        try:
            return self._lab.attach_volume(self.volume, node.number,
                                           self._attachment)
        except (RestError, OSError, http.client.HTTPException):
            return None

    def detach(self) -> None:
        """Detach as Nova does, until it is done."""
        self.at = None

        def gone() -> bool:
            try:
                self._lab.detach_volume(self._attachment)
            except RestError as error:
                return error.status == 404
            except (OSError, http.client.HTTPException):
                return False
            return True
        wait_for(f'detachment of {self.volume}', gone, _LATER, 1)
        self._attachment = ''

    def wait_device(self) -> None:
        """Wait for its disk after its node has been switched on."""
        assert self.at
        wait_device(self.at)

    # -- what it does -------------------------------------------------------

    @property
    def disk(self) -> str:
        """What its programs write to, on its node."""
        assert self.at
        return self.at.path

    def _words(self, verb: str, *more: object,
               path: str | None = None) -> list[str]:
        if not path:
            assert self.at
            path = self.at.path
        return programs.command(self._lab.directory, 'ledger', verb, path,
                                self.ledger.owner, self.ledger.size, *more)

    def fill(self) -> None:
        """Write everything once."""
        self.node.run(self._words('fill'), timeout=_LONG_SECONDS)

    def copy(self, node: LabNode, path: str | None = None) -> bytes:
        """What is on its device, or on another one."""
        copy = self._files.with_suffix('.copy')
        node.run(self._words('copy', copy, path=path),
                 timeout=_LONG_SECONDS)
        found = copy.read_bytes()
        copy.unlink()
        return found

    def start(self, epoch: int | None = None) -> None:
        """Let it write until stop().

        :param epoch: number of the run, the next one if it is left out
        """
        self.ledger.begin(epoch or self.ledger.epoch + 1)
        self._said = 0
        self._files.unlink(missing_ok=True)
        self._command = self.node.popen(self._words(
            'write', self.ledger.epoch, self._files, *self.told,
            path=self.disk))

    def listen(self) -> None:
        """Note what it has said until now; LabError if it has failed."""
        assert self._command
        result = self._command.poll()
        text = self._command.output()
        end = text.rfind('\n') + 1
        self.ledger.take(text[self._said:end])
        self._said = end
        if result and result.code:
            self._command = None
            raise LabError(f'{self.volume}: {result.stderr}')

    def stop(self) -> None:
        """Let it end after what it is at."""
        assert self._command
        self._files.touch()

        def ended() -> bool:
            assert self._command
            self.listen()
            return self._command.poll() is not None
        wait_for('end of the writing', ended)
        self._command = None

    def flush(self) -> None:
        """Make all durable that it has written; it does not write."""
        self.ledger.take(self.node.run(self._words(
            'flush', self.ledger.epoch)).stdout)

    def die(self) -> None:
        """Its node has lost power: what it has said is all there is."""
        if self._command:
            self.listen()
            self._command.kill()
            self._command = None

    def writes(self) -> bool:
        """Whether it is writing."""
        return self._command is not None

    def findings(self, settled: bool) -> list[str]:
        """What is wrong with its volume, in words.

        :param settled: it does not write, and all was flushed or lost
        """
        found = self.ledger.compare(self.copy(self.node), settled)
        return self.ledger.findings + found


class CachedServer(Server):
    """One whose programs write through QEMU's block layer.

    Of those on a node each has an owner of its own, from 1 to 5.

    :ivar mode: QEMU's cache mode, as ``disk_cachemodes`` of Nova names it
    """

    def __init__(self, lab: Lab, volume: str, owner: int, node: LabNode,
                 size: int, mode: str) -> None:
        super().__init__(lab, volume, owner, node, size)
        self.mode = mode
        if mode in _NO_CACHE:
            # So they are told by the disk that QEMU gives them.
            self.told = ('through',)

    @property
    def disk(self) -> str:
        return f'/dev/nbd{_TAKEN_NBDS + self.ledger.owner - 1}'

    def start(self, epoch: int | None = None) -> None:
        assert self.at
        self.node.run(['qemu-nbd', f'--connect={self.disk}', '--format=raw',
                       f'--cache={self.mode}', self.at.path])
        super().start(epoch)

    def stop(self) -> None:
        super().stop()
        self.node.run(['qemu-nbd', '--disconnect', self.disk])
