# SPDX-License-Identifier: Apache-2.0
"""Programs and statements are counted right."""
from __future__ import annotations

import collections
import typing
import unittest
from unittest import mock

from lab import account
from lab.errors import LabError


def _record(name: str, flags: int = 0) -> bytes:
    record = bytearray(64)
    record[0], record[1] = flags, 2
    record[36:36 + len(name)] = name.encode()
    return bytes(record)


class ProgramsTest(unittest.TestCase):

    def test_programs_are_counted_by_name(self) -> None:
        found = account.programs(
            _record('dmsetup', 2) + _record('lvm') + _record('dmsetup'))
        self.assertEqual({'dmsetup': 2, 'lvm': 1}, found)

    def test_a_fork_without_a_program_does_not_count(self) -> None:
        self.assertFalse(account.programs(_record('kworker/0:1', 1)))

    def test_half_a_record_does_not_count(self) -> None:
        self.assertEqual(1, account.programs(
            _record('lvm') + b'\2' * 10).total())


class StatementsTest(unittest.TestCase):

    def test_what_sqlalchemy_adds_does_not_count(self) -> None:
        self.assertEqual(account.Statements(0, 0), account.Statements.count(
            ['SELECT 1', 'COMMIT', 'ROLLBACK', 'SET NAMES utf8mb4',
             'SHOW VARIABLES']))

    def test_heartbeats_are_told_apart(self) -> None:
        self.assertEqual(account.Statements(2, 3), account.Statements.count([
            'SELECT services.id AS services_id \nFROM services \nWHERE 1',
            'UPDATE services SET updated_at=1',
            'SELECT volumes.id, services_1.id FROM volumes LEFT OUTER JOIN '
            'services AS services_1 ON 1',
            'UPDATE volumes SET host=1',
            'SET STATEMENT x = 1 FOR UPDATE volumes SET host=1']))

    def test_who_reads_services_and_does_not_report_is_another(self) -> None:
        read, write = 'SELECT 1 FROM services', 'UPDATE services SET x=1'
        self.assertEqual(account.Statements(5, 3), account.Statements.count(
            [read, write, read, write, read, read, read, read]))
        self.assertEqual(account.Statements(6, 2), account.Statements.count(
            [read, write, read, write, read, read, read, read], services=2))


class QuietTest(unittest.TestCase):

    def wait(self, *costs: tuple[dict[str, int], int, int]) -> int:
        """How many looks it takes, of programs, reports and statements."""
        found = (account.Cost(20.0, collections.Counter(ran),
                              account.Statements(beats, other))
                 for ran, beats, other in costs)
        with mock.patch.object(account, 'cost',
                               side_effect=found) as looks:
            account.wait_quiet(typing.cast(typing.Any, None), 20)
        return looks.call_count

    def test_nothing_ran_and_nothing_was_asked(self) -> None:
        quiet: tuple[dict[str, int], int, int] = ({}, 4, 0)
        self.assertEqual(1, self.wait(quiet, quiet))
        self.assertEqual(3, self.wait(({'lvm': 1}, 4, 0), ({}, 4, 1), quiet))

    def test_who_is_dead_is_not_quiet(self) -> None:
        with self.assertRaisesRegex(LabError, 'no node has reported'):
            self.wait(({}, 0, 0))
