# SPDX-License-Identifier: Apache-2.0
"""The kernel's side of dm ioctls, from the structures in linux/dm-ioctl.h."""

from __future__ import annotations

import ctypes
import errno

# linux/dm-ioctl.h, written down once more and in another way.
_COMMANDS = {2: 'list', 6: 'resume', 7: 'status', 9: 'load', 10: 'clear',
             12: 'table', 13: 'versions', 14: 'message'}
_READONLY, _STATUS_TABLE, _BUFFER_FULL = 1, 16, 256


class DmIoctl(ctypes.Structure):
    """struct dm_ioctl"""

    _fields_ = [
        ('version', ctypes.c_uint32 * 3), ('data_size', ctypes.c_uint32),
        ('data_start', ctypes.c_uint32), ('target_count', ctypes.c_uint32),
        ('open_count', ctypes.c_int32), ('flags', ctypes.c_uint32),
        ('event_nr', ctypes.c_uint32), ('padding', ctypes.c_uint32),
        ('dev', ctypes.c_uint64), ('name', ctypes.c_char * 128),
        ('uuid', ctypes.c_char * 129), ('data', ctypes.c_char * 7)]


class Spec(ctypes.Structure):
    """struct dm_target_spec"""

    _fields_ = [
        ('sector_start', ctypes.c_uint64), ('length', ctypes.c_uint64),
        ('status', ctypes.c_int32), ('next', ctypes.c_uint32),
        ('target_type', ctypes.c_char * 16)]


class Kernel:
    """Devices by name; all have number 254:7 and three openers."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.tables: dict[str, str] = {}
        # Their states, where these are not as the tables; None: it vanishes
        # before it is asked for.
        self.states: dict[str, str | None] = {}
        self.loaded: list[tuple[str, str, bool]] = []
        self.cleared: list[str] = []
        self.messages: list[tuple[str, str]] = []
        # Name, flags, event number, and how long the call may take.
        self.resumed: list[tuple[str, int, int, float | None]] = []
        self.error = 0

    def __call__(self, request: int, buffer: bytearray, what: str,
                 seconds: float | None) -> None:
        head = DmIoctl.from_buffer(buffer)
        assert request >> 30 == 3 and request >> 8 & 0xff == 0xfd
        assert request >> 16 & 0x3fff == ctypes.sizeof(head) == 312
        assert head.version[0] == 4 and head.data_size == len(buffer)
        if self.error:
            raise OSError(self.error, 'refused')
        command = _COMMANDS[request & 0xff]
        data = bytes(buffer[head.data_start:])
        self.seconds = seconds
        if command not in ('list', 'versions'):
            self._find(head)
        answer = getattr(self, '_' + command)(head, data)
        if answer is not None:
            if head.data_start + len(answer) > len(buffer):
                head.flags |= _BUFFER_FULL
                return
            head.data_size = head.data_start + len(answer)
            ctypes.memmove(
                ctypes.addressof(head) + head.data_start, answer,
                len(answer))

    def _find(self, head: DmIoctl) -> None:
        name = head.name.decode()
        if head.dev == (254 << 8 | 7) and not name:
            name = next(iter(self.tables), '')
        if name not in self.tables:
            raise OSError(errno.ENXIO, 'no such device')
        head.uuid = b'CINDER-DMCLONE-' + name[len('dmclone-'):].encode()
        head.dev, head.open_count = 254 << 8 | 7, 3

    def _list(self, head: DmIoctl, data: bytes) -> bytes:
        packed = b''
        for number, name in enumerate(self.names):
            entry = name.encode() + b'\0'
            size = -(-(12 + len(entry)) // 8) * 8
            last = number + 1 == len(self.names)
            packed += ((254 << 8 | 7).to_bytes(8, 'little')
                       + (0 if last else size).to_bytes(4, 'little')
                       + entry).ljust(size, b'\0')
        return packed

    def _versions(self, head: DmIoctl, data: bytes) -> bytes:
        packed = b''
        for name, last in ((b'clone', False), (b'error', True)):
            packed += ((0 if last else 32).to_bytes(4, 'little')
                       + bytes(12) + name).ljust(32, b'\0')
        return packed

    def _status(self, head: DmIoctl, data: bytes) -> None:
        return None

    def _table(self, head: DmIoctl, data: bytes) -> bytes:
        name = head.name.decode()
        text = self.tables[name] if head.flags & _STATUS_TABLE else (
            self.states.get(name, self.tables[name]))
        if text is None:
            raise OSError(errno.ENXIO, 'no such device')
        head.flags = (head.flags & ~_STATUS_TABLE) | _READONLY
        packed = b''
        lines = text.splitlines()
        head.target_count = len(lines)
        for line in lines:
            start, length, kind, *words = line.split(' ', 3)
            rest = ''.join(words).encode() + b'\0'
            rest = rest.ljust(-(-len(rest) // 8) * 8, b'\0')
            spec = Spec(int(start), int(length), 0, 0, kind.encode())
            # From the beginning of the answer, unlike in a question.
            spec.next = len(packed) + ctypes.sizeof(spec) + len(rest)
            packed += bytes(spec) + rest
        return packed

    def _load(self, head: DmIoctl, data: bytes) -> None:
        lines, at = [], 0
        for _ in range(head.target_count):
            spec = Spec.from_buffer_copy(data[at:])
            text = data[at + ctypes.sizeof(spec):].split(b'\0')[0].decode()
            lines.append(f'{spec.sector_start} {spec.length} '
                         f'{spec.target_type.decode()} {text}'.rstrip())
            at += spec.next
        self.loaded.append((head.name.decode(), '\n'.join(lines),
                            bool(head.flags & _READONLY)))

    def _resume(self, head: DmIoctl, data: bytes) -> None:
        self.resumed.append((head.name.decode(), head.flags, head.event_nr,
                             self.seconds))

    def _clear(self, head: DmIoctl, data: bytes) -> None:
        self.cleared.append(head.name.decode())

    def _message(self, head: DmIoctl, data: bytes) -> None:
        self.messages.append((head.name.decode(),
                              data[8:].split(b'\0')[0].decode()))
