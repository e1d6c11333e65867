# SPDX-License-Identifier: Apache-2.0
"""The metadata device of a dm-clone: how large, and is it ours.

Facts from drivers/md/dm-clone-metadata.c and drivers/md/persistent-data.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Self

from cinder_dmclone.units import Bytes
from cinder_dmclone.units import Sectors

BLOCK = 4096

# The superblock is the first block; it is read whole because an empty one is
# told by all its bytes.
HEAD = BLOCK

_MAGIC = 0x8af27f64
_VERSION = 1

# struct superblock_disk: csum, flags, blocknr, uuid, magic, version,
# metadata_space_map_root, region_size, target_size
_SUPERBLOCK = struct.Struct('<IIQ16sQI128sQQ')

SUPERBLOCK_SIZE = _SUPERBLOCK.size

# The bitmap is a dm-array of 64-bit words: a block holds 4096 bytes less a
# header of 24 (struct array_block).
_REGIONS_PER_BLOCK = (BLOCK - 24) // 8 * 64
# Its blocks hang in a B-tree whose nodes hold up to 252 entries of 16 bytes
# and are at least half full.
_CHILDREN = 126
# The space map has two bits for each block, in blocks with a header of 16,
# and a B-tree for the rare counts above two.
_COUNTS_PER_BLOCK = (BLOCK - 16) * 4
# Superblock, index of the space map, roots, and what a commit touches above
# the leaves.
_FIXED = 64
# The kernel looks at each region, one by one, when it loads a table
# (__load_bitset_in_core in drivers/md/dm-clone-metadata.c), and a server waits
# for that. It takes up to 1 << 31 (validate_nr_regions in dm-clone-target.c).
_MOST_REGIONS = 1 << 24


def region_size(volume: Bytes, least: Bytes) -> Bytes:
    """The size of the regions in which a volume is copied.

    :param least: a power of two, which is doubled until there are not too
        many regions
    """
    found = least
    while volume > _MOST_REGIONS * found:
        found = Bytes(2 * found)
    return found


def size(volume: Bytes, least: Bytes) -> Bytes:
    """Size of the metadata LV for a volume, enough for any smaller one.

    One transaction may touch every block of the bitmap (a discard of the
    whole device does), and a touched block is written to a new place while
    the committed one is kept: all of it is needed twice, also the space
    map's own blocks.

    :param least: see ``region_size``
    """
    regions = min(volume.to_sectors().to_regions(least.to_sectors()),
                  _MOST_REGIONS)
    leaves = -(-regions // _REGIONS_PER_BLOCK)
    blocks, level = leaves, leaves
    while level > 1:
        level = -(-level // _CHILDREN)
        blocks += level
    blocks = _FIXED + 2 * blocks
    blocks += 2 * -(-blocks // _COUNTS_PER_BLOCK)
    return Bytes(blocks * BLOCK)


@dataclasses.dataclass(frozen=True)
class Superblock:
    """What a formatted metadata device says about its clone."""

    region_size: Sectors
    target_size: Sectors

    @classmethod
    def parse(cls, head: bytes) -> Self:
        """Read a superblock from the first ``HEAD`` bytes.

        The kernel formats a device whose superblock is all zeros without a
        word, so look before loading the table of a clone that exists. The
        checksum is left to the kernel, which refuses a wrong one.

        :raises ValueError: if there is no superblock of a dm-clone
        """
        if len(head) < HEAD:
            raise ValueError('the superblock is cut off')
        if not any(head[:HEAD]):
            raise ValueError('the superblock is empty')
        (_csum, _flags, block, _uuid, magic, version, _root, region_size,
         target_size) = _SUPERBLOCK.unpack_from(head)
        if magic != _MAGIC or block != 0:
            raise ValueError('it has no superblock of a dm-clone')
        if version != _VERSION:
            raise ValueError(f'superblock version {version} is not known')
        return cls(Sectors(region_size), Sectors(target_size))
