# SPDX-License-Identifier: Apache-2.0
"""A server where its volume cannot be: refused, or served over iSCSI."""

from __future__ import annotations

import logging
import typing

from oslo_serialization import jsonutils

from cinder_dmclone import exceptions
from cinder_dmclone.releases import models
from cinder_dmclone.service import attach_policy
from cinder_dmclone.service import connections
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import storage

How = attach_policy.How


class ServedTest(base.CloudTestCase):
    """With ``dmclone_no_room = serve``."""

    hosts = ('a', 'b', 'c')
    options = {
        'serves_the_full': True, 'own_metadata': True}

    def attach(self, node: cloud.Node) -> tuple[str, dict[str, typing.Any]]:
        """As ``Cloud.attach``; the attachment and its connection info."""
        attachment = self.cloud.reserve(self.volume)
        info = self.connect(node)
        self.cloud.db.update_attachment(
            attachment, connector=jsonutils.dumps(node.connector),
            connection_info=jsonutils.dumps(info))
        self.cloud.complete(self.volume, attachment)
        return attachment, info

    def connect(self, node: cloud.Node) -> dict[str, typing.Any]:
        return connections.connect(self.cloud.home(self.volume).service,
                                   self.volume, node.connector)

    def assert_served(self, info: dict[str, typing.Any]) -> None:
        self.assertEqual('iscsi', info['driver_volume_type'])
        self.cloud.settle()
        row = self.cloud.row(self.volume)
        self.assertEqual((self.a.name, None, None),
                         (row.node, row.offer, row.source))
        export = self.a.targets.exports[info['data']['target_iqn']]
        grant, = export.grants
        self.assertEqual(self.b.connector['initiator'], grant.initiator)
        self.assertEqual([], self.cloud.db.all(models.Message))
        self.assertEqual({}, self.b.group.volumes)
        self.assert_no_complaints()

    def test_until_it_is_attached_anew(self) -> None:
        third, = self.others
        self.b.group.size = storage.EXTENT
        with self.assertLogs(level='INFO') as logs:
            logging.disable(logging.NOTSET)
            attachment, info = self.attach(self.b)
        self.assert_served(info)
        said, = (line for line in logs.output if 'dmclone_no_room' in line)
        for what in (self.volume, self.a.name, self.b.name,
                     'cannot be live-migrated'):
            self.assertIn(what, said)
        # The server cannot move with it.
        with self.assertRaisesRegex(exceptions.CannotServe, 'over iSCSI'):
            self.cloud.migrate(self.volume, third)
        self.b.group.size = third.group.size
        self.cloud.detach(self.volume, attachment, self.b)
        _, info = self.attach(self.b)
        self.assertEqual('local', info['driver_volume_type'])
        self.assertEqual(self.b.name, self.cloud.row(self.volume).node)

    def test_no_room_for_metadata(self) -> None:
        self.b.meta_group.size = storage.EXTENT
        self.b.meta_group.create('other', storage.EXTENT, [])
        self.assert_served(self.attach(self.b)[1])

    def test_metadata_group_that_is_lost(self) -> None:
        self.b.meta_group.lost = True
        self.assert_served(self.attach(self.b)[1])

    def test_a_volume_in_a_group(self) -> None:
        """Until it is taken out, and attached anew."""
        self.cloud.db.update(self.volume, group_id='group')
        attachment, info = self.attach(self.b)
        self.assert_served(info)
        self.cloud.db.update(self.volume, group_id=None)
        self.cloud.detach(self.volume, attachment, self.b)
        _, info = self.attach(self.b)
        self.assertEqual('local', info['driver_volume_type'])

    def test_a_retry_finds_the_room_that_there_is_by_then(self) -> None:
        size, self.b.group.size = self.b.group.size, storage.EXTENT
        attachment = self.cloud.reserve(self.volume)
        info = self.connect(self.b)
        self.assertEqual('iscsi', info['driver_volume_type'])
        self.b.group.size = size
        path = self.cloud.connect(self.volume, attachment, self.b)
        self.cloud.complete(self.volume, attachment)
        self.assert_data(self.b, path)
        self.cloud.settle()
        self.assert_settled()

    def test_a_server_that_is_live_migrated_is_refused(self) -> None:
        self.cloud.attach(self.volume, self.a)
        self.b.group.size = storage.EXTENT
        with self.assertRaisesRegex(exceptions.NodeFull, 'not enough room'):
            self.cloud.migrate(self.volume, self.b)
        self.assertEqual({}, self.a.targets.exports)
        self.assertEqual(1, len(self.cloud.db.all(models.Message)))

    def test_another_reason_is_no_room(self) -> None:
        self.b.group.block_size = 4096
        with self.assertRaisesRegex(exceptions.CannotRelocate, 'blocks'):
            self.attach(self.b)
        self.assertEqual({}, self.a.targets.exports)


class RefusedTest(base.CloudTestCase):
    """Without the option."""

    def test_a_volume_in_a_group(self) -> None:
        """It is told why, and that is not that the row has changed."""
        self.cloud.db.update(self.volume, group_id='group')
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(
                exceptions.HasToStay, 'in a group of Cinder, which '
                'stays where it is; take it out of the group first'):
            self.cloud.connect(self.volume, attachment, self.b)
        self.assertEqual(({}, {}), (self.a.targets.exports,
                                    self.b.group.volumes))
        message, = self.cloud.db.all(models.Message)
        self.assertEqual(self.volume, message.resource_uuid)

    def test_one_message_with_the_reason(self) -> None:
        self.b.group.size = storage.EXTENT
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(exceptions.NodeFull, 'not enough room'):
            self.cloud.connect(self.volume, attachment, self.b)
        self.assertEqual({}, self.a.targets.exports)
        self.assertEqual(1, len(self.cloud.db.all(models.Message)))


class PolicyTest(base.TestCase):

    def how(self, how: How, serves: bool = True,
            **connector: str) -> How:
        found = attach_policy.Placement(how, 'attachment', None)
        return attach_policy.without_moving(found, connector, serves).how

    def test_in_place_is_chosen_and_possible(self) -> None:
        self.assertIs(How.ISCSI, self.how(How.RELOCATE, initiator='iqn.b'))
        self.assertIs(How.REFUSE, self.how(How.RELOCATE))
        self.assertIs(How.REFUSE, self.how(How.LIVE, initiator='iqn.b'))
        self.assertIs(How.REFUSE, self.how(How.RELOCATE, serves=False,
                                           initiator='iqn.b'))
