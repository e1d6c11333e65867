# SPDX-License-Identifier: Apache-2.0
"""Cinder's migration of a volume that nobody uses, and its retype."""

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


def settled_host(service: Service, volume_id: VolumeId) -> str | None:
    """Where a volume is that is being retyped, as Cinder writes it.

    Its manager writes the host that the scheduler has found, which may be
    that of before a live migration. While the status is ``retyping`` none
    begins; one that is under way may end at any moment.

    :raises LiveMigrated: if one is
    """
    with service.locked(volume_id):
        row = service.row(volume_id)
        service.require_unoffered(row)
        return row.host
