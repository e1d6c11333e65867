# SPDX-License-Identifier: Apache-2.0
"""Which regions of a dm-clone have arrived, from its metadata on the disk.

The kernel tells how many, not which. Facts from
drivers/md/dm-clone-metadata.c and drivers/md/persistent-data: the superblock
has the root of a B-tree, whose leaves have the blocks of an array of 64-bit
words, of which each bit is a region.
"""

from __future__ import annotations

import struct
import typing

from cinder_dmclone.host.dm import btree
from cinder_dmclone.host.dm import metadata
from cinder_dmclone.host.dm.metadata import BLOCK

# What follows ``metadata.Superblock``: bitset_root of superblock_disk.
_ROOT = struct.Struct('<Q')
# struct array_block: csum, max_entries, nr_entries, value_size, blocknr
_ARRAY = struct.Struct('<IIIIQ')
_WORD = 8

# From the first region on, up to and without the second.
Range = tuple[int, int]


def missing(image: bytes) -> typing.Iterator[Range]:
    """The regions that have not arrived, in order, as ranges.

    There may be half as many as regions.

    :param image: all of the metadata device, as of one moment
    :raises ValueError: if it makes no sense
    """
    block = metadata.Superblock.parse(image)
    total = -(-block.target_size // block.region_size)
    root, = _ROOT.unpack_from(image, metadata.SUPERBLOCK_SIZE)
    words = b''.join(_words(image, number) for _, number in
                     sorted(_leaves(image, root)))
    if len(words) * 8 < total:
        raise ValueError(f'{len(words) * 8} regions instead of {total}')
    return _ranges(words, total)


def _ranges(words: bytes, total: int) -> typing.Iterator[Range]:
    """Ranges of bits that are not set; whole bytes are skipped."""
    begin: int | None = None
    region = 0
    while region < total:
        byte = words[region // 8]
        if region % 8 == 0 and byte == (0xff if begin is None else 0):
            region += 8
            continue
        arrived = byte >> region % 8 & 1
        if arrived and begin is not None:
            yield begin, region
            begin = None
        elif not arrived and begin is None:
            begin = region
        region += 1
    if begin is not None:
        yield begin, total


def _leaves(image: bytes, number: int) -> typing.Iterator[tuple[int, int]]:
    """Index and number of each block of the array."""
    node = btree.Node.parse(_block(image, number), number)
    for key, value in zip(node.keys, node.values, strict=True):
        if node.internal:
            yield from _leaves(image, value)
        else:
            yield key, value


def _words(image: bytes, number: int) -> bytes:
    block = _block(image, number)
    _, most, count, size, here = _ARRAY.unpack_from(block)
    if here != number or size != _WORD or count > most or (
            _ARRAY.size + most * size > BLOCK):
        raise ValueError(f'block {number} is none of an array')
    return block[_ARRAY.size:_ARRAY.size + count * size]


def _block(image: bytes, number: int) -> bytes:
    found = image[number * BLOCK:(number + 1) * BLOCK]
    if not number or len(found) < BLOCK:
        raise ValueError(f'there is no block {number}')
    return found
