# SPDX-License-Identifier: Apache-2.0
"""Blocks that say whose they are, where, and which write has made them.

Whatever writes to volumes in the lab writes such blocks, and whatever looks
at them afterwards asks ``judge``. A block has some sectors. Each begins with
the same stamp, and the last four bytes of the block are the CRC-32 of all
before; numbers are little endian:

    4 bytes  DATA, or HEADER for what a disk says about itself
    u32      owner: whose the block is
    u64      block: which block of the device it is
    u64      epoch: in which run of its owner it was written
    u64      sequence: by which write

lab/guest/format.c has the same. As a program it fills a device, writes over
single blocks and compares all with what has to be there. It needs nothing but
Python, so that it also runs in a node.
"""
from __future__ import annotations

import errno
import itertools
import mmap
import os
import random
import stat
import struct
import sys
import typing
import zlib
from collections.abc import Iterable, Iterator

SECTOR = 512
# What is read or written at once, in bytes.
CHUNK = 1 << 20
DATA, HEADER = b'DMCB', b'DMCH'
# What a program fills and writes; others have sizes of their own.
BLOCK = 4096
_STAMP = struct.Struct('<4sIQQQ')
_CRC = 4
_FILLING = random.Random(0).randbytes(BLOCK)

# Epoch and sequence; greater is later.
Version = tuple[int, int]
NEVER: Version = (0, 0)
# First block, how many, and every how many-th.
Write = tuple[int, int, int]


class Stamp(typing.NamedTuple):
    """What a block says about itself."""

    owner: int
    block: int
    epoch: int = 0
    sequence: int = 0

    @property
    def version(self) -> Version:
        return self.epoch, self.sequence

    def __str__(self) -> str:
        return '{:x}/{}/{}/{}'.format(*self)


class Verdict(typing.NamedTuple):
    """What ``judge`` says of a block.

    :ivar kind: what is wrong: lost, torn, misplaced, foreign, future or old;
        empty if nothing is
    :ivar detail: what was found in its place, in words
    :ivar stamp: of a block that is whole
    """

    kind: str
    detail: str
    stamp: Stamp | None

    @property
    def version(self) -> Version:
        """Of a block that is whole."""
        assert self.stamp
        return self.stamp.version

    def __str__(self) -> str:
        return f'{self.kind}: {self.detail}' if self.kind else ''


def seal(stamp: Stamp, size: int = BLOCK) -> bytes:
    """A whole block of so many bytes, which are some sectors."""
    begin = _STAMP.pack(DATA, *stamp)
    block = bytearray(_FILLING[:size])
    for at in range(0, size, SECTOR):
        block[at:at + len(begin)] = begin
    block[-_CRC:] = _checksum(block)
    return bytes(block)


def unseal(block: bytes, magic: bytes = DATA) -> Stamp | None:
    """The stamp of a block; None if it is not whole, or of another kind."""
    if not block.startswith(magic) or block[-_CRC:] != _checksum(block):
        return None
    return Stamp(*_STAMP.unpack_from(block)[1:])


def more(block: bytes) -> bytes:
    """What follows the stamp in the first sector."""
    return block[_STAMP.size:SECTOR]


def _checksum(block: bytes | bytearray) -> bytes:
    with memoryview(block)[:-_CRC] as body:
        return zlib.crc32(body).to_bytes(_CRC, 'little')


def judge(block: bytes, least: Stamp,
          latest: Version | None = None) -> Verdict:
    """Tell whether a block is what it has to be.

    :param least: what it has to be, or an earlier version of that
    :param latest: what it may be; nothing but ``least`` if it is left out
    """
    found = unseal(block)
    if found is None:
        if block == bytes(len(block)):
            return Verdict('lost', 'zeros', None)
        return Verdict('torn', f'sectors: {sectors(block)}', None)
    if found.block != least.block:
        return Verdict('misplaced', f'{found}', found)
    if found.owner != least.owner:
        return Verdict('foreign', f'{found}', found)
    if found.version > (latest or least.version):
        return Verdict('future', f'{found}', found)
    if found.version < least.version:
        return Verdict('old', f'{found}', found)
    return Verdict('', '', found)


def sectors(block: bytes) -> str:
    """What the sectors of a block say that is not whole, in words."""
    words = []
    for at in range(0, len(block), SECTOR):
        magic, *stamp = _STAMP.unpack_from(block, at)
        words.append(str(Stamp(*stamp)) if magic in (DATA, HEADER) else
                     'other' if any(block[at:at + SECTOR]) else 'zeros')
    return ', '.join(f'{len(list(group))} {word}'
                     for word, group in itertools.groupby(words))


