# SPDX-License-Identifier: Apache-2.0
"""What a node finds out about one of its LVs.

A *unit* is one data LV of ours with all this node has built on it. Collecting
all units costs the same few commands however many there are.
"""

from __future__ import annotations

import collections
import dataclasses
import typing

from oslo_log import log as logging

from cinder_dmclone.dm import device as dm_device
from cinder_dmclone.dm import status
from cinder_dmclone.dm import table
from cinder_dmclone import exceptions
from cinder_dmclone.iscsi import exporter
from cinder_dmclone.iscsi import importer
from cinder_dmclone import lvm
from cinder_dmclone import names
from cinder_dmclone import records
from cinder_dmclone.ports import Host

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Unit:
    """One data LV (by uuid) and everything of this node built on it."""

    lv: str
    data: lvm.LogicalVolume | None = None
    tags: records.Tags = records.Tags()
    meta: lvm.LogicalVolume | None = None
    meta_tag: records.Meta | None = None
    unreadable: str | None = None
    devices: dict[names.DeviceName, dm_device.Device] = dataclasses.field(
        default_factory=dict)
    clone: status.CloneStatus | None = None
    source: status.MultipathStatus | None = None
    hold: status.MultipathStatus | None = None
    held_writes: int = 0
    exports: dict[str, exporter.ExportState] = dataclasses.field(
        default_factory=dict)
    disk: importer.Disk | None = None

    def of_kind(self, *kinds: names.Kind) -> list[names.DeviceName]:
        return [name for name in self.devices if name.kind in kinds]

    def device(self, name: names.DeviceName) -> dm_device.Device | None:
        return self.devices.get(name)

    def is_open(self, name: names.DeviceName) -> bool:
        found = self.devices.get(name)
        return bool(found and found.open_count)

    def exports_of(self, name: names.DeviceName) -> dict[
            str, exporter.ExportState]:
        """What exports a consumer, by IQN."""
        return {iqn: export for iqn, export in self.exports.items()
                if export.device == name.path}

    def is_held(self, name: names.DeviceName) -> bool:
        """Whether somebody uses a consumer; an export holds its own."""
        exports = self.exports_of(name)
        if exports:
            return any(export.sessions for export in exports.values())
        return self.is_open(name)

    @property
    def front(self) -> names.DeviceName | None:
        return next(iter(self.of_kind(names.Kind.FRONT)), None)

    @property
    def iqn(self) -> str | None:
        """The target this LV hydrates from, or has just hydrated from."""
        holder = self.tags.source or self.meta_tag
        return holder.iqn if holder else None

    @property
    def assembled(self) -> bool:
        """Whether the clone is there."""
        return names.clone(self.lv) in self.devices

    @property
    def queues(self) -> bool:
        """Whether I/O waits while the lender is away, instead of failing."""
        source = self.devices.get(names.source(self.lv))
        return source is not None and source.table.queues

    @property
    def has_path(self) -> bool:
        """Whether the lender can be read."""
        return bool(self.source and self.source.usable and self.disk)

    def missing_loans(self, borrower: records.Location) -> tuple[
            records.Lent, ...]:
        """What is lent to a borrower and not exported to it."""
        return tuple(tag for tag in self.tags.lent
                     if tag.borrower == borrower and not self._lends(tag))

    def _lends(self, tag: records.Lent) -> bool:
        name = names.loan(self.lv, tag.lv)
        return name in self.devices and any(
            export.enabled and tag.initiator in export.initiators
            for export in self.exports_of(name).values())

    @property
    def write_waits(self) -> bool:
        """Whether something was written to the gated front."""
        return self.alarmed and self.held_writes > 0

    @property
    def alarmed(self) -> bool:
        """Whether the path of the hold has failed, as a write makes it."""
        return self.hold is not None and not self.hold.usable

    @property
    def writes_pass(self) -> bool:
        """Whether the gate is open, though a front may still lead to it."""
        sluice = self.devices.get(names.sluice(self.lv))
        return (sluice is not None and sluice.table.has(table.Linear)
                and not self.alarmed)

    def gated(self, name: names.DeviceName) -> bool:
        """Whether writes to a front wait."""
        found = self.devices.get(name)
        return found is not None and found.table.has(table.Gate)

    def fenced(self, name: names.DeviceName) -> bool:
        """Whether a front answers with errors only."""
        found = self.devices.get(name)
        return found is not None and found.table.has(table.Error)

    @property
    def in_flight(self) -> bool:
        """Whether a relocation left something here to finish or undo."""
        return bool(self.tags.copy or self.tags.source or self.tags.lent
                    or self.meta or self.unreadable
                    or self.of_kind(names.Kind.CLONE, names.Kind.SOURCE,
                                    names.Kind.LOAN, *names.GATE))


