# SPDX-License-Identifier: Apache-2.0
"""The locks of a node: who changes a volume takes its own.

A backend has one, too: cinder-volume has it while it runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
import threading
import time
import typing
import weakref

from oslo_config import cfg

from cinder_dmclone import exceptions
from cinder_dmclone.host.one_at_a_time import OneAtATime
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.marks import reads

CONF = cfg.CONF

_POLL_SECONDS = 0.2

# With the node: several backends may have the same ``state_path``.
_FILE = 'dmclone-{node}-volumes.lock'
# ``struct flock``: what kind, from where, which byte, how many, whose.
_RANGE = 'hhqqi'

# Threads of this process wait for each other here, and so without a poll.
_turns: weakref.WeakValueDictionary[tuple[str, int], threading.Lock] = (
    weakref.WeakValueDictionary())
_guard = threading.Lock()


def ready() -> None:
    """See that locks can be had.

    :raises OSError: if no file can be opened in ``state_path``
    """
    path = os.path.join(CONF.state_path, f'dmclone-{os.getpid()}.lock')
    os.close(_opened(path))
    os.unlink(path)


class Locks:
    """One lock per volume and node, shared by the node's processes.

    Each is a byte of a file in ``state_path``, whatever ``[coordination]``
    says: a lock that another machine keeps may be lost while its holder works,
    and nobody would tell him. Who is on another node is kept away by the row.

    A lock of fcntl(2) is its process's, which loses it when any thread closes
    the file; these are of what was opened (F_OFD_SETLK).

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
        :raises OSError: if the file cannot be opened
        """
        late = exceptions.VolumeLocked(volume=volume_id, node=self._node,
                                       seconds=seconds)
        path = os.path.join(CONF.state_path, _FILE.format(node=self._node))
        byte = _byte(volume_id)
        deadline = time.monotonic() + seconds
        turn = _turn(path, byte)
        with contextlib.ExitStack() as stack:
            if not turn.acquire(timeout=seconds):
                raise late
            stack.callback(turn.release)
            file = _opened(path)
            stack.callback(lambda: os.close(file))
            while not (_locked(file, byte) and _is(file, path)):
                if time.monotonic() >= deadline:
                    raise late
                time.sleep(_POLL_SECONDS)
                # Somebody may have deleted it.
                again = _opened(path)
                os.close(file)
                file = again
            # A child that was forked meanwhile has the file open, too.
            stack.callback(_change, file, byte, fcntl.F_UNLCK)
            yield

    @reads
    def room(self) -> typing.ContextManager[None]:
        """The node's room, held while a copy takes its own of it.

        Nobody who has it waits for another lock. To enter it raises NotBegun
        if others do not end.
        """
        return self._room


def _byte(volume_id: VolumeId) -> int:
    """Which one is a volume's: hardly ever another one's as well."""
    digest = hashlib.sha256(volume_id.encode()).digest()
    return int.from_bytes(digest[:8], 'big') >> 2


def _turn(path: str, byte: int) -> threading.Lock:
    with _guard:
        turn = _turns.get((path, byte))
        if turn is None:
            turn = _turns[path, byte] = threading.Lock()
        return turn


def _locked(file: int, byte: int) -> bool:
    try:
        _change(file, byte, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    return True


def _is(file: int, path: str) -> bool:
    """Whether an open file is still what has this path."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _change(file: int, byte: int, kind: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(
        _RANGE, kind, os.SEEK_SET, byte, 1, 0))


def _opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Presence:
    """Whether cinder-volume works on a backend of this node.

    It is a lock on a file in ``state_path``, which ends with its process.
    Cinder may set up a driver twice.
    """

    def __init__(self, node: NodeName) -> None:
        self._node = node
        self._path = os.path.join(CONF.state_path, f'dmclone-{node}.lock')

    def announce(self, seconds: float) -> None:
        """Say that this process does, until it ends. Several may.

        :param seconds: how long to wait for a command that keeps it away
        :raises Deactivating: if that still runs then
        """
        file = _opened(self._path)
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
        file = _opened(self._path)
        try:
            if not _flocked(file, fcntl.LOCK_EX):
                raise exceptions.ServiceRuns(node=self._node)
            yield
        finally:
            os.close(file)


def _flocked(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
