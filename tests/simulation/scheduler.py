# SPDX-License-Identifier: Apache-2.0
"""Tasks that take turns, in virtual time.

Exactly one task runs. It hands over only where it says so: at the calls of a
port, or when it waits. Who goes on is a choice of the seed. Time passes only
when nobody can run.
"""

from __future__ import annotations

import contextlib
import heapq
import random
import typing

import greenlet

from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from tests.unit.fake import ports


class Owner(typing.Protocol):
    """What a task dies with."""

    alive: bool


class Endless(BaseException):
    """More steps than any schedule has: something goes round in circles."""


class Deadlock(BaseException):
    """Tasks wait for each other, if only until they give up."""


class Task:
    """A thread of the simulation."""

    def __init__(self, name: str, run: typing.Callable[[], None],
                 owner: Owner | None, hub: greenlet.greenlet) -> None:
        self.name = name
        self.owner = owner
        # Where it goes when it ends.
        self.greenlet = greenlet.greenlet(run, hub)
        self.blocked = False
        # Counts what it waited for: an alarm set for an earlier wait is void.
        self.waits = 0
        # Who has to let go of a lock, or to answer, before it goes on.
        self.waits_for: Task | None = None

    def wait_for(self, other: Task) -> None:
        """
        :raises Deadlock: if the other waits for this one
        """
        self.waits_for, seen = other, other
        while seen.waits_for:
            seen = seen.waits_for
            if seen is self:
                raise Deadlock(f'{self.name} and {other.name}')

    @property
    def dead(self) -> bool:
        return self.owner is not None and not self.owner.alive


class Scheduler:
    """The tasks of one schedule.

    :param switch: how likely a task that could go on lets others run first
    """

    def __init__(self, choices: random.Random, switch: float,
                 max_steps: int) -> None:
        self.now = 1000.0
        self.steps = 0
        self.failure: BaseException | None = None
        # Called for every step, by the task that takes it.
        self.watch: typing.Callable[[], None] = lambda: None
        self._hub = greenlet.getcurrent()
        self._choices = choices
        self._switch = switch
        self._max_steps = max_steps
        self._ready: list[Task] = []
        self._alarms: list[tuple[float, int, int, Task]] = []
        self._number = 0
        self._tasks: list[Task] = []
        self._current: Task | None = None
        self._stopping = False

    # -- for everybody ------------------------------------------------------

    def spawn(self, name: str, function: typing.Callable[..., typing.Any],
              *arguments: typing.Any, owner: Owner | None = None) -> Task:
        def run() -> None:
            try:
                self._check()
                function(*arguments)
            except (ports.Killed, greenlet.GreenletExit):
                pass
            except BaseException as error:
                self.failure = self.failure or error
        task = Task(name, run, owner, self._hub)
        self._tasks.append(task)
        self._ready.append(task)
        return task

    def wake(self, task: Task) -> None:
        if task.blocked:
            task.blocked = False
            task.waits_for = None
            task.waits += 1
            self._ready.append(task)

    def wake_dead(self) -> None:
        """Let the tasks of a process that was killed end."""
        for task in self._tasks:
            if task.dead:
                self.wake(task)

    # -- for the task that runs ---------------------------------------------

    def point(self) -> None:
        """A place where another task may run."""
        if self._current is None:
            return
        self.steps += 1
        if self.steps > self._max_steps:
            raise Endless(f'{self.steps} steps, and no end')
        self._check()
        if self._ready and self._choices.random() < self._switch:
            self._ready.append(self._running())
            self._hand_over()

    def block(self, until: float | None = None) -> None:
        """Wait to be woken, at most until a time."""
        task = self._running()
        self._check()
        task.blocked = True
        if until is not None:
            self._number += 1
            heapq.heappush(self._alarms,
                           (until, self._number, task.waits, task))
        self._hand_over()

    def sleep(self, seconds: float) -> None:
        if self._current is None:
            self.now += seconds
            return
        self.block(self.now + seconds)

    def pause(self, seconds: float) -> None:
        """Take time; outside of tasks there is none to take."""
        if self._current is not None:
            self.block(self.now + seconds)

    def current(self) -> Task | None:
        return self._current

    def _running(self) -> Task:
        assert self._current is not None
        return self._current

    def _check(self) -> None:
        if self._stopping or (self._current and self._current.dead):
            raise ports.Killed()

    def _hand_over(self) -> None:
        self._hub.switch()
        self._check()

    # -- the hub ------------------------------------------------------------

    def run(self, until: float, ended: typing.Sequence[Task] = ()) -> bool:
        """Let tasks run; whether nothing is left to do before a time.

        :param ended: go no further when these have ended
        """
        while self.failure is None:
            if ended and all(task.greenlet.dead for task in ended):
                return True
            if self._ready:
                self._step(self._pick())
            elif not self._next_alarm(until):
                return not self._alarms
        raise self.failure

    def _pick(self) -> Task:
        number = self._choices.randrange(len(self._ready)) if (
            self._switch) else 0
        return self._ready.pop(number)

    def _step(self, task: Task) -> None:
        self._current = task
        task.greenlet.switch()
        self._current = None
        if task.greenlet.dead:
            self._tasks.remove(task)

    def _next_alarm(self, until: float) -> bool:
        while self._alarms:
            when, _, waits, task = self._alarms[0]
            if task.waits == waits and task.blocked and when > until:
                self.now = max(self.now, until)
                return False
            heapq.heappop(self._alarms)
            if task.waits == waits and task.blocked:
                self.now = max(self.now, when)
                self.wake(task)
                return True
        return False

    def stop(self) -> None:
        """End all tasks."""
        self._stopping = True
        for task in list(self._tasks):
            while not task.greenlet.dead:
                self._current = task
                task.greenlet.switch()
        self._current = None


