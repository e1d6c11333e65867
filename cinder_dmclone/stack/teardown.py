# SPDX-License-Identifier: Apache-2.0
"""Taking a volume's devices apart, also with its lender away."""

from __future__ import annotations

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack.state import Unit


def quiesce(host: Host, unit: Unit) -> None:
    """Let nothing wait for the lender: copying stops, reads fail.

    In the other order failed copies are retried without pause, and a removal
    waits for ever for copies that are queued in the source.
    """
    clone, source = names.clone(unit.lv), names.source(unit.lv)
    if clone in unit.devices:
        host.dm.message(str(clone), 'disable_hydration')
    if source in unit.devices:
        host.dm.message(str(source), 'fail_if_no_path')


def dismantle(host: Host, unit: Unit) -> None:
    """Take away clone, source, session and metadata LV.

    This never hangs, also with the lender away. No consumer may map to the
    clone any more. The logout comes first: only it ends the copies that
    wait in a session whose connection is gone, and the clone cannot be
    removed before they end.
    """
    quiesce(host, unit)
    if unit.iqn:
        host.importer.logout(unit.iqn)
    host.dm.remove(str(names.clone(unit.lv)))
    host.dm.remove(str(names.source(unit.lv)))
    if unit.meta:
        host.meta_group.remove(unit.meta.name)


def strip(host: Host, unit: Unit) -> None:
    """Remove everything that is built on an LV.

    :raises DeviceBusy: if somebody has a consumer open; nothing was changed
    """
    for name in unit.of_kind(names.Kind.FRONT, names.Kind.IO):
        if unit.is_open(name):
            raise exceptions.DeviceBusy(device=name)
    quiesce(host, unit)
    for iqn in unit.exports:
        host.exporter.remove(iqn)
    for name in (*unit.of_kind(*names.CONSUMERS),
                 *(name for kind in names.GATE
                   for name in unit.of_kind(kind))):
        host.dm.remove(str(name))
    dismantle(host, unit)


def erase(host: Host, unit: Unit) -> None:
    """Overwrite the data as the operator's ``volume_clear`` says."""
    if unit.data:
        host.erase(unit.data.path, unit.data.size)


def teardown(host: Host, unit: Unit) -> None:
    """Remove an LV and everything built on it.

    :raises DeviceBusy: if somebody has a consumer open; nothing was changed
    """
    strip(host, unit)
    host.group.remove(names.data_lv(unit.lv))
