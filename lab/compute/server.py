# SPDX-License-Identifier: Apache-2.0
"""A server with all that its guest has said, wherever it was."""
from __future__ import annotations

import contextlib
import json
import pathlib
import typing
from collections.abc import Iterator

from lab import files, look, programs
from lab.errors import LabError
from lab.guest.console import Console, STOP
from lab.processes import wait_for

if typing.TYPE_CHECKING:
    from lab import Lab
    from lab.lab import LabNode

# A guest in a node on a machine that has other things to do is slow.
LIMIT = 420.0


def _hurry(node: LabNode) -> None:
    """Let the clones of a node copy as fast as they can."""
    for name in look.devices(node):
        if name.startswith('dmclone-clone-'):
            look.message(node, name, 'hydration_threshold', '1024')
            look.message(node, name, 'hydration_batch_size', '64')


class Server:
    """One server that boots from a volume; its guest writes all the time.

    :ivar volume: its root volume
    :ivar report: what ``findings`` looked at last, see lab/guest/verify.py
    """

    def __init__(self, lab: Lab, server: str, volume: str) -> None:
        self._lab = lab
        self._texts: dict[tuple[str, int], str] = {}
        self.id = server
        self.volume = volume
        self.report: dict[str, typing.Any] = {}

    # -- where it is --------------------------------------------------------

    @property
    def node(self) -> LabNode:
        """The node that Nova believes it to be on."""
        return self._lab.nodes[self._lab.node_of(self.id) - 1]

    def row(self, volume: str) -> tuple[str, str, str]:
        """LV, node and relocation of a volume, as the database has them."""
        (found,) = self._lab.sql(
            'select ifnull(_name_id, id), substring_index(host, "@", 1), '
            f"ifnull(provider_id, '') from volumes where id = '{volume}'")
        return found

    # -- what it says -------------------------------------------------------

    def console(self) -> Console:
        """All that the guest has said, on every node.

        A console's file begins anew when the server comes back to a node.
        """
        for node in self._lab.nodes:
            try:
                text = node.compute.console(self.id)
            except FileNotFoundError:
                continue
            count = sum(name == node.name for name, _ in self._texts)
            last = (node.name, max(count - 1, 0))
            if not text.startswith(self._texts.get(last, '')):
                last = (node.name, count)
            self._texts[last] = text
        return Console(*self._texts.values())

    def flushed(self, disk: str = 'vda') -> int:
        """The number of the last write known to be flushed; 0: none."""
        found = self.console()
        try:
            return found.last(found.disk(disk))
        except KeyError:
            return 0

    def wait_flushed(self, beyond: int = 0, disk: str = 'vda') -> int:
        """Wait until it has flushed a later write; its number."""
        def last() -> int:
            number = self.flushed(disk)
            return number if number > beyond else 0
        return wait_for(f'the guest to flush beyond {beyond}', last,
                        LIMIT, 0.5)

    def wait_committed(self, disk: str) -> None:
        """Wait for transactions in the database of a disk with files."""
        before = self._committed(disk)
        # The first may have been under way.
        wait_for(f'transactions of {disk}', lambda: (
            self._committed(disk) > before + 1), LIMIT, 0.5)

    def _committed(self, disk: str) -> int:
        found = self.console()
        boots = found.committed.get(found.disk(disk), {})
        return max(boots.values(), default=0)

    def wait_more(self, disk: str = 'vda') -> None:
        """Wait until it has written something that it has not by now.

        Twice: the first flush may have been under way.
        """
        self.wait_flushed(self.wait_flushed(self.flushed(disk), disk), disk)

    def press(self, key: str) -> None:
        """Press a key of it, see lab/guest/console.py."""
        self.node.compute.press(self.id, key)

    def suspend(self) -> None:
        """Let its processor stand still, as it must while it migrates.

        Without KVM, QEMU loses what a guest stores while its memory is
        copied, and the guest crashes. QEMU before 9.0 does not make the
        processor's TLB tell of a page that is written again (its commit
        03bfc2188f06 mends that), and later ones can put back a mark that
        says so in between (notdirty_write, tlb_set_dirty in
        accel/tcg/cputlb.c), whatever the number of threads. What stands
        still stores nothing.
        """
        self.node.compute.virsh('suspend', self.id)

    def resume(self, node: int | None = None) -> None:
        """Undo suspend(), where it is now.

        :param node: its number if it is not where Nova believes it to be
        """
        there = self._lab.nodes[node - 1] if node else self.node
        there.compute.virsh('resume', self.id)

    def pause(self, *disks: str) -> None:
        """Let it stop writing and read again what it has written.

        :param disks: its disks beside vda
        """
        before = self._finished('vda', *disks)
        self.press(STOP)
        wait_for('the guest to stop', lambda: all(
            now > then for now, then in zip(
                self._finished('vda', *disks), before)), LIMIT, 0.5)

    def _finished(self, *disks: str) -> list[int]:
        found = self.console()
        return [len(found.of('Q', found.disk(disk))) for disk in disks]

    # -- its disks ----------------------------------------------------------

    def size(self, volume: str) -> int:
        """How large QEMU shows a volume to the guest, in bytes."""
        answer = json.loads(self.node.compute.virsh(
            'qemu-monitor-command', self.id, '{"execute": "query-block"}'))
        found, = (each for each in answer['return']
                  if volume in each.get('qdev', ''))
        return int(found['inserted']['image']['virtual-size'])

    def findings(self, *volumes: str) -> list[str]:
        """What its disks lack of what it said was flushed.

        It must be paused. Findings are words; nothing may be found.
        """
        found = [' '.join(words) for words in self.console().of('E')]
        for volume in (self.volume, *volumes):
            found += self._compare(volume)
        return found

    def file_findings(self, volume: str, kind: str) -> list[str]:
        """What a file system lacks, and what is wrong with it, in words.

        The server must be off, or paused.

        :param kind: one of files.KINDS
        """
        found = files.fsck(self.node, kind, self.device(volume))
        with self._record() as record:
            self.report = files.look(self.node, kind, self.device(volume),
                                     self._lab.directory, record)
        return [f'{volume}: {text}'
                for text in [*found, *self.report['findings']]]

    def device(self, volume: str) -> str:
        """What it opens on its node; the name may be of a former LV."""
        (path,), = self._lab.sql(
            "select json_value(connection_info, '$.device_path') "
            f"from volume_attachment where volume_id = '{volume}' and "
            f"not deleted and attached_host = '{self.node.name}'")
        return str(path)

    @contextlib.contextmanager
    def _record(self) -> Iterator[pathlib.Path]:
        """A file with all that the guest has said."""
        self.console()
        record = self._lab.directory / f'{self.id}.txt'
        record.write_text('\n'.join(self._texts.values()))
        try:
            yield record
        finally:
            record.unlink()

    def _compare(self, volume: str) -> list[str]:
        with self._record() as record:
            result = self.node.run(programs.command(
                self._lab.directory, 'guest.verify', self.device(volume),
                record), check=False, timeout=LIMIT)
        if not result.stdout:
            raise LabError(f'{volume}: {result.stderr}')
        self.report = json.loads(result.stdout)
        if not self.report['checked']['acknowledged']:
            return [f'{volume}: nothing was acknowledged']
        return [f'{volume}: {text}' for text in self.report['findings']]

    def hydrating(self, volume: str | None = None) -> bool:
        """Whether data is still on its way."""
        return ';from=' in self.row(volume or self.volume)[2]

    def wait_hydrated(self, volume: str | None = None) -> None:
        """Wait until all data is where the volume is, without the brake."""
        def done() -> bool:
            if ';' not in self.row(volume or self.volume)[2]:
                return True
            for node in self._lab.nodes:
                _hurry(node)
            return False
        wait_for('the end of the hydration', done, LIMIT, 3)
