# SPDX-License-Identifier: Apache-2.0
"""What a volume has to have after its node has lost power.

As a program it runs in a node: some processes write to a device, flush now
and then, read again what they wrote, and say what is done. As a module it
keeps what they said, and compares a copy of the device with it.

Every sector is a block of its own, see lab/blocks.py. A write is some sectors
of a group, all of one process. A run of the program has a number, the epoch;
what its processes write follows from it. Copies of a volume have its owner
and its past, so that no two runs in such a family have the same number. What
they say:

    R EPOCH             the device was flushed, before anything else
    F EPOCH PEN WRITE   the writes up to this one are flushed
    D EPOCH PEN WRITE   this write was, as part of it
    W EPOCH PEN WRITE   the writes up to this one are done; the end
    E WORDS             a read gave something else
"""
from __future__ import annotations

import copy
import dataclasses
import os
import random
import sys
import time
from collections.abc import Iterator

from lab import blocks
from lab.blocks import NEVER, SECTOR, Stamp, Version

GROUP = 16
AREA = 8 << 20
PENS = 3
# The longest time before a flush in which nothing is written, in seconds.
PAUSE = 1.0


@dataclasses.dataclass(frozen=True)
class Write:
    """Some sectors, counted over all areas, and how they are written."""

    first: int
    count: int
    durable: bool
    flush: bool


class Pen:
    """What one process of one epoch writes, in order, from write 1."""

    def __init__(self, epoch: int, number: int, sectors: int) -> None:
        self._dice = random.Random(f'{epoch} {number}')
        self._number = number
        self._groups = sectors // GROUP // PENS
        self._writes: list[Write] = []

    def __getitem__(self, number: int) -> Write:
        while len(self._writes) < number:
            self._writes += self._batch()
        return self._writes[number - 1]

    def _batch(self) -> Iterator[Write]:
        """Writes up to a flush."""
        dice = self._dice
        left = dice.choice((1, 4, 16, 64))
        while left:
            left -= 1
            group = dice.randrange(self._groups) * PENS + self._number
            first = dice.randrange(GROUP)
            yield Write(group * GROUP + first,
                        dice.randint(1, GROUP - first),
                        dice.random() < 0.1, not left)


