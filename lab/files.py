# SPDX-License-Identifier: Apache-2.0
"""File systems on volumes: made in a node, and looked at when at rest."""
from __future__ import annotations

import json
import pathlib
import typing
from typing import Any

from lab import programs
from lab.errors import LabError

if typing.TYPE_CHECKING:
    from lab import Lab
    from lab.node import Node

# What makes one and what checks one, whatever the device had before. Neither
# xfs_repair nor e2fsck writes anything so.
_MAKE = {'ext4': 'mkfs.ext4 -qF', 'xfs': 'mkfs.xfs -qf'}
_CHECK = {'ext4': 'e2fsck -fn', 'xfs': 'xfs_repair -n'}
# A file system that was not unmounted is told by words alone.
_NOT_CLEAN = ('skipping journal recovery', 'ALERT')
# Nothing is written, not even what a journal has.
_MOUNT = {'ext4': 'ro,noload', 'xfs': 'ro,norecovery'}
_LOOK = '''
mkdir -p /run/files && mount -t "$1" -o "$2" "$3" /run/files || exit 2
shift 3
"$@"
code=$?
umount /run/files && exit $code
'''
KINDS = tuple(_MAKE)
_LIMIT = 600.0


def create(lab: Lab, kind: str, node: int) -> str:
    """A volume on a node with an empty file system; its id.

    :param kind: one of KINDS
    """
    return lab.create_with(node, lambda device: f'{_MAKE[kind]} {device}')


def fsck(node: Node, kind: str, device: str) -> list[str]:
    """What is wrong with a file system that nobody has mounted, in words."""
    result = node.run(f'{_CHECK[kind]} {device} 2>&1', check=False,
                      timeout=_LIMIT)
    if result.code or any(words in result.stdout for words in _NOT_CLEAN):
        return [f'{_CHECK[kind]} {device}: status {result.code}: '
                f'{result.stdout.strip()[-2000:]}']
    return []


def look(node: Node, kind: str, device: str, directory: pathlib.Path,
         record: pathlib.Path) -> dict[str, Any]:
    """What lab/guest/files.py reports of a file system that is not mounted.

    :param directory: the lab's
    :param record: what the guest has said
    :raises LabError: it cannot be mounted
    """
    result = node.run(
        ['sh', '-c', _LOOK, 'sh', kind, _MOUNT[kind], device,
         *programs.command(directory, 'guest.files', device, '/run/files',
                           record)], check=False, timeout=_LIMIT)
    if not result.stdout:
        raise LabError(f'{device}: {result.stderr}')
    found: dict[str, Any] = json.loads(result.stdout)
    return found
