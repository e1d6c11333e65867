# SPDX-License-Identifier: Apache-2.0
"""The changes of a row, on Cinder's schema and with real SQL."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from unittest import mock
import uuid

from cinder import exception
from oslo_db import exception as db_exc
from oslo_serialization import jsonutils

from cinder_dmclone.database import changes
from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone.database import record
from cinder_dmclone.database import rows
from cinder_dmclone.database import volumes
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.releases import db_api
from cinder_dmclone.releases import models
from tests.unit import base
from tests.unit.fake import database
from tests.unit.fake import ports

A, B = NodeName('a@x'), NodeName('b@x')
COPY = Location(B, LvUuid(str(uuid.UUID(int=7))))
OWNER = rows.Owner(COPY, 'pool')


class RowsTestCase(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.db = database.Database()
        self.addCleanup(self.db.close)
        self.clock = ports.Clock()
        self.store = volumes.RowStore(self.clock.monotonic, self.clock.sleep)
        self.db.service(B)
        self.volume = VolumeId(str(uuid.uuid4()))
        self.lv = LvUuid(self.volume)
        self.db.volume(self.volume, f'{A}#pool', status='reserved',
                       provider_id='1')
        self.attachment = self.db.attachment(self.volume)
        self.purpose = rows.ForAttachment(self.attachment)

    def row(self) -> rows.Row:
        row = self.store.get(self.volume)
        assert row
        return row

    def offered(self) -> rows.Row:
        return self.store.offer(self.row(), COPY, self.purpose)

    def committed(self) -> rows.Row:
        row = self.offered()
        return self.store.commit(row, OWNER, self.purpose, row.owner)


class ReadTest(RowsTestCase):

    def test_get(self) -> None:
        row = self.row()
        self.assertEqual((A, self.volume, 1, 'reserved'),
                         (row.node, row.lv, row.generation, row.status))
        found, = row.attachments
        self.assertEqual((self.attachment, 'reserved', False, None),
                         (found.id, found.status, found.connected,
                          found.host))

    def test_connector(self) -> None:
        self.db.update_attachment(
            self.attachment, connector=jsonutils.dumps(
                {'host': 'b', 'initiator': 'iqn.b', 'colour': 'blue'}))
        found, = self.row().attachments
        self.assertEqual((True, 'b', 'iqn.b', None),
                         (found.connected, found.host, found.initiator,
                          found.kind))

    def test_how_an_attachment_is_served(self) -> None:
        self.db.update_attachment(
            self.attachment, connection_info=jsonutils.dumps(
                {'driver_volume_type': 'iscsi', 'target_lun': 0}))
        found, = self.row().attachments
        self.assertEqual('iscsi', found.kind)

    def test_deleted_attachments_are_not_there(self) -> None:
        self.db.drop_attachment(self.attachment)
        self.assertEqual((), self.row().attachments)

    def test_deleted_rows_are_found(self) -> None:
        self.db.destroy(self.volume)
        self.assertTrue(self.row().deleted)

    def test_no_row(self) -> None:
        self.assertIsNone(self.store.get(VolumeId(str(uuid.uuid4()))))

    def test_more_than_are_asked_for_at_once(self) -> None:
        ids = {VolumeId(str(uuid.uuid4())) for _ in range(2 * changes.AT_ONCE)}
        for volume in ids:
            self.db.volume(volume, f'{A}#pool')
        found = self.store.find({self.volume, *ids})
        self.assertEqual({self.volume, *ids}, {row.id for row in found})

    def test_by_lv(self) -> None:
        """H14: looked for by the LV, because rows are exchanged."""
        other = str(uuid.uuid4())
        for host, name_id, lv in ((f'{A}#pool', other, other),
                                  (f'{A}#another', other, other),
                                  (A, other, other),
                                  (f'{A}#pool', None, self.volume)):
            with self.subTest(host=host, name_id=name_id):
                self.db.update(self.volume, host=host, _name_id=name_id)
                found = self.store.homes(A, [LvUuid(lv), LvUuid('missing')])
                self.assertEqual([self.volume], [row.id for row in found])

    def test_homes_are_living_volumes_of_the_node(self) -> None:
        for host in (f'{B}#pool', f'{A}2#pool', 'a_x#pool'):
            with self.subTest(host):
                self.db.update(self.volume, host=host)
                self.assertEqual([], self.store.homes(A, [self.lv]))
                self.assertEqual([], self.store.homes(
                    NodeName('_@x'), [self.lv]))
        self.db.update(self.volume, host=f'{A}#pool')
        self.db.destroy(self.volume)
        self.assertEqual([], self.store.homes(A, [self.lv]))

    def test_away(self) -> None:
        with self.db.away():
            self.assertRaises(exceptions.DatabaseAway, self.store.get,
                              self.volume)


class ChangeTest(RowsTestCase):

    def test_offer(self) -> None:
        row = self.offered()
        self.assertEqual((COPY, None, 1), (row.offer, row.source,
                                           row.generation))
        self.assertEqual(row, self.row())

    def test_withdraw(self) -> None:
        row = self.store.withdraw(self.offered())
        self.assertEqual('1', row.provider_id)

    def test_renew(self) -> None:
        """The copy stays offered all the time: its LV never is again."""
        row = self.offered()
        for _ in range(2):
            before, row = row, self.store.renew(row)
            self.assertEqual((COPY, 1), (row.offer, row.generation))
            self.assertEqual(row, self.row())
            self.assertRaises(exceptions.RowChanged, self.store.commit,
                              before, OWNER, self.purpose, before.owner)
        self.assertEqual('1', self.store.withdraw(row).provider_id)

    def test_commit_of_a_renewed_offer(self) -> None:
        row = self.store.renew(self.offered())
        row = self.store.commit(row, OWNER, self.purpose, row.owner)
        self.assertEqual(
            str(ProviderId(2, Location(A, self.lv))),
            row.provider_id)

    def test_commit(self) -> None:
        self.db.update(self.volume, provider_location='x', provider_auth='y')
        row = self.committed()
        self.assertEqual(COPY, row.owner)
        self.assertEqual(f'{B}#pool', row.host)
        self.assertEqual(Location(A, self.lv), row.source)
        self.assertEqual((2, None), (row.generation, row.offer))
        stored = db_api.volume_get(self.db.context, self.volume)
        service = db_api.service_get(self.db.context, host=B)
        self.assertEqual(
            (service.uuid, service.availability_zone, None, None, None),
            (stored.service_uuid, stored.availability_zone,
             stored.provider_location, stored.provider_auth,
             stored.cluster_name))

    def test_commit_is_one_update(self) -> None:
        row = self.offered()
        self.db.statements.clear()
        self.store.commit(row, OWNER, self.purpose, row.owner)
        changes = [text for text in self.db.statements
                   if not text.startswith(('SELECT', 'BEGIN'))]
        self.assertEqual(1, len(changes), changes)
        self.assertTrue(changes[0].startswith('UPDATE volumes'))

    def test_complete(self) -> None:
        row = self.committed()
        self.assertEqual('2', self.store.complete(row).provider_id)

    def test_migrate_without_attachment(self) -> None:
        self.db.drop_attachment(self.attachment)
        self.db.update(self.volume, status='available',
                       migration_status='migrating')
        purpose = rows.Migrate()
        row = self.store.offer(self.row(), COPY, purpose)
        row = self.store.commit(row, OWNER, purpose, row.owner)
        self.assertEqual(COPY, row.owner)

    def test_migrate_refuses_any_attachment(self) -> None:
        """H5: somebody attaches while a migration is prepared."""
        self.db.drop_attachment(self.attachment)
        self.db.update(self.volume, status='available',
                       migration_status='migrating')
        row = self.store.offer(self.row(), COPY, rows.Migrate())
        self.db.attachment(self.volume)
        self.assertRaises(exceptions.CannotRelocate, self.store.commit, row,
                          OWNER, rows.Migrate(), row.owner)


class LateTest(RowsTestCase):

    def test_withdraw_after_commit(self) -> None:
        """H6: a late withdrawal does not undo a commit."""
        offered = self.offered()
        committed = self.store.commit(offered, OWNER, self.purpose,
                                      offered.owner)
        self.assertRaises(exceptions.RowChanged, self.store.withdraw,
                          offered)
        self.assertEqual(committed, self.row())

    def test_commit_to_an_unknown_node(self) -> None:
        owner = rows.Owner(
            dataclasses.replace(COPY, node=NodeName('c@x')), 'pool')
        row = self.offered()
        self.assertRaises(exception.ServiceNotFound, self.store.commit, row,
                          owner, self.purpose, row.owner)
        self.assertEqual(row, self.row())


class TakeBackTest(RowsTestCase):
    """The change that is not made by the node that owns the volume."""

    def setUp(self) -> None:
        super().setUp()
        self.db.service(A)
        self.before = rows.Owner(Location(A, self.lv), 'pool')
        self.lost = self.committed()

    def test_take_back(self) -> None:
        self.db.statements.clear()
        row = self.store.take_back(self.lost, self.before, None, 1)
        self.assertEqual((self.before.location, 3, None, None), (
            row.owner, row.generation, row.source, row.offer))
        self.assertEqual(row, self.row())
        stored = db_api.volume_get(self.db.context, self.volume)
        service = db_api.service_get(self.db.context, host=A)
        self.assertEqual((service.uuid, service.availability_zone),
                         (stored.service_uuid, stored.availability_zone))
        self.assertEqual(1, sum(text.startswith('UPDATE')
                                for text in self.db.statements))

    def test_what_was_given_up_is_written_down(self) -> None:
        """Also when it has moved since, and is taken back once more."""
        row = self.store.take_back(self.lost, self.before, None, 1)
        self.assertEqual([False, True, False],
                         [row.given_up(number) for number in (1, 2, 3)])
        row = self.store.offer(row, COPY, self.purpose)
        self.assertEqual(((2, 2),), row.lost)
        row = self.store.commit(row, OWNER, self.purpose, row.owner)
        self.assertEqual(((2, 2),), self.row().lost)
        row = self.store.take_back(row, self.before, None, 3)
        self.assertEqual(((2, 2), (4, 4)), row.lost)
        self.assertFalse(row.given_up(3))
        self.assertEqual(row, self.row())

    def test_it_stays_known_whatever_is_made_of_the_volume(self) -> None:
        """Cinder copies the record into the row of what it migrates to."""
        self.db.update(self.volume, status='creating',
                       provider_id='3;lost=2-2')
        row = self.row()
        self.assertEqual('4;lost=2-2', self.store.create(row).provider_id)
        self.db.update(self.volume, provider_id='3;lost=2-2')
        begun = self.store.begin(row, COPY)
        self.assertEqual(((2, 2),), begun.lost)
        self.assertEqual('4;lost=2-2',
                         self.store.bear(begun, None).provider_id)

    def test_what_it_hydrates_from_itself(self) -> None:
        row = self.store.take_back(self.lost, self.before, COPY, 1)
        self.assertEqual(COPY, row.source)

    def test_the_owner_was_faster(self) -> None:
        self.store.complete(self.lost)
        before = self.row()
        self.assertRaises(exceptions.RowChanged, self.store.take_back,
                          self.lost, self.before, None, 1)
        self.assertEqual(before, self.row())

    def test_while_something_works_on_it(self) -> None:
        for values, why in (
                ({'status': 'deleting'}, 'its status is deleting'),
                ({'status': 'in-use', 'migration_status': 'migrating'},
                 'its migration status is migrating')):
            self.db.update(self.volume, **values)
            with self.assertRaisesRegex(exceptions.NotTakenBack,
                                        f'on a@x: {why}'):
                self.store.take_back(self.lost, self.before, None, 1)
            self.assertEqual(2, self.row().generation)


class LostAnswerTest(RowsTestCase):

    def lose(self, carried_out: bool) -> typing.Any:
        def update(*arguments: typing.Any) -> None:
            if carried_out:
                original(*arguments)
            raise db_exc.DBConnectionError(Exception('gone away'))
        original = volumes.RowStore._update_once
        return mock.patch.object(volumes.RowStore, '_update_once',
                                 staticmethod(update))

    def test_commit_that_was_carried_out_is_a_success(self) -> None:
        """H10: a lost answer never destroys the newest data."""
        row = self.offered()
        with self.lose(carried_out=True):
            row = self.store.commit(row, OWNER, self.purpose, row.owner)
        self.assertEqual((COPY, 2), (row.owner, row.generation))

    def test_commit_that_was_not_carried_out(self) -> None:
        row = self.offered()
        with self.lose(carried_out=False):
            self.assertRaises(exceptions.RowChanged, self.store.commit, row,
                              OWNER, self.purpose, row.owner)
        self.assertEqual(row, self.row())

    def test_others_go_on_before_the_answer_is_there(self) -> None:
        """The new owner may be done before the old one hears of it."""
        def update(*arguments: typing.Any) -> int:
            count = original(*arguments)
            self.db.update(self.volume, provider_id='2')
            return count
        original = volumes.RowStore._update_once
        row = self.offered()
        with mock.patch.object(volumes.RowStore, '_update_once',
                               staticmethod(update)):
            row = self.store.commit(row, OWNER, self.purpose, row.owner)
        self.assertEqual((COPY, 2), (row.owner, row.generation))

    def test_a_volume_that_was_not_reverted(self) -> None:
        """It can be used again; the answer may be lost."""
        self.db.drop_attachment(self.attachment)
        for lost in (contextlib.nullcontext(), self.lose(carried_out=True)):
            self.db.update(self.volume, status='reverting')
            row = self.row()
            with lost:
                after = self.store.spare(row)
            self.assertEqual(('available', row.record, 'available'),
                             (after.status, after.record, self.row().status))
        self.db.update(self.volume, status='reverting')
        with self.lose(carried_out=False):
            self.assertRaises(exceptions.RowChanged, self.store.spare,
                              self.row())
        # Cinder's manager was quicker.
        self.db.update(self.volume, status='error')
        self.assertRaises(exceptions.CannotRevert, self.store.spare,
                          self.row())
        self.assertEqual('error', self.row().status)

    def test_a_commit_with_another_source(self) -> None:
        other = Location(NodeName('c@x'), LvUuid(str(uuid.UUID(int=9))))
        row = self.store.commit(self.offered(), OWNER, self.purpose,
                                other)
        self.assertEqual((2, other), (row.generation, row.source))
        self.assertEqual(row, self.row())

    def test_a_commit_is_no_success_of_another_change(self) -> None:
        """It was made late, and then an answer was lost once more."""
        for change in (self.store.renew, self.store.withdraw):
            with self.subTest(change.__name__):
                self.db.update(self.volume, host=f'{A}#pool', _name_id=None,
                               provider_id='1')
                row = self.offered()
                self.store.commit(row, OWNER, self.purpose, row.owner)
                with self.lose(carried_out=True):
                    self.assertRaises(exceptions.RowChanged, change, row)

    def test_repeated_change_is_a_success(self) -> None:
        """H10: False with the row as wanted is a success."""
        row = self.row()
        first = self.store.offer(row, COPY, self.purpose)
        self.assertEqual(first, self.store.offer(row, COPY, self.purpose))

    def test_away_for_good(self) -> None:
        """H10: an unknown outcome is told as such, after a bounded time."""
        row = self.offered()
        started = self.clock.now
        with self.db.away():
            self.assertRaises(exceptions.DatabaseAway, self.store.commit,
                              row, OWNER, self.purpose, row.owner)
            self.assertRaises(exceptions.DatabaseAway, self.store.withdraw,
                              row)
        self.assertLess(self.clock.now - started, 4 * deadlines.SETTLE_SECONDS)

    def test_back_again_in_time(self) -> None:
        row = self.offered()
        away = self.db.away()
        away.__enter__()

        def sleep(seconds: float) -> None:
            away.__exit__(None, None, None)

        store = volumes.RowStore(self.clock.monotonic, sleep)
        self.assertRaises(exceptions.RowChanged, store.withdraw, row)

    def test_no_statement_is_repeated_for_long(self) -> None:
        """H29: the library's own retries sleep 25 s; ours must not."""
        row = self.offered()
        self.db.statements.clear()
        with self.db.deadlocks():
            self.assertRaises(exceptions.RowChanged, self.store.withdraw,
                              row)
        updates = sum(text.startswith('UPDATE')
                      for text in self.db.statements)
        self.assertEqual(1 + changes.DEADLOCK_RETRIES, updates)

    def test_a_lock_that_was_waited_for_is_not_waited_for_again(self) -> None:
        def update(*arguments: typing.Any) -> int:
            calls.append(arguments)
            self.clock.sleep(deadlines.ROW_SECONDS)
            raise db_exc.DBDeadlock(Exception('Lock wait timeout exceeded'))
        calls: list[typing.Any] = []
        row = self.offered()
        with mock.patch.object(volumes.RowStore, '_update_once',
                               staticmethod(update)):
            self.assertRaises(exceptions.RowChanged, self.store.withdraw,
                              row)
        self.assertEqual(1, len(calls))


class SchemaTest(RowsTestCase):

    def test_provider_id_fits_the_column(self) -> None:
        column = models.Volume.__table__.c.provider_id
        self.assertEqual(column.type.length, record.LONGEST)