class Device:
    """A block device, or a file that is one in a guest, as blocks.

    :ivar count: how many blocks it has behind ``offset``
    :ivar offset: where its first block begins, in bytes
    """

    def __init__(self, path: str, flags: int = os.O_RDONLY,
                 size: int = BLOCK) -> None:
        """Open it.

        :param size: of a block, in bytes
        """
        if stat.S_ISBLK(os.stat(path).st_mode):
            flags |= os.O_DIRECT
        self._handle = os.open(path, flags)
        self._size = size
        self._end = os.lseek(self._handle, 0, os.SEEK_END)
        # The same memory for all: page faults are expensive in a node.
        self._buffer = mmap.mmap(-1, CHUNK)
        self.offset = 0

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._handle)

    @property
    def count(self) -> int:
        return (self._end - self.offset) // self._size

    def pieces(self, blocks: range) -> Iterator[range]:
        """Some blocks, as one read or write can have them."""
        step = CHUNK // self._size
        for begin in range(blocks.start, blocks.stop, step):
            yield range(begin, min(begin + step, blocks.stop))

    def read(self, piece: range) -> list[bytes]:
        """The blocks of a piece.

        :raises OSError: they cannot be read
        """
        size, end = self._size, len(piece) * self._size
        with memoryview(self._buffer)[:end] as view:
            found = os.preadv(self._handle, [view], self._at(piece))
        if found < end:
            raise OSError(errno.EIO, f'{found} of {end} bytes')
        return [self._buffer[at:at + size] for at in range(0, end, size)]

    def write(self, piece: range, blocks: Iterable[bytes],
              durable: bool = False) -> None:
        """Write a piece.

        :param durable: with the write itself, not with a later flush
        """
        size = self._size
        for number, block in enumerate(blocks):
            self._buffer[number * size:(number + 1) * size] = block
        with memoryview(self._buffer)[:len(piece) * size] as view:
            os.pwritev(self._handle, [view], self._at(piece),
                       os.RWF_DSYNC if durable else 0)

    def flush(self) -> None:
        """Make all durable that was written."""
        os.fdatasync(self._handle)

    def own_memory(self) -> None:
        """Share no memory with the parent, in a process that was forked."""
        self._buffer = mmap.mmap(-1, CHUNK)

    def _at(self, piece: range) -> int:
        return self.offset + piece.start * self._size


def fill(path: str, owner: int) -> None:
    """Write all of a device, as sequence 0, and flush."""
    with Device(path, os.O_WRONLY) as device:
        for piece in device.pieces(range(device.count)):
            device.write(piece, (seal(Stamp(owner, index))
                                 for index in piece))
        device.flush()


def write(path: str, owner: int, sequence: int, first: int, count: int,
          step: int) -> None:
    """Write ``count`` blocks, every ``step``-th from ``first``, and flush."""
    with Device(path, os.O_WRONLY) as device:
        for index in _indexes((first, count, step)):
            device.write(range(index, index + 1),
                         [seal(Stamp(owner, index, 0, sequence))])
        device.flush()


def _indexes(write: Write) -> range:
    first, count, step = write
    return range(first, first + count * step, step)


def difference(path: str, owner: int, writes: list[Write],
               blocks: range | None = None) -> str:
    """What is wrong first with a device, in words; nothing may be.

    :param writes: all after it was filled; the first has sequence 1
    :param blocks: what is compared; if it is left out, what was written
    """
    wanted = {index: sequence for sequence, one in enumerate(writes, 1)
              for index in _indexes(one)}
    with Device(path) as device:
        pieces = (range(index, index + 1) for index in sorted(wanted)
                  ) if blocks is None else device.pieces(blocks)
        for piece in pieces:
            for index, block in zip(piece, device.read(piece)):
                least = Stamp(owner, index, 0, wanted.get(index, 0))
                verdict = judge(block, least)
                if verdict.kind:
                    return f'block {index}: {verdict}, wanted {least}'
    return ''


def main() -> None:
    """Run as ``blocks VERB DEVICE OWNER NUMBER... [FIRST,COUNT,STEP]...``."""
    verb, path, *words = sys.argv[1:]
    owner, *numbers = (int(word) for word in words if ',' not in word)
    writes = [typing.cast(Write, tuple(map(int, word.split(','))))
              for word in words if ',' in word]
    if verb == 'fill':
        fill(path, owner)
    elif verb == 'write':
        write(path, owner, *numbers)
    elif verb == 'written':
        sys.exit(difference(path, owner, writes) or 0)
    else:
        begin, end = (number // BLOCK for number in numbers)
        sys.exit(difference(path, owner, writes, range(begin, end)) or 0)


if __name__ == '__main__':
    main()
