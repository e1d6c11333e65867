# SPDX-License-Identifier: Apache-2.0
"""The locks of a node: who changes a volume takes its own.

A backend has one, too: cinder-volume has it while it runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
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
_LOCK_NAME = 'cinder-dmclone-{node}-{volume}'

# Threads of this process wait for each other here, and so without a poll.
_turns: weakref.WeakValueDictionary[str, threading.Lock] = (
    weakref.WeakValueDictionary())
_guard = threading.Lock()


def ready() -> None:
    """See that locks can be had.

    :raises OSError: if no file can be made in ``state_path``
    """
    path = os.path.join(CONF.state_path, f'cinder-dmclone-{os.getpid()}')
    _let_go(_opened(path), path)


class Locks:
    """One lock per volume and node, shared by the node's processes.

    They are files in ``state_path``, whatever ``[coordination]`` says: a lock
    that another machine keeps may be lost while its holder works, and nobody
    would tell him. Who is on another node is kept away by the row. A file is
    there while somebody has the lock, and whoever gets it looks whether it
    still is.

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
        :raises OSError: if no file can be made in ``state_path``
        """
        path = os.path.join(CONF.state_path, _LOCK_NAME.format(
            node=self._node, volume=volume_id))
        deadline = time.monotonic() + seconds
        with contextlib.ExitStack() as stack:
            turn = _turn(path)
            if turn.acquire(timeout=seconds):
                stack.callback(turn.release)
                file = _taken(path, deadline)
            else:
                file = None
            if file is None:
                raise exceptions.VolumeLocked(
                    volume=volume_id, node=self._node, seconds=seconds)
            stack.callback(_let_go, file, path)
            yield

    @reads
    def room(self) -> typing.ContextManager[None]:
        """The node's room, held while a copy takes its own of it.

        Nobody who has it waits for another lock. To enter it raises NotBegun
        if others do not end.
        """
        return self._room


def _turn(path: str) -> threading.Lock:
    with _guard:
        turn = _turns.get(path)
        if turn is None:
            turn = _turns[path] = threading.Lock()
        return turn


def _taken(path: str, deadline: float) -> int | None:
    """A file that only this process has locked; None if others do not end."""
    while True:
        file = _opened(path)
        locked = _flocked(file, fcntl.LOCK_EX)
        if locked and _is(file, path):
            return file
        os.close(file)
        if locked:
            # It was let go of in between.
            continue
        if time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_SECONDS)


def _let_go(file: int, path: str) -> None:
    try:
        # While nobody else can have it.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    finally:
        os.close(file)


def _is(file: int, path: str) -> bool:
    """Whether an open file is still what has this path."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Presence:
    """Whether cinder-volume works on a backend of this node.

    It is a lock on a file in ``state_path``, which ends with its process. Not
    one of fcntl(2), as fasteners and tooz take: a process loses that when it
    closes any descriptor of the file, and Cinder may set up a driver twice.
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
