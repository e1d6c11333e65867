# SPDX-License-Identifier: Apache-2.0
"""What is made of the calls that nodes note."""
from __future__ import annotations

import pathlib
import tempfile
import unittest
from unittest import mock

from cinder_dmclone.location import LvUuid
from cinder_dmclone.peers import messages
from lab import faulty, parts
from lab.parts import Call, Wait


class TimesTest(unittest.TestCase):

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.times = pathlib.Path(directory.name, 'times')
        self.enterContext(mock.patch.object(faulty, 'TIMES', self.times))

    def noted(self) -> list[str]:
        return [Call.of(line, 0.0).name
                for line in self.times.read_text().splitlines()]

    def test_what_a_node_notes_can_be_read(self) -> None:
        faulty._TimedPort('dm', mock.Mock()).apply('name', 'a table')
        faulty._TimedPort('peers', mock.Mock()).ask(
            'b@dmclone', messages.Show(LvUuid('an lv')))
        self.assertEqual(['dm.apply', 'peers.Show'], self.noted())

    def test_a_call_began_by_the_clock_of_the_machine(self) -> None:
        self.assertEqual(Call(8.0, 0.5, 'dm.apply'),
                         Call.of('10.0 0.5 dm.apply', 2.0))

    def test_a_call_that_fails_takes_time_too(self) -> None:
        port = faulty._TimedPort('dm', mock.Mock())
        port._real.apply.side_effect = OSError
        self.assertRaises(OSError, port.apply)
        self.assertEqual(['dm.apply'], self.noted())


class PartsTest(unittest.TestCase):

    def test_the_file_is_the_one_that_nodes_write(self) -> None:
        self.assertEqual(faulty.TIMES, parts.TIMES)

    def test_parts_are_the_whole(self) -> None:
        wait = Wait(10.0, [Call(0, 2.0, 'dm.apply'), Call(2, 5.0, 'peers.Ask'),
                           Call(7, 1.0, 'dm.apply')],
                    [Call(3, 1.5, 'dm.apply'), Call(5, 0.5, 'rows.get')])
        found = wait.parts('new', 'old')
        self.assertEqual(
            {'dm.apply, new': 3.0, 'dm.apply, old': 1.5, 'rows.get, old': 0.5,
             'messages, and Python there': 3.0, 'all else': 2.0}, found)

    def test_calls_before_and_behind_do_not_count(self) -> None:
        calls = [Call(0, 1, 'before'), Call(1, 2, 'into'), Call(3, 1, 'in'),
                 Call(4.5, 1.5, 'out of'), Call(6, 1, 'behind')]
        self.assertEqual(
            [Call(2, 1, 'into'), Call(3, 1, 'in'), Call(4.5, 0.5, 'out of')],
            list(parts.within(calls, 2, 3)))

    def test_what_takes_little_is_not_told(self) -> None:
        wait = Wait(1.0, [Call(0, 0.9, 'dm.apply'), Call(1, 0.01, 'dm.get')],
                    [])
        self.assertEqual(
            [('what', 1000.0), ('  dm.apply, new', 900.0),
             ('  all else', 90.0)],
            [(figure.name, round(figure.value)) for figure in parts.made_of(
                'what', [wait], 'new', 'old')])
