# SPDX-License-Identifier: Apache-2.0
"""What work costs is counted, and multiplied for fleets."""
from __future__ import annotations

import json
import unittest

from lab import profile, ranking
from lab.fleet import Statement

NAMES = ('SELECT services.id FROM services  WHERE services.id > 50 ORDER BY '
         'services.id')


class ProfileTest(unittest.TestCase):

    def setUp(self) -> None:
        self.sent = [Statement(NAMES, 50, 0.5, 0.0),
                     Statement("SELECT a FROM b WHERE c = 'd'", 3, 0.25, 0.1)]
        self.work = profile.Work.of('some work', self.sent, 4)

    def test_work(self) -> None:
        self.assertEqual(
            profile.Work('some work', 2, 1, 53, 50, 0.75, 4), self.work)
        self.assertEqual(profile.Work('', 0, 0, 0, 0, 0, 0),
                         profile.Work.of('', [], 0))

    def test_of_many(self) -> None:
        """What one statement examines does not grow."""
        self.assertEqual(
            profile.Work('all', 20, 10, 530, 50, 7.5, 40),
            self.work.times(10, 'all'))

    def test_tables(self) -> None:
        found = profile.Profile([self.work], {3: ranking.rank(self.sent)},
                                {3: (2, 7)},
                                Statement('scan', 150_000, 0.1, 0.0))
        lines = found.lines()
        self.assertIn('3 nodes at work: 2 statements, 0.75 s of the server; '
                      '2 waits for a row, 7 ms', lines)
        self.assertEqual('4050000', next(
            line for line in lines if 'One look' in line).split()[-2])
        # The page about fleets has what is above it.
        self.assertEqual(1, lines.count('Before'))
        self.assertEqual([2], [work['statements'] for work in json.loads(
            found.report())['works']])
