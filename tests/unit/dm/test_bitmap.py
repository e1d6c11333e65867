# SPDX-License-Identifier: Apache-2.0
"""Which regions have not arrived, from what the kernel writes."""

from __future__ import annotations

import struct

from cinder_dmclone.host.dm import bitmap
from cinder_dmclone.host.dm import metadata
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import storage

BLOCK = metadata.BLOCK


def image(total: int, arrived: set[int]) -> bytes:
    """That of a clone with so many regions."""
    return storage.Superblock(
        units.Sectors(8), units.Sectors(8 * total), frozenset(arrived)).pack()


class BitmapTest(base.TestCase):

    def test_ranges(self) -> None:
        for arrived, expected in (
                (set(), [(0, 200)]), (set(range(200)), []),
                ({0}, [(1, 200)]), ({199}, [(0, 199)]),
                (set(range(3, 130)), [(0, 3), (130, 200)]),
                ({7, 8, 64, 65}, [(0, 7), (9, 64), (66, 200)])):
            self.assertEqual(
                expected, list(bitmap.missing(image(200, arrived))))

    def test_every_pattern_of_some_regions(self) -> None:
        """Against the plain way."""
        for pattern in range(1 << 11):
            arrived = {n for n in range(11) if pattern >> n & 1}
            found = bitmap.missing(image(11, arrived))
            self.assertEqual(set(range(11)) - arrived, {
                region for first, end in found
                for region in range(first, end)})

    def test_a_tree_of_two_levels(self) -> None:
        """Leaves count from the key on, wherever they are."""
        whole = bytearray(image(65, set()).ljust(6 * BLOCK, b'\0'))
        struct.pack_into('<IIQIIII', whole, BLOCK, 0, 1, 1, 2, 252, 8, 0)
        struct.pack_into('<QQ', whole, BLOCK + 32, 0, 1)
        struct.pack_into('<QQ', whole, BLOCK + 32 + 252 * 8, 4, 2)
        for place, key, child in ((4, 0, 5), (2, 1, 3)):
            struct.pack_into('<IIQIIII', whole, place * BLOCK, 0, 2, place,
                             1, 252, 8, 0)
            struct.pack_into('<Q', whole, place * BLOCK + 32, key)
            struct.pack_into('<Q', whole, place * BLOCK + 32 + 252 * 8, child)
        for place, word in ((5, (1 << 64) - 2), (3, 0)):
            struct.pack_into('<IIIIQQ', whole, place * BLOCK, 0, 509, 1, 8,
                             place, word)
        self.assertEqual([(0, 1), (64, 65)],
                         list(bitmap.missing(bytes(whole))))

    def test_what_makes_no_sense(self) -> None:
        good = image(200, set())
        for place, text in ((BLOCK + 8, b'\7'), (BLOCK + 24, b'\7'),
                            (2 * BLOCK + 16, b'\7'), (2 * BLOCK + 8, b'\1'),
                            (BLOCK + 16, b'\0'),
                            (metadata.SUPERBLOCK_SIZE, b'\0'),
                            (metadata.SUPERBLOCK_SIZE, b'\x63')):
            bad = good[:place] + text + good[place + len(text):]
            self.assertRaises(ValueError, bitmap.missing, bad)
        self.assertRaises(ValueError, bitmap.missing, b'\0' * len(good))
        self.assertRaises(ValueError, bitmap.missing, good[:2 * BLOCK])
