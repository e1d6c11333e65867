# SPDX-License-Identifier: Apache-2.0
"""Writes a log of writes as QEMU's blklogwrites does."""
from __future__ import annotations

import os
import struct

from lab.disk import SECTOR

FLUSH = 1
_MAGIC = 0x6a736677736872


class Log:
    """A log in an open, empty file.

    :ivar end: how long it is, in bytes
    :ivar entries: how many it says that it has
    """

    def __init__(self, handle: int) -> None:
        self.end = SECTOR
        self._handle = handle
        self.entries = 0

    def add(self, sector: int, data: bytes, flags: int = 0) -> None:
        """Log a write, or what else the flags say."""
        entry = struct.pack('<QQQQ', sector, len(data) // SECTOR, flags, 0)
        os.pwrite(self._handle, entry.ljust(SECTOR, b'\0') + data, self.end)
        self.end += SECTOR + len(data)
        self.entries += 1
        os.pwrite(self._handle, struct.pack(
            '<QQQI', _MAGIC, 1, self.entries, SECTOR), 0)

    def flush(self) -> None:
        self.add(0, b'', FLUSH)
