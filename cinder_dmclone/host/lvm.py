# SPDX-License-Identifier: Apache-2.0
"""A volume group: its logical volumes, their tags and their form.

An LV is linear, or thin, in a pool; ``LogicalVolume.pool`` tells, and
``VolumeGroup.pool`` what new ones of data are. One report tells everything,
and is kept for a while: a relocation looks many times, and LVM is slow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import time
from typing import Any, Callable, Iterable, Iterator, Self, Sequence

from cinder_dmclone import exceptions
from cinder_dmclone.host.one_at_a_time import OneAtATime
from cinder_dmclone.host import thin_map
from cinder_dmclone.host import thin_pool
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.marks import reads
from cinder_dmclone.privileged import block
from cinder_dmclone.privileged import lvm
from cinder_dmclone.privileged import thin
from cinder_dmclone.sysfs import block_device
from cinder_dmclone.units import Bytes

# How long a report is kept, in seconds, if nothing tells of a change. Longer
# than a live migration: its server must not wait for LVM. Nothing tells of
# changes made with ``--autobackup n``, nor of a missing disk that is back.
KEPT_SECONDS = (3600.0, 60.0)

# Layouts of LVs that are but blocks, of disks or of a pool (lvmreport(7)).
_THIN = 'thin,sparse'
_PLAIN = ('linear', 'striped', _THIN)
# Roles of one that nothing else needs (lv_role in lvmreport(7)): thin
# snapshots and their origins do without each other.
_ALONE = frozenset(['public', 'origin', 'thinorigin', 'multithinorigin',
                    'snapshot', 'thinsnapshot'])

# What LVM says if its header points to a description that was not written;
# since 2.03.35 the sentence begins with a capital letter.
_LOST = re.compile(r'bad metadata text on (\S+) .*not found',
                   re.DOTALL | re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class LogicalVolume:
    """A logical volume.

    :ivar devnum: 'major:minor', None while it is not active
    :ivar open: whether anything has it open, in the kernel or outside
    :ivar plain: whether it is blocks and nothing else: no mirror, no cache,
        and no other volume needs it, nor it another one
    :ivar pool: the thin pool that it is in; empty if its blocks are on disks
    :ivar skipped: whether activations of its group leave it out
    :ivar suspended: whether its I/O waits, as LVM was killed in a change of
        it, or of its pool; LVM itself makes no report during a change
    :ivar origin: whether LVM would remove others with it, that need it
    :ivar health: what LVM found wrong with it or its disks for the report
        (lv_health_status in lvmreport(7)); empty if nothing. ``partial``: a
        disk that it is on was missing
    """

    name: str
    path: str
    size: Bytes
    tags: frozenset[str]
    devnum: str | None
    open: bool
    plain: bool
    pool: str = ''
    skipped: bool = False
    suspended: bool = False
    health: str = ''
    origin: bool = False

    @classmethod
    def parse(cls, group: str, row: dict[str, str]) -> Self:
        """Read a row of ``privileged.lvm.report``."""
        return cls(
            name=row['lv_name'], path=f'/dev/{group}/{row["lv_name"]}',
            size=Bytes(int(row['lv_size'])),
            tags=frozenset(tag for tag in row['lv_tags'].split(',') if tag),
            devnum=(f'{row["lv_kernel_major"]}:{row["lv_kernel_minor"]}'
                    if int(row['lv_kernel_major']) >= 0 else None),
            open=row['lv_device_open'] == 'open',
            plain=(row['lv_layout'] in _PLAIN
                   and _ALONE.issuperset(row['lv_role'].split(','))),
            pool=row['pool_lv'] if row['lv_layout'] == _THIN else '',
            skipped=bool(row['lv_skip_activation']),
            suspended=row['lv_suspended'] == 'suspended',
            health=row['lv_health_status'],
            origin=not lvm.NEEDED.isdisjoint(row['lv_role'].split(',')))


@dataclasses.dataclass(frozen=True)
class Report:
    """A volume group as LVM sees it at one moment.

    :ivar token: equals ``VolumeGroup.changed_token()`` as long as LVM's
        metadata has not changed; what is active or open may still change
    :ivar block_size: largest logical block size of its disks, in bytes
    :ivar free: what is neither in an LV nor in a pool
    :ivar disks: paths of its physical volumes; ``missing``: there are others
    :ivar mda_free: by how many bytes LVM's description of it may still grow
    :ivar pools: names of its thin pools, which are none of ``lvs``
    :ivar interrupted: those of them that LVM has left suspended
    """

    name: str
    uuid: GroupUuid
    token: str
    size: Bytes
    free: Bytes
    extent_size: Bytes
    block_size: int
    disks: tuple[str, ...]
    lvs: dict[str, LogicalVolume]
    mda_free: Bytes
    pools: frozenset[str] = frozenset()
    interrupted: frozenset[str] = frozenset()
    missing: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``lvm fullreport``'s JSON about one group."""
        report: dict[str, Any] = json.loads(text)['report'][0]
        group = report['vg'][0]
        # One that is missing is "[unknown]", or what lvm.conf has for that.
        disks = tuple(row['pv_name'] for row in report['pv']
                      if row['pv_name'].startswith('/'))
        # Names in brackets are parts of other volumes.
        rows = [row for row in report['lv'] if row['lv_name'][0] != '[']
        lvs = [LogicalVolume.parse(group['vg_name'], row)
               for row in rows if row['lv_layout'] != thin_pool.LAYOUT]
        return cls(
            name=group['vg_name'], uuid=GroupUuid(group['vg_uuid']),
            token=_token(group['vg_uuid'], group['vg_seqno']),
            size=Bytes(int(group['vg_size'])),
            free=Bytes(int(group['vg_free'])),
            extent_size=Bytes(int(group['vg_extent_size'])),
            block_size=max(map(block_device.block_size, disks), default=512),
            disks=disks, missing=len(disks) < len(report['pv']),
            lvs={lv.name: lv for lv in lvs},
            mda_free=Bytes(int(group['vg_mda_free'])),
            pools=frozenset(row['lv_name'] for row in rows
                            if row['lv_layout'] == thin_pool.LAYOUT),
            interrupted=thin_pool.interrupted(rows))


