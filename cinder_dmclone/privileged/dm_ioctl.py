# SPDX-License-Identifier: Apache-2.0
"""Questions to the device mapper, and small changes, without a process.

The structures and numbers are those of ``linux/dm-ioctl.h``, version 4.0,
which every kernel since 2.6 understands. What needs udev to make a name is
left to dmsetup.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import os
import re
import struct
from typing import Iterator

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import syscalls

CONTROL = '/dev/mapper/control'

# struct dm_ioctl: version, data_size, data_start, target_count, open_count,
# flags, event_nr, padding, dev, name, uuid, data.
_HEAD = struct.Struct('=3IIIIiIIIQ128s129s7x')
assert _HEAD.size == 312
# struct dm_target_spec: sector_start, length, status, next, target_type.
_SPEC = struct.Struct('=QQiI16s')
# struct dm_name_list: dev, next; the name follows.
_NAMES = struct.Struct('=QI')
# struct dm_target_deps: how many; their numbers follow.
_DEPS = struct.Struct('=I4x')
# struct dm_target_msg: sector; the words follow.
_MESSAGE = struct.Struct('=Q')
_VERSION = (4, 0, 0)

LIST_DEVICES = 2
DEV_SUSPEND = 6
DEV_STATUS = 7
TABLE_LOAD = 9
TABLE_CLEAR = 10
TABLE_DEPS = 11
TABLE_STATUS = 12
LIST_VERSIONS = 13
TARGET_MSG = 14

READONLY = 1 << 0
SUSPENDED = 1 << 1
PERSISTENT = 1 << 3
STATUS_TABLE = 1 << 4
INACTIVE = 1 << 6
_BUFFER_FULL = 1 << 8
SKIP_LOCKFS = 1 << 10
NOFLUSH = 1 << 11

_DEVNUM = re.compile(r'\d+:\d+')
_FIRST_SIZE = 16 << 10
_LAST_SIZE = 16 << 20


@dataclasses.dataclass(frozen=True)
class Reply:
    """What the kernel answered about a device."""

    name: str
    uuid: str
    devnum: str
    open_count: int
    flags: int
    targets: int
    data: bytes


def ask(command: int, name: str = '', flags: int = 0, dev: int = 0,
        targets: int = 0, data: bytes = b'', event: int = 0,
        seconds: float | None = None) -> Reply | None:
    """One ioctl; the buffer grows until the answer fits.

    :param dev: a device number, instead of a name
    :param event: what the kernel's event tells udev (``DM_COOKIE``)
    :param seconds: for a call that can wait in the kernel: when to give up
    :returns: None if there is no such device
    :raises CommandFailed: if the kernel refuses
    :raises CommandTimeout: if it did not end in time
    """
    what = f'device-mapper ioctl {command} {name}'
    size = max(_FIRST_SIZE, 2 * len(data))
    while True:
        buffer = bytearray(_pack(size, name, flags, dev, targets, data,
                                 event))
        try:
            _ioctl(_request(command), buffer, what, seconds)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise exceptions.CommandFailed(
                command=what, code=error.errno,
                stderr=error.strerror) from error
        reply = _reply(buffer)
        if not reply.flags & _BUFFER_FULL:
            return reply
        if size >= _LAST_SIZE:
            raise exceptions.CommandFailed(
                command=what, code=1, stderr='the answer is too long')
        size *= 8


def _ioctl(request: int, buffer: bytearray, what: str,
           seconds: float | None) -> None:
    if seconds is not None:
        buffer[:] = syscalls.ioctl(CONTROL, request, bytes(buffer), what,
                                   seconds)
        return
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(control, request, buffer)
    finally:
        os.close(control)


def _request(command: int) -> int:
    """_IOWR(0xfd, command, struct dm_ioctl)."""
    return 3 << 30 | _HEAD.size << 16 | 0xfd << 8 | command


def _pack(size: int, name: str, flags: int, dev: int, targets: int,
          data: bytes, event: int) -> bytes:
    head = _HEAD.pack(
        *_VERSION, size, _HEAD.size, targets, 0,
        flags | (PERSISTENT if dev else 0), event, 0, dev, name.encode(), b'')
    return (head + data).ljust(size, b'\0')


def _reply(buffer: bytearray) -> Reply:
    (_, _, _, size, start, targets, opened, flags, _, _, dev, name,
     uuid) = _HEAD.unpack_from(buffer)
    return Reply(
        name=_text(name), uuid=_text(uuid), devnum=_devnum(dev),
        open_count=opened, flags=flags, targets=targets,
        data=bytes(buffer[start:size]))


def _text(raw: bytes) -> str:
    return raw.split(b'\0', 1)[0].decode(errors='replace')


def _devnum(dev: int) -> str:
    return f'{os.major(dev)}:{os.minor(dev)}'


def number(devnum: str) -> int:
    """What the kernel calls a device, for ``dev`` of ``ask``.

    :param devnum: 'major:minor'
    """
    if not _DEVNUM.fullmatch(devnum):
        raise ValueError(f'{devnum!r} is not a device number')
    major, minor = map(int, devnum.split(':'))
    return os.makedev(major, minor)


def names() -> list[str]:
    """The names of all dm devices."""
    reply = ask(LIST_DEVICES)
    assert reply is not None
    found, at = [], 0
    while reply.data:
        dev, following = _NAMES.unpack_from(reply.data, at)
        if dev:
            # Not all that follows: a node may have thousands of devices.
            begin = at + _NAMES.size
            found.append(_text(
                reply.data[begin:reply.data.index(b'\0', begin)]))
        if not following:
            break
        at += following
    return found


def below(devnum: str, kind: str) -> set[str]:
    """What a dm device lies on in the end, as the kernel has it.

    :param devnum: 'major:minor'
    :param kind: what the uuids begin with of devices that are looked through
    :returns: numbers; those of disks that have gone since are among them
    """
    reply = ask(TABLE_DEPS, dev=number(devnum))
    if reply is None or not reply.uuid.startswith(kind):
        return {devnum}
    count, = _DEPS.unpack_from(reply.data)
    return set().union(*(
        below(_devnum(dev), kind) for dev in struct.unpack_from(
            f'={count}Q', reply.data, _DEPS.size)))


def lines(reply: Reply) -> str:
    """A table or status as dmsetup prints it: one line per target."""
    return '\n'.join(_lines(reply))


def _lines(reply: Reply) -> Iterator[str]:
    at = 0
    for _ in range(reply.targets):
        start, length, _, following, kind = _SPEC.unpack_from(reply.data, at)
        text = _text(reply.data[at + _SPEC.size:following])
        yield f'{start} {length} {_text(kind)} {text}'.rstrip()
        at = following


def pack_table(table: str) -> tuple[int, bytes]:
    """Number of targets and their specs for TABLE_LOAD, from lines."""
    specs = []
    for line in table.splitlines():
        start, length, kind, *words = line.split(' ', 3)
        text = ''.join(words).encode() + b'\0'
        text = text.ljust(-(-len(text) // 8) * 8, b'\0')
        specs.append(_SPEC.pack(int(start), int(length), 0,
                                _SPEC.size + len(text), kind.encode())
                     + text)
    return len(specs), b''.join(specs)


def message(name: str, words: tuple[str, ...]) -> Reply | None:
    """Send a message to the first target of a device.

    :returns: None if there is no such device
    """
    return ask(TARGET_MSG, name,
               data=_MESSAGE.pack(0) + ' '.join(words).encode() + b'\0')


def versions() -> list[str]:
    """The target types that the kernel has."""
    reply = ask(LIST_VERSIONS)
    assert reply is not None
    # struct dm_target_versions: next, version[3]; the name follows.
    found, at = [], 0
    while True:
        following, = struct.unpack_from('=I', reply.data, at)
        found.append(_text(reply.data[at + 16:at + 144]))
        if not following:
            return found
        at += following
