# SPDX-License-Identifier: Apache-2.0
"""Taking a volume's devices apart, also with its lender away."""

from __future__ import annotations

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack.state import Stack


def quiesce(host: Host, stack: Stack) -> None:
    """Let nothing wait for the lender: copying stops, reads fail.

    In the other order failed copies are retried without pause, and a removal
    waits for ever for copies that are queued in the source.
    """
    clone, source = names.clone(stack.lv), names.source(stack.lv)
    if clone in stack.devices:
        host.dm.message(str(clone), 'disable_hydration')
    if source in stack.devices:
        host.dm.message(str(source), 'fail_if_no_path')


def dismantle(host: Host, stack: Stack) -> None:
    """Take away clone, source, session and metadata LV.

    This never hangs, also with the lender away. No consumer may map to the
    clone any more. The logout comes first: only it ends the copies that
    wait in a session whose connection is gone, and the clone cannot be
    removed before they end.
    """
    quiesce(host, stack)
    if stack.iqn:
        host.initiator.logout(stack.iqn)
    host.dm.remove(str(names.clone(stack.lv)))
    host.dm.remove(str(names.source(stack.lv)))
    if stack.meta:
        host.meta_group.remove(stack.meta.name)


def strip(host: Host, stack: Stack) -> None:
    """Remove everything that is built on an LV.

    :raises DeviceBusy: if somebody has a consumer open; nothing was changed
    """
    for name in stack.of_kind(names.Kind.FRONT, names.Kind.IO):
        if stack.is_open(name):
            raise exceptions.DeviceBusy(device=name)
    quiesce(host, stack)
    for iqn in stack.exports:
        host.targets.remove(iqn)
    for name in (*stack.of_kind(*names.CONSUMERS),
                 *(name for kind in names.GATE
                   for name in stack.of_kind(kind))):
        host.dm.remove(str(name))
    dismantle(host, stack)


def erase(host: Host, stack: Stack) -> None:
    """Overwrite the data as the operator's ``volume_clear`` says."""
    if stack.data:
        host.erase(stack.data.path, stack.data.size)


def teardown(host: Host, stack: Stack) -> None:
    """Remove an LV and everything built on it.

    :raises DeviceBusy: if somebody has a consumer open; nothing was changed
    """
    strip(host, stack)
    host.group.remove(names.data_lv(stack.lv))
