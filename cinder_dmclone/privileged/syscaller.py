# SPDX-License-Identifier: Apache-2.0
"""A child that makes system calls for ``syscalls``, which see.

It is run by its path and imports nothing of the package: that way it starts
fast. Its standard input is a socket; the end of file ends it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys

# Longer than any message that the other side sends.
_SIZE = 1 << 18

# linux/fs.h
_BLKDISCARD = 0x1277
_BLOCK = 4096


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


def _discard(path: bytes, ranges: bytes) -> bytes:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # First byte and length, as the kernel wants them.
        for found in struct.iter_unpack('=16s', ranges):
            fcntl.ioctl(file, _BLKDISCARD, *found)
    finally:
        os.close(file)
    return b''


def _read(path: bytes, places: bytes) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        # What is not aligned cannot be read past the cache.
        with mmap.mmap(-1, _BLOCK) as block:
            return b''.join(
                block[:os.preadv(file, [block], place)]
                for place, in struct.iter_unpack('=Q', places))
    finally:
        os.close(file)


_VERBS = {b'discard': _discard, b'read': _read}


def answer(message: bytes) -> bytes:
    """Make the call that a message asks for; 'errno result'."""
    verb, *words = message.split(b' ', 1)
    try:
        if verb == b'ioctl':
            result = _ioctl(*words[0].split(b' ', 2))
        elif verb in _VERBS:
            result = _VERBS[verb](*words[0].split(b' ', 1))
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
