# SPDX-License-Identifier: Apache-2.0
"""A volume cannot be served in place: nobody is left who may log in.

Cinder forgets an attachment that has failed before it had its connector, and
does not tell the driver.
"""

from __future__ import annotations

import contextlib
import typing
from unittest import mock

from oslo_serialization import jsonutils

from cinder_dmclone import exceptions
from cinder_dmclone.host.iscsi import targets
from cinder_dmclone.service import connections
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import state
from tests.unit import base
from tests.unit.fake.bomb import Bomb
from tests.unit.fake import iscsi
from tests.unit.fake import ports

Ensure = typing.Callable[[iscsi.Targets, targets.Export], None]


def half_made(ensure: Ensure = iscsi.Targets.ensure) -> Ensure:
    """LIO fails when the target is there."""
    def make(self: iscsi.Targets, export: targets.Export) -> None:
        ensure(self, export)
        raise exceptions.TargetUnusable(reason='no such portal')
    return make


class FailureTest(base.CloudTestCase):

    def failing(self, make: Ensure) -> typing.ContextManager[object]:
        return mock.patch.object(iscsi.Targets, 'ensure', make)

    def connect(self, name: str) -> dict[str, typing.Any]:
        return connections.connect(
            self.cloud.home(self.volume).service, self.volume,
            {'host': name, 'initiator': f'iqn.{name}'})

    def serve(self, name: str, complete: bool = True) -> str:
        attachment = self.cloud.reserve(self.volume)
        info = self.connect(name)
        self.cloud.db.update_attachment(
            attachment, connector=jsonutils.dumps(
                {'host': name, 'initiator': f'iqn.{name}'}),
            connection_info=jsonutils.dumps(info),
            attach_status='attaching')
        if complete:
            self.cloud.complete(self.volume, attachment)
        return attachment

    def admitted(self) -> set[str]:
        return {grant.initiator for export in self.a.targets.exports.values()
                for grant in export.grants}

    def refused(self, name: str, make: Ensure | None = None) -> str:
        """The attachment that fails."""
        attachment = self.cloud.reserve(self.volume)
        with self.failing(make or half_made()):
            self.assertRaises(exceptions.TargetUnusable, self.connect, name)
        return attachment


class UnusableTest(base.CloudTestCase):

    def test_the_node_is_named(self) -> None:
        host, stack = self.a.process.world.host, state.Stack(self.lv)
        with self.assertRaisesRegex(exceptions.CopyUnusable, (
                f'{self.lv} of volume .* on a@dmclone cannot be assembled: '
                'its LV is missing or not active')):
            consumers.active_data(host, stack)


class UndoneTest(FailureTest):

    def test_nothing_is_left(self) -> None:
        attachment = self.refused('one')
        self.assertEqual(({}, {}), (self.a.targets.exports,
                                    self.a.mapper.mapped))
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_settled()

    def test_whom_it_is_served_to_keeps_it(self) -> None:
        self.serve('one')
        self.refused('other')
        self.assertEqual({'iqn.one'}, self.admitted())

    def test_a_repeated_request_takes_nothing_away(self) -> None:
        self.serve('one', complete=False)
        with self.failing(half_made()):
            self.assertRaises(exceptions.TargetUnusable, self.connect, 'one')
        self.assertEqual({'iqn.one'}, self.admitted())

    def test_the_next_try_is_served(self) -> None:
        attachment = self.refused('one')
        self.connect('one')
        self.assertEqual({'iqn.one'}, self.admitted())
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_settled()


class LeftTest(FailureTest):
    """What cannot be undone at once goes soon after the attachment."""

    def assert_goes(self, attachment: str) -> None:
        self.assertEqual({'iqn.one'}, self.admitted())
        # However long it is there.
        for _ in range(30):
            self.cloud.tick()
        self.cloud.forget(self.volume, attachment)
        for _ in range(2):
            self.cloud.tick()
        self.assertEqual(set(), self.admitted())
        self.cloud.settle()
        self.assert_settled()

    def test_the_undo_fails_too(self) -> None:
        with mock.patch.object(iscsi.Targets, 'remove', side_effect=(
                exceptions.TargetUnusable(reason='no'))):
            attachment = self.refused('one')
        self.assert_goes(attachment)

    def test_a_target_that_is_stuck_is_not_waited_for_twice(self) -> None:
        def stuck(targets_: iscsi.Targets, export: targets.Export,
                  ensure: Ensure = iscsi.Targets.ensure) -> None:
            ensure(targets_, export)
            raise exceptions.TargetStuck(reason='no answer')

        with mock.patch.object(iscsi.Targets, 'remove') as remove:
            attachment = self.refused('one', stuck)
        remove.assert_not_called()
        self.assert_goes(attachment)


class CrashTest(FailureTest):
    """The node crashes at each change of a request that fails."""

    def every_crash(self, crash: str, hook: str) -> None:
        at, crashed = 0, True
        while crashed:
            bomb = Bomb(getattr(self.a, crash), at, ('dm', 'targets'))
            attachment = self.cloud.reserve(self.volume)
            setattr(self.cloud, hook, bomb)
            with self.failing(half_made()), contextlib.suppress(
                    ports.Killed, exceptions.TargetUnusable):
                self.connect('one')
            crashed = bomb.where is not None
            self.cloud.restart()
            self.cloud.forget(self.volume, attachment)
            self.cloud.settle()
            self.assert_settled()
            self.cloud.db.close()
            self.build()
            at += 1
        # A device and a target, made and removed.
        self.assertGreater(at, 3)

    def test_service_before(self) -> None:
        self.every_crash('kill', 'before')

    def test_service_after(self) -> None:
        self.every_crash('kill', 'after')

    def test_power_before(self) -> None:
        self.every_crash('lose_power', 'before')

    def test_power_after(self) -> None:
        self.every_crash('lose_power', 'after')
