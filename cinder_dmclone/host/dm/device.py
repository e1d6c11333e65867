# SPDX-License-Identifier: Apache-2.0
"""Our dm devices: look at them, bring them to a table, remove them.

Nothing is remembered: what there is, is asked from the kernel.
"""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import Any, Callable, Iterable

from cinder_dmclone.courses import Course
from cinder_dmclone.courses import Progress
from cinder_dmclone import exceptions
from cinder_dmclone.host.dm.status import CloneStatus
from cinder_dmclone.host.dm.status import MultipathStatus
from cinder_dmclone.host.dm.table import Clone
from cinder_dmclone.host.dm.table import Error
from cinder_dmclone.host.dm.table import Multipath
from cinder_dmclone.host.dm.table import Table
from cinder_dmclone.host import thin_map
from cinder_dmclone.marks import reads
from cinder_dmclone.privileged import block
from cinder_dmclone.privileged import dm
from cinder_dmclone.privileged import hydration

SYSFS = pathlib.Path('/sys/dev/block')

# udev and monitoring open a device for a moment; a user keeps it open.
_BUSY_SECONDS = 5.0
_BUSY_PAUSE = 0.25


@dataclasses.dataclass(frozen=True)
class Device:
    """A dm device of ours as the kernel has it.

    :ivar devnum: 'major:minor'
    :ivar table: the live table; without segments if it never got one
    :ivar open_count: openers, in the kernel and outside
    :ivar pending: whether another table is loaded but not live
    :ivar status: of a clone or a multipath device
    """

    name: str
    devnum: str
    table: Table
    open_count: int
    suspended: bool
    readonly: bool
    pending: bool = False
    status: CloneStatus | MultipathStatus | None = None

    def differs(self, table: Table, readonly: bool) -> bool:
        """Whether it runs with another table."""
        return bool(self.table.segments) and (
            (self.table, self.readonly) != (table, readonly))

    def rests_on(self, table: Table, readonly: bool = False) -> bool:
        """Whether it runs with a table, and no change was interrupted."""
        return ((self.table, self.readonly) == (table, readonly)
                and not self.suspended and not self.pending)


