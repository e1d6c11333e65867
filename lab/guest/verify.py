# SPDX-License-Identifier: Apache-2.0
"""Whether a disk has what the guest said it had made durable.

It needs nothing but Python and lab/blocks.py, so that it also runs in a node.
What is on a disk and what the lines of the console mean is said in guest.h.
"""
from __future__ import annotations

import collections
import dataclasses
import json
import re
import struct
import sys
import zlib
from collections.abc import Mapping

from lab import blocks
from lab.blocks import SECTOR, Stamp

HEADERS = 2
HEADER_MORE = struct.Struct('<QQII')
# A disk with one partition that a guest boots from.
_SIGNATURE, _SIGNATURE_AT, _PARTITION_AT = b'DMGD', 440, 454
_CLUSTERS, _CLUSTER = 64, 16
_MASK = (1 << 64) - 1
_LINE = re.compile(r'@([A-Z] [^@*\n]*) \*([0-9a-f]{4})')
_BEGIN = re.compile(r'@[A-Z] ')
_MOST = 50


def mix(x: int) -> int:
    """All bits of the result (64) depend on all bits of ``x``."""
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & _MASK
    x = (x ^ x >> 27) * 0x94d049bb133111eb & _MASK
    return x ^ x >> 31


class Positions:
    """Which block of a disk a sequence number is written to."""

    def __init__(self, disk: int, blocks: int) -> None:
        self._key = mix(disk)
        self._data = blocks - HEADERS
        self._clusters = [mix(self._key ^ number) >> 1
                          for number in range(_CLUSTERS)]

    def __call__(self, seq: int) -> int:
        x = mix(self._key + seq & _MASK)
        where = x >> 1
        if x & 1:
            where = (self._clusters[where % _CLUSTERS]
                     + (x >> 32) % _CLUSTER)
        return HEADERS + where % self._data


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
        stamp = blocks.unseal(block, blocks.HEADER)
        if not stamp or stamp.block != index:
            return None
        return cls(stamp.owner, stamp.sequence,
                   *HEADER_MORE.unpack_from(blocks.more(block)))


class Record:
    """What the guest said on its console.

    The texts may be in any order, may overlap and may begin or end within a
    line: only lines with the right checksum count, and each says all that is
    needed to understand it.

    :ivar lines: the lines as words, in the order of the texts
    :ivar flushed: by disk id, by first sequence number of a boot: the last one
        that was flushed
    :ivar committed: the same of the last transaction that was committed
    :ivar errors: what the guest complained about, each with the id of the
        disk; 0: it is not known
    :ivar garbled: how many lines did not count
    """

    def __init__(self, *texts: str) -> None:
        self.lines: list[list[str]] = []
        self.flushed: dict[int, dict[int, int]] = {}
        self.committed: dict[int, dict[int, int]] = {}
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
        if words[0] in 'FQT':
            kind = self.committed if words[0] == 'T' else self.flushed
            boots = kind.setdefault(int(words[1], 16), {})
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
        kind, detail, stamp = blocks.judge(
            block, Stamp(header.disk, index, sequence=wanted),
            latest=(0, header.limit))
        if kind == 'lost' and not wanted and not header.fill:
            return 'blank', ''
        if header.fill and stamp == Stamp(header.fill, index):
            return ('lost', 'never written') if wanted else ('filled', '')
        if kind or not stamp:
            return kind, detail
        place = self._position(stamp.sequence)
        if place != index:
            return 'misplaced', f'{stamp} is of block {place}'
        return 'later' if 0 < wanted < stamp.sequence else 'written', ''


class Area(blocks.Device):
    """The data area of a disk: all of it, or what is behind the partition.

    :param path: a block device, or the file that is one in a guest
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        (first,) = self.read(range(1))
        if first[_SIGNATURE_AT:].startswith(_SIGNATURE):
            self.offset = SECTOR * sum(
                struct.unpack_from('<II', first, _PARTITION_AT))


def _find_header(area: Area, report: Report) -> Header | None:
    begin = area.read(range(HEADERS))
    found = [Header.parse(block, index)
             for index, block in enumerate(begin)]
    best = max((header for header in found if header), default=None,
               key=lambda header: header.version)
    if not best:
        report.add('no header')
    elif best.blocks > area.count:
        report.add(f'{best.blocks} blocks became {area.count}')
        return None
    elif best.version > 1 and None in found:
        index = found.index(None)
        report.add(f'header {index}: torn: sectors: '
                   f'{blocks.sectors(begin[index])}')
    return best


def check(path: str, record: Record) -> Report:
    """Compare a disk with the record of the guest that had it.

    Nothing may be writing to the disk, and the record must not be newer than
    what is on it. Raises OSError if the headers cannot be read.
    """
    report = Report()
    with Area(path) as area:
        header = _find_header(area, report)
        for disk, error in record.errors:
            if not header or disk in (0, header.disk):
                report.add(f'the guest says: {error}')
        if header:
            judge = Judge(header, wanted(record, header, report), report)
            for piece in area.pieces(range(HEADERS, header.blocks)):
                _check_piece(area, piece, judge, report)
    return report


def _check_piece(area: Area, piece: range, judge: Judge,
                 report: Report) -> None:
    try:
        found = area.read(piece)
    except OSError as exc:
        report.add(f'blocks {piece.start} to {piece.stop - 1}: {exc}')
        return
    for index, block in zip(piece, found):
        judge(index, block)


def main() -> None:
    """Run as ``verify DISK RECORD...``.

    Prints a report as JSON; the exit status is 1 if something is wrong.
    """
    disk, *names = sys.argv[1:]
    texts = []
    for name in names:
        with open(name, errors='replace') as file:
            texts.append(file.read())
    report = check(disk, Record(*texts))
    print(json.dumps(vars(report), indent=1))
    sys.exit(report.wrong > 0)


if __name__ == '__main__':
    main()
