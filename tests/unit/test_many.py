# SPDX-License-Identifier: Apache-2.0
"""A lender of many volumes dies: what its borrowers do is little.

A look at all costs a few calls, however many volumes there are; the rows are
read so many at a time.
"""

from __future__ import annotations

import collections
import math
import typing
from unittest import mock

from oslo_config import cfg

from cinder_dmclone.database import changes
from cinder_dmclone.database import provider_id
from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.reconcile import workers
from cinder_dmclone.reconcile.workers import Lane
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit import migration

FEW, MANY = 10, 100
# Looks in a minute: after 2, 4 and 8 seconds, then every ten; at first not
# yet at all LVs together.
LOOKS = 16
# Logins in a minute, and calls of a port for them.
TRIES, CALLS = 8, 40
# Times that a record is read for a decision; much less than there are LVs.
PARSED = 25
# Seconds within which a lender that is back is noticed.
NOTICED = 10.0
# Seconds in which all sessions with a lender are given up.
SPREAD = 2.0


class ManyTestCase(base.CloudTestCase):

    options = {'gib': 3 * MANY}

    def borrow(self, count: int) -> None:
        """A new cloud, in which b hydrates from a and nothing is copied."""
        # This takes longer than a service may be silent.
        cfg.CONF.set_override('service_down_time', 3600)
        self.addCleanup(cfg.CONF.clear_override, 'service_down_time')
        self.cloud.db.close()
        self.build()
        self.lvs = []
        for _ in range(count):
            volume = self.cloud.create(self.a)
            self.cloud.attach(volume, self.b)
            self.lvs.append(self.cloud.row(volume).lv)
        self.cloud.deliver_late()
        self.pass_time(1.0)

    def pass_time(self, seconds: float,
                  node: cloud.Node | None = None) -> None:
        """Let b, or another node, look whenever it wants to."""
        clock, loop = self.cloud.clock, (node or self.b).process.loop
        end = clock.now + seconds
        while (first := loop._schedule.first()) and first <= end:
            clock.now = max(clock.now, first)
            loop.run_once()
        clock.now = end

    def spent(self, seconds: float, event: typing.Callable[[], None] = (
            lambda: None)) -> tuple[collections.Counter[str], int]:
        """Calls of the ports of b, and statements, after an event."""
        self.cloud.calls.clear()
        self.cloud.db.statements.clear()
        event()
        self.pass_time(seconds)
        calls = collections.Counter(
            f'{call.port}.{call.method}' for call in self.cloud.calls
            if call.node == self.b.name)
        return calls, sum(text.startswith('SELECT')
                          for text in self.cloud.db.statements)

    def paths(self) -> set[bool]:
        return {self.b.mapper._works(
            self.b.mapper.mapped[str(names.source(lv))].devnum)
            for lv in self.lvs}


