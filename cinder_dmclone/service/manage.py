# SPDX-License-Identifier: Apache-2.0
"""Logical volumes that become volumes, and volumes that become their own.

An LV is a volume by its name: it gets the volume's in one change of LVM, which
only one of several requests can make, and loses it in one. Whatever has
another name is never erased, and nobody else needs it.
"""

from __future__ import annotations

import typing

from cinder import exception
from cinder.objects.fields import VolumeStatus
from oslo_utils import excutils

from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.service.base import Service
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from cinder_dmclone.stack import teardown
from cinder_dmclone import units

# Of a volume that is deleted after an attempt to manage an LV has failed
# (cinder.volume.api.API.delete).
_ERROR_MANAGING_DELETING = 'error_managing_deleting'

Reference = typing.Any


def size_of(service: Service, reference: Reference) -> int:
    """How many GiB the volume has that an LV can become.

    :raises ManageExistingInvalidReference, ManageExistingAlreadyManaged: if
        it can become none
    """
    return _find(service, reference).size.to_gib()


def manage(service: Service, volume_id: VolumeId,
           reference: Reference) -> str:
    """Make an LV a volume, with what it has; returns its ``provider_id``.

    A crash leaves a volume without a size, from which it is taken back when
    that is deleted.

    :raises ManageExistingInvalidReference, ManageExistingAlreadyManaged: if
        it cannot become one; nothing was changed
    """
    group = service.host.group
    with service.locked(volume_id):
        row = service.row(volume_id)
        service.require_home(row)
        lv = _find(service, reference)
        _require_possible(service, row, lv)
        name = names.data_lv(row.lv)
        try:
            group.rename(lv.name, name)
            group.extend(name, units.Bytes.from_gib(lv.size.to_gib()))
            group.retag(name, add=[_own(row)])
            group.flush()
        except Exception:
            with excutils.save_and_reraise_exception():
                _give_back(group, row, lv.name)
    return str(ProviderId(1))


def _own(row: rows.Row) -> str:
    return lv_tags.print_tag(lv_tags.OwnTag(1, row.id))


def _give_back(group: lvm.VolumeGroup, row: rows.Row, former: str) -> None:
    """Let an LV have its former name again, if it has the volume's."""
    name = names.data_lv(row.lv)
    if name not in group.report().lvs:
        return
    group.retag(name, remove=[_own(row)])
    group.rename(name, former)
    group.flush()


def _require_possible(service: Service, row: rows.Row,
                      lv: lvm.LogicalVolume) -> None:
    report = service.host.group.report()
    if row.status != VolumeStatus.MANAGING:
        raise _invalid(lv.name, f'the status of volume {row.id} is '
                       f'{row.status}')
    if names.data_lv(row.lv) in report.lvs:
        raise _invalid(lv.name, f'volume {row.id} has an LV already')
    growth = int(units.Bytes.from_gib(lv.size.to_gib())) - int(lv.size)
    if not lv.pool and growth > report.free:
        raise _invalid(
            lv.name, f'a volume has whole GiB: it needs {growth} bytes more, '
            f'and {report.free} are free in volume group {report.name}')


def _find(service: Service, reference: Reference) -> lvm.LogicalVolume:
    """The LV that a reference names, if it can become a volume."""
    name = reference.get('source-name') if isinstance(reference,
                                                      dict) else None
    if not name:
        raise _invalid(reference, 'it has to be {"source-name": LV}')
    report = service.host.group.report()
    lv = report.lvs.get(str(name))
    if lv is None:
        raise _invalid(name, f'volume group {report.name} of {service.node} '
                       'has no such LV; those of other groups cannot be '
                       'managed, and the group is not part of the name')
    if names.lv_uuid(lv.name):
        raise _refusal_of_ours(service, lv)
    hindrance = _hindrance(service, lv)
    if hindrance:
        raise _invalid(name, hindrance)
    return lv


def _invalid(reference: Reference, reason: str) -> Exception:
    return exception.ManageExistingInvalidReference(existing_ref=reference,
                                                    reason=reason)


def _refusal_of_ours(service: Service, lv: lvm.LogicalVolume) -> Exception:
    uuid = names.lv_uuid(lv.name)
    assert uuid is not None
    if any(row.lv == uuid for row in service.world.rows.homes(
            service.node, [uuid])):
        return exception.ManageExistingAlreadyManaged(volume_ref=lv.name)
    return _invalid(lv.name, 'this driver gives such names to its own LVs; if '
                    'it is none of them (it has no tags), rename it')


