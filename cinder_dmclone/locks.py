# SPDX-License-Identifier: Apache-2.0
"""The lock that everybody takes who changes a volume on this node."""

from __future__ import annotations

import contextlib
import typing

from cinder import coordination
from tooz import coordination as tooz_coordination

from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.marks import reads

# With the node: a backend of [coordination] may be shared by all nodes, and a
# node asks others while it holds its own lock.
_LOCK_NAME = 'dmclone-{node}-{volume}'


class Locks:
    """One lock per volume and node, shared by the node's processes."""

    def __init__(self, node: NodeName) -> None:
        self._node = node

    @reads
    @contextlib.contextmanager
    def volume(self, volume_id: VolumeId,
               seconds: float) -> typing.Iterator[None]:
        """Hold the volume's lock.

        :param seconds: how long to wait for it
        :raises VolumeLocked: if it is still taken then
        """
        lock = coordination.COORDINATOR.get_lock(
            _LOCK_NAME.format(node=self._node, volume=volume_id))
        try:
            taken = lock.acquire(blocking=seconds)
        except tooz_coordination.LockAcquireFailed:
            taken = False
        if not taken:
            raise exceptions.VolumeLocked(
                volume=volume_id, node=self._node, seconds=seconds)
        try:
            yield
        finally:
            lock.release()

    @staticmethod
    def forget(volume_id: VolumeId) -> None:
        """Remove what locks of a deleted volume have left on this host.

        For a class method of Cinder that does not know its node.
        """
        coordination.synchronized_remove(
            _LOCK_NAME.format(node='*', volume=volume_id))
