# SPDX-License-Identifier: Apache-2.0
"""A volume group in memory, with what a power cut loses."""

from __future__ import annotations

import dataclasses
import struct
import typing

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import bitmap
from cinder_dmclone.host.dm import btree
from cinder_dmclone.host.dm import metadata
from cinder_dmclone.host import lvm
from cinder_dmclone.host import thin_map
from cinder_dmclone.host import thin_pool
from cinder_dmclone.location import GroupUuid
from cinder_dmclone import units

if typing.TYPE_CHECKING:
    from tests.unit.fake import cloud

EXTENT = units.Bytes(4 << 20)
# Content is kept by region: one value for each.
REGION = units.Bytes(128 << 20)

OLD = 'what another tenant left'
ZEROS = 'zeros'
POOL = 'volumes-pool'
# Those of a pool that LVM suspends below a thin LV that grows, but not below
# one that it makes a snapshot of: it sends the pool a message then
# (``dm_tree_suspend_children`` in libdm-deptree.c).
_DEVICES = tuple(f'volumes-volumes--pool{part}'
                 for part in ('_tdata', '_tmeta', '-tpool'))


@dataclasses.dataclass
class Superblock:
    """The committed metadata of a clone."""

    region_size: units.Sectors
    target_size: units.Sectors
    hydrated: frozenset[int] = frozenset()

    def pack(self) -> bytes:
        """The blocks of it: superblock, a tree of one node, an array."""
        regions = -(-self.target_size // self.region_size)
        words = -(-regions // 64)
        head = metadata._SUPERBLOCK.pack(
            0, 0, 0, b'', metadata._MAGIC, metadata._VERSION, b'',
            self.region_size, self.target_size) + bitmap._ROOT.pack(1)
        node = btree.HEADER.pack(0, 2, 1, 1, 1, 8, 0) + struct.pack(
            '<QQ', 0, 2)
        array = bitmap._ARRAY.pack(0, words, words, 8, 2) + sum(
            1 << region for region in self.hydrated).to_bytes(
                8 * words, 'little')
        return b''.join(part.ljust(metadata.BLOCK, b'\0')
                        for part in (head, node, array))


@dataclasses.dataclass
class Volume:
    """A logical volume; ``durable`` is what a power cut leaves of it."""

    name: str
    size: units.Bytes
    tags: frozenset[str]
    devnum: str | None
    blocks: dict[int, str] = dataclasses.field(default_factory=dict)
    durable: dict[int, str] = dataclasses.field(default_factory=dict)
    superblock: Superblock | None = None
    zeroed: bool = False
    plain: bool = True
    pool: str = ''
    # Whether activations leave it out.
    skipped: bool = False
    # Whether LVM has suspended it, and is still at it.
    suspended: bool = False
    at_work: cloud.Process | None = None
    # Those that LVM has made of it.
    snapshots: list[Volume] = dataclasses.field(default_factory=list)
    # The first that it was made of; what those of one first have is shared.
    first: str = ''

    def read(self, region: int, durable: bool = False) -> str:
        return (self.durable if durable else self.blocks).get(
            region, ZEROS if self.pool else OLD)

    def flush(self) -> None:
        for lv in (self, *self.snapshots):
            lv.durable = dict(lv.blocks)


class Group:
    """``lvm.VolumeGroup``."""

    def __init__(self, node: cloud.Node, name: str, size: units.Bytes,
                 block_size: int = 512) -> None:
        self._node = node
        self.name = name
        self.uuid = GroupUuid(f'{name}-of-{node.host}')
        self.size = size
        self.block_size = block_size
        self.volumes: dict[str, Volume] = {}
        self._durable: dict[str, tuple[Volume, units.Bytes,
                                       frozenset[str]]] = {}
        self._changes = 0
        # Whether its disk has failed; or one of several has, with these LVs:
        # LVM says so, or knows nothing of it.
        self.lost = False
        self.partial: set[str] = set()
        self.silent: set[str] = set()
        self.mda_free = units.Bytes(507 << 10)
        # The thin pool for data, if it is thin; its size, whether it is
        # active and zeroes, and what else of it is used.
        self.pool = ''
        self.pool_size = size
        self.active = self.zeroes = True
        # Those of its devices that are suspended, and tables that wait.
        self.waiting: set[str] = set()
        self.used = 0
        self.metadata_used = 0

    def _check(self, command: str) -> None:
        if self.lost:
            raise _failed(command, f'Volume group "{self.name}" not found')

    def report(self, patient: bool = False) -> lvm.Report:
        self._check('fullreport')
        used = sum(volume.size for volume in self.volumes.values()
                   if not volume.pool)
        opened = self._node.mapper.opened()
        return lvm.Report(
            name=self.name, uuid=self.uuid, token=self.changed_token(),
            size=self.size, free=units.Bytes(self.size - used),
            extent_size=EXTENT, block_size=self.block_size,
            disks=('/dev/fake',),
            lvs={name: self._show(lv, bool(opened[lv.devnum]))
                 for name, lv in self.volumes.items()},
            mda_free=self.mda_free,
            pools=frozenset([self.pool] if self.pool else ()),
            interrupted=frozenset([self.pool] if self._interrupted else ()),
            missing=bool(self.partial))

    def _show(self, lv: Volume, opened: bool) -> lvm.LogicalVolume:
        return lvm.LogicalVolume(
            name=lv.name, path=f'/dev/{self.name}/{lv.name}', size=lv.size,
            tags=lv.tags, devnum=lv.devnum, open=opened, plain=lv.plain,
            pool=lv.pool, skipped=lv.skipped,
            suspended=_interrupted(lv) or bool(
                lv.pool and self._interrupted),
            health='partial' if lv.name in self.partial else '')

    @property
    def _interrupted(self) -> bool:
        """Whether LVM has left the pool suspended."""
        return bool(self.waiting) and any(
            lv.pool and _interrupted(lv) for lv in self.volumes.values())

    def waits(self, lv: Volume) -> bool:
        """Whether I/O of an LV does."""
        return lv.suspended or bool(lv.pool and self.waiting)

    def changed_token(self) -> str:
        return f'{self.uuid}:{self._changes}'

    def find(self, devnum: str) -> Volume | None:
        return next((lv for lv in self.volumes.values()
                     if lv.devnum == devnum), None)

    @property
    def place(self) -> str:
        return f'{self.name}/{self.pool}' if self.pool else self.name

    def require_running(self) -> None:
        if self.waiting and not any(
                lv.at_work and lv.at_work.alive
                for lv in self.volumes.values()):
            raise exceptions.PoolSuspended(
                pool=self.place, reason=thin_pool.why_suspended(
                    sorted(self.waiting), self._interrupted))

    def usage(self) -> thin_pool.Usage:
        self.require_running()
        if not self.active:
            raise exceptions.PoolUnusable(pool=self.place,
                                          reason='it is not active')
        used = self.used + REGION * len({
            (lv.first or lv.name, region, value)
            for lv in self.volumes.values() if lv.pool
            for region, value in lv.blocks.items()})
        return thin_pool.Usage(
            self.pool_size, units.Bytes(used), units.Bytes(100),
            units.Bytes(self.metadata_used), self.zeroes)

    def mapped(self, lv: lvm.LogicalVolume) -> units.Bytes | None:
        found = self.volumes[lv.name]
        return units.Bytes(len(found.blocks) * REGION if found.pool else 0
                           ) if lv.devnum else None

    def allocated(self, lv: lvm.LogicalVolume,
                  seconds: float) -> list[thin_map.Range]:
        found = self.volumes[lv.name]
        if not lv.pool:
            raise ValueError('it is not thin')
        # What is on the disk, and how much the kernel counts.
        if len(found.durable) != len(found.blocks):
            raise ValueError('it is being written')
        return [(units.Bytes(region * REGION),
                 units.Bytes((region + 1) * REGION))
                for region in sorted(found.durable)]

    def create(self, name: str, size: units.Bytes,
               tags: typing.Iterable[str], metadata: bool = False) -> None:
        size, pool = size.round_up(EXTENT), '' if metadata else self.pool
        if name in self.volumes:
            raise _failed('lvcreate', f'{name} already exists')
        if not pool and size > self.report().free:
            raise _failed('lvcreate', 'insufficient free space')
        self._change()
        self.volumes[name] = Volume(name, size, _legal(tags),
                                    self._node.number(), pool=pool)
        if metadata:
            self.zero(name)

    def snapshot(self, name: str, origin: str,
                 tags: typing.Iterable[str]) -> None:
        taken_of = self.volumes[origin]
        if name in self.volumes or not taken_of.pool:
            raise _failed('lvcreate', f'{name} already exists, or {origin} is '
                          'not thin')
        self._change()
        # LVM writes it down, then has the kernel make it.
        lv = self.volumes[name] = Volume(
            name, taken_of.size, _legal(tags), self._node.number(),
            pool=taken_of.pool, first=taken_of.first or taken_of.name)
        self._suspend('lvcreate', taken_of)
        lv.blocks, lv.durable = dict(taken_of.blocks), dict(taken_of.durable)
        taken_of.snapshots.append(lv)
        taken_of.suspended = False

    def _suspend(self, command: str, lv: Volume,
                 *devices: str) -> None:
        """As LVM does, from the top; it may be killed then.

        :param devices: those of the pool below it
        """
        process = self._node.process
        lv.suspended, lv.at_work = True, process
        self.waiting.update(devices)
        process.call('group', 'suspended', lambda name: None, (lv.name,), {})
        lv.at_work = None
        if self._node.cloud.lvm_dies():
            raise exceptions.CommandTimeout(command=command, seconds=30)

    def zero(self, name: str) -> None:
        self.volumes[name].zeroed = True
        self.volumes[name].superblock = None

    def remove(self, name: str) -> None:
        lv = self.volumes.get(name)
        if lv is None:
            return
        if lv.devnum and self._node.mapper.open_count(lv.devnum):
            raise exceptions.DeviceBusy(device=name)
        self._change()
        del self.volumes[name]

    def retag(self, name: str, add: typing.Iterable[str] = (),
              remove: typing.Iterable[str] = ()) -> None:
        if name not in self.volumes:
            raise _failed('lvchange', f'{name} not found')
        self._change()
        lv = self.volumes[name]
        lv.tags = (lv.tags - set(remove)) | _legal(add)

    def rename(self, name: str, new_name: str) -> None:
        if name not in self.volumes or new_name in self.volumes:
            raise _failed('lvrename', f'{name} not found, or {new_name} '
                          'already exists')
        self._change()
        lv = self.volumes.pop(name)
        lv.name = new_name
        self.volumes[new_name] = lv

    def extend(self, name: str, size: units.Bytes) -> None:
        lv, size = self.volumes[name], size.round_up(EXTENT)
        if size < lv.size:
            raise _failed('lvextend', 'New size not larger than existing '
                          'size')
        if not lv.pool and size - lv.size > self.report().free:
            raise _failed('lvextend', 'insufficient free space')
        self._change()
        if lv.pool and size > lv.size:
            self._suspend('lvextend', lv, *_DEVICES)
            self.waiting.clear()
            lv.suspended = False
        lv.size = size

    def activate(self) -> None:
        self._check('vgchange')
        if self._interrupted:
            self.waiting.clear()
        for lv in self.volumes.values():
            if lv.name in self.partial:
                continue
            lv.devnum = lv.devnum or self._node.number()
            if _interrupted(lv):
                lv.suspended = False
        for name in sorted(self.partial.intersection(self.volumes)):
            raise _failed('vgchange', 'Refusing activation of partial LV '
                          f'{self.name}/{name}.')

    def _change(self) -> None:
        """As ``VolumeGroup`` begins a change: the last one is durable."""
        self._make_durable()
        self._changes += 1

    def flush(self) -> None:
        self._check('flush')
        self._make_durable()

    def _make_durable(self) -> None:
        self._durable = {name: (lv, lv.size, lv.tags)
                         for name, lv in self.volumes.items()}

    def read(self, name: str, first: int, size: int) -> bytes:
        if name not in self.volumes:
            raise _failed('dd', f'{name}: no such file')
        lv = self.volumes[name]
        if lv.superblock:
            return lv.superblock.pack()[first:first + size].ljust(size, b'\0')
        return (b'\0' if lv.zeroed else b'?') * size

    def probe(self, name: str) -> str:
        if name not in self.volumes:
            raise _failed('probe', f'{name}: no such volume')
        return 'disk 8:0 has gone' if name in self.silent else ''

    def lose_power(self) -> None:
        """Only what was flushed is left, and nothing is active."""
        self.volumes = {}
        self.waiting.clear()
        for name, (lv, size, tags) in self._durable.items():
            lv.name, lv.size, lv.tags, lv.devnum = name, size, tags, None
            lv.suspended = False
            lv.blocks = dict(lv.durable)
            self.volumes[name] = lv


def _interrupted(lv: Volume) -> bool:
    """Whether it is suspended for good; LVM waits for its other commands."""
    return lv.suspended and not (lv.at_work and lv.at_work.alive)


def _legal(tags: typing.Iterable[str]) -> frozenset[str]:
    """LVM's own rule for tags (validate_tag in lib/misc/lvm-string.c)."""
    for tag in tags:
        if not tag or set(tag) - set(_TAG_CHARACTERS) or tag[0] == '-':
            raise _failed('lvchange', f'invalid tag {tag}')
    return frozenset(tags)


_TAG_CHARACTERS = ('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'
                   '0123456789_+.-/=!:&#')


def _failed(command: str, stderr: str) -> exceptions.CommandFailed:
    return exceptions.CommandFailed(command=command, code=5, stderr=stderr)
