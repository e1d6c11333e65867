# SPDX-License-Identifier: Apache-2.0
"""A child that makes system calls for ``syscalls``, which see.

It is run by its path and imports nothing of the package: that way it starts
fast. Its standard input is a socket; the end of file ends it.
"""

from __future__ import annotations

import fcntl
import os
import sys

# Longer than any message that the other side sends.
_SIZE = 1 << 18


def _ioctl(number: bytes, path: bytes, argument: bytes) -> bytes:
    buffer = bytearray(argument)
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(file, int(number), buffer)
    finally:
        os.close(file)
    return bytes(buffer)


def _fsync(path: bytes) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
    return b''


def answer(message: bytes) -> bytes:
    """Make the call that a message asks for; 'errno result'."""
    verb, *words = message.split(b' ', 1)
    try:
        if verb == b'ioctl':
            result = _ioctl(*words[0].split(b' ', 2))
        else:
            result = _fsync(words[0])
    except OSError as error:
        return b'%d ' % (error.errno or -1)
    return b'0 ' + result


def main(peer: int) -> None:
    """Say that this child is ready, and answer until the end of file."""
    os.write(peer, b'ready')
    while message := os.read(peer, _SIZE):
        os.write(peer, answer(message))


if __name__ == '__main__':
    main(sys.stdin.fileno())
