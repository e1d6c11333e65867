# SPDX-License-Identifier: Apache-2.0
"""New volumes that begin as another volume, or as a snapshot."""

from __future__ import annotations

import types
import typing
import uuid

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import table
from cinder_dmclone.location import Location
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import reconciler
from cinder_dmclone.service import births
from cinder_dmclone.service import snapshots
from cinder_dmclone.service import volumes
from tests.unit import base
from tests.unit import migration
from tests.unit.fake import cloud
from tests.unit.fake import database  # noqa: F401  registers the objects
from tests.unit.fake import ports

from cinder_dmclone import driver  # noqa: E402


# Many more than the looks that a decision may need.
MANY = 8


class BirthTestCase(base.CloudTestCase):

    def begin(self, node: cloud.Node, **values: typing.Any) -> VolumeId:
        """The row of a volume that Cinder wants on a node."""
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{node.name}#{cloud.POOL}',
                             **{'status': 'creating', **values})
        return volume

    def clone(self, node: cloud.Node, **values: typing.Any) -> VolumeId:
        volume = self.begin(node, **values)
        births.clone(node.service, volume, self.volume)
        self.cloud.db.update(volume, status='available')
        return volume

    def snapshot(self) -> SnapshotId:
        snapshot = self.cloud.db.snapshot(self.volume, 'creating')
        snapshots.create(self.cloud.home(self.volume).service, self.volume,
                         snapshot)
        self.cloud.db.update_snapshot(snapshot, status='available')
        return snapshot

    def assert_volume(self, volume: VolumeId,
                      data: typing.Sequence[str]) -> None:
        """It has all of its data, and nothing of it anywhere else."""
        row = self.cloud.row(volume)
        self.assertEqual((None, None), (row.source, row.offer))
        node = self.cloud.nodes[row.node]
        lv = node.group.volumes[names.data_lv(row.lv)]
        self.assertEqual(list(data), [lv.read(r) for r in range(len(data))])
        self.assertEqual([], [text for text in lv.tags if 'own' not in text
                              and 'front' not in text])

    def assert_lvs(self, node: cloud.Node, *volumes: VolumeId) -> None:
        self.assertEqual({names.data_lv(self.cloud.row(volume).lv)
                          for volume in volumes}, set(node.group.volumes))


class LeftBehindTest(migration.MigrationTestCase):

    def test_a_server_is_never_led_to_another_volume(self) -> None:
        """It was cut off, and its device leads nowhere."""
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{self.a.name}#{cloud.POOL}',
                             status='creating')
        births.clone(self.a.service, volume, self.volume)
        self.cloud.db.update(volume, status='available')
        self.migrate()
        self.switch()
        front = self.a.mapper.named(self.old)
        for _ in range(5):
            self.cloud.tick(regions=1)
            self.assertTrue(self.a.mapper.mapped[front].table.has(
                table.Error))
        self.leave()
        self.cloud.settle()
        self.cloud.delete(volume)
        self.assert_migrated()


