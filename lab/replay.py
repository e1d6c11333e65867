# SPDX-License-Identifier: Apache-2.0
"""A volume that hydrates, at every flush of the log of its node's disk.

It is read as dm-clone reads it: from the data LV where the bitmap in the
metadata says that the region is there, else from the lender. Formats:
drivers/md/dm-clone-metadata.c and drivers/md/persistent-data (dm-array.c,
dm-btree-internal.h).
"""
from __future__ import annotations

import copy
import dataclasses
import os
import pathlib
import struct
from collections.abc import Iterable, Iterator

from lab import blocks
from lab import ledger
from lab.disk import Entry, SECTOR, entries
from lab.errors import LabError

_BLOCK = 4096
_MAGIC = 0x8af27f64
# Magic; region size and target size (sectors), root of the bitmap.
_SUPER_MAGIC = struct.Struct('<Q')
_SUPER_MAGIC_AT = 32
_SUPER_END = struct.Struct('<QQQ')
_SUPER_END_AT = 172
# csum, flags, block, entries, most entries, size of a value.
_NODE = struct.Struct('<IIQIIII')
_LEAF = 2
# csum, most entries, entries, size of a value, block.
_ARRAY = struct.Struct('<IIIIQ')
# Older than anything: a sector that is not whole.
_BROKEN: blocks.Version = (-1, -1)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an LV is on its disk, in sectors."""

    begin: int
    count: int

    @classmethod
    def parse(cls, table: str) -> Place:
        """Read the table of an LV in one piece; LabError for others."""
        words = table.split()
        if len(words) != 5 or words[2] != 'linear':
            raise LabError(f'an LV in several pieces: {table}')
        return cls(int(words[4]), int(words[1]))

    def cut(self, entry: Entry) -> tuple[int, int]:
        """First and end, in sectors of the disk, of a write's part here."""
        return (max(entry.sector, self.begin),
                min(entry.sector + entry.count, self.begin + self.count))


