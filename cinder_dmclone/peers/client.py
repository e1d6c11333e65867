# SPDX-License-Identifier: Apache-2.0
"""Asking other nodes.

Nothing is destroyed by a cast: casts only ask a node to look.
"""

from __future__ import annotations

from concurrent import futures
import functools
import itertools
import random
import typing

from cinder import context as cinder_context
from cinder import exception
from cinder import rpc
from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging as messaging

from cinder_dmclone.database import initiators
from cinder_dmclone.database import services
from cinder_dmclone import exceptions
from cinder_dmclone.location import host_of
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.marks import reads
from cinder_dmclone.peers import messages
from cinder_dmclone.peers import wire

CONF = cfg.CONF
LOG = logging.getLogger(__name__)

# A message bus that is away must not hold up a call for ever.
SEND_RETRIES = 2

# Why there is no answer.
Failure = exceptions.PeerRefused | exceptions.PeerUnreachable
_Found = typing.TypeVar('_Found')


class Peers:
    """The other nodes of this backend."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._services = services.Services()
        self._initiators = initiators.Initiators()

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
    def node_with(self, initiator: str) -> NodeName | None:
        """The node of this backend that has a connector's initiator, if any.

        Known of those that have been started with this release.
        """
        return next((node for node in self._initiators.nodes(initiator)
                     if node.endswith(f'@{self._backend}')
                     and self._services.get(node)), None)

    @reads
    def sharing(self, node: NodeName, initiator: str) -> list[NodeName]:
        """Nodes of other hosts that have a node's initiator, which none may.

        All backends of a host have the same.
        """
        return [other for other in self._initiators.nodes(initiator)
                if host_of(other) != host_of(node)
                and self._services.get(other)]

    def announce(self, node: NodeName, initiator: str) -> None:
        """Tell all others which initiator this node has. Idempotent."""
        self._initiators.announce(initiator, node)

    @reads
    def is_up(self, node: NodeName) -> bool:
        """Whether the node's service reports in (``service_down_time``)."""
        service = self._services.get(node)
        return bool(service and service.is_up)

    @reads
    def up(self, nodes: typing.Iterable[NodeName]) -> list[NodeName]:
        """Those of some nodes for which ``is_up`` is true, in order."""
        return [node for node in self._services.known(nodes)
                if self.is_up(node)]

    @reads
    def is_enabled(self, node: NodeName) -> bool:
        """Whether Cinder's scheduler may give the node volumes."""
        service = self._services.get(node)
        return bool(service and not service.disabled)

    @reads
    def taking_in(self, node: NodeName, most: int) -> list[NodeName]:
        """Others of a node's availability zone that are up and enabled.

        :param most: so many, of all that there are
        """
        here = self._services.get(node)
        others = [other for other in self._services.nodes()
                  if other != node and other.endswith(f'@{self._backend}')]
        random.shuffle(others)
        suit = (other for other in others
                for found in [self._services.get(other)]
                if found and here and found.is_up and not found.disabled
                and found.availability_zone == here.availability_zone)
        return list(itertools.islice(suit, most))

    def ask(self, node: NodeName,
            request: messages.Request[messages.Answer],
            spent: float = 0.0) -> messages.Answer:
        """Ask ``node`` for something; its answer.

        :param spent: seconds that whoever waits for this has waited already
        :raises PeerRefused: it has not done it; or failed over it
        :raises PeerUnreachable: no answer; it may have done it, or do it later
        """
        name = type(request).__name__
        timeout = request.timeout(CONF.rpc_response_timeout) - spent
        try:
            found = self._client.prepare(
                server=node, timeout=timeout, retry=SEND_RETRIES).call(
                    cinder_context.get_admin_context(), 'answer',
                    request=name, fields=wire.pack(request))
        except exception.CinderException as error:
            raise exceptions.PeerRefused(node=node, what=name,
                                         reason=error.msg) from error
        except messaging.MessagingTimeout as error:
            raise exceptions.PeerUnreachable(
                node=node, what=name,
                reason=f'no answer in {timeout:.0f} seconds') from error
        except (messaging.MessagingException,
                messaging.RemoteError) as error:
            raise exceptions.PeerUnreachable(node=node, what=name,
                                             reason=error) from error
        try:
            return wire.unpack(request.answer, found)
        except (TypeError, ValueError, exceptions.CorruptRecord) as error:
            raise exceptions.PeerRefused(
                node=node, what=name, reason='its release answers what this '
                f'one does not know ({error})') from error

    def ask_all(self, nodes: typing.Sequence[NodeName],
                request: messages.Request[messages.Answer]
                ) -> dict[NodeName, messages.Answer | Failure]:
        """Ask several nodes at once; what each has answered, or why not."""
        found = self.ask_each(dict.fromkeys(nodes, [request]))
        return {node: answer for node, (answer,) in found.items()}

    def ask_each(self, requests: typing.Mapping[
            NodeName, typing.Sequence[messages.Request[messages.Answer]]]
            ) -> dict[NodeName, list[messages.Answer | Failure]]:
        """Ask several nodes at once, each for several things in turn.

        Who does not answer is asked no more: however many are silent, and for
        how much, it takes as long as one question may.
        """
        def ask(node: NodeName) -> list[messages.Answer | Failure]:
            found: list[messages.Answer | Failure] = []
            for request in requests[node]:
                try:
                    found.append(self.ask(node, request))
                except exceptions.PeerRefused as error:
                    found.append(error)
                except exceptions.PeerUnreachable as error:
                    left = len(requests[node]) - len(found)
                    return found + [error] * left
            return found
        return dict(zip(requests, self._each(ask, list(requests))))

    def _each(self, ask: typing.Callable[[NodeName], _Found],
              nodes: typing.Sequence[NodeName]) -> list[_Found]:
        """What is returned for each; all are begun at the same time."""
        with futures.ThreadPoolExecutor(max(len(nodes), 1)) as pool:
            return list(pool.map(ask, nodes))

    def notify(self, node: NodeName, volume: VolumeId) -> None:
        """Ask ``node`` to look at a volume soon; no answer is needed."""
        notify = messages.Notify(volume)
        try:
            self._client.prepare(server=node, retry=SEND_RETRIES).cast(
                cinder_context.get_admin_context(), 'answer',
                request=type(notify).__name__, fields=wire.pack(notify))
        except messaging.MessagingException as error:
            LOG.warning('Could not notify %(node)s about volume %(volume)s; '
                        'it looks by itself later: %(error)s',
                        {'node': node, 'volume': volume, 'error': error})
