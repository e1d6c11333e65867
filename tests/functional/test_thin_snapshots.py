# SPDX-License-Identifier: Apache-2.0
"""Snapshots, clones and reverts that the pool of a node makes at once."""
from __future__ import annotations

import copy

from lab import look
from tests.functional import base
from tests.functional import environment
from tests.functional import test_snapshots
from tests.functional import test_thin

GROUP = look.GROUP
BLOCKS = test_snapshots.BLOCKS
AWAY = test_snapshots.AWAY


class ThinSnapshotTest(test_thin.ThinTestCase):
    """What the pool copies by itself; node 2 has none."""

    def test_snapshots_of_what_a_server_writes(self) -> None:
        """They are there at once, and stay when the volume leaves."""
        volume, image = self.filled(self.node1)
        at = self.attach(volume, self.node1)
        image.write(at, 7, 24, BLOCKS // 25)
        then, used = copy.deepcopy(image), self.used()
        before = self.row(volume)
        first = self.written(at, image, lambda: self.snapshot(volume))
        self.assert_thin_snapshot(first)
        self.assertEqual(before.lv, self.row(volume).lv)
        self.assert_rests(volume)
        self.assertAlmostEqual(used, self.used(), delta=1)
        image.write(at, 7, 24, BLOCKS // 25)
        now, second = copy.deepcopy(image), self.snapshot(volume)
        self.assert_thin_snapshot(second)
        image.write(at, 3, 40, BLOCKS // 41)
        self.assert_holds(image, at)
        self.detach(at)
        at = self.attach(volume, self.node2)
        self.wait_complete(volume)
        self.assert_holds(image, at)
        # Of the two that are left the older one goes first, then the newer.
        self.wait('the end of what they were made of', lambda: (
            f'volume-{before.lv}' not in look.volumes(self.node1)))
        self.assert_has(second, now)
        self.assert_has(first, then, AWAY * 4096)
        self.delete_snapshot(first)
        self.assert_has(second, now)
        self.delete_snapshot(second)
        self.wait('the end of all data', lambda: self.used() == 0)

    @environment.only_long
    def test_clones_and_a_revert(self) -> None:
        volume, image = self.filled(self.node1)
        at = self.attach(volume, self.node1)
        snapshot = self.snapshot(volume)
        then = copy.deepcopy(image)
        image.write(at, 7, 24, BLOCKS // 25)
        for source, wanted in (({'source_volid': volume}, image),
                               ({'snapshot_id': snapshot}, then)):
            born = self.born(**source)
            self.assertEqual('node1', self.row(born).node)
            self.assert_rests(born)
            there = self.attach(born, self.node1)
            self.assert_holds(wanted, there)
            there_image = copy.deepcopy(wanted)
            there_image.write(there, 9, 20, BLOCKS // 21)
            self.assert_holds(there_image, there)
            self.detach(there)
        self.assert_holds(image, at)
        self.detach(at)
        self.lab.wait_volume(volume, 'available')
        former = f'volume-{self.row(volume).lv}'
        self.revert(volume, snapshot)
        self.assert_rests(volume)
        self.wait(f'end of {former}',
                  lambda: former not in look.volumes(self.node1))
        at = self.attach(volume, self.node1)
        self.assert_holds(then, at)
        then.write(at, 7, 24, BLOCKS // 25)
        self.assert_holds(then, at)
        self.detach(at)
        self.delete_snapshot(snapshot)
        self.remove_volumes()
        self.wait('the end of all data', lambda: self.used() == 0)

    @environment.only_long
    def test_what_lvm_has_left_suspended(self) -> None:
        """An LV, or all of its pool: servers go on when cinder-volume starts.

        LVM suspends from the top.
        """
        volume, image = self.filled(self.node1)
        at = self.attach(volume, self.node1)
        tpool, = (name for name in self.node1.run(
            'dmsetup info -c --noheadings -o name').stdout.split()
            if name.endswith('-tpool'))
        lv = f'/dev/{GROUP}/volume-{self.row(volume).lv}'
        for devices in ([lv], [lv, tpool]):
            self.node1.volume.kill()
            for device in devices:
                self.node1.run(['dmsetup', 'suspend', device])
            reading = self.node1.popen([
                'dd', f'if={at.path}', 'of=/dev/null', 'bs=4096', 'count=1',
                'iflag=direct'])
            self.assertIsNone(reading.poll())
            self.node1.volume.start(wait=True)
            self.assertEqual(0, self.wait('the read', reading.poll).code)
            self.assert_holds(image, at)
        self.snapshot(volume)

    def place(self, snapshot: str) -> str:
        """The LV that a snapshot is."""
        (record,), = self.lab.sql('select provider_id from snapshots where '
                                  f"id = '{snapshot}'")
        head, _, lv = record.rpartition('/')
        self.assertEqual('1;at=node1@dmclone', head)
        return f'volume-{lv}'

    def assert_thin_snapshot(self, snapshot: str) -> None:
        """It is a thin snapshot as LVM makes one."""
        roles = self.column(self.node1, self.place(snapshot), 'lv_role')
        self.assertIn('thinsnapshot', roles)

    def assert_rests(self, volume: str) -> None:
        """It neither hydrates nor has done so."""
        self.assertNotIn(';', self.row(volume).provider_id)
        self.assertNotIn('-clone-', ' '.join(look.devices(self.node1)))

    def assert_has(self, snapshot: str, image: base.Image,
                   size: int | None = None) -> None:
        """What a volume shows that is made of it; elsewhere, as it may be."""
        born = self.born(snapshot_id=snapshot)
        there = self.attach(born, self.node2)
        self.assertEqual('', image.difference(there, size=size))
        self.wait_complete(born)
        self.assertEqual('', image.difference(there, size=size))
        self.detach(there)
