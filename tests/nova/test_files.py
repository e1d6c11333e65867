# SPDX-License-Identifier: Apache-2.0
"""Servers with mounted file systems and databases, as users have them."""
from __future__ import annotations

from lab import files
from lab.compute.server import LIMIT, Server
from lab.processes import wait_for
from tests.functional import environment
from tests.nova import base

# In the order in which they are plugged in.
DISKS = dict(zip(files.KINDS, ('vdb', 'vdc')))
# Far enough from the begin that a superblock can be read, near enough that a
# file system has something there.
_TEAR = 'dd if=/dev/zero of={} bs=4k seek=1 count=64 conv=fsync status=none'


@environment.only_long
class FilesTest(base.NovaTest):
    """ext4 and xfs, each with files that are replaced and an SQLite."""

    def mounted(self) -> tuple[Server, dict[str, str]]:
        """A server on node 1 that uses both, and the volume of each."""
        server = self.server()
        volumes = {}
        for kind, disk in DISKS.items():
            volumes[kind] = files.create(self.lab, kind, 1)
            self.volumes.append(volumes[kind])
            self.lab.add_volume(server.id, volumes[kind])
            server.wait_flushed(disk=disk)
        return server, volumes

    def arrive(self, server: Server, volumes: dict[str, str],
               node: int) -> None:
        """Move it while it works; all of it must go on there."""
        self.live_migrate(server, node)
        self.go_on(server)
        wait_for(f'all volumes to be on node{node}', lambda: all(
            server.row(volume)[1] == f'node{node}'
            for volume in volumes.values()), LIMIT)

    def go_on(self, server: Server) -> None:
        """Files and transactions of both must be acknowledged."""
        for disk in DISKS.values():
            server.wait_more(disk)
            server.wait_committed(disk)

    def rest(self, server: Server, volumes: dict[str, str]) -> None:
        """Let it unmount and be stopped; all that it said must be there."""
        server.pause(*DISKS.values())
        self.assertEqual([], server.findings())
        self.lab.stop_server(server.id)
        for kind, volume in volumes.items():
            self.assertEqual([], server.file_findings(volume, kind))
            print(f'{kind}: {server.report["checked"]}', flush=True)

    def test_live_migrations_in_a_ring(self) -> None:
        """Over three nodes and back, before anything has hydrated."""
        server, volumes = self.mounted()
        for node in (2, 3, 1):
            self.arrive(server, volumes, node)
            for volume in (server.volume, *volumes.values()):
                self.assertTrue(server.hydrating(volume))
        for volume in (server.volume, *volumes.values()):
            server.wait_hydrated(volume)
        self.go_on(server)
        self.rest(server, volumes)
        for kind, volume in volumes.items():
            self.assert_found(server, volume, kind)

    def test_through_the_page_cache(self) -> None:
        """QEMU's mode writeback: no node shows what it had read before."""
        for node in self.lab.nodes:
            self.addCleanup(self.configure, node.compute)
            self.configure(node.compute, {
                'libvirt': {'disk_cachemodes': 'block=writeback'}})
        server, volumes = self.mounted()
        self.assertEqual(3, self.node1.compute.virsh(
            'dumpxml', server.id).count("cache='writeback'"))
        for number in (2, 1):
            self.arrive(server, volumes, number)
        self.rest(server, volumes)

    def assert_found(self, server: Server, volume: str, kind: str) -> None:
        """What is wrong with it would have been said."""
        device = server.device(volume)
        server.node.run(_TEAR.format(device))
        self.assertNotEqual([], files.fsck(server.node, kind, device))
