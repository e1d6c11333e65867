# SPDX-License-Identifier: Apache-2.0
"""A snapshot pins the LV that the volume is on: from then on it is frozen.

A thin LV that has all of the volume stays as it is: the snapshot is another
one, which shares its blocks.

The tag comes first, and goes last: what the row says is a snapshot has one.
"""

from __future__ import annotations


from cinder_dmclone.database import rows
from cinder_dmclone.database import snapshots
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import thin_snapshot
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.stack import tagging
from cinder_dmclone import units
from cinder_dmclone.world import World


def pin(world: World, row: rows.Row, wanted: snapshots.Pin) -> None:
    """Make the LV of a volume that nobody writes a snapshot.

    The caller holds the volume's lock, and nothing is open on it. What fails
    is undone by the reconciler, which makes sure first that it did.

    :raises CannotCut: if somebody has it open
    :raises RowChanged, DatabaseAway: see ``SnapshotStore.pin``
    """
    stack = inspect.refresh(world.host, row.lv)
    lender.require_openers(world, row, stack)
    consumers.flush(world.host, stack)
    mark(world, row.lv, wanted)
    world.snapshots.pin(wanted, row)


def take(world: World, row: rows.Row, stack: Stack,
         snapshot: snapshots.SnapshotRow) -> None:
    """Make an LV of its own a snapshot, whoever writes the volume.

    The caller holds the volume's lock. What fails is undone as in ``pin``.

    :param stack: the volume's, for which ``thin_snapshot.possible``
    :raises PoolFull, PoolUnusable: see ``thin_snapshot.make``
    :raises RowChanged, DatabaseAway: see ``SnapshotStore.pin``
    """
    at = Location.never_used(world.settings.node)
    wanted = snapshots.Pin(snapshot, at)
    made = tag(wanted)
    thin_snapshot.make(world.host, stack, at.lv, [made], made.size)
    world.snapshots.pin(wanted, row)


def tag(wanted: snapshots.Pin) -> lv_tags.SnapTag:
    """What an LV says of a snapshot that it is, or is to be."""
    snapshot = wanted.snapshot
    return lv_tags.SnapTag(wanted.record.generation, snapshot.id,
                           snapshot.volume,
                           units.Bytes.from_gib(snapshot.size))


def mark(world: World, lv: LvUuid, wanted: snapshots.Pin) -> None:
    """Write down durably that an LV is to be a snapshot."""
    tagging.write(world.host, lv, add=[tag(wanted)])


def forget(world: World, lv: LvUuid, gone: lv_tags.SnapTag) -> None:
    """Write down durably that an LV is not, or no longer, a snapshot."""
    tagging.write(world.host, lv, remove=[gone])
