# SPDX-License-Identifier: Apache-2.0
"""Threads that work on LVs: a few, however many LVs need it.

What a server waits for never stands behind what may take long: a login that a
lender does not answer, or an erasure. Each kind of work has a lane with a
queue and threads of its own.
"""

from __future__ import annotations

import enum
import threading
import typing

from oslo_log import log as logging

from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.stack import state

LOG = logging.getLogger(__name__)


class Lane(enum.IntEnum):
    """Who waits; a worker also does what is more urgent than its lane."""

    WRITE = 0  # a server that has written to a gate, or should not have
    READ = 1  # a server whose lender is there again
    OTHER = 2
    ERASURE = 3  # nobody; it takes minutes and all of the disk's bandwidth


THREADS = {Lane.WRITE: 4, Lane.READ: 4, Lane.OTHER: 4, Lane.ERASURE: 1}

_WRITE = frozenset((Question.CLAIM, Action.REJECT, Action.REARM, Action.OPEN,
                    Action.FENCE, Action.ADOPT, Action.ACTIVATE))


def lane(decision: Decision, stack: state.Stack) -> Lane:
    """Where a step belongs."""
    # Who has moved may have to be let go before it is cut off. Others that are
    # paused, perhaps a hundred at once, are in no server's way.
    if decision.step in _WRITE or decision.step is Action.PAUSE and (
            stack.of_kind(names.Kind.FRONT)):
        return Lane.WRITE
    if decision.step is Action.RECONNECT and (
            stack.disk or stack.borrows_here):
        return Lane.READ
    if decision.step is Action.ERASE and stack.bare and not stack.thin:
        return Lane.ERASURE
    return Lane.OTHER


class Workers:
    """The lanes. A thread is started when it is needed, and ends.

    :param work: works on a stack as long as that belongs to the lane, or to
        one that is more urgent; returns the lane in which to go on, or None
    :param failed: told of a stack that has to be tried again: its work has
        raised, or no thread can be started
    """

    def __init__(self, work: typing.Callable[[state.Stack, Lane], Lane | None],
                 failed: typing.Callable[[state.Stack], None],
                 spawn: typing.Callable[..., None] | None = None) -> None:
        self._work = work
        self._failed = failed
        self._spawn = spawn or _spawn
        self._guard = threading.Lock()
        # In each lane the stacks that wait, by LV, oldest first.
        self._waiting: dict[Lane, dict[LvUuid, state.Stack]] = {
            found: {} for found in Lane}
        self._threads = dict.fromkeys(Lane, 0)

    def put(self, stack: state.Stack, wanted: Lane) -> None:
        """Have a stack worked on."""
        with self._guard:
            self._waiting[wanted][stack.lv] = stack
            if self._threads[wanted] == THREADS[wanted]:
                return
            self._threads[wanted] += 1
        try:
            self._spawn(self._work_lane, wanted)
        except Exception:
            self._no_thread(wanted)

    def hasten(self, lv: LvUuid, wanted: Lane) -> bool:
        """Let an LV that waits come sooner; False if it does not wait."""
        with self._guard:
            found = next((other for other in Lane
                          if lv in self._waiting[other]), None)
            if found is None or found <= wanted:
                return found is not None
            stack = self._waiting[found].pop(lv)
        self.put(stack, wanted)
        return True

    def _no_thread(self, wanted: Lane) -> None:
        with self._guard:
            self._threads[wanted] -= 1
            if self._threads[wanted]:
                # The others get there.
                return
            left, self._waiting[wanted] = self._waiting[wanted], {}
        for stack in left.values():
            LOG.exception('LV %s: no thread; trying again later.', stack.lv)
            self._failed(stack)

    def _work_lane(self, own: Lane) -> None:
        """A thread: until nothing waits in its lane."""
        while stack := self._next(own):
            onward = None
            try:
                onward = self._work(stack, own)
            except Exception:
                # The other LVs must not suffer.
                LOG.exception('LV %s: a step failed; trying again later.',
                              stack.lv)
                self._failed(stack)
            if onward is not None:
                self.put(stack, onward)

    def _next(self, own: Lane) -> state.Stack | None:
        with self._guard:
            waiting = self._waiting[own]
            if not waiting:
                self._threads[own] -= 1
                return None
            return waiting.pop(next(iter(waiting)))


def _spawn(function: typing.Callable[..., None],
           *arguments: typing.Any) -> None:
    threading.Thread(target=function, args=arguments, daemon=True,
                     name='dmclone-step').start()
