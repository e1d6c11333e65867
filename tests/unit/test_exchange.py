# SPDX-License-Identifier: Apache-2.0
"""Cinder's generic migration exchanges the ids of two rows."""

from __future__ import annotations

import uuid

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import ports


class ExchangeTest(base.CloudTestCase):
    """The volume of a is now an LV of b that was made for another id."""

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        self.c, = self.others
        self.other = self.cloud.create(self.b)
        lv = self.b.group.volumes[names.data_lv(LvUuid(self.other))]
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
        self.cloud.settle()
        self.assertEqual({}, self.a.group.volumes)
        _, path = self.cloud.attach(self.volume, self.a)
        self.cloud.settle()
        self.assert_data(self.a, path)
        self.assert_settled()

    def restart(self) -> set[str]:
        """The ids whose locks b takes when it boots."""
        self.b.lose_power()
        self.cloud.calls.clear()
        self.cloud.restart()
        return {call.arguments[0] for call in self.cloud.calls
                if (call.node, call.port) == (self.b.name, 'locks')}

    def test_the_lock_at_a_boot_is_the_volumes(self) -> None:
        self.cloud.delete(self.other)
        self.cloud.attach(self.volume, self.b)
        self.cloud.settle()
        self.assertEqual({self.volume}, self.restart())

    def test_the_new_id_is_written_down_after_a_kill(self) -> None:
        self.cloud.delete(self.other)
        for hook in ('before', 'after'):
            with self.subTest(hook):
                self.kill_at_the_tag(hook)
                self.cloud.restart()
                self.cloud.settle()
                _, tags = self.tags()
                self.assertEqual({lv_tags.print_tag(lv_tags.OwnTag(
                    1, self.volume))}, set(tags))

    def tags(self) -> tuple[str, frozenset[str]]:
        lv, = self.b.group.volumes.values()
        return lv.name, lv.tags

    def kill_at_the_tag(self, hook: str) -> None:
        def kill(call: ports.Call) -> None:
            if call.method == 'retag':
                self.b.kill()
        name, tags = self.tags()
        self.b.group.retag(name, remove=tags, add=[lv_tags.print_tag(
            lv_tags.OwnTag(1, self.other))])
        self.b.kill()
        setattr(self.cloud, hook, kill)
        self.cloud.restart()
        self.assertFalse(self.b.process.alive)
        setattr(self.cloud, hook, lambda call: None)

    def test_a_lender_in_the_middle_of_a_chain_is_kept(self) -> None:
        """Its own tag names a deleted volume, the loan's a living one."""
        self.cloud.delete(self.other)
        attachment, _ = self.cloud.attach(self.volume, self.c)
        self.cloud.detach(self.volume, attachment, self.c)
        _, path = self.cloud.attach(self.volume, self.a)
        self.b.process.loop.run_once(everything=True)
        self.assertIn(names.data_lv(LvUuid(self.other)), self.b.group.volumes)
        self.cloud.settle()
        self.assert_data(self.a, path)
        self.assert_settled()

    def test_a_deleted_one_that_another_volume_needs(self) -> None:
        """Its row is found by the id in its tag, now that it is deleted."""
        loan = lv_tags.LoanTag(
            6, VolumeId(str(uuid.uuid4())), self.c.name,
            LvUuid(str(uuid.uuid4())), self.c.group.uuid,
            self.c.initiator.name(), units.Bytes.from_gib(1))
        self.cloud.db.volume(loan.volume, f'{self.c.name}#pool',
                             provider_id='6', _name_id=loan.lv)
        # It had been moved before, more often than what its id has now.
        self.a.group.retag(
            names.data_lv(self.lv),
            add=[lv_tags.print_tag(tag) for tag in (
                loan, lv_tags.OwnTag(3, self.volume))],
            remove=[lv_tags.print_tag(lv_tags.OwnTag(1, self.volume))])
        self.cloud.db.update(self.other, provider_id='3')
        self.cloud.delete(self.other)
        self.cloud.settle()
        self.assertIn(names.data_lv(self.lv), self.a.group.volumes)
        self.cloud.db.destroy(loan.volume)
        self.a.kill()
        self.cloud.restart()
        self.cloud.settle()
        self.assertEqual({}, self.a.group.volumes)
        self.assert_no_complaints()

    def test_what_two_rows_claim_is_not_served(self) -> None:
        """The service was killed between the two."""
        self.cloud.db.update(
            self.other, host=self.half.host, _name_id=None,
            provider_id='1', status='available')
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(exceptions.CannotServe,
                                    'several volumes'):
            self.cloud.connect(self.volume, attachment, self.a)
