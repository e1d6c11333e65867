# SPDX-License-Identifier: Apache-2.0
"""Hydration goes on while servers work, as fast as it has to and may.

The kernel copies in the background only while none of the clone's own I/O is
under way. It looks again when a copy has ended, and else once a second
(``COMMIT_PERIOD`` in dm-clone-target.c): a server that does I/O all the time
stops it for most of each second, however much time is left in between. Here
it is asked to look more often; whether it copies it decides as before.
"""

from __future__ import annotations

import dataclasses
import threading
import typing

from oslo_log import log as logging

from cinder_dmclone.courses import Progress
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.reconcile.windows import Widths
from cinder_dmclone.settings import Rates
from cinder_dmclone.stack import state
from cinder_dmclone.units import Bytes
from cinder_dmclone.world import Clock

LOG = logging.getLogger(__name__)

# For so long a course is followed without a word; then it is asked what
# hydrates now, and what came of it.
SECONDS = 1.0
# After a failure.
PAUSE = 60.0


@dataclasses.dataclass(frozen=True)
class _Course:
    """Of one clone.

    :ivar region: the size of its regions
    """

    region: Bytes
    widths: Widths | None = None
    last: Progress | None = None


class Pace:
    """The clones that hydrate here, and the thread that keeps them at it.

    It sleeps for good while there are none.
    """

    def __init__(self, host: Host, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._some = threading.Condition()
        self._clones: dict[str, _Course] = {}

    def follow(self, stacks: typing.Iterable[state.Stack]) -> None:
        """Take note of all clones that there are.

        What waits for its lender or has been paused needs no look.
        """
        found = {str(names.clone(stack.lv)):
                 stack.clone.region_size.to_bytes() for stack in stacks
                 if stack.clone and stack.clone.copies and stack.has_path}
        with self._some:
            self._clones = {name: self._clones.get(name, _Course(region))
                            for name, region in found.items()}
            self._some.notify()

    def leave(self, lv: LvUuid) -> None:
        """Take note that nothing hydrates there any more."""
        with self._some:
            self._clones.pop(str(names.clone(lv)), None)

    def start(self) -> None:
        """Begin; nothing has to end it."""
        threading.Thread(target=self._run, daemon=True,
                         name='dmclone-pace').start()

    def _run(self) -> None:
        while True:
            with self._some:
                while not self._clones:
                    self._some.wait()
            self._clock.sleep(self.once())

    def once(self) -> float:
        """Have the clones hydrate for a while.

        :returns: how long to wait before the next time, in seconds
        """
        try:
            with self._some:
                courses = dict(self._clones)
            return self._guide(courses) if courses else 0.0
        except Exception:
            # They hydrate without this, too.
            LOG.exception('Hydration cannot be kept going while servers do '
                          'I/O; trying again in a minute.')
            return PAUSE

    def _guide(self, courses: dict[str, _Course]) -> float:
        settings = self._host.settings
        rates, most = settings.rates(), settings.hydration_threshold
        each = Rates(rates.floor, Bytes(rates.ceiling // len(courses)))
        asked = []
        for name, course in courses.items():
            widths = (
                course.widths.after(course.last, course.region, each, most)
                if course.widths and course.last else Widths.first(each, most))
            courses[name] = dataclasses.replace(course, widths=widths)
            asked.append(widths.course(name, course.region, each,
                                       settings.hydration_batch, course.last))
        pause, found = self._host.dm.keep_going(asked, SECONDS)
        for progress in found:
            courses[progress.name] = dataclasses.replace(
                courses[progress.name], last=progress)
        with self._some:
            # What is gone since then stays away.
            self._clones.update({name: courses[name]
                                 for name in self._clones if name in courses})
        return pause
