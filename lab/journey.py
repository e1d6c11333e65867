# SPDX-License-Identifier: Apache-2.0
"""The steps of tools/demo once the lab is up, each of them verified."""
from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Collection
from typing import Any

from lab import look
from lab.api import connector
from lab.attached import AttachedVolume
from lab.config import BACKEND
from lab.lab import Lab, LabNode
from lab.processes import wait_for
from lab.show import Console, expect, progress, shorten

_GIB = 3
# In MiB.  Hydration copies from the beginning to the end, so what is written
# near the end is read through the network at first.
_FIRST = 2048
_SECOND = 2560
_LENGTH = 256


@dataclasses.dataclass(frozen=True)
class Part:
    """``length`` MiB of the volume at ``offset`` MiB, and their checksum."""

    offset: int
    length: int
    checksum: str


def host_of(node: LabNode) -> str:
    """What Cinder calls the pool of a node."""
    return f'{node.volume.host}#{BACKEND}'


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it if it is taken."""
    return next(found for found in (f'{name}{number}' for number in
                                    ('', *range(2, 1000)))
                if found not in taken)


def from_above(name: str) -> tuple[bool, bool, str]:
    """Sort a stack's devices from what a server opens down."""
    return (not name.startswith('dmclone-front'),
            not name.startswith('dmclone-'), name)


