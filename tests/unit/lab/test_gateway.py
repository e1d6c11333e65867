# SPDX-License-Identifier: Apache-2.0
"""Requests that fail or wait between Nova and Cinder."""
from __future__ import annotations

import pathlib
import tempfile
import unittest
from typing import Any
from unittest import mock

from lab.compute import gateway, services

PATH = '/v3/attachments'


class FaultsTest(unittest.TestCase):

    def setUp(self) -> None:
        super().setUp()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.file = pathlib.Path(folder) / 'one.json'
        self.faults = gateway.Faults(self.file.parent)

    def fault(self, *words: Any) -> services.Met:
        """Put a fault; what it has met."""
        self.file.write_text(
            gateway.Fault('POST', '/attachments$', *words).print())
        return services.Met(self.file)

    def meet(self, when: str = 'before', method: str = 'POST',
             path: str = PATH) -> int:
        """What a request is answered with; 0: what Cinder says."""
        return self.faults.meet(when, method, path)

    def test_without_fault(self) -> None:
        self.assertEqual(0, self.meet())

    def test_it_is_about_some_requests(self) -> None:
        met = self.fault('before', 503, 1)
        self.assertEqual(0, self.meet(method='GET'))
        self.assertEqual(0, self.meet(path=f'{PATH}/1'))
        self.assertEqual(0, self.meet('after'))
        self.assertEqual([], met.requests())
        self.assertEqual(503, self.meet())
        self.assertEqual([f'POST {PATH}'], met.requests())

    def test_so_many_times(self) -> None:
        met = self.fault('after', 500, 2)
        self.assertEqual([500, 500, 0], [self.meet('after')
                                         for _ in range(3)])
        met.wait(2)

    def test_it_waits_until_the_fault_is_gone(self) -> None:
        met = self.fault('before', 0, 1)
        pauses = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                self.file.unlink()
        with mock.patch('time.sleep', pause):
            self.assertEqual(0, self.meet())
        self.assertEqual(3, len(pauses))
        self.assertEqual(1, len(met.requests()))
