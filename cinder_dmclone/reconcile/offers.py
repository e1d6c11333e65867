# SPDX-License-Identifier: Apache-2.0
"""Offers that nobody takes up: how long they have stood."""

from __future__ import annotations

from cinder_dmclone.database import rows
from cinder_dmclone import records

# How long an offer for a live migration may stand without its attachment
# being connected. Nova gives up much sooner.
OFFER_SECONDS = 600.0


class Unclaimed:
    """Since when offers stand that no attachment is connected for."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[records.Location, float]] = {}

    def overdue(self, lv: str, row: rows.Row | None, now: float) -> bool:
        """Whether the offer of a row has stood for too long.

        :param now: seconds of a clock that only grows
        """
        attachment = row and row.migration
        if (row is None or row.offer is None or attachment is None
                or attachment.connected):
            self._since.pop(lv, None)
            return False
        offer, since = self._since.get(lv, (None, now))
        if offer != row.offer:
            since = now
        self._since[lv] = (row.offer, since)
        return now - since > OFFER_SECONDS
