# SPDX-License-Identifier: Apache-2.0
"""A node that boots while nobody can be asked."""
from __future__ import annotations

import dataclasses
import threading
import typing
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import decision
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import iscsi
from tests.unit.fake import mapper
from tests.unit.fake import ports


class HydratingCase(base.CloudTestCase):
    """A volume of node a that has just moved to node b."""

    def setUp(self) -> None:
        super().setUp()
        attachment = self.cloud.reserve(self.volume)
        self.path = self.cloud.connect(self.volume, attachment, self.b)
        self.cloud.settle(1)

    def boot(self, node: cloud.Node) -> dict[str, str]:
        """What the activation of a node without its power could not do."""
        node.up = True
        process = type(node.process)(node)
        with self.cloud.db.away():
            return activation.activate(process.world)


class ActivationTest(HydratingCase):
    """The borrower of a hydrating volume loses its power."""

    def setUp(self) -> None:
        super().setUp()
        self.b.lose_power()

    def activate(self) -> None:
        self.assertEqual({}, self.boot(self.b))

    def test_what_is_elsewhere_can_be_read(self) -> None:
        self.activate()
        self.assert_data(self.b, self.path)

    def test_a_lender_that_is_down_keeps_nothing_from_coming_up(self) -> None:
        self.a.lose_power()
        self.activate()
        self.assertIn(self.path.rpartition('/')[2], self.b.mapper.mapped)


class LendersTest(base.CloudTestCase):
    """Node b has volumes of a and c, and loses its power."""

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        for lender in self.a, self.a, *self.others:
            self.cloud.attach(self.cloud.create(lender), self.b)
        self.cloud.settle(1)
        self.b.lose_power()
        self.b.up = True
        self.world = type(self.b.process)(self.b).world

    def activate(self, reconnect: typing.Callable[..., object],
                 *each: typing.Any) -> None:
        with mock.patch.object(clones, 'reconnect', reconnect):
            self.assertEqual({}, activation.activate(self.world, *each))

    def test_no_lender_waits_for_another(self) -> None:
        """None answers before both have been asked."""
        asked = threading.Barrier(2, timeout=30)

        def reconnect(host: object, stack: state.Stack, queue: bool) -> None:
            asked.wait()
            assert stack.tags.source
            self.b.initiator.silent_.add(stack.tags.source.portal)
            raise exceptions.LoginFailed(iqn='iqn', portal='it', reason='off')
        self.activate(reconnect)
        self.assertFalse(asked.broken)

    def test_one_that_cannot_be_read_does_not_stand_for_all(self) -> None:
        """Its lender answers, and lends the other."""
        tried = []

        def reconnect(host: object, stack: state.Stack, queue: bool) -> None:
            tried.append(stack.lv)
            raise exceptions.SourceMismatch(
                iqn='iqn', reason='it is another one')
        self.activate(reconnect, ports.in_turn)
        self.assertEqual(3, len(tried))

    def test_servers_wait_for_a_while_only(self) -> None:
        """Each login takes long."""
        tried = []

        def reconnect(host: object, stack: state.Stack, queue: bool) -> None:
            tried.append(stack.lv)
            self.cloud.clock.sleep(2 / 3 * activation.LOGINS_SECONDS)
        self.activate(reconnect, ports.in_turn)
        self.assertEqual(2, len(tried))


class LenderTest(HydratingCase):
    """The lender of a hydrating volume loses its power."""

    def activate(self, node: cloud.Node) -> dict[str, str]:
        node.lose_power()
        return self.boot(node)

    def test_it_loads_what_lending_needs(self) -> None:
        """A kernel that has just booted cannot export anything."""
        self.assertEqual({}, self.activate(self.a))
        self.assertEqual(1, len(self.a.targets.exports))

    def test_nothing_is_loaded_for_nothing(self) -> None:
        self.assertEqual({}, self.activate(self.b))
        self.assertFalse(self.b.targets.loaded)

    def test_what_cannot_be_lent_keeps_nothing_from_coming_up(self) -> None:
        other = self.cloud.create(self.a)
        with mock.patch.object(iscsi.Targets, 'load', side_effect=(
                exceptions.TargetUnusable(reason='no module'))):
            self.assertEqual({self.volume}, set(self.activate(self.a)))
        self.assertIn(str(names.front(self.a.host, LvUuid(other))),
                      self.a.mapper.mapped)

    def test_what_is_not_foreseen_keeps_nothing_from_coming_up(self) -> None:
        others = [self.cloud.create(self.a) for _ in range(3)]
        apply, failing = mapper.Mapper.apply, others[1]

        def fail(self: mapper.Mapper, name: str, *rest: typing.Any,
                 **named: typing.Any) -> None:
            if failing in name:
                raise ValueError('no such thing')
            apply(self, name, *rest, **named)

        with mock.patch.object(mapper.Mapper, 'apply', fail):
            self.assertEqual({failing: 'ValueError: no such thing'},
                             self.activate(self.a))
        for other in others[0], others[2]:
            self.assertIn(str(names.front(self.a.host, LvUuid(other))),
                          self.a.mapper.mapped)


class BesideTheServiceTest(base.CloudTestCase):
    """An operator calls it while cinder-volume works."""

    def activate(self) -> dict[str, str]:
        process = type(self.a.process)(self.a)
        beside = dataclasses.replace(process.world,
                                     locks=self.a.process.world.locks)
        return activation.activate(beside)

    def fronts(self) -> list[str]:
        return [name for name in self.a.mapper.mapped if 'front' in name]

    def test_a_volume_that_leaves_meanwhile_gets_no_front(self) -> None:
        def leave(call: ports.Call) -> None:
            # The last that is read of all LVs at once.
            if str(call) == f'{self.a.name}: targets.list':
                self.cloud.after = lambda call: None
                self.cloud.attach(self.volume, self.b)

        self.cloud.after = leave
        self.assertEqual({}, self.activate())
        self.assertEqual(self.b.name, self.cloud.row(self.volume).node)
        self.assertEqual([], self.fronts())

    def test_a_volume_that_is_worked_on_is_left_alone(self) -> None:
        with self.a.process.world.locks.volume(self.volume, 0.0):
            self.assertEqual({self.volume}, set(self.activate()))
        self.assertEqual([], self.fronts())

    def test_a_gate_is_not_opened(self) -> None:
        """Only the row says when a server may write."""
        stack = state.Stack(self.lv, tags=lv_tags.Tags(
            own=lv_tags.OwnTag(1, self.volume)), devices={
                names.hold(self.lv): mock.Mock()})
        self.assertIs(decision.Verdict.REST,
                      activation.decide('a', stack).step)
