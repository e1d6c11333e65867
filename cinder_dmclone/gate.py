# SPDX-License-Identifier: Apache-2.0
"""The write gate: a front that reads while its writes wait.

::

        front    dm delay without delays
       /     \\
     top     hold     dm multipath that queues without a path
    (reads,    |
    flushes) sluice   its path: an error target while closed, then ``top``

A live migration leaves two servers' fronts on one volume, and no call says
when the second begins to write. While the gate of the second is closed, its
first write fails the path of the hold and waits: the kernel reports that
(``dm_path_uevent`` in dm-uevent.c), and nothing has been written. The hold's
table never changes; opening turns the sluice into what the front leads to.

Every function is idempotent.
"""

from __future__ import annotations

from cinder_dmclone.dm import table
from cinder_dmclone import facts
from cinder_dmclone import names
from cinder_dmclone import stack
from cinder_dmclone import world as world_module

World = world_module.World
Unit = facts.Unit


def prepare(world: World, unit: Unit) -> None:
    """Make hold and sluice, closed; no front leads to them yet."""
    length = stack.consumer_table(unit).length
    sluice = names.sluice(unit.lv)
    world.dm.apply(str(sluice), table.Table.single(length, table.Error()))
    world.dm.apply(
        str(names.hold(unit.lv)), table.Table.single(
            length, table.Multipath(world.dm.devnum(str(sluice)),
                                    queue=True)), noflush=True)


def close(world: World, unit: Unit, front: names.DeviceName) -> None:
    """Let writes to a front wait from now on; makes the front if need be.

    When this returns no write is under way below the front any more.
    """
    hold = world.dm.devnum(str(names.hold(unit.lv)))
    open_table = stack.consumer_table(unit)
    world.dm.apply(str(front), table.Table(tuple(
        table.Segment(segment.start, segment.length,
                      _gate(segment, hold))
        for segment in open_table.segments)))


def _gate(segment: table.Segment, hold: str) -> table.Gate:
    assert isinstance(segment.target, table.Linear)
    return table.Gate(segment.target.device, segment.target.offset, hold,
                      segment.start)


def open(world: World, unit: Unit) -> None:
    """Let the waiting writes go on, then take the gate away.

    In the other order the front would wait for the writes it holds.
    """
    hold, sluice = names.hold(unit.lv), names.sluice(unit.lv)
    if hold in unit.devices:
        world.dm.apply(str(sluice), stack.consumer_table(unit))
        world.dm.message(str(hold), 'reinstate_path',
                         world.dm.devnum(str(sluice)))
    for front in unit.of_kind(names.Kind.FRONT):
        stack.consume(world, unit, front)
    remove(world, unit)


def reject(world: World, unit: Unit) -> None:
    """Answer the writes that wait with an error; later ones wait again."""
    hold = str(names.hold(unit.lv))
    give_up(world, unit)
    world.dm.message(hold, 'queue_if_no_path')
    world.dm.message(hold, 'reinstate_path',
                     world.dm.devnum(str(names.sluice(unit.lv))))


def give_up(world: World, unit: Unit) -> None:
    """Let writes that wait fail, now and later, so that they end."""
    hold = names.hold(unit.lv)
    if hold in unit.devices:
        world.dm.message(str(hold), 'fail_if_no_path')


def fence(world: World, unit: Unit, front: names.DeviceName) -> None:
    """Let an open front answer with errors only: its volume is elsewhere."""
    give_up(world, unit)
    world.dm.apply(str(front), table.Table.single(
        stack.consumer_table(unit).length, table.Error()))
    remove(world, unit)


def remove(world: World, unit: Unit) -> None:
    """Take hold and sluice away; no front may lead to them any more."""
    for name in (names.hold(unit.lv), names.sluice(unit.lv)):
        world.dm.remove(str(name))
