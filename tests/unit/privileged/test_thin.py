# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pathlib
import tempfile
import typing
import unittest
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone import privileged
from cinder_dmclone.privileged import dm_ioctl
from cinder_dmclone.privileged import nodes
from cinder_dmclone.privileged import thin

TABLE = '0 8192 thin-pool 254:0 254:1 128 0 0'
STATUS = '0 8192 thin-pool 1 10/1024 3/64 - rw discard_passdown - 1024'


class ThinTest(unittest.TestCase):

    def setUp(self) -> None:
        privileged.context.set_client_mode(False)
        self.addCleanup(privileged.context.set_client_mode, True)
        # By name or number, and by whether the table is asked for.
        self.lines: dict[tuple[typing.Any, bool], str] = {}
        self.enterContext(mock.patch.object(dm_ioctl, 'ask', self.ask))
        self.enterContext(mock.patch.object(
            dm_ioctl, 'lines', lambda reply: reply))

    def ask(self, command: int, name: str = '', flags: int = 0,
            dev: int = 0) -> str | None:
        self.assertEqual(dm_ioctl.TABLE_STATUS, command)
        self.assertTrue(flags & dm_ioctl.NOFLUSH)
        return self.lines.get((name or dev,
                               bool(flags & dm_ioctl.STATUS_TABLE)))

    def test_a_pool_with_volumes(self) -> None:
        self.lines = {('my--vg-my--vg--pool-tpool', True): TABLE,
                      ('my--vg-my--vg--pool-tpool', False): STATUS,
                      ('my--vg-my--vg--pool', True): '0 8192 linear 254:2 0'}
        self.assertEqual((TABLE, STATUS), thin.pool('my-vg', 'my-vg-pool'))

    def test_a_pool_that_never_had_one(self) -> None:
        self.lines = {('vg-pool', True): TABLE, ('vg-pool', False): STATUS}
        self.assertEqual((TABLE, STATUS), thin.pool('vg', 'pool'))

    def test_no_pool(self) -> None:
        for lines in ({}, {('vg-pool', True): '0 8192 linear 254:2 0'}):
            self.lines = dict(lines)
            self.assertIsNone(thin.pool('vg', 'pool'))

    def test_a_volume(self) -> None:
        line = '0 8192 thin 4096 8191'
        self.lines = {((254 << 8) + 3, False): line}
        self.assertEqual(line, thin.status('254:3'))
        self.assertEqual('', thin.status('254:4'))

    def test_the_table_of_a_volume(self) -> None:
        line = '0 8192 thin 254:2 7'
        self.lines = {((254 << 8) + 3, True): line}
        self.assertEqual(line, thin.table('254:3'))
        self.assertEqual('', thin.table('254:4'))

    def test_blocks_of_the_metadata(self) -> None:
        """Of the device that the pool has, whatever its name is."""
        folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        (folder / '254:0/dm').mkdir(parents=True)
        (folder / '254:0/dm/name').write_text('vg-pool_tmeta\n')
        disk = folder / 'disk'
        disk.write_bytes(b''.join(bytes([number]) * 4096
                                  for number in range(99)))
        ready = self.enterContext(mock.patch.object(
            nodes, 'ready', return_value=str(disk)))
        self.enterContext(mock.patch.object(nodes, 'SYSFS', folder))
        self.lines = {('vg-pool-tpool', True): TABLE,
                      ('vg-pool-tpool', False): STATUS}
        numbers = [7, 3, 98, *range(60)]
        found = thin.metadata('vg', 'pool', numbers)
        ready.assert_called_once_with('/dev/mapper/vg-pool_tmeta', '254:0')
        self.assertEqual(numbers, list(found[::4096]))
        self.assertEqual(len(numbers) * 4096, len(found))
        with self.assertRaisesRegex(exceptions.CommandFailed, 'it ends'):
            thin.metadata('vg', 'pool', [99])
        with self.assertRaises(ValueError):
            thin.metadata('vg', 'pool', [0] * (thin.BLOCKS + 1))
        self.lines = {}
        with self.assertRaisesRegex(exceptions.CommandFailed, 'not active'):
            thin.metadata('vg', 'pool', [0])

    def test_names_are_checked(self) -> None:
        for call in (lambda: thin.pool('a/b', 'pool'),
                     lambda: thin.pool('vg', ''),
                     lambda: thin.pool('vg', '..'),
                     lambda: thin.pool('-vg', 'pool'),
                     lambda: thin.metadata('vg', '../pool', [0]),
                     lambda: thin.status('sda'), lambda: thin.table('sda')):
            self.assertRaises(ValueError, call)


class SuspendedTest(unittest.TestCase):

    def setUp(self) -> None:
        privileged.context.set_client_mode(False)
        self.addCleanup(privileged.context.set_client_mode, True)
        self.flags: dict[str, int] = {}
        self.cleared: list[str] = []
        self.enterContext(mock.patch.object(dm_ioctl, 'ask', self.ask))

    def ask(self, command: int, name: str) -> dm_ioctl.Reply | None:
        """No target is asked: it may wait itself."""
        if command == dm_ioctl.TABLE_CLEAR:
            self.cleared.append(name)
        else:
            self.assertEqual(dm_ioctl.DEV_STATUS, command)
        flags = self.flags.get(name)
        return None if flags is None else dm_ioctl.Reply(
            name, '', '254:1', 0, flags, 1, b'')

    def test_from_the_bottom_up(self) -> None:
        parts = ['my--vg-my--pool_tdata', 'my--vg-my--pool_tmeta',
                 'my--vg-my--pool-tpool', 'my--vg-my--pool']
        self.assertEqual([], thin.suspended('my-vg', 'my-pool'))
        self.flags = dict.fromkeys(parts, dm_ioctl.SUSPENDED)
        self.assertEqual(parts, thin.suspended('my-vg', 'my-pool'))
        self.flags['my--vg-my--pool'] = dm_ioctl.READONLY
        self.assertEqual(parts[:3], thin.suspended('my-vg', 'my-pool'))

    def test_tables_of_what_is_suspended(self) -> None:
        both = dm_ioctl.SUSPENDED | dm_ioctl.INACTIVE
        self.flags = {'vg-pool_tdata': dm_ioctl.SUSPENDED,
                      'vg-pool_tmeta': dm_ioctl.INACTIVE,
                      'vg-pool-tpool': both, 'vg-pool': 0}
        thin.drop_tables('vg', 'pool')
        self.assertEqual(['vg-pool-tpool'], self.cleared)

    def test_names_are_checked(self) -> None:
        for call in (thin.suspended, thin.drop_tables):
            self.assertRaises(ValueError, call, 'vg', '../pool')
