# SPDX-License-Identifier: Apache-2.0
"""How much is under way, for a rate."""

from __future__ import annotations

import unittest

from cinder_dmclone.courses import Course
from cinder_dmclone.courses import CALM
from cinder_dmclone.courses import Progress
from cinder_dmclone.courses import Window
from cinder_dmclone.reconcile import windows
from cinder_dmclone.reconcile.windows import Widths
from cinder_dmclone.settings import Rates
from cinder_dmclone.units import Bytes

REGION = Bytes(4 << 10)
MOST = Bytes(16 << 20)
BATCH = Bytes(4 << 20)
MIB = 1 << 20


def rates(floor: int, ceiling: int) -> Rates:
    return Rates(Bytes(floor * MIB), Bytes(ceiling * MIB))


class WindowsTest(unittest.TestCase):

    def course(self, widths: Widths, asked: Rates,
               last: Progress | None = None) -> Course:
        return widths.course('a', REGION, asked, BATCH, last)

    def kept(self, asked: Rates, latency: float, busy: bool,
             times: int = 30) -> float:
        """The rate at last, in MiB/s, where a window takes so long."""
        widths = Widths.first(asked, MOST)
        rate = 0.0
        for _ in range(times):
            course = self.course(widths, asked)
            window = course.work if busy else course.rest
            rate = window.threshold * REGION / latency
            copied = int(rate / REGION)
            widths = widths.after(
                Progress('a', 0.0, 0, 1.0, copied, 1, 0.0) if busy
                else Progress('a', 1.0, copied, 0.0, 0, 1, CALM),
                REGION, asked, MOST)
        return rate / MIB

    def test_without_limits(self) -> None:
        """All that the operator allows at a time; the kernel by itself."""
        course = self.course(Widths.first(rates(0, 0), MOST), rates(0, 0))
        self.assertEqual(Window(4096, 1024), course.rest)
        self.assertEqual(Window(windows.LEAST // REGION, 4), course.work)
        self.assertFalse(course.wake)

    def test_a_floor_is_kept_with_little_under_way(self) -> None:
        for latency in 0.001, 0.01, 0.1:
            rate = self.kept(rates(50, 0), latency, busy=True)
            self.assertLessEqual(50, rate)
            # Little more, if less would have done.
            self.assertLess(rate, max(
                75, 2 * windows.LEAST / MIB / latency))

    def test_no_more_than_the_operator_allows_at_a_time(self) -> None:
        self.assertEqual(16, self.kept(rates(50, 0), 1.0, busy=True))

    def test_what_met_io_each_time_tries_with_more(self) -> None:
        widths = Widths.first(rates(50, 0), MOST)
        after = widths.after(Progress('a', 0.0, 0, 1.0, 0, 1, 0.0), REGION,
                             rates(50, 0), MOST)
        self.assertEqual(2 * widths.work, after.work)

    def test_a_ceiling_holds_at_rest_and_at_work(self) -> None:
        for latency in 0.001, 0.01, 0.1:
            for busy in False, True:
                rate = self.kept(rates(200, 100), latency, busy)
                self.assertLessEqual(rate, 100)
                self.assertLess(60, rate)

    def test_a_ceiling_never_stops_it(self) -> None:
        """A region at a time, however low."""
        widths = Widths.first(rates(0, 1), MOST)
        for _ in range(30):
            widths = widths.after(Progress('a', 1.0, 4096, 0.0, 0, 1, CALM),
                                  REGION, rates(0, 1), MOST)
        self.assertEqual(Window(1, 1),
                         self.course(widths, rates(0, 1)).rest)

    def test_without_the_ceiling_all_is_allowed_again(self) -> None:
        low = Widths(REGION, REGION)
        found = low.after(Progress('a', 1.0, 1, 0.0, 0, 1, CALM), REGION,
                          rates(50, 0), MOST)
        self.assertEqual(Widths(MOST, windows.LEAST), found)

    def test_too_short_a_time_says_nothing(self) -> None:
        widths = Widths.first(rates(50, 100), MOST)
        self.assertEqual(widths, widths.after(
            Progress('a', 0.1, 0, 0.1, 0, 1, 0.0), REGION, rates(50, 100),
            MOST))

    def test_regions_larger_than_the_window(self) -> None:
        course = Widths.first(rates(50, 0), MOST).course(
            'a', Bytes(MIB), rates(50, 0), BATCH, None)
        self.assertEqual(Window(1, 1), course.work)
        self.assertEqual(Window(16, 4), course.rest)
