# SPDX-License-Identifier: Apache-2.0
"""The device mapper of one node in memory, and I/O through its devices."""

from __future__ import annotations

import collections
import typing

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import device
from cinder_dmclone.host.dm import status
from cinder_dmclone.host.dm import table
from cinder_dmclone import names
from cinder_dmclone import units
from tests.unit.fake import mapped
from tests.unit.fake import storage

if typing.TYPE_CHECKING:
    from tests.unit.fake import cloud


class Mapper:
    """``dm.device.DeviceMapper``."""

    def __init__(self, node: cloud.Node) -> None:
        self._node = node
        self.mapped: dict[str, mapped.Mapped] = {}
        self.caches: typing.Callable[[str], bool] = lambda devnum: True

    # -- the port -----------------------------------------------------------

    def devices(self, lv: str = '') -> dict[str, device.Device]:
        opened = self.opened()
        return {name: self._show(found, opened[found.devnum])
                for name, found in self.mapped.items() if lv in name}

    def _show(self, found: mapped.Mapped, opened: int) -> device.Device:
        return device.Device(
            name=found.name, devnum=found.devnum, table=found.table,
            open_count=opened, suspended=False,
            readonly=found.readonly, status=self._status(found))

    def _status(self, found: mapped.Mapped) -> status.CloneStatus | (
            status.MultipathStatus | None):
        if found.table.has(table.Clone):
            return self.clone_status(found.name)
        if isinstance(found.target, table.Multipath):
            path = found.target.path
            return status.MultipathStatus(
                {path: not found.path_failed} if path else {})
        return None

    def devnum(self, name: str) -> str:
        if name not in self.mapped:
            raise exceptions.NoSuchDevice(device=name)
        return self.mapped[name].devnum

    def open_count(self, devnum: str) -> int:
        """Openers in the kernel and outside, as the kernel counts them."""
        return self.opened()[devnum]

    def opened(self) -> collections.Counter[str | None]:
        """How often each device is open that is."""
        exported = collections.Counter(
            export.device for export in self._node.targets.exports.values())
        counts: collections.Counter[str | None] = collections.Counter()
        for found in self.mapped.values():
            counts.update(found.below())
            counts[found.devnum] += (
                found.openers + exported[f'/dev/mapper/{found.name}'])
        return counts

    def apply(self, name: str, new: table.Table, readonly: bool = False,
              noflush: bool = False,
              seen: device.Device | None = None) -> None:
        found = self.mapped.get(name)
        if seen and not (found and found.table == seen.table):
            self._node.complain(f'{name} has changed since it was seen')
        for devnum in mapped.devnums(new):
            self._check_target(name, devnum, readonly)
        if found is None or not found.table.segments:
            self.mapped[name] = mapped.Mapped(
                name, found.devnum if found else self._node.number(), new,
                readonly)
            if new.has(table.Clone):
                self._load_clone(self.mapped[name])
        elif (found.table, found.readonly) != (new, readonly):
            device._check_change(
                self._show(found, self.open_count(found.devnum)), new)
            self._check_waiting(found)
            if found.stuck and not self._works(found.devnum):
                raise exceptions.CommandTimeout(command='dmsetup resume',
                                                seconds=1)
            if new.has(table.Multipath):
                if not noflush:
                    self._node.complain(f'{name}: queued I/O failed')
                found.path_failed = False
            found.table, found.readonly = new, readonly
        else:
            return
        self.mapped[name].discards = mapped.discards(new, self._by_devnum)

    def _check_waiting(self, front: mapped.Mapped) -> None:
        target = front.target
        hold = isinstance(target, table.Gate) and self._by_devnum(target.hold)
        if hold and hold.waiting:
            self._node.complain(f'{front.name} waits for the write it holds')
            raise exceptions.CommandTimeout(command='dmsetup resume',
                                            seconds=1)

    def _check_target(self, name: str, devnum: str, readonly: bool) -> None:
        disk = self._node.initiator.by_devnum(devnum)
        known = disk or self._lv(devnum) or self._by_devnum(devnum)
        if not known:
            raise _failed('create', f'{name}: no device {devnum}')
        if disk and not readonly:
            raise _failed('create', f'{name}: {devnum} is read-only')
        below = self._by_devnum(devnum)
        if below and below.table.has(table.Clone) and below.discards:
            self._node.complain(f'{name}: a server could discard what '
                                f'{below.name} has not copied')

    def _load_clone(self, clone: mapped.Mapped) -> None:
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
            if self._waits(source.devnum) and not self._works(source.devnum):
                self._node.complain(f'removing {name} hangs for ever')
        del self.mapped[name]

    def keep_going(self, *_: object) -> tuple[float, tuple[()]]:
        """Changes nothing that can be seen."""
        return 0.0, ()

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
                self._queue(found, False)
                self.check_copies(found)
            case ('queue_if_no_path',):
                self._queue(found, True)
            case ('reinstate_path', _):
                found.path_failed = found.waiting and not self._leads_on(
                    found)
                found.waiting = found.path_failed
            case _:
                raise _failed('message', f'unknown message {words}')

    def _leads_on(self, hold: mapped.Mapped) -> bool:
        """Whether the sluice below a hold is open."""
        target = typing.cast(table.Multipath, hold.target)
        sluice = self._by_devnum(typing.cast(str, target.path))
        return bool(sluice and sluice.table.has(table.Linear))

    @staticmethod
    def _queue(found: mapped.Mapped, queue: bool) -> None:
        path = typing.cast(table.Multipath, found.target).path
        found.table = table.Table.single(
            found.table.length, table.Multipath(path, queue))
        if not queue:
            found.rejected += found.waiting
            found.waiting = False

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

    def _commit(self, clone: mapped.Mapped) -> None:
        """What a flush through a clone does (clone_preresume aside)."""
        target = typing.cast(table.Clone, clone.target)
        meta, data = self._lv(target.metadata), self._lv(target.data)
        assert meta and data
        clone.phantom.clear()
        data.flush()
        meta.superblock = storage.Superblock(
            target.region_size, clone.table.length, frozenset(clone.copied))

    def link(self, name: str) -> str:
        assert name in self.mapped
        return f'/run/cinder-dmclone/{name.removeprefix(names.DM_PREFIX)}'

    def named(self, path: str) -> str:
        """The device that a path or a link leads to, by its own name."""
        name = path.rpartition('/')[2]
        return names.DM_PREFIX + name.removeprefix(names.DM_PREFIX)

    def writes_under_way(self, devnum: str) -> int:
        return sum(found.waiting and found.counted
                   for found in self.mapped.values()
                   if found.devnum == devnum)

    def flush(self, *paths: str) -> None:
        for path in paths:
            self._flush(self._resolve(path))

    def drop_cache(self, *paths: str) -> None:
        for path in paths:
            self._resolve(path)

    def hide_discards(self, name: str) -> None:
        self.mapped[name].discards = False

    def take_as_copied(self, name: str, ranges: typing.Any) -> None:
        clone = self.mapped[name]
        if clone.hydration or self.open_count(clone.devnum):
            self._node.complain(f'{name}: its copies may win over writes')
        clone.take(ranges)

    def count_io(self, name: str) -> None:
        self.mapped[name].counts = True

    def targets(self) -> set[str]:
        return {'clone', 'delay', 'error', 'linear', 'multipath'}

    def probe(self) -> list[str]:
        return ['E:DM_UDEV_DISABLE_OTHER_RULES_FLAG=1']

    # -- servers and time ---------------------------------------------------

    def open(self, path: str) -> None:
        """A server opens its disk."""
        self.mapped[self.named(path)].openers += 1

    def close(self, path: str) -> None:
        self.mapped[self.named(path)].openers -= 1

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
            regions = range(mapped.regions(clone.table.length))
            todo = sorted(set(regions) - clone.copied,
                          key=lambda region: (region < clone.cursor, region))
            for region in todo[:count]:
                try:
                    value = self._read(target.source, region)
                    self._write(target.data, region, value)
                except (mapped.Failed, mapped.Queued):
                    clone.cursor = region + 1
                    break
                clone.copied.add(region)

    def check_copies(self, *sources: mapped.Mapped) -> None:
        """See that no clone copies from what fails."""
        for clone in self.mapped.values():
            source = clone.hydration and self._source(clone)
            if source and (source in sources or not sources) and not (
                    self._works(source.devnum) or self._waits(source.devnum)):
                self._node.complain(f'{source.name}: copies fail for ever')

    def lose_paths(self) -> None:
        """Fail every path whose disk does not answer; it stays failed."""
        for found in self.mapped.values():
            # A sluice is no disk that could go away, nor is a loan.
            below = map(self._by_devnum, filter(None, found.below()))
            if '-source-' in found.name and not (
                    self._works(found.devnum) or any(below)):
                self._fail(found)

    def _fail(self, found: mapped.Mapped) -> None:
        if not found.path_failed:
            found.path_failed = True
            self._node.cloud.path_failed(self._node, found)

    # -- I/O ----------------------------------------------------------------

    def _resolve(self, path: str) -> str:
        name = path.rpartition('/')[2]
        if self.named(path) in self.mapped:
            return self.mapped[self.named(path)].devnum
        lv = self._node.group.volumes.get(name)
        if lv is None or lv.devnum is None:
            raise _failed('sync', f'no device {path}')
        return lv.devnum

    def _lv(self, devnum: str) -> storage.Volume | None:
        return self._node.group.find(devnum) or (
            self._node.meta_group.find(devnum))

    def _active(self, devnum: str) -> storage.Volume | None:
        """The LV that is read or written."""
        lv = self._lv(devnum)
        if lv and self._node.group.waits(lv):
            raise mapped.Queued()
        return lv

    def _by_devnum(self, devnum: str) -> mapped.Mapped | None:
        return next((found for found in self.mapped.values()
                     if found.devnum == devnum), None)

    def _source(self, clone: mapped.Mapped) -> mapped.Mapped:
        target = typing.cast(table.Clone, clone.target)
        found = self._by_devnum(target.source)
        assert found
        return found

    def _waits(self, devnum: str) -> bool:
        """Whether what cannot be read is waited for."""
        found = self._by_devnum(devnum)
        match found and found.target:
            case table.Multipath(path=path, queue=queue):
                return bool(queue or path and self._waits(path))
            case table.Clone(source=below) | table.Linear(device=below):
                return self._waits(below)
        return False

    def _works(self, devnum: str) -> bool:
        """Whether a read of every region would be answered."""
        if (found := self._by_devnum(devnum)) is None:
            disk = self._node.initiator.by_devnum(devnum)
            return disk.state == 'LOGGED_IN' if disk else bool(
                self._lv(devnum))
        match found.target:
            case table.Multipath(path=path):
                return bool(path) and not found.path_failed and (
                    self._works(typing.cast(str, path)))
            case table.Clone(source=source):
                return self._works(source)
            case table.Linear(device=below) | table.Gate(device=below):
                return self._works(below)
            case table.Error():
                return False
        return True

    def _read(self, devnum: str, region: int) -> str:
        found = self._by_devnum(devnum)
        if found is None:
            lv = self._active(devnum)
            return (lv.read(region) if lv
                    else self._node.initiator.read(devnum, region))
        match found.target:
            case table.Clone() as target:
                hydrated = region in found.copied
                return self._read(target.data if hydrated else target.source,
                                  region)
            case table.Multipath(path=path, queue=queue):
                if path and not found.path_failed and (
                        self._by_devnum(path) or self._works(path)):
                    try:
                        return self._read(path, region)
                    except mapped.Failed:
                        self._fail(found)
                raise mapped.Queued() if queue else mapped.Failed(found.name)
            case table.Error():
                raise mapped.Failed(found.name)
        return self._read(*found.leads_to(region))

    def _write(self, devnum: str, region: int, value: str) -> None:
        found = self._by_devnum(devnum)
        if found is None:
            lv = self._active(devnum)
            assert lv, f'write to the imported disk {devnum}'
            lv.blocks[region] = value
        elif found.readonly:
            raise mapped.Failed(f'{found.name} is read-only')
        elif isinstance(found.target, table.Clone):
            self._write(found.target.data, region, value)
            found.copied.add(region)
        elif isinstance(found.target, table.Gate):
            self._write(found.target.hold, region, value)
        elif isinstance(found.target, table.Multipath):
            self._write_held(found, region, value)
        elif isinstance(found.target, table.Error):
            raise mapped.Failed(found.name)
        else:
            below, region = found.leads_to(region)
            self._write(below, region, value)

    def _write_held(self, hold: mapped.Mapped, region: int,
                    value: str) -> None:
        target = typing.cast(table.Multipath, hold.target)
        if not hold.path_failed:
            try:
                return self._write(typing.cast(str, target.path), region,
                                   value)
            except mapped.Failed:
                self._fail(hold)
        if not target.queue:
            raise mapped.Failed(hold.name)
        # One that is tried again is the one that was counted, or was not.
        hold.counted = hold.counted if hold.waiting else hold.counts
        hold.waiting = True
        raise mapped.Queued()

    def _flush(self, devnum: str) -> None:
        found = self._by_devnum(devnum)
        if found is None:
            lv = self._active(devnum)
            assert lv
            lv.flush()
        elif isinstance(found.target, table.Clone):
            self._commit(found)
        elif isinstance(found.target, table.Error):
            raise mapped.Failed(found.name)
        else:
            for segment in found.table.segments:
                self._flush(typing.cast(table.Linear | table.Gate,
                                        segment.target).device)


def _failed(verb: str, stderr: str) -> exceptions.CommandFailed:
    return exceptions.CommandFailed(command=f'dmsetup {verb}', code=1,
                                    stderr=stderr)
