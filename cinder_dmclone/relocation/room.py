# SPDX-License-Identifier: Apache-2.0
"""What a node has room for: copies need their own size, and metadata.

Where data is thin its room is that of the pool, and the metadata, which is
not, has that of the volume group beside it. A copy needs its whole size there,
and what has yet to arrive of it is promised to it, also if it has holes, which
are not copied: a server may write them.
"""

from __future__ import annotations

import dataclasses

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import metadata
from cinder_dmclone.host import lvm
from cinder_dmclone.host import thin_pool
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.peers import messages
from cinder_dmclone.ports import Host
from cinder_dmclone.settings import Settings
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from cinder_dmclone.world import World


@dataclasses.dataclass(frozen=True)
class Space:
    """The room for data on this node.

    :ivar free: what is neither used nor promised
    :ivar provisioned: the sizes of all LVs
    :ivar usage: of the pool, if there is one
    """

    size: units.Bytes
    free: units.Bytes
    provisioned: units.Bytes
    usage: thin_pool.Usage | None = None


def space(host: Host, report: lvm.Report) -> Space:
    """The room for data, however full it is.

    :param report: that of the node's volume group
    :raises DiskMissing: if LVM makes nothing there
    :raises PoolUnusable: if the data's pool is
    """
    _require_whole(host, report)
    if not host.group.pool:
        return Space(report.size, report.free,
                     units.Bytes(report.size - report.free))
    # What else is asked of it may wait as well, and so would LVM.
    host.group.require_running()
    thin = [lv for lv in report.lvs.values() if lv.pool == host.group.pool]
    # First: what arrives meanwhile is then counted twice, not left out.
    promised = sum(_promised(host, lv) for lv in thin)
    usage = host.group.usage()
    if usage.state:
        raise exceptions.PoolUnusable(pool=host.group.place,
                                      reason=usage.state)
    # Servers may write what was promised to nobody, and copies still have to
    # arrive.
    free = units.Bytes(max(0, int(usage.free) - promised))
    return Space(usage.size, free,
                 units.Bytes(sum(lv.size for lv in thin)), usage)


def _promised(host: Host, lv: lvm.LogicalVolume) -> int:
    """What an LV that hydrates will still take of its pool."""
    try:
        source = lv_tags.Tags.parse(lv.tags).source
    except exceptions.CorruptRecord:
        return 0  # the reconciler reports it
    if source is None:
        return 0
    # It may have been extended, and written there, or be larger from the
    # beginning: that may be all that is mapped.
    return max(0, min(int(source.size),
                      int(lv.size) - int(host.group.mapped(lv) or 0)))


def admit(host: Host, report: lvm.Report) -> Space:
    """The room for data, if anything new may begin in it.

    :raises PoolFull: if that is in a pool which is too full
    :raises PoolUnusable: if it cannot be used, or would show a volume what
        another one has left
    """
    found = space(host, report)
    usage = found.usage
    if usage and not usage.zeroes:
        raise exceptions.PoolUnusable(
            pool=host.group.place, reason='it does not zero new blocks: '
            f'lvchange --zero y {host.group.place}')
    if usage and usage.above(thin_pool.MOST):
        raise exceptions.PoolFull(
            pool=host.group.place, node=host.settings.node, used=usage,
            most=int(thin_pool.MOST))
    return found


def free(host: Host, report: lvm.Report, size: units.Bytes) -> units.Bytes:
    """The room for copies, without that for this one's metadata.

    What ``reserved_percentage`` reserves is for no copy either.

    :param report: that of the node's volume group
    :param size: of the copy
    :raises NoRoom: if there is none for the metadata, or nothing new may
        begin here
    :raises NoMetadataGroup: if the group for it is lost
    """
    settings = host.settings
    data = admit(host, report)
    found = _for_data(host, data)
    own = host.own_meta_group
    shared = not own and data.usage is None
    meta = _metadata_report(own, settings) if own else report
    _require_whole(host, meta)
    needed = metadata.size(size, settings.least_region).round_up(
        meta.extent_size)
    meta_free = found if shared else meta.free
    if meta_free < needed:
        raise exceptions.NoRoom(group=meta.name, node=settings.node,
                                needed=needed, free=meta_free)
    return found - needed if shared else found


def require(host: Host, report: lvm.Report, size: units.Bytes) -> None:
    """Have room for a copy.

    :raises NoRoom: if there is none
    """
    found = free(host, report, size)
    if found < size:
        raise exceptions.NoRoom(
            group=host.group.place, node=host.settings.node, needed=size,
            free=found)


def lacking(peer: NodeName, there: messages.Room, size: units.Bytes,
            what: str) -> str:
    """Why another node has no room for a copy; empty if it has.

    :param there: what it has said
    :param what: a word for what would be copied
    """
    if there.lacks or there.free >= size:
        return there.lacks
    return (f'{peer} has not enough room: the {what} needs {size} bytes, '
            f'{there.free} are free')


def unlike(world: World, peer: NodeName, block: int) -> str:
    """Why no copy can be made between two nodes' disks; empty if one can.

    :param block: the size of the other's blocks, in bytes
    """
    here = world.host.group.report().block_size
    if block == here:
        return ''
    return (f'the disks of {peer} have {block}-byte blocks, those of '
            f'{world.settings.node} {here}')


def make(world: World, lv: LvUuid, size: units.Bytes, copy: clones.Becomes,
         source: lv_tags.SourceTag, *others: lv_tags.Tag) -> None:
    """Make the LVs of a copy, if there still is the room it has asked for.

    Others may have asked at the same time. One after the other looks once
    more and makes its LVs, which are what the next one sees: whoever then
    finds too little would have found that alone, too. A new volume does not
    wait for them, and may take room between the two.

    :param size: its own; see ``clones.create``
    :raises NoRoom: if there is none; an LV may be there, and has to go
    :raises NotBegun: if others do not end
    """
    host = world.host
    with world.locks.room():
        require(host, host.group.report(), size)
        try:
            clones.create(host, lv, size, copy, source, *others)
        except exceptions.CommandFailed:
            require(host, host.group.report(), size)
            raise


def _require_whole(host: Host, report: lvm.Report) -> None:
    if report.missing:
        raise exceptions.DiskMissing(group=report.name,
                                     node=host.settings.node)


def _for_data(host: Host, data: Space) -> units.Bytes:
    """The room for copies' data."""
    reserve = int(data.size) * host.settings.reserved_percentage // 100
    return units.Bytes(max(0, int(data.free) - reserve))


def _metadata_report(group: lvm.VolumeGroup,
                     settings: Settings) -> lvm.Report:
    try:
        return group.report()
    except exceptions.DMCloneException as error:
        raise exceptions.NoMetadataGroup(
            group=group.name, node=settings.node,
            reason=error.msg) from error
