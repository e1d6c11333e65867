# SPDX-License-Identifier: Apache-2.0
"""The changes of a snapshot's row, on Cinder's schema and with real SQL."""

from __future__ import annotations

import typing
from unittest import mock
import uuid

from oslo_db import exception as db_exc

from cinder_dmclone.database import changes
from cinder_dmclone.database import pin_record
from cinder_dmclone.database import record
from cinder_dmclone.database import rows
from cinder_dmclone.database import snapshots
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.releases import models
from tests.unit import base
from tests.unit import test_rows

PinRecord = pin_record.PinRecord


class RecordTest(base.TestCase):

    def test_round_trip(self) -> None:
        for pinned in (PinRecord(0), PinRecord(7),
                       PinRecord(1, Location(
                           NodeName('h@b'), LvUuid(str(uuid.uuid4())))),
                       PinRecord(2, Location(NodeName('h@b'), LvUuid('x')),
                                 Location(NodeName('i@b'), LvUuid('y')))):
            self.assertEqual(pinned, PinRecord.parse(str(pinned)))

    def test_nonsense(self) -> None:
        for text in ('x', ';at=a/b', '1;at=', '1;at=a', '1;from=a/b', '-1',
                     '1;at=a/b;from=a/c', 'vol-abc', '1;offer=a/b',
                     '1;offer=a/b;at=a/c', '1;at=a/b;at=a/c',
                     '1;at=a/b;offer=a', '1;at=a/b;offer=a/c;offer=a/d'):
            with self.subTest(text):
                self.assertRaises(exceptions.CorruptRecord, PinRecord.parse,
                                  text)

    def test_a_later_release_wrote_it(self) -> None:
        self.assertRaises(exceptions.LaterFormat, PinRecord.parse,
                          'v2;1;at=a/b')

    def test_limit_of_the_column(self) -> None:
        column = models.Snapshot.__table__.c.provider_id
        self.assertEqual(column.type.length, record.LONGEST)
        self.assertRaises(exceptions.CorruptRecord, str,
                          PinRecord(1, Location(NodeName('n' * 250),
                                                LvUuid('lv'))))


