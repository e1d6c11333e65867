# SPDX-License-Identifier: Apache-2.0
"""cinder-scheduler prefers the node that a request has come from."""

from __future__ import annotations

import typing
from unittest import mock

# The first: it registers Cinder's objects, which its scheduler names.
from tests.unit import base

from cinder import context
from cinder.scheduler.filters import instance_locality_filter
from cinder.scheduler import host_manager
from cinder.scheduler import weights as cinder_weights
from cinder.scheduler.weights import capacity as capacity_weights

from cinder_dmclone.service import capacity
from cinder_dmclone import weights

REQUEST = 'req-12345678-1234-1234-1234-123456789012'


class _Weighers(cinder_weights.OrderedHostWeightHandler):
    """Cinder's own, without looking for entry points."""

    def __init__(self) -> None:
        self.object_class = cinder_weights.WeighedHost


class WeigherTest(base.CloudTestCase):

    def state(self, node: typing.Any, address: str, free: float
              ) -> host_manager.PoolState:
        """What the scheduler has of a node that reports."""
        configuration = mock.Mock(reserved_percentage=0,
                                  max_over_subscription_ratio=20.0,
                                  target_ip_address='198.51.100.9')
        with mock.patch.object(capacity.CONF, 'my_ip', address):
            stats = capacity.Stats(
                node.service.world, configuration, lambda: 0,
                lambda key: None).get('1', None, None)
        pool, = stats['pools']
        state = host_manager.PoolState(node.name, None, None, 'dmclone')
        state.update_from_volume_capability(
            {**stats, **pool, 'free_capacity_gb': free,
             'total_capacity_gb': 100, 'timestamp': None})
        return state

    def best(self, address: str | None, request: str | None = REQUEST
             ) -> str:
        """Where a volume is made; b has the most room."""
        asking = context.RequestContext.from_dict(context.RequestContext(
            'u', 'p', is_admin=False, remote_address=address,
            global_request_id=request).to_dict())
        states = [self.state(self.a, '192.0.2.1', 10),
                  self.state(self.b, '2001:db8::2', 90)]
        found = _Weighers().get_weighed_objects(
            [capacity_weights.CapacityWeigher, weights.CallerNodeWeigher],
            states, {'context': asking})
        return str(found[0].obj.host).partition('@')[0]

    def test_the_node_that_asks_is_preferred(self) -> None:
        for address in ('192.0.2.1', '::ffff:192.0.2.1',
                        '192.0.2.1, 198.51.100.7'):
            self.assertEqual('a', self.best(address), address)
        for address in ('2001:db8:0::2', '"[2001:db8::2]:4711"'):
            self.assertEqual('b', self.best(address), address)

    def test_anybody_else_is_served_as_ever(self) -> None:
        for address in ('192.0.2.9', '192.0.2.11', '', None, 'localhost',
                        '[', '192.0.2.1:5'):
            self.assertEqual('b', self.best(address), address)

    def test_a_person_on_a_node_is_served_as_ever(self) -> None:
        self.assertEqual('b', self.best('192.0.2.1', None))

    def test_a_backend_of_another_driver(self) -> None:
        state = host_manager.PoolState('c@rbd', None, {}, 'rbd')
        asking = context.RequestContext(
            'u', 'p', is_admin=False, remote_address='192.0.2.1',
            global_request_id=REQUEST)
        self.assertEqual([0.0], weights.CallerNodeWeigher().weigh_objects(
            [cinder_weights.WeighedHost(state, 0.0)], {'context': asking}))

    def test_a_volume_for_a_server_that_is_there(self) -> None:
        """Cinder's own filter tells our nodes apart by their hosts."""
        server = mock.Mock(**{instance_locality_filter.INSTANCE_HOST_PROP:
                              'b'})
        asking = {'context': None, 'scheduler_hints': {
            'local_to_instance': REQUEST.removeprefix('req-')}}
        with mock.patch('cinder.compute.nova.API.get_server',
                        return_value=server):
            passed = [instance_locality_filter.InstanceLocalityFilter()
                      .backend_passes(self.state(node, '192.0.2.1', 9),
                                      asking) for node in (self.a, self.b)]
        self.assertEqual([False, True], passed)