class DeviceMapper:
    """The door to the device mapper."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep,
                 monotonic: Callable[[], float] = time.monotonic) -> None:
        self._sleep = sleep
        self._monotonic = monotonic

    @reads
    def devices(self, lv: str = '') -> dict[str, Device]:
        """Our devices by name; starts no process.

        :param lv: only those of this LV, by its uuid
        """
        return {device.name: device
                for device in map(_device, dm.inspect(None, lv))}

    def _find(self, name: str) -> Device | None:
        return next(iter(map(_device, dm.inspect(name))), None)

    @reads
    def devnum(self, name: str) -> str:
        """'major:minor' of a device that must exist.

        :raises NoSuchDevice: if it does not
        """
        device = self._find(name)
        if device is None:
            raise exceptions.NoSuchDevice(device=name)
        return device.devnum

    @reads
    def open_count(self, devnum: str) -> int:
        """Openers of a dm device, in the kernel and outside; also an LV's."""
        return dm.open_count(devnum)

    def apply(self, name: str, table: Table, readonly: bool = False,
              noflush: bool = False, seen: Device | None = None) -> None:
        """Bring a device to a table, whatever state it is in.

        A crash at any point leaves a device that the next call puts right.
        A live table is exchanged in one call of the kernel; nothing here
        suspends a device.

        :param noflush: do not wait for requests under way, for a multipath
            device: otherwise those that it queues fail
        :param seen: the device as it was when the caller's lock was held
            already: if it has to change it is not looked at again
        :raises TableRefused: for changes that would lose data or hang: the
            table of a clone, something else over a multipath device
        :raises CommandTimeout: if requests under way did not end in time;
            the device goes on with its old table
        """
        device = (seen if seen and seen.differs(table, readonly)
                  else self._find(name))
        if device is None:
            dm.create(name, str(table), readonly)
        elif device.differs(table, readonly):
            _check_change(device, table)
            self._exchange(name, device.table, table, readonly, noflush)
        elif not device.table.segments:
            # Its creation was interrupted.
            dm.load(name, str(table), readonly)
            dm.activate(name)
        elif device.suspended or device.pending:
            dm.resume(name)

    def _exchange(self, name: str, live: Table, table: Table,
                  readonly: bool, noflush: bool) -> None:
        try:
            dm.exchange(name, str(table), readonly, noflush)
        except exceptions.DMCloneException:
            # If the kernel refused the new table after it had suspended the
            # device, it stays suspended (do_resume in dm-ioctl.c).
            dm.resume(name)
            if live.queues:
                # An interrupted suspend leaves a multipath device failing
                # I/O: the target has no presuspend_undo (dm-mpath.c).
                dm.message(name, ('queue_if_no_path',))
            raise

    def remove(self, name: str) -> None:
        """Remove a device; an absent one is fine.

        :raises DeviceBusy: if somebody keeps it open
        :raises CommandTimeout: if the kernel waits for requests of its own
        """
        deadline = self._monotonic() + _BUSY_SECONDS
        while True:
            try:
                return dm.remove(name)
            except exceptions.DeviceBusy:
                if self._monotonic() >= deadline:
                    raise
                self._sleep(_BUSY_PAUSE)

    @reads
    def link(self, name: str) -> str:
        """A path to a device that its user may make lead elsewhere.

        It ends with the device.
        """
        return dm.link(name)

    def message(self, name: str, *words: str) -> None:
        """Send a message to a clone or a multipath device."""
        dm.message(name, words)

    @reads
    def keep_going(self, courses: Iterable[Course], seconds: float
                   ) -> tuple[float, tuple[Progress, ...]]:
        """Have clones hydrate on their courses for a while.

        One that is gone is left out. Waits for no I/O, starts no process, and
        changes nothing but how much is copied at a time.

        :returns: how long to wait before the next call, in seconds, and what
            has come of each
        """
        pause, found = hydration.keep_going(
            tuple(tuple(course) for course in courses), seconds)
        return pause, tuple(Progress(*each) for each in found)

    def clone_status(self, name: str, flush: bool = False) -> CloneStatus:
        """State of a clone.

        :param flush: commit the clone's metadata and flush its data device
            first; costs writes
        """
        return CloneStatus.parse(_parameters(dm.status(name, flush), 'clone'))

    @reads
    def writes_under_way(self, devnum: str) -> int:
        """How many writes to a device have not been answered yet."""
        try:
            counts = (SYSFS / devnum / 'inflight').read_text()
        except OSError:
            return 0  # it has just been removed
        return int(counts.split()[1])

    @reads
    def caches(self, devnum: str) -> bool:
        """Whether the kernel flushes a device: it may keep what is written.

        :raises OSError: if there is no such device
        """
        found = (SYSFS / devnum / 'queue/write_cache').read_text()
        return found.strip() == 'write back'

    def flush(self, *paths: str) -> None:
        """Make what was written to devices durable, one after the other.

        :raises CommandTimeout: if a disk does not answer
        """
        block.flush(paths)

    def drop_cache(self, *paths: str) -> None:
        """Forget the cached pages of devices."""
        block.drop_cache(paths)

    def hide_discards(self, name: str) -> None:
        """Make a device refuse discards.

        Lasts until its table is exchanged. Devices that are built on it
        afterwards refuse them too.
        """
        dm.hide_discards(name)

    def take_as_copied(self, name: str,
                       ranges: Iterable[thin_map.Range]) -> None:
        """Let a clone show parts of its data device as they are there.

        It copies them no more (``process_discard_bio`` in dm-clone-target.c).
        One that is being copied at that moment may be written over by that
        later: nothing may hydrate or write yet.

        :param ranges: whole regions
        :raises CommandFailed: if the kernel refuses; it copies some, then
        """
        dm.discard(name, [(int(first), int(end) - int(first))
                          for first, end in ranges])

    def count_io(self, name: str) -> None:
        """Make ``writes_under_way`` true of a device from now on.

        Hosts are tuned not to count; what began before is never counted.
        """
        dm.count_io(name)

    @reads
    def targets(self) -> set[str]:
        """The target types that the kernel has."""
        return set(dm.targets())

    @reads
    def probe(self) -> list[str]:
        """What udev makes of a device of ours: lines of its record.

        One is made for that, of no size, and removed.

        :raises CommandFailed, CommandTimeout: if it cannot be told
        """
        return dm.probe().splitlines()


def _check_change(device: Device, table: Table) -> None:
    # The constructor of a clone reads the bitmap: loaded over a live one it
    # would go on with a stale copy.
    if device.table.has(Clone):
        raise exceptions.TableRefused(
            device=device.name, reason='it is a clone')
    # dm_swap_table() refuses it only when the device is already suspended. An
    # error target may take any other's place (DM_TARGET_WILDCARD).
    if device.table.has(Multipath) and not (table.has(Multipath)
                                            or table.has(Error)):
        raise exceptions.TableRefused(
            device=device.name, reason='it is a multipath device')


def _device(found: tuple[Any, ...]) -> Device:
    row = dm.Found(*found)
    return Device(
        name=row.name, devnum=row.devnum, table=Table.parse(row.table),
        open_count=row.open_count,
        suspended=row.suspended, readonly=row.readonly, pending=row.pending,
        status=_status(row.status))


def _status(line: str) -> CloneStatus | MultipathStatus | None:
    _start, _length, kind, *rest = line.split(maxsplit=3) or ('',) * 3
    if kind == 'clone':
        return CloneStatus.parse(''.join(rest))
    if kind == 'multipath':
        return MultipathStatus.parse(''.join(rest))
    return None


def _parameters(status: str, kind: str) -> str:
    """What follows 'start length kind' in a status line."""
    _start, _length, found, *parameters = status.split(maxsplit=3)
    if found != kind:
        raise ValueError(f'a {found} and not a {kind}: {status!r}')
    return ''.join(parameters)
