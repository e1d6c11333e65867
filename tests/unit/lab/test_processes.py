# SPDX-License-Identifier: Apache-2.0
"""Process groups that are found again from disk."""
from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import unittest

from lab.errors import LabError
from lab.processes import Group, wait_for


class GroupTest(unittest.TestCase):

    def setUp(self) -> None:
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.directory = pathlib.Path(directory)
        self.file = self.directory / 'pid'

    def _start(self, script: str) -> Group:
        group = Group(self.file)
        group.start(['sh', '-c', script], self.directory / 'log')
        self.addCleanup(group.kill)
        return group

    def test_kill_ends_the_children_too(self) -> None:
        group = self._start('sleep 60 & sleep 60 & wait')
        wait_for('children', lambda: len(group.members()) == 3)
        group.kill()
        self.assertEqual([], group.members())
        self.assertFalse(self.file.exists())

    def test_another_process_finds_the_group(self) -> None:
        group = self._start('sleep 60')
        self.assertEqual(group.leader(), Group(self.file).leader())
        self.assertTrue(Group(self.file).members())

    def test_reused_number_is_left_alone(self) -> None:
        stranger = subprocess.Popen(['sleep', '60'], start_new_session=True)
        self.addCleanup(stranger.wait)
        self.addCleanup(stranger.kill)
        self.file.write_text(f'{stranger.pid} 1\n')
        group = Group(self.file)
        self.assertIsNone(group.leader())
        group.kill()
        self.assertIsNone(stranger.poll())

    def test_children_of_a_dead_leader_are_found(self) -> None:
        group = self._start('sleep 60 & exit')
        wait_for('end of the leader', lambda: group.leader() is None)
        self.assertEqual(1, len(group.members()))

    def test_damaged_file_means_nothing_runs(self) -> None:
        self.file.write_text('')
        self.assertIsNone(Group(self.file).leader())
        self.assertEqual([], Group(self.file).members())

    def test_wait_for_says_what_it_waited_for(self) -> None:
        with self.assertRaisesRegex(LabError, 'the moon: not within 0 s'):
            wait_for('the moon', lambda: False, timeout=0)

    def test_log_is_appended(self) -> None:
        for _ in range(2):
            group = self._start('echo line')
            wait_for('end', lambda: not group.members())
        self.assertEqual(
            f'line{os.linesep}' * 2, (self.directory / 'log').read_text())
