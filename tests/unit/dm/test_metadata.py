# SPDX-License-Identifier: Apache-2.0

import struct
import unittest

from cinder_dmclone.host.dm import metadata
from cinder_dmclone.units import Bytes
from cinder_dmclone.units import Sectors


def superblock(magic: int = 0x8af27f64, version: int = 1, block: int = 0,
               region: int = 8, target: int = 524288) -> bytes:
    # As a hex dump of one made by Linux 6.1 shows it.
    head = (struct.pack('<IIQ', 0x1234, 0, block) + bytes(16)
            + struct.pack('<QI', magic, version) + b'\xaa' * 128
            + struct.pack('<QQQ', region, target, 5))
    return head.ljust(metadata.HEAD, b'\0')


class SuperblockTest(unittest.TestCase):

    def test_parse(self) -> None:
        self.assertEqual(
            metadata.Superblock(Sectors(8), Sectors(524288)),
            metadata.Superblock.parse(superblock()))

    def test_an_empty_one_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, 'empty'):
            metadata.Superblock.parse(bytes(metadata.HEAD))

    def test_others_are_refused(self) -> None:
        for head in (superblock(magic=27022010), superblock(version=2),
                     superblock(block=1), superblock()[:512],
                     b'\x01' * metadata.HEAD):
            with self.assertRaises(ValueError):
                metadata.Superblock.parse(head)


class SizeTest(unittest.TestCase):

    def test_small_regions_do_not_cover_a_large_volume(self) -> None:
        self.assertEqual(8 << 40, metadata.largest(Bytes(4096)))

    def test_twice_the_bitmap_fits(self) -> None:
        for gib in (1, 64, 1024, 8192):
            for region in (4096, 65536, 1 << 20):
                volume = Bytes.from_gib(gib)
                bits = volume // region
                self.assertGreater(
                    metadata.size(volume, Bytes(region)), 2 * bits // 8)

    def test_it_stays_small(self) -> None:
        self.assertLess(
            metadata.size(Bytes.from_gib(1), Bytes(4096)), Bytes(1 << 20))
        self.assertLess(
            metadata.size(Bytes.from_gib(8192), Bytes(4096)),
            Bytes.from_gib(1))

    def test_whole_blocks(self) -> None:
        size = metadata.size(Bytes.from_gib(100), Bytes(4096))
        self.assertEqual(0, size % metadata.BLOCK)
