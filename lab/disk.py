# SPDX-License-Identifier: Apache-2.0
"""A disk of a node with a write cache that a power cut empties.

qemu-storage-daemon serves it to the node's kernel (NBD) and logs every write
and every flush in the format of the kernel's dm-log-writes. A power cut makes
the disk anew: what it was when it was switched on, all that was logged before
the last flush, and of each later write none, some or all of its sectors.
"""
from __future__ import annotations

import dataclasses
import os
import pathlib
import random
import struct
from collections.abc import Iterator, Sequence

from lab.errors import LabError
from lab.network import CONTROLLER, Network
from lab.processes import Group, run, wait_for

SECTOR = 512
_MAGIC = 0x6a736677736872
_SUPER = struct.Struct('<QQQI')
_ENTRY = struct.Struct('<QQQQ')
_FLUSH = 1


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of a log.

    :ivar sector: where a write begins on the disk
    :ivar count: how many sectors it has
    :ivar data: where they are in the log, in bytes
    """

    sector: int
    count: int
    flush: bool
    data: int


@dataclasses.dataclass
class Loss:
    """What became of the writes since the last flush.

    :ivar cached: how many there were
    :ivar lost: how many of them left nothing on the disk
    :ivar torn: how many of them left some of their sectors
    """

    cached: int = 0
    lost: int = 0
    torn: int = 0

    def __add__(self, other: Loss) -> Loss:
        return Loss(self.cached + other.cached, self.lost + other.lost,
                    self.torn + other.torn)


def entries(log: int) -> Iterator[Entry]:
    """All of a log that was closed in order; ``log`` is a file descriptor.

    Raises LabError if it has not as many entries as it says.
    """
    end = os.fstat(log).st_size
    if not end:
        return
    magic, version, wanted, size = _SUPER.unpack(
        os.pread(log, _SUPER.size, 0))
    if (magic, version, size) != (_MAGIC, 1, SECTOR):
        raise LabError(f'no log of writes: {magic:x}, {version}, {size}')
    at, found = SECTOR, 0
    while at < end and found < wanted:
        sector, count, flags, _ = _ENTRY.unpack(
            os.pread(log, _ENTRY.size, at))
        if flags & ~_FLUSH:
            raise LabError(f'a log of writes has something else: {flags}')
        at += SECTOR
        yield Entry(sector, count, bool(flags & _FLUSH), at)
        at += count * SECTOR
        found += 1
    if at < end or found < wanted:
        raise LabError(f'{found} of {wanted} entries in {at} of {end} bytes')


def durable(log: Sequence[Entry], end: int) -> int:
    """How many entries a cut cannot take back.

    :param end: how long the log was when the power was cut; a later flush
        made nothing durable
    """
    return max((number for number, entry in enumerate(log, 1)
                if entry.flush and entry.data <= end), default=0)


def surviving(entry: Entry, kept: float,
              dice: random.Random) -> list[tuple[int, int]]:
    """First and number of the sectors of a write that reached the disk.

    :param kept: how probable it is that all of them did
    """
    if dice.random() < kept:
        return [(0, entry.count)]
    if entry.count == 1 or dice.random() < 0.5:
        return []
    # In pieces, as a disk works, from single sectors up.
    pieces, at, there = [], 0, dice.random() < 0.5
    while at < entry.count:
        size = min(dice.choice((1, 1, 2, 3, 8, 64, 512)), entry.count - at)
        if there:
            pieces.append((at, size))
        at, there = at + size, not there
    return pieces


def replay(log: int, image: int, end: int | None,
           dice: random.Random) -> Loss:
    """Bring an image to what a log made of it; both are file descriptors.

    :param end: how long the log was when the power was cut; None: nothing is
        lost
    """
    written = list(entries(log))
    sure = len(written) if end is None else durable(written, end)
    loss = Loss()
    # Now a cache that was all but empty, now one that wrote nothing.
    kept = dice.choice((0.0, 0.1, 0.5, 0.9, 1.0))
    for number, entry in enumerate(written):
        pieces = [(0, entry.count)]
        if number >= sure and entry.count:
            pieces = surviving(entry, kept, dice)
            loss.cached += 1
            loss.lost += not pieces
            loss.torn += 0 < sum(size for _, size in pieces) < entry.count
        for first, size in pieces:
            _copy(log, entry.data + first * SECTOR, image,
                  (entry.sector + first) * SECTOR, size * SECTOR)
    return loss


def _copy(source: int, begin: int, target: int, at: int, size: int) -> None:
    while size:
        done = os.copy_file_range(source, target, size, begin, at)
        if not done:
            raise LabError('a log of writes ends too early')
        begin, at, size = begin + done, at + done, size - done


class Disk:
    """The disk of a raw ``image``, which exists; files lie beside it.

    :ivar port: where it is served at the controller's address
    :ivar writes: the log, while it is served; a link to it keeps it
    """

    def __init__(self, image: pathlib.Path, network: Network,
                 port: int) -> None:
        self.port = port
        self._image = image
        self._overlay = image.with_suffix('.overlay')
        self.writes = image.with_suffix('.writes')
        self._ready = image.with_suffix('.ready')
        self._network = network
        self._group = Group(image.with_suffix('.pid'))

    def start(self) -> None:
        """Serve it; a node can have it afterwards."""
        if self._group.members():
            # Its node ended by itself.
            self.close()
        for path in (self._overlay, self.writes, self._ready):
            path.unlink(missing_ok=True)
        self.writes.touch()
        # The image stays what it was when it was switched on.
        run('qemu-img', 'create', '-q', '-f', 'qcow2', '-F', 'raw',
            '-b', str(self._image), str(self._overlay))
        log = self._image.with_suffix('.log')
        self._group.start(self._network.argv(
            'qemu-storage-daemon', '--pidfile', str(self._ready),
            '--blockdev', 'driver=qcow2,node-name=disk,file.driver=file,'
            f'file.filename={self._overlay},file.cache.no-flush=on,'
            'backing.driver=raw,backing.file.driver=file,'
            f'backing.file.filename={self._image}',
            '--blockdev', 'driver=file,node-name=writes,cache.no-flush=on,'
            f'filename={self.writes}',
            '--blockdev', 'driver=blklogwrites,node-name=logged,file=disk,'
            f'log=writes,log-sector-size={SECTOR}',
            '--nbd-server', 'addr.type=inet,max-connections=1,'
            f'addr.host={CONTROLLER},addr.port={self.port}',
            '--export', 'type=nbd,id=disk,node-name=logged,name=disk,'
            'writable=on'), log)
        wait_for(f'the server of {self._image} (see {log})', self._serves)

    def _serves(self) -> bool:
        if self._group.leader() is None:
            raise LabError(f'no server of {self._image}')
        return self._ready.exists()

    def cut(self, dice: random.Random) -> Loss:
        """Lose what was not flushed; the node's kernel must be dead."""
        # What is on its way now is logged; the flush at the end is ours.
        return self._end(self.writes.stat().st_size, dice)

    def close(self) -> None:
        """Lose nothing; the node's kernel must be dead."""
        self._end(None, random.Random(0))

    def _end(self, size: int | None, dice: random.Random) -> Loss:
        self._group.terminate()
        log = os.open(self.writes, os.O_RDONLY)
        image = os.open(self._image, os.O_WRONLY)
        try:
            return replay(log, image, size, dice)
        finally:
            os.close(log)
            os.close(image)
            self._overlay.unlink()
            self.writes.unlink()
