# SPDX-License-Identifier: Apache-2.0
"""The driver with a fault point before and after every side effect.

Nothing of this is in the product: the ports are wrapped when the lab asks
for this class as ``volume_driver``. A point is ``<port>.<method>:<before or
after>[:<text>]``; the text must be part of the call's arguments as printed.
What is asked of another node is called as its request is: ``peers.Prepare``.
The node's file FAULT names the point at which cinder-volume dies by SIGKILL,
once. With FREEZE in its place the call waits there until the file HOLD is
removed.
"""
from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import signal
import time
import typing

from oslo_config import cfg

from cinder_dmclone import driver, units
from cinder_dmclone.host.dm import table
from cinder_dmclone.host.dm.device import DeviceMapper
from cinder_dmclone.peers import messages
from cinder_dmclone.world import World

# In a directory of cinder-volume's user, who removes and renames them.
FAULT = '/run/cinder/dmclone-fault'
FREEZE = '/run/cinder/dmclone-freeze'
HOLD = '/run/cinder/dmclone-hold'
# What TimedDriver writes: when each call began, how many seconds it took, and
# which one it was.
TIMES = '/run/cinder/dmclone-times'

HOST_PORTS = ('group', 'meta_group', 'dm', 'targets', 'initiator')
PORTS = ('rows', 'peers')
# An option of the backend's section: how many bytes a GiB of Cinder's has
# here. Cinder knows no smaller volumes, and most of what tests show does not
# take that many regions.
GIB = cfg.IntOpt('lab_gib', default=units.GIB)


class FaultyDriver(driver.DMCloneVolumeDriver):
    """The product's driver, mortal at every step."""

    def make_world(self) -> World:
        self.configuration.append_config_values([GIB])
        units.GIB = self.configuration.lab_gib
        return _behind(_Port, super().make_world())


class StillDriver(FaultyDriver):
    """Copies only what I/O needs, until a test tells the clone otherwise."""

    def make_world(self) -> World:
        real = super().make_world()
        return dataclasses.replace(real, host=dataclasses.replace(
            real.host, dm=typing.cast(DeviceMapper, _Still(real.host.dm))))


class _Still:
    """A device mapper whose clones may copy no region by themselves."""

    def __init__(self, real: typing.Any) -> None:
        self._real = real

    def __getattr__(self, attribute: str) -> typing.Any:
        return getattr(self._real, attribute)

    def apply(self, name: str, wanted: table.Table,
              **named: typing.Any) -> None:
        self._real.apply(name, table.Table(tuple(
            map(_stand_still, wanted.segments))), **named)


def _stand_still(segment: table.Segment) -> table.Segment:
    target = segment.target
    if not isinstance(target, table.Clone):
        return segment
    return dataclasses.replace(segment, target=dataclasses.replace(
        target, core={**target.core, 'hydration_threshold': 0}))


def _behind(port: type[_Port], world: World) -> World:
    """The world with a port of that kind before each of its own."""
    def wrapped(real: typing.Any, names: tuple[str, ...]) -> typing.Any:
        return dataclasses.replace(real, **{
            name: port(name, getattr(real, name)) for name in names})
    return typing.cast(World, wrapped(dataclasses.replace(
        world, host=wrapped(world.host, HOST_PORTS)), PORTS))


class _Port:
    """A port that looks for its fault before and after every call."""

    def __init__(self, name: str, real: typing.Any) -> None:
        self._name = name
        self._real = real

    def __getattr__(self, attribute: str) -> typing.Any:
        value = getattr(self._real, attribute)
        if not callable(value):
            return value

        def call(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
            return self._call(f'{self._name}.{_verb(attribute, args)}', value,
                              args, kwargs)
        return call

    def _call(self, name: str, value: typing.Callable[..., typing.Any],
              args: tuple[typing.Any, ...],
              kwargs: dict[str, typing.Any]) -> typing.Any:
        printed = f'{args} {kwargs}'
        _pass(f'{name}:before', printed)
        result = value(*args, **kwargs)
        _pass(f'{name}:after', printed)
        return result


def _verb(attribute: str, args: tuple[typing.Any, ...]) -> str:
    """What is asked of other nodes is a call of its own."""
    asked = (itertools.chain(*args[0].values()) if attribute == 'ask_each'
             else args)
    return next((type(arg).__name__ for arg in asked
                 if isinstance(arg, messages.Request)), attribute)


def _pass(point: str, arguments: str) -> None:
    if _armed(FAULT, point, arguments):
        os.unlink(FAULT)
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    if _armed(FREEZE, point, arguments):
        # Another thread may come here at the same moment.
        with contextlib.suppress(FileNotFoundError):
            os.rename(FREEZE, HOLD)
        while os.path.exists(HOLD):
            time.sleep(0.1)


def _armed(file: str, point: str, arguments: str) -> bool:
    try:
        with open(file, encoding='utf-8') as armed:
            wanted = armed.read().strip()
    except FileNotFoundError:
        return False
    name, when, *text = wanted.split(':', 2)
    return f'{name}:{when}' == point and all(t in arguments for t in text)


class TimedDriver(driver.DMCloneVolumeDriver):
    """The product's driver, which notes what each of its calls takes."""

    def make_world(self) -> World:
        return _behind(_TimedPort, super().make_world())


class _TimedPort(_Port):

    def _call(self, name: str, value: typing.Callable[..., typing.Any],
              args: tuple[typing.Any, ...],
              kwargs: dict[str, typing.Any]) -> typing.Any:
        began, begin = time.time(), time.monotonic()
        try:
            return value(*args, **kwargs)
        finally:
            took = time.monotonic() - begin
            with open(TIMES, 'a', encoding='utf-8') as times:
                times.write(f'{began:.6f} {took:.6f} {name}\n')


def _forget(*groups: typing.Any) -> None:
    """Let groups flush nothing, which they do by themselves, too."""
    for group in groups:
        typing.cast(_Port, group)._real.flush = lambda: None


class HalfForgetfulDriver(FaultyDriver):
    """Flushes all but the group of the clones' metadata, if that is one."""

    def make_world(self) -> World:
        real = super().make_world()
        _forget(real.host.meta_group)
        return real


class ForgetfulDriver(FaultyDriver):
    """Flushes nothing, which a test of power cuts has to find."""

    def make_world(self) -> World:
        real = super().make_world()
        _forget(real.host.group, real.host.meta_group)
        return dataclasses.replace(real, host=dataclasses.replace(
            real.host,
            dm=typing.cast(DeviceMapper, _Forgetful(real.host.dm))))


class _Forgetful:
    """A device mapper whose calls do not flush."""

    def __init__(self, real: typing.Any) -> None:
        self._real = real

    def __getattr__(self, attribute: str) -> typing.Any:
        if attribute == 'flush':
            return lambda *args: None
        if attribute == 'clone_status':
            return lambda name, flush=False: self._real.clone_status(name)
        return getattr(self._real, attribute)
