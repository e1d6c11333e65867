# SPDX-License-Identifier: Apache-2.0
"""Who asks at the port of a backend is answered, and nobody else is heard."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
import typing
from unittest import mock
import urllib.request

from prometheus_client import core

from cinder_dmclone import driver
from cinder_dmclone.host import uevents
from cinder_dmclone.location import NodeName
from cinder_dmclone.metrics import collector
from cinder_dmclone.metrics import server
from cinder_dmclone.service import endpoint
from tests.unit import base

ADDRESS = '127.0.0.1'
NODE = NodeName('a@dmclone')
# Seconds until something has gone wrong, on a machine however busy.
_LIMIT = 120
# A program that loads the driver as cinder-volume does.
LOADED = '''
import sys
from cinder_dmclone import driver
print(*(name for name in sys.modules
        if name.startswith('cinder_dmclone.metrics')))
'''


class Found(collector.Collector):
    """Writes down which thread looks.

    :ivar go_on: what every look waits for
    """

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[threading.Thread] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.fail: Exception | None = None

    def collect(self) -> typing.Iterable[core.Metric]:
        self.looks.append(threading.current_thread())
        if self.fail:
            raise self.fail
        if not self.go_on.wait(_LIMIT):
            raise TimeoutError
        return super().collect()


class ServerTest(base.TestCase):

    def start(self, address: str = ADDRESS, port: int = 0
              ) -> tuple[Found, int]:
        found = Found()
        # Port 0 is any that is free.
        self.made = server.start(NODE, address, port, found)
        assert self.made
        self.addCleanup(self.end, self.made)
        return found, self.made.server_address[1]

    def end(self, made: server.Server) -> None:
        """What waits for a connection has it open otherwise."""
        if made.socket.fileno() >= 0:
            made.socket.shutdown(socket.SHUT_RDWR)
            made.server_close()

    def ask(self, port: int, address: str = ADDRESS) -> str:
        with urllib.request.urlopen(
                f'http://{address}:{port}/metrics', timeout=30) as answer:
            return str(answer.read().decode())

    def test_whoever_asks_makes_it_look(self) -> None:
        found, port = self.start()
        self.assertEqual([], found.looks)
        self.assertIn('# TYPE cinder_dmclone_readable gauge',
                      self.ask(port))
        self.assertEqual(1, len(found.looks))

    def test_ipv6(self) -> None:
        if not socket.has_ipv6:
            self.skipTest('no IPv6 here')
        _, port = self.start('::1')
        self.assertIn('cinder_dmclone_info', self.ask(port, '[::1]'))

    def test_one_look_at_a_time(self) -> None:
        found, port = self.start()
        found.go_on.clear()
        asking = [http.client.HTTPConnection(ADDRESS, port, timeout=_LIMIT)
                  for _ in range(4)]
        for each in asking:
            self.addCleanup(each.close)
            each.request('GET', '/metrics')
        found.go_on.set()
        self.assertEqual(4 * [200],
                         [each.getresponse().status for each in asking])
        # Those of one thread cannot overlap.
        self.assertEqual((4, 1), (len(found.looks), len(set(found.looks))))

    def test_who_says_nothing_keeps_others_waiting_for_seconds(self) -> None:
        with mock.patch.object(server._Handler, 'timeout', 0.2):
            _, port = self.start()
            with socket.create_connection((ADDRESS, port)):
                self.assertIn('cinder_dmclone_info', self.ask(port))

    def test_a_look_that_fails_is_logged_and_the_next_is_answered(
            self) -> None:
        found, port = self.start()
        found.fail = ValueError('a mistake')
        with mock.patch.object(server.LOG, 'exception') as log:
            with self.assertRaises(OSError):
                self.ask(port)
            found.fail = None
            self.ask(port)
        log.assert_called_once_with('Prometheus got no answer.')

    def test_a_port_that_another_backend_has(self) -> None:
        _, port = self.start()
        with mock.patch.object(server.LOG, 'error') as log:
            self.assertIsNone(server.start(NODE, ADDRESS, port, Found()))
        text, values = log.call_args.args
        said = text % values
        self.assertIn(f'{NODE} cannot be watched', said)
        self.assertIn(f'{ADDRESS}, port {port} ([Errno 98] Address already '
                      'in use)', said)

    def test_a_port_is_free_again_at_once(self) -> None:
        """cinder-volume is restarted."""
        _, port = self.start()
        self.ask(port)
        assert self.made
        self.end(self.made)
        self.start(port=port)
        self.ask(port)

    def test_nothing_is_done_while_nobody_asks(self) -> None:
        """It waits in accept(), without a time."""
        made = server.Server(ADDRESS, 0, Found())
        self.addCleanup(made.server_close)
        self.assertIsNone(made.socket.gettimeout())


class DriverTest(base.TestCase):

    def begin(self, **options: typing.Any) -> mock.Mock:
        """The end of a start; what starts the server."""
        made = driver.DMCloneVolumeDriver.__new__(driver.DMCloneVolumeDriver)
        made._loop = made._world = made._service = mock.Mock()
        made._world.peers.sharing.return_value = []
        made.configuration = mock.Mock(
            target_ip_address='192.0.2.1',
            **{'dmclone_metrics_port': None, 'dmclone_metrics_address': None,
               **options})
        with (mock.patch.object(endpoint, 'serve'),
              mock.patch.object(uevents, 'listen'),
              mock.patch.object(server, 'start') as start):
            made.set_initialized()
        return start

    def test_nobody_listens_unless_that_is_wanted(self) -> None:
        self.begin().assert_not_called()

    def test_the_address_is_that_of_the_targets(self) -> None:
        for options, address in (
                ({}, '192.0.2.1'),
                ({'dmclone_metrics_address': '::1'}, '::1')):
            start = self.begin(dmclone_metrics_port=9177, **options)
            self.assertEqual((address, 9177), start.call_args.args[1:3])

    def test_nothing_is_loaded_for_it(self) -> None:
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', LOADED], text=True,
            stdout=subprocess.PIPE, check=True)
        self.assertEqual('\n', done.stdout)
