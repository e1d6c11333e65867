# SPDX-License-Identifier: Apache-2.0
"""Block devices, as root."""

from __future__ import annotations

import contextlib
import os
import re
import typing

from cinder_dmclone import exceptions
from cinder_dmclone import privileged
from cinder_dmclone.privileged import nodes
from cinder_dmclone.privileged import process
from cinder_dmclone.privileged import syscalls

_PATH = re.compile(r'/dev(/[A-Za-z0-9_.+:=@-]+)+')

# Writing back a page cache takes as long as the disk needs.
_FLUSH_SECONDS = 30.0

# An option of ionice(1), and of those only what says how to run a command.
PRIORITY = re.compile(r'-[cnt][a-z0-9]*')

# What others have a disk busy with comes first for who has the lowest
# priority; a portion is small.
_ZERO_SECONDS = 600.0
_ZERO_BEGUN = 600
_ZERO_WAIT = 1260
# Written at once, so that what servers write has its turn.
_STEP = 1 << 20


def device(path: str) -> str:
    """The path of a device whose node is there.

    :raises ValueError: if it cannot be one
    """
    if not _PATH.fullmatch(path) or '/..' in path:
        raise ValueError(f'{path!r} is not a device path')
    return nodes.ready(path)


@privileged.timely(_ZERO_WAIT, _ZERO_BEGUN)
def zero(path: str, first: int, size: int, priority: str = '') -> None:
    """Overwrite a part of a device that nobody else has open for himself.

    The kernel has the disk do it if that can (BLKZEROOUT), and keeps what is
    overwritten allocated.

    :param first: where, in bytes
    :param size: in bytes
    :param priority: as ``PRIORITY`` has it, or nothing
    :raises CommandFailed: if the disk reports an error, or is in use
    :raises CommandTimeout: if it does not answer
    """
    if first < 0 or size <= 0:
        raise ValueError(f'cannot overwrite {size} bytes at {first}')
    if priority and not PRIORITY.fullmatch(priority):
        raise ValueError(f'{priority!r} is no priority')
    path = device(path)
    with _claimed(path):
        # Else it looks for what a tenant may have written there, and ends if
        # that cannot be read.
        process.run([*(('ionice', priority) if priority else ()),
                     'blkdiscard', '--force', '--zeroout', f'--step={_STEP}',
                     f'--offset={first}', f'--length={size}', path],
                    _ZERO_SECONDS)


@contextlib.contextmanager
def _claimed(path: str) -> typing.Iterator[None]:
    """Have a device open for oneself, as who mounts or maps it has."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        raise exceptions.CommandFailed(
            command=f'open {path}', code=error.errno,
            stderr=error.strerror) from error
    try:
        yield
    finally:
        os.close(opened)


@privileged.context.entrypoint
def flush(paths: tuple[str, ...]) -> None:
    """Make everything written to these devices durable (fsync).

    :raises CommandFailed: if a disk reports an error
    :raises CommandTimeout: if a disk does not answer
    """
    for path in list(map(device, paths)):
        syscalls.fsync(path, _FLUSH_SECONDS)


@privileged.context.entrypoint
def drop_cache(paths: tuple[str, ...]) -> None:
    """Forget the cached pages of devices, but those not written back.

    Waits for nothing, unlike BLKFLSBUF: a device may hold writes.
    """
    for path in list(map(device, paths)):
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(opened)