class CloneTest(BirthTestCase):

    def test_on_the_node_of_a_volume_at_rest(self) -> None:
        volume = self.clone(self.a)
        self.assertEqual(self.volume, self.cloud.row(self.volume).lv)
        self.cloud.settle()
        self.assert_volume(volume, base.DATA)
        self.assert_lvs(self.a, volume, self.volume)
        self.assertEqual({}, self.a.mapper.mapped)

    def test_of_one_that_a_server_writes(self) -> None:
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        volume = self.clone(self.a)
        self.a.mapper.write(path, 0, 'later')
        self.cloud.settle()
        self.assert_volume(volume, base.DATA)
        self.assert_data(self.a, path, ['later', *base.DATA[1:]])
        self.assert_lvs(self.a, volume, self.volume)

    def test_a_request_that_comes_late_copies_nothing(self) -> None:
        """The new volume was made elsewhere by then, or not at all."""
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        volume = self.begin(self.b)
        with self.assertRaisesRegex(exceptions.PeerRefused, 'not offer'):
            self.b.process.world.peers.ask(self.a.name, messages.Lend(
                volume=self.volume, snapshot=SnapshotId(''), borrower=volume,
                generation=1, copy=Location.never_used(self.b.name),
                group=self.b.group.uuid, initiator='iqn.b'))
        self.assertEqual(self.lv, self.cloud.row(self.volume).lv)
        self.assertEqual([names.data_lv(self.lv)], [*self.a.group.volumes])

    def test_on_another_node(self) -> None:
        volume = self.clone(self.b)
        self.cloud.settle()
        self.assert_volume(volume, base.DATA)
        self.assert_lvs(self.b, volume)
        self.assert_lvs(self.a, self.volume)
        self.assertEqual({}, self.b.initiator.records_)

    def test_many_of_one(self) -> None:
        """As of a cached image: each of their nodes is asked in one look."""
        born = [self.clone(self.b) for _ in range(reconciler.MAX_STEPS + 5)]
        self.a.process.loop.enqueue_all()
        self.cloud.settle()
        for volume in born:
            self.assert_volume(volume, base.DATA)
        self.assert_lvs(self.a, self.volume)

    def test_many_of_one_for_a_node_that_is_dead(self) -> None:
        """It is asked once in a look, and the rows are read a few times."""
        for _ in range(MANY):
            self.clone(self.b)
        self.b.lose_power()
        asked: list[str] = []

        def fate(message: ports.Message) -> ports.Fate:
            asked.append(message.request)
            return ports.Fate.ARRIVES
        self.cloud.fate = fate
        self.cloud.calls.clear()
        self.a.process.loop.run_once(everything=True)
        self.assertEqual(['Show'], asked)
        self.assertLess(sum(call.method == 'find' for call
                            in self.cloud.calls), MANY)

    def test_a_larger_one(self) -> None:
        volume = self.clone(self.b, size=2)
        lv = self.b.group.volumes[names.data_lv(self.cloud.row(volume).lv)]
        self.assertEqual(2 << 30, int(lv.size))
        self.cloud.settle()
        self.assert_volume(volume, base.DATA)

    def test_the_source_is_attached_before_it_was_copied(self) -> None:
        volume = self.clone(self.b)
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.write(path, 0, 'later')
        self.cloud.settle()
        self.assert_volume(volume, base.DATA)
        self.assert_data(self.a, path, ['later', *base.DATA[1:]])

    def test_the_source_is_extended_before_it_was_copied(self) -> None:
        """What was lent does not grow with it, also when it is lent anew."""
        volume = self.clone(self.b)
        volumes.extend(self.a.service, self.volume, 2)
        self.a.lose_power()
        self.a.start()
        loan, = self.a.mapper.mapped.values()
        self.assertEqual(1 << 30, int(loan.table.length.to_bytes()))
        self.cloud.settle()
        self.assert_volume(volume, base.DATA)

    def test_the_source_is_deleted_before_it_was_copied(self) -> None:
        volume = self.clone(self.b)
        self.cloud.delete(self.volume)
        self.cloud.settle()
        self.assert_volume(volume, base.DATA)
        self.assertEqual({}, self.a.group.volumes)

    def test_one_whose_creation_has_ended_is_not_made(self) -> None:
        volume = self.begin(self.b, status='error')
        self.assertRaises(exceptions.NotBeingMade, births.clone,
                          self.b.service, volume, self.volume)
        self.assertEqual({}, self.b.group.volumes)

    def test_nobody_answers(self) -> None:
        volume = self.begin(self.b)
        self.cloud.fate = lambda message: ports.Fate.LOST
        self.assertRaises(exceptions.PeerUnreachable, births.clone,
                          self.b.service, volume, self.volume)
        self.assertEqual({}, self.b.group.volumes)
        self.assertIsNone(self.cloud.row(volume).offer)

    def test_an_image_is_downloaded_in_place_of_a_clone(self) -> None:
        """When the node with the cached one does not answer."""
        volume = self.begin(self.b)
        self.cloud.fate = lambda message: ports.Fate.LOST
        self.assertRaises(exceptions.PeerUnreachable, births.clone,
                          self.b.service, volume, self.volume)
        volumes.create(self.b.service, volume)
        self.cloud.db.update(volume, status='available')
        self.cloud.settle()
        self.assert_lvs(self.b, volume)

    def test_of_one_that_an_image_was_downloaded_to(self) -> None:
        """For Cinder's cache, while a server has it.

        Cinder then saves once more what the driver has returned.
        """
        made = driver.DMCloneVolumeDriver.__new__(driver.DMCloneVolumeDriver)
        made._service = self.a.service
        image = self.begin(self.a)
        returned: typing.Any = made.create_volume
        returned = returned(types.SimpleNamespace(id=image)) or {}
        self.cloud.db.update(image, **returned, status='downloading')
        attachment, path = self.cloud.attach(image, self.a)
        self.a.mapper.open(path)
        self.a.mapper.write(path, 0, 'image')
        cached = self.begin(self.a)
        births.clone(self.a.service, cached, image)
        self.cloud.db.update(image, **returned, status='in-use')
        self.cloud.db.update(cached, status='available')
        self.cloud.settle()
        self.a.mapper.close(path)
        self.cloud.detach(image, attachment, self.a)
        self.cloud.settle()
        for volume in (image, cached):
            self.assert_volume(volume, ['image'])
        self.assert_lvs(self.a, image, cached, self.volume)

    def test_of_another_backend(self) -> None:
        self.cloud.db.update(self.volume, host='elsewhere@lvm#pool',
                             provider_id='12345')
        volume = self.begin(self.b)
        self.assertRaisesRegex(
            exceptions.CannotBear, 'not of this backend', births.clone,
            self.b.service, volume, self.volume)

    def test_without_room(self) -> None:
        volume = self.begin(self.b, size=200)
        self.assertRaises(exceptions.NoRoom, births.clone, self.b.service,
                          volume, self.volume)


