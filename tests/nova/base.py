# SPDX-License-Identifier: Apache-2.0
"""What every test with Nova starts from and is measured by."""
from __future__ import annotations

import contextlib

import testtools

from lab import checker
from lab.compute.node import ComputeService
from lab.compute.server import LIMIT, Server
from lab.errors import LabError
from lab.processes import wait_for
from tests.functional import environment as labs
from tests.nova import environment


# Findings of tests that failed: later ones are not blamed for them.
_known: set[str] = set()


class NovaTest(testtools.TestCase):
    """A test with servers of its own; nothing may be left of them."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        # Its start is no part of a test's time.
        environment.lab()

    def setUp(self) -> None:
        super().setUp()
        self.lab = environment.lab()
        assert self.lab.cloud
        self.cloud = self.lab.cloud
        self.gateway = self.cloud.gateway
        self.node1, self.node2, self.node3 = self.lab.nodes
        self.checker = checker.Checker(self.lab, labs.gib())
        self.servers: list[Server] = []
        self.volumes: list[str] = []
        self.addOnException(lambda info: labs.keep_logs(
            self, self.checker.states, self.lab))
        self.addCleanup(self._finish)

    def _finish(self) -> None:
        """Remove what the test made and look for what is left."""
        with contextlib.ExitStack() as all_of_it:
            all_of_it.callback(self.assert_clean)
            for volume in self.volumes:
                all_of_it.callback(self._delete_volume, volume)
            for server in self.servers:
                all_of_it.callback(self.lab.delete_server, server.id)
            self.restore()

    def assert_clean(self) -> None:
        """Nothing may be there that should not, but what is known."""
        found = self.checker.check(known=_known)
        _known.update(found)
        self.assertEqual([], found)

    def _delete_volume(self, volume: str) -> None:
        """Delete a volume, whatever a failed test has left of its use."""
        rows = self.lab.sql('select id from volume_attachment where '
                            f"deleted = 0 and volume_id = '{volume}'")
        for attachment, in rows:
            self.lab.detach_volume(attachment)
        self.lab.wait_volume(volume, 'available', 'error')
        self.lab.delete_volume(volume)

    def restore(self) -> None:
        """Make everything run again."""
        self.lab.forgive()
        labs.switch_on(self.lab)
        for node in self.lab.nodes:
            for daemon in (node.volume, node.compute):
                if not daemon.running():
                    daemon.start(wait=True)
        self.wait_services()

    def wait_services(self) -> None:
        """Wait until every service reports.

        A report that RabbitMQ has lost keeps a service from the next one
        until rpc_response_timeout.
        """
        def silent() -> list[str]:
            found = [each for ask in (self.lab.cinder, self.lab.nova)
                     for each in ask('GET', '/os-services')['services']]
            return [f'{each["binary"]} on {each["host"]} since '
                    f'{each["updated_at"]}' for each in found
                    if each['state'] != 'up']
        with contextlib.suppress(LabError):
            wait_for('every service to report', lambda: not silent(), LIMIT,
                     1)
        self.assertEqual([], silent())

    # -- what tests do ------------------------------------------------------

    def configure(self, compute: ComputeService,
                  options: dict[str, dict[str, object]] | None = None
                  ) -> None:
        """Restart nova-compute with these options added, by section."""
        compute.stop()
        compute.configure(options)
        compute.start(wait=True)

    def server(self, node: int = 1) -> Server:
        """A server on a node, whose guest writes."""
        volume = self.lab.create_root(node=node)
        self.volumes.append(volume)
        server = Server(self.lab, self.lab.create_server(volume, node=node),
                        volume)
        self.servers.append(server)
        server.wait_more()
        return server

    def volume(self, node: int) -> str:
        """A volume on a node, filled."""
        volume = self.lab.create_filled(node)
        self.volumes.append(volume)
        return volume

    def moved(self, server: Server, node: int) -> None:
        """Nova and Cinder must agree that it is on a node, and it writes.

        The volume follows with the first write.
        """
        self.assertEqual(f'node{node}', server.node.name)
        server.wait_more()
        wait_for(f'{server.volume} to be on node{node}', lambda: (
            server.row(server.volume)[1] == f'node{node}'), LIMIT)

    def live_migrate(self, server: Server, node: int) -> None:
        """Move a server that runs; it must go on there."""
        server.suspend()
        self.lab.live_migrate(server.id, node)
        server.resume()
        self.moved(server, node)

    def copying_memory(self, server: Server) -> None:
        """Wait until a server's migration away from node 1 is under way."""
        wait_for('a running migration', lambda: (
            'running' in [each['status'] for each
                          in self.lab.migrations(server.id)[:1]]
            and 'Memory remaining' in self.node1.compute.virsh(
                'domjobinfo', server.id)), LIMIT, 0.2)

    def assert_intact(self, server: Server, *data: str) -> None:
        """All that was flushed must be on the disks, and nothing wrong.

        :param data: its volumes beside the root volume; the first is vdb
        """
        names = ['vdb', 'vdc'][:len(data)]
        server.pause(*names)
        self.assertEqual([], server.findings(*data))

    def attachments(self, volume: str) -> list[tuple[str, str]]:
        """Id and host of each attachment of a volume, the oldest first."""
        return [tuple(row) for row in self.lab.sql(
            "select id, ifnull(attached_host, '') from volume_attachment "
            f"where deleted = 0 and volume_id = '{volume}' "
            'order by created_at, id')]
