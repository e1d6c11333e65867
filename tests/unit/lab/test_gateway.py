# SPDX-License-Identifier: Apache-2.0
"""Requests that fail or wait between Nova and Cinder."""
from __future__ import annotations

import http.client
import http.server
import pathlib
import tempfile
import threading
import unittest
from typing import Any

from lab.compute import gateway, services

ADDRESS = '127.0.0.1'


class Cinder(http.server.BaseHTTPRequestHandler):
    """Says what it was asked."""

    protocol_version = 'HTTP/1.1'
    asked: list[str] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers['Content-Length']))
        self.asked.append(self.path)
        self.send_response(202)
        self.send_header('Content-Length', str(len(body)))
        self.send_header('X-Token', self.headers['X-Token'])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Quiet(gateway.Handler):
    log_message = Cinder.log_message


class GatewayTest(unittest.TestCase):

    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        Cinder.asked = []
        cinder = http.server.ThreadingHTTPServer((ADDRESS, 0), Cinder)
        self.server = gateway.Server(ADDRESS, 0, cinder.server_port,
                                     gateway.Faults(self.folder))
        self.server.RequestHandlerClass = Quiet
        for server in (cinder, self.server):
            thread = threading.Thread(target=server.serve_forever,
                                      args=(0.01,))
            thread.start()
            self.addCleanup(server.server_close)
            self.addCleanup(thread.join)
            self.addCleanup(server.shutdown)

    def ask(self, path: str = '/v3/attachments') -> tuple[int, bytes, Any]:
        """Status, body and token of an answer."""
        connection = http.client.HTTPConnection(
            ADDRESS, self.server.server_port, timeout=60)
        self.addCleanup(connection.close)
        connection.request('POST', path, b'body', {'X-Token': 'secret'})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader('X-Token')

    def fault(self, *words: Any) -> services.Met:
        """Put a fault; what it has met."""
        file = self.folder / 'one.json'
        file.write_text(gateway.Fault('POST', *words).print())
        return services.Met(file)

    def test_without_fault(self) -> None:
        self.assertEqual((202, b'body', 'secret'), self.ask())
        self.assertEqual(['/v3/attachments'], Cinder.asked)

    def test_cinder_does_not_get_it(self) -> None:
        met = self.fault('/attachments$', 'before', 503, 1)
        self.assertEqual([], met.requests())
        self.assertEqual(202, self.ask('/v3/attachments/1')[0])
        self.assertEqual(503, self.ask()[0])
        self.assertEqual(['/v3/attachments/1'], Cinder.asked)
        met.wait()
        self.assertEqual(['POST /v3/attachments'], met.requests())
        # It was about one request only.
        self.assertEqual(202, self.ask()[0])

    def test_the_answer_is_lost(self) -> None:
        self.fault('/attachments$', 'after', 500, 2)
        self.assertEqual([500, 500, 202], [self.ask()[0] for _ in range(3)])
        self.assertEqual(3, len(Cinder.asked))

    def test_it_waits(self) -> None:
        met = self.fault('/attachments$', 'before', 0, 1)
        thread = threading.Thread(target=self.ask)
        thread.start()
        met.wait()
        self.assertEqual([], Cinder.asked)
        (self.folder / 'one.json').unlink()
        thread.join(60)
        self.assertEqual(1, len(Cinder.asked))
