# SPDX-License-Identifier: Apache-2.0
"""Hydration beside servers at work, as root: about a second of it in a call.

How much a clone copies at a time is changed by messages to it, which take
effect at once (``clone_message`` in dm-clone-target.c). A threshold or a batch
size of 0, which the driver never sets, says that somebody sees to the clone by
hand: it is left alone.
"""

from __future__ import annotations

import pathlib
import re
import time
import typing

from cinder_dmclone.courses import CALM
from cinder_dmclone.courses import Course
from cinder_dmclone.courses import Progress
from cinder_dmclone.courses import Window
from cinder_dmclone import privileged
from cinder_dmclone.privileged import dm_ioctl

STATISTICS = pathlib.Path('/sys/dev/block')

# From one look to the next, in seconds: while servers work, and otherwise.
QUICK = 0.01
SLOW = 0.1
# A clone's status counts its regions. However many clones there are, and how
# large, looks take no more than this part of a processor.
SHARE = 0.05

_NAME = re.compile(r'dmclone-clone-[0-9a-f-]{36}')
# The clone's regions that are here, its threshold and its batch size.
_STATUS = re.compile(r' clone \S+ \S+ \d+ (\d+)/\d+ .*'
                     r'\bhydration_threshold (\d+) hydration_batch_size (\d+)')
# Requests completed (reads, writes, discards, flushes) and under way, in what
# Documentation/admin-guide/iostats.rst numbers from 1.
_COMPLETED, _UNDER_WAY = (0, 4, 11, 15), 8


@privileged.context.entrypoint
def keep_going(courses: tuple[tuple[typing.Any, ...], ...],
               seconds: float) -> tuple[float, tuple[Progress, ...]]:
    """Have clones hydrate on their courses; what is gone is left out.

    :param courses: see Course
    :param seconds: for how long
    :returns: how long to wait before the next call, in seconds, and what has
        come of each that there still is
    """
    clones = [_Clone(Course(*course)) for course in courses]
    end = time.monotonic() + seconds
    while True:
        begin = time.monotonic()
        for clone in clones:
            clone.look(begin)
        pause = max(QUICK if any(clone.busy for clone in clones) else SLOW,
                    (time.monotonic() - begin) / SHARE)
        if time.monotonic() + pause >= end:
            return pause, tuple(clone.progress() for clone in clones
                                if clone.there)
        time.sleep(pause)


class _Clone:
    """One that is looked at again and again."""

    def __init__(self, course: Course) -> None:
        if not _NAME.fullmatch(course.name):
            raise ValueError(f'{course.name!r} is not a clone of ours')
        self._course = course
        self._rest = Window(*course.rest)
        self._work = Window(*course.work)
        self._requests = course.requests
        self.there = True
        self._calm = course.calm
        self._calm_since = time.monotonic() - course.calm
        # At the last look: when that was, and how much was here.
        self._last: tuple[float, int] | None = None
        self._seconds = {False: 0.0, True: 0.0}
        self._regions = {False: 0, True: 0}

    @property
    def busy(self) -> bool:
        return self._calm < CALM

    def look(self, now: float) -> None:
        reply = self.there and dm_ioctl.ask(
            dm_ioctl.TABLE_STATUS, self._course.name, dm_ioctl.NOFLUSH)
        found = reply and _STATUS.search(dm_ioctl.lines(reply))
        self.there = bool(found)
        if not reply or not found:
            return
        try:
            counts = (STATISTICS / reply.devnum / 'stat').read_text().split()
        except OSError:
            self.there = False  # it has just been removed
            return
        here, *window = map(int, found.groups())
        if self._last:
            then, had = self._last
            self._seconds[self.busy] += now - then
            self._regions[self.busy] += here - had
        self._watch(counts, now)
        # What it does in somebody's hands says nothing of its window.
        self._last = (now, here) if all(window) else None
        if self._last:
            self._guide(Window(*window))

    def _watch(self, counts: list[str], now: float) -> None:
        """See whether somebody does I/O."""
        requests = sum(int(counts[at]) for at in _COMPLETED
                       if at < len(counts))
        if int(counts[_UNDER_WAY]) or requests != self._requests >= 0:
            self._calm_since = now
        self._calm = now - self._calm_since
        self._requests = requests

    def _guide(self, window: Window) -> None:
        wanted = self._work if self.busy else self._rest
        if wanted.batch != window.batch:
            self._tell('hydration_batch_size', wanted.batch)
        if (wanted.threshold != window.threshold or self._course.wake
                or not self.busy):
            # Setting it has the clone look at once whether it can copy on,
            # also if it is what it was (set_hydration_threshold).
            self._tell('hydration_threshold', wanted.threshold)

    def _tell(self, key: str, value: int) -> None:
        dm_ioctl.message(self._course.name, (key, str(value)))

    def progress(self) -> Progress:
        return Progress(
            self._course.name, self._seconds[False], self._regions[False],
            self._seconds[True], self._regions[True], self._requests,
            self._calm)
