# SPDX-License-Identifier: Apache-2.0
"""A node that boots while nobody can be asked."""
from __future__ import annotations

from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.stack import boot
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import iscsi


class ActivationTest(base.CloudTestCase):
    """The borrower of a hydrating volume loses its power."""

    def setUp(self) -> None:
        super().setUp()
        attachment = self.cloud.reserve(self.volume)
        self.path = self.cloud.connect(self.volume, attachment, self.b)
        self.cloud.settle(1)
        self.b.lose_power()

    def activate(self) -> None:
        self.b.up = True
        process = type(self.b.process)(self.b)
        with self.cloud.db.away():
            self.assertEqual({}, boot.activate(process.world.host))

    def test_what_is_elsewhere_can_be_read(self) -> None:
        self.activate()
        self.assert_data(self.b, self.path)

    def test_a_lender_that_is_down_keeps_nothing_from_coming_up(self) -> None:
        self.a.lose_power()
        self.activate()
        self.assertIn(self.path.rpartition('/')[2], self.b.mapper.mapped)


class LenderTest(base.CloudTestCase):
    """The lender of a hydrating volume loses its power."""

    def setUp(self) -> None:
        super().setUp()
        attachment = self.cloud.reserve(self.volume)
        self.path = self.cloud.connect(self.volume, attachment, self.b)
        self.cloud.settle(1)

    def activate(self, node: cloud.Node) -> dict[str, str]:
        node.lose_power()
        node.up = True
        process = type(node.process)(node)
        with self.cloud.db.away():
            return boot.activate(process.world.host)

    def test_it_loads_what_lending_needs(self) -> None:
        """A kernel that has just booted cannot export anything."""
        self.assertEqual({}, self.activate(self.a))
        self.assertEqual(1, len(self.a.exporter.exports))

    def test_nothing_is_loaded_for_nothing(self) -> None:
        self.assertEqual({}, self.activate(self.b))
        self.assertFalse(self.b.exporter.loaded)

    def test_what_cannot_be_lent_keeps_nothing_from_coming_up(self) -> None:
        other = self.cloud.create(self.a)
        with mock.patch.object(iscsi.Exporter, 'load', side_effect=(
                exceptions.TargetUnusable(reason='no module'))):
            self.assertEqual({self.volume}, set(self.activate(self.a)))
        self.assertIn(str(names.front(self.a.host, other)),
                      self.a.mapper.mapped)
