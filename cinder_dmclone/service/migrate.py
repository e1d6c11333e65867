# SPDX-License-Identifier: Apache-2.0
"""Cinder's migration of a volume that nobody uses."""

from __future__ import annotations

from cinder_dmclone.database import rows
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.service.base import Service


def migrate(service: Service, volume_id: VolumeId, host: str) -> bool:
    """Move a volume nobody is attached to.

    :param host: ``host@backend#pool``
    :returns: False if ``host`` is no peer; nothing was done then
    """
    world, peer = service.world, NodeName(host.partition('#')[0])
    if (peer.partition('@')[2] != world.settings.backend
            or peer == service.node or not world.peers.is_up(peer)):
        return False
    with service.home(volume_id) as known:
        assert known.row is not None
        try:
            coordinator.relocate(world, known.row, peer, rows.Migrate())
        finally:
            service.loop.enqueue(known.stack.lv)
    return True
