# SPDX-License-Identifier: Apache-2.0
"""Whether a disk has what the guest said it had made durable.

It needs nothing but Python, so that it also runs in a node. What is on a disk
and what the lines of the console mean is said in guest.h.
"""
from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import json
import mmap
import os
import re
import stat
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping

BLOCK = 4096
SECTOR = 512
HEADERS = 2
CHUNK = 1 << 20
STAMP = struct.Struct('<4sIQQ')
_DATA, _HEADER = b'DMGB', b'DMGH'
_HEADER_MORE = struct.Struct('<QQII')
_CLUSTERS, _CLUSTER = 64, 16
_MASK = (1 << 64) - 1
_ZEROS = bytes(BLOCK)
_LINE = re.compile(r'@([A-Z] [^@*\n]*) \*([0-9a-f]{4})')
_BEGIN = re.compile(r'@[A-Z] ')
_MOST = 50


def _mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & _MASK
    x = (x ^ x >> 27) * 0x94d049bb133111eb & _MASK
    return x ^ x >> 31


class Positions:
    """Which block of a disk a sequence number is written to."""

    def __init__(self, disk: int, blocks: int) -> None:
        self._key = _mix(disk)
        self._data = blocks - HEADERS
        self._clusters = [_mix(self._key ^ number) >> 1
                          for number in range(_CLUSTERS)]

    def __call__(self, seq: int) -> int:
        x = _mix(self._key + seq & _MASK)
        where = x >> 1
        if x & 1:
            where = (self._clusters[where % _CLUSTERS]
                     + (x >> 32) % _CLUSTER)
        return HEADERS + where % self._data


def seal(begin: bytes, noise: bytes) -> bytes:
    """A whole block.

    :param begin: its stamp, and what more the first sector begins with
    :param noise: what it holds elsewhere (a block)
    """
    block = bytearray(noise)
    for at in range(0, BLOCK, SECTOR):
        block[at:at + STAMP.size] = begin[:STAMP.size]
    block[:len(begin)] = begin
    block[-4:] = zlib.crc32(memoryview(block)[:-4]).to_bytes(4, 'little')
    return bytes(block)


def data_block(disk: int, index: int, seq: int,
               noise: bytes = _ZEROS) -> bytes:
    """The block that ``disk`` has at ``index`` after the write ``seq``."""
    return seal(STAMP.pack(_DATA, disk, index, seq), noise)


def _intact(block: bytes, magic: bytes) -> bool:
    return (block.startswith(magic) and
            zlib.crc32(memoryview(block)[:-4]).to_bytes(4, 'little')
            == block[-4:])


@dataclasses.dataclass(frozen=True)
class Header:
    """What a disk says about itself.

    :ivar version: how often the header was written
    :ivar limit: no higher sequence number was ever used
    :ivar blocks: how many blocks the data area has
    :ivar fill: the id in blocks that were never written; 0: they are zeros
    :ivar boots: how often the disk was taken in use
    """

    disk: int
    version: int
    limit: int
    blocks: int
    fill: int
    boots: int

    @classmethod
    def parse(cls, block: bytes, index: int) -> Header | None:
        """None if the block ``index`` is not an intact header."""
        _, disk, where, version = STAMP.unpack_from(block)
        if not _intact(block, _HEADER) or where != index:
            return None
        return cls(disk, version, *_HEADER_MORE.unpack_from(block, STAMP.size))


class Record:
    """What the guest said on its console.

    The texts may be in any order, may overlap and may begin or end within a
    line: only lines with the right checksum count, and each says all that is
    needed to understand it.

    :ivar lines: the lines as words, in the order of the texts
    :ivar flushed: by disk id, by first sequence number of a boot: the last one
        that was flushed
    :ivar errors: what the guest complained about, each with the id of the
        disk; 0: it is not known
    :ivar garbled: how many lines did not count
    """

    def __init__(self, *texts: str) -> None:
        self.lines: list[list[str]] = []
        self.flushed: dict[int, dict[int, int]] = {}
        self.errors: list[tuple[int, str]] = []
        self.garbled = 0
        for text in texts:
            self._parse(text)

    def _parse(self, text: str) -> None:
        begun = len(_BEGIN.findall(text))
        for body, code in _LINE.findall(text):
            if f'{zlib.crc32(body.encode()) & 0xffff:04x}' == code:
                begun -= 1
                self._take(body.split())
        self.garbled += begun

    def _take(self, words: list[str]) -> None:
        self.lines.append(words)
        if words[0] in 'FQ':
            boots = self.flushed.setdefault(int(words[1], 16), {})
            first, last = int(words[2]), int(words[3])
            boots[first] = max(last, boots.get(first, 0))
        elif words[0] == 'E':
            error = int(words[1], 16), ' '.join(words[2:])
            if error not in self.errors:
                self.errors.append(error)


