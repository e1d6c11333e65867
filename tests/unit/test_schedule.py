# SPDX-License-Identifier: Apache-2.0
"""When an LV is looked at again."""

from __future__ import annotations

import typing

from cinder_dmclone.location import LvUuid
from cinder_dmclone.reconcile import schedule
from tests.unit import base

LV, OTHER, GONE = map(LvUuid, ('an LV', 'another', 'gone meanwhile'))


class ScheduleTestCase(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.plan = schedule.Schedule()

    def first(self) -> float:
        """When something is looked at next."""
        first = self.plan.first()
        assert first is not None
        return first


class ScheduleTest(ScheduleTestCase):

    def test_nothing_in_flight(self) -> None:
        self.assertIsNone(self.plan.first())
        self.assertEqual(set(), self.plan.due(1e9))

    def test_the_first_of_all(self) -> None:
        self.plan.enqueue(LV, 20.0)
        self.plan.enqueue(OTHER, 10.0)
        self.assertEqual(10.0, self.plan.first())
        self.assertEqual({OTHER}, self.plan.due(10.0))
        self.assertEqual({LV, OTHER}, self.plan.due(20.0))

    def test_intervals_double(self) -> None:
        now, intervals = 100.0, []
        for _ in range(7):
            self.plan.wait(LV, now, now)
            intervals.append(self.first() - now)
            now = self.first()
        self.assertEqual([2, 4, 8, 16, 32, 60, 60], intervals)

    def test_a_slow_start_and_a_late_end(self) -> None:
        now, intervals = 100.0, []
        for _ in range(8):
            self.plan.wait(LV, now, now, schedule.TOLD, schedule.SELDOM)
            intervals.append(self.first() - now)
            now = self.first()
        self.assertEqual([10, 20, 40, 80, 160, 320, 600, 600], intervals)

    def test_hurry_ends_a_long_interval(self) -> None:
        for now in (0.0, 10.0, 30.0):
            self.plan.wait(LV, now, now, latest=1000.0)
        self.plan.hurry(LV, 70.0, 70.0)
        self.assertEqual(72.0, self.plan.first())
        self.plan.wait(LV, 72.0, 72.0)
        self.assertEqual(76.0, self.plan.first())

    def test_rest(self) -> None:
        self.plan.wait(LV, 1.0, 1.0)
        self.plan.rest(LV, 3.0)
        self.assertNotIn(LV, self.plan)

    def test_who_enqueues_after_the_look_is_not_forgotten(self) -> None:
        looks: tuple[typing.Callable[[], None], ...] = (
            lambda: self.plan.rest(LV, 5.0),
            lambda: self.plan.wait(LV, 5.0, 9.0),
            lambda: self.plan.hurry(LV, 5.0, 9.0),
            lambda: self.plan.hydrate(LV, 5.0, 9.0, 1, 2))
        for after in looks:
            self.plan.enqueue(LV, 6.0)
            after()
            self.assertEqual(6.0, self.plan.first())

    def test_what_nobody_answers_to(self) -> None:
        self.plan.enqueue(LV, 1.0)
        self.plan.enqueue(OTHER, 9.0)
        self.plan.nobody([LV, OTHER, GONE], 5.0)
        self.assertEqual([OTHER], list(self.plan))

    def test_what_is_being_worked_on_can_be_enqueued(self) -> None:
        self.plan.enqueue(LV, 1.0)
        self.assertTrue(self.plan.begin(LV, 1.0))
        self.assertFalse(self.plan.begin(LV, 1.0))
        self.assertNotIn(LV, self.plan)
        self.plan.enqueue(LV, 2.0)
        self.assertEqual({LV}, self.plan.due(2.0))
        self.assertEqual({LV}, self.plan.at_work([LV, OTHER]))

    def test_who_means_a_volume_with_the_id_of_an_lv(self) -> None:
        """Its other LVs are looked at, whatever begins on this one."""
        self.plan.enqueue(LV, 2.0)
        self.plan.begin(LV, 1.0)
        self.assertEqual({LV}, self.plan.due(2.0))
        self.plan.end(LV, 3.0)
        self.plan.rest(LV, 2.5)
        self.assertEqual(3.0, self.plan.first())

    def test_nobody_waits_for_the_end_of_work_by_looking(self) -> None:
        """An erasure takes minutes."""
        self.plan.begin(LV, 0.0)
        self.plan.enqueue(LV, 1.0)
        self.plan.enqueue_after(LV, 1.0)
        self.assertIsNone(self.plan.first())
        self.plan.end(LV, 500.0)
        self.plan.wait(LV, 0.5, 500.0)
        self.assertEqual(500.0, self.plan.first())
        self.assertEqual(set(), self.plan.at_work([LV]))

    def test_who_enqueues_during_work_that_is_called_for(self) -> None:
        """May mean all LVs of a volume that has the id of this one."""
        self.plan.begin(LV, 0.0)
        self.plan.enqueue(LV, 2.0)
        self.plan.enqueue_after(LV, 1.0)
        self.assertEqual({LV}, self.plan.due(2.0))

    def test_a_look_before_does_not_stand_for_a_later_one(self) -> None:
        """What was enqueued for later has not happened yet."""
        def work(seen: float) -> None:
            self.plan.begin(LV, seen)
            self.plan.end(LV, seen)
            self.plan.rest(LV, seen)
        looks: tuple[typing.Callable[[float], None], ...] = (
            work, lambda seen: self.plan.rest(LV, seen),
            lambda seen: self.plan.wait(LV, seen, seen, schedule.TOLD),
            lambda seen: self.plan.nobody([LV], seen))
        for look in looks:
            self.plan.enqueue_later(LV, 12.0)
            self.plan.enqueue(LV, 10.0)
            self.assertEqual(10.0, self.plan.first())
            look(10.0)
            self.assertEqual(12.0, self.plan.first())
            self.plan.rest(LV, 12.0)
            self.assertIsNone(self.plan.first())

    def test_a_later_look_waits_for_no_work(self) -> None:
        """Another LV of the volume that has this one's id may be meant."""
        self.plan.enqueue_later(LV, 12.0)
        self.plan.enqueue(LV, 10.0)
        self.plan.begin(LV, 10.0)
        self.assertEqual(12.0, self.plan.first())

    def test_a_later_look_does_not_put_off_one_before(self) -> None:
        self.plan.enqueue(LV, 10.0)
        self.plan.enqueue_later(LV, 12.0)
        self.assertEqual(10.0, self.plan.first())
        self.plan.rest(LV, 10.0)
        self.assertEqual(12.0, self.plan.first())


class HydrationTest(ScheduleTestCase):
    """1000 regions."""

    def hydrate(self, now: float, done: int) -> float:
        self.plan.hydrate(LV, now, now, done, 1000)
        return self.first() - now

    def test_progress_decides(self) -> None:
        self.assertEqual(2.0, self.hydrate(0.0, 100))
        # 50 regions a second, 800 are left: the latest is sooner.
        self.assertEqual(10.0, self.hydrate(2.0, 200))
        self.assertEqual(6.0, self.hydrate(12.0, 700))
        self.assertEqual(0.5, self.hydrate(18.0, 999))

    def test_no_progress(self) -> None:
        """As while the lender is away."""
        self.assertEqual([2.0, 4.0, 8.0, 10.0, 10.0],
                         [self.hydrate(float(now), 100)
                          for now in range(0, 100, 20)])
        self.assertEqual(10.0, self.hydrate(100.0, 101))
        self.plan.act(LV)
        self.assertEqual(2.0, self.hydrate(120.0, 101))

    def test_a_hydration_that_ended_says_nothing_of_the_next(self) -> None:
        self.hydrate(0.0, 100)
        self.plan.rest(LV, 10.0)
        self.assertEqual(2.0, self.hydrate(20.0, 500))


class FailedPathTest(ScheduleTestCase):

    def test_not_too_often(self) -> None:
        self.assertEqual(
            [False, True, True, False],
            [self.plan.path_failed(LV, now) for now in (1., 2., 3.9, 5.9)])

    def test_each_lv_by_itself(self) -> None:
        self.plan.path_failed(LV, 1.0)
        self.assertFalse(self.plan.path_failed(OTHER, 1.0))

    def test_rest_forgets(self) -> None:
        self.plan.path_failed(LV, 1.0)
        self.plan.rest(LV, 1.5)
        self.assertFalse(self.plan.path_failed(LV, 2.0))
