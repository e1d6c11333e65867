# SPDX-License-Identifier: Apache-2.0
"""Stands between Nova and cinder-api, where requests can fail or wait.

Usage: gateway.py ADDRESS PORT PORT-OF-CINDER DIRECTORY

Each file of the directory is a fault, as ``Fault`` prints it; the test that
wrote it removes it. What a fault has met is said in its file ``NAME.hits``.
"""
from __future__ import annotations

import dataclasses
import http.client
import http.server
import json
import pathlib
import re
import select
import socket
import sys
import threading
import time
from typing import Any

BEFORE, AFTER = 'before', 'after'
HITS = '.hits'
# Headers of one connection, not of the message (RFC 9110, 7.6.1).
_HOP = {'connection', 'keep-alive', 'transfer-encoding', 'content-length'}
_PAUSE = 0.1


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens to the requests that it is about.

    :ivar path: a regular expression that is found in the path
    :ivar when: before Cinder gets the request, or in place of its answer
    :ivar status: the answer; 0: the request waits until the fault is gone
    :ivar times: how many requests it is about
    """

    method: str
    path: str
    when: str = BEFORE
    status: int = 500
    times: int = 1

    def print(self) -> str:
        """As a file."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def parse(cls, text: str) -> Fault:
        """From a file."""
        return cls(**json.loads(text))

    def matches(self, method: str, path: str) -> bool:
        """Whether it is about such requests."""
        return self.method == method and bool(re.search(self.path, path))


class Faults:
    """The faults of a directory; used by all requests at once."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()

    def meet(self, when: str, method: str, path: str) -> int:
        """Let a request meet its fault.

        Returns the status that it is answered with; 0 if it goes on.
        """
        for file in sorted(self._directory.glob('*.json')):
            try:
                fault = Fault.parse(file.read_text())
            except FileNotFoundError:
                continue
            if (fault.when == when and fault.matches(method, path)
                    and self._take(file, fault, f'{method} {path}')):
                while not fault.status and file.exists():
                    time.sleep(_PAUSE)
                return fault.status
        return 0

    def _take(self, file: pathlib.Path, fault: Fault, what: str) -> bool:
        hits = file.with_suffix(HITS)
        with self._lock, hits.open('a+') as log:
            log.seek(0)
            if len(log.readlines()) >= fault.times:
                return False
            log.write(f'{what}\n')
            return True


class Server(http.server.ThreadingHTTPServer):
    """Passes requests on to a port of the same address."""

    def __init__(self, address: str, port: int, target: int,
                 faults: Faults) -> None:
        super().__init__((address, port), Handler)
        self.target = (address, target)
        self.faults = faults


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = 'HTTP/1.1'
    server: Server

    def _pass(self) -> None:
        size = int(self.headers.get('Content-Length') or 0)
        body = self.rfile.read(size)
        status = self._meet(BEFORE)
        if self._gone():
            self.close_connection = True
            return
        if not status:
            answer, data = self._ask(body)
            status = self._meet(AFTER)
        if status:
            self._answer(status, 'Fault', [('Content-Type', 'text/plain')],
                         b'a fault of the test')
        else:
            self._answer(answer.status, answer.reason, answer.getheaders(),
                         data)

    do_GET = do_POST = do_PUT = do_DELETE = _pass

    def _gone(self) -> bool:
        """Whether the client was killed while its request waited."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(
            1, socket.MSG_PEEK)

    def _meet(self, when: str) -> int:
        return self.server.faults.meet(when, self.command, self.path)

    def _ask(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(*self.server.target)
        try:
            connection.request(self.command, self.path, body, {
                **{name: value for name, value in self.headers.items()
                   if name.lower() not in _HOP},
                'X-Forwarded-For': self.client_address[0]})
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, reason: str,
                headers: list[tuple[str, str]], data: bytes) -> None:
        self.log_request(status)
        self.send_response_only(status, reason)
        for name, value in headers:
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        print(self.address_string(), format % args, flush=True)


def main() -> None:
    address, port, target, directory = sys.argv[1:]
    Server(address, int(port), int(target),
           Faults(pathlib.Path(directory))).serve_forever()


if __name__ == '__main__':
    main()