@dataclasses.dataclass(frozen=True)
class Bitmap:
    """Which regions are there.

    :ivar region: size of a region in sectors
    :ivar regions: how many there are
    :ivar bits: of each region, whether it is there, the first in bit 0
    """

    region: int
    regions: int
    # One large number, for there is one at each flush: it is quick to make
    # and to count, however small the regions are.
    bits: int

    @property
    def hydrated(self) -> int:
        """How many regions are there."""
        return self.bits.bit_count()

    def of(self, sectors: Iterable[int]) -> list[bool]:
        """Of each of these sectors, whether its region is there."""
        flags = self.bits.to_bytes(-(-self.regions // 8), 'little')
        return [bool(flags[region >> 3] >> (region & 7) & 1)
                for region in (sector // self.region for sector in sectors)]

    @classmethod
    def parse(cls, metadata: bytes | bytearray) -> Bitmap:
        """The bitmap of the last commit.

        :raises LabError: if the metadata is not whole
        """
        magic, = _SUPER_MAGIC.unpack_from(metadata, _SUPER_MAGIC_AT)
        if magic != _MAGIC:
            raise LabError(f'no superblock: {magic:x}')
        region, size, root = _SUPER_END.unpack_from(metadata, _SUPER_END_AT)
        count = -(-size // region)
        words = b''.join(_words(metadata, root))
        bits = int.from_bytes(words, 'little')
        if 8 * len(words) < count or bits >> count:
            raise LabError(f'a bitmap of {8 * len(words)} bits for {count}')
        return cls(region, count, bits)


def _words(metadata: bytes | bytearray, number: int) -> Iterator[bytes]:
    """The bitmap's bytes below a node of its B-tree, in order."""
    at = number * _BLOCK
    _, flags, block, used, most, _, _ = _NODE.unpack_from(metadata, at)
    if block != number:
        raise LabError(f'block {number} of the metadata says {block}')
    values = struct.unpack_from(f'<{used}Q', metadata,
                                at + _NODE.size + 8 * most)
    for child in values:
        if flags & _LEAF:
            yield _array(metadata, child)
        else:
            yield from _words(metadata, child)


def _array(metadata: bytes | bytearray, number: int) -> bytes:
    at = number * _BLOCK
    _, _, used, size, block = _ARRAY.unpack_from(metadata, at)
    if block != number:
        raise LabError(f'block {number} of the metadata says {block}')
    begin = at + _ARRAY.size
    return bytes(metadata[begin:begin + used * size])


class Witness(ledger.Ledger):
    """Remembers how long the log was when something had been said."""

    def __init__(self, book: ledger.Ledger, log: pathlib.Path) -> None:
        vars(self).update(vars(book))
        self.said: list[tuple[int, str]] = []
        self._log = log

    def take(self, text: str) -> None:
        self.said.append((self._log.stat().st_size, text))
        super().take(text)


@dataclasses.dataclass(frozen=True)
class Story:
    """What is known of a hydration beside the log.

    Lengths are those of the log at that moment, in bytes.

    :ivar since: the clone was ready
    :ivar local: the row said that the lender is not needed any more
    :ivar said: what was said, with lengths
    """

    since: int
    local: int
    said: list[tuple[int, str]]


class Volume:
    """A borrower's volume, from before the first write of a log.

    :ivar findings: what a cut would have broken, in words
    :ivar flushes: how many flushes were looked at
    :ivar partial: at how many of them some regions were there, not all
    """

    def __init__(self, book: ledger.Ledger, lender: bytes, data: Place,
                 metadata: Place) -> None:
        """Begin.

        :param book: what it had to hold when it was attached
        :param lender: a copy of the lender's areas
        """
        self.findings: list[str] = []
        self.flushes = 0
        self.partial = 0
        self.bitmap: Bitmap | None = None
        self._book = copy.deepcopy(book)
        self._metadata_place = metadata
        self._superblock = Place(metadata.begin, _BLOCK // SECTOR)
        self._metadata = bytearray(metadata.count * SECTOR)
        starts = ledger.areas(book.size)
        self._areas = [Place(data.begin + start // SECTOR,
                             ledger.AREA // SECTOR) for start in starts]
        self._sectors = [ledger.sector_of(index, starts)
                         for index in range(len(book.wanted))]
        self._lender = [
            self._version(index, lender[index * SECTOR:(index + 1) * SECTOR])
            for index in range(len(self._sectors))]
        self._data = len(self._sectors) * [_BROKEN]
        self._left: list[tuple[int, str]] = []
        self._changed = True
        self._local = False

    def _version(self, index: int, sector: bytes) -> blocks.Version:
        found = self._book.judge(index, sector)
        return _BROKEN if found.kind else found.version

    def replay(self, log: int, story: Story,
               omitted: Entry | None = None) -> None:
        """Look at each flush, after it and just before the next one.

        Ends where something is found.

        :param log: file descriptor
        :param omitted: a write that is left out
        """
        self._left = sorted(story.said)
        cached: list[Entry] = []
        for entry in entries(log):
            if entry == omitted:
                continue
            if not entry.flush:
                cached.append(entry)
                continue
            before = entry.data - SECTOR
            # Of what was cached, the superblock of the metadata alone, all
            # of the metadata, and the whole.
            for length, place in ((before, self._superblock),
                                  (before, self._metadata_place),
                                  (entry.data, None)):
                self._take(length)
                for one in cached:
                    if place:
                        self._write_metadata(one, log, place)
                    else:
                        self._write_data(one, log)
                if length > story.since:
                    self._look(length >= story.local)
                if self.findings:
                    return
            cached.clear()
            self._count(entry.data > story.since)

    def _take(self, length: int) -> None:
        """Take in what was said until the log had this length."""
        while self._left and self._left[0][0] <= length:
            self._book.take(self._left.pop(0)[1])
            self._changed = True

    def _count(self, looked: bool) -> None:
        if looked and self.bitmap:
            self.flushes += 1
            self.partial += 0 < self.bitmap.hydrated < self.bitmap.regions

    def _write_metadata(self, entry: Entry, log: int, place: Place) -> None:
        first, end = place.cut(entry)
        if first < end:
            begin = (first - place.begin) * SECTOR
            data = _read(log, entry, first, end)
            self._metadata[begin:begin + len(data)] = data
            self._changed = True

    def _write_data(self, entry: Entry, log: int) -> None:
        for number, area in enumerate(self._areas):
            first, end = area.cut(entry)
            if first >= end:
                continue
            data = _read(log, entry, first, end)
            index = number * area.count + first - area.begin
            for at in range(0, len(data), SECTOR):
                self._data[index] = self._version(index,
                                                  data[at:at + SECTOR])
                index += 1
            self._changed = True

    def _look(self, local: bool) -> None:
        """Compare what is there now.

        :param local: nobody would look at the lender
        """
        if not self._changed and local == self._local:
            return
        self._changed, self._local = False, local
        when = f'after {self.flushes} flushes'
        try:
            self.bitmap = self._arrived()
        except LabError as error:
            self.findings.append(f'{when}: {error}')
            return
        self.findings += [
            f'{when}: sector {index}: {version}, wanted {wanted}'
            for index, (is_here, here, there, wanted) in enumerate(zip(
                self.bitmap.of(self._sectors), self._data, self._lender,
                self._book.wanted))
            if (version := here if local or is_here else there) < wanted]

    def _arrived(self) -> Bitmap:
        """Which regions are there now.

        When all were nobody needs to know any more: it is overwritten, and
        removed.

        :raises LabError: if the metadata is not whole
        """
        last = self.bitmap
        begin = self._metadata[:_BLOCK]
        if last and last.hydrated == last.regions and not any(begin):
            return last
        return Bitmap.parse(self._metadata)

    def largest(self, log: int, since: int) -> Entry:
        """The largest write to the areas since the log had a length."""
        def inside(entry: Entry) -> int:
            return sum(max(0, end - first) for first, end in (
                area.cut(entry) for area in self._areas))
        return max((entry for entry in entries(log) if entry.data > since),
                   key=inside)


def _read(log: int, entry: Entry, first: int, end: int) -> bytes:
    return os.pread(log, (end - first) * SECTOR,
                    entry.data + (first - entry.sector) * SECTOR)
