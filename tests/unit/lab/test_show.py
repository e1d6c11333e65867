# SPDX-License-Identifier: Apache-2.0
"""What the demo decides by, and what it lets people run again."""
from __future__ import annotations

import io
import unittest

from lab import show

_STATUS = ('0 8388608 clone 8 6/1024 128 1856/65536 256 1 no_discard_passdown'
           ' 4 hydration_threshold 256 hydration_batch_size 64 rw')


class HydrationTest(unittest.TestCase):

    def test_status_of_a_clone(self) -> None:
        found = show.Hydration.parse(_STATUS)
        self.assertEqual(show.Hydration(65536, 1856, 65536), found)
        self.assertEqual(2, found.percent)
        self.assertFalse(found.complete)
        self.assertIn('116 of 4096 MiB', found.line())

    def test_status_with_a_name_in_front(self) -> None:
        self.assertEqual(show.Hydration.parse(_STATUS),
                         show.Hydration.parse(f'dmclone-clone-x: {_STATUS}'))

    def test_all_regions_are_complete(self) -> None:
        self.assertTrue(show.Hydration(4096, 7, 7).complete)

    def test_other_targets_have_none(self) -> None:
        self.assertIsNone(show.Hydration.parse('0 8192 linear'))
        self.assertIsNone(show.Hydration.parse('0 8192 clone Fail'))
        self.assertIsNone(show.Hydration.parse(''))


class LinesTest(unittest.TestCase):

    def test_words_are_quoted(self) -> None:
        self.assertEqual(["$ x --hint 'a=[\"b\"]' c"], show.command_lines(
            '$ x', ['--hint', 'a=["b"]', 'c']))


class ConsoleTest(unittest.TestCase):

    def test_a_failed_step_has_no_result(self) -> None:
        out = io.StringIO()
        with self.assertRaises(show.Failure):
            with show.Console(out).step('Write'):
                show.expect(False, 'no')
        self.assertNotIn('=', out.getvalue())
