# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from unittest import mock

from cinder_dmclone.database import causal_reads
from tests.unit import base


class SeeAllTest(base.TestCase):

    def statements(self, dialect: str, known: bool,
                   transactions: int = 1) -> list[str]:
        """What is sent on one connection before so many transactions."""
        connection = mock.Mock(info={})
        connection.dialect.name = dialect
        connection.exec_driver_sql.return_value.first.return_value = (
            ('wsrep_sync_wait', '0') if known else None)
        session = mock.Mock()
        session.connection.return_value = connection
        for _ in range(transactions):
            causal_reads.see_all(session)
        return [call.args[0]
                for call in connection.exec_driver_sql.call_args_list]

    def test_a_node_catches_up(self) -> None:
        asked, told = self.statements('mysql', True)
        self.assertTrue(asked.startswith('SHOW'))
        self.assertEqual('SET SESSION wsrep_sync_wait = '
                         '@@SESSION.wsrep_sync_wait | 3', told)

    def test_once_for_a_connection(self) -> None:
        self.assertEqual(2, len(self.statements('mysql', True, 3)))

    def test_a_server_that_knows_no_cluster(self) -> None:
        self.assertEqual(1, len(self.statements('mysql', False, 3)))

    def test_either_name_of_the_dialect(self) -> None:
        """``mariadb+pymysql://`` is a dialect of its own."""
        self.assertEqual(2, len(self.statements('mariadb', True)))

    def test_another_database(self) -> None:
        self.assertEqual([], self.statements('sqlite', False))
