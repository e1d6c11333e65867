# SPDX-License-Identifier: Apache-2.0
"""Which parts of a thin volume have been written, from its pool's metadata.

The kernel tells how much, not which. Facts from drivers/md/dm-thin-metadata.c:
the superblock has the root of a B-tree, which has that of another for each
volume, whose keys are the blocks of the volume that have some of the pool.

The pool is in use meanwhile, and nothing is reserved in it. A block that the
tree on the disk leads to is written over only when no tree leads to it any
more, and the tree of a volume that nobody writes stays as it is: if it is the
same before and after, all that was read of it is of one moment. What is not
on the disk yet the kernel counts all the same, but what was discarded and what
was written may be as much: only a flush says that all of it is there.
"""

from __future__ import annotations

import struct
from typing import Callable, Iterator, Sequence

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm.btree import Node
from cinder_dmclone.host.dm.metadata import BLOCK
from cinder_dmclone.privileged.thin import BLOCKS
from cinder_dmclone.units import Bytes
from cinder_dmclone.units import Sectors

# thin_disk_superblock: csum, flags, blocknr, uuid, magic, version, time,
# trans_id, held_root, the roots of two space maps, data_mapping_root,
# device_details_root, data_block_size, metadata_block_size,
# metadata_nr_blocks, and three words of flags.
_SUPERBLOCK = struct.Struct('<IIQ16sQIIQQ128s128sQQIIQIII')
_MAGIC = 27022010
_VERSIONS = (1, 2)

# From the first byte on, up to and without the second.
Range = tuple[Bytes, Bytes]
Read = Callable[[Sequence[int]], bytes]


def allocated(table: str, status: str, read: Read) -> list[Range]:
    """The parts of a thin volume that were written, in order.

    The others are read as zeros.

    :param table: the line of its table
    :param status: that of its status
    :param read: reads blocks of its pool's metadata from the disk
    :raises ValueError: if that is not known: it is being written, or its
        metadata makes no sense
    """
    words = table.split()
    # Start, length, kind, pool, number; and perhaps another volume, which is
    # read where this one was not written.
    if words[2:3] != ['thin'] or len(words) != 5:
        raise ValueError(f'{table!r} is no thin volume of its own')
    volume = int(words[4])
    count, *_ = status.split()[3:] or ['']
    if not count.isdecimal():
        raise ValueError(f'{status!r} does not tell how much it has')
    chunk, root = _tree(read, volume)
    runs, found = [], 0
    for first, end in _runs(read, root):
        found += end - first
        runs.append((first * chunk, end * chunk))
    if (chunk, root) != _tree(read, volume) or (
            found * chunk != Sectors(int(count)).to_bytes()):
        raise ValueError('it is being written')
    return [(Bytes(first), Bytes(end)) for first, end in runs]


def until(seconds: float, monotonic: Callable[[], float], of: str,
          read: Read) -> Read:
    """What reads blocks of a volume, and not for longer.

    :raises CommandTimeout: if it would
    """
    deadline = monotonic() + seconds

    def in_time(numbers: Sequence[int]) -> bytes:
        if monotonic() > deadline:
            raise exceptions.CommandTimeout(command=f'map of {of}',
                                            seconds=seconds)
        return read(numbers)
    return in_time


def _tree(read: Read, volume: int) -> tuple[int, int]:
    """The size of a pool's blocks, in bytes, and the root of a volume."""
    (_, _, number, _, magic, version, *_, root, _, chunk, size, _, _, _,
     incompatible) = _SUPERBLOCK.unpack_from(read([0]))
    if magic != _MAGIC or number or version not in _VERSIONS or (
            incompatible or size * 512 != BLOCK or not chunk):
        raise ValueError('there is no superblock of a thin pool')
    while True:
        node = Node.parse(read([root]), root)
        if node.internal:
            below = [child for key, child in zip(node.keys, node.values)
                     if key <= volume]
            if not below:
                raise ValueError(f'its pool has no volume {volume}')
            root = below[-1]
            continue
        if volume not in node.keys:
            raise ValueError(f'its pool has no volume {volume}')
        return (int(Sectors(chunk).to_bytes()),
                node.values[node.keys.index(volume)])


def _runs(read: Read, root: int) -> Iterator[tuple[int, int]]:
    """Blocks of a volume that follow one another."""
    begin = end = 0
    for keys in _leaves(read, root):
        for first, last in _neighbours(keys):
            if first < end or last < first:
                raise ValueError('the blocks of a volume are out of order')
            if first == end:
                end = last + 1
                continue
            if begin < end:
                yield begin, end
            begin, end = first, last + 1
    if begin < end:
        yield begin, end


def _neighbours(keys: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of numbers that follow one another."""
    if keys and keys[-1] - keys[0] + 1 == len(keys):
        yield keys[0], keys[-1]
        return
    for key in keys:
        yield key, key


def _leaves(read: Read, root: int) -> Iterator[tuple[int, ...]]:
    """The keys of each leaf of a tree, in order."""
    level = [root]
    while level:
        below: list[int] = []
        for first in range(0, len(level), BLOCKS):
            part = level[first:first + BLOCKS]
            blocks = read(part)
            for at, number in enumerate(part):
                node = Node.parse(blocks[at * BLOCK:(at + 1) * BLOCK],
                                  number)
                if node.internal:
                    below += node.values
                elif below:
                    raise ValueError('the tree of a volume is not even')
                else:
                    yield node.keys
        level = below