# Seconds that a look at the clock takes: two never show the same.
TICK = 1e-6


class Clock:
    """The clock of the processes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic(self) -> float:
        self._scheduler.now += TICK
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)


class Condition:
    """``threading.Condition``, as far as the reconciler uses it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: list[Task] = []

    def __enter__(self) -> Condition:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing between enter and exit hands over."""

    def notify(self) -> None:
        for task in self._waiting:
            self._scheduler.wake(task)

    def wait(self, seconds: float | None = None) -> None:
        task = self._scheduler.current()
        assert task is not None
        self._waiting.append(task)
        try:
            self._scheduler.block(
                None if seconds is None else self._scheduler.now + seconds)
        finally:
            self._waiting.remove(task)


class Future:
    """What another task will say."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: Task | None = None
        self.value: typing.Any = None
        self.done = False

    def set(self, value: typing.Any) -> None:
        if not self.done:
            self.done, self.value = True, value
            if self._waiting:
                self._scheduler.wake(self._waiting)

    def wait(self, seconds: float) -> bool:
        """Whether it was said in time."""
        if not self.done:
            task = self._waiting = self._scheduler.current()
            assert task is not None
            try:
                self._scheduler.block(self._scheduler.now + seconds)
            finally:
                self._waiting = task.waits_for = None
        return self.done

    def comes_from(self, task: Task) -> None:
        """Whoever waits for this waits for a task.

        :raises Deadlock: if that cannot be
        """
        if self._waiting and not self.done:
            self._waiting.wait_for(task)


class Locks:
    """One lock per volume and node; they end with their process."""

    def __init__(self, scheduler: Scheduler, node: str) -> None:
        self._scheduler = scheduler
        self._node = node
        self._held: dict[str, Task] = {}
        self._waiting: dict[str, list[Task]] = {}

    @contextlib.contextmanager
    def volume(self, volume_id: str, seconds: float) -> typing.Iterator[None]:
        task = self._scheduler.current()
        if task is None:
            # The volume that is there before anybody begins.
            yield
            return
        self._acquire(volume_id, seconds, task)
        try:
            yield
        finally:
            del self._held[volume_id]
            for waiting in self._waiting.get(volume_id, ()):
                self._scheduler.wake(waiting)

    def room(self) -> typing.ContextManager[None]:
        return self.volume('room', deadlines.TURN_SECONDS)

    def _acquire(self, volume_id: str, seconds: float, task: Task) -> None:
        deadline = self._scheduler.now + seconds
        waiting = self._waiting.setdefault(volume_id, [])
        self._scheduler.point()
        while volume_id in self._held:
            if self._scheduler.now >= deadline:
                raise exceptions.VolumeLocked(
                    volume=volume_id, node=self._node, seconds=seconds)
            waiting.append(task)
            try:
                task.wait_for(self._held[volume_id])
                self._scheduler.block(deadline)
            finally:
                waiting.remove(task)
                task.waits_for = None
        self._held[volume_id] = task
