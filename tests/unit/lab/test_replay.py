# SPDX-License-Identifier: Apache-2.0
"""Whatever a cut would break at some flush is found."""
from __future__ import annotations

import os
import pathlib
import struct
import tempfile
import unittest
from unittest import mock

from lab import blocks
from lab import disk
from lab import ledger
from lab import replay
from lab.errors import LabError
from tests.unit.lab import writes

SECTOR = disk.SECTOR
OWNER = 7
SIZE = 8 << 20
# Regions of 1 MiB.
REGION = 2048
DATA = replay.Place(4096, SIZE // SECTOR)
METADATA = replay.Place(64, 32)
ROOT, LEAF, ARRAY = 0, 1, 2


def block(*words: bytes) -> bytes:
    return b''.join(words).ljust(4096, b'\0')


def metadata(bits: int, root: int = LEAF) -> bytes:
    """Four blocks: superblock, node, array, node above the node."""
    return b''.join((
        block(struct.pack('<IIQ16sQI128s', 0, 0, 0, b'', 0x8af27f64, 1, b''),
              struct.pack('<QQQ', REGION, SIZE // SECTOR, root)),
        block(struct.pack('<IIQIIII', 0, 2, LEAF, 1, 252, 8, 0),
              bytes(8 * 252), struct.pack('<Q', ARRAY)),
        block(struct.pack('<IIIIQ', 0, 509, 1, 8, ARRAY),
              struct.pack('<Q', bits)),
        block(struct.pack('<IIQIIII', 0, 1, 3, 1, 252, 8, 0),
              bytes(8 * 252), struct.pack('<Q', LEAF))))


class BitmapTest(unittest.TestCase):

    def test_of_a_tree(self) -> None:
        for root in (LEAF, 3):
            found = replay.Bitmap.parse(metadata(0b101, root))
            self.assertEqual(replay.Bitmap(REGION, 8, 0b101), found)
            self.assertEqual(2, found.hydrated)
            self.assertEqual([True, True, False, True, False], found.of(
                [0, REGION - 1, REGION, 2 * REGION, 8 * REGION - 1]))

    def test_not_whole(self) -> None:
        good = metadata(1)
        for bad, text in (
                (bytes(len(good)), 'no superblock'),
                (good[:4096] + good[8192:], 'block 1 of the metadata says'),
                (good[:8192] + good[12288:] + good, 'block 2 .* says'),
                (metadata(1 << 8), 'a bitmap of 64 bits for 8')):
            self.assertRaisesRegex(LabError, text, replay.Bitmap.parse, bad)


class PlaceTest(unittest.TestCase):

    def test_of_a_table(self) -> None:
        self.assertEqual(replay.Place(2048, 8192),
                         replay.Place.parse('0 8192 linear 43:0 2048\n'))
        self.assertRaisesRegex(
            LabError, 'several pieces', replay.Place.parse,
            '0 8192 linear 43:0 2048\n8192 8192 linear 43:0 65536\n')


class VolumeTest(unittest.TestCase):
    """A volume of eight regions; areas are 1 MiB, that is 8192 sectors."""

    def setUp(self) -> None:
        self.enterContext(mock.patch.multiple(ledger, AREA=1 << 20))
        file = self.enterContext(tempfile.TemporaryFile())
        self.log = file.fileno()
        self.written = writes.Log(self.log)
        self.book = ledger.Ledger(OWNER, SIZE)
        self.book.epoch = 1
        self.said: list[tuple[int, str]] = []
        self.write = ledger.Pen(1, 0, 8192)[1]
        self.sectors = [area // SECTOR + within
                        for area in ledger.areas(SIZE)
                        for within in range(ledger.AREA // SECTOR)]
        self.sector = self.sectors[self.write.first]
        self.metadata(0)
        self.written.flush()
        self.since = self.written.end

    def content(self, first: int, count: int, epoch: int = 0,
                turn: int = 0) -> bytes:
        return b''.join(
            blocks.seal(blocks.Stamp(OWNER, sector, epoch, turn), SECTOR)
            for sector in range(first, first + count))

    def metadata(self, bits: int) -> None:
        self.written.add(METADATA.begin, metadata(bits))

    def hydrate(self) -> int:
        """Copy the region of the write; its bit."""
        region = self.sector // REGION
        self.written.add(DATA.begin + region * REGION,
                         self.content(region * REGION, REGION))
        return 1 << region

    def arrive(self, put: bool) -> None:
        """Make the region durable, and then its bit.

        :param put: with the write
        """
        bit = self.hydrate()
        if put:
            self.put()
        self.written.flush()
        self.metadata(bit)
        self.written.flush()

    def put(self) -> None:
        """Write there."""
        self.written.add(DATA.begin + self.sector, self.content(
            self.sector, self.write.count, 1, 1))

    def say(self) -> None:
        self.said.append((self.written.end, 'F 1 0 1\n'))

    def lender(self) -> bytes:
        return b''.join(self.content(sector, 1) for sector in self.sectors)

    def overwritten(self, bits: int) -> replay.Volume:
        """The metadata are when these regions were there."""
        for region in range(8):
            self.written.add(DATA.begin + region * REGION,
                             self.content(region * REGION, REGION))
        self.written.flush()
        self.metadata(bits)
        self.written.flush()
        self.written.add(METADATA.begin, bytes(len(metadata(0))))
        self.written.flush()
        return self.replay()

    def replay(self, lender: bytes | None = None,
               local: int = 1 << 30,
               omit: bool = False) -> replay.Volume:
        volume = replay.Volume(self.book, lender or self.lender(), DATA,
                               METADATA)
        volume.replay(
            self.log, replay.Story(self.since, local, self.said),
            volume.largest(self.log, self.since) if omit else None)
        return volume

    def test_as_it_must_be(self) -> None:
        self.arrive(put=True)
        self.say()
        self.written.flush()
        volume = self.replay()
        self.assertEqual([], volume.findings)
        self.assertEqual((3, 2), (volume.flushes, volume.partial))

    def test_the_bit_before_the_data(self) -> None:
        """A cache may keep the one and lose the other."""
        self.metadata(self.hydrate())
        self.written.flush()
        volume = self.replay()
        self.assertEqual(
            sum(sector // REGION == self.sector // REGION
                for sector in self.sectors), len(volume.findings))
        self.assertIn('after 0 flushes: sector ', volume.findings[0])

    def test_what_was_said_before_it_was_flushed(self) -> None:
        self.arrive(put=False)
        self.put()
        self.say()
        self.written.flush()
        self.assertEqual(
            f'after 2 flushes: sector {self.write.first}: (0, 0), wanted '
            '(1, 1)', self.replay().findings[0])

    def test_the_superblock_before_the_bitmap(self) -> None:
        self.written.add(METADATA.begin, metadata(0, root=3)[:4096])
        self.metadata(0)
        self.written.flush()
        self.assertEqual([], self.replay().findings)
        self.written.add(METADATA.begin + 24, bytes(4096))
        self.written.flush()
        self.written.add(METADATA.begin + 24, metadata(0)[12288:])
        self.written.add(METADATA.begin, metadata(0, root=3)[:4096])
        self.written.flush()
        self.assertEqual(
            ['after 2 flushes: block 3 of the metadata says 0'],
            self.replay().findings)

    def test_the_end_before_all_is_there(self) -> None:
        """The row lets go of the lender, and the data is not durable."""
        for region in range(8):
            self.written.add(DATA.begin + region * REGION,
                             self.content(region * REGION, REGION))
        local = self.written.end
        self.written.flush()
        self.metadata((1 << 8) - 1)
        self.written.flush()
        self.assertEqual([], self.replay().findings)
        self.assertEqual(8192, len(self.replay(local=local).findings))

    def test_what_was_flushed_is_not_there(self) -> None:
        self.arrive(put=False)
        self.say()
        self.written.flush()
        volume = self.replay()
        self.assertEqual(
            f'after 1 flushes: sector {self.write.first}: (0, 0), wanted '
            '(1, 1)', volume.findings[0])
        self.assertEqual(self.write.count, len(volume.findings))

    def test_no_bit_for_what_was_flushed(self) -> None:
        self.hydrate()
        self.put()
        self.written.flush()
        self.say()
        self.written.flush()
        self.assertEqual(self.write.count, len(self.replay().findings))

    def test_a_lender_that_has_lost_something(self) -> None:
        lender = bytearray(self.lender())
        lender[5 * SECTOR:6 * SECTOR] = bytes(SECTOR)
        self.written.flush()
        volume = self.replay(bytes(lender))
        self.assertTrue(volume.findings)
        self.assertTrue(all('sector 5: ' in text
                            for text in volume.findings))

    def test_metadata_that_is_not_whole(self) -> None:
        self.written.add(METADATA.begin + 8, bytes(4096))
        self.written.flush()
        self.assertIn('block 1 of the metadata says 0',
                      self.replay().findings[0])

    def test_it_is_overwritten_when_all_is_there(self) -> None:
        volume = self.overwritten((1 << 8) - 1)
        self.assertEqual([], volume.findings)
        self.assertTrue(volume.bitmap and volume.bitmap.hydrated == 8)

    def test_it_is_overwritten_before(self) -> None:
        volume = self.overwritten((1 << 7) - 1)
        self.assertEqual(['after 2 flushes: no superblock: 0'],
                         volume.findings)

    def test_a_write_that_is_left_out(self) -> None:
        self.arrive(put=True)
        self.assertEqual([], self.replay().findings)
        self.assertNotEqual([], self.replay(omit=True).findings)


class WitnessTest(unittest.TestCase):

    def test_it_notes_when_and_passes_on(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(3))
            file.flush()
            book = ledger.Ledger(OWNER, SIZE)
            witness = replay.Witness(book, pathlib.Path(file.name))
            witness.take('F 1 0 1\n')
            os.truncate(file.name, 5)
            witness.take('F 1 0 2\n')
        self.assertEqual([(3, 'F 1 0 1\n'), (5, 'F 1 0 2\n')],
                         witness.said)
        self.assertEqual(2, witness.flushes)
