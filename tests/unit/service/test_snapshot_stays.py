# SPDX-License-Identifier: Apache-2.0
"""A snapshot that was to move stays, or its copy is lost."""

from __future__ import annotations

import typing
from unittest import mock

from oslo_db import exception as db_exc

from cinder_dmclone.database import changes
from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.peers import messages
from cinder_dmclone.relocation import borrower
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit.service import test_snapshot_moves
from tests.unit.service.test_snapshot_moves import CLONE


class StayTest(test_snapshot_moves.MoveTestCase):
    """It is let stay while it is copied."""

    def stays(self) -> None:
        self.cloud.settle()
        self.assertEqual('a@dmclone', self.assert_snapshot(
            self.snapshot).node)
        self.assertIsNone(self.found(self.snapshot).offer)
        self.assertEqual({}, self.b.group.volumes)
        self.assertEqual(((), 1), (self.tags(self.at).lent,
                                   len(self.tags(self.at).snaps)))
        self.assert_no_complaints()

    def test_taken_back(self) -> None:
        self.move()
        before = self.state()
        plan = self.want('a@dmclone')
        self.assertRegex(plan.does, f'^Snapshot {self.snapshot} of volume '
                         f'{self.volume} stays a@dmclone/.*; what has been '
                         'copied to b@dmclone/.* is deleted.$')
        self.assertEqual(before, self.state())
        self.move('a@dmclone')
        self.stays()

    def test_taken_back_while_the_other_node_is_lost(self) -> None:
        self.move()
        self.lose(self.b)
        self.move('a@dmclone')
        self.assertIsNone(self.found(self.snapshot).offer)
        self.cloud.settle()
        self.assert_snapshot(self.snapshot)
        self.b.start()
        self.stays()

    def test_the_other_node_fails(self) -> None:
        with mock.patch.object(
                borrower, 'build',
                side_effect=exceptions.LoginFailed(
                    iqn='iqn', portal='portal', reason='no')):
            with self.assertRaisesRegex(exceptions.PeerRefused, 'Login'):
                self.move()
        self.stays()

    def test_the_other_node_does_not_answer(self) -> None:
        for fate in (ports.Fate.LOST, ports.Fate.UNANSWERED, ports.Fate.LATE):
            with self.subTest(fate):
                self.fates('CopySnapshot', fate)
                self.assertRaises(exceptions.PeerRefused, self.move)
                self.cloud.deliver_late()
                self.stays()

    def test_asked_twice(self) -> None:
        self.fates('CopySnapshot', ports.Fate.TWICE)
        self.move()
        self.cloud.settle()
        self.assertEqual('b@dmclone', self.assert_snapshot(
            self.snapshot).node)
        self.assertEqual(1, len(self.b.group.volumes))

    def test_it_took_too_long(self) -> None:
        login = self.b.initiator.login

        def slowly(*arguments: typing.Any) -> typing.Any:
            self.cloud.clock.now += 100
            return login(*arguments)
        with mock.patch.object(self.b.initiator, 'login', slowly):
            with self.assertRaisesRegex(exceptions.PeerRefused, 'longer'):
                self.move()
        self.stays()

    def test_another_node_of_the_same_name(self) -> None:
        identify = self.b.group.uuid

        def before(call: ports.Call) -> None:
            if call.method == 'offer':
                self.b.group.uuid = GroupUuid('another')
        self.cloud.before = before
        with self.assertRaisesRegex(exceptions.PeerRefused, 'another node '
                                    'of this name'):
            self.move()
        self.b.group.uuid = identify
        self.stays()

    def test_a_node_dies_before_the_copy_is_ready(self) -> None:
        """Its metadata may say anything: it is copied anew, or not."""
        for node in (self.a, self.b):
            with self.subTest(node.name):
                def before(call: ports.Call, node: cloud.Node = node) -> None:
                    if call.node == 'b@dmclone' and call.method == 'login':
                        node.lose_power()
                        self.cloud.before = lambda call: None
                self.cloud.before = before
                try:
                    self.move()
                except (exceptions.DMCloneException, ports.Killed):
                    pass
                self.cloud.restart()
                self.cloud.settle(60)
                self.stays()

    def test_one_that_was_offered_and_no_more(self) -> None:
        """The outcome of the offer was not known."""
        row = self.found(self.snapshot)
        self.a.process.world.snapshots.offer(
            row, Location(self.b.name, LvUuid(CLONE)))
        self.a.process.loop.run_once(everything=True)
        self.stays()

    def test_the_outcome_of_the_offer_is_not_known(self) -> None:
        def make(*arguments: changes.Change) -> int:
            raise db_exc.DBConnectionError(Exception('gone away'))
        record = self.want().record
        with mock.patch.object(changes, 'make', make):
            with self.assertRaisesRegex(exceptions.PeerRefused, 'not known'):
                self.want(record=record)
        self.stays()


class LostTest(test_snapshot_moves.MoveTestCase):

    def release(self) -> messages.Plan:
        ask = self.c.process.world.peers.ask
        plan = ask(self.a.name, messages.Release(self.lv, ''))
        return ask(self.a.name, messages.Release(self.lv, plan.record))

    def test_the_loan_to_a_lost_node(self) -> None:
        self.move()
        self.lose(self.b)
        with self.assertRaisesRegex(
                exceptions.PeerRefused, f'snapshot {self.snapshot} moves to '
                'b@dmclone/.*: take that back first'):
            self.release()
        self.move('a@dmclone')
        self.assertIn(f'has not copied of snapshot {self.snapshot}',
                      self.release().gives_up[0])
        self.cloud.settle()
        self.assertEqual((), self.tags(self.at).lent)
        self.assert_snapshot(self.snapshot)

    def test_the_node_that_it_has_left_is_lost(self) -> None:
        """Nothing of it is missed."""
        self.gone()
        self.move('c@dmclone')
        self.cloud.settle()
        self.lose(self.a)
        self.cloud.settle()
        self.assertEqual('c@dmclone', self.assert_snapshot(
            self.snapshot).node)

    def test_the_lender_is_lost_while_it_is_copied(self) -> None:
        """What is not whole is no snapshot; it can be deleted."""
        self.gone()
        self.move('c@dmclone')
        self.lose(self.a)
        self.cloud.settle()
        self.assertEqual('a@dmclone', self.at.node)
        self.delete(self.snapshot)
        self.cloud.settle()
        self.assertEqual({}, self.c.group.volumes)
