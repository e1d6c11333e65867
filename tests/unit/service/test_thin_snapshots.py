# SPDX-License-Identifier: Apache-2.0
"""What LVM makes of a thin volume at once: snapshots, clones and reverts."""

from __future__ import annotations

import typing
import uuid

from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.service import births
from cinder_dmclone.service import snapshots
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import mapped
from tests.unit.fake import ports
from tests.unit.fake import storage
from tests.unit.service import test_reverts

LATER = ['later', *base.DATA[1:]]


class ThinCase(test_reverts.RevertTestCase):
    """All volumes are thin."""

    def build(self) -> None:
        super().build()
        for node in (self.a, self.b):
            node.group.pool = storage.POOL
        self.lv_at(self.cloud.row(self.volume).owner).pool = storage.POOL

    def lv_at(self, at: Location) -> storage.Volume:
        return self.cloud.nodes[at.node].group.volumes[names.data_lv(at.lv)]

    def used(self) -> str:
        """The path by which a server writes the volume on a."""
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        return path

    def at(self, method: str, work: typing.Callable[[], None]) -> None:
        """Have something happen before a call."""
        def before(call: ports.Call) -> None:
            if call.method == method:
                work()
        self.cloud.before = before

    def assert_own(self, snapshot: SnapshotId,
                   data: typing.Sequence[str] = base.DATA) -> Location:
        """It is an LV that is nothing else, and the volume is not frozen."""
        at = self.assert_snapshot(snapshot, data)
        tags = self.tags(at)
        self.assertEqual(lv_tags.Tags(snaps=tags.snaps), tags)
        self.assertEqual(storage.POOL, self.lv_at(at).pool)
        self.assertEqual((), self.tags(self.cloud.row(self.volume).owner)
                         .snaps)
        return at


class SnapshotTest(ThinCase):

    def test_at_rest(self) -> None:
        row = self.cloud.row(self.volume)
        at = self.assert_own(self.create())
        self.assertEqual(row, self.cloud.row(self.volume))
        path = self.used()
        self.a.mapper.write(path, 0, 'later')
        self.assert_lvs(self.a.name, row.owner, at)
        self.assertEqual(row.owner, self.cloud.row(self.volume).owner)

    def test_of_what_a_server_writes(self) -> None:
        """All that was acknowledged, though it was not flushed."""
        path = self.used()
        self.a.mapper.write(path, 0, 'later')
        row = self.cloud.row(self.volume)
        first = self.create()
        self.a.mapper.write(path, 1, 'and then')
        second = self.create()
        self.assert_own(first, LATER)
        self.assert_own(second, ['later', 'and then', *base.DATA[2:]])
        self.assertEqual(row, self.cloud.row(self.volume))
        self.assertEqual(1, len(self.a.mapper.mapped))
        self.a.lose_power()
        self.a.start()
        self.assert_own(first, LATER)
        self.assert_own(second, ['later', 'and then', *base.DATA[2:]])

    def test_in_any_order(self) -> None:
        """Also the volume first: none of them needs another."""
        for order in ((0, 1), (1, 0)):
            self.cloud.db.close()
            self.build()
            path = self.used()
            found = [self.create()]
            self.a.mapper.write(path, 0, 'later')
            found.append(self.create())
            data = base.DATA, LATER
            self.a.mapper.flush(path)
            self.delete(found[order[0]])
            self.cloud.settle()
            self.assert_own(found[order[1]], data[order[1]])
            self.delete(found[order[1]])
            self.cloud.settle()
            self.assert_settled(LATER)

    def test_the_volume_goes_elsewhere(self) -> None:
        at = self.assert_own(self.create())
        self.moved(self.b)
        self.cloud.settle()
        self.assert_lvs(self.a.name, at)
        self.assertEqual(base.DATA, [
            self.lv_at(at).read(region) for region in range(base.REGIONS)])

    def test_what_has_not_arrived_is_pinned(self) -> None:
        self.relocated()
        owner = self.cloud.row(self.volume).owner
        self.assertEqual(owner, self.found(self.create()).at)
        self.assertNotEqual(owner, self.cloud.row(self.volume).owner)

    def test_so_is_what_is_not_in_the_pool_of_the_node(self) -> None:
        owner = self.cloud.row(self.volume).owner
        for of_lv, of_node in (('', storage.POOL), (storage.POOL, ''),
                               ('another', storage.POOL)):
            self.lv_at(owner).pool, self.a.group.pool = of_lv, of_node
            self.assertEqual(owner, self.found(self.create()).at)

    def test_it_needs_no_room_but_a_pool_that_is_not_too_full(self) -> None:
        self.a.group.pool_size = units.Bytes.from_gib(4)
        self.a.group.used = 4 * units.GIB * 79 // 100 - units.GIB
        self.assert_own(self.create())
        self.a.group.used = 4 * units.GIB * 81 // 100 - units.GIB
        before = set(self.a.group.volumes)
        snapshot = self.ask()
        with self.assertRaisesRegex(exceptions.PoolFull, 'is too full'):
            snapshots.create(self.a.service, self.volume, snapshot)
        self.assertIsNone(self.found(snapshot).provider_id)
        self.assertEqual(before, set(self.a.group.volumes))

    def test_a_commit_that_is_refused(self) -> None:
        """The LV that was made goes."""
        snapshot = self.ask()
        self.at('pin', lambda: self.cloud.db.update_snapshot(
            snapshot, status='error'))
        self.assertRaises(exceptions.RowChanged, snapshots.create,
                          self.a.service, self.volume, snapshot)
        self.cloud.before = lambda call: None
        self.cloud.settle()
        self.assert_settled()


