# SPDX-License-Identifier: Apache-2.0
"""A host that Nova and Cinder call differently is refused, not served."""

from __future__ import annotations

import typing
from unittest import mock

from cinder_dmclone.database import initiators
from cinder_dmclone import driver
from cinder_dmclone import exceptions
from cinder_dmclone.host import uevents
from cinder_dmclone.location import NodeName
from cinder_dmclone.releases import db_api
from cinder_dmclone.service import attach_policy
from cinder_dmclone.service import connections
from cinder_dmclone.service import endpoint
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.service import test_placement as policy

How = attach_policy.How
FQDN = 'b.example.com'


class PolicyTest(base.TestCase):
    """Who is refused, once it is known whose initiator it is."""

    def how(self, *attachments: typing.Any, status: str = 'reserved',
            misnamed: str = policy.PEER, **row: typing.Any) -> How:
        return policy.place(
            policy.row(status, *attachments, **row), FQDN, peer=False,
            misnamed=misnamed).how

    def test_a_server(self) -> None:
        self.assertIs(How.REFUSE, self.how(policy.reserved()))

    def test_a_server_on_the_volume_s_own_node(self) -> None:
        self.assertIs(How.REFUSE, self.how(policy.reserved(),
                                           misnamed='a@x'))

    def test_a_live_migration(self) -> None:
        self.assertIs(How.REFUSE, self.how(
            policy.attached(), policy.reserved(), status='in-use'))

    def test_a_server_of_a_busy_volume(self) -> None:
        self.assertIs(How.REFUSE, self.how(
            policy.reserved(), status='uploading'))

    def test_glance_and_backups_on_a_node_are_served(self) -> None:
        """They have names of their own, and the node's initiator."""
        for misnamed in ('a@x', policy.PEER):
            for attachments, status in (
                    ([policy.reserved(instance=None)], 'reserved'),
                    ([], 'backing-up'), ([policy.attached()], 'backing-up')):
                self.assertIs(How.ISCSI, self.how(
                    *attachments, status=status, misnamed=misnamed))

    def test_the_node_s_own_image_copy_is_served(self) -> None:
        """For which a server waits: its disk is made anew."""
        self.assertIs(How.ISCSI, self.how(
            policy.reserved(), status='downloading', misnamed='a@x'))


class RefusalTest(base.CloudTestCase):
    """From the connector to the answer."""

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        for node in self.cloud.nodes.values():
            # Started twice.
            for _ in range(2):
                node.process.world.peers.announce(node.name,
                                                  node.initiator.name())

    def ask(self, node: cloud.Node, **connector: typing.Any) -> typing.Any:
        return connections.connect(self.a.service, self.volume,
                                   node.connector | connector)

    def refusal(self, node: cloud.Node, host: str,
                **connector: typing.Any) -> str:
        with (mock.patch.object(connections.LOG, 'error') as log,
              self.assertRaises(exceptions.CannotServe) as caught):
            self.ask(node, host=host, **connector)
        self.assertEqual(caught.exception.msg,
                         log.call_args.args[1]['error'])
        return caught.exception.msg

    def test_both_names_and_both_options_are_named(self) -> None:
        attachment = self.cloud.reserve(self.volume)
        for node in (self.a, self.b):
            error = self.refusal(node, FQDN)
            for text in (node.name, self.volume,
                         f'nova.conf ({FQDN} now)',
                         f'cinder.conf ({node.host} now)'):
                self.assertIn(text, error)
        self.cloud.forget(self.volume, attachment)
        self.assert_unmoved()

    def test_an_initiator_in_capitals(self) -> None:
        self.cloud.reserve(self.volume)
        self.refusal(self.b, FQDN,
                     initiator=self.b.initiator.name().upper())

    def test_a_host_that_is_no_node_is_served(self) -> None:
        self.cloud.reserve(self.volume)
        self.ask(self.b, host='ironic', initiator='iqn.ironic')

    def test_a_connector_without_a_host_is_served(self) -> None:
        self.cloud.reserve(self.volume)
        self.ask(self.b, host=None)

    def test_a_node_of_another_backend_is_served(self) -> None:
        self.cloud.db.service('d@other')
        self.a.process.world.peers.announce(
            NodeName('d@other'), 'iqn.d')
        self.cloud.reserve(self.volume)
        self.ask(self.b, host=FQDN, initiator='iqn.d')

    def test_a_host_that_is_no_node_any_more_is_served(self) -> None:
        """Its service was removed; what it has announced stays."""
        self.a.process.world.peers.announce(
            NodeName(f'd@{cloud.BACKEND}'), 'iqn.d')
        self.cloud.reserve(self.volume)
        self.ask(self.b, host=FQDN, initiator='iqn.d')

    def test_who_is_known_by_name_costs_no_statement(self) -> None:
        self.cloud.reserve(self.volume)
        with mock.patch.object(initiators.Initiators, 'nodes') as asked:
            self.ask(self.b)
        asked.assert_not_called()

    def test_one_statement_by_an_index_for_all_others(self) -> None:
        """However many nodes there are."""
        self.a.process.world.peers.node_with(self.b.initiator.name())
        self.cloud.db.statements.clear()
        self.a.process.world.peers.node_with('iqn.ironic')
        statement, = (text for text in self.cloud.db.statements
                      if text.startswith('SELECT'))
        self.assertIn('WHERE driver_initiator_data.initiator = ', statement)


class AnnouncementTest(base.CloudTestCase):

    def start(self) -> None:
        """As Cinder does."""
        service = driver.DMCloneVolumeDriver.__new__(
            driver.DMCloneVolumeDriver)
        service._loop, service._service = mock.Mock(), mock.Mock()
        service._world = self.b.process.world
        service.configuration = mock.Mock(dmclone_metrics_port=None)
        with (mock.patch.object(endpoint, 'serve'),
              mock.patch.object(uevents, 'listen')):
            service.set_initialized()

    def test_two_machines_of_one_image_are_told(self) -> None:
        """Another backend of the machine has the same, as it must."""
        told = 'b@dmclone has the iSCSI initiator name'
        peers, name = self.b.process.world.peers, self.b.initiator.name()
        for other in 'b@other', 'gone@dmclone':
            peers.announce(NodeName(other), name)
        self.cloud.db.service('b@other')
        with mock.patch.object(driver.LOG, 'error') as log:
            self.start()
            log.assert_not_called()
            peers.announce(self.a.name, name)
            self.start()
        text, words = log.call_args.args
        self.assertIn(f'{told} {name}, and so has a@dmclone: ', text % words)

    def test_a_node_that_starts_tells_its_initiator(self) -> None:
        self.start()
        found, = db_api.driver_initiator_data_get(
            self.cloud.db.context, self.b.initiator.name(),
            initiators.NAMESPACE)
        self.assertEqual(self.b.name, found.key)
        self.assertEqual(
            self.b.name, self.a.process.world.peers.node_with(
                self.b.initiator.name()))
