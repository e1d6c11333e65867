# SPDX-License-Identifier: Apache-2.0
"""What tests of live migration start from."""

from __future__ import annotations

from cinder_dmclone import names
from cinder_dmclone.service import connections
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import mapped


class MigrationTestCase(base.CloudTestCase):
    """A server on a that has the volume open, and migrates to b."""

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        self.c, = self.others
        self.first, self.old = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(self.old)
        self.data = list(base.DATA)

    def migrate(self, node: cloud.Node | None = None) -> None:
        """Everything Nova does before the server moves."""
        self.second, self.new = self.cloud.migrate(self.volume,
                                                   node or self.b)
        (node or self.b).mapper.open(self.new)

    def held(self, node: cloud.Node, path: str) -> None:
        """A write that must wait."""
        with self.assertRaises(mapped.Queued):
            node.mapper.write(path, 3, 'never acknowledged')

    def event(self, node: cloud.Node, path: str) -> None:
        """The kernel's report of the first write."""
        name = names.DeviceName.parse(path.rpartition('/')[2])
        assert name
        node.process.loop.enqueue(name.lv)
        node.process.loop.run_once()

    def switch(self) -> None:
        """The server runs on b and writes for the first time."""
        self.held(self.b, self.new)
        self.event(self.b, self.new)
        self.write(self.b, self.new)

    def write(self, node: cloud.Node, path: str, region: int = 3) -> None:
        self.data[region] = f'written on {node.host}'
        node.mapper.write(path, region, self.data[region])
        node.mapper.flush(path)

    def leave(self) -> None:
        """The rest of a migration that succeeded."""
        self.a.mapper.close(self.old)
        connections.disconnect(self.cloud.home(self.volume).service,
                               self.volume, self.a.connector)
        self.cloud.db.drop_attachment(self.first)

    def assert_home(self, node: cloud.Node) -> None:
        self.assertEqual(node.name, self.cloud.row(self.volume).node)

    def assert_migrated(self) -> None:
        self.cloud.settle()
        self.assert_home(self.b)
        self.assert_data(self.b, self.new, self.data)
        self.assert_settled(self.data)
