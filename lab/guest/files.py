# SPDX-License-Identifier: Apache-2.0
"""Whether a file system has what the guest said it had made durable.

Beside verify.py, which does the same for disks without one. It needs nothing
but Python with SQLite, so that it also runs in a node. What the guest does in
a file system is said in guest.h.
"""
from __future__ import annotations

import collections
import contextlib
import json
import pathlib
import shutil
import sqlite3
import sys
import tempfile
from typing import Any

from lab import blocks
from lab.blocks import BLOCK, Stamp
from lab.guest.verify import mix, Record, Report

SLOTS, FOLDERS, MOST = 1024, 32, 16
ROWS, KEPT, ACCOUNTS, AMOUNTS = 4, 256, 16, 1000
DATABASE = 'rows'
_JOURNAL = f'{DATABASE}-journal'
# Whatever is in the file system beside folders of slots.
_OTHERS = {DATABASE, _JOURNAL, 'boots', 'new', 'lost+found'}
_MASK = (1 << 64) - 1
# Where the UUID of a file system is, behind which magic at which place.
_SUPERBLOCKS = ((0, b'XFSB', 32), (1024 + 56, b'\x53\xef', 1024 + 104))

# Of each boot, by its first number, the last one.
Boots = dict[int, int]


def identify(device: str) -> int:
    """The id of the file system on a device, or in a file that is one.

    :raises ValueError: there is none
    """
    with blocks.Device(device) as opened:
        (begin,) = opened.read(range(1))
    for at, magic, uuid in _SUPERBLOCKS:
        if begin[at:].startswith(magic):
            return int.from_bytes(begin[uuid:uuid + 4], 'big')
    raise ValueError(f'{device} has no file system')


def key(disk: int, seq: int) -> int:
    """What a sequence number stands for in a file system."""
    return mix(mix(disk) + seq & _MASK)


def slot(disk: int, seq: int) -> int:
    """Where a file is."""
    return key(disk, seq) % SLOTS


def size(disk: int, seq: int) -> int:
    """How many bytes a file has."""
    return (1 + (key(disk, seq) >> 32) % MOST) * BLOCK


def path(number: int) -> str:
    """The file of a slot, in its file system."""
    return f'{number % FOLDERS:02}/{number:04}'


