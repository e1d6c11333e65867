# SPDX-License-Identifier: Apache-2.0
"""What goes while a node is looked at is gone; all else that fails is told."""
from __future__ import annotations

import pathlib
import subprocess
import tempfile
import unittest
from collections.abc import Callable, Sequence
from unittest import mock

from lab import inventory, look
from lab.agent import Result
from lab.errors import CommandError

# As dmsetup 1.02.185 says it.
GONE = ('device-mapper: table ioctl on x  failed: No such device or address\n'
        'Command failed.\n')
NOT_THERE = 'Device does not exist.\nCommand failed.\n'
OTHER = 'device-mapper: table ioctl on x  failed: Permission denied\n'


class Busy:
    """A node with devices; one goes between listing and asking."""

    disk = '/dev/ubdb'
    meta_disk = ''

    def __init__(self, devices: dict[str, str], goes: str = '',
                 error: str = GONE) -> None:
        self.devices = devices
        self.goes = goes
        self.error = error
        self.asked = 0

    def run(self, command: str | Sequence[str],
            check: bool = True) -> Result:
        words = [command] if isinstance(command, str) else list(command)
        result = self._answer(words)
        if check and result.code:
            raise CommandError(' '.join(words), result.code, result.stderr)
        return result

    def _answer(self, words: list[str]) -> Result:
        if words[0] != 'dmsetup':
            return Result('', '', 0)
        self.asked += 1
        listed = dict(self.devices)
        error = ''
        if words[1] in ('table', 'status') and self.goes in listed:
            del listed[self.goes]
            error = self.error
            # Who meets another error meets it again.
            if error != OTHER:
                del self.devices[self.goes]
        lines = {'ls': '{0}\t(254:1)\n', 'info': '{0}\tID-{0}\tL--w\t0\tLive\n'
                 }.get(words[1], '{0}: {1}\n')
        return Result(''.join(lines.format(*item)
                              for item in listed.items()), error, bool(error))


class Mute(Busy):
    """A node that says the same whatever it is asked."""

    def __init__(self, said: str, code: int) -> None:
        super().__init__({})
        self.said = Result(said, '', code)

    def _answer(self, words: list[str]) -> Result:
        return self.said


@mock.patch('time.sleep')
class LookTest(unittest.TestCase):

    def test_a_device_that_goes_meanwhile_is_gone(self, _: object) -> None:
        for error in (GONE, NOT_THERE):
            node = Busy({'x': '0 8 zero', 'y': '0 8 error'}, 'x', error)
            self.assertEqual({'y': '0 8 error'}, look.tables(node))
            self.assertEqual(2, node.asked)

    def test_another_error_is_told_at_once(self, _: object) -> None:
        for error in (OTHER, OTHER + GONE, ''):
            node = Busy({'x': '0 8 zero'}, 'x', error)
            if not error:
                node = Mute('', 1)
            with self.assertRaises(CommandError):
                look.tables(node)

    def test_one_device_that_is_gone_is_none(self, _: object) -> None:
        node = Busy({'x': '0 8 zero'}, 'x', NOT_THERE)
        self.assertIsNone(look.device(node, 'x', 'status', '--noflush'))
        with self.assertRaises(CommandError):
            look.device(Busy({'x': ''}, 'x', OTHER), 'x', 'table')

    def test_no_devices(self, _: object) -> None:
        node = Mute('No devices found\n', 0)
        self.assertEqual({}, look.tables(node))
        self.assertEqual([], look.devices(node))

    def test_sessions_by_their_target(self, _: object) -> None:
        node = Mute('session\tiqn.x:1\tLOGGED_IN\n'
                    'session\tiqn.x:2\tFREE\n', 0)
        self.assertEqual({'iqn.x:1': 'LOGGED_IN', 'iqn.x:2': 'FREE'},
                         look.sessions(node))

    def test_an_inventory_has_whole_devices_only(self, _: object) -> None:
        node = Busy({'x': '0 8 zero', 'y': '0 8 error'}, 'x')
        found = inventory.take(node)
        self.assertEqual({'y'}, set(found.devices))
        self.assertEqual('0 8 error', found.devices['y'].table)

    def test_a_device_of_many_targets_is_one(self, _: object) -> None:
        self.assertEqual({'a': '0 8 linear 98:16 0; 8 8 error'},
                         look.by_device('a: 0 8 linear 98:16 0\n'
                                        'a: 8 8 error\n'))


class ValueTest(unittest.TestCase):
    """Files of sysfs: some go, some can be seen and not be read."""

    def _run(self, script: str, prepare: Callable[[pathlib.Path], object]
             ) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as directory:
            prepare(pathlib.Path(directory))
            return subprocess.run(
                ['sh', '-c', look.VALUE + script], cwd=directory, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @staticmethod
    def _one_and_a_broken_link(path: pathlib.Path) -> None:
        (path / 'a').write_text('first\n')
        (path / 'b').symlink_to('nothing')

    def test_what_is_gone_is_skipped(self) -> None:
        found = self._run(
            'for file in *; do value $file && echo $value; done; true',
            self._one_and_a_broken_link)
        self.assertEqual(('first\n', 0), (found.stdout, found.returncode))

    def test_what_cannot_be_read_is_told(self) -> None:
        found = self._run('sleep() { :; }; value a; echo after',
                          lambda path: (path / 'a').mkdir())
        self.assertEqual(('', 1), (found.stdout, found.returncode))
        self.assertIn('a: Is a directory', found.stderr)