def _hindrance(service: Service, lv: lvm.LogicalVolume) -> str:
    """Why an LV with a name that is not ours cannot become a volume."""
    if not lv.plain:
        return ('it is more than a linear, striped or thin LV, or has or is a '
                'snapshot that is not thin')
    if lv.pool not in ('', service.host.group.pool):
        return (f'it is in the thin pool {lv.pool}, which is not that of '
                'this backend (dmclone_lvm_type, dmclone_thin_pool)')
    if lv.devnum is None:
        return 'it is not active (lvchange --activate y)'
    if lv.skipped:
        return ('LVM leaves it out of activations (lvchange '
                '--setactivationskip n)')
    tags = lv_tags.ours(lv.tags)
    if tags:
        return ('it has tags of this driver, and they may still be needed. If '
                'they are not: lvchange '
                + ' '.join(f'--deltag {tag}' for tag in tags))
    if service.host.dm.open_count(lv.devnum):
        return 'it is in use on this node'
    return ''


def manageable(service: Service) -> list[dict[str, typing.Any]]:
    """LVs of this node that are not the driver's, as Cinder lists them."""
    found = []
    for lv in service.host.group.report().lvs.values():
        if names.lv_uuid(lv.name):
            continue
        hindrance = _hindrance(service, lv)
        found.append({
            'reference': {'source-name': lv.name}, 'size': lv.size.to_gib(),
            'safe_to_manage': not hindrance,
            'reason_not_safe': hindrance or None,
            'cinder_id': None, 'extra_info': None})
    return found


def unmanage(service: Service, volume_id: VolumeId) -> None:
    """Make the LV of a volume the operator's; idempotent.

    :raises CannotUnmanage: if it is needed, or something has to be settled;
        nothing was changed
    :raises DeviceBusy: if it is in use; nothing was changed
    """
    with service.locked(volume_id):
        row = service.world.rows.get(volume_id)
        if row is None or row.deleted:
            return
        lvs = service.host.group.report().lvs
        begun = (names.unmanaged_lv(row.id) in lvs
                 and names.data_lv(row.lv) not in lvs)
        if not begun:
            _require_at_rest(service, row)
        hand_back(service, row)


def _require_at_rest(service: Service, row: rows.Row) -> None:
    try:
        service.require_home(row)
        known = service.settled(row, 'unmanaged')
        reason = _need(known.stack, bool(known.row and known.row.source))
    except exceptions.DMCloneException as error:
        raise exceptions.CannotUnmanage(
            volume=row.id, node=service.node,
            reason=error.msg.rstrip('.')) from error
    if reason:
        raise exceptions.CannotUnmanage(volume=row.id, node=service.node,
                                        reason=reason)


def _need(stack: state.Stack, hydrates: bool) -> str:
    """What an LV is more than a volume at rest.

    :param hydrates: whether the row says so
    """
    tags = stack.tags
    if tags.source or hydrates:
        return 'it hydrates; try again when that has ended'
    if tags.lent:
        return (f'{tags.lent[0].borrower} still hydrates from it; try again '
                'when that has ended')
    if tags.snaps:
        return f'its LV is snapshot {tags.snaps[0].snapshot}, too'
    if stack.of_kind(names.Kind.VIEW):
        return 'a backup or an upload still reads it; try again later'
    if stack.in_flight:
        return 'a relocation has left something to finish; try again later'
    return ''


def was_given(row: rows.Row) -> bool:
    """Whether the LV of a volume that is deleted is to be given back.

    Cinder writes a managed volume's size only at the end.
    """
    return row.status == _ERROR_MANAGING_DELETING or not row.size


def hand_back(service: Service, row: rows.Row) -> None:
    """Take the LV of a volume out of the driver's names, then its tags.

    From the first of these on nothing erases it, whatever becomes of the row.

    :raises DeviceBusy: if it is in use; nothing was changed
    """
    group = service.host.group
    name, free = names.data_lv(row.lv), names.unmanaged_lv(row.id)
    if name in group.report().lvs:
        teardown.close(service.host, inspect.refresh(service.host, row.lv))
        group.rename(name, free)
        group.flush()
    found = group.report().lvs.get(free)
    if found and lv_tags.ours(found.tags):
        group.retag(free, remove=lv_tags.ours(found.tags))
    # Also what was done before a crash.
    group.flush()
