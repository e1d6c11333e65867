# SPDX-License-Identifier: Apache-2.0
"""Block devices in sysfs."""

from __future__ import annotations

import os
import pathlib

from cinder_dmclone.units import Bytes
from cinder_dmclone.units import Sectors


def folder(path: str) -> pathlib.Path:
    """The sysfs directory of a block device.

    :raises OSError: if there is no such device
    """
    number = os.stat(path).st_rdev
    return pathlib.Path(
        f'/sys/dev/block/{os.major(number)}:{os.minor(number)}')


def size(path: str) -> Bytes:
    """How large a block device is.

    :raises OSError: if there is no such device
    """
    return Sectors(int((folder(path) / 'size').read_text())).to_bytes()


def block_size(path: str) -> int:
    """Logical block size; 512 for a disk that is missing."""
    try:
        device = folder(path)
        if (device / 'partition').exists():
            device = device.resolve().parent
        return int((device / 'queue/logical_block_size').read_text())
    except OSError:
        return 512
