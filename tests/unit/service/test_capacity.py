# SPDX-License-Identifier: Apache-2.0
"""What the pool of a node says."""

from __future__ import annotations

import functools
import typing
from unittest import mock

from cinder_dmclone import names
from cinder_dmclone.service import capacity
from tests.unit import base
from tests.unit.fake import cloud


class PoolTest(base.CloudTestCase):

    online_extend = False

    def pool(self, node: cloud.Node) -> dict[str, typing.Any]:
        configuration = mock.Mock(reserved_percentage=0,
                                  max_over_subscription_ratio=20.0,
                                  target_ip_address='198.51.100.9',
                                  dmclone_online_extend=self.online_extend)
        stats = capacity.Stats(node.service.world, configuration,
                               node.process.loop.attention,
                               node.process.loop.enqueue)
        pool, = stats.get('1', None, None)['pools']
        return dict(pool)

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
