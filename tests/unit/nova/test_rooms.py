# SPDX-License-Identifier: Apache-2.0
"""What volumes need, and where."""

from __future__ import annotations

import unittest

from cinder_dmclone.nova import rooms
from tests.unit.nova import base


class ReportTest(unittest.TestCase):

    def load(self, report: rooms.Report, host: str,
             need: rooms.Need) -> dict[str, float]:
        found = report.load(host, need, lambda pool: pool.free)
        return {str(pool.node): round(gib, 2) for pool, gib in found.items()}

    def test_a_volume_needs_room_where_it_is_not(self) -> None:
        need = rooms.Need((base.volume('node1'),))
        report = base.report()
        self.assertEqual({'node1@dmclone': 0},
                         self.load(report, 'node1', need))
        self.assertEqual({'node2@dmclone': 20.05},
                         self.load(report, 'node2', need))

    def test_a_new_volume_needs_room_everywhere(self) -> None:
        need = rooms.Need((base.volume('node1'),), (('dmclone', 7),))
        self.assertEqual({'node1@dmclone': 7.05},
                         self.load(base.report(), 'node1', need))
        self.assertEqual({'node2@dmclone': 27.1},
                         self.load(base.report(), 'node2', need))

    def test_a_host_without_backend_takes_nothing(self) -> None:
        need = rooms.Need((base.volume('node1'),), (('dmclone', 7),))
        self.assertEqual({}, self.load(base.report(), 'node9', need))

    def test_a_volume_stays_in_its_backend(self) -> None:
        report = base.report(base.GIB_FREE, base.pool('node2', 5, 'fast'))
        self.assertEqual(
            {'node2@dmclone': 0, 'node2@fast': 20.05},
            self.load(report, 'node2', rooms.Need(
                (base.volume('node1', backend='fast'),))))

    def test_of_two_pools_of_a_name_the_emptier_takes_a_new_volume(self
                                                                   ) -> None:
        report = base.report(base.GIB_FREE, base.pool(
            'node3', 50, 'second', 'dmclone'))
        self.assertEqual(
            {'node3@dmclone': 5.05, 'node3@second': 40.05},
            self.load(report, 'node3', rooms.Need(
                new=(('dmclone', 40), ('dmclone', 5)))))

    def test_what_is_reserved_is_for_no_volume(self) -> None:
        found = rooms.Pool.parse(base.pool('a', 50, reserved=10))
        assert found
        self.assertEqual(30, found.free)
        found = rooms.Pool.parse(base.pool('a', 10, reserved=10))
        assert found
        self.assertEqual(0, found.free)

    def test_a_pool_of_another_driver_is_none_of_ours(self) -> None:
        self.assertIsNone(rooms.Pool.parse(base.foreign()))
        self.assertIsNone(rooms.Pool.parse({'name': 'a@b#c',
                                            'capabilities': None}))


class NeedTest(unittest.TestCase):

    def test_a_volume_elsewhere_is_none_of_ours(self) -> None:
        found = base.report().need(
            's', [base.volume('ceph', backend='rbd'), base.volume('')], [])
        self.assertFalse(found)

    def test_types_say_whose_a_new_volume_is(self) -> None:
        report = base.report(base.GIB_FREE, base.foreign())
        for name, wanted in (
                ('local', (('dmclone', 3),)), ('id-local', (('dmclone', 3),)),
                (None, (('dmclone', 3),)), ('ceph', ()), ('any', ()),
                ('unheard of', ())):
            found = report.need('s', [], [rooms.NewVolume(name, 3)])
            self.assertEqual(wanted, found.new, name)

    def test_without_other_drivers_a_type_without_name_is_ours(self) -> None:
        found = base.report(default='id-any').need(
            's', [], [rooms.NewVolume(None, 3)])
        self.assertEqual(((None, 3),), found.new)

    def test_no_default_type(self) -> None:
        self.assertFalse(base.report(default=None).need(
            's', [], [rooms.NewVolume(None, 3)]))

    def test_what_is_at_home(self) -> None:
        need = rooms.Need((base.volume('node1', 5), base.volume('node1', 2),
                           base.volume('node2', 1)), (('dmclone', 3),))
        self.assertEqual([7, 1, 0], [need.at_home(host) for host in (
            'node1', 'node2', 'node3')])
