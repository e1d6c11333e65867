# SPDX-License-Identifier: Apache-2.0
"""Changes that come one after the other, and that nobody waits for for ever.
"""

from __future__ import annotations

import threading

from cinder_dmclone import deadlines
from cinder_dmclone import exceptions


class OneAtATime:
    """A lock that is given up after a while; used as a context manager.

    :param what: is changed, in words
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        """
        :raises NotBegun: if others have not ended by then
        """
        seconds = deadlines.TURN_SECONDS
        if not self._lock.acquire(timeout=seconds):
            raise exceptions.NotBegun(command=f'A change of {self._what}',
                                      seconds=seconds)

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
