# SPDX-License-Identifier: Apache-2.0
"""What the demo decides by, and what it lets people run again."""
from __future__ import annotations

import io
import unittest

from lab import attached, show

_STATUS = ('0 8388608 clone 8 6/1024 128 1856/65536 256 1 no_discard_passdown'
           ' 4 hydration_threshold 256 hydration_batch_size 64 rw')


class HydrationTest(unittest.TestCase):

    def test_status_of_a_clone(self) -> None:
        found = attached.clone_status(_STATUS)
        assert found
        self.assertEqual((128, 1856, 65536), (
            found.region_size, found.hydrated, found.total))
        self.assertIn('  2 %    116 of 4096 MiB', show.progress(found))

    def test_other_targets_have_none(self) -> None:
        self.assertIsNone(attached.clone_status('0 8192 linear '))


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
