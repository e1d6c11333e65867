# SPDX-License-Identifier: Apache-2.0
"""A thin LV that begins as another one: their pool shares what both have.

LVM makes it at once (``lvcreate --snapshot``). Nothing is copied or hydrates,
neither needs the other afterwards, and whoever writes the one goes on. Of what
is not all in one LV of a pool a copy is made.
"""

from __future__ import annotations

from typing import Iterable

from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.relocation import room
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone import units


def possible(host: Host, stack: Stack) -> bool:
    """Whether all that a stack shows is in one LV, in this node's pool."""
    return bool(stack.data and host.group.pool
                and stack.data.pool == host.group.pool
                and not (stack.tags.source or stack.assembled))


def make(host: Host, stack: Stack, lv: LvUuid, tags: Iterable[lv_tags.Tag],
         size: units.Bytes) -> None:
    """Make an LV that is what another one is now; both are durable then.

    It has every write that was acknowledged before, whoever writes. The caller
    holds the lock of the volume that the other one is of.

    :param lv: the new one
    :param tags: what it says of itself from its first moment
    :param size: its own, not less than that of the other one
    :raises PoolFull, PoolUnusable: if nothing new may begin in the pool
    """
    data = consumers.active_data(host, stack)
    room.admit(host, host.group.report())
    host.group.snapshot(names.data_lv(lv), data.name,
                        [lv_tags.print_tag(tag) for tag in tags])
    if size > data.size:
        host.group.extend(names.data_lv(lv), size)
    # What was written and not flushed is the same blocks in both.
    consumers.flush(host, stack)
    host.group.flush()
