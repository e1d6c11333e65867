# SPDX-License-Identifier: Apache-2.0
"""Whatever is wrong with a block is found, and nothing else."""
from __future__ import annotations

import pathlib
import tempfile
import unittest
from unittest import mock

from lab import blocks
from lab.blocks import BLOCK, SECTOR, Stamp
from tests.unit.lab import damage

OWNER = 7
# Not a whole number of chunks.
COUNT = 2 * blocks.CHUNK // BLOCK + 50


class JudgeTest(unittest.TestCase):

    def test_whatever_is_wrong(self) -> None:
        latest = (0, damage.LATEST)
        for size in (SECTOR, BLOCK):
            for what, kind, block in damage.every(size=size):
                with self.subTest(what, size=size):
                    found = blocks.judge(block, damage.LEAST, latest)
                    self.assertEqual(kind, found.kind)
                    self.assertTrue(str(found).startswith(f'{kind}: '))

    def test_what_may_be_there(self) -> None:
        for sequence in range(damage.LEAST.sequence, damage.LATEST + 1):
            stamp = damage.LEAST._replace(sequence=sequence)
            found = blocks.judge(damage.seal(stamp), damage.LEAST,
                                 (0, damage.LATEST))
            self.assertEqual(('', stamp), (found.kind, found.stamp))

    def test_nothing_later_unless_it_may_be(self) -> None:
        later = damage.LEAST._replace(sequence=6)
        self.assertEqual('', blocks.judge(damage.seal(damage.LEAST),
                                          damage.LEAST).kind)
        self.assertEqual('future', blocks.judge(damage.seal(later),
                                                damage.LEAST).kind)

    def test_an_earlier_run_is_older_whatever_it_wrote(self) -> None:
        before = damage.LEAST._replace(sequence=1000)
        self.assertEqual('old', blocks.judge(
            damage.seal(before), damage.LEAST._replace(epoch=1)).kind)


class ContentsTest(unittest.TestCase):
    """A device that was filled, with two writes."""

    WRITES = [(3, 4, 10), (13, 1, 1)]

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = pathlib.Path(folder, 'device')
        self.path.write_bytes(bytes(COUNT * BLOCK))
        self.run_main('fill')
        self.run_main('write', 1, 3, 4, 10)
        self.run_main('write', 2, 13, 1, 1)

    def run_main(self, verb: str, *words: object) -> str:
        """What the program ends with."""
        argv = ['blocks', verb, str(self.path), str(OWNER), *map(str, words)]
        with mock.patch('sys.argv', argv):
            try:
                blocks.main()
            except SystemExit as end:
                return str(end.code or '')
        return ''

    def put(self, index: int, block: bytes) -> None:
        with self.path.open('r+b') as file:
            file.seek(index * BLOCK)
            file.write(block)

    def get(self, index: int) -> bytes:
        return self.path.read_bytes()[index * BLOCK:][:BLOCK]

    def everything(self, begin: int = 0, end: int = COUNT) -> str:
        return self.run_main('all', begin * BLOCK, end * BLOCK,
                             '3,4,10', '13,1,1')

    def written(self) -> str:
        return self.run_main('written', '3,4,10', '13,1,1')

    def test_all_is_well(self) -> None:
        self.assertEqual('', self.everything())
        self.assertEqual('', self.written())

    def test_whatever_is_wrong_with_any_block(self) -> None:
        for what, kind, block in damage.every(Stamp(OWNER, 33, 0, 1), 1):
            with self.subTest(what):
                self.put(33, block)
                said = f'block 33: {kind}: '
                self.assertTrue(self.everything().startswith(said))
                self.assertTrue(self.written().startswith(said))

    def test_a_lost_write(self) -> None:
        for index, wanted, found in ((33, 1, 0), (13, 2, 1), (13, 2, 0)):
            with self.subTest(index=index, found=found):
                before = self.get(index)
                self.put(index, blocks.seal(Stamp(OWNER, index, 0, found)))
                said = (f'block {index}: old: 7/{index}/0/{found}, '
                        f'wanted 7/{index}/0/{wanted}')
                self.assertEqual(said, self.everything())
                self.assertEqual(said, self.written())
                self.put(index, before)

    def test_a_write_at_another_place(self) -> None:
        for index in (4, 14, COUNT - 1):
            with self.subTest(index=index):
                before = self.get(index)
                self.put(index, blocks.seal(Stamp(OWNER, index, 0, 1)))
                self.assertTrue(self.everything().startswith(
                    f'block {index}: future: 7/{index}/0/1'))
                self.assertEqual('', self.written())
                self.put(index, before)

    def test_the_first_the_last_and_each_side_of_a_chunk(self) -> None:
        edge = blocks.CHUNK // BLOCK
        for index in (0, edge - 1, edge, 2 * edge, COUNT - 1):
            with self.subTest(index=index):
                before = self.get(index)
                self.put(index, bytes(BLOCK))
                self.assertIn(f'block {index}: lost', self.everything())
                self.assertEqual('', self.everything(0, index))
                self.assertEqual('', self.everything(index + 1, COUNT))
                self.put(index, before)

    def test_a_device_that_ends_too_early(self) -> None:
        with self.path.open('r+b') as file:
            file.truncate((COUNT - 1) * BLOCK)
        self.assertRaisesRegex(OSError, 'of 204800 bytes', self.everything)