def areas(size: int) -> list[int]:
    """Where the areas of a device begin that are written to, in bytes."""
    last = (size - AREA) // SECTOR
    return [last * part // 3 * SECTOR for part in range(4)]


def sector_of(number: int, starts: list[int]) -> int:
    """Where a sector of the areas is on the device, in sectors.

    :param number: counted over all areas
    :param starts: where they begin, see areas()
    """
    area, within = divmod(number, AREA // SECTOR)
    return starts[area] // SECTOR + within


def _pen_of(number: int) -> int:
    """Which process writes a sector, counted over all areas."""
    return number // GROUP % PENS


class Program:
    """The part that runs in a node."""

    def __init__(self, path: str, owner: int, size: int,
                 through: bool = False) -> None:
        """Open the device.

        :param through: it has no cache, so that nobody flushes: what is
            written is durable
        """
        self._through = through
        self._owner = owner
        self._areas = areas(size)
        self._device = blocks.Device(path, os.O_RDWR, SECTOR)

    def _piece(self, number: int, count: int = 1) -> range:
        """Sectors of the device, which are in one area."""
        first = sector_of(number, self._areas)
        return range(first, first + count)

    def _put(self, epoch: int, turn: int, write: Write) -> None:
        piece = self._piece(write.first, write.count)
        self._device.write(piece, (
            blocks.seal(Stamp(self._owner, sector, epoch, turn), SECTOR)
            for sector in piece), write.durable and not self._through)

    def fill(self) -> None:
        """Write all areas, as epoch 0, and flush."""
        step = blocks.CHUNK // SECTOR
        for first in range(0, len(self._areas) * AREA // SECTOR, step):
            self._put(0, 0, Write(first, step, False, False))
        self._device.flush()

    def write(self, epoch: int, stop: str) -> None:
        """Write until there is a file ``stop``."""
        self._device.flush()
        _say(f'R {epoch}')
        pens = []
        for number in range(PENS):
            pens.append(os.fork())
            if not pens[-1]:
                self._device.own_memory()
                self._run(epoch, number, stop)
                os._exit(0)
        bad = [pen for pen in pens if os.waitpid(pen, 0)[1]]
        sys.exit(len(bad))

    def _run(self, epoch: int, number: int, stop: str) -> None:
        pen = Pen(epoch, number, len(self._areas) * AREA // SECTOR)
        written: dict[int, int] = {}
        turn = 0
        while not os.path.exists(stop):
            turn += 1
            write = pen[turn]
            self._put(epoch, turn, write)
            if write.durable or self._through:
                _say(f'D {epoch} {number} {turn}')
            written.update((write.first + index, turn)
                           for index in range(write.count))
            if write.flush and not self._through:
                # So that a cut finds something in the cache more often.
                time.sleep(random.random() * PAUSE)
                self._device.flush()
                _say(f'F {epoch} {number} {turn}')
                where = pen[random.randint(1, turn)].first
                self._look(epoch, where, written[where])
        _say(f'W {epoch} {number} {turn}')

    def _look(self, epoch: int, where: int, turn: int) -> None:
        """Read a sector again that was written in this run."""
        piece = self._piece(where)
        least = Stamp(self._owner, piece.start, epoch, turn)
        (sector,) = self._device.read(piece)
        verdict = blocks.judge(sector, least)
        if verdict.kind:
            _say(f'E sector {where}: {verdict}, wanted {least}')

    def flush(self, epoch: int) -> None:
        """Flush what a run has written that has ended."""
        self._device.flush()
        _say(f'R {epoch}')

    def copy(self, target: str) -> None:
        """Copy the areas to a file."""
        with open(target, 'wb') as file:
            for area in self._areas:
                begin = area // SECTOR
                for piece in self._device.pieces(
                        range(begin, begin + AREA // SECTOR)):
                    file.writelines(self._device.read(piece))


def _say(words: str) -> None:
    # In one piece: the lines of processes must not mix.
    os.write(1, f'{words}\n'.encode())


class Ledger:
    """What the sectors of one volume have to hold.

    :ivar epoch: number of the last run
    :ivar findings: what was wrong with what the runs read
    :ivar flushes: how many lines said that something was flushed
    :ivar wanted: the version that each sector has at least
    """

    def __init__(self, owner: int, size: int) -> None:
        self.owner = owner
        self.size = size
        self.epoch = 0
        self.findings: list[str] = []
        self.flushes = 0
        self._areas = areas(size)
        count = len(self._areas) * AREA // SECTOR
        self.wanted: list[Version] = [NEVER] * count
        self._pens: dict[Version, Pen] = {}
        # Up to which write of each pen of each epoch all is flushed.
        self._flushed: dict[Version, int] = {}
        # What is done, and flushed as soon as anything is.
        self._done: dict[Version, int] = {}
        # Runs up to the last one that were of other volumes.
        self._others: set[int] = set()
        # The last write of each pen of each epoch, where it is known.
        self._ends: dict[Version, int] = {}
        # Whether it was made while a run wrote, and not looked at since.
        self._instant = False

    def _pen(self, epoch: int, number: int) -> Pen:
        key = epoch, number
        if key not in self._pens:
            self._pens[key] = Pen(epoch, number, len(self.wanted))
        return self._pens[key]

    def begin(self, epoch: int) -> None:
        """Let a run of this volume begin; those between were of others.

        :param epoch: greater than that of any run before, in the family
        """
        self._others.update(range(self.epoch + 1, epoch))
        self.epoch = epoch

    def fork(self, writing: bool = False) -> Ledger:
        """The ledger of a copy that is about to be made.

        It has the past of this one, and a future of its own.

        :param writing: a run goes on meanwhile. What it has said until now
            will be there, and of each pen all before the last that is;
            end_with() has to be called when it has ended.
        """
        found = copy.copy(self)
        found.findings = []
        found.flushes = 0
        found.wanted = list(self.wanted)
        found._pens = {}
        found._flushed = dict(self._flushed)
        found._done = dict(self._done)
        found._others = set(self._others)
        found._ends = dict(self._ends)
        found._instant = writing or self._instant
        return found

    def end_with(self, other: Ledger) -> None:
        """Let nothing be there that the original's last run has not said.

        :param other: the ledger of the original
        """
        for pen in range(PENS):
            end = other._ends.get((self.epoch, pen))
            if end is not None:
                self._ends[self.epoch, pen] = end

    def take(self, text: str) -> None:
        """Take in what a run has said since the last time, whole lines."""
        for line in text.splitlines():
            kind, *words = line.split()
            if kind == 'E':
                self.findings.append(line)
                continue
            epoch, *more = map(int, words)
            if kind == 'R':
                for (before, pen), turn in self._done.items():
                    self._flush(before, pen, turn)
                self._done = {}
            elif kind == 'F':
                self.flushes += 1
                self._flush(epoch, more[0], more[1])
            elif kind == 'D':
                self._mark(epoch, more[0], more[1])
            else:
                self._done[epoch, more[0]] = more[1]
                self._ends[epoch, more[0]] = more[1]

    def _flush(self, epoch: int, pen: int, turn: int) -> None:
        begin = self._flushed.get((epoch, pen), 0)
        for number in range(begin + 1, turn + 1):
            self._mark(epoch, pen, number)
        self._flushed[epoch, pen] = max(begin, turn)

    def _mark(self, epoch: int, pen: int, turn: int) -> None:
        write = self._pen(epoch, pen)[turn]
        for index in range(write.first, write.first + write.count):
            self.wanted[index] = max(self.wanted[index], (epoch, turn))

    def compare(self, copy: bytes, settled: bool) -> list[str]:
        """What is wrong with a copy of the areas, in words.

        :param settled: what was found is on a disk and has to stay
        """
        verdicts = [
            self.judge(index, copy[index * SECTOR:(index + 1) * SECTOR],
                       wanted) for index, wanted in enumerate(self.wanted)]
        if self._instant:
            verdicts = self._in_order(verdicts)
        wrong = []
        for index, (found, wanted) in enumerate(zip(verdicts, self.wanted)):
            if found.kind:
                wrong.append(f'sector {index}: {found}, wanted {wanted}')
            elif settled:
                self.wanted[index] = found.version
        self._instant &= not settled
        return wrong

    def _in_order(self, verdicts: list[blocks.Verdict]
                  ) -> list[blocks.Verdict]:
        """The verdicts of a copy that shows one moment of the last run."""
        last: dict[int, int] = {}
        for index, found in enumerate(verdicts):
            if not found.kind and found.version[0] == self.epoch:
                pen = _pen_of(index)
                last[pen] = max(last.get(pen, 0), found.version[1])
        for pen, turn in last.items():
            self._flush(self.epoch, pen, turn - 1)
        return [found if found.kind or found.version >= wanted else
                found._replace(kind='old', detail=f'{found.stamp}')
                for found, wanted in zip(verdicts, self.wanted)]

    def judge(self, index: int, sector: bytes,
              wanted: Version = NEVER) -> blocks.Verdict:
        """Whether a sector has a version, or a later one.

        :param index: counted over all areas
        """
        where = sector_of(index, self._areas)
        found = blocks.judge(sector, Stamp(self.owner, where, *wanted),
                             latest=(self.epoch, sys.maxsize))
        if found.kind:
            return found
        kind = self._wrong(found.version, index)
        return found._replace(kind=kind, detail=f'{found.stamp}' * bool(kind))

    def _wrong(self, version: Version, index: int) -> str:
        """What is wrong with a version that is not too old; or nothing."""
        epoch, turn = version
        if epoch in self._others:
            return 'foreign'
        if turn > self._ends.get((epoch, _pen_of(index)), sys.maxsize):
            return 'future'
        return '' if self._covers(version, index) else 'misplaced'

    def _covers(self, version: Version, index: int) -> bool:
        """Whether a write has a sector; what filled the areas has all."""
        epoch, turn = version
        if not epoch:
            return True
        write = self._pen(epoch, _pen_of(index))[turn]
        return write.first <= index < write.first + write.count


def main() -> None:
    """Run as ``ledger fill|write|flush|copy DEVICE OWNER SIZE [MORE]...``.

    More is the epoch and a file that stops it (and "through", see Program),
    the epoch, or the target.
    """
    verb, path, owner, size, *words = sys.argv[1:]
    program = Program(path, int(owner), int(size), 'through' in words)
    if verb == 'fill':
        program.fill()
    elif verb == 'write':
        program.write(int(words[0]), words[1])
    elif verb == 'flush':
        program.flush(int(words[0]))
    else:
        program.copy(words[0])


if __name__ == '__main__':
    main()
