# SPDX-License-Identifier: Apache-2.0
"""A power cut takes what was not flushed, and nothing else."""
from __future__ import annotations

import os
import pathlib
import random
import tempfile
import unittest

from lab import disk
from lab.errors import LabError
from tests.unit.lab import writes

SECTOR = disk.SECTOR
DISCARD = 4
SIZE = 64


def content(byte: int, count: int) -> bytes:
    """Sectors that differ from each other."""
    return b''.join(bytes([byte, number]) * (SECTOR // 2)
                    for number in range(count))


class DiskTest(unittest.TestCase):
    """A disk of 64 sectors, and a log."""

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.handles = []
        for name in ('image', 'log'):
            path = pathlib.Path(folder, name)
            path.touch()
            self.handles.append(os.open(path, os.O_RDWR))
            self.addCleanup(os.close, self.handles[-1])
        self.image, self.log = self.handles
        os.write(self.image, bytes(SIZE * SECTOR))
        self.written = writes.Log(self.log)

    def replay(self, end: int | None, seed: int = 1) -> disk.Loss:
        return disk.replay(self.log, self.image, end, random.Random(seed))

    def sectors(self, first: int, count: int) -> bytes:
        return os.pread(self.image, count * SECTOR, first * SECTOR)

    def test_what_is_flushed_stays(self) -> None:
        for seed in range(20):
            self.setUp()
            self.written.add(3, content(1, 5))
            self.written.flush()
            self.written.add(4, content(2, 1))
            self.written.flush()
            loss = self.replay(self.written.end, seed)
            self.assertEqual(disk.Loss(), loss)
            self.assertEqual(content(1, 1) + content(2, 1),
                             self.sectors(3, 2))
            self.assertEqual(content(1, 5)[2 * SECTOR:], self.sectors(5, 3))

    def test_what_is_not_may_go_in_part_or_whole(self) -> None:
        fates = set()
        for seed in range(60):
            self.setUp()
            self.written.flush()
            self.written.add(8, content(1, 4))
            loss = self.replay(self.written.end, seed)
            self.assertEqual(1, loss.cached)
            there = [self.sectors(8 + number, 1)
                     == content(1, 4)[number * SECTOR:][:SECTOR]
                     for number in range(4)]
            for number, kept in enumerate(there):
                if not kept:
                    self.assertEqual(bytes(SECTOR),
                                     self.sectors(8 + number, 1))
            self.assertEqual(not any(there), loss.lost == 1)
            self.assertEqual(any(there) and not all(there), loss.torn == 1)
            fates.add(tuple(there))
        self.assertLess(5, len(fates))

    def test_a_later_write_may_survive_an_earlier_one(self) -> None:
        found = set()
        for seed in range(60):
            self.setUp()
            self.written.add(0, content(1, 1))
            self.written.add(1, content(2, 1))
            self.replay(self.written.end, seed)
            found.add((any(self.sectors(0, 1)), any(self.sectors(1, 1))))
        self.assertEqual(4, len(found))

    def test_a_seed_decides(self) -> None:
        found = []
        for _ in range(2):
            self.setUp()
            for number in range(12):
                self.written.add(4 * number, content(number + 1, 4))
            self.replay(self.written.end, 5)
            found.append(self.sectors(0, SIZE))
        self.assertEqual(*found)

    def test_a_flush_after_the_cut_is_none(self) -> None:
        lost = 0
        for seed in range(30):
            self.setUp()
            self.written.flush()
            self.written.add(0, content(1, 1))
            end = self.written.end
            self.written.flush()
            lost += self.replay(end, seed).lost
        self.assertLess(0, lost)

    def test_nothing_is_lost_without_a_cut(self) -> None:
        self.written.add(0, content(1, 4))
        self.assertEqual(disk.Loss(), self.replay(None))
        self.assertEqual(content(1, 4), self.sectors(0, 4))

    def test_a_log_that_was_never_written(self) -> None:
        self.assertEqual(disk.Loss(), self.replay(0))

    def test_a_log_that_is_not_whole(self) -> None:
        self.written.add(0, content(1, 4))
        os.ftruncate(self.log, self.written.end - SECTOR)
        with self.assertRaises(LabError):
            self.replay(None)
        self.written.add(0, content(1, 4))
        os.pwrite(self.log, b'x', 0)
        with self.assertRaises(LabError):
            self.replay(None)

    def test_a_log_that_says_more_than_it_has(self) -> None:
        self.written.flush()
        self.written.entries += 1
        self.written.flush()
        with self.assertRaises(LabError):
            self.replay(None)

    def test_nothing_else_is_expected(self) -> None:
        self.written.add(0, b'', DISCARD)
        with self.assertRaises(LabError):
            self.replay(None)
