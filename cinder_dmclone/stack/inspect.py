# SPDX-License-Identifier: Apache-2.0
"""Finding out what this node has: all its LVs cost the same few commands."""

from __future__ import annotations

import collections
import dataclasses
import typing

from oslo_log import log as logging

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import device
from cinder_dmclone.host.dm import table
from cinder_dmclone.host import lvm
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.sysfs import sessions

LOG = logging.getLogger(__name__)


def collect(host: Host, patient: bool = False) -> dict[LvUuid, Stack]:
    """All stacks of this node, by LV uuid.

    :param patient: as ``VolumeGroup.report`` has it
    """
    return _with_disks(host.initiator.disks, _collect(host, None, patient))


def refresh(host: Host, lv: LvUuid) -> Stack:
    """The stack as it is now; it costs little, however many there are."""
    def disks() -> dict[str, sessions.Disk | None]:
        source = stacks[lv].tags.source
        assert source is not None
        return {source.iqn: host.initiator.disk(source.iqn)}

    stacks = _collect(host, lv)
    return _with_disks(disks, stacks).get(lv) or Stack(lv)


def _collect(host: Host, only: LvUuid | None,
             patient: bool = False) -> dict[LvUuid, Stack]:
    """Stacks without their disks.

    :param only: the LV to look at; all if None
    """
    found: dict[LvUuid, dict[str, typing.Any]] = collections.defaultdict(dict)
    _collect_lvs(host, found, only, patient)
    owners = _collect_devices(host, found, only)
    _collect_exports(host, found, only, owners)
    return {lv: Stack(lv=lv, **fields) for lv, fields in found.items()}


def _collect_lvs(host: Host, found: dict[LvUuid, dict[str, typing.Any]],
                 only: LvUuid | None, patient: bool) -> None:
    reports = {host.group.name: host.group.report(patient).lvs}
    if own := host.own_meta_group:
        reports[own.name] = _metadata_lvs(own, patient)
    for group_name, lvs in reports.items():
        looked_at = ({names.data_lv(only), names.meta_lv(only)} & lvs.keys()
                     if only else lvs)
        for name in looked_at:
            uuid, lv = names.lv_uuid(name), lvs[name]
            if not uuid:
                continue
            try:
                tags = lv_tags.Tags.parse(lv.tags)
            except exceptions.CorruptRecord as error:
                found[uuid]['unreadable'] = error.msg
                tags = lv_tags.Tags()
            if name == names.meta_lv(uuid):
                found[uuid].update(meta=lv, meta_tag=tags.meta)
            elif group_name == host.group.name:
                found[uuid].update(data=lv, tags=tags)


def _metadata_lvs(group: lvm.VolumeGroup,
                  patient: bool) -> dict[str, lvm.LogicalVolume]:
    """What a metadata group of its own has; nothing if it is lost.

    Its loss is that of the copies which hydrate here. What is complete, and
    what is lent, does not need it.
    """
    try:
        return group.report(patient).lvs
    except (exceptions.HelperEnded, exceptions.HelperNotStarted,
            exceptions.NotBegun):
        raise  # nobody has looked
    except exceptions.DMCloneException as error:
        LOG.debug('Copies are without metadata: %s', error.msg)
        return {}


# The devices whose status matters, and the field of a stack it is for.
_WITH_STATUS = {names.Kind.CLONE: 'clone', names.Kind.SOURCE: 'source',
                names.Kind.HOLD: 'hold'}


def _collect_devices(host: Host,
                     found: dict[LvUuid, dict[str, typing.Any]],
                     only: LvUuid | None
                     ) -> dict[names.DeviceName, LvUuid | None]:
    """Sort devices by LV.

    :returns: whose each is; None if it leads to an LV that is not looked at
    """
    known_as = {_known_as(fields, lv): lv for lv, fields in found.items()}
    asked = {only or '', *(known_as if only else ())}
    devices = {
        name: device_found for lv in sorted(asked)
        for text, device_found in host.dm.devices(lv).items()
        if (name := names.DeviceName.parse(text))}
    tops = _tops(found, devices)
    owners: dict[names.DeviceName, LvUuid | None] = {}
    for name, device_found in devices.items():
        owner: LvUuid | None = name.lv
        if name.kind in names.WRITERS:
            owner = _rests_on(device_found, tops, known_as.get(name.lv))
        owners[name] = owner
        if owner not in found:
            # Another backend's: its LV is in another volume group.
            continue
        fields = found[owner]
        fields.setdefault('devices', {})[name] = device_found
        if name.kind in _WITH_STATUS:
            fields[_WITH_STATUS[name.kind]] = device_found.status
        if name.kind is names.Kind.HOLD:
            fields['held_writes'] = host.dm.writes_under_way(
                device_found.devnum)
    return owners


def _known_as(fields: dict[str, typing.Any], lv: LvUuid) -> LvUuid:
    return Stack(lv, tags=fields.get('tags', lv_tags.Tags())).known_as


def _tops(found: dict[LvUuid, dict[str, typing.Any]],
          devices: dict[names.DeviceName, device.Device]) -> dict[
              str, LvUuid]:
    """What consumers lead to, by 'major:minor', and whose it is."""
    data = {fields['data'].devnum: lv for lv, fields in found.items()
            if 'data' in fields}
    return data | {
        found_device.devnum: name.lv for name, found_device in devices.items()
        if name.kind in (names.Kind.CLONE, names.Kind.JOINT)}


def _rests_on(consumer: device.Device, tops: dict[str, LvUuid],
              named: LvUuid | None) -> LvUuid | None:
    """The LV that a consumer leads to, whatever its name says.

    :param named: the one that uses its name, for a consumer that leads
        nowhere
    """
    for segment in consumer.table.segments:
        if isinstance(segment.target, (table.Linear, table.Gate)):
            return tops.get(segment.target.device)
    return named


def _collect_exports(host: Host,
                     found: dict[LvUuid, dict[str, typing.Any]],
                     only: LvUuid | None,
                     owners: dict[names.DeviceName, LvUuid | None]) -> None:
    """Sort exports by LV; half-made ones, without a device, too.

    Two LVs may expect one: it stays when the volume goes on in another.

    :param owners: whose the devices are that there are
    """
    prefix = host.settings.target_prefix
    expected = {names.serve_iqn(prefix, _known_as(fields, lv)): lv
                for lv, fields in found.items()}
    for lv, fields in found.items():
        for tag in fields.get('tags', lv_tags.Tags()).lent:
            expected[names.loan_iqn(prefix, lv, tag.lv, tag.generation)] = lv
    for iqn, export in host.targets.list(only or '', expected).items():
        name = names.DeviceName.parse(export.device.rpartition('/')[2])
        owner = (owners[name] if name in owners
                 else expected.get(iqn) or (name.lv if name else None))
        if owner in found:
            found[owner].setdefault('exports', {})[iqn] = export


def _with_disks(
        disks: typing.Callable[[], dict[str, sessions.Disk | None]],
        stacks: dict[LvUuid, Stack]) -> dict[LvUuid, Stack]:
    """Stacks with the disks of those that hydrate, asked for once."""
    sources = {lv: stack.tags.source for lv, stack in stacks.items()
               if stack.tags.source and not stack.tags.source.local}
    found = disks() if sources else {}
    return stacks | {
        lv: dataclasses.replace(stacks[lv], disk=found.get(source.iqn))
        for lv, source in sources.items()}