def _token(uuid: str, sequence: int | str) -> str:
    return f'{uuid}:{sequence}'


def _devnum(path: str) -> str | None:
    """'major:minor'; None for a volume without a path: it is not active."""
    try:
        number = os.stat(path).st_rdev
    except FileNotFoundError:
        return None
    return f'{os.major(number)}:{os.minor(number)}'


def _devnums(report: Report) -> dict[str, str | None]:
    return {path: _devnum(path) for path in (
        *(lv.path for lv in report.lvs.values()), *report.disks)}


def is_name(name: str) -> bool:
    """Whether a volume here can have a name: it ends with a uuid."""
    return lvm.NAME.fullmatch(name) is not None


@dataclasses.dataclass(frozen=True)
class _Kept:
    """A report, when it was made, and the volumes' paths at that time."""

    report: Report
    since: float
    devnums: dict[str, str | None]


class VolumeGroup:
    """The door to one volume group.

    :ivar pool: the thin pool for what holds data; empty if that is linear
    """

    def __init__(self, name: str, monotonic: Callable[[], float] = (
            time.monotonic), pool: str = '') -> None:
        self.name = name
        self.pool = pool
        self._monotonic = monotonic
        self._disks: tuple[str, ...] = ()
        # How often this process has changed the group.
        self._changes = 0
        # At how many changes it was flushed last.
        self._flushed = -1
        self._changing = OneAtATime(f'volume group {name}')
        self._kept: _Kept | None = None

    @reads
    def report(self, patient: bool = False) -> Report:
        """Everything about the group, in one process at most.

        A kept report is good as long as neither LVM's sequence number, nor
        the volumes' paths, nor this process say that something has changed.
        What is active is no part of LVM's metadata, but udev makes a path.

        :param patient: whether to wait, if need be, until a removal has ended
            (``deadlines.PATIENCE_SECONDS``); not for whom somebody waits
        :raises CommandFailed: if there is no such group
        :raises GroupLost: if LVM has lost it
        """
        now, changes = self._monotonic(), self._changes
        kept = self._kept
        if kept and now - kept.since < KEPT_SECONDS[kept.report.missing] and (
                kept.report.token == self.changed_token()
                and kept.devnums == _devnums(kept.report)):
            return kept.report
        with self._found():
            report = self._with_pools(Report.parse((
                lvm.report_patiently if patient else lvm.report)(self.name)))
        self._disks = report.disks
        devnums = _devnums(report)
        # A change under way may not be in it.
        changed = changes != self._changes or any(
            devnums[lv.path] and not lv.devnum for lv in report.lvs.values())
        self._kept = None if changed else _Kept(report, now, devnums)
        return report

    def _with_pools(self, report: Report) -> Report:
        """The same, with what the kernel says of pools."""
        if not report.interrupted:
            return report
        found = frozenset(pool for pool in report.interrupted
                          if thin.suspended(self.name, pool))
        return dataclasses.replace(report, interrupted=found, lvs={
            name: dataclasses.replace(lv, suspended=True)
            if lv.pool in found else lv for name, lv in report.lvs.items()})

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        """One change at a time, when the last one is durable.

        LVM writes a description of the group behind the one before, and then
        where it is, without a flush in between. A power cut can take the
        new description alone: then the one before has to be there.
        """
        with self._changing:
            if self._flushed != self._changes:
                self.flush()
            with self._forgetting():
                yield

    @contextlib.contextmanager
    def _forgetting(self) -> Iterator[None]:
        self._forget()
        try:
            yield
        finally:
            self._forget()

    def _forget(self) -> None:
        self._changes += 1
        self._kept = None

    @reads
    def changed_token(self) -> str | None:
        """A cheap look whether a report is still good; starts no process.

        From LVM's backup file. None if there is none; where backups were
        switched off it stays behind: neither equals a report's ``token``.
        """
        identity = lvm.backup_identity(self.name)
        return _token(*identity) if identity else None

    @property
    def place(self) -> str:
        """What gives room for data: the group, or its pool, as LVM says it."""
        return f'{self.name}/{self.pool}' if self.pool else self.name

    @reads
    def usage(self) -> thin_pool.Usage:
        """How full the pool is now; starts no process.

        :raises PoolUnusable: if it is not active
        :raises PoolSuspended: if its I/O waits
        """
        self.require_running()
        found = thin.pool(self.name, self.pool)
        if found is None:
            raise exceptions.PoolUnusable(
                pool=self.place, reason='it is not active: '
                f'lvchange --activate y {self.place}')
        return thin_pool.Usage.parse(*found)

    @reads
    def require_running(self) -> None:
        """See that I/O of the pool does not wait; starts no process then.

        :raises PoolSuspended: if it does
        """
        if not thin.suspended(self.name, self.pool):
            return
        # If LVM is at work it makes its report after that.
        self._forget()
        interrupted = self.report().interrupted
        found = thin.suspended(self.name, self.pool)
        if found:
            raise exceptions.PoolSuspended(
                pool=self.place, reason=thin_pool.why_suspended(
                    found, self.pool in interrupted))

    @reads
    def mapped(self, lv: LogicalVolume) -> Bytes | None:
        """What a thin volume takes of its pool now, if the kernel tells."""
        return thin_pool.mapped(thin.status(lv.devnum) if lv.devnum else '')

    @reads
    def allocated(self, lv: LogicalVolume,
                  seconds: float) -> list[thin_map.Range]:
        """The parts of a thin volume that were written; starts no process.

        Nobody may write it meanwhile, nor have written it since it was
        flushed.

        :param seconds: it may take so long
        :raises ValueError: if that is not known (``thin_map.allocated``)
        :raises CommandFailed: if the pool's metadata cannot be read
        :raises CommandTimeout: if it takes longer
        """
        def read(numbers: Sequence[int]) -> bytes:
            return thin.metadata(self.name, lv.pool, list(numbers))

        if not lv.devnum or not lv.pool:
            raise ValueError(f'{lv.name} is not thin, or not active')
        return thin_map.allocated(
            thin.table(lv.devnum), thin.status(lv.devnum),
            thin_map.until(seconds, self._monotonic, lv.name, read))

    def create(self, name: str, size: Bytes, tags: Iterable[str],
               metadata: bool = False) -> None:
        """Make a volume, active, with its tags, in the form of those here.

        :param size: rounded up to whole extents
        :param metadata: it is for that of a clone: linear in any case, and
            overwritten with zeros
        :raises CommandFailed: if it exists or there is no room
        """
        with self._change():
            lvm.create(self.name, name, size, tuple(tags),
                       '' if metadata else self.pool)
        if metadata:
            self.zero(name)

    def snapshot(self, name: str, origin: str, tags: Iterable[str]) -> None:
        """Make a volume that is what a thin one is now, active, with its tags.

        It takes no room, and is as large. I/O of the origin waits meanwhile;
        all that had ended is in it. Durable after a flush of it, and `flush`.

        :raises CommandFailed: if it exists, or the pool is too full for LVM
        :raises CommandTimeout: the origin may be left suspended
        """
        with self._change():
            lvm.snapshot(self.name, name, origin, tuple(tags))

    def remove(self, name: str) -> None:
        """Remove a volume; an absent one is fine.

        :raises DeviceBusy: if it is open or has snapshots, unless thin ones
        """
        with self._change():
            lvm.remove(self.name, name)

    def retag(self, name: str, add: Iterable[str] = (),
              remove: Iterable[str] = ()) -> None:
        """Add and remove tags, in one change; durable after ``flush()``."""
        with self._change():
            lvm.retag(self.name, name, tuple(add), tuple(remove))

    def rename(self, name: str, new_name: str) -> None:
        """Give a volume another name, in one change; it may be in use.

        :raises CommandFailed: if it does not exist, or the new name does
        """
        with self._change():
            lvm.rename(self.name, name, new_name)

    def extend(self, name: str, size: Bytes) -> None:
        """Grow a volume; it may have that size already."""
        with self._change():
            lvm.extend(self.name, name, size)

    def activate(self) -> None:
        """Make all volumes of the group usable on this node, also those that
        LVM has left suspended, and their pools, from the bottom up.

        :raises GroupLost: if LVM has lost it
        """
        interrupted = self.report(patient=True).interrupted
        with self._forgetting(), self._found():
            for pool in interrupted:
                thin.drop_tables(self.name, pool)
            lvm.activate(self.name)

    @contextlib.contextmanager
    def _found(self) -> Iterator[None]:
        try:
            yield
        except exceptions.CommandFailed as error:
            lost = _LOST.search(error.msg)
            if lost is None:
                raise
            raise exceptions.GroupLost(group=self.name,
                                       disk=lost[1]) from error

    def flush(self) -> None:
        """Make LVM's own metadata durable, which LVM does not do.

        A disk that joined the group since the last report is left out; the
        metadata is also on the others, and LVM believes the newest copy.

        :raises CommandTimeout: if a disk does not answer
        """
        disks, changes = self._disks or self.report().disks, self._changes
        block.flush(disks)
        self._flushed = changes

    def zero(self, name: str) -> None:
        """Overwrite a volume with zeros, durably."""
        lvm.zero(self.name, name)

    @reads
    def read(self, name: str, first: int, size: int) -> bytes:
        """At most 1 MiB, from the disk; both numbers are of whole 4 KiB."""
        return lvm.read(self.name, name, first, size)

    @reads
    def probe(self, name: str) -> str:
        """What does not answer now of a volume and its disks, and why.

        Empty if all do: each of its disks, and its first and last block.
        """
        return lvm.probe(self.name, name)
