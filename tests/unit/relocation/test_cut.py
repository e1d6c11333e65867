# SPDX-License-Identifier: Apache-2.0
"""A volume goes on in a copy on its own node, under its server."""

from __future__ import annotations

from unittest import mock

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.relocation import cut
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import mapped
from tests.unit.fake import ports


def cut_volume(node: cloud.Node, volume: VolumeId) -> rows.Row:
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
        assert row.source
        self.assertEqual(self.volume, row.source.lv)
        self.a.mapper.write(path, 1, 'after')
        frozen = self.a.group.volumes[names.data_lv(LvUuid(self.volume))]
        self.assertEqual(['before', base.DATA[1]],
                         [frozen.read(0), frozen.read(1)])
        self.assertEqual('before', frozen.durable[0])
        self.assert_data(self.a, path, ['before', 'after', *base.DATA[2:]])
        self.cloud.settle()
        self.assert_data(self.a, path, ['before', 'after', *base.DATA[2:]])
        self.assertEqual({names.data_lv(row.lv)}, set(self.a.group.volumes))
        self.assertEqual({path.rpartition('/')[2]}, set(self.a.mapper.mapped))

    def test_not_while_cinder_migrates_it(self) -> None:
        """Cinder goes on with the LV that it has read (``_name_id``)."""
        self.cloud.db.update(self.volume, migration_status='migrating')
        self.assertRaisesRegex(
            exceptions.CannotCut, 'migration status is migrating',
            cut_volume, self.a, self.volume)
        self.cloud.db.update(self.volume, migration_status=None)
        self.assert_unmoved()

    def test_what_was_not_flushed(self) -> None:
        """Nobody is led over, so no flush reaches it any more."""
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.write(path, 0, 'before')
        self.cloud.detach(self.volume, attachment, self.a)
        cut_volume(self.a, self.volume)
        frozen = self.a.group.volumes[names.data_lv(LvUuid(self.volume))]
        self.assertEqual('before', frozen.durable[0])

    def test_without_room(self) -> None:
        self.a.group.create('another', units.Bytes.from_gib(99), [])
        self.assertRaises(exceptions.NoRoom, cut_volume, self.a, self.volume)
        self.a.group.remove('another')
        self.assert_unmoved()

    def test_somebody_else_has_it_open(self) -> None:
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.apply('foreign', self.a.mapper.mapped[
            path.rpartition('/')[2]].table)
        self.assertRaisesRegex(exceptions.CannotCut, 'open 2 times',
                               cut_volume, self.a, self.volume)
        self.assertIsNone(self.cloud.row(self.volume).offer)

    def test_the_node_dies_before_anybody_is_led_over(self) -> None:
        """The server goes on, and is led over when the service is back."""
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)

        def kill(call: ports.Call) -> None:
            if (call.port, call.method) == ('rows', 'commit'):
                self.a.kill()
        self.cloud.after = kill
        self.assertRaises(ports.Killed, cut_volume, self.a, self.volume)
        self.a.mapper.write(path, 0, 'meanwhile')
        self.a.start()
        self.a.mapper.write(path, 1, 'after')
        self.cloud.settle()
        self.assert_data(self.a, path,
                         ['meanwhile', 'after', *base.DATA[2:]])
        self.assertEqual(1, len(self.a.group.volumes))

    def test_a_read_that_waits_for_the_lender_of_what_it_was(self) -> None:
        """Only the copy can lead it on, when it has all."""
        self.cloud.before = lambda call: None
        _, path = self.cloud.attach(self.volume, self.b)
        self.b.mapper.open(path)
        row = cut_volume(self.b, self.volume)
        with mock.patch.object(self.cloud, 'lose_paths'):
            self.cloud.partition(self.a, self.b)
            # Its path counts as usable until a read fails.
            self.assertRaisesRegex(
                exceptions.CannotCut, 'its lender a@dmclone is away',
                cut_volume, self.b, self.volume)
        self.cloud.lose_paths()
        self.b.process.loop.enqueue_all()
        self.cloud.settle(4)
        self.assertRaises(mapped.Queued, self.b.mapper.read, path, 0)
        above = self.b.mapper.mapped[str(names.source(row.lv))]
        assert row.source
        below = self.b.mapper.mapped[str(names.source(row.source.lv))]
        self.assertEqual(
            [(True, True), (True, False)],
            [(found.path_failed, found.table.queues)
             for found in (above, below)])
        self.assertRaisesRegex(
            exceptions.CannotCut, 'its lender a@dmclone is away',
            cut_volume, self.b, self.volume)
        self.assert_goes_on_when_written(path)
        self.cloud.heal()
        self.cloud.settle()
        self.assertEqual({names.data_lv(row.lv)}, set(self.b.group.volumes))
        self.assertEqual({path.rpartition('/')[2]}, set(self.b.mapper.mapped))

    def test_a_read_that_waits_for_what_is_here_by_now(self) -> None:
        """It keeps the server from being led off the joint."""
        _, path = self.cloud.attach(self.volume, self.b)
        self.b.mapper.open(path)

        def kill(call: ports.Call) -> None:
            if call.method == 'flush' and any(
                    'joint' in name for name in self.b.mapper.mapped):
                self.b.kill()
        self.cloud.before = kill
        self.assertRaises(ports.Killed, cut_volume, self.b, self.volume)
        self.cloud.before = lambda call: None
        self.cloud.partition(self.a, self.b)
        self.assertRaises(mapped.Queued, self.b.mapper.read, path, 0)
        lv = self.cloud.row(self.volume).lv
        for name in (path.rpartition('/')[2], str(names.joint(lv)),
                     str(names.clone(lv))):
            self.b.mapper.mapped[name].stuck = 1
        self.b.start()
        self.assert_goes_on_when_written(path)

    def assert_goes_on_when_written(self, path: str) -> None:
        """On b nothing is needed of a lender that is away."""
        new = ['new'] * len(base.DATA)
        for region, value in enumerate(new):
            self.b.mapper.write(path, region, value)
        self.b.process.loop.enqueue_all()
        self.cloud.settle(4)
        self.assertIsNone(self.cloud.row(self.volume).source)
        self.assert_data(self.b, path, new)

    def test_the_node_reboots_with_two_copies(self) -> None:
        """The lender first, then what borrows from it; without Cinder."""
        _, path = self.cloud.attach(self.volume, self.a)
        self.cloud.before = lambda call: None
        row = cut_volume(self.a, self.volume)
        row = cut_volume(self.a, self.volume)
        self.a.mapper.write(path, 0, 'after')
        self.a.mapper.flush(path)
        self.a.lose_power()
        self.a.start()
        self.assert_data(self.a, path, ['after', *base.DATA[1:]])
        self.cloud.settle()
        self.assertEqual({names.data_lv(row.lv)}, set(self.a.group.volumes))

    def test_it_moves_on(self) -> None:
        attachment, path = self.cloud.attach(self.volume, self.a)
        cut_volume(self.a, self.volume)
        self.a.mapper.write(path, 0, 'after')
        self.cloud.detach(self.volume, attachment, self.a)
        _, path = self.cloud.attach(self.volume, self.b)
        self.assert_data(self.b, path, ['after', *base.DATA[1:]])
        self.cloud.settle()
        self.assert_settled(['after', *base.DATA[1:]])

    def test_the_ninth(self) -> None:
        """Each is read through all behind it, until they have hydrated."""
        _, path = self.cloud.attach(self.volume, self.a)
        for _ in range(cut.MOST_LINKS):
            row = cut_volume(self.a, self.volume)
        with self.assertRaisesRegex(
                exceptions.CannotCut, f'Volume {self.volume} on a@dmclone '
                '.*it has 8 copies here that have yet to hydrate'):
            cut_volume(self.a, self.volume)
        self.assertEqual(row, self.cloud.row(self.volume))
        self.assertEqual(1 + cut.MOST_LINKS, len([
            name for name in self.a.group.volumes
            if name.startswith('volume-')]))
        self.assert_data(self.a, path)
        self.cloud.settle()
        cut_volume(self.a, self.volume)

    def test_copies_of_one_node_are_one_to_those_that_move(self) -> None:
        """``dmclone_max_copies`` is about nodes."""
        attachment, _ = self.cloud.attach(self.volume, self.a)
        for _ in range(self.a.process.world.settings.max_copies + 1):
            cut_volume(self.a, self.volume)
        self.cloud.detach(self.volume, attachment, self.a)
        _, path = self.cloud.attach(self.volume, self.b)
        self.assertIsNotNone(self.cloud.row(self.volume).source)
        self.assert_data(self.b, path)

    def test_deleted_before_the_joint_has_gone(self) -> None:
        attachment, _ = self.cloud.attach(self.volume, self.a)

        def kill(call: ports.Call) -> None:
            if call.method == 'remove' and 'joint' in str(call.arguments):
                self.a.kill()
        self.cloud.before = kill
        self.assertRaises(ports.Killed, cut_volume, self.a, self.volume)
        self.cloud.before = lambda call: None
        self.a.mapper.mapped = {
            name: found for name, found in self.a.mapper.mapped.items()
            if 'front' not in name}
        self.cloud.forget(self.volume, attachment)
        self.cloud.db.destroy(self.volume)
        self.a.start()
        self.cloud.settle()
        self.assertEqual({}, self.a.group.volumes)
        self.assertEqual({}, self.a.mapper.mapped)
