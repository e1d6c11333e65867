# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import unittest

from lab import races
from lab import races_table


class JudgeTest(unittest.TestCase):

    def test_each_follows_the_one_before(self) -> None:
        changes = [('v', '1', '2'), ('v', '2', '3'), ('w', '1', '2')]
        verdict = races.judge(reversed(changes), changes)
        self.assertTrue(verdict.right)
        self.assertEqual(3, verdict.changes)

    def test_lost(self) -> None:
        """Both read 1, and the second overwrote the first."""
        verdict = races.judge([('v', '1', 'a'), ('v', '1', 'b')],
                              [('v', '1', 'a'), ('v', 'a', 'b')])
        self.assertEqual([('v', '1', 'b')], verdict.lost)
        self.assertEqual(([], []), (verdict.untold, verdict.untrue))
        self.assertFalse(verdict.right)

    def test_untold(self) -> None:
        verdict = races.judge([], [('v', '1', 'a')])
        self.assertEqual([('v', '1', 'a')], verdict.untold)
        self.assertFalse(verdict.right)

    def test_untrue(self) -> None:
        verdict = races.judge([('v', '1', 'a')], [])
        self.assertEqual([('v', '1', 'a')], verdict.untrue)
        self.assertFalse(verdict.right)

    def test_two_winners(self) -> None:
        verdict = races.judge([('v', '1', 'a'), ('v', '1', 'a')],
                              [('v', '1', 'a')])
        self.assertFalse(verdict.right)


class CaseTest(unittest.TestCase):

    def test_contenders_for_each_volume(self) -> None:
        tasks = races.Case(2, 2).tasks(['v', 'w'], 10)
        self.assertEqual([['v'], ['v'], ['w'], ['w']],
                         [task['volumes'] for task in tasks])

    def test_a_part_contends_as_much_for_a_volume(self) -> None:
        for case, part, scaled in (
                (races.Case(100, 3), 1, (100, 3)),
                (races.Case(100, 3), 0.1, (10, 3)),
                (races.Case(100, 1), 0.001, (1, 1)),
                # Few volumes stay, and fewer want them.
                (races.Case(5, 100), 0.1, (5, 10))):
            with self.subTest(case=str(case), part=part):
                self.assertEqual(races.Case(*scaled), case.scaled(part))


class TableTest(unittest.TestCase):

    def setUp(self) -> None:
        super().setUp()
        line = races_table.Line('2 x 1', 'way', [0.001, 0.002, 0.5],
                                [0.003, 0.004], 3, 4, 1.25)
        self.table = races_table.Table(
            'some', [line], [races_table.Stop('way', 6.04, 1)])

    def test_for_a_person(self) -> None:
        lines = [line.split() for line in self.table.text().splitlines()]
        self.assertIn(['way', '2', '500', '3.5', '4', '3', '4', '1.2'], lines)
        self.assertIn(['way', '6.0', '1'], lines)

    def test_for_a_file(self) -> None:
        found = json.loads(races_table.report([self.table], commit='c'))
        self.assertEqual('c', found['commit'])
        some, = found['databases']
        self.assertEqual([0.003, 0.004], some['lines'][0]['release'])
        self.assertEqual(1, some['stopped'][0]['lost'])
