# SPDX-License-Identifier: Apache-2.0
r"""The joint: how those who write are led from an LV to its copy.

::

        front              front              front
          |                  |                  |
         top               joint               top'
          |               /      \              |
         LV            top'       top          copy

What was written to the LV and not flushed must not be lost with the next
flush, which goes to the copy only. Device mapper sends a flush to every
target of a table: the joint is a little longer than the volume, and what it
has beyond is the LV. Once the LV was flushed the joint may go. No write waits
for more than the exchange of a table.
"""

from __future__ import annotations

from cinder_dmclone.host.dm import table
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack.state import Stack
from cinder_dmclone import units

# What no consumer reaches: a block of any disk.
_BEYOND = units.Sectors(8)


def lagging(copy: Stack, lender: Stack) -> list[names.DeviceName]:
    """Who still writes an LV in whose place a copy on its node goes on.

    By their names: another volume that begins as what this one is has nothing
    to do with them. Nor has who is cut off, and leads nowhere.
    """
    return [name for name in lender.of_kind(*names.WRITERS)
            if name.lv == copy.known_as and not lender.fenced(name)]


def lead_over(host: Host, copy: Stack, lender: Stack) -> None:
    """Have nobody write an LV any more that a copy on this node was made of.

    Idempotent, and goes on wherever it was interrupted.

    :raises CommandTimeout: if a read waits for what the LV itself has to
        fetch from a lender; those who write are led over later. It does not
        wait if all of the volume was written since.
    """
    name = names.joint(copy.lv)
    writers = lagging(copy, lender)
    if writers:
        consumers.refuse_discards(host, copy)
        host.dm.apply(str(name), _table(host, copy, lender))
        copy = inspect.refresh(host, copy.lv)
        length = consumers.consumer_table(host, copy).length
        through = table.Table.single(
            length, table.Linear(copy.devices[name].devnum))
        for writer in writers:
            host.dm.apply(str(writer), through,
                          seen=lender.device(writer))
        copy = inspect.refresh(host, copy.lv)
    if name in copy.devices:
        consumers.flush(host, lender)
        if copy.clone and copy.clone.complete and clones.is_complete(
                host, copy):
            clones.end_reads(host, copy)
        for writer in copy.of_kind(*names.WRITERS):
            consumers.consume(host, copy, writer)
        host.dm.remove(str(name))


def _table(host: Host, copy: Stack, lender: Stack) -> table.Table:
    found = consumers.consumer_table(host, copy)
    beyond = table.Segment(found.length, _BEYOND,
                           table.Linear(consumers.top(host, lender)))
    return table.Table((*found.segments, beyond))
