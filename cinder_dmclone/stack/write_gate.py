# SPDX-License-Identifier: Apache-2.0
r"""The write gate: a front that reads while its writes wait.

::

        front    dm delay without delays
       /     \
     top     hold     dm multipath that queues without a path
    (reads,    |
    flushes) sluice   its path: closed, a dm delay like the front; then linear
             /    \
           top    stop     dm error

A live migration leaves two servers' fronts on one volume, and no call says
when the second begins to write. While the gate of the second is closed, its
first write fails the path of the hold and waits: the kernel reports that
(``dm_path_uevent`` in dm-uevent.c), and nothing has been written. Reads go
through at every level: one of a program that scans all devices must not look
like a write. The hold's table never changes; opening turns the sluice into
what the front leads to.

Every function is idempotent.
"""

from __future__ import annotations

import dataclasses

from cinder_dmclone.host.dm import table
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack.state import Stack


def prepare(host: Host, stack: Stack) -> Stack:
    """Make hold, sluice and stop, closed; no front leads to them yet.

    :returns: the stack with them
    """
    length = consumers.consumer_table(host, stack).length
    hold, sluice, stop = (name(stack.lv) for name in (
        names.hold, names.sluice, names.stop))
    _bring(host, stack, stop, table.Table.single(length, table.Error()))
    _bring(host, stack, sluice, _gated(host, stack, stop))
    _bring(host, stack, hold, table.Table.single(
        length, table.Multipath(host.dm.devnum(str(sluice)), queue=True)))
    host.dm.count_io(str(hold))
    made = all(name in stack.devices for name in (hold, sluice, stop))
    return stack if made else inspect.refresh(host, stack.lv)


def _bring(host: Host, stack: Stack, name: names.DeviceName,
           wanted: table.Table) -> None:
    # Most often all is ready, and a server waits.
    found = stack.device(name)
    if not found or not found.rests_on(wanted):
        host.dm.apply(str(name), wanted,
                      noflush=wanted.has(table.Multipath))


def close_gate(host: Host, stack: Stack, front: names.DeviceName) -> None:
    """Let writes to a front wait from now on; makes the front if need be.

    When this returns no write is under way below the front any more.
    """
    host.dm.apply(str(front), _gated(host, stack, names.hold(stack.lv)),
                  seen=stack.device(front))


def _gated(host: Host, stack: Stack,
           writes: names.DeviceName) -> table.Table:
    """Consumer table whose writes go to another device."""
    devnum = host.dm.devnum(str(writes))
    segments = []
    for segment in consumers.consumer_table(host, stack).segments:
        assert isinstance(segment.target, table.Linear)
        segments.append(dataclasses.replace(segment, target=table.Gate(
            segment.target.device, segment.target.offset, devnum,
            segment.start)))
    return table.Table(tuple(segments))


def release(host: Host, stack: Stack) -> None:
    """Let writes through, those that wait and all others."""
    sluice = names.sluice(stack.lv)
    if names.hold(stack.lv) in stack.devices:
        host.dm.apply(str(sluice), consumers.consumer_table(host, stack),
                      seen=stack.device(sluice))
        rearm(host, stack)


def open_gate(host: Host, stack: Stack) -> None:
    """Let the waiting writes go on, then take the gate away.

    In the other order the front would wait for the writes it holds.

    :raises CommandTimeout: if a read waits for the lender; writes pass
    """
    release(host, stack)
    for front in stack.of_kind(names.Kind.FRONT):
        consumers.consume(host, stack, front)
    remove(host, stack)


def reject(host: Host, stack: Stack) -> None:
    """Answer the writes that wait with an error; later ones wait again."""
    give_up(host, stack)
    rearm(host, stack)


def rearm(host: Host, stack: Stack) -> None:
    """Let the next write wait and be reported again."""
    hold = str(names.hold(stack.lv))
    host.dm.count_io(hold)
    # Whoever rejected the last may have been killed.
    host.dm.message(hold, 'queue_if_no_path')
    host.dm.message(hold, 'reinstate_path',
                    host.dm.devnum(str(names.sluice(stack.lv))))


def give_up(host: Host, stack: Stack) -> None:
    """Let writes that wait fail, now and later, so that they end."""
    hold = names.hold(stack.lv)
    if hold in stack.devices:
        host.dm.message(str(hold), 'fail_if_no_path')


def fence(host: Host, stack: Stack, front: names.DeviceName) -> None:
    """Let an open front answer with errors only: its volume is elsewhere."""
    give_up(host, stack)
    host.dm.apply(str(front), table.Table.single(
        consumers.consumer_table(host, stack).length, table.Error()))
    remove(host, stack)


def remove(host: Host, stack: Stack) -> None:
    """Take the gate away; no front may lead to it any more."""
    for name in (names.hold(stack.lv), names.sluice(stack.lv),
                 names.stop(stack.lv)):
        host.dm.remove(str(name))
