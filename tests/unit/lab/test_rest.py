# SPDX-License-Identifier: Apache-2.0
"""Who waits for an answer that will not come is told why."""
from __future__ import annotations

import socket
import typing
import unittest

from lab import processes, rest
from lab.errors import LabError

_ERROR = b'HTTP/1.1 500 Error\r\nContent-Length: 2\r\n\r\n{}'


class _Network:
    """Connections to a server that gives one answer, or none."""

    def __init__(self, answer: bytes = b'') -> None:
        self._answer = answer
        self.server: socket.socket | None = None

    def connect(self, *_: typing.Any) -> socket.socket:
        client, self.server = socket.socketpair(socket.AF_UNIX)
        self.server.sendall(self._answer)
        return _Socket(fileno=client.detach())


class _Socket(socket.socket):

    def setsockopt(self, *_: typing.Any) -> None:
        """It is none of TCP."""


class AnswerTest(unittest.TestCase):

    def request(self, network: _Network, timeout: float = 600) -> None:
        try:
            rest.request(network, 1, 'GET', '/',  # type: ignore[arg-type]
                         timeout=timeout)
        finally:
            assert network.server
            network.server.close()

    def watch(self) -> None:
        def killed() -> None:
            raise LabError('the kernel has killed it')
        processes.watch(killed)
        self.addCleanup(processes.unwatch, killed)

    def test_nothing_comes(self) -> None:
        self.watch()
        with self.assertRaisesRegex(LabError, 'the kernel has killed it'):
            self.request(_Network())

    def test_the_error_of_a_service_that_met_it(self) -> None:
        with self.assertRaisesRegex(rest.RestError, '500'):
            self.request(_Network(_ERROR))
        self.watch()
        with self.assertRaisesRegex(LabError, 'the kernel has killed it'):
            self.request(_Network(_ERROR))

    def test_no_answer_in_time(self) -> None:
        with self.assertRaisesRegex(TimeoutError, 'no answer in 0 s'):
            self.request(_Network(), 0)
