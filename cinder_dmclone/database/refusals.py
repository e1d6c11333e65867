# SPDX-License-Identifier: Apache-2.0
"""Why a row did not become what was wanted."""

from __future__ import annotations

import dataclasses

from cinder_dmclone.database import conditions
from cinder_dmclone.database import rows
from cinder_dmclone import exceptions


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A change that was tried.

    :ivar step: its name
    :ivar row: what the row was taken for
    :ivar wanted: what it was to become
    :ivar purpose: for which more had to hold
    :ivar pins: whether a snapshot was to be made with it
    """

    step: str
    row: rows.Row
    wanted: rows.Row
    purpose: rows.Purpose | None
    pins: bool


def of(attempt: Attempt, fresh: rows.Row | None,
       broken: conditions.Condition | None) -> exceptions.DMCloneException:
    """The error that says so.

    :param fresh: the row as it is; None if there is none
    :param broken: what does not hold, of what the purpose needs
    """
    row = attempt.row
    if fresh is None or fresh.deleted:
        return exceptions.RowChanged(volume=row.id, step=attempt.step,
                                     reason='it was deleted')
    if attempt.purpose and broken:
        peer = (attempt.wanted.offer or attempt.wanted.owner).node
        if broken.stays:
            return exceptions.HasToStay(volume=row.id, node=row.node,
                                        peer=peer,
                                        reason=broken.reason(fresh))
        return attempt.purpose.refusal(row, peer, broken.reason(fresh))
    reason = conditions.difference(row, fresh)
    if attempt.pins and not reason:
        reason = 'its snapshot is not being made any more'
    return exceptions.RowChanged(
        volume=row.id, step=attempt.step,
        reason=reason or 'the database did not make the change')
