# SPDX-License-Identifier: Apache-2.0
"""Which LV a device leads to: its name may be that of an earlier one."""

from __future__ import annotations

import typing

from cinder_dmclone.host.dm import table
from cinder_dmclone.location import Location
from cinder_dmclone import names
from cinder_dmclone.stack import lv_tags

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module
    from tests.simulation import truth as truth_module


def to(node: cloud_module.Node, device: str) -> Location:
    """The LV that a consumer leads to, or has the name of."""
    name = names.DeviceName.parse(device)
    assert name
    found = node.mapper.mapped.get(device)
    while found:
        below = names.DeviceName.parse(found.name)
        if below and below.kind is names.Kind.CLONE:
            return Location(node.name, below.lv)
        if not isinstance(found.target, table.Linear | table.Gate):
            break
        devnum = found.target.device
        lv = node.mapper._lv(devnum)
        uuid = names.lv_uuid(lv.name) if lv else None
        if uuid:
            return Location(node.name, uuid)
        found = node.mapper._by_devnum(devnum)
    return Location(node.name, name.lv)


def is_volume(truth: truth_module.Truth, where: Location) -> bool:
    """Whether what is written there is written to the volume.

    Until its first writer is led over, a copy on the node of what it was
    made of is the same.
    """
    owner = truth.owner
    if where == owner:
        return True
    node = truth.cloud.nodes[owner.node]
    lv = node.group.volumes.get(names.data_lv(owner.lv))
    source = lv_tags.Tags.parse(lv.tags).source if lv else None
    clone = node.mapper.mapped.get(str(names.clone(owner.lv)))
    return bool(source and source.local and clone and not clone.copied
                and where == Location(owner.node, source.lv))
