# SPDX-License-Identifier: Apache-2.0
"""Views: what is read through one stays, and a view ends when nobody reads.

Who reads ends the view. One that died has left it: nobody has it open then,
and sooner or later no status says any more that somebody reads. A status may
be late at either end, so that it takes a while until it is believed.
"""

from __future__ import annotations

import typing

from cinder.objects.fields import SnapshotStatus

from cinder_dmclone.database import rows
from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone.location import SnapshotId
from cinder_dmclone import names
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import most_urgent
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone.reconcile.since import Since
from cinder_dmclone.stack.state import Stack

# So long nobody may seem to want a view before it is taken away.
UNUSED_SECONDS = 60.0
_QUIET = (Verdict.REST, Verdict.WAIT, Verdict.WATCH)

Snapshots = typing.Mapping[SnapshotId, SnapshotRow]


def unused(stack: Stack, row: rows.Row | None,
           snapshots: Snapshots) -> frozenset[names.DeviceName]:
    """Views of an LV that nobody has open and no status is a reason for.

    While a volume in use is backed up, its snapshot is read. So are devices
    for the node's own work, of which no status need tell: Cinder's manager
    makes a volume for itself, ``in-use`` without an attachment, and opens it
    a little later than it asks for it (``_revert_to_snapshot_generic``).
    """
    wanted = bool(row and row.is_read) or any(
        snapshot.status == SnapshotStatus.BACKING_UP
        for snapshot in snapshots.values())
    kinds = (names.Kind.IO,) if wanted else (names.Kind.IO, names.Kind.VIEW)
    return frozenset(name for name in stack.of_kind(*kinds)
                     if not stack.is_held(name))


class Views:
    """Since when views, and devices for the node's own work, are unused."""

    def __init__(self) -> None:
        self._since = Since[frozenset[names.DeviceName]](UNUSED_SECONDS)

    def forgotten(self, stack: Stack, row: rows.Row | None,
                  snapshots: Snapshots,
                  now: float) -> frozenset[names.DeviceName]:
        """Those that have been for long.

        :param now: seconds of a clock that only grows
        """
        found = unused(stack, row, snapshots)
        long = self._since.long(stack.lv, found or None, now)
        return found if long else frozenset()


def considered(facts: Facts, found: Decision) -> Decision:
    """What views mean for the next step of an LV.

    :param found: that step, if nobody read the LV
    """
    there = frozenset(facts.stack.of_kind(names.Kind.VIEW))
    if there and found.step is Action.ERASE:
        read = there - unused(facts.stack, facts.row, facts.snapshots)
        return Decision(Verdict.WAIT, 'it is read') if read else found
    if there and found.step in _QUIET:
        if facts.forgotten & there:
            return Decision(Action.CONSUMERS, 'nobody reads any more',
                            drop=facts.forgotten & there)
        return most_urgent(found, Decision(Verdict.WAIT, 'it is read'))
    return found
