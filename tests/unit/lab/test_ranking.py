# SPDX-License-Identifier: Apache-2.0
"""Statements are told apart by what they do, not by their values."""
from __future__ import annotations

import unittest

from lab import fleet, ranking

ENTRY = r'''root[root] @ localhost []
# Thread_id: 7  Schema: cinder  QC_hit: No
# Query_time: 0.250000  Lock_time: 0.050000  Rows_sent: 1  Rows_examined: 3
# Rows_affected: 0  Bytes_sent: 60
SET timestamp=1764000000;
SELECT volumes.id AS volumes_id
FROM volumes
WHERE volumes.id IN ('a', 'it\'s 7') AND volumes.deleted = false;
'''


class RankingTest(unittest.TestCase):

    def test_an_entry_of_the_log(self) -> None:
        found = fleet.parse(ENTRY)
        self.assertEqual((3, 0.25, 0.05, ()), (
            found.examined, found.seconds, found.waited, found.plan))
        self.assertEqual('SELECT volumes WHERE id IN (?..) AND deleted = '
                         'false', ranking.name(found.shape))

    def test_names(self) -> None:
        for shape, name in (
                ('SELECT v.id, NOT (EXISTS (SELECT * FROM other  WHERE x)) '
                 'FROM v  WHERE v.id IN (?)', 'SELECT v WHERE id IN (?..)'),
                ('UPDATE v SET a=?, b=NULL WHERE v.id = ?',
                 'UPDATE v SET a, b'),
                ('INSERT INTO v VALUES (?..)', 'INSERT INTO v VALUES (?..)')):
            self.assertEqual(name, ranking.name(shape))
        self.assertLessEqual(len(ranking.name('SELECT a FROM b WHERE '
                                              + 'c' * 100)), 62)

    def test_what_takes_most_time_is_first(self) -> None:
        sent = [fleet.Statement(f'SELECT a FROM {table} WHERE id = {number}',
                                rows, seconds, waited)
                for number, (table, rows, seconds, waited) in enumerate((
                    ('few', 1, 0.1, 0.0), ('many', 5, 0.2, 0.1),
                    ('many', 7, 0.1, 0.0)))]
        first, last = ranking.rank(sent)
        self.assertEqual('SELECT many WHERE id = ?', first.name)
        self.assertEqual((2, 12, 7), (first.calls, first.rows, first.most))
        self.assertAlmostEqual(0.75, first.share)
        self.assertAlmostEqual(0.1, first.waited)
        self.assertEqual(1, last.calls)
        _, line, rest = ranking.table([first, last], 1)
        self.assertEqual(['1', '75.0%', '2', '150', '6', '7', '33.3%'],
                         line.split()[:7])
        self.assertIn('1 others', rest)
        self.assertEqual([], ranking.rank([]))
