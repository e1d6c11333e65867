# SPDX-License-Identifier: Apache-2.0
"""What a server sees of nodes that fall silent and services that restart."""
from __future__ import annotations

import time

from lab.compute.server import LIMIT, Server
from lab.guest import console
from lab.processes import wait_for
from tests.functional import environment
from tests.nova import base
from tests.nova.test_failures import ALWAYS, COMPLETE, CREATE, DELETE

# In seconds: a moment, longer than iSCSI keeps a command, as DESIGN has it.
SILENCES = (1, 30, 300)
# A migration whose source stands still for longer may be given up by Nova.
PATIENCE = 60


@environment.only_long
class OutagesTest(base.NovaTest):
    """I/O waits, then goes on; nothing is lost."""

    def test_old_node_falls_silent(self) -> None:
        """Before the volume has moved."""
        server = self.server()
        server.press(console.HEAVY)
        for seconds in SILENCES:
            with self.gateway.held(*COMPLETE) as request:
                server.suspend()
                self.lab.live_migrate(server.id, 2, wait=False)
                request.wait()
                self.silence(seconds)
            status = self.lab.wait_migration(server.id)
            server.resume()
            self.agree(server)
            if status != 'completed' and seconds > PATIENCE:
                self.assertEqual('node1', server.node.name)
                self.live_migrate(server, 2)
            self.moved(server, 2)
            self.back(server)
        self.assert_intact(server)

    def test_lender_falls_silent(self) -> None:
        """While its borrower hydrates."""
        server = self.server()
        server.press(console.HEAVY)
        for seconds in SILENCES:
            self.live_migrate(server, 2)
            self.assertTrue(server.hydrating())
            self.silence(seconds)
            server.wait_more()
            self.back(server)
        self.assert_intact(server)

    def back(self, server: Server) -> None:
        """On node 1, with all it has."""
        server.wait_hydrated()
        self.live_migrate(server, 1)
        server.wait_hydrated()

    def test_lender_loses_power(self) -> None:
        """While its borrower hydrates, and writes."""
        server = self.server()
        self.live_migrate(server, 2)
        self.assertTrue(server.hydrating())
        self.node1.power_cut()
        self.restore()
        server.wait_more()
        server.wait_hydrated()
        self.assert_intact(server)

    def test_evacuation(self) -> None:
        """All there is is on the dead node: refused, until it is back."""
        server = self.server()
        before = self.attachments(server.volume)
        self.node1.power_cut()
        self.lab.force_down(1)
        self.addCleanup(self.lab.force_down, 1, False)
        # So does Cinder after its timeout, three minutes each time.
        with self.gateway.fault(*DELETE, times=ALWAYS):
            self.lab.evacuate(server.id, 2)
            self.assertNotEqual('', self.lab.wait_action(server.id))
        self.assertEqual('node1', server.row(server.volume)[1])
        self.lab.force_down(1, False)
        self.restore()
        self.assertEqual('node1', server.node.name)
        for attachment, host in self.attachments(server.volume):
            if not host:
                self.lab.detach_volume(attachment)
        self.assertEqual(before, self.attachments(server.volume))
        self.lab.act(server.id, 'os-resetState', {'state': 'active'})
        self.lab.reboot_server(server.id)
        self.moved(server, 1)
        self.assert_intact(server)

    def test_evacuation_of_what_is_taken_back(self) -> None:
        """All that it had not left its lender with is given up."""
        server = self.server()
        self.live_migrate(server, 2)
        self.assertTrue(server.hydrating())
        lost, *_ = server.row(server.volume)
        self.node2.power_cut()
        self.lab.force_down(2)
        self.addCleanup(self.lab.force_down, 2, False)
        wait_for('the volume to be taken back', lambda: self.node1.volume.cli(
            'recover', server.volume, '--from-lender', '--yes',
            check=False).code == 0, LIMIT, 1)
        self.lab.evacuate(server.id, 1)
        self.assertEqual('', self.lab.wait_action(server.id))
        self.lab.start_server(server.id)
        self.moved(server, 1)
        self.comes_back(server, lost)

    def comes_back(self, server: Server, lost: str) -> None:
        """Node 2 does; Nova ends the server there, and an operator its LV."""
        environment.switch_on(self.lab)
        self.node2.volume.start(wait=True)
        # Before that Nova lets nobody say that it is up.
        self.node2.compute.start()
        wait_for('the end of the evacuation', lambda: 'done' not in [
            each['status'] for each in self.lab.migrations(server.id)], LIMIT)
        self.lab.force_down(2, False)
        self.restore()
        wait_for('the lost copy to be forgotten', lambda: (
            self.node2.volume.cli('forget', lost, '--yes',
                                  check=False).code == 0), LIMIT, 1)
        server.wait_more()

    def agree(self, server: Server) -> None:
        """Wait until a server's volume is where the server is."""
        self.wait_services()
        wait_for('node and volume of the server to agree', lambda: (
            server.row(server.volume)[1] == server.node.name), LIMIT)
        server.wait_more()

    def silence(self, seconds: float) -> None:
        """Let node 1 stand still; its peers see it fall silent."""
        self.node1.freeze()
        try:
            time.sleep(seconds)
        finally:
            self.node1.thaw()

    def test_services_restart(self) -> None:
        """RabbitMQ and MariaDB, at each request of a live migration.

        Nova may give the migration up; then the next one succeeds.
        """
        server = self.server()
        here, there = 1, 2
        for request in (CREATE, COMPLETE, DELETE):
            for service in (self.lab.rabbitmq, self.lab.mariadb):
                server.suspend()
                with self.gateway.held(*request) as held:
                    self.lab.live_migrate(server.id, there, wait=False)
                    held.wait()
                    service.restart()
                self.lab.wait_migration(server.id)
                server.resume()
                self.agree(server)
                if server.node.number == there:
                    here, there = there, here
        self.live_migrate(server, there)
        server.wait_hydrated()
        self.assert_intact(server)