class InterruptedTest(ThinCase):
    """LVM is killed while the LV of a server is suspended."""

    def interrupt(self, error: type[BaseException]) -> str:
        """Have it happen; the path of the server."""
        path, self.snapshot = self.used(), self.ask()
        with self.assertRaises(error):
            snapshots.create(self.a.service, self.volume, self.snapshot)
        with self.assertRaises(mapped.Queued):
            self.a.mapper.read(path, 0)
        return path

    def assert_goes_on(self, path: str) -> None:
        self.assert_data(self.a, path)
        self.cloud.db.update_snapshot(self.snapshot, status='error')
        self.cloud.settle()
        self.assert_settled()

    def test_with_cinder_volume(self) -> None:
        self.at('suspended', self.a.kill)
        path = self.interrupt(ports.Killed)
        self.cloud.before = lambda call: None
        self.a.start()
        self.assert_goes_on(path)

    def test_alone(self) -> None:
        """Its time was over, for example: the next look finds it."""
        self.cloud.lvm_dies = lambda: True
        path = self.interrupt(exceptions.CommandTimeout)
        self.cloud.lvm_dies = lambda: False
        self.a.process.loop.run_once()
        self.assert_goes_on(path)

    def test_a_request_lets_it_go_on_first(self) -> None:
        self.cloud.lvm_dies = lambda: True
        path = self.interrupt(exceptions.CommandTimeout)
        self.cloud.lvm_dies = lambda: False
        self.assert_own(self.create())
        self.assert_data(self.a, path)


class BirthTest(ThinCase):

    def begin(self, size: int = 1,
              node: cloud.Node | None = None) -> VolumeId:
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(
            volume, f'{(node or self.a).name}#{cloud.POOL}',
            status='creating', size=size)
        return volume

    def clone(self, size: int = 1) -> VolumeId:
        volume = self.begin(size)
        births.clone(self.a.service, volume, self.volume)
        self.cloud.db.update(volume, status='available')
        return volume

    def assert_whole(self, volume: VolumeId,
                     data: typing.Sequence[str] = base.DATA) -> None:
        """It is a volume, and neither needs nor lends anything."""
        row = self.cloud.row(volume)
        self.assertEqual((None, None), (row.source, row.offer))
        tags = self.tags(row.owner)
        self.assertEqual(lv_tags.Tags(own=lv_tags.OwnTag(
            row.generation, volume)), tags)
        lv = self.lv_at(row.owner)
        self.assertEqual(units.Bytes.from_gib(row.size), lv.size)
        self.assertEqual(list(data), [lv.durable.get(region)
                                      for region in range(len(data))])

    def test_of_what_a_server_writes(self) -> None:
        path = self.used()
        self.a.mapper.write(path, 0, 'later')
        volume = self.clone()
        self.a.mapper.write(path, 1, 'and then')
        self.assert_whole(volume, LATER)
        # Nothing is left to do for it.
        owner = self.cloud.row(self.volume).owner
        self.assertEqual((), self.tags(owner).lent)
        self.assert_lvs(self.a.name, owner, self.cloud.row(volume).owner)

    def test_a_larger_one(self) -> None:
        self.assert_whole(self.clone(size=2))

    def test_of_a_snapshot(self) -> None:
        snapshot = self.create()
        self.moved(self.a)
        volume = self.begin()
        births.from_snapshot(self.a.service, volume, snapshot)
        self.assert_whole(volume)
        self.assert_own(snapshot)

    def test_it_needs_no_room_but_a_pool_that_is_not_too_full(self) -> None:
        self.a.group.pool_size = units.Bytes.from_gib(4)
        self.a.group.used = 4 * units.GIB * 79 // 100 - units.GIB
        self.assert_whole(self.clone())
        self.a.group.used = 4 * units.GIB * 81 // 100 - units.GIB
        before, volume = set(self.a.group.volumes), self.begin()
        with self.assertRaisesRegex(exceptions.PoolFull, 'is too full'):
            births.clone(self.a.service, volume, self.volume)
        self.assertIsNone(self.cloud.row(volume).offer)
        self.assertEqual(before, set(self.a.group.volumes))

    def test_a_copy_needs_room(self) -> None:
        """Nothing is lent or cut for one that there is none for."""
        self.moved(self.b)
        self.used()
        self.a.group.pool_size = units.Bytes.from_gib(2)
        self.a.group.used = units.GIB // 2
        owner, volume = self.cloud.row(self.volume).owner, self.begin()
        with self.assertRaises(exceptions.NoRoom):
            births.clone(self.a.service, volume, self.volume)
        self.assertEqual((), self.tags(owner).lent)
        self.assertEqual(owner, self.cloud.row(self.volume).owner)

    def test_one_that_does_not_fit(self) -> None:
        self.cloud.db.update(self.volume, size=2)
        with self.assertRaises(exceptions.CannotBear):
            self.clone()

    def test_of_what_has_not_arrived(self) -> None:
        """It borrows, as ever."""
        self.cloud.attach(self.volume, self.b)
        volume = self.begin(node=self.b)
        births.clone(self.b.service, volume, self.volume)
        self.assertIsNotNone(self.cloud.row(volume).source)

    def test_one_whose_commit_is_refused(self) -> None:
        volume = self.begin()
        self.at('bear', lambda: self.cloud.db.update(volume, status='error'))
        with self.assertRaises(exceptions.RowChanged):
            births.clone(self.a.service, volume, self.volume)
        self.cloud.before = lambda call: None
        self.cloud.settle()
        self.assert_settled()


