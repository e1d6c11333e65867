# SPDX-License-Identifier: Apache-2.0
"""A part of a fleet that works, for lab.crew: nodes in one process.

The nodes have the driver's own code, and of unit tests what they build and
send messages with; their database is a real one. Their time is their own, and
none passes while they work.
"""
from __future__ import annotations

import argparse
import contextlib
import io
import random
import typing
from collections.abc import Callable
from unittest import mock

from cinder import rpc
import oslo_messaging as messaging

from cinder_dmclone.cli import drain
from cinder_dmclone.location import VolumeId
from cinder_dmclone.releases import db_api
from lab.fleet import ELSE
from tests.functional import fleet
from tests.unit.fake import cloud as fake
from tests.unit.fake import database
from tests.unit.fake import ports

if typing.TYPE_CHECKING:
    from lab import crew

# As ``cinder-dmclone drain`` has it by default.
PARALLEL = 2


class Database(fleet.Database):
    """Rows beside those of a fleet and of other actors."""

    def clear(self) -> None:
        """Others work there."""

    @fleet.of_others
    def service(self, node: str) -> None:
        super().service(node)
        service, = db_api.service_get_all(self.context, host=node)
        db_api.service_update(self.context, service.id,
                              {'availability_zone': 'nova'})


class Clock(ports.Clock):
    """While ``drain`` sleeps all nodes work."""

    def __init__(self, tick: Callable[[], None]) -> None:
        super().__init__()
        self._tick = tick

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if seconds == drain.SECONDS:
            self._tick()


class Cloud(fake.Cloud):
    """The nodes of one actor.

    :ivar sent: what they have sent each other, by kind; answers too
    """

    db: Database

    def __init__(self, *hosts: str, **options: typing.Any) -> None:
        self.sent: list[str] = []
        super().__init__(*hosts, **options)

    def make_clock(self) -> Clock:
        return Clock(self.tick)

    def make_database(self) -> Database:
        return Database()

    def carry(self, process: fake.Process, message: ports.Message,
              timeout: float) -> ports.Answer:
        self.sent += [message.request, 'answer']
        return super().carry(process, message, timeout)

    def post(self, message: ports.Message) -> None:
        self.sent.append(message.request)
        super().post(message)

    def only_mine(self, nodes: list[str]) -> None:
        """Instead of an order at random: others would not answer."""
        nodes[:] = [node for node in nodes if node in self.nodes]


def relocate(cloud: Cloud, volumes: list[VolumeId]) -> None:
    """Attach each volume elsewhere, until its old copy is released."""
    for number, volume in enumerate(volumes):
        _, *others = cloud.nodes.values()
        there = others[number % len(others)]
        cloud.attach(volume, there)
        cloud.settle()


def restart(cloud: Cloud, volumes: list[VolumeId]) -> None:
    """End cinder-volume and start it again, until it has seen all."""
    node = cloud.home(volumes[0])
    node.kill()
    node.start()
    cloud.settle()


def empty(cloud: Cloud, volumes: list[VolumeId]) -> None:
    """Drain the node."""
    node = cloud.home(volumes[0])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = drain.run(
            argparse.Namespace(yes=True, parallel=PARALLEL),
            [node.process.world])
    assert not code and not node.group.volumes, out.getvalue()


_WORK: dict[str, Callable[[Cloud, list[VolumeId]], None]] = {
    'relocate': relocate, 'restart': restart, 'drain': empty}


def prepare() -> None:
    """Let fakes of unit tests use the database of this process."""
    database._engine = db_api.get_engine()
    # Registers rpc_response_timeout.
    messaging.get_rpc_client(rpc.TRANSPORT, messaging.Target())


def work(task: dict[str, typing.Any],
         start: crew.Start) -> dict[str, typing.Any]:
    """Do what the task says with new volumes of a new node.

    :returns: how many messages the nodes have sent
    """
    prepare()
    cloud = Cloud(*(f'{task["name"]}-{number}'
                    for number in range(task['nodes'])))
    first = next(iter(cloud.nodes.values()))
    # To make the volumes is none of the work.
    cloud.db.end = ELSE
    volumes = [cloud.create(first) for _ in range(task['volumes'])]
    cloud.db.end = ''
    start()
    with mock.patch.object(random, 'shuffle', cloud.only_mine):
        _WORK[task['work']](cloud, volumes)
    assert not cloud.complaints, cloud.complaints
    return {'messages': len(cloud.sent)}
