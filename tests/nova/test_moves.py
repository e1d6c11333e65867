# SPDX-License-Identifier: Apache-2.0
"""Servers that move, with all that Nova offers, and write all the time."""
from __future__ import annotations

from lab.compute.server import LIMIT
from lab.guest import console
from lab.processes import wait_for
from tests.functional import environment
from tests.nova import base


class MovesTest(base.NovaTest):
    """The disk must have all that was acknowledged, wherever it has been."""

    def test_live_migrations_while_hydrating(self) -> None:
        """A chain of three nodes, then back to a lender, under load."""
        server = self.server()
        server.press(console.HEAVY)
        self.live_migrate(server, 2)
        self.assertTrue(server.hydrating())
        self.live_migrate(server, 3)
        self.assertTrue(server.hydrating())
        self.live_migrate(server, 2)
        server.wait_hydrated()
        server.wait_more()
        self.assert_intact(server)

    @environment.only_long
    def test_post_copy(self) -> None:
        """It runs on the other node before all of its memory is there.

        libvirt does not let a processor stand still meanwhile.
        """
        compute = self.node1.compute
        self.configure(compute, {
            'libvirt': {'live_migration_permit_post_copy': True}})
        # Where it is permitted no other server could stand still.
        self.addCleanup(self.configure, compute)
        server = self.server()
        server.press(console.IDLE)
        compute.virsh('migrate-setspeed', server.id, '1')
        self.lab.live_migrate(server.id, 2, wait=False)
        self.copying_memory(server)
        number = self.lab.migrations(server.id)[0]['id']
        self.lab.nova('POST', f'/servers/{server.id}/migrations/{number}'
                      '/action', {'force_complete': None})
        self.assertEqual('completed', self.lab.wait_migration(server.id))
        self.moved(server, 2)
        server.wait_hydrated()
        self.assert_intact(server)

    def test_cold_moves(self) -> None:
        """Migrated and kept, migrated and taken back, shelved, rebooted."""
        server = self.server()
        self.lab.migrate(server.id, 2)
        self.lab.confirm(server.id)
        self.moved(server, 2)
        self.assertTrue(server.hydrating())
        self.lab.migrate(server.id, 3)
        self.moved(server, 3)
        self.lab.revert(server.id)
        self.moved(server, 2)
        self.lab.shelve(server.id)
        self.lab.unshelve(server.id, 1)
        self.moved(server, 1)
        self.lab.reboot_server(server.id)
        self.moved(server, 1)
        server.wait_hydrated()
        self.assert_intact(server)


class VolumesTest(base.NovaTest):
    """A volume beside the root volume."""

    def test_plugged_in_elsewhere(self) -> None:
        """Added on another node, extended and removed while it hydrates."""
        server = self.server()
        volume = self.volume(2)
        self.lab.add_volume(server.id, volume)
        server.wait_flushed(disk='vdb')
        size = server.size(volume)
        self.lab.extend_volume(volume, 2, 'in-use')
        self.assertEqual(2, self.lab.volume(volume)['size'])
        wait_for('the server to be shown the new size',
                 lambda: server.size(volume) == 2 * size, LIMIT, 1)
        server.wait_more('vdb')
        self.assertTrue(server.hydrating(volume))
        self.assert_intact(server, volume)
        self.lab.remove_volume(server.id, volume)
        self.lab.wait_volume(volume, 'available')
        self.assertTrue(server.hydrating(volume))
        server.press(console.NORMAL)
        self.lab.add_volume(server.id, volume)
        server.wait_more('vdb')
        self.live_migrate(server, 3)
        server.wait_hydrated(volume)
        server.wait_more('vdb')
        self.assert_intact(server, volume)

    @environment.only_long
    def test_a_host_boots_without_control_plane(self) -> None:
        """Its servers start from fronts that the node's disks describe."""
        server = self.server()
        self.live_migrate(server, 2)
        self.assertTrue(server.hydrating())
        self.node2.power_cut()
        self.lab.cinder_api.stop()
        self.node2.start()
        self.node2.wait_booted()
        self.node2.compute.configure(
            {'DEFAULT': {'resume_guests_state_on_host_boot': True}})
        self.addCleanup(self.node2.compute.configure)
        self.node2.volume.cli('activate')
        self.node2.compute.start(wait=True)
        server.wait_more()
        self.lab.cinder_api.start()
        self.node2.volume.start(wait=True)
        server.wait_hydrated()
        self.assert_intact(server)
