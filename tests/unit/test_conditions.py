# SPDX-License-Identifier: Apache-2.0
"""What keeps a volume where it is, and what is said about it."""

from __future__ import annotations

import typing
from unittest import mock
import uuid

from oslo_db import exception as db_exc

from cinder_dmclone.database import rows
from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from tests.unit import test_rows

A, B, COPY, OWNER = test_rows.A, test_rows.B, test_rows.COPY, test_rows.OWNER


class RefusedTest(test_rows.RowsTestCase):
    """Each expectation of an offer and of a commit, and what is said."""

    def assert_refused(self, change: typing.Callable[[], object],
                       reason: str) -> None:
        row = self.row()
        change()
        with self.assertRaisesRegex(
                exceptions.CannotRelocate,
                f'{self.volume} cannot move from {A} to {B}: .*{reason}'):
            self.store.offer(row, COPY, self.purpose)
        self.assertIsNone(self.row().offer)

    def assert_commit_refused(self, reason: str,
                              **values: typing.Any) -> None:
        """``reason`` names a condition, or what changed in between."""
        row = self.offered()
        self.db.update(self.volume, **values)
        with self.assertRaisesRegex(
                (exceptions.CannotRelocate, exceptions.RowChanged), reason):
            self.store.commit(row, OWNER, self.purpose, row.owner)
        self.assertEqual(values.get('host', f'{A}#pool'), self.row().host)
        self.assertIsNone(self.row().name_id)

    def test_offer_status(self) -> None:
        for status in ('available', 'error', 'downloading', 'deleting',
                       'backing-up', 'uploading', 'extending'):
            with self.subTest(status):
                self.assert_refused(
                    lambda: self.db.update(self.volume, status=status),
                    f'its status is {status}')

    def test_offer_migration(self) -> None:
        self.assert_refused(
            lambda: self.db.update(self.volume, migration_status='migrating'),
            'its migration status is migrating')

    def test_offer_group(self) -> None:
        for column in ('group_id', 'consistencygroup_id'):
            with self.subTest(column):
                self.db.update(self.volume, group_id=None)
                self.assert_refused(
                    lambda: self.db.update(
                        self.volume, **{column: str(uuid.uuid4())}),
                    'it is in a group of Cinder')

    def test_a_snapshot_keeps_nothing(self) -> None:
        """It stays where it is; the volume moves."""
        for status in ('creating', 'available', 'error', None):
            self.db.snapshot(self.volume, status=status)
        row = self.committed()
        self.assertEqual(COPY, row.owner)

    def test_offer_attachment_gone(self) -> None:
        self.assert_refused(
            lambda: self.db.drop_attachment(self.attachment),
            f'its attachment {self.attachment} was deleted')

    def test_offer_other_attachment(self) -> None:
        self.assert_refused(
            lambda: self.db.attachment(
                self.volume, instance_uuid='other',
                connector='{"host": "c"}'),
            r'it has another attachment, \S+ \(c\)')

    def test_offer_of_a_migrate_beside_an_attachment(self) -> None:
        self.db.update(self.volume, status='available',
                       migration_status='migrating')
        with self.assertRaisesRegex(
                exceptions.CannotRelocate,
                f'it has the attachment {self.attachment}'):
            self.store.offer(self.row(), COPY, rows.Migrate())

    def test_a_revert(self) -> None:
        here = Location(A, COPY.lv)
        for values, reason in (
                ({}, f'it has the attachment {self.attachment}'),
                ({'status': 'available'}, 'its status is available'),
                ({'migration_status': 'migrating'}, 'migration status')):
            self.db.update(self.volume, status='reverting')
            self.db.update(self.volume, **values)
            with self.subTest(reason), self.assertRaisesRegex(
                    exceptions.CannotRevert, reason):
                self.store.offer(self.row(), here, rows.Revert())
            if not values:
                self.db.drop_attachment(self.attachment)

    def test_the_reason_cannot_be_read(self) -> None:
        row = self.row()
        self.db.update(self.volume, status='available')
        with mock.patch.object(
                volumes.RowStore, '_hold',
                side_effect=db_exc.DBConnectionError(Exception('away'))):
            self.assertRaises(exceptions.RowChanged, self.store.offer, row,
                              COPY, self.purpose)

    def test_offer_other_offer(self) -> None:
        row = self.row()
        first = self.offered()
        other = Location(B, LvUuid(str(uuid.uuid4())))
        self.assertRaises(exceptions.RowChanged, self.store.offer, row,
                          other, self.purpose)
        self.assertEqual(first, self.row())

    def test_commit_status(self) -> None:
        """H10: an operation that began meanwhile."""
        for status in ('available', 'error', 'backing-up', 'uploading'):
            with self.subTest(status):
                self.db.update(self.volume, status='reserved', provider_id='1')
                self.assert_commit_refused(f'its status is {status}',
                                           status=status)

    def test_commit_size(self) -> None:
        """H15: extended while the copy was made."""
        self.assert_commit_refused('size is 2, not 1', size=2)

    def test_commit_migration(self) -> None:
        self.assert_commit_refused('its migration status is migrating',
                                   migration_status='migrating')

    def test_commit_generation(self) -> None:
        self.assert_commit_refused(f'provider_id is 2;offer={COPY}, not 1;',
                                   provider_id=f'2;offer={COPY}')

    def test_commit_offer_withdrawn(self) -> None:
        """H6: the attempt was given up by somebody else."""
        self.assert_commit_refused('provider_id is 1, not 1;offer=',
                                   provider_id='1')

    def test_commit_moved(self) -> None:
        self.assert_commit_refused('host is c@x#pool, not a@x#pool',
                                   host='c@x#pool')

    def test_commit_group(self) -> None:
        self.assert_commit_refused('in a group of Cinder',
                                   group_id=str(uuid.uuid4()))

    def test_commit_attachment_deleted(self) -> None:
        """H10: the user detaches in the middle of the attach."""
        row = self.offered()
        self.db.drop_attachment(self.attachment)
        self.assertRaises(exceptions.CannotRelocate, self.store.commit,
                          row, OWNER, self.purpose, row.owner)
        self.assertEqual(A, self.row().node)

    def test_commit_other_attachment(self) -> None:
        row = self.offered()
        self.db.attachment(self.volume)
        other = self.db.attachment(self.volume, connector='{"host": "c"}')
        for values in ({'attach_status': 'attached'},
                       {'attach_status': 'attaching',
                        'connection_info': '{"driver_volume_type": "iscsi"}'}):
            self.db.update_attachment(other, **values)
            self.assertRaises(exceptions.CannotRelocate, self.store.commit,
                              row, OWNER, self.purpose, row.owner)

    def test_commit_beside_what_a_failed_request_left(self) -> None:
        row = self.offered()
        self.db.attachment(self.volume)
        for info in (None, '{}'):
            self.db.attachment(self.volume, connector='{"host": "c"}',
                               connection_info=info)
        self.store.commit(row, OWNER, self.purpose, row.owner)
        self.assertEqual(B, self.row().node)

    def test_commit_deleted(self) -> None:
        row = self.offered()
        self.db.destroy(self.volume)
        with self.assertRaisesRegex(exceptions.RowChanged, 'it was deleted'):
            self.store.commit(row, OWNER, self.purpose, row.owner)
