# SPDX-License-Identifier: Apache-2.0
"""Snapshots and clones, of volumes that a server writes all the while."""
from __future__ import annotations

import copy
import itertools
import threading
import typing

from lab import look
from tests.functional import base
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.attached import AttachedVolume

BLOCKS = environment.GIB // 4096
# Far from what the writers of tests write.
AWAY = BLOCKS // 2


class SnapshotTestCase(base.FunctionalTest):

    def snapshot(self, volume: str) -> str:
        """A snapshot of a volume, whoever uses it; its id."""
        snapshot = self.lab.create_snapshot(volume, self.id())
        self.addCleanup(self.delete_snapshot, snapshot)
        return snapshot

    def delete_snapshot(self, snapshot: str) -> None:
        if self.lab.snapshot_status(snapshot) != 'gone':
            self.lab.delete_snapshot(snapshot)

    def born(self, **source: typing.Any) -> str:
        """A volume of a snapshot, or of another volume; its id."""
        volume = self.lab.create_volume(1, wait=False, **source)
        self.volumes.append(volume)
        self.lab.wait_volume(volume, 'available')
        return volume

    def revert(self, volume: str, snapshot: str) -> None:
        """Make a detached volume what its latest snapshot is."""
        self.lab.cinder('POST', f'/volumes/{volume}/action',
                        {'revert': {'snapshot_id': snapshot}})
        self.lab.wait_volume(volume, 'available')
        self.wait(f'end of the reverting to {snapshot}',
                  lambda: self.lab.snapshot_status(snapshot) == 'available')

    def written(self, at: AttachedVolume, image: base.Image,
                work: typing.Callable[[], str]) -> str:
        """What work makes while a writer goes on all the time."""
        ended = threading.Event()
        failed: list[Exception] = []

        def write() -> None:
            try:
                for number in itertools.count():
                    if ended.is_set():
                        return
                    image.write(at, AWAY + number % 64, 1)
            except Exception as error:
                failed.append(error)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            return work()
        finally:
            ended.set()
            writer.join()
            self.assertEqual([], failed)


class SnapshotTest(SnapshotTestCase):

    def test_of_a_volume_that_is_written(self) -> None:
        """It holds what was written before, and nothing of what came after.

        The server's device stays the same, and what it has is right.
        """
        volume, image = self.filled(self.node1)
        at = self.attach(volume, self.node1)
        image.write(at, 7, 24, BLOCKS // 25)
        then = copy.deepcopy(image)
        snapshot = self.written(at, image, lambda: self.snapshot(volume))
        image.write(at, 7, 24, BLOCKS // 25)
        born = self.born(snapshot_id=snapshot)
        self.assertEqual('node1', self.row(born).node)
        # Its lender and theirs hydrate still, perhaps.
        there = self.attach(born, self.node2)
        self.assertEqual('', then.difference(there, size=AWAY * 4096))
        self.assert_holds(image, at)
        self.wait_complete(volume)
        self.wait_complete(born)
        self.assertEqual('', then.difference(there, size=AWAY * 4096))
        self.assert_holds(image, at)
        self.delete_snapshot(snapshot)

    @environment.only_long
    def test_it_stays_where_the_volume_was(self) -> None:
        volume, image = self.filled(self.node1)
        snapshot = self.snapshot(volume)
        then = copy.deepcopy(image)
        at = self.attach(volume, self.node2)
        image.write(at, 3, 40, BLOCKS // 41)
        self.wait_complete(volume)
        born = self.born(snapshot_id=snapshot)
        self.assertEqual('node2', self.row(born).node)
        there = self.attach(born, self.node1)
        self.assert_holds(then, there)
        self.assert_holds(image, at)
        self.detach(there)
        self.delete_snapshot(snapshot)
        self.wait_complete(born)

    @environment.only_long
    def test_revert_of_a_volume_that_has_moved(self) -> None:
        """It goes back where it is now; the snapshot is on another node."""
        volume, image = self.filled(self.node1)
        then = copy.deepcopy(image)
        snapshot = self.snapshot(volume)
        at = self.attach(volume, self.node2)
        image.write(at, 3, 40, BLOCKS // 41)
        self.wait_complete(volume)
        self.detach(at)
        former = f'volume-{self.row(volume).lv}'
        self.assertIn(former, look.volumes(self.node2))
        self.revert(volume, snapshot)
        self.assertEqual('node2', self.row(volume).node)
        at = self.attach(volume, self.node2)
        self.assert_holds(then, at)
        image = copy.deepcopy(then)
        image.write(at, 7, 24, BLOCKS // 25)
        self.wait_complete(volume)
        self.assert_holds(image, at)
        self.wait(f'end of {former}',
                  lambda: former not in look.volumes(self.node2))
        self.detach(at)
        # Nothing of that has come to the snapshot, and the volume can move
        # before it has hydrated.
        self.revert(volume, snapshot)
        at = self.attach(volume, self.node1)
        self.assert_holds(then, at)
        self.wait_complete(volume)
        self.detach(at)
        self.delete_snapshot(snapshot)


class CloneTest(SnapshotTestCase):

    def test_of_a_volume_that_hydrates_and_is_written(self) -> None:
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        image.write(at, 3, 40, BLOCKS // 41)
        then = copy.deepcopy(image)
        born = self.born(source_volid=volume)
        image.write(at, 3, 40, BLOCKS // 41)
        self.assertEqual('node2', self.row(born).node)
        there = self.attach(born, self.node2)
        self.release(at, self.node1)
        self.assert_holds(then, there)
        self.assert_holds(image, at)
        self.wait_complete(volume)
        self.wait_complete(born)
        self.assert_holds(then, there)
        self.assert_holds(image, at)
