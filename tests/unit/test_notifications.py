# SPDX-License-Identifier: Apache-2.0
"""Who wants to know is told that something moves, and that it does not."""

from __future__ import annotations

import dataclasses
import threading
import typing
from unittest import mock

from cinder import rpc
from cinder import utils
from oslo_messaging import exceptions as messaging_exceptions

from cinder_dmclone.events import moves
from cinder_dmclone.events import notifications
from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.relocation import snapshot_move
from cinder_dmclone.service import connections
from cinder_dmclone.service import snapshots
from cinder_dmclone.service import volumes
from cinder_dmclone import wiring
from tests.unit import base
from tests.unit import migration
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit.service import test_snapshot_moves

What = moves.What
Heard = list[tuple[What, moves.Move, str]]


def listen(found: cloud.Cloud) -> Heard:
    """All that any process of the nodes tells from now on."""
    heard: Heard = []
    for node in found.nodes.values():
        node.process.world.moves.listen(
            lambda *told: heard.append(told))
    return heard


def heard_after(found: cloud.Cloud) -> Heard:
    """What the next processes tell."""
    heard: Heard = []
    with mock.patch.object(
            moves.Moves, 'tell', lambda _, what, move, reason='':
            heard.append((what, move, reason))):
        found.restart()
        found.settle()
    return heard


