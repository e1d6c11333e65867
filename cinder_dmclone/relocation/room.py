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
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units


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
    :raises PoolUnusable: if the data's pool is
    """
    if not host.group.pool:
        return Space(report.size, report.free,
                     units.Bytes(report.size - report.free))
    usage = host.group.usage()
    if usage.state:
        raise exceptions.PoolUnusable(pool=host.group.place,
                                      reason=usage.state)
    thin = [lv for lv in report.lvs.values() if lv.pool == host.group.pool]
    promised = sum(_promised(host, lv) for lv in thin)
    return Space(usage.size, units.Bytes(max(0, usage.free - promised)),
                 units.Bytes(sum(lv.size for lv in thin)), usage)


def _promised(host: Host, lv: lvm.LogicalVolume) -> int:
    """What an LV that hydrates will still take of its pool."""
    try:
        source = lv_tags.Tags.parse(lv.tags).source
    except exceptions.CorruptRecord:
        return 0  # the reconciler reports it
    if source is None:
        return 0
    # It may have been extended, and written there.
    return max(0, int(source.size) - int(host.group.mapped(lv)))


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
    reserve = int(data.size) * settings.reserved_percentage // 100
    found = units.Bytes(max(0, int(data.free) - reserve))
    own_group = host.meta_group.name != host.group.name
    shared = not own_group and data.usage is None
    meta = _metadata_group(host) if own_group else report
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


def confirm(host: Host, size: units.Bytes) -> None:
    """Still have the room for a copy that somebody has asked for.

    Others may have asked at the same time. LVM makes no LV without room,
    unless it is thin.

    :raises NoRoom: if there is none
    """
    if host.group.pool:
        require(host, host.group.report(), size)


def _metadata_group(host: Host) -> lvm.Report:
    try:
        return host.meta_group.report()
    except exceptions.DMCloneException as error:
        raise exceptions.NoMetadataGroup(
            group=host.meta_group.name, node=host.settings.node,
            reason=error.msg) from error
