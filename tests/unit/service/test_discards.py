# SPDX-License-Identifier: Apache-2.0
"""What a server discards of a thin volume goes back to the pool."""

from __future__ import annotations

import typing

from cinder_dmclone.service import connections
from tests.unit.fake import cloud
from tests.unit import test_thin


class DiscardsTest(test_thin.ThinCase):

    def connect(self, node: cloud.Node) -> dict[str, typing.Any]:
        """The data of the connection info for a server on a node."""
        self.cloud.reserve(self.volume)
        info = connections.connect(self.cloud.home(self.volume).service,
                                   self.volume, node.connector)
        return dict(info['data'])

    def discards(self, path: str) -> bool:
        """Whether the front on node b takes them."""
        return self.b.mapper.mapped[self.b.mapper.named(path)].discards

    def test_only_where_the_volume_is_thin(self) -> None:
        # What is not said there is Cinder's to say.
        self.assertNotIn('discard', self.connect(self.a))
        self.assertTrue(self.connect(self.b)['discard'])
        self.cloud.settle()
        self.assertTrue(self.connect(self.b)['discard'])
        self.assertNotIn('discard', self.connect(self.a))

    def test_what_counts_is_what_the_volume_is_in(self) -> None:
        """Not what the node makes now."""
        attachment, _ = self.relocated()
        self.cloud.settle()
        self.cloud.detach(self.volume, attachment, self.b)
        self.b.group.pool = ''
        self.assertTrue(self.connect(self.b)['discard'])

    def test_a_server_moves(self) -> None:
        """Each node says what its own front takes."""
        for here, there, thin in ((self.a, self.b, True),
                                  (self.b, self.a, False)):
            attachment, path = self.cloud.attach(self.volume, here)
            here.mapper.open(path)
            moving = self.cloud.db.attachment(self.volume)
            for _ in range(2):
                info = connections.connect(
                    here.service, self.volume, there.connector)
                self.assertIs(thin, info['data'].get('discard', False))
            here.mapper.close(path)
            self.cloud.db.drop_attachment(moving)
            self.cloud.detach(self.volume, attachment, here)
            self.cloud.settle()
            attachment, _ = self.cloud.attach(self.volume, there)
            self.cloud.settle()
            self.cloud.detach(self.volume, attachment, there)

    def test_over_iscsi_there_are_none(self) -> None:
        """The target refuses them; Cinder must not say otherwise."""
        attachment, _ = self.relocated()
        self.cloud.settle()
        self.cloud.detach(self.volume, attachment, self.b)
        self.cloud.reserve(self.volume)
        info = connections.connect(
            self.b.service, self.volume,
            {'host': 'x', 'initiator': 'iqn.2026-01.test:x'})
        self.assertEqual(('iscsi', False), (info['driver_volume_type'],
                                            info['data']['discard']))

    def test_when_all_has_arrived(self) -> None:
        """Through the same device, which stays open."""
        _, path = self.relocated()
        self.b.mapper.open(path)
        self.assertFalse(self.discards(path))
        self.cloud.settle()
        self.assertTrue(self.discards(path))