class Journey:
    """A volume's way from the first node to the second."""

    def __init__(self, lab: Lab, console: Console) -> None:
        self._lab = lab
        self._console = console
        self._home, self._away = lab.nodes[:2]
        taken = {row['Name'] for row in lab.openstack('volume', 'list')}
        self.volume = free_name('demo', taken)

    def run(self) -> None:
        """All steps; raises Failure if one cannot be verified."""
        self._create()
        with self._console.step(f'Attach it to the server web on '
                                f'{self._home.name}') as step:
            self._attach(self._home)
            self._complete()
            step.result = 'in use, a local disk'
        with self._console.step('Write data there') as step:
            first = self._write(_FIRST)
            step.result = self._sum(first)
        with self._console.step(f'Detach it from {self._home.name}') as step:
            self._openstack('volume', 'attachment', 'delete',
                            self._at.id)
            self._lab.wait_volume(self._id, 'available')
            step.result = 'available'
        old = self._id
        with self._console.step(
                f'Attach it to the server web on {self._away.name}') as step:
            self._attach(self._away)
            expect(self._at.lv != old, 'the volume did not move')
            step.result = 'usable, the data is on its way'
        iqn = self._source_target()
        before = self._tables()
        self._read_while_hydrating(first)
        with self._console.step(f'Write more on {self._away.name} '
                                'meanwhile') as step:
            second = self._write(_SECOND)
            self._still_hydrating()
            self._complete()
            step.result = self._sum(second)
        self._hydrate(before)
        self._gone(old, iqn)
        self._compare(first, second)
        self._detach()

    # Commands

    def _openstack(self, *argv: str) -> Any:
        """Run and show a command; decoded JSON if it has some."""
        self._console.command('$ openstack', *argv)
        if argv[:3] == ('volume', 'attachment', 'set'):
            return json.loads(self._lab.openstack(*argv, '-f', 'json'))
        return self._lab.openstack(*argv)

    def _shell(self, command: str) -> str:
        """Run and show a command where the volume is; $DEV is its device."""
        at = self._at
        self._console.detail(f'{at.node.name}# {command}')
        return at.node.run(f'DEV={shlex.quote(at.path)}; {command}',
                           timeout=600).stdout

    # Steps

    def _create(self) -> None:
        with self._console.step(f'Create a volume on {self._home.name}'
                                ) as step:
            hint = json.dumps(['=', '$host', host_of(self._home)])
            made = self._openstack(
                'volume', 'create', '--size', str(_GIB),
                '--hint', f'query={hint}', self.volume)
            self._id = str(made['id'])
            self._lab.wait_volume(self._id, 'available')
            host = self._lab.volume(self._id)['os-vol-host-attr:host']
            expect(host == host_of(self._home), f'it is on {host}')
            step.result = f'{_GIB} GiB on {host}'

    def _attach(self, node: LabNode) -> None:
        made = self._openstack('volume', 'attachment', 'create',
                               '--server', 'web', self.volume)
        attachment = str(made['ID'])
        who = connector(node.number)
        found = self._openstack(
            'volume', 'attachment', 'set', '--host', who['host'],
            '--ip', who['ip'], '--initiator', who['initiator'],
            attachment)
        self._at = AttachedVolume(attachment, self._id, node,
                                  found['Properties']['device_path'])
        self._console.detail(f'DEV={self._at.path}')

    def _complete(self) -> None:
        self._openstack('volume', 'attachment', 'complete',
                        self._at.id)
        status = self._lab.volume(self._id)['status']
        expect(status == 'in-use', f'the volume is {status}')

    def _write(self, offset: int) -> Part:
        self._shell('dd if=/dev/urandom of=$DEV bs=1M '
                    f'count={_LENGTH} seek={offset} \\\n'
                    '          oflag=direct conv=fsync')
        return Part(offset, _LENGTH, self._read(offset))

    def _read(self, offset: int) -> str:
        return self._shell(
            f'dd if=$DEV bs=1M count={_LENGTH} skip={offset} '
            'iflag=direct | sha256sum').split()[0]

    def _sum(self, part: Part) -> str:
        return f'sha256 {part.checksum[:16]}...'

    def _still_hydrating(self) -> str:
        """How far it is; Failure if that is the end."""
        found = self._at.status()
        expect(found and not found.complete,
               'it was complete too early: this shows nothing')
        assert found
        return progress(found)

    def _source_target(self) -> str:
        tags = look.volumes(self._away)[f'volume-{self._at.lv}']
        found = [word for tag in tags if tag.startswith('dmclone.1.from/')
                 for word in tag.split('/') if word.startswith('iqn')]
        expect(found, f'no source is recorded: {sorted(tags)}')
        return found[0]

    def _read_while_hydrating(self, part: Part) -> None:
        with self._console.step(f'Read the data on {self._away.name} at '
                                'once') as step:
            self._console.detail(self._still_hydrating())
            found = self._read(part.offset)
            self._console.detail(self._still_hydrating())
            expect(found == part.checksum, f'other data: {found}')
            step.result = f'the same, sha256 {found[:16]}...'

    def _hydrate(self, before: dict[str, str]) -> None:
        with self._console.step('Wait for the rest; the clone is swapped '
                                'for a linear mapping') as step:
            def copied() -> bool:
                found = self._at.status()
                if found:
                    self._console.progress(found)
                return not found or found.complete
            wait_for('hydration', copied, 1200, 0.5)
            # The logical volume and what the server opens.
            wait_for('the end of the clone',
                     lambda: len(self._tables()) == 2, 120, 0.2)
            self._swapped(before, self._tables())
            step.result = 'linear, on the logical volume itself'

    def _tables(self) -> dict[str, str]:
        return {name: text for name, text in look.tables(self._away).items()
                if name.replace('--', '-').endswith(self._at.lv)}

    def _swapped(self, before: dict[str, str],
                 after: dict[str, str]) -> None:
        for when, found in (('before', before), ('after', after)):
            self._console.detail(f'{self._away.name}# dmsetup table'
                                 f'   # {when}')
            for name in sorted(found, key=from_above):
                self._console.detail(
                    '  ' + shorten(f'{name}: {found[name]}', 74))
        front = self._at.path.rpartition('/')[2]
        data = self._number(f'/dev/cinder-volumes/volume-{self._at.lv}')
        expect(any(' clone ' in text for text in before.values()),
               'there was no clone before')
        expect(data not in before[front].split(),
               f'{front} was on the volume before')
        expect(after[front].split()[2:] == ['linear', data, '0'],
               f'{front} is {after[front]}, not on {data}')

    def _number(self, path: str) -> str:
        return self._away.run(
            f'lsblk --nodeps --noheadings -o MAJ:MIN {path}').stdout.strip()

    def _gone(self, old: str, iqn: str) -> None:
        # By default Cinder's volume_clear overwrites what is deleted.
        with self._console.step('The old copy is overwritten and gone from '
                                f'{self._home.name}') as step:
            self._console.detail(f'{self._home.name}# lvs; dmsetup ls; '
                                 'ls /sys/kernel/config/target/iscsi')
            self._console.detail(
                f'{self._away.name}# cat '
                '/sys/class/iscsi_session/session*/targetname')

            def left() -> list[str]:
                found = [*look.volumes(self._home), *look.devices(self._home),
                         *look.targets(self._home),
                         *look.sessions(self._away)]
                return [name for name in found
                        if old in name.replace('--', '-') or iqn in name]
            wait_for('release of the old copy', lambda: not left(), 180, 0.5)
            step.result = 'no logical volume, no device, no target, no session'

    def _compare(self, first: Part, second: Part) -> None:
        with self._console.step('Both checksums, now from '
                                f'{self._away.name}\'s own disk') as step:
            for part in (first, second):
                found = self._read(part.offset)
                self._console.detail(
                    f'at {part.offset} MiB: {found[:16]}...'
                    f'  written: {part.checksum[:16]}...')
                expect(found == part.checksum, 'they differ')
            step.result = 'equal'

    def _detach(self) -> None:
        with self._console.step('Detach it; it stays where it is') as step:
            self._openstack('volume', 'attachment', 'delete',
                            self._at.id)
            self._lab.wait_volume(self._id, 'available')
            shown = self._openstack('volume', 'show', self.volume)
            host = shown['os-vol-host-attr:host']
            expect(host == host_of(self._away), f'it is on {host}')
            step.result = f'available on {host}'
