# SPDX-License-Identifier: Apache-2.0
"""What is made of a benchmark's samples."""
from __future__ import annotations

import json
import math
import unittest

from lab import figures


class RatioTest(unittest.TestCase):

    def test_is_the_median_of_the_pairs(self) -> None:
        # The machine was slow during the second pair.
        found = figures.ratio('x', 'a', 'b', {
            'a': [90.0, 18.0, 80.0], 'b': [100.0, 20.0, 100.0]}, 'MiB/s')
        self.assertEqual(0.9, found.value)
        self.assertEqual('a 80, b 100 MiB/s', found.note)

    def test_knows_its_pairs(self) -> None:
        found = figures.ratio('x', 'a', 'b', {
            'b': [4.0, 8.0], 'c': [7.0], 'a': [1.0, 4.0]}, 's')
        self.assertEqual([0.25, 0.5], found.pairs())
        self.assertEqual([], figures.Figure('y', 1).pairs())

    def test_what_did_not_move_at_all(self) -> None:
        found = figures.ratio('x', 'a', 'b', {
            'a': [4.0], 'b': [0.0]}, 'MiB/s', figures.Aim(2))
        self.assertEqual('aim >= 2: met', found.verdict)
        self.assertIn('inf', figures.table([found])[0])
        self.assertIsNone(found.as_json()['value'])

    def test_samples_must_be_pairs(self) -> None:
        with self.assertRaises(ValueError):
            figures.ratio('x', 'a', 'b', {'a': [1.0], 'b': [1.0, 2.0]}, 's')


class AimTest(unittest.TestCase):

    def _verdict(self, value: float, aim: figures.Aim | None) -> str:
        return figures.Figure('x', value, aim=aim).verdict

    def test_at_least(self) -> None:
        self.assertEqual('aim >= 0.9: met',
                         self._verdict(0.9, figures.Aim(0.9)))
        self.assertEqual('aim >= 0.9: missed',
                         self._verdict(0.899, figures.Aim(0.9)))

    def test_at_most(self) -> None:
        self.assertEqual('aim <= 100: met',
                         self._verdict(60, figures.Aim(100, most=True)))
        self.assertEqual('aim <= 100: missed',
                         self._verdict(101, figures.Aim(100, most=True)))

    def test_none(self) -> None:
        self.assertEqual('', self._verdict(1, None))


class OutputTest(unittest.TestCase):

    def test_a_file_holds_samples_and_verdicts(self) -> None:
        text = figures.report([
            figures.Figure('x', 1.5, aim=figures.Aim(2),
                           samples={'a': [1.0, 2.0]}),
            figures.Figure('y', 3)], kernel='6.1')
        found = json.loads(text)
        self.assertEqual('6.1', found['kernel'])
        first, second = found['figures']
        self.assertEqual({'a': [1.0, 2.0]}, first['samples'])
        self.assertIs(False, first['met'])
        self.assertIsNone(second['aim'])
        self.assertNotIn('met', second)

    def test_what_never_ended_is_null(self) -> None:
        text = figures.report([figures.Figure(
            'x', math.inf, samples={'a': [math.inf, 1.0]})])
        (found,) = json.loads(text, parse_constant=self.fail)['figures']
        self.assertIsNone(found['value'])
        self.assertEqual({'a': [None, 1.0]}, found['samples'])

    def test_what_limits_is_told_of_what_is_missed(self) -> None:
        for value, told in (1.0, True), (3.0, False):
            lines = figures.table([figures.Figure(
                'x', value, aim=figures.Aim(2), limits='the disk')])
            self.assertEqual(told, '    limited by the disk' in lines)

    def test_the_spread_of_several_rounds(self) -> None:
        samples = {'a': [1.0, 3.0, 2.0], 'b': [1.0, 1.0, 1.0]}
        (line, _) = figures.table([
            figures.ratio('x', 'a', 'b', samples, 's', figures.Aim(2))])
        self.assertIn('  1 to 3  aim >= 2: met', line)
        self.assertEqual('', figures.ratio(
            'x', 'a', 'b', {'a': [1.0], 'b': [1.0]}, 's').spread)


class ParseTest(unittest.TestCase):

    def test_seconds_of_dd(self) -> None:
        self.assertEqual(0.827447, figures.dd_seconds(
            '64+0 records in\n64+0 records out\n67108864 bytes (67 MB, '
            '64 MiB) copied, 0.827447 s, 81.1 MB/s\n'))

    def test_dd_that_failed(self) -> None:
        with self.assertRaises(ValueError):
            figures.dd_seconds('dd: error reading: Input/output error')
