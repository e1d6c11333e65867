# SPDX-License-Identifier: Apache-2.0
"""Keystone, Cinder and Placement as one HTTP server, for a real Nova."""

from __future__ import annotations

import http.server
import json
import re
import threading
import typing

# The pools and types that Cinder shows are those of the other tests.
from tests.unit.nova import base

_EXPIRES = '2099-01-01T00:00:00.000000Z'


class Cloud(http.server.ThreadingHTTPServer):
    """What it answers is set by a test.

    :ivar held: requests to Cinder wait for this
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), _Handler)
        self.url = f'http://127.0.0.1:{self.server_port}'
        self.pools = [base.pool(host, free)
                      for host, free in base.GIB_FREE.items()]
        self.types = list(base.TYPES)
        self.volumes: dict[str, dict[str, typing.Any]] = {}
        self.allocations: dict[str, str] = {}
        self.held = threading.Event()
        self.held.set()
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def add_volume(self, volume: str, host: str, size: int = 20,
                   servers: typing.Iterable[str] = ()) -> None:
        self.volumes[volume] = {
            'id': volume, 'size': size,
            'attachments': [{'server_id': one} for one in servers],
            'os-vol-host-attr:host': f'{host}@dmclone#dmclone'}

    def answer(self, path: str) -> tuple[int, typing.Any]:
        """Status and body of what a client of Cinder or Placement asks."""
        path = path.partition('?')[0]
        if match := re.fullmatch('/placement/allocations/(.*)', path):
            provider = self.allocations.get(match[1])
            return 200, {'allocations': {provider: {}} if provider else {}}
        if path.rstrip('/') == '/placement':
            return 200, {'versions': [{
                'id': 'v1.0', 'status': 'CURRENT', 'min_version': '1.0',
                'max_version': '1.39', 'links': [
                    {'rel': 'self', 'href': f'{self.url}/placement'}]}]}
        path = path.removeprefix('/v3/project')
        self.asked.append(path)
        self.held.wait()
        found: dict[str, typing.Any] = {
            '/scheduler-stats/get_pools': {'pools': self.pools},
            '/types': {'volume_types': self.types},
            '/types/default': {'volume_type': self.types[0]},
            **{f'/volumes/{one}': {'volume': volume}
               for one, volume in self.volumes.items()}}
        return (200, found[path]) if path in found else (404, {})

    def token(self) -> typing.Any:
        """An answer of Keystone."""
        endpoints = [('volumev3', f'{self.url}/v3/project'),
                     ('placement', f'{self.url}/placement')]
        return {'token': {
            'methods': ['password'], 'expires_at': _EXPIRES,
            'user': {'id': 'u', 'name': 'nova', 'domain': {'id': 'd'}},
            'project': {'id': 'project', 'name': 's', 'domain': {'id': 'd'}},
            'catalog': [{
                'type': kind, 'name': kind, 'id': kind, 'endpoints': [{
                    'id': f'{kind}-{interface}', 'interface': interface,
                    'region': 'r', 'region_id': 'r', 'url': url}
                    for interface in ('public', 'internal')]}
                for kind, url in endpoints]}}


class _Handler(http.server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'
    server: Cloud

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers['Content-Length']))
        self._send(201, self.server.token())

    def do_GET(self) -> None:
        if self.path.rstrip('/') == '/identity/v3':
            self._send(200, {'version': {
                'id': 'v3.14', 'status': 'stable', 'links': [
                    {'rel': 'self', 'href': f'{self.server.url}{self.path}'}]}
                })
        else:
            self._send(*self.server.answer(self.path))

    def _send(self, status: int, body: typing.Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.send_header('X-Subject-Token', 'token')
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: typing.Any) -> None:
        pass
