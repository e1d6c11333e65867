# SPDX-License-Identifier: Apache-2.0
"""Plain HTTP to the control plane, for tests that cannot wait for the CLI."""
from __future__ import annotations

import http.client
import json
import select
import socket
import time
from typing import Any

from lab.errors import LabError
from lab.network import CONTROLLER, Network
from lab.processes import look_out
from lab.services import CINDER_PORT, KEYSTONE_PORT, NOVA_PORT, PASSWORD

KEYSTONE = f'http://{CONTROLLER}:{KEYSTONE_PORT}/v3'


class RestError(LabError):
    """An answer with a status of 400 or more."""

    def __init__(self, what: str, status: int, body: str) -> None:
        super().__init__(f'{what}: {status} {body[:2000]}')
        self.status = status
        self.body = body


class _Connection(http.client.HTTPConnection):
    """HTTP over a connection made inside the lab's network."""

    def __init__(self, network: Network, port: int, timeout: float) -> None:
        super().__init__(CONTROLLER, port, timeout=timeout)
        self._network = network
        self._limit = timeout

    def connect(self) -> None:
        self.sock = self._network.connect(
            CONTROLLER, self.port, self._limit)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _await(answer: socket.socket, timeout: float) -> None:
    """Wait until there is an answer to read, or what look_out() raises."""
    deadline = time.monotonic() + timeout
    while not select.select([answer], [], [], 1)[0]:
        look_out()
        if time.monotonic() > deadline:
            raise TimeoutError(f'no answer in {timeout:.0f} s')


def request(network: Network, port: int, method: str, path: str,
            body: Any = None, headers: dict[str, str] | None = None,
            timeout: float = 600) -> tuple[Any, dict[str, str]]:
    """One request; returns the decoded body (None if empty) and headers.

    Raises RestError for a status of 400 or more.
    """
    connection = _Connection(network, port, timeout)
    try:
        connection.request(
            method, path,
            body=None if body is None else json.dumps(body),
            headers={'Content-Type': 'application/json',
                     'Accept': 'application/json', **(headers or {})})
        _await(connection.sock, timeout)
        answer = connection.getresponse()
        text = answer.read().decode()
        found = {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()
    if answer.status >= 500:
        # What made it fail tells more.
        look_out()
    if answer.status >= 400:
        raise RestError(f'{method} {path}', answer.status, text)
    return (json.loads(text) if text else None), found


class Client:
    """Requests of one user, with a token that is fetched once."""

    def __init__(self, network: Network, user: str = 'admin',
                 project: str = 'admin') -> None:
        self._network = network
        self._user = user
        self._project = project
        self._token = ''
        self.project_id = ''

    def token(self) -> str:
        """A token of the user, scoped to the project."""
        if not self._token:
            domain = {'id': 'default'}
            body, headers = request(
                self._network, KEYSTONE_PORT, 'POST', '/v3/auth/tokens',
                {'auth': {
                    'identity': {
                        'methods': ['password'],
                        'password': {'user': {
                            'name': self._user, 'domain': domain,
                            'password': PASSWORD}}},
                    'scope': {'project': {
                        'name': self._project, 'domain': domain}}}})
            # The token last: with it another thread takes the id as known.
            self.project_id = body['token']['project']['id']
            self._token = headers['x-subject-token']
        return self._token

    def keystone(self, method: str, path: str, body: Any = None) -> Any:
        """A request to Keystone; ``path`` follows /v3."""
        return request(self._network, KEYSTONE_PORT, method, f'/v3{path}',
                       body, {'X-Auth-Token': self.token()})[0]

    def cinder(self, method: str, path: str, body: Any = None,
               microversion: str = '3.71', timeout: float = 600) -> Any:
        """A request to Cinder; ``path`` follows /v3/<project id>."""
        headers = {'X-Auth-Token': self.token(),
                   'OpenStack-API-Version': f'volume {microversion}'}
        return request(self._network, CINDER_PORT, method,
                       f'/v3/{self.project_id}{path}', body, headers,
                       timeout)[0]

    def nova(self, method: str, path: str, body: Any,
             microversion: str, timeout: float) -> Any:
        """A request to Nova; ``path`` follows /v2.1."""
        headers = {'X-Auth-Token': self.token(),
                   'OpenStack-API-Version': f'compute {microversion}'}
        return request(self._network, NOVA_PORT, method, f'/v2.1{path}',
                       body, headers, timeout)[0]
