# SPDX-License-Identifier: Apache-2.0
"""Live migrations that fail, at every stage, and what Nova does then.

What it does is said where it does it: nova/compute/manager.py, from
_do_pre_live_migration_from_source to _post_live_migration.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lab.compute.server import LIMIT, Server
from lab.errors import LabError
from lab.guest import console
from lab.processes import wait_for
from tests.functional import environment
from tests.nova import base

CREATE = ('POST', r'/attachments$')
COMPLETE = ('POST', r'/attachments/[^/]+/action$')
DELETE = ('DELETE', r'/attachments/')
# As often as Nova asks (nova/volume/cinder.py).
ALWAYS = 5


class StagesTest(base.NovaTest):
    """The server goes on at the source; the copy disappears."""

    def failed(self, server: Server) -> None:
        """The last migration must have failed, without a trace."""
        self.assertIn(self.lab.wait_migration(server.id),
                      ('error', 'failed', 'cancelled'))
        self.unmoved(server)

    def aborted(self, server: Server) -> None:
        """The last migration was ended in libvirt, without a trace.

        Nova takes back what it prepared, has the server ACTIVE for some
        seconds and calls it an ERROR then (_live_migration in
        nova/virt/libvirt/driver.py: future.result()).
        """
        self.lab.wait_server(server.id, 'ERROR')
        self.failed(server)

    def unmoved(self, server: Server) -> None:
        """The server must be on node 1, as if nothing had been."""
        if self.lab.wait_server(server.id, 'ACTIVE', 'ERROR') == 'ERROR':
            # Nova's word for what libvirt could not do; the server runs.
            self.lab.act(server.id, 'os-resetState', {'state': 'active'})
        self.assertEqual('node1', server.node.name)
        server.wait_more()
        self.assert_clean()
        self.assertEqual('node1', server.row(server.volume)[1])

    def slow(self, server: Server) -> None:
        """Let its migration last until it is told otherwise (MiB/s)."""
        self.node1.compute.virsh('migrate-setspeed', server.id, '1')

    def refused(self, server: Server, request: tuple[str, str],
                when: str) -> None:
        """A request of the migration fails, or its answer is lost."""
        with self.gateway.fault(*request, when) as fault:
            self.lab.live_migrate(server.id, 2, wait=False)
            fault.wait()
            self.lab.wait_migration(server.id)
        for attachment, host in self.attachments(server.volume):
            if host == 'node2':
                # Nova does not know of it: its answer was lost.
                self.assertEqual((CREATE, 'after'), (request, when))
                self.lab.detach_volume(attachment)
        self.failed(server)

    def succeeds(self, server: Server) -> None:
        """The next migration does; the server goes while it hydrates."""
        self.live_migrate(server, 2)
        self.assert_intact(server)
        self.assertTrue(server.hydrating())

    def each_refused(self, server: Server, when: str) -> None:
        """Each request fails once, and then none."""
        for request in (CREATE, COMPLETE):
            self.refused(server, request, when)
        self.succeeds(server)

    @environment.only_long
    def test_lost_answers(self) -> None:
        """Cinder has done what Nova asked for, but Nova gives up."""
        self.each_refused(self.server(), 'after')

    @environment.only_long
    def test_refused_requests(self) -> None:
        """Under load, as the rest of what can happen before the switch."""
        server = self.server()
        server.press(console.HEAVY)
        self.each_refused(server, 'before')

    @environment.only_long
    def test_memory_does_not_arrive(self) -> None:
        """QEMU of the destination dies; the user has enough of it."""
        server = self.server()
        server.press(console.HEAVY)
        self.slow(server)
        self.lab.live_migrate(server.id, 2, wait=False)
        self.copying_memory(server)
        self.node2.run(['pkill', '-KILL', '-f', f'qemu.*{server.id}'])
        self.aborted(server)
        self.slow(server)
        self.lab.live_migrate(server.id, 2, wait=False)
        self.copying_memory(server)
        number = self.lab.migrations(server.id)[0]['id']
        self.lab.nova('DELETE',
                      f'/servers/{server.id}/migrations/{number}')
        self.aborted(server)
        self.node1.compute.virsh('migrate-setspeed', server.id, '1000')
        self.succeeds(server)

    @environment.only_long
    def test_no_peer(self) -> None:
        """cinder-volume of the destination is down, then up again."""
        server = self.server()
        self.node2.volume.kill()
        with contextlib.suppress(LabError):
            self.lab.live_migrate(server.id, 2)
        self.unmoved(server)
        self.node2.volume.start(wait=True)
        self.succeeds(server)


class TrapsTest(base.NovaTest):
    """What ends in a refusal and an instruction, and never in lost writes."""

    @contextlib.contextmanager
    def lost(self) -> Iterator[None]:
        """No deletion of an attachment reaches Cinder meanwhile."""
        with self.gateway.fault(*DELETE, times=ALWAYS) as fault:
            yield
            fault.wait(ALWAYS)

    @environment.only_long
    def test_source_attachment_is_not_deleted(self) -> None:
        """The migration has ended; the operator deletes the attachment."""
        server = self.server()
        with self.lost():
            self.live_migrate(server, 2)
        first, second = self.attachments(server.volume)
        self.assertEqual(['node1', 'node2'], [first[1], second[1]])
        self.lab.detach_volume(first[0])
        server.wait_hydrated()
        self.assert_clean()
        self.assert_intact(server)

    def test_copy_is_not_deleted_then_hard_reboot(self) -> None:
        """Nova deletes the attachment of the server that runs."""
        server = self.server()
        self.node1.compute.virsh('migrate-setspeed', server.id, '1')
        with self.lost():
            self.lab.live_migrate(server.id, 2, wait=False)
            self.copying_memory(server)
            self.node1.compute.virsh('domjobabort', server.id)
            self.lab.wait_migration(server.id)
        first, second = self.attachments(server.volume)
        self.assertEqual(['node1', 'node2'], [first[1], second[1]])
        server.wait_more()
        self.lab.act(server.id, 'reboot', {'type': 'HARD'})
        self.assertNotEqual('', self.lab.wait_action(server.id))
        self.assertIn('attachment on node2@dmclone that has to go',
                      self.node1.volume.new_log())
        self.assertEqual([first, second], self.attachments(server.volume))
        server.wait_more()
        self.attach_anew(server)

    def attach_anew(self, server: Server) -> None:
        """What doc/source/admin/failures.rst says.

        The server is on node 1 then, and Nova knows the attachment of node 2
        alone.
        """
        self.lab.act(server.id, 'os-resetState', {'state': 'active'})
        self.lab.stop_server(server.id)
        for attachment, host in self.attachments(server.volume):
            if host == 'node1':
                self.lab.detach_volume(attachment)
        self.cloud.refresh_attachment(server.id, server.volume, 1)
        self.lab.start_server(server.id)
        self.moved(server, 1)
        server.wait_hydrated()
        self.assertEqual(1, len(self.attachments(server.volume)))
        self.assert_intact(server)

    @environment.only_long
    def test_source_compute_dies_after_the_switch(self) -> None:
        """Nova believes the server to be where it no longer is."""
        server = self.server()
        server.suspend()
        with self.gateway.held(*DELETE) as request:
            self.lab.live_migrate(server.id, 2, wait=False)
            request.wait()
            server.resume(2)
            self.node1.compute.kill()
        wait_for('the volume to follow its server', lambda: (
            server.row(server.volume)[1] == 'node2'), LIMIT)
        self.node1.compute.start(wait=True)
        self.assertRaises(LabError, self.lab.reboot_server, server.id)
        self.assertEqual('node2', server.row(server.volume)[1])
        # Nova would not end what it does not know of.
        self.assertIn(server.id, self.node2.compute.virsh(
            'list', '--uuid'))
        self.node2.compute.virsh('destroy', server.id)
        self.node2.compute.virsh('undefine', server.id)
        self.attach_anew(server)
