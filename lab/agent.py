# SPDX-License-Identifier: Apache-2.0
"""Client of the agent that runs commands in a node (see agent.c)."""
from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import socket
import struct
import threading
import time
from collections.abc import Callable

from lab.errors import CommandError, LabError
from lab.processes import look_out, run

PORT = 7000
_SOURCE = pathlib.Path(__file__).with_name('agent.c')
_CHUNK = 65536
# So often who waits looks out for what makes it vain, in seconds.
_PAUSE = 1.0

Connect = Callable[[float], socket.socket]


def build(cache: pathlib.Path) -> pathlib.Path:
    """The compiled agent; compiled once per source text."""
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]
    program = cache / f'agent-{digest}'
    if not program.exists():
        part = cache / f'agent.{os.getpid()}.{threading.get_ident()}'
        run('gcc', '-O2', '-static', '-o', str(part), str(_SOURCE))
        part.rename(program)
    return program


@dataclasses.dataclass(frozen=True)
class Result:
    """What a command printed and how it ended (128 + N: by signal N)."""

    stdout: str
    stderr: str
    code: int


class Command:
    """A command running in a node; closing it kills its process group.

    ``patience`` is how long the node may take to answer at all, in seconds.
    """

    def __init__(self, connect: Connect, argv: list[str],
                 input: bytes | None = None, patience: float = 60) -> None:
        self.argv = argv
        try:
            self._socket = connect(patience)
        except OSError as exc:
            raise LabError(f'{" ".join(argv)}: the node does not answer: '
                           f'{exc}') from None
        self._buffer = b''
        self._output = {'O': bytearray(), 'R': bytearray()}
        self._code: int | None = None
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        words = b''.join(word.encode() + b'\0' for word in argv)
        self._send(b'A', words)
        self._input = memoryview(input or b'')
        if not input:
            self._send(b'E', b'')

    def _send(self, kind: bytes, data: bytes | memoryview) -> None:
        try:
            self._socket.sendall(
                kind + struct.pack('>I', len(data)) + bytes(data))
        except (BrokenPipeError, ConnectionResetError):
            # The command ended without reading all of it, or the node
            # died; receiving tells which.
            pass

    def _receive(self, deadline: float) -> bool:
        """Take in what the agent sends; false once all of it is here."""
        if self._code is not None:
            return False
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._socket.settimeout(min(remaining, _PAUSE))
        try:
            data = self._socket.recv(_CHUNK)
        except TimeoutError:
            if remaining <= _PAUSE:
                raise
            look_out()
            return True
        except ConnectionResetError:
            data = b''
        if not data:
            raise LabError(f'{" ".join(self.argv)}: the node went away')
        self._buffer += data
        while len(self._buffer) >= 5:
            kind = chr(self._buffer[0])
            size, = struct.unpack('>I', self._buffer[1:5])
            if len(self._buffer) < 5 + size:
                break
            body = self._buffer[5:5 + size]
            self._buffer = self._buffer[5 + size:]
            if kind == 'X':
                self._code = int(body)
                self._socket.close()
            else:
                self._output[kind] += body
        return self._code is None

    def _feed(self, deadline: float) -> None:
        """Send pending input; the command may take its time to read it."""
        while self._input:
            chunk = self._input[:_CHUNK]
            self._socket.settimeout(max(deadline - time.monotonic(), 1))
            self._send(b'I', chunk)
            self._input = self._input[_CHUNK:]
            if not self._input:
                self._send(b'E', b'')

    def wait(self, timeout: float = 60) -> Result:
        """The result; TimeoutError (command killed) after ``timeout`` s."""
        deadline = time.monotonic() + timeout
        try:
            self._feed(deadline)
            while self._receive(deadline):
                pass
        except TimeoutError:
            self.kill()
            raise TimeoutError(
                f'{" ".join(self.argv)}: not finished in {timeout} s: '
                f'{self.output()[-500:]}') from None
        except BaseException:
            self._socket.close()
            raise
        return Result(self._output['O'].decode(errors='replace'),
                      self._output['R'].decode(errors='replace'),
                      self._code if self._code is not None else -1)

    def poll(self) -> Result | None:
        """The result if the command has ended, None while it runs."""
        try:
            while self._receive(time.monotonic() + 0.001):
                pass
        except TimeoutError:
            return None
        return self.wait()

    def output(self) -> str:
        """Standard output received so far (by wait() or poll())."""
        return self._output['O'].decode(errors='replace')

    def kill(self) -> None:
        """Kill the command's process group."""
        self._socket.close()

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


def run_command(connect: Connect, argv: list[str], check: bool,
                timeout: float, input: bytes | None) -> Result:
    """Run to the end; raises CommandError if ``check`` and it failed."""
    with Command(connect, argv, input, min(timeout, 60)) as command:
        result = command.wait(timeout)
    if check and result.code:
        raise CommandError(' '.join(argv), result.code,
                           result.stderr or result.stdout)
    return result
