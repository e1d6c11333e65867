# SPDX-License-Identifier: Apache-2.0
"""System calls that may wait for ever, made where they can be given up.

Who waits in the kernel cannot be called back, but can be killed. To start a
process for each such call costs many times the call, while a server waits:
so children stand by, which make one call at a time. They die with the thread
that started them: a call must not outlive who would deal with its outcome.
"""

from __future__ import annotations

import errno
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys
import threading
from typing import Iterable

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import process

_PROGRAM = pathlib.Path(__file__).with_name('syscaller.py')
# A busy machine needs its time to start a process.
_START_SECONDS = 10.0
_SIZE = 1 << 18
# A message or an answer of more than that may not fit into the socket.
_PORTION = 1 << 17
BLOCK = 4096
# How many stand by; more are started while these are busy.
_SPARE = 2


class _Child:
    """A process that makes system calls, one at a time.

    :raises OSError, CommandTimeout: if it cannot be started
    """

    def __init__(self) -> None:
        argv = ['setpriv', '--pdeathsig', 'KILL', sys.executable, '-I', '-S',
                str(_PROGRAM)]
        self._socket, theirs = socket.socketpair(socket.AF_UNIX,
                                                 socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True)
        # It says that it is ready.
        self._receive('start of a process', _START_SECONDS)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def call(self, message: bytes, what: str, seconds: float) -> bytes:
        """The answer to a message.

        :raises CommandTimeout, CommandFailed: this child is dead, then
        """
        try:
            self._socket.send(message)
            return self._receive(what, seconds)
        except OSError as error:
            self.end()
            raise exceptions.CommandFailed(
                command=what, code=1, stderr=error) from error

    def _receive(self, what: str, seconds: float) -> bytes:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(seconds * 1000):
            self.end()
            raise exceptions.CommandTimeout(command=what, seconds=seconds)
        answer = self._socket.recv(_SIZE)
        if not answer:
            raise ConnectionResetError(errno.ECONNRESET,
                                       'its process has died')
        return answer

    def end(self) -> None:
        """Kill it; one that the kernel does not let go is left behind."""
        process.kill(self._process)
        self._socket.close()


_spare: list[_Child] = []
_lock = threading.Lock()


def _take() -> _Child:
    with _lock:
        while _spare:
            child = _spare.pop()
            if child.alive:
                return child
            child.end()
    try:
        return _Child()
    except OSError as error:
        raise exceptions.CommandFailed(
            command=_PROGRAM, code=127, stderr=error) from error


def _give_back(child: _Child) -> None:
    with _lock:
        if len(_spare) < _SPARE:
            _spare.append(child)
            return
    child.end()


def _call(message: bytes, what: str, seconds: float) -> bytes:
    child = _take()
    answer = child.call(message, what, seconds)
    _give_back(child)
    code, _, result = answer.partition(b' ')
    if int(code):
        raise OSError(int(code), os.strerror(int(code)))
    return result


def ioctl(path: str, request: int, argument: bytes, what: str,
          seconds: float) -> bytes:
    """Make an ioctl; returns the argument as the kernel leaves it.

    :param what: says in errors what this is about
    :raises OSError: if the kernel refuses
    :raises CommandTimeout: if it did not return in time; it was interrupted
        if the kernel allows that, or goes on
    """
    return _call(b'ioctl %d %s %s' % (request, path.encode(), argument),
                 what, seconds)


def fsync(path: str, seconds: float) -> None:
    """Write back what is cached of a device or file, and flush its disk.

    :raises CommandFailed: if the disk reports an error
    :raises CommandTimeout: if it did not end in time
    """
    what = f'fsync {path}'
    try:
        _call(b'fsync ' + path.encode(), what, seconds)
    except OSError as error:
        raise exceptions.CommandFailed(
            command=what, code=error.errno, stderr=error.strerror) from error


def discard(path: str, ranges: Iterable[tuple[int, int]],
            seconds: float) -> None:
    """Discard parts of a device, each of which begins and ends with a sector.

    :param ranges: first byte and length of each
    :param seconds: for so many of them as go into one message
    :raises CommandFailed: if the kernel refuses one; others may be discarded
    :raises CommandTimeout: see ``ioctl``
    """
    packed = b''.join(struct.pack('=QQ', *one) for one in ranges)
    for first in range(0, len(packed), _PORTION):
        _on_device(b'discard', path, packed[first:first + _PORTION], seconds)


def read(path: str, places: Iterable[int], seconds: float) -> bytes:
    """Blocks of 4096 bytes, from the disk rather than a cache.

    :param places: where each begins, a multiple of its size
    :param seconds: for so many of them as go into one answer
    :raises CommandFailed: if the kernel refuses, or one is not there
    :raises CommandTimeout: see ``ioctl``
    """
    wanted, found = list(places), []
    for first in range(0, len(wanted), _PORTION // BLOCK):
        part = wanted[first:first + _PORTION // BLOCK]
        found.append(_on_device(
            b'read', path, struct.pack(f'={len(part)}Q', *part), seconds))
        if len(found[-1]) != len(part) * BLOCK:
            raise exceptions.CommandFailed(
                command=f'read {path}', code=errno.ENXIO,
                stderr='it ends before that')
    return b''.join(found)


def _on_device(verb: bytes, path: str, argument: bytes,
               seconds: float) -> bytes:
    what = f'{verb.decode()} {path}'
    try:
        return _call(b'%s %s %s' % (verb, path.encode(), argument), what,
                     seconds)
    except OSError as error:
        raise exceptions.CommandFailed(
            command=what, code=error.errno, stderr=error.strerror) from error
