# SPDX-License-Identifier: Apache-2.0
"""Where servers and volumes are put that nobody has told where to go.

See doc/source/admin/scheduling.rst.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab import config
from lab.compute.server import LIMIT, Server
from lab.compute.services import NovaScheduler
from lab.lab import LabNode
from lab.processes import wait_for
from tests.functional import environment
from tests.nova import base

POOLS = ('GET', '/scheduler-stats/')
# More than there is.
ALWAYS = 1000
FILLER = 'cinder-volumes/filler'
# nova/service.py, Service.start.
LISTENS = b'Join ServiceGroup membership for this service scheduler'


@environment.only_long
class SchedulingTest(base.NovaTest):
    """What Nova's filter and weigher do, and Cinder's."""

    def setUp(self) -> None:
        super().setUp()
        self.scheduler, = (
            service for service in self.cloud.services
            if type(service) is NovaScheduler)

    def root(self, node: int) -> str:
        """A volume to boot from, on a node."""
        volume = self.lab.create_root(node=node)
        self.volumes.append(volume)
        return volume

    def boot(self, volume: str, *disks: dict[str, Any]) -> Server:
        """A server that goes where Nova likes to have it."""
        server = Server(self.lab, self.lab.ask_server(volume, *disks), volume)
        self.servers.append(server)
        self.lab.wait_server(server.id, 'ACTIVE')
        return server

    def delete(self, server: Server) -> None:
        self.lab.delete_server(server.id)
        self.servers.remove(server)
        self.lab.wait_volume(server.volume, 'available')

    def fill(self, *nodes: LabNode) -> None:
        """Leave room for nothing; nova-scheduler knows nothing else."""
        # Else the next test finds no room.
        self.addCleanup(self.tell, 'empty', lambda: all(
            self.free(node) >= 1 for node in nodes))
        for node in nodes:
            node.run(f'lvcreate -qy -Wn -Zn -an -l 100%FREE -n filler '
                     f'{FILLER.partition("/")[0]}')
            self.addCleanup(node.run, f'lvremove -qy {FILLER}')
        self.tell('full', lambda: all(self.free(node) < 1 for node in nodes))

    def tell(self, what: str, known: Callable[[], bool]) -> None:
        """Wait until Cinder knows it; nova-scheduler asks anew."""
        wait_for(f'Cinder to know what is {what}', known, LIMIT, 1)
        self.restart()

    def restart(self) -> None:
        """Let nova-scheduler forget what it knows.

        Until it listens nova-compute cannot even delete a server.
        """
        before = self.scheduler.log.stat().st_size
        self.scheduler.restart()
        wait_for('nova-scheduler to listen', lambda: LISTENS in (
            self.scheduler.log.read_bytes()[before:]), LIMIT)

    def free(self, node: LabNode) -> float:
        found = self.lab.cinder(
            'GET', '/scheduler-stats/get_pools?detail=True')['pools']
        return float(*(
            pool['capabilities']['free_capacity_gb'] for pool in found
            if pool['name'].startswith(f'{node.name}@')))

    def disable(self, node: int) -> None:
        """Let Nova put nothing on a node any more."""
        found = self.lab.nova('GET', f'/os-services?host=node{node}'
                                     '&binary=nova-compute')['services']
        path = f'/os-services/{found[0]["id"]}'
        self.lab.nova('PUT', path, {'status': 'disabled'})
        self.addCleanup(self.lab.nova, 'PUT', path, {'status': 'enabled'})

    def warnings(self) -> list[str]:
        """What nova-scheduler has complained of."""
        return [line for line in self.scheduler.log.read_text().splitlines()
                if ' WARNING cinder_dmclone.nova.' in line]

    def test_servers_go_to_their_volume(self) -> None:
        volume = self.root(2)
        for _ in range(10):
            server = self.boot(volume)
            self.assertEqual('node2', server.node.name)
            self.assertEqual('node2', server.row(volume)[1])
            self.delete(server)
        self.assertEqual('1', server.row(volume)[2])

    def test_full_nodes(self) -> None:
        """Avoided when a server is made, and when it moves."""
        volume = self.root(2)
        self.fill(self.node1)
        server = self.boot(volume)
        self.assertEqual('node2', server.node.name)
        server.wait_more()
        server.suspend()
        self.lab.live_migrate(server.id, None)
        server.resume()
        self.moved(server, 3)
        server.wait_hydrated()
        self.delete(server)
        self.disable(3)
        self.assertEqual('node2', self.boot(volume).node.name)

    def test_nowhere(self) -> None:
        """No host is better than one on which it ends in an error."""
        volume = self.root(2)
        self.fill(self.node1, self.node3)
        self.disable(2)
        before = len(self.warnings())
        server = Server(self.lab, self.lab.ask_server(volume), volume)
        self.servers.append(server)
        self.lab.wait_server(server.id, 'ERROR')
        fault = self.lab.server(server.id)['fault']['message']
        self.assertIn('No valid host', fault)
        said, = self.warnings()[before:]
        self.assertIn(f'volume {volume} of 1 GiB on node2@', said)
        self.assertRegex(said, r'node2@\w+ \d+\.\d\d, node[13]@\w+ 0\.')
        self.assertEqual('node2', server.row(volume)[1])

    def test_cinder_is_away(self) -> None:
        """It hangs, or fails: servers are made as if this was not here."""
        volume = self.root(2)
        # It does not ask again at once.
        self.addCleanup(self.restart)
        for status in (0, 500):
            before = len(self.warnings())
            with self.gateway.fault(*POOLS, status=status, times=ALWAYS
                                    ) as fault:
                self.restart()
                server = self.boot(volume)
                fault.wait()
                server.wait_hydrated()
                self.delete(server)
            said, = self.warnings()[before:]
            self.assertIn('until Cinder can be asked', said)

    def test_volumes_are_made_beside_their_server(self) -> None:
        """By nova-compute as of an image, or by a user for a server."""
        server = self.boot(self.root(3), {
            'source_type': 'blank', 'destination_type': 'volume',
            'volume_size': 1, 'delete_on_termination': True})
        self.assertEqual('node3', server.node.name)
        blank, = {each['id'] for each in self.lab.server(server.id)[
            'os-extended-volumes:volumes_attached']} - {server.volume}
        self.assertEqual(('node3', '1'), server.row(blank)[1:])
        made = self.lab.cinder('POST', '/volumes', {
            'volume': {'size': 1, 'volume_type': config.BACKEND},
            'OS-SCH-HNT:scheduler_hints': {'local_to_instance': server.id},
            })['volume']['id']
        self.volumes.append(made)
        self.lab.wait_volume(made, 'available')
        self.assertEqual(('node3', '1'), server.row(made)[1:])
