# SPDX-License-Identifier: Apache-2.0
"""A file system that is not clean is told, whatever the status says."""
from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile
import typing
import unittest

from lab import files
from lab.agent import Result
from lab.node import Node

DEVICE = '/dev/mapper/front'


class Here:
    """A node whose commands run here, or say what they are told to say."""

    def __init__(self, said: Result | None = None) -> None:
        self._said = said

    def run(self, command: str, check: bool = True,
            timeout: float = 300) -> Result:
        if self._said:
            return self._said
        done = subprocess.run(command, shell=True, check=check,
                              timeout=timeout, capture_output=True, text=True)
        return Result(done.stdout, done.stderr, done.returncode)

    def node(self) -> Node:
        return typing.cast(Node, self)


class FsckTest(unittest.TestCase):

    def said(self, kind: str, code: int, text: str) -> list[str]:
        return files.fsck(Here(Result(text, '', code)).node(), kind, DEVICE)

    def test_clean(self) -> None:
        for kind in files.KINDS:
            self.assertEqual([], self.said(kind, 0, 'Phase 1 - find and ...'))

    def test_wrong(self) -> None:
        for kind in files.KINDS:
            found, = self.said(kind, 1, 'bad magic number')
            self.assertIn('status 1: bad magic number', found)

    def test_not_unmounted(self) -> None:
        for kind, words in (
                ('ext4', 'Warning: skipping journal recovery because doing a '
                 'read-only filesystem check.'),
                ('xfs', 'ALERT: The filesystem has valuable metadata changes '
                 'in a log which is being ignored')):
            self.assertEqual(1, len(self.said(kind, 0, words)))

    @unittest.skipUnless(shutil.which('mkfs.ext4'), 'needs e2fsprogs')
    def test_a_real_one(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            device = pathlib.Path(folder, 'device')
            with device.open('wb') as file:
                file.truncate(16 << 20)
            here = Here()
            here.run(f'{files._MAKE["ext4"]} {device}')
            self.assertEqual([], files.fsck(here.node(), 'ext4', str(device)))
            with device.open('r+b') as file:
                file.seek(4096)
                file.write(bytes(64 * 4096))
            self.assertEqual(1, len(files.fsck(
                here.node(), 'ext4', str(device))))
