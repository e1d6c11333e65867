# SPDX-License-Identifier: Apache-2.0
"""What RabbitMQ has of a volume that moves, for whoever listens."""
from __future__ import annotations

import concurrent.futures

from lab import RestError
from lab.listener import Listener, Notification
from lab.volume import CONF
from tests.functional import base
from tests.functional import environment
from tests.functional import test_crash

_ON = '[oslo_messaging_notifications]\ndriver = messagingv2\n'


@environment.only_long
class NotificationTest(base.FunctionalTest):
    """One node on eventlet, one on threads; both send them."""

    def setUp(self) -> None:
        super().setUp()
        self.listener = Listener(self.lab.directory, self.lab.network,
                                 self.lab.venv)
        self.listener.start()
        self.addCleanup(self.listener.stop)
        self.addCleanup(self.restart_services, *self.lab.nodes)
        self.restart_services(*self.lab.nodes, change=lambda node: (
            node.run(['tee', '-a', CONF], input=_ON)))

    def wait_heard(self, volume: str, count: int) -> list[Notification]:
        """So many about moves of a volume."""
        def heard() -> list[Notification]:
            found = [each for each in self.listener.heard()
                     if each.event.startswith('volume.dmclone.')]
            self.assertEqual(set(), {each.payload['volume_id']
                                     for each in found} - {volume})
            return found[:count] if len(found) >= count else []
        return list(self.wait(f'{count} notifications', heard))

    def test_there_and_back(self) -> None:
        """Also of an attempt whose borrower dies."""
        volume = self.volume(self.node1)
        attachment = self.lab.reserve(volume)
        self.arm(self.node2, test_crash.PREPARE[0])
        with concurrent.futures.ThreadPoolExecutor() as pool:
            request = pool.submit(self.lab.connect, attachment, 2)
            self.wait_dead(self.node2)
            self.node2.volume.start()
            self.node2.volume.wait_up()
            self.assertIsInstance(request.exception(), RestError)
        begun, failed = self.wait_heard(volume, 2)
        self.assert_says(begun, 'start', 1, 2)
        self.assert_says(failed, 'error', 1, 2)
        self.assertTrue(failed.payload['reason'])
        self.detach(self.attach(volume, self.node2, attachment))
        self.wait_complete(volume)
        self.attach(volume, self.node1)
        told = self.wait_heard(volume, 6)[2:]
        for each, what, old, new in zip(
                told, ('start', 'end') * 2, (1, 1, 2, 2), (2, 2, 1, 1)):
            self.assert_says(each, what, old, new)
        numbers = [each.payload['generation'] for each in told]
        self.assertEqual([2, 2, 3, 3], numbers)
        self.assertNotIn('reason', told[-1].payload)

    def assert_says(self, each: Notification, what: str, old: int,
                    new: int) -> None:
        """The old node says that it moves to the new one."""
        self.assertEqual(
            (f'volume.node{old}@dmclone', f'volume.dmclone.relocate.{what}',
             f'node{old}@dmclone', f'node{new}@dmclone'),
            (each.publisher, each.event, each.payload['source_host'],
             each.payload['target_host']))
