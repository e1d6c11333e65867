# SPDX-License-Identifier: Apache-2.0
"""promtool is fetched once, and nothing is installed for it."""
from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import unittest
from typing import Any
from unittest import mock

from lab import promtool
from lab.errors import LabError


class EnsureTest(unittest.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.cache = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(mock.patch.dict(os.environ,
                                          XDG_CACHE_HOME=self.cache))
        self.enterContext(mock.patch.object(promtool, 'run', self.run_))
        self.enterContext(mock.patch.object(promtool, 'print', create=True))
        self.commands: list[str] = []
        self.files = ['usr/bin/promtool', 'usr/bin/prometheus']
        self.fault = ''

    def run_(self, *words: str, **options: Any
             ) -> subprocess.CompletedProcess[str]:
        """What apt and dpkg would do."""
        self.commands.append(' '.join(
            word for word in words if not word.startswith(('/', 'LC_'))))
        if 'download' in words:
            if self.fault:
                return subprocess.CompletedProcess(words, 100, '', self.fault)
            pathlib.Path(words[2], 'prometheus_1_amd64.deb').touch()
        elif '--extract' in words:
            for name in self.files:
                path = pathlib.Path(words[-1], name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        return subprocess.CompletedProcess(words, 0, '', '')

    def test_it_is_unpacked_once(self) -> None:
        for _ in range(2):
            self.assertTrue(promtool.ensure().is_file())
        self.assertEqual(
            ['apt-get update -qq', 'env -C apt-get download -qq prometheus',
             'dpkg-deb --extract'], self.commands)

    def test_a_package_that_cannot_be_had(self) -> None:
        self.fault = ('W: something\n'
                      'E: Unable to locate package prometheus\n')
        with self.assertRaisesRegex(
                LabError, 'prometheus: Unable to locate package prometheus'):
            promtool.ensure()
        self.fault = ''
        self.assertTrue(promtool.ensure().is_file())

    def test_a_package_without_it(self) -> None:
        self.files.remove('usr/bin/promtool')
        with self.assertRaisesRegex(LabError, 'has no usr/bin/promtool'):
            promtool.ensure()
        self.assertEqual(['packages.lock'], [
            path.name for path in
            (pathlib.Path(self.cache) / 'cinder-dmclone-lab').iterdir()])
