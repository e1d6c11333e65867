# SPDX-License-Identifier: Apache-2.0
"""The inverse of activation: nothing of ours is left but what is on disk.

For a node that is taken apart or whose disks are to be removed, with
cinder-volume stopped, which whoever calls this sees to (``locks.Presence``).
``activation`` brings all of it up again. No LV goes and none is changed; why
the order is safe says ``teardown.put_away``.
"""

from __future__ import annotations

import typing

from cinder_dmclone import deadlines
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.reconcile import activation
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import state
from cinder_dmclone.stack import teardown
from cinder_dmclone.world import World

_ADVICE = {
    names.Kind.FRONT: 'stop its server or detach the volume',
    names.Kind.IO: 'wait until the image or backup is copied',
    names.Kind.LOAN: 'deactivate {who} first, or wait until the volume has '
                     'hydrated there',
    names.Kind.VIEW: 'wait until the image or backup is done',
    names.Kind.SERVE: 'detach the volume from {who}',
}


def in_use(host: Host) -> list[str]:
    """What somebody uses: volume, device, and what to do, in one line each."""
    return [line for stack in inspect.collect(host, patient=True).values()
            for line in _in_use(stack)]


def _in_use(stack: state.Stack) -> typing.Iterator[str]:
    for name in stack.of_kind(*names.CONSUMERS):
        local = name.kind is names.Kind.LOAN and not stack.exports_of(name)
        if stack.is_held(name) and not local:
            who = sorted(stack.sessions_of(name))
            yield (f'volume {stack.volume}: {name.path} is in use: '
                   + _ADVICE[name.kind].format(who=' and '.join(who)))


def deactivate(world: World) -> dict[LvUuid, str]:
    """Remove all devices, sessions and exports of a backend. Idempotent.

    A volume that cannot be deactivated does not keep others from it.

    :returns: what could not be and why, by LV uuid
    """
    problems = {}
    stacks = activation.lenders_first(inspect.collect(
        world.host, patient=True))
    for lv, stack in reversed(stacks.items()):
        try:
            with world.locks.volume(stack.volume, deadlines.LOCK_SECONDS):
                teardown.put_away(world.host,
                                  inspect.refresh(world.host, lv))
        except Exception as error:
            problems[lv] = activation.said(error)
    return problems
