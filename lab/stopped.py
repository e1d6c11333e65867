# SPDX-License-Identifier: Apache-2.0
"""A process that is stopped between its read of a row and its write.

It acquires a volume, and is stopped for longer than a lock of it lives; a
rival wants the volume meanwhile. For lab.crew.
"""
from __future__ import annotations

import os
import pathlib
import signal
import threading
import time
import typing

from lab import contender
from lab.processes import wait_for

if typing.TYPE_CHECKING:
    from lab import crew

# For so long the rival keeps the volume when the holder goes on, in seconds.
_KEEPS = 1.0


def holder(task: contender.Task, start: crew.Start) -> contender.Task:
    """A turn, stopped once when the row was read and found free."""
    with contender.begin(task) as way:
        found = contender.Turns(task, way)
        times = iter((True,))

        def stop() -> None:
            if next(times, False):
                pathlib.Path(task['pid']).write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGSTOP)
        way.between = stop
        start()
        found.turn()
    return {'claims': found.claims, 'deadlocks': start.deadlocks}


def rival(task: contender.Task, start: crew.Start) -> contender.Task:
    """A turn of who comes meanwhile; how long it had to wait, in seconds."""
    with contender.begin(task) as way:
        start()
        pid = _stopped(pathlib.Path(task['pid']))
        goes_on = threading.Timer(task['stopped'], os.kill,
                                  (pid, signal.SIGCONT))
        goes_on.start()
        volume, = task['volumes']
        begin = time.monotonic()
        was, held = way.acquire(volume)
        waited = time.monotonic() - begin
        goes_on.join()
        # Whoever goes on now finds the volume taken.
        time.sleep(_KEEPS)
        claims = [(volume, was, held), (volume, *way.release(volume, held))]
    return {'claims': claims, 'waited': waited,
            'deadlocks': start.deadlocks}


def _stopped(path: pathlib.Path) -> int:
    """The process that wrote its number there, when it is stopped."""
    def found() -> int | None:
        pid = path.read_text() if path.exists() else ''
        if not pid:
            return None
        state = pathlib.Path(f'/proc/{pid}/stat').read_text()
        return int(pid) if state.rpartition(')')[2].split()[0] == 'T' else None
    return typing.cast(int, wait_for('a stopped holder', found, 60, 0.05))
