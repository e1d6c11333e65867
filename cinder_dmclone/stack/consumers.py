# SPDX-License-Identifier: Apache-2.0
"""Consumers: the devices that a volume is used by on this node."""

from __future__ import annotations

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import device
from cinder_dmclone.host.dm import table
from cinder_dmclone.host import lvm
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import state
from cinder_dmclone import units


def consumer_table(host: Host, stack: state.Stack) -> table.Table:
    """What every consumer maps to: ``top``, and what lies beyond it.

    A volume extended while hydrating has its new end on the data LV alone,
    since the clone keeps its source's size.
    """
    devnum = data_devnum(host, stack)
    whole = active_data(host, stack).size.to_sectors()
    clone = _clone_in_use(stack)
    if stack.lacks_clone:
        raise unusable(host, stack,
                       'it is not complete, and its clone is not there')
    if clone is None:
        return table.Table.single(whole, table.Linear(devnum))
    old = clone.table.length
    segments = [table.Segment(units.Sectors(0), old,
                              table.Linear(clone.devnum))]
    if whole > old:
        segments.append(table.Segment(
            old, units.Sectors(whole - old),
            table.Linear(devnum, old)))
    return table.Table(tuple(segments))


def consume(host: Host, stack: state.Stack, name: names.DeviceName) -> None:
    """Make a consumer device."""
    refuse_discards(host, stack)
    if name.kind in (names.Kind.FRONT, names.Kind.IO):
        let_wait(host, stack)
    host.dm.apply(str(name), _table(host, stack, name),
                  readonly=name.kind in names.READERS)


def read_here(host: Host, stack: state.Stack, name: names.DeviceName) -> None:
    """Make a view that is read on this node: its reads wait from the first on.

    One that fails ends a backup, or an image.
    """
    let_wait(host, stack)
    consume(host, stack, name)


def _table(host: Host, stack: state.Stack,
           name: names.DeviceName) -> table.Table:
    found = consumer_table(host, stack)
    sizes: dict[str, units.Bytes] = {}
    if name.kind is names.Kind.LOAN:
        sizes = {tag.lv: tag.size for tag in stack.tags.lent}
    elif name.kind is names.Kind.VIEW:
        sizes = {tag.snapshot: tag.size for tag in stack.tags.snaps}
    # What was added since then is nothing to the borrower or reader.
    size = sizes.get(name.borrower or '')
    return found.first(size.to_sectors()) if size else found


def refuse_discards(host: Host, stack: state.Stack) -> None:
    """Have none in what is built on a copy from now on.

    A discard marks a region hydrated without copying it: on a thick LV the
    server would then read what the LV held before. Consumers inherit the
    limit from the clone, whose maker may have been killed.
    """
    if _clone_in_use(stack):
        host.dm.hide_discards(str(names.clone(stack.lv)))


def let_wait(host: Host, stack: state.Stack) -> None:
    """Let reads wait while the lender is away, before anybody here reads.

    They fail where all readers were elsewhere. That must be over when the
    device is there: Nova formats an encrypted volume whose first read fails.
    """
    if stack.may_wait and not stack.queues:
        host.dm.message(str(names.source(stack.lv)), 'queue_if_no_path')


def drop(host: Host, stack: state.Stack, name: names.DeviceName) -> None:
    """Remove a consumer device, and first what exports it.

    :raises DeviceBusy: if somebody has it open
    """
    for iqn in stack.exports_of(name):
        host.targets.remove(iqn)
    host.dm.remove(str(name))


def top(host: Host, stack: state.Stack) -> str:
    """'major:minor' of what the consumers lead to."""
    clone = _clone_in_use(stack)
    return clone.devnum if clone else data_devnum(host, stack)


def openers(host: Host, stack: state.Stack) -> int:
    """How often the volume is open on this node, as the kernel counts.

    What was swapped out keeps the data LV open until it is removed: the clone,
    and the source if it was pointed there.
    """
    count = host.dm.open_count(top(host, stack))
    if stack.tags.source:
        return count
    clone = stack.device(names.clone(stack.lv))
    if clone:
        count += host.dm.open_count(clone.devnum) - 1
    source = stack.device(names.source(stack.lv))
    if source and source.table.has_path(data_devnum(host, stack)):
        count -= 1
    return count


def _clone_in_use(stack: state.Stack) -> device.Device | None:
    """The clone, unless its consumers have been led past it.

    Whatever led to it again would keep it from being removed.
    """
    return stack.device(names.clone(stack.lv)) if stack.tags.source else None


def flush(host: Host, stack: state.Stack) -> None:
    """Make durable what was written to a volume on this node."""
    clone = [names.clone(stack.lv).path] if stack.assembled else []
    # Beyond a clone lies what a volume was extended by meanwhile.
    host.dm.flush(*clone, active_data(host, stack).path)


def data_devnum(host: Host, stack: state.Stack) -> str:
    """'major:minor' of the data LV.

    :raises CopyUnusable: if it is missing or not active
    """
    devnum = active_data(host, stack).devnum
    assert devnum is not None
    return devnum


def active_data(host: Host, stack: state.Stack) -> lvm.LogicalVolume:
    """The data LV.

    :raises CopyUnusable: if it is missing or not active
    """
    if stack.data is None or not stack.data.devnum:
        raise unusable(host, stack, 'its LV is missing or not active')
    return stack.data


def unusable(host: Host, stack: state.Stack,
             reason: object) -> exceptions.CopyUnusable:
    """The error that names the LV, its volume and this node."""
    return exceptions.CopyUnusable(
        lv=stack.lv, volume=stack.tags.volume, node=host.settings.node,
        reason=reason)