class Files:
    """The files of one file system."""

    def __init__(self, folder: pathlib.Path, disk: int, record: Record,
                 report: Report) -> None:
        self._folder = folder
        self._disk = disk
        self._report = report
        # One may have been under way.
        self._begun = {int(words[7]): int(words[7]) for words in record.lines
                       if words[0] == 'B' and int(words[1], 16) == disk}
        self._wanted: dict[int, int] = {}
        for first, last in sorted(record.flushed.get(disk, {}).items()):
            self._begun[first] = last + 1
            for seq in range(first, last + 1):
                self._wanted[slot(disk, seq)] = seq
            report.checked['acknowledged'] += last - first + 1

    def check(self) -> None:
        """Look at every slot, and for what has no business there."""
        known = set()
        for number in range(SLOTS):
            known.add(path(number))
            wrong = self._wrong(number)
            if wrong:
                self._report.add(f'file {path(number)}: {wrong}')
        for found in sorted(self._folder.rglob('*')):
            name = str(found.relative_to(self._folder))
            if (not found.is_dir() and name not in known
                    and name.partition('/')[0] not in _OTHERS):
                self._report.add(f'file {name}: nobody has written it')

    def _wrong(self, number: int) -> str:
        """What is wrong with a slot; nothing if all is well."""
        wanted = self._wanted.get(number, 0)
        acknowledged = f', acknowledged is {wanted}' if wanted else ''
        try:
            data = (self._folder / path(number)).read_bytes()
        except FileNotFoundError:
            return f'lost{acknowledged}' if wanted else ''
        except OSError as error:
            return f'{error}{acknowledged}'
        wrong = self._judge(number, data, wanted)
        self._report.checked['files'] += not wrong
        return wrong and f'{wrong}{acknowledged}'

    def _judge(self, number: int, data: bytes, wanted: int) -> str:
        latest = max(self._begun.values(), default=0)
        seq = 0
        for index in range(max(1, -(-len(data) // BLOCK))):
            block = data[index * BLOCK:(index + 1) * BLOCK]
            least = Stamp(self._disk, number * MOST + index, 0, seq or wanted)
            verdict = blocks.judge(block, least, None if seq
                                   else (0, latest))
            if verdict.kind:
                return f'block {index}: {verdict}'
            seq = verdict.version[1]
        if len(data) != size(self._disk, seq):
            return (f'{len(data)} bytes, {seq} has '
                    f'{size(self._disk, seq)}')
        if slot(self._disk, seq) != number:
            return f'misplaced: {seq} is of slot {slot(self._disk, seq)}'
        if not any(first <= seq <= last
                   for first, last in self._begun.items()):
            return f'future: {seq} was never begun'
        return ''


class Database:
    """The database of one file system, at rest or as it was left."""

    def __init__(self, file: pathlib.Path, disk: int, committed: Boots,
                 report: Report) -> None:
        self._disk = disk
        self._committed = committed
        self._report = report
        # What was under way is taken back, as by a server that starts again.
        self._database = sqlite3.connect(file)

    def _all(self, statement: str) -> list[tuple[int, Any]]:
        return self._database.execute(statement).fetchall()

    def check(self) -> None:
        """Compare all of it."""
        with contextlib.closing(self._database):
            for said, in self._database.execute('pragma integrity_check'):
                if said != 'ok':
                    self._report.add(f'database: {said}')
            progress = {int(first): int(last) for first, last in self._all(
                'select first, last from progress')}
            self._check_progress(progress)
            self._check_accounts(progress)
            self._check_rows(progress)

    def _check_progress(self, progress: Boots) -> None:
        for first, last in sorted(self._committed.items()):
            found = progress.get(first, 0)
            # One may be there that was not said.
            if not last <= found <= last + 1:
                self._report.add(f'database: transactions from {first}: '
                                 f'{found} is the last, committed is {last}')
            self._report.checked['transactions'] += last - first + 1

    def _check_accounts(self, progress: Boots) -> None:
        wanted: collections.Counter[int] = collections.Counter()
        for first, last in progress.items():
            for seq in range(first, last + 1):
                x = key(self._disk, seq)
                amount = 1 + (x >> 32) % AMOUNTS
                wanted[x % ACCOUNTS] -= amount
                wanted[(x >> 8) % ACCOUNTS] += amount
        found = dict(self._all('select name, balance from accounts'))
        for name in range(ACCOUNTS):
            if found.get(name, 0) != wanted[name]:
                self._report.add(f'database: account {name}: '
                                 f'{found.get(name)}, not {wanted[name]}')

    def _check_rows(self, progress: Boots) -> None:
        first, last = max(progress.items(), default=(1, 0))
        wanted = {seq * ROWS + number: Stamp(self._disk, number, 0, seq)
                  for seq in range(max(first, last - KEPT + 1), last + 1)
                  for number in range(ROWS)}
        for number, body in self._all('select number, body from rows'):
            stamp = wanted.pop(number, None)
            if stamp is None:
                self._report.add(f'database: row {number} has no business '
                                 'there')
                continue
            verdict = blocks.judge(bytes(body), stamp)
            if verdict.kind:
                self._report.add(f'database: row {number}: {verdict}')
            else:
                self._report.checked['rows'] += 1
        if wanted:
            self._report.add(f'database: {len(wanted)} rows are lost, '
                             f'{min(wanted)} first')


def check(folder: pathlib.Path, disk: int, record: Record) -> Report:
    """Compare a mounted file system with the record of the guest that had it.

    Nothing may be writing to it, and the record must not be newer than what
    is in it.

    :param disk: what identify() gives
    """
    report = Report()
    for what, said in (('files', record.flushed),
                       ('transactions', record.committed)):
        if disk not in said:
            report.add(f'the record acknowledges no {what} of {disk:08x}')
    for number, error in record.errors:
        if number in (0, disk):
            report.add(f'the guest says: {error}')
    Files(folder, disk, record, report).check()
    with tempfile.TemporaryDirectory() as name:
        for each in DATABASE, _JOURNAL:
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(folder / each, name)
        try:
            Database(pathlib.Path(name, DATABASE), disk,
                     record.committed.get(disk, {}), report).check()
        except (OSError, sqlite3.Error) as error:
            report.add(f'database: {error}')
    return report


def main() -> None:
    """Run as ``files DEVICE FOLDER RECORD...``, with the device mounted there.

    Prints a report as JSON; the exit status is 1 if something is wrong.
    """
    device, folder, *names = sys.argv[1:]
    record = Record(*(pathlib.Path(name).read_text(errors='replace')
                      for name in names))
    report = check(pathlib.Path(folder), identify(device), record)
    print(json.dumps(vars(report), indent=1))
    sys.exit(report.wrong > 0)


if __name__ == '__main__':
    main()
