# SPDX-License-Identifier: Apache-2.0
"""Where requests of other nodes arrive: a small server beside the manager's.

A message names volume, LV and generation, and its receiver acts only if a
fresh row, read under its own lock, still says so. Only classes of
``cinder.exception`` cross the wire (``cinder.rpc.ALLOWED_EXMODS``).
"""

from __future__ import annotations

import dataclasses
import typing

from cinder import exception
from cinder import rpc
from oslo_log import log as logging
import oslo_messaging as messaging

from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers import messages
from cinder_dmclone.service import answers
from cinder_dmclone.service.base import Service
from cinder_dmclone.service import connections

LOG = logging.getLogger(__name__)


class Endpoint:
    """The receiving side; every method is a call on the node's service."""

    target = messaging.Target(version=messages.VERSION)

    def __init__(self, service: Service) -> None:
        self._service = service

    def identity(self, context: typing.Any) -> dict[str, typing.Any]:
        with _crossing():
            return dataclasses.asdict(answers.identity(self._service))

    def room(self, context: typing.Any, size: int) -> dict[str, typing.Any]:
        with _crossing():
            return dataclasses.asdict(answers.room(self._service, size))

    def prepare(self, context: typing.Any, copy: dict[str, typing.Any],
                group: GroupUuid, front: bool, gated: bool,
                seconds: float) -> str:
        with _crossing():
            copy['lender'] = Location.parse(copy['lender'])
            return answers.prepare(self._service, messages.Copy(**copy),
                                   group, front, gated, seconds)

    def hand_over(self, context: typing.Any, volume: VolumeId, copy: str,
                  pool: str) -> None:
        with _crossing():
            answers.hand_over(self._service, volume,
                              Location.parse(copy), pool)

    def discard(self, context: typing.Any, volume: VolumeId,
                lv: LvUuid) -> None:
        with _crossing():
            answers.discard(self._service, volume, lv)

    def agrees(self, context: typing.Any, volume: VolumeId,
               lv: str) -> bool:
        with _crossing():
            return answers.agrees(self._service, volume,
                                  Location.parse(lv))

    def show(self, context: typing.Any, lv: LvUuid) -> dict[str, typing.Any]:
        with _crossing():
            return dataclasses.asdict(answers.show(self._service, lv))

    def connect(self, context: typing.Any, volume: VolumeId,
                connector: dict[str, typing.Any]) -> dict[str, typing.Any]:
        with _crossing():
            return connections.connect(self._service, volume, connector,
                                       proxied=True)

    def disconnect(self, context: typing.Any, volume: VolumeId,
                   connector: dict[str, typing.Any] | None,
                   force: bool) -> bool:
        with _crossing():
            return connections.disconnect(self._service, volume, connector,
                                          force, proxied=True)

    def nudge(self, context: typing.Any, volume: VolumeId) -> None:
        answers.nudge(self._service, volume)


class _crossing:
    """Turn this driver's errors into one that every node can read."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None,
                 trace: object) -> None:
        if isinstance(error, exceptions.DMCloneException):
            LOG.warning('Refusing a request of another node: %s', error.msg)
            raise exception.CinderException(error.msg) from error
        if isinstance(error, Exception) and not isinstance(
                error, exception.CinderException):
            # Built-in errors would cross as themselves, and be taken for
            # the caller's own.
            LOG.exception('A request of another node failed.')
            raise exception.CinderException(
                f'{type(error).__name__}: {error}') from error


def serve(node: NodeName, service: Service) -> typing.Any:
    """Start answering other nodes; only when the driver is up."""
    server = rpc.get_server(
        messaging.Target(topic=messages.TOPIC, server=node),
        [Endpoint(service)])
    server.start()
    return server