class RelocationTest(base.CloudTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.heard = listen(self.cloud)
        self.move = moves.Move(self.volume, 2, self.a.name, self.b.name)

    def refuse(self) -> str:
        """Try to attach on b, which cannot be; the attachment."""
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaises(exceptions.DMCloneException):
            self.cloud.connect(self.volume, attachment, self.b)
        return attachment

    def test_a_move(self) -> None:
        self.relocated()
        self.cloud.settle()
        self.assertEqual([(What.START, self.move, ''),
                          (What.END, self.move, '')], self.heard)

    def test_it_is_told_when_it_is_true(self) -> None:
        """Whoever is told finds the row so."""
        rows = []
        self.a.process.world.moves.listen(
            lambda what, *_: rows.append((what, self.cloud.row(self.volume))))
        self.relocated()
        (start, offered), (end, moved) = rows
        self.assertEqual((What.START, What.END), (start, end))
        assert offered.offer
        self.assertEqual((self.b.name, None),
                         (offered.offer.node, moved.offer))
        self.assertEqual((self.a.name, self.b.name),
                         (offered.node, moved.node))

    def test_a_move_that_fails(self) -> None:
        self.cloud.fate = lambda message: (
            ports.Fate.LOST if message.request == 'Prepare'
            else ports.Fate.ARRIVES)
        self.refuse()
        (start, *_), (error, move, why) = self.heard
        self.assertEqual((What.START, What.ERROR, self.move),
                         (start, error, move))
        self.assertIn('did not answer', why)

    def test_nothing_is_told_of_what_was_not_begun(self) -> None:
        self.cloud.partition(self.a, self.b)
        self.refuse()
        self.assertEqual([], self.heard)

    def test_a_crash_after_the_offer(self) -> None:
        """The next process tells that the volume stays."""
        self.crash('offer')
        self.assertEqual([], self.heard)
        (what, move, why), = heard_after(self.cloud)
        self.assertEqual((What.ERROR, self.move), (what, move))
        self.assertIn('nobody works on', why)

    def test_a_crash_after_the_commit(self) -> None:
        """Nobody tells: the row alone does."""
        self.crash('commit')
        self.assertEqual([What.START], [what for what, *_ in self.heard])
        self.assertEqual([], heard_after(self.cloud))
        self.assertEqual(self.b.name, self.cloud.row(self.volume).node)

    def crash(self, step: str) -> None:
        """Let a die when this change of the row has been made."""
        def after(call: ports.Call) -> None:
            if call.method == step:
                self.a.kill()
        self.cloud.after = after
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaises(ports.Killed):
            self.cloud.connect(self.volume, attachment, self.b)
        self.cloud.after = lambda call: None

    def test_a_listener_that_fails(self) -> None:
        """The volume moves, and the others are told."""
        def fail(what: What, move: moves.Move, reason: str) -> None:
            raise ValueError('a mistake')
        heard: Heard = []
        told = self.a.process.world.moves
        told.listen(fail)
        told.listen(lambda *each: heard.append(each))
        with mock.patch.object(moves.LOG, 'exception') as log:
            self.relocated()
        self.assertEqual(2, len(heard))
        self.assertEqual(2, log.call_count)

    def test_what_goes_on_in_another_lv_does_not_move(self) -> None:
        """A snapshot of a volume in use, one that fails too."""
        self.cloud.attach(self.volume, self.a)
        snapshots.create(self.a.service, self.volume,
                         self.cloud.db.snapshot(self.volume, 'creating'))
        self.assertNotEqual(self.lv, self.cloud.row(self.volume).lv)
        self.assertEqual([], self.heard)


class LiveMigrationTest(migration.MigrationTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.heard = listen(self.cloud)
        self.move = moves.Move(self.volume, 2, self.a.name, self.b.name)
        self.migrate()

    def whats(self) -> list[What]:
        self.assertEqual({self.move}, {move for _, move, _ in self.heard})
        return [what for what, *_ in self.heard]

    def test_a_server_that_moves(self) -> None:
        self.assertEqual([What.START], self.whats())
        self.switch()
        self.leave()
        self.cloud.settle()
        self.assertEqual([What.START, What.END], self.whats())

    def test_a_server_that_stays(self) -> None:
        self.b.mapper.close(self.new)
        connections.disconnect(self.a.service, self.volume, self.b.connector)
        self.assertEqual([What.START, What.ERROR], self.whats())
        self.assertIn('its server did not move', self.heard[-1][2])

    def test_a_volume_that_is_deleted(self) -> None:
        for node, path in (self.a, self.old), (self.b, self.new):
            node.mapper.close(path)
        volumes.delete(self.a.service, self.volume)
        self.assertEqual([What.START, What.ERROR], self.whats())


class SnapshotTest(test_snapshot_moves.MoveTestCase):
    """A snapshot that moves from a to b; c has it moved."""

    def setUp(self) -> None:
        super().setUp()
        self.moves = moves.Move(self.volume, 2, self.a.name, self.b.name,
                                self.snapshot)
        self.heard = listen(self.cloud)

    def test_it_is_told_when_it_is_true(self) -> None:
        """By the node that has made it so: the end by the new one."""
        rows = []
        for node in self.a, self.b:
            node.process.world.moves.listen(
                lambda what, *_, at=node: rows.append(
                    (what, at, self.found(self.snapshot))))
        self.move()
        self.assertEqual([(What.START, self.moves, '')], self.heard)
        self.cloud.settle()
        self.assertEqual([(What.START, self.moves, ''),
                          (What.END, self.moves, '')], self.heard)
        (start, old, offered), (end, new, moved) = rows
        self.assertEqual((What.START, self.a, What.END, self.b),
                         (start, old, end, new))
        assert offered.offer
        self.assertEqual((self.b.name, None),
                         (offered.offer.node, moved.offer))
        self.assertEqual(offered.offer, moved.at)

    def test_a_copy_that_is_not_built(self) -> None:
        self.fates('CopySnapshot', ports.Fate.LOST)
        with self.assertRaises(exceptions.PeerRefused):
            self.move()
        (start, *_), (error, move, why) = self.heard
        self.assertEqual((What.START, What.ERROR, self.moves),
                         (start, error, move))
        self.assertIn('did not answer', why)

    def test_an_operator_lets_it_stay(self) -> None:
        self.move()
        self.move('a@dmclone')
        self.cloud.settle()
        self.assertEqual([What.START, What.ERROR],
                         [what for what, *_ in self.heard])
        self.assertEqual('an operator lets it stay', self.heard[-1][2])

    def test_the_reconciler_lets_it_stay(self) -> None:
        """Who had it moved has died between the offer and the request."""
        def after(call: ports.Call) -> None:
            if call.method == 'offer':
                self.a.kill()
        self.cloud.after = after
        with self.assertRaises(exceptions.PeerUnreachable):
            self.move()
        self.cloud.after = lambda call: None
        self.assertEqual([], self.heard)
        (what, move, why), = heard_after(self.cloud)
        self.assertEqual((What.ERROR, self.moves), (what, move))
        self.assertIn('nobody makes', why)

    def test_what_arrived_before_does_not_stay(self) -> None:
        """Whoever takes it back too late tells nothing."""
        self.move()
        offered = self.found(self.snapshot)
        self.cloud.settle()
        snapshot_move.withdraw(self.a.process.world, offered, 'late')
        self.assertEqual([What.START, What.END],
                         [what for what, *_ in self.heard])


class SenderTest(base.CloudTestCase):
    """What is sent, with Cinder's own functions."""

    def setUp(self) -> None:
        super().setUp()
        self.enabled = True
        self.enterContext(mock.patch.object(
            utils, 'notifications_enabled', lambda conf: self.enabled))
        self.notifier = self.enterContext(
            mock.patch.object(rpc, 'get_notifier'))
        self.spawned: list[typing.Callable[[], None]] = []
        self.sender = notifications.Sender(
            self.a.name, self.spawned.append)
        self.move = moves.Move(VolumeId(self.volume), 2, self.a.name,
                               NodeName('b@dmclone'))

    def send(self) -> list[tuple[str, dict[str, typing.Any]]]:
        """Let what was spawned run; what was sent."""
        while self.spawned:
            self.spawned.pop()()
        return [call.args[1:]
                for call in self.notifier.return_value.info.call_args_list]

    def test_what_is_sent(self) -> None:
        self.sender(What.START, self.move, '')
        self.sender(What.ERROR, self.move, 'it stays')
        self.assertEqual(1, len(self.spawned))
        self.notifier.assert_not_called()
        start, error = self.send()
        self.assertEqual(('volume.dmclone.relocate.start',
                          'volume.dmclone.relocate.error'),
                         (start[0], error[0]))
        for name, value in (
                ('volume_id', self.volume), ('host', 'a@dmclone#pool'),
                ('source_host', 'a@dmclone'), ('target_host', 'b@dmclone'),
                ('generation', 2)):
            self.assertEqual([value, value], [start[1][name], error[1][name]])
        self.assertNotIn('reason', start[1])
        self.assertEqual('it stays', error[1]['reason'])
        self.notifier.assert_called_with('volume', 'a@dmclone')

    def test_what_is_sent_of_a_snapshot(self) -> None:
        snapshot = self.cloud.db.snapshot(self.volume)
        move = dataclasses.replace(self.move, snapshot=snapshot)
        self.sender(What.END, move, '')
        self.sender(What.ERROR, move, 'it stays')
        end, error = self.send()
        self.assertEqual(('snapshot.dmclone.relocate.end',
                          'snapshot.dmclone.relocate.error'),
                         (end[0], error[0]))
        for name, value in (
                ('snapshot_id', snapshot), ('volume_id', self.volume),
                ('source_host', 'a@dmclone'), ('target_host', 'b@dmclone'),
                ('generation', 2)):
            self.assertEqual([value, value], [end[1][name], error[1][name]])
        self.assertNotIn('reason', end[1])
        self.assertEqual('it stays', error[1]['reason'])
        self.notifier.assert_called_with('snapshot', 'a@dmclone')

    def test_a_backend_sends_them(self) -> None:
        with (mock.patch.object(wiring, 'make_host'),
              mock.patch.object(notifications, '_spawn') as spawn):
            world = wiring.make_world(None, self.a.name)
            world.moves.tell(What.START, self.move)
        spawn.assert_called_once()

    def test_nothing_waits_that_nobody_wants(self) -> None:
        self.enabled = False
        self.cloud.db.statements.clear()
        self.sender(What.START, self.move, '')
        self.assertEqual([], self.spawned)
        self.assertEqual([], self.cloud.db.statements)

    def test_whoever_tells_does_not_wait_for_the_bus(self) -> None:
        """A server may wait for it."""
        bus, sent = threading.Event(), threading.Semaphore(0)

        def send(*told: typing.Any) -> None:
            bus.wait()
            sent.release()
        sender = notifications.Sender(self.a.name)
        with mock.patch.object(sender, '_send', send):
            for _ in range(3):
                sender(What.START, self.move, '')
            self.assertFalse(sent.acquire(blocking=False))
            bus.set()
            for _ in range(3):
                self.assertTrue(sent.acquire(timeout=60))

    def test_one_that_cannot_be_sent(self) -> None:
        """The next one is; the volume may be gone by then."""
        other = moves.Move(VolumeId('70000000-0000-4000-8000-000000000009'),
                           2, self.a.name, NodeName('b@dmclone'))
        self.sender(What.END, other, '')
        self.sender(What.END, self.move, '')
        with mock.patch.object(notifications.LOG, 'warning') as log:
            (name, found), = self.send()
        self.assertEqual(self.volume, found['volume_id'])
        log.assert_called_once()
        self.notifier.return_value.info.side_effect = (
            messaging_exceptions.MessageDeliveryFailure('x'))
        self.sender(What.END, self.move, '')
        with mock.patch.object(notifications.LOG, 'warning') as log:
            self.send()
        log.assert_called_once()

    def test_so_many_wait_and_no_more(self) -> None:
        with (mock.patch.object(notifications, 'MOST', 2),
              mock.patch.object(notifications.LOG, 'warning') as log):
            for _ in range(3):
                self.sender(What.START, self.move, '')
        log.assert_called_once()
        self.assertEqual(2, len(self.send()))

    def test_no_thread(self) -> None:
        """The next one that has a thread sends all."""
        with mock.patch.object(self.sender, '_spawn',
                               side_effect=RuntimeError):
            with self.assertRaises(RuntimeError):
                self.sender(What.START, self.move, '')
        self.sender(What.END, self.move, '')
        self.assertEqual(2, len(self.send()))
