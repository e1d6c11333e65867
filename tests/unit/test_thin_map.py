# SPDX-License-Identifier: Apache-2.0
"""Which parts of a thin volume were written, from its pool's metadata."""

from __future__ import annotations

import pathlib
import random
import shutil
import struct
import subprocess
import typing
import unittest

from cinder_dmclone.host.dm import btree
from cinder_dmclone.host.dm import metadata
from cinder_dmclone.host import thin_map
from cinder_dmclone.privileged import thin
from tests.unit import base

BLOCK = metadata.BLOCK
CHUNK = 64 << 10
# What dm-btree puts into a node with values of eight bytes.
MOST = 252


class Pool:
    """The metadata of a pool on a disk, as the kernel writes it."""

    def __init__(self, volumes: typing.Mapping[int, typing.Sequence[int]],
                 most: int = MOST) -> None:
        """
        :param volumes: the blocks of each
        :param most: entries of a node
        """
        self.most = most
        self.blocks = [b'']
        self.reads = 0
        roots = {volume: self._tree({block: block << 24 for block in blocks})
                 for volume, blocks in volumes.items()}
        self.set_root(self._tree(roots))

    def set_root(self, root: int, magic: int = 27022010, size: int = 8,
                 incompatible: int = 0) -> None:
        head = struct.pack('<IIQ16sQII', 0, 0, 0, b'', magic, 2, 0)
        self.blocks[0] = (head.ljust(320, b'\7') + struct.pack(
            '<QQIIQIII', root, 0, CHUNK // 512, size, 0, 0, 0, incompatible)
            ).ljust(BLOCK, b'\0')

    def _tree(self, entries: typing.Mapping[int, int]) -> int:
        """The number of its root."""
        level, flags = sorted(entries.items()), 2
        while True:
            nodes = [level[first:first + self.most] for first in
                     range(0, len(level), self.most)] or [[]]
            level = [(node[0][0] if node else 0, self._node(node, flags))
                     for node in nodes]
            if len(level) == 1:
                return level[0][1]
            flags = 1

    def _node(self, entries: list[tuple[int, int]], flags: int) -> int:
        number = len(self.blocks)
        keys, values = ([entry[at] for entry in entries] for at in (0, 1))
        self.blocks.append(
            (btree.HEADER.pack(0, flags, number, len(keys), MOST, 8, 0)
             + struct.pack(f'<{len(keys)}Q', *keys).ljust(8 * MOST, b'\0')
             + struct.pack(f'<{len(keys)}Q', *values)).ljust(BLOCK, b'\0'))
        return number

    def read(self, numbers: typing.Sequence[int]) -> bytes:
        assert len(numbers) <= thin.BLOCKS
        self.reads += 1
        return b''.join(self.blocks[number] for number in numbers)


def table(volume: int, rest: str = '') -> str:
    return f'0 8192 thin 254:2 {volume}{rest}'


def status(count: int) -> str:
    return f'0 8192 thin {count * CHUNK // 512} 8191'


class AllocatedTest(base.TestCase):

    def found(self, read: thin_map.Read, volume: int,
              count: int) -> list[int]:
        return [block for first, end in thin_map.allocated(
                    table(volume), status(count), read)
                for block in range(first // CHUNK, end // CHUNK)]

    def test_ranges(self) -> None:
        for blocks, expected in (
                ([], []), ([0], [(0, 1)]), ([7], [(7, 8)]),
                ([0, 1, 2, 5, 7, 8], [(0, 3), (5, 6), (7, 9)]),
                (range(3, 9), [(3, 9)])):
            for most in (MOST, 2, 3):
                pool = Pool({1: blocks}, most)
                self.assertEqual(
                    [(first * CHUNK, end * CHUNK) for first, end in expected],
                    thin_map.allocated(table(1), status(len(blocks)),
                                       pool.read))

    def test_many_volumes_with_many_blocks(self) -> None:
        chance = random.Random(5)
        volumes = {volume: sorted(chance.sample(range(9000), chance.randrange(
            3000))) for volume in range(2, 900, 3)}
        pool = Pool(volumes)
        for volume in (2, 5, 449, 899):
            self.assertEqual(volumes[volume], self.found(
                pool.read, volume, len(volumes[volume])))
        for volume in (0, 1, 3, 900):
            self.assertRaisesRegex(ValueError, 'no volume', self.found,
                                   pool.read, volume, 0)

    def test_it_is_not_read_block_by_block(self) -> None:
        pool = Pool({1: range(0, 2 * 252 * 200, 2)})
        self.found(pool.read, 1, 252 * 200)
        self.assertLess(pool.reads, 9)

    def test_what_the_kernel_has_not_written_yet(self) -> None:
        """Or what has changed since."""
        pool = Pool({1: range(9)})
        for count in (8, 10, 0):
            self.assertRaisesRegex(ValueError, 'being written', self.found,
                                   pool.read, 1, count)

    def test_a_tree_that_changes(self) -> None:
        """When it has been read, though it is as large as before."""
        before = Pool({1: range(9)})
        after = Pool({0: [], 1: range(1, 10)})
        # Superblock, volumes, and the blocks of the one.
        pools = iter([before] * 3 + [after] * 2)
        self.assertRaisesRegex(
            ValueError, 'being written', self.found,
            lambda numbers: next(pools).read(numbers), 1, 9)
        self.assertEqual([], list(pools))

    def test_what_is_no_volume_of_its_own(self) -> None:
        """One with an external origin shows that where it has nothing."""
        pool = Pool({1: [0]})
        for line in (table(1, ' 254:9'), '0 8192 linear 254:2 1', '',
                     '0 8192 thin 254:2'):
            self.assertRaises(ValueError, thin_map.allocated, line,
                              status(1), pool.read)
        for line in ('', '0 8192 thin Fail', '0 8192 thin -'):
            self.assertRaises(ValueError, thin_map.allocated, table(1), line,
                              pool.read)

    def test_what_makes_no_sense(self) -> None:
        pool = Pool({1: range(9)})
        root = len(pool.blocks) - 1
        for bad in ({'magic': 1}, {'size': 16}, {'incompatible': 1}):
            pool.set_root(root, **bad)
            self.assertRaises(ValueError, self.found, pool.read, 1, 9)
        pool.set_root(root)
        self.assertEqual(list(range(9)), self.found(pool.read, 1, 9))
        good = pool.blocks[1]
        for place, text in ((8, b'\7'), (16, b'\xff'), (24, b'\4'),
                            (32, b'\4')):
            pool.blocks[1] = good[:place] + text + good[place + len(text):]
            self.assertRaises(ValueError, self.found, pool.read, 1, 9)

    @unittest.skipUnless(shutil.which('thin_restore'), 'needs thin_restore')
    def test_metadata_of_the_tools(self) -> None:
        """Which write what the kernel writes."""
        chance = random.Random(6)
        volumes = {volume: sorted(chance.sample(range(4000), 900))
                   for volume in range(1, 300, 7)}
        volumes[8], volumes[15] = [], list(range(1000))
        folder = pathlib.Path(self.folder())
        (folder / 'xml').write_text('\n'.join(_xml(volumes)))
        disk = folder / 'metadata'
        with disk.open('wb') as file:
            file.truncate(32 << 20)
        subprocess.run(['thin_restore', '-q', '-i', folder / 'xml', '-o',
                        disk], check=True)
        image = disk.read_bytes()

        def read(numbers: typing.Sequence[int]) -> bytes:
            return b''.join(image[number * BLOCK:(number + 1) * BLOCK]
                            for number in numbers)
        for volume, blocks in volumes.items():
            self.assertEqual(blocks, self.found(read, volume, len(blocks)))


def _xml(volumes: typing.Mapping[int, typing.Sequence[int]]
         ) -> typing.Iterator[str]:
    """What thin_restore reads."""
    yield ('<superblock uuid="" time="0" transaction="1" flags="0" '
           f'version="2" data_block_size="{CHUNK // 512}" '
           f'nr_data_blocks="{1 << 20}">')
    at = 0
    for volume, blocks in volumes.items():
        yield (f'<device dev_id="{volume}" mapped_blocks="{len(blocks)}" '
               'transaction="0" creation_time="0" snap_time="0">')
        for block in blocks:
            yield (f'<single_mapping origin_block="{block}" '
                   f'data_block="{at}" time="0"/>')
            at += 1
        yield '</device>'
    yield '</superblock>'
