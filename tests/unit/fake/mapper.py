# SPDX-License-Identifier: Apache-2.0
"""The device mapper of one node in memory, and I/O through its devices."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.dm import device
from cinder_dmclone.dm import status
from cinder_dmclone.dm import table
from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone import units
from tests.unit.fake import storage

if typing.TYPE_CHECKING:
    from tests.unit.fake import cloud


class Queued(Exception):
    """The I/O waits for a path: nobody gets an answer now."""


class Failed(Exception):
    """An I/O error."""


@dataclasses.dataclass
class Mapped:
    """A dm device. ``copied`` and ``phantom`` are a clone's in-core map."""

    name: str
    devnum: str
    table: table.Table
    readonly: bool
    openers: int = 0
    hydration: bool = False
    copied: set[int] = dataclasses.field(default_factory=set)
    phantom: set[int] = dataclasses.field(default_factory=set)
    path_failed: bool = False
    stuck: bool = False
    broken: status.Mode = status.Mode.RW
    discards: bool = True

    @property
    def target(self) -> table.Target:
        return self.table.segments[0].target

    def queues(self, devnum: str) -> bool:
        """Whether I/O would wait for ever if this path went."""
        return any(isinstance(segment.target, table.Multipath)
                   and segment.target.queue
                   and segment.target.path == devnum
                   for segment in self.table.segments)

    def uses(self, devnum: str) -> int:
        return sum(devnum in _devices(segment.target)
                   for segment in self.table.segments)


def _devices(target: table.Target) -> tuple[str | None, ...]:
    match target:
        case table.Linear(device=found):
            return (found,)
        case table.Clone():
            return (target.metadata, target.data, target.source)
        case table.Multipath():
            return (target.path,)
    return ()


def _regions(length: int) -> int:
    return int(units.Sectors(length).to_bytes()) // int(storage.REGION)