def collect(host: Host) -> dict[str, Unit]:
    """All units of this node, by LV uuid."""
    found: dict[str, dict[str, typing.Any]] = collections.defaultdict(dict)
    _collect_lvs(host, found)
    _collect_devices(host, found)
    _collect_exports(host, found)
    units = {lv: Unit(lv=lv, **fields) for lv, fields in found.items()}
    return {lv: _with_disk(host, unit) for lv, unit in units.items()}


def _collect_lvs(host: Host,
                 found: dict[str, dict[str, typing.Any]]) -> None:
    groups = {group.name: group for group in (host.group, host.meta_group)}
    reports = {name: group.report().lvs for name, group in groups.items()}
    for group_name, lvs in reports.items():
        for name, lv in lvs.items():
            uuid = names.lv_uuid(name)
            if not uuid:
                continue
            try:
                tags = records.Tags.parse(lv.tags)
            except exceptions.BadRecord as error:
                found[uuid]['unreadable'] = error.msg
                tags = records.Tags()
            if name == names.meta_lv(uuid):
                found[uuid].update(meta=lv, meta_tag=tags.meta)
            elif group_name == host.group.name:
                found[uuid].update(data=lv, tags=tags)


# The devices whose status matters, and the field of a unit it is for.
_WITH_STATUS = {names.Kind.CLONE: 'clone', names.Kind.SOURCE: 'source',
                names.Kind.HOLD: 'hold'}


def _collect_devices(host: Host,
                     found: dict[str, dict[str, typing.Any]]) -> None:
    for text, device_found in host.dm.devices().items():
        name = names.DeviceName.parse(text)
        if not name or name.lv not in found:
            # Another backend's: its LV is in another volume group.
            continue
        fields = found[name.lv]
        fields.setdefault('devices', {})[name] = device_found
        if name.kind in _WITH_STATUS:
            fields[_WITH_STATUS[name.kind]] = device_found.status
        if name.kind is names.Kind.HOLD:
            fields['held_writes'] = host.dm.writes_under_way(
                device_found.devnum)


def _collect_exports(host: Host,
                     found: dict[str, dict[str, typing.Any]]) -> None:
    """Sort exports by LV; half-made ones, without a device, too."""
    prefix = host.settings.target_prefix
    expected = {names.serve_iqn(prefix, lv): lv for lv in found}
    for lv, fields in found.items():
        for tag in fields.get('tags', records.Tags()).lent:
            expected[names.loan_iqn(prefix, lv, tag.lv, tag.generation)] = lv
    for iqn, export in host.exporter.list().items():
        name = names.DeviceName.parse(export.device.rpartition('/')[2])
        owner = name.lv if name else expected.get(iqn)
        if owner in found:
            found[owner].setdefault('exports', {})[iqn] = export


def _with_disk(host: Host, unit: Unit) -> Unit:
    if not unit.tags.source:
        return unit
    return dataclasses.replace(
        unit, disk=host.importer.disk(unit.tags.source.iqn))
