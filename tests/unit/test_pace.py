# SPDX-License-Identifier: Apache-2.0
"""Which clones are kept at hydrating, and for how long."""

from __future__ import annotations

import dataclasses
import threading
import typing
from unittest import mock

from cinder_dmclone.courses import CALM
from cinder_dmclone.courses import Course
from cinder_dmclone.courses import Progress
from cinder_dmclone.host.dm import device
from cinder_dmclone import names
from cinder_dmclone.reconcile import pace
from cinder_dmclone.reconcile import windows
from cinder_dmclone.settings import Rates
from cinder_dmclone.stack import inspect
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import ports

# How long the thread may take; it is far faster.
SECONDS = 60

_Found = tuple[float, tuple[Progress, ...]]


class PaceTest(base.CloudTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.pace = pace.Pace(self.b.service.host, self.cloud.clock)
        self.courses: list[Course] = []

    def guided(self, paced: pace.Pace, *found: Progress) -> tuple[str, ...]:
        """What is guided for a second, and comes to this."""
        self.courses = []

        def keep_going(courses: typing.Iterable[Course],
                       _seconds: float) -> _Found:
            self.courses.extend(courses)
            return 0.5, found
        with mock.patch.object(self.b.mapper, 'keep_going', keep_going):
            self.assertEqual(0.5 if paced._clones else 0.0, paced.once())
        return tuple(course.name for course in self.courses)

    def followed(self) -> tuple[str, ...]:
        self.pace.follow(inspect.collect(self.b.service.host).values())
        return self.guided(self.pace)

    def move(self) -> tuple[str, ...]:
        """Move the volume to b, and what is to be kept going then."""
        self.cloud.attach(self.volume, self.b)
        self.b.process.loop.run_once(everything=True)
        return str(names.clone(self.cloud.row(self.volume).lv)),

    def test_what_hydrates(self) -> None:
        self.assertEqual((), self.followed())
        wanted = self.move()
        self.assertEqual(wanted, self.followed())

    def test_not_what_has_hydrated(self) -> None:
        self.move()
        self.b.mapper.hydrate(base.REGIONS)
        self.assertEqual((), self.followed())
        self.cloud.settle()
        self.assertEqual((), self.followed())

    def test_not_what_may_not_hydrate_yet(self) -> None:
        clone, = self.move()
        self.b.mapper.message(clone, 'disable_hydration')
        self.assertEqual((), self.followed())

    def test_not_what_waits_for_its_lender(self) -> None:
        self.move()
        self.a.lose_power()
        self.cloud.lose_paths()
        self.assertEqual((), self.followed())

    def test_the_reconciler_knows(self) -> None:
        wanted = self.move()
        loop = self.b.process.loop
        loop.run_once(everything=True)
        self.assertEqual(wanted, self.guided(loop._pace))

    def test_not_what_is_gone(self) -> None:
        """Nothing is kept going of a volume that was deleted meanwhile."""
        attachment, _ = self.relocated()
        self.cloud.settle(1)
        self.cloud.detach(self.volume, attachment, self.b)
        self.cloud.delete(self.volume)
        self.cloud.settle()
        self.assertEqual((), self.guided(self.b.process.loop._pace))

    def test_the_next_course_follows_from_what_came_of_the_last(self) -> None:
        """Of the same clone, for as long as it hydrates."""
        name, = self.move()
        host = dataclasses.replace(
            self.b.service.host, settings=dataclasses.replace(
                self.b.service.host.settings,
                hydration_threshold=units.Bytes(16 << 20),
                rates=lambda: Rates(units.Bytes(1 << 30), units.Bytes(0))))
        self.pace = pace.Pace(host, self.cloud.clock)
        self.followed()
        before = self.pace._clones[name].widths
        self.assertEqual([(-1, CALM)], [
            (course.requests, course.calm) for course in self.courses])
        came = Progress(name, 0.0, 0, 1.0, 0, 7, 0.25)
        self.guided(self.pace, came)
        self.followed()
        after = self.pace._clones[name].widths
        self.assertEqual([(7, 0.25)], [
            (course.requests, course.calm) for course in self.courses])
        assert before and after
        self.assertEqual(2 * before.work, after.work)

    def test_all_share_the_ceiling(self) -> None:
        asked: list[Rates] = []

        class Widths(windows.Widths):
            @classmethod
            def first(cls, rates: Rates, most: units.Bytes) -> Widths:
                asked.append(rates)
                return cls(most, most)
        rates = Rates(units.Bytes(5), units.Bytes(100))
        settings = dataclasses.replace(self.b.service.host.settings,
                                       rates=lambda: rates)
        self.pace = pace.Pace(dataclasses.replace(
            self.b.service.host, settings=settings), self.cloud.clock)
        region = units.Bytes(4096)
        self.pace._clones = {name: pace._Course(region) for name in 'ab'}
        with mock.patch.object(pace, 'Widths', Widths):
            self.guided(self.pace)
        self.assertEqual([Rates(units.Bytes(5), units.Bytes(50))] * 2, asked)

    def test_the_thread(self) -> None:
        """It asks nobody while there is none."""
        looks: list[tuple[str, ...]] = []
        enough, go_on = threading.Event(), threading.Event()

        class Clock(ports.Clock):
            def sleep(_self, seconds: float) -> None:
                self.assertEqual(0.5, seconds)
                if len(looks) == 3:
                    # What has hydrated is asked for no more.
                    self.pace.follow([])
                    enough.set()
                    go_on.wait(SECONDS)
        wanted = self.move()
        self.pace = pace.Pace(self.b.service.host, Clock())
        stacks = inspect.collect(self.b.service.host)

        def look(courses: typing.Iterable[Course], _seconds: float) -> _Found:
            looks.append(tuple(course.name for course in courses))
            return 0.5, ()
        with mock.patch.object(self.b.mapper, 'keep_going', look):
            self.pace.start()
            self.pace.follow(stacks.values())
            self.assertTrue(enough.wait(SECONDS))
            go_on.set()
            self.assertEqual([wanted] * 3, looks)

    def test_it_goes_on_after_a_failure(self) -> None:
        self.move()
        self.followed()
        with mock.patch.object(self.b.mapper, 'keep_going',
                               side_effect=OSError('refused')):
            self.assertEqual(pace.PAUSE, self.pace.once())
        self.guided(self.pace)


class DoorTest(base.TestCase):

    def test_all_at_once(self) -> None:
        """One call of what runs as root, however many there are."""
        course = Course('a', (4, 2), (2, 1), True)  # type: ignore[arg-type]
        came = ('a', 0.0, 0, 1.0, 5, 7, 0.25)
        with mock.patch.object(device, 'hydration') as root:
            root.keep_going.return_value = 0.1, (came,)
            self.assertEqual(
                (0.1, (Progress(*came),)),
                device.DeviceMapper().keep_going([course], 1.0))
        root.keep_going.assert_called_once_with(
            (('a', (4, 2), (2, 1), True, -1, CALM),), 1.0)
