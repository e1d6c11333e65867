# SPDX-License-Identifier: Apache-2.0
"""Processes that contend for volumes' rows, and others beside them.

For lab.crew.
"""
from __future__ import annotations

import contextlib
import random
import time
import typing
import uuid

from cinder import context as cinder_context
from oslo_config import cfg
from oslo_db import exception as db_exc

from cinder_dmclone.releases import db_api
from cinder_dmclone.releases import models
from lab import ways

if typing.TYPE_CHECKING:
    from lab import crew

Task = dict[str, typing.Any]

# What one that loads the database does in a second.
_UPDATES, _SELECTS = 5, 10


class Turns:
    """What one contender did, and how long it took, in seconds."""

    def __init__(self, task: Task, way: ways.Way) -> None:
        self._volumes: list[str] = task['volumes']
        self._hold: float = task.get('hold', 0)
        self._way = way
        self.acquire: list[float] = []
        self.release: list[float] = []
        self.claims: list[tuple[str, str, str]] = []

    def turn(self) -> None:
        """Acquire a volume, prepare something, release it."""
        volume = random.choice(self._volumes)
        begin = time.monotonic()
        was, held = self._way.acquire(volume)
        self.acquire.append(time.monotonic() - begin)
        self.claims.append((volume, was, held))
        time.sleep(self._hold)
        begin = time.monotonic()
        self.claims.append((volume, *self._way.release(volume, held)))
        self.release.append(time.monotonic() - begin)


def begin(task: Task) -> contextlib.AbstractContextManager[ways.Way]:
    """The way of a task, with the reads that it names."""
    cfg.CONF.set_override('mysql_wsrep_sync_wait', task.get('sync'),
                          'database')
    return ways.made(task)


def turns(task: Task, start: crew.Start) -> Task:
    """So many turns."""
    with begin(task) as way:
        # What is done once in a process is not measured.
        first = Turns(task | {'hold': 0}, way)
        first.turn()
        found = Turns(task, way)
        start()
        began = time.monotonic()
        for _ in range(task['turns']):
            found.turn()
    return {'acquire': found.acquire, 'release': found.release,
            'claims': first.claims + found.claims, 'begin': began,
            'end': time.monotonic(), 'deadlocks': start.deadlocks}


def load(task: Task, start: crew.Start) -> Task:
    """Change and read one row again and again, beside contenders."""
    volume, count = task['volume'], 0
    start()
    began = time.monotonic()
    every = 1 / (_UPDATES + _SELECTS)
    while not start.over.wait(max(0, began + count * every
                                  - time.monotonic())):
        with contextlib.suppress(db_exc.DBDeadlock):
            if count % (_UPDATES + _SELECTS) < _UPDATES:
                db_api.volume_update(_context(), volume, {
                    'display_name': str(uuid.uuid4())})
            else:
                _look(volume)
        count += 1
    return {'statements': count, 'seconds': time.monotonic() - began}


def _look(volume: str) -> None:
    with db_api.main_context_manager.reader.using(_context()) as session:
        session.query(models.Volume.display_name).filter(
            models.Volume.id == volume).one()


def _context() -> cinder_context.RequestContext:
    return cinder_context.get_admin_context()
