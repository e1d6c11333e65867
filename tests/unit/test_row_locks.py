# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import types
import typing
from unittest import mock

from oslo_db import exception as db_exc
import sqlalchemy as sa

from cinder_dmclone.database import row_locks
from cinder_dmclone.releases import db_api
from tests.unit import base
from tests.unit import test_rows


class Connection:
    """One to a server that waits so long for a lock; 0: it knows no such."""

    def __init__(self, seconds: int, dialect: str = 'mysql') -> None:
        self.info: dict[str, typing.Any] = {}
        self.dialect = types.SimpleNamespace(name=dialect)
        self.invalidated = False
        self.asked = 0
        self.seconds = seconds

    def connection(self) -> Connection:
        return self

    def exec_driver_sql(self, text: str) -> typing.Any:
        if text.startswith('SHOW'):
            self.asked += 1
        else:
            self.seconds = int(text.removeprefix(
                'SET SESSION innodb_lock_wait_timeout = '))
        return mock.Mock(**{'first.return_value': (
            'innodb_lock_wait_timeout', str(self.seconds))
            if self.seconds else None})


class BoundedTest(base.TestCase):

    def inside(self, connection: Connection) -> int:
        with row_locks.bounded(connection):
            return connection.seconds

    def test_for_this_change_only(self) -> None:
        connection = Connection(50)
        for _ in range(2):
            self.assertEqual((5, 50), (self.inside(connection),
                                       connection.seconds))
        self.assertEqual(1, connection.asked)

    def test_after_a_failure_too(self) -> None:
        connection = Connection(50)
        with (self.assertRaises(db_exc.DBDeadlock),
              row_locks.bounded(connection)):
            raise db_exc.DBDeadlock()
        self.assertEqual(50, connection.seconds)

    def test_a_connection_that_was_lost_is_told_nothing(self) -> None:
        connection = Connection(50)
        with (self.assertRaises(db_exc.DBConnectionError),
              row_locks.bounded(connection)):
            connection.invalidated = True
            raise db_exc.DBConnectionError()
        self.assertEqual(5, connection.seconds)

    def test_who_waits_less_is_left_alone(self) -> None:
        self.assertEqual(3, self.inside(Connection(3)))

    def test_a_server_that_waits_for_no_lock(self) -> None:
        self.assertEqual(0, self.inside(Connection(0)))

    def test_another_database(self) -> None:
        connection = Connection(50, 'sqlite')
        self.assertEqual((50, 0), (self.inside(connection),
                                   connection.asked))


class StatementTest(test_rows.RowsTestCase):

    def test_mariadb_takes_the_bound_with_a_statement(self) -> None:
        """What is sent is that alone, and nothing of it stays."""
        one = sa.text('SELECT 1')
        with (db_api.get_engine().connect() as connection,
              mock.patch.object(connection.dialect, 'is_mariadb', True,
                                create=True),
              mock.patch.object(row_locks, '_seconds', lambda _: 50)):
            session = mock.Mock(**{'connection.return_value': connection})
            self.assertEqual(1, connection.execute(one).scalar())
            self.db.statements.clear()
            for _ in range(2):
                # SQLite has no such statement.
                with (self.assertRaises(sa.exc.OperationalError) as caught,
                      row_locks.bounded(session)):
                    connection.execute(one)
                self.assertIn('SET STATEMENT innodb_lock_wait_timeout = 5 '
                              'FOR SELECT 1', str(caught.exception))
            self.assertEqual(1, connection.execute(one).scalar())
            self.assertEqual(3, len(self.db.statements))


class ChangeTest(test_rows.RowsTestCase):

    def test_every_change_is_bounded(self) -> None:
        row = self.row()
        self.db.statements.clear()
        with (mock.patch.object(row_locks, '_seconds', lambda _: 50),
              mock.patch.object(row_locks, '_set', lambda _, seconds:
                                self.db.statements.append(str(seconds)))):
            self.store.offer(row, test_rows.COPY, self.purpose)
        _, before, update, after = self.db.statements
        self.assertEqual(('5', '50'), (before, after))
        self.assertTrue(update.startswith('UPDATE volumes'), update)