class SnapshotTest(BirthTestCase):

    def test_what_it_was_then(self) -> None:
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        snapshot = self.snapshot()
        self.a.mapper.write(path, 0, 'later')
        volume = self.begin(self.a)
        births.from_snapshot(self.a.service, volume, snapshot)
        self.cloud.db.update(volume, status='available')
        self.cloud.settle()
        self.assert_volume(volume, base.DATA)
        self.assert_data(self.a, path, ['later', *base.DATA[1:]])

    def test_it_stays_where_the_volume_was(self) -> None:
        snapshot = self.snapshot()
        self.relocated()
        self.cloud.settle()
        volume = self.begin(self.b)
        births.from_snapshot(self.b.service, volume, snapshot)
        self.cloud.db.update(volume, status='available')
        self.cloud.settle()
        self.assert_volume(volume, base.DATA)

    def test_one_that_was_never_made(self) -> None:
        snapshot = self.cloud.db.snapshot(self.volume, 'error')
        volume = self.begin(self.a)
        self.assertRaises(exceptions.CannotBear, births.from_snapshot,
                          self.a.service, volume, snapshot)


class GroupTest(BirthTestCase):

    def test_each_volume_has_a_source(self) -> None:
        made = driver.DMCloneVolumeDriver.__new__(driver.DMCloneVolumeDriver)
        made._service = self.a.service
        volume = self.begin(self.a)
        self.assertEqual((None, None), made.create_group_from_src(
            None, None, [types.SimpleNamespace(id=volume)],
            source_vols=[types.SimpleNamespace(id=self.volume)]))
        self.cloud.db.update(volume, status='available')
        self.cloud.settle()
        self.assert_volume(volume, base.DATA)

    def test_one_that_fails_fails_the_group(self) -> None:
        """Else Cinder would say that it is available."""
        made = driver.DMCloneVolumeDriver.__new__(driver.DMCloneVolumeDriver)
        made._service = self.a.service
        volume = self.begin(self.a, size=500)
        self.assertRaises(
            exceptions.NoRoom, made.create_group_from_src, None, None,
            [types.SimpleNamespace(id=volume)],
            source_vols=[types.SimpleNamespace(id=self.volume)])
