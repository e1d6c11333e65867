# SPDX-License-Identifier: Apache-2.0
"""Block devices, as root."""

from __future__ import annotations

import os
import re

from cinder_dmclone import privileged
from cinder_dmclone.privileged import nodes
from cinder_dmclone.privileged import syscalls

_PATH = re.compile(r'/dev(/[A-Za-z0-9_.+:=@-]+)+')

# Writing back a page cache takes as long as the disk needs.
_FLUSH_SECONDS = 30.0


def device(path: str) -> str:
    """The path of a device whose node is there.

    :raises ValueError: if it cannot be one
    """
    if not _PATH.fullmatch(path) or '/..' in path:
        raise ValueError(f'{path!r} is not a device path')
    return nodes.ready(path)


@privileged.context.entrypoint
def ready(path: str) -> None:
    """Wait for a device's node (``nodes.ready``)."""
    device(path)


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
