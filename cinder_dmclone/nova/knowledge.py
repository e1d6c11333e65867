# SPDX-License-Identifier: Apache-2.0
"""What a scheduler knows of Cinder, and how long it waits to know more."""

from __future__ import annotations

import concurrent.futures
import threading
import time
import typing

from oslo_log import log as logging

from cinder_dmclone.nova.rooms import Report
from cinder_dmclone.nova.rooms import Volume

LOG = logging.getLogger(__name__)

# All in seconds. Cinder itself learns of a change within a minute
# (backend_stats_polling_interval), so that asking more often tells nothing.
FRESH = 30
# Longer after it was fetched, a report is as good as none.
STALE = 120
# How long a server may wait for its placement because of Cinder.
WAIT = 5
# After a failure nobody asks and nobody waits for so long.
PAUSE = 30

T = typing.TypeVar('T')


class Cinder(typing.Protocol):
    """What is asked of Cinder; both raise whatever went wrong."""

    def report(self) -> Report:
        """All pools and types."""

    def volume(self, volume: str) -> Volume | None:
        """A volume by its id; None if it does not exist."""


def begin(call: typing.Callable[[], T]) -> concurrent.futures.Future[T]:
    """Call something in a thread that nobody has to wait for at the end."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)
    threading.Thread(target=run, daemon=True).start()
    return future


class Knowledge:
    """Asks Cinder in the background; who asks it waits for ``WAIT`` at most.

    What cannot be known is None: then servers are placed as if this was not
    here. The log says so once, until Cinder answers again.
    """

    def __init__(self, cinder: Cinder,
                 clock: typing.Callable[[], float] = time.monotonic,
                 wait: float = WAIT) -> None:
        self._cinder = cinder
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._report: Report | None = None
        self._fetched = float('-inf')
        self._flight: concurrent.futures.Future[None] | None = None
        self._patience = 0.0
        self._failed = float('-inf')
        self._quiet = False

    def report(self) -> Report | None:
        """The last report; a new one is fetched meanwhile if it is old.

        Only the first is waited for, and one after a long time without.
        """
        with self._lock:
            age = self._clock() - self._fetched
            if age >= FRESH:
                self._take_off()
            if age < STALE:
                return self._report
            flight = self._flight
            patience = self._patience - self._clock()
        if flight and patience > 0:
            try:
                flight.result(patience)
            except concurrent.futures.TimeoutError:
                self.failed(f'no answer in {self._wait:g} s')
        with self._lock:
            return self._known()

    def _known(self) -> Report | None:
        fresh = self._clock() - self._fetched < STALE
        return self._report if fresh else None

    def _take_off(self) -> None:
        """Fetch a report, unless somebody does, or it failed just now."""
        if self._flight is None and self._asks():
            self._patience = self._clock() + self._wait
            self._flight = begin(self._fetch)

    def _asks(self) -> bool:
        return self._clock() - self._failed >= PAUSE

    def _fetch(self) -> None:
        # What was done meanwhile is not in it for sure.
        fetched = self._clock()
        try:
            report = self._cinder.report()
        except Exception as error:
            self.failed(error)
        else:
            with self._lock:
                self._report, self._fetched = report, fetched
            self._succeeded()
        finally:
            with self._lock:
                self._flight = None

    def volumes(self, ids: typing.Sequence[str]) -> list[Volume] | None:
        """Those of these volumes that exist."""
        if not ids:
            return []
        with self._lock:
            if not self._asks():
                return None
        flight = begin(lambda: [self._cinder.volume(one) for one in ids])
        try:
            found = flight.result(self._wait)
        except concurrent.futures.TimeoutError:
            self.failed(f'no answer in {self._wait:g} s')
            return None
        except Exception as error:
            self.failed(error)
            return None
        self._succeeded()
        return [volume for volume in found if volume]

    def failed(self, error: object) -> None:
        """Something could not be known, for this reason."""
        with self._lock:
            self._failed = self._clock()
            quiet, self._quiet = self._quiet, True
        if not quiet:
            LOG.warning(
                'Servers are placed without regard to the room for their '
                'volumes, and where these are, until Cinder can be asked: %s',
                error)

    def _succeeded(self) -> None:
        with self._lock:
            quiet, self._quiet = self._quiet, False
        if quiet:
            LOG.info('Cinder has answered: servers are placed with regard to '
                     'their volumes again.')
