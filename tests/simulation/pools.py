# SPDX-License-Identifier: Apache-2.0
"""Thin pools: how full one is, and what of the rest copies were promised."""

from __future__ import annotations

import typing

from cinder_dmclone.host import thin_pool
from cinder_dmclone import names
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.simulation import truth as truth_module
from tests.unit.fake import storage

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module


def taken(node: cloud_module.Node) -> int:
    """What is written in a node's pool, and what its copies may yet write."""
    return node.group.usage().used + sum(
        _due(node, lv) for lv in node.group.volumes.values() if lv.pool)


def _due(node: cloud_module.Node, lv: storage.Volume) -> int:
    """What has yet to arrive of an LV; a server may write holes of it.

    A copy that has no clone yet may turn out to have no room.
    """
    source, uuid = lv_tags.Tags.parse(lv.tags).source, names.lv_uuid(lv.name)
    meta = uuid and node.meta_group.volumes.get(names.meta_lv(uuid))
    if not source or not meta or not meta.superblock:
        return 0
    whole = source.size // storage.REGION
    return (whole - sum(region < whole for region in lv.blocks)
            ) * storage.REGION


def free(node: cloud_module.Node) -> int:
    """The room for another copy's data, if one may begin there."""
    group = node.group
    if not group.pool:
        return group.report().free
    if group.usage().above(thin_pool.MOST):
        return 0
    return group.pool_size - taken(node)


def grow(node: cloud_module.Node) -> None:
    """After a write of a server: its own LV may be larger than the pool.

    That is what a thin pool is for. Somebody extends it then, before it is
    full: of that no copy was promised anything.
    """
    if node.group.pool:
        node.group.pool_size = max(node.group.pool_size,
                                   units.Bytes(taken(node)))


def check(node: cloud_module.Node) -> None:
    """A pool that only copies fill is never full."""
    if node.group.pool and taken(node) > node.group.pool_size:
        copies = [name for name, lv in node.group.volumes.items()
                  if _due(node, lv)]
        raise truth_module.Violation(
            'I19 pool', f'{node.name} has {node.group.pool_size} bytes, '
            f'{taken(node)} are written or promised; {copies} have yet to '
            'arrive')