class LenderTest(ManyTestCase):

    def die(self) -> None:
        """Its sessions are given up one after the other."""
        self.a.lose_power()
        for lv in self.lvs:
            self.b.process.loop.path_failed(lv)
            self.pass_time(SPREAD / len(self.lvs))

    def boot(self) -> None:
        """No session is left."""
        self.a.lose_power()
        self.b.lose_power()
        self.b.start()
        self.pass_time(20.0)

    def test_a_lender_that_dies_costs_a_few_looks(self) -> None:
        tries = []
        for count in (FEW, MANY):
            self.borrow(count)
            calls, statements = self.spent(60.0, self.die)
            self.assertEqual({False}, self.paths())
            looks = calls.pop('dm.devices')
            self.assertLessEqual(looks, LOOKS)
            # Of the LVs, disks, exports and rows: one call each.
            self.assertEqual(
                {call: looks for call in (
                    'group.report', 'targets.list', 'initiator.disks',
                    'rows.find')}, calls)
            # Of each LV two ids are looked for, then their attachments.
            rows = math.ceil(2 * count / changes.AT_ONCE)
            self.assertLessEqual(statements, 2 * looks * rows)
            self.boot()
            calls, statements = self.spent(60.0)
            self.assertLessEqual(calls['initiator.relogin'], TRIES)
            tries.append(calls['initiator.relogin'])
            # Of each LV that waits it is only asked whether it does.
            del calls['initiator.silent']
            self.assertLessEqual(max(calls.values()), CALLS)
        self.assertLess(0, tries[0])
        self.assertEqual(*tries)

    def test_each_lv_is_compared_with_its_own_rows_only(self) -> None:
        self.borrow(3 * FEW)
        self.die()
        self.pass_time(60.0)
        with mock.patch.object(provider_id.ProviderId, 'parse', autospec=True,
                               side_effect=provider_id.ProviderId.parse
                               ) as parse:
            calls, _ = self.spent(60.0)
        self.assertLess(0, parse.call_count)
        self.assertLessEqual(parse.call_count,
                             PARSED * len(self.lvs) * calls['rows.find'])

    def test_a_lender_that_is_back_is_noticed_soon(self) -> None:
        self.borrow(FEW)
        self.die()
        self.pass_time(630.0)
        self.a.start()
        self.pass_time(NOTICED)
        self.assertEqual({True}, self.paths())

    def test_a_lender_that_is_back_is_used_for_all_soon(self) -> None:
        self.borrow(FEW)
        self.boot()
        self.assertEqual({False}, self.paths())
        self.a.start()
        self.pass_time(NOTICED)
        self.assertEqual({True}, self.paths())

    def test_an_lv_that_cannot_log_in_does_not_stand_for_all(self) -> None:
        self.borrow(FEW)
        self.boot()
        self.a.start()
        sound = self.b.group.volumes[names.data_lv(max(self.lvs))]
        source = lv_tags.Tags.parse(sound.tags).source
        assert source

        def before(call: ports.Call) -> None:
            if call.method == 'relogin' and call.arguments[0] != source.iqn:
                raise exceptions.LoginFailed(iqn=call.arguments[0],
                                             portal='', reason='no record')
        self.cloud.before = before
        self.pass_time(2 * FEW * NOTICED)
        self.assertEqual(set(), self.b.initiator.silent_)


class AskedTest(ManyTestCase):

    hosts = ('a', 'b', 'c')

    def lend(self, count: int) -> None:
        """Have volumes at c that hydrate from b, and there from a."""
        self.borrow(0)
        c, = self.others
        for _ in range(count):
            volume = self.cloud.create(self.a)
            attachment, _ = self.cloud.attach(volume, self.b)
            self.cloud.detach(volume, attachment, self.b)
            self.cloud.attach(volume, c)
        self.cloud.deliver_late()
        self.pass_time(1.0, self.a)

    def test_a_node_that_is_dead_is_asked_by_one_at_a_time(self) -> None:
        """However many need its answer: others have work for the threads."""
        asked = []
        for count in (FEW, 3 * FEW):
            self.lend(count)
            self.b.lose_power()
            self.cloud.calls.clear()
            self.pass_time(60.0, self.a)
            asked.append(sum(
                (call.node, call.method) == (self.a.name, 'Show')
                for call in self.cloud.calls))
        self.assertLess(0, asked[0])
        self.assertEqual(*asked)


class UrgentTest(migration.MigrationTestCase):
    """Everything that is not urgent takes for ever."""

    def test_a_first_write_overtakes_all_that_waits(self) -> None:
        self.migrate()
        loop = self.b.process.loop
        loop.run_once(everything=True)
        started: list[tuple[Lane, typing.Callable[[], None]]] = []
        loop._workers._spawn = lambda run, lane: started.append(
            (lane, lambda: run(lane)))
        offer = self.cloud.row(self.volume).offer
        assert offer
        stack = loop._seen[offer.lv]
        for lane in Lane:
            if lane is not Lane.WRITE:
                for number in range(MANY):
                    loop._workers.put(state.Stack(LvUuid(f'{number}')), lane)
        self.held(self.b, self.new)
        loop.path_failed(stack.lv)
        for lane, run in list(started):
            if lane is Lane.WRITE:
                run()
        self.assert_home(self.b)
        self.assertLessEqual(len(started), sum(workers.THREADS.values()))
