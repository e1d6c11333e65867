# SPDX-License-Identifier: Apache-2.0
"""A node that boots while nobody can be asked."""
from __future__ import annotations

from cinder_dmclone.stack import boot
from tests.unit import base


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
