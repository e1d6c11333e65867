# SPDX-License-Identifier: Apache-2.0
"""What people see of the demo and the benchmark."""
from __future__ import annotations

import io
import unittest

from lab import show

_UUID = '72a8902e-c12b-4eba-abc1-78897cd2b71f'
_STATUS = ('0 8388608 clone 8 6/1024 128 1856/65536 256 1 no_discard_passdown'
           ' 4 hydration_threshold 256 hydration_batch_size 64 rw')


class BarTest(unittest.TestCase):

    def test_grows_from_empty_to_full(self) -> None:
        self.assertEqual('[....]', show.bar(0, 100, 4))
        self.assertEqual('[##..]', show.bar(50, 100, 4))
        self.assertEqual('[####]', show.bar(100, 100, 4))

    def test_is_full_only_at_the_end(self) -> None:
        self.assertEqual('[###.]', show.bar(999, 1000, 4))
        self.assertEqual(99, show.percent(999, 1000))

    def test_nothing_to_do_is_done(self) -> None:
        self.assertEqual('[####]', show.bar(0, 0, 4))
        self.assertEqual(100, show.percent(0, 0))


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

    def test_uuids_are_cut(self) -> None:
        self.assertEqual('volume-72a8902e: 0 1', show.shorten(
            f'volume-{_UUID}: 0 1'))

    def test_uuids_in_names_of_logical_volumes_are_cut(self) -> None:
        self.assertEqual('vg-volume--72a8902e', show.shorten(
            f'vg-volume--{_UUID.replace("-", "--")}'))

    def test_long_lines_are_cut(self) -> None:
        self.assertEqual('01234...', show.shorten('0123456789', 8))
        self.assertEqual('01234567', show.shorten('01234567', 8))

    def test_a_short_command_is_one_line(self) -> None:
        self.assertEqual(['$ openstack volume list'], show.command_lines(
            '$ openstack', ['volume', 'list']))

    def test_words_are_quoted(self) -> None:
        self.assertEqual(["$ x --hint 'a=[\"b\"]' c"], show.command_lines(
            '$ x', ['--hint', 'a=["b"]', 'c']))

    def test_a_long_command_is_continued(self) -> None:
        lines = show.command_lines(
            '$ x', ['--host', 'node1', '--ip', '10.0.0.1', _UUID], 30)
        self.assertEqual(['$ x --host node1 \\', '     --ip 10.0.0.1 \\',
                          f'     {_UUID}'], lines)


class ConsoleTest(unittest.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.out = io.StringIO()
        self.console = show.Console(self.out)

    def test_a_step_has_number_and_result(self) -> None:
        with self.console.step('Write') as step:
            step.result = 'written'
        with self.console.step('Read'):
            pass
        text = self.out.getvalue()
        self.assertRegex(text, r'(?m)^1\. Write\n   = written +\d+\.\d s$')
        self.assertRegex(text, r'(?m)^2\. Read$')

    def test_a_failed_step_has_no_result(self) -> None:
        with self.assertRaises(show.Failure):
            with self.console.step('Write'):
                show.expect(False, 'no')
        self.assertNotIn('=', self.out.getvalue())

    def test_progress_in_a_file_is_a_line_for_each_fifth(self) -> None:
        for done in (1, 2, 25, 30, 100):
            self.console.progress(show.Hydration(1 << 20, done, 100))
        text = self.out.getvalue()
        self.assertEqual(3, text.count('\n'))
        self.assertNotIn('\r', text)
        self.assertNotIn('\033', text)
