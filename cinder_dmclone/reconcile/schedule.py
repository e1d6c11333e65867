# SPDX-License-Identifier: Apache-2.0
"""When to look at an LV again: numbers only, nothing waits here."""

from __future__ import annotations

import dataclasses
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
HYDRATING_LATEST = 10.0


@dataclasses.dataclass(frozen=True)
class _Look:
    at: float
    interval: float


class Schedule:
    """The next look at each LV, or at all LVs of a volume.

    A key is the uuid of an LV or of a volume. All times are seconds of one
    clock that only grows.
    """

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}
        # When a hydration was looked at last, and the regions it had then.
        self._progress: dict[str, tuple[float, int]] = {}
        # Until when a path that fails again waits, as at a bad sector.
        self._failed: dict[str, float] = {}
        # LVs that are worked on, or will be, and those of them that somebody
        # has nominated since.
        self._at_work: set[LvUuid] = set()
        self._after: set[LvUuid] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._looks

    def __iter__(self) -> typing.Iterator[str]:
        return iter(list(self._looks))

    def first(self) -> float | None:
        """When the next look is due; None if nothing is in flight."""
        return min((look.at for look in self._looks.values()), default=None)

    def due(self, now: float) -> set[str]:
        """What has to be looked at now."""
        return {key for key, look in self._looks.items() if look.at <= now}

    def nominate(self, key: str, at: float) -> None:
        """Look at something at a time of its own, whatever was planned."""
        self._looks[key] = _Look(at, SOONEST)

    def begin(self, lv: LvUuid) -> bool:
        """Note that an LV is worked on; False if it is already."""
        if lv in self._at_work:
            return False
        self._looks.pop(lv, None)
        self._at_work.add(lv)
        return True

    def at_work(self, lvs: typing.Iterable[LvUuid]) -> set[LvUuid]:
        """Those LVs that are worked on: there is nothing to look for."""
        return self._at_work.intersection(lvs)

    def nominate_after(self, lv: LvUuid) -> None:
        """Look at an LV when the work on it has ended."""
        self._looks.pop(lv, None)
        self._after.add(lv)

    def end(self, lv: LvUuid, now: float) -> None:
        """Note that an LV is not worked on any more."""
        self._at_work.discard(lv)
        if lv in self._after:
            self._after.discard(lv)
            self.nominate(lv, now)

    def nobody(self, keys: typing.Iterable[str], now: float) -> None:
        """Nothing here answers to these; forget those that are due."""
        for key in self.due(now).intersection(keys):
            del self._looks[key]

    def path_failed(self, lv: LvUuid, now: float) -> bool:
        """Note a failed path; whether it has failed a moment ago as well."""
        again = now < self._failed.get(lv, now)
        self._failed[lv] = now + SOONEST
        return again

    # -- after a look -------------------------------------------------------

    def rest(self, lv: LvUuid, seen: float) -> None:
        """Nothing is to be done about an LV that was looked at.

        :param seen: when it was looked at; who nominated it since then is
            not forgotten, here and in what follows
        """
        planned = self._looks.pop(lv, None)
        self._progress.pop(lv, None)
        self._failed.pop(lv, None)
        self._nominated(lv, planned, seen)

    def wait(self, lv: LvUuid, seen: float, now: float, first: float = SOONEST,
             latest: float = LATEST) -> None:
        """Look again after twice the last interval."""
        planned = self._looks.get(lv)
        interval = 2 * planned.interval if planned else 0.0
        self._again(lv, seen, now, min(max(interval, first), latest))

    def hurry(self, lv: LvUuid, seen: float, now: float) -> None:
        """Look again soon, however long nothing has happened."""
        self._again(lv, seen, now, SOONEST)

    def hydrate(self, lv: LvUuid, seen: float, now: float, done: int,
                total: int) -> None:
        """Look again when all is copied, if it goes on as so far.

        :param done: regions that are copied
        """
        before, was = self._progress.get(lv, (now, done))
        self._progress[lv] = (now, done)
        interval = SOONEST
        if done > was and now > before:
            left = (total - done) * (now - before) / (done - was)
            interval = min(max(left, SOONEST / 4), HYDRATING_LATEST)
        self._again(lv, seen, now, interval)

    def _again(self, lv: LvUuid, seen: float, now: float,
               interval: float) -> None:
        planned = self._looks.get(lv)
        self._looks[lv] = _Look(now + interval, interval)
        self._nominated(lv, planned, seen)

    def _nominated(self, lv: LvUuid, planned: _Look | None,
                   seen: float) -> None:
        if planned and planned.at > seen:
            self.nominate(lv, planned.at)
