# SPDX-License-Identifier: Apache-2.0
"""How what is asked for comes to its end, whatever is away meanwhile."""
from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable

from lab.errors import LabError
from lab.rest import RestError
from lab.show import Failure
from lab.soak import refusals
from lab.soak.outages import Outages

# So long something may fail or stay on its way when nothing has been away
# for as long, in seconds.
LIMIT = 400.0
# So long after an outage it may still be the reason: connections are made
# again, requests that were lost run into their time-outs.
GRACE = 120.0
# So long after an outage nobody works any more on what is on its way.
STUCK = 60.0
_PAUSE = 1.0
_UNDER_WAY = re.compile('(?!error).*ing')


class Lost(LabError):
    """What was asked for will not come: it has to be asked again."""


class Patience:
    """What may be tried again in one lab, and how often that was."""

    def __init__(self, outages: Outages) -> None:
        self._outages = outages
        self._over = False
        self._excused = False
        # How many tries of a step have failed, and what was said.
        self.tries = 0
        self.said: list[str] = []

    def begin(self, outage: bool) -> None:
        """A step begins.

        :param outage: something will be away
        """
        self.tries, self.said = 0, []
        self._excused = outage

    def close(self) -> None:
        """Let nothing be tried any more."""
        self._over = True

    def _calm(self, since: float) -> float:
        """Seconds since something was away, or since a moment."""
        ended = self._outages.ended
        return 0.0 if ended is None else time.monotonic() - max(since, ended)

    def excused(self) -> bool:
        """Whether what was away may be why something fails.

        What was begun then may fail later.
        """
        self._excused |= self._calm(float('-inf')) < GRACE
        return self._excused

    def bring_about(self, what: str, attempt: Callable[[], object]) -> None:
        """Try until it does not fail.

        :raises Failure: it fails, and nothing is or was away; or for too
            long
        """
        begin = time.monotonic()
        while True:
            self.excused()
            try:
                attempt()
                return
            except (LabError, OSError, http.client.HTTPException) as error:
                text = f'{what}: {error}'
                self.said.append(text)
                self.tries += 1
                asked = (isinstance(error, Lost | RestError)
                         and refusals.passes(str(error)))
                if not (asked or self.excused()):
                    raise Failure(text) from error
            if self._over or self._calm(begin) > LIMIT:
                raise Failure(f'not in {LIMIT:.0f} s: {text}')
            time.sleep(_PAUSE)

    def settled(self, what: str, status: Callable[[], str]) -> str:
        """What becomes of something that Cinder works on.

        :param status: as Cinder shows it
        :raises Lost: nobody works on it any more
        """
        begin = time.monotonic()
        while _UNDER_WAY.fullmatch(found := status()):
            if self.excused() and self._calm(begin) > STUCK:
                raise Lost(f'{what} stays {found}')
            if self._over or self._calm(begin) > LIMIT:
                raise Failure(f'{what} stays {found}')
            time.sleep(_PAUSE / 2)
        return found
