# SPDX-License-Identifier: Apache-2.0
"""Offers that nobody takes up: how long they have stood."""

from __future__ import annotations

from cinder_dmclone.database import rows
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid

# How long an offer for a live migration may stand without its attachment
# being connected. Nova gives up much sooner.
OFFER_SECONDS = 600.0


class Unclaimed:
    """Since when offers stand that no attachment is connected for."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Location, float]] = {}

    def overdue(self, lv: LvUuid, row: rows.Row | None, now: float) -> bool:
        """Whether the offer of a row has stood for too long.

        :param now: seconds of a clock that only grows
        """
        found = None if not row or row.unreadable else row.offer
        attachment = row.migration if row and found else None
        if not found or not attachment or attachment.connected:
            self._since.pop(lv, None)
            return False
        offer, since = self._since.get(lv, (None, now))
        if offer != found:
            since = now
        self._since[lv] = (found, since)
        return now - since > OFFER_SECONDS
