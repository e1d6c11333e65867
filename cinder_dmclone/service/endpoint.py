# SPDX-License-Identifier: Apache-2.0
"""Where requests of other nodes arrive: a small server beside the manager's.

A message names volume, LV and generation, and its receiver acts only if a
fresh row, read under its own lock, still says so. Only classes of
``cinder.exception`` cross the wire (``cinder.rpc.ALLOWED_EXMODS``).
"""

from __future__ import annotations

import typing

from cinder import exception
from cinder import rpc
from oslo_log import log as logging
import oslo_messaging as messaging

from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import Answer
from cinder_dmclone.peers import wire
from cinder_dmclone.service import answers
from cinder_dmclone.service.base import Service

LOG = logging.getLogger(__name__)


class Endpoint:
    """The receiving side."""

    target = messaging.Target(version=messages.VERSION)

    def __init__(self, service: Service) -> None:
        self._service = service

    def answer(self, context: typing.Any, request: str,
               fields: dict[str, typing.Any]) -> typing.Any:
        """Answer a request, given its class and its fields as sent."""
        with _crossing():
            return wire.pack(answer(self._service, _parse(
                self._service.node, request, fields)))


def answer(service: Service, request: messages.Request[Answer]) -> Answer:
    """Answer a request, under the lock that it needs."""
    function = answers.ANSWERS[type(request)]
    if request.home_only:
        return service.at_home(request, function, passed_on=True)
    if request.lock is messages.Lock.NONE:
        return function(service, request)
    with service.locked(request.volume, request.lock):
        return function(service, request)


def _parse(node: NodeName, name: str,
           fields: dict[str, typing.Any]) -> messages.AnyRequest:
    """
    :raises PeerRefused: if another release has asked for something else
    """
    kinds = {kind.__name__: kind for kind in answers.ANSWERS}
    try:
        return wire.unpack(kinds[name], fields)
    except (KeyError, TypeError, ValueError) as error:
        raise exceptions.PeerRefused(
            node=node, what='what its release does not know',
            reason=f'{type(error).__name__}: {error}') from error


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
