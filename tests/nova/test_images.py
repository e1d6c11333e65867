# SPDX-License-Identifier: Apache-2.0
"""Servers of images, and images of servers."""
from __future__ import annotations

from typing import Any

from lab import guest, install
from lab.compute.server import LIMIT, Server
from lab.processes import wait_for
from tests.functional import environment
from tests.nova import base


@environment.only_long
class ImageTest(base.NovaTest):
    """A root volume is born on its server's node, whoever chose that."""

    def setUp(self) -> None:
        super().setUp()
        # Cinder looks at images with it, and converts them.
        install.ensure_packages(['qemu-utils'])

    def guest_image(self) -> str:
        """An image with the guest; its id."""
        image = str(self.lab.openstack(
            'image', 'create', '--disk-format', 'raw', '--file',
            str(guest.build(install.cache_directory())), self.id())['id'])
        self.addCleanup(self.lab.openstack, 'image', 'delete', image)
        return image

    def booted(self, image: str, *disks: dict[str, Any],
               **more: Any) -> Server:
        """A server of an image, that writes; its root volume is its only."""
        found = self.lab.ask_server_of(image, *disks, **more)
        self.addCleanup(self.lab.delete_server, found)
        self.lab.wait_server(found, 'ACTIVE')
        volume, = self.lab.server(found)['os-extended-volumes:'
                                         'volumes_attached']
        self.volumes.append(volume['id'])
        server = Server(self.lab, found, volume['id'])
        server.wait_more()
        return server

    def image_of(self, server: Server) -> str:
        """An image of a server that runs; its id."""
        image = str(self.lab.act(server.id, 'createImage', {
            'name': self.id()})['image_id'])
        self.addCleanup(self.lab.openstack, 'image', 'delete', image)
        wait_for(f'image {image}', lambda: self.lab.openstack(
            'image', 'show', image)['status'] == 'active', LIMIT, 1)
        return image

    def delete_snapshots(self, volume: str) -> None:
        """Those that an image of a server is made of stay when it goes."""
        def left() -> list[str]:
            return [each['id'] for each in self.lab.cinder(
                'GET', f'/snapshots?volume_id={volume}')['snapshots']]
        for snapshot in left():
            self.lab.cinder('DELETE', f'/snapshots/{snapshot}')
        wait_for(f'volume {volume} to have no snapshot',
                 lambda: not left(), LIMIT, 1)

    def test_boots(self) -> None:
        """Where Nova likes it, elsewhere, and of an image of a server."""
        root = {'boot_index': 0, 'uuid': self.guest_image(),
                'source_type': 'image', 'destination_type': 'volume',
                'volume_size': 1}
        first = self.booted('', root)
        other, third = (node for node in self.lab.nodes
                        if node.name != first.node.name)
        second = self.booted('', root, host=other.name)
        for server in first, second:
            # No relocation.
            self.assertEqual((server.node.name, '1'),
                             server.row(server.volume)[1:])
        image = self.image_of(first)
        self.addCleanup(self.delete_snapshots, first.volume)
        copy = self.booted(image, host=third.name)
        self.assertEqual(third.name, copy.row(copy.volume)[1])
        for server in first, second, copy:
            self.assert_intact(server)
