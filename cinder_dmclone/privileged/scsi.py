# SPDX-License-Identifier: Apache-2.0
"""Questions to a SCSI disk itself, past every cache, as root.

sysfs keeps the answers of the first scan: a session that recovered on
another LUN still shows the old ones.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import threading
import time
from typing import Any, Callable

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import nodes

_SG_IO = 0x2285
_SG_INTERFACE = ord('S')
_SG_DXFER_FROM_DEV = -3
_SECONDS = 5
_PAUSE = 0.01


class _Header(ctypes.Structure):
    """struct sg_io_hdr of <scsi/sg.h>."""

    _fields_ = [
        ('interface_id', ctypes.c_int),
        ('dxfer_direction', ctypes.c_int),
        ('cmd_len', ctypes.c_ubyte),
        ('mx_sb_len', ctypes.c_ubyte),
        ('iovec_count', ctypes.c_ushort),
        ('dxfer_len', ctypes.c_uint),
        ('dxferp', ctypes.c_void_p),
        ('cmdp', ctypes.c_void_p),
        ('sbp', ctypes.c_void_p),
        ('timeout', ctypes.c_uint),
        ('flags', ctypes.c_uint),
        ('pack_id', ctypes.c_int),
        ('usr_ptr', ctypes.c_void_p),
        ('status', ctypes.c_ubyte),
        ('masked_status', ctypes.c_ubyte),
        ('msg_status', ctypes.c_ubyte),
        ('sb_len_wr', ctypes.c_ubyte),
        ('host_status', ctypes.c_ushort),
        ('driver_status', ctypes.c_ushort),
        ('resid', ctypes.c_int),
        ('duration', ctypes.c_uint),
        ('info', ctypes.c_uint),
    ]


def identity(path: str, devnum: str, seconds: float) -> dict[str, Any]:
    """Ask a disk who it is: serial, size and block size (bytes), readonly.

    While a session is in recovery the kernel holds commands back, without
    any timeout of theirs running; so this waits in a thread of its own and
    gives up on it.

    :param devnum: 'major:minor' of the disk that is meant
    :raises CommandFailed: if the disk refuses
    :raises CommandTimeout: if it does not answer within ``seconds``
    :raises NodeLate: if it has no node, or an earlier disk's
    """
    nodes.ready(path, devnum)
    return _bounded(lambda: _identity(path), f'SG_IO {path}', seconds)


_stuck: dict[str, threading.Thread] = {}


def _bounded(function: Callable[[], Any], what: str, seconds: float) -> Any:
    waiting = _stuck.get(what)
    if waiting and waiting.is_alive():
        # Never more than one stuck thread per disk.
        raise exceptions.CommandTimeout(command=what, seconds=seconds)
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(function())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        _stuck[what] = thread
        raise exceptions.CommandTimeout(command=what, seconds=seconds)
    _stuck.pop(what, None)
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _identity(path: str) -> dict[str, Any]:
    fd = _open(path)
    try:
        page = _ask(fd, 'INQUIRY', bytes([0x12, 1, 0x80, 0, 255, 0]), 255)
        mode = _ask(fd, 'MODE SENSE',
                    bytes([0x5a, 8, 0x3f, 0, 0, 0, 0, 0, 255, 0]), 255)
        capacity = _ask(
            fd, 'READ CAPACITY',
            bytes([0x9e, 0x10, *[0] * 8, 0, 0, 0, 32, 0, 0]), 32)
    finally:
        os.close(fd)
    serial = page[4:4 + int.from_bytes(page[2:4], 'big')]
    block_size = int.from_bytes(capacity[8:12], 'big')
    blocks = int.from_bytes(capacity[:8], 'big') + 1
    return {'serial': serial.rstrip(b'\0').decode('ascii', 'replace').strip(),
            'size': blocks * block_size,
            'block_size': block_size,
            'readonly': bool(mode[3] & 0x80)}


def _open(path: str) -> int:
    """Open a disk that may be very new.

    It has its entry in sysfs, and a node, before it can be opened: the kernel
    answers ENXIO until then (``device_add_disk`` in block/genhd.c).
    """
    deadline = time.monotonic() + nodes.SECONDS
    while True:
        try:
            return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise exceptions.CommandFailed(
                    command=f'open {path}', code=error.errno,
                    stderr=error.strerror) from None
        time.sleep(_PAUSE)


def _ask(fd: int, name: str, command: bytes, length: int) -> bytes:
    """Send one command that reads, repeating it past unit attentions."""
    for _attempt in range(4):
        data = ctypes.create_string_buffer(length)
        sense = ctypes.create_string_buffer(32)
        cdb = ctypes.create_string_buffer(command, len(command))
        header = _Header(
            interface_id=_SG_INTERFACE, dxfer_direction=_SG_DXFER_FROM_DEV,
            cmd_len=len(command), mx_sb_len=len(sense), dxfer_len=length,
            dxferp=ctypes.addressof(data), cmdp=ctypes.addressof(cdb),
            sbp=ctypes.addressof(sense), timeout=_SECONDS * 1000)
        try:
            fcntl.ioctl(fd, _SG_IO, header)
        except OSError as error:
            raise exceptions.CommandFailed(
                command=name, code=error.errno,
                stderr=error.strerror) from None
        if not (header.status or header.host_status
                or header.driver_status & 0x0f):
            return data.raw
        if sense.raw[2] & 0x0f != 6:
            break
    raise exceptions.CommandFailed(
        command=name, code=header.status,
        stderr=f'host {header.host_status}, driver {header.driver_status}, '
               f'sense key {sense.raw[2] & 0x0f}')
