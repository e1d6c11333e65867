# SPDX-License-Identifier: Apache-2.0
"""Where servers go, and what those before them have taken."""

from __future__ import annotations

import logging
import unittest

from cinder_dmclone.nova import knowledge
from cinder_dmclone.nova import placements
from cinder_dmclone.nova import planning
from tests.unit.nova import base

LOG = 'cinder_dmclone.nova'
HOSTS = [base.Host(name) for name in (*base.GIB_FREE, 'elsewhere')]


class PlanningTestCase(unittest.TestCase):

    def setUp(self) -> None:
        super().setUp()
        logging.disable(logging.NOTSET)
        self.clock = base.Clock()
        self.cinder = base.Cinder(v=base.volume('node1'))
        self.disks: dict[str, list[base.Disk]] = {}
        self.claims: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.planner = planning.Planner(
            knowledge.Knowledge(self.cinder, self.clock, 60),
            placements.Placements(self.providers, self.clock),
            lambda server: self.disks[server], self.clock)

    def providers(self, server: str) -> list[str]:
        self.asked.append(server)
        return self.claims.get(server, [])

    def admitted(self, server: str, *disks: base.Disk) -> list[str]:
        """The hosts that it may go to."""
        self.disks[server] = list(disks)
        return [host.host for host in self.planner.admit(server, HOSTS)]

    def placed(self, server: str, host: str, *disks: base.Disk) -> None:
        """It went to a host."""
        self.admitted(server, *disks)
        self.claims[server] = [f'provider-{host}']


class AdmitTest(PlanningTestCase):

    def test_a_full_host_is_avoided(self) -> None:
        self.assertEqual(['node1', 'node2', 'elsewhere'],
                         self.admitted('s', base.Disk('v')))

    def test_a_full_host_that_has_the_volume_is_not(self) -> None:
        self.cinder.volumes['v'] = base.volume('node3')
        self.assertEqual(['node1', 'node2', 'node3', 'elsewhere'],
                         self.admitted('s', base.Disk('v')))

    def test_a_volume_that_stays_with_another_server_needs_no_room(
            self) -> None:
        self.cinder.volumes['v'] = base.volume('node1', servers=['s', 't'])
        self.assertEqual(['node1', 'node2', 'node3', 'elsewhere'],
                         self.admitted('s', base.Disk('v')))
        plan = self.planner.plan('s')
        assert plan
        self.assertEqual(20, plan.need.at_home('node1'))
        self.cinder.volumes['v'] = base.volume('node1', servers=['s'])
        self.assertEqual(['node1', 'node2', 'elsewhere'],
                         self.admitted('s', base.Disk('v')))

    def test_new_volumes_count(self) -> None:
        self.assertEqual(
            ['node1', 'node2', 'elsewhere'],
            self.admitted('s', base.Disk(volume_type='local',
                                         volume_size=11)))
        self.assertEqual(
            ['node1', 'node2', 'node3', 'elsewhere'],
            self.admitted('t', base.Disk(volume_type='local',
                                         volume_size=9)))

    def test_nobody_is_asked_for_a_server_without_volumes(self) -> None:
        self.assertEqual(4, len(self.admitted(
            's', base.Disk(destination_type='local'),
            base.Disk('v', no_device=True))))
        self.assertEqual([], self.cinder.asked + self.asked)

    def test_a_volume_of_another_driver(self) -> None:
        self.cinder.volumes['v'] = base.volume('ceph', 1000, 'rbd')
        self.assertEqual(4, len(self.admitted('s', base.Disk('v'))))

    def test_servers_leave_a_node_that_is_disabled(self) -> None:
        """It is in Cinder's pools no more; what is on it moves all the same.
        """
        del self.cinder.free['node1']
        for server, gib in (('s', 60), ('t', 60)):
            self.cinder.volumes[server] = base.volume('node1', gib,
                                                      servers=[server])
        self.assertEqual(['node1', 'node2', 'elsewhere'],
                         self.admitted('s', base.Disk('s')))
        self.placed('s', 'node2', base.Disk('s'))
        self.assertNotIn('node2', self.admitted('t', base.Disk('t')))

    def test_nowhere(self) -> None:
        self.cinder.volumes['v'] = base.volume('node2', 500)
        self.cinder.free['node2'] = 1
        self.disks['s'] = [base.Disk('v'), base.Disk(volume_size=30)]
        hosts = [host for host in HOSTS if host.host in ('node2', 'node3')]
        with self.assertLogs(LOG, 'WARNING') as logs:
            self.assertEqual([], self.planner.admit('s', hosts))
        self.assertEqual(
            ['No host has room for the volumes of server s: volume v of 500 '
             'GiB on node2@dmclone, a new volume of 30 GiB. GiB free for '
             'volumes, the most first: node1@dmclone 100.00, node3@dmclone '
             '10.00, node2@dmclone 1.00'],
            [record.getMessage() for record in logs.records])

    def test_nothing_can_be_known(self) -> None:
        self.cinder.error = OSError('refused')
        with self.assertLogs(LOG, 'WARNING') as logs:
            self.assertEqual(4, len(self.admitted('s', base.Disk('v'))))
            self.assertEqual(4, len(self.admitted('t', base.Disk('v'))))
        self.assertEqual(1, len(logs.output))

    def test_nova_cannot_be_asked(self) -> None:
        with self.assertLogs(LOG, 'WARNING'):
            self.assertEqual(HOSTS, self.planner.admit('unheard of', HOSTS))

    def test_placement_cannot_be_asked(self) -> None:
        self.placed('s', 'node1', base.Disk('v'))
        del self.claims

        with self.assertLogs(LOG, 'WARNING'):
            self.assertEqual(4, len(self.admitted('t', base.Disk('v'))))

    def test_a_filter_and_a_weigher_ask_once(self) -> None:
        self.admitted('s', base.Disk('v'))
        plan = self.planner.plan('s')
        assert plan
        self.assertEqual(20, plan.need.at_home('node1'))
        self.assertEqual(['report', 'v'], self.cinder.asked)

    def test_the_next_request_asks_again(self) -> None:
        self.admitted('s', base.Disk('v'))
        self.cinder.volumes['v'] = base.volume('node3')
        self.assertIn('node3', self.admitted('s', base.Disk('v')))

    def test_a_weigher_alone(self) -> None:
        self.disks['s'] = [base.Disk('v')]
        for _ in range(2):
            self.assertIsNotNone(self.planner.plan('s'))
        self.assertEqual(['report', 'v'], self.cinder.asked)


