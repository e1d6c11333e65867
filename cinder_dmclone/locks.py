# SPDX-License-Identifier: Apache-2.0
"""The locks of a node: who changes a volume takes its own.

A backend has one, too: cinder-volume has it while it runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import typing

from cinder import coordination
from oslo_config import cfg
from tooz import coordination as tooz_coordination

from cinder_dmclone import exceptions
from cinder_dmclone.host.one_at_a_time import OneAtATime
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.marks import reads

CONF = cfg.CONF

_POLL_SECONDS = 0.2

# With the node: a backend of [coordination] may be shared by all nodes, and a
# node asks others while it holds its own lock.
_LOCK_NAME = 'dmclone-{node}-{volume}'


class Locks:
    """One lock per volume and node, shared by the node's processes.

    And one for the node's room, of which only cinder-volume gives any.
    """

    def __init__(self, node: NodeName) -> None:
        self._node = node
        self._room = OneAtATime(f'the room of {node}')

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

    @reads
    def room(self) -> typing.ContextManager[None]:
        """The node's room, held while a copy takes its own of it.

        Nobody who has it waits for another lock. To enter it raises NotBegun
        if others do not end.
        """
        return self._room

    @staticmethod
    def forget(volume_id: VolumeId) -> None:
        """Remove what locks of a deleted volume have left on this host.

        For a class method of Cinder that does not know its node.
        """
        coordination.synchronized_remove(
            _LOCK_NAME.format(node='*', volume=volume_id))


class Presence:
    """Whether cinder-volume works on a backend of this node.

    It is a lock on a file in ``state_path``, which ends with its process.
    Neither one of Cinder's, which may need another machine, nor of fcntl(2),
    as fasteners takes: a process loses that when it closes any descriptor of
    the file, and Cinder may set up a driver twice.
    """

    def __init__(self, node: NodeName) -> None:
        self._node = node
        self._path = os.path.join(CONF.state_path, f'dmclone-{node}.lock')

    def announce(self, seconds: float) -> None:
        """Say that this process does, until it ends. Several may.

        :param seconds: how long to wait for a command that keeps it away
        :raises Deactivating: if that still runs then
        """
        file = self._open()
        deadline = time.monotonic() + seconds
        while not _flocked(file, fcntl.LOCK_SH):
            if time.monotonic() >= deadline:
                os.close(file)
                raise exceptions.Deactivating(node=self._node,
                                              seconds=seconds)
            time.sleep(_POLL_SECONDS)

    @contextlib.contextmanager
    def absent(self) -> typing.Iterator[None]:
        """Keep cinder-volume from setting up meanwhile.

        :raises ServiceRuns: if it has
        """
        file = self._open()
        try:
            if not _flocked(file, fcntl.LOCK_EX):
                raise exceptions.ServiceRuns(node=self._node)
            yield
        finally:
            os.close(file)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)


def _flocked(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
