# SPDX-License-Identifier: Apache-2.0
"""Servers that move at once to a node without room for all, for lab.crew.

Their volumes are on one node, as if it were drained; meanwhile Cinder makes
volumes on the other. Each of these is a thread. The nodes have the driver's
own code on the disks of unit tests (``lab/actor.py``), which no two threads
change at once, as with LVM.
"""
from __future__ import annotations

import collections
import dataclasses
import threading
import time
import typing
import uuid
from collections.abc import Callable
from unittest import mock

from cinder import exception

from cinder_dmclone import exceptions
from cinder_dmclone.location import VolumeId
from cinder_dmclone.relocation import room
from cinder_dmclone.service import connections
from cinder_dmclone.service import volumes
from cinder_dmclone import units
from lab import actor
from lab import claims
from tests.unit.fake import cloud as fake
from tests.unit.fake import ports
from tests.unit.fake import storage

if typing.TYPE_CHECKING:
    from lab import crew

GIB = units.Bytes.from_gib(1)
# What a copy needs beside its data (``metadata.size``, in whole extents).
_METADATA = storage.EXTENT
# Seconds for which a thread waits for a lock.
_LOCK = 60.0


class NoPlace(exceptions.NodeFull):
    """There was none to be claimed."""

    message = 'No place is free on %(node)s.'


class Process(fake.Process):
    """Its threads take turns at disks, kernel and iSCSI."""

    def call(self, port: str, method: str,
             function: Callable[..., typing.Any],
             arguments: tuple[typing.Any, ...],
             named: dict[str, typing.Any]) -> typing.Any:
        if port in ('rows', 'snapshots', 'peers', 'locks'):
            return super().call(port, method, function, arguments, named)
        with Cloud.turn:
            return super().call(port, method, function, arguments, named)


class Node(fake.Node):

    def make_process(self) -> Process:
        return Process(self)


class Cloud(actor.Cloud):
    """One node whose volumes leave, and one for which they are too many."""

    turn = threading.RLock()

    def make_node(self, host: str, **options: typing.Any) -> Node:
        return Node(self, host, **options)

    def make_clock(self) -> ports.Clock:  # type: ignore[override]
        return RealClock()


class RealClock(ports.Clock):
    """Whoever waits for another thread waits."""

    def monotonic(self) -> float:
        return time.monotonic() + self.now

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            # Nobody else works: it is to be later.
            self.now += seconds
        else:
            time.sleep(seconds)


@dataclasses.dataclass
class Told:
    """What one that wanted a place was told, and when.

    :ivar verdict: seconds until it was known whether there is one
    :ivar seconds: until it had its answer
    :ivar refused: why it has none; empty if it has one
    """

    moves: bool
    verdict: float = 0.0
    seconds: float = 0.0
    refused: str = ''


class Race:
    """So many movers and new volumes for so many places."""

    def __init__(self, task: dict[str, typing.Any]) -> None:
        self._places: int = task['places']
        self._claim = claims.WAYS.get(task['way'])
        self.cloud = Cloud(f'{task["name"]}-a', f'{task["name"]}-b',
                           lock_wait=_LOCK, gib=1000)
        self.a, self.b = self.cloud.nodes.values()
        self._moves = [self._mover() for _ in range(task['movers'] + 1)]
        self._news = [self._new() for _ in range(task['creates'])]
        self._warm()
        if task['thin']:
            self.b.group.pool = 'thin'
            self.b.group.pool_size = units.Bytes(
                self._places * GIB + GIB // 2)
        else:
            # What is left over is too little for a volume.
            self.b.group.size = units.Bytes(
                self._places * (GIB + _METADATA) + GIB // 2)
        claims.prepare(self.b.name, self._places)
        self._made: dict[int, float] = {}
        self.told: list[Told] = []

    def _mover(self) -> tuple[VolumeId, str]:
        volume = self.cloud.create(self.a)
        return volume, self.cloud.reserve(volume)

    def _new(self) -> VolumeId:
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{self.b.name}#{fake.POOL}')
        return volume

    def _warm(self) -> None:
        """What is done once in a process is not measured."""
        volume, attachment = self._moves.pop()
        self.cloud.connect(volume, attachment, self.b)
        self.cloud.complete(volume, attachment)
        self.cloud.settle()
        self.cloud.detach(volume, attachment, self.b)
        self.cloud.delete(volume)
        self.cloud.settle()
        assert not self.b.group.volumes, self.b.group.volumes

    def run(self, start: Callable[[], None]) -> None:
        """Let all begin at the same moment; then see that all is in order."""
        ready = threading.Barrier(len(self._moves) + len(self._news) + 1)
        threads = [threading.Thread(target=self._one, args=(ready, work, told))
                   for work, told in [
                       *((self._moving(volume), Told(True))
                         for volume, _ in self._moves),
                       *((self._making(volume), Told(False))
                         for volume in self._news)]]
        with mock.patch.object(room, 'make', self._timed(room.make)):
            for thread in threads:
                thread.start()
            start()
            self.cloud.sent.clear()
            self.cloud.db.statements.clear()
            ready.wait()
            for thread in threads:
                thread.join()

    def _timed(self, make: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: typing.Any) -> None:
            try:
                make(*arguments)
            finally:
                self._made[threading.get_ident()] = time.monotonic()
        return call

    def _one(self, ready: threading.Barrier, work: Callable[[], None],
             told: Told) -> None:
        ready.wait()
        begin = time.monotonic()
        claimed = None
        try:
            if self._claim:
                won = self._claim(self.b.name, self._places)
                claimed = time.monotonic()
                if not won:
                    raise NoPlace(node=self.b.name, volume='', peer='',
                                  reason='')
            work()
        except exception.CinderException as error:
            told.refused = error.msg
        end = time.monotonic()
        made = self._made.get(threading.get_ident(), end)
        told.verdict = (claimed or made) - begin
        told.seconds = end - begin
        self.told.append(told)

    def _moving(self, volume: VolumeId) -> Callable[[], None]:
        def move() -> None:
            connections.connect(self.a.service, volume, self.b.connector)
        return move

    def _making(self, volume: VolumeId) -> Callable[[], None]:
        def make() -> None:
            volumes.create(self.b.service, volume)
        return make

    def won(self) -> int:
        """How many have a place, by what the disks have.

        :raises AssertionError: if these say something else than was told, or
            something was left behind
        """
        told = collections.Counter((one.moves, not one.refused)
                                   for one in self.told)
        homes = collections.Counter(
            self.cloud.row(volume).node for volume, _ in self._moves)
        assert homes[self.b.name] == told[True, True], (homes, told)
        assert not [volume for volume, _ in self._moves
                    if self.cloud.row(volume).offer]
        data = {name for name in self.b.group.volumes if 'meta' not in name}
        assert len(data) == told[True, True] + told[False, True], data
        assert not self.cloud.complaints, self.cloud.complaints
        return len(data)


def race(task: dict[str, typing.Any],
         start: crew.Start) -> dict[str, typing.Any]:
    """Let them race; what each was told, and what it took."""
    actor.prepare()
    found = Race(task)
    found.run(start)
    sent = [text for text in found.cloud.db.statements
            if text.startswith(('SELECT', 'INSERT', 'UPDATE', 'DELETE'))]
    return {'won': found.won(), 'statements': len(sent),
            'messages': len(found.cloud.sent), 'deadlocks': start.deadlocks,
            'told': [dataclasses.asdict(one) for one in found.told]}
