# SPDX-License-Identifier: Apache-2.0
"""Since when something of an LV is as it is, as far as this process knows."""

from __future__ import annotations

import typing

from cinder_dmclone.location import LvUuid

What = typing.TypeVar('What')


class Since(typing.Generic[What]):
    """Since when something is as it is, for each LV."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[LvUuid, tuple[What, float]] = {}

    def long(self, lv: LvUuid, what: What | None, now: float) -> bool:
        """Whether it has been the same for too long; None never is.

        :param now: seconds of a clock that only grows
        """
        if what is None:
            self._since.pop(lv, None)
            return False
        before, since = self._since.get(lv, (what, now))
        if before != what:
            since = now
        self._since[lv] = (what, since)
        return now - since > self._seconds
