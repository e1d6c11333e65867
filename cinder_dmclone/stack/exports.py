# SPDX-License-Identifier: Apache-2.0
"""Serving a volume where it is: as a local device or over iSCSI."""

from __future__ import annotations

import typing

from cinder_dmclone.host.iscsi import exporter
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state


def local(path: str) -> dict[str, typing.Any]:
    """Connection info of a device on this node (os-brick's LOCAL)."""
    return {'driver_volume_type': 'local', 'data': {'device_path': path}}


def export(host: Host, unit: state.Unit, volume_id: VolumeId,
           initiator: str) -> dict[str, typing.Any]:
    """Serve a volume read-write to an initiator, besides those it has.

    :returns: connection info for os-brick's iSCSI connector
    """
    # LIO has initiator names in lower case.
    initiator = initiator.lower()
    iqn = names.serve_iqn(host.settings.target_prefix, unit.lv)
    current = unit.exports.get(iqn)
    admit(host, unit, {initiator, *(current.initiators if current else ())})
    user, password = host.settings.credentials(iqn, initiator)
    return {'driver_volume_type': 'iscsi', 'data': {
        'target_discovered': False, 'target_iqn': iqn,
        'target_portal': host.settings.portal, 'target_lun': 0,
        'volume_id': volume_id, 'discard': False,
        'auth_method': 'CHAP', 'auth_username': user,
        'auth_password': password}}


def admit(host: Host, unit: state.Unit,
          initiators: typing.Iterable[str]) -> None:
    """Serve a volume read-write to these initiators and to nobody else.

    :param initiators: in lower case, as LIO has them
    """
    name = names.serve(unit.lv)
    consumers.consume(host, unit, name)
    iqn = names.serve_iqn(host.settings.target_prefix, unit.lv)
    host.exporter.ensure(exporter.Export(
        iqn=iqn, device=name.path, serial=unit.lv, readonly=False,
        grants=tuple(
            exporter.Grant(initiator,
                           *host.settings.credentials(iqn, initiator))
            for initiator in sorted(initiators))))


def unexport(host: Host, unit: state.Unit, initiator: str | None) -> bool:
    """End what an initiator was served; all of them if None.

    :returns: whether other initiators are still served
    """
    iqn = names.serve_iqn(host.settings.target_prefix, unit.lv)
    current = unit.exports.get(iqn)
    initiator = initiator and initiator.lower()
    others = set(current.initiators if current else ()) - {initiator}
    if initiator and others:
        host.exporter.revoke(iqn, initiator)
        return True
    host.exporter.remove(iqn)
    host.dm.remove(str(names.serve(unit.lv)))
    return False


def export_loan(host: Host, unit: state.Unit, tag: lv_tags.LoanTag) -> None:
    """Export a lent LV to its borrower, read-only; idempotent."""
    name = names.loan(unit.lv, tag.lv)
    consumers.consume(host, unit, name)
    iqn = loan_iqn(host, unit, tag)
    grant = exporter.Grant(tag.initiator, *host.settings.credentials(iqn))
    host.exporter.ensure(exporter.Export(
        iqn=iqn, device=name.path, serial=unit.lv, readonly=True,
        grants=(grant,)))


def loan_iqn(host: Host, unit: state.Unit, tag: lv_tags.LoanTag) -> str:
    """The target under which an LV is lent."""
    return names.loan_iqn(host.settings.target_prefix, unit.lv, tag.lv,
                          tag.generation)