class PlacedTest(PlanningTestCase):
    """60 GiB on a host with 100: there is room for one such server."""

    big = base.Disk(volume_type='local', volume_size=60)
    small = base.Disk(volume_type='local', volume_size=30)

    def hosts(self, server: str, disk: base.Disk) -> list[str]:
        return [host for host in self.admitted(server, disk)
                if host != 'elsewhere']

    def test_what_was_placed_is_subtracted(self) -> None:
        self.placed('s', 'node1', self.big)
        self.assertEqual(['node2'], self.hosts('t', self.big))
        self.assertEqual(['node1', 'node2'], self.hosts('u', self.small))

    def test_as_long_as_a_report_may_not_show_it(self) -> None:
        self.placed('s', 'node1', self.big)
        self.clock.now += placements.KEPT
        self.assertEqual(['node1', 'node2'], self.hosts('t', self.big))

    def test_what_is_reported_is_not_subtracted_again(self) -> None:
        self.placed('s', 'node1', self.big)
        self.cinder.free['node1'] = 40
        self.clock.now += knowledge.STALE - 1
        self.planner._knowledge.report()
        flight = self.planner._knowledge._flight
        if flight:
            flight.result(60)
        self.assertEqual(['node1', 'node2'], self.hosts('u', self.small))

    def test_several(self) -> None:
        for server in ('s', 't', 'u'):
            self.placed(server, 'node1', self.small)
        self.assertEqual(['node2'], self.hosts('x', self.small))

    def test_one_request_for_many(self) -> None:
        """Each goes where the one before it has left room."""
        went = []
        for number in range(4):
            server = f's{number}'
            possible = self.hosts(server, self.big)
            if possible:
                went.append(possible[0])
                self.claims[server] = [f'provider-{possible[0]}']
        self.assertEqual(['node1', 'node2'], went)

    def test_what_is_at_home_takes_no_room(self) -> None:
        self.cinder.free['node1'] = 30
        for number in range(10):
            self.placed(f's{number}', 'node1', base.Disk('v'))
        self.assertIn('node1', self.hosts('t', base.Disk(volume_size=29)))

    def test_a_server_that_is_placed_again_does_not_count(self) -> None:
        self.placed('s', 'node1', self.big)
        self.assertEqual(['node1', 'node2'], self.hosts('s', self.big))

    def test_a_server_that_went_nowhere_is_forgotten(self) -> None:
        self.admitted('s', self.big)
        self.assertEqual(['node1', 'node2'], self.hosts('t', self.big))
        self.clock.now += placements.CLAIMED + 1
        self.hosts('u', self.big)
        asked = self.asked.count('s')
        self.hosts('x', self.big)
        self.assertEqual(asked, self.asked.count('s'))

    def test_where_it_went_is_asked_once(self) -> None:
        self.placed('s', 'node1', self.big)
        for server in ('t', 'u', 'x'):
            self.hosts(server, self.small)
        self.assertEqual(1, self.asked.count('s'))
