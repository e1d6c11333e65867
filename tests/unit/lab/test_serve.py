# SPDX-License-Identifier: Apache-2.0
"""Answers of the compute service that the lab does not have."""
from __future__ import annotations

import unittest
import uuid

from lab import serve

_BASE = '/compute/v2.1/servers'


class ComputeTest(unittest.TestCase):

    def test_any_name_is_always_the_same_server(self) -> None:
        first = serve.compute(f'{_BASE}/web')[1]['server']['id']
        self.assertEqual(first, str(uuid.UUID(first)))
        self.assertEqual(first, serve.compute(f'{_BASE}/web')[1][
            'server']['id'])
        self.assertNotEqual(first, serve.compute(f'{_BASE}/db')[1][
            'server']['id'])

    def test_a_uuid_is_the_server_with_that_id(self) -> None:
        wanted = str(uuid.uuid4())
        self.assertEqual(wanted, serve.compute(f'{_BASE}/{wanted}')[1][
            'server']['id'])

    def test_the_list_is_empty(self) -> None:
        self.assertEqual({'servers': []}, serve.compute(f'{_BASE}/detail')[1])

    def test_no_volume_is_attached_to_a_server(self) -> None:
        status, _ = serve.compute(f'{_BASE}/web/os-volume_attachments/x')
        self.assertTrue(status.startswith('404'))
