# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ctypes
import errno
import os
import threading
from typing import Any
from unittest import mock

import ddt
from oslotest import base

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import nodes
from cinder_dmclone.privileged import scsi

SERIAL = b'11111111-2222-3333-4444-555555555555'


class Disk:
    """Answers the ioctl; ``sense`` holds sense keys to answer first."""

    def __init__(self) -> None:
        self.serial = SERIAL + b'\0'
        self.write_protect = True
        self.blocks = 2048
        self.block_size = 512
        self.sense: list[int] = []
        self.commands: list[int] = []

    def ioctl(self, _fd: int, request: int, header: Any) -> int:
        assert request == 0x2285
        command = ctypes.string_at(header.cmdp, header.cmd_len)
        self.commands.append(command[0])
        if self.sense:
            header.status = 2
            sense = bytes([0x70, 0, self.sense.pop(0)])
            ctypes.memmove(header.sbp, sense, len(sense))
            return 0
        data = {0x12: self._serial, 0x5a: self._mode,
                0x9e: self._capacity}[command[0]]()
        assert len(data) <= header.dxfer_len
        ctypes.memmove(header.dxferp, data, len(data))
        return 0

    def _serial(self) -> bytes:
        return bytes([0, 0x80, 0, len(self.serial)]) + self.serial

    def _mode(self) -> bytes:
        return bytes([0, 6, 0, 0x80 if self.write_protect else 0])

    def _capacity(self) -> bytes:
        return ((self.blocks - 1).to_bytes(8, 'big')
                + self.block_size.to_bytes(4, 'big'))


@ddt.ddt
class IdentityTest(base.BaseTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.disk = Disk()
        self.ioctl = self.enterContext(mock.patch(
            'fcntl.ioctl', spec_set=True, side_effect=self.disk.ioctl))
        self.ready = self.enterContext(mock.patch.object(
            nodes, 'ready', autospec=True))

    def identity(self) -> dict[str, Any]:
        return scsi.identity('/dev/null', '8:0', 5)

    def test_identity(self) -> None:
        self.assertEqual({'serial': SERIAL.decode(), 'size': 1 << 20,
                          'block_size': 512, 'readonly': True},
                         self.identity())

    def test_large_disk_with_large_blocks(self) -> None:
        self.disk.block_size = 4096
        self.disk.blocks = 1 << 33
        self.disk.write_protect = False
        found = self.identity()
        self.assertEqual((1 << 45, 4096, False),
                         (found['size'], found['block_size'],
                          found['readonly']))

    def test_no_serial(self) -> None:
        self.disk.serial = b''
        self.assertEqual('', self.identity()['serial'])

    def test_unit_attentions_are_passed(self) -> None:
        self.disk.sense = [6, 6]
        self.assertEqual(SERIAL.decode(), self.identity()['serial'])
        self.assertEqual([0x12] * 3, self.disk.commands[:3])

    @ddt.data([6] * 10, [5], [2])
    def test_refused(self, sense: list[int]) -> None:
        self.disk.sense = list(sense)
        self.assertRaises(exceptions.CommandFailed, self.identity)

    def test_not_a_scsi_disk(self) -> None:
        self.ioctl.side_effect = OSError(25, 'Inappropriate ioctl')
        self.assertRaises(exceptions.CommandFailed, self.identity)

    def test_gone(self) -> None:
        self.assertRaises(exceptions.CommandFailed, scsi.identity,
                          '/dev/no-such-disk', '8:0', 5)

    def test_one_that_cannot_be_opened_yet(self) -> None:
        absent = OSError(errno.ENXIO, 'No such device or address')
        with mock.patch.object(os, 'open', side_effect=[
                absent, absent, os.open('/dev/null', os.O_RDONLY)]):
            self.assertEqual(SERIAL.decode(), self.identity()['serial'])
        with mock.patch.object(nodes, 'SECONDS', 0.05):
            with mock.patch.object(os, 'open', side_effect=absent):
                self.assertRaises(exceptions.CommandFailed, self.identity)

    def test_another_disk_under_that_name_is_not_asked(self) -> None:
        self.ready.side_effect = exceptions.NodeLate('late')
        self.assertRaises(exceptions.NodeLate, self.identity)
        self.ready.assert_called_once_with('/dev/null', '8:0')
        self.ioctl.assert_not_called()

    def test_stuck_disk_holds_one_thread_only(self) -> None:
        release = threading.Event()
        self.addCleanup(release.set)
        self.ioctl.side_effect = lambda *_args: release.wait()
        before = threading.active_count()
        for _attempt in range(3):
            self.assertRaises(exceptions.CommandTimeout, scsi.identity,
                              '/dev/null', '8:0', 0.01)
        self.assertEqual(before + 1, threading.active_count())
        release.set()
        scsi._stuck['SG_IO /dev/null'].join()
        self.ioctl.side_effect = self.disk.ioctl
        self.assertEqual(SERIAL.decode(), self.identity()['serial'])
