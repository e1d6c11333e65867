# SPDX-License-Identifier: Apache-2.0
"""Device nodes that come late, never, or are an earlier device's."""

from __future__ import annotations

import os
import pathlib
import platform
import stat
import tempfile
import types
import unittest
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import nodes
from tests.unit.privileged import dmioctl

LV = 'volume-11111111-2222-3333-4444-555555555555'
NAME = 'dmclone-io-1'
BEFORE = 50 * [None]


class NodesTest(unittest.TestCase):
    """The kernel has dm devices as 254:7, and disks 8:0 and 8:16."""

    def setUp(self) -> None:
        self.now = 0.0
        # What is in /dev as time goes on, by path.
        self.dev: dict[str, list[str | None]] = {}
        self.kernel = dmioctl.Kernel()
        self.patch('cinder_dmclone.privileged.dm_ioctl._ioctl', self.kernel)
        self.patch('cinder_dmclone.privileged.nodes.time',
                   types.SimpleNamespace(monotonic=lambda: self.now,
                                         sleep=self.sleep))
        self.patch('cinder_dmclone.privileged.nodes.os.stat', self.stat)
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.patch('cinder_dmclone.privileged.nodes.SYSFS',
                   pathlib.Path(folder))
        for number in ('8:0', '8:16', '254:7'):
            os.mkdir(f'{folder}/{number}')

    def patch(self, name: str, value: object) -> None:
        self.enterContext(mock.patch(name, value))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def stat(self, path: object, **more: object) -> types.SimpleNamespace:
        if not str(path).startswith('/dev/'):
            # The folder of sysfs.
            return os.lstat(str(path))  # type: ignore[return-value]
        comes = self.dev.get(str(path), [None])
        number = comes.pop(0) if len(comes) > 1 else comes[0]
        if number is None:
            raise FileNotFoundError(path)
        if number == 'file':
            return types.SimpleNamespace(st_mode=stat.S_IFREG)
        major, minor = map(int, number.split(':'))
        return types.SimpleNamespace(st_mode=stat.S_IFBLK,
                                     st_rdev=os.makedev(major, minor))

    def late(self, path: str, devnum: str = '') -> str:
        with self.assertRaises(exceptions.NodeLate) as context:
            nodes.ready(path, devnum)
        self.assertGreaterEqual(self.now, nodes.SECONDS)
        return str(context.exception)

    def test_one_that_is_there_is_not_waited_for(self) -> None:
        self.dev['/dev/sda'] = ['8:0']
        self.assertEqual('/dev/sda', nodes.ready('/dev/sda', '8:0'))
        self.assertEqual(0.0, self.now)

    def test_it_comes_late(self) -> None:
        for path, devnum in (('/dev/sda', '8:0'), ('/dev/sda', ''),
                             (f'/dev/mapper/{NAME}', ''),
                             (f'/dev/a-group/{LV}', '')):
            with self.subTest(path, devnum=devnum):
                self.kernel.tables = {
                    NAME: '', 'a--group-' + LV.replace('-', '--'): ''}
                self.dev = {path: [*BEFORE, '254:7' if 'g' in path or 'm' in
                                   path else '8:0']}
                self.assertEqual(path, nodes.ready(path, devnum))

    def test_it_never_comes(self) -> None:
        said = self.late('/dev/sda', '8:0')
        for word in ('/dev/sda', '8:0', 'nothing', platform.node()):
            self.assertIn(word, said)

    def test_the_node_of_an_earlier_disk(self) -> None:
        self.dev['/dev/sda'] = ['8:16']
        self.assertIn('there is 8:16', self.late('/dev/sda', '8:0'))
        self.dev['/dev/sda'] = [*5 * ['8:16'], *BEFORE, '8:0']
        nodes.ready('/dev/sda', '8:0')

    def test_the_name_of_an_earlier_mapped_device(self) -> None:
        self.kernel.tables = {NAME: '', f'vg-{LV.replace("-", "--")}': ''}
        for path in (f'/dev/mapper/{NAME}', f'/dev/vg/{LV}'):
            self.now = 0.0
            self.dev[path] = ['254:6']
            self.assertIn('254:7', self.late(path))

    def test_the_link_of_an_lv_that_is_not_active(self) -> None:
        """Its number is another one's now, whom udev has yet to tell of."""
        (nodes.SYSFS / '254:7' / 'dm').mkdir()
        self.dev[f'/dev/vg/{LV}'] = ['254:7']
        self.assertIn('there is 254:7', self.late(f'/dev/vg/{LV}'))
        for path in ('/dev/dm-7', '/dev/disk/by-id/dm-name-x'):
            self.dev[path] = ['254:7']
            nodes.ready(path)

    def test_a_node_without_a_device(self) -> None:
        self.dev['/dev/sdb'] = ['8:32']
        self.assertIn('8:32', self.late('/dev/sdb'))

    def test_a_mapped_device_that_does_not_exist(self) -> None:
        self.dev[f'/dev/mapper/{NAME}'] = ['254:7']
        with self.assertRaises(exceptions.NoSuchDevice):
            nodes.ready(f'/dev/mapper/{NAME}')

    def test_a_file_is_no_node(self) -> None:
        self.dev['/dev/shm/x'] = ['file']
        with self.assertRaises(ValueError):
            nodes.ready('/dev/shm/x')
