# SPDX-License-Identifier: Apache-2.0
"""What is asked of several nodes."""

from __future__ import annotations

import threading
import typing
from unittest import mock

import oslo_messaging as messaging

from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers import client
from cinder_dmclone.peers import messages
from cinder_dmclone.peers import wire
from cinder_dmclone.service import base as service_base
from tests.unit import base


class AskAllTest(base.TestCase):

    def test_no_node_waits_for_another_to_be_silent(self) -> None:
        """None answers before all have been asked."""
        nodes = [NodeName(f'{name}@dmclone') for name in 'abcde']
        all_asked = threading.Barrier(len(nodes), timeout=30)
        answer = messages.Identity('pool', typing.cast(typing.Any, 'group'),
                                   512, 'initiator', False)

        def call(server: str) -> object:
            all_asked.wait()
            if server in nodes[1:3]:
                raise messaging.MessagingTimeout
            return wire.pack(answer)

        self.enterContext(mock.patch.object(
            client, 'CONF', mock.Mock(rpc_response_timeout=60)))
        peers, rpc = client.Peers('dmclone'), mock.Mock()
        peers.__dict__['_client'] = rpc
        rpc.prepare = lambda server, **options: mock.Mock(
            call=lambda *rest, **fields: call(server))
        found = peers.ask_all(nodes, messages.Identify())
        self.assertEqual(nodes, list(found))
        for node in nodes[1:3]:
            self.assertIsInstance(found.pop(node), exceptions.PeerUnreachable)
        self.assertEqual({answer}, set(found.values()))


class AskAfterTest(base.TestCase):

    def test_who_has_waited_waits_no_longer_for_an_answer(self) -> None:
        """For the lock of a volume, which has moved on since."""
        volume = VolumeId('volume')
        self.enterContext(mock.patch.object(
            client, 'CONF', mock.Mock(rpc_response_timeout=60)))
        peers, rpc = client.Peers('dmclone'), mock.Mock()
        peers.__dict__['_client'] = rpc
        rpc.prepare.return_value.call.side_effect = messaging.MessagingTimeout
        times = iter((100.0, 140.0))
        rows = [mock.Mock(node=f'{node}@dmclone', deleted=False)
                for node in 'ab']
        world = mock.MagicMock(peers=peers, settings=mock.Mock(
            node='a@dmclone', budget=45))
        world.rows.get.side_effect = rows
        world.clock.monotonic = times.__next__
        with self.assertRaises(exceptions.PeerUnreachable):
            service_base.Service(world, mock.Mock()).at_home(
                messages.Leave(volume), lambda *rest: self.fail('here'))
        self.assertEqual(20.0, rpc.prepare.call_args.kwargs['timeout'])


class AskEachTest(base.TestCase):

    def test_who_does_not_answer_is_asked_no_more(self) -> None:
        """Who refuses may answer the next question."""
        b, c = NodeName('b@dmclone'), NodeName('c@dmclone')
        refused = exceptions.PeerRefused(node=b, what='it', reason='why')
        silent = exceptions.PeerUnreachable(node=c, what='it', reason='off')
        answers: dict[NodeName, list[bool | Exception]] = {
            b: [refused, True], c: [silent]}

        def ask(node: NodeName, request: object) -> bool:
            answer = answers[node].pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        peers = client.Peers('dmclone')
        with mock.patch.object(peers, 'ask', ask):
            found = peers.ask_each(dict.fromkeys(
                (b, c), [messages.Agree(typing.cast(typing.Any, 'v'),
                                        typing.cast(typing.Any, 'copy'))] * 2))
        self.assertEqual({b: [refused, True], c: [silent, silent]}, found)
