# SPDX-License-Identifier: Apache-2.0
"""What is overwritten by this process, and who may stop it.

An erasure takes minutes to hours, without the volume's lock. Whether the LV
may go is asked all the while: a database may have been restored since.
"""

from __future__ import annotations

import contextlib
import math
import typing

from cinder_dmclone import deadlines
from cinder_dmclone.location import LvUuid
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import teardown
from cinder_dmclone.world import World

# Between two looks at the row; a portion may be written in less.
LOOK_SECONDS = 5.0

_POLL_SECONDS = 0.2


class Erasures:
    """Those that are under way, and those that must not be."""

    def __init__(self, world: World) -> None:
        self._host, self._clock = world.host, world.clock
        self._under_way: set[LvUuid] = set()
        self._halted: set[LvUuid] = set()

    def erase(self, lv: LvUuid, may_go: typing.Callable[[], bool]) -> bool:
        """Overwrite an LV, unless somebody stops it.

        :param may_go: whether it may still be deleted
        :returns: whether all of it that has to be overwritten was
        :raises DeviceBusy: if somebody has it open
        """
        looked, stopped = -math.inf, False

        def goes_on() -> bool:
            nonlocal looked, stopped
            now = self._clock.monotonic()
            if lv in self._halted:
                stopped = True
            elif now - looked >= LOOK_SECONDS:
                looked, stopped = now, not may_go()
            return not stopped

        self._under_way.add(lv)
        try:
            teardown.erase(self._host, inspect.refresh(self._host, lv),
                           goes_on)
        finally:
            self._under_way.discard(lv)
        return not stopped

    @contextlib.contextmanager
    def halt(self, lv: LvUuid) -> typing.Iterator[bool]:
        """Let nothing overwrite an LV meanwhile; the caller holds the lock.

        :returns: False if what was begun has not ended in time
        """
        deadline = self._clock.monotonic() + deadlines.PORTION_SECONDS
        self._halted.add(lv)
        try:
            while lv in self._under_way and (
                    self._clock.monotonic() < deadline):
                self._clock.sleep(_POLL_SECONDS)
            yield lv not in self._under_way
        finally:
            self._halted.discard(lv)
