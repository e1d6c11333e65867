# SPDX-License-Identifier: Apache-2.0
"""The options of tools/bench."""
from __future__ import annotations

import contextlib
import io
import unittest

from lab import bench


class ArgumentsTest(unittest.TestCase):

    def refused(self, *words: str) -> None:
        with (contextlib.redirect_stderr(io.StringIO()),
              self.assertRaises(SystemExit)):
            bench.arguments(words)

    def test_every_part_has_a_name(self) -> None:
        for name in [*bench.PARTS, *bench.APART]:
            self.assertEqual(name, bench.arguments(['--only', name]).only)
        self.refused('--only', 'nothing')
        self.assertFalse(set(bench.PARTS).intersection(bench.APART))

    def test_rounds(self) -> None:
        for words, times in (
                ([], 3), (['--quick'], 1), (['--peers'], 5),
                (['--crowd'], 6), (['--crowd', '--quick'], 2),
                (['--scheduling'], 100),
                (['--only', 'exposure', '--rounds', '7'], 7),
                (['--quick', '--rounds', '2'], 2)):
            with self.subTest(words):
                self.assertEqual(times, bench.rounds(bench.arguments(words)))
        self.refused('--rounds', '0')
        self.refused('--rounds', '3', '--races')

    def test_scale(self) -> None:
        self.assertEqual(0.5, bench.arguments(
            ['--races', '--scale', '0.5']).scale)
        for text in ('0', '1.5'):
            self.refused('--races', '--scale', text)

    def test_help_can_be_printed(self) -> None:
        """A percent sign in it must be two."""
        with (contextlib.redirect_stdout(io.StringIO()) as out,
              self.assertRaises(SystemExit)):
            bench.arguments(['--help'])
        for name in bench.APART:
            self.assertIn(f'{name}:', out.getvalue())

    def test_a_picture_says_what_was_called(self) -> None:
        for words, command in (
                ([], 'tools/bench'), (['--peers'], 'tools/bench --peers'),
                (['--only', 'busy', '--quick', '--json', 'x'],
                 'tools/bench --only busy --quick')):
            self.assertEqual(command, bench._command(bench.arguments(words)))
