# SPDX-License-Identifier: Apache-2.0
"""What the lab tells Nova and reads from it."""
from __future__ import annotations

import configparser
import unittest
from typing import Any
from unittest import mock

from lab import serve
from lab.compute import config, servers
from lab.errors import LabError


class ConfigTest(unittest.TestCase):

    def _node(self, more: dict[str, dict[str, object]]
              ) -> configparser.ConfigParser:
        parser = configparser.ConfigParser(interpolation=None,
                                           default_section='none')
        parser.read_string(config.node(
            'node1', '10.0.0.1', '10.0.1.1', '/venv/helper', more))
        return parser

    def test_host_is_the_one_that_cinder_volume_has(self) -> None:
        self.assertEqual('node1', self._node({})['DEFAULT']['host'])

    def test_options_of_a_test_win(self) -> None:
        conf = self._node({'libvirt': {'virt_type': 'kvm'},
                           'other': {'option': 1}})
        self.assertEqual('kvm', conf['libvirt']['virt_type'])
        self.assertEqual('raw', conf['libvirt']['images_type'])
        self.assertEqual('1', conf['other']['option'])

    def test_every_service_sends_service_tokens(self) -> None:
        self.assertEqual('True', self._node({})['service_user'][
            'send_service_user_token'])


class EmptyTest(unittest.TestCase):

    def test_there_is_nothing(self) -> None:
        self.assertEqual(('200 OK', {'ports': []}),
                         serve.empty('/network/v2.0/ports'))
        self.assertEqual({'security_groups': []},
                         serve.empty('/network/v2.0/security-groups')[1])
        self.assertEqual({'images': []}, serve.empty('/image/v2/images')[1])

    def test_not_even_one_port(self) -> None:
        status, _ = serve.empty('/network/v2.0/ports/x')
        self.assertTrue(status.startswith('404'))


class _Servers(servers.Servers):
    """Answers in the order of the requests."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)

    def nova(self, *args: Any, **kwargs: Any) -> Any:
        return self.answers.pop(0)


def _server(status: str, task: str | None = None, **more: Any) -> Any:
    return {'server': {'status': status, 'OS-EXT-STS:task_state': task,
                       **more}}


@mock.patch('time.sleep')
class WaitTest(unittest.TestCase):

    def test_a_server_with_a_task_does_not_rest(self, sleep: Any) -> None:
        api = _Servers(_server('ACTIVE', 'powering-off'), _server('SHUTOFF'))
        self.assertEqual('SHUTOFF',
                         api.wait_server('id', 'ACTIVE', 'SHUTOFF'))

    def test_an_error_is_told_with_its_reason(self, sleep: Any) -> None:
        api = _Servers(_server('ERROR', fault={'message': 'why'}))
        with self.assertRaisesRegex(LabError, 'why'):
            api.wait_server('id', 'ACTIVE')

    def test_an_error_may_be_what_is_waited_for(self, sleep: Any) -> None:
        self.assertEqual('ERROR', _Servers(_server('ERROR')).wait_server(
            'id', 'ERROR'))

    def test_an_action_that_failed_is_not_waited_for(self, sleep: Any
                                                     ) -> None:
        api = _Servers(
            {}, _server('ACTIVE'),
            {'instanceActions': [{'message': 'Error', 'request_id': 'r'}]},
            {'instanceAction': {'events': [
                {'result': 'Success'},
                {'result': 'Error', 'details': 'no ssh'}]}})
        with self.assertRaisesRegex(LabError, 'ACTIVE: no ssh'):
            api.migrate('id', 2)
