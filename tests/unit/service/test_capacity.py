# SPDX-License-Identifier: Apache-2.0
"""What the pool of a node says."""

from __future__ import annotations

import functools
import logging
import typing
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.service import capacity
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import cloud


class PoolTest(base.CloudTestCase):

    online_extend = False

    def pool(self, node: cloud.Node) -> dict[str, typing.Any]:
        return self.said(self.stats(node))

    def said(self, stats: capacity.Stats) -> dict[str, typing.Any]:
        pool, = stats.get('1', None, None)['pools']
        return dict(pool)

    def stats(self, node: cloud.Node) -> capacity.Stats:
        configuration = mock.Mock(reserved_percentage=0,
                                  max_over_subscription_ratio=20.0,
                                  target_ip_address='198.51.100.9',
                                  dmclone_online_extend=self.online_extend)
        return capacity.Stats(node.service.world, configuration,
                              node.process.loop.attention,
                              node.process.loop.enqueue)

    def counts(self, node: cloud.Node) -> tuple[int, ...]:
        """How many hydrate, are lent, and need a look."""
        pool = self.pool(node)
        return tuple(pool[f'dmclone_{what}']
                     for what in ('hydrating', 'lent', 'attention'))

    def test_whether_cinder_lets_volumes_grow_that_are_in_use(self) -> None:
        """Its schedulers know that of the pool."""
        for wanted in (False, True):
            self.online_extend = wanted
            self.assertIs(wanted, self.pool(self.a)['online_extend_support'])

    def test_a_disk_that_is_missing(self) -> None:
        """LVM makes nothing then: volumes would fail there, one by one."""
        self.assertEqual('up', self.pool(self.a)['backend_state'])
        self.a.group.partial = {names.data_lv(self.lv)}
        logging.disable(logging.NOTSET)
        with self.assertLogs(capacity.__name__, logging.ERROR) as logged:
            pool = self.pool(self.a)
        self.assertEqual(('down', 0.0), (pool['backend_state'],
                                         pool['free_capacity_gb']))
        self.assertIn('is missing', logged.output[0])
        answer = self.b.process.world.peers.ask(
            self.a.name, messages.FindRoom(units.Bytes.from_gib(1)))
        self.assertIn('is missing', answer.lacks)

    def test_a_group_that_is_lost(self) -> None:
        """What was last said would be believed for ever."""
        stats = self.stats(self.a)
        self.assertEqual('up', self.said(stats)['backend_state'])
        self.a.group.lost = True
        logging.disable(logging.NOTSET)
        with self.assertLogs(capacity.__name__, logging.ERROR):
            self.assertEqual('down', self.said(stats)['backend_state'])
        self.assert_busy(stats, 'down')
        self.a.group.lost = False
        self.assertEqual('up', self.said(stats)['backend_state'])
        self.assert_busy(stats, 'up')

    def assert_busy(self, stats: capacity.Stats, state: str) -> None:
        """That LVM does not answer in time tells nothing new."""
        with mock.patch.object(self.a.group, 'report', side_effect=(
                exceptions.CommandTimeout(command='lvm', seconds=30))):
            self.assertEqual(state, self.said(stats)['backend_state'])

    def test_a_volume_that_moves(self) -> None:
        self.assertEqual((0, 0, 0), self.counts(self.a))
        self.relocated()
        self.cloud.settle(1)
        self.assertEqual(((0, 1, 0), (1, 0, 0)),
                         (self.counts(self.a), self.counts(self.b)))

    def test_what_needs_a_look(self) -> None:
        """Until it is as it should be, or gone."""
        group, name = self.a.group, names.data_lv(self.lv)
        tags = group.volumes[name].tags
        broken = ['dmclone.1.own/x/y']
        for mend in (functools.partial(group.retag, name, tags, broken),
                     functools.partial(group.remove, name)):
            group.retag(name, add=broken, remove=tags)
            self.look()
            self.assertEqual((0, 0, 1), self.counts(self.a))
            mend()
            self.look()
            self.assertEqual((0, 0, 0), self.counts(self.a))

    def look(self) -> None:
        """At everything, as at the start."""
        self.a.process.loop.run_once(True)
        self.cloud.settle()
