# SPDX-License-Identifier: Apache-2.0
"""Hydration goes on while servers work.

The kernel copies in the background only while none of the clone's own I/O is
under way. It looks again when a copy has ended, and else once a second
(``COMMIT_PERIOD`` in dm-clone-target.c): a server that does I/O all the time
stops it for most of each second, however much time is left in between. Here
it is asked to look more often; whether it copies it decides as before.
"""

from __future__ import annotations

import threading
import typing

from oslo_log import log as logging

from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import state
from cinder_dmclone.world import Clock

LOG = logging.getLogger(__name__)

# From one look of the kernel at all clones to the next.
SECONDS = 0.1
# So many follow without a word; then it is asked what hydrates now.
TIMES = 10
# A clone's status counts its regions. However many clones there are, and how
# large, the looks take no more than this part of a processor.
SHARE = 0.05
# After a failure.
PAUSE = 60.0


class Pace:
    """The clones that hydrate here, and the thread that keeps them at it.

    It sleeps for good while there are none.
    """

    def __init__(self, host: Host, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._some = threading.Condition()
        self._clones: tuple[str, ...] = ()

    def follow(self, stacks: typing.Iterable[state.Stack]) -> None:
        """Take note of all clones that there are.

        What waits for its lender or has been paused needs no look.
        """
        clones = tuple(
            str(names.clone(stack.lv)) for stack in stacks
            if stack.clone and stack.clone.copies and stack.has_path)
        with self._some:
            self._clones = clones
            self._some.notify()

    def leave(self, lv: LvUuid) -> None:
        """Take note that nothing hydrates there any more."""
        gone = str(names.clone(lv))
        with self._some:
            self._clones = tuple(name for name in self._clones
                                 if name != gone)

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
        """Have the kernel look at each clone for a while.

        :returns: how long to wait before the next look, in seconds
        """
        try:
            busy = self._host.dm.look_again(self._clones, TIMES, SECONDS)
        except Exception:
            # They hydrate without this, too.
            LOG.exception('Hydration cannot be kept going while servers do '
                          'I/O; trying again in a minute.')
            return PAUSE
        return max(SECONDS, busy / SHARE)
