# SPDX-License-Identifier: Apache-2.0
"""Who waits for whom when many LVs need work at once."""

from __future__ import annotations

import threading
import typing
from unittest import mock

from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.reconcile.decision import Step
from cinder_dmclone.reconcile import turns
from cinder_dmclone.reconcile import workers
from cinder_dmclone.reconcile.workers import Lane
from cinder_dmclone.stack import state
from cinder_dmclone.stack import teardown
from cinder_dmclone.sysfs import sessions
from tests.unit import base
from tests.unit import migration
from tests.unit.fake import cloud

# More than any lane has threads.
MANY = 30
EXPORTED = state.Stack(LvUuid('x'), exports={'iqn': mock.Mock()})
STACKED = state.Stack(LvUuid('x'), devices={
    names.clone(LvUuid('x')): mock.Mock()})
LEFT = state.Stack(LvUuid('x'), devices={
    names.front('a', LvUuid('x')): mock.Mock()})
DISK = sessions.Disk('/dev/sda', '8:0', sessions.LOGGED_IN)

# Threads as cinder-volume has them by default: each lane is full of what does
# not end, and a server's write still goes through.
EVENTLET = '''
import eventlet
eventlet.monkey_patch()
import threading
from cinder_dmclone.reconcile import workers
from cinder_dmclone.stack import state
stuck, written = threading.Event(), threading.Event()
def work(stack, lane):
    (written.set if lane is workers.Lane.WRITE else stuck.wait)()
pool = workers.Workers(work, None)
for lane in reversed(workers.Lane):
    for number in range(workers.THREADS[lane] + 1):
        pool.put(state.Stack(f'{lane}-{number}'), lane)
print(written.wait(60))
'''


class LaneTest(base.TestCase):

    def test_logins_and_erasures_are_not_where_servers_wait(self) -> None:
        without = state.Stack(LvUuid('x'))
        connected = state.Stack(LvUuid('x'), disk=DISK)
        lanes: list[tuple[state.Stack, dict[Step, Lane]]] = [
            (connected, {
                Question.CLAIM: Lane.WRITE, Action.ADOPT: Lane.WRITE,
                Action.OPEN: Lane.WRITE, Action.REJECT: Lane.WRITE,
                Action.FENCE: Lane.WRITE, Action.PAUSE: Lane.OTHER,
                Action.ACTIVATE: Lane.WRITE,
                Action.RECONNECT: Lane.READ, Question.SHOW: Lane.OTHER}),
            (without, {
                Action.RECONNECT: Lane.OTHER, Action.HYDRATE: Lane.OTHER,
                Action.ERASE: Lane.ERASURE})]
        # Before who has moved is cut off.
        lanes.append((LEFT, {Action.PAUSE: Lane.WRITE}))
        # What is built on it, and its lender, wait for no other's erasure.
        lanes += [(built, {Action.ERASE: Lane.OTHER})
                  for built in (connected, EXPORTED, STACKED)]
        for stack, wanted in lanes:
            for step, expected in wanted.items():
                self.assertIs(expected, workers.lane(Decision(step), stack))


class HeldTest(base.CloudTestCase):
    """The erasures of a node do not come to an end."""

    def hold(self, node: cloud.Node) -> typing.Callable[[], None]:
        """Let none begin; returns what ends that."""
        pool, held = node.process.loop._workers, []

        def spawn(function: typing.Callable[[Lane], None],
                  lane: Lane) -> None:
            if lane is Lane.ERASURE:
                held.append(lane)
            else:
                function(lane)

        def go_on() -> None:
            for lane in held:
                pool._work_lane(lane)
        self.enterContext(mock.patch.object(pool, '_spawn', spawn))
        return go_on

    def test_the_lender_of_a_deleted_volume_waits_for_none(self) -> None:
        attachment, _ = self.relocated()
        self.cloud.settle(1)
        self.cloud.detach(self.volume, attachment, self.b)
        name = names.data_lv(self.cloud.row(self.volume).lv)
        go_on = self.hold(self.b)
        self.cloud.delete(self.volume)
        self.cloud.settle()
        self.assert_clean(self.a, set())
        self.assertEqual(({}, {}, {name}, []), (
            self.b.mapper.mapped, self.b.initiator.records_,
            set(self.b.group.volumes), self.b.erased))
        go_on()
        self.assertEqual(({}, [name]), (self.b.group.volumes, self.b.erased))

    def test_what_waits_is_what_it_was(self) -> None:
        """A database may be restored meanwhile, or its successor be lost."""
        go_on = self.hold(self.a)
        self.relocated()
        old = self.a.group.volumes[names.data_lv(self.lv)]
        tags = set(old.tags)
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(self.volume).source)
        self.assertEqual(({}, {}, tags, []), (
            self.a.mapper.mapped, self.a.targets.exports, set(old.tags),
            self.a.erased))
        self.cloud.calls.clear()
        go_on()
        self.assert_settled()
        # Nor is it lent again before it is asked who needs it.
        self.assertNotIn('ensure', [call.method for call in self.cloud.calls])


class WorkersTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.end = threading.Event()
        self.addCleanup(self.end.set)
        self.done: list[str] = []
        self.threads: list[threading.Thread] = []

    def pool(self, work: typing.Callable[[state.Stack, Lane], Lane | None],
             failed: typing.Callable[[state.Stack], None] = lambda stack: None,
             ) -> workers.Workers:
        return workers.Workers(work, failed, self.spawn)

    def spawn(self, function: typing.Callable[..., None],
              *arguments: typing.Any) -> None:
        thread = threading.Thread(target=function, args=arguments,
                                  daemon=True)
        self.threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self.threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())

    def put_many(self, pool: workers.Workers, lane: Lane) -> None:
        for number in range(MANY):
            pool.put(state.Stack(LvUuid(f'{lane.name} {number}')), lane)

    def test_a_write_does_not_stand_behind_what_does_not_end(self) -> None:
        written = threading.Event()

        def work(stack: state.Stack, lane: Lane) -> None:
            (written.set if lane is Lane.WRITE else self.end.wait)()
        pool = self.pool(work)
        for lane in (Lane.ERASURE, Lane.OTHER, Lane.READ):
            self.put_many(pool, lane)
        pool.put(state.Stack(LvUuid('written')), Lane.WRITE)
        self.assertTrue(written.wait(60))
        # As many threads as there are lanes for, however many LVs wait.
        self.assertEqual(sum(workers.THREADS.values())
                         - workers.THREADS[Lane.WRITE] + 1,
                         len(self.threads))

    def test_the_same_with_eventlet(self) -> None:
        found = self.run_with_config('', EVENTLET)
        self.assertEqual('True\n', found.stdout, found.stderr)

    def test_one_disk_is_erased_at_a_time_and_all_are(self) -> None:
        def work(stack: state.Stack, lane: Lane) -> None:
            self.end.wait()
            self.done.append(stack.lv)
        self.put_many(self.pool(work), Lane.ERASURE)
        self.assertEqual(1, len(self.threads))
        self.end.set()
        self.join()
        self.assertEqual([f'ERASURE {n}' for n in range(MANY)], self.done)

    def test_an_lv_that_waits_comes_sooner_if_its_server_waits(self) -> None:
        def work(stack: state.Stack, lane: Lane) -> None:
            if lane is Lane.WRITE:
                self.done.append(stack.lv)
                self.end.set()
            self.end.wait()
        pool = self.pool(work)
        self.put_many(pool, Lane.ERASURE)
        last = LvUuid(f'ERASURE {MANY - 1}')
        self.assertTrue(pool.hasten(last, Lane.WRITE))
        self.assertTrue(self.end.wait(60))
        self.assertEqual([last], self.done)
        self.assertFalse(pool.hasten(last, Lane.WRITE))

    def test_what_becomes_slow_goes_on_in_its_own_lane(self) -> None:
        def work(stack: state.Stack, lane: Lane) -> Lane | None:
            self.done.append(lane.name)
            return Lane.ERASURE if lane is Lane.OTHER else None
        self.pool(work).put(state.Stack(LvUuid('released')), Lane.OTHER)
        while len(self.done) < 2 or len(self.threads) < 2:
            self.threads[0].join(1)
        self.join()
        self.assertEqual(['OTHER', 'ERASURE'], self.done)

    def test_work_that_raises_does_not_take_its_thread_along(self) -> None:
        failed: list[str] = []

        def work(stack: state.Stack, lane: Lane) -> None:
            raise RuntimeError('a bug')
        pool = self.pool(work, lambda stack: failed.append(stack.lv))
        self.put_many(pool, Lane.ERASURE)
        self.join()
        self.assertEqual(MANY, len(failed))
        self.assertLessEqual(len(self.threads), MANY)


