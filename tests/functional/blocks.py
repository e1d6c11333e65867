# SPDX-License-Identifier: Apache-2.0
"""Known contents for block devices; also the program that runs in a node.

A device is filled with units that say which they are and which seed made
them; single blocks are written over it later. Everything is written with
O_DIRECT and flushed, so that what was written is what has to be there after
any crash.
"""
from __future__ import annotations

import mmap
import os
import random
import sys
import zlib

UNIT = 64 * 1024
BLOCK = 4096
CHUNK = 1 << 20
PER_CHUNK = CHUNK // BLOCK


class Chunks:
    """What a filled device holds, one chunk at a time.

    The same memory is used for all: in a node page faults are expensive.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._noise = random.Random(seed).randbytes(CHUNK)
        self.buffer = mmap.mmap(-1, CHUNK)
        self.buffer[:] = self._noise

    def load(self, number: int, over: list[list[int]]) -> None:
        """Make ``buffer`` the chunk ``number``.

        :param over: what was written later: seed, first, count and step
        """
        for unit in range(CHUNK // UNIT):
            self.buffer[unit * UNIT:unit * UNIT + 16] = b'%06d:%09d' % (
                self._seed, number * (CHUNK // UNIT) + unit)
        for seed, first, count, step in over:
            before = max(0, -(-(number * PER_CHUNK - first) // step))
            for index in range(before, count):
                where = first + index * step
                if where // PER_CHUNK != number:
                    break
                at = where % PER_CHUNK * BLOCK
                self.buffer[at:at + BLOCK] = block(seed, where)

    def restore(self, number: int, over: list[list[int]]) -> None:
        """Undo what ``load`` did about blocks written later."""
        for _, first, count, step in over:
            before = max(0, -(-(number * PER_CHUNK - first) // step))
            for index in range(before, count):
                where = first + index * step
                if where // PER_CHUNK != number:
                    break
                at = where % PER_CHUNK * BLOCK
                self.buffer[at:at + BLOCK] = self._noise[at:at + BLOCK]


def block(seed: int, number: int) -> bytes:
    """A block as ``write`` makes it."""
    return (b'%06d|%09d' % (seed, number)) * (BLOCK // 16)


def fill(path: str, seed: int, size: int) -> None:
    """Fill a device and flush it; ``size`` is in bytes."""
    handle = os.open(path, os.O_WRONLY | os.O_DIRECT)
    chunks = Chunks(seed)
    for number in range(size // CHUNK):
        chunks.load(number, [])
        os.pwrite(handle, chunks.buffer, number * CHUNK)
    os.fsync(handle)
    os.close(handle)


def write(path: str, seed: int, first: int, count: int, step: int) -> None:
    """Write ``count`` blocks, every ``step``-th from ``first``, and flush."""
    handle = os.open(path, os.O_WRONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, BLOCK)
    for index in range(count):
        number = first + index * step
        buffer[:] = block(seed, number)
        os.pwrite(handle, buffer, number * BLOCK)
    os.fsync(handle)
    os.close(handle)


def verify(path: str, seed: int, first: int, size: int,
           over: list[list[int]]) -> str:
    """Compare bytes ``first`` to ``size``; the first difference in words."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    chunks, found = Chunks(seed), mmap.mmap(-1, CHUNK)
    digests = memoryview(found), memoryview(chunks.buffer)
    try:
        for number in range(first // CHUNK, size // CHUNK):
            chunks.load(number, over)
            os.preadv(handle, [found], number * CHUNK)
            if zlib.crc32(digests[0]) != zlib.crc32(digests[1]):
                return _difference(number, found, chunks.buffer)
            chunks.restore(number, over)
    finally:
        os.close(handle)
    return ''


def verify_blocks(path: str, over: list[list[int]]) -> str:
    """Compare only the blocks that were written one by one."""
    wanted = {first + index * step: block(seed, first + index * step)
              for seed, first, count, step in over for index in range(count)}
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, BLOCK)
    try:
        for number, content in sorted(wanted.items()):
            os.preadv(handle, [buffer], number * BLOCK)
            if buffer[:] != content:
                return f'block {number}: found {buffer[:24]!r}'
    finally:
        os.close(handle)
    return ''


def _difference(number: int, found: mmap.mmap, wanted: mmap.mmap) -> str:
    for at in range(0, CHUNK, BLOCK):
        if found[at:at + BLOCK] != wanted[at:at + BLOCK]:
            return (f'block {(number * CHUNK + at) // BLOCK}: found '
                    f'{found[at:at + 24]!r}, wanted {wanted[at:at + 24]!r}')
    return ''


def main() -> None:
    """``blocks.py VERB DEVICE NUMBER... [SEED,FIRST,COUNT,STEP]...``."""
    verb, path, *words = sys.argv[1:]
    over = [[int(n) for n in word.split(',')] for word in words
            if ',' in word]
    numbers = [int(word) for word in words if ',' not in word]
    if verb == 'fill':
        fill(path, *numbers)
    elif verb == 'write':
        write(path, *numbers)
    elif verb == 'blocks':
        sys.exit(verify_blocks(path, over))
    else:
        sys.exit(verify(path, *numbers, over))


if __name__ == '__main__':
    main()
