# SPDX-License-Identifier: Apache-2.0
"""A node with nothing in flight does nothing at all."""

from __future__ import annotations

from unittest import mock

from cinder_dmclone import names
from cinder_dmclone.reconcile import schedule
from tests.unit import base
from tests.unit.fake import ports


class IdleTest(base.CloudTestCase):

    def test_settled_nodes_ask_nobody(self) -> None:
        self.relocated()
        self.cloud.settle()
        self.assert_settled()
        self.cloud.db.statements.clear()
        before = len(self.cloud.calls)
        for _ in range(10):
            self.cloud.tick()
        self.assertEqual([], self.cloud.calls[before:])
        self.assertEqual([], self.cloud.db.statements)

    def test_a_start_comes_to_rest(self) -> None:
        for node in (self.a, self.b):
            node.kill()
        self.cloud.restart()
        self.cloud.settle()
        self.test_settled_nodes_ask_nobody()

    def test_cost_is_per_hydration_not_per_volume(self) -> None:
        costs = []
        for volumes in (0, 30):
            self.cloud.db.close()
            self.build()
            for _ in range(volumes):
                self.cloud.create(self.b)
            self.cloud.db.statements.clear()
            self.cloud.calls.clear()
            self.relocated()
            self.cloud.settle()
            costs.append((len(self.cloud.calls), sum(
                text.startswith(('SELECT', 'UPDATE'))
                for text in self.cloud.db.statements)))
        self.assertEqual(*costs)

    def test_one_volume_in_trouble_does_not_stop_the_others(self) -> None:
        other = self.cloud.create(self.a)
        attachment = self.cloud.reserve(other)
        self.cloud.connect(other, attachment, self.b)
        self.cloud.complete(other, attachment)
        broken = self.cloud.row(other).lv
        self.relocated()

        def before(call: ports.Call) -> None:
            if call.port == 'dm' and call.method == 'message' and (
                    broken in call.arguments[0]):
                raise RuntimeError('a bug')
        self.cloud.before = before
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(self.volume).source)
        self.cloud.before = lambda call: None
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(other).source)

    def test_an_lv_that_got_no_thread_is_tried_again(self) -> None:
        self.relocated()
        loop = self.b.process.loop
        with mock.patch.object(loop._workers, '_spawn',
                               side_effect=RuntimeError):
            loop.run_once(everything=True)
        self.cloud.settle()
        self.assert_settled()

    def test_a_path_that_fails_at_once_again_is_given_time(self) -> None:
        """A bad sector of the lender lets it fail as soon as it is there."""
        self.relocated()
        lv = self.cloud.row(self.volume).lv
        loop, mapper = self.b.process.loop, self.b.mapper
        loop.run_once(everything=True)
        source = mapper.mapped[str(names.source(lv))]

        def fail() -> bool:
            source.path_failed = True
            loop.path_failed(lv)
            self.cloud.clock.sleep(schedule.GATHERED)
            loop.run_once()
            return source.path_failed
        self.assertFalse(fail())
        self.assertTrue(fail())
        self.cloud.clock.sleep(schedule.SOONEST - schedule.GATHERED)
        loop.run_once()
        self.assertFalse(source.path_failed)
        self.cloud.clock.sleep(schedule.SOONEST)
        self.assertFalse(fail())
