# SPDX-License-Identifier: Apache-2.0
"""The disk with a node's metadata group fails."""

from __future__ import annotations

import contextlib
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone import preflight
from cinder_dmclone.reconcile import activation
from tests.unit import base
from tests.unit.fake import ports


class LostMetadataTest(base.CloudTestCase):
    """Only what hydrates there depends on it."""

    hosts = ('a', 'b', 'c')
    options = {'own_metadata': True}

    def lose_power_after(self, method: str) -> None:
        """Of b, after a change of its metadata group that is durable."""
        def lose(call: ports.Call) -> None:
            if (call.node, call.port, call.method) == (
                    self.b.name, 'meta_group', method):
                self.b.meta_group.flush()
                self.b.lose_power()
        self.cloud.after = lose

    def test_a_volume_at_rest_is_used(self) -> None:
        self.a.meta_group.lost = True
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.assert_data(self.a, path)
        self.cloud.detach(self.volume, attachment, self.a)
        self.cloud.settle()
        self.assertEqual({}, self.a.mapper.mapped)

    def test_it_leaves_for_another_node(self) -> None:
        self.a.meta_group.lost = True
        _, path = self.relocated()
        self.assert_data(self.b, path)
        self.cloud.settle()
        self.assertEqual({}, self.a.group.volumes)

    def test_no_copy_is_begun_there(self) -> None:
        self.b.meta_group.lost = True
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(exceptions.DMCloneException,
                                    'group "fast" not found'):
            self.cloud.connect(self.volume, attachment, self.b)
        self.assertEqual({}, self.b.group.volumes)

    def test_its_disk_has_what_the_other_has_lost(self) -> None:
        """Power goes while a copy is made; the caches are of two disks."""
        self.lose_power_after('create')
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaises(exceptions.DMCloneException):
            self.cloud.connect(self.volume, attachment, self.b)
        self.cloud.after = lambda call: None
        self.cloud.restart()
        self.cloud.settle()
        self.assertEqual(({}, {}), (self.b.group.volumes,
                                    self.b.meta_group.volumes))
        self.assert_no_complaints()

    def test_a_copy_that_goes_is_no_riddle_without_it(self) -> None:
        """Nobody could tell whether it was written, and was the volume."""
        here, _ = self.cloud.attach(self.volume, self.a)
        attachment, _ = self.cloud.migrate(self.volume, self.b)
        self.lose_power_after('remove')
        with contextlib.suppress(exceptions.DMCloneException):
            self.cloud.detach(self.volume, attachment, self.b)
        self.assertEqual((False, 1), (self.b.up, len(self.b.group.volumes)))
        self.cloud.after = lambda call: None
        self.cloud.detach(self.volume, here, self.a)
        for node in (*self.others, self.a):
            self.cloud.settle()
            attachment, _ = self.cloud.attach(self.volume, node)
            self.cloud.detach(self.volume, attachment, node)
        self.cloud.restart()
        self.cloud.settle()
        self.assertEqual({}, self.b.group.volumes)

    def test_a_copy_whose_clone_stands_is_finished(self) -> None:
        """It is complete as soon as its data group says so."""
        _, path = self.relocated()
        self.b.meta_group.lost = True
        self.cloud.settle()
        row = self.cloud.row(self.volume)
        self.assertEqual((self.b.name, None), (row.node, row.source))
        self.assert_data(self.b, path)

    def test_a_boot_brings_the_others_up(self) -> None:
        other = self.cloud.create(self.b)
        attachment = self.cloud.reserve(self.volume)
        self.cloud.connect(self.volume, attachment, self.b)
        self.cloud.settle(1)
        copy = self.cloud.row(self.volume).lv
        self.b.lose_power()
        self.b.meta_group.lost = self.b.up = True
        process = type(self.b.process)(self.b)
        problems = activation.activate(process.world)
        self.assertEqual({'fast', copy}, set(problems))
        self.assertIn('its metadata LV is missing', problems[copy])
        self.assertEqual({str(names.front(self.b.host,
                                          LvUuid(other)))},
                         {name for name in self.b.mapper.mapped
                          if 'front' in name})

    def test_what_needs_it_is_kept_until_it_is_back(self) -> None:
        self.relocated()
        self.b.lose_power()
        self.b.meta_group.lost = True
        self.b.start()
        self.cloud.settle()
        row = self.cloud.row(self.volume)
        assert row.source
        self.assertEqual((self.b.name, self.a.name),
                         (row.node, row.source.node))
        self.assertIn(names.data_lv(self.lv), self.a.group.volumes)
        self.b.meta_group.lost = False
        self.b.kill()
        self.b.meta_group.activate()
        self.b.start()
        self.cloud.settle()
        self.assert_settled()

    def test_what_a_deletion_could_not_reach_goes_when_it_is_back(
            self) -> None:
        attachment, _ = self.relocated()
        self.cloud.detach(self.volume, attachment, self.b)
        self.b.meta_group.lost = True
        self.cloud.delete(self.volume)
        self.cloud.settle()
        self.assertEqual({}, self.b.group.volumes)
        self.assertEqual(1, len(self.b.meta_group.volumes))
        self.b.meta_group.lost = False
        self.b.kill()
        self.b.start()
        self.cloud.settle()
        for node in (self.a, self.b):
            self.assert_clean(node, set())

    def test_a_power_cut_does_not_bring_it_back_alone(self) -> None:
        """Though LVM flushes neither group, and only one may be durable."""
        def refuse(call: ports.Call) -> None:
            if (call.port, call.method) == ('rows', 'commit'):
                raise exceptions.RowChanged(volume=self.volume,
                                            step='commit', reason='')

        def cut(call: ports.Call) -> None:
            if (call.node, call.port, call.method) == (
                    self.b.name, 'group', 'remove'):
                self.b.group.flush()
                self.b.lose_power()
        self.cloud.before, self.cloud.after = refuse, cut
        with self.assertRaises(exceptions.RowChanged):
            self.relocated()
        self.assertFalse(self.b.up)
        self.cloud.before = self.cloud.after = lambda call: None
        self.cloud.restart()
        self.cloud.settle()
        self.assert_clean(self.b, set())

    def test_what_a_living_volume_has_lost_is_kept(self) -> None:
        """The metadata tells which data was there."""
        self.relocated()
        self.b.lose_power()
        self.b.group.volumes.clear()
        self.b.start()
        self.cloud.settle()
        self.assertEqual(1, len(self.b.meta_group.volumes))

    def test_the_service_starts(self) -> None:
        self.a.lose_power()
        self.a.meta_group.lost = self.a.up = True
        host = type(self.a.process)(self.a).world.host
        with mock.patch.multiple(
                preflight, _check_neighbours=mock.DEFAULT,
                _check_kernel=mock.DEFAULT, _check_udev=mock.DEFAULT,
                # Those of the machine that the tests run on.
                _check_commands=mock.DEFAULT) as found:
            for other in found.values():
                other.return_value = []
            preflight.check(host, [])
        activation.activate_volumes(host)
        self.assertTrue(all(
            lv.devnum for lv in self.a.group.volumes.values()))

    def test_a_power_cut_does_not_bring_back_that_it_hydrates(self) -> None:
        """What the service wrote before it was killed may not be durable."""
        self.relocated()

        def kill(call: ports.Call) -> None:
            if (call.node, call.port, call.method) == (
                    self.b.name, 'group', 'retag') and not any(
                        '.from/' in tag for lv in self.b.group.volumes.values()
                        for tag in lv.tags):
                self.b.kill()
        self.cloud.after = kill
        self.cloud.settle()
        self.lose_power_after('flush')
        self.cloud.restart()
        self.assertFalse(self.b.up)
        self.cloud.after = lambda call: None
        self.cloud.restart()
        self.cloud.settle()
        self.assert_settled()
