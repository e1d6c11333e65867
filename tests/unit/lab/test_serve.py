# SPDX-License-Identifier: Apache-2.0
"""Answers of the services that the lab does not have."""
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


class NetworkTest(unittest.TestCase):

    def test_it_has_nothing(self) -> None:
        for name in 'networks', 'security-groups':
            self.assertEqual({name.replace('-', '_'): []},
                             serve.empty(f'/network/v2.0/{name}')[1])
        self.assertTrue(serve.empty('/network/v2.0/networks/x')[0].startswith(
            '404'))

    def test_a_project_may_have_any_number(self) -> None:
        """Nova takes no "port" for no limit (validate_networks)."""
        self.assertEqual(('200 OK', {'quota': {}}), serve.empty(
            f'/network/v2.0/quotas/{uuid.uuid4().hex}'))