class SnapshotsTestCase(test_rows.RowsTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.snapshots = snapshots.SnapshotStore(self.clock.monotonic)
        self.snapshot = self.db.snapshot(self.volume, 'creating')

    def read(self) -> snapshots.SnapshotRow:
        found = self.snapshots.get(self.snapshot)
        assert found
        return found

    def pin(self) -> snapshots.Pin:
        return snapshots.Pin(self.read(), self.row().owner)


class ChangeTest(SnapshotsTestCase):

    def test_read(self) -> None:
        found = self.read()
        self.assertEqual(
            (self.volume, 1, 'creating', False, None, None),
            (found.volume, found.size, found.status, found.deleted,
             found.record, found.at))
        self.assertEqual([], self.snapshots.find([]))
        self.assertIsNone(self.snapshots.get(
            SnapshotId(str(uuid.uuid4()))))

    def test_a_deleted_one_is_found(self) -> None:
        self.db.drop_snapshot(self.snapshot)
        self.assertTrue(self.read().deleted)

    def test_pin(self) -> None:
        self.snapshots.pin(self.pin(), self.row())
        self.assertEqual(self.row().owner, self.read().at)

    def test_a_repeated_pin_is_a_success(self) -> None:
        pin, row = self.pin(), self.row()
        self.snapshots.pin(pin, row)
        self.snapshots.pin(pin, row)

    def test_no_pin_of_a_snapshot_that_is_not_being_made(self) -> None:
        pin, row = self.pin(), self.row()
        for values, reason in (({'status': 'error'}, 'status .* is error'),
                               ({'status': 'creating', 'provider_id': '0'},
                                'is 0 already'),
                               ({'deleted': True}, 'was deleted')):
            with self.subTest(reason):
                self.db.update_snapshot(self.snapshot, **values)
                with self.assertRaisesRegex(exceptions.RowChanged, reason):
                    self.snapshots.pin(pin, row)

    def test_no_pin_of_a_volume_that_has_gone_on(self) -> None:
        pin, row = self.pin(), self.row()
        for values in ({'host': 'b@x#pool'}, {'_name_id': str(uuid.uuid4())},
                       {'provider_id': '2'}):
            with self.subTest(str(values)):
                before = {column: getattr(row, field) for column, field in (
                    ('host', 'host'), ('_name_id', 'name_id'),
                    ('provider_id', 'provider_id'))}
                self.db.update(self.volume, **values)
                with self.assertRaisesRegex(exceptions.RowChanged,
                                            'volume has changed'):
                    self.snapshots.pin(pin, row)
                self.db.update(self.volume, **before)

    def test_what_was_ruled_out_cannot_be_pinned(self) -> None:
        pin = self.pin()
        self.snapshots.rule_out(self.read())
        self.assertEqual((snapshots.NEVER, None),
                         (self.read().record, self.read().at))
        self.assertRaises(exceptions.RowChanged, self.snapshots.pin, pin,
                          self.row())

    def test_what_is_pinned_cannot_be_ruled_out(self) -> None:
        before = self.read()
        self.snapshots.pin(self.pin(), self.row())
        self.assertRaises(exceptions.RowChanged, self.snapshots.rule_out,
                          before)
        self.assertIsNotNone(self.read().at)


class MoveTest(SnapshotsTestCase):
    """It is offered a copy, and becomes that, or not."""

    def setUp(self) -> None:
        super().setUp()
        self.snapshots.pin(self.pin(), self.row())
        self.db.update_snapshot(self.snapshot, status='available')
        self.copy = Location(NodeName('b@x'), LvUuid(str(uuid.uuid4())))

    def offer(self) -> snapshots.SnapshotRow:
        return self.snapshots.offer(self.read(), self.copy)

    def test_it_moves(self) -> None:
        at = self.read().at
        row = self.offer()
        self.assertEqual(row, self.read())
        self.assertEqual((at, self.copy), (row.at, row.offer))
        row = self.snapshots.arrive(row)
        self.assertEqual(row, self.read())
        self.assertEqual(f'2;at={self.copy}', row.provider_id)

    def test_it_stays(self) -> None:
        before = self.read()
        offered = self.offer()
        self.assertEqual(before, self.snapshots.withdraw(offered))
        self.assertEqual(before, self.read())
        # Who was slower has what he wanted.
        self.snapshots.withdraw(offered)
        self.assertRaises(exceptions.RowChanged, self.snapshots.arrive,
                          offered)
        self.assertEqual(before, self.read())

    def test_what_has_arrived_does_not_stay(self) -> None:
        offered = self.offer()
        self.snapshots.arrive(offered)
        self.assertRaises(exceptions.RowChanged, self.snapshots.withdraw,
                          offered)
        self.assertEqual(self.copy, self.read().at)

    def test_one_offer_at_a_time(self) -> None:
        before = self.read()
        self.offer()
        with self.assertRaisesRegex(exceptions.RowChanged, 'already'):
            self.snapshots.offer(before, Location(NodeName('c@x'),
                                                  LvUuid('other')))

    def test_not_while_something_is_done_with_it(self) -> None:
        before, offered = self.read(), self.offer()
        for status in ('backing-up', 'restoring', 'deleting', 'error'):
            self.db.update_snapshot(self.snapshot, status=status)
            with self.assertRaisesRegex(exceptions.RowChanged, status):
                self.snapshots.arrive(self.read())
        self.snapshots.withdraw(offered)
        self.assertRaises(exceptions.RowChanged, self.snapshots.offer, before,
                          self.copy)

    def test_it_arrives_though_its_deletion_has_failed(self) -> None:
        before, offered = self.read(), self.offer()
        self.db.update_snapshot(self.snapshot, status='error_deleting')
        self.snapshots.arrive(offered)
        self.assertEqual(self.copy, self.read().at)
        self.db.update_snapshot(self.snapshot,
                                provider_id=before.provider_id)
        self.assertRaises(exceptions.RowChanged, self.snapshots.offer, before,
                          self.copy)

    def test_not_when_it_was_deleted(self) -> None:
        offered = self.offer()
        self.db.drop_snapshot(self.snapshot)
        for change in (self.snapshots.arrive, self.snapshots.withdraw):
            with self.assertRaisesRegex(exceptions.RowChanged, 'was deleted'):
                change(offered)

    def test_names_that_are_too_long(self) -> None:
        long = Location(NodeName('n' * 200 + '@x'), LvUuid('y'))
        self.assertRaises(exceptions.CorruptRecord, self.snapshots.offer,
                          self.read(), long)


class WithCommitTest(SnapshotsTestCase):
    """One transaction over both tables."""

    def commit(self, row: rows.Row, pin: snapshots.Pin) -> rows.Row:
        return self.store.commit(row, test_rows.OWNER, self.purpose,
                                 row.owner, pin)

    def test_both(self) -> None:
        row, pin = self.offered(), self.pin()
        self.assertEqual(2, self.commit(row, pin).generation)
        self.assertEqual((test_rows.COPY, row.owner),
                         (self.row().owner, self.read().at))

    def test_neither_without_the_snapshot(self) -> None:
        row, pin = self.offered(), self.pin()
        self.db.drop_snapshot(self.snapshot)
        with self.assertRaisesRegex(exceptions.RowChanged,
                                    'its snapshot is not being made'):
            self.commit(row, pin)
        self.assertEqual(row, self.row())

    def test_neither_without_the_volume(self) -> None:
        row, pin = self.offered(), self.pin()
        self.store.withdraw(row)
        self.assertRaises(exceptions.RowChanged, self.commit, row, pin)
        self.assertIsNone(self.read().provider_id)


class LostAnswerTest(SnapshotsTestCase):

    def lose(self, carried_out: bool) -> typing.Any:
        def make(*arguments: typing.Any) -> int:
            if carried_out:
                original(*arguments)
            raise db_exc.DBConnectionError(Exception('gone away'))
        original = changes.make
        return mock.patch.object(changes, 'make', make)

    def test_it_was_made(self) -> None:
        with self.lose(carried_out=True):
            self.snapshots.pin(self.pin(), self.row())
        self.assertEqual(self.row().owner, self.read().at)

    def test_it_may_yet_be_made(self) -> None:
        """A read that does not show it proves nothing."""
        with self.lose(carried_out=False):
            self.assertRaises(exceptions.DatabaseAway, self.snapshots.pin,
                              self.pin(), self.row())

    def test_away(self) -> None:
        pin, row = self.pin(), self.row()
        with self.db.away():
            for change in (lambda: self.snapshots.pin(pin, row),
                           lambda: self.snapshots.rule_out(pin.snapshot),
                           lambda: self.snapshots.get(self.snapshot)):
                self.assertRaises(exceptions.DatabaseAway, change)
