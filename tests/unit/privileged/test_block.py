# SPDX-License-Identifier: Apache-2.0

import errno
import os
import pathlib
import typing
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import block
from cinder_dmclone.privileged import syscalls
from cinder_dmclone.sysfs import block_device
from tests.unit.privileged import test_dm


class BlockTest(test_dm.Case):

    def setUp(self) -> None:
        super().setUp()
        self.fsync = self.enterContext(mock.patch.object(syscalls, 'fsync'))

    def test_flush(self) -> None:
        block.flush(('/dev/sda', '/dev/mapper/dmclone-x'))
        self.assertEqual(['/dev/sda', '/dev/mapper/dmclone-x'],
                         [call.args[0] for call in self.fsync.mock_calls])

    def test_drop_cache(self) -> None:
        with mock.patch.multiple(os, open=mock.DEFAULT,
                                 close=mock.DEFAULT,
                                 posix_fadvise=mock.DEFAULT) as patched:
            patched['open'].return_value = 7
            block.drop_cache(('/dev/sda', '/dev/sdb'))
        self.assertEqual(['/dev/sda', '/dev/sdb'], [
            call.args[0] for call in patched['open'].mock_calls])
        self.assertEqual(
            2 * [mock.call(7, 0, 0, os.POSIX_FADV_DONTNEED)],
            patched['posix_fadvise'].mock_calls)
        self.assertEqual(2 * [mock.call(7)], patched['close'].mock_calls)

    def test_sysfs(self) -> None:
        found = mock.Mock(st_rdev=os.makedev(254, 7))
        with mock.patch.object(os, 'stat', return_value=found):
            self.assertEqual(pathlib.Path('/sys/dev/block/254:7'),
                             block_device.folder('/dev/dm-7'))

    def test_only_devices(self) -> None:
        for path in ('/etc/passwd', 'sda', '/dev/../etc/passwd', '/dev/a b',
                     '/dev/', '-f'):
            with self.assertRaises(ValueError):
                block.flush(('/dev/sda', path))
        self.fsync.assert_not_called()

    def test_every_node_is_waited_for(self) -> None:
        self.ready.side_effect = exceptions.NodeLate('late')
        for call in (lambda: block.flush(('/dev/sda',)),
                     lambda: block.drop_cache(('/dev/sda',)),
                     lambda: block.zero('/dev/sda', 0, 1)):
            self.assertRaises(exceptions.NodeLate, call)
        self.fsync.assert_not_called()
        self.run_.assert_not_called()

    def zero(self, *arguments: typing.Any) -> mock.Mock:
        """Overwrite a part of a device; how it was opened."""
        with mock.patch.multiple(os, open=mock.DEFAULT,
                                 close=mock.DEFAULT) as patched:
            patched['open'].return_value = 7
            self.run_.side_effect = lambda *words: (
                patched['close'].assert_not_called())
            block.zero('/dev/group/lv', *arguments)
        patched['close'].assert_called_once_with(7)
        return patched['open']

    def test_zero(self) -> None:
        self.zero(1 << 30, 4096)
        self.assertEqual(
            ['blkdiscard', '--force', '--zeroout', '--step=1048576',
             '--offset=1073741824', '--length=4096', '/dev/group/lv'],
            self.run_.call_args.args[0])

    def test_zero_for_oneself(self) -> None:
        """What is mounted or mapped is not overwritten."""
        self.zero(0, 4096).assert_called_once_with(
            '/dev/group/lv', os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
        self.run_.reset_mock()
        busy = OSError(errno.EBUSY, 'busy')
        with mock.patch.object(os, 'open', side_effect=busy):
            self.assertRaises(exceptions.CommandFailed, block.zero,
                              '/dev/group/lv', 0, 4096)
        self.run_.assert_not_called()

    def test_zero_as_urgently_as_wanted(self) -> None:
        self.zero(0, 4096, '-c3')
        self.assertEqual(['ionice', '-c3', 'blkdiscard'],
                         self.run_.call_args.args[0][:3])

    def test_zero_runs_no_other_command(self) -> None:
        for wrong in (('/dev/sda', -1, 1), ('/dev/sda', 0, 0),
                      ('/etc/passwd', 0, 1), ('/dev/sda', 0, 1, 'reboot'),
                      ('/dev/sda', 0, 1, '-p1'), ('/dev/sda', 0, 1, '-h')):
            self.assertRaises(ValueError, block.zero, *wrong)
        self.run_.assert_not_called()
