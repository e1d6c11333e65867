# SPDX-License-Identifier: Apache-2.0
"""What an operator reads about a step that cannot be taken for a while."""

from __future__ import annotations

import logging

from cinder_dmclone import exceptions
from cinder_dmclone import location
from cinder_dmclone import names
from cinder_dmclone.reconcile import offers
from cinder_dmclone.reconcile.since import Since
from tests.unit import base
from tests.unit.fake import ports
from tests.unit import migration


class HindranceTest(base.CloudTestCase):

    def test_a_clone_that_is_kept_busy_is_told_of_twice(self) -> None:
        self.relocated()
        clone = str(names.clone(self.cloud.row(self.volume).lv))
        tries = []

        def before(call: ports.Call) -> None:
            if call.method == 'remove' and call.arguments == (clone,):
                tries.append(call)
                raise exceptions.DeviceBusy(device=clone)
        self.cloud.before = before
        logging.disable(logging.NOTSET)
        with self.assertLogs('cinder_dmclone.reconcile.hindrances') as logs:
            self.cloud.settle()
            self.assertGreater(len(tries), 3)
            self.assertEqual(1, len(logs.records))
            self.cloud.before = lambda call: None
            self.cloud.settle()
        begin, end = (record.getMessage() for record in logs.records)
        self.assertIn(f'{clone} is in use', begin)
        self.assertIn('works again', end)
        self.assert_settled()


class SinceTest(base.TestCase):

    def test_something_else_has_not_been_as_long(self) -> None:
        since, long = Since[location.Location](60.0), 61.0
        lv = location.LvUuid('lv')
        one, other = (
            location.Location(location.NodeName('b@x'), location.LvUuid(name))
            for name in ('one', 'other'))
        self.assertEqual(
            [False, True, False, True, False, False],
            [since.long(lv, what, number * long) for number, what in
             enumerate((one, one, other, other, None, other))])


class OfferTest(migration.MigrationTestCase):
    """A live migration that Nova has forgotten."""

    def told(self) -> list[str]:
        """What is said while the offer stands on and on."""
        logging.disable(logging.NOTSET)
        name = 'cinder_dmclone.reconcile.hindrances'
        with self.assertLogs(name, logging.WARNING) as logs:
            self.cloud.settle(3)
            self.assertEqual([], logs.records)
            for _ in range(4):
                self.cloud.clock.sleep(offers.OFFER_SECONDS)
                self.cloud.settle(3)
        self.assertIsNotNone(self.cloud.row(self.volume).offer)
        return [record.getMessage() for record in logs.records]

    def assert_withdrawn(self) -> None:
        self.cloud.db.drop_attachment(self.second)
        self.a.process.loop.enqueue(self.volume)
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(self.volume).offer)
        self.assert_settled(self.data)

    def test_an_offer_that_stands_is_told_of_once(self) -> None:
        self.migrate()
        told, = self.told()
        for what in (self.volume, self.a.name, self.b.name, self.second):
            self.assertIn(what, told)
        self.b.mapper.close(self.new)
        self.assert_withdrawn()

    def test_a_copy_that_a_reboot_has_taken_apart_is_told_of(self) -> None:
        self.migrate()
        self.b.lose_power()
        self.b.start()
        of_a, of_b = sorted(self.told(), key=lambda told: 'copy' in told)
        self.assertIn(f'is offered to {self.b.name}', of_a)
        for what in (self.volume, self.b.name, self.second):
            self.assertIn(what, of_b)
        self.assert_withdrawn()
