# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import unittest

from lab import races


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
        tasks = races.Case('', 2, 4).tasks(['v', 'w'], 10)
        self.assertEqual([['v'], ['w'], ['v'], ['w']],
                         [task['volumes'] for task in tasks])
        self.assertEqual([3, 3, 3, 3], [task['turns'] for task in tasks])

    def test_contenders_for_all(self) -> None:
        tasks = races.Case('', 2, 3, shared=True).tasks(['v', 'w'], 3)
        self.assertEqual(3 * [['v', 'w']],
                         [task['volumes'] for task in tasks])


class LineTest(unittest.TestCase):

    def test_line(self) -> None:
        line = races.Line('case', 'way', [0.001, 0.002, 0.5], 3, 4, 1.25)
        self.assertEqual(['case', 'way', '2', '500', '3', '4', '1.2'],
                         str(line).split())
