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


class RegionTest(unittest.TestCase):

    def test_a_large_volume_has_larger_ones(self) -> None:
        for gib, kib in ((1, 4), (64, 4), (65, 8), (256, 16), (1024, 64),
                         (1025, 128), (1 << 20, 1 << 16)):
            self.assertEqual(Bytes(kib << 10), metadata.region_size(
                Bytes.from_gib(gib), Bytes(4096)), gib)

    def test_none_is_smaller_than_the_least(self) -> None:
        self.assertEqual(Bytes(1 << 20), metadata.region_size(
            Bytes.from_gib(1), Bytes(1 << 20)))


class SizeTest(unittest.TestCase):

    def test_twice_the_bitmap_fits(self) -> None:
        for gib in (1, 64, 1024, 8192, 1 << 20):
            for least in (4096, 65536, 1 << 20):
                volume = Bytes.from_gib(gib)
                region = metadata.region_size(volume, Bytes(least))
                bits = volume // region
                self.assertGreater(
                    metadata.size(volume, Bytes(least)), 2 * bits // 8)

    def test_what_is_enough_is_enough_for_less(self) -> None:
        sizes = [metadata.size(Bytes.from_gib(gib), Bytes(4096))
                 for gib in range(1, 512)]
        self.assertEqual(sorted(sizes), sizes)

    def test_it_stays_small(self) -> None:
        self.assertLess(
            metadata.size(Bytes.from_gib(1), Bytes(4096)), Bytes(1 << 20))
        self.assertLess(
            metadata.size(Bytes.from_gib(1 << 20), Bytes(4096)),
            Bytes(8 << 20))

    def test_whole_blocks(self) -> None:
        size = metadata.size(Bytes.from_gib(100), Bytes(4096))
        self.assertEqual(0, size % metadata.BLOCK)
