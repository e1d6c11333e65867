# SPDX-License-Identifier: Apache-2.0
"""The B-trees in which dm targets keep their metadata on disk.

Facts from drivers/md/persistent-data/dm-btree-internal.h. Checksums are left
to the kernel: each block says which one it is, and callers know what else has
to fit.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Self

from cinder_dmclone.host.dm.metadata import BLOCK

# struct node_header: csum, flags, blocknr, nr_entries, max_entries,
# value_size, padding; then the keys, and after max_entries of them the values.
HEADER = struct.Struct('<IIQIIII')
INTERNAL = 1
_WORD = 8


@dataclasses.dataclass(frozen=True)
class Node:
    """A node whose values are words.

    :ivar internal: whether the values are the numbers of further nodes
    :ivar keys: in order
    """

    internal: bool
    keys: tuple[int, ...]
    values: tuple[int, ...]

    @classmethod
    def parse(cls, block: bytes, number: int) -> Self:
        """Read a block.

        :param number: of the block
        :raises ValueError: if it is no such node
        """
        if len(block) < BLOCK:
            raise ValueError(f'there is no block {number}')
        _, flags, here, count, most, size, _ = HEADER.unpack_from(block)
        values = HEADER.size + most * _WORD
        if here != number or size != _WORD or count > most or (
                values + most * size > BLOCK):
            raise ValueError(f'block {number} is no node of a B-tree')
        words = f'<{count}Q'
        return cls(bool(flags & INTERNAL),
                   struct.unpack_from(words, block, HEADER.size),
                   struct.unpack_from(words, block, values))
