# SPDX-License-Identifier: Apache-2.0
"""Asking other nodes.

Nothing is destroyed by a cast: casts only ask a node to look.
"""

from __future__ import annotations

import dataclasses
import functools
import typing

from cinder import context as cinder_context
from cinder import exception
from cinder import rpc
from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging as messaging

from cinder_dmclone.database import services
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.marks import reads
from cinder_dmclone.peers import messages

CONF = cfg.CONF
LOG = logging.getLogger(__name__)

# A message bus that is away must not hold up a call for ever.
SEND_RETRIES = 2


class Peers:
    """The other nodes of this backend."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._services = services.Services()

    @functools.cached_property
    def _client(self) -> messaging.RPCClient:
        # Late: a node is activated without any control plane.
        return rpc.get_client(messaging.Target(topic=messages.TOPIC,
                                               version=messages.VERSION))

    @reads
    def node_of(self, host: str) -> NodeName | None:
        """The node on a connector's host; None if it has no such backend."""
        node = NodeName(f'{host}@{self._backend}')
        return node if self._services.get(node) else None

    @reads
    def is_up(self, node: NodeName) -> bool:
        """Whether the node's service reports in (``service_down_time``)."""
        service = self._services.get(node)
        return bool(service and service.is_up)

    @reads
    def identity(self, node: NodeName) -> messages.Identity:
        """Who ``node`` is; it may be full."""
        return messages.Identity(**self._call(node, 'identity'))

    @reads
    def room(self, node: NodeName, size: int) -> messages.Room:
        """What ``node`` could take in, for a volume of ``size`` bytes.

        The room for that volume's clone metadata is taken off already.
        """
        return messages.Room(**self._call(node, 'room', size=int(size)))

    def prepare(self, node: NodeName, copy: messages.Copy,
                group: GroupUuid, front: bool, gated: bool,
                seconds: float) -> str:
        """Let ``node`` build a copy; returns the path of its front.

        :param group: uuid the node's volume group must have
        :param gated: whether writes to the front have to wait
        :param seconds: the node undoes the copy if it takes longer
        """
        body = dataclasses.asdict(copy)
        body['lender'] = str(copy.lender)
        return self._call(node, 'prepare', seconds, copy=body, group=group,
                          front=front, gated=gated, seconds=seconds)

    def hand_over(self, node: NodeName, volume: VolumeId, copy: Location,
                  pool: str) -> None:
        """Ask the home node to make the copy the volume: a server writes.

        :param pool: the pool of the copy's node
        """
        self._call(
            node, 'hand_over',
            CONF.rpc_response_timeout * deadlines.HAND_OVER_PART,
            volume=volume, copy=str(copy), pool=pool)

    def discard(self, node: NodeName, volume: VolumeId, lv: LvUuid) -> None:
        """Let ``node`` destroy a copy whose offer was withdrawn."""
        self._call(node, 'discard', volume=volume, lv=lv)

    @reads
    def agrees(self, node: NodeName, volume: VolumeId, lv: Location) -> bool:
        """Whether the home node agrees that a copy is not needed."""
        return self._call(node, 'agrees', volume=volume, lv=str(lv))

    @reads
    def show(self, node: NodeName, lv: LvUuid) -> messages.Shown:
        """What ``node`` has under this LV uuid, now."""
        return messages.Shown(**self._call(node, 'show', lv=lv))

    def connect(self, node: NodeName, volume: VolumeId,
                connector: dict[str, typing.Any]) -> dict[str, typing.Any]:
        """Let the home node answer a connection request."""
        return self._call(node, 'connect', CONF.rpc_response_timeout,
                          volume=volume, connector=connector)

    def disconnect(self, node: NodeName, volume: VolumeId,
                   connector: dict[str, typing.Any] | None,
                   force: bool) -> bool:
        """Let the home node end a connection."""
        return self._call(node, 'disconnect', CONF.rpc_response_timeout,
                          volume=volume, connector=connector, force=force)

    def nudge(self, node: NodeName, volume: VolumeId) -> None:
        """Ask ``node`` to look at a volume soon; no answer is needed."""
        try:
            self._client.prepare(server=node, retry=SEND_RETRIES).cast(
                cinder_context.get_admin_context(), 'nudge', volume=volume)
        except messaging.MessagingException as error:
            LOG.warning('Could not nudge %(node)s about volume %(volume)s; '
                        'it looks by itself later: %(error)s',
                        {'node': node, 'volume': volume, 'error': error})

    def _call(self, node: NodeName, method: str, timeout: float | None = None,
              **arguments: typing.Any) -> typing.Any:
        timeout = timeout or CONF.rpc_response_timeout * deadlines.QUERY_PART
        try:
            return self._client.prepare(
                server=node, timeout=timeout, retry=SEND_RETRIES).call(
                    cinder_context.get_admin_context(), method, **arguments)
        except exception.CinderException as error:
            raise exceptions.PeerRefused(node=node, what=method,
                                         reason=error.msg) from error
        except messaging.MessagingTimeout as error:
            raise exceptions.PeerAway(
                node=node, what=method,
                reason=f'no answer in {timeout:.0f} seconds') from error
        except (messaging.MessagingException,
                messaging.RemoteError) as error:
            raise exceptions.PeerAway(node=node, what=method,
                                      reason=error) from error
