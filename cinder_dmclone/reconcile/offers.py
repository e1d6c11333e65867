# SPDX-License-Identifier: Apache-2.0
"""Offers that nobody takes up: how long they have stood."""

from __future__ import annotations

from cinder_dmclone.database import rows
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone.reconcile.since import Since

# How long an offer for a live migration may stand without its attachment
# being connected. Nova gives up much sooner. No relocation takes as long, a
# live migration may.
OFFER_SECONDS = 600.0
# How long nobody may want a volume that says somebody does. Cinder writes
# that down first, and who it is at once (``API._attachment_reserve``).
LET_DOWN_SECONDS = 60.0


class Offers:
    """Since when offers stand."""

    def __init__(self) -> None:
        self._standing = Since[Location](OFFER_SECONDS)
        self._unclaimed = Since[Location](OFFER_SECONDS)
        self._let_down = Since[str](LET_DOWN_SECONDS)

    def standing(self, lv: LvUuid, row: rows.Row | None, now: float) -> bool:
        """Whether the offer of a row has stood for long.

        :param now: seconds of a clock that only grows
        """
        return self._standing.long(lv, _offer(row), now)

    def overdue(self, lv: LvUuid, row: rows.Row | None, now: float) -> bool:
        """Whether no attachment was connected for it all the while."""
        offer = _offer(row)
        attachment = row.migration if row and offer else None
        waiting = attachment and not attachment.connected
        return self._unclaimed.long(lv, offer if waiting else None, now)

    def let_down(self, lv: LvUuid, row: rows.Row | None, now: float) -> bool:
        """Whether a volume has long been left to nobody (``Row.let_down``)."""
        found = row.status if row and row.let_down else None
        return self._let_down.long(lv, found, now)


def _offer(row: rows.Row | None) -> Location | None:
    return None if not row or row.unreadable else row.offer


def hindrance(facts: Facts) -> str:
    """What an operator has to know of an offer that stands for long.

    It ends when its attachment does, and nothing else ends it: Nova has
    forgotten it, or its copy is lost.
    """
    row, stack = facts.row, facts.stack
    attachment = row.migration if row and facts.standing else None
    if not row or not attachment:
        return ''
    end = ('abort the live migration of its server, or delete the attachment '
           f'that was made for it, {attachment.id}')
    if facts.home:
        return (f'volume {row.id} of {facts.node} is offered to {row.offer} '
                f'for more than {OFFER_SECONDS / 60:.0f} minutes. As long as '
                'it is, the volume cannot be extended, migrated or backed up. '
                f'If its server does not move there any more, {end}.')
    if row.offer == facts.here and not stack.assembled:
        return (f'this copy of volume {row.id} on {facts.node} was not '
                'finished when the node went down, and is not put together '
                f'again. Its server cannot move to it: {end}; then it can be '
                'tried again.')
    return ''