class NoThreadTest(base.TestCase):
    """Each thread but some cannot be started."""

    def setUp(self) -> None:
        super().setUp()
        self.failed: list[str] = []
        self.worked: list[str] = []
        self.started: list[typing.Callable[[], None]] = []
        self.refuse = False
        self.pool = workers.Workers(
            lambda stack, lane: self.worked.append(stack.lv),
            lambda stack: self.failed.append(stack.lv), self.spawn)

    def spawn(self, function: typing.Callable[..., None],
              *arguments: typing.Any) -> None:
        if self.refuse:
            raise RuntimeError("can't start new thread")
        self.started.append(lambda: function(*arguments))

    def test_an_lv_that_gets_no_thread_is_given_back(self) -> None:
        self.refuse = True
        self.pool.put(state.Stack(LvUuid('first')), Lane.OTHER)
        self.assertEqual(['first'], self.failed)
        self.refuse = False
        self.pool.put(state.Stack(LvUuid('first')), Lane.OTHER)
        self.started[0]()
        self.assertEqual(['first'], self.worked)

    def test_the_threads_that_there_are_take_it(self) -> None:
        self.pool.put(state.Stack(LvUuid('first')), Lane.OTHER)
        self.refuse = True
        self.pool.put(state.Stack(LvUuid('second')), Lane.OTHER)
        self.assertEqual([], self.failed)
        self.started[0]()
        self.assertEqual(['first', 'second'], self.worked)

    def test_who_relied_on_a_thread_that_did_not_come(self) -> None:
        def spawn(function: typing.Callable[..., None],
                  *arguments: typing.Any) -> None:
            self.pool.put(state.Stack(LvUuid('second')), Lane.ERASURE)
            raise RuntimeError("can't start new thread")
        self.pool._spawn = spawn
        self.pool.put(state.Stack(LvUuid('first')), Lane.ERASURE)
        self.assertEqual(['first', 'second'], self.failed)


class ReconcilerTest(base.CloudTestCase):
    """The lanes of the reconciler's own steps."""

    def put_off(self) -> None:
        """Threads do not run before they are told to."""
        self.threads: list[tuple[Lane, typing.Callable[[], None]]] = []
        self.a.process.loop._workers._spawn = lambda function, lane: (
            self.threads.append((lane, lambda: function(lane))))

    def run_thread(self) -> Lane:
        lane, run = self.threads.pop(0)
        run()
        return lane

    def test_an_erasure_is_handed_on(self) -> None:
        self.relocated()
        self.put_off()
        for _ in range(6):
            self.cloud.tick()
            while self.threads and self.threads[0][0] is not Lane.ERASURE:
                self.assertEqual([], self.a.erased)
                self.run_thread()
        self.assertEqual([], self.a.erased)
        while self.threads:
            self.run_thread()
        self.assertEqual([names.data_lv(self.lv)], self.a.erased)
        self.cloud.settle()
        self.assert_settled()

    def test_a_removal_that_waits_is_not_decided_over_and_over(self) -> None:
        self.relocated()
        self.put_off()
        for _ in range(6):
            self.cloud.tick()
            while self.threads and self.threads[0][0] is not Lane.ERASURE:
                self.run_thread()
        self.cloud.calls.clear()
        for _ in range(5):
            self.cloud.tick()
        self.assertEqual([], [call for call in self.cloud.calls
                              if call.node == self.a.name])
        self.run_thread()
        self.cloud.settle()
        self.assert_settled()

    def test_an_erasure_that_was_halted_is_begun_again(self) -> None:
        """Also if what it was halted for has failed: nothing is given away.
        """
        self.relocated()
        erasures, halted = self.a.process.loop.erasures, [names.data_lv(
            self.lv)]
        erase = teardown.erase

        def stop(host: Host, stack: state.Stack,
                 goes_on: typing.Callable[[], bool]) -> None:
            if halted and stack.lv == self.lv:
                with erasures.halt(self.lv):
                    goes_on()
                self.assertIn(halted.pop(), self.a.group.volumes)
                return
            self.assertIn(names.data_lv(stack.lv), self.a.group.volumes)
            erase(host, stack, goes_on)
        with mock.patch.object(teardown, 'erase', stop):
            self.cloud.settle()
        self.assertEqual([], halted)
        self.assertEqual([names.data_lv(self.lv)], self.a.erased)
        self.assert_settled()


class ClaimTest(migration.MigrationTestCase):
    """Servers that have moved, and write, and whose old node is silent."""

    def test_few_threads_wait_for_one_node(self) -> None:
        """Others wait for theirs, whose nodes answer."""
        loop, others = self.b.process.loop, []
        self.migrate()
        for _ in range(5):
            volume = self.cloud.create(self.a)
            _, old = self.cloud.attach(volume, self.a)
            self.a.mapper.open(old)
            _, new = self.cloud.migrate(volume, self.b)
            self.b.mapper.open(new)
            others.append(new)
        self.a.kill()
        for new in (self.new, *others):
            self.held(self.b, new)
            name = names.DeviceName.parse(new.rpartition('/')[2])
            assert name
            loop.enqueue(name.lv)
        asked = []
        for _ in range(4):
            self.cloud.calls.clear()
            loop.run_once()
            asked.append(sum(call.method == 'HandOver'
                             for call in self.cloud.calls))
            self.cloud.clock.now += turns.CLAIM_SECONDS / 2
        # Here one works on all, and has been told before it asks again.
        self.assertEqual([1, 0, 1, 0], asked)
        self.a.start()
        self.cloud.settle()
        self.write(self.b, self.new)
        for new in others:
            self.b.mapper.write(new, 3, 'goes on')
