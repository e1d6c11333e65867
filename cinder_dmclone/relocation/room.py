# SPDX-License-Identifier: Apache-2.0
"""What a node has room for: copies need their own size, and metadata."""

from __future__ import annotations

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import metadata
from cinder_dmclone.host import lvm
from cinder_dmclone.ports import Host
from cinder_dmclone.settings import Settings
from cinder_dmclone import units


def too_large(settings: Settings, size: units.Bytes) -> str:
    """Why dm-clone cannot copy so much, empty if it can."""
    largest = metadata.largest(settings.region_size)
    if size <= largest:
        return ''
    return ('with its dmclone_region_size_kib none may have more than '
            f'{largest} bytes')


def free(host: Host, report: lvm.Report, size: units.Bytes) -> units.Bytes:
    """The room for copies, without that for this one's metadata.

    What ``reserved_percentage`` reserves is for no copy either.

    :param report: that of the node's volume group
    :param size: of the copy
    :raises NoRoom: if there is none for the metadata
    :raises NoMetadataGroup: if the group for it is lost
    """
    settings = host.settings
    shared = host.meta_group.name == host.group.name
    meta = report if shared else _metadata_group(host)
    needed = metadata.size(size, settings.region_size).round_up(
        meta.extent_size)
    reserve = int(report.size) * settings.reserved_percentage // 100
    found = units.Bytes(max(0, int(report.free) - reserve))
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
        raise exceptions.NoRoom(group=report.name, node=host.settings.node,
                                needed=size, free=found)


def _metadata_group(host: Host) -> lvm.Report:
    try:
        return host.meta_group.report()
    except exceptions.DMCloneException as error:
        raise exceptions.NoMetadataGroup(
            group=host.meta_group.name, node=host.settings.node,
            reason=error.msg) from error
