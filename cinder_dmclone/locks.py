# SPDX-License-Identifier: Apache-2.0
"""The locks of a node: who changes a volume takes its own.

A backend has one, too: cinder-volume has it while it runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import glob
import os
import threading
import time
import typing

from oslo_config import cfg
from tooz import coordination as tooz_coordination

from cinder_dmclone import exceptions
from cinder_dmclone.host.one_at_a_time import OneAtATime
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.marks import reads

CONF = cfg.CONF

_POLL_SECONDS = 0.2

# With the node: several backends may have the same ``state_path``.
_LOCK_NAME = 'cinder-dmclone-{node}-{volume}'


# Two threads that ask for a lock at the same moment may be given one that the
# other does not see (``_barriers.setdefault`` of tooz/drivers/file.py).
_guard = threading.Lock()


@functools.cache
def _files(folder: str) -> tooz_coordination.CoordinationDriver:
    found = tooz_coordination.get_coordinator(f'file://{folder}', b'dmclone')
    found.start()
    return found


def ready() -> None:
    """Make what locks need in ``state_path``.

    :raises ToozError: if that cannot be made
    """
    _files(CONF.state_path)


class Locks:
    """One lock per volume and node, shared by the node's processes.

    They are files in ``state_path``, whatever ``[coordination]`` says: a lock
    that another machine keeps may be lost while its holder works, and nobody
    would tell him. Who is on another node is kept away by the row.

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
        name = _LOCK_NAME.format(node=self._node, volume=volume_id)
        with _guard:
            lock = _files(CONF.state_path).get_lock(name.encode())
        if not lock.acquire(blocking=seconds):
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
        name = _LOCK_NAME.format(node='*', volume=volume_id)
        for path in glob.glob(name, root_dir=CONF.state_path):
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(CONF.state_path, path))


class Presence:
    """Whether cinder-volume works on a backend of this node.

    It is a lock on a file in ``state_path``, which ends with its process. Not
    one of fcntl(2), as fasteners takes: a process loses that when it closes
    any descriptor of the file, and Cinder may set up a driver twice.
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
