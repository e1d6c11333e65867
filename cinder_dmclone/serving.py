# SPDX-License-Identifier: Apache-2.0
"""Serving a volume where it is: as a local device or over iSCSI."""

from __future__ import annotations

import typing

from cinder_dmclone import facts
from cinder_dmclone.iscsi import exporter
from cinder_dmclone import names
from cinder_dmclone import stack
from cinder_dmclone import world as world_module

World = world_module.World


def local(path: str) -> dict[str, typing.Any]:
    """Connection info of a device on this node (os-brick's LOCAL)."""
    return {'driver_volume_type': 'local', 'data': {'device_path': path}}


def export(world: World, unit: facts.Unit, volume_id: str,
           initiators: typing.Iterable[str]) -> dict[str, typing.Any]:
    """Serve a volume read-write to these initiators, besides those it has.

    :returns: connection info for os-brick's iSCSI connector
    """
    name = names.serve(unit.lv)
    stack.consume(world, unit, name)
    iqn = names.serve_iqn(world.settings.target_prefix, unit.lv)
    user, password = world.settings.credentials(iqn)
    state = unit.exports.get(iqn)
    # LIO has initiator names in lower case.
    wanted = {initiator.lower() for initiator in initiators}
    allowed = wanted | set(state.initiators if state else ())
    world.exporter.ensure(exporter.Export(
        iqn=iqn, device=name.path, serial=unit.lv, readonly=False,
        grants=tuple(exporter.Grant(initiator, user, password)
                     for initiator in sorted(allowed))))
    return {'driver_volume_type': 'iscsi', 'data': {
        'target_discovered': False, 'target_iqn': iqn,
        'target_portal': world.settings.portal, 'target_lun': 0,
        'volume_id': volume_id, 'discard': False,
        'auth_method': 'CHAP', 'auth_username': user,
        'auth_password': password}}


def unexport(world: World, unit: facts.Unit, initiator: str | None) -> bool:
    """End what an initiator was served; all of them if None.

    :returns: whether other initiators are still served
    """
    iqn = names.serve_iqn(world.settings.target_prefix, unit.lv)
    state = unit.exports.get(iqn)
    initiator = initiator and initiator.lower()
    others = set(state.initiators if state else ()) - {initiator}
    if initiator and others:
        world.exporter.revoke(iqn, initiator)
        return True
    world.exporter.remove(iqn)
    world.dm.remove(str(names.serve(unit.lv)))
    return False