@dataclasses.dataclass
class Report:
    """What ``check`` found.

    :ivar findings: what is wrong, in words; the first of them
    :ivar wrong: how many findings there are
    :ivar checked: how many sequence numbers were ``acknowledged``, in how
        many ``blocks`` they had to be and how many of these hold a ``later``
        write; how many blocks are ``written``, ``filled`` and ``blank``
    """

    findings: list[str] = dataclasses.field(default_factory=list)
    wrong: int = 0
    checked: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter)

    def add(self, words: str) -> None:
        """Add a finding."""
        self.wrong += 1
        if len(self.findings) < _MOST:
            self.findings.append(words)


def wanted(record: Record, header: Header, report: Report) -> dict[int, int]:
    """The highest acknowledged sequence number of each block.

    Finds contradictions between the record and the header.
    """
    result: dict[int, int] = {}
    position = Positions(header.disk, header.blocks)
    used = 0
    for first, last in sorted(record.flushed.get(header.disk, {}).items()):
        if first <= used:
            report.add(f'sequence numbers from {first} were used twice: '
                       'a header was lost')
        if last > header.limit:
            report.add(f'the header is old: its limit is {header.limit}, '
                       f'{last} is acknowledged')
            continue
        for seq in range(first, last + 1):
            result[position(seq)] = seq
        report.checked['acknowledged'] += last - first + 1
        used = max(last, used)
    if not result:
        report.add(f'the record acknowledges no write of {header.disk:08x}')
    return result


class Judge:
    """Tells what is wrong with single blocks of a disk."""

    def __init__(self, header: Header, wanted: Mapping[int, int],
                 report: Report) -> None:
        self._header = header
        self._wanted = wanted
        self._report = report
        self._position = Positions(header.disk, header.blocks)

    def __call__(self, index: int, block: bytes) -> None:
        """Count a data block, or report what is wrong with it."""
        wanted = self._wanted.get(index, 0)
        kind, wrong = self._judge(index, block, wanted)
        if wrong:
            more = f', acknowledged is {wanted}' if wanted else ''
            self._report.add(f'block {index}: {kind}: {wrong}{more}')
        else:
            self._report.checked[kind] += 1
            self._report.checked['blocks'] += wanted > 0

    def _judge(self, index: int, block: bytes,
               wanted: int) -> tuple[str, str]:
        """What a block is, and what is wrong with that."""
        header = self._header
        if block == _ZEROS:
            return ('lost', 'zeros') if wanted or header.fill else (
                'blank', '')
        if not _intact(block, _DATA):
            return 'torn', _sectors(block)
        _, disk, where, seq = STAMP.unpack_from(block)
        if where != index:
            return 'misplaced', f'of block {where} of {disk:08x}'
        if header.fill and disk == header.fill and not seq:
            return ('lost', 'never written') if wanted else ('filled', '')
        if disk != header.disk:
            return 'foreign', f'of disk {disk:08x}'
        if self._position(seq) != index:
            return 'misplaced', f'{seq} is of block {self._position(seq)}'
        if seq > header.limit:
            return 'future', f'{seq}, the limit is {header.limit}'
        if seq < wanted:
            return 'old', f'{seq}'
        return 'later' if 0 < wanted < seq else 'written', ''


def _sectors(block: bytes) -> str:
    """The sequence numbers in the sectors of a torn block."""
    words = []
    for at in range(0, BLOCK, SECTOR):
        magic, disk, index, seq = STAMP.unpack_from(block, at)
        known = magic in (_DATA, _HEADER)
        words.append(f'{disk:08x}/{index}/{seq}' if known else
                     'other' if any(block[at:at + SECTOR]) else 'zeros')
    return 'sectors: ' + ', '.join(
        f'{len(list(group))} {word}'
        for word, group in itertools.groupby(words))


