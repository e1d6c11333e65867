# SPDX-License-Identifier: Apache-2.0
"""The steps of tools/demo --nova: a server that is live-migrated."""
from __future__ import annotations

from lab import files, guest, install, look
from lab.attached import AttachedVolume
from lab.compute.server import Server
from lab.compute.servers import FLAVOR
from lab.guest.console import HEAVY
from lab.journey import Journey, free_name, host_of
from lab.processes import wait_for
from lab.show import expect

# A server's console while much else runs, in seconds.
_LIMIT = 300
# So many writes are flushed before anything is shown of them.
_SOME = 200
# The second disk, and what is on it.
_DISK, _KIND = 'vdb', 'ext4'


class ServerJourney(Journey):
    """A server's way from the first node to the second, with its volume."""

    def run(self) -> None:
        """All steps; raises Failure if one cannot be verified."""
        taken = {row['Name'] for row in self._lab.openstack('server', 'list')}
        self._name = free_name('web', taken)
        self._create()
        self._install()
        self._boot()
        server = Server(self._lab, self._server, self._id)
        self._plug_in(server)
        self._load(server)
        old = self._id
        self._migrate(server)
        new = server.row(self._id)[0]
        self._at = AttachedVolume(
            '', self._id, self._away,
            f'/dev/mapper/{look.front(self._away.name, new)}')
        expect(new != old, 'the volume did not move')
        iqn = self._source_target()
        self._still_hydrating()
        self._hydrate(self._tables())
        self._gone(old, iqn)
        self._verify(server)
        self._look_at_files(server)
        self._delete(server)

    # Steps

    def _install(self) -> None:
        """Make the volume one that a server boots from."""
        with self._console.step('Put a system on it that writes all the '
                                'time, and says what was flushed') as step:
            at = self._lab.attach_volume(self._id, self._home.number)
            image = guest.build(install.cache_directory())
            self._console.detail(
                f'{self._home.name}# dd if=guest.img of={at.path}')
            self._home.run(
                ['dd', f'of={at.path}', 'bs=1M',
                 'iflag=fullblock', 'conv=fsync'], input=image.read_bytes(),
                timeout=_LIMIT)
            self._lab.detach_volume(at.id)
            self._openstack('volume', 'set', '--bootable', self.volume)
            step.result = f'{image.stat().st_size >> 20} MiB'

    def _boot(self) -> None:
        with self._console.step(f'Boot a server from it on '
                                f'{self._home.name}') as step:
            made = self._openstack(
                'server', 'create', '--flavor', FLAVOR, '--nic', 'none',
                '--host', self._home.name, '--volume', self.volume, '--wait',
                self._name)
            self._server = str(made['id'])
            expect(made['status'] == 'ACTIVE', f'it is {made["status"]}')
            step.result = 'ACTIVE'

    def _plug_in(self, server: Server) -> None:
        with self._console.step(f'Give it a volume with {_KIND}: it replaces '
                                'files there and has a database') as step:
            self._files = files.create(self._lab, _KIND, self._home.number)
            self._openstack('server', 'add', 'volume', self._name,
                            self._files)
            server.wait_flushed(disk=_DISK)
            server.wait_committed(_DISK)
            step.result = 'SQLite commits'

    def _load(self, server: Server) -> None:
        with self._console.step('Let it write as fast as it can') as step:
            server.wait_flushed()
            server.press(HEAVY)
            step.result = self._progress(server)

    def _progress(self, server: Server) -> str:
        """Wait until it has flushed many more writes; how many it has."""
        last = server.wait_flushed(server.flushed() + _SOME)
        return f'{last} writes flushed'

    def _migrate(self, server: Server) -> None:
        with self._console.step('Live-migrate it to '
                                f'{self._away.name}') as step:
            # As Server.suspend() has it.
            self._console.detail('QEMU without KVM loses what a guest stores '
                                 'while its memory is copied:')
            self._console.detail('it stands still meanwhile.')
            self._console.detail(f'{self._home.name}# virsh suspend '
                                 f'{self._server}')
            server.suspend()
            self._openstack('server', 'migrate', '--live-migration',
                            '--host', self._away.name, '--wait', self._name)
            shown = self._openstack('server', 'show', self._name)
            host = shown['OS-EXT-SRV-ATTR:host']
            expect(host == self._away.name, f'it is on {host}')
            self._console.detail(f'{self._away.name}# virsh resume '
                                 f'{self._server}')
            server.resume()
            wait_for('the volumes to follow', lambda: all(
                server.row(volume)[1] == self._away.name
                for volume in (self._id, self._files)), _LIMIT, 0.2)
            shown = self._openstack('volume', 'show', self.volume)
            host = shown['os-vol-host-attr:host']
            expect(host == host_of(self._away), f'the volume is on {host}')
            self._console.detail(f'there now: {self._progress(server)}')
            step.result = f'server and volumes on {self._away.name}'

    def _verify(self, server: Server) -> None:
        with self._console.step('Stop the writing; compare the disk with '
                                'what was flushed') as step:
            server.wait_committed(_DISK)
            server.pause(_DISK)
            disk = server.console().disk('vda')
            slowest = server.console().slowest(disk)
            findings = server.findings()
            expect(not findings, '; '.join(findings[:3]))
            counts = server.report['checked']
            self._console.detail(f'slowest write: {slowest} ms')
            step.result = (f'{counts["acknowledged"]} flushed writes, all '
                           'there; no block torn, old or foreign')

    def _look_at_files(self, server: Server) -> None:
        with self._console.step(f'Check the {_KIND}, its files and its '
                                'database') as step:
            self._console.detail(f'{self._away.name}# e2fsck -fn '
                                 f'{server.device(self._files)}')
            findings = server.file_findings(self._files, _KIND)
            expect(not findings, '; '.join(findings[:3]))
            counts = server.report['checked']
            step.result = (f'clean; {counts["files"]} files, '
                           f'{counts["transactions"]} transactions, all there')

    def _delete(self, server: Server) -> None:
        with self._console.step('Delete the server; its volumes stay where '
                                'they are') as step:
            self._openstack('server', 'delete', '--wait', self._name)
            for volume in (self._id, self._files):
                self._lab.wait_volume(volume, 'available')
            host = self._lab.volume(self._id)['os-vol-host-attr:host']
            expect(host == host_of(self._away), f'it is on {host}')
            step.result = f'available on {host}'
