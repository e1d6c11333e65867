# SPDX-License-Identifier: Apache-2.0
"""A volume goes on in a copy on its own node, under its server."""

from __future__ import annotations

from cinder_dmclone.database import rows
from cinder_dmclone import names
from cinder_dmclone.relocation import cut
from tests.unit import base
from tests.unit.fake import cloud


def cut_volume(node: cloud.Node, volume: str) -> rows.Row:
    world = node.process.world
    with world.locks.volume(volume, 5.0):
        return cut.cut(world, node.cloud.row(volume))


class CutTest(base.CloudTestCase):

    def test_a_volume_that_a_server_writes(self) -> None:
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        self.a.mapper.write(path, 0, 'before')
        row = cut_volume(self.a, self.volume)
        self.assertNotEqual(self.volume, row.lv)
        self.assertEqual(self.volume, row.source.lv)
        self.a.mapper.write(path, 1, 'after')
        frozen = self.a.group.volumes[names.data_lv(self.volume)]
        self.assertEqual(['before', base.DATA[1]],
                         [frozen.read(0), frozen.read(1)])
        self.assertEqual('before', frozen.durable[0])
        self.assert_data(self.a, path, ['before', 'after', *base.DATA[2:]])
        self.cloud.settle()
        self.assert_data(self.a, path, ['before', 'after', *base.DATA[2:]])
        self.assertEqual({names.data_lv(row.lv)}, set(self.a.group.volumes))
        self.assertEqual({path.rpartition('/')[2]}, set(self.a.mapper.mapped))
