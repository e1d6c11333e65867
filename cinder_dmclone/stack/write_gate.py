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
from cinder_dmclone.stack import state

Unit = state.Unit


def prepare(host: Host, unit: Unit) -> Unit:
    """Make hold, sluice and stop, closed; no front leads to them yet.

    :returns: the unit with them
    """
    length = consumers.consumer_table(unit).length
    hold, sluice, stop = (name(unit.lv) for name in (
        names.hold, names.sluice, names.stop))
    _bring(host, unit, stop, table.Table.single(length, table.Error()))
    _bring(host, unit, sluice, _gated(host, unit, stop))
    _bring(host, unit, hold, table.Table.single(
        length, table.Multipath(host.dm.devnum(str(sluice)), queue=True)))
    host.dm.count_io(str(hold))
    made = all(name in unit.devices for name in (hold, sluice, stop))
    return unit if made else inspect.refresh(host, unit.lv)


def _bring(host: Host, unit: Unit, name: names.DeviceName,
           wanted: table.Table) -> None:
    # Most often all is ready, and a server waits.
    found = unit.device(name)
    if not found or not found.rests_on(wanted):
        host.dm.apply(str(name), wanted,
                      noflush=wanted.has(table.Multipath))


def close(host: Host, unit: Unit, front: names.DeviceName) -> None:
    """Let writes to a front wait from now on; makes the front if need be.

    When this returns no write is under way below the front any more.
    """
    host.dm.apply(str(front), _gated(host, unit, names.hold(unit.lv)),
                  seen=unit.device(front))


def _gated(host: Host, unit: Unit,
           writes: names.DeviceName) -> table.Table:
    """Consumer table whose writes go to another device."""
    devnum = host.dm.devnum(str(writes))
    segments = []
    for segment in consumers.consumer_table(unit).segments:
        assert isinstance(segment.target, table.Linear)
        segments.append(dataclasses.replace(segment, target=table.Gate(
            segment.target.device, segment.target.offset, devnum,
            segment.start)))
    return table.Table(tuple(segments))


def release(host: Host, unit: Unit) -> None:
    """Let writes through, those that wait and all others."""
    sluice = names.sluice(unit.lv)
    if names.hold(unit.lv) in unit.devices:
        host.dm.apply(str(sluice), consumers.consumer_table(unit),
                      seen=unit.device(sluice))
        rearm(host, unit)


def open(host: Host, unit: Unit) -> None:
    """Let the waiting writes go on, then take the gate away.

    In the other order the front would wait for the writes it holds.

    :raises CommandTimeout: if a read waits for the lender; writes pass
    """
    release(host, unit)
    for front in unit.of_kind(names.Kind.FRONT):
        consumers.consume(host, unit, front)
    remove(host, unit)


def reject(host: Host, unit: Unit) -> None:
    """Answer the writes that wait with an error; later ones wait again."""
    give_up(host, unit)
    host.dm.message(str(names.hold(unit.lv)), 'queue_if_no_path')
    rearm(host, unit)


def rearm(host: Host, unit: Unit) -> None:
    """Let the next write be reported again."""
    hold = str(names.hold(unit.lv))
    host.dm.count_io(hold)
    host.dm.message(hold, 'reinstate_path',
                    host.dm.devnum(str(names.sluice(unit.lv))))


def give_up(host: Host, unit: Unit) -> None:
    """Let writes that wait fail, now and later, so that they end."""
    hold = names.hold(unit.lv)
    if hold in unit.devices:
        host.dm.message(str(hold), 'fail_if_no_path')


def fence(host: Host, unit: Unit, front: names.DeviceName) -> None:
    """Let an open front answer with errors only: its volume is elsewhere."""
    give_up(host, unit)
    host.dm.apply(str(front), table.Table.single(
        consumers.consumer_table(unit).length, table.Error()))
    remove(host, unit)


def remove(host: Host, unit: Unit) -> None:
    """Take the gate away; no front may lead to it any more."""
    for name in (names.hold(unit.lv), names.sluice(unit.lv),
                 names.stop(unit.lv)):
        host.dm.remove(str(name))
