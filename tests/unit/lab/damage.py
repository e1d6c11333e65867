# SPDX-License-Identifier: Apache-2.0
"""All that can be wrong with a block that must not be missed."""
from __future__ import annotations

import random
import struct
import zlib

from lab import blocks
from lab.blocks import Stamp

# What a block has to be, and the latest that it may be.
LEAST = Stamp(0x1234abcd, 77, 0, 5)
LATEST = 9


def seal(stamp: Stamp, size: int = blocks.BLOCK, magic: bytes = b'DMCB',
         more: bytes = b'') -> bytes:
    """A block as a guest writes it, whose runs do not fill it alike.

    :param more: what follows the stamp in the first sector
    """
    begin = struct.pack('<4sIQQQ', magic, *stamp)
    block = bytearray(random.Random(stamp.sequence).randbytes(size))
    for at in range(0, size, blocks.SECTOR):
        block[at:at + len(begin)] = begin
    block[len(begin):len(begin) + len(more)] = more
    block[-4:] = zlib.crc32(block[:-4]).to_bytes(4, 'little')
    return bytes(block)


def every(least: Stamp = LEAST, latest: int = LATEST,
          size: int = blocks.BLOCK) -> list[tuple[str, str, bytes]]:
    """Damaged blocks: what became of one, what is said of it, the block.

    :param least: not the first write
    """
    good = seal(least, size)
    before = seal(least._replace(sequence=least.sequence - 1), size)
    half = size // 2
    flipped = bytearray(good)
    flipped[half + 100] ^= 4
    return [
        ('zeros in its place', 'lost', bytes(size)),
        ('the write before', 'old', before),
        ('what it was filled with', 'old', seal(Stamp(*least[:2]), size)),
        ('its begin over the write before', 'torn',
         good[:half] + before[half:]),
        ('its end over the write before', 'torn',
         before[:half] + good[half:]),
        ('its end over zeros', 'torn', bytes(half) + good[half:]),
        ('its begin over zeros', 'torn', good[:half] + bytes(size - half)),
        ('a stamp and nothing else', 'torn', good[:100] + bytes(size - 100)),
        ('all but its checksum', 'torn', good[:-4] + before[-4:]),
        ('a flipped bit', 'torn', bytes(flipped)),
        ('what is no block', 'torn', random.Random(1).randbytes(size)),
        ('a header', 'torn', seal(least, size, b'DMCH')),
        ('the next block', 'misplaced',
         seal(least._replace(block=least.block + 1), size)),
        ('that of another volume', 'foreign',
         seal(least._replace(owner=99), size)),
        ('a write that nobody has made', 'future',
         seal(least._replace(sequence=latest + 1), size)),
        ('a run that never was', 'future',
         seal(least._replace(epoch=1), size))]
