# SPDX-License-Identifier: Apache-2.0
"""Cinder's generic migration exchanges the ids of two rows."""

from __future__ import annotations

from cinder_dmclone import exceptions
from cinder_dmclone import names
from tests.unit import base


class ExchangeTest(base.CloudTestCase):
    """The volume of a is now an LV of b that was made for another id."""

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        self.c, = self.others
        self.other = self.cloud.create(self.b)
        lv = self.b.group.volumes[names.data_lv(self.other)]
        lv.blocks = dict(enumerate(base.DATA))
        lv.flush()
        old = self.cloud.row(self.volume)
        # Volume.finish_volume_migration saves one after the other.
        self.cloud.db.update(
            self.volume, host=f'{self.b.name}#pool', _name_id=self.other,
            provider_id='1', migration_status='success')
        self.half = self.cloud.row(self.other)
        self.cloud.db.update(
            self.other, host=old.host, _name_id=old.lv,
            provider_id=old.provider_id, status='deleting',
            migration_status='deleting')

    def test_both_are_found(self) -> None:
        for node in (self.a, self.b):
            node.kill()
        self.cloud.restart()
        self.cloud.settle()
        self.cloud.delete(self.other)
        self.assertEqual({}, self.a.group.volumes)
        _, path = self.cloud.attach(self.volume, self.a)
        self.cloud.settle()
        self.assert_data(self.a, path)
        self.assert_settled()

    def test_a_lender_in_the_middle_of_a_chain_is_kept(self) -> None:
        """Its own tag names a deleted volume, the loan's a living one."""
        self.cloud.delete(self.other)
        attachment, _ = self.cloud.attach(self.volume, self.c)
        self.cloud.detach(self.volume, attachment, self.c)
        _, path = self.cloud.attach(self.volume, self.a)
        self.b.process.loop.run_once(everything=True)
        self.assertIn(names.data_lv(self.other), self.b.group.volumes)
        self.cloud.settle()
        self.assert_data(self.a, path)
        self.assert_settled()

    def test_what_two_rows_claim_is_not_served(self) -> None:
        """The service was killed between the two."""
        self.cloud.db.update(
            self.other, host=self.half.host, _name_id=None,
            provider_id='1', status='available')
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(exceptions.CannotServe,
                                    'several volumes'):
            self.cloud.connect(self.volume, attachment, self.a)
