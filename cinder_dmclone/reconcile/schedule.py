# SPDX-License-Identifier: Apache-2.0
"""When to look at an LV again: numbers only, nothing waits here."""

from __future__ import annotations

import math
import typing

from cinder_dmclone.location import LvUuid

# Seconds between two looks at an LV in flight: doubled while nothing
# happens. While something hydrates here, progress decides.
SOONEST = 2.0
# Whoever waits for another node is told when it is done.
TOLD = 10.0
LATEST = 60.0
# What only people change needs no frequent look.
SELDOM = 600.0
# So often everything is looked at, also by a node with nothing in flight: what
# Cinder deleted while no message reached it. Not by all nodes at once.
EVERYTHING = 86400.0
JITTER = 0.1
# A lender that is back is noticed as soon.
HYDRATING_LATEST = 10.0
# One look at all LVs costs little more than one at a single LV: paths that
# fail together are looked at together, and an LV comes along when so much of
# its interval is left.
GATHERED = 0.5
NEARLY = 1 / 4


class Schedule:
    """The next look at each LV, or at all LVs of a volume.

    A key is the uuid of an LV or of a volume. All times are seconds of one
    clock that only grows.
    """

    def __init__(self) -> None:
        self._looks: dict[str, float] = {}
        # How long ago the look before was, if nothing has happened since.
        self._intervals: dict[str, float] = {}
        # Looks that the ones before them do not stand for.
        self._later: dict[str, float] = {}
        # When those LVs are looked at whose paths fail now.
        self._gathering = -math.inf
        # When a hydration was looked at last, and the regions it had then.
        self._progress: dict[str, tuple[float, int]] = {}
        # Until when a path that fails again waits, as at a bad sector.
        self._failed: dict[str, float] = {}
        # LVs that are worked on, or will be, and those of them that somebody
        # has enqueued since.
        self._at_work: set[LvUuid] = set()
        self._after: set[LvUuid] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._looks

    def __iter__(self) -> typing.Iterator[str]:
        return iter(list(self._looks))

    def first(self) -> float | None:
        """When the next look is due; None if nothing is in flight."""
        return min(self._looks.values(), default=None)

    def due(self, now: float) -> set[str]:
        """What has to be looked at now, and what nearly has to be."""
        first = self.first()
        if first is None or first > now:
            return set()
        return {key for key, at in self._looks.items()
                if at <= now + NEARLY * self._intervals.get(key, 0.0)}

    def enqueue(self, key: str, at: float) -> None:
        """Look at something at a time of its own, whatever was planned."""
        self._looks[key] = at
        self._intervals.pop(key, None)

    def enqueue_later(self, key: str, at: float) -> None:
        """Look at something at a time, whoever looks before that.

        As for what Cinder writes down when it has its answer.
        """
        self._later[key] = max(at, self._later.get(key, at))
        if key not in self._looks or key in self._intervals:
            self.enqueue(key, at)

    def begin(self, lv: LvUuid, seen: float) -> bool:
        """Note that an LV is worked on; False if it is already.

        Whoever has enqueued it since it was looked at may have meant all LVs
        of a volume with the same id: the others are looked at as soon as
        possible, and this one again after the work.

        :param seen: when it was looked at; -inf if the work comes without
        """
        if lv in self._at_work:
            return False
        if self._enqueued(lv, seen) is None:
            self._looks.pop(lv, None)
        if self._later.get(lv, seen) > seen:
            # The work may take longer; the others do not wait for it.
            self._looks.setdefault(lv, self._later[lv])
        self._at_work.add(lv)
        return True

    def at_work(self, lvs: typing.Iterable[LvUuid]) -> set[LvUuid]:
        """Those LVs that are worked on: there is nothing to look for."""
        return self._at_work.intersection(lvs)

    def enqueue_after(self, lv: LvUuid, seen: float) -> None:
        """Look at an LV when the work on it has ended.

        :param seen: when a look was called for; as in ``begin``
        """
        if self._enqueued(lv, seen) is None:
            self._looks.pop(lv, None)
        self._after.add(lv)

    def end(self, lv: LvUuid, now: float) -> None:
        """Note that an LV is not worked on any more."""
        self._at_work.discard(lv)
        at = self._enqueued(lv, -math.inf)
        if lv in self._after or at is not None and at <= now:
            self._after.discard(lv)
            self.enqueue(lv, now)

    def nobody(self, keys: typing.Iterable[str], now: float) -> None:
        """Nothing here answers to these; forget those that are due."""
        for key in self.due(now).intersection(keys):
            self._forget(key, now)

    def path_failed(self, lv: LvUuid, now: float) -> bool:
        """Note a failed path; whether it has failed a moment ago as well."""
        again = now < self._failed.get(lv, now)
        self._failed[lv] = now + SOONEST
        return again

    def gather(self, lv: LvUuid, now: float) -> None:
        """Look at an LV soon, and at all together that others call for."""
        if now > self._gathering:
            self._gathering = now + GATHERED
        self.enqueue(lv, self._gathering)

    def act(self, lv: LvUuid) -> None:
        """Something has happened: looks become frequent again."""
        self._intervals.pop(lv, None)

    # -- after a look -------------------------------------------------------

    def rest(self, lv: LvUuid, seen: float) -> None:
        """Nothing is to be done about an LV that was looked at.

        :param seen: when it was looked at; who enqueued it since then is
            not forgotten, here and in what follows
        """
        enqueued = self._enqueued(lv, seen)
        for known in (self._progress, self._failed):
            known.pop(lv, None)
        self._forget(lv, seen)
        if enqueued is not None:
            self.enqueue(lv, enqueued)

    def wait(self, lv: LvUuid, seen: float, now: float, first: float = SOONEST,
             latest: float = LATEST) -> None:
        """Look again after twice the last interval."""
        interval = 2 * self._intervals.get(lv, 0.0)
        self._again(lv, seen, now, min(max(interval, first), latest))

    def hurry(self, lv: LvUuid, seen: float, now: float) -> None:
        """Look again soon, however long nothing has happened."""
        self._again(lv, seen, now, SOONEST)

    def hydrate(self, lv: LvUuid, seen: float, now: float, done: int,
                total: int) -> None:
        """Look again when all is copied, if it goes on as so far.

        Nothing arrives while the lender is away: then less and less often.

        :param done: regions that are copied
        """
        before, was = self._progress.get(lv, (now, done))
        self._progress[lv] = (now, done)
        if done > was and now > before:
            left = (total - done) * (now - before) / (done - was)
            self._again(lv, seen, now,
                        min(max(left, SOONEST / 4), HYDRATING_LATEST))
        else:
            self.wait(lv, seen, now, latest=HYDRATING_LATEST)

    def _again(self, lv: LvUuid, seen: float, now: float,
               interval: float) -> None:
        enqueued = self._enqueued(lv, seen)
        self._forget(lv, seen)
        if enqueued is None:
            enqueued = self._looks.get(lv)
        self._looks[lv], self._intervals[lv] = now + interval, interval
        if enqueued is not None:
            self.enqueue(lv, enqueued)

    def _forget(self, key: str, seen: float) -> None:
        """Forget the looks that one at this time stands for."""
        self._looks.pop(key, None)
        self._intervals.pop(key, None)
        if self._later.get(key, seen) > seen:
            self._looks[key] = self._later[key]
        else:
            self._later.pop(key, None)

    def _enqueued(self, lv: LvUuid, seen: float) -> float | None:
        """When an LV has to be looked at in spite of the last look."""
        at = self._looks.get(lv, seen)
        return at if at > seen and lv not in self._intervals else None
