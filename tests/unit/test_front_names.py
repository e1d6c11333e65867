# SPDX-License-Identifier: Apache-2.0
"""A front that its node made under another name is used like any other."""

from __future__ import annotations

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.service import connections
from tests.unit import base
from tests.unit import migration
from tests.unit.fake import cloud


def renamed(node: cloud.Node, path: str) -> str:
    """The path of a front as this node once made it."""
    found = node.mapper.mapped.pop(path.rpartition('/')[2])
    name = names.DeviceName.parse(found.name)
    assert name
    found.name = f'dmclone-front-{node.host}-{name.lv}'
    node.mapper.mapped[found.name] = found
    return f'/dev/mapper/{found.name}'


class OtherNameTest(migration.MigrationTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.old = renamed(self.a, self.old)

    def disconnect(self) -> None:
        connections.disconnect(self.a.service, self.volume, self.a.connector)

    def test_its_server_is_not_taken_for_gone(self) -> None:
        self.cloud.settle()
        self.assertRaisesRegex(
            exceptions.StillUsed, f'^Volume {self.volume} on a@dmclone is not '
            r'disconnected: Device dmclone-front-\S+ is in use\. End',
            self.disconnect)
        self.cloud.forget(self.volume, self.first)
        self.cloud.settle()
        self.write(self.a, self.old)
        self.assertRaises(exceptions.CannotRelocate, self.cloud.attach,
                          self.volume, self.b)
        self.write(self.a, self.old)
        self.assert_home(self.a)

    def test_it_goes_with_its_attachment(self) -> None:
        self.cloud.settle()
        self.a.mapper.close(self.old)
        self.cloud.detach(self.volume, self.first, self.a)
        self.cloud.settle()
        self.assert_settled(self.data)

    def test_it_goes_when_nobody_detached_it(self) -> None:
        self.a.mapper.close(self.old)
        self.cloud.forget(self.volume, self.first)
        self.cloud.settle()
        self.assert_settled(self.data)

    def test_its_server_migrates(self) -> None:
        self.migrate()
        self.assertRaises(exceptions.ServerHere, self.disconnect)
        self.write(self.a, self.old)
        self.switch()
        self.leave()
        self.assert_migrated()


class PathTest(base.CloudTestCase):

    hosts = ('compute-17', 'compute-18')

    def test_a_path_does_not_tell_where_the_volume_is(self) -> None:
        """Whoever may use a volume may read its attachments."""
        for node in (self.a, self.b):
            attachment, path = self.cloud.attach(self.volume, node)
            self.assertNotIn(node.host, path)
            self.cloud.detach(self.volume, attachment, node)