class Mapper:
    """``dm.device.DeviceMapper``."""

    def __init__(self, node: cloud.Node) -> None:
        self._node = node
        self.mapped: dict[str, Mapped] = {}

    # -- the port -----------------------------------------------------------

    def devices(self) -> dict[str, device.Device]:
        return {name: self._show(found)
                for name, found in self.mapped.items()}

    def _show(self, found: Mapped) -> device.Device:
        return device.Device(
            name=found.name, devnum=found.devnum, table=found.table,
            uuid=names.UUID_PREFIX + found.name[len(names.DM_PREFIX):],
            open_count=self.open_count(found.devnum), suspended=False,
            readonly=found.readonly)

    def devnum(self, name: str) -> str:
        if name not in self.mapped:
            raise exceptions.NoSuchDevice(device=name)
        return self.mapped[name].devnum

    def open_count(self, devnum: str) -> int:
        """Openers in the kernel and outside, as the kernel counts them."""
        count = sum(bool(found.uses(devnum))
                    for found in self.mapped.values())
        for found in self.mapped.values():
            if found.devnum == devnum:
                path = f'/dev/mapper/{found.name}'
                count += found.openers + self._node.exporter.opens(path)
        return count

    def apply(self, name: str, new: table.Table, readonly: bool = False,
              noflush: bool = False) -> None:
        for segment in new.segments:
            for devnum in filter(None, _devices(segment.target)):
                self._check_target(name, devnum, readonly)
        found = self.mapped.get(name)
        if found is None:
            self.mapped[name] = Mapped(name, self._node.number(), new,
                                       readonly)
            if new.has(table.Clone):
                self._load_clone(self.mapped[name])
        elif (found.table, found.readonly) != (new, readonly):
            device._check_change(self._show(found), new)
            if found.stuck and not self._works(found.devnum):
                raise exceptions.CommandTimeout(command='dmsetup resume',
                                                seconds=1)
            if new.has(table.Multipath):
                if not noflush:
                    self._node.complain(f'{name}: queued I/O failed')
                found.path_failed = False
            found.table, found.readonly = new, readonly
            found.discards = True

    def _check_target(self, name: str, devnum: str, readonly: bool) -> None:
        disk = self._node.importer.by_devnum(devnum)
        known = disk or self._lv(devnum) or self._by_devnum(devnum)
        if not known:
            raise _failed('create', f'{name}: no device {devnum}')
        if disk and not readonly:
            raise _failed('create', f'{name}: {devnum} is read-only')

    def _load_clone(self, clone: Mapped) -> None:
        target = typing.cast(table.Clone, clone.target)
        meta = self._lv(target.metadata)
        data = self._lv(target.data)
        assert meta and data
        if meta.superblock:
            clone.copied = set(meta.superblock.hydrated)
        elif not meta.zeroed:
            del self.mapped[clone.name]
            raise _failed('create', 'bad superblock')
        elif any('own' in tag for tag in data.tags):
            self._node.complain(f'{clone.name}: the clone of a committed '
                                'volume was formatted silently')

    def remove(self, name: str) -> None:
        found = self.mapped.get(name)
        if found is None:
            return
        if self.open_count(found.devnum):
            raise exceptions.DeviceBusy(device=name)
        if found.table.has(table.Clone) and found.hydration:
            source = self._source(found)
            if typing.cast(table.Multipath, source.target).queue and (
                    not self._works(source.devnum)):
                self._node.complain(f'removing {name} hangs for ever')
        del self.mapped[name]

    def message(self, name: str, *words: str) -> None:
        if name not in self.mapped:
            raise _failed('message', f'no device {name}')
        found = self.mapped[name]
        match words:
            case ('enable_hydration',):
                found.hydration = True
            case ('disable_hydration',):
                found.hydration = False
            case ('fail_if_no_path',):
                for other in self.mapped.values():
                    if other.uses(found.devnum) and other.hydration and (
                            not self._works(found.devnum)):
                        self._node.complain(f'{name}: failed copies are '
                                            'retried without pause')
                path = typing.cast(table.Multipath, found.target).path
                found.table = table.Table.single(
                    found.table.length, table.Multipath(path, queue=False))
            case ('reinstate_path', _):
                found.path_failed = False
            case _:
                raise _failed('message', f'unknown message {words}')

    def clone_status(self, name: str,
                     flush: bool = False) -> status.CloneStatus:
        clone = self.mapped[name]
        if flush:
            self._commit(clone)
        target = typing.cast(table.Clone, clone.target)
        features = set(target.features) - {'no_hydration'}
        if not clone.hydration:
            features.add('no_hydration')
        return status.CloneStatus(
            mode=clone.broken, region_size=target.region_size,
            hydrated=units.Regions(len(clone.copied | clone.phantom)),
            total=clone.table.length.to_regions(target.region_size),
            features=frozenset(features), core=target.core)

    def _commit(self, clone: Mapped) -> None:
        """What a flush through a clone does (clone_preresume aside)."""
        target = typing.cast(table.Clone, clone.target)
        meta, data = self._lv(target.metadata), self._lv(target.data)
        assert meta and data
        clone.phantom.clear()
        data.flush()
        meta.superblock = storage.Superblock(
            target.region_size, clone.table.length, frozenset(clone.copied))

    def multipath_status(self, name: str) -> status.MultipathStatus:
        found = self.mapped[name]
        path = typing.cast(table.Multipath, found.target).path
        return status.MultipathStatus(
            {path: not found.path_failed} if path else {})

    def statuses(self) -> dict[str, status.CloneStatus
                               | status.MultipathStatus]:
        return {name: (self.clone_status(name)
                       if found.table.has(table.Clone)
                       else self.multipath_status(name))
                for name, found in self.mapped.items()
                if found.table.has(table.Clone)
                or found.table.has(table.Multipath)}

    def flush(self, path: str) -> None:
        self._flush(self._resolve(path))

    def drop_cache(self, path: str) -> None:
        self._resolve(path)

    def hide_discards(self, name: str) -> None:
        self.mapped[name].discards = False

    def targets(self) -> set[str]:
        return {'linear', 'clone', 'multipath'}

    # -- servers and time ---------------------------------------------------

    def open(self, path: str) -> None:
        """A server opens its disk."""
        self.mapped[path.rpartition('/')[2]].openers += 1

    def close(self, path: str) -> None:
        self.mapped[path.rpartition('/')[2]].openers -= 1

    def read(self, path: str, region: int) -> str:
        return self._read(self._resolve(path), region)

    def write(self, path: str, region: int, value: str) -> None:
        """A whole region, not yet flushed."""
        self._write(self._resolve(path), region, value)

    def hydrate(self, count: int) -> None:
        """Let every clone that may copy up to ``count`` regions."""
        for clone in list(self.mapped.values()):
            if not (clone.table.has(table.Clone) and clone.hydration):
                continue
            target = typing.cast(table.Clone, clone.target)
            if not self._works(target.source):
                continue
            todo = set(range(_regions(clone.table.length))) - clone.copied
            for region in sorted(todo)[:count]:
                self._write(target.data, region,
                            self._read(target.source, region))
                clone.copied.add(region)

    def lose_paths(self) -> None:
        """Fail every path whose disk does not answer; it stays failed."""
        for found in self.mapped.values():
            if found.table.has(table.Multipath) and (
                    not self._works(found.devnum)):
                found.path_failed = True

    # -- I/O ----------------------------------------------------------------

    def _resolve(self, path: str) -> str:
        name = path.rpartition('/')[2]
        if name in self.mapped:
            return self.mapped[name].devnum
        lv = self._node.group.volumes.get(name)
        if lv is None or lv.devnum is None:
            raise _failed('sync', f'no device {path}')
        return lv.devnum

    def _lv(self, devnum: str) -> storage.Volume | None:
        return self._node.group.find(devnum) or (
            self._node.meta_group.find(devnum))

    def _by_devnum(self, devnum: str) -> Mapped | None:
        return next((found for found in self.mapped.values()
                     if found.devnum == devnum), None)

    def _source(self, clone: Mapped) -> Mapped:
        target = typing.cast(table.Clone, clone.target)
        found = self._by_devnum(target.source)
        assert found
        return found

    def _works(self, devnum: str) -> bool:
        """Whether a read of every region would be answered."""
        found = self._by_devnum(devnum)
        if found is None:
            disk = self._node.importer.by_devnum(devnum)
            return not disk or disk.state == 'LOGGED_IN'
        match found.target:
            case table.Multipath(path=path):
                return bool(path) and not found.path_failed and (
                    self._works(typing.cast(str, path)))
            case table.Clone(source=source):
                return self._works(source)
            case table.Linear(device=below):
                return self._works(below)
        return True

    def _below(self, found: Mapped, region: int) -> tuple[str, int]:
        """Device and region that a region of a linear device maps to."""
        for segment in found.table.segments:
            first = _regions(segment.start)
            if first <= region < first + _regions(segment.length):
                target = typing.cast(table.Linear, segment.target)
                return target.device, (region - first
                                       + _regions(target.offset))
        raise Failed(f'{found.name} has no region {region}')

    def _read(self, devnum: str, region: int) -> str:
        found = self._by_devnum(devnum)
        if found is None:
            lv = self._lv(devnum)
            return (lv.read(region) if lv
                    else self._node.importer.read(devnum, region))
        match found.target:
            case table.Clone() as target:
                hydrated = region in found.copied
                return self._read(target.data if hydrated else target.source,
                                  region)
            case table.Multipath() as target:
                if self._works(devnum):
                    return self._read(typing.cast(str, target.path), region)
                raise Queued() if target.queue else Failed(found.name)
        return self._read(*self._below(found, region))

    def _write(self, devnum: str, region: int, value: str) -> None:
        found = self._by_devnum(devnum)
        if found is None:
            lv = self._lv(devnum)
            assert lv, f'write to the imported disk {devnum}'
            lv.blocks[region] = value
        elif found.readonly:
            raise Failed(f'{found.name} is read-only')
        elif isinstance(found.target, table.Clone):
            self._write(found.target.data, region, value)
            found.copied.add(region)
        else:
            below, region = self._below(found, region)
            self._write(below, region, value)

    def _flush(self, devnum: str) -> None:
        found = self._by_devnum(devnum)
        if found is None:
            lv = self._lv(devnum)
            assert lv
            lv.flush()
        elif isinstance(found.target, table.Clone):
            self._commit(found)
        else:
            for segment in found.table.segments:
                self._flush(typing.cast(table.Linear,
                                        segment.target).device)


def _failed(verb: str, stderr: str) -> exceptions.CommandFailed:
    return exceptions.CommandFailed(command=f'dmsetup {verb}', code=1,
                                    stderr=stderr)