class Area:
    """The data area of a disk, open for reading or writing.

    It is all of the disk, or what is behind the partition of a boot disk.

    :param path: a block device, or the file that is one in a guest
    """

    def __init__(self, path: str, flags: int = os.O_RDONLY) -> None:
        if stat.S_ISBLK(os.stat(path).st_mode):
            flags |= os.O_DIRECT
        self.handle = os.open(path, flags)
        self.buffer = mmap.mmap(-1, CHUNK)
        size = os.lseek(self.handle, 0, os.SEEK_END)
        os.preadv(self.handle, [self.buffer], 0)
        self.offset = 0
        if self.buffer[440:444] == b'DMGD':
            self.offset = SECTOR * sum(
                struct.unpack_from('<II', self.buffer, 454))
        self.blocks = (size - self.offset) // BLOCK

    def read(self, index: int, count: int) -> bytes:
        """Some blocks, at most a chunk."""
        with memoryview(self.buffer)[:count * BLOCK] as view:
            os.preadv(self.handle, [view], self.offset + index * BLOCK)
        return self.buffer[:count * BLOCK]

    def chunks(self, blocks: int) -> Iterator[range]:
        """The area in pieces that one read can get, without the headers."""
        step = CHUNK // BLOCK
        for begin in range(HEADERS, blocks, step):
            yield range(begin, min(begin + step, blocks))


def _find_header(area: Area, report: Report) -> Header | None:
    blocks = [area.read(index, 1) for index in range(HEADERS)]
    found = [Header.parse(block, index)
             for index, block in enumerate(blocks)]
    best = max((header for header in found if header), default=None,
               key=lambda header: header.version)
    if not best:
        report.add('no header')
    elif best.blocks > area.blocks:
        report.add(f'{best.blocks} blocks became {area.blocks}')
        return None
    elif best.version > 1 and None in found:
        index = found.index(None)
        report.add(f'header {index}: torn: {_sectors(blocks[index])}')
    return best


def check(path: str, record: Record, everything: bool = True) -> Report:
    """Compare a disk with the record of the guest that had it.

    Nothing may be writing to the disk, and the record must not be newer than
    what is on it. Raises OSError if the headers cannot be read.

    :param everything: also look at the blocks of which the record says nothing
    """
    report = Report()
    area = Area(path)
    try:
        header = _find_header(area, report)
        for disk, error in record.errors:
            if not header or disk in (0, header.disk):
                report.add(f'the guest says: {error}')
        if header:
            expected = wanted(record, header, report)
            judge = Judge(header, expected, report)
            single = (range(index, index + 1) for index in sorted(expected))
            for piece in area.chunks(header.blocks) if everything else single:
                _check_piece(area, piece, judge, report)
    finally:
        os.close(area.handle)
    return report


def _check_piece(area: Area, piece: range, judge: Judge,
                 report: Report) -> None:
    try:
        data = area.read(piece.start, len(piece))
    except OSError as exc:
        report.add(f'blocks {piece.start} to {piece.stop - 1}: {exc}')
        return
    for number, index in enumerate(piece):
        judge(index, data[number * BLOCK:(number + 1) * BLOCK])


def fill(path: str, disk: int) -> None:
    """Fill a disk before a guest gets it, so that nothing on it is zeros.

    :param disk: the id in the blocks, not 0
    """
    area = Area(path, os.O_RDWR)
    noise = os.urandom(BLOCK)
    try:
        for piece in [range(HEADERS), *area.chunks(area.blocks)]:
            data = b''.join(data_block(disk, index, 0, noise)
                            for index in piece)
            area.buffer[:len(data)] = data
            with memoryview(area.buffer)[:len(data)] as view:
                os.pwritev(area.handle, [view],
                           area.offset + piece.start * BLOCK)
        os.fsync(area.handle)
    finally:
        os.close(area.handle)


def main() -> None:
    """``check`` prints a report as JSON; the exit status is 1 if wrong."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest='command', required=True)
    checker = commands.add_parser('check')
    checker.add_argument('disk')
    checker.add_argument('record', nargs='+', help='-: standard input')
    checker.add_argument('--acknowledged-only', action='store_true')
    filler = commands.add_parser('fill')
    filler.add_argument('disk')
    filler.add_argument('id', type=lambda text: int(text, 16))
    args = parser.parse_args()
    if args.command == 'fill':
        fill(args.disk, args.id)
        return
    texts = []
    for name in args.record:
        with open(0 if name == '-' else name, errors='replace') as file:
            texts.append(file.read())
    report = check(args.disk, Record(*texts), not args.acknowledged_only)
    print(json.dumps(vars(report), indent=1))
    sys.exit(report.wrong > 0)


if __name__ == '__main__':
    main()