class CutTest(ThinCase):
    """What is frozen is whole, and nobody writes it: its server comes later.
    """

    def pinned(self) -> SnapshotId:
        """A snapshot that is the volume's own LV, as if made too early."""
        self.a.group.pool = ''
        snapshot = self.create()
        self.a.group.pool = storage.POOL
        self.assertEqual(self.cloud.row(self.volume).owner,
                         self.found(snapshot).at)
        return snapshot

    def test_it_goes_on_at_once(self) -> None:
        snapshot = self.pinned()
        former = self.cloud.row(self.volume).owner
        path = self.used()
        row = self.cloud.row(self.volume)
        self.assertNotEqual(former, row.owner)
        self.assertEqual((2, None), (row.generation, row.source))
        self.assertEqual(names.front(self.a.host, former.lv).path, path)
        self.a.mapper.write(path, 0, 'later')
        self.cloud.settle()
        self.assert_data(self.a, path, LATER)
        self.assertEqual(former, self.assert_snapshot(snapshot))
        # A database that is restored does not make it the volume again.
        self.assertEqual(lv_tags.PastTag(2, self.volume, row.node, row.lv),
                         self.tags(former).past)
        self.assert_lvs(self.a.name, former, row.owner)
        self.a.lose_power()
        self.a.start()
        self.assertEqual([path.rpartition('/')[2]], list(self.a.mapper.mapped))

    def test_it_needs_no_room(self) -> None:
        self.pinned()
        self.a.group.pool_size = units.Bytes.from_gib(2)
        self.a.group.used = units.GIB // 2
        self.used()

    def test_one_that_is_refused(self) -> None:
        snapshot = self.pinned()
        former = self.cloud.row(self.volume).owner
        self.a.group.used = 90 * units.GIB
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(exceptions.PoolFull, 'is too full'):
            self.cloud.connect(self.volume, attachment, self.a)
        self.a.group.used = 0
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assertEqual(former, self.cloud.row(self.volume).owner)
        self.assertEqual(former, self.assert_snapshot(snapshot))
        self.assertEqual((), self.tags(former).lent)
        self.assert_lvs(self.a.name, former)


class RevertTest(ThinCase):

    def test_it_needs_no_room_but_a_pool_that_is_not_too_full(self) -> None:
        snapshot = self.create()
        self.a.group.pool_size = units.Bytes.from_gib(4)
        self.a.group.used = 4 * units.GIB * 79 // 100 - units.GIB
        self.ask_back(snapshot)
        self.cloud.settle()
        self.a.group.used = 4 * units.GIB * 81 // 100 - units.GIB
        row = self.cloud.row(self.volume)
        with self.assertRaisesRegex(exceptions.PoolFull, 'is too full'):
            self.ask_back(snapshot)
        self.cloud.settle()
        self.assertEqual(row.owner, self.cloud.row(self.volume).owner)
        self.assert_lvs(self.a.name, row.owner, self.assert_own(snapshot))

    def test_to_a_snapshot_of_its_node(self) -> None:
        snapshot = self.create()
        self.moved(self.a)
        former = self.cloud.row(self.volume).owner
        self.ask_back(snapshot)
        row = self.cloud.row(self.volume)
        self.assertEqual((2, None), (row.generation, row.source))
        self.cloud.settle()
        at = self.assert_own(snapshot)
        # What it was is gone: nothing hydrates.
        self.assertNotEqual(former, row.owner)
        self.assert_lvs(self.a.name, row.owner, at)
        self.assert_content(base.DATA, self.a)
        self.moved(self.a)
        self.assert_own(snapshot)
