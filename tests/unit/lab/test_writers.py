# SPDX-License-Identifier: Apache-2.0
"""Servers that write at once: how that is asked for, and read."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

from lab import figures
from lab import writers
from lab.agent import Result
from lab.peers import LVM, OURS


class DdTest(unittest.TestCase):

    def test_all_are_written_at_once(self) -> None:
        """The script's own, to files in place of devices."""
        folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))

        def run(argv: list[str], timeout: float) -> Result:
            done = subprocess.run(argv, text=True, capture_output=True,
                                  env={**os.environ, 'TMPDIR': str(folder)},
                                  timeout=timeout)
            return Result(done.stdout, done.stderr, done.returncode)
        node = mock.Mock(run=run)
        paths = [str(folder / name) for name in ('a', 'b', 'c')]
        self.assertLess(0, writers.dd(node, paths, 4096, 3, 'sync'))
        for path in paths:
            self.assertEqual(3 * 4096, os.path.getsize(path))
        # Nothing else is left.
        self.assertEqual(3, len(list(folder.iterdir())))

    def test_one_that_failed_is_not_left_out(self) -> None:
        node = mock.Mock()
        node.run.return_value = Result(
            '1.0 2.0\n1 bytes copied, 0.5 s\ndd: error: No space left\n',
            '', 0)
        self.assertRaises(ValueError, writers.dd, node, ['a', 'b'], 1, 1, '')

    def test_the_rate_is_that_of_all_together(self) -> None:
        """Until the last has ended."""
        node = mock.Mock()
        node.run.return_value = Result(
            '7.25 7.75\n9 bytes copied, 0.5 s\n9 bytes copied, 0.25 s\n',
            '', 0)
        self.assertEqual(4.0, writers.dd(node, ['a', 'b'], 1 << 20, 1, '')
                         * 1e6 / (1 << 20))


class LoopTest(unittest.TestCase):

    def test_the_rates_of_all_are_added(self) -> None:
        node, said = mock.Mock(), {'write': {
            'iops': 500, 'lat_ns': {'max': 1}, 'clat_ns': {
                'percentile': {'50.000000': 1, '99.000000': 1}}}}
        node.run.return_value = Result(
            json.dumps({'jobs': [said, said]}), '', 0)
        self.assertEqual(4.096, writers.loop(node, ['a', 'b'], 4096, 1))
        words = node.run.call_args.args[0]
        for word in '--sync=1', '--direct=1', '--rw=write', '--bs=4096':
            self.assertIn(word, words)


class FiguresTest(unittest.TestCase):

    def test_ours_by_theirs_and_many_by_one(self) -> None:
        found = {figure.name: figure for figure in writers.made_of({
            ('dd', 1): {OURS: [10.0, 20.0], LVM: [5.0, 5.0]},
            ('dd', 4): {OURS: [8.0, 24.0], LVM: [2.0, 3.0]}})}
        self.assertEqual([2.0, 4.0], found['dd, 1 server'].pairs())
        self.assertEqual([4.0, 8.0], found['dd, 4 servers'].pairs())
        ours = found[f'dd, {OURS}, 4 by 1']
        self.assertEqual([0.8, 1.2], ours.pairs())
        self.assertFalse(ours.missed)
        theirs = found[f'dd, {LVM}, 4 by 1']
        self.assertEqual([0.4, 0.6], theirs.pairs())
        self.assertIsNone(theirs.aim)
        self.assertEqual(4, len(found))

    def test_what_is_missed_says_why(self) -> None:
        found = writers.made_of({('dd', 1): {OURS: [1.0], LVM: [2.0]}})
        self.assertIn('limited by the processor',
                      '\n'.join(figures.table(found)))
